//! Which metrics a row has.
//!
//! Every family names its samples' labels by its shape: `class` and `kind` always, then `direction`
//! or `leg`. A value that is not known has no sample.

use std::borrow::Cow;

use fairpath_history::snapshot::{AlertKind, Kind as RowKind, Leg, Queue, Row, Volume};

use super::RTT_BOUNDS_S;
use super::text::{Encoder, Kind};

/// Series that a row has at most: those of histograms, of [`FAMILIES`], of alerts, and its info.
pub(super) const SERIES_PER_ROW: usize =
    2 * (RTT_BOUNDS_S.len() + 3) + count(FAMILIES) + ALERTS.len() + 1;

const ALERTS: [(AlertKind, &str); 3] = [
    (AlertKind::RttShift, "rtt_shift"),
    (AlertKind::Loss, "loss"),
    (AlertKind::SlaBreach, "sla_breach"),
];

/// Where the values stand, and which label tells them apart.
enum Shape {
    /// Up and down.
    Direction(fn(&Row) -> [Option<f64>; 2]),
    /// Inside and outside.
    Leg(fn(&Row) -> [Option<f64>; 2]),
    Whole(fn(&Row) -> Option<f64>),
}

/// A metric of classes.
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
            Shape::Whole(_) => 1,
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

/// Everything but histograms, alerts and infos.
pub(super) const FAMILIES: &[Family] = &[
    family(
        "fairpath_class_bytes",
        Kind::Counter,
        "bytes",
        "IP bytes of the class, headers included",
        Shape::Direction(|row| directions(row, |volume| Some(volume.bytes as f64))),
    ),
    family(
        "fairpath_class_packets",
        Kind::Counter,
        "",
        "IP packets of the class",
        Shape::Direction(|row| directions(row, |volume| Some(volume.packets as f64))),
    ),
    family(
        "fairpath_class_unmeasured_ratio",
        Kind::Gauge,
        "ratio",
        "Share of the window's bytes whose flows gave no round-trip time",
        Shape::Direction(|row| directions(row, |volume| volume.unmeasured_ratio)),
    ),
    family(
        "fairpath_class_plan_bytes_per_second",
        Kind::Gauge,
        "bytes_per_second",
        "Configured ceiling",
        Shape::Direction(|row| {
            [row.plan_up_bps, row.plan_down_bps].map(|b| b.map(|b| b as f64 / 8.0))
        }),
    ),
    family(
        "fairpath_class_lost_packets",
        Kind::Counter,
        "",
        "TCP data packets lost on a leg, both ways",
        Shape::Leg(|row| legs(row, |leg| Some(leg.lost_packets as f64))),
    ),
    family(
        "fairpath_class_data_packets",
        Kind::Counter,
        "",
        "TCP data packets that lost ones are a share of, both ways",
        Shape::Leg(|row| legs(row, |leg| Some(leg.data_packets as f64))),
    ),
    family(
        "fairpath_class_reordered_packets",
        Kind::Counter,
        "",
        "TCP data packets that a leg reordered before the router",
        Shape::Leg(|row| legs(row, |leg| Some(leg.reordered_packets as f64))),
    ),
    family(
        "fairpath_class_rtt_unbinned",
        Kind::Counter,
        "",
        "Round-trip times that are not in fairpath_rtt_seconds, because the kernel's table was full",
        Shape::Leg(|row| legs(row, |leg| Some(leg.total.unbinned as f64))),
    ),
    family(
        "fairpath_class_flows_opened",
        Kind::Counter,
        "",
        "Flows of which both sides were seen",
        Shape::Whole(|row| Some(row.flows.opened as f64)),
    ),
    family(
        "fairpath_class_flows_open",
        Kind::Gauge,
        "",
        "Flows that are open now",
        Shape::Whole(|row| Some(row.flows.open() as f64)),
    ),
    family(
        "fairpath_class_handshakes_failed",
        Kind::Counter,
        "",
        "TCP handshakes that were reset or never completed",
        Shape::Whole(|row| Some(row.flows.handshakes_failed as f64)),
    ),
    family(
        "fairpath_class_load_score",
        Kind::Gauge,
        "",
        "0 (unusable under load) to 100 (load is not felt)",
        Shape::Whole(|row| row.load.score.map(f64::from)),
    ),
    family(
        "fairpath_class_queue_sent_bytes",
        Kind::Counter,
        "bytes",
        "Bytes on the wire that left the class's queue, where it is shaped",
        Shape::Direction(|row| queues(row, |queue| Some(queue.sent_bytes as f64))),
    ),
    family(
        "fairpath_class_queue_dropped_packets",
        Kind::Counter,
        "",
        "Packets that the class's queue dropped, for all reasons",
        Shape::Direction(|row| queues(row, |queue| Some(queue.dropped_packets as f64))),
    ),
    family(
        "fairpath_class_queue_marked_packets",
        Kind::Counter,
        "",
        "Packets that the class's queue marked (CE)",
        Shape::Direction(|row| queues(row, |queue| Some(queue.marked_packets as f64))),
    ),
    family(
        "fairpath_class_queue_backlog_bytes",
        Kind::Gauge,
        "bytes",
        "Bytes that wait in the class's queue",
        Shape::Direction(|row| queues(row, |queue| Some(queue.held_bytes as f64))),
    ),
    family(
        "fairpath_class_queue_sojourn_p50_seconds",
        Kind::Gauge,
        "seconds",
        "Median of the time that packets waited in the class's queue, of the last 10 to 20 seconds",
        Shape::Direction(|row| queues(row, |queue| seconds(queue.p50_sojourn_ns))),
    ),
    family(
        "fairpath_class_queue_sojourn_p95_seconds",
        Kind::Gauge,
        "seconds",
        "95th percentile of that time",
        Shape::Direction(|row| queues(row, |queue| seconds(queue.p95_sojourn_ns))),
    ),
    family(
        "fairpath_class_queue_sojourn_p99_seconds",
        Kind::Gauge,
        "seconds",
        "99th percentile of that time",
        Shape::Direction(|row| queues(row, |queue| seconds(queue.p99_sojourn_ns))),
    ),
    family(
        "fairpath_class_rtt_growth_seconds",
        Kind::Gauge,
        "seconds",
        "Median inside round-trip time while busy, less that while idle",
        Shape::Whole(|row| row.load.rtt_growth_ns.map(|ns| ns as f64 / 1e9)),
    ),
];

