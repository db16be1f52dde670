//! Affected classes, ended alerts, the traffic of all rows, and the last intervals of a class.

use fairpath_core::{DOWN, INSIDE, OUTSIDE, UP};
use fairpath_history::history::{History, MAX_PAST_ALERTS, Meta, RowSpec, TOTAL_POINTS};
use fairpath_history::snapshot::{Affected, DayPoint, Kind, Query, Snapshot, Total};

use crate::world::*;

fn overview(history: &History) -> Snapshot {
    let query = Query {
        affected: 10,
        past_alerts: true,
        total_after_unix_ns: Some(0),
        ..Query::default()
    };
    history.snapshot(&query, Meta::default())
}

fn total(history: &History) -> Total {
    overview(history).total.unwrap()
}

/// A second of a class with this RTT on a leg, and lost packets of 300.
fn second(world: &mut World, slot: u32, leg: usize, rtt_ms: u64, lost: u32) {
    world.bytes(slot, DOWN, 300, 300_000);
    for _ in 0..20 {
        world.rtt(slot, leg, rtt_ms * MS);
    }
    world.data(slot, DOWN, 300, lost, 0);
}

fn affected_of(history: &History) -> Vec<(String, String)> {
    let listed = overview(history).affected.into_iter();
    listed.map(|found| (found.class, found.leg)).collect()
}

fn pair(class: &str, leg: &str) -> (String, String) {
    (class.to_owned(), leg.to_owned())
}

#[test]
fn affected_classes_have_side_and_begin() {
    let mut world = World::new(5);
    let rows = vec![
        group("site"),
        below(0, class("slow", 1)),
        below(0, class("lossy", 2)),
        class("calm", 3),
    ];
    let mut history = world.history(rows);
    for at in 0..120 {
        let (slow, lost) = if at < 60 { (20, 0) } else { (220, 15) };
        second(&mut world, 1, INSIDE, slow, 0);
        second(&mut world, 2, INSIDE, 20, lost);
        second(&mut world, 3, INSIDE, 200, 0);
        world.second(&mut history);
        if at < 60 {
            assert_eq!(affected_of(&history), [], "{at}");
        }
    }
    let shown = overview(&history);
    assert_eq!(shown.affected_total, 2, "{:?}", shown.affected);
    let [slow, lossy]: [Affected; 2] = shown.affected.try_into().unwrap();
    assert_eq!((slow.class.as_str(), slow.leg.as_str()), ("slow", "inside"));
    assert_eq!(slow.parent.as_deref(), Some("site"));
    let ms = |ns: Option<u64>| ns.unwrap() as f64 / 1e6;
    assert!(
        (ms(slow.excess_rtt_ns) / 200.0 - 1.0).abs() < 0.05,
        "{slow:?}"
    );
    assert!((ms(slow.p95_rtt_ns) / 220.0 - 1.0).abs() < 0.05, "{slow:?}");
    let begin = |found: &Affected| (found.since_unix_ns - THEN) / SECOND;
    assert!((60..=64).contains(&begin(&slow)), "{slow:?}");
    assert!((60..=68).contains(&begin(&lossy)), "{lossy:?}");
    assert_eq!(lossy.excess_rtt_ns.map(|ns| ns / MS), Some(0));
    assert!((lossy.loss_ratio.unwrap() - 0.05).abs() < 0.01, "{lossy:?}");
    // Recovered, or silent: no class is affected.
    for _ in 0..15 {
        second(&mut world, 1, INSIDE, 20, 0);
        world.second(&mut history);
    }
    assert_eq!(affected_of(&history), []);
    assert_eq!(overview(&history).affected_total, 0);
}

