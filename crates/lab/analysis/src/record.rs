//! The record of one run of an experiment: one JSON file, read again by analysis, report and `compare`.
//!
//! A record has measurements and provenance, and one conclusion: whether the emulation was valid
//! ([`RunRecord::faults`]). Times are seconds since the start of traffic unless the name differs; rates are
//! bits per second; units are in the names.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The form of these files; another form is refused with both numbers.
pub const FORMAT: u32 = 2;
/// The part of `fairpath rtt` in the account of processor time: it measures and delays no packet.
pub const PASSIVE_PART: &str = "measurement: fairpath rtt";
/// The part of the kernel's threads that take packets up (ksoftirqd).
pub const KERNEL_PART: &str = "kernel's packet threads";
/// In the command of an emulator that begins without checking itself.
pub const NO_SELF_TEST: &str = "--no-self-test";

/// One run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunRecord {
    /// [`FORMAT`].
    pub format: u32,
    /// The experiment's name.
    pub experiment: String,
    /// Its place in the grid's randomised order, from 0.
    pub place: u32,
    /// The value of each axis, as written in the experiment ("1%", "cubic").
    pub setting: BTreeMap<String, String>,
    /// Which repetition of this setting, from 0.
    pub repeat: u32,
    /// The seed of the run's random numbers.
    pub seed: u64,
    /// When it began (RFC 3339).
    pub started: String,
    /// The duration of traffic, including the part before the measurement.
    pub seconds: f64,
    /// The part of it before the measurement.
    pub warmup_seconds: f64,
    /// When delays or congestion controls were to change, in order; empty: they stayed.
    #[serde(default)]
    pub changes: Vec<f64>,
    /// The slowest link that the flows share, if there is one.
    pub bottleneck: Option<Bottleneck>,
    /// Bulk flows.
    pub flows: Vec<FlowRecord>,
    /// Pings during the flows.
    pub pings: Vec<PingRecord>,
    /// Voice calls during the flows.
    pub calls: Vec<CallRecord>,
    /// Each direction of each impaired link: what was asked and what was done.
    pub links: Vec<LinkRecord>,
    /// Queues that were scheduled or shaped.
    pub queues: Vec<QueueRecord>,
    /// The results of `fairpath rtt` from the passing packets.
    pub passive: Option<PassiveRecord>,
    /// Processor time by part.
    pub cpu: CpuRecord,
    /// Why this run is not to be believed; empty: it is true.
    pub faults: Vec<Fault>,
    /// Limits of a valid run, a sentence each.
    #[serde(default)]
    pub remarks: Vec<String>,
    /// Release and version of the kernel that it ran on.
    #[serde(default)]
    pub kernel: String,
    /// `fairpath --version` of the binary that it drove.
    #[serde(default)]
    pub fairpath: String,
    /// Offloads of each interface of the path, as the kernel reports them: "router/lan" -> "tso off, ...".
    pub offloads: BTreeMap<String, String>,
    /// Every command that ran, where, in order.
    pub commands: Vec<CommandRecord>,
}

impl RunRecord {
    /// True if the network was as configured.
    pub fn is_true(&self) -> bool {
        self.faults.is_empty()
    }
}

/// The link that bounds what flows can reach.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bottleneck {
    /// As configured.
    pub rate_bps: f64,
    /// Bytes of a full segment's payload (TCP with timestamps).
    pub mss_bytes: u32,
    /// Bytes of a full packet as the rate counts it.
    pub packet_bytes: u32,
    /// The maximum goodput of TCP's payload: rate * mss / packet.
    pub goodput_limit_bps: f64,
    /// Configured round-trip time without a queue.
    pub base_rtt_ns: u64,
}

