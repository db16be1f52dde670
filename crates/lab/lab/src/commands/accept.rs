//! `fairpath-lab accept`: accepts every packet of an NFQUEUE queue, for the experiment nfqueue.

use clap::Args as ClapArgs;
use fairpath_testbed::QueueSettings;

use crate::divert;

/// Accept every packet of an NFQUEUE queue, for the experiment nfqueue.
///
/// The arguments are those of [`QueueSettings::arguments`].
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Number of the queue
    #[arg(value_name = "QUEUE")]
    number: u16,
    /// Bytes copied of each packet
    #[arg(value_name = "COPY")]
    copy_bytes: u16,
    /// Maximum length of the queue, packets
    #[arg(value_name = "LENGTH")]
    length: u32,
    /// Receive buffer of the socket, bytes
    #[arg(value_name = "BUFFER")]
    buffer_bytes: usize,
    /// 1: GSO packets are not segmented
    #[arg(value_name = "GSO", value_parser = clap::value_parser!(u8).range(0..=1))]
    gso: u8,
}

/// Accepts packets until a signal ends the process.
///
/// # Errors
/// The queue cannot be bound, or fails.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let settings = QueueSettings {
        number: args.number,
        copy_bytes: args.copy_bytes,
        length: args.length,
        buffer_bytes: args.buffer_bytes,
        gso: args.gso == 1,
    };
    Ok(divert::accept(&settings)?)
}