#[test]
fn a_silent_class_is_affected_again() {
    let mut world = World::new(2);
    let mut history = world.history(vec![class("a", 1)]);
    for at in 0..400 {
        let silent = (90..300).contains(&at);
        // Each interval has enough samples for a comparison.
        for _ in 0..if silent { 0 } else { 5 } {
            second(&mut world, 1, INSIDE, if at < 60 { 20 } else { 220 }, 0);
        }
        world.second(&mut history);
        if (105..300).contains(&at) {
            assert_eq!(affected_of(&history), [], "{at}");
        }
    }
    let [found]: [Affected; 1] = overview(&history).affected.try_into().unwrap();
    let begin = (found.since_unix_ns - THEN) / SECOND;
    assert!(
        (300..=304).contains(&begin),
        "not known of the silence: {begin}"
    );
}

#[test]
fn outside_delay_of_few_flows_is_ignored() {
    for (flows, affected) in [(3, vec![]), (40, vec![pair("a", "outside")])] {
        let mut world = World::new(2);
        let mut history = world.history(vec![class("a", 1)]);
        world.counts[1].flows_opened = flows;
        for at in 0..60 {
            let rtt = if at < 40 { 20 } else { 220 };
            second(&mut world, 1, OUTSIDE, rtt, 0);
            world.second(&mut history);
        }
        assert_eq!(affected_of(&history), affected, "{flows} flows");
    }
}

#[test]
fn the_worst_of_many_are_listed() {
    let mut world = World::new(401);
    let rows = (1..=400).map(|at| class(&format!("c{at}"), at)).collect();
    let mut history = world.history(rows);
    for at in 0..50 {
        for slot in 1..=400u32 {
            let rtt = if at < 30 {
                20
            } else {
                20 + 2 * u64::from(slot)
            };
            second(&mut world, slot, INSIDE, rtt, 0);
        }
        world.second(&mut history);
    }
    let shown = overview(&history);
    let names: Vec<&str> = shown
        .affected
        .iter()
        .map(|found| found.class.as_str())
        .collect();
    // Some of the worst are in one bucket, and keep their order.
    assert!(
        names.len() == 10 && names.iter().all(|name| *name >= "c380"),
        "{names:?}"
    );
    assert!(
        shown
            .affected
            .is_sorted_by(|a, b| a.excess_rtt_ns >= b.excess_rtt_ns)
    );
    assert!(
        (375..=388).contains(&shown.affected_total),
        "{}",
        shown.affected_total
    );
}

#[test]
fn ended_alerts_are_listed_newest_first() {
    let mut world = World::new(2);
    let mut history = world.history(vec![class("a", 1)]);
    let mut ends = Vec::new();
    for round in 0..3 {
        for at in 0..200 {
            second(&mut world, 1, INSIDE, 20, if at < 60 { 60 } else { 0 });
            let alerts = world.second(&mut history);
            ends.extend(alerts.into_iter().filter(|alert| !alert.active));
        }
        assert_eq!(ends.len(), round + 1, "{ends:?}");
    }
    ends.reverse();
    assert_eq!(overview(&history).past_alerts, ends);
    // Removed rows end alerts, too, and the list is bounded.
    for round in 0..MAX_PAST_ALERTS as u64 {
        let name = format!("class {round}");
        let counts = world.counts.clone();
        let removed = history.configure(vec![class(&name, 1)], &counts).unwrap();
        assert_eq!(removed.len(), usize::from(round > 0));
        for _ in 0..40 {
            second(&mut world, 1, INSIDE, 20, 60);
            world.second(&mut history);
        }
    }
    let past = overview(&history).past_alerts;
    assert_eq!(past.len(), MAX_PAST_ALERTS);
    assert!(past.is_sorted_by(|a, b| a.unix_ns >= b.unix_ns));
    assert_eq!(past[0].class, format!("class {}", MAX_PAST_ALERTS - 2));
}

