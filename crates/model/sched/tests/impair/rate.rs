//! Rates behind an impairment: ceilings with overhead and cells, and traces.

use fairpath_core::sched::{Meta, Scheduler};
use fairpath_sched::tree::{Link, Tree};
use fairpath_sim::simulate::{Settings, simulate};
use fairpath_sim::traffic::{Generator, Spec as Traffic};

use super::bed::{Bed, MS, fifo, spec};

fn on_link(text: &str, bps: u64, burst_ns: u64) -> Tree {
    let mut tree = fifo();
    tree.impair(&spec(text), 0);
    let stack = false;
    tree.on_link(&Link {
        bps,
        burst_ns,
        stack,
    })
    .unwrap()
}

/// Departure times of packets of `bytes` that arrive every `every_ns`.
fn departures(tree: &Tree, count: u64, bytes: u32, every_ns: u64) -> Vec<u64> {
    let mut bed = Bed::of_tree(tree);
    let meta = Meta {
        bytes,
        ..Meta::default()
    };
    (0..count).for_each(|packet| bed.send(packet * every_ns, meta));
    bed.finish();
    bed.results
        .iter()
        .filter_map(|result| result.left)
        .collect()
}

/// The rate in bits per second of the second half, after the burst.
fn rate(left: &[u64], bytes: u64) -> f64 {
    let half = &left[left.len() / 2..];
    let ns = half[half.len() - 1] - half[0];
    (half.len() as u64 - 1) as f64 * bytes as f64 * 8e9 / ns as f64
}

#[track_caller]
fn assert_near(got: f64, expected: f64) {
    assert!(
        (got / expected - 1.0).abs() < 0.005,
        "{got} instead of {expected}"
    );
}

#[test]
fn link_rate_includes_overhead_within_half_percent() {
    const BPS: u64 = 100_000_000;
    // Packets up to the limit of the scheduler arrive at twice the link rate.
    let of = |text: &str, bytes: u32, on_line_bytes: u64| {
        let tree = on_link(text, BPS, 5 * MS);
        let every = on_line_bytes * 8_000_000_000 / BPS / 2;
        let left = departures(&tree, 15_000, bytes, every);
        assert_near(rate(&left, on_line_bytes), BPS as f64);
    };
    of("delay=20ms", 1000, 1000);
    of("overhead=38", 1000, 1038);
    of("overhead=38", 60, 98);
    // 1,010 bytes are 22 cells of 53 bytes.
    of("overhead=10 cell=48", 1000, 22 * 53);
    of("overhead=8 cell=48 cell_overhead=0", 40, 48);
    of("overhead=38 mpu=84", 40, 84);
    // 1,030 bytes of PTM are 17 bytes more.
    of("overhead=30 atm=ptm", 1000, 1047);
    of("overhead=8 atm=atm", 41, 106);
}

#[test]
fn no_interval_exceeds_rate_and_burst() {
    const BPS: u64 = 80_000_000;
    let tree = on_link("delay=2ms", BPS, MS);
    let left = departures(&tree, 12_000, 1000, 40_000);
    // 1,000 bytes take 100 us. A burst of 1 ms allows ten packets, plus one that has begun.
    for first in (0..left.len()).step_by(7) {
        for many in [1, 10, 100, 1000] {
            let Some(last) = left.get(first + many) else {
                break;
            };
            let most = (last - left[first]) / 100_000 + 10 + 1;
            assert!(
                many as u64 <= most,
                "{many} packets from {} to {last}",
                left[first]
            );
        }
    }
}

#[test]
fn duplicates_use_link_time() {
    let tree = on_link("duplicate=100%", 100_000_000, MS);
    let left = departures(&tree, 10_000, 1000, 100_000);
    assert_near(rate(&left, 2000), 100e6);
}

/// A trace with 12 Mbit/s for a second, then 36 Mbit/s for a second.
fn trace() -> String {
    let slow = (1..=1000).map(|ms| (ms, 1));
    let fast = (1001..=2000).map(|ms| (ms, 3));
    let lines = slow
        .chain(fast)
        .flat_map(|(ms, times)| vec![format!("{ms}\n"); times]);
    lines.collect()
}

fn with_trace(more: &str) -> Tree {
    let (tree, mean_bps) = tree_of_trace(&trace(), more);
    assert_eq!(mean_bps, 24.064e6);
    tree
}

/// A FIFO on a link with this rate trace, and the mean rate of the trace.
fn tree_of_trace(lines: &str, more: &str) -> (Tree, f64) {
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let name = format!("fairpath-rate-{}-{count}.trace", std::process::id());
    let file = std::env::temp_dir().join(name);
    std::fs::write(&file, lines).unwrap();
    let spec = spec(&format!("rate_trace={} {more}", file.display()));
    std::fs::remove_file(&file).unwrap();
    let mut tree = fifo();
    tree.impair(&spec, 0);
    (tree, spec.rate_trace.unwrap().mean_bps())
}

