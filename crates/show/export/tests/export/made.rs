//! A test router: two sites with subscribers, an interface, and `other`.
//!
//! Deterministic: values depend on the number of snapshots. Counters grow with every snapshot, as on
//! a router.

use std::sync::atomic::{AtomicU64, Ordering};

use fairpath_history::Histogram;
use fairpath_history::loaded_rules::*;
use fairpath_history::snapshot::*;

/// Subscribers of each site.
const SUBSCRIBERS: u64 = 14;

/// The name of a subscriber that every format must escape.
pub const ODD: &str = "Café \"Zum <b>Löwen</b>\" \\ 1";

/// The typical RTT of subscribers, nanoseconds.
pub const TYPICAL_RTT_NS: u64 = 18_000_000;

/// The text of a rule that every format must escape.
pub const ODD_RULE: &str =
    "-s 198.51.100.0/24 -m comment --comment \"<b>Löwen</b> & \\ 1\" -j DROP";

/// Rules of both families. The third one has the text of the first.
fn loaded_rules(at: u64, unix_ns: u64) -> LoadedRules {
    let rule = |number: u64, (table, chain, text): (&str, &str, &str)| RuleCount {
        family: if number < 4 { "IPv4" } else { "IPv6" }.to_owned(),
        table: table.to_owned(),
        chain: chain.to_owned(),
        rule: text.to_owned(),
        copy: u32::from(number == 2),
        file: if number < 4 { "rules.v4" } else { "rules.v6" }.to_owned(),
        line: 12 + number as u32,
        packets: (5_000 - number * 900) * at,
        bytes: (5_000 - number * 900) * at * 800,
        rate_pps: (5_000 - number * 900) as f64,
        rate_bps: ((5_000 - number * 900) * 6_400) as f64,
    };
    let texts = [
        (
            "filter",
            "INPUT",
            "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
        ),
        ("filter", "FORWARD", ODD_RULE),
        (
            "filter",
            "INPUT",
            "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
        ),
        (
            "filter",
            "blocked-by-fail2ban-sshd",
            "-s 203.0.113.9/32 -j REJECT --reject-with icmp-port-unreachable",
        ),
        ("raw", "PREROUTING", "-s 2001:db8:bad::/48 -j DROP"),
    ];
    let rules: Vec<RuleCount> = (0..).zip(texts).map(|(n, text)| rule(n, text)).collect();
    let mut exported = rules.clone();
    exported
        .iter_mut()
        .for_each(|rule| (rule.rate_pps, rule.rate_bps) = (0.0, 0.0));
    let file = |family: &str, file: &str, rules| RuleFile {
        family: family.to_owned(),
        file: file.to_owned(),
        rules,
    };
    let policy = |chain: &str, policy: &str, packets: u64| PolicyCount {
        family: "IPv4".to_owned(),
        table: "filter".to_owned(),
        chain: chain.to_owned(),
        policy: policy.to_owned(),
        packets: packets * at,
        bytes: packets * at * 90,
    };
    let target = |target: &str, packets: u64| TargetCount {
        family: "IPv4".to_owned(),
        table: "filter".to_owned(),
        target: target.to_owned(),
        packets: packets * at,
        bytes: packets * at * 90,
    };
    LoadedRules {
        unix_ns,
        interval_ns: Some(1_000_000_000),
        loaded_unix_ns: unix_ns - 7_000_000_000,
        generation: 7,
        deciding: true,
        counter_mode: "exact".to_owned(),
        confirm_ns: Some(42_500_000_000),
        went_back: false,
        rejected_are_answered: Some(true),
        rules_total: 1_305,
        files: vec![file("IPv4", "rules.v4", 1_300), file("IPv6", "rules.v6", 5)],
        policies: vec![policy("INPUT", "DROP", 3), policy("FORWARD", "ACCEPT", 900)],
        targets: vec![target("ACCEPT", 5_000), target("DROP", 4_100)],
        counters: [("packets_dropped_unknown", 0), ("packets_parked", 3)]
            .map(|(name, count)| (name.to_owned(), count))
            .into(),
        rules,
        exported,
    }
}

pub struct Router {
    pub start_unix_ns: u64,
    count: AtomicU64,
}

