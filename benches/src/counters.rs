//! The cost of a packet in the native runtime, counted and not timed: instructions, cache lines,
//! pages and mispredicted branches, by source file of the core.
//!
//! ```text
//!   counters ──> valgrind --tool=cachegrind fairpath-bench counted, with N and 2N packets
//!                                                    │
//!   a packet's share by source file <── difference ──┘  start and preparation cancel out
//! ```
//!
//! A second pair of runs has "cache lines" of a page: a simulated TLB. The figures are the same on
//! every machine with the same compiler, so a test compares them with `counters.toml`.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context, bail, ensure};
use fairpath_core::{Config, Frame, FrameDirection, HEAD_BYTES, Link, Monitor};
use serde::Serialize;

use crate::engine;
use crate::made::Segment;
use crate::table::build;

/// As size, ways, bytes of a line: 32 KiB, and 1 MiB behind. Any data line may be in any of the ways: with 8 ways, lines
/// of unrelated objects may displace each other, which depends on where the linker and the allocator put them.
const CACHES: [&str; 3] = ["--I1=32768,8,64", "--D1=32768,512,64", "--LL=1048576,16,64"];
/// 64 pages of 4 KiB, and 2,048 behind.
const PAGES: [&str; 3] = [
    "--I1=262144,4,4096",
    "--D1=262144,4,4096",
    "--LL=8388608,8,4096",
];
/// Data packets that are sent before the acknowledgement of the first, by flow.
const OUTSTANDING: u32 = 4;
/// Rounds of all flows before the counted ones.
const PREPARE: u32 = 6;
const MSS: u32 = 1_448;
const PACKET_NS: u64 = 1_000;

/// The options of the count.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Counted packets of a run
    #[arg(long, default_value_t = 20_480)]
    packets: u32,
    /// Only cases whose name contains this
    #[arg(long)]
    only: Option<String>,
    /// Count no pages, which takes half the time
    #[arg(long)]
    no_pages: bool,
}

impl Args {
    /// The defaults above.
    pub fn usual() -> Args {
        Args {
            packets: 20_480,
            only: None,
            no_pages: false,
        }
    }
}

/// The options of the counted process.
#[derive(Clone, Debug, clap::Args)]
pub struct CountedArgs {
    /// The name of the case
    case: String,
    /// Packets
    packets: u32,
}

/// Counts of a packet.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Counts {
    instructions: f64,
    /// Data lines that are not in 32 KiB.
    lines: f64,
    /// Data lines that are not in 1 MiB either.
    far_lines: f64,
    /// Data pages that are not among 64.
    pages: f64,
    /// Conditional and indirect branches that a simple predictor gets wrong.
    branches: f64,
}

/// All of it.
#[derive(Debug, Serialize)]
pub struct CountersReport {
    cases: Vec<Case>,
}

#[derive(Debug, Serialize)]
struct Case {
    case: &'static str,
    all: Counts,
    /// By file below `bpf/`.
    files: BTreeMap<String, Counts>,
}

/// The work of a case.
#[derive(Clone, Copy)]
enum Work {
    /// The monitor, with as many flows in turn.
    Monitor(u32),
    /// A case of `engine`.
    Engine,
}

const CASES: [(&str, Work); 8] = [
    ("rtt, 1 flow", Work::Monitor(1)),
    ("rtt, 100 flows", Work::Monitor(100)),
    ("rtt, 1,000 flows", Work::Monitor(1_000)),
    ("rtt, 10,000 flows", Work::Monitor(10_000)),
    ("fifo, 100 flows", Work::Engine),
    ("fq_codel, 100 flows", Work::Engine),
    ("fq_codel, 1,000 flows", Work::Engine),
    ("class tree, 4 levels, 10,000 classes", Work::Engine),
];

/// Counts it all.
///
/// # Errors
/// Valgrind is missing, or its output has another form.
pub fn run(args: &Args) -> anyhow::Result<CountersReport> {
    let wanted = |name: &str| args.only.as_deref().is_none_or(|only| name.contains(only));
    let names = CASES.iter().map(|(name, _)| *name);
    let cases: Vec<Case> = names
        .filter(|name| wanted(name))
        .map(|name| count(name, args).with_context(|| format!("count {name}")))
        .collect::<anyhow::Result<_>>()?;
    ensure!(
        !cases.is_empty() && args.packets > 0,
        "nothing to count: give at least one case and packet"
    );
    Ok(CountersReport { cases })
}

