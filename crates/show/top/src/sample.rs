//! Snapshots for tests: a provider with two masts, an office and `other`.

use fairpath_history::Histogram;
use fairpath_history::loaded_rules::{LoadedRules, RuleCount};
use fairpath_history::snapshot::{
    AlertKind, DayPoint, Detail, FlowLine, Kind, Leg, Load, Peer, Point, SNAPSHOT_SCHEMA, Snapshot,
    SnapshotRow, Volume,
};

const MS: u64 = 1_000_000;

/// Five rules of 1,305, by packet rate. The second one has a comment of an attacker.
pub fn rules() -> LoadedRules {
    let rule =
        |(family, table, chain, line, rate_pps, packets): (&str, &str, &str, u32, f64, u64),
         text: &str| RuleCount {
            family: family.to_owned(),
            table: table.to_owned(),
            chain: chain.to_owned(),
            rule: text.to_owned(),
            file: format!("/etc/iptables/rules.v{}", &family[3..]),
            line,
            packets,
            bytes: packets * 1_000,
            rate_pps,
            rate_bps: if line == 14 { 9e6 } else { rate_pps * 1_000.0 },
            ..RuleCount::default()
        };
    LoadedRules {
        unix_ns: town().unix_ns,
        interval_ns: Some(1_000_000_000),
        deciding: true,
        counter_mode: "exact".to_owned(),
        rules_total: 1_305,
        rules: vec![
            rule(
                ("IPv4", "filter", "INPUT", 13, 4_100.4, 812_345_678),
                "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
            ),
            rule(
                ("IPv4", "filter", "FORWARD", 14, 900.0, 4_100),
                "-s 198.51.100.0/24 -m comment --comment \"a\u{1b}[2J Löwen\" -j DROP",
            ),
            rule(
                ("IPv6", "raw", "PREROUTING", 3, 12.0, 70),
                "-s 2001:db8:bad::/48 -j DROP",
            ),
            rule(
                ("IPv4", "filter", "f2b-sshd", 0, 0.4, 9),
                "-s 203.0.113.9/32 -j REJECT --reject-with icmp-port-unreachable",
            ),
            rule(("IPv4", "filter", "INPUT", 40, 0.0, 5_000), "-j LOG"),
        ],
        ..LoadedRules::default()
    }
}

/// A class with nothing measured.
pub fn silent(name: &str, parent: Option<&str>, depth: u32) -> SnapshotRow {
    SnapshotRow {
        name: name.to_owned(),
        parent: parent.map(str::to_owned),
        depth,
        ..SnapshotRow::default()
    }
}

/// A class whose values depend on `seed`: 0 has none above a threshold, 9 has several.
pub fn busy(name: &str, parent: Option<&str>, depth: u32, seed: u64) -> SnapshotRow {
    let rate = |bps| Volume {
        rate_bps: bps,
        rate_pps: bps / 8_000.0,
        bytes: (bps * 1_000.0) as u64,
        packets: (bps / 8.0) as u64,
        unmeasured_ratio: Some(0.05 * seed as f64),
    };
    let leg = |p50_us: u64, loss: f64| Leg {
        samples: 40 + 7 * seed,
        min_rtt_ns: Some(p50_us * 800),
        p50_rtt_ns: Some(p50_us * 1_000),
        p95_rtt_ns: Some(p50_us * (1_500 + 400 * seed)),
        p99_rtt_ns: Some(p50_us * (2_000 + 700 * seed)),
        loss_to_ratio: Some(loss),
        loss_from_ratio: Some(loss / 4.0),
        reordered_packets: seed,
        ..Leg::default()
    };
    let point = |at: u64| Point {
        rate_bps: ((at * (seed + 3)) % 17) as f64 * 1e6,
        p95_rtt_ns: (at % 5 != seed % 5).then_some((at % 7 + 1) * 9 * MS),
    };
    let mut row = silent(name, parent, depth);
    row.up = rate(1.2e6 * (seed + 1) as f64);
    row.down = rate(17.3e6 * (seed + 1) as f64);
    row.inside = leg(4_200 + 6_000 * seed, 0.004 * seed as f64);
    row.outside = leg(17_800, 0.0005);
    row.load = Load {
        idle_p50_rtt_ns: Some(4 * MS),
        base_rtt_ns: Some(3 * MS),
        loaded_p50_rtt_ns: Some((5 + 15 * seed) * MS),
        loaded_p95_rtt_ns: Some((9 + 30 * seed) * MS),
        rtt_growth_ns: Some((1 + 15 * seed) * MS),
        score: Some((97 - 9 * seed) as u8),
    };
    row.flows.opened = 1_000 + 31 * seed;
    row.flows.closed = 970;
    row.ceil_down_bps = Some(200_000_000);
    row.history = (0..60).map(point).collect();
    row
}

