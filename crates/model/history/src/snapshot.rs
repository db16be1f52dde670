//! The snapshot of all classes: the input of `top`, the page, metrics, rows and checks.
//!
//! Plain data. `history` builds it from the counts of the core. Keys end in their unit, and ratios
//! are 0 to 1. A value that was not measured is `None`, never 0. An address is in `ROLE_address`,
//! its port in `ROLE_port`.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;
use crate::loaded_rules::LoadedRules;
use crate::series::{Series, SeriesQuery};

/// The origin of a row.
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
    /// A monitored interface, for the hosts behind it.
    Interface,
    /// Packets that match no class, or whose class has no slot.
    Other,
}

/// The traffic of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Volume {
    /// IP bytes since counting began.
    pub bytes: u64,
    /// IP packets since counting began.
    pub packets: u64,
    /// Bits per second, over the window.
    pub rate_bps: f64,
    /// Packets per second, over the window.
    pub rate_pps: f64,
    /// Fraction of the window's bytes that belong to flows without an RTT sample.
    pub unmeasured_ratio: Option<f64>,
}

/// Round-trip times and loss of one leg.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Leg {
    /// RTT samples in the window.
    pub samples: u64,
    /// Minimum of the window.
    pub min_rtt_ns: Option<u64>,
    /// Median of the window.
    pub p50_rtt_ns: Option<u64>,
    /// 95th percentile of the window.
    pub p95_rtt_ns: Option<u64>,
    /// 99th percentile of the window.
    pub p99_rtt_ns: Option<u64>,
    /// Fraction of data packets lost on this leg towards its hosts, in the window.
    pub loss_to_ratio: Option<f64>,
    /// Fraction lost on this leg from its hosts.
    pub loss_from_ratio: Option<f64>,
    /// Packets lost on this leg since counting began, both directions.
    pub lost_packets: u64,
    /// Data packets since counting began, both directions: the denominator of `lost_packets`.
    pub data_packets: u64,
    /// Packets reordered upstream of this router, since counting began.
    pub reordered_packets: u64,
    /// All RTT samples since counting began.
    pub total: Totals,
}

/// The RTT samples of a leg since counting began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Their number.
    pub samples: u64,
    /// Their sum, nanoseconds.
    pub sum_ns: u64,
    /// Samples in `samples` and `sum_ns` only, because the kernel's table of cells was full.
    pub unbinned: u64,
    /// Their distribution. Omitted unless requested.
    #[serde(default, skip_serializing_if = "Histogram::is_empty")]
    pub histogram: Histogram,
}

/// The delay that the load of a class causes on its inside leg.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Median RTT while the class is idle, or its lowest RTT of three days if it was not idle and its
    /// busy median is far above.
    pub idle_p50_rtt_ns: Option<u64>,
    /// Lowest RTT of three days, of blocks of ten seconds. `None` for a row with rows below, and for an
    /// interface. If the idle median is far above it, the access is slow without load.
    #[serde(default)]
    pub base_rtt_ns: Option<u64>,
    /// Median RTT while it is busy.
    pub loaded_p50_rtt_ns: Option<u64>,
    /// 95th percentile while it is busy.
    pub loaded_p95_rtt_ns: Option<u64>,
    /// Busy median minus idle median, 0 if negative. Of an interface and of a row with classes below at
    /// least the geometric mean of theirs.
    pub rtt_growth_ns: Option<u64>,
    /// From 0 (unusable under load) to 100 (load causes no delay). docs/guide/top.md has the formula.
    pub score: Option<u8>,
}

impl Load {
    /// True if the growth is the mean of the classes below or behind, because the own one is lower.
    pub fn grows_as_classes(&self) -> bool {
        let medians = self.idle_p50_rtt_ns.zip(self.loaded_p50_rtt_ns);
        self.rtt_growth_ns > medians.map(|(idle, busy)| busy.saturating_sub(idle))
    }
}

/// The flows of a class since counting began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowCounts {
    /// Flows with packets of both sides.
    pub opened: u64,
    /// Opened flows that ended.
    pub closed: u64,
    /// Handshakes that were reset or never completed.
    pub handshakes_failed: u64,
    /// Flows that ended with packets of one side only.
    pub one_sided: u64,
}

impl FlowCounts {
    /// Flows that are open now.
    pub fn open(&self) -> u64 {
        self.opened.saturating_sub(self.closed)
    }
}

