//! Rules: seconds from text to an image, and nanoseconds of a packet, natively and in the kernel.
//!
//! ```text
//!   made.rs   the sets: 100 chains of 1,000 rules, a tree of 662,160, prefixes, flows
//!   edits.rs  edits of a chain of 1,000 rules in the tree
//!   hooks.rs  loaded rules on real packets   replace.rs  a chain of them is replaced
//!   early.rs  a blocklist in the driver    fanned.rs     a tree of chains on random destinations
//!   load      in a separate process, which has its own peak memory
//! ```

pub mod early;
mod edits;
pub mod fanned;
pub mod hooks;
mod made;
pub mod replace;

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, bail};
use fairpath_bpf::{KernelRules, STREAM_BYTES};
use fairpath_core::rules::{CounterMode, Evaluator, Work};
use fairpath_rules::image::{Built, Lookups, build};
use fairpath_rules::{Connection, Facts, Family, Hook, Names, Packet, Ruleset, fill, read};
use fairpath_statistics::Random;
use fairpath_testbed::Testbed;
use serde::Serialize;

use crate::measure::{Measured, Target, thread_ns};
use crate::table::{build as table, grouped};

/// Packets of a round.
const PACKETS: usize = 1 << 15;

/// The options of the measurement.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Rounds of each case
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Not in the kernel, and without peers
    #[arg(long)]
    native: bool,
    /// Not the sets of 662,160 rules
    #[arg(long)]
    small: bool,
}

impl Args {
    /// The defaults above.
    pub fn usual() -> Args {
        Args {
            rounds: 5,
            native: false,
            small: false,
        }
    }
}

/// Prints a generated set.
#[derive(Clone, Debug, clap::Args)]
pub struct MakeArgs {
    /// Which
    #[arg(value_enum)]
    set: MadeSet,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum MadeSet {
    /// 100 chains of 1,000 IPv6 rules
    Flat,
    /// 67,892 rules in 18,329 chains
    Medium,
    /// 662,160 rules in 151,426 chains
    Large,
    /// 100,000 prefixes in one chain
    Prefixes,
    /// 100,000 prefixes of all lengths that are nested
    Nested,
}

/// Prints a set.
///
/// # Errors
/// Standard output is closed.
pub fn make(args: &MakeArgs) -> anyhow::Result<()> {
    let made = match args.set {
        MadeSet::Flat => made::flat(100, 1000),
        MadeSet::Medium => made::fanned(67_892, 18_329),
        MadeSet::Large => made::fanned(662_160, 151_426),
        MadeSet::Prefixes => made::prefixes(100_000, 3).0,
        MadeSet::Nested => made::nested(100_000, 3).0,
    };
    std::io::Write::write_all(&mut std::io::stdout().lock(), made.text.as_bytes())?;
    Ok(())
}

/// Reads a file and builds its image; prints seconds and peak memory.
#[derive(Clone, Debug, clap::Args)]
pub struct LoadArgs {
    file: std::path::PathBuf,
    #[arg(long)]
    ipv6: bool,
    #[arg(long)]
    no_optimise: bool,
}

/// The numbers of a load.
#[derive(Debug, Serialize, serde::Deserialize)]
struct Load {
    seconds: f64,
    read_seconds: f64,
    image_bytes: usize,
    /// Peak of the process less that before it read the file.
    peak_bytes: u64,
}

fn peak() -> anyhow::Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .context("the kernel reports no peak memory")?;
    let kib: u64 = line
        .split_whitespace()
        .nth(1)
        .context("peak memory has no number")?
        .parse()?;
    Ok(kib * 1024)
}

