//! What one run of an experiment leaves: one JSON file, read again by analysis, report and `compare`.
//!
//! A record holds measurements and provenance, no conclusions but one: whether the run was emulated
//! truthfully ([`RunRecord::faults`]). Times are seconds since the traffic began unless the name says
//! otherwise; rates are bits a second; units are in the names.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The form of these files; another form is refused with both numbers.
pub const FORMAT: u32 = 2;
/// The part of `fairpath rtt` in the account of processor time: it measures, and holds nobody back.
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
    /// What the run's random numbers come from.
    pub seed: u64,
    /// When it began (RFC 3339).
    pub started: String,
    /// How long traffic ran, the part before the measurement included.
    pub seconds: f64,
    /// How much of it is before the measurement.
    pub warmup_seconds: f64,
    /// When delays or congestion controls were to change, in order; empty: they stayed.
    #[serde(default)]
    pub changes: Vec<f64>,
    /// The slowest link that the flows share, if there is one.
    pub bottleneck: Option<Bottleneck>,
    /// Bulk flows.
    pub flows: Vec<FlowRecord>,
    /// Pings beside them.
    pub pings: Vec<PingRecord>,
    /// Voice calls beside them.
    pub calls: Vec<CallRecord>,
    /// Each direction of each impaired link: what was asked and what was done.
    pub links: Vec<LinkRecord>,
    /// Queues that were scheduled or shaped.
    pub queues: Vec<QueueRecord>,
    /// What `fairpath rtt` told from the packets that passed.
    pub passive: Option<PassiveRecord>,
    /// Processor time by part.
    pub cpu: CpuRecord,
    /// Why this run is not to be believed; empty: it is true.
    pub faults: Vec<Fault>,
    /// What it cannot show though it is true, a sentence each.
    #[serde(default)]
    pub remarks: Vec<String>,
    /// Release and version of the kernel that it ran on.
    #[serde(default)]
    pub kernel: String,
    /// `fairpath --version` of the binary that it drove.
    #[serde(default)]
    pub fairpath: String,
    /// Offloads of each interface on the way, as the kernel told them: "router/lan" -> "tso off, ...".
    pub offloads: BTreeMap<String, String>,
    /// Every command that ran, where, in order.
    pub commands: Vec<CommandRecord>,
}

impl RunRecord {
    /// Whether the network was what it was asked to be.
    pub fn is_true(&self) -> bool {
        self.faults.is_empty()
    }
}

/// The link that bounds what flows can reach.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bottleneck {
    /// As asked for.
    pub rate_bps: f64,
    /// Bytes of a full segment's payload (TCP with timestamps).
    pub mss_bytes: u32,
    /// Bytes of a full packet as the rate counts it.
    pub packet_bytes: u32,
    /// What TCP's payload can reach at most: rate * mss / packet.
    pub goodput_limit_bps: f64,
    /// Round trip without a queue, as asked for.
    pub base_rtt_ns: u64,
}

/// One TCP flow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowRecord {
    /// As the experiment calls it: "bulk", "bulk-2".
    pub name: String,
    /// The congestion control that was asked for.
    pub congestion: String,
    /// What the kernel said the socket uses, in the order seen (more than one: it was switched).
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
    /// What became of the packets of a UDP flow, over its whole life; none: TCP.
    #[serde(default)]
    pub udp: Option<UdpRecord>,
}

/// The receiver's view of a UDP flow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UdpRecord {
    /// Packets that were to come, as the sequence numbers tell.
    pub packets: u64,
    /// Of these, those that did not.
    pub lost: u64,
    /// Interarrival jitter of RFC 3550 at the end, ms.
    pub jitter_ms: f64,
}

/// How often congestion control was told of loss.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossEvents {
    /// Recoveries and timeouts.
    pub events: u64,
    /// Of these, timeouts.
    pub timeouts: u64,
    /// Segments sent meanwhile.
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
    /// Of it, held back by the receiver's window.
    pub rwnd_limited_us: u64,
    /// Of it, held back by the sender's buffer.
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

/// Echo requests beside the flows.
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
    /// Likewise of the packets before: what a playout buffer has learnt by then.
    #[serde(default)]
    pub before_ns: Vec<Option<u64>>,
}

/// One direction of an impaired link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkRecord {
    /// "router/wan: towards server".
    pub name: String,
    /// How: "xdp", "afxdp", "nfqueue", "netem".
    pub engine: String,
    /// What was asked, as `fairpath impair` prints it.
    pub requested: String,
    /// What was said to it, in words of the lab; empty: another emulator.
    #[serde(default)]
    pub stated: String,
    /// Wire packets that came.
    pub packets: u64,
    /// Of these, lost on purpose.
    pub lost: u64,
    /// The loss asked for, a share (mean over time), if any.
    pub loss_requested: Option<f64>,
    /// The interval (99.9 %) in which the achieved loss had to lie.
    pub loss_interval: Option<(f64, f64)>,
    /// Packets that the emulator itself dropped (rings, queues of the kernel): 0 or untrue.
    pub own_dropped: u64,
    /// Packets dropped by the link's queue, which is part of what was asked for.
    pub queue_dropped: u64,
    /// Super-packets (GSO) that came: loss is not per wire packet then.
    pub gso_packets: u64,
    /// Mean delay asked for and added, ns.
    pub delay_requested_ns: Option<u64>,
    /// Added.
    pub delay_mean_ns: Option<u64>,
    /// Standard deviation of what was added, ns.
    #[serde(default)]
    pub delay_deviation_ns: Option<u64>,
    /// How late packets left: p50, p99, p99.9, worst, ns.
    pub lateness_ns: Option<[u64; 4]>,
    /// Packets out of order that were to keep it.
    pub reordered: u64,
    /// Why the emulator called itself untrue; none: it said it was true.
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
    /// Of what was busy, in interrupts and the packet work behind them, whoever it was for.
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

/// Why a run is not true.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// What kind.
    pub kind: FaultKind,
    /// What was seen, with figures, and what to do.
    pub text: String,
}

/// Kinds of faults, each planted in a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// The sender was held back by a window and not by congestion control.
    WindowLimited,
    /// Super-packets met the impairment.
    OffloadsOn,
    /// A socket used another congestion control than asked for.
    WrongCongestion,
    /// An impairment that was asked for did not happen, or not in its interval.
    NotImpaired,
    /// The emulator dropped packets by itself, was too late, or reordered.
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
