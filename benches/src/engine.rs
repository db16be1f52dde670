//! Nanoseconds of CPU time that a packet takes through the scheduler's engine, enqueue and dequeue, natively and in the
//! kernel, unattached.
//!
//! Every flow (or class) is busy: it has a few packets waiting, and for each that leaves another comes. A batch of
//! dequeues, one packet each, is one run; the enqueues of as many packets are the next. Time moves on by a packet of
//! 1,500 bytes at 10 Gbit/s. Rounds go through all cases in turn.
//!
//! FIFO is the reference: the cost of handles, metadata, operations and outcomes alone. Some policies are also run as
//! custom ones, from the same file: interpreted, as machine code, and linked into the kernel's object. They are compared
//! with their C. Kernel rows have the run itself, a 512th of it, and copying operations to the arena and outcomes back.

use std::path::Path;

use anyhow::{Context, bail};
use fairpath_bpf::SchedRun;
use fairpath_bpf::author::Compiler;
use fairpath_core::sched::{
    COST_ONE, Meta, NodeConfig, Op, Outcome, OutcomeKind, Plan, Policy, SchedConfig, SchedRuntime,
    Scheduler, encode_rate, policies,
};
use fairpath_policy::Author;
use fairpath_sched::tree::{Known, Tree};
use serde::Serialize;

use crate::measure::{Measured, Target, thread_ns};
use crate::table::build;

/// Targets of a packet, natively, ns.
const NATIVE_NS: [(&str, f64); 4] = [
    ("fq_codel, 1 flow", 80.0),
    ("fq_codel, 100 flows", 100.0),
    ("fq_codel, 1,000 flows", 120.0),
    ("class tree, 4 levels, 10,000 classes", 200.0),
];
/// Policies that also run as custom ones.
const CUSTOM: [[&str; 2]; 3] = [
    ["stfq", "stfq, 100 flows"],
    ["drr", "drr, 100 flows"],
    ["fq_codel", "fq_codel, 100 flows"],
];
/// Target of a custom policy as machine code, and of one in the kernel, in times of the same policy compiled with the
/// scheduler.
const CUSTOM_RATIO: f64 = 1.3;
/// Dequeues, or enqueues, of one run.
const BATCH: usize = 512;
/// Batches before those that count.
const PREPARE: u32 = 40;
/// Of a packet.
const BYTES: u32 = 1_500;
/// At 10 Gbit/s.
const PACKET_NS: u64 = 1_200;
/// Packets waiting in each flow or class, where it has so few that queues stay below CoDel's target.
const WAITING: u32 = 2;
/// Nodes below each node of the class tree: regions, sites, subscribers.
const BELOW: [u32; 3] = [10, 10, 100];
/// A `PifoKind`: the default queue of a policy.
const HEAP: u32 = 1;

/// The options of the measurement.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Batches of 512 packets of a round
    #[arg(long, default_value_t = 100)]
    batches: u32,
    /// Rounds of all cases
    #[arg(long, default_value_t = 15)]
    rounds: u32,
    /// Leave the kernel out (it needs root)
    #[arg(long)]
    native: bool,
    /// Only cases whose name contains this
    #[arg(long)]
    only: Option<String>,
}

impl Args {
    /// The defaults above.
    pub fn usual() -> Args {
        Args {
            batches: 100,
            rounds: 15,
            native: false,
            only: None,
        }
    }
}

/// All of it.
#[derive(Debug, Serialize)]
pub struct EngineReport {
    cases: Vec<EngineRow>,
    targets: Vec<Target>,
}

#[derive(Debug, Serialize)]
struct EngineRow {
    case: String,
    runtime: &'static str,
    ns_per_packet: Measured,
}

/// A tree, and what keeps it busy.
struct Case {
    name: &'static str,
    plan: Plan,
    /// Flows, or classes.
    busy: u32,
    by_class: bool,
    /// All flows go to the same one.
    one_host: bool,
}

/// A scheduler that is kept busy.
struct Bench {
    runtime: Box<dyn SchedRuntime>,
    busy: u32,
    by_class: bool,
    one_host: bool,
    now: u64,
    ops: Vec<Op>,
    outcomes: Vec<Outcome>,
}

