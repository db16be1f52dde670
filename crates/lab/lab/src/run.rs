//! One run: network, emulation, measurement, traffic, and the record of all that.
//!
//! ```text
//! emulators, fairpath rtt ── iperf3's servers ── second 0: flows, pings, calls, samples ── all end
//!                                                                               record, faults
//! ```
//!
//! Networks are kept from run to run; everything else is the run's own and ends with it.

mod attend;
mod other_load;
mod plans;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use fairpath_analysis::experiment::Experiment;
use fairpath_analysis::record::{self, CommandRecord, Fault, FaultKind, PASSIVE_PART, RunRecord};
use fairpath_analysis::topology::{Topology, TopologyChoice};
use fairpath_analysis::validation;
use fairpath_bpf::Recoveries;
use jiff::Timestamp;

use crate::divert::{Diverted, Program, Programs};
use crate::engine::{self, Emulator};
use crate::grid::Cell;
use crate::interrupt::Interrupt;
use crate::machine;
use crate::measure::passive::{PassivePlan, Watching};
use crate::measure::traffic::{Traffic, TrafficError};
use crate::measure::{Origin, Window};
use crate::network::Network;
use attend::Attendance;
use other_load::OtherLoad;

/// Tolerance by which changes of delay may come early.
const STEPS_TOLERANCE: Duration = Duration::from_millis(100);
/// The port of the first packet: no program listens there (discard, RFC 863).
const DISCARD_PORT: u16 = 9;
/// Time for pings, calls and samples to be under way before second 0.
const LEAD: Duration = Duration::from_millis(50);

/// Why there is no record, or none worth another try.
#[derive(Debug)]
pub enum Trouble {
    /// Every run would fail so.
    Fatal(anyhow::Error),
    /// This run did.
    Once(anyhow::Error),
    /// A signal requested the end.
    Interrupted,
}

impl<E: Into<anyhow::Error>> From<E> for Trouble {
    fn from(error: E) -> Trouble {
        Trouble::Once(error.into())
    }
}

/// The round trip of the first flow's way without traffic, ns; 0 where its links have no rate.
pub fn base_rtt_ns(experiment: &Experiment) -> u64 {
    let topology = Topology::of(&experiment.topology).ok();
    let bottleneck = topology.and_then(|topology| plans::bottleneck(experiment, &topology));
    bottleneck.map_or(0, |bottleneck| bottleneck.base_rtt_ns)
}

/// Where runs are made.
pub struct Bench {
    fairpath: PathBuf,
    /// Common data of all records: the kernel, and what the binary says it is.
    kernel: String,
    version: String,
    recoveries: Option<Arc<Recoveries>>,
    interrupt: Interrupt,
    programs: Programs,
    /// The checks that the emulator has passed.
    checked: BTreeSet<String>,
    networks: Vec<(TopologyChoice, bool, Network)>,
}

