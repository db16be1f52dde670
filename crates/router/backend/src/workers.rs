//! The number of workers that shape, and its reason.

use std::fmt;
use std::num::NonZeroUsize;

use fairpath_core::sched::{Policy, Share};
use fairpath_shape::Side;

use crate::shape::Job;

/// The rate that one worker of a back end carries on an ordinary machine.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    /// Bits a second.
    pub bps: u64,
    /// Both directions together, or each direction has workers.
    pub both: bool,
}

/// A number of workers, with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    /// At least 1.
    pub workers: u32,
    why: String,
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let workers = fairpath_units::counted(self.workers as usize, "worker", "workers");
        write!(f, "{workers} ({})", self.why)
    }
}

/// The workers of a shaper that could have `most`, by its queues.
pub fn count(job: &Job<'_>, most: u32, capacity: Capacity) -> Count {
    let one = |why: String| Count { workers: 1, why };
    if job.config.record.is_some() {
        return one("a recording is of one scheduler".to_owned());
    }
    if let Some(why) = refused(job) {
        return one(why);
    }
    if let Some(wanted) = job.config.workers {
        return match wanted <= most {
            true => Count {
                workers: wanted,
                why: "configured".to_owned(),
            },
            false => Count {
                workers: most.max(1),
                why: format!("{wanted} are configured, and the interfaces have {most} queues"),
            },
        };
    }
    let cpus = std::thread::available_parallelism().map_or(1, NonZeroUsize::get) as u32;
    let sides = Side::BOTH
        .into_iter()
        .filter(|side| job.config.interface(*side).is_some());
    let rates = |side: Side| *job.config.lines.bps.get(side);
    if sides.clone().any(|side| rates(side) == 0) {
        return one("without a rate of the link; `workers` sets more".to_owned());
    }
    let all = sides.fold(0u64, |sum, side| match capacity.both {
        true => sum.saturating_add(rates(side)),
        false => sum.max(rates(side)),
    });
    let needed = all.div_ceil(capacity.bps);
    let needed = u32::try_from(needed).unwrap_or(u32::MAX);
    let limits = [
        (most, "each has a queue of both interfaces"),
        (cpus, "each has a CPU"),
        (needed, "the rates need no more"),
    ];
    let (workers, why) = limits
        .into_iter()
        .min_by_key(|(workers, _)| *workers)
        .unwrap_or((1, ""));
    Count {
        workers: workers.max(1),
        why: why.to_owned(),
    }
}

/// Why the rates of a tree cannot be shared.
fn refused(job: &Job<'_>) -> Option<String> {
    Side::BOTH.iter().find_map(|side| {
        let tree = job.lines.trees.get(*side);
        let customs: Vec<Policy> = (tree.customs.iter())
            .map(|custom| custom.policy.clone())
            .collect();
        let error = Share::of(&tree.plan, &customs).err()?;
        Some(format!("the tree is for one: {error}"))
    })
}