/// One step of a sparkline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Both directions, bits per second.
    pub rate_bps: f64,
    /// 95th percentile of the inside leg.
    pub p95_rtt_ns: Option<u64>,
}

/// One class, interface or subnet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SnapshotRow {
    /// Unique among rows of its kind.
    pub name: String,
    /// Its origin.
    pub kind: Kind,
    /// Its parent class.
    pub parent: Option<String>,
    /// 0 for a row without parent.
    pub depth: u32,
    /// Number of its children. Its counts include theirs.
    pub children: u32,
    /// Configured ceiling of the direction up.
    pub ceil_up_bps: Option<u64>,
    /// Configured ceiling of the direction down.
    pub ceil_down_bps: Option<u64>,
    /// Traffic that its hosts send.
    pub up: Volume,
    /// Traffic that they receive.
    pub down: Volume,
    /// Between this router and its hosts.
    pub inside: Leg,
    /// Between this router and their remote hosts.
    pub outside: Leg,
    /// Delay under load.
    pub load: Load,
    /// Its flows.
    pub flows: FlowCounts,
    /// One point for each interval, oldest first, at most 60.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Point>,
    /// Its active alerts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alerts: Vec<AlertKind>,
    /// Its queue of the direction up, if that is shaped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_queue: Option<Queue>,
    /// Its queue of the direction down, if that is shaped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down_queue: Option<Queue>,
}

/// The packets of a class or a link in one direction, since shaping began.
///
/// `enqueued = sent + dropped + backlog`, except for packets that move during the reading. Bytes are
/// those of Ethernet frames without checksum.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Queue {
    /// The present ceiling, if there is one.
    pub ceil_bps: Option<u64>,
    /// The present floor, if there is one.
    pub floor_bps: Option<u64>,
    /// The achieved rate over the last interval; 0 in the first one.
    pub rate_bps: f64,
    /// Packets enqueued.
    pub enqueued_packets: u64,
    /// Bytes enqueued.
    pub enqueued_bytes: u64,
    /// Packets sent.
    pub sent_packets: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Sent packets that this queue marked with CE.
    pub marked_packets: u64,
    /// Packets that this queue dropped.
    pub dropped_packets: u64,
    /// The same by reason.
    #[serde(
        rename = "dropped_packets_by_reason",
        default,
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub dropped: BTreeMap<String, u64>,
    /// Packets in the queue.
    pub backlog_packets: u64,
    /// Bytes in the queue.
    pub backlog_bytes: u64,
    /// Median sojourn time of the last 10 to 20 seconds.
    pub p50_sojourn_ns: Option<u64>,
    /// 95th percentile.
    pub p95_sojourn_ns: Option<u64>,
    /// 99th percentile.
    pub p99_sojourn_ns: Option<u64>,
    /// Text: the CPU that keeps the class below its rate, and the remedy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<String>,
    /// The part of each worker, if there are several; only with [`Query::workers`] or of a whole link.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<QueueWorker>,
}

/// The part of one worker in a queue that several workers serve.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueWorker {
    /// Its number, from 0.
    pub worker: u32,
    /// Packets sent.
    pub sent_packets: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Over the last interval.
    pub rate_bps: f64,
    /// Packets that wait at it.
    pub backlog_packets: u64,
    /// Grants from the rate of the class, which all workers share: operations on shared memory.
    pub grants: u64,
    /// Times that it had to wait for a grant.
    pub waits: u64,
    /// Its present part of the ceiling, bit/s, where each worker is a transmit queue of the kernel. Such parts are no grants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceil_bps: Option<u64>,
}

/// A thread that shapes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Worker {
    /// Its number, from 0.
    pub worker: u32,
    /// The direction that it serves; `None`: both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<String>,
    /// The CPU that it ran on last.
    pub cpu: u32,
    /// Share of the last interval that it ran, 0 to 1.
    pub busy_ratio: f64,
    /// Share of the last interval that its CPU was not idle.
    pub cpu_busy_ratio: Option<f64>,
}

/// One direction of a shaper: all packets that leave by one interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ShapedLink {
    /// "down" or "up".
    #[serde(rename = "direction")]
    pub side: String,
    /// The egress interface.
    pub interface: String,
    /// The present ceiling, if there is one.
    pub ceil_bps: Option<u64>,
    /// Over the last interval.
    pub rate_bps: f64,
    /// Packets of the router itself, if the back end cannot schedule them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack: Option<StackTraffic>,
    /// Its packets.
    pub queue: Queue,
}

