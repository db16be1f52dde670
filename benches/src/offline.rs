//! Packets per second from a capture: Fairpath, tshark and tcptrace, in turn, on one file.
//!
//! Each computes only what round-trip times need, and its output goes into a
//! file, from which its samples are counted afterwards.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, bail};
use nix::sys::resource::{UsageWho, getrusage};
use serde::Serialize;
use serde_json::Value;

use crate::made;
use crate::measure::{Measured, Target};
use crate::table::{build, grouped};

/// The minimum speed in comparison with the faster peer.
const TARGET: f64 = 3.0;
/// Work of tshark that the comparison excludes.
const TSHARK_EXCLUDES: [&str; 3] = [
    "tcp.desegment_tcp_streams:FALSE",
    "tcp.check_checksum:FALSE",
    "ip.defragment:FALSE",
];

/// The options of the measurement.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Read this capture instead of a made one
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Packets of the made one
    #[arg(long, default_value_t = 2_000_000)]
    packets: usize,
    /// Rounds of all readers
    #[arg(long, default_value_t = 3)]
    rounds: u32,
}

impl Args {
    /// The defaults above.
    pub fn usual() -> Args {
        Args {
            file: None,
            packets: 2_000_000,
            rounds: 3,
        }
    }
}

/// All of it.
#[derive(Debug, Serialize)]
pub struct OfflineReport {
    file: String,
    packets: u64,
    bytes: u64,
    readers: Vec<ReaderRow>,
    targets: Vec<Target>,
}

/// One reader.
#[derive(Debug, Serialize)]
struct ReaderRow {
    name: &'static str,
    command: String,
    pps: Measured,
    /// By the time that its process had a CPU: holds on a busy machine.
    cpu_pps: Measured,
    samples: u64,
}

/// Seconds that one run took.
#[derive(Clone, Copy)]
struct Took {
    wall: f64,
    cpu: f64,
}

#[derive(Clone, Copy)]
enum Reader {
    Fairpath,
    Tshark,
    Tcptrace,
}

const READERS: [Reader; 3] = [Reader::Fairpath, Reader::Tshark, Reader::Tcptrace];

/// Measures it all.
///
/// # Errors
/// Where the bench itself fails: a peer is not installed, a reader fails.
pub fn run(args: &Args) -> anyhow::Result<OfflineReport> {
    if args.rounds == 0 {
        bail!("nothing to measure: give at least one round");
    }
    let fairpath = crate::fairpath()?;
    let dir = tempfile::tempdir().context("make a temporary directory")?;
    let file = match &args.file {
        Some(file) => file.clone(),
        None => {
            let path = dir.path().join("made.pcap");
            let out = File::create(&path).with_context(|| format!("create {path:?}"))?;
            made::write(BufWriter::new(out), args.packets)?;
            path
        }
    };
    let output = dir.path().join("output");
    let mut packets = 0;
    let mut took = READERS.map(|_| Vec::new());
    let mut samples = READERS.map(|_| 0);
    for _ in 0..args.rounds {
        for (i, reader) in READERS.iter().enumerate() {
            eprintln!("fairpath-bench: {}", reader.name());
            took[i].push(timed(reader.command(&fairpath, &file), &output)?);
            samples[i] = reader.samples(&output)?;
            if let Reader::Fairpath = reader {
                packets = last_json(&output)?["packets"]
                    .as_u64()
                    .context("no packets in the summary")?;
            }
        }
    }
    let rows: Vec<ReaderRow> = READERS
        .iter()
        .zip(took)
        .zip(samples)
        .map(|((reader, took), samples)| ReaderRow {
            name: reader.name(),
            command: words(&reader.command(Path::new("fairpath"), Path::new("FILE"))),
            pps: rates(packets, &took, |t| t.wall),
            cpu_pps: rates(packets, &took, |t| t.cpu),
            samples,
        })
        .collect();
    let targets = [
        ("elapsed time", ratio(&rows, |r| &r.pps)),
        ("CPU time", ratio(&rows, |r| &r.cpu_pps)),
    ];
    Ok(OfflineReport {
        bytes: file.metadata().with_context(|| format!("{file:?}"))?.len(),
        file: args
            .file
            .as_ref()
            .map_or_else(|| "made".to_owned(), |file| file.display().to_string()),
        packets,
        readers: rows,
        targets: targets
            .map(|(by, ratio)| {
                let what = format!("offline, a multiple of the faster peer, by {by}");
                Target::at_least(what, ratio, TARGET, "x")
            })
            .into(),
    })
}

fn rates(packets: u64, took: &[Took], time: impl Fn(&Took) -> f64) -> Measured {
    Measured::of(took.iter().map(|t| packets as f64 / time(t)).collect())
}

/// Fairpath's rate as a multiple of the faster peer's.
fn ratio(rows: &[ReaderRow], rate: impl Fn(&ReaderRow) -> &Measured) -> f64 {
    let median = |i: usize| rate(&rows[i]).median;
    median(0) / median(1).max(median(2))
}