impl Family {
    /// Writes the family with the samples of all rows.
    pub(super) fn encode(&self, encoder: &mut Encoder, rows: &[Cow<'_, Row>]) {
        encoder.family(self.name, self.kind, self.unit, self.help);
        for row in rows {
            let (label, names, values) = match &self.shape {
                Shape::Direction(values) => ("direction", ["up", "down"], values(row)),
                Shape::Leg(values) => ("leg", ["inside", "outside"], values(row)),
                Shape::Whole(value) => ("", [""; 2], [value(row), None]),
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

fn directions(row: &Row, value: fn(&Volume) -> Option<f64>) -> [Option<f64>; 2] {
    [value(&row.up), value(&row.down)]
}

fn queues(row: &Row, value: fn(&Queue) -> Option<f64>) -> [Option<f64>; 2] {
    [&row.up_queue, &row.down_queue].map(|queue| queue.as_ref().and_then(value))
}

fn seconds(ns: Option<u64>) -> Option<f64> {
    ns.map(|ns| ns as f64 / 1e9)
}

fn legs(row: &Row, value: fn(&Leg) -> Option<f64>) -> [Option<f64>; 2] {
    [value(&row.inside), value(&row.outside)]
}

/// How the row's kind is called in labels.
fn kind(row: &Row) -> &'static str {
    match row.kind {
        RowKind::Class => "class",
        RowKind::Subnet => "subnet",
        RowKind::Interface => "interface",
        RowKind::Other => "other",
    }
}

/// `fairpath_rtt_seconds`: cumulative buckets by class and leg.
///
/// All parts come from the binned round-trip times, so that they agree with one another and never
/// shrink; the sum is that of the buckets' middles, at most 1.6 % off.
pub(super) fn rtt(encoder: &mut Encoder, rows: &[Cow<'_, Row>]) {
    let help = "Round-trip times between the router and the class's hosts (inside) and those they talk with (outside)";
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

/// `fairpath_alert_active`: 1 while an alert holds.
pub(super) fn alerts(encoder: &mut Encoder, rows: &[Cow<'_, Row>]) {
    encoder.family(
        "fairpath_alert_active",
        Kind::Gauge,
        "",
        "1 while the daemon's own alert holds",
    );
    for row in rows {
        for (alert, name) in ALERTS {
            let labels = [
                ("class", row.name.as_str()),
                ("kind", kind(row)),
                ("alert", name),
            ];
            encoder.sample(
                "",
                &labels,
                f64::from(u8::from(row.alerts.contains(&alert))),
            );
        }
    }
}

/// `fairpath_class_info`: the class above.
pub(super) fn info(encoder: &mut Encoder, rows: &[Cow<'_, Row>]) {
    encoder.family(
        "fairpath_class",
        Kind::Info,
        "",
        "The class above this one, empty for the topmost",
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