/// Traffic that the network stack sends on a shaped link, and that is charged to a share of its rate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackTraffic {
    /// Bytes since the start of shaping.
    pub sent_bytes: u64,
    /// Of them, bytes that were not charged, because the debt was at its limit.
    pub not_charged_bytes: u64,
    /// The time that the link takes for bytes that are not charged yet.
    pub debt_ns: u64,
}

/// Shaping, where it is configured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    /// True if packets are scheduled.
    pub running: bool,
    /// The back end: "qdisc", "afxdp", "nfqueue" or "kernel".
    #[serde(rename = "backend")]
    pub via: String,
    /// Why this back end was chosen.
    #[serde(rename = "backend_reason")]
    pub reason: String,
    /// Text: interfaces, modes, and the effect of a termination of this process.
    #[serde(rename = "description")]
    pub about: String,
    /// Text: why shaping does not run although it is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// The shaped directions.
    #[serde(rename = "links")]
    pub lines: Vec<ShapedLink>,
    /// Counters of the back end.
    pub counters: BTreeMap<String, u64>,
    /// Its threads, if the back end has any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<Worker>,
}

/// Rates to set. A rate of 0 removes the limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ShapeSet {
    /// A class, or "line" for the whole link.
    pub class: String,
    /// Ceiling of the direction down.
    #[serde(rename = "ceil_down_bps")]
    pub down_bps: Option<u64>,
    /// Ceiling of the direction up.
    #[serde(rename = "ceil_up_bps")]
    pub up_bps: Option<u64>,
    /// Floor of the direction down.
    pub floor_down_bps: Option<u64>,
    /// Floor of the direction up.
    pub floor_up_bps: Option<u64>,
}

/// The condition of an alert.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum AlertKind {
    /// The round-trip time is above its baseline.
    #[default]
    RttShift,
    /// Loss is above the threshold.
    Loss,
    /// A service level of the class is not met.
    SlaBreach,
}

/// The schema number of [`Alert`].
pub const ALERT_SCHEMA: u32 = 1;

/// The begin or the end of an alert.
///
/// Values are of RTT or of loss; the others are `None`, and all of them where an alert ends without a
/// comparison.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Alert {
    /// [`ALERT_SCHEMA`].
    pub schema: u32,
    /// Unix time of the begin or end, nanoseconds.
    pub unix_ns: u64,
    /// True for a begin, false for an end.
    pub active: bool,
    /// The class.
    pub class: String,
    /// The kind of its row.
    pub kind: Kind,
    /// The condition.
    pub alert: AlertKind,
    /// "inside" or "outside".
    pub leg: String,
    /// The statistic that is compared: "p50" or "p95" of the RTT, or "loss".
    pub statistic: Option<String>,
    /// Its value, if of RTT.
    pub rtt_ns: Option<u64>,
    /// The limit above which the alert begins.
    pub limit_rtt_ns: Option<u64>,
    /// The baseline from which the limit of a shift is computed.
    pub baseline_rtt_ns: Option<u64>,
    /// Its value, if of loss.
    pub loss_ratio: Option<f64>,
    /// The limit above which the alert begins.
    pub limit_loss_ratio: Option<f64>,
    /// Number of classes below with the same alert, which are not reported.
    pub below: u64,
    /// Unix time at which the condition began, nanoseconds.
    pub since_unix_ns: u64,
    /// A text for people.
    pub text: String,
}

/// A name or pattern of the configuration without a monitored interface.
///
/// Its text names the value, the key and the remedy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingFor {
    /// "interfaces" or "uplinks", keys of `[monitor]`.
    pub key: String,
    /// The configured name or pattern.
    pub name: String,
    /// An interface of this name exists, but it is not monitored.
    pub exists: bool,
    /// The existing interface with the most similar name.
    pub nearest: Option<String>,
}

impl WaitingFor {
    /// True if it is a pattern, which usually waits for interfaces that come and go.
    pub fn is_pattern(&self) -> bool {
        self.name.contains(['*', '?', '[', '{'])
    }
}

