//! `struct tcp_info` and `struct tcp_bbr_info`, read by length: fields that an older kernel lacks
//! are 0.
//!
//! Offsets are those of include/uapi/linux/tcp.h, which only grows at its end.

use crate::message::{u32_at, u64_at};

/// The fields that measurements use. Counters begin with the connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Bytes that this kernel returned; fields behind them are 0.
    pub reported_bytes: usize,
    /// State of loss recovery: 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss.
    pub ca_state: u8,
    /// Segment payload, bytes.
    pub snd_mss: u32,
    /// Smoothed round trip, us.
    pub rtt_us: u32,
    /// Its variation, us.
    pub rttvar_us: u32,
    /// Slow-start threshold, segments.
    pub snd_ssthresh: u32,
    /// Congestion window, segments.
    pub snd_cwnd: u32,
    /// Segments sent again.
    pub total_retrans: u32,
    /// Pacing rate, bytes a second.
    pub pacing_rate: u64,
    /// Bytes acknowledged.
    pub bytes_acked: u64,
    /// Segments sent.
    pub segs_out: u32,
    /// Segments received.
    pub segs_in: u32,
    /// Minimum round trip, us.
    pub min_rtt_us: u32,
    /// Segments received with data.
    pub data_segs_in: u32,
    /// Segments sent with data.
    pub data_segs_out: u32,
    /// Delivery rate, bytes a second.
    pub delivery_rate: u64,
    /// Time with something to send, us.
    pub busy_us: u64,
    /// Of it, limited by the receiver's window.
    pub rwnd_limited_us: u64,
    /// Of it, limited by the sender's buffer.
    pub sndbuf_limited_us: u64,
    /// Segments delivered.
    pub delivered: u32,
    /// Of these, with a mark of congestion.
    pub delivered_ce: u32,
    /// Bytes sent, those sent again included.
    pub bytes_sent: u64,
    /// Bytes sent again.
    pub bytes_retrans: u64,
}

impl TcpInfo {
    pub(super) fn parse(bytes: &[u8]) -> TcpInfo {
        let word = |at| u32_at(bytes, at).unwrap_or(0);
        let long = |at| u64_at(bytes, at).unwrap_or(0);
        TcpInfo {
            reported_bytes: bytes.len(),
            ca_state: bytes.get(1).copied().unwrap_or(0),
            snd_mss: word(16),
            rtt_us: word(68),
            rttvar_us: word(72),
            snd_ssthresh: word(76),
            snd_cwnd: word(80),
            total_retrans: word(100),
            pacing_rate: long(104),
            bytes_acked: long(120),
            segs_out: word(136),
            segs_in: word(140),
            min_rtt_us: word(148),
            data_segs_in: word(152),
            data_segs_out: word(156),
            delivery_rate: long(160),
            busy_us: long(168),
            rwnd_limited_us: long(176),
            sndbuf_limited_us: long(184),
            delivered: word(192),
            delivered_ce: word(196),
            bytes_sent: long(200),
            bytes_retrans: long(208),
        }
    }
}

/// The state of BBR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BbrInfo {
    /// Bytes of the kernel's structure: 20 for BBR version 1, more for later ones.
    pub info_bytes: usize,
    /// Estimated bandwidth, bytes a second.
    pub bw_bytes_per_second: u64,
    /// Minimum round trip of its window, us.
    pub min_rtt_us: u32,
    /// Gain of pacing, of 256.
    pub pacing_gain: u32,
    /// Gain of the congestion window, of 256.
    pub cwnd_gain: u32,
}

impl BbrInfo {
    pub(super) fn parse(bytes: &[u8]) -> Option<BbrInfo> {
        Some(BbrInfo {
            info_bytes: bytes.len(),
            bw_bytes_per_second: u64::from(u32_at(bytes, 0)?) | u64::from(u32_at(bytes, 4)?) << 32,
            min_rtt_us: u32_at(bytes, 8)?,
            pacing_gain: u32_at(bytes, 12)?,
            cwnd_gain: u32_at(bytes, 16)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_missing_in_old_kernels_are_zero() {
        let whole: Vec<u8> = (0..=247).collect();
        let all = TcpInfo::parse(&whole);
        let old = TcpInfo::parse(&whole[..104]);
        assert_eq!(all.total_retrans, u32::from_ne_bytes([100, 101, 102, 103]));
        assert_eq!(old.total_retrans, all.total_retrans);
        assert_eq!(
            (old.bytes_acked, old.pacing_rate, old.reported_bytes),
            (0, 0, 104)
        );
        assert_ne!(all.bytes_retrans, 0);
        // A field that is incomplete is 0.
        assert_eq!(TcpInfo::parse(&whole[..102]).total_retrans, 0);
    }
}
