//! `fairpath sched check`: what the compiler, the verifier and the tree say of an author's file, and
//! whether both homes do the same with it.
//!
//! Stages follow each other; the first that finds something wrong is the last: what comes behind it
//! would speak of a policy that is not there. A stage that needs what is missing (root) is skipped,
//! and says so.

mod findings;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use fairpath_bpf::author::{VerifyError, verify};
use fairpath_core::sched::{Home, Over, Plan};
use fairpath_policy::trial::{self, Trial};
use fairpath_sched::tree::{Known, Tree};

use self::findings::{Findings, Format, Function, Trialled, Verifier};
use super::own::{self, Own};

/// Operations of a trial; about half of them are packets.
const OPERATIONS: usize = 20_000;

/// Arguments of `fairpath sched check`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath sched check mine.c                 the policy alone, over everything that it ranks\n  \
    sudo fairpath sched check mine.c tree.toml  with the verifier, the kernel home, and in a tree\n\n\
    Needs clang 19 (apt-get install clang-19; CLANG names another).\n\
    Exit status: 0 nothing is wrong, 1 something is, 2 wrong usage.")]
pub struct Args {
    /// The policy, in C
    #[arg(value_name = "FILE.c")]
    file: PathBuf,
    /// A tree that uses it, in TOML
    #[arg(value_name = "TREE.toml")]
    tree: Option<PathBuf>,
    /// Of the trial's random operations
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Lines for people, or one JSON object
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let mut findings = Findings::new(&args.file);
    if let Err(problem) = stages(args, &mut findings) {
        findings.problems.push(format!("{problem:#}"));
    }
    let output = findings.output(args.format)?;
    match io::stdout().lock().write_all(output.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        written => written.context("write to standard output")?,
    }
    if !findings.problems.is_empty() {
        bail!("check policy {}: see above", args.file.display());
    }
    Ok(())
}

/// One behind the other; what is found on the way is kept, whatever comes of the next.
fn stages(args: &Args, findings: &mut Findings) -> anyhow::Result<()> {
    let own = Own::open(&args.file)?;
    findings.read(&own.author);
    let verified = ask_verifier(&own, findings)?;
    let known = own.known();
    let known = Known {
        policies: &known,
        classes: &[],
    };
    let plans = match &args.tree {
        None => {
            let policy = &own.author.policy;
            let over = policy.over.iter();
            over.map(|over| (format!("over {}", name(*over)), trial::plan(policy, *over)))
                .collect()
        }
        Some(file) => {
            let tree = read_tree(file, known)?;
            findings.tree = Some((file.clone(), tree.plan.nodes.len()));
            findings
                .warnings
                .extend(tree.warnings.iter().map(ToString::to_string));
            vec![(
                format!("in {}", file.display()),
                trial::narrowed(&tree.plan),
            )]
        }
    };
    try_out(&own, &plans, args.seed, verified, findings)
}

fn name(over: Over) -> &'static str {
    match over {
        Over::Packets => "packets",
        Over::Flows => "flows",
        Over::Children => "children",
        Over::References => "references",
    }
}

fn read_tree(file: &Path, known: Known<'_>) -> anyhow::Result<Tree> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file).with_context(|| format!("read tree {name}"))?;
    let tree = Tree::read(&name, &text, known);
    tree.with_context(|| format!("build the tree of {name}"))
}

/// Whether the kernel may be asked further.
fn ask_verifier(own: &Own, findings: &mut Findings) -> anyhow::Result<bool> {
    let verdict = match verify(&own.trial()?) {
        Ok(verdict) => verdict,
        Err(VerifyError::NotPermitted) => {
            findings.verifier = Verifier::Skipped;
            return Ok(false);
        }
        Err(error) => return Err(error.into()),
    };
    for (name, instructions) in &verdict.functions {
        let of = |function: &&mut Function| function.name == *name;
        if let Some(function) = findings.functions.iter_mut().find(of) {
            function.verified = Some(*instructions);
        }
    }
    let Some(refusal) = verdict.refusal else {
        findings.verifier = Verifier::Accepted;
        return Ok(true);
    };
    findings.verifier = Verifier::Refused;
    bail!("{}", own::told(&refusal))
}

/// Runs the same operations natively and, if we may, in the kernel.
fn try_out(
    own: &Own,
    plans: &[(String, Plan)],
    seed: u64,
    in_kernel: bool,
    findings: &mut Findings,
) -> anyhow::Result<()> {
    let object = in_kernel.then(|| own.object()).transpose()?;
    let known = own.known();
    for (place, plan) in plans {
        let policy_of = |id: u32| known.iter().find(|policy| policy.id == id);
        let policies: Vec<_> = plan
            .nodes
            .iter()
            .filter_map(|n| policy_of(n.policy))
            .collect();
        let classes = u32::try_from(plan.class_table.len()).unwrap_or(u32::MAX);
        let ops = trial::operations(&policies, classes, OPERATIONS, seed);
        let (mut home, watch) = own.native(plan)?;
        let native = trial::run(&mut home, &ops);
        if let Some(fault) = watch.fault() {
            bail!("{place}, the policy was stopped: {fault}");
        }
        let native = native.with_context(|| format!("run {place}, natively"))?;
        if native.stuck > 0 {
            bail!(
                "{place}, {} packets never leave: check SEND_TIME and LATER",
                native.stuck
            );
        }
        if let Some(object) = &object {
            let mut home = own.load(object, plan)?;
            compare(place, &native, &mut home, &ops)?;
        }
        findings
            .trials
            .push(Trialled::new(place, OPERATIONS, seed, &native, in_kernel));
    }
    Ok(())
}

fn compare(
    place: &str,
    native: &Trial,
    home: &mut dyn Home,
    ops: &[fairpath_core::sched::Op],
) -> anyhow::Result<()> {
    let kernel = trial::run(home, ops).with_context(|| format!("run {place}, in the kernel"))?;
    if let Some((index, ours, theirs)) = native.differs(&kernel) {
        bail!(
            "{place}, the homes differ at outcome {index}: natively {ours:?}, in the kernel {theirs:?}"
        );
    }
    Ok(())
}