impl Reader {
    fn name(self) -> &'static str {
        match self {
            Reader::Fairpath => "fairpath",
            Reader::Tshark => "tshark",
            Reader::Tcptrace => "tcptrace",
        }
    }

    fn command(self, fairpath: &Path, file: &Path) -> Command {
        let mut command = match self {
            Reader::Fairpath => Command::new(fairpath),
            Reader::Tshark => Command::new("tshark"),
            Reader::Tcptrace => Command::new("tcptrace"),
        };
        match self {
            Reader::Fairpath => {
                command.args(["rtt", "--quiet", "--format", "json", "-r"]);
                command.arg(file);
            }
            Reader::Tshark => {
                command.arg("-n");
                for option in TSHARK_EXCLUDES {
                    command.args(["-o", option]);
                }
                command.arg("-r").arg(file);
                command.args(["-T", "fields", "-e", "frame.number"]);
                command.args(["-e", "tcp.analysis.ack_rtt"]);
            }
            Reader::Tcptrace => {
                command.args(["-r", "-n", "-l"]).arg(file);
            }
        }
        command
    }

    /// Round-trip times found, from what was printed.
    fn samples(self, output: &Path) -> anyhow::Result<u64> {
        if let Reader::Fairpath = self {
            let samples = &last_json(output)?["samples"];
            return samples.as_u64().context("no samples in the summary");
        }
        let mut samples = 0;
        for line in lines(output)? {
            let line = line.context("read the output")?;
            samples += match self {
                Reader::Tshark => u64::from(
                    line.split_once('\t')
                        .is_some_and(|(_, rtt)| !rtt.is_empty()),
                ),
                _ => traced(&line),
            };
        }
        Ok(samples)
    }
}

/// "RTT samples: 12  RTT samples: 0" of both directions.
fn traced(line: &str) -> u64 {
    let behind = line.split("RTT samples:").skip(1);
    behind
        .filter_map(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
        .sum()
}

fn lines(path: &Path) -> anyhow::Result<std::io::Lines<BufReader<File>>> {
    let file = File::open(path).with_context(|| format!("open {path:?}"))?;
    Ok(BufReader::new(file).lines())
}

fn last_json(path: &Path) -> anyhow::Result<Value> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read {path:?}"))?;
    let last = text.lines().last().unwrap_or_default();
    serde_json::from_str(last).with_context(|| format!("read the summary {last:?}"))
}

/// CPU seconds of all children that have ended.
fn children() -> anyhow::Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("read CPU times")?;
    let (user, system) = (usage.user_time(), usage.system_time());
    let micros = 1_000_000 * (user.tv_sec() + system.tv_sec()) + user.tv_usec() + system.tv_usec();
    Ok(micros as f64 / 1e6)
}

fn timed(mut command: Command, output: &Path) -> anyhow::Result<Took> {
    let destination = words(&command);
    let out = File::create(output).with_context(|| format!("create {output:?}"))?;
    let (before, started) = (children()?, Instant::now());
    let ended = command
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(Stdio::piped())
        .output()
        .with_context(|| format!("start `{destination}`; is it installed?"))?;
    let wall = started.elapsed().as_secs_f64();
    if !ended.status.success() {
        let why = String::from_utf8_lossy(&ended.stderr);
        bail!("`{destination}`: {}: {}", ended.status, why.trim());
    }
    Ok(Took {
        wall,
        cpu: children()? - before,
    })
}

fn words(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|w| w.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

impl OfflineReport {
    /// For people.
    pub fn text(&self) -> String {
        let mut out = format!(
            "\nOffline: {} packets, {} MiB ({}); medians, ±half of least to most\n\n",
            grouped(self.packets),
            self.bytes >> 20,
            self.file
        );
        let heads = [
            "reader",
            "kpps",
            "±",
            "ratio",
            "kpps of CPU",
            "ratio",
            "RTT samples",
        ];
        let rows: Vec<_> = self.readers.iter().map(|row| self.row(row)).collect();
        out += &build(&heads, &rows);
        out += "\n";
        out.extend(self.readers.iter().map(|r| format!("  {}\n", r.command)));
        out += "\n";
        out.extend(self.targets.iter().map(Target::text));
        out
    }

    fn row(&self, row: &ReaderRow) -> Vec<String> {
        vec![
            row.name.to_owned(),
            format!("{:.0}", row.pps.median / 1e3),
            format!("{:.0} %", 100.0 * row.pps.spread()),
            format!("{:.2}", self.readers[0].pps.median / row.pps.median),
            format!("{:.0}", row.cpu_pps.median / 1e3),
            format!("{:.2}", self.readers[0].cpu_pps.median / row.cpu_pps.median),
            grouped(row.samples),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_both_directions_are_counted() {
        let line = "     RTT samples:             12           RTT samples:              3";
        assert_eq!(traced(line), 15);
        assert_eq!(traced("     RTT min:    1.0 ms"), 0);
    }
}
