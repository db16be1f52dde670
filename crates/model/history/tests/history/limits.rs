//! Limits, and the counters of excess data; peers and subnets.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use fairpath_core::{Cell, DOWN, INSIDE, OTHER, Pair, PairKind};
use fairpath_history::history::{
    AlertRules, History, MAX_ACTIVE_ALERTS, MAX_ALERTS_PER_INTERVAL, MAX_DAY_CLASSES, MAX_PEERS,
    PEERS_PER_CLASS, RESERVED_ALERTS, Reading, RowSpec, Settings,
};
use fairpath_history::snapshot::{AlertKind, Kind};

use crate::world::*;

fn counter(history: &History, name: &str) -> u64 {
    let mut counters = history.counters().chain(history.gauges());
    counters.find(|(other, _)| *other == name).unwrap().1
}

fn pair(slot: u32, kind: PairKind, number: u32, bytes: u64) -> Pair {
    Pair {
        slot,
        kind,
        address: IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + (number << 8))),
        prefix_len: 24,
        label: number,
        bytes_down: bytes,
        samples: 6,
        rtt_sum_ns: 6 * u64::from(number) * MS,
        max_rtt_us: number * 1000,
        ..Pair::default()
    }
}

#[test]
fn excess_alerts_wait_for_the_next_intervals() {
    let rows = MAX_ALERTS_PER_INTERVAL as u32 + 50;
    let specs = (1..=rows).map(|at| class(&format!("c{at}"), at)).collect();
    let mut world = World::new(rows as usize + 1);
    let mut history = world.history(specs);
    let mut reported = Vec::new();
    let mut waiting = Vec::new();
    for _ in 0..30 {
        (1..=rows).for_each(|slot| world.data(slot, DOWN, 1000, 200, 0));
        let alerts = world.second(&mut history);
        waiting.push(counter(&history, "history_alerts_waiting"));
        if !alerts.is_empty() {
            reported.push(alerts.len());
        }
    }
    assert_eq!(reported, [MAX_ALERTS_PER_INTERVAL, 50]);
    let (most, now) = (waiting.iter().max(), waiting.last());
    assert_eq!((most, now), (Some(&50), Some(&0)));
    let mut gauges = history.gauges();
    assert_eq!(
        gauges.next(),
        Some(("history_alerts_active", u64::from(rows)))
    );
}

/// 5,000 subscribers exceed the general service level. Then a site, an interface and a few subscribers
/// have other faults.
#[test]
fn many_breaches_hide_no_other_alert() {
    let (subscribers, wan, last) = (5_000u32, 5_001, 5_010);
    let mut rows = vec![group("site")];
    rows.extend((1..=subscribers).map(|at| below(0, class(&format!("c{at}"), at))));
    rows.push(RowSpec {
        kind: Kind::Interface,
        ..class("wan0", wan)
    });
    rows.extend((wan + 1..=last).map(|at| class(&format!("c{at}"), at)));
    let mut world = World::new(last as usize + 1);
    let mut history = world.history(rows);
    history.set_settings(Settings {
        alerts: AlertRules {
            rtt_p95_ns: Some(30 * MS),
            ..AlertRules::default()
        },
        ..Settings::default()
    });
    let mut slow = |seconds: u32, lost: u32| {
        let mut loss = Vec::new();
        for _ in 0..seconds {
            for slot in 1..=subscribers {
                (0..12).for_each(|_| world.rtt(slot, INSIDE, 90 * MS));
            }
            for slot in subscribers - 3..=last {
                world.data(slot, DOWN, 1000, lost, 0);
            }
            let alerts = world.second(&mut history).into_iter();
            let other = alerts.filter(|alert| alert.alert == AlertKind::Loss);
            loss.extend(other.map(|alert| alert.class));
        }
        loss
    };
    assert!(slow(45, 0).is_empty());
    let loss = slow(25, 200);
    // Four subscribers of the site, which includes them.
    assert_eq!(loss.len(), 2 + (last - wan) as usize, "{loss:?}");
    for name in ["site", "wan0", "c5010"] {
        assert!(loss.iter().any(|other| other == name), "{name}: {loss:?}");
    }
    let breaches = MAX_ACTIVE_ALERTS - RESERVED_ALERTS;
    let active = counter(&history, "history_alerts_active");
    println!("{active} active alerts");
    assert!(active as usize > breaches + loss.len());
    let waiting = counter(&history, "history_alerts_waiting");
    assert_eq!(waiting as usize, subscribers as usize - breaches);
}