/// Runs a load in this process.
///
/// # Errors
/// The file cannot be read.
pub fn load(args: &LoadArgs) -> anyhow::Result<()> {
    let before = peak()?;
    let family = if args.ipv6 {
        Family::Ipv6
    } else {
        Family::Ipv4
    };
    let names = Names::default();
    let start = Instant::now();
    let mut file = std::io::BufReader::with_capacity(1 << 16, fs::File::open(&args.file)?);
    let ruleset = read(&mut file, "file", family, &names)?.complete()?;
    let read_seconds = start.elapsed().as_secs_f64();
    let lookups = match args.no_optimise {
        true => Lookups::Never,
        false => Lookups::Estimated,
    };
    let built = build(&ruleset, None, lookups)?;
    let seconds = start.elapsed().as_secs_f64();
    let load = Load {
        seconds,
        read_seconds,
        image_bytes: built.image.len(),
        peak_bytes: peak()? - before,
    };
    println!("{}", serde_json::to_string(&load)?);
    Ok(())
}

/// A row of loads.
#[derive(Debug, Serialize)]
struct LoadRow {
    set: String,
    text_bytes: usize,
    seconds: Measured,
    read_seconds: Measured,
    image_bytes: usize,
    peak_bytes: u64,
    legacy_seconds: Option<f64>,
    nft_seconds: Option<f64>,
}

/// A row of commands with the tree of 662,160 rules.
#[derive(Debug, Serialize)]
struct CommandRow {
    command: String,
    seconds: Measured,
}

/// A row of evaluations.
#[derive(Debug, Serialize)]
struct PacketRow {
    case: String,
    native: Measured,
    kernel: Option<Measured>,
    rules: f64,
}

/// A row of counter modes: a packet in one mode, and its ratio to mode none.
#[derive(Debug, Serialize)]
struct CounterRow {
    case: String,
    native: Measured,
    native_ratio: Measured,
    kernel: Option<Measured>,
    kernel_ratio: Option<Measured>,
}

/// The report.
#[derive(Debug, Serialize)]
pub struct RulesReport {
    loads: Vec<LoadRow>,
    commands: Vec<CommandRow>,
    packets: Vec<PacketRow>,
    counters: Vec<CounterRow>,
    edits: Vec<edits::EditRow>,
    targets: Vec<Target>,
}

fn measure_load(
    name: &str,
    made: &made::Made,
    family: Family,
    args: &Args,
) -> anyhow::Result<LoadRow> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("rules");
    fs::write(&path, &made.text)?;
    let mut loads = Vec::new();
    for _ in 0..args.rounds {
        let mut child = Command::new(std::env::current_exe()?);
        child.arg("rules-load").arg(&path);
        if family == Family::Ipv6 {
            child.arg("--ipv6");
        }
        let output = child.output()?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr));
        }
        loads.push(serde_json::from_slice::<Load>(&output.stdout)?);
    }
    let last = loads.last().context("at least one round")?;
    let (image_bytes, peak_bytes) = (last.image_bytes, last.peak_bytes);
    let peers = if args.native {
        (None, None)
    } else {
        peers(&path, family)?
    };
    Ok(LoadRow {
        set: format!(
            "{name}: {} rules, {} chains",
            grouped(made.rules as u64),
            grouped(made.chains as u64)
        ),
        text_bytes: made.text.len(),
        seconds: Measured::of(loads.iter().map(|load| load.seconds).collect()),
        read_seconds: Measured::of(loads.iter().map(|load| load.read_seconds).collect()),
        image_bytes,
        peak_bytes,
        legacy_seconds: peers.0,
        nft_seconds: peers.1,
    })
}

