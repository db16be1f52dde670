//! One home or both, of shipped policies or of an author's file.

use std::path::Path;
use std::rc::Rc;

use fairpath_bpf::SchedRun;
use fairpath_core::sched::{Home, HomeError, Plan, Policy, Scheduler, policies};
use fairpath_sched::script::MakeHome;

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
                let home = own
                    .native(plan)
                    .map_err(|error| HomeError::Plan(format!("{error:#}")))?;
                Ok(Box::new(home.0) as Box<dyn Home>)
            }));
        }
        if homes != Homes::Native {
            let (own, object) = (own.clone(), own.object()?);
            make.push(Rc::new(move |plan| {
                let home = own.load(&object, plan);
                let home = home.map_err(|error| HomeError::Kernel(format!("{error:#}")))?;
                Ok(Box::new(home) as Box<dyn Home>)
            }));
        }
        Ok(Makers {
            policies: own.known(),
            make,
        })
    }
}

fn native(plan: &Plan) -> Result<Box<dyn Home>, HomeError> {
    Ok(Box::new(Scheduler::new(plan)?))
}

fn kernel(plan: &Plan) -> Result<Box<dyn Home>, HomeError> {
    Ok(Box::new(SchedRun::load(plan)?))
}
