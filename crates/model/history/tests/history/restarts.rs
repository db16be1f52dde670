//! Restarts, new configurations and changes of the clock.

use fairpath_core::{DOWN, INSIDE, OUTSIDE, UP};
use fairpath_history::history::{
    History, Moment, PARKED_NS, RowSpec, STATE_VERSION, Settings, State, StateError,
};
use fairpath_history::snapshot::{AlertKind, Kind, SnapshotRow};
use proptest::prelude::*;

use crate::world::*;

fn traffic(world: &mut World, dice: &mut Dice, slots: u32) {
    for slot in 1..slots {
        if dice.below(3) == 0 {
            continue;
        }
        world.bytes(slot, UP, 10, 9_000 + dice.below(900));
        world.bytes(slot, DOWN, 100, 90_000 + dice.below(900_000));
        world.data(slot, DOWN, 90, dice.below(3) as u32, 1);
        for _ in 0..dice.below(40) {
            let rtt = dice.rtt(30.0, 0.5);
            world.rtt(slot, INSIDE, rtt);
            world.rtt(slot, OUTSIDE, rtt / 2);
        }
        world.counts[slot as usize].flows_opened += 2;
        world.counts[slot as usize].flows_closed += 2;
    }
}

/// The values of a row that do not depend on its position.
fn own(row: &SnapshotRow) -> SnapshotRow {
    SnapshotRow {
        parent: None,
        depth: 0,
        ..row.clone()
    }
}

/// The values of a row that survive a restart.
fn lasting(row: &SnapshotRow) -> SnapshotRow {
    let mut row = row.clone();
    for volume in [&mut row.up, &mut row.down] {
        (volume.rate_bps, volume.rate_pps, volume.unmeasured_ratio) = (0.0, 0.0, None);
    }
    for leg in [&mut row.inside, &mut row.outside] {
        leg.samples = 0;
        (
            leg.min_rtt_ns,
            leg.p50_rtt_ns,
            leg.p95_rtt_ns,
            leg.p99_rtt_ns,
        ) = (None, None, None, None);
        (leg.loss_to_ratio, leg.loss_from_ratio) = (None, None);
    }
    row.history.clear();
    row
}

fn lasting_rows(history: &History) -> Vec<SnapshotRow> {
    snapshot_of(history).rows.iter().map(lasting).collect()
}

fn specs(rows: u32) -> Vec<RowSpec> {
    let leaf = |at: u32| below((at % 2) as usize, class(&format!("leaf {at}"), at));
    let mut specs = vec![group("a"), group("b")];
    specs.extend((1..rows).map(leaf));
    specs
}

fn lived(seed: u64, rows: u32, seconds: u64) -> (World, History, Dice) {
    let mut dice = Dice(seed);
    let mut world = World::new(rows as usize);
    let mut history = world.history(specs(rows));
    for _ in 0..seconds {
        traffic(&mut world, &mut dice, rows);
        world.second(&mut history);
    }
    (world, history, dice)
}

proptest! {
    #![proptest_config(fairpath_units::property!(24))]

    #[test]
    fn a_restored_history_equals_the_saved_one(
        seed in any::<u64>(), rows in 2u32..12, seconds in 1u64..40,
    ) {
        let (world, history, mut dice) = lived(seed, rows, seconds);
        let bytes = history.save().to_bytes().unwrap();
        let state = State::from_bytes(&bytes).unwrap();
        prop_assert_eq!(state.rows(), history.rows());
        let mut again = History::restore(Settings::default(), world.now, state);
        again.configure(specs(rows), &world.counts).unwrap();
        prop_assert_eq!(lasting_rows(&again), lasting_rows(&history));
        prop_assert_eq!(again.save().to_bytes().unwrap(), bytes);
        let days = |history: &History| history.detail("a", 1).map(|detail| detail.day);
        prop_assert_eq!(days(&again), days(&history));
        // Both continue in the same way.
        let (mut one, mut two) = (history, again);
        let mut world = world;
        for _ in 0..3 {
            traffic(&mut world, &mut dice, rows);
            let mut copy = world.fork();
            world.second(&mut one);
            copy.second(&mut two);
        }
        prop_assert_eq!(lasting_rows(&one), lasting_rows(&two));
    }

    #[test]
    fn a_new_configuration_keeps_data_of_rows(
        seed in any::<u64>(), rows in 2u32..12,
    ) {
        let (mut world, mut history, mut dice) = lived(seed, rows, 15);
        let before = snapshot_of(&history).rows;
        // Other slots, parents and ceilings. New owners of slots begin at zero.
        let mut moved = vec![group("b"), group("new"), below(1, group("a"))];
        for at in (1..rows).rev() {
            let name = format!("leaf {at}");
            moved.push(below(dice.below(3) as usize, class(&name, rows - at)));
        }
        world.counts = vec![Default::default(); rows as usize];
        history.configure(moved, &world.counts).unwrap();
        let after = snapshot_of(&history);
        prop_assert_eq!(after.configuration, 2);
        for row in &before {
            let there = after.rows.iter().find(|other| other.name == row.name).unwrap();
            let mut there = own(there);
            there.children = row.children;
            prop_assert_eq!(there, own(row));
        }
        world.bytes(rows - 1, UP, 1, 1_000);
        world.second(&mut history);
        let reported = |rows: &[SnapshotRow]| rows.iter().find(|row| row.name == "leaf 1").unwrap().up.bytes;
        prop_assert_eq!(reported(&snapshot_of(&history).rows), reported(&before) + 1_000);
    }

    #[test]
    fn any_corruption_is_detected(at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let (_, history, _) = lived(5, 4, 5);
        let whole = history.save().to_bytes().unwrap();
        let mut bytes = whole.clone();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(State::from_bytes(&bytes).is_err());
        prop_assert!(State::from_bytes(&whole[..at]).is_err());
    }
}

