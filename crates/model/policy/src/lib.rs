//! An author's own policy: from the object that clang made of his file to one that runs natively.
//!
//! ```text
//! NAME.c --clang--> object --.-- POLICY block -- describe --> Policy
//!                            '-- .text -- code --> Program --> Machine: Custom, in the native runtime
//! ```
//!
//! The object is read as if an enemy had written it: whatever its bytes are, the answer is an
//! [`Author`] or what is wrong with it, and a [`Machine`] never leaves the memory that its policy
//! has, nor runs for longer than its budget. Who calls the compiler, and what the kernel does with the
//! same file, is `fairpath_bpf::author`.

mod code;
mod compiled;
mod describe;
mod elf;
mod lines;
mod machine;
mod regions;
pub mod trial;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};

use fairpath_core::sched::{Function, Policy, policies};

use compiled::Code;

pub use code::{CONSTANT_BYTES, INSTRUCTIONS, Refusal};
pub use describe::{Defect, is_name};
pub use lines::SourceLine;
pub use machine::{CALL_BUDGET, DEPTH, Fault, Machine, Violation, Watch};

/// `sizeof(struct fp_call)`, and the words of what a policy answers in it.
const CALL_BYTES: u32 = 120;
const CALL_DUE: usize = 13;
const CALL_VERDICT: usize = 14;
/// The most bytes of an object.
pub const OBJECT_BYTES: usize = 16 << 20;

/// The problem of an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// With its code.
    #[error(transparent)]
    Code(#[from] Refusal),
    /// With its POLICY block.
    #[error(transparent)]
    Block(#[from] Defect),
}

/// A valid custom policy. Equal ones have the same description and behaviour.
#[derive(Clone, Debug)]
pub struct Author {
    /// The description of the policy.
    pub policy: Policy,
    object: Arc<[u8]>,
    program: Arc<code::Program>,
    entries: [Option<usize>; 4],
    /// Machine code, made at its first use, or why there is none.
    code: Arc<OnceLock<Result<Arc<Code>, String>>>,
}

impl Author {
    /// Reads an object of `fairpath_bpf::author`. Cost: linear in its bytes.
    ///
    /// # Errors
    /// All that is wrong with it, never nothing.
    pub fn parse(object: &[u8]) -> Result<Author, Vec<Problem>> {
        let elf = (object.len() <= OBJECT_BYTES).then(|| elf::Elf::parse(object));
        let elf = elf.flatten().ok_or_else(|| vec![Refusal::NotBpf.into()])?;
        let program = code::read(&elf);
        let entries = program
            .as_ref()
            .map_or([None; 4], |program| ALL.map(|f| entry(program, f)));
        let has = |function: &Function| entries[*function as usize].is_some();
        // Without code its functions are unknown: that is no error of the block.
        let functions: Vec<_> = ALL
            .into_iter()
            .filter(|f| program.is_err() || has(f))
            .collect();
        let policy = match elf.section(".fairpath.policy") {
            Some((_, block)) => {
                let sizes = elf.section(".fairpath.sizes");
                let sizes = sizes.and_then(|(_, section)| describe::sizes(section.data));
                describe::describe(block.data, sizes, &functions).map_err(to_problems)
            }
            None => Err(vec![Refusal::NoPolicy.into()]),
        };
        match (program.map_err(to_problems), policy) {
            (Ok(program), Ok(policy)) => {
                let program = Arc::new(program);
                Ok(Author {
                    policy,
                    object: object.into(),
                    program,
                    entries,
                    code: Arc::default(),
                })
            }
            (program, policy) => {
                let problems = program.err().into_iter().chain(policy.err());
                Err(problems.flatten().collect())
            }
        }
    }

    /// The policies that are compiled in, and this one before them, also in place of one of its name.
    pub fn known(&self) -> Vec<Policy> {
        known([self])
    }

    /// The same policy as the custom policy of this place, from 0 on.
    #[must_use]
    pub fn numbered(&self, place: usize) -> Author {
        let mut numbered = self.clone();
        numbered.policy.id = Policy::CUSTOM + place as u32;
        numbered
    }

    /// A machine with the policy in it, ready to be called. They share the code, nothing else.
    pub fn machine(&self) -> Machine {
        Machine::new(self.program.clone(), self.entries, self.policy.state_bytes)
    }

    /// A machine that runs machine code, made from the checked instructions at the first call.
    ///
    /// # Errors
    /// The reason why there is none: the processor is not supported, or the kernel refuses the memory.
    pub fn compiled(&self) -> Result<Machine, String> {
        Ok(self.machine().with_code(self.code()?))
    }

    /// The machine of a router: compiled where that is possible.
    pub fn fastest(&self) -> Machine {
        self.compiled().unwrap_or_else(|_| self.machine())
    }

    /// Why [`Author::fastest`] interprets; `None` if it is compiled.
    pub fn why_interpreted(&self) -> Option<String> {
        self.code().err()
    }

    fn code(&self) -> Result<Arc<Code>, String> {
        let make = || {
            let bytes = machine::limits(&self.program, self.policy.state_bytes);
            Code::new(&self.program, &self.entries, bytes).map(Arc::new)
        };
        self.code.get_or_init(make).clone()
    }

    /// The object that it was read from.
    pub fn object(&self) -> &[u8] {
        &self.object
    }

    /// The same number for the same code under the same name with the same state and wants, never 0. So two policies of
    /// one tree are never taken for one.
    pub fn identity(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let Policy {
            name,
            wants,
            state_bytes,
            ..
        } = &self.policy;
        (self.program.identity(), name, wants, state_bytes).hash(&mut hasher);
        hasher.finish().max(1)
    }

    /// Which of the four functions there are, a bit each: `FP_CUSTOM_HAS`.
    pub fn has(&self) -> u32 {
        let functions = self.policy.functions.iter();
        functions.fold(0, |bits, function| bits | 1 << *function as u32)
    }

    /// Instructions of each function of the file, in the file's order.
    pub fn functions(&self) -> impl Iterator<Item = (&str, usize)> {
        let functions = self.program.functions.iter();
        functions.map(|f| (f.name.as_str(), f.end - f.start))
    }
}

/// Custom policies, and those that are compiled in behind them, without those of the same names.
pub fn known<'a>(customs: impl IntoIterator<Item = &'a Author>) -> Vec<Policy> {
    let customs = customs.into_iter().map(|custom| custom.policy.clone());
    let mut known: Vec<Policy> = customs.collect();
    for shipped in policies() {
        if known.iter().all(|custom| custom.name != shipped.name) {
            known.push(shipped.clone());
        }
    }
    known
}

impl PartialEq for Author {
    fn eq(&self, other: &Author) -> bool {
        self.policy == other.policy && self.program.identity() == other.program.identity()
    }
}

const ALL: [Function; 4] = [
    Function::RankEnqueue,
    Function::RankDequeue,
    Function::SendTime,
    Function::OnDrop,
];

fn to_problems<T: Into<Problem>>(all: Vec<T>) -> Vec<Problem> {
    all.into_iter().map(Into::into).collect()
}

/// Where a function begins, by the name that policy.h gives it.
fn entry(program: &code::Program, function: Function) -> Option<usize> {
    let name = format!("custom_{}", machine::hook(function).to_lowercase());
    let mut functions = program.functions.iter();
    functions.find(|f| f.name == name).map(|f| f.start)
}
