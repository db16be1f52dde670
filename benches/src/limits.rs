//! Nanoseconds of a decision of a limit: from the pool of a CPU, next to a bucket with one lock and to one word with
//! compare-and-swap, on one thread and on two; in the kernel next to its spin lock. What a limit carries on many virtual
//! CPUs, next to other rules, is simulated ([`compare`]).
//!
//! The rate is so high that no decision waits: each case pays its whole way through memory, and nothing else. Rounds go
//! through all cases in turn.

mod compare;

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, bail};
use fairpath_bpf::{KernelLimits, LimitSpin};
use fairpath_core::limit::{LimitConfig, LimitCpu, LimitRate, Limits};
use serde::Serialize;

use crate::measure::{Measured, Target, thread_ns};
use crate::table::build;

/// Bytes of a packet.
const BYTES: u32 = 1500;
const SECOND: u64 = 1_000_000_000;
/// A decision from the pool, natively.
const NATIVE_NS: f64 = 6.0;
/// The same in the kernel, net of the loop.
const KERNEL_NS: f64 = 15.0;
/// Decisions a second of two threads, of those of one.
const TWO_THREADS: f64 = 1.8;

/// The options of the measurement.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Decisions of a round, on each thread
    #[arg(long, default_value_t = 1_000_000)]
    ops: u32,
    /// Rounds of all cases
    #[arg(long, default_value_t = 15)]
    rounds: u32,
    /// Leave the kernel out (it needs root)
    #[arg(long)]
    native: bool,
}

impl Args {
    /// The defaults above.
    pub fn usual() -> Args {
        Args {
            ops: 1_000_000,
            rounds: 15,
            native: false,
        }
    }
}

/// All of it.
#[derive(Debug, Serialize)]
pub struct LimitsReport {
    native: Vec<LimitRow>,
    kernel: Vec<KernelRow>,
    /// Decisions a second of two threads, of those of one.
    kernel_threads: Option<Measured>,
    many_cpus: Vec<compare::CompareRow>,
    targets: Vec<Target>,
}

#[derive(Debug, Serialize)]
struct LimitRow {
    case: &'static str,
    /// Of the thread's CPU time.
    ns: Measured,
    /// Decisions a second of two threads, of those of one in the same round.
    two_threads: Measured,
}

#[derive(Debug, Serialize)]
struct KernelRow {
    case: &'static str,
    /// Net of the loop, except for the loop.
    ns: Measured,
}

/// A limit, as it decides for one thread.
trait Decides: Send {
    fn run(&mut self, ops: u32);
}

/// Far more than a burst: no decision waits.
fn rate() -> LimitRate {
    LimitRate {
        burst: 3600 * SECOND,
        ..LimitRate::new(10_000_000_000_000)
    }
}

struct Pool(LimitCpu);

impl Decides for Pool {
    fn run(&mut self, ops: u32) {
        for _ in 0..ops {
            assert!(self.0.pay(0, BYTES, 1, SECOND).is_ok(), "it waits");
        }
    }
}

/// A token bucket and its lock, on a separate cache line.
#[repr(align(64))]
#[derive(Default)]
struct Locked {
    lock: AtomicBool,
    tokens: AtomicU64,
    last: AtomicU64,
}

impl Decides for &Locked {
    fn run(&mut self, ops: u32) {
        for _ in 0..ops {
            while self.lock.swap(true, Ordering::Acquire) {
                std::hint::spin_loop();
            }
            let last = self.last.load(Ordering::Relaxed);
            let filled = self.tokens.load(Ordering::Relaxed) + (SECOND - last.min(SECOND)) * 1250;
            self.last.store(SECOND, Ordering::Relaxed);
            self.tokens
                .store(filled.max(1 << 40) - u64::from(BYTES), Ordering::Relaxed);
            self.lock.store(false, Ordering::Release);
        }
    }
}

/// The word of GCRA alone, moved for each packet.
#[repr(align(64))]
#[derive(Default)]
struct Word(AtomicU64);

