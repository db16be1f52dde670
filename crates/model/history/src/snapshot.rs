//! The picture of all classes at one time: what `top`, the page, metrics, rows and checks read.
//!
//! Plain data. `ledger` makes it from what the core counted; everything that shows or exports reads
//! only this. Keys carry their unit; shares are 0 to 1; what was not measured is `None`, never 0.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;

/// Where a row comes from.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Configured.
    #[default]
    Class,
    /// A subnet that was found in traffic.
    Subnet,
    /// A watched interface: hosts behind it.
    Interface,
    /// What no class matched, and what found no slot.
    Other,
}

/// What passed in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Volume {
    /// IP bytes since counting began.
    pub bytes: u64,
    /// IP packets since counting began.
    pub packets: u64,
    /// Bits a second over the window.
    pub rate_bps: f64,
    /// Packets a second over the window.
    pub packet_rate: f64,
    /// Share of the window's bytes whose flows gave no round-trip time.
    pub unmeasured: Option<f64>,
}

/// Round-trip times and loss on one leg.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Leg {
    /// Round-trip times in the window.
    pub samples: u64,
    /// The least of the window.
    pub min_rtt_ns: Option<u64>,
    /// Median of the window.
    pub p50_rtt_ns: Option<u64>,
    /// 95th percentile of the window.
    pub p95_rtt_ns: Option<u64>,
    /// 99th percentile of the window.
    pub p99_rtt_ns: Option<u64>,
    /// Share of data packets lost on this leg on the way to its hosts, in the window.
    pub loss_to: Option<f64>,
    /// Share lost on this leg on the way from its hosts.
    pub loss_from: Option<f64>,
    /// Packets lost on this leg since counting began, both ways.
    pub lost_packets: u64,
    /// Data packets that loss is a share of, since counting began, both ways.
    pub data_packets: u64,
    /// Packets reordered before this router, since counting began.
    pub reordered_packets: u64,
    /// All round-trip times since counting began.
    pub total: Totals,
}

/// A leg's round-trip times since counting began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// How many.
    pub samples: u64,
    /// Their sum, nanoseconds.
    pub sum_ns: u64,
    /// Those that found no cell in the kernel: in `samples` and `sum_ns` only.
    pub unbinned: u64,
    /// Their distribution; left out of answers that do not ask for it.
    #[serde(default, skip_serializing_if = "Histogram::is_empty")]
    pub histogram: Histogram,
}

/// How much a class's own load delays it (inside leg).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Median while the class was idle.
    pub idle_p50_ns: Option<u64>,
    /// Median while it was busy.
    pub loaded_p50_ns: Option<u64>,
    /// 95th percentile while it was busy.
    pub loaded_p95_ns: Option<u64>,
    /// The busy median less the idle one; 0 where it is not greater.
    pub growth_ns: Option<u64>,
    /// 0 (unusable) to 100 (load is not felt); docs/guide/top.md has the formula.
    pub score: Option<u8>,
}

/// Flows of a class since counting began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowCounts {
    /// Both sides seen.
    pub opened: u64,
    /// Of those, ended.
    pub closed: u64,
    /// Handshakes reset or never completed.
    pub handshakes_failed: u64,
    /// Ended with one side seen.
    pub one_sided: u64,
}

impl FlowCounts {
    /// Open now.
    pub fn open(&self) -> u64 {
        self.opened.saturating_sub(self.closed)
    }
}

/// One step of a sparkline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Both directions, bits a second.
    pub rate_bps: f64,
    /// 95th percentile of the inside leg.
    pub p95_rtt_ns: Option<u64>,
}

/// One class, interface or subnet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Unique among rows of its kind.
    pub name: String,
    /// Where it comes from.
    pub kind: Kind,
    /// The class above it.
    pub parent: Option<String>,
    /// 0 for the topmost.
    pub depth: u32,
    /// Classes directly below it. Its own numbers include theirs.
    pub children: u32,
    /// Ceiling of what its hosts send, if configured.
    pub plan_up_bps: Option<u64>,
    /// Ceiling of what they receive, if configured.
    pub plan_down_bps: Option<u64>,
    /// What its hosts send.
    pub up: Volume,
    /// What they receive.
    pub down: Volume,
    /// Between this router and its hosts.
    pub inside: Leg,
    /// Between this router and those they talk with.
    pub outside: Leg,
    /// Idle against busy.
    pub load: Load,
    /// Flows.
    pub flows: FlowCounts,
    /// One point an interval, oldest first, at most 60.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Point>,
    /// Alerts that hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alerts: Vec<AlertKind>,
    /// Its queue for what its hosts send, if that is shaped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_queue: Option<Queue>,
    /// Its queue for what they receive, if that is shaped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down_queue: Option<Queue>,
}

