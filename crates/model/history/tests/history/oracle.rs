//! Compares every row with the stored samples and packets of its subtree.

use fairpath_core::{ClassCounts, DOWN, INSIDE, OUTSIDE, UP};
use fairpath_history::history::{History, NO_SLOT, RowSpec};
use fairpath_history::snapshot::{Leg, SnapshotRow};
use proptest::prelude::*;

use crate::world::*;

const WINDOW: usize = 10;

/// All data of one slot in one interval.
#[derive(Clone, Debug, Default)]
struct Did {
    packets: [u64; 2],
    bytes: [u64; 2],
    unmeasured: [u64; 2],
    data: [u64; 2],
    again: [u64; 2],
    before: [u64; 2],
    reordered: [u64; 2],
    rtts: [Vec<u64>; 2],
    opened: u64,
    closed: u64,
    failed: u64,
}

impl Did {
    fn add(&mut self, other: &Did) {
        for i in 0..2 {
            self.packets[i] += other.packets[i];
            self.bytes[i] += other.bytes[i];
            self.unmeasured[i] += other.unmeasured[i];
            self.data[i] += other.data[i];
            self.again[i] += other.again[i];
            self.before[i] += other.before[i];
            self.reordered[i] += other.reordered[i];
            self.rtts[i].extend(&other.rtts[i]);
        }
        self.opened += other.opened;
        self.closed += other.closed;
        self.failed += other.failed;
    }

    /// Random data for an active slot. Most slots are idle.
    fn random(dice: &mut Dice) -> Did {
        let mut did = Did::default();
        if dice.below(3) > 0 {
            return did;
        }
        for i in 0..2 {
            did.packets[i] = 1 + dice.below(5000);
            did.bytes[i] = did.packets[i] * 700;
            did.unmeasured[i] = dice.below(did.bytes[i]);
            did.data[i] = dice.below(4000);
            did.again[i] = dice.below(did.data[i] / 10 + 1);
            did.before[i] = dice.below(50);
            did.reordered[i] = dice.below(9);
            let median = 1.0 + dice.share() * 300.0;
            did.rtts[i] = (0..dice.below(200))
                .map(|_| dice.rtt(median, 0.8))
                .collect();
        }
        did.opened = dice.below(20);
        did.closed = dice.below(did.opened + 1);
        did.failed = dice.below(5);
        did
    }

    fn play(&self, world: &mut World, slot: u32) {
        for i in 0..2 {
            world.bytes(slot, i, self.packets[i], self.bytes[i]);
            let (data, again, before) = (self.data[i], self.again[i], self.before[i]);
            world.data(slot, i, data as u32, again as u32, before as u32);
            for rtt in &self.rtts[i] {
                world.rtt(slot, i, *rtt);
            }
            let counts = &mut world.counts[slot as usize].dir[i];
            counts.unmeasured_bytes = counts.unmeasured_bytes.wrapping_add(self.unmeasured[i]);
            counts.reordered_packets = counts
                .reordered_packets
                .wrapping_add(self.reordered[i] as u32);
        }
        let counts = &mut world.counts[slot as usize];
        counts.flows_opened = counts.flows_opened.wrapping_add(self.opened as u32);
        counts.flows_closed = counts.flows_closed.wrapping_add(self.closed as u32);
        counts.handshakes_failed = counts.handshakes_failed.wrapping_add(self.failed as u32);
    }
}

/// All data of the subtree of each row, by interval.
struct Oracle {
    rows: Vec<RowSpec>,
    did: Vec<Vec<Did>>,
}

impl Oracle {
    fn is_below(&self, mut row: usize, top: usize) -> bool {
        loop {
            if row == top {
                return true;
            }
            match self.rows[row].parent {
                Some(parent) => row = parent,
                None => return false,
            }
        }
    }