impl Router {
    pub fn new(start_unix_ns: u64) -> Router {
        Router {
            start_unix_ns,
            count: AtomicU64::new(0),
        }
    }

    /// The next snapshot, with all rows.
    pub fn snapshot(&self) -> Snapshot {
        let at = self.count.fetch_add(1, Ordering::SeqCst) + 1;
        let unix_ns = self.start_unix_ns + at * 1_000_000_000;
        let rows = rows(at);
        Snapshot {
            schema: SNAPSHOT_SCHEMA,
            time: jiff::Timestamp::from_nanosecond(i128::from(unix_ns))
                .unwrap()
                .to_string(),
            unix_ns,
            version: "0.1.0".to_owned(),
            host: "gw-berlin-1".to_owned(),
            up_ns: 93_784_000_000_000 + at * 1_000_000_000,
            counting_since_unix_ns: self.start_unix_ns - 5 * 86_400_000_000_000,
            gap_ns: Some(184_000_000),
            interval_ns: 1_000_000_000,
            window_ns: 10_000_000_000,
            configuration: 3,
            rows_total: rows.len() as u64,
            alerts: rows.iter().flat_map(reported).collect(),
            rows,
            counters: [
                ("frames", 812_345_678 + at * 90_000),
                ("ring_full", 3),
                ("Odd name", 1),
                ("odd_name", 2),
            ]
            .map(|(name, value)| (name.to_owned(), value))
            .into(),
            gauges: [("kernel_memory_bytes", 41_943_040), ("slots_used", 7)]
                .map(|(name, value)| (name.to_owned(), value))
                .into(),
            rules: Some(Box::new(loaded_rules(at, unix_ns))),
            ..Snapshot::default()
        }
    }

    /// The daemon's answer to a query.
    pub fn answer(&self, query: &Query) -> Snapshot {
        let mut snapshot = self.snapshot();
        if let Some(filter) = query.filter.as_ref().or(query.search.as_ref()) {
            let filter = filter.to_lowercase();
            snapshot
                .rows
                .retain(|row| row.name.to_lowercase().contains(&filter));
        }
        let key = |row: &SnapshotRow| match query.sort {
            Sort::Rate => row.up.rate_bps + row.down.rate_bps,
            Sort::InsideP95 => row.inside.p95_rtt_ns.map_or(-1.0, |ns| ns as f64),
            Sort::Flows => row.flows.open() as f64,
            _ => 0.0,
        };
        snapshot.rows.sort_by(|a, b| key(b).total_cmp(&key(a)));
        if query.sort == Sort::Name {
            snapshot.rows.sort_by_key(|row| row.name.to_lowercase());
        }
        let folded: Vec<String> = query.fold_except.clone();
        snapshot.rows.retain(|row| {
            !row.parent
                .as_ref()
                .is_some_and(|name| folded.contains(name))
        });
        snapshot.rows_selected = snapshot.rows.len() as u64;
        let skipped = query.offset.min(snapshot.rows.len());
        snapshot.rows.drain(..skipped);
        if query.limit > 0 {
            snapshot.rows.truncate(query.limit);
        }
        let rules = snapshot.rules.take();
        let wants_rules = query.rules > 0 || query.exported_rules;
        let part =
            |rules: Box<LoadedRules>| Box::new(rules.part(query.rules, query.exported_rules));
        snapshot.rules = rules.filter(|_| wants_rules).map(part);
        if query.affected > 0 {
            snapshot.affected = affected(snapshot.unix_ns);
            snapshot.affected_total = snapshot.affected.len() as u64;
        }
        if query.past_alerts {
            snapshot.past_alerts = vec![past(snapshot.unix_ns)];
        }
        snapshot.total = query.total_after_unix_ns.map(|after| Total {
            recent: (0..240)
                .map(|at| total_second(snapshot.unix_ns, at))
                .filter(|point| point.unix_ns > after)
                .collect(),
            day: match after {
                0 => (0..288)
                    .map(|step| day_point(self.start_unix_ns, step))
                    .collect(),
                _ => Vec::new(),
            },
        });
        if !query.alerts {
            snapshot.alerts.clear();
        }
        if !query.histograms {
            for row in &mut snapshot.rows {
                row.inside.total.histogram.clear();
                row.outside.total.histogram.clear();
            }
        }
        snapshot
    }

