//! `fairpath impair`: what loss by XDP costs where nothing is lost, and how late delayed packets are.
//!
//! ```text
//!   cost.rs      an empty XDP program, and ours at 0 %, in turn
//!   lateness.rs  20 ms by AF_XDP and NFQUEUE, at several paces      paced.rs: the sender and the receiver
//!   wakes.rs     threads and timers that wait for a time, without packets
//! ```

mod cost;
mod lateness;
mod paced;
mod wakes;

use clap::ValueEnum;
use serde::Serialize;

/// The options of the measurement.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Which parts
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Part::ALL)]
    parts: Vec<Part>,
    #[command(flatten)]
    cost: cost::Args,
    #[command(flatten)]
    lateness: lateness::Args,
    #[command(flatten)]
    wakes: wakes::Args,
}

/// A part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Cost of loss by XDP at 0 %, compared with a program that passes everything
    Cost,
    /// The lateness of packets that are delayed by 20 ms, and their effect on sparse ones
    Lateness,
    /// The lateness of waiting threads and of timers in the kernel, without packets
    Wakes,
}

impl Part {
    const ALL: [Part; 3] = [Part::Cost, Part::Lateness, Part::Wakes];
}

impl Args {
    /// The defaults above.
    pub fn usual() -> Args {
        Args {
            parts: Part::ALL.to_vec(),
            cost: cost::Args::usual(),
            lateness: lateness::Args::usual(),
            wakes: wakes::Args::usual(),
        }
    }
}

/// The requested parts.
#[derive(Debug, Serialize)]
pub struct ImpairReport {
    cost: Option<cost::CostReport>,
    lateness: Option<lateness::LatenessReport>,
    wakes: Option<wakes::WakesReport>,
}

/// Measures them.
///
/// # Errors
/// Where the bench itself fails: no root, no release binary, lost packets.
pub fn run(args: &Args) -> anyhow::Result<ImpairReport> {
    let requested = |part| args.parts.contains(&part);
    let cost = requested(Part::Cost).then(|| cost::run(&args.cost));
    let cost = cost.transpose()?;
    let lateness = requested(Part::Lateness).then(|| lateness::run(&args.lateness));
    let lateness = lateness.transpose()?;
    let wakes = requested(Part::Wakes).then(|| wakes::run(&args.wakes));
    Ok(ImpairReport {
        cost,
        lateness,
        wakes: wakes.transpose()?,
    })
}

impl ImpairReport {
    /// For people.
    pub fn text(&self) -> String {
        let cost = self.cost.as_ref().map(cost::CostReport::text);
        let lateness = self.lateness.as_ref().map(lateness::LatenessReport::text);
        let wakes = self.wakes.as_ref().map(wakes::WakesReport::text);
        cost.into_iter().chain(lateness).chain(wakes).collect()
    }
}
