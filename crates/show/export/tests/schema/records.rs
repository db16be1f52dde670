//! One record of each kind, with every optional part.

use fairpath_core::{
    Counts, Event, FlowRecord, Key, Method, OwnQueue, Reason, Sample as CoreSample, Stats,
};
use fairpath_history::loaded_rules::*;
use fairpath_history::series::{Series, SeriesPoint, Span};
use fairpath_history::snapshot::{
    ALERT_SCHEMA, Affected, Alert, AlertKind, Configured, DayPoint, Detail, FlowCounts, FlowLine,
    Kind, Leg, Load, Peer, Point, Queue, QueueWorker, SNAPSHOT_SCHEMA, Shape, ShapedLink, Snapshot,
    SnapshotRow, StackTraffic, Total, Totals, Volume, WaitingFor, Worker,
};
use fairpath_history::{Histogram, IntervalRow};
use fairpath_rtt::{Clock, Context, FlowLine as RttFlow, SampleLine, Summary};
use serde_json::Value;

const TIME: &str = "2026-03-01T08:28:17.250000000Z";
const UNIX_NS: u64 = 1_772_353_697_250_000_000;
const LAN: u32 = 3;

fn context() -> Context {
    Context {
        clock: Clock {
            unix_of_zero_ns: UNIX_NS.into(),
        },
        names: [(LAN, "lan".to_owned())].into(),
    }
}

fn key() -> Key {
    let mut key = Key::default();
    (key.proto, key.family) = (6, 4);
    key
}

/// `known`: whether the optional values are known.
fn core_sample(known: bool) -> CoreSample {
    CoreSample {
        time: 5_000_000,
        number: if known { 7 } else { 0 },
        rtt: 4_000_000,
        min: 3_000_000,
        key: key(),
        flow: 1,
        measured: 1,
        method: Method::ALL[0],
        ifindex: if known { LAN } else { 0 },
        towards: if known { LAN } else { 0 },
        own_queue: if known {
            OwnQueue::In
        } else {
            OwnQueue::Unknown
        },
        direction: Default::default(),
        seq: 100,
        ack: 200,
        acked_bytes: 1448,
    }
}

fn core_flow() -> FlowRecord {
    let counts = Counts {
        packets: 50,
        bytes: 60_000,
        data_packets: 40,
        samples: 12,
        upstream_lost_packets: 2,
        retransmitted_packets: 3,
        spurious_packets: 1,
        ..Counts::default()
    };
    FlowRecord {
        time: 9_000_000,
        number: 0,
        key: key(),
        flow: 1,
        reason: Reason::Fin,
        side: 1,
        opened: 1_000_000,
        counts: [counts; 2],
        min: [0, 3_000_000],
        towards: [0, LAN],
    }
}

/// An RTT sample.
pub fn sample(known: bool) -> Value {
    serde_json::to_value(SampleLine::new(&core_sample(known), &context())).unwrap()
}

/// A flow event.
pub fn flow(event: &'static str) -> Value {
    serde_json::to_value(RttFlow::new(event, &core_flow(), &context())).unwrap()
}

/// The summary of a run with one flow.
pub fn summary() -> Value {
    let mut summary = Summary::default();
    summary.add(&Event::Opened(core_flow()));
    summary.add(&Event::Sample(core_sample(true)));
    summary.add(&Event::Closed(core_flow()));
    let line = summary.line(8_000_000, &Stats::default(), 10, &context());
    serde_json::to_value(line).unwrap()
}

fn leg() -> Leg {
    let mut histogram = Histogram::default();
    histogram.record(4_000_000);
    Leg {
        samples: 210,
        min_rtt_ns: Some(3_000_000),
        p50_rtt_ns: Some(4_000_000),
        p95_rtt_ns: Some(9_000_000),
        p99_rtt_ns: Some(12_000_000),
        loss_to_ratio: Some(0.01),
        loss_from_ratio: Some(0.0),
        lost_packets: 9,
        data_packets: 900,
        reordered_packets: 1,
        total: Totals {
            samples: 1,
            sum_ns: 4_000_000,
            unbinned: 0,
            histogram,
        },
    }
}

fn queue() -> Queue {
    Queue {
        ceil_bps: Some(10_000_000),
        floor_bps: None,
        rate_bps: 9.6e6,
        enqueued_packets: 100,
        enqueued_bytes: 90_000,
        sent_packets: 90,
        sent_bytes: 80_000,
        marked_packets: 3,
        dropped_packets: 6,
        dropped: [("full".to_owned(), 6)].into(),
        backlog_packets: 4,
        backlog_bytes: 4_000,
        p50_sojourn_ns: Some(1_000_000),
        p95_sojourn_ns: Some(5_000_000),
        p99_sojourn_ns: None,
        bound: Some("CPU 1 is busy".to_owned()),
        workers: vec![QueueWorker {
            worker: 1,
            sent_packets: 40,
            sent_bytes: 40_000,
            rate_bps: 4e6,
            backlog_packets: 2,
            grants: 4,
            waits: 3,
            ceil_bps: Some(5_000_000),
        }],
    }
}