/// One TCP flow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowRecord {
    /// As the experiment calls it: "bulk", "bulk-2".
    pub name: String,
    /// The configured congestion control.
    pub congestion: String,
    /// The congestion controls that the kernel reported for the socket, in order (more than one after a
    /// switch).
    pub congestion_seen: Vec<String>,
    /// When it started.
    pub start_seconds: f64,
    /// Receiver's goodput over the measured part.
    pub goodput_bps: f64,
    /// Receiver's goodput over its whole life, start included.
    pub goodput_with_start_bps: f64,
    /// Receiver's goodput by interval: (end of the interval, bits a second).
    pub goodput: Vec<(f64, f64)>,
    /// Segments sent again, by the kernel's count, in the measured part.
    pub retransmits: u64,
    /// Segments sent in the measured part.
    pub segments_sent: u64,
    /// Loss events (recoveries begun) in the measured part, and how they were counted.
    pub loss_events: Option<LossEvents>,
    /// The sender's socket, sampled.
    pub samples: Vec<TcpSample>,
    /// Segment payload in bytes, by the kernel.
    pub mss_bytes: u32,
    /// Segments that one ACK covers, measured (2: delayed ACKs).
    pub segments_per_ack: Option<f64>,
    /// The outcome of the packets of a UDP flow, over its whole life; none: TCP.
    #[serde(default)]
    pub udp: Option<UdpRecord>,
}

/// The receiver's view of a UDP flow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UdpRecord {
    /// Expected packets, by sequence number.
    pub packets: u64,
    /// Of these, those that did not.
    pub lost: u64,
    /// Interarrival jitter of RFC 3550 at the end, ms.
    pub jitter_ms: f64,
}

/// The number of loss events of congestion control.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossEvents {
    /// Recoveries and timeouts.
    pub events: u64,
    /// Of these, timeouts.
    pub timeouts: u64,
    /// Segments sent during this time.
    pub segments: u64,
    /// Counted from samples and not where they happen: recoveries shorter than the time between samples are missing.
    #[serde(default)]
    pub sampled: bool,
}

/// TCP_INFO at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TcpSample {
    /// When.
    pub at: f64,
    /// Congestion window, segments.
    pub cwnd: u32,
    /// Slow-start threshold, segments.
    pub ssthresh: u32,
    /// Smoothed round trip, us.
    pub rtt_us: u32,
    /// Its variation, us.
    pub rttvar_us: u32,
    /// Least round trip, us.
    pub min_rtt_us: u32,
    /// Bytes acknowledged so far.
    pub bytes_acked: u64,
    /// Bytes sent again so far.
    pub bytes_retrans: u64,
    /// Segments sent so far.
    pub segs_out: u32,
    /// Segments (ACKs) received so far.
    pub segs_in: u32,
    /// Segments sent again so far.
    pub total_retrans: u32,
    /// Delivery rate, bits a second.
    pub delivery_bps: u64,
    /// Pacing rate, bits a second.
    pub pacing_bps: u64,
    /// Time with something to send so far, us.
    pub busy_us: u64,
    /// Of it, limited by the receiver's window.
    pub rwnd_limited_us: u64,
    /// Of it, limited by the sender's buffer.
    pub sndbuf_limited_us: u64,
    /// TCP's state of loss recovery (0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss).
    pub ca_state: u8,
    /// The congestion control that the socket uses.
    pub congestion: String,
    /// BBR's bandwidth estimate, bits a second, where the socket uses BBR.
    pub bbr_bw_bps: Option<u64>,
    /// BBR's least round trip, us.
    pub bbr_min_rtt_us: Option<u32>,
}

/// Echo requests during the flows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PingRecord {
    /// As the experiment calls it.
    pub name: String,
    /// Requests sent in the measured part.
    pub sent: u32,
    /// (When, round trip in ns) of each answer in the measured part.
    pub rtts_ns: Vec<(f64, u64)>,
    /// Round trips before the flows began.
    pub idle_rtts_ns: Vec<u64>,
}

/// A voice call (one direction).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallRecord {
    /// As the experiment calls it.
    pub name: String,
    /// Time between packets, ns.
    pub interval_ns: u64,
    /// Of each packet of the measured part in order: its one-way delay in ns, or none if it never came.
    pub delays_ns: Vec<Option<u64>>,
    /// The same of the packets before: the input of a playout buffer until then.
    #[serde(default)]
    pub before_ns: Vec<Option<u64>>,
}

