//! The metrics of a row.
//!
//! Samples have the labels `class` and `kind`, and `direction` or `leg` by the shape of their family.
//! A value that was not measured has no sample.

use std::borrow::Cow;

use fairpath_history::snapshot::{AlertKind, Kind as RowKind, Leg, Queue, SnapshotRow, Volume};

use super::text::{Encoder, Kind};
use super::{RTT_BOUNDS_S, Reported};

/// Maximum number of series of a row: histograms, [`FAMILIES`], alerts, and info.
pub(super) const SERIES_PER_ROW: usize =
    2 * (RTT_BOUNDS_S.len() + 3) + count(FAMILIES) + ALERTS.len() + 1;

const ALERTS: [(AlertKind, &str); 3] = [
    (AlertKind::RttShift, "rtt_shift"),
    (AlertKind::Loss, "loss"),
    (AlertKind::SlaBreach, "sla_breach"),
];

/// The values of a family in a row, and the label that distinguishes them.
enum Shape {
    /// Label `direction`: up and down.
    Direction(fn(&SnapshotRow) -> [Option<f64>; 2]),
    /// Label `leg`: inside and outside.
    Leg(fn(&SnapshotRow) -> [Option<f64>; 2]),
    /// No further label.
    Single(fn(&SnapshotRow) -> Option<f64>),
}

/// A metric of rows.
pub(super) struct Family {
    name: &'static str,
    kind: Kind,
    unit: &'static str,
    help: &'static str,
    shape: Shape,
}

const fn count(families: &[Family]) -> usize {
    let (mut sum, mut at) = (0, 0);
    while at < families.len() {
        sum += match families[at].shape {
            Shape::Single(_) => 1,
            Shape::Direction(_) | Shape::Leg(_) => 2,
        };
        at += 1;
    }
    sum
}

const fn family(
    name: &'static str,
    kind: Kind,
    unit: &'static str,
    help: &'static str,
    shape: Shape,
) -> Family {
    Family {
        name,
        kind,
        unit,
        help,
        shape,
    }
}

