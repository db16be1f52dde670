//! The cost of weeks of counts: bytes in the file, bytes written, CPU time and time of an answer. And
//! bytes of the same rows in Parquet files. In the end, the steps of one class must equal its raw counts, and
//! the file must keep its limit.
//!
//! ```sh
//! cargo run --release -p fairpath-archive --example archive -- [ROWS] [ACTIVE] [DAYS] [INTERVAL_S] [SAMPLES]
//! ```
//!
//! ROWS classes (10,000), of which ACTIVE (2,000) have traffic in every interval, each with SAMPLES
//! RTT samples a second on the inside leg and half of them outside (4), around its own round-trip time,
//! with a tail. Others are active at times, so that each row is active once a day.

use std::path::Path;
use std::time::{Duration, Instant};

use fairpath_archive::{Archive, MAX_BYTES};
use fairpath_core::{Cell, ClassCounts, bucket_of};
use fairpath_export::{ParquetOptions, ParquetWriter};
use fairpath_history::history::{History, Moment, Reading, RowSpec, Settings};
use fairpath_history::series::SeriesQuery;

const SECOND: u64 = 1_000_000_000;
/// Steps of one answer; its maximum is higher.
const STEPS: u64 = 5_000;
/// The class whose raw counts are kept.
const WITNESS: u64 = 7;

/// Packets of both directions, samples of both legs.
type Counted = ([u64; 2], [u64; 2]);

struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// A round-trip time of a class: its own base, jitter with a tail, sometimes a full queue.
fn rtt(dice: &mut Dice, slot: u64) -> u64 {
    let base = 2_000_000 + slot * 7_919 % 40_000_000;
    let jitter = (0..4).map(|_| dice.below(1_000_000)).sum::<u64>();
    let queue = match dice.below(50) {
        0 => dice.below(150_000_000),
        _ => 0,
    };
    base + jitter + queue
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let numbers: Vec<f64> = std::env::args()
        .skip(1)
        .map(|n| n.parse())
        .collect::<Result<_, _>>()?;
    let days = numbers.get(2).copied().unwrap_or(2.0);
    let given = |at: usize, default| numbers.get(at).map_or(default, |n| *n as u64);
    let (rows, active, interval_s, per_second) =
        (given(0, 10_000), given(1, 2_000), given(3, 10), given(4, 4));
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("history");
    let mut archive = Archive::open(&path)?;
    let mut now = Moment {
        unix_ns: 1_800_000_000 * SECOND,
        mono_ns: SECOND,
    };
    let mut counts = vec![ClassCounts::default(); rows as usize];
    let mut history = History::new(Settings::default(), now);
    let row = |slot: u64| RowSpec {
        slot: slot as u32,
        name: format!("subscriber-{slot}"),
        ..RowSpec::default()
    };
    history.configure((0..rows).map(row).collect(), &counts)?;
    let mut dice = Dice(88_172_645_463_325_252);
    let (mut taking, mut last_day, mut size) = (Duration::ZERO, 0, 0);
    let intervals = (days * 86_400.0) as u64 / interval_s;
    let parquet = tempfile::tempdir()?;
    let mut writer = ParquetWriter::open(parquet.path(), ParquetOptions::default())?;
    let mut writing = Duration::ZERO;
    let mut buckets = vec![0u32; 1 << 10];
    let mut raw = Vec::new();
    for interval in 0..intervals {
        let mut cells = Vec::new();
        let before = counts[WITNESS as usize];
        let mut act = |slot: u64, counts: &mut Vec<ClassCounts>| {
            let of = &mut counts[slot as usize];
            for dir in &mut of.dir {
                let bytes = dice.below(200_000 * interval_s);
                dir.bytes += bytes;
                dir.packets += bytes / 900;
                dir.data_packets += (bytes / 1400) as u32;
                dir.retransmitted_packets += u32::from(dice.below(20) == 0);
            }
            for leg in 0..2u8 {
                for _ in 0..per_second * interval_s / (1 + u64::from(leg)) {
                    let rtt = rtt(&mut dice, slot + rows * u64::from(leg));
                    of.leg[usize::from(leg)].samples += 1;
                    of.leg[usize::from(leg)].sum_ns += rtt;
                    buckets[usize::from(bucket_of(rtt))] += 1;
                }
                for (bucket, count) in buckets.iter_mut().enumerate() {
                    if *count > 0 {
                        cells.push(Cell {
                            slot: slot as u32,
                            leg,
                            bucket: bucket as u16,
                            count: std::mem::take(count),
                        });
                    }
                }
            }
        };
        (0..active).for_each(|slot| act(slot, &mut counts));
        let others = rows - active;
        if others > 0 {
            act(active + interval % others, &mut counts);
        }
        let after = &counts[WITNESS as usize];
        let samples = |of: &ClassCounts| of.leg.map(|leg| u64::from(leg.samples));
        let packets = |of: &ClassCounts| of.dir.map(|dir| dir.packets);
        raw.push((
            difference(packets(after), packets(&before)),
            difference(samples(after), samples(&before)),
        ));
        now.unix_ns += interval_s * SECOND;
        now.mono_ns += interval_s * SECOND;
        history.take(&Reading {
            unix_ns: now.unix_ns,
            mono_ns: now.mono_ns,
            counts: &counts,
            cells: &cells,
            pairs: &[],
        });
        let begun = Instant::now();
        let counted = history.interval_counts();
        archive.take(&counted)?;
        taking += begun.elapsed();
        let begun = Instant::now();
        writer.write(history.interval_rows().collect())?;
        writing += begun.elapsed();
        let day = (interval + 1) * interval_s / 86_400;
        if day > last_day {
            last_day = day;
            let before = std::mem::replace(&mut size, archive.counters().bytes);
            println!(
                "day {day}: {:.1} MB, {:+.1}",
                mb(size),
                mb(size) - mb(before)
            );
        }
    }
    let per_interval = taking / intervals.max(1) as u32;
    println!("an interval of {interval_s} s takes {per_interval:?}");
    writer.finish()?;
    let files = std::fs::read_dir(parquet.path())?;
    let sizes = files.map(|file| Ok(file?.metadata()?.len()));
    let bytes: u64 = sizes.sum::<std::io::Result<u64>>()?;
    println!(
        "Parquet: {:.1} MB, {:.1} MB a day, an interval takes {:?}",
        mb(bytes),
        mb(bytes) / days,
        writing / intervals.max(1) as u32
    );
    println!("written: {:.2} GB", written()? as f64 / 1e9);
    report_answers(&archive, now.unix_ns)?;
    println!("{}", memory()?);
    report_files(&path)?;
    check(&archive, now.unix_ns, interval_s, &raw)
}

