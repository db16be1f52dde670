//! An author's own file as a policy: compiled, read, and put into either home.

use std::path::{Path, PathBuf};

use fairpath_bpf::SchedRun;
use fairpath_bpf::author::{self, Compiler, Refusal};
use fairpath_core::sched::{Plan, Policy, Scheduler};
use fairpath_policy::{Author, Watch};

/// An author's file that is a policy.
pub struct Own {
    /// What it is, and its instructions.
    pub author: Author,
    file: PathBuf,
    object: Vec<u8>,
    compiler: Compiler,
}

impl Own {
    /// Compiles and reads a file.
    pub fn open(file: &Path) -> anyhow::Result<Own> {
        let compiler = Compiler::new()?;
        let object = compiler.policy(file)?;
        let author = author::parse(file, &object)?;
        Ok(Own {
            author,
            file: file.to_owned(),
            object,
            compiler,
        })
    }

    /// The policies that are compiled in, and this one before them.
    pub fn known(&self) -> Vec<Policy> {
        self.author.known()
    }

    /// The native home, where the policy's instructions are interpreted, and whether they are stopped.
    pub fn native(&self, plan: &Plan) -> anyhow::Result<(Scheduler, Watch)> {
        let machine = self.author.machine();
        let watch = machine.watch();
        let home = Scheduler::with_custom(plan, &self.author.policy, Box::new(machine))?;
        Ok((home, watch))
    }

    /// The scheduler's program, linked with the policy: for [`Own::load`].
    pub fn object(&self) -> anyhow::Result<Vec<u8>> {
        Ok(self.compiler.scheduler(&self.object, self.author.has())?)
    }

    /// The kernel home, from [`Own::object`].
    pub fn load(&self, object: &[u8], plan: &Plan) -> anyhow::Result<SchedRun> {
        let loaded = SchedRun::load_object(object, plan, Some(&self.author.policy));
        loaded.map_err(|error| match author::refusal(object) {
            Some(refusal) => anyhow::anyhow!("{}", told(&refusal)),
            None => error.into(),
        })
    }

    /// What the verifier has to say of the policy's functions.
    pub fn trial(&self) -> anyhow::Result<Vec<u8>> {
        Ok(self.compiler.trial(&self.file, self.author.has())?)
    }
}

/// Why the verifier refuses, with the author's line.
pub fn told(refusal: &Refusal) -> String {
    let Refusal {
        function,
        line,
        reason,
    } = refusal;
    if reason.starts_with("combined stack size") {
        return format!(
            "the verifier refuses it: its functions need too much stack below the scheduler's ({reason}); \
             use fewer local variables, and no arrays"
        );
    }
    let line = line.as_deref().unwrap_or("a line that it does not name");
    let function = function.trim_start_matches("custom_").to_uppercase();
    format!("the verifier refuses {function}, at {line}\n  {reason}")
}
