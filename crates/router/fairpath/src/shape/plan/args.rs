//! The arguments of `fairpath shape plan`.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use fairpath_cli::wrong_usage;
use fairpath_config as config;
use fairpath_shape::Side;
use fairpath_sim::plan::Demand;
use fairpath_units::quantity::read_time;

/// Range of the times of a measurement, ns.
const MEASURE_NS: std::ops::RangeInclusive<u64> = 10_000_000..=60_000_000_000;
/// Maximum cost of a packet or an operation, ns.
const MAX_COST_NS: u64 = 1_000_000;
/// Minimum virtual time.
const MIN_DURATION_NS: u64 = 1_000_000;
/// Range of the factor of a capture's times.
const SPEED: std::ops::RangeInclusive<f64> = 0.001..=1000.0;

/// Simulate the rates of a configuration on more CPUs than this machine has.
///
/// Virtual CPUs run the code that shapes real packets, in virtual time. The result shows which rates hold,
/// and which CPU bounds the others.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath shape plan --config fairpath.toml --with-cpus 64 --demand zipf\n  \
    fairpath shape plan --config fairpath.toml --with-cpus 16 -r busy-hour.pcapng.gz --speed 2 --enough\n\n\
    Exit status: 0 all rates hold, 1 some do not, or failure, 2 wrong usage.")]
pub struct PlanArgs {
    /// Configuration file
    #[arg(short, long, value_name = "FILE", default_value = config::DEFAULT_FILE)]
    pub(super) config: PathBuf,
    /// Number of virtual CPUs, 1 to 512
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=512))]
    pub(super) with_cpus: u32,
    /// Packets of each class by CPU
    #[arg(long, value_enum, default_value_t = DemandKind::All, conflicts_with = "read")]
    pub(super) demand: DemandKind,
    /// Offer the packets of a pcap or pcapng file, also gzipped, at their times; - reads standard input
    #[arg(short, long, value_name = "FILE")]
    pub(super) read: Option<PathBuf>,
    /// Divide the times of the capture by this factor, 0.001 to 1000
    #[arg(long, value_name = "X", default_value_t = 1.0, requires = "read", value_parser = speed)]
    pub(super) speed: f64,
    /// Direction to simulate
    #[arg(long, value_enum, default_value_t = PlanDirection::Down)]
    pub(super) direction: PlanDirection,
    /// CPU time of a packet, for example 300ns; at most 1ms [default: measured on this machine]
    #[arg(long, value_name = "TIME", value_parser = cost)]
    pub(super) cost_local: Option<u64>,
    /// CPU time of an operation on a word that all CPUs share, for example 200ns; at most 1ms
    /// [default: measured with two threads, at least 50ns]
    #[arg(long, value_name = "TIME", value_parser = cost)]
    pub(super) cost_shared: Option<u64>,
    /// Measure the costs that are not given for this time, 10ms to 60s
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = measure)]
    pub(super) measure: u64,
    /// Ethernet frame of a generated packet, 64 to 9216 bytes
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = 1514,
        value_parser = clap::value_parser!(u32).range(64..=9216)
    )]
    pub(super) packet_bytes: u32,
    /// Simulate this virtual time, for example 10s [default: 1s, or the whole capture]
    #[arg(long, value_name = "TIME", value_parser = read_time)]
    pub(super) duration: Option<u64>,
    /// Set the seed of --demand; the same seed generates the same packets
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
    /// Find the lowest number of CPUs that is enough, by repeated simulation with 1 to 512 CPUs
    #[arg(long)]
    pub(super) enough: bool,
    /// Rates to print as text, those of the lowest share first; 0 for none
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(super) limit: usize,
    /// Write a figure of rates and CPUs: a self-contained page (.html) or its panels (.svg)
    #[arg(long, value_name = "FILE")]
    pub(super) figure: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(super) format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables and sentences
    Text,
    /// One JSON object
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DemandKind {
    /// Every CPU always has packets
    All,
    /// One CPU always has packets, the others have 0.1 % of the rate each
    One,
    /// A quarter of CPUs always has packets, the others have 0.2 % of the rate each
    Quarter,
    /// 1.3 times the rate by a power law over CPUs
    Zipf,
}

impl From<DemandKind> for Demand {
    fn from(kind: DemandKind) -> Demand {
        match kind {
            DemandKind::All => Demand::All,
            DemandKind::One => Demand::One,
            DemandKind::Quarter => Demand::Quarter,
            DemandKind::Zipf => Demand::Zipf,
        }
    }
}

impl DemandKind {
    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            DemandKind::All => "all",
            DemandKind::One => "one",
            DemandKind::Quarter => "quarter",
            DemandKind::Zipf => "zipf",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PlanDirection {
    /// Packets that the hosts receive
    Down,
    /// Packets that the hosts send
    Up,
    /// Both, on the same CPUs
    Both,
}

impl PlanDirection {
    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            PlanDirection::Down => "down",
            PlanDirection::Up => "up",
            PlanDirection::Both => "both",
        }
    }

    /// The directions.
    pub fn sides(self) -> &'static [Side] {
        match self {
            PlanDirection::Down => &Side::BOTH[..1],
            PlanDirection::Up => &Side::BOTH[1..],
            PlanDirection::Both => &Side::BOTH,
        }
    }
}

impl PlanArgs {
    /// Checks options together.
    ///
    /// # Errors
    /// Wrong usage.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        if self.enough && self.read.as_deref() == Some(Path::new("-")) {
            return Err(wrong_usage(
                "plan --enough: standard input can be read once only: name a file with --read",
            ));
        }
        if self.duration.is_some_and(|ns| ns < MIN_DURATION_NS) {
            return Err(wrong_usage(
                "plan --duration: the time is too short: simulate at least 1ms",
            ));
        }
        Ok(())
    }
}

fn cost(text: &str) -> Result<u64, String> {
    match read_time(text).map_err(|error| error.to_string())? {
        0 => Err("it must be at least 1ns".to_owned()),
        ns if ns > MAX_COST_NS => Err("it must be at most 1ms".to_owned()),
        ns => Ok(ns),
    }
}

fn measure(text: &str) -> Result<u64, String> {
    let ns = read_time(text).map_err(|error| error.to_string())?;
    match MEASURE_NS.contains(&ns) {
        true => Ok(ns),
        false => Err("it must be 10ms to 60s".to_owned()),
    }
}

fn speed(text: &str) -> Result<f64, String> {
    let speed = text
        .parse()
        .map_err(|_| format!("{text:?} is no number: write a factor such as 2 or 0.5"))?;
    match SPEED.contains(&speed) {
        true => Ok(speed),
        false => Err("it must be 0.001 to 1000".to_owned()),
    }
}
