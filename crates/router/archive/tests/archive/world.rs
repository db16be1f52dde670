//! A monitor with clocks, counters and samples that tests set, and the raw samples themselves.

use std::collections::BTreeMap;

use fairpath_core::{Cell, ClassCounts, DOWN, INSIDE, OUTSIDE, UP, bucket_of};
use fairpath_history::Histogram;
use fairpath_history::history::{History, IntervalCounts, Moment, Reading, RowSpec, Settings};
use fairpath_history::series::{Series, SeriesPoint, SeriesQuery};
use fairpath_history::snapshot::Kind;

pub const SECOND: u64 = 1_000_000_000;
pub const MINUTE: u64 = 60 * SECOND;
pub const HOUR: u64 = 60 * MINUTE;
pub const DAY: u64 = 24 * HOUR;
/// A Unix time, not at the begin of any step.
pub const THEN: u64 = 1_800_000_123 * SECOND + 456_789;
const LEGS: [usize; 2] = [INSIDE, OUTSIDE];

/// Traffic of a row in an interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Traffic {
    pub bytes: [u64; 2],
    pub rtts: [Vec<u64>; 2],
    pub data: u64,
    pub lost: u64,
}

/// An interval, as it was.
#[derive(Clone, Debug)]
pub struct Raw {
    pub unix_ns: u64,
    pub length_ns: u64,
    pub rows: BTreeMap<String, Traffic>,
}

pub struct World {
    pub now: Moment,
    pub raw: Vec<Raw>,
    history: History,
    counts: Vec<ClassCounts>,
    names: Vec<String>,
}

impl World {
    pub fn new(names: &[&str]) -> World {
        let now = Moment {
            unix_ns: THEN,
            mono_ns: 5 * SECOND,
        };
        let mut world = World {
            now,
            raw: Vec::new(),
            history: History::new(Settings::default(), now),
            counts: Vec::new(),
            names: Vec::new(),
        };
        world.configure(names);
        world
    }

    /// Sets the rows: classes.
    pub fn configure(&mut self, names: &[&str]) {
        self.names = names.iter().map(|name| (*name).to_owned()).collect();
        self.counts = vec![ClassCounts::default(); names.len()];
        self.history = History::new(Settings::default(), self.now);
        let row = |(slot, name): (usize, &String)| RowSpec {
            slot: slot as u32,
            name: name.clone(),
            kind: Kind::Class,
            ..RowSpec::default()
        };
        let rows = self.names.iter().enumerate().map(row).collect();
        self.history.configure(rows, &self.counts).unwrap();
    }

    /// An interval with traffic of some rows, by index.
    pub fn interval(&mut self, length_ns: u64, traffic: Vec<(usize, Traffic)>) -> IntervalCounts {
        let raw = Raw {
            unix_ns: self.now.unix_ns,
            length_ns,
            rows: traffic
                .iter()
                .map(|(row, t)| (self.names[*row].clone(), t.clone()))
                .collect(),
        };
        self.raw.push(raw);
        let mut cells = BTreeMap::<(u32, u8, u16), u32>::new();
        for (row, traffic) in traffic {
            let counts = &mut self.counts[row];
            for dir in [UP, DOWN] {
                counts.dir[dir].bytes += traffic.bytes[dir];
                counts.dir[dir].packets += traffic.bytes[dir] / 1000;
            }
            counts.dir[DOWN].data_packets += traffic.data as u32;
            counts.dir[DOWN].retransmitted_packets += traffic.lost as u32;
            for leg in LEGS {
                for rtt in &traffic.rtts[leg] {
                    counts.leg[leg].samples += 1;
                    counts.leg[leg].sum_ns += rtt;
                    *cells
                        .entry((row as u32, leg as u8, bucket_of(*rtt)))
                        .or_default() += 1;
                }
            }
        }
        self.now.unix_ns += length_ns;
        self.now.mono_ns += length_ns;
        let cell = |((slot, leg, bucket), count)| Cell {
            slot,
            leg,
            bucket,
            count,
        };
        self.history.take(&Reading {
            unix_ns: self.now.unix_ns,
            mono_ns: self.now.mono_ns,
            counts: &self.counts,
            cells: &cells.into_iter().map(cell).collect::<Vec<_>>(),
            pairs: &[],
        });
        self.history.interval_counts()
    }
}

/// A question about a class.
pub fn question(name: &str, since_unix_ns: u64, until_unix_ns: u64, step_ns: u64) -> SeriesQuery {
    SeriesQuery {
        name: name.to_owned(),
        kind: None,
        since_unix_ns,
        until_unix_ns,
        step_ns: Some(step_ns),
    }
}

/// The slow, obvious answer.
fn recomputed(raw: &[&Raw], name: &str) -> (Traffic, [Histogram; 2], [u64; 2]) {
    let mut sum = Traffic::default();
    let mut histograms = <[Histogram; 2]>::default();
    let mut peak = [0; 2];
    for interval in raw {
        let Some(traffic) = interval.rows.get(name) else {
            continue;
        };
        for dir in [UP, DOWN] {
            sum.bytes[dir] += traffic.bytes[dir];
            let rate = (traffic.bytes[dir] as f64 * 8e9 / interval.length_ns as f64) as u64;
            peak[dir] = peak[dir].max(rate);
        }
        sum.data += traffic.data;
        sum.lost += traffic.lost;
        for leg in LEGS {
            for rtt in &traffic.rtts[leg] {
                sum.rtts[leg].push(*rtt);
                histograms[leg].record(*rtt);
            }
        }
    }
    sum.rtts.iter_mut().for_each(|rtts| rtts.sort_unstable());
    (sum, histograms, peak)
}

