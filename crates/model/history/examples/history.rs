//! The cost of a history: CPU time per interval, memory, and size of the state file.
//!
//! ```sh
//! cargo run --release -p fairpath-history --example history -- [ROWS] [ACTIVE] [INTERVALS]
//! ```
//!
//! ROWS classes in a tree of three levels (16,000), of which ACTIVE (2,000) have traffic in every
//! interval: 20 RTT samples on each leg, ten of its sixty remotes and two hosts. Another ACTIVE rows are
//! active every sixty intervals, so that all rows become active after a while.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use fairpath_core::{Cell, ClassCounts, Pair, PairKind, bucket_of};
use fairpath_history::history::{History, Meta, Moment, NO_SLOT, Reading, RowSpec, Settings};
use fairpath_history::snapshot::{Query, Sort};

const SECOND: u64 = 1_000_000_000;

struct Core {
    counts: Vec<ClassCounts>,
    cells: Vec<Cell>,
    pairs: Vec<Pair>,
    seed: u64,
}

impl Core {
    fn roll(&mut self, below: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005);
        self.seed = self.seed.wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % below
    }

    fn active(&mut self, slot: u32) {
        for dir in 0..2 {
            let bytes = 10_000 + self.roll(1_000_000);
            let counts = &mut self.counts[slot as usize].dir[dir];
            counts.bytes += bytes;
            counts.packets += bytes / 900;
            counts.data_packets += (bytes / 1400) as u32;
        }
        for leg in 0..2u8 {
            for _ in 0..20 {
                let rtt = (5 + self.roll(40)) * 1_000_000 + self.roll(1_000_000);
                let counts = &mut self.counts[slot as usize].leg[usize::from(leg)];
                counts.samples += 1;
                counts.sum_ns += rtt;
                let (bucket, count) = (bucket_of(rtt), 1);
                self.cells.push(Cell {
                    slot,
                    leg,
                    bucket,
                    count,
                });
            }
        }
        for number in 0..12 {
            let remote = number < 10;
            let net = if remote {
                slot * 60 + self.roll(60) as u32
            } else {
                slot
            };
            let bytes_down = 1 + self.roll(100_000);
            self.pairs.push(Pair {
                slot,
                kind: if remote {
                    PairKind::Remote
                } else {
                    PairKind::Talker
                },
                address: IpAddr::V4(Ipv4Addr::from(net << 8 | number)),
                prefix_len: if remote { 24 } else { 32 },
                bytes_down,
                samples: 2,
                rtt_sum_ns: 40_000_000,
                max_rtt_us: 25_000,
                ..Pair::default()
            });
        }
    }
}

fn specs(rows: u32) -> Vec<RowSpec> {
    let mut specs: Vec<RowSpec> = Vec::new();
    let spec = |name: String, slot, parent| RowSpec {
        name,
        slot,
        parent,
        ceil_down_bps: Some(20_000_000),
        ..RowSpec::default()
    };
    let (mut site, mut sector) = (0, 0);
    for at in 0..rows {
        if at % 1600 == 0 {
            site = specs.len();
            specs.push(spec(format!("site {at}"), NO_SLOT, None));
        }
        if at % 40 == 0 {
            sector = specs.len();
            specs.push(spec(format!("sector {at}"), NO_SLOT, Some(site)));
        }
        specs.push(spec(format!("subscriber {at}"), 1 + at, Some(sector)));
    }
    specs
}

/// CPU time of this thread, as reported by Linux.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let ns = stat.split(' ').next().and_then(|n| n.parse().ok());
    Duration::from_nanos(ns.unwrap_or(0))
}

/// Resident memory of this process, MiB, as reported by Linux.
fn resident_mib() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|n| n.parse::<f64>().ok());
    pages.unwrap_or(f64::NAN) * 4096.0 / 1048576.0
}

fn timed<T>(name: &str, work: impl FnOnce() -> T) -> T {
    let begin = cpu_time();
    let result = work();
    println!(
        "{name:<44} {:>8.2} ms",
        (cpu_time() - begin).as_secs_f64() * 1e3
    );
    result
}