impl Bench {
    /// With the router's binary, and a place for files that runs need; nothing is made yet.
    pub fn new(fairpath: PathBuf, place: PathBuf, interrupt: Interrupt) -> Bench {
        // Without, loss events are counted from samples, and the records say so.
        let recoveries = Recoveries::count().ok().map(Arc::new);
        // A binary that is gone while it runs is named by what fails then.
        let ourselves = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("fairpath-lab"));
        Bench {
            kernel: machine::kernel(),
            version: machine::version(&fairpath),
            fairpath,
            recoveries,
            interrupt,
            programs: Programs::new(ourselves, place),
            checked: BTreeSet::new(),
            networks: Vec::new(),
        }
    }

    /// The next run with each impairment checks the emulator, whatever was checked before.
    pub fn check_again(&mut self) {
        self.checked.clear();
    }

    /// Makes one run, rates times `factor`; a run that fails is a record with that fault.
    ///
    /// # Errors
    /// What would fail every run, or Ctrl-C.
    pub fn run(&mut self, cell: &Cell, factor: f64) -> Result<RunRecord, Trouble> {
        let experiment = cell.experiment.clone().scaled(factor);
        let mut run = begun(cell, &experiment);
        run.kernel.clone_from(&self.kernel);
        run.fairpath.clone_from(&self.version);
        match self.measure(&experiment, cell.seed, &mut run) {
            Ok(()) => {
                run.faults = validation::faults(&run, &experiment);
                run.remarks = validation::remarks(&run);
            }
            Err(Trouble::Once(error)) => run.faults.push(Fault {
                kind: FaultKind::NotMeasured,
                text: format!("{error:#}"),
            }),
            Err(trouble) => return Err(trouble),
        }
        Ok(run)
    }

    fn network(&mut self, experiment: &Experiment) -> Result<usize, Trouble> {
        let wanted = (&experiment.topology, experiment.offloads);
        let known = |(topology, offloads, _): &(TopologyChoice, bool, Network)| {
            (topology, *offloads) == wanted
        };
        if let Some(index) = self.networks.iter().position(known) {
            return Ok(index);
        }
        let topology =
            Topology::of(&experiment.topology).map_err(|error| Trouble::Fatal(error.into()))?;
        let network = Network::build(&topology, experiment.offloads);
        let network = network.map_err(|error| Trouble::Fatal(error.into()))?;
        self.networks
            .push((experiment.topology.clone(), experiment.offloads, network));
        Ok(self.networks.len() - 1)
    }

    fn measure(
        &mut self,
        experiment: &Experiment,
        seed: u64,
        run: &mut RunRecord,
    ) -> Result<(), Trouble> {
        let index = self.network(experiment)?;
        let network = &self.networks[index].2;
        run.bottleneck = plans::bottleneck(experiment, network.topology());
        let window = Window {
            from: experiment.warmup,
            to: experiment.seconds,
        };

        let lead = engine::steps_lead(experiment);
        let stage = Stage::set(&self.fairpath, experiment, seed, network, &mut self.checked)?;
        let traffic = Traffic::listen(plans::flows(experiment, network)).map_err(of_traffic)?;
        run.commands.extend(stage.commands());
        run.commands.extend(traffic.commands());
        let diverted = divert(&mut self.programs, experiment, network)?;
        run.commands.extend(diverted.iter().map(|diverted| {
            let spec = experiment.divert.as_ref();
            CommandRecord {
                host: spec.map(|spec| spec.at.clone()).unwrap_or_default(),
                argv: diverted.argv().to_vec(),
            }
        }));
        let mut processes = stage.processes();
        let accepting = |diverted: &Diverted| ("accepting program".to_owned(), diverted.id());
        processes.extend(diverted.iter().map(accepting));

        let origin = Origin::ahead(ahead(experiment, lead, stage.emulating)?);
        let other_load = OtherLoad::start(experiment, network, origin, self.recoveries.clone())?;
        let running = traffic.begin(origin).map_err(of_traffic)?;
        let attendance = Attendance {
            experiment,
            origin,
            window,
            running: &running,
            other_load: processes,
            interrupt: &self.interrupt,
        };
        run.cpu = attendance.attend()?;

        let transfers = running.finish().map_err(of_traffic)?;
        other_load.finish(run, &transfers, window)?;
        stage.finish(run, origin, window)?;
        run.offloads = network.offloads()?;
        Ok(())
    }
}

/// The state before traffic: the emulated links, and the passive measurement.
struct Stage {
    emulators: Vec<Box<dyn Emulator>>,
    /// Since when they emulate.
    emulating: Instant,
    watching: Option<Watching>,
}

impl Stage {
    /// Starts both at once: each loads programs for most of a second, on different interfaces.
    fn set(
        fairpath: &Path,
        experiment: &Experiment,
        seed: u64,
        network: &Network,
        checked: &mut BTreeSet<String>,
    ) -> Result<Stage, Trouble> {
        thread::scope(|scope| {
            let watching = scope.spawn(|| watch(fairpath, experiment, network));
            let emulators = engine::start(network, experiment, seed, fairpath, checked);
            let emulating = Instant::now();
            let woken = match (&emulators, engine::steps_lead(experiment)) {
                (Ok(_), Some(_)) => wake(experiment, network),
                _ => Ok(()),
            };
            let watching = watching.join();
            let watching = watching.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let emulators = emulators?;
            woken?;
            Ok(Stage {
                emulators,
                emulating,
                watching: watching?,
            })
        })
    }

    /// Every command that was run for it.
    fn commands(&self) -> Vec<CommandRecord> {
        let watching = self.watching.iter();
        (self.emulators.iter())
            .flat_map(|emulator| emulator.commands())
            .chain(watching.map(|watching| watching.command().clone()))
            .collect()
    }

