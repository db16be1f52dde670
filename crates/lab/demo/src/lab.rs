//! The topology with its known delays, `fairpath rtt` and `fairpath run` on its router.

use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use fairpath_testbed::{Impairment, Process, Router, Testbed, Wire};
use nix::sys::signal::Signal;

use crate::classes::{Classes, Reported};

/// One-way delay of the wire between client and router.
const LAN_DELAY: Duration = Duration::from_millis(2);
/// One-way delay of the wire between router and server.
const WAN_DELAY: Duration = Duration::from_millis(10);
/// Time for `fairpath rtt` to attach or to print its summary, on a loaded machine.
const RTT_DEADLINE: Duration = Duration::from_secs(20);
/// The directory of the router's binary, if it is neither in our directory nor on PATH.
const BIN_DIR_ENV: &str = "FAIRPATH_BIN_DIR";

/// One side of the router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leg {
    /// Router to client and back.
    Lan,
    /// Router to server and back.
    Wan,
}

impl Leg {
    /// Both.
    pub const ALL: [Leg; 2] = [Leg::Lan, Leg::Wan];

    /// Name of the router's interface.
    pub fn interface(self) -> &'static str {
        match self {
            Leg::Lan => "lan",
            Leg::Wan => "wan",
        }
    }

    /// The delay of a round trip by the wire, milliseconds.
    pub fn configured_ms(self) -> f64 {
        let one_way = match self {
            Leg::Lan => LAN_DELAY,
            Leg::Wan => WAN_DELAY,
        };
        2.0 * one_way.as_secs_f64() * 1e3
    }
}

/// Everything that runs; ends on drop.
pub struct Lab {
    /// The namespaces.
    pub net: Router,
    rtt: Process,
    classes: Classes,
}

impl Lab {
    /// Builds the namespaces and starts `fairpath rtt`, its records going to `samples`, and
    /// `fairpath run`, its files in `daemon`.
    pub fn build(samples: &Path, daemon: &Path) -> anyhow::Result<Lab> {
        let (lan, wan) = (Impairment::delay(LAN_DELAY), Impairment::delay(WAN_DELAY));
        let net = Router::builder()
            .lan_wire(lan.clone(), lan)
            .wan_wire(wan.clone(), wan)
            .build(&Testbed::new())?;
        let rtt = watch(&net, samples).context(
            "start fairpath rtt on the router; `fairpath features` lists what this kernel lacks",
        )?;
        let classes = Classes::start(&net, daemon)?;
        Ok(Lab { net, rtt, classes })
    }

    /// Ends both: the closing summary of `fairpath rtt`, the classes, and frames that the wires
    /// dropped unasked.
    pub fn finish(self) -> anyhow::Result<(String, Reported, u64)> {
        let reported = self.classes.finish(&self.net)?;
        self.rtt.signal(Signal::SIGTERM);
        let summary = self.rtt.finish(RTT_DEADLINE).context("end fairpath rtt")?;
        let wires = [&self.net.lan_wire, &self.net.wan_wire];
        let dropped = wires.into_iter().flatten().map(unwanted_drops).sum();
        Ok((summary, reported, dropped))
    }
}

fn unwanted_drops(wire: &Wire) -> u64 {
    let stats = wire.stats();
    stats.left_to_right.unwanted_drops() + stats.right_to_left.unwanted_drops()
}

fn watch(net: &Router, samples: &Path) -> anyhow::Result<Process> {
    let mut command = net.router.command_without_sysfs(binary());
    command
        .args(["rtt", "--format", "json"])
        .arg("--write")
        .arg(samples);
    for leg in Leg::ALL {
        command.args(["--interface", leg.interface()]);
    }
    let rtt = net.router.spawn(command)?;
    for leg in Leg::ALL {
        rtt.wait_stderr(&format!("watching {}", leg.interface()), RTT_DEADLINE)?;
    }
    Ok(rtt)
}

/// The router's binary: in FAIRPATH_BIN_DIR, in our directory, in bin next to libexec, on PATH.
pub fn binary() -> PathBuf {
    let named = env::var_os(BIN_DIR_ENV).map(PathBuf::from);
    let own = env::current_exe().ok();
    let sibling = own.as_deref().and_then(Path::parent).map(Path::to_owned);
    let installed = sibling.as_ref().map(|folder| folder.join("../../bin"));
    [named, sibling, installed]
        .into_iter()
        .flatten()
        .map(|folder| folder.join("fairpath"))
        .find(|path| path.is_file())
        .unwrap_or_else(|| PathBuf::from("fairpath"))
}