/// Seconds of commands with a set, as users start them.
fn measure_commands(made: &made::Made, args: &Args) -> anyhow::Result<Vec<CommandRow>> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("rules");
    fs::write(&path, &made.text)?;
    let packet = "--src 10.0.0.1 --dst 20.5.7.17 -i eth0 -o eth1";
    let commands = [("check", ""), ("stats", ""), ("explain", packet)];
    let row = |(command, options): (&str, &str)| {
        let mut each = Vec::new();
        for _ in 0..args.rounds {
            let start = Instant::now();
            let output = Command::new(crate::fairpath()?)
                .args(["rules", command])
                .arg(&path)
                .args(options.split_whitespace())
                .output()?;
            // 1: it has findings, or a packet is not known.
            if !matches!(output.status.code(), Some(0 | 1)) {
                bail!("{}", String::from_utf8_lossy(&output.stderr));
            }
            each.push(start.elapsed().as_secs_f64());
        }
        Ok(CommandRow {
            command: format!("fairpath rules {command} of the tree"),
            seconds: Measured::of(each),
        })
    };
    commands.into_iter().map(row).collect()
}

/// Seconds of both restore tools with the same file, each in its own namespace.
fn peers(path: &Path, family: Family) -> anyhow::Result<(Option<f64>, Option<f64>)> {
    let testbed = Testbed::new();
    let mut seconds = [None, None];
    for (kind, at) in [("legacy", 0), ("nft", 1)] {
        let tool = format!("{}-{kind}-restore", family.tool());
        let netns = testbed.netns(kind)?;
        let start = Instant::now();
        let path = path.to_str().context("a path in UTF-8")?;
        if netns.run(&[&tool, path]).is_ok() {
            seconds[at] = Some(start.elapsed().as_secs_f64());
        }
    }
    Ok((seconds[0], seconds[1]))
}

fn rules(made: &made::Made, family: Family) -> anyhow::Result<Ruleset> {
    let names = Names::default();
    Ok(read(&mut made.text.as_bytes(), "made", family, &names)?.complete()?)
}

/// A TCP segment.
fn tcp(source: u32, destination: u32, from: u16, to: u16) -> Vec<u8> {
    let mut bytes = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0];
    bytes.extend_from_slice(&source.to_be_bytes());
    bytes.extend_from_slice(&destination.to_be_bytes());
    bytes.extend_from_slice(&from.to_be_bytes());
    bytes.extend_from_slice(&to.to_be_bytes());
    bytes.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 0, 0, 0, 0, 0, 0]);
    bytes
}

fn work_of(family: Family, bytes: &[u8]) -> Box<Work> {
    let mut work = Work::new();
    let packet = Packet {
        family,
        bytes,
        network: 0,
        length: bytes.len(),
        facts: Facts {
            input: Some(b"eth0"[..].into()),
            output: Some(b"eth1"[..].into()),
            connection: Some(Connection {
                state: 2,
                ..Connection::default()
            }),
            source_type: Some(2),
            destination_type: Some(2),
            packet_type: Some(0),
            reverse_path: Some(true),
            ..Facts::default()
        },
    };
    fill(&mut work, &packet);
    // Without a link-layer header: no rule here matches one.
    work.unknown = [0; 16];
    work.slow = 0;
    work
}

/// Nanoseconds of a processor for a packet, natively; and the rules that it met.
fn native(
    built: &Built,
    packets: &[Vec<u8>],
    rounds: u32,
    mode: CounterMode,
) -> anyhow::Result<(Measured, f64)> {
    let mut evaluator = Evaluator::new(&built.image, &built.states, mode)?;
    let mut work = work_of(Family::Ipv4, &packets[0]);
    let mut each = Vec::new();
    let mut met = 0u64;
    for round in 0..=rounds {
        let start = thread_ns()?;
        for packet in packets {
            work.head[..packet.len()].copy_from_slice(packet);
            work.word[fairpath_core::rules::word::META] = 2;
            work.slow = 0;
            work.length = packet.len() as u32;
            work.captured = packet.len() as u32;
            work.evaluated = 0;
            if !evaluator.read(&mut work) {
                bail!("a packet of the bench is not read");
            }
            evaluator.evaluate(Hook::Forward as u32, &mut work);
            met += u64::from(work.evaluated);
            black_box(work.verdict);
        }
        if round > 0 {
            each.push((thread_ns()? - start) / packets.len() as f64);
        }
    }
    let met = met as f64 / f64::from(rounds + 1) / packets.len() as f64;
    Ok((Measured::of(each), met))
}

