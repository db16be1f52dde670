//! Nanoseconds of a pop and a push by a queue's occupancy: natively next to the standard library's heap and tree,
//! in the kernel next to its own list and tree, all in one run.
//!
//! Each pop is followed by a push of the same item under a rank up to 4,000 further on, so the occupancy stays and the
//! window moves. Random numbers are drawn in every case. Rounds go through all cases in turn, and count the thread's own
//! CPU time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use anyhow::bail;
use fairpath_bpf::{QueueBench, Variant};
use fairpath_core::pifo::{Kind, PifoConfig, Pool, Window};
use serde::Serialize;

use crate::measure::{Measured, Target, thread_ns};
use crate::table::{build, grouped};

/// Ranks ahead of the one that was served, at most.
const AHEAD: u64 = 4_000;
/// Of each half of the window.
const BUCKETS: u32 = 4_096;
/// cFFS against heap and tree, natively.
const TIMES_FASTER: f64 = 3.0;
/// The maximum ratio of the times at the largest and the smallest occupancy that counts as flat.
const FLAT: f64 = 1.5;
/// A pop and a push in the kernel with slots, net of an empty program.
const KERNEL_NS: f64 = 15.0;

/// The options of the measurement.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Items queued
    #[arg(long, value_delimiter = ',', default_value = "100,1000,10000")]
    occupancy: Vec<u32>,
    /// Pops and pushes of a round
    #[arg(long, default_value_t = 200_000)]
    ops: u32,
    /// Rounds of all cases
    #[arg(long, default_value_t = 25)]
    rounds: u32,
    /// Leave the kernel out (it needs root)
    #[arg(long)]
    native: bool,
}

impl Args {
    /// The defaults above.
    pub fn usual() -> Args {
        Args {
            occupancy: vec![100, 1_000, 10_000],
            ops: 200_000,
            rounds: 25,
            native: false,
        }
    }
}

/// All of it.
#[derive(Debug, Serialize)]
pub struct PifoReport {
    occupancy: Vec<u32>,
    cases: Vec<PifoRow>,
    targets: Vec<Target>,
}

#[derive(Debug, Serialize)]
struct PifoRow {
    case: &'static str,
    kernel: bool,
    /// By occupancy; in the kernel net of the empty program.
    ns: Vec<Measured>,
}

/// Something that pops and pushes.
trait Queue {
    /// `ops` times.
    fn run(&mut self, ops: u32) -> anyhow::Result<()>;
}

/// xorshift64 (Marsaglia, 2003), as in the kernel's programs.
struct Draw(u64);

impl Draw {
    fn later(&mut self, rank: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        rank + (((self.0 >> 32) * AHEAD) >> 32)
    }
}

fn draw() -> Draw {
    Draw(88_172_645_463_325_252)
}

struct OfPool(Pool, Draw);

impl OfPool {
    fn new(kind: Kind, occupancy: u32) -> anyhow::Result<OfPool> {
        let mut pool = Pool::new(occupancy, &[PifoConfig::new(kind, occupancy)])?;
        let mut draw = draw();
        for item in 1..=occupancy {
            pool.push(1, item, draw.later(0))?;
        }
        Ok(OfPool(pool, draw))
    }
}

impl Queue for OfPool {
    fn run(&mut self, ops: u32) -> anyhow::Result<()> {
        let OfPool(pool, draw) = self;
        for _ in 0..ops {
            let Some((item, rank)) = pool.pop_ranked(1) else {
                bail!("the queue is empty");
            };
            pool.push(1, item, draw.later(rank))?;
        }
        Ok(())
    }
}

struct OfHeap(BinaryHeap<Reverse<(u64, u64, u32)>>, u64, Draw);

impl Queue for OfHeap {
    fn run(&mut self, ops: u32) -> anyhow::Result<()> {
        let OfHeap(heap, arrival, draw) = self;
        for _ in 0..ops {
            let Some(Reverse((rank, _, item))) = heap.pop() else {
                bail!("the heap is empty");
            };
            *arrival += 1;
            heap.push(Reverse((draw.later(rank), *arrival, item)));
        }
        Ok(())
    }
}

