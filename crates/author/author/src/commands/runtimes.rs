//! One runtime or both, for built-in policies or for a custom policy.

use std::path::Path;
use std::rc::Rc;

use crate::script::MakeRuntime;
use anyhow::Context;
use fairpath_bpf::SchedRun;
use fairpath_core::sched::{
    ImpairStats, NodeStats, Op, Outcome, Plan, Policy, SchedRuntime, SchedRuntimeError, SchedStats,
    Scheduler, policies,
};
use fairpath_policy::Watch;

use super::own::Own;

/// The runtimes of a command that can compare two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Runtimes {
    /// Run in this process
    Native,
    /// Run in the kernel without attaching; needs root, or CAP_BPF and CAP_PERFMON
    Kernel,
    /// Run in both and require the same outcomes
    Both,
}

/// The runtime of a command that uses one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Runtime {
    /// Run in this process
    Native,
    /// Run in the kernel without attaching; needs root, or CAP_BPF and CAP_PERFMON
    Kernel,
}

impl Runtime {
    /// The name in reports and logs.
    pub fn name(self) -> &'static str {
        match self {
            Runtime::Native => "native",
            Runtime::Kernel => "kernel",
        }
    }
}

impl From<Runtime> for Runtimes {
    fn from(runtime: Runtime) -> Runtimes {
        match runtime {
            Runtime::Native => Runtimes::Native,
            Runtime::Kernel => Runtimes::Kernel,
        }
    }
}

/// The policies that plans can name, and the constructors of the runtimes.
pub struct Makers {
    /// The built-in policies and the custom policy.
    pub policies: Vec<Policy>,
    /// One constructor per runtime.
    pub make: Vec<MakeRuntime>,
}

impl Makers {
    /// Constructors for plans that use the custom policy in `own`, if it is given.
    ///
    /// # Errors
    /// The file does not compile or is not a policy.
    pub fn new(runtimes: Runtimes, own: Option<&Path>) -> anyhow::Result<Makers> {
        let Some(file) = own else {
            let make: Vec<MakeRuntime> = match runtimes {
                Runtimes::Native => vec![Rc::new(native)],
                Runtimes::Kernel => vec![Rc::new(kernel)],
                Runtimes::Both => vec![Rc::new(native), Rc::new(kernel)],
            };
            let policies = policies().to_vec();
            return Ok(Makers { policies, make });
        };
        let own = Rc::new(Own::open(file)?);
        let mut make: Vec<MakeRuntime> = Vec::new();
        if runtimes != Runtimes::Kernel {
            let own = own.clone();
            make.push(Rc::new(move |plan| {
                let (runtime, watch) = own
                    .native(plan)
                    .map_err(|error| SchedRuntimeError::Plan(format!("{error:#}")))?;
                Ok(Box::new(Watched { runtime, watch }) as Box<dyn SchedRuntime>)
            }));
        }
        if runtimes != Runtimes::Native {
            let (own, object) = (own.clone(), own.object()?);
            make.push(Rc::new(move |plan| {
                let runtime = own.load(&object, plan);
                let runtime =
                    runtime.map_err(|error| match error.downcast::<SchedRuntimeError>() {
                        Ok(error) => error,
                        Err(error) => SchedRuntimeError::Kernel(format!("{error:#}")),
                    })?;
                Ok(Box::new(runtime) as Box<dyn SchedRuntime>)
            }));
        }
        Ok(Makers {
            policies: own.known(),
            make,
        })
    }
}

/// A native runtime with an interpreted policy. It fails once the policy was stopped.
struct Watched {
    runtime: Scheduler,
    watch: Watch,
}

impl SchedRuntime for Watched {
    fn name(&self) -> &'static str {
        self.runtime.name()
    }

    fn run(&mut self, ops: &[Op], outcomes: &mut Vec<Outcome>) -> Result<(), SchedRuntimeError> {
        self.runtime.run(ops, outcomes)?;
        match self.watch.fault() {
            Some(fault) => Err(SchedRuntimeError::Stopped(fault.to_string())),
            None => Ok(()),
        }
    }

    fn stats(&self) -> SchedStats {
        self.runtime.stats()
    }

    fn node_stats(&self, node: u32) -> NodeStats {
        self.runtime.node_stats(node)
    }

    fn impair_stats(&self, impairment: u32) -> ImpairStats {
        self.runtime.impair_stats(impairment)
    }

    fn audit(&self) -> Result<(), String> {
        self.runtime.audit()
    }
}

impl Makers {
    /// Opens the first runtime for a plan.
    ///
    /// # Errors
    /// The plan cannot be built, or the kernel refuses it.
    pub fn open(&self, plan: &Plan) -> anyhow::Result<Box<dyn SchedRuntime>> {
        let make = self.make.first().context("open a runtime: there is none")?;
        Ok(make(plan)?)
    }
}

fn native(plan: &Plan) -> Result<Box<dyn SchedRuntime>, SchedRuntimeError> {
    Ok(Box::new(Scheduler::new(plan)?))
}

fn kernel(plan: &Plan) -> Result<Box<dyn SchedRuntime>, SchedRuntimeError> {
    Ok(Box::new(SchedRun::load(plan)?))
}