    /// Sum of a row's subtree over the last `intervals`.
    fn sum(&self, name: &str, intervals: usize) -> Did {
        let top = self.rows.iter().position(|row| row.name == name).unwrap();
        let mut sum = Did::default();
        for row in (0..self.rows.len()).filter(|row| self.is_below(*row, top)) {
            let from = self.did[row].len().saturating_sub(intervals);
            self.did[row][from..].iter().for_each(|did| sum.add(did));
        }
        sum
    }
}

fn share(lost: u64, of: u64) -> Option<f64> {
    (of > 0).then(|| (lost as f64 / of as f64).min(1.0))
}

fn near(reported: Option<u64>, exact: Option<u64>) -> bool {
    match (reported, exact) {
        (Some(reported), Some(exact)) => (reported as f64 / exact as f64 - 1.0).abs() <= 0.03,
        (None, None) => true,
        _ => false,
    }
}

/// The sample that a fraction `q` of all do not exceed.
fn exact(rtts: &[u64], q: f64) -> Option<u64> {
    let mut sorted = rtts.to_vec();
    sorted.sort_unstable();
    let rank = ((q * sorted.len() as f64).ceil() as usize).max(1);
    sorted.get(rank - 1).copied()
}

fn check_leg(reported: &Leg, leg: usize, window: &Did, all: &Did) {
    let rtts = &window.rtts[leg];
    assert_eq!(reported.samples, rtts.len() as u64);
    assert_eq!(reported.total.samples, all.rtts[leg].len() as u64);
    assert_eq!(reported.total.sum_ns, all.rtts[leg].iter().sum::<u64>());
    assert_eq!(reported.total.histogram.count(), reported.total.samples);
    for (reported, q) in [
        (reported.min_rtt_ns, 0.0),
        (reported.p50_rtt_ns, 0.5),
        (reported.p95_rtt_ns, 0.95),
        (reported.p99_rtt_ns, 0.99),
    ] {
        assert!(
            near(reported, exact(rtts, q)),
            "{q}: {reported:?} {:?}",
            exact(rtts, q)
        );
    }
    for q in [0.5, 0.95] {
        assert!(near(
            reported.total.histogram.quantile(q),
            exact(&all.rtts[leg], q)
        ));
    }
    let (near, far) = if leg == INSIDE {
        (UP, DOWN)
    } else {
        (DOWN, UP)
    };
    let before = window.before[near];
    assert_eq!(
        reported.loss_from_ratio,
        share(before, window.data[near] + before)
    );
    assert_eq!(
        reported.loss_to_ratio,
        share(window.again[far], window.data[far])
    );
    assert_eq!(reported.lost_packets, all.before[near] + all.again[far]);
    assert_eq!(
        reported.data_packets,
        all.data[near] + all.before[near] + all.data[far]
    );
    assert_eq!(reported.reordered_packets, all.reordered[near]);
}

fn check_row(row: &SnapshotRow, oracle: &Oracle, seconds: usize) {
    let (window, all) = (
        oracle.sum(&row.name, WINDOW),
        oracle.sum(&row.name, usize::MAX),
    );
    for (reported, dir) in [(&row.up, UP), (&row.down, DOWN)] {
        assert_eq!(reported.bytes, all.bytes[dir]);
        assert_eq!(reported.packets, all.packets[dir]);
        let over = seconds.min(WINDOW) as f64;
        let rate = window.bytes[dir] as f64 * 8.0 / over;
        assert!(
            (reported.rate_bps - rate).abs() <= rate * 1e-9,
            "{reported:?} {rate}"
        );
        let rate = window.packets[dir] as f64 / over;
        assert!(
            (reported.rate_pps - rate).abs() <= rate * 1e-9,
            "{reported:?} {rate}"
        );
        assert_eq!(
            reported.unmeasured_ratio,
            share(window.unmeasured[dir], window.bytes[dir])
        );
    }
    check_leg(&row.inside, INSIDE, &window, &all);
    check_leg(&row.outside, OUTSIDE, &window, &all);
    assert_eq!(row.flows.opened, all.opened);
    assert_eq!(row.flows.closed, all.closed);
    assert_eq!(row.flows.handshakes_failed, all.failed);
    let last = oracle.sum(&row.name, 1);
    let point = row.history.last();
    let rate = (last.bytes[UP] + last.bytes[DOWN]) as f64 * 8.0;
    let reported = point.map_or(0.0, |point| point.rate_bps);
    assert!((reported - rate).abs() <= rate * 1e-6, "{reported} {rate}");
}

