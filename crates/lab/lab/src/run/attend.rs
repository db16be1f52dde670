//! While the traffic runs: processor time of the measured part, switches of congestion control, Ctrl-C.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use fairpath_analysis::experiment::{Experiment, FlowSpec};
use fairpath_analysis::record::{CpuRecord, KERNEL_PART};

use super::Trouble;
use crate::interrupt::Interrupt;
use crate::measure::cpu::{CpuMeter, Role, softirq_threads};
use crate::measure::switch::switch_congestion;
use crate::measure::traffic::Running;
use crate::measure::{Origin, Window};

/// The interval of checks.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Processes are read so long before the traffic's end, while they are there, seconds.
const BEFORE_END: f64 = 0.1;

/// The state of the attendance.
pub struct Attendance<'a> {
    /// The run's experiment.
    pub experiment: &'a Experiment,
    /// Second 0.
    pub origin: Origin,
    /// The measured part.
    pub window: Window,
    /// The traffic.
    pub running: &'a Running,
    /// Processes that emulate or measure: their parts' names and ids.
    pub other_load: Vec<(String, u32)>,
    /// The request to end early.
    pub interrupt: &'a Interrupt,
}

impl Attendance<'_> {
    /// Waits for the end of the traffic, and of the run: processor time of the measured part, by part.
    ///
    /// # Errors
    /// A switch that was refused, or Ctrl-C.
    pub fn attend(&self) -> Result<CpuRecord, Trouble> {
        let mut switches = self.switches();
        let mut meter: Option<CpuMeter> = None;
        let mut measured: Option<CpuRecord> = None;
        while !self.is_over() {
            if self.interrupt.is_wanted() {
                self.running.stop();
                return Err(Trouble::Interrupted);
            }
            let now = self.origin.now();
            if meter.is_none() && now >= self.window.from {
                meter = Some(self.meter());
            }
            if let Some(meter) = &mut meter {
                self.watch_flows(meter);
            }
            if measured.is_none() && now >= self.window.to - BEFORE_END {
                measured = meter.as_ref().map(|meter| meter.finish([]));
            }
            while switches.last().is_some_and(|switch| switch.at <= now) {
                self.switch(switches.pop().as_ref())?;
            }
            thread::sleep(LOOK_EVERY);
        }
        // Traffic that ended early is a separate error; then these are all values.
        let late = || meter.map(|meter| meter.finish([]));
        Ok(measured.or_else(late).unwrap_or_default())
    }

    /// Traffic that was to last to the run's end and has not has failed. Where none was, pings and calls
    /// have their time.
    fn is_over(&self) -> bool {
        let lasts = |spec: &FlowSpec| spec.number > 0 && spec.seconds.is_none();
        let traffic_lasts = self.experiment.flows.values().any(lasts);
        self.running.has_ended() && (traffic_lasts || self.origin.now() >= self.window.to)
    }

    fn meter(&self) -> CpuMeter {
        let mut meter = CpuMeter::start();
        for (name, pid) in &self.other_load {
            meter.watch(name, *pid, Role::OtherLoad);
        }
        for pid in softirq_threads() {
            meter.watch(KERNEL_PART, pid, Role::Traffic);
        }
        self.watch_flows(&mut meter);
        meter
    }

    /// Watches the flows that have begun since it last looked.
    fn watch_flows(&self, meter: &mut CpuMeter) {
        for (flow, pids) in self.running.pids().now() {
            for (end, pid) in ["client", "server"].iter().zip(pids) {
                if pid != 0 && !meter.watches(pid) {
                    meter.watch(&format!("iperf3 {end} {flow}"), pid, Role::Traffic);
                }
            }
        }
    }

    /// All switches, the next one last.
    fn switches(&self) -> Vec<Switch> {
        let of_flow = |(name, spec): (&String, &fairpath_analysis::experiment::FlowSpec)| {
            let name = name.clone();
            let one = move |switch: &fairpath_analysis::experiment::SwitchSpec| Switch {
                at: switch.at,
                flow: name.clone(),
                to: switch.to.clone(),
            };
            spec.switch.iter().map(one).collect::<Vec<_>>()
        };
        let mut all: Vec<Switch> = self.experiment.flows.iter().flat_map(of_flow).collect();
        all.sort_by(|a, b| b.at.total_cmp(&a.at));
        all
    }

    /// Switches every connection of the senders of one kind of flow.
    fn switch(&self, switch: Option<&Switch>) -> Result<(), Trouble> {
        let Some(switch) = switch else {
            return Ok(());
        };
        let pids: BTreeSet<u32> = (self.running.pids().now().into_iter())
            .filter(|(flow, _)| {
                let kind = self.experiment.kind_of(flow);
                kind.is_some_and(|(name, _)| *name == switch.flow)
            })
            .map(|(_, [client, _])| client)
            .collect();
        for pid in pids {
            switch_congestion(pid, &switch.to, |_, _| true)
                .with_context(|| format!("flow {}: at {} s", switch.flow, switch.at))?;
        }
        Ok(())
    }
}

/// One change that is ahead.
struct Switch {
    at: f64,
    flow: String,
    to: String,
}