#[test]
fn the_total_counts_each_host_once() {
    let of_kind = |name: &str, slot, kind| RowSpec {
        kind,
        ..class(name, slot)
    };
    let mut world = World::new(6);
    let rows = vec![
        class("site", 1),
        below(0, class("a", 2)),
        of_kind("192.0.2.0/24", 3, Kind::Subnet),
        of_kind("lan0", 4, Kind::Interface),
        of_kind("other", 5, Kind::Other),
    ];
    let mut history = world.history(rows);
    for _ in 0..TOTAL_POINTS + 40 {
        for slot in 1..=5 {
            world.bytes(slot, DOWN, 1, 1_000 << slot);
            world.bytes(slot, UP, 1, 100);
        }
        world.rtt(1, INSIDE, 10 * MS);
        world.rtt(2, INSIDE, 30 * MS);
        world.rtt(2, INSIDE, 30 * MS);
        world.rtt(4, INSIDE, 500 * MS);
        world.data(2, DOWN, 100, 1, 0);
        world.second(&mut history);
    }
    let shown = total(&history);
    assert_eq!(shown.recent.len(), TOTAL_POINTS);
    let last = shown.recent.last().unwrap();
    assert_eq!(last.rate_down_bps, 8_000.0 * f64::from(2 + 4 + 8 + 32));
    assert_eq!(last.rate_up_bps, 3_200.0);
    assert_eq!(last.inside_p50_rtt_ns.unwrap() / MS, 30);
    assert_eq!(last.outside_p50_rtt_ns, None);
    assert!((last.inside_loss_ratio.unwrap() - 0.01).abs() < 1e-4);
    assert!(
        shown
            .recent
            .is_sorted_by(|a, b| a.unix_ns + SECOND == b.unix_ns)
    );
    assert_eq!(shown.day.len(), 2);
    let after = shown.recent[TOTAL_POINTS - 3].unix_ns;
    let query = Query {
        total_after_unix_ns: Some(after),
        ..Query::default()
    };
    let newer = history.snapshot(&query, Meta::default()).total.unwrap();
    assert_eq!(newer.recent, shown.recent[TOTAL_POINTS - 2..]);
    assert_eq!(newer.day, []);
    let plain = history.snapshot(&Query::default(), Meta::default());
    assert_eq!((plain.total, plain.affected_total), (None, 0));
}

#[test]
fn details_have_every_second_from_the_first_on() {
    let mut world = World::new(3);
    let mut history = world.history(vec![class("a", 1), class("idle", 2)]);
    let recent = |history: &History| history.detail("a", 1).unwrap().recent;
    for at in 0..100usize {
        if at % 3 != 1 {
            second(&mut world, 1, INSIDE, 20, 3);
            world.bytes(1, UP, 10, 1_000);
            world.rtt(1, OUTSIDE, 50 * MS);
        }
        world.second(&mut history);
        let points = recent(&history);
        assert_eq!(points.len(), (at + 1).min(60));
        let begin = |point: &DayPoint| (point.unix_ns - THEN) / SECOND;
        assert_eq!(begin(points.last().unwrap()), at as u64);
        assert!(points.is_sorted_by(|a, b| begin(a) + 1 == begin(b)));
        for point in &points {
            if begin(point) % 3 == 1 {
                let idle = DayPoint {
                    unix_ns: point.unix_ns,
                    ..DayPoint::default()
                };
                assert_eq!(*point, idle);
                continue;
            }
            assert_eq!(
                (point.rate_down_bps, point.rate_up_bps),
                (2_400_000.0, 8_000.0)
            );
            let near = |rtt_ns: Option<u64>, ms: f64| {
                let error = rtt_ns.unwrap() as f64 / 1e6 / ms - 1.0;
                assert!(error.abs() < 0.02, "{point:?}");
            };
            near(point.inside_p50_rtt_ns, 20.0);
            near(point.outside_p95_rtt_ns, 50.0);
            assert!((point.inside_loss_ratio.unwrap() - 0.01).abs() < 1e-4);
        }
    }
    assert_eq!(history.detail("idle", 1).unwrap().recent, []);
}