impl fmt::Display for WaitingFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, name) = (&self.key, fairpath_units::text::line(&self.name));
        write!(f, "{name} ([monitor] {key}): ")?;
        match (&self.nearest, self.exists, self.is_pattern()) {
            (_, true, _) => f.write_str("it is not monitored: add it to [monitor] interfaces"),
            (_, _, true) => f.write_str("no interface matches this pattern yet"),
            (None, ..) => f.write_str("no interface has this name yet"),
            (Some(near), ..) => {
                let near = fairpath_units::text::line(near);
                write!(
                    f,
                    "no interface has this name yet: did you mean \"{near}\"?"
                )
            }
        }
    }
}

/// All rows and counters at one time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// [`SNAPSHOT_SCHEMA`].
    pub schema: u32,
    /// RFC 3339, UTC.
    pub time: String,
    /// The same as Unix time, nanoseconds.
    pub unix_ns: u64,
    /// Version of this program.
    pub version: String,
    /// Name of the router.
    #[serde(rename = "hostname")]
    pub host: String,
    /// Time since this process began to count.
    #[serde(rename = "uptime_ns")]
    pub up_ns: u64,
    /// Unix time from which totals count, nanoseconds. Totals survive restarts.
    pub counting_since_unix_ns: u64,
    /// Time without measurement at the last restart.
    #[serde(rename = "restart_gap_ns")]
    pub gap_ns: Option<u64>,
    /// Time between two readings of the kernel.
    pub interval_ns: u64,
    /// Time that rates, percentiles and loss cover.
    pub window_ns: u64,
    /// Grows with each applied configuration.
    #[serde(rename = "configuration_generation")]
    pub configuration: u64,
    /// Number of rows, shown or not.
    pub rows_total: u64,
    /// Number of rows that the query selects, without its `offset` and `limit`. 0 without a query.
    #[serde(default)]
    pub rows_selected: u64,
    /// In tree order unless sorted: each parent before its children, siblings as configured.
    pub rows: Vec<SnapshotRow>,
    /// Counters of the packet path and of the daemon, by name.
    pub counters: BTreeMap<String, u64>,
    /// Current sizes, by name: flows, slots, bytes of kernel memory. Names end in their unit.
    #[serde(default)]
    pub gauges: BTreeMap<String, u64>,
    /// Shaping, where it is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<Shape>,
    /// Interfaces that programs are attached to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<String>,
    /// Configured interfaces and uplinks that are not monitored yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting_for: Vec<WaitingFor>,
    /// Active alerts that were reported, by class. Those of classes below them are only counted. Empty if
    /// the query does not select them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alerts: Vec<Alert>,
    /// The last reported alerts that ended since this process began, newest first. Empty unless requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub past_alerts: Vec<Alert>,
    /// Classes with excess delay or loss now, worst first. Empty unless requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub affected: Vec<Affected>,
    /// Their number, also of those not listed. 0 unless requested.
    #[serde(default)]
    pub affected_total: u64,
    /// The traffic of all rows over time. `None` unless requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<Total>,
    /// The loaded rules. `None` unless requested, and without rules.
    #[serde(
        rename = "loaded_rules",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub rules: Option<Box<LoadedRules>>,
    /// Texts for the operator, such as a refused configuration or a setting that needs a restart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A leg of a class with excess delay or loss.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Affected {
    /// The class.
    pub class: String,
    /// The kind of its row.
    pub kind: Kind,
    /// Its parent class.
    pub parent: Option<String>,
    /// "inside" or "outside".
    pub leg: String,
    /// Unix time from which it is affected without a break, nanoseconds.
    pub since_unix_ns: u64,
    /// 95th percentile of the window.
    pub p95_rtt_ns: Option<u64>,
    /// The percentile minus the usual RTT. docs/export.md has the definition.
    pub excess_rtt_ns: Option<u64>,
    /// Loss ratio of both directions, in the window.
    pub loss_ratio: Option<f64>,
}

/// The traffic of all rows together over time: rows without parent, except interfaces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Total {
    /// One point for each of the last intervals, oldest first.
    pub recent: Vec<DayPoint>,
    /// The last day since the start of this process, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub day: Vec<DayPoint>,
}

/// A remote prefix, a label of remote prefixes, or a host of a class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Peer {
    /// A prefix, a label, or an address.
    pub name: String,
    /// Bytes that the class's hosts sent, decayed over the last minutes.
    pub bytes_up: u64,
    /// Bytes that they received, decayed the same way.
    pub bytes_down: u64,
    /// RTT samples: outside for remotes, inside for hosts.
    pub samples: u64,
    /// Their mean.
    pub mean_rtt_ns: Option<u64>,
    /// Their maximum.
    pub max_rtt_ns: Option<u64>,
    /// Packets lost on that leg.
    pub lost_packets: u64,
}

