//! `fairpath sched run`: a policy or a tree over a simulated link.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use fairpath_class::ClassSet;
use fairpath_core::sched::{Op, Outcome};
use fairpath_sched::log::{self, LogError};
use fairpath_sched::tree::Tree;
use fairpath_sim::report::Report;
use fairpath_sim::simulate::{Findings, Settings, Tap, simulate};
use fairpath_sim::traffic::{Arrivals, Capture, Generator, Looks, SYNTAX, Spec};
use fairpath_units::quantity::{read, read_rate, read_time, written};
use fairpath_wire::capture::Reader;
use signal_hook::consts::{SIGINT, SIGTERM};

use super::homes::{HomeKind, Makers};
use super::output;
use super::picture;
use super::subject::{self, ClassArgs};

const EXAMPLE: &str = "\
Examples:
  fairpath sched run stfq --rate 100mbit --traffic 'bulk flows=2; bulk name=heavy weight=2'
  fairpath sched run tree.toml --rate 1gbit --pcap trace.pcapng.gz --format json
  fairpath sched run mine.c --rate 50mbit --traffic 'bulk flows=4; voice'
  fairpath sched run classes --classes fairpath.toml --rate 1gbit --pcap trace.pcap --svg out.svg";

/// Arguments of `fairpath sched run`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLE, after_long_help = format!("{SYNTAX}\n\n{EXAMPLE}"))]
#[command(group(clap::ArgGroup::new("packets").required(true).args(["traffic", "pcap"])))]
pub struct Args {
    /// A policy (`fairpath sched list`), an author's file (NAME.c), a tree's (NAME.toml), or "classes"
    subject: String,
    /// Packets to make; --help tells the language. Several are joined
    #[arg(long, value_name = "SPEC")]
    traffic: Vec<String>,
    /// Packets of a capture, at their times: pcap or pcapng, gzipped or not
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Of the link, such as 100mbit
    #[arg(long, value_parser = read_rate)]
    rate: u64,
    /// Virtual time to simulate [default: 10s; of a capture, to its end]
    #[arg(long = "for", value_name = "TIME", value_parser = read_time)]
    duration: Option<u64>,
    /// Bytes that each packet takes on the link besides its own (Ethernet: 24)
    #[arg(long, default_value_t = 0, value_name = "BYTES", value_parser = overhead)]
    overhead: u32,
    /// A parameter of the policy, or of one node: NAME=VALUE, NODE.NAME=VALUE
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    classes: ClassArgs,
    /// An author's policy that the tree names
    #[arg(long, value_name = "FILE.c")]
    policy: Option<PathBuf>,
    /// What the random numbers of --traffic begin with: the same seed, the same packets
    #[arg(long, default_value_t = 1, conflicts_with = "pcap")]
    seed: u64,
    /// Where the scheduler runs
    #[arg(long, value_enum, default_value_t = HomeKind::Native)]
    home: HomeKind,
    /// What to print
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Draw throughput and sojourn times into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Record every operation and its outcome into this file, for `fairpath sched replay`
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Tables of 80 columns
    Table,
    /// One JSON object
    Json,
    /// A line a flow, class and node
    Csv,
}

/// Virtual time without `--for`.
const STANDARD_NS: u64 = 10_000_000_000;
/// Overhead of a packet at most.
const MAX_OVERHEAD: u64 = 1 << 16;

fn overhead(text: &str) -> Result<u32, String> {
    match read(text, "bytes").map_err(|bad| bad.to_string())? {
        bytes if bytes <= MAX_OVERHEAD => Ok(bytes as u32),
        _ => Err(format!("more than {MAX_OVERHEAD} bytes are no overhead")),
    }
}

/// Runs the verb.
///
/// # Errors
/// A subject, a specification or a file that is wrong; a home that refuses; packets that are lost.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let classes = args.classes.read()?;
    let own = subject::own(&args.subject, args.policy.as_deref())?;
    let makers = Makers::new(args.home.into(), own)?;
    let (subject, policies) = (&args.subject, &makers.policies);
    let tree = subject::load(
        subject,
        policies,
        classes.as_ref(),
        &args.classes,
        &args.set,
    )?;
    // Whether it can be written is better known before the simulation than behind it.
    let create =
        |path: &PathBuf| File::create(path).with_context(|| format!("create the picture {path:?}"));
    let picture = args.svg.as_ref().map(create).transpose()?;
    let link = Link {
        args,
        tree: &tree,
        makers: &makers,
    };
    let (traffic, findings) = match &args.pcap {
        Some(path) => (
            path.display().to_string(),
            link.capture(path, classes.as_ref())?,
        ),
        None => link.made()?,
    };
    let report = Report {
        subject: &args.subject,
        traffic: &traffic,
        home: args.home.name(),
        seed: args.seed,
        settings: settings(args),
        names: &tree.names,
        findings: &findings,
    };
    if let (Some(path), Some(mut file)) = (&args.svg, picture) {
        file.write_all(picture::svg(&report).as_bytes())
            .with_context(|| format!("write the picture {path:?}"))?;
    }
    let text = match args.format {
        Format::Table => report.table(),
        Format::Json => report.json(),
        Format::Csv => report.csv(),
    };
    output::print(&text).context("write to standard output")
}