/// All families except histograms, alerts and infos.
pub(super) const FAMILIES: &[Family] = &[
    family(
        "fairpath_class_bytes",
        Kind::Counter,
        "bytes",
        "IP bytes, including headers",
        Shape::Direction(|row| directions(row, |volume| Some(volume.bytes as f64))),
    ),
    family(
        "fairpath_class_packets",
        Kind::Counter,
        "",
        "IP packets",
        Shape::Direction(|row| directions(row, |volume| Some(volume.packets as f64))),
    ),
    family(
        "fairpath_class_unmeasured_ratio",
        Kind::Gauge,
        "ratio",
        "Fraction of the bytes in the window that belong to flows without an RTT sample",
        Shape::Direction(|row| directions(row, |volume| volume.unmeasured_ratio)),
    ),
    family(
        "fairpath_class_ceil_bytes_per_second",
        Kind::Gauge,
        "bytes_per_second",
        "Configured ceiling",
        Shape::Direction(|row| {
            [row.ceil_up_bps, row.ceil_down_bps].map(|b| b.map(|b| b as f64 / 8.0))
        }),
    ),
    family(
        "fairpath_class_lost_packets",
        Kind::Counter,
        "",
        "TCP data packets lost on a leg, both directions",
        Shape::Leg(|row| legs(row, |leg| Some(leg.lost_packets as f64))),
    ),
    family(
        "fairpath_class_data_packets",
        Kind::Counter,
        "",
        "TCP data packets of a leg, both directions: the denominator of fairpath_class_lost_packets",
        Shape::Leg(|row| legs(row, |leg| Some(leg.data_packets as f64))),
    ),
    family(
        "fairpath_class_reordered_packets",
        Kind::Counter,
        "",
        "TCP data packets that arrived at the router out of order, by the leg that reordered them",
        Shape::Leg(|row| legs(row, |leg| Some(leg.reordered_packets as f64))),
    ),
    family(
        "fairpath_class_rtt_unbinned",
        Kind::Counter,
        "",
        "RTT samples that are missing from fairpath_rtt_seconds, because the table in the kernel was full",
        Shape::Leg(|row| legs(row, |leg| Some(leg.total.unbinned as f64))),
    ),
    family(
        "fairpath_class_flows_opened",
        Kind::Counter,
        "",
        "Flows with packets of both sides",
        Shape::Single(|row| Some(row.flows.opened as f64)),
    ),
    family(
        "fairpath_class_flows_open",
        Kind::Gauge,
        "",
        "Flows that are open now",
        Shape::Single(|row| Some(row.flows.open() as f64)),
    ),
    family(
        "fairpath_class_handshakes_failed",
        Kind::Counter,
        "",
        "TCP handshakes that were reset or never completed",
        Shape::Single(|row| Some(row.flows.handshakes_failed as f64)),
    ),
    family(
        "fairpath_class_load_score",
        Kind::Gauge,
        "",
        "Load score from 0 (unusable under load) to 100 (load causes no delay)",
        Shape::Single(|row| row.load.score.map(f64::from)),
    ),
    family(
        "fairpath_class_queue_sent_bytes",
        Kind::Counter,
        "bytes",
        "Bytes that the queue of a shaped class sent, Ethernet headers included",
        Shape::Direction(|row| queues(row, |queue| Some(queue.sent_bytes as f64))),
    ),
    family(
        "fairpath_class_queue_dropped_packets",
        Kind::Counter,
        "",
        "Packets that the queue of the class dropped, for all reasons",
        Shape::Direction(|row| queues(row, |queue| Some(queue.dropped_packets as f64))),
    ),
    family(
        "fairpath_class_queue_marked_packets",
        Kind::Counter,
        "",
        "Packets that the queue of the class marked with CE (RFC 3168)",
        Shape::Direction(|row| queues(row, |queue| Some(queue.marked_packets as f64))),
    ),
    family(
        "fairpath_class_queue_backlog_bytes",
        Kind::Gauge,
        "bytes",
        "Bytes in the queue of the class",
        Shape::Direction(|row| queues(row, |queue| Some(queue.backlog_bytes as f64))),
    ),
    family(
        "fairpath_class_queue_sojourn_p50_seconds",
        Kind::Gauge,
        "seconds",
        "Median sojourn time in the queue of the class, over the last 10 to 20 seconds",
        Shape::Direction(|row| queues(row, |queue| seconds(queue.p50_sojourn_ns))),
    ),
    family(
        "fairpath_class_queue_sojourn_p95_seconds",
        Kind::Gauge,
        "seconds",
        "95th percentile of the sojourn time in the queue of the class, over the last 10 to 20 seconds",
        Shape::Direction(|row| queues(row, |queue| seconds(queue.p95_sojourn_ns))),
    ),
    family(
        "fairpath_class_queue_sojourn_p99_seconds",
        Kind::Gauge,
        "seconds",
        "99th percentile of the sojourn time in the queue of the class, over the last 10 to 20 seconds",
        Shape::Direction(|row| queues(row, |queue| seconds(queue.p99_sojourn_ns))),
    ),
    family(
        "fairpath_class_queue_bound_by_cpu",
        Kind::Gauge,
        "",
        "1 if a busy CPU keeps the class below its rate in a direction; `fairpath shape status --cpus` names it and the remedy",
        Shape::Single(|row| {
            let bound = queues(row, |queue| {
                Some(f64::from(u8::from(queue.bound.is_some())))
            });
            bound.into_iter().flatten().reduce(f64::max)
        }),
    ),
    family(
        "fairpath_class_rtt_growth_seconds",
        Kind::Gauge,
        "seconds",
        "Median inside RTT while the class is busy, minus the median while it is idle. Of an interface and of \
         a class with classes below: this, or the geometric mean of their classes if that is higher",
        Shape::Single(|row| row.load.rtt_growth_ns.map(|ns| ns as f64 / 1e9)),
    ),
];