struct OfTree(BTreeMap<(u64, u64), u32>, u64, Draw);

impl Queue for OfTree {
    fn run(&mut self, ops: u32) -> anyhow::Result<()> {
        let OfTree(tree, arrival, draw) = self;
        for _ in 0..ops {
            let Some(((rank, _), item)) = tree.pop_first() else {
                bail!("the tree is empty");
            };
            *arrival += 1;
            tree.insert((draw.later(rank), *arrival), item);
        }
        Ok(())
    }
}

struct OfKernel(QueueBench);

impl Queue for OfKernel {
    fn run(&mut self, ops: u32) -> anyhow::Result<()> {
        Ok(self.0.run(ops)?)
    }
}

/// The queues that are compared natively, the queue under test first.
fn native(occupancy: u32) -> anyhow::Result<Vec<(&'static str, Box<dyn Queue>)>> {
    let window = Window {
        buckets: BUCKETS,
        ..Window::default()
    };
    let mut draw = draw();
    let ranks: Vec<(u64, u64, u32)> = (1..=occupancy)
        .map(|item| (draw.later(0), item.into(), item))
        .collect();
    let arrival = u64::from(occupancy);
    let heap = OfHeap(ranks.iter().copied().map(Reverse).collect(), arrival, draw);
    let tree = ranks.iter().map(|&(rank, seq, item)| ((rank, seq), item));
    let tree = OfTree(tree.collect(), arrival, self::draw());
    Ok(vec![
        (
            "cFFS",
            Box::new(OfPool::new(Kind::Cffs(window), occupancy)?),
        ),
        ("heap", Box::new(OfPool::new(Kind::Heap, occupancy)?)),
        ("std BinaryHeap", Box::new(heap)),
        ("std BTreeMap", Box::new(tree)),
    ])
}

fn name(variant: Variant) -> &'static str {
    match variant {
        Variant::Empty => "empty program",
        Variant::Cffs => "cFFS, no slots",
        Variant::CffsSlots => "cFFS, kptr slots",
        Variant::CffsCalls => "cFFS, kptr slots, by calls",
        Variant::HeapSlots => "heap, kptr slots",
        Variant::List => "bpf_list, obj_new (FIFO)",
        Variant::ListKept => "bpf_list, kept objects (FIFO)",
        Variant::Rbtree => "bpf_rbtree, obj_new",
        Variant::RbtreeKept => "bpf_rbtree, kept objects",
    }
}

fn kernel(occupancy: u32) -> anyhow::Result<Vec<(&'static str, Box<dyn Queue>)>> {
    let load = |variant| -> anyhow::Result<(&'static str, Box<dyn Queue>)> {
        let bench = OfKernel(QueueBench::load(variant, occupancy)?);
        Ok((name(variant), Box::new(bench)))
    };
    Variant::ALL.into_iter().map(load).collect()
}