fn row() -> SnapshotRow {
    let volume = Volume {
        bytes: 1_000,
        packets: 10,
        rate_bps: 8e6,
        rate_pps: 900.0,
        unmeasured_ratio: Some(0.1),
    };
    SnapshotRow {
        name: "anna".to_owned(),
        kind: Kind::Class,
        parent: Some("site".to_owned()),
        depth: 1,
        children: 0,
        ceil_up_bps: Some(20_000_000),
        ceil_down_bps: None,
        up: volume,
        down: volume,
        inside: leg(),
        outside: leg(),
        load: Load {
            idle_p50_rtt_ns: Some(4_000_000),
            base_rtt_ns: Some(3_000_000),
            loaded_p50_rtt_ns: Some(24_000_000),
            loaded_p95_rtt_ns: Some(40_000_000),
            rtt_growth_ns: Some(20_000_000),
            score: Some(68),
        },
        flows: FlowCounts {
            opened: 9,
            closed: 4,
            handshakes_failed: 1,
            one_sided: 1,
        },
        history: vec![Point {
            rate_bps: 8e6,
            p95_rtt_ns: None,
        }],
        alerts: vec![AlertKind::RttShift, AlertKind::Loss, AlertKind::SlaBreach],
        up_queue: Some(queue()),
        down_queue: Some(queue()),
    }
}

fn loaded_rules() -> LoadedRules {
    let rule = RuleCount {
        family: "IPv4".to_owned(),
        table: "filter".to_owned(),
        chain: "INPUT".to_owned(),
        rule: "-p tcp -j DROP".to_owned(),
        file: "rules.v4".to_owned(),
        line: 3,
        rate_pps: 0.5,
        ..RuleCount::default()
    };
    LoadedRules {
        unix_ns: UNIX_NS,
        counter_mode: "exact".to_owned(),
        files: vec![RuleFile {
            family: "IPv4".to_owned(),
            file: "rules.v4".to_owned(),
            rules: 1,
        }],
        policies: vec![PolicyCount {
            family: "IPv4".to_owned(),
            policy: "DROP".to_owned(),
            ..PolicyCount::default()
        }],
        targets: vec![TargetCount {
            family: "IPv6".to_owned(),
            ..TargetCount::default()
        }],
        counters: [("packets_parked".to_owned(), 0)].into(),
        rules: vec![rule.clone()],
        exported: vec![rule],
        ..LoadedRules::default()
    }
}

/// A snapshot with all optional parts.
pub fn snapshot() -> Snapshot {
    let other = SnapshotRow {
        name: "other".to_owned(),
        kind: Kind::Other,
        ..SnapshotRow::default()
    };
    Snapshot {
        time: TIME.to_owned(),
        unix_ns: UNIX_NS,
        version: "0.1.0".to_owned(),
        host: "gw-7".to_owned(),
        up_ns: 5_000_000_000,
        counting_since_unix_ns: UNIX_NS - 5,
        gap_ns: Some(1_340_000_000),
        interval_ns: 1_000_000_000,
        window_ns: 10_000_000_000,
        configuration: 1,
        rows_total: 2,
        rows: vec![row(), other],
        counters: [("frames".to_owned(), 7)].into(),
        gauges: [("slots".to_owned(), 9)].into(),
        shape: Some(Shape {
            running: false,
            via: "qdisc".to_owned(),
            reason: "configured".to_owned(),
            about: "bridge".to_owned(),
            failure: Some("no interface".to_owned()),
            lines: vec![ShapedLink {
                side: "down".to_owned(),
                interface: "lan".to_owned(),
                ceil_bps: Some(95_000_000),
                rate_bps: 0.0,
                stack: Some(StackTraffic {
                    sent_bytes: 3,
                    not_charged_bytes: 1,
                    debt_ns: 10_000_000,
                }),
                queue: queue(),
            }],
            counters: [("qdisc_down_resets".to_owned(), 0)].into(),
            workers: vec![Worker {
                worker: 1,
                direction: Some("down".to_owned()),
                cpu: 3,
                busy_ratio: 0.5,
                cpu_busy_ratio: None,
            }],
        }),
        interfaces: vec!["lan".to_owned()],
        alerts: alerts(),
        waiting_for: vec![WaitingFor {
            key: "uplinks".to_owned(),
            name: "wna".to_owned(),
            exists: false,
            nearest: Some("wan".to_owned()),
        }],
        notes: vec!["a restart is needed".to_owned()],
        rows_selected: 2,
        past_alerts: alerts(),
        affected: vec![Affected {
            class: "anna".to_owned(),
            parent: Some("site".to_owned()),
            leg: "inside".to_owned(),
            since_unix_ns: UNIX_NS,
            p95_rtt_ns: Some(70_000_000),
            excess_rtt_ns: None,
            loss_ratio: Some(0.02),
            ..Affected::default()
        }],
        affected_total: 1,
        total: Some(Total {
            recent: vec![day_point()],
            day: vec![day_point()],
        }),
        rules: Some(Box::new(loaded_rules())),
        ..empty_snapshot()
    }
}