/// The same in the kernel.
fn kernel(
    built: &Built,
    packets: &[Vec<u8>],
    rounds: u32,
    mode: CounterMode,
) -> anyhow::Result<Measured> {
    let mut kernel = KernelRules::load(&built.image, &built.states, mode)?;
    let work = work_of(Family::Ipv4, &packets[0]);
    let heads: Vec<[u8; STREAM_BYTES]> = packets
        .iter()
        .map(|packet| {
            let mut head = [0; STREAM_BYTES];
            head[..packet.len()].copy_from_slice(packet);
            head
        })
        .collect();
    let mut each = Vec::new();
    for round in 0..=rounds {
        let start = thread_ns()?;
        // A run may take a quarter of a second.
        for part in heads.chunks(4096) {
            kernel.stream(Hook::Forward as u32, &work, packets[0].len() as u32, part)?;
        }
        if round > 0 {
            each.push((thread_ns()? - start) / packets.len() as f64);
        }
    }
    Ok(Measured::of(each))
}

/// Measures it all.
///
/// # Errors
/// Where the bench itself fails: programs that do not load.
pub fn run(args: &Args) -> anyhow::Result<RulesReport> {
    let mut loads = vec![measure_load(
        "flat, IPv6",
        &made::flat(100, 1000),
        Family::Ipv6,
        args,
    )?];
    let mut commands = Vec::new();
    if !args.small {
        let large = made::fanned(662_160, 151_426);
        loads.push(measure_load("tree", &large, Family::Ipv4, args)?);
        commands = measure_commands(&large, args)?;
    }
    let mut packets = Vec::new();
    packets.push(memory(args)?);
    linear(args, &mut packets)?;
    tree(args, &mut packets)?;
    lookups(args, &mut packets)?;
    let mut counters = Vec::new();
    counter_modes(args, &mut counters)?;
    let edits = edits::edits(args)?;
    let mut targets = targets(&loads, &packets);
    targets.extend(edits::targets(&edits));
    for row in &commands {
        let (name, seconds) = (row.command.clone(), row.seconds.median);
        targets.push(Target::at_most(name, seconds, 5.0, "s"));
    }
    Ok(RulesReport {
        loads,
        commands,
        packets,
        counters,
        edits,
        targets,
    })
}

/// Bytes of a cache line, and of the memory of the comparison.
const LINE: usize = 64;
const MEMORY: usize = 16 << 20;

/// For comparison: loads at random places that depend on each other. A lookup in large tables has
/// several, and their time differs by a factor of three between machines and neighbours.
fn memory(args: &Args) -> anyhow::Result<PacketRow> {
    let mut random = Random::new(13);
    // One cycle through all lines (Sattolo).
    let mut next: Vec<u32> = (0..(MEMORY / LINE) as u32).collect();
    for at in (1..next.len()).rev() {
        next.swap(at, random.draw() as usize % at);
    }
    let mut lines = vec![[0u32; LINE / 4]; next.len()];
    for (line, next) in lines.iter_mut().zip(&next) {
        line[0] = *next;
    }
    let mut each = Vec::new();
    for round in 0..=args.rounds {
        let start = thread_ns()?;
        let mut at = 0;
        for _ in 0..lines.len() {
            at = lines[at as usize][0];
        }
        black_box(at);
        if round > 0 {
            each.push((thread_ns()? - start) / lines.len() as f64);
        }
    }
    Ok(PacketRow {
        case: "for comparison: a load from 16 MiB".to_owned(),
        native: Measured::of(each),
        kernel: None,
        rules: 0.0,
    })
}