fn main() {
    let argument = |at: usize, default: u32| {
        let given = std::env::args().nth(at);
        given.and_then(|n| n.parse().ok()).unwrap_or(default)
    };
    let (rows, active, intervals) = (argument(1, 16_000), argument(2, 2_000), argument(3, 240));
    let mut core = Core {
        counts: vec![ClassCounts::default(); rows as usize + 1],
        cells: Vec::new(),
        pairs: Vec::new(),
        seed: 7,
    };
    let mut now = Moment {
        unix_ns: 1_800_000_000 * SECOND,
        mono_ns: 0,
    };
    let before = resident_mib();
    let mut history = History::new(Settings::default(), now);
    let specs = specs(rows);
    timed("configure", || history.configure(specs, &core.counts)).unwrap_or_default();
    println!(
        "{:<44} {:>8.1} MiB",
        "resident, nothing active yet",
        resident_mib() - before
    );

    let mut times: Vec<(Duration, Duration)> = Vec::new();
    for interval in 0..intervals {
        core.cells.clear();
        core.pairs.clear();
        for at in 0..active.min(rows) {
            core.active(1 + at);
            if at % 60 == interval % 60 {
                core.active(1 + (at + interval * active / 60) % rows);
            }
        }
        now.unix_ns += SECOND;
        now.mono_ns += SECOND;
        let (begin, clock) = (cpu_time(), Instant::now());
        history.take(&Reading {
            unix_ns: now.unix_ns,
            mono_ns: now.mono_ns,
            counts: &core.counts,
            cells: &core.cells,
            pairs: &core.pairs,
        });
        times.push((clock.elapsed(), cpu_time() - begin));
    }
    let last = times.len().saturating_sub(60);
    let settled = &times[last..];
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let min = settled.iter().map(|(elapsed, _)| *elapsed).min();
    let cpu: Duration = settled.iter().map(|(_, cpu)| *cpu).sum();
    for (name, time) in [
        ("an interval, least of the last 60", min.unwrap_or_default()),
        (
            "an interval, mean CPU time of the last 60",
            cpu / settled.len().max(1) as u32,
        ),
    ] {
        println!("{name:<44} {:>8.2} ms", ms(time));
    }
    println!("{:<44} {:>8.1} MiB", "resident", resident_mib() - before);

    let query = |sort, limit| Query {
        sort,
        limit,
        ..Query::default()
    };
    for (name, query) in [
        ("snapshot of all rows", query(Sort::Tree, 0)),
        ("snapshot of the 50 slowest", query(Sort::InsideP95, 50)),
        ("snapshot of the 50 busiest", query(Sort::Rate, 50)),
        ("snapshot of the 50 that grow most", query(Sort::Growth, 50)),
    ] {
        let snapshot = timed(name, || history.snapshot(&query, Meta::default()));
        assert!(snapshot.rows_total >= u64::from(rows));
    }
    let page = Query {
        history: true,
        alerts: true,
        affected: 10,
        total_after_unix_ns: Some(u64::MAX),
        ..query(Sort::Tree, 34)
    };
    // The clock of CPU time may have steps of milliseconds.
    timed("the page 100 times: 34 rows, affected ones", || {
        for _ in 0..100 {
            std::hint::black_box(history.snapshot(&page, Meta::default()));
        }
    });
    timed("detail of a site", || history.detail("site 0", 20));
    let count = timed("rows for export", || history.interval_rows().count());
    println!("{:<44} {count:>8}", "of this number of active rows");
    let state = timed("save", || history.save());
    if let Ok(bytes) = timed("encode", || state.to_bytes()) {
        println!(
            "{:<44} {:>8.1} MiB",
            "state",
            bytes.len() as f64 / 1048576.0
        );
        let state = timed("decode", || {
            fairpath_history::history::State::from_bytes(&bytes)
        });
        println!(
            "{:<44} {:>8}",
            "rows in it",
            state.map_or(0, |state| state.rows())
        );
    }
}