/// Every step of the class equals what it was given, and the file keeps its limit.
fn check(
    archive: &Archive,
    until: u64,
    interval_s: u64,
    raw: &[Counted],
) -> Result<(), Box<dyn std::error::Error>> {
    let bytes = archive.counters().bytes;
    if bytes > MAX_BYTES {
        return Err(format!("{bytes} bytes exceed the limit of {MAX_BYTES}").into());
    }
    let step_s = interval_s.max(300);
    let since = until - raw.len() as u64 * interval_s * SECOND;
    let each = (step_s / interval_s) as usize;
    let (mut steps, mut wrong, mut from) = (0, 0, since);
    while from < until {
        let to = until.min(from + STEPS * step_s * SECOND);
        let series = archive.series(&SeriesQuery {
            name: format!("subscriber-{WITNESS}"),
            kind: None,
            since_unix_ns: from,
            until_unix_ns: to,
            step_ns: Some(step_s * SECOND),
        })?;
        for point in &series.points {
            let first = ((point.unix_ns - since) / SECOND / interval_s) as usize;
            let end = (first + each).min(raw.len());
            let sum = |of: fn(&Counted) -> u64| raw[first..end].iter().map(of).sum::<u64>();
            let mut packets = [point.packets_up, point.packets_down];
            packets.sort_unstable();
            let mut expected = [sum(|one| one.0[0]), sum(|one| one.0[1])];
            expected.sort_unstable();
            let samples = [point.inside_samples, point.outside_samples];
            let right = [sum(|one| one.1[0]), sum(|one| one.1[1])];
            wrong += u32::from(packets != expected || samples != right);
        }
        (steps, from) = (steps + series.points.len(), to);
    }
    println!(
        "steps of subscriber-{WITNESS}: {steps} of {step_s} s, {wrong} differ from the raw counts"
    );
    match wrong {
        0 => Ok(()),
        _ => Err("steps differ from the raw counts".into()),
    }
}

fn difference(after: [u64; 2], before: [u64; 2]) -> [u64; 2] {
    [after[0] - before[0], after[1] - before[1]]
}

fn report_answers(archive: &Archive, until: u64) -> Result<(), Box<dyn std::error::Error>> {
    for (text, time_s, step_s) in [
        ("5 min by 1 s", 300, 1),
        ("1 h by 10 s", 3_600, 10),
        ("1 day by 1 min", 86_400, 60),
        ("90 days by 5 min, summed to 6 h", 90 * 86_400, 21_600),
    ] {
        let begun = Instant::now();
        let series = archive.series(&SeriesQuery {
            name: "subscriber-7".to_owned(),
            kind: None,
            since_unix_ns: until - time_s * SECOND,
            until_unix_ns: until,
            step_ns: Some(step_s * SECOND),
        })?;
        println!(
            "{text}: {} points in {:?}",
            series.points.len(),
            begun.elapsed()
        );
    }
    Ok(())
}

fn report_files(path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let engine = rusqlite::Connection::open(path)?;
    for (what, query) in [
        (
            "slices",
            "select count(*), coalesce(sum(length(block)), 0) from slice_block",
        ),
        (
            "blocks of hours",
            "select count(*), coalesce(sum(length(block)), 0) from block join segment s on s.id = segment where level = 1",
        ),
        (
            "blocks of days",
            "select count(*), coalesce(sum(length(block)), 0) from block join segment s on s.id = segment where level = 2",
        ),
    ] {
        let (count, bytes): (i64, i64) =
            engine.query_row(query, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
        println!("{what}: {count}, {:.1} MB", bytes as f64 / 1e6);
    }
    Ok(())
}

fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

fn written() -> Result<u64, Box<dyn std::error::Error>> {
    let io = std::fs::read_to_string("/proc/self/io")?;
    let line = io
        .lines()
        .find_map(|line| line.strip_prefix("write_bytes: "));
    Ok(line.unwrap_or("0").parse()?)
}

fn memory() -> std::io::Result<String> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    Ok(status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .unwrap_or_default()
        .to_owned())
}