    /// The details of one class.
    pub fn detail(&self, class: &str, limit: usize) -> Option<Detail> {
        let row = self
            .snapshot()
            .rows
            .into_iter()
            .find(|row| row.name == class)?;
        let mut worst = peers(
            &[
                "203.0.113.0/24",
                "Video CDN",
                "2001:db8:77::/48",
                "198.51.100.0/24",
            ],
            182,
        );
        let mut busiest = peers(
            &["Video CDN", "198.51.100.0/24", "Games", "203.0.113.0/24"],
            31,
        );
        let mut hosts = peers(&["192.0.2.17", "2001:db8:1:11::20", "192.0.2.18"], 9);
        for list in [&mut worst, &mut busiest, &mut hosts] {
            list.truncate(limit);
        }
        let flows = (0..limit.min(6) as u16).map(flow).collect();
        let day = (0..288)
            .map(|step| day_point(self.start_unix_ns, step))
            .collect();
        Some(Detail {
            row,
            worst_remotes: worst,
            busiest_remotes: busiest,
            busiest_hosts: hosts,
            flows,
            day,
            recent: (0..60).map(|at| second(self.start_unix_ns, at)).collect(),
            configured: Some(Configured {
                criteria: vec![
                    "prefix 192.0.2.16/29".to_owned(),
                    "MAC 02:00:5e:10:00:07".to_owned(),
                ],
                criteria_total: 2,
                attributes: [("circuit", "C-4711"), ("comment", "Second floor, left")]
                    .map(|(name, value)| (name.to_owned(), value.to_owned()))
                    .into(),
                sla_p95_rtt_ns: Some(80_000_000),
                sla_loss_ratio: None,
            }),
        })
    }
}

fn rows(at: u64) -> Vec<SnapshotRow> {
    let mut rows = Vec::new();
    for (site, name) in ["Site North", "Site South"].into_iter().enumerate() {
        let first = rows.len();
        rows.push(SnapshotRow::default());
        for number in 0..SUBSCRIBERS {
            rows.push(subscriber(at, site as u64, number, name));
        }
        let sum = site_row(name, &rows[first + 1..]);
        rows[first] = sum;
    }
    rows.push(quiet("Site West (in construction)", Kind::Class, 0));
    rows.push(quiet("eth1", Kind::Interface, at * 40_000));
    rows.push(quiet("other", Kind::Other, at * 9_000));
    rows
}

fn subscriber(at: u64, site: u64, number: u64, parent: &str) -> SnapshotRow {
    let seed = site * 31 + number * 7;
    let name = match (site, number) {
        (0, 3) => ODD.to_owned(),
        _ => format!("sub-{:05}", 10_000 + site * 1000 + number * 37),
    };
    let swing = 1.0 + 0.3 * ((at + 3 * seed) as f64 / 1.5).sin();
    let busy = if number % 5 == 4 {
        0.0
    } else {
        swing * (1 + seed % 9) as f64
    };
    let rtt = TYPICAL_RTT_NS + seed % 11 * 3_100_000;
    let bytes = at * (1 + seed) * 120_000;
    SnapshotRow {
        name,
        parent: Some(parent.to_owned()),
        depth: 1,
        ceil_up_bps: Some(40_000_000),
        ceil_down_bps: Some(250_000_000),
        up: volume(bytes / 12, busy * 0.9e6),
        down: volume(bytes, busy * 11.2e6),
        inside: leg(at, rtt, busy > 0.0, number == 2),
        outside: leg(at, rtt / 2, busy > 0.0, false),
        load: load(rtt, number),
        flows: FlowCounts {
            opened: 40 + at * (2 + seed % 5),
            closed: at * (2 + seed % 5),
            handshakes_failed: at / 3,
            one_sided: 1,
        },
        history: (0..30).map(|i| point(busy, rtt, i + at)).collect(),
        alerts: if number == 2 {
            vec![AlertKind::Loss]
        } else {
            Vec::new()
        },
        ..SnapshotRow::default()
    }
}

fn load(rtt: u64, number: u64) -> Load {
    if number % 5 == 4 {
        return Load::default();
    }
    Load {
        idle_p50_rtt_ns: Some(rtt),
        base_rtt_ns: Some(rtt - rtt / 8),
        loaded_p50_rtt_ns: Some(rtt + number * 4_000_000),
        loaded_p95_rtt_ns: Some(rtt * 2 + number * 9_000_000),
        rtt_growth_ns: Some(number * 4_000_000),
        score: Some(100 - (number * 6) as u8),
    }
}

