//! One connection's samples, and what they say about the measured part of a run.

use std::net::SocketAddr;

use fairpath_analysis::record::{FlowRecord, LossEvents, TcpSample};
use fairpath_bpf::RecoveryCounts;
use fairpath_netlink::{BbrInfo, SocketId, TcpInfo};

use crate::measure::clock::Window;
use crate::measure::traffic::Transfer;

use super::Sampled;

/// States of loss recovery in which congestion control was informed (CWR and above).
const CA_CWR: u8 = 2;
const CA_LOSS: u8 = 4;

/// A connection at one moment.
#[derive(Clone, Debug)]
pub struct Moment {
    /// When, seconds since the origin.
    pub at: f64,
    /// The values of the kernel.
    pub info: TcpInfo,
    /// The congestion control in use.
    pub congestion: String,
    /// BBR's figures, where it is in use.
    pub bbr: Option<BbrInfo>,
    /// Loss events of congestion control until now; none: they are not counted.
    pub reported: Option<RecoveryCounts>,
}

/// All samples of a connection.
#[derive(Clone, Debug)]
pub struct Series {
    /// The namespace, by inode.
    pub ns: u64,
    /// Which connection.
    pub id: SocketId,
    /// When data was first seen to flow (to the time between two looks, 20 ms).
    pub began: Option<f64>,
    /// Samples in order.
    pub moments: Vec<Moment>,
}

impl Series {
    /// The first and the last sample of `window`; none if there are fewer than two.
    fn ends(&self, window: Window) -> Option<(&Moment, &Moment)> {
        let mut inside = self.moments.iter().filter(|m| window.contains(m.at));
        let first = inside.next()?;
        Some((first, inside.next_back()?))
    }

    /// The number of loss events within `window`.
    pub fn loss_events(&self, window: Window) -> Option<LossEvents> {
        let (first, last) = self.ends(window)?;
        let segments = u64::from(
            last.info
                .data_segs_out
                .wrapping_sub(first.info.data_segs_out),
        );
        let (Some(before), Some(after)) = (first.reported, last.reported) else {
            return Some(LossEvents {
                segments,
                ..self.sampled_events(window)
            });
        };
        Some(LossEvents {
            events: after.events().saturating_sub(before.events()),
            timeouts: u64::from(after.timeouts.saturating_sub(before.timeouts)),
            segments,
            sampled: false,
        })
    }

    /// Entries into CWR, recovery or loss between samples, or retransmissions between two that look alike.
    fn sampled_events(&self, window: Window) -> LossEvents {
        let inside = self.moments.iter().filter(|m| window.contains(m.at));
        let states: Vec<_> = inside
            .map(|m| (m.info.ca_state, m.info.total_retrans))
            .collect();
        let mut events = LossEvents {
            sampled: true,
            ..LossEvents::default()
        };
        for pair in states.windows(2) {
            let ((was, sent), (is, sent_now)) = (pair[0], pair[1]);
            let entered = is >= CA_CWR && was < CA_CWR;
            let passed_through = is < CA_CWR && was < CA_CWR && sent_now != sent;
            let timeout = is == CA_LOSS && was != CA_LOSS;
            events.events += u64::from(entered || passed_through || timeout);
            events.timeouts += u64::from(timeout);
        }
        events
    }

    /// Segments that one ACK covers, within `window`.
    pub fn segments_per_ack(&self, window: Window) -> Option<f64> {
        let (first, last) = self.ends(window)?;
        let delivered = last.info.delivered.wrapping_sub(first.info.delivered);
        let acks = (last.info.segs_in.wrapping_sub(first.info.segs_in))
            .wrapping_sub(last.info.data_segs_in.wrapping_sub(first.info.data_segs_in));
        (acks > 0 && delivered > 0).then(|| f64::from(delivered) / f64::from(acks))
    }

    /// Adds the sender's side to a record.
    pub fn add_to(&self, record: &mut FlowRecord, window: Window) {
        if let Some((first, last)) = self.ends(window) {
            let retransmits = (last.info.total_retrans).wrapping_sub(first.info.total_retrans);
            record.retransmits = retransmits.into();
            let sent = (last.info.data_segs_out).wrapping_sub(first.info.data_segs_out);
            record.segments_sent = sent.into();
        }
        record.loss_events = self.loss_events(window);
        record.segments_per_ack = self.segments_per_ack(window);
        record.mss_bytes = self.moments.last().map_or(0, |m| m.info.snd_mss);
        for moment in &self.moments {
            if record.congestion_seen.last() != Some(&moment.congestion) {
                record.congestion_seen.push(moment.congestion.clone());
            }
            record.samples.push(sample(moment));
        }
    }
}