#[test]
fn a_newer_state_is_refused_with_a_remedy() {
    let (_, history, _) = lived(5, 4, 5);
    let mut bytes = history.save().to_bytes().unwrap();
    let before = bytes.clone();
    bytes[8..12].copy_from_slice(&(STATE_VERSION + 1).to_le_bytes());
    let error = State::from_bytes(&bytes).unwrap_err();
    let found = STATE_VERSION + 1;
    assert_eq!(error, StateError::Version { found });
    let text = error.to_string();
    assert!(
        text.contains(&format!("version {found}")) && text.contains("install"),
        "{text}"
    );
    assert_eq!(
        State::from_bytes(b"[monitor]").unwrap_err(),
        StateError::NotState
    );
    // The refused bytes are unchanged, and valid with the right version.
    bytes[8..12].copy_from_slice(&STATE_VERSION.to_le_bytes());
    assert_eq!(bytes, before);
    assert_eq!(State::from_bytes(&bytes).unwrap().rows(), history.rows());
}

/// The file is the state of `lived(5, 4, 5)` and 30 more seconds, written by the last program with
/// version 1.
#[test]
fn state_version_1_loses_only_its_load() {
    let bytes = include_bytes!("state-1.bin");
    assert_eq!(bytes[8], 1);
    let state = State::from_bytes(bytes).unwrap();
    let mut history = History::restore(Settings::default(), World::new(4).now, state);
    history.configure(specs(4), &[]).unwrap();
    let totals = lasting_rows(&history).into_iter();
    let totals: Vec<_> = totals
        .map(|row| (row.name, row.up.bytes, row.inside.total.samples))
        .collect();
    let expected = [
        ("a", 225_852, 527),
        ("leaf 2", 225_852, 527),
        ("b", 443_026, 1_719),
        ("leaf 1", 207_156, 1_151),
        ("leaf 3", 235_870, 568),
    ];
    assert_eq!(
        totals,
        expected.map(|(name, up, samples)| (name.to_owned(), up, samples))
    );
    assert_eq!(row(&history, "leaf 1").load, Default::default());
    let again = history.save().to_bytes().unwrap();
    assert_eq!(u32::from(again[8]), STATE_VERSION);
    assert_eq!(State::from_bytes(&again).unwrap().rows(), 5);
}

#[test]
fn a_restart_has_a_gap_and_closes_flows() {
    let (mut world, mut history, _) = lived(1, 3, 20);
    world.counts[1].flows_opened += 7;
    world.second(&mut history);
    assert!(row(&history, "leaf 1").flows.open() > 0);
    let state = history.save();
    let start = Moment {
        unix_ns: world.now.unix_ns + 90 * SECOND,
        mono_ns: 5,
    };
    let mut again = History::restore(Settings::default(), start, state.clone());
    let counts = vec![Default::default(); 3];
    again.configure(specs(3), &counts).unwrap();
    let snapshot = snapshot_of(&again);
    assert_eq!(snapshot.gap_ns, Some(90 * SECOND));
    assert_eq!((snapshot.counting_since_unix_ns, snapshot.up_ns), (THEN, 0));
    let flows = row(&again, "leaf 1").flows;
    assert_eq!(flows.open(), 0);
    assert_eq!(flows.opened, row(&history, "leaf 1").flows.opened);
    // The clock was set back before the saved time.
    let start = Moment {
        unix_ns: THEN,
        mono_ns: 5,
    };
    assert_eq!(
        History::restore(Settings::default(), start, state).gap_ns(),
        None
    );
}

