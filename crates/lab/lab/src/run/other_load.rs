//! Measurements during the flows, by our threads: samples of sockets, pings, calls.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fairpath_analysis::experiment::Experiment;
use fairpath_analysis::record::RunRecord;
use fairpath_bpf::Recoveries;

use super::{Trouble, plans};
use crate::measure::call::{Called, Calling};
use crate::measure::ping::{Echoes, Pinging};
use crate::measure::sampler::{SAMPLE_EVERY, Sampler, Watched};
use crate::measure::traffic::Transfer;
use crate::measure::{Origin, Window};
use crate::network::Network;

/// Threads that are under way; they end when the value goes.
pub struct OtherLoad {
    sampler: Sampler,
    pings: Vec<Pinging>,
    calls: Vec<Calling>,
}

impl OtherLoad {
    /// Starts all of them.
    ///
    /// # Errors
    /// The first that does not start.
    pub fn start(
        experiment: &Experiment,
        network: &Network,
        origin: Origin,
        recoveries: Option<Arc<Recoveries>>,
    ) -> Result<OtherLoad, Trouble> {
        let flows = plans::flows(experiment, network);
        let watched = flows
            .iter()
            .filter(|flow| plans::is_tcp(flow))
            .map(Watched::from)
            .collect();
        let pings = plans::pings(experiment, network);
        let calls = plans::calls(experiment, network);
        Ok(OtherLoad {
            sampler: Sampler::start(watched, origin, SAMPLE_EVERY, recoveries)?,
            pings: pings
                .iter()
                .map(|plan| plan.start(origin))
                .collect::<Result<_, _>>()?,
            calls: calls
                .iter()
                .map(|plan| plan.start(origin, 0.0))
                .collect::<Result<_, _>>()?,
        })
    }

    /// Ends all of them, at once, and adds what they saw.
    ///
    /// # Errors
    /// The first that failed.
    pub fn finish(
        self,
        run: &mut RunRecord,
        transfers: &[Transfer],
        window: Window,
    ) -> Result<(), Trouble> {
        let OtherLoad {
            sampler,
            pings,
            calls,
        } = self;
        let (sampled, echoes, called) = thread::scope(|scope| {
            // Each waits for its last packets: together they wait once.
            let pings: Vec<_> = pings
                .into_iter()
                .map(|ping| scope.spawn(|| ping.finish()))
                .collect();
            let calls: Vec<_> = calls
                .into_iter()
                .map(|call| scope.spawn(|| call.finish()))
                .collect();
            let sampled = sampler.finish();
            let echoes: Vec<_> = pings.into_iter().map(joined).collect();
            let called: Vec<_> = calls.into_iter().map(joined).collect();
            (sampled, echoes, called)
        });
        let sampled = sampled?;
        let echoes: Vec<Echoes> = echoes.into_iter().collect::<Result<_, _>>()?;
        let called: Vec<Called> = called.into_iter().collect::<Result<_, _>>()?;
        run.flows = transfers
            .iter()
            .map(|transfer| sampled.record(transfer, window))
            .collect();
        run.pings = echoes.iter().map(|echoes| echoes.record(window)).collect();
        run.calls = called.iter().map(|called| called.record(window)).collect();

        let spent = (echoes.iter().map(|echoes| echoes.cpu))
            .chain(called.iter().map(|called| called.cpu))
            .chain([sampled.cpu])
            .sum::<Duration>();
        let cores = spent.as_secs_f64() / sampled.elapsed.as_secs_f64().max(1e-3);
        run.cpu.parts.insert("measurement".to_owned(), cores);
        Ok(())
    }
}

fn joined<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    match thread.join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}