/// What became of the packets of a class, or of a line, in one direction, since shaping began:
/// came = sent + dropped + held, but for the packets of the moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Queue {
    /// That came to be scheduled.
    pub came_packets: u64,
    /// Ethernet frames without their checksum, as all bytes here.
    pub came_bytes: u64,
    /// That left.
    pub sent_packets: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Of those that left, marked here (CE).
    pub marked_packets: u64,
    /// Dropped here.
    pub dropped_packets: u64,
    /// Likewise, by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub dropped: BTreeMap<String, u64>,
    /// That wait.
    pub held_packets: u64,
    /// Their bytes.
    pub held_bytes: u64,
    /// Time from coming to leaving: median of the last 10 to 20 seconds.
    pub p50_sojourn_ns: Option<u64>,
    /// 95th percentile.
    pub p95_sojourn_ns: Option<u64>,
    /// 99th percentile.
    pub p99_sojourn_ns: Option<u64>,
}

/// One side of a shaper: all that leaves by an interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ShapedLine {
    /// "down" or "up".
    pub side: String,
    /// By which packets leave.
    pub interface: String,
    /// What it is held to, if it is.
    pub plan_bps: Option<u64>,
    /// Over the last interval.
    pub rate_bps: f64,
    /// What became of packets.
    pub queue: Queue,
}

/// Shaping, where it is configured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    /// Packets are scheduled.
    pub running: bool,
    /// How: "qdisc", "afxdp", "nfqueue" or "kernel".
    pub via: String,
    /// Why so.
    pub reason: String,
    /// Interfaces, modes, what happens if this process goes. For people.
    pub about: String,
    /// Why it does not run, if it should.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Both sides, as far as they are shaped.
    pub lines: Vec<ShapedLine>,
    /// The port's own counts.
    pub counters: BTreeMap<String, u64>,
}

/// Rates to be set; 0 takes one away.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ShapeSet {
    /// A class, or "line" for all.
    pub class: String,
    /// Most that its hosts receive.
    pub down_bps: Option<u64>,
    /// Most that they send.
    pub up_bps: Option<u64>,
    /// Least that they receive if they want it.
    pub down_floor_bps: Option<u64>,
    /// Least that they send.
    pub up_floor_bps: Option<u64>,
}

/// What an alert is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlertKind {
    /// The round-trip time left its baseline.
    RttShift,
    /// More is lost than the threshold allows.
    Loss,
    /// A promise of the class's plan is broken.
    SlaBreach,
}

/// An alert that began or ended: the exceptional, once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alert {
    /// Unix time, nanoseconds, when it began or ended.
    pub unix_ns: u64,
    /// Whether it holds from now on, or is over.
    pub active: bool,
    /// The class.
    pub class: String,
    /// What it is about.
    pub alert: AlertKind,
    /// "inside" or "outside".
    pub leg: String,
    /// What was seen: nanoseconds for round-trip times, a share for loss.
    pub value: f64,
    /// What it is held against: the baseline or the threshold, in the same unit.
    pub limit: f64,
    /// Unix time, nanoseconds, since when it holds or held.
    pub since_unix_ns: u64,
    /// For people.
    pub text: String,
}

/// The picture at one time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Of this structure.
    pub schema: u32,
    /// RFC 3339, UTC.
    pub time: String,
    /// The same, Unix nanoseconds.
    pub unix_ns: u64,
    /// This program.
    pub version: String,
    /// Of the router.
    pub host: String,
    /// Since this process began to count.
    pub up_ns: u64,
    /// Unix time, nanoseconds, since when totals count: they survive restarts.
    pub counting_since_unix_ns: u64,
    /// How long nothing was measured at the last restart.
    pub gap_ns: Option<u64>,
    /// Between two readings of the kernel.
    pub interval_ns: u64,
    /// What rates and quantiles look back over.
    pub window_ns: u64,
    /// Grows with each configuration taken in.
    pub configuration: u64,
    /// Rows that exist, shown or not.
    pub rows_total: u64,
    /// In tree order (each parent before its children, siblings as configured) unless sorted.
    pub rows: Vec<Row>,
    /// Counters of the packet path and of the daemon, by name.
    pub counters: BTreeMap<String, u64>,
    /// What is held now, by name: flows, slots, bytes of kernel memory. Units are in the names.
    #[serde(default)]
    pub gauges: BTreeMap<String, u64>,
    /// Shaping, where it is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<Shape>,
    /// Interfaces that programs are attached to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<String>,
    /// What an operator should know: a refused configuration, what waits for a restart. For people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A remote prefix or label that a class talks with, or one of the class's hosts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Peer {
    /// A prefix, a label, or an address.
    pub name: String,
    /// From the class's hosts, decayed over the last minutes.
    pub bytes_up: u64,
    /// To them.
    pub bytes_down: u64,
    /// Round-trip times: outside for remotes, inside for hosts.
    pub samples: u64,
    /// Their mean.
    pub mean_rtt_ns: Option<u64>,
    /// The greatest.
    pub max_rtt_ns: Option<u64>,
    /// Packets lost on that leg.
    pub lost_packets: u64,
}