/// An open flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowLine {
    /// "tcp", "icmp" or "icmpv6".
    #[serde(rename = "protocol")]
    pub proto: String,
    /// Address of the class's host.
    #[serde(rename = "host_address")]
    pub host: IpAddr,
    /// Its port; 0 for ICMP.
    pub host_port: u16,
    /// Address of the remote host.
    #[serde(rename = "remote_address")]
    pub remote: IpAddr,
    /// Its port; 0 for ICMP.
    pub remote_port: u16,
    /// Time since it was opened.
    pub age_ns: u64,
    /// Time since its last packet.
    pub idle_ns: u64,
    /// Payload bytes from the host.
    pub bytes_up: u64,
    /// Payload bytes to the host.
    pub bytes_down: u64,
    /// Minimum RTT inside.
    pub inside_min_rtt_ns: Option<u64>,
    /// Median RTT inside, estimated.
    pub inside_p50_rtt_ns: Option<u64>,
    /// Minimum RTT outside.
    pub outside_min_rtt_ns: Option<u64>,
    /// Median RTT outside, estimated.
    pub outside_p50_rtt_ns: Option<u64>,
    /// Retransmissions that passed the router, both directions.
    pub retransmitted_packets: u64,
}

/// One step of the last day or the last minutes of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DayPoint {
    /// Unix time at which the step begins, nanoseconds.
    pub unix_ns: u64,
    /// Rate that its hosts sent.
    pub rate_up_bps: f64,
    /// Rate that they received.
    pub rate_down_bps: f64,
    /// Inside leg.
    pub inside_p50_rtt_ns: Option<u64>,
    /// Inside leg.
    pub inside_p95_rtt_ns: Option<u64>,
    /// Outside leg.
    pub outside_p50_rtt_ns: Option<u64>,
    /// Outside leg.
    pub outside_p95_rtt_ns: Option<u64>,
    /// Inside leg, both directions.
    pub inside_loss_ratio: Option<f64>,
}

/// The details of one class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Detail {
    /// Its row, histograms included.
    pub row: SnapshotRow,
    /// Remotes with the largest mean RTT, largest first.
    pub worst_remotes: Vec<Peer>,
    /// Remotes with the most bytes.
    pub busiest_remotes: Vec<Peer>,
    /// Its hosts with the most bytes.
    pub busiest_hosts: Vec<Peer>,
    /// Open flows, most bytes first.
    pub flows: Vec<FlowLine>,
    /// The last day, oldest first.
    pub day: Vec<DayPoint>,
    /// One point for each of the last 60 intervals, oldest first.
    #[serde(default)]
    pub recent: Vec<DayPoint>,
    /// Its configuration, for a row of kind class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configured: Option<Configured>,
}

/// The configuration of a class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Configured {
    /// Its criteria as text, for example "prefix 192.0.2.0/24", at most [`MAX_CRITERIA_SHOWN`].
    pub criteria: Vec<String>,
    /// Number of its criteria, also of those not listed.
    pub criteria_total: u64,
    /// Attributes of the operator, such as circuit ids and comments, at most [`MAX_ATTRIBUTES_SHOWN`].
    pub attributes: BTreeMap<String, String>,
    /// Its service level: maximum of the 95th percentile inside.
    pub sla_p95_rtt_ns: Option<u64>,
    /// Its service level: maximum loss ratio.
    pub sla_loss_ratio: Option<f64>,
}

/// Maximum number of criteria in [`Configured`].
pub const MAX_CRITERIA_SHOWN: usize = 64;
/// Maximum number of attributes in [`Configured`].
pub const MAX_ATTRIBUTES_SHOWN: usize = 32;
/// Maximum size of an attribute's value in [`Configured`], characters.
pub const MAX_ATTRIBUTE_CHARS: usize = 500;

/// The sort order of rows, largest value first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sort {
    /// Tree order, as configured.
    #[default]
    Tree,
    /// By name, ascending.
    Name,
    /// Rate of both directions.
    Rate,
    /// 95th percentile inside.
    InsideP95,
    /// 95th percentile outside.
    OutsideP95,
    /// Growth under load.
    Growth,
    /// Largest loss of any leg and direction.
    Loss,
    /// Open flows.
    Flows,
}