#[test]
fn rate_trace_holds_within_half_percent() {
    // Packets of a full opportunity, with a backlog at all times: 50 Mbit/s for eight seconds would
    // exceed the queue, which drops the rest.
    let left = departures(&with_trace(""), 40_000, 1504, 200_000);
    for second in 1..7 {
        let here = left
            .iter()
            .filter(|at| **at / 1_000_000_000 == second)
            .count();
        let expected = if second % 2 == 0 { 1000.0 } else { 3000.0 };
        assert_near(here as f64, expected);
    }
    // Packets of another size: no byte is lost or gained.
    for bytes in [60, 700, 1514, 9000] {
        let every = u64::from(bytes) * 8_000 / 50;
        let left = departures(&with_trace(""), 8_000_000_000 / every, bytes, every);
        let here = left
            .iter()
            .filter(|at| (2..6).contains(&(**at / 1_000_000_000)));
        let bps = here.count() as f64 * f64::from(bytes) * 8.0 / 4.0;
        assert_near(bps, 24.064e6);
    }
}

/// Packets of a full opportunity that left within second `second`.
fn in_second(left: &[u64], second: u64) -> usize {
    let here = left.iter().filter(|at| **at / 1_000_000_000 == second);
    here.count()
}

/// Departure times with one tree until `at` and another one afterwards, always with a backlog.
fn reloaded(before: &Tree, after: &Tree, at: u64, count: u64) -> Vec<u64> {
    let mut bed = Bed::of_tree(before);
    let meta = Meta {
        bytes: 1504,
        ..Meta::default()
    };
    (0..count).for_each(|_| bed.send(at - 1_000 * MS, meta));
    // Between two opportunities.
    bed.replace(after, at - MS / 2);
    bed.finish();
    bed.results
        .iter()
        .filter_map(|result| result.left)
        .collect()
}

#[test]
fn reloaded_trace_continues_and_new_trace_restarts() {
    let (slow, _) = tree_of_trace("10\n", "");
    let (fast, _) = tree_of_trace("1\n", "");
    const HOUR: u64 = 3600;
    let at = HOUR * 1_000 * MS;
    let left = reloaded(&fast, &slow, at, 5000);
    assert_eq!(
        [0, 1].map(|after| in_second(&left, HOUR + after)),
        [100, 100]
    );
    let left = reloaded(&slow, &fast, at, 5000);
    assert_eq!(
        [0, 1].map(|after| in_second(&left, HOUR + after)),
        [1000, 1000]
    );
    // The tables of the jitter precede the trace in the plan. It is the same trace, and its fast second
    // has the same opportunities except at both ends.
    let (traced, jittered) = (with_trace(""), with_trace("jitter=1us"));
    let left = reloaded(&traced, &jittered, 8_000 * MS, 8000);
    assert_eq!([8, 9].map(|second| in_second(&left, second)), [2998, 1002]);
}

#[test]
fn unused_opportunities_are_lost() {
    let tree = with_trace("delay=0ms");
    // One packet every 10 ms leaves at the next ms. None uses earlier opportunities.
    let left = departures(&tree, 100, 1504, 10 * MS + 300_000);
    for (packet, left) in left.iter().enumerate() {
        let arrived = packet as u64 * (10 * MS + 300_000);
        let next = (arrived / MS + 1) * MS;
        assert_eq!(*left, next, "{packet}");
    }
}

#[test]
fn simulator_sends_and_counts_duplicates() {
    let mut tree = fifo();
    tree.impair(&spec("loss=5% delay=3ms duplicate=10% corrupt=1%"), 0);
    let traffic = Traffic::read("cbr rate=20mbit size=1000B").unwrap();
    let mut generator = Generator::new(&traffic, 1, |name| tree.names.class_number(name)).unwrap();
    let mut runtime = Scheduler::new(&tree.plan).unwrap();
    let settings = Settings {
        rate_bps: 1_000_000_000,
        overhead_bytes: 0,
        duration_ns: Some(4_000_000_000),
    };
    let found = simulate(
        &mut runtime,
        &tree,
        &mut generator,
        &settings,
        None,
        &mut |_| true,
    )
    .unwrap();
    let (total, stats) = (found.total, found.impairments[0]);
    assert_eq!(stats.packets, total.offered.packets);
    assert_eq!(stats.lost, total.dropped.packets);
    // Some packets are still queued at the end.
    assert!(stats.copied - total.duplicated.packets <= found.backlog);
    assert!(
        total.duplicated.packets > 800 && total.corrupted > 70,
        "{total:?}"
    );
    assert_eq!(total.duplicated.bytes, total.duplicated.packets * 1000);
    let sending = (total.sent.bytes + total.duplicated.bytes) * 8;
    assert!(
        found.link.busy_ns.abs_diff(sending) <= 16_000,
        "{} {sending}",
        found.link.busy_ns
    );
}
