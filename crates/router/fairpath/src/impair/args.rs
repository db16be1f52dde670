//! The command line of `fairpath impair`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use fairpath_backend::{ImpairVia, Mode};
use fairpath_cli::wrong_usage;
use fairpath_config::duration::parse_duration;
use fairpath_impair::Network;

/// Default of --queue-num. Each direction has one queue.
const QUEUE: u16 = 5340;
/// The other direction has the next number.
const LAST_QUEUE: i64 = u16::MAX as i64 - 1;
/// Default of --max-packets: 0.1 s of full frames at 1 Gbit/s, twice.
const PACKETS: u32 = 16_384;

/// Impair a link with loss, delay, jitter, reordering or a rate limit, and validate the result.
///
/// With --peer, packets between two interfaces are impaired, separately for each direction. Without
/// it, packets that leave and arrive by one interface are impaired.
///
/// Ends with the command, on Ctrl-C, or after --duration, and removes everything that it added. A
/// report each second compares the outcome of packets with the configured impairment. The exit
/// status is 1 if they differ.
///
/// A direction is described by the options below or by its own option: --to-peer "loss 1% delay
/// 20ms" (the same words without dashes) replaces all general options; "none" is no impairment.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath impair wan --loss 1% --delay 20ms --duration 1m\n  \
    fairpath impair lan --peer wan --to-peer \"rate 50mbit\" --from-peer none -- iperf3 -c 192.0.2.1")]
pub struct Args {
    /// Interface
    #[arg(value_name = "IF", required_unless_present_any = ["end_rules", "self_test"])]
    pub interface: Option<String>,
    /// Second interface: packets between the two are impaired
    #[arg(long, value_name = "IF2")]
    pub peer: Option<String>,
    /// Back end
    #[arg(long, value_enum, value_name = "BACKEND", default_value_t = ImpairVia(None))]
    pub via: ImpairVia,
    /// Forwarding by AF_XDP [default: bridge if both interfaces are ports of one bridge]
    #[arg(long, value_enum)]
    pub mode: Option<Mode>,
    #[command(flatten)]
    pub network: Network,
    /// Impairment from IF to the peer, for example "loss 1% delay 20ms"
    #[arg(long, value_name = "SPEC", requires = "peer")]
    pub to_peer: Option<String>,
    /// Impairment from the peer to IF
    #[arg(long, value_name = "SPEC", requires = "peer")]
    pub from_peer: Option<String>,
    /// Without a peer: impairment of packets that leave by IF
    #[arg(long, value_name = "SPEC", conflicts_with = "peer")]
    pub egress: Option<String>,
    /// Without a peer: impairment of packets that arrive by IF
    #[arg(long, value_name = "SPEC", conflicts_with = "peer")]
    pub ingress: Option<String>,
    /// Seed of random outcomes: with one seed, the n-th packet of a direction always has the same
    /// outcome [default: random, and printed]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// End after this time, for example 60s or 5m [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Maximum number of packets in each direction, delayed ones included, 16 to 1000000
    #[arg(long, value_name = "N", default_value_t = PACKETS, value_parser = clap::value_parser!(u32).range(16..=1_000_000))]
    pub max_packets: u32,
    /// First queue number of NFQUEUE, 0 to 65534; the other direction has the next number
    #[arg(long, value_name = "N", default_value_t = QUEUE, value_parser = clap::value_parser!(u16).range(..=LAST_QUEUE))]
    pub queue_num: u16,
    /// Impair by XDP also packets that are not IP, multicast, and neighbour discovery
    #[arg(long)]
    pub all: bool,
    /// Release delayed packets at their time by a thread that waits awake for a millisecond before
    /// each, for up to 80 % of a processor: 1 % for a flow of ten packets a second. Not for XDP
    #[arg(long)]
    pub precise: bool,
    /// Check that this build impairs as configured, and exit
    #[arg(long)]
    pub self_test: bool,
    /// Start without the self-test
    #[arg(long, conflicts_with = "self_test")]
    pub no_self_test: bool,
    /// Format of the reports: text on standard error; json in addition on standard output, one
    /// object per second, the last with "final": true
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// Write the reports to this file instead of standard output; needs --format json
    #[arg(short, long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Impair also the interface of this remote login
    #[arg(long)]
    pub yes: bool,
    /// Internal: remove the rules of a queue
    #[arg(long, hide = true, value_name = "N", exclusive = true)]
    pub end_rules: Option<u16>,
    /// Run this command, end with it, and return its exit status
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Format of the reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One line per direction and second, on standard error
    Text,
    /// Text, and one JSON object per second
    Json,
}

impl Args {
    /// The file of JSON reports, `-` for standard output.
    ///
    /// # Errors
    /// There is a file without a format for it.
    pub fn json(&self) -> anyhow::Result<Option<PathBuf>> {
        match (self.format, &self.write) {
            (Format::Json, file) => Ok(Some(file.clone().unwrap_or_else(|| "-".into()))),
            (Format::Text, None) => Ok(None),
            (Format::Text, Some(_)) => Err(wrong_usage("--write FILE needs --format json")),
        }
    }
}

/// The directions with their configured impairments.
///
/// # Errors
/// No impairment is configured, or a SPEC is invalid.
pub fn configured(args: &Args) -> anyhow::Result<Vec<(&'static str, Network)>> {
    let own = match args.peer {
        Some(_) => [("to-peer", &args.to_peer), ("from-peer", &args.from_peer)],
        None => [("egress", &args.egress), ("ingress", &args.ingress)],
    };
    let mut all = Vec::new();
    for (name, words) in own {
        let network = match words {
            Some(words) => Network::of_words(words)
                .map_err(|error| wrong_usage(format!("--{name} {words:?}: {error}")))?,
            None => args.network.clone(),
        };
        all.push((name, network));
    }
    let is_given = own.iter().any(|(_, words)| words.is_some());
    if all.iter().all(|(_, network)| network.is_none()) && !is_given {
        return Err(wrong_usage(format!(
            "impair {:?}: no impairment is configured: add --loss 1%, --delay 20ms, --rate 10mbit or another option of `fairpath impair --help`",
            args.interface.as_deref().unwrap_or_default()
        )));
    }
    Ok(all)
}
