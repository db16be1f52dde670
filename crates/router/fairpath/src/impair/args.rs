//! The command line of `fairpath impair`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{anyhow, bail};
use fairpath_backend::{ImpairVia, Mode};
use fairpath_impair::Network;

use fairpath_config::duration::parse_duration;

/// The first packet queue, unless said otherwise; directions have one each.
const QUEUE: u16 = 5340;
/// The other direction has the next one.
const LAST_QUEUE: i64 = u16::MAX as i64 - 1;
/// Packets that a direction holds: a tenth of a second of a gigabit in full frames, and as many again.
const PACKETS: u32 = 16_384;

/// Makes a network worse on purpose, and tells whether it was made so truly.
///
/// With --peer, packets between two interfaces are impaired, each direction by itself; without, what
/// leaves and what arrives by one. Ends with the command, by Ctrl-C, or after --for, and leaves nothing
/// behind. Once a second it tells what became of packets, and whether that is what was asked for.
///
/// A direction is described by the options below, or by its own: --to-peer "loss 1% delay 20ms" (the
/// same words without dashes) stands instead of all general ones; "none" is no impairment.
#[derive(clap::Args)]
pub struct Args {
    /// The interface
    #[arg(value_name = "IF", required_unless_present = "end_rules")]
    pub interface: Option<String>,
    /// The interface that its packets leave by
    #[arg(long, value_name = "IF2")]
    pub peer: Option<String>,
    /// How packets come here and go on
    #[arg(long, value_enum, default_value_t = ImpairVia(None))]
    pub via: ImpairVia,
    /// What AF_XDP does with packets; by default a bridge where both interfaces are ports of one
    #[arg(long, value_enum)]
    pub mode: Option<Mode>,
    #[command(flatten)]
    pub network: Network,
    /// What becomes of packets from IF to the peer
    #[arg(long, value_name = "SPEC", requires = "peer")]
    pub to_peer: Option<String>,
    /// What becomes of packets from the peer to IF
    #[arg(long, value_name = "SPEC", requires = "peer")]
    pub from_peer: Option<String>,
    /// Without a peer: what becomes of packets that leave by IF
    #[arg(long, value_name = "SPEC", conflicts_with = "peer")]
    pub out: Option<String>,
    /// Without a peer: what becomes of packets that arrive by IF
    #[arg(long = "in", value_name = "SPEC", conflicts_with = "peer")]
    pub into: Option<String>,
    /// With one seed the n-th packet of a direction always has the same fate; drawn and told by default
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// End after this time
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    pub time: Option<Duration>,
    /// Packets that each direction holds at most, those in the pipe among them
    #[arg(long, value_name = "N", default_value_t = PACKETS, value_parser = clap::value_parser!(u32).range(16..=1_000_000))]
    pub packets: u32,
    /// The first packet queue of NFQUEUE
    #[arg(long, value_name = "N", default_value_t = QUEUE, value_parser = clap::value_parser!(u16).range(..=LAST_QUEUE))]
    pub queue: u16,
    /// Impair by XDP what is no IP, goes to groups, or discovers neighbours, too
    #[arg(long)]
    pub all: bool,
    /// Check that this build impairs as it says, and end
    #[arg(long)]
    pub check: bool,
    /// Begin without that check
    #[arg(long, conflicts_with = "check")]
    pub no_check: bool,
    /// A JSON object a second, the last one with "final": true; to a file, or "-" for standard output
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    pub json: Option<PathBuf>,
    /// Impair the interface of this remote login, too
    #[arg(long)]
    pub yes: bool,
    /// For the process that takes rules away
    #[arg(long, hide = true, value_name = "N", exclusive = true)]
    pub end_rules: Option<u16>,
    /// Run this, end with it, and with its exit status
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Directions by name, with what was asked of each.
///
/// # Errors
/// Where nothing is asked for, or words are no options.
pub fn wanted(args: &Args) -> anyhow::Result<Vec<(&'static str, Network)>> {
    let own = match args.peer {
        Some(_) => [("to-peer", &args.to_peer), ("from-peer", &args.from_peer)],
        None => [("out", &args.out), ("in", &args.into)],
    };
    let mut all = Vec::new();
    for (name, words) in own {
        let network = match words {
            Some(words) => {
                Network::of_words(words).map_err(|error| anyhow!("--{name} {words:?}: {error}"))?
            }
            None => args.network.clone(),
        };
        all.push((name, network));
    }
    let asked = own.iter().any(|(_, words)| words.is_some());
    if all.iter().all(|(_, network)| network.is_none()) && !asked {
        bail!(
            "impair {:?}: nothing is asked for; say --loss 1%, --delay 20ms, --rate 10mbit or another of `fairpath impair --help`",
            args.interface.as_deref().unwrap_or_default()
        );
    }
    Ok(all)
}
