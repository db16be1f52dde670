//! The lateness of a thread that waits for a packet's time, by several means; no packet is sent.
//!
//! | wait | sleeps until | lateness is that of |
//! |---|---|---|
//! | ppoll | 60 us before the time, then reads the clock | the thread: `fairpath impair` |
//! | precise | 1 ms before the time, then reads the clock | the thread: `fairpath impair --precise` |
//! | timerfd | the time | the thread |
//! | bpf-timer | the time | the timer's callback in the kernel |
//! | bpf-thread | the same timer writes to a ring buffer | the thread that reads the ring |
//!
//! The first three are threads of real-time priority with exact timers, as the command's; the last one too. Times are random
//! within 90 to 110 % of the pace's distance. A round has all waits in turn. With `--busy`, a process of normal
//! priority wants each processor, so none of them sleeps.

use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use fairpath_afxdp::Awake;
use fairpath_bpf::KernelTimer;
use fairpath_statistics::Random;
use fairpath_units::Nanos;
use nix::poll::ppoll;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{
    ClockId as TimerClock, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags,
};
use nix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::measure::{Measured, thread_ns};
use crate::table::build;

/// Maximum lateness of a timer of the kernel before the bench ends.
const PATIENCE: Duration = Duration::from_secs(5);
/// As `fairpath impair` (`crates/router/backend/src/impair.rs`).
const AWAKE_NS: u64 = 60_000;
const AWAKE_PRECISE_NS: u64 = 1_000_000;

/// The options of the measurement.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Wakes")]
#[group(skip)]
pub struct Args {
    /// Times a second for which a thread waits
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    wakes: u32,
    /// Seconds of each wait in a round
    #[arg(long, default_value_t = 10)]
    wake_seconds: u32,
    /// Rounds of all waits
    #[arg(long, default_value_t = 3)]
    wake_rounds: u32,
    /// Other processes want every processor during this time
    #[arg(long)]
    busy: bool,
}

impl Args {
    /// The defaults above.
    pub fn usual() -> Args {
        Args {
            wakes: 10,
            wake_seconds: 10,
            wake_rounds: 3,
            busy: false,
        }
    }
}

/// A means to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Wait {
    Ppoll,
    Precise,
    Timerfd,
    BpfTimer,
    BpfThread,
}

impl Wait {
    fn name(self) -> &'static str {
        match self {
            Wait::Ppoll => "ppoll, 60 us early",
            Wait::Precise => "precise, 1 ms early",
            Wait::Timerfd => "timerfd",
            Wait::BpfTimer => "BPF timer: callback",
            Wait::BpfThread => "BPF timer: thread",
        }
    }
}

/// All of it.
#[derive(Debug, Serialize)]
pub struct WakesReport {
    wakes: u32,
    busy: bool,
    rounds: u32,
    rows: Vec<WakesRow>,
}

/// One wait; microseconds, of each round.
#[derive(Debug, Serialize)]
struct WakesRow {
    wait: Wait,
    p50_us: Measured,
    p99_us: Measured,
    max_us: Measured,
    /// Of one core, by the thread; a timer's callback in the kernel is not in it.
    cpu_percent: Measured,
}

/// Measures it.
///
/// # Errors
/// The kernel refuses a timer or the BPF program; it needs root.
pub fn run(args: &Args) -> anyhow::Result<WakesReport> {
    let _others = args.busy.then(Others::start).transpose()?;
    let args = args.clone();
    // The priority of a thread ends with it.
    let measuring = thread::spawn(move || measure(&args));
    measuring
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn measure(args: &Args) -> anyhow::Result<WakesReport> {
    fairpath_afxdp::precede().context("set exact timers")?;
    let mut random = Random::new(1);
    let mut timer = KernelTimer::load()?;
    let mut rounds: Vec<Vec<(Wait, Vec<f64>, f64)>> = Vec::new();
    for round in 0..args.wake_rounds {
        eprintln!("fairpath-bench: wakes, round {round}");
        let mut of_round = Vec::new();
        for wait in [Wait::Ppoll, Wait::Precise, Wait::Timerfd, Wait::BpfThread] {
            of_round.extend(one(wait, args, &mut random, &mut timer)?);
        }
        rounds.push(of_round);
    }
    let waits: Vec<Wait> = rounds
        .first()
        .into_iter()
        .flatten()
        .map(|one| one.0)
        .collect();
    let row = |wait: Wait| {
        let ones = || rounds.iter().flatten().filter(move |one| one.0 == wait);
        let at = |share: f64| Measured::of(ones().map(|one| quantile(&one.1, share)).collect());
        WakesRow {
            wait,
            p50_us: at(0.5),
            p99_us: at(0.99),
            max_us: at(1.0),
            cpu_percent: Measured::of(ones().map(|one| one.2).collect()),
        }
    };
    Ok(WakesReport {
        wakes: args.wakes,
        busy: args.busy,
        rounds: args.wake_rounds,
        rows: waits.into_iter().map(row).collect(),
    })
}

/// Of sorted values.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted
        .get((share * last as f64).round() as usize)
        .copied()
        .unwrap_or(f64::NAN)
}