impl Decides for &Word {
    fn run(&mut self, ops: u32) {
        for _ in 0..ops {
            let mut seen = self.0.load(Ordering::Relaxed);
            loop {
                let next = seen.max(SECOND) + u64::from(BYTES);
                match self
                    .0
                    .compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Relaxed)
                {
                    Ok(_) => break,
                    Err(there) => seen = there,
                }
            }
        }
    }
}

/// CPU nanoseconds of a decision on this thread.
fn alone(limit: &mut dyn Decides, ops: u32) -> anyhow::Result<f64> {
    let start = thread_ns()?;
    limit.run(ops);
    Ok((thread_ns()? - start) / f64::from(ops))
}

/// Decisions a second of each on a separate thread, all at once.
fn at_once(limits: &mut [Box<dyn Decides + '_>], ops: u32) -> f64 {
    let barrier = Barrier::new(limits.len());
    let threads = limits.len() as f64;
    let run = |limit: &mut Box<dyn Decides + '_>| {
        barrier.wait();
        let begin = Instant::now();
        limit.run(ops);
        begin.elapsed().as_secs_f64()
    };
    let run = &run;
    let longest = std::thread::scope(|scope| {
        let all = limits
            .iter_mut()
            .map(|limit| scope.spawn(move || run(limit)));
        let all: Vec<_> = all.collect();
        let times = all
            .into_iter()
            .map(|thread| thread.join().unwrap_or(f64::INFINITY));
        times.fold(0.0, f64::max)
    });
    threads * f64::from(ops) / longest
}

/// One limit as two threads have it, and its name.
type Case<'a> = (&'static str, Vec<Box<dyn Decides + 'a>>);

/// The limits that are compared.
fn cases<'a>(limits: &Limits, locked: &'a Locked, word: &'a Word) -> anyhow::Result<Vec<Case<'a>>> {
    let mut pools: Vec<Box<dyn Decides>> = Vec::new();
    for cpu in 0..2 {
        let cpu = limits.cpu(cpu).context("the CPU of a limit is in use")?;
        pools.push(Box::new(Pool(cpu)));
    }
    Ok(vec![
        ("pools", pools),
        ("lock", vec![Box::new(locked), Box::new(locked)]),
        ("compare-and-swap", vec![Box::new(word), Box::new(word)]),
    ])
}

fn native(args: &Args) -> anyhow::Result<Vec<LimitRow>> {
    let config = LimitConfig {
        rate: rate(),
        parent: None,
    };
    let limits = Limits::new(2, &[config])?;
    let (locked, word) = (Locked::default(), Word::default());
    let mut cases = cases(&limits, &locked, &word)?;
    let mut each = vec![(Vec::new(), Vec::new()); cases.len()];
    for round in 0..=args.rounds {
        for ((_, limits), (ns, two)) in cases.iter_mut().zip(&mut each) {
            let one = alone(&mut *limits[0], args.ops)?;
            let single = at_once(&mut limits[..1], args.ops);
            let both = at_once(limits, args.ops) / single;
            // The first round warms up.
            if round > 0 {
                ns.push(one);
                two.push(both);
            }
        }
    }
    let rows = cases
        .iter()
        .zip(each)
        .map(|((case, _), (ns, two))| LimitRow {
            case,
            ns: Measured::of(ns),
            two_threads: Measured::of(two),
        });
    Ok(rows.collect())
}

/// Decisions a second of two threads in the kernel, of those of one in the same round.
fn kernel_threads(args: &Args) -> anyhow::Result<Measured> {
    let config = LimitConfig {
        rate: rate(),
        parent: None,
    };
    let mut limits = KernelLimits::load(2, &[config])?;
    let mut each = Vec::new();
    for round in 0..=args.rounds {
        let one = limits.spin_at_once(1, args.ops, BYTES, SECOND)?;
        let two = limits.spin_at_once(2, args.ops, BYTES, SECOND)?;
        if round > 0 {
            each.push(2.0 * one / two);
        }
    }
    Ok(Measured::of(each))
}