impl Bench {
    /// Fills each flow.
    fn new(runtime: Box<dyn SchedRuntime>, case: &Case) -> anyhow::Result<Bench> {
        let mut bench = Bench {
            runtime,
            busy: case.busy,
            by_class: case.by_class,
            one_host: case.one_host,
            now: 1_000_000_000,
            ops: Vec::new(),
            outcomes: Vec::new(),
        };
        let packets = (WAITING * case.busy).max(2 * BATCH as u32);
        for handle in 1..=packets {
            bench.ops.push(bench.packet(handle));
        }
        bench.runtime.run(&bench.ops, &mut bench.outcomes)?;
        match bench
            .outcomes
            .iter()
            .find(|o| o.kind != OutcomeKind::Queued)
        {
            Some(outcome) => bail!("{}: a packet was not queued: {outcome:?}", case.name),
            None => Ok(bench),
        }
    }

    /// A packet of the flow that its handle belongs to.
    fn packet(&self, handle: u32) -> Op {
        let flow = handle % self.busy;
        let mut meta = Meta {
            arrival: self.now,
            bytes: BYTES,
            flow_hash: flow.wrapping_mul(0x9e37_79b1),
            class_id: if self.by_class { flow + 1 } else { 0 },
            ..Meta::default()
        };
        meta.source[12..].copy_from_slice(&flow.to_be_bytes());
        if !self.one_host {
            meta.destination[12..].copy_from_slice(&flow.to_be_bytes());
        }
        Op::enqueue(self.now, handle, meta)
    }

    /// CPU time that `batches` of packets take, out and in.
    fn run(&mut self, batches: u32) -> anyhow::Result<f64> {
        let mut ns = 0.0;
        for _ in 0..batches {
            self.ops.clear();
            for _ in 0..BATCH {
                self.now += PACKET_NS;
                self.ops.push(Op::dequeue(self.now, 1));
            }
            ns += self.run_ops()?;
            let left = std::mem::take(&mut self.outcomes);
            self.ops.clear();
            for outcome in left.iter().filter(|o| o.kind != OutcomeKind::Nothing) {
                self.ops.push(self.packet(outcome.handle));
            }
            // CoDel drops a few on the way: those come again, too.
            if self.ops.len() < BATCH {
                bail!("{} of {BATCH} packets left", self.ops.len());
            }
            self.outcomes = left;
            ns += self.run_ops()?;
        }
        Ok(ns)
    }

    fn run_ops(&mut self) -> anyhow::Result<f64> {
        self.outcomes.clear();
        let start = thread_ns()?;
        self.runtime.run(&self.ops, &mut self.outcomes)?;
        Ok(thread_ns()? - start)
    }
}

fn shipped(name: &str) -> anyhow::Result<&'static Policy> {
    let found = policies().iter().find(|policy| policy.name == name);
    found.with_context(|| format!("find policy {name}: it is not compiled in"))
}

/// One leaf, as `fairpath sched run --policy` makes it.
fn leaf(policy: &Policy) -> anyhow::Result<Plan> {
    let known = Known {
        policies: std::slice::from_ref(policy),
        classes: &[],
    };
    Ok(Tree::of_policy(policy, known)?.plan)
}

fn node(parent: u32, policy: &Policy) -> NodeConfig {
    let [kind, buckets, shift, full] = policy.queue;
    NodeConfig {
        parent,
        policy: policy.id,
        over: policy.usual,
        queue: if kind == 0 { HEAP } else { kind },
        queue_buckets: buckets,
        queue_shift: shift,
        queue_full: full,
        cost: COST_ONE,
        params: policy.standards(),
        ..NodeConfig::default()
    }
}

/// ISP, regions, sites, and 10,000 subscribers, each with a floor and a ceiling.
fn class_tree() -> anyhow::Result<Plan> {
    let (tree, fifo) = (shipped("class_tree")?, shipped("fifo")?);
    let mut nodes = vec![node(0, tree)];
    let mut above = vec![1];
    for (level, below) in BELOW.into_iter().enumerate() {
        let last = level + 1 == BELOW.len();
        let mut here = Vec::new();
        for parent in above {
            for _ in 0..below {
                nodes.push(NodeConfig {
                    floor: if last { encode_rate(500_000) } else { 0 },
                    ceil: if last { encode_rate(1_000_000_000) } else { 0 },
                    burst: 100_000_000,
                    ..node(parent, if last { fifo } else { tree })
                });
                here.push(nodes.len() as u32);
            }
        }
        above = here;
    }
    let packets = 3 * above.len() as u32;
    Ok(Plan {
        config: SchedConfig {
            packets,
            limit_packets: packets,
            ..SchedConfig::default()
        },
        nodes,
        class_table: std::iter::once(0).chain(above).collect(),
        ..Plan::default()
    })
}