/// A flow that is alive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowLine {
    /// "tcp", "icmp" or "icmpv6".
    pub proto: String,
    /// Of the class.
    pub host: IpAddr,
    /// Its port; 0 for ICMP.
    pub host_port: u16,
    /// The other side.
    pub remote: IpAddr,
    /// Its port; 0 for ICMP.
    pub remote_port: u16,
    /// Age.
    pub age_ns: u64,
    /// Since its last packet.
    pub idle_ns: u64,
    /// Payload from the host.
    pub bytes_up: u64,
    /// Payload to the host.
    pub bytes_down: u64,
    /// Least round-trip time inside.
    pub inside_min_rtt_ns: Option<u64>,
    /// Least round-trip time outside.
    pub outside_min_rtt_ns: Option<u64>,
    /// Retransmissions that passed, both ways.
    pub retransmitted_packets: u64,
}

/// One step of a class's last day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DayPoint {
    /// Where the step begins.
    pub unix_ns: u64,
    /// What its hosts sent.
    pub rate_up_bps: f64,
    /// What they received.
    pub rate_down_bps: f64,
    /// Inside leg.
    pub inside_p50_rtt_ns: Option<u64>,
    /// Inside leg.
    pub inside_p95_rtt_ns: Option<u64>,
    /// Outside leg.
    pub outside_p50_rtt_ns: Option<u64>,
    /// Outside leg.
    pub outside_p95_rtt_ns: Option<u64>,
    /// Inside leg, both ways.
    pub inside_loss: Option<f64>,
}

/// Everything known of one class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Detail {
    /// Its row, histograms included.
    pub row: Row,
    /// Remotes with the greatest mean round-trip time, the greatest first.
    pub worst: Vec<Peer>,
    /// Remotes with the most bytes.
    pub busiest: Vec<Peer>,
    /// Its own hosts with the most bytes.
    pub talkers: Vec<Peer>,
    /// Live flows, most bytes first.
    pub flows: Vec<FlowLine>,
    /// The last day, oldest first.
    pub day: Vec<DayPoint>,
}

/// By what rows are sorted, greatest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sort {
    /// Tree order, as configured.
    #[default]
    Tree,
    /// By name, ascending.
    Name,
    /// Both directions.
    Rate,
    /// 95th percentile inside.
    InsideP95,
    /// 95th percentile outside.
    OutsideP95,
    /// Growth under load.
    Growth,
    /// Greatest share lost on any leg.
    Loss,
    /// Open flows.
    Flows,
}

/// Which rows are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Query {
    /// Their order.
    pub sort: Sort,
    /// Only rows whose name contains this, ignoring case.
    pub filter: Option<String>,
    /// Only this class and what lies below it.
    pub under: Option<String>,
    /// Only rows of this kind.
    pub kind: Option<Kind>,
    /// No deeper than this.
    pub depth: Option<u32>,
    /// At most so many rows; 0 is no limit.
    pub limit: usize,
    /// With `Totals::histogram` of both legs.
    pub histograms: bool,
    /// With `Row::history`.
    pub history: bool,
}

/// The schema number of [`Snapshot`] and the control socket.
pub const SNAPSHOT_SCHEMA: u32 = 1;
/// Where the daemon listens unless told otherwise.
pub const DEFAULT_SOCKET: &str = "/run/fairpath/control.sock";

/// What can be asked on the control socket: one JSON object a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// A [`Snapshot`].
    Snapshot {
        /// Which rows.
        #[serde(default)]
        query: Query,
    },
    /// A [`Detail`].
    Detail {
        /// Its name.
        class: String,
        /// Peers and flows at most, each list.
        limit: usize,
    },
    /// A [`Snapshot`] without rows.
    Status,
    /// Reads the configuration again; only root may ask.
    Reload,
    /// Begins to shape; only root may ask.
    ShapeStart,
    /// Ends shaping; only root may ask.
    ShapeStop,
    /// Changes rates until the next reload; only root may ask.
    ShapeSet {
        /// Which.
        rates: ShapeSet,
    },
}

impl Request {
    /// Whether it changes something, which only root may.
    pub fn changes(&self) -> bool {
        match self {
            Request::Snapshot { .. } | Request::Detail { .. } | Request::Status => false,
            Request::Reload
            | Request::ShapeStart
            | Request::ShapeStop
            | Request::ShapeSet { .. } => true,
        }
    }
}

/// The answer: one JSON object a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// To [`Request::Snapshot`] and [`Request::Status`].
    Snapshot {
        /// The picture.
        snapshot: Box<Snapshot>,
    },
    /// To [`Request::Detail`].
    Detail {
        /// Everything known.
        detail: Box<Detail>,
    },
    /// Done; for people.
    Done {
        /// What was done.
        text: String,
    },
    /// Refused or failed; for people.
    Error {
        /// Object, operation, cause, remedy.
        text: String,
    },
}