/// One wait for a while: sorted microseconds, and per cent of a core.
fn one(
    wait: Wait,
    args: &Args,
    random: &mut Random,
    timer: &mut KernelTimer,
) -> anyhow::Result<Vec<(Wait, Vec<f64>, f64)>> {
    let distance = 1_000_000_000 / u64::from(args.wakes);
    let mut awake = match wait {
        Wait::Precise => Awake::precise(Nanos(AWAKE_PRECISE_NS)),
        _ => Awake::before(Nanos(AWAKE_NS)),
    };
    let timer_fd = TimerFd::new(TimerClock::CLOCK_MONOTONIC, TimerFlags::empty())?;
    let (mut late, mut callback) = (Vec::new(), Vec::new());
    let (began, cpu) = (Instant::now(), thread_ns()?);
    let mut due = now()?;
    while began.elapsed() < Duration::from_secs(args.wake_seconds.into()) {
        due = due.max(now()?) + random.within(distance * 9 / 10, distance * 11 / 10);
        match wait {
            Wait::Ppoll | Wait::Precise => wait_awake(&mut awake, due)?,
            Wait::Timerfd => {
                let at = TimeSpec::from(Duration::from_nanos(due));
                timer_fd.set(
                    Expiration::OneShot(at),
                    TimerSetTimeFlags::TFD_TIMER_ABSTIME,
                )?;
                timer_fd.wait()?;
            }
            Wait::BpfTimer | Wait::BpfThread => {
                let by_callback =
                    timer.wait(Nanos(due), Duration::from_nanos(distance * 2) + PATIENCE)?;
                callback.push(by_callback.0 as f64 / 1e3);
            }
        }
        late.push((now()? - due) as f64 / 1e3);
    }
    let cpu_percent = (thread_ns()? - cpu) / began.elapsed().as_nanos() as f64 * 100.0;
    late.sort_by(f64::total_cmp);
    callback.sort_by(f64::total_cmp);
    let mut ones = Vec::new();
    if !callback.is_empty() {
        ones.push((Wait::BpfTimer, callback, 0.0));
    }
    ones.push((wait, late, cpu_percent));
    Ok(ones)
}

fn now() -> anyhow::Result<u64> {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
    Ok(Duration::from(time).as_nanos() as u64)
}

/// As the threads of `fairpath impair` wait for a time.
fn wait_awake(awake: &mut Awake, due: u64) -> anyhow::Result<()> {
    loop {
        let now = now()?;
        if now >= due {
            return Ok(());
        }
        if let Some(sleep) = awake.until(Nanos(now), Nanos(due - now)) {
            ppoll(
                &mut [],
                Some(TimeSpec::from(Duration::from_nanos(sleep.0))),
                None,
            )?;
        }
    }
}

/// Processes of normal priority that want every processor, until dropped.
struct Others(Vec<Child>);

impl Others {
    fn start() -> anyhow::Result<Others> {
        let mut others = Others(Vec::new());
        for _ in 0..thread::available_parallelism()?.get() {
            let child = Command::new("sh")
                .args(["-c", "while :; do :; done"])
                .spawn();
            others
                .0
                .push(child.context("start a process that wants a processor")?);
        }
        Ok(others)
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It has ended already: nothing is left to end.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl WakesReport {
    /// For people.
    pub fn text(&self) -> String {
        let heads = ["us late", "p50", "p99", "max", "CPU %"];
        let cells = |row: &WakesRow| {
            let times = [&row.p50_us, &row.p99_us, &row.max_us];
            let times = times.map(|m| format!("{:.0} [{:.0}, {:.0}]", m.median, m.min, m.most));
            let mut cells = vec![row.wait.name().to_owned()];
            cells.extend(times);
            cells.push(match row.wait {
                Wait::BpfTimer => "-".to_owned(),
                _ => format!("{:.2}", row.cpu_percent.median),
            });
            cells
        };
        let rows: Vec<_> = self.rows.iter().map(cells).collect();
        let others = match self.busy {
            true => "processors that others use",
            false => "idle processors",
        };
        format!(
            "\nWaits for {} times a second, {others}; medians of {} rounds [least, most]\n\n{}",
            self.wakes,
            self.rounds,
            build(&heads, &rows)
        )
    }
}
