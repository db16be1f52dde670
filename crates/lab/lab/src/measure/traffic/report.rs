//! iperf3's JSON (3.12 and later), of both sides, as one [`Transfer`].

use std::net::{IpAddr, SocketAddr};

use fairpath_analysis::record::{CommandRecord, FlowRecord, UdpRecord};
use serde::Deserialize;

use super::{FlowPlan, Load, TrafficError};
use crate::measure::clock::Window;

/// The data that the receiver got in one of its intervals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Its beginning, seconds since the flow's.
    pub from: f64,
    /// Its end.
    pub to: f64,
    /// Payload.
    pub bytes: u64,
}

/// A flow that has ended.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// Its name.
    pub name: String,
    /// The planned congestion control, "udp" for UDP.
    pub congestion: String,
    /// The sender's congestion control according to iperf3.
    pub congestion_used: Option<String>,
    /// When it was to begin.
    pub start_seconds: f64,
    /// The start time of its client; data follows after the handshake ([`super::super::sampler`] has that time).
    pub spawned_seconds: f64,
    /// The sender's namespace, by inode.
    pub sender: u64,
    /// The sender's data socket: its own address and the other's.
    pub socket: Option<(SocketAddr, SocketAddr)>,
    /// The receiver's intervals, in order.
    pub intervals: Vec<Interval>,
    /// Payload that the receiver got.
    pub bytes: u64,
    /// Length by the receiver's clock.
    pub seconds: f64,
    /// Retransmitted segments, as the sender's iperf3 reports.
    pub retransmits: u64,
    /// Processor time of client and server, in cores.
    pub cpu: [f64; 2],
    /// Losses of UDP.
    pub udp: Option<UdpRecord>,
    /// The commands: server, client.
    pub commands: [CommandRecord; 2],
}

impl Transfer {
    pub(super) fn from_reports(plan: &FlowPlan, spawned: f64, reports: Reports) -> Transfer {
        let Reports { client, server } = reports;
        let (sender, receiver) = if plan.reverse {
            (&server, &client)
        } else {
            (&client, &server)
        };
        let connected = sender.start.connected.first();
        let cpu = |report: &Iperf3Report| report.end.cpu.host_total / 100.0;
        let sum = receiver.end.sum_received.clone().unwrap_or_default();
        Transfer {
            name: plan.name.clone(),
            congestion: match &plan.load {
                Load::Tcp { congestion, .. } => congestion.clone(),
                Load::Udp { .. } => "udp".to_owned(),
            },
            congestion_used: sender.end.sender_tcp_congestion.clone(),
            start_seconds: plan.start_seconds,
            spawned_seconds: spawned,
            sender: plan.sender().inode(),
            socket: connected.map(Connected::addresses),
            intervals: receiver
                .intervals
                .iter()
                .map(|i| i.sum.interval())
                .collect(),
            bytes: sum.bytes,
            seconds: sum.end,
            retransmits: sender.end.sum_sent.retransmits.unwrap_or(0),
            cpu: [cpu(&client), cpu(&server)],
            udp: matches!(plan.load, Load::Udp { .. }).then(|| receiver.udp()),
            commands: [plan.server_command(), plan.client_command()],
        }
    }

    /// The receiver's side of a record: goodput over `window` and over all its life, and by interval.
    ///
    /// `began` is when its data began to flow. The sender's side (samples, loss events) is the sampler's.
    pub fn record(&self, began: f64, window: Window) -> FlowRecord {
        let absolute = |i: &Interval| (began + i.from, began + i.to);
        let measured = (self.intervals.iter()).map(|i| {
            let (from, to) = absolute(i);
            i.bytes as f64 * window.share_of(from, to)
        });
        let life = Window {
            from: window.from.max(began),
            to: window.to.min(began + self.seconds),
        };
        FlowRecord {
            name: self.name.clone(),
            congestion: self.congestion.clone(),
            start_seconds: began,
            goodput_bps: rate_bps(measured.sum(), life.seconds()),
            goodput_with_start_bps: rate_bps(self.bytes as f64, self.seconds),
            goodput: (self.intervals.iter())
                .map(|i| (began + i.to, rate_bps(i.bytes as f64, i.to - i.from)))
                .collect(),
            retransmits: self.retransmits,
            udp: self.udp.clone(),
            ..FlowRecord::default()
        }
    }
}

fn rate_bps(bytes: f64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        bytes * 8.0 / seconds
    } else {
        0.0
    }
}

