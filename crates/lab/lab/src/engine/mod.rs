//! Emulators of links: `fairpath impair`, or the kernel's netem where it has one.
//!
//! One emulator per link, at the link's seat: the router between whose two interfaces all packets pass.
//! It starts before the traffic, and reports after the end of the traffic.

pub mod impair;
pub mod netem;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use fairpath_analysis::experiment::{EngineName, Experiment, LinkSpec};
use fairpath_analysis::record::{CommandRecord, LinkRecord, QueueRecord};
use fairpath_analysis::topology::Seat;
use thiserror::Error;

use crate::network::Network;

/// Time to start what measures and what sends, on a busy machine, where second 0 is fixed beforehand.
pub const STEPS_LEAD: Duration = Duration::from_millis(1500);

/// A link could not be emulated.
#[derive(Debug, Error)]
#[error("emulate link {link}: {operation}")]
pub struct EngineError {
    /// Its name.
    pub link: String,
    /// The operation, and the remedy.
    pub operation: String,
    /// Why not.
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// The outcome of the emulation by link.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Emulated {
    /// By direction.
    pub links: Vec<LinkRecord>,
    /// Their queues.
    pub queues: Vec<QueueRecord>,
}

/// A link that is being emulated; it ends when the value goes.
pub trait Emulator {
    /// The part's name in the account of processor time, and its process; none: the kernel does it.
    fn process(&self) -> Option<(String, u32)>;

    /// Every command that was run for it.
    fn commands(&self) -> Vec<CommandRecord>;

    /// Ends it: what it did.
    ///
    /// # Errors
    /// It ended early, or reported nothing.
    fn finish(self: Box<Self>) -> Result<Emulated, EngineError>;
}

/// The input of an emulator.
#[derive(Clone, Copy, Debug)]
pub struct Task<'a> {
    /// The namespaces.
    pub network: &'a Network,
    /// Where the link is emulated.
    pub seat: Seat<'a>,
    /// The configured impairment.
    pub spec: &'a LinkSpec,
    /// For its random numbers.
    pub seed: u64,
    /// The router's binary.
    pub fairpath: &'a Path,
    /// Second 0 of the traffic comes so long after the first packet, where delays change at given times.
    pub lead: Duration,
}

impl Task<'_> {
    /// "router/wan: towards server".
    pub fn direction_name(&self, far: bool) -> String {
        let Seat {
            host,
            interface,
            far: end,
            ..
        } = self.seat;
        let towards = if far { end } else { host };
        format!("{host}/{interface}: towards {towards}")
    }
}

/// From the first packet to second 0 of the traffic, where delays change at given times: what is
/// started in between has to be there, and pings have their idle time. None: no delay changes.
///
/// An emulator's clock of changes starts with its first packet, which is sent deliberately.
pub fn steps_lead(experiment: &Experiment) -> Option<Duration> {
    let mut links = experiment.links.values();
    let idle = experiment.pings.values().map(|ping| ping.idle);
    links
        .any(|link| !link.delay_steps.is_empty())
        .then(|| STEPS_LEAD + Duration::from_secs_f64(idle.fold(0.0, f64::max)))
}

/// Starts the emulators of all links with an impairment; returns when they run. A configuration that is not
/// among `checked` runs the self-test first, and is added.
///
/// # Errors
/// The first that does not start; the others end.
pub fn start(
    network: &Network,
    experiment: &Experiment,
    seed: u64,
    fairpath: &Path,
    checked: &mut BTreeSet<String>,
) -> Result<Vec<Box<dyn Emulator>>, EngineError> {
    let mut running = Vec::new();
    for (number, (name, spec)) in (1..).zip(&experiment.links) {
        let link = network.topology().link(name);
        let link = link.filter(|link| link.ends.iter().any(|end| !spec.towards(end).is_plain()));
        let Some(seat) = link.and_then(|link| network.topology().seat(link)) else {
            continue;
        };
        let task = Task {
            network,
            seat,
            spec,
            seed: crate::grid::mixed(seed, number),
            fairpath,
            lead: steps_lead(experiment).unwrap_or_default(),
        };
        running.push(match experiment.engine {
            EngineName::Impair => impair::start(&task, checked)?,
            EngineName::Netem => netem::start(&task)?,
        });
    }
    Ok(running)
}