#[test]
fn an_active_alert_continues_across_a_restart() {
    let mut world = World::new(2);
    let mut history = world.history(vec![class("a", 1)]);
    let lossy = |world: &mut World, history: &mut History| {
        let mut alerts = Vec::new();
        for _ in 0..60 {
            world.data(1, DOWN, 300, 30, 0);
            world.rtt(1, INSIDE, 20 * MS);
            alerts.extend(world.second(history));
        }
        alerts
    };
    assert_eq!(lossy(&mut world, &mut history).len(), 1);
    let mut again = History::restore(Settings::default(), world.now, history.save());
    again.configure(vec![class("a", 1)], &world.counts).unwrap();
    assert_eq!(row(&again, "a").alerts, [AlertKind::Loss]);
    assert!(lossy(&mut world, &mut again).is_empty());
}

#[test]
fn a_removed_row_is_parked_for_an_hour() {
    let (mut world, mut history, _) = lived(9, 3, 20);
    let bytes = row(&history, "leaf 1").down.bytes;
    for (absent, expected) in [(PARKED_NS - 70 * SECOND, bytes), (PARKED_NS, 0)] {
        history.configure(vec![group("a")], &world.counts).unwrap();
        assert_eq!(snapshot_of(&history).rows.len(), 1);
        for _ in 0..absent / (60 * SECOND) {
            world.now.mono_ns += 59 * SECOND;
            world.now.unix_ns += 59 * SECOND;
            world.second(&mut history);
        }
        // Parked rows are checked once in 64 intervals.
        (0..64).for_each(|_| drop(world.second(&mut history)));
        history.configure(specs(3), &world.counts).unwrap();
        assert_eq!(row(&history, "leaf 1").down.bytes, expected);
    }
}

#[test]
fn a_row_with_its_slot_has_no_gap() {
    let (mut world, mut history, _) = lived(9, 3, 20);
    let bytes = row(&history, "leaf 1").down.bytes;
    // Counted between the last reading and the new rows.
    world.bytes(1, DOWN, 1, 400);
    history.configure(specs(3), &world.counts).unwrap();
    world.bytes(1, DOWN, 1, 30);
    world.second(&mut history);
    assert_eq!(row(&history, "leaf 1").down.bytes, bytes + 430);
}

#[test]
fn a_refused_configuration_changes_nothing() {
    let (mut world, mut history, _) = lived(9, 3, 20);
    let before = snapshot_of(&history);
    let twice = vec![class("x", 1), class("x", 2)];
    assert!(history.configure(twice, &world.counts).is_err());
    assert_eq!(snapshot_of(&history), before);
    world.bytes(1, DOWN, 1, 10);
    world.second(&mut history);
    let bytes = before
        .rows
        .iter()
        .find(|row| row.name == "leaf 1")
        .unwrap()
        .down
        .bytes;
    assert_eq!(row(&history, "leaf 1").down.bytes, bytes + 10);
}

#[test]
fn intervals_use_the_monotonic_clock() {
    let mut world = World::new(2);
    let mut history = world.history(vec![class("a", 1)]);
    let day = 24 * 3600 * SECOND;
    for step in [0, day, 0, 0] {
        world.now.unix_ns += step;
        world.bytes(1, UP, 1, 125_000);
        world.second(&mut history);
    }
    // Two days back, twice, with continuous traffic.
    for _ in 0..2 {
        world.now.unix_ns -= 2 * day;
        world.bytes(1, UP, 1, 125_000);
        world.second(&mut history);
        let reported = row(&history, "a");
        assert!(
            (reported.up.rate_bps / 1e6 - 1.0).abs() < 1e-9,
            "{reported:?}"
        );
        assert!(
            reported
                .history
                .iter()
                .all(|point| (point.rate_bps - 1e6).abs() < 1.0)
        );
        let interval = history.interval_rows().next().unwrap();
        assert_eq!(interval.interval_ns, SECOND);
        assert_eq!(interval.unix_ns, world.now.unix_ns - SECOND);
    }
    let days = history.detail("a", 1).unwrap().day;
    assert!(days.is_sorted_by(|a, b| a.unix_ns < b.unix_ns));
    assert!(days.iter().all(|point| point.rate_up_bps > 0.0));
    // A reading at the same time must not make an infinite rate.
    world.bytes(1, UP, 1, 125_000);
    world.read(&mut history);
    let reported = row(&history, "a");
    assert!(reported.up.rate_bps.is_finite() && reported.history.last().unwrap().rate_bps == 0.0);
}

#[test]
fn rows_of_different_kinds_may_share_a_name() {
    let mut world = World::new(3);
    let subnet = RowSpec {
        kind: Kind::Subnet,
        ..class("a", 2)
    };
    let mut history = world.history(vec![class("a", 1), subnet]);
    world.bytes(2, UP, 1, 50);
    world.second(&mut history);
    let rows = snapshot_of(&history).rows;
    assert_eq!((rows[0].up.bytes, rows[1].up.bytes), (0, 50));
    assert_eq!(history.detail("a", 1).unwrap().row.kind, Kind::Class);
}