fn settings(args: &Args) -> Settings {
    let usual = args.pcap.is_none().then_some(STANDARD_NS);
    Settings {
        rate_bps: args.rate,
        overhead_bytes: args.overhead,
        duration_ns: args.duration.or(usual),
    }
}

/// What is simulated.
struct Link<'a> {
    args: &'a Args,
    tree: &'a Tree,
    makers: &'a Makers,
}

impl Link<'_> {
    fn made(&self) -> anyhow::Result<(String, Findings)> {
        let text = self.args.traffic.join("; ");
        let spec = Spec::read(&text)?;
        let class_of = |name: &str| self.tree.names.class_number(name);
        let mut generator = Generator::new(&spec, self.args.seed, class_of)
            .map_err(|class| anyhow::anyhow!("make traffic: there is no class \"{class}\"; give its number, or its file with --classes"))?;
        let findings = self.go(&mut generator)?;
        Ok((text, findings))
    }

    fn capture(&self, path: &Path, classes: Option<&ClassSet>) -> anyhow::Result<Findings> {
        let stream: Box<dyn Read> = if path == Path::new("-") {
            Box::new(io::stdin().lock())
        } else {
            Box::new(File::open(path).with_context(|| format!("open capture {path:?}"))?)
        };
        let reader = Reader::new(stream).with_context(|| format!("read capture {path:?}"))?;
        let mut capture = Capture::new(reader, Looks::new(classes)?);
        self.go(&mut capture)
            .with_context(|| format!("simulate {path:?}"))
    }

    fn go<A: Arrivals>(&self, traffic: &mut A) -> anyhow::Result<Findings> {
        let mut home = self.makers.open(&self.tree.plan)?;
        let settings = settings(self.args);
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&stop)).context("handle signals")?;
        }
        let path = self.args.log.as_deref();
        let mut recorder = path.map(|path| Recorder::begin(path, self)).transpose()?;
        let mut progress = Progress::new(settings.duration_ns);
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
            home.as_mut(),
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
        if findings.interrupted && self.args.format == Format::Table {
            eprintln!("fairpath: interrupted; what was simulated until then follows");
        }
        Ok(findings)
    }
}

/// The operation log, and the first thing that went wrong with it.
struct Recorder {
    path: PathBuf,
    writer: log::Writer<BufWriter<File>>,
    failed: Option<LogError>,
}

impl Recorder {
    fn begin(path: &Path, link: &Link<'_>) -> anyhow::Result<Recorder> {
        let file = File::create(path).with_context(|| format!("create the log {path:?}"))?;
        let run = log::Run::of(link.args.home.name(), link.tree);
        let writer = log::Writer::new(BufWriter::new(file)).and_then(|mut writer| {
            writer.begin(&run)?;
            Ok(writer)
        });
        let writer = writer.with_context(|| format!("write the log {path:?}"))?;
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
        finished.with_context(|| format!("write the log {path:?}"))
    }
}

/// How far it is, on a terminal only.
struct Progress {
    end: Option<u64>,
    shown: Option<u64>,
    is_terminal: bool,
}

impl Progress {
    fn new(end: Option<u64>) -> Progress {
        Progress {
            end,
            shown: None,
            is_terminal: io::stderr().is_terminal(),
        }
    }

    /// Once every hundredth of the end, or every virtual second.
    fn show(&mut self, now: u64) {
        let step = self.end.map_or(1_000_000_000, |end| (end / 100).max(1));
        if !self.is_terminal || self.shown == Some(now / step) {
            return;
        }
        self.shown = Some(now / step);
        let at = written(now / 1_000_000 * 1_000_000, "ns");
        let of = self
            .end
            .map_or_else(String::new, |end| format!(" of {}", written(end, "ns")));
        let _ = write!(io::stderr(), "\rsimulated {at}{of}    ");
    }

    fn clear(&self) {
        if self.shown.is_some() {
            let _ = write!(io::stderr(), "\r{:40}\r", "");
        }
    }
}