fn count(case: &'static str, args: &Args) -> anyhow::Result<Case> {
    let lines = packet(case, args.packets, CACHES)?;
    let pages = match args.no_pages {
        true => ByFile::new(),
        false => packet(case, args.packets, PAGES)?,
    };
    let mut files = BTreeMap::new();
    for (file, events) in lines {
        let in_pages = pages.get(&file);
        let counts = Counts {
            instructions: events.of(&["Ir"]),
            lines: events.of(&["D1mr", "D1mw"]),
            far_lines: events.of(&["DLmr", "DLmw"]),
            pages: in_pages.map_or(0.0, |events| events.of(&["D1mr", "D1mw"])),
            branches: events.of(&["Bcm", "Bim"]),
        };
        files.insert(file, counts);
    }
    let mut all = Counts::default();
    for counts in files.values() {
        all.instructions += counts.instructions;
        all.lines += counts.lines;
        all.far_lines += counts.far_lines;
        all.pages += counts.pages;
        all.branches += counts.branches;
    }
    Ok(Case { case, all, files })
}

/// Events by their names in cachegrind's output.
#[derive(Clone, Debug, Default, PartialEq)]
struct Events(BTreeMap<String, f64>);

impl Events {
    fn of(&self, names: &[&str]) -> f64 {
        let of = |name: &&str| self.0.get(*name).copied().unwrap_or(0.0);
        names.iter().map(of).sum()
    }
}

type ByFile = BTreeMap<String, Events>;

/// The share of a packet.
fn packet(case: &str, packets: u32, caches: [&str; 3]) -> anyhow::Result<ByFile> {
    let [once, twice] = [1, 2].map(|times| counted_run(case, times * packets, caches));
    let once = once?;
    let mut share = twice?;
    for (file, events) in &mut share {
        for (name, count) in &mut events.0 {
            let before = once.get(file).map_or(0.0, |events| events.of(&[name]));
            *count = (*count - before) / f64::from(packets);
        }
    }
    Ok(share)
}

fn counted_run(case: &str, packets: u32, caches: [&str; 3]) -> anyhow::Result<ByFile> {
    let directory = tempfile::tempdir().context("create a directory for the counts")?;
    let out = directory.path().join("counts");
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=cachegrind", "--cache-sim=yes", "--branch-sim=yes"])
        .args(caches)
        .arg(format!("--cachegrind-out-file={}", out.display()))
        .arg(std::env::current_exe()?)
        .args(["counted", case, &packets.to_string()]);
    // The environment is on the stack, and would move it.
    let path = std::env::var_os("PATH").unwrap_or_default();
    command.env_clear().env("PATH", path);
    let output = command
        .output()
        .context("start valgrind: is it installed? `setup/needs bench` installs it")?;
    if !output.status.success() {
        bail!("valgrind: {}", String::from_utf8_lossy(&output.stderr));
    }
    let text = std::fs::read_to_string(&out).context("read the counts of cachegrind")?;
    parse(&text)
}

/// Sums of the files of the core; callers and libraries are excluded.
fn parse(text: &str) -> anyhow::Result<ByFile> {
    let (mut names, mut file) = (Vec::new(), None);
    let mut files = ByFile::new();
    for line in text.lines() {
        if let Some(events) = line.strip_prefix("events: ") {
            names = events.split_whitespace().map(str::to_owned).collect();
        } else if let Some(path) = line.strip_prefix("fl=") {
            file = core_file(path);
        } else if let (Some(file), true) = (&file, line.starts_with(|c: char| c.is_ascii_digit())) {
            let counts = line.split_whitespace().skip(1);
            let events = files.entry(file.clone()).or_default();
            for (name, count) in names.iter().zip(counts) {
                let count: f64 = count.parse().context("read a count of cachegrind")?;
                *events.0.entry(name.clone()).or_default() += count;
            }
        }
    }
    ensure!(
        !files.is_empty(),
        "the counts name no file of the core: was it built without line tables?"
    );
    Ok(files)
}

/// The path below the folder of the core, or of its runtime.
fn core_file(path: &str) -> Option<String> {
    let is_c = path.ends_with(".c") || path.ends_with(".h");
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let folder = parts
        .iter()
        .rposition(|part| ["core", "bpf"].contains(part))?;
    is_c.then(|| parts[folder + 1..].join("/"))
}

/// Runs a case, which valgrind counts.
///
/// # Errors
/// There is no such case, or it cannot run.
pub fn counted(args: &CountedArgs) -> anyhow::Result<()> {
    let found = CASES.iter().find(|(name, _)| *name == args.case);
    match found {
        Some((_, Work::Monitor(flows))) => Downloads::new(*flows)?.run(args.packets),
        Some((name, Work::Engine)) => engine::keep_busy(name, args.packets),
        None => bail!("{}: no such case", args.case),
    }
}

