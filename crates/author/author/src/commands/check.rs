//! `fairpath sched check`: compile a custom policy, verify it, and compare both runtimes.
//!
//! The stages run in order, and the first problem ends the check, since later stages need a usable
//! policy. A stage that lacks its privileges is skipped and reported as skipped.

pub(super) mod findings;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use fairpath_bpf::author::{VerifyError, verify};
use fairpath_core::sched::{Op, Over, Plan, SchedRuntime};
use fairpath_policy::trial::{self, Trial};
use fairpath_sched::tree::{Known, Tree};

use self::findings::{Findings, Format, Function, TrialResult, Verifier};
use super::own::{self, Own};
use super::watch;

/// Operations of a trial. About half of them enqueue a packet.
const OPERATIONS: usize = 20_000;

/// Arguments of `fairpath sched check`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath sched check mine.c                 compile the policy and try it\n  \
    sudo fairpath sched check mine.c tree.toml  also verify it and try it in a tree\n  \
    fairpath sched check mine.c --watch         check it after each save\n\n\
    The check needs clang 19 (apt-get install clang-19). The variable CLANG selects another clang.\n\
    The verifier and the kernel runtime need root, or CAP_BPF and CAP_PERFMON.\n\
    Exit status: 0 no problem found, 1 problem found, 2 wrong usage.")]
pub struct Args {
    /// Policy in C
    #[arg(value_name = "FILE.c")]
    pub file: PathBuf,
    /// Tree in TOML that uses the policy
    #[arg(value_name = "TREE.toml")]
    pub tree: Option<PathBuf>,
    /// Set the seed of the random operations
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Select the output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// Check again after each change of a file, until Ctrl-C
    #[arg(long)]
    pub watch: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let files: Vec<&Path> = [Some(&args.file), args.tree.as_ref()]
        .into_iter()
        .flatten()
        .map(PathBuf::as_path)
        .collect();
    match args.watch {
        true => watch::repeat(&files, || once(args)),
        false => once(args),
    }
}

fn once(args: &Args) -> anyhow::Result<()> {
    let mut findings = Findings::new(&args.file);
    if let Err(problem) = stages(args, &mut findings) {
        findings.problems.push(format!("{problem:#}"));
    }
    let output = findings.output(args.format)?;
    fairpath_cli::print(output)?;
    if !findings.problems.is_empty() {
        bail!(
            "check policy {}: the problems are listed above",
            args.file.display()
        );
    }
    Ok(())
}

/// Runs the stages in order. Findings of completed stages remain if a later stage fails.
pub(super) fn stages(args: &Args, findings: &mut Findings) -> anyhow::Result<Own> {
    if args
        .file
        .extension()
        .is_some_and(|extension| extension == "toml")
    {
        bail!(
            "{} is a tree: name the C file of a custom policy first (`fairpath sched check mine.c {}`); `fairpath sched run` checks a tree of built-in policies",
            args.file.display(),
            args.file.display()
        );
    }
    let own = Own::open(&args.file)?;
    findings.read(&own.author);
    findings.warnings.extend(own.narrow_sums()?);
    let verified = run_verifier(&own, findings)?;
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
    try_out(&own, &plans, args.seed, verified, findings)?;
    Ok(own)
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

/// Returns whether the kernel runtime is available to this process.
fn run_verifier(own: &Own, findings: &mut Findings) -> anyhow::Result<bool> {
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
    bail!("{}", own::refusal_text(&refusal))
}

/// Runs the same operations in the native runtime and, if allowed, in the kernel runtime.
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
        let (mut runtime, watch) = own.native(plan)?;
        let native = trial::run(&mut runtime, &ops);
        if let Some(fault) = watch.fault() {
            bail!("{place}: the policy was stopped: {fault}");
        }
        let native = native.with_context(|| format!("run {place} in the native runtime"))?;
        if native.stuck > 0 {
            bail!(
                "{place}: {} packets never leave the queue: check SEND_TIME and LATER",
                native.stuck
            );
        }
        if let Some((function, verdict)) = watch.undefined_verdict() {
            bail!(
                "{place}: {function} returns the undefined verdict {verdict:#x}: use SEND, DROP, LATER, MARK and LINGER"
            );
        }
        if native.sent == 0 {
            bail!(
                "{place}: no packet is sent: of {} packets, {} are dropped: return DROP for some packets only, and LATER until a time",
                native.queued + native.dropped,
                native.dropped
            );
        }
        let mut runtimes = vec!["interpreted"];
        if let Some(mut runtime) = own.compiled(plan)? {
            compare(place, "compiled", &native, &mut runtime, &ops)?;
            runtimes.push("compiled");
        }
        if let Some(object) = &object {
            let mut runtime = own.load(object, plan)?;
            compare(place, "kernel", &native, &mut runtime, &ops)?;
            runtimes.push("kernel");
        }
        let trial = TrialResult::new(place, OPERATIONS, seed, &native, runtimes);
        findings.trials.push(trial);
    }
    Ok(())
}

fn compare(
    place: &str,
    name: &str,
    native: &Trial,
    runtime: &mut dyn SchedRuntime,
    ops: &[Op],
) -> anyhow::Result<()> {
    let other =
        trial::run(runtime, ops).with_context(|| format!("run {place} in the {name} runtime"))?;
    if let Some((index, ours, theirs)) = native.differs(&other) {
        bail!(
            "{place}: the runtimes differ at outcome {index}: interpreted {ours:?}, {name} {theirs:?}"
        );
    }
    Ok(())
}