fn point(busy: f64, rtt: u64, i: u64) -> Point {
    Point {
        rate_bps: busy * 1e7 * (1.0 + 0.5 * (i as f64 / 3.0).sin()),
        p95_rtt_ns: (busy > 0.0).then_some(rtt * 2),
    }
}

fn volume(bytes: u64, rate_bps: f64) -> Volume {
    Volume {
        bytes,
        packets: bytes / 900,
        rate_bps,
        rate_pps: rate_bps / 7200.0,
        unmeasured_ratio: (rate_bps > 0.0).then_some(0.12),
    }
}

fn leg(at: u64, rtt: u64, measured: bool, lossy: bool) -> Leg {
    let mut histogram = Histogram::default();
    for i in 0..at * 20 {
        let spread = (i * 2_654_435_761 % 1000) as f64 / 1000.0;
        histogram.record((rtt as f64 * (0.7 + 0.8 * spread + 2.0 * spread.powi(12))) as u64);
    }
    let some = |ns: u64| measured.then_some(ns);
    Leg {
        samples: if measured { 210 } else { 0 },
        min_rtt_ns: some(rtt * 7 / 10),
        p50_rtt_ns: some(rtt * 11 / 10),
        p95_rtt_ns: some(rtt * 2),
        p99_rtt_ns: some(rtt * 3),
        loss_to_ratio: measured.then_some(if lossy { 0.031 } else { 0.0 }),
        loss_from_ratio: measured.then_some(0.0004),
        lost_packets: if lossy { at * 30 } else { at / 4 },
        data_packets: at * 900,
        reordered_packets: at / 5,
        total: Totals {
            samples: histogram.count(),
            sum_ns: histogram.mean().unwrap_or(0.0) as u64 * histogram.count(),
            unbinned: 0,
            histogram,
        },
    }
}

fn site_row(name: &str, children: &[SnapshotRow]) -> SnapshotRow {
    let mut row = SnapshotRow {
        name: name.to_owned(),
        children: children.len() as u32,
        inside: children[1].inside.clone(),
        outside: children[1].outside.clone(),
        load: Load {
            rtt_growth_ns: Some(90_000_000),
            ..children[1].load
        },
        history: children[1].history.clone(),
        ..SnapshotRow::default()
    };
    for child in children {
        row.up.bytes += child.up.bytes;
        row.up.packets += child.up.packets;
        row.up.rate_bps += child.up.rate_bps;
        row.down.bytes += child.down.bytes;
        row.down.packets += child.down.packets;
        row.down.rate_bps += child.down.rate_bps;
        row.flows.opened += child.flows.opened;
        row.flows.closed += child.flows.closed;
    }
    row
}

fn quiet(name: &str, kind: Kind, bytes: u64) -> SnapshotRow {
    SnapshotRow {
        name: name.to_owned(),
        kind,
        down: Volume {
            bytes,
            packets: bytes / 500,
            ..Volume::default()
        },
        ..SnapshotRow::default()
    }
}

fn peers(names: &[&str], rtt_ms: u64) -> Vec<Peer> {
    let peer = |(i, name): (usize, &&str)| Peer {
        name: (*name).to_owned(),
        bytes_up: 4_100_000 / (i as u64 + 1),
        bytes_down: 918_000_000 / (i as u64 + 1),
        samples: 412,
        mean_rtt_ns: (i != 2).then_some(rtt_ms * 1_000_000 / (i as u64 + 1)),
        max_rtt_ns: (i != 2).then_some(rtt_ms * 4_100_000 / (i as u64 + 1)),
        lost_packets: 7 * i as u64,
    };
    names.iter().enumerate().map(peer).collect()
}