/// Nanoseconds of an operation, by case and round; the first round warms up.
fn measure(
    cases: &mut [(&'static str, Box<dyn Queue>)],
    args: &Args,
) -> anyhow::Result<Vec<Measured>> {
    let mut each = vec![Vec::new(); cases.len()];
    for round in 0..=args.rounds {
        for ((_, queue), each) in cases.iter_mut().zip(&mut each) {
            let start = thread_ns()?;
            queue.run(args.ops)?;
            let ns = (thread_ns()? - start) / f64::from(args.ops);
            if round > 0 {
                each.push(ns);
            }
        }
    }
    Ok(each.into_iter().map(Measured::of).collect())
}

/// Adds a measurement of one occupancy to the rows of its cases.
fn add(rows: &mut Vec<PifoRow>, kernel: bool, names: &[&'static str], measured: Vec<Measured>) {
    for (&case, measured) in names.iter().zip(measured) {
        match rows
            .iter_mut()
            .find(|r| r.case == case && r.kernel == kernel)
        {
            Some(row) => row.ns.push(measured),
            None => rows.push(PifoRow {
                case,
                kernel,
                ns: vec![measured],
            }),
        }
    }
}

/// Measures it all.
///
/// # Errors
/// Where the bench itself fails: programs that do not load, nothing to measure.
pub fn run(args: &Args) -> anyhow::Result<PifoReport> {
    if args.rounds == 0 || args.ops == 0 || args.occupancy.is_empty() {
        bail!("nothing to measure: give at least one round, operation and occupancy");
    }
    let mut rows = Vec::new();
    for &occupancy in &args.occupancy {
        let mut cases = native(occupancy)?;
        let names: Vec<_> = cases.iter().map(|(name, _)| *name).collect();
        let measured = measure(&mut cases, args)?;
        add(&mut rows, false, &names, measured);
    }
    for &occupancy in args.occupancy.iter().filter(|_| !args.native) {
        let mut cases = kernel(occupancy)?;
        let names: Vec<_> = cases.iter().map(|(name, _)| *name).collect();
        let gross = measure(&mut cases, args)?;
        // The empty program stays as it is; all others net of it, round by round.
        let net = (0..).zip(&gross).map(|(i, m)| match i {
            0 => m.clone(),
            _ => m.pairs(&gross[0], |a, empty| a - empty),
        });
        add(&mut rows, true, &names, net.collect());
    }
    Ok(PifoReport {
        occupancy: args.occupancy.clone(),
        targets: targets(&rows, &args.occupancy),
        cases: rows,
    })
}

fn targets(rows: &[PifoRow], occupancy: &[u32]) -> Vec<Target> {
    let median = |kernel: bool, case: &str, i: usize| {
        let row = rows.iter().find(|r| r.kernel == kernel && r.case == case);
        row.and_then(|r| r.ns.get(i)).map(|m| m.median)
    };
    let mut targets = Vec::new();
    let last = occupancy.len() - 1;
    if let (Some(min), Some(most)) = (median(false, "cFFS", 0), median(false, "cFFS", last)) {
        let what = "native cFFS, largest occupancy against smallest".to_owned();
        targets.push(Target::at_most(what, most / min, FLAT, "times"));
    }
    for (i, &n) in occupancy.iter().enumerate() {
        let n = grouped(n.into());
        for peer in ["std BinaryHeap", "std BTreeMap"] {
            if let (Some(ours), Some(theirs)) = (median(false, "cFFS", i), median(false, peer, i)) {
                let what = format!("native cFFS against {peer}, {n} items");
                targets.push(Target::at_least(what, theirs / ours, TIMES_FASTER, "times"));
            }
        }
        if let Some(ns) = median(true, name(Variant::CffsSlots), i) {
            let what = format!("kernel, cFFS with kptr slots, net, {n} items");
            targets.push(Target::at_most(what, ns, KERNEL_NS, "ns"));
        }
    }
    targets
}

impl PifoReport {
    /// For people.
    pub fn text(&self) -> String {
        let heads: Vec<String> = std::iter::once("ns a pop and a push".to_owned())
            .chain(
                self.occupancy
                    .iter()
                    .map(|&n| format!("{} items", grouped(n.into()))),
            )
            .collect();
        let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
        let cell = |m: &Measured| format!("{:.1} ({:.1} to {:.1})", m.median, m.min, m.most);
        let part = |kernel: bool| {
            let rows: Vec<Vec<String>> = self
                .cases
                .iter()
                .filter(|row| row.kernel == kernel)
                .map(|row| {
                    std::iter::once(row.case.to_owned())
                        .chain(row.ns.iter().map(cell))
                        .collect()
                })
                .collect();
            build(&heads, &rows)
        };
        let targets: String = self.targets.iter().map(Target::text).collect();
        let kernel = if self.cases.iter().any(|row| row.kernel) {
            format!(
                "\nqueues, in the kernel, unattached, net of the empty program (medians, least and most); where the \
                 machine mitigates\nspeculation, calls of kfuncs are the dearer part of bpf_list and bpf_rbtree\n{}",
                part(true)
            )
        } else {
            String::new()
        };
        format!(
            "\nqueues, natively through safe Rust (medians, least and most)\n{}{kernel}{targets}",
            part(false)
        )
    }
}