/// The output of both sides.
pub(super) struct Reports {
    client: Iperf3Report,
    server: Iperf3Report,
}

impl Reports {
    pub(super) fn read(
        plan: &FlowPlan,
        client: &str,
        server: &str,
    ) -> Result<Reports, TrafficError> {
        let read = |text: &str, side| {
            serde_json::from_str(text).map_err(|source| TrafficError::Report {
                flow: plan.name.clone(),
                side,
                source,
            })
        };
        Ok(Reports {
            client: read(client, "client")?,
            server: read(server, "server")?,
        })
    }
}

/// iperf3's own error, if its output has one.
pub(super) fn complaint(output: &str) -> Option<String> {
    serde_json::from_str::<Iperf3Report>(output).ok()?.error
}

/// True if an output is a report of traffic that ran to its end.
pub(super) fn measured(output: &str) -> bool {
    serde_json::from_str::<Iperf3Report>(output)
        .is_ok_and(|report| report.error.is_none() && !report.intervals.is_empty())
}

#[derive(Deserialize)]
struct Iperf3Report {
    #[serde(default)]
    start: Start,
    #[serde(default)]
    intervals: Vec<IntervalJson>,
    #[serde(default)]
    end: End,
    error: Option<String>,
}

impl Iperf3Report {
    fn udp(&self) -> UdpRecord {
        let sum = self.end.sum_received.clone().unwrap_or_default();
        UdpRecord {
            packets: sum.packets.unwrap_or(0),
            lost: sum.lost_packets.unwrap_or(0),
            jitter_ms: sum.jitter_ms.unwrap_or(0.0),
        }
    }
}

#[derive(Default, Deserialize)]
struct Start {
    #[serde(default)]
    connected: Vec<Connected>,
}

#[derive(Deserialize)]
struct Connected {
    local_host: IpAddr,
    local_port: u16,
    remote_host: IpAddr,
    remote_port: u16,
}

impl Connected {
    /// Canonical: a mapped address is its IPv4 one.
    fn addresses(&self) -> (SocketAddr, SocketAddr) {
        let local = SocketAddr::new(self.local_host.to_canonical(), self.local_port);
        let remote = SocketAddr::new(self.remote_host.to_canonical(), self.remote_port);
        (local, remote)
    }
}

