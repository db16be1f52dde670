//! Which home a scheduler runs in.

use anyhow::Context;
use fairpath_bpf::SchedRun;
use fairpath_core::sched::{Home, Plan, Scheduler};

/// One home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum HomeKind {
    /// In this process
    Native,
    /// In the kernel, attached to nothing (needs CAP_BPF and CAP_PERFMON)
    Kernel,
}

impl HomeKind {
    /// As reports and logs name it.
    pub fn name(self) -> &'static str {
        match self {
            HomeKind::Native => "native",
            HomeKind::Kernel => "kernel",
        }
    }

    /// Lays the plan out.
    ///
    /// # Errors
    /// A plan that cannot be laid out; a kernel that refuses.
    pub fn open(self, plan: &Plan) -> anyhow::Result<Box<dyn Home>> {
        Ok(match self {
            HomeKind::Native => Box::new(Scheduler::new(plan).context("open the native home")?),
            HomeKind::Kernel => Box::new(SchedRun::load(plan).context("open the kernel home")?),
        })
    }
}