/// Fails unless a series is what the raw samples are.
pub fn expect(series: &Series, raw: &[Raw], what: &str) {
    let mut begins: Vec<u64> = Vec::new();
    let mut lengths = BTreeMap::<u64, BTreeMap<u64, Vec<&Raw>>>::new();
    let mut of_step = |begin: u64, length: u64| {
        let steps = lengths.entry(length).or_insert_with(|| {
            let mut steps = BTreeMap::<u64, Vec<&Raw>>::new();
            for raw in raw {
                steps
                    .entry(raw.unix_ns / length * length)
                    .or_default()
                    .push(raw);
            }
            steps
        });
        steps.get(&begin).cloned().unwrap_or_default()
    };
    for point in &series.points {
        let raw = of_step(point.unix_ns, point.length_ns);
        let (sum, histograms, peak) = recomputed(&raw, &series.name);
        let at = format!(
            "{what}: {} at {} of {} s",
            series.name,
            point.unix_ns / SECOND,
            point.length_ns / SECOND
        );
        assert_eq!([point.bytes_up, point.bytes_down], sum.bytes, "{at}: bytes");
        assert_eq!(
            [point.peak_up_bps, point.peak_down_bps],
            peak,
            "{at}: peaks"
        );
        let measured: u64 = raw.iter().map(|raw| raw.length_ns).sum();
        assert_eq!(point.measured_ns, measured, "{at}: measured time");
        let mean = sum.bytes[DOWN] as f64 * 8e9 / measured as f64;
        assert!(
            (point.rate_down_bps - mean).abs() <= mean * 1e-9,
            "{at}: rate"
        );
        let loss = (sum.data > 0).then(|| sum.lost as f64 / sum.data as f64);
        assert_eq!(point.inside_loss, loss, "{at}: loss");
        for (leg, samples, given) in legs(point) {
            assert_eq!(samples, sum.rtts[leg].len() as u64, "{at}: samples");
            for (q, given) in [0.5, 0.95, 0.99].into_iter().zip(given) {
                assert_eq!(
                    given,
                    histograms[leg].quantile(q),
                    "{at}: q{q} of the histogram"
                );
                let rank = ((q * samples as f64).ceil() as usize).max(1) - 1;
                let exact = sum.rtts[leg].get(rank);
                let (Some(given), Some(exact)) = (given, exact) else {
                    assert!(given.is_none() && exact.is_none());
                    continue;
                };
                let error = (given as f64 / *exact as f64 - 1.0).abs();
                assert!(error <= 0.03, "{at}: q{q} {given}, exactly {exact}");
            }
        }
        begins.push(point.unix_ns);
    }
    assert!(begins.is_sorted(), "{what}: points are in order");
    // Nothing is missing: the sum of the points is that of the time.
    let inside =
        |raw: &&Raw| raw.unix_ns >= series.since_unix_ns && raw.unix_ns < series.until_unix_ns;
    let mut bytes = [0; 2];
    for traffic in raw
        .iter()
        .filter(inside)
        .filter_map(|raw| raw.rows.get(&series.name))
    {
        bytes[UP] += traffic.bytes[UP];
        bytes[DOWN] += traffic.bytes[DOWN];
    }
    let total = series.total.clone().unwrap_or_default();
    assert_eq!(
        [total.bytes_up, total.bytes_down],
        bytes,
        "{what}: all bytes of {}",
        series.name
    );
}

fn legs(point: &SeriesPoint) -> [(usize, u64, [Option<u64>; 3]); 2] {
    [
        (
            INSIDE,
            point.inside_samples,
            [
                point.inside_p50_rtt_ns,
                point.inside_p95_rtt_ns,
                point.inside_p99_rtt_ns,
            ],
        ),
        (
            OUTSIDE,
            point.outside_samples,
            [
                point.outside_p50_rtt_ns,
                point.outside_p95_rtt_ns,
                point.outside_p99_rtt_ns,
            ],
        ),
    ]
}

/// Splitmix64: pseudo-random numbers from a seed.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    /// Traffic of some of `rows` rows: idle ones, single packets, bursts.
    pub fn traffic(&mut self, rows: usize) -> Vec<(usize, Traffic)> {
        let mut all = Vec::new();
        for row in 0..rows {
            if self.below(3) == 0 {
                continue;
            }
            let mut traffic = Traffic {
                bytes: [self.below(1 << 16), self.below(1 << 24)],
                data: 1 + self.below(500),
                ..Traffic::default()
            };
            traffic.lost = self.below(traffic.data);
            for leg in LEGS {
                let (base, spread) = (1 + self.below(40), 1 + self.below(200));
                for _ in 0..self.below(12) {
                    traffic.rtts[leg].push(base * 1_000_000 + self.below(spread * 1_000_000));
                }
            }
            all.push((row, traffic));
        }
        all
    }
}