fn flow(i: u16) -> FlowLine {
    FlowLine {
        proto: if i == 4 { "icmp" } else { "tcp" }.to_owned(),
        host: "192.0.2.17".parse().unwrap(),
        host_port: if i == 4 { 0 } else { 50_100 + i },
        remote: ["198.51.100.7", "2001:db8:77::1:beef"][usize::from(i % 2)]
            .parse()
            .unwrap(),
        remote_port: if i == 4 { 0 } else { 443 },
        age_ns: 61_000_000_000 * u64::from(i + 1),
        idle_ns: 20_000_000,
        bytes_up: 90_000 / u64::from(i + 1),
        bytes_down: 48_000_000 / u64::from(i + 1),
        inside_min_rtt_ns: Some(3_200_000),
        inside_p50_rtt_ns: Some(4_100_000),
        outside_min_rtt_ns: (i != 3).then_some(11_800_000),
        outside_p50_rtt_ns: (i != 3).then_some(13_400_000),
        retransmitted_packets: u64::from(i),
    }
}

/// A day in steps of five minutes, with little traffic at night and an hour without measurement.
fn day_point(start_unix_ns: u64, step: u64) -> DayPoint {
    let unix_ns = start_unix_ns - (288 - step) * 300_000_000_000;
    if (100..112).contains(&step) {
        return DayPoint {
            unix_ns,
            ..DayPoint::default()
        };
    }
    let evening = (step as f64 / 288.0 * std::f64::consts::TAU).sin();
    let wobble = (step * 2_654_435_761 % 100) as f64 / 100.0;
    let load = 0.55 + 0.4 * evening + 0.1 * wobble;
    DayPoint {
        unix_ns,
        rate_up_bps: 6e6 * load,
        rate_down_bps: 84e6 * load,
        inside_p50_rtt_ns: Some((14e6 + 4e6 * load) as u64),
        inside_p95_rtt_ns: Some((21e6 + 38e6 * load * load) as u64),
        outside_p50_rtt_ns: Some((9e6 + 2e6 * wobble) as u64),
        outside_p95_rtt_ns: Some((17e6 + 8e6 * wobble) as u64),
        inside_loss_ratio: Some(0.004 * load),
    }
}

/// One of the last seconds of all rows.
fn total_second(unix_ns: u64, at: u64) -> DayPoint {
    DayPoint {
        unix_ns: unix_ns - (240 - at) * 1_000_000_000,
        ..day_point(unix_ns, 120 + at / 3)
    }
}

fn affected(unix_ns: u64) -> Vec<Affected> {
    let of = |class: &str, leg: &str, excess_ms: u64, loss: f64, since_s: u64| Affected {
        class: class.to_owned(),
        parent: Some("Site North".to_owned()),
        leg: leg.to_owned(),
        since_unix_ns: unix_ns - since_s * 1_000_000_000,
        p95_rtt_ns: Some((excess_ms + 21) * 1_000_000),
        excess_rtt_ns: Some(excess_ms * 1_000_000),
        loss_ratio: Some(loss),
        ..Affected::default()
    };
    vec![
        of("sub-10111", "inside", 182, 0.0004, 754),
        of("sub-10074", "inside", 12, 0.031, 95),
        of(ODD, "outside", 47, 0.0, 12),
    ]
}

fn past(unix_ns: u64) -> Alert {
    Alert {
        class: "Site South".to_owned(),
        alert: AlertKind::RttShift,
        leg: "inside".to_owned(),
        unix_ns: unix_ns - 3_000_000_000_000,
        since_unix_ns: unix_ns - 3_400_000_000_000,
        text: "Site South: inside: over: median 21.0 ms, baseline 20.0 ms".to_owned(),
        ..Alert::default()
    }
}

/// One second of the last minute.
fn second(start_unix_ns: u64, at: u64) -> DayPoint {
    DayPoint {
        unix_ns: start_unix_ns - (60 - at) * 1_000_000_000,
        ..day_point(start_unix_ns, 150 + at)
    }
}

/// The alerts of a row as the daemon reported them.
fn reported(row: &SnapshotRow) -> impl Iterator<Item = Alert> {
    let alert = |alert: &AlertKind| Alert {
        class: row.name.clone(),
        kind: row.kind,
        alert: *alert,
        active: true,
        leg: "inside".to_owned(),
        unix_ns: 1_762_171_080_000_000_000,
        since_unix_ns: 1_762_171_060_000_000_000,
        text: format!("{}: inside: loss 3.1 %, limit 2.0 %", row.name),
        ..Alert::default()
    };
    row.alerts.iter().map(alert)
}