fn check_interval(history: &History, oracle: &Oracle) {
    for reported in history.all_interval_rows() {
        let did = oracle.sum(&reported.name, 1);
        assert_eq!([reported.bytes_up, reported.bytes_down], did.bytes);
        assert_eq!([reported.packets_up, reported.packets_down], did.packets);
        let unmeasured = [reported.unmeasured_bytes_up, reported.unmeasured_bytes_down];
        assert_eq!(unmeasured, did.unmeasured);
        assert_eq!(reported.inside_samples, did.rtts[INSIDE].len() as u64);
        for (reported, leg, q) in [
            (reported.inside_min_rtt_ns, INSIDE, 0.0),
            (reported.inside_p50_rtt_ns, INSIDE, 0.5),
            (reported.inside_p95_rtt_ns, INSIDE, 0.95),
            (reported.inside_p99_rtt_ns, INSIDE, 0.99),
            (reported.inside_max_rtt_ns, INSIDE, 1.0),
            (reported.outside_p50_rtt_ns, OUTSIDE, 0.5),
            (reported.outside_max_rtt_ns, OUTSIDE, 1.0),
        ] {
            assert!(near(reported, exact(&did.rtts[leg], q)));
        }
        let rtts = &did.rtts[OUTSIDE];
        let mean = rtts.iter().sum::<u64>().checked_div(rtts.len() as u64);
        assert_eq!(reported.outside_mean_rtt_ns, mean);
        assert_eq!(reported.inside_lost_to_packets, did.again[DOWN]);
        assert_eq!(reported.inside_data_to_packets, did.data[DOWN]);
        assert_eq!(reported.outside_lost_from_packets, did.before[DOWN]);
        assert_eq!(
            reported.outside_data_from_packets,
            did.data[DOWN] + did.before[DOWN]
        );
        assert_eq!(
            [
                reported.reordered_packets_up,
                reported.reordered_packets_down
            ],
            did.reordered
        );
        assert_eq!(reported.flows_closed, did.closed);
    }
    let active = history.interval_rows().map(|row| row.name);
    let all = oracle.rows.iter().map(|row| row.name.clone());
    let moved = all.filter(|name| oracle.sum(name, 1).packets[UP] > 0);
    let sorted = |mut names: Vec<String>| {
        names.sort();
        names
    };
    assert_eq!(sorted(active.collect()), sorted(moved.collect()));
}

/// A random tree: the parent of a row is an earlier row or none, and some rows have no slot.
fn tree(rows: usize, dice: &mut Dice) -> Vec<RowSpec> {
    (0..rows)
        .map(|at| {
            let slot = if dice.below(5) == 0 {
                NO_SLOT
            } else {
                1 + at as u32
            };
            let parent = dice.below(at as u64 + 1) as usize;
            RowSpec {
                parent: (parent < at).then_some(parent),
                ..class(&format!("row {at}"), slot)
            }
        })
        .collect()
}

fn run(seed: u64, rows: usize, seconds: usize) {
    let mut dice = Dice(seed);
    let mut world = World::new(rows + 2);
    // All counters are close to wrapping.
    for counts in &mut world.counts {
        *counts = about_to_wrap();
    }
    let rows = tree(rows, &mut dice);
    let mut history = world.history(rows.clone());
    let did = vec![Vec::new(); rows.len()];
    let mut oracle = Oracle { rows, did };
    for second in 1..=seconds {
        for at in 0..oracle.rows.len() {
            let slot = oracle.rows[at].slot;
            let did = match slot {
                NO_SLOT => Did::default(),
                _ => Did::random(&mut dice),
            };
            if slot != NO_SLOT {
                did.play(&mut world, slot);
            }
            oracle.did[at].push(did);
        }
        world.second(&mut history);
        let snapshot = snapshot_of(&history);
        assert_eq!(snapshot.rows.len(), oracle.rows.len());
        assert_eq!(snapshot.window_ns, seconds_ns(second.min(WINDOW)));
        for row in &snapshot.rows {
            check_row(row, &oracle, second);
        }
        check_interval(&history, &oracle);
    }
}