/// A snapshot of these rows.
pub fn snapshot(rows: Vec<SnapshotRow>) -> Snapshot {
    Snapshot {
        schema: SNAPSHOT_SCHEMA,
        time: "2026-03-01T08:28:17.250000000Z".to_owned(),
        unix_ns: 1_772_353_697_250_000_000,
        host: "gw-7".to_owned(),
        interval_ns: 1_000 * MS,
        window_ns: 10_000 * MS,
        rows_total: rows.len() as u64,
        rows,
        ..Snapshot::default()
    }
}

/// The provider.
pub fn town() -> Snapshot {
    let mut north = busy("North mast", None, 0, 3);
    north.children = 3;
    let mut shift = busy("carla", Some("North mast"), 1, 9);
    shift.alerts = vec![AlertKind::RttShift, AlertKind::Loss];
    let mut west = busy("West mast", None, 0, 1);
    west.children = 1;
    let mut other = busy("other", None, 0, 0);
    other.kind = Kind::Other;
    other.load = Load::default();
    let mut snapshot = snapshot(vec![
        north,
        busy("ann", Some("North mast"), 1, 0),
        busy("bob", Some("North mast"), 1, 2),
        shift,
        west,
        silent("café-日本語", Some("West mast"), 1),
        busy(
            "Office of the very long name, second floor, east wing",
            None,
            0,
            4,
        ),
        other,
    ]);
    snapshot.gap_ns = Some(1_340 * MS);
    snapshot.counters.insert("events_lost".to_owned(), 12);
    snapshot
}

/// The details of `carla`.
pub fn carla() -> Detail {
    let mut row = town().rows.remove(3);
    for (leg, at) in [(&mut row.inside, 30), (&mut row.outside, 9)] {
        let mut histogram = Histogram::default();
        for i in 1..200u64 {
            histogram.record(at * MS + i * i * i * 40);
        }
        leg.total.histogram = histogram;
    }
    let peer = |name: &str, n: u64| Peer {
        name: name.to_owned(),
        bytes_up: n * 70_000,
        bytes_down: n * 3_100_000,
        samples: 5 * n,
        mean_rtt_ns: (n > 1).then_some(n * 13 * MS),
        max_rtt_ns: (n > 1).then_some(n * 31 * MS),
        lost_packets: n,
    };
    let flow = |host: &str, remote: &str, n: u64| FlowLine {
        proto: if n == 1 { "icmp" } else { "tcp" }.to_owned(),
        host: host.parse().unwrap(),
        host_port: 40_000 + n as u16,
        remote: remote.parse().unwrap(),
        remote_port: 443,
        age_ns: n * 100_000 * MS,
        idle_ns: 40 * MS,
        bytes_up: n * 12_000,
        bytes_down: n * 940_000,
        inside_min_rtt_ns: Some(n * 3 * MS),
        inside_p50_rtt_ns: Some(n * 4 * MS),
        outside_min_rtt_ns: (n > 1).then_some(9 * MS),
        outside_p50_rtt_ns: (n > 1).then_some(11 * MS),
        retransmitted_packets: n,
    };
    let step = |at: u64| DayPoint {
        unix_ns: at * 300_000 * MS,
        rate_down_bps: (at % 40) as f64 * 1e6,
        inside_p95_rtt_ns: (!at.is_multiple_of(9)).then_some((at % 31) * 5 * MS),
        ..DayPoint::default()
    };
    Detail {
        row,
        worst_remotes: vec![peer("198.51.100.0/24", 9), peer("Video, far away", 4)],
        busiest_remotes: vec![peer("2001:db8:1234::/48", 30), peer("192.0.2.0/24", 1)],
        busiest_hosts: vec![peer("10.0.7.3", 12)],
        flows: vec![
            flow("10.0.7.3", "198.51.100.17", 8),
            flow("2001:db8:7::3", "2001:db8:1234:5678:9abc:def0:1:2", 4),
            flow("10.0.7.3", "192.0.2.1", 1),
        ],
        day: (0..288).map(step).collect(),
        recent: Vec::new(),
        configured: None,
    }
}