/// Alerts begin and end, rows are removed and return, peers appear and are forgotten.
#[test]
fn counters_only_grow() {
    let rows = |n: u32| {
        (1..=n)
            .map(|at| class(&format!("c{at}"), at))
            .collect::<Vec<_>>()
    };
    let mut world = World::new(5);
    let mut history = world.history(rows(4));
    let mut before: Vec<_> = history.counters().collect();
    let mut sizes = std::collections::HashSet::new();
    for second in 0..1500u32 {
        if second < 60 {
            world.data(1, DOWN, 1000, 200, 0);
            world
                .pairs
                .push(pair(1, PairKind::Talker, 1 + second, 5_000_000));
        }
        match second {
            100 => drop(history.configure(rows(2), &world.counts)),
            200 => drop(history.configure(rows(4), &world.counts)),
            _ => {}
        }
        world.second(&mut history);
        let now: Vec<_> = history.counters().collect();
        for ((name, old), (_, new)) in before.iter().zip(&now) {
            assert!(new >= old, "{name} decreases from {old} to {new}");
        }
        before = now;
        sizes.extend(history.gauges());
    }
    for name in ["history_alerts_active", "history_parked", "history_peers"] {
        assert!(
            sizes.iter().filter(|(other, _)| *other == name).count() > 1,
            "{name}"
        );
    }
}

#[test]
fn the_least_recently_active_class_loses_its_day() {
    let rows = MAX_DAY_CLASSES as u32 + 10;
    let specs = (1..=rows).map(|at| class(&format!("c{at}"), at)).collect();
    let mut world = World::new(rows as usize + 1);
    let mut history = world.history(specs);
    let has_day = |history: &History, at: u32| {
        let detail = history.detail(&format!("c{at}"), 1).unwrap();
        !detail.day.is_empty()
    };
    // The fifth first, then all except the last ten. No class is evicted within five minutes.
    world.bytes(5, DOWN, 1, 100);
    world.second(&mut history);
    for slot in (1..=rows - 10).filter(|slot| *slot != 5) {
        world.bytes(slot, DOWN, 1, 100);
    }
    world.second(&mut history);
    world.bytes(rows, DOWN, 1, 100);
    world.second(&mut history);
    assert!(!has_day(&history, rows) && has_day(&history, 1));
    assert_eq!(counter(&history, "history_day_rows_refused"), 1);
    // Five minutes later, the least recently active one is evicted.
    world.now.unix_ns += 300 * SECOND;
    world.now.mono_ns += 300 * SECOND;
    world.bytes(1, DOWN, 1, 100);
    world.second(&mut history);
    world.bytes(rows, DOWN, 1, 100);
    world.second(&mut history);
    assert!(has_day(&history, rows) && has_day(&history, 2) && !has_day(&history, 5));
    assert_eq!(counter(&history, "history_day_rows_evicted"), 1);
}

#[test]
fn peers_include_those_of_descendants() {
    let mut world = World::new(4);
    let rows = vec![
        group("all"),
        below(0, class("a", 1)),
        below(0, class("b", 2)),
    ];
    let mut history = world.history(rows);
    history.set_labels(HashMap::from([(3, "video".to_owned())]));
    for slot in [1, 2] {
        world.pairs.push(pair(slot, PairKind::Remote, 1, 1000));
        world.pairs.push(pair(slot, PairKind::Label, 3, 300));
    }
    world.pairs.push(pair(2, PairKind::Remote, 9, 10));
    world.pairs.push(pair(1, PairKind::Talker, 7, 500));
    world.pairs.push(pair(3, PairKind::Remote, 7, 500));
    world.second(&mut history);
    let names = |class: &str, limit: usize| {
        let detail = history.detail(class, limit).unwrap();
        [
            detail.busiest_remotes,
            detail.worst_remotes,
            detail.busiest_hosts,
        ]
        .map(|list| {
            list.into_iter()
                .map(|peer| peer.name)
                .collect::<Vec<String>>()
        })
    };
    let [busiest, worst, talkers] = names("all", 10);
    assert_eq!(busiest, ["10.0.1.0/24", "video", "10.0.9.0/24"]);
    assert_eq!(worst, ["10.0.9.0/24", "video", "10.0.1.0/24"]);
    assert_eq!(talkers, ["10.0.7.0/24"]);
    assert_eq!(names("a", 1)[0], ["10.0.1.0/24"]);
    assert_eq!(
        history.detail("all", 1).unwrap().busiest_remotes[0].bytes_down,
        2000
    );
    assert!(history.detail("unknown", 1).is_none());
    assert_eq!(counter(&history, "history_pairs_without_row"), 1);
}

