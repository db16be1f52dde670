//! The workers of one side: each has a shaper instance with the whole tree, and all share its rates.

use std::borrow::Cow;

use anyhow::Context;
use fairpath_core::Rules;
use fairpath_core::sched::{Op, SchedReader};
use fairpath_sched::tree::Tree;
use fairpath_shape::{Balance, Figures, ShapeInstance, SharedRates, Side, Successor, packets_of};

use crate::monotonic_ns;
use crate::orders::{Gauge, Lead, begin};
use crate::shape::Job;
use crate::sharing::{Balanced, Sharing};

/// The part of a team's leader: figures and rates. The instances are in the threads of the workers.
pub struct Team {
    side: Side,
    gauges: Vec<Gauge>,
    /// None: there is one worker, whose tree has its rates.
    shared: Option<Sharing>,
    handles: u32,
    /// One worker charges packets of the stack.
    stack: bool,
}

/// Packets of one worker of several, by node.
#[derive(Clone, Debug, Default)]
pub struct WorkerFigures {
    /// Packets sent.
    pub sent: Vec<u64>,
    /// Their bytes.
    pub sent_bytes: Vec<u64>,
    /// Packets that wait.
    pub held: Vec<u64>,
    /// Its part of the ceiling, bit/s; empty or 0: all workers share one.
    pub ceil_bps: Vec<u64>,
}

impl WorkerFigures {
    /// Of one worker.
    pub fn of(figures: &[Figures]) -> WorkerFigures {
        let each = |get: fn(&Figures) -> u64| figures.iter().map(get).collect();
        WorkerFigures {
            sent: each(|figures| figures.sent),
            sent_bytes: each(|figures| figures.sent_bytes),
            held: each(|figures| figures.held),
            ceil_bps: Vec::new(),
        }
    }
}

/// The tree of one of `workers` workers: each holds a part of the packets.
pub fn part_of(tree: &Tree, workers: u32) -> Cow<'_, Tree> {
    if workers <= 1 {
        return Cow::Borrowed(tree);
    }
    let mut part = tree.clone();
    let config = &mut part.plan.config;
    config.limit_packets = packets_of(config.limit_packets, workers);
    Cow::Owned(part)
}

impl Team {
    /// The instances of `workers` workers for `handles` packets each.
    ///
    /// # Errors
    /// The tree cannot be built, or its rates cannot be shared.
    pub fn begin(
        job: &Job<'_>,
        side: Side,
        handles: u32,
        stack: bool,
        workers: u32,
    ) -> anyhow::Result<(Team, Vec<ShapeInstance>)> {
        let tree = &part_of(job.lines.trees.get(side), workers);
        let rates = match workers {
            0 | 1 => None,
            _ => Some(
                SharedRates::new(tree, workers, stack)
                    .with_context(|| format!("share the rates of {} by workers", side.name()))?,
            ),
        };
        let mut team = Team {
            side,
            gauges: Vec::new(),
            shared: None,
            handles,
            stack,
        };
        let mut instances = Vec::new();
        for worker in 0..workers.max(1) {
            let part = rates.as_ref().and_then(|rates| rates.part(worker));
            let (gauge, instance) = begin(job, (tree, side), handles, stack, part)?;
            team.gauges.push(gauge);
            instances.push(instance);
        }
        if let Some(rates) = rates {
            let state = Balanced {
                rates,
                balance: Balance::new(tree),
                workers: instances.iter().map(ShapeInstance::reader).collect(),
            };
            team.shared = Some(Sharing::start(side, state)?);
        }
        Ok((team, instances))
    }

    fn part_of<'t>(&self, tree: &'t Tree) -> Cow<'t, Tree> {
        part_of(tree, self.gauges.len() as u32)
    }

    /// Figures by node, of all workers together, and those of each worker if there are several.
    pub fn read(&self) -> (Vec<Figures>, Vec<WorkerFigures>) {
        let mut sum: Vec<Figures> = Vec::new();
        let mut workers = Vec::new();
        for gauge in &self.gauges {
            let figures = gauge.read();
            if self.shared.is_some() {
                workers.push(WorkerFigures::of(&figures));
            }
            if sum.is_empty() {
                sum = figures;
                continue;
            }
            for (sum, more) in sum.iter_mut().zip(&figures) {
                sum.add(more);
            }
        }
        (sum, workers)
    }

    /// Grants of the shared ceiling of a node to a worker, and times that it had to wait for one.
    pub fn grants(&self, node: u32, worker: u32) -> Option<[u64; 2]> {
        let pool = self.shared.as_ref()?.lock().rates.pool(node, worker)?;
        Some([pool.grants.into(), pool.refusals.into()])
    }

    /// Which custom policy was stopped, and why.
    pub fn stopped(&self) -> Option<String> {
        self.gauges.iter().find_map(Gauge::stopped)
    }

    /// Changes a rate or parameter of all workers' trees.
    ///
    /// # Errors
    /// The tree has no such node, or a thread does not answer.
    pub fn apply<C>(&mut self, leads: &[&Lead<C>], op: Op) -> anyhow::Result<()> {
        let limits = match &mut self.shared {
            Some(shared) => shared.lock().rates.set(&op, monotonic_ns()?)?,
            None => None,
        };
        for lead in leads {
            lead.apply(self.side, op, limits)?;
        }
        Ok(())
    }

    /// Replaces the tree of all workers. The successors are built here, in the time of the loop, and the threads
    /// switch to them. The gauges then read the new ones.
    ///
    /// # Errors
    /// The tree cannot be adopted, or a thread does not answer.
    pub fn replace<C>(
        &mut self,
        leads: &[&Lead<C>],
        tree: &Tree,
        before: &Tree,
        rules: &Rules,
    ) -> anyhow::Result<()> {
        let (tree, before) = (self.part_of(tree), self.part_of(before));
        let (tree, before) = (&*tree, &*before);
        let next = match &mut self.shared {
            Some(shared) => Some(shared.lock().rates.next(tree, monotonic_ns()?)?),
            None => None,
        };
        let successor = |worker| {
            let limits = next
                .as_ref()
                .map(|next| (next.nodes().to_vec(), next.cpu(worker)));
            Successor::sharing(tree, before, rules, self.handles, self.stack, limits)
        };
        let made: Result<Vec<_>, _> = (0..leads.len() as u32).map(successor).collect();
        let made = match made {
            Ok(made) => made,
            Err(error) => {
                if let (Some(shared), Some(next)) = (&mut self.shared, &next) {
                    shared.lock().rates.forget(next);
                }
                return Err(error.into());
            }
        };
        let workers: Vec<SchedReader> = made.iter().map(Successor::reader).collect();
        for ((lead, gauge), successor) in leads.iter().zip(&mut self.gauges).zip(made) {
            let next = Gauge::of(tree, &successor);
            lead.replace(self.side, successor)?;
            *gauge = next;
        }
        if let (Some(shared), Some(next)) = (&mut self.shared, next) {
            let now = monotonic_ns()?;
            let mut state = shared.lock();
            state.rates.follow(next, now);
            (state.balance, state.workers) = (Balance::new(tree), workers);
        }
        Ok(())
    }
}