fn seconds_ns(seconds: usize) -> u64 {
    seconds as u64 * SECOND
}

fn about_to_wrap() -> ClassCounts {
    let mut counts = ClassCounts::default();
    for dir in &mut counts.dir {
        dir.packets = u64::MAX - 99;
        dir.bytes = u64::MAX - 9_999;
        dir.unmeasured_bytes = u64::MAX - 9_999;
        dir.data_packets = u32::MAX - 99;
        dir.retransmitted_packets = u32::MAX - 9;
        dir.upstream_lost_packets = u32::MAX - 9;
        dir.reordered_packets = u32::MAX - 1;
    }
    for leg in &mut counts.leg {
        leg.samples = u32::MAX - 99;
        leg.sum_ns = u64::MAX - 99;
    }
    counts.flows_opened = u32::MAX - 5;
    counts.flows_closed = u32::MAX - 5;
    counts.handshakes_failed = u32::MAX;
    counts
}

proptest! {
    #![proptest_config(fairpath_units::property!(20))]

    #[test]
    fn every_row_matches_the_samples_of_its_subtree(
        seed in any::<u64>(), rows in 1usize..14, seconds in 1usize..28,
    ) {
        run(seed, rows, seconds);
    }

    #[test]
    fn a_parent_is_the_sum_of_its_leaves(seed in any::<u64>(), leaves in 1u32..40) {
        let mut dice = Dice(seed);
        let mut world = World::new(leaves as usize + 1);
        let mut rows = vec![group("all"), below(0, group("left")), below(0, group("right"))];
        for leaf in 1..=leaves {
            let parent = 1 + dice.below(2) as usize;
            rows.push(below(parent, class(&format!("leaf {leaf}"), leaf)));
        }
        let mut history = world.history(rows);
        for _ in 0..12 {
            for leaf in 1..=leaves {
                Did::random(&mut dice).play(&mut world, leaf);
            }
            world.second(&mut history);
        }
        let rows = snapshot_of(&history).rows;
        let leaf_rows = || rows.iter().filter(|row| row.depth == 2);
        let all = &rows[0];
        assert_eq!(all.down.bytes, leaf_rows().map(|row| row.down.bytes).sum::<u64>());
        assert_eq!(all.inside.samples, leaf_rows().map(|row| row.inside.samples).sum::<u64>());
        assert_eq!(all.flows.opened, leaf_rows().map(|row| row.flows.opened).sum::<u64>());
        let mut merged = fairpath_history::Histogram::default();
        leaf_rows().for_each(|row| merged.merge(&row.outside.total.histogram));
        assert_eq!(&all.outside.total.histogram, &merged);
    }
}

#[test]
fn idle_rows_keep_their_totals() {
    let mut world = World::new(3);
    let mut history = world.history(vec![class("a", 1), class("b", 2)]);
    world.bytes(1, DOWN, 10, 15_000);
    world.rtt(1, INSIDE, 20 * MS);
    world.second(&mut history);
    for second in 2..=40 {
        world.second(&mut history);
        let row = row(&history, "a");
        let within = second <= WINDOW;
        assert_eq!(row.down.rate_bps > 0.0, within, "second {second}");
        assert_eq!(row.inside.p50_rtt_ns.is_some(), within);
        assert_eq!((row.down.bytes, row.inside.total.samples), (15_000, 1));
        assert_eq!(row.history.len(), second);
    }
    assert_eq!(
        history.idle_rows(fairpath_history::snapshot::Kind::Class, 39 * SECOND),
        ["a", "b"]
    );
    assert_eq!(
        history.idle_rows(fairpath_history::snapshot::Kind::Class, 40 * SECOND),
        ["b"]
    );
}