#[test]
fn a_large_remote_is_found_among_thousands() {
    let mut world = World::new(2);
    let mut history = world.history(vec![class("a", 1)]);
    for at in 0..8_000 {
        // It appears when the list is full.
        let number = if at > 100 && at % 20 == 0 { 9 } else { 10 + at };
        world.pairs.push(pair(1, PairKind::Remote, number, 100));
    }
    world.second(&mut history);
    let busiest = history.detail("a", 1).unwrap().busiest_remotes;
    assert_eq!(busiest[0].name, "10.0.9.0/24");
    let (exact, error) = (394 * 100, 8_000 * 100 / PEERS_PER_CLASS as u64);
    assert!(
        (exact - error..=exact).contains(&busiest[0].bytes_down),
        "{busiest:?}"
    );
}

#[test]
fn the_number_of_peers_is_limited() {
    let rows = (MAX_PEERS / PEERS_PER_CLASS) as u32 + 1;
    let specs = (1..=rows).map(|at| class(&format!("c{at}"), at)).collect();
    let mut world = World::new(rows as usize + 1);
    let mut history = world.history(specs);
    for slot in 1..=rows {
        for number in 0..PEERS_PER_CLASS as u32 + 3 {
            world.pairs.push(pair(slot, PairKind::Talker, number, 1000));
        }
    }
    world.second(&mut history);
    assert_eq!(counter(&history, "history_peers"), MAX_PEERS as u64);
    let refused = counter(&history, "history_peers_refused");
    assert_eq!(refused, PEERS_PER_CLASS as u64 + 3);
    history.configure(Vec::new(), &[]).unwrap();
    assert_eq!(counter(&history, "history_peers"), 0);
}

#[test]
fn unmatched_subnets_are_sorted_by_bytes() {
    let mut world = World::new(3);
    let mut history = world.history(vec![class("a", 1)]);
    for (number, bytes) in [(1, 100), (2, 900), (3, 300)] {
        world
            .pairs
            .push(pair(OTHER, PairKind::Unmatched, number, bytes));
    }
    world.second(&mut history);
    let names = |history: &History| {
        let busiest = history.unmatched(2).into_iter();
        busiest
            .map(|(prefix, bytes)| format!("{prefix} {bytes}"))
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&history), ["10.0.2.0/24 900", "10.0.3.0/24 300"]);
    let subnet = RowSpec {
        kind: Kind::Subnet,
        ..class("10.0.2.0/24", 2)
    };
    let rows = vec![class("a", 1), subnet];
    history.configure(rows, &world.counts).unwrap();
    assert_eq!(names(&history), ["10.0.3.0/24 300", "10.0.1.0/24 100"]);
    assert!(history.idle_rows(Kind::Subnet, SECOND).is_empty());
    world.second(&mut history);
    assert_eq!(history.idle_rows(Kind::Subnet, SECOND), ["10.0.2.0/24"]);
}

#[test]
fn a_subnet_with_a_row_is_not_unmatched() {
    let mut world = World::new(3);
    let mut history = world.history(vec![class("a", 1)]);
    let late = |world: &mut World| {
        world.pairs = [2, 3]
            .map(|number| pair(OTHER, PairKind::Unmatched, number, 20_000))
            .to_vec();
    };
    let names = |history: &History| {
        let busiest = history.unmatched(9).into_iter();
        busiest
            .map(|(prefix, _)| prefix.to_string())
            .collect::<Vec<_>>()
    };
    late(&mut world);
    world.second(&mut history);
    let subnet = RowSpec {
        kind: Kind::Subnet,
        ..class("10.0.2.0/24", 2)
    };
    let rows = vec![class("a", 1), subnet];
    history.configure(rows, &world.counts).unwrap();
    // Traffic between the last reading and the rules of the new row.
    late(&mut world);
    world.second(&mut history);
    assert_eq!(names(&history), ["10.0.3.0/24"]);
    // Without row, new traffic makes it a candidate again.
    history
        .configure(vec![class("a", 1)], &world.counts)
        .unwrap();
    late(&mut world);
    world.second(&mut history);
    assert_eq!(names(&history), ["10.0.3.0/24", "10.0.2.0/24"]);
}

#[test]
fn data_without_row_is_counted() {
    let mut world = World::new(2);
    let mut history = world.history(vec![class("a", 1)]);
    let cell = |slot: u32, leg: u8, bucket: u16| Cell {
        slot,
        leg,
        bucket,
        count: 5,
    };
    history.take(&Reading {
        unix_ns: THEN,
        mono_ns: 78 * SECOND,
        // Fewer slots than rows, and cells of legs and slots that do not exist.
        counts: &[],
        cells: &[
            cell(0, 0, 3),
            cell(9_999, 0, 3),
            cell(1, 7, 3),
            cell(1, 0, 60_000),
        ],
        pairs: &[],
    });
    assert_eq!(counter(&history, "history_cells_without_row"), 20);
    world.rtt(1, INSIDE, 20 * MS);
    world.second(&mut history);
    assert_eq!(row(&history, "a").inside.total.histogram.count(), 1);
}