/// Selects rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Query {
    /// Their order.
    pub sort: Sort,
    /// Sorts siblings among themselves, so that each row follows its parent.
    pub by_parent: bool,
    /// Only rows whose name contains this, ignoring case.
    pub filter: Option<String>,
    /// As `filter`, and classes with a criterion or an attribute that matches: an address, a prefix, a
    /// MAC address, or a part of a text.
    pub search: Option<String>,
    /// Only this class and the classes below it.
    pub under: Option<String>,
    /// Only rows of this kind.
    pub kind: Option<Kind>,
    /// No deeper than this.
    pub depth: Option<u32>,
    /// Without the rows below folded rows. A row is folded if its depth is at least this, unless it is
    /// in `fold_except`.
    pub folded_from_depth: Option<u32>,
    /// Names of rows for which folding is reversed.
    pub fold_except: Vec<String>,
    /// Number of selected rows to skip.
    pub offset: usize,
    /// Maximum number of rows, 0 for all.
    pub limit: usize,
    /// With `Totals::histogram` of both legs.
    pub histograms: bool,
    /// With `SnapshotRow::history`.
    pub history: bool,
    /// With `Snapshot::alerts`: all of them, whichever rows are selected.
    pub alerts: bool,
    /// With `Snapshot::past_alerts`.
    pub past_alerts: bool,
    /// With `Snapshot::affected`, at most this number. 0 for none.
    pub affected: usize,
    /// With points of `Snapshot::total` that begin after this Unix time. 0 for all of them and the day.
    pub total_after_unix_ns: Option<u64>,
    /// With `Snapshot::rules`, and at most this number of the rules with the highest rates. 0 for none.
    pub rules: usize,
    /// With `Snapshot::rules`, and the rules with metrics.
    pub exported_rules: bool,
    /// With `Queue::workers` of classes.
    pub workers: bool,
}

/// The schema number of [`Snapshot`] and the control socket.
pub const SNAPSHOT_SCHEMA: u32 = 1;
/// The default path of the daemon's control socket.
pub const DEFAULT_SOCKET: &str = "/run/fairpath/control.sock";

/// A request on the control socket: one JSON object per line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// A [`Snapshot`].
    Snapshot {
        /// Selects the rows.
        #[serde(default)]
        query: Query,
    },
    /// A [`Detail`].
    Detail {
        /// The name of the class.
        class: String,
        /// Maximum length of each list.
        limit: usize,
    },
    /// A [`Series`].
    History {
        /// Selects row, time and step.
        query: SeriesQuery,
    },
    /// A [`Snapshot`] without rows, with the reported alerts.
    Status,
    /// All loaded rules with their counters.
    Rules,
    /// Reload the configuration. Only root may do this.
    Reload,
    /// Start shaping. Only root may do this.
    ShapeStart,
    /// Stop shaping. Only root may do this.
    ShapeStop,
    /// Change rates until the next reload. Only root may do this.
    ShapeSet {
        /// The rates.
        rates: ShapeSet,
    },
}

impl Request {
    /// True if it changes the daemon's state, which only root may do.
    pub fn changes(&self) -> bool {
        match self {
            Request::Snapshot { .. }
            | Request::Detail { .. }
            | Request::History { .. }
            | Request::Rules
            | Request::Status => false,
            Request::Reload
            | Request::ShapeStart
            | Request::ShapeStop
            | Request::ShapeSet { .. } => true,
        }
    }
}

/// An answer: one JSON object per line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// To [`Request::Snapshot`] and [`Request::Status`].
    Snapshot {
        /// The snapshot.
        snapshot: Box<Snapshot>,
    },
    /// To [`Request::Detail`].
    Detail {
        /// The details.
        detail: Box<Detail>,
    },
    /// To [`Request::History`].
    History {
        /// The counts in steps.
        series: Box<Series>,
    },
    /// To [`Request::Rules`].
    Rules {
        /// For commands of this version only. Each character is a byte.
        text: String,
        /// Their state, without lists of rules.
        state: Box<LoadedRules>,
    },
    /// The request succeeded.
    Done {
        /// A text for people.
        text: String,
    },
    /// The request was refused or failed.
    Error {
        /// Operation, object, cause and remedy.
        text: String,
    },
}