#[derive(Deserialize)]
struct IntervalJson {
    sum: Sum,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct End {
    sum_sent: Sum,
    sum_received: Option<Sum>,
    sender_tcp_congestion: Option<String>,
    #[serde(rename = "cpu_utilization_percent")]
    cpu: Cpu,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Cpu {
    host_total: f64,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct Sum {
    start: f64,
    end: f64,
    bytes: u64,
    retransmits: Option<u64>,
    packets: Option<u64>,
    lost_packets: Option<u64>,
    jitter_ms: Option<f64>,
}

impl Sum {
    fn interval(&self) -> Interval {
        Interval {
            from: self.start,
            to: self.end,
            bytes: self.bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fairpath_testbed::Testbed;

    use super::*;

    /// iperf3 3.12, `--json --interval=0.5 --time=1`, shortened.
    const CLIENT: &str = r#"{"start":{"connected":[{"socket":5,"local_host":"10.10.1.2","local_port":38578,"remote_host":"10.10.2.2","remote_port":5201}],"version":"iperf 3.12"},
        "intervals":[{"streams":[],"sum":{"start":0,"end":0.5,"bytes":900,"retransmits":1}}],
        "end":{"sum_sent":{"start":0,"end":1.0,"bytes":1300000,"retransmits":7,"sender":true},"sum_received":{"start":0,"end":1.0,"bytes":1250000,"sender":true},
        "cpu_utilization_percent":{"host_total":12.5,"host_user":0.1,"remote_total":7.0},"sender_tcp_congestion":"cubic"}}"#;
    const SERVER: &str = r#"{"start":{"connected":[{"socket":5,"local_host":"::ffff:10.10.2.2","local_port":5201,"remote_host":"::ffff:10.10.1.2","remote_port":38578}]},
        "intervals":[{"streams":[],"sum":{"start":0,"end":0.5,"bytes":250000}},{"streams":[],"sum":{"start":0.5,"end":1.0,"bytes":1000000}}],
        "end":{"sum_sent":{"bytes":0},"sum_received":{"start":0,"end":1.0,"bytes":1250000},"cpu_utilization_percent":{"host_total":7.0}}}"#;
    const UDP_SERVER: &str = r#"{"start":{"connected":[]},"intervals":[{"sum":{"start":0,"end":1.0,"bytes":125000,"packets":250}}],
        "end":{"sum":{"bytes":0},"sum_received":{"start":0,"end":1.0,"bytes":122500,"jitter_ms":0.25,"lost_packets":5,"packets":250}}}"#;
    const REFUSED: &str = r#"{"start":{"connected":[]},"intervals":[],"end":{},"error":"unable to connect to server: Connection refused"}"#;

    fn plan(load: Load) -> FlowPlan {
        let here = Testbed::new().current_netns().unwrap();
        FlowPlan {
            name: "bulk".to_owned(),
            client: here.clone(),
            server: here,
            server_ip: "10.10.2.2".parse().unwrap(),
            port: 5201,
            reverse: false,
            load,
            start_seconds: 2.0,
            seconds: 1,
            interval: Duration::from_millis(500),
            cpus: None,
        }
    }

    fn tcp() -> FlowPlan {
        plan(Load::Tcp {
            congestion: "cubic".to_owned(),
            bitrate_bps: None,
            window_bytes: Some(65536),
        })
    }

    #[test]
    fn goodput_is_the_receivers_within_the_window() {
        let plan = tcp();
        let reports = Reports::read(&plan, CLIENT, SERVER).unwrap();
        let transfer = Transfer::from_reports(&plan, 2.01, reports);
        assert_eq!((transfer.bytes, transfer.retransmits), (1_250_000, 7));
        assert_eq!(transfer.congestion_used.as_deref(), Some("cubic"));
        assert_eq!(transfer.cpu, [0.125, 0.07]);
        let socket = (
            "10.10.1.2:38578".parse().unwrap(),
            "10.10.2.2:5201".parse().unwrap(),
        );
        assert_eq!(transfer.socket, Some(socket));

        let record = transfer.record(2.0, Window { from: 2.5, to: 3.0 });
        assert_eq!(
            (record.goodput_bps, record.goodput_with_start_bps),
            (16e6, 10e6)
        );
        assert_eq!(record.goodput, [(2.5, 4e6), (3.0, 16e6)]);
        // Half of the first interval and all of the second, over 0.75 s.
        let record = transfer.record(
            2.0,
            Window {
                from: 2.25,
                to: 9.0,
            },
        );
        assert!(
            (record.goodput_bps - 12e6).abs() < 1.0,
            "{}",
            record.goodput_bps
        );
        assert_eq!(record.udp, None);
    }

    #[test]
    fn in_reverse_the_client_is_the_receiver() {
        let mut plan = tcp();
        plan.reverse = true;
        let reports = Reports::read(&plan, SERVER, CLIENT).unwrap();
        let transfer = Transfer::from_reports(&plan, 2.0, reports);
        assert_eq!((transfer.bytes, transfer.retransmits), (1_250_000, 7));
        assert_eq!(transfer.intervals.len(), 2);
    }

    #[test]
    fn losses_of_udp_are_the_receivers() {
        let plan = plan(Load::Udp {
            bitrate_bps: 1_000_000,
            payload_bytes: 500,
        });
        let reports = Reports::read(&plan, UDP_SERVER, UDP_SERVER).unwrap();
        let transfer = Transfer::from_reports(&plan, 2.0, reports);
        let udp = transfer.udp.clone().unwrap();
        assert_eq!((udp.packets, udp.lost, udp.jitter_ms), (250, 5, 0.25));
        assert_eq!(
            (transfer.bytes, transfer.congestion.as_str()),
            (122_500, "udp")
        );
    }

    #[test]
    fn a_refusal_keeps_its_words_without_a_measurement() {
        assert!(measured(CLIENT) && measured(SERVER));
        assert!(!measured(REFUSED) && !measured("") && !measured("iperf3: error"));
        let words = "unable to connect to server: Connection refused";
        assert_eq!(complaint(REFUSED).as_deref(), Some(words));
        assert_eq!(complaint("Segmentation fault"), None);
    }

    #[test]
    fn commands_contain_every_requested_option() {
        let plan = tcp();
        let client = plan.client_command().argv.join(" ");
        assert_eq!(
            client,
            "iperf3 --json --port=5201 --interval=0.5 --client=10.10.2.2 --time=1 --congestion=cubic --window=65536"
        );
        let server = plan.server_command().argv.join(" ");
        assert_eq!(
            server,
            "iperf3 --json --port=5201 --interval=0.5 --server --one-off"
        );
    }
}