/// Rules in order that do not match: the difference of 1,000 and 100 rules.
fn linear(args: &Args, rows: &mut Vec<PacketRow>) -> anyhow::Result<()> {
    for (case, rule) in [
        ("IPv4 -s -d", "-s 10.0.0.1 -d 10.0.0.2 -j DROP"),
        ("IPv4 -p udp --dport", "-p udp -m udp --dport 53 -j DROP"),
        ("IPv4 -i", "-i ppp0 -j DROP"),
    ] {
        let mut measured = Vec::new();
        for count in [100, 1000] {
            let mut text = String::from("*filter\n:FORWARD ACCEPT [0:0]\n");
            for _ in 0..count {
                text.push_str("-A FORWARD ");
                text.push_str(rule);
                text.push('\n');
            }
            text.push_str("COMMIT\n");
            let made = made::Made {
                text,
                rules: count,
                chains: 3,
            };
            let built = build(&rules(&made, Family::Ipv4)?, None, Lookups::Never)?;
            let packet = vec![tcp(0x0b00_0001, 0x0c00_0001, 1000, 80); 4096];
            let (native_ns, _) = native(&built, &packet, args.rounds, CounterMode::Exact)?;
            let kernel_ns = if args.native {
                None
            } else {
                Some(kernel(&built, &packet, args.rounds, CounterMode::Exact)?)
            };
            measured.push((native_ns, kernel_ns));
        }
        let per =
            |few: &Measured, many: &Measured| many.pairs(few, |many, few| (many - few) / 900.0);
        rows.push(PacketRow {
            case: format!("a rule that does not match, {case}"),
            native: per(&measured[0].0, &measured[1].0),
            kernel: match (&measured[0].1, &measured[1].1) {
                (Some(few), Some(many)) => Some(per(few, many)),
                _ => None,
            },
            rules: 1.0,
        });
    }
    Ok(())
}

fn tree(args: &Args, rows: &mut Vec<PacketRow>) -> anyhow::Result<()> {
    let sizes: &[(usize, usize)] = if args.small {
        &[(67_892, 18_329)]
    } else {
        &[(67_892, 18_329), (662_160, 151_426)]
    };
    for (count, chains) in sizes {
        let made = made::fanned(*count, *chains);
        let built = build(&rules(&made, Family::Ipv4)?, None, Lookups::Never)?;
        let mut random = Random::new(7);
        let packets: Vec<Vec<u8>> = (0..PACKETS)
            .map(|_| {
                tcp(
                    0x0a00_0001,
                    made::fanned_destination(*chains, &mut random),
                    1000,
                    80,
                )
            })
            .collect();
        let (native_ns, met) = native(&built, &packets, args.rounds, CounterMode::Exact)?;
        let kernel_ns = if args.native {
            None
        } else {
            Some(kernel(&built, &packets, args.rounds, CounterMode::Exact)?)
        };
        rows.push(PacketRow {
            case: format!(
                "tree of {} rules, random destinations",
                grouped(*count as u64)
            ),
            native: native_ns,
            kernel: kernel_ns,
            rules: met,
        });
    }
    Ok(())
}

fn lookups(args: &Args, rows: &mut Vec<PacketRow>) -> anyhow::Result<()> {
    let mut random = Random::new(11);
    for (case, (made, addresses), hosts) in [
        ("100,000 prefixes", made::prefixes(100_000, 3), 0xff),
        ("100,000 nested prefixes", made::nested(100_000, 3), 0),
    ] {
        let packets = (0..PACKETS)
            .map(|_| {
                let at = random.draw() as usize % addresses.len();
                let host = random.draw() as u32 & hosts;
                tcp(addresses[at] | host, 0x0a00_0001, 1000, 80)
            })
            .collect::<Vec<_>>();
        lookup_row(&format!("{case}, optimised"), &made, &packets, args, rows)?;
    }
    let (made, flows) = made::flows(100_000, 5);
    let packets = (0..PACKETS)
        .map(|_| {
            let (source, destination, from, to) = flows[random.draw() as usize % flows.len()];
            tcp(source, destination, from, to)
        })
        .collect::<Vec<_>>();
    lookup_row("100,000 flows, optimised", &made, &packets, args, rows)
}

