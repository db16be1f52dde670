//! Cost of loss by XDP where nothing is lost, compared with a program that passes everything.
//!
//! In turn, in the same run: an empty program on the router's `lan`, and `fairpath impair`'s at 0 %,
//! with and without a model that must draw for each packet. Packets come and go by one CPU, whose time
//! they all take, so that throughput is time a packet.

use std::time::Duration;

use anyhow::{Context, bail};
use fairpath_bpf::cost::Empty;
use fairpath_bpf::{Hook, Loss, LossOptions};
use fairpath_core::sched::{LossConfig, LossModel};
use fairpath_units::IfIndex;
use nix::net::if_::if_nametoindex;
use serde::Serialize;

use crate::measure::{Measured, Target};
use crate::scene::{LAN, Scene, WAN};
use crate::slice::{self, Plan};
use crate::table::build;

/// The minimum throughput with a loss of 0 %, in percent of that without a program.
const MIN_PERCENT: f64 = 97.0;
const MTU_BYTES: u32 = 1500;

/// The options of the measurement.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Loss by XDP")]
#[group(skip)]
pub struct Args {
    /// Bytes of a data packet, from the IP header on
    #[arg(long, default_value_t = 64)]
    size: u32,
    /// Flows that take turns
    #[arg(long, default_value_t = 100)]
    flows: u32,
    /// Rounds of all turns
    #[arg(long, default_value_t = 9)]
    rounds: u32,
    /// Measured time of one turn, milliseconds
    #[arg(long, default_value_t = 1000)]
    millis: u64,
    /// CPU that carries the packets
    #[arg(long, default_value_t = 0)]
    cpu: usize,
}

impl Args {
    /// The defaults above.
    pub fn usual() -> Args {
        Args {
            size: 64,
            flows: 100,
            rounds: 9,
            millis: 1000,
            cpu: 0,
        }
    }
}

/// All of it.
#[derive(Debug, Serialize)]
pub struct CostReport {
    ip_bytes: u32,
    rounds: u32,
    /// Forwarded a second with an empty program.
    empty_pps: Measured,
    /// With ours and no impairment: share of the same round's empty program.
    nothing: Measured,
    /// With ours at a chance of 0, drawn for each packet.
    drawn: Measured,
    targets: Vec<Target>,
}

/// Measures it.
///
/// # Errors
/// Where the bench itself fails: no root, lost packets.
pub fn run(args: &Args) -> anyhow::Result<CostReport> {
    if args.rounds == 0 {
        bail!("nothing to measure: give at least one round");
    }
    let scene = Scene::build()?;
    let plan = Plan {
        cpu: args.cpu,
        watcher_cpu: args.cpu,
        time: Duration::from_millis(args.millis),
        statistics: false,
    };
    let traffic = scene.traffic(args.flows, args.size);
    let (mut empty, mut nothing, mut drawn) = (Vec::new(), Vec::new(), Vec::new());
    scene.router.enter(|| -> anyhow::Result<()> {
        let mut passes = Empty::load().context("load empty programs")?;
        let _other = passes.attach(Hook::Xdp, index(WAN)?, WAN)?;
        for _ in 0..args.rounds {
            let attached = passes.attach(Hook::Xdp, index(LAN)?, LAN)?;
            empty.push(slice::run(&scene, &traffic, None, &plan)?.pps);
            drop(attached);
            for (model, into) in [
                (LossModel::None, &mut nothing),
                (LossModel::Each, &mut drawn),
            ] {
                let loss = LossConfig {
                    model: model as u32,
                    seed: 1,
                    ..LossConfig::default()
                };
                let mut program = Loss::load(&LossOptions {
                    loss,
                    all: false,
                    mtu_bytes: MTU_BYTES,
                })?;
                program.attach(index(LAN)?, LAN)?;
                into.push(slice::run(&scene, &traffic, None, &plan)?.pps);
                let counts = program.counts()?;
                if counts.arrived == 0 || counts.lost > 0 {
                    bail!("the program counted {counts:?}: packets went another way");
                }
            }
        }
        Ok(())
    })??;
    let empty_pps = Measured::of(empty);
    let share = |pps: Vec<f64>| Measured::of(pps).pairs(&empty_pps, |ours, theirs| ours / theirs);
    let (nothing, drawn) = (share(nothing), share(drawn));
    let target = |what: &str, share: &Measured| {
        let what = format!("XDP loss at 0 %, {what}, of an empty program's throughput");
        Target::at_least(what, share.median * 100.0, MIN_PERCENT, "%")
    };
    Ok(CostReport {
        targets: vec![target("nothing drawn", &nothing), target("drawn", &drawn)],
        ip_bytes: args.size,
        rounds: args.rounds,
        empty_pps,
        nothing,
        drawn,
    })
}

fn index(name: &str) -> anyhow::Result<IfIndex> {
    let index = if_nametoindex(name).with_context(|| format!("look up {name}"))?;
    Ok(IfIndex(index))
}

impl CostReport {
    /// For people.
    pub fn text(&self) -> String {
        let row = |name: &str, share: &Measured| {
            let figures = [share.median, share.min, share.most];
            let figures = figures.map(|figure| format!("{figure:.4}"));
            [vec![name.to_owned()], figures.to_vec()].concat()
        };
        let rows = [
            row("nothing drawn", &self.nothing),
            row("drawn for each", &self.drawn),
        ];
        let head = format!(
            "\nXDP loss at 0 %, {} bytes, {} rounds; an empty program forwards {:.0} packets/s\n\n",
            self.ip_bytes, self.rounds, self.empty_pps.median
        );
        let table = build(&["share of empty", "median", "least", "most"], &rows);
        let targets: String = self.targets.iter().map(Target::text).collect();
        format!("{head}{table}\n{targets}")
    }
}
