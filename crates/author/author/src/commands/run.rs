//! `fairpath sched run`: simulate a link with a policy or a tree.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use fairpath_class::ClassSet;
use fairpath_cli::VirtualProgress;
use fairpath_core::sched::{Op, Outcome};
use fairpath_files::Existing;
use fairpath_sched::log::{self, LogError};
use fairpath_sched::tree::Tree;
use fairpath_sim::report::SimulationReport;
use fairpath_sim::simulate::{Findings, Settings, Tap, simulate};
use fairpath_sim::traffic::{Arrivals, Capture, Generator, HeaderParser, SYNTAX, Spec};
use fairpath_units::quantity::{read, read_rate, read_time};
use fairpath_wire::capture::Reader;
use signal_hook::consts::{SIGINT, SIGTERM};

use super::figure;
use super::runtimes::{Makers, Runtime};
use super::subject::{self, ClassArgs};

const EXAMPLE: &str = "\
Examples:
  fairpath sched run stfq --rate 100mbit --traffic 'bulk flows=2; bulk name=heavy weight=2'
  fairpath sched run tree.toml --rate 1gbit --read trace.pcapng.gz --format json
  fairpath sched run mine.c --rate 50mbit --traffic 'bulk flows=4; voice' --duration 30s
  fairpath sched run classes --class-file fairpath.toml --rate 1gbit -r trace.pcap --svg out.svg

Exit status: 0 success, 1 failure, 2 wrong usage.";

/// Arguments of `fairpath sched run`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLE, after_long_help = format!("{SYNTAX}\n\n{EXAMPLE}"))]
#[command(group(clap::ArgGroup::new("packets").required(true).args(["traffic", "read"])))]
pub struct Args {
    /// Policy name, custom policy (NAME.c), tree (NAME.toml), or "classes"
    subject: String,
    /// Generate packets, for example 'bulk flows=2; voice'; repeatable; see --help for the syntax
    #[arg(long, value_name = "SPEC")]
    traffic: Vec<String>,
    /// Read packets and their times from a pcap or pcapng file, also gzipped; - reads standard input
    #[arg(short, long, value_name = "FILE")]
    read: Option<PathBuf>,
    /// Set the link rate, for example 100mbit
    #[arg(long, value_name = "RATE", value_parser = read_rate)]
    rate: u64,
    /// Simulate this virtual time, for example 30s [default: 10s, or the whole capture]
    #[arg(long, value_name = "TIME", value_parser = read_time)]
    duration: Option<u64>,
    /// Add link overhead to each packet, for example 24 for Ethernet; 0 to 65536 bytes
    #[arg(long, default_value_t = 0, value_name = "BYTES", value_parser = overhead)]
    overhead: u32,
    /// Set a parameter of the policy (NAME=VALUE) or of a node (NODE.NAME=VALUE); repeatable
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    classes: ClassArgs,
    /// Read a custom policy that the tree names
    #[arg(long, value_name = "FILE.c")]
    policy_file: Option<PathBuf>,
    /// Set the seed of --traffic; the same seed generates the same packets
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "read")]
    seed: u64,
    /// Select the runtime of the scheduler
    #[arg(long, value_enum, default_value_t = Runtime::Native)]
    runtime: Runtime,
    /// Select the output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Write a figure of throughput and sojourn times
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Record each operation and its outcome for `fairpath sched replay`
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Tables of 80 columns
    Text,
    /// One JSON object
    Json,
    /// One line per flow, class and node
    Csv,
}

/// Virtual time without `--duration`.
const DEFAULT_NS: u64 = 10_000_000_000;
/// Maximum overhead of a packet, bytes.
const MAX_OVERHEAD: u64 = 1 << 16;
/// Maximum number of printed rounds.
const MAX_ROUNDS: usize = 3;

fn overhead(text: &str) -> Result<u32, String> {
    match read(text, "bytes").map_err(|bad| bad.to_string())? {
        bytes if bytes <= MAX_OVERHEAD => Ok(bytes as u32),
        _ => Err(format!("the maximum is {MAX_OVERHEAD} bytes")),
    }
}

/// Runs the command.
///
/// # Errors
/// The subject, the traffic or a file is invalid, or the runtime fails.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let classes = args.classes.read()?;
    let own = subject::own(&args.subject, args.policy_file.as_deref())?;
    let makers = Makers::new(args.runtime.into(), own)?;
    let (subject, policies) = (&args.subject, &makers.policies);
    let tree = subject::load(
        subject,
        policies,
        classes.as_ref(),
        &args.classes,
        &args.set,
    )?;
    print_rounds(&tree, args.rate);
    // A file that cannot be written is reported before the simulation, not after it.
    let create = |path: &PathBuf| {
        fairpath_files::output(path, Existing::Truncate)
            .with_context(|| format!("create the figure {path:?}"))
    };
    let figure_file = args.svg.as_ref().map(create).transpose()?;
    let link = Link {
        args,
        tree: &tree,
        makers: &makers,
    };
    let (traffic, findings) = match &args.read {
        Some(path) => (
            path.display().to_string(),
            link.capture(path, classes.as_ref())?,
        ),
        None => link.generated()?,
    };
    let report = SimulationReport {
        subject: &args.subject,
        traffic: &traffic,
        runtime: args.runtime.name(),
        seed: args.seed,
        settings: settings(args),
        names: &tree.names,
        findings: &findings,
    };
    if let (Some(path), Some(mut file)) = (&args.svg, figure_file) {
        file.write_all(figure::svg(&report).as_bytes())
            .with_context(|| format!("write the figure {path:?}"))?;
    }
    let text = match args.format {
        Format::Text => report.table(),
        Format::Json => report.json(),
        Format::Csv => report.csv(),
    };
    fairpath_cli::print(&text)
}