fn kernel(args: &Args) -> anyhow::Result<Vec<KernelRow>> {
    let config = LimitConfig {
        rate: rate(),
        parent: None,
    };
    let mut limits = KernelLimits::load(1, &[config])?;
    let mut each = vec![Vec::new(); LimitSpin::ALL.len()];
    for round in 0..=args.rounds {
        for (spin, each) in LimitSpin::ALL.iter().zip(&mut each) {
            let start = thread_ns()?;
            limits.spin(*spin, args.ops, BYTES, SECOND)?;
            let ns = (thread_ns()? - start) / f64::from(args.ops);
            if round > 0 {
                each.push(ns);
            }
        }
    }
    let gross: Vec<Measured> = each.into_iter().map(Measured::of).collect();
    let name = |spin: &LimitSpin| match spin {
        LimitSpin::Empty => "loop",
        LimitSpin::Pool => "pool",
        LimitSpin::Lock => "bpf_spin_lock",
    };
    let rows = LimitSpin::ALL
        .iter()
        .zip(&gross)
        .enumerate()
        .map(|(at, (spin, ns))| KernelRow {
            case: name(spin),
            ns: match at {
                0 => ns.clone(),
                _ => ns.pairs(&gross[0], |ns, empty| ns - empty),
            },
        });
    Ok(rows.collect())
}

/// Measures it all.
///
/// # Errors
/// Where the bench itself fails: programs that do not load, nothing to measure.
pub fn run(args: &Args) -> anyhow::Result<LimitsReport> {
    if args.rounds == 0 || args.ops == 0 {
        bail!("nothing to measure: give at least one round and one decision");
    }
    let native = native(args)?;
    let (kernel, kernel_threads) = match args.native {
        true => (Vec::new(), None),
        false => (kernel(args)?, Some(kernel_threads(args)?)),
    };
    let mut targets = Vec::new();
    if let Some(pools) = native.iter().find(|row| row.case == "pools") {
        let what = "native decision from a pool".to_owned();
        targets.push(Target::at_most(what, pools.ns.median, NATIVE_NS, "ns"));
        let what = "decisions of two threads, of those of one".to_owned();
        targets.push(Target::at_least(
            what,
            pools.two_threads.median,
            TWO_THREADS,
            "times",
        ));
    }
    if let Some(pool) = kernel.iter().find(|row| row.case == "pool") {
        let what = "decision from a pool in the kernel, net".to_owned();
        targets.push(Target::at_most(what, pool.ns.median, KERNEL_NS, "ns"));
    }
    if let Some(two) = &kernel_threads {
        let what = "decisions of two threads in the kernel, of those of one".to_owned();
        targets.push(Target::at_least(what, two.median, TWO_THREADS, "times"));
    }
    let many_cpus = compare::compare()?;
    targets.extend(compare::targets(&many_cpus));
    Ok(LimitsReport {
        native,
        kernel,
        kernel_threads,
        many_cpus,
        targets,
    })
}

impl LimitsReport {
    /// For people.
    pub fn text(&self) -> String {
        let range = |m: &Measured| format!("{:.1} ({:.1} to {:.1})", m.median, m.min, m.most);
        let times = |m: &Measured| format!("{:.2} ({:.2} to {:.2})", m.median, m.min, m.most);
        let native: Vec<Vec<String>> = (self.native.iter())
            .map(|row| vec![row.case.to_owned(), range(&row.ns), times(&row.two_threads)])
            .collect();
        let kernel: Vec<Vec<String>> = (self.kernel.iter())
            .map(|row| vec![row.case.to_owned(), range(&row.ns)])
            .collect();
        let mut text = build(
            &["limit, natively", "ns a decision", "two threads, times one"],
            &native,
        );
        if !kernel.is_empty() {
            text += "\n";
            text += &build(
                &["limit, in the kernel", "ns a decision, net of the loop"],
                &kernel,
            );
        }
        if let Some(two) = &self.kernel_threads {
            text += &format!("Two threads in the kernel: {} times one.\n", times(two));
        }
        text += "\n";
        text += &compare::text(&self.many_cpus);
        text += "\n";
        text + &self.targets.iter().map(Target::text).collect::<String>()
    }
}