impl Sampled {
    /// The whole record of a flow: the receiver's side by iperf3, the sender's by its socket.
    ///
    /// A flow whose socket was not seen has no samples, and begins when its client was started.
    pub fn record(&self, transfer: &Transfer, window: Window) -> FlowRecord {
        let series = transfer
            .socket
            .and_then(|(local, peer): (SocketAddr, SocketAddr)| {
                self.between(transfer.sender, local, peer)
            });
        let began = series.and_then(|series| series.began);
        let mut record = transfer.record(began.unwrap_or(transfer.spawned_seconds), window);
        if let Some(series) = series {
            series.add_to(&mut record, window);
        }
        record
    }
}

fn sample(moment: &Moment) -> TcpSample {
    let info = &moment.info;
    TcpSample {
        at: moment.at,
        cwnd: info.snd_cwnd,
        ssthresh: info.snd_ssthresh,
        rtt_us: info.rtt_us,
        rttvar_us: info.rttvar_us,
        min_rtt_us: info.min_rtt_us,
        bytes_acked: info.bytes_acked,
        bytes_retrans: info.bytes_retrans,
        segs_out: info.segs_out,
        segs_in: info.segs_in,
        total_retrans: info.total_retrans,
        delivery_bps: info.delivery_rate.saturating_mul(8),
        pacing_bps: info.pacing_rate.saturating_mul(8),
        busy_us: info.busy_us,
        rwnd_limited_us: info.rwnd_limited_us,
        sndbuf_limited_us: info.sndbuf_limited_us,
        ca_state: info.ca_state,
        congestion: moment.congestion.clone(),
        bbr_bw_bps: moment
            .bbr
            .map(|bbr| bbr.bw_bytes_per_second.saturating_mul(8)),
        bbr_min_rtt_us: moment.bbr.map(|bbr| bbr.min_rtt_us),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Window = Window { from: 1.0, to: 2.0 };

    /// A connection sampled every 100 ms for 3 s by what `moment` makes of each sample's number.
    fn series(moment: impl Fn(u32) -> (TcpInfo, Option<RecoveryCounts>)) -> Series {
        let address = "10.0.0.1:1".parse().unwrap();
        let moments = (0..30u32).map(|n| {
            let (info, reported) = moment(n);
            let at = f64::from(n) / 10.0;
            let congestion = if n < 20 { "cubic" } else { "bbr" }.to_owned();
            Moment {
                at,
                info,
                congestion,
                bbr: None,
                reported,
            }
        });
        Series {
            ns: 1,
            id: SocketId {
                local: address,
                peer: address,
                cookie: 1,
            },
            began: Some(0.0),
            moments: moments.collect(),
        }
    }

    #[test]
    fn only_the_measured_part_is_counted() {
        let series = series(|n| {
            let info = TcpInfo {
                data_segs_out: 100 * n,
                delivered: 90 * n,
                segs_in: 45 * n,
                total_retrans: 3 * n,
                ..TcpInfo::default()
            };
            let reported = RecoveryCounts {
                recoveries: 2 * n,
                reductions: 0,
                timeouts: n,
            };
            (info, Some(reported))
        });
        let mut record = FlowRecord::default();
        series.add_to(&mut record, WINDOW);
        let events = record.loss_events.unwrap();
        assert_eq!((events.events, events.timeouts), (30, 10));
        assert_eq!((events.segments, events.sampled), (1000, false));
        assert_eq!((record.retransmits, record.segments_sent), (30, 1000));
        assert_eq!(record.segments_per_ack, Some(2.0));
        assert_eq!(record.congestion_seen, ["cubic", "bbr"]);
        assert_eq!(record.samples.len(), 30);
    }

    #[test]
    fn missing_kernel_counts_are_estimated_and_marked() {
        // Recovery at 1.2 and 1.3 s, a timeout at 1.6 s, and one retransmission unseen at 1.8 s.
        let series = series(|n| {
            let info = TcpInfo {
                ca_state: match n {
                    12 | 13 => 3,
                    16 => 4,
                    _ => 0,
                },
                total_retrans: u32::from(n >= 12) + u32::from(n >= 16) + u32::from(n >= 18),
                ..TcpInfo::default()
            };
            (info, None)
        });
        let events = series.loss_events(WINDOW).unwrap();
        assert_eq!(
            (events.events, events.timeouts, events.sampled),
            (3, 1, true)
        );
    }

    #[test]
    fn connections_without_samples_are_ignored() {
        let mut series = series(|_| (TcpInfo::default(), None));
        series.moments.retain(|m| m.at < 1.0);
        assert_eq!(series.loss_events(WINDOW), None);
        assert_eq!(series.segments_per_ack(WINDOW), None);
    }
}
