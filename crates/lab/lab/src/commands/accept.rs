//! `fairpath-lab accept`: our program for the experiment nfqueue, in the way of a router's packets.

use clap::Args as ClapArgs;
use fairpath_testbed::QueueSettings;

use crate::divert;

/// As [`QueueSettings::arguments`] writes them.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// The queue
    #[arg(value_name = "QUEUE")]
    number: u16,
    /// Bytes copied of each packet
    #[arg(value_name = "COPY")]
    copy_bytes: u16,
    /// Packets that may wait
    #[arg(value_name = "LENGTH")]
    length: u32,
    /// Receive buffer of the socket, bytes
    #[arg(value_name = "BUFFER")]
    buffer_bytes: usize,
    /// 1: super-packets come whole
    #[arg(value_name = "GSO", value_parser = clap::value_parser!(u8).range(0..=1))]
    gso: u8,
}

/// Accepts until it is ended.
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