/// Classes whose weights are 1 and 10,000 in turn.
const WEIGHTED: u32 = 100;

/// Children of a root that shares by weight.
fn weighted(policy: &str) -> anyhow::Result<Plan> {
    let child = |class: u32| {
        let weight = if class.is_multiple_of(2) { 10_000 } else { 1 };
        format!(
            "[[node]]\nname = \"c{class}\"\nparent = \"root\"\npolicy = \"fifo\"\nweight = {weight}\nmatch = {{ class = [{class}] }}\n"
        )
    };
    let packets = (WAITING * WEIGHTED).max(2 * BATCH as u32);
    let children: String = (1..=WEIGHTED).map(child).collect();
    let text = format!(
        "[scheduler]\nlimit = \"{packets} packets\"\n[[node]]\nname = \"root\"\npolicy = \"{policy}\"\n{children}"
    );
    let known = Known {
        policies: policies(),
        classes: &[],
    };
    Ok(Tree::read("weighted.toml", &text, known)?.plan)
}

fn cases() -> anyhow::Result<Vec<Case>> {
    let by_weight = |name, policy| -> anyhow::Result<Case> {
        Ok(Case {
            name,
            plan: weighted(policy)?,
            busy: WEIGHTED,
            by_class: true,
            one_host: false,
        })
    };
    let flows = |name, policy, busy| -> anyhow::Result<Case> {
        Ok(Case {
            name,
            plan: leaf(shipped(policy)?)?,
            busy,
            by_class: false,
            one_host: name.ends_with("one host"),
        })
    };
    Ok(vec![
        flows("fifo, 100 flows", "fifo", 100)?,
        flows("stfq, 100 flows", "stfq", 100)?,
        flows("drr, 100 flows", "drr", 100)?,
        flows("fq_codel, 1 flow", "fq_codel", 1)?,
        flows("fq_codel, 100 flows", "fq_codel", 100)?,
        flows("fq_codel, 1,000 flows", "fq_codel", 1_000)?,
        flows("fq_codel, 20 flows to one host", "fq_codel", 20)?,
        by_weight("drr, 100 classes, weights 1 and 10,000", "drr")?,
        by_weight("stfq, 100 classes, weights 1 and 10,000", "stfq")?,
        Case {
            name: "class tree, 4 levels, 10,000 classes",
            plan: class_tree()?,
            busy: BELOW.iter().product(),
            by_class: true,
            one_host: false,
        },
    ])
}

/// The runtime of a custom policy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum As {
    Interpreted,
    Compiled,
    Linked,
}

impl As {
    const ALL: [As; 3] = [As::Interpreted, As::Compiled, As::Linked];

    fn name(self) -> &'static str {
        match self {
            As::Interpreted => "interpreted",
            As::Compiled => "compiled",
            As::Linked => "linked",
        }
    }
}

/// A shipped policy from its file, as a custom one, over 100 flows.
fn custom(name: &'static str, how: As) -> anyhow::Result<Bench> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../bpf/policy/{name}.c"));
    let compiler = Compiler::new()?;
    let object = compiler.policy(&file)?;
    let author = Author::parse(&object)
        .map_err(|problems| anyhow::anyhow!("read {}: {problems:?}", file.display()))?;
    let plan = leaf(&author.policy)?;
    let native = |machine| Scheduler::with_custom(&plan, &author.policy, Box::new(machine));
    let runtime: Box<dyn SchedRuntime> = match how {
        As::Interpreted => Box::new(native(author.machine())?),
        As::Compiled => Box::new(native(author.compiled().map_err(anyhow::Error::msg)?)?),
        As::Linked => {
            let linked = compiler.scheduler(&object, author.has())?;
            Box::new(SchedRun::load_object(&linked, &plan, Some(&author.policy))?)
        }
    };
    let case = Case {
        name,
        plan,
        busy: 100,
        by_class: false,
        one_host: false,
    };
    Bench::new(runtime, &case)
}

/// A measurement: name and bench.
type Ready = (String, Bench);