impl Family {
    /// Writes the family with the samples of all rows.
    pub(super) fn encode(&self, encoder: &mut Encoder, rows: &[Cow<'_, SnapshotRow>]) {
        encoder.family(self.name, self.kind, self.unit, self.help);
        for row in rows {
            let (label, names, values) = match &self.shape {
                Shape::Direction(values) => ("direction", ["up", "down"], values(row)),
                Shape::Leg(values) => ("leg", ["inside", "outside"], values(row)),
                Shape::Single(value) => ("", [""; 2], [value(row), None]),
            };
            for (name, value) in names.into_iter().zip(values) {
                let labels = [
                    ("class", row.name.as_str()),
                    ("kind", kind(row)),
                    (label, name),
                ];
                let used = if label.is_empty() {
                    &labels[..2]
                } else {
                    &labels
                };
                if let Some(value) = value {
                    encoder.sample("", used, value);
                }
            }
        }
    }
}

fn directions(row: &SnapshotRow, value: fn(&Volume) -> Option<f64>) -> [Option<f64>; 2] {
    [value(&row.up), value(&row.down)]
}

fn queues(row: &SnapshotRow, value: fn(&Queue) -> Option<f64>) -> [Option<f64>; 2] {
    [&row.up_queue, &row.down_queue].map(|queue| queue.as_ref().and_then(value))
}

fn seconds(ns: Option<u64>) -> Option<f64> {
    ns.map(|ns| ns as f64 / 1e9)
}

fn legs(row: &SnapshotRow, value: fn(&Leg) -> Option<f64>) -> [Option<f64>; 2] {
    [value(&row.inside), value(&row.outside)]
}

/// The value of the label `kind`.
fn kind(row: &SnapshotRow) -> &'static str {
    match row.kind {
        RowKind::Class => "class",
        RowKind::Subnet => "subnet",
        RowKind::Interface => "interface",
        RowKind::Other => "other",
    }
}

/// `fairpath_rtt_seconds`: cumulative buckets by class and leg.
///
/// All parts come from the binned samples, so that they are consistent and never decrease. The sum
/// uses the middle of each bucket, with an error of at most 1.6 %.
pub(super) fn rtt(encoder: &mut Encoder, rows: &[Cow<'_, SnapshotRow>]) {
    let help = "Round-trip times from the router to the hosts of the class (inside) and to their remote hosts (outside)";
    encoder.family("fairpath_rtt_seconds", Kind::Histogram, "seconds", help);
    let bounds = RTT_BOUNDS_S.map(|bound| ((bound * 1e9) as u64, bound.to_string()));
    for row in rows {
        for (name, leg) in [("inside", &row.inside), ("outside", &row.outside)] {
            let histogram = &leg.total.histogram;
            let labels = [
                ("class", row.name.as_str()),
                ("kind", kind(row)),
                ("leg", name),
            ];
            let mut bucket = |le: &str, count: u64| {
                let [class, kind, leg] = labels;
                encoder.sample("_bucket", &[class, kind, leg, ("le", le)], count as f64);
            };
            for (bound_ns, le) in &bounds {
                bucket(le, histogram.count_up_to(*bound_ns));
            }
            let count = histogram.count() as f64;
            bucket("+Inf", histogram.count());
            let sum_s = histogram.mean().unwrap_or(0.0) * count / 1e9;
            encoder.sample("_sum", &labels, sum_s);
            encoder.sample("_count", &labels, count);
        }
    }
}

/// `fairpath_alert_active`: 1 while an alert that was reported is active. A sum has those of its rows.
pub(super) fn alerts(
    encoder: &mut Encoder,
    rows: &[Cow<'_, SnapshotRow>],
    reported: &Reported<'_>,
) {
    encoder.family(
        "fairpath_alert_active",
        Kind::Gauge,
        "",
        "1 while an alert that the daemon reported is active: one for a fault, which may concern many classes",
    );
    for row in rows {
        let active: Vec<AlertKind> = match row {
            Cow::Borrowed(row) => reported.of(row).collect(),
            Cow::Owned(sum) => sum.alerts.clone(),
        };
        for (alert, name) in ALERTS {
            let labels = [
                ("class", row.name.as_str()),
                ("kind", kind(row)),
                ("alert", name),
            ];
            encoder.sample("", &labels, f64::from(u8::from(active.contains(&alert))));
        }
    }
}

/// `fairpath_class_info`: the parent class.
pub(super) fn info(encoder: &mut Encoder, rows: &[Cow<'_, SnapshotRow>]) {
    encoder.family(
        "fairpath_class",
        Kind::Info,
        "",
        "The parent of the class, empty if it has none",
    );
    for row in rows {
        let parent = row.parent.as_deref().unwrap_or_default();
        encoder.sample(
            "",
            &[
                ("class", &row.name),
                ("kind", kind(row)),
                ("parent", parent),
            ],
            1.0,
        );
    }
}
