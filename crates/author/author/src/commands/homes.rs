//! One home or both, of shipped policies or of an author's file.

use std::path::Path;
use std::rc::Rc;

use crate::script::MakeHome;
use anyhow::Context;
use fairpath_bpf::SchedRun;
use fairpath_core::sched::{
    Home, HomeError, ImpairStats, NodeStats, Op, Outcome, Plan, Policy, SchedStats, Scheduler,
    policies,
};
use fairpath_policy::Watch;

use super::own::Own;

/// Where operations run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Homes {
    /// In this process
    Native,
    /// In the kernel, by BPF_PROG_TEST_RUN, attached to nothing (root, or CAP_BPF and CAP_PERFMON)
    Kernel,
    /// In both; they must agree on every operation
    Both,
}

/// One home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum HomeKind {
    /// In this process
    Native,
    /// In the kernel, attached to nothing (root, or CAP_BPF and CAP_PERFMON)
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
}

impl From<HomeKind> for Homes {
    fn from(home: HomeKind) -> Homes {
        match home {
            HomeKind::Native => Homes::Native,
            HomeKind::Kernel => Homes::Kernel,
        }
    }
}

/// What plans may refer to, and how their homes are made.
pub struct Makers {
    /// Policies by name: those that are compiled in, and an author's.
    pub policies: Vec<Policy>,
    /// One for each home.
    pub make: Vec<MakeHome>,
}

impl Makers {
    /// Homes for plans that use the policy in `own`, if there is one.
    ///
    /// # Errors
    /// The author's file does not compile, or is no policy.
    pub fn new(homes: Homes, own: Option<&Path>) -> anyhow::Result<Makers> {
        let Some(file) = own else {
            let make: Vec<MakeHome> = match homes {
                Homes::Native => vec![Rc::new(native)],
                Homes::Kernel => vec![Rc::new(kernel)],
                Homes::Both => vec![Rc::new(native), Rc::new(kernel)],
            };
            let policies = policies().to_vec();
            return Ok(Makers { policies, make });
        };
        let own = Rc::new(Own::open(file)?);
        let mut make: Vec<MakeHome> = Vec::new();
        if homes != Homes::Kernel {
            let own = own.clone();
            make.push(Rc::new(move |plan| {
                let (home, watch) = own
                    .native(plan)
                    .map_err(|error| HomeError::Plan(format!("{error:#}")))?;
                Ok(Box::new(Watched { home, watch }) as Box<dyn Home>)
            }));
        }
        if homes != Homes::Native {
            let (own, object) = (own.clone(), own.object()?);
            make.push(Rc::new(move |plan| {
                let home = own.load(&object, plan);
                let home = home.map_err(|error| match error.downcast::<HomeError>() {
                    Ok(error) => error,
                    Err(error) => HomeError::Kernel(format!("{error:#}")),
                })?;
                Ok(Box::new(home) as Box<dyn Home>)
            }));
        }
        Ok(Makers {
            policies: own.known(),
            make,
        })
    }
}

/// A home whose policy is interpreted: once it is stopped, nothing more is said to be right.
struct Watched {
    home: Scheduler,
    watch: Watch,
}

impl Home for Watched {
    fn name(&self) -> &'static str {
        self.home.name()
    }

    fn run(&mut self, ops: &[Op], outcomes: &mut Vec<Outcome>) -> Result<(), HomeError> {
        self.home.run(ops, outcomes)?;
        match self.watch.fault() {
            Some(fault) => Err(HomeError::Stopped(fault.to_string())),
            None => Ok(()),
        }
    }

    fn stats(&self) -> SchedStats {
        self.home.stats()
    }

    fn node_stats(&self, node: u32) -> NodeStats {
        self.home.node_stats(node)
    }

    fn impair_stats(&self, impairment: u32) -> ImpairStats {
        self.home.impair_stats(impairment)
    }

    fn audit(&self) -> Result<(), String> {
        self.home.audit()
    }
}

impl Makers {
    /// The first home, for a plan.
    ///
    /// # Errors
    /// A plan that cannot be laid out; a kernel that refuses.
    pub fn open(&self, plan: &Plan) -> anyhow::Result<Box<dyn Home>> {
        let make = self.make.first().context("open a home: there is none")?;
        Ok(make(plan)?)
    }
}

fn native(plan: &Plan) -> Result<Box<dyn Home>, HomeError> {
    Ok(Box::new(Scheduler::new(plan)?))
}

fn kernel(plan: &Plan) -> Result<Box<dyn Home>, HomeError> {
    Ok(Box::new(SchedRun::load(plan)?))
}
