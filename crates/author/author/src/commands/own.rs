//! A custom policy: compiled, read, and loaded into either runtime.

use std::path::{Path, PathBuf};

use fairpath_bpf::SchedRun;
use fairpath_bpf::author::{self, Compiler, Refusal};
use fairpath_core::sched::{Plan, Policy, Scheduler};
use fairpath_policy::{Author, Watch};

/// A custom policy from a C file.
pub struct Own {
    /// The description of the policy and its instructions.
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

    /// This policy, followed by the built-in policies.
    pub fn known(&self) -> Vec<Policy> {
        self.author.known()
    }

    /// The native runtime, which interprets the instructions of the policy, and a watch for faults.
    pub fn native(&self, plan: &Plan) -> anyhow::Result<(Scheduler, Watch)> {
        let machine = self.author.machine();
        let watch = machine.watch();
        let runtime = Scheduler::with_custom(plan, &self.author.policy, Box::new(machine))?;
        Ok((runtime, watch))
    }

    /// The scheduler program linked with the policy, for [`Own::load`].
    pub fn object(&self) -> anyhow::Result<Vec<u8>> {
        Ok(self.compiler.scheduler(&self.object, self.author.has())?)
    }

    /// The kernel runtime of the program from [`Own::object`].
    pub fn load(&self, object: &[u8], plan: &Plan) -> anyhow::Result<SchedRun> {
        let loaded = SchedRun::load_object(object, plan, Some(&self.author.policy));
        loaded.map_err(|error| match author::refusal(object) {
            Some(refusal) => anyhow::anyhow!("{}", refusal_text(&refusal)),
            None => error.into(),
        })
    }

    /// An object with only the functions of the policy, for the verifier.
    pub fn trial(&self) -> anyhow::Result<Vec<u8>> {
        Ok(self.compiler.trial(&self.file, self.author.has())?)
    }
}

/// The reason for a refusal by the verifier, with the source line.
pub fn refusal_text(refusal: &Refusal) -> String {
    let Refusal {
        function,
        line,
        reason,
    } = refusal;
    if reason.starts_with("combined stack size") {
        return format!(
            "the verifier refuses the policy: its functions need too much stack ({reason}): \
             use fewer local variables, and no arrays"
        );
    }
    let line = line.as_deref().unwrap_or("an unknown line");
    let function = function.trim_start_matches("custom_").to_uppercase();
    format!("the verifier refuses {function} at {line}\n  {reason}")
}