fn lookup_row(
    case: &str,
    made: &made::Made,
    packets: &[Vec<u8>],
    args: &Args,
    rows: &mut Vec<PacketRow>,
) -> anyhow::Result<()> {
    let built = build(&rules(made, Family::Ipv4)?, None, Lookups::default())?;
    let (native_ns, met) = native(&built, packets, args.rounds, CounterMode::Exact)?;
    let kernel_ns = if args.native {
        None
    } else {
        Some(kernel(&built, packets, args.rounds, CounterMode::Exact)?)
    };
    rows.push(PacketRow {
        case: case.to_owned(),
        native: native_ns,
        kernel: kernel_ns,
        rules: met,
    });
    Ok(())
}

/// The cost of each counter mode: few rules of many match, and all of a hundred.
fn counter_modes(args: &Args, rows: &mut Vec<CounterRow>) -> anyhow::Result<()> {
    let (count, chains) = (67_892, 18_329);
    let mut random = Random::new(7);
    let packets: Vec<Vec<u8>> = (0..PACKETS)
        .map(|_| {
            let to = made::fanned_destination(chains, &mut random);
            tcp(0x0a00_0001, to, 1000, 80)
        })
        .collect();
    counter_case(
        "tree of 67,892 rules",
        &made::fanned(count, chains),
        &packets,
        args,
        rows,
    )?;
    let rule = "-A FORWARD -p tcp\n";
    let made = made::Made {
        text: format!(
            "*filter\n:FORWARD ACCEPT [0:0]\n{}COMMIT\n",
            rule.repeat(100)
        ),
        rules: 100,
        chains: 1,
    };
    let packets = vec![tcp(0x0b00_0001, 0x0c00_0001, 1000, 80); 4096];
    counter_case("100 rules that match", &made, &packets, args, rows)
}

/// The modes take turns in each round, so that other load meets all of them.
fn counter_case(
    case: &str,
    made: &made::Made,
    packets: &[Vec<u8>],
    args: &Args,
    rows: &mut Vec<CounterRow>,
) -> anyhow::Result<()> {
    let modes = [
        ("none", CounterMode::None),
        ("sampled", CounterMode::Sampled),
        ("exact", CounterMode::Exact),
    ];
    let built = build(&rules(made, Family::Ipv4)?, None, Lookups::Never)?;
    let (mut natives, mut kernels) = ([const { Vec::new() }; 3], [const { Vec::new() }; 3]);
    for _ in 0..args.rounds {
        for (at, (_, mode)) in modes.iter().enumerate() {
            let (native, _) = native(&built, packets, 1, *mode)?;
            natives[at].push(native.median);
            if !args.native {
                let kernel = kernel(&built, packets, 1, *mode)?;
                kernels[at].push(kernel.median);
            }
        }
    }
    let [natives, kernels] = [natives, kernels].map(|modes| modes.map(Measured::of));
    let ratio = |mode: &Measured, none: &Measured| mode.pairs(none, |mode, none| mode / none);
    for (at, (mode, _)) in modes.iter().enumerate() {
        rows.push(CounterRow {
            case: format!("{case}, counters {mode}"),
            native: natives[at].clone(),
            native_ratio: ratio(&natives[at], &natives[0]),
            kernel: (!args.native).then(|| kernels[at].clone()),
            kernel_ratio: (!args.native).then(|| ratio(&kernels[at], &kernels[0])),
        });
    }
    Ok(())
}