    /// Its processes, by part.
    fn processes(&self) -> Vec<(String, u32)> {
        let watching = self.watching.iter();
        (self.emulators.iter())
            .filter_map(|emulator| emulator.process())
            .chain(watching.map(|watching| (PASSIVE_PART.to_owned(), watching.id())))
            .collect()
    }

    /// Ends it: what it measured, and what the emulators did.
    fn finish(self, run: &mut RunRecord, origin: Origin, window: Window) -> Result<(), Trouble> {
        if let Some(watching) = self.watching {
            run.passive = Some(watching.finish(origin, window)?);
        }
        for emulator in self.emulators {
            let emulated = emulator.finish()?;
            run.links.extend(emulated.links);
            run.queues.extend(emulated.queues);
        }
        Ok(())
    }
}

/// Starts the program that packets are diverted through, where the experiment has one.
fn divert<'a>(
    programs: &mut Programs,
    experiment: &Experiment,
    network: &'a Network,
) -> Result<Option<Diverted<'a>>, Trouble> {
    let Some(spec) = &experiment.divert else {
        return Ok(None);
    };
    let program = Program::from_str(&spec.program)?;
    Ok(programs.divert(network.host(&spec.at), program, spec.gso)?)
}

/// The time before second 0: what measures needs its time, and delays may change at given times after
/// the emulators' first packet.
fn ahead(
    experiment: &Experiment,
    lead: Option<Duration>,
    emulating: Instant,
) -> Result<Duration, Trouble> {
    let idle = experiment.pings.values().map(|ping| ping.idle);
    let needed = LEAD + Duration::from_secs_f64(idle.fold(0.0, f64::max));
    let ahead = lead.map_or(needed, |lead| lead.saturating_sub(emulating.elapsed()));
    if ahead + STEPS_TOLERANCE < needed {
        return Err(Trouble::Once(anyhow::anyhow!(
            "what measures was not there before the delays' clock had run: changes would come {:.1} s early",
            (needed - ahead).as_secs_f64()
        )));
    }
    Ok(ahead.max(needed))
}

/// Starts the passive measurement, where the experiment has one.
fn watch(
    fairpath: &Path,
    experiment: &Experiment,
    network: &Network,
) -> Result<Option<Watching>, Trouble> {
    let Some(host) = &experiment.watch else {
        return Ok(None);
    };
    // Data that leaves by it is what is watched.
    let to = experiment
        .flows
        .values()
        .next()
        .map_or(host, |flow| &flow.to);
    let path = network.topology().path(host, to).unwrap_or_default();
    let (link, _) = path
        .first()
        .context("the watched host is the destination of the first flow: name another host")?;
    let plan = PassivePlan {
        fairpath: fairpath.to_owned(),
        ns: network.host(host).clone(),
        interface: link.name.clone(),
    };
    Ok(Some(plan.start()?))
}

/// A packet each way over everything that the first flow passes: clocks of changes begin with it.
fn wake(experiment: &Experiment, network: &Network) -> Result<(), Trouble> {
    let Some(flow) = experiment.flows.values().next() else {
        return Ok(());
    };
    for (from, to) in [(&flow.from, &flow.to), (&flow.to, &flow.from)] {
        let there = SocketAddrV4::new(network.address(to), DISCARD_PORT);
        let sent = network
            .host(from)
            .enter(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?.send_to(&[0], there))?;
        sent.with_context(|| format!("send a first packet from {from} to {there}"))?;
    }
    Ok(())
}

/// The record of a run that begins now.
fn begun(cell: &Cell, experiment: &Experiment) -> RunRecord {
    RunRecord {
        format: record::FORMAT,
        experiment: experiment.name.clone(),
        place: cell.place,
        setting: cell.setting.clone(),
        repeat: cell.repeat,
        seed: cell.seed,
        started: Timestamp::now().to_string(),
        seconds: experiment.seconds,
        warmup_seconds: experiment.warmup,
        changes: experiment.changes(),
        ..RunRecord::default()
    }
}

/// Converts an error of traffic.
fn of_traffic(error: TrafficError) -> Trouble {
    match error {
        TrafficError::NoIperf3 { .. } | TrafficError::NoCongestion { .. } => {
            Trouble::Fatal(error.into())
        }
        TrafficError::Stopped => Trouble::Interrupted,
        error => Trouble::Once(error.into()),
    }
}