/// One direction of an impaired link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkRecord {
    /// "router/wan: towards server".
    pub name: String,
    /// The emulator: "xdp", "afxdp", "nfqueue", "netem".
    pub engine: String,
    /// The requested impairment, as `fairpath impair` prints it.
    pub requested: String,
    /// The words that the lab passed to it; empty for another emulator.
    #[serde(default)]
    pub stated: String,
    /// Wire packets that came.
    pub packets: u64,
    /// Of these, lost as configured.
    pub lost: u64,
    /// The configured loss, a ratio (mean over time), if any.
    pub loss_requested: Option<f64>,
    /// The interval (99.9 %) in which the achieved loss had to lie.
    pub loss_interval: Option<(f64, f64)>,
    /// Packets that the emulator dropped unexpectedly (rings, queues of the kernel): if not 0, the run is invalid.
    pub own_dropped: u64,
    /// Packets dropped by the link's queue, as configured.
    pub queue_dropped: u64,
    /// Received GSO packets: loss is then not per wire packet.
    pub gso_packets: u64,
    /// Configured mean delay, ns.
    pub delay_requested_ns: Option<u64>,
    /// Added.
    pub delay_mean_ns: Option<u64>,
    /// Standard deviation of what was added, ns.
    #[serde(default)]
    pub delay_deviation_ns: Option<u64>,
    /// The lateness of packets: p50, p99, p99.9, worst, ns.
    pub lateness_ns: Option<[u64; 4]>,
    /// Packets out of order that were to keep it.
    pub reordered: u64,
    /// Why the emulator reported an invalid run; none: it was valid.
    pub invalid: Option<String>,
}

/// A queue that the experiment shaped or scheduled.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueRecord {
    /// "router/wan".
    pub name: String,
    /// Its policy.
    pub policy: String,
    /// Packets that came, left, were dropped, were marked.
    pub arrived: u64,
    /// Left.
    pub sent: u64,
    /// Dropped.
    pub dropped: u64,
    /// Marked.
    pub marked: u64,
    /// Sojourn p50, p95, p99, ns.
    pub sojourn_ns: Option<[u64; 3]>,
}

/// Round trips and loss from the traffic itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PassiveRecord {
    /// Samples.
    pub samples: u64,
    /// p5, p50, p95, p99, ns.
    pub rtt_ns: Option<[u64; 4]>,
    /// Segments seen again, and all segments with data.
    pub retransmitted: u64,
    /// With data.
    pub segments: u64,
}

/// Processor time, in cores (1.0: one core busy all the time).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuRecord {
    /// CPUs of the machine.
    pub cpus: u32,
    /// All of it that was busy.
    pub busy: f64,
    /// Of the busy time, in interrupts and packet processing, for any process.
    #[serde(default)]
    pub interrupts: f64,
    /// Taken by the host from this virtual machine.
    pub stolen: f64,
    /// By part: "iperf3 client bulk", "fairpath impair wan", "measurement".
    pub parts: BTreeMap<String, f64>,
    /// By part: how long it was ready to run while others did, as a share of the time.
    #[serde(default)]
    pub waited: BTreeMap<String, f64>,
    /// The parts whose threads may run on the same CPUs as the traffic under test.
    pub shared: Vec<String>,
}

impl CpuRecord {
    /// Busy processors, everything together: never less than its parts. Samples of the kernel's tick miss
    /// threads that sleep before it, and parts are accounted to the nanosecond.
    pub fn total(&self) -> f64 {
        self.busy.max(self.parts.values().sum())
    }
}

/// Why a run is invalid.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// The kind.
    pub kind: FaultKind,
    /// The observation, with figures, and the remedy.
    pub text: String,
}

/// Kinds of faults, each caused in a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// The sender was limited by a window and not by congestion control.
    WindowLimited,
    /// The impairment received GSO packets.
    OffloadsOn,
    /// A socket used another congestion control than configured.
    WrongCongestion,
    /// A configured impairment was missing or outside its interval.
    NotImpaired,
    /// The emulator dropped packets unexpectedly, was too late, or reordered.
    EmulatorFailed,
    /// The processor was the bottleneck, or its time was taken by the host or others.
    SharedCpu,
    /// A part of the measurement is missing.
    NotMeasured,
}

/// A command as it ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandRecord {
    /// The namespace, as the topology calls the host; empty: the caller's.
    pub host: String,
    /// Program and arguments.
    pub argv: Vec<String>,
}