fn targets(loads: &[LoadRow], packets: &[PacketRow]) -> Vec<Target> {
    let mut targets = Vec::new();
    for (load, seconds) in loads.iter().zip([0.1, 2.0]) {
        targets.push(Target::at_most(
            format!("text to image, {}", load.set),
            load.seconds.median,
            seconds,
            "s",
        ));
    }
    if let Some(load) = loads.get(1) {
        targets.push(Target::at_most(
            "image of it".into(),
            load.image_bytes as f64 / 1e6,
            64.0,
            "MB",
        ));
        targets.push(Target::at_most(
            "peak memory of it against its text".into(),
            load.peak_bytes as f64 / load.text_bytes as f64,
            3.0,
            "times",
        ));
    }
    for row in packets.iter().filter(|row| row.rules > 0.0) {
        let bound = if row.rules == 1.0 && row.case.starts_with("a rule") {
            1.3
        } else if row.case.starts_with("tree") {
            500.0
        } else {
            150.0
        };
        targets.push(Target::at_most(
            format!("{}, native", row.case),
            row.native.median,
            bound,
            "ns",
        ));
        if let Some(kernel) = &row.kernel {
            targets.push(Target::at_most(
                format!("{}, kernel", row.case),
                kernel.median,
                bound,
                "ns",
            ));
        }
    }
    targets
}

impl RulesReport {
    /// For people.
    pub fn text(&self) -> String {
        let cell = |m: &Measured| format!("{:.3} ({:.3} to {:.3})", m.median, m.min, m.most);
        let peer = |seconds: Option<f64>| seconds.map_or("-".into(), |s| format!("{s:.2}"));
        let loads: Vec<Vec<String>> = self
            .loads
            .iter()
            .map(|row| {
                vec![
                    row.set.clone(),
                    cell(&row.seconds),
                    cell(&row.read_seconds),
                    format!("{:.1}", row.text_bytes as f64 / 1e6),
                    format!("{:.1}", row.image_bytes as f64 / 1e6),
                    format!("{:.1}", row.peak_bytes as f64 / 1e6),
                    peer(row.legacy_seconds),
                    peer(row.nft_seconds),
                ]
            })
            .collect();
        let commands: Vec<Vec<String>> = self
            .commands
            .iter()
            .map(|row| vec![row.command.clone(), cell(&row.seconds)])
            .collect();
        let packets: Vec<Vec<String>> = self
            .packets
            .iter()
            .map(|row| {
                let cell =
                    |m: &Measured| format!("{:.2} ({:.2} to {:.2})", m.median, m.min, m.most);
                vec![
                    row.case.clone(),
                    cell(&row.native),
                    row.kernel.as_ref().map_or("-".into(), cell),
                    format!("{:.1}", row.rules),
                ]
            })
            .collect();
        let mut out = String::from("\nrules: text to image\n");
        out.push_str(&table(
            &[
                "set",
                "seconds",
                "of them reading",
                "text MB",
                "image MB",
                "peak MB",
                "legacy s",
                "nft s",
            ],
            &loads,
        ));
        if !commands.is_empty() {
            out.push_str("\nrules: commands\n");
            out.push_str(&table(&["command", "seconds"], &commands));
        }
        out.push_str("\nrules: a packet\n");
        out.push_str(&table(
            &["case", "native ns", "kernel ns", "rules met"],
            &packets,
        ));
        out.push_str("\nrules: counter modes, and ratios to none\n");
        let counters: Vec<Vec<String>> = self.counters.iter().map(CounterRow::cells).collect();
        let head = ["case", "native ns", "ratio", "kernel ns", "ratio"];
        out.push_str(&table(&head, &counters));
        out.push_str(&edits::text(&self.edits));
        for target in &self.targets {
            out.push_str(&target.text());
        }
        out
    }
}

impl CounterRow {
    fn cells(&self) -> Vec<String> {
        let cell = |m: &Measured| format!("{:.2} ({:.2} to {:.2})", m.median, m.min, m.most);
        let optional = |m: &Option<Measured>| m.as_ref().map_or("-".into(), cell);
        vec![
            self.case.clone(),
            cell(&self.native),
            cell(&self.native_ratio),
            optional(&self.kernel),
            optional(&self.kernel_ratio),
        ]
    }
}