/// A snapshot of a daemon without rows.
pub fn empty_snapshot() -> Snapshot {
    Snapshot {
        schema: SNAPSHOT_SCHEMA,
        time: TIME.to_owned(),
        ..Snapshot::default()
    }
}

/// The details of a class.
pub fn detail() -> Detail {
    let peer = Peer {
        name: "198.51.100.0/24".to_owned(),
        bytes_up: 1,
        bytes_down: 2,
        samples: 3,
        mean_rtt_ns: Some(4),
        max_rtt_ns: None,
        lost_packets: 5,
    };
    Detail {
        row: row(),
        worst_remotes: vec![peer.clone()],
        busiest_remotes: vec![peer.clone()],
        busiest_hosts: vec![peer],
        flows: vec![FlowLine {
            proto: "tcp".to_owned(),
            host: "192.0.2.1".parse().unwrap(),
            host_port: 40_000,
            remote: "2001:db8::1".parse().unwrap(),
            remote_port: 443,
            age_ns: 1,
            idle_ns: 2,
            bytes_up: 3,
            bytes_down: 4,
            inside_min_rtt_ns: Some(5),
            inside_p50_rtt_ns: Some(6),
            outside_min_rtt_ns: None,
            outside_p50_rtt_ns: None,
            retransmitted_packets: 6,
        }],
        day: vec![day_point()],
        recent: vec![day_point()],
        configured: Some(Configured {
            criteria: vec!["prefix 192.0.2.0/24".to_owned()],
            criteria_total: 70,
            attributes: [("circuit".to_owned(), "C-1".to_owned())].into(),
            sla_p95_rtt_ns: Some(80_000_000),
            sla_loss_ratio: None,
        }),
    }
}

fn day_point() -> DayPoint {
    DayPoint {
        unix_ns: UNIX_NS,
        rate_up_bps: 1.0,
        inside_p50_rtt_ns: Some(4_000_000),
        inside_loss_ratio: Some(0.01),
        ..DayPoint::default()
    }
}

/// One alert of each kind.
pub fn alerts() -> Vec<Alert> {
    let alert = |alert| Alert {
        schema: ALERT_SCHEMA,
        unix_ns: UNIX_NS,
        active: true,
        class: "anna".to_owned(),
        alert,
        leg: "inside".to_owned(),
        since_unix_ns: UNIX_NS - 20,
        text: "anna: inside: median 40.000 ms, baseline 20.000 ms".to_owned(),
        ..Alert::default()
    };
    let of = |name: &str| Some(name.to_owned());
    vec![
        Alert {
            statistic: of("p50"),
            rtt_ns: Some(40_000_000),
            limit_rtt_ns: Some(30_000_000),
            baseline_rtt_ns: Some(20_000_000),
            below: 3,
            ..alert(AlertKind::RttShift)
        },
        Alert {
            statistic: of("loss"),
            loss_ratio: Some(0.05),
            limit_loss_ratio: Some(0.02),
            ..alert(AlertKind::Loss)
        },
        Alert {
            active: false,
            ..alert(AlertKind::SlaBreach)
        },
    ]
}

/// A row with and a row without measured values.
pub fn interval_rows() -> Vec<IntervalRow> {
    let silent = IntervalRow {
        unix_ns: UNIX_NS,
        interval_ns: 1_000_000_000,
        name: "idle".to_owned(),
        ..IntervalRow::default()
    };
    let active = IntervalRow {
        parent: Some("site".to_owned()),
        inside_samples: 1,
        inside_min_rtt_ns: Some(4_000_000),
        inside_mean_rtt_ns: Some(4_000_000),
        ..silent.clone()
    };
    vec![active, silent]
}

pub fn series() -> Series {
    let point = SeriesPoint {
        unix_ns: UNIX_NS,
        length_ns: 10_000_000_000,
        measured_ns: 9_000_000_000,
        bytes_up: 1,
        inside_p50_rtt_ns: Some(4_000_000),
        inside_p95_rtt_ns: Some(4_000_000),
        inside_p99_rtt_ns: Some(4_000_000),
        inside_loss: Some(0.5),
        ..SeriesPoint::default()
    };
    Series {
        name: "anna".to_owned(),
        oldest_unix_ns: Some(UNIX_NS),
        points: vec![point.clone()],
        unmeasured: vec![Span {
            since_unix_ns: UNIX_NS,
            until_unix_ns: UNIX_NS + 1,
        }],
        total: Some(point),
        ..Series::default()
    }
}