/// Prints the rounds of nodes with unequal weights, and those that take long. One of many is enough.
fn print_rounds(tree: &Tree, link_bps: u64) {
    let rounds = tree.rounds(link_bps);
    let shown: Vec<_> = rounds
        .iter()
        .filter(|round| round.ratio > 1 || round.is_long())
        .collect();
    for round in shown.iter().take(MAX_ROUNDS) {
        fairpath_cli::note(round);
    }
    if let Some(more @ 1..) = shown.len().checked_sub(MAX_ROUNDS) {
        fairpath_cli::note(format_args!(
            "{more} more nodes with unequal weights or long rounds"
        ));
    }
}

fn settings(args: &Args) -> Settings {
    let default = args.read.is_none().then_some(DEFAULT_NS);
    Settings {
        rate_bps: args.rate,
        overhead_bytes: args.overhead,
        duration_ns: args.duration.or(default),
    }
}

/// The simulated link.
struct Link<'a> {
    args: &'a Args,
    tree: &'a Tree,
    makers: &'a Makers,
}

impl Link<'_> {
    fn generated(&self) -> anyhow::Result<(String, Findings)> {
        let text = self.args.traffic.join("; ");
        let spec = Spec::read(&text)?;
        let class_of = |name: &str| self.tree.names.class_number(name);
        let mut generator = Generator::new(&spec, self.args.seed, class_of)
            .map_err(|class| anyhow::anyhow!("generate traffic: class \"{class}\" does not exist: write its number, or name its file with --class-file"))?;
        let findings = self.simulate(&mut generator)?;
        Ok((text, findings))
    }

    fn capture(&self, path: &Path, classes: Option<&ClassSet>) -> anyhow::Result<Findings> {
        let stream: Box<dyn Read> = if path == Path::new("-") {
            Box::new(io::stdin().lock())
        } else {
            Box::new(File::open(path).with_context(|| format!("open capture {path:?}"))?)
        };
        let reader = Reader::new(stream).with_context(|| format!("read capture {path:?}"))?;
        let mut capture = Capture::new(reader, HeaderParser::new(classes)?);
        self.simulate(&mut capture)
            .with_context(|| format!("simulate {path:?}"))
    }

    fn simulate<A: Arrivals>(&self, traffic: &mut A) -> anyhow::Result<Findings> {
        let mut runtime = self.makers.open(&self.tree.plan)?;
        let settings = settings(self.args);
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&stop)).context("handle signals")?;
        }
        let path = self.args.record.as_deref();
        let mut recorder = path.map(|path| Recorder::begin(path, self)).transpose()?;
        let mut progress = VirtualProgress::new("", settings.duration_ns);
        let mut watch = |now: u64| {
            progress.show(now);
            !stop.load(Ordering::Relaxed)
        };
        let mut record;
        let tap: Option<Tap<'_>> = match &mut recorder {
            Some(recorder) => {
                record = |ops: &[Op], outcomes: &[Outcome]| recorder.record(ops, outcomes);
                Some(&mut record)
            }
            None => None,
        };
        let findings = simulate(
            runtime.as_mut(),
            self.tree,
            traffic,
            &settings,
            tap,
            &mut watch,
        );
        progress.clear();
        let findings = findings.context("simulate")?;
        if let Some(recorder) = recorder {
            recorder.finish()?;
        }
        if findings.interrupted && self.args.format == Format::Text {
            fairpath_cli::note("interrupted: the results cover the simulated time only");
        }
        Ok(findings)
    }
}

/// The operation log and its first error.
struct Recorder {
    path: PathBuf,
    writer: log::Writer<BufWriter<File>>,
    failed: Option<LogError>,
}

impl Recorder {
    fn begin(path: &Path, link: &Link<'_>) -> anyhow::Result<Recorder> {
        let file = fairpath_files::output(path, Existing::Truncate)
            .with_context(|| format!("create the operation log {path:?}"))?;
        let run = log::Run::of(link.args.runtime.name(), link.tree);
        let writer = log::Writer::new(BufWriter::new(file)).and_then(|mut writer| {
            writer.begin(&run)?;
            Ok(writer)
        });
        let writer = writer.with_context(|| format!("write the operation log {path:?}"))?;
        Ok(Recorder {
            path: path.to_owned(),
            writer,
            failed: None,
        })
    }

    fn record(&mut self, ops: &[Op], outcomes: &[Outcome]) {
        if self.failed.is_none() {
            self.failed = self.writer.record(ops, outcomes).err();
        }
    }

    fn finish(self) -> anyhow::Result<()> {
        let path = self.path;
        let finished = match self.failed {
            Some(error) => Err(error),
            None => self.writer.finish().map(|_| ()),
        };
        finished.with_context(|| format!("write the operation log {path:?}"))
    }
}