/// Downloads through a monitored interface. Flows take turns; each data packet is followed by the
/// acknowledgement of an earlier one of its flow.
struct Downloads {
    monitor: Monitor,
    flows: u32,
    round: u32,
    flow: u32,
    now: u64,
    /// Times of the outstanding data packets of each flow.
    sent: Vec<[u64; OUTSTANDING as usize + 1]>,
    bytes: Vec<u8>,
}

impl Downloads {
    fn new(flows: u32) -> anyhow::Result<Downloads> {
        let mut monitor = Monitor::new(&Config::default().with_flows((2 * flows).max(65_536)));
        monitor.expire_by_hand();
        let mut downloads = Downloads {
            monitor,
            flows,
            round: 0,
            flow: 0,
            now: 1_000_000_000,
            sent: vec![[0; OUTSTANDING as usize + 1]; flows as usize],
            bytes: Vec::new(),
        };
        while downloads.round < PREPARE {
            downloads.turn()?;
        }
        Ok(downloads)
    }

    fn run(&mut self, packets: u32) -> anyhow::Result<()> {
        let before = self.monitor.stats().samples_seq;
        for _ in 0..packets / 2 {
            self.turn()?;
        }
        let taken = self.monitor.stats().samples_seq - before;
        ensure!(
            taken == u64::from(packets / 2),
            "{taken} samples of {} acknowledgements",
            packets / 2
        );
        Ok(())
    }

    /// A data packet and an acknowledgement of one flow.
    fn turn(&mut self) -> anyhow::Result<()> {
        self.packet(true, self.round)?;
        if let Some(acked) = self.round.checked_sub(OUTSTANDING) {
            self.packet(false, acked)?;
        }
        self.flow += 1;
        if self.flow == self.flows {
            (self.flow, self.round) = (0, self.round + 1);
        }
        Ok(())
    }

    fn packet(&mut self, data: bool, round: u32) -> anyhow::Result<()> {
        self.now += PACKET_NS;
        let begin = 1 + round * MSS;
        let (flow, slot) = (self.flow as usize, (round % (OUTSTANDING + 1)) as usize);
        let segment = if data {
            Segment::server(begin, MSS, self.now)
        } else {
            Segment::ack(begin + MSS, self.now, self.sent[flow][slot])
        };
        if data {
            self.sent[flow][slot] = self.now;
        }
        let wire_len = segment.of_flow(self.flow).emit(&mut self.bytes);
        let direction = if data {
            FrameDirection::Out
        } else {
            FrameDirection::In
        };
        let frame = Frame {
            now: self.now,
            wire_len,
            ifindex: 1,
            link: Link::Ethernet as u16,
            direction: direction as u8,
            ..Frame::default()
        };
        let head = self.bytes.len().min(HEAD_BYTES);
        self.monitor.frame(&frame, &self.bytes[..head], |_| ());
        Ok(())
    }
}

impl CountersReport {
    /// For people.
    pub fn text(&self) -> String {
        let heads = [
            "file",
            "instructions",
            "lines",
            "far lines",
            "pages",
            "branches",
        ];
        let row = |name: &str, counts: &Counts| {
            let Counts {
                instructions,
                lines,
                far_lines,
                pages,
                branches,
            } = counts;
            vec![
                name.to_owned(),
                format!("{instructions:.1}"),
                format!("{lines:.2}"),
                format!("{far_lines:.2}"),
                format!("{pages:.2}"),
                format!("{branches:.2}"),
            ]
        };
        let mut text = String::from(
            "\ncounts of a packet, natively (lines: data not in 32 KiB, far: not in 1 MiB; pages: not among 64; branches: mispredicted)\n",
        );
        for case in &self.cases {
            let mut files: Vec<_> = case.files.iter().collect();
            files.retain(|(_, counts)| counts.instructions >= 0.05);
            files.sort_by(|a, b| b.1.instructions.total_cmp(&a.1.instructions));
            let mut rows = vec![row("all", &case.all)];
            rows.extend(files.into_iter().map(|(file, counts)| row(file, counts)));
            text += &format!("\n  {}\n{}", case.case, build(&heads, &rows));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_summed_by_file_of_the_core() {
        let text = "desc: x\nevents: Ir D1mr\n\
            fl=/a/model/core/../../b/core/rtt/tcp.h\nfn=f\n7 10 1\n8 5 0\n\
            fl=/core/src/main.rs\nfn=g\n7 100 1\n\
            fl=/a/b/core/rtt/tcp.h\nfn=h\n7 1 1\nsummary: 116 3\n";
        let files = parse(text).unwrap();
        assert_eq!(files.len(), 1);
        assert_eq!(files["rtt/tcp.h"].of(&["Ir"]), 16.0);
        assert_eq!(files["rtt/tcp.h"].of(&["Ir", "D1mr"]), 18.0);
        assert!(parse("events: Ir\nfl=/a/main.rs\n1 1\n").is_err());
    }
}
