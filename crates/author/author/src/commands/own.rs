//! A custom policy: compiled, read, and loaded into either runtime.

use std::path::{Path, PathBuf};

use fairpath_bpf::SchedRun;
use fairpath_bpf::author::{self, Compiler, Refusal};
use fairpath_core::sched::{Plan, Policy, Scheduler};
use fairpath_policy::{Author, Machine, Watch};

/// A custom policy from a C file.
pub struct Own {
    /// The description of the policy and its instructions.
    pub author: Author,
    file: PathBuf,
    compiler: Compiler,
}

impl Own {
    /// Compiles and reads a file.
    pub fn open(file: &Path) -> anyhow::Result<Own> {
        let compiler = Compiler::new()?;
        let author = author::parse(file, &compiler.policy(file)?)?;
        Ok(Own {
            author,
            file: file.to_owned(),
            compiler,
        })
    }

    /// Warnings about sums of bytes that wrap after 4 GB.
    pub fn narrow_sums(&self) -> anyhow::Result<Vec<String>> {
        let file = self.file.display();
        let warning = |(at, line)| {
            format!(
                "{file}:{at}: {line}: the sum of p->bytes wraps, with 32 bits after 4 GB: keep it in a u64"
            )
        };
        let sums = self.compiler.narrow_sums(&self.file)?;
        Ok(sums.into_iter().map(warning).collect())
    }

    /// This policy, followed by the built-in policies.
    pub fn known(&self) -> Vec<Policy> {
        self.author.known()
    }

    /// The native runtime, which interprets the instructions of the policy, and a watch for faults.
    pub fn native(&self, plan: &Plan) -> anyhow::Result<(Scheduler, Watch)> {
        self.run_by(self.author.machine(), plan)
    }

    /// The same with machine code; `None` where there is none.
    pub fn compiled(&self, plan: &Plan) -> anyhow::Result<Option<Scheduler>> {
        let Ok(machine) = self.author.compiled() else {
            return Ok(None);
        };
        Ok(Some(self.run_by(machine, plan)?.0))
    }

    fn run_by(&self, machine: Machine, plan: &Plan) -> anyhow::Result<(Scheduler, Watch)> {
        let watch = machine.watch();
        let runtime = Scheduler::with_custom(plan, &self.author.policy, Box::new(machine))?;
        Ok((runtime, watch))
    }

    /// The scheduler program linked with the policy, for [`Own::load`].
    pub fn object(&self) -> anyhow::Result<Vec<u8>> {
        Ok(self
            .compiler
            .scheduler(self.author.object(), self.author.has())?)
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

/// Function, line, reason and remedy of a refusal by the verifier, with its last words.
pub fn refusal_text(refusal: &Refusal) -> String {
    let Refusal {
        function,
        line,
        reason,
    } = refusal;
    let function = match function.strip_prefix("custom_") {
        Some(name) => name.to_uppercase(),
        None if function.is_empty() => "the policy".to_owned(),
        None => function.clone(),
    };
    let line = line
        .as_ref()
        .map_or(String::new(), |at| format!(" at {at}"));
    let words = match reason.as_str() {
        "" => "no words",
        words => words,
    };
    match refusal.explained() {
        Some((why, remedy)) => {
            format!("the verifier refuses {function}{line}\n  {why}: {remedy} (verifier: {words})")
        }
        None => format!(
            "the verifier refuses {function}{line}\n  for another reason: compare with a policy of `fairpath sched new` (verifier: {words})"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(function: &str, line: Option<&str>, reason: &str) -> String {
        refusal_text(&Refusal {
            function: function.into(),
            line: line.map(Into::into),
            reason: reason.into(),
        })
    }

    #[test]
    fn refusals_have_function_line_reason_and_remedy() {
        assert_eq!(
            text(
                "custom_rank_enqueue",
                Some("mine.c:8: while (1)"),
                "infinite loop detected at insn 6"
            ),
            "the verifier refuses RANK_ENQUEUE at mine.c:8: while (1)\n  the loop may never end: \
             loop a constant number of times (verifier: infinite loop detected at insn 6)"
        );
    }

    #[test]
    fn refusals_without_function_name_the_policy() {
        let text = text("", None, "combined stack size of 3 calls is 640. Too large");
        assert!(
            text.starts_with("the verifier refuses the policy\n  it"),
            "{text}"
        );
        assert!(text.contains("fewer local variables"), "{text}");
    }
}