fn ready(args: &Args) -> anyhow::Result<Vec<Ready>> {
    let wanted = |name: &str| args.only.as_deref().is_none_or(|only| name.contains(only));
    let mut benches = Vec::new();
    for case in cases()?.iter().filter(|case| wanted(case.name)) {
        let runtime = Box::new(Scheduler::new(&case.plan)?);
        benches.push((case.name.to_owned(), Bench::new(runtime, case)?));
        if !args.native {
            let runtime = Box::new(SchedRun::load(&case.plan)?);
            benches.push((case.name.to_owned(), Bench::new(runtime, case)?));
        }
    }
    for [policy, case] in CUSTOM {
        for how in As::ALL {
            let name = format!("{case}, {}", how.name());
            if wanted(&name) && !(args.native && how == As::Linked) {
                benches.push((name, custom(policy, how)?));
            }
        }
    }
    Ok(benches)
}

/// Sends at least `packets` through a case, natively.
///
/// # Errors
/// There is no such case, or packets stay.
pub fn keep_busy(case: &str, packets: u32) -> anyhow::Result<()> {
    let cases = cases()?;
    let case = cases.iter().find(|known| known.name == case);
    let case = case.context("find the case")?;
    let runtime = Box::new(Scheduler::new(&case.plan)?);
    let mut bench = Bench::new(runtime, case)?;
    bench.run(PREPARE + packets.div_ceil(BATCH as u32))?;
    Ok(())
}

/// Measures it all.
///
/// # Errors
/// Where the bench itself fails: programs that do not load, packets that stay, nothing to measure.
pub fn run(args: &Args) -> anyhow::Result<EngineReport> {
    let mut benches = ready(args)?;
    if args.rounds == 0 || args.batches == 0 || benches.is_empty() {
        bail!("nothing to measure: give at least one round, batch and case");
    }
    let mut each = vec![Vec::new(); benches.len()];
    for round in 0..=args.rounds {
        for ((name, bench), each) in benches.iter_mut().zip(&mut each) {
            let ns = bench
                .run(args.batches)
                .with_context(|| format!("run {name}"))?;
            if round > 0 {
                each.push(ns / f64::from(args.batches) / BATCH as f64);
            }
        }
    }
    let rows = benches.iter().zip(each);
    let cases: Vec<EngineRow> = rows
        .map(|((case, bench), each)| EngineRow {
            case: case.clone(),
            runtime: bench.runtime.name(),
            ns_per_packet: Measured::of(each),
        })
        .collect();
    let target = |row: &EngineRow| {
        let known = NATIVE_NS.iter().filter(|_| row.runtime == "native");
        let (_, most) = known.into_iter().find(|(case, _)| row.case == *case)?;
        let what = format!("{}, {}", row.case, row.runtime);
        Some(Target::at_most(
            what,
            row.ns_per_packet.median,
            *most,
            "ns/packet",
        ))
    };
    let targets = cases.iter().filter_map(target).chain(ratios(&cases));
    let targets = targets.collect();
    Ok(EngineReport { cases, targets })
}

/// Custom policies in times of the same ones compiled with the scheduler.
fn ratios(rows: &[EngineRow]) -> Vec<Target> {
    let median = |case: &str, runtime: &str| {
        let mut rows = rows.iter();
        let row = rows.find(|row| row.case == case && row.runtime == runtime)?;
        Some(row.ns_per_packet.median)
    };
    let mut targets = Vec::new();
    for ([_, case], how, runtime) in CUSTOM.into_iter().flat_map(|custom| {
        [
            (custom, As::Compiled, "native"),
            (custom, As::Linked, "kernel"),
        ]
    }) {
        let name = format!("{case}, {}", how.name());
        let pair = median(&name, runtime).zip(median(case, runtime));
        targets.extend(pair.map(|(custom, shipped)| {
            Target::at_most(name, custom / shipped, CUSTOM_RATIO, "x its C")
        }));
    }
    targets
}

impl EngineReport {
    /// For people.
    pub fn text(&self) -> String {
        let heads = ["policy", "home", "ns/packet", "least", "most"];
        let row = |row: &EngineRow| {
            let ns = &row.ns_per_packet;
            let ns = [ns.median, ns.min, ns.most].map(|ns| format!("{ns:.1}"));
            [vec![row.case.clone(), row.runtime.to_owned()], ns.to_vec()].concat()
        };
        let rows: Vec<_> = self.cases.iter().map(row).collect();
        let targets: String = self.targets.iter().map(Target::text).collect();
        format!(
            "\nscheduler, a packet in and out, CPU time (the kernel: unattached, {BATCH} operations a run)\n{}{targets}",
            build(&heads, &rows)
        )
    }
}
