//! Live measurement: the kernel runtime on interfaces, until a signal or a limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use fairpath_bpf::cost::{Empty, RunTime, Statistics};
use fairpath_bpf::{Options, READ_EVERY, RttMonitor};
use fairpath_cli::{Capability, note, require};
use fairpath_rtt::Clock;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::args::Args;
use super::by::{self, ByTable, Named};
use super::output::Output;
use super::report::{Cost, Run};
use fairpath_backend::monotonic_ns;
use fairpath_watch::{Change, Interfaces, unix_ns};

/// The interval of searches for silent flows, and the number of calls that search all of the tables.
const EXPIRE_EVERY: Duration = Duration::from_millis(500);
const EXPIRE_PARTS: u32 = 64;
/// The interval at which the real-time clock is compared with the monotonic clock, and classes are read.
const CLOCK_EVERY: Duration = Duration::from_secs(1);
/// `--cost` enables statistics of the whole host.
const COST_CAPABILITIES: [Capability; 4] = [
    Capability::NetAdmin,
    Capability::Perfmon,
    Capability::Bpf,
    Capability::SysAdmin,
];

/// Measures until a signal, `--duration`, `--count`, a closed pipe, or the removal of the last
/// interface.
///
/// # Errors
/// A capability is missing, programs cannot be loaded or attached, an interface does not exist, or
/// output fails.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("handle signals")?;
    }
    let mut config = args.config()?;
    let filters = args.filters()?;
    let table = ByTable::new(args)?;
    if let Some(table) = &table {
        config = table.configured(config, args.count.is_some());
    }
    let mut output = Output::new(args, table)?;
    let needed: &[Capability] = match args.cost {
        true => &COST_CAPABILITIES,
        false => &crate::MONITOR_CAPABILITIES,
    };
    require("measure live", needed)?;
    // A secret seed, so that no sender can choose addresses that share one set.
    config.seed = getrandom::u64().context("draw the seed of the flow hash")?;
    let mut interfaces = Interfaces::new(&args.interfaces, args.hook)?;
    let mut monitor = RttMonitor::load(&Options::live(config))?;
    monitor.set_filters(&filters);
    output.context.clock = clock()?;
    let meter = if args.cost {
        Some(Meter::start(&monitor)?)
    } else {
        None
    };

    let changes = interfaces.start(&mut monitor)?;
    apply_changes(changes, &mut output);
    classify(&mut monitor, &interfaces, &output)?;
    // The names of programs that hold a hook need CAP_SYS_ADMIN.
    crate::privileges::keep(false)?;
    if interfaces.watched().is_empty() {
        note("no interface matches yet; waiting");
    }
    let mut live = Live {
        stop,
        interfaces,
        monitor,
        output,
        invalid_entries: 0,
        deadline: None,
    };
    let started = Instant::now();
    live.deadline = args.duration.map(|d| started + d);
    live.watch()?;
    live.close(started.elapsed(), meter)
}

fn clock() -> anyhow::Result<Clock> {
    Ok(Clock {
        unix_of_zero_ns: i128::from(unix_ns()?) - i128::from(monotonic_ns()?),
    })
}

/// Activates the rules of `--by class` for the present interfaces.
fn classify(
    monitor: &mut RttMonitor,
    interfaces: &Interfaces,
    output: &Output,
) -> anyhow::Result<()> {
    let Some(table) = &output.table else {
        return Ok(());
    };
    let watched = interfaces.watched();
    let named = Named {
        index_of: &|name| interfaces.index_of(name).map(|index| index.0),
        interfaces: watched.iter().map(|(i, name)| (i.0, *name)).collect(),
    };
    match table.rules(&named) {
        None => Ok(()),
        Some(rules) => monitor
            .set_rules(&rules, &[])
            .map_err(|error| by::refused(&error)),
    }
}

fn apply_changes(changes: Vec<Change>, output: &mut Output) {
    for change in changes {
        match change {
            Change::Known(ifindex, name) => {
                // The kernel permits escape sequences in names.
                let name = fairpath_units::text::line(&name).into_owned();
                output.context.names.insert(ifindex.0, name);
            }
            Change::Attached(name) => note(format!("watching {name}")),
            Change::Renamed(ifindex, name) => {
                note(format!("interface {ifindex} is now {name}"));
            }
            Change::Detached(name, why) => {
                note(format!("{name} {why}; no longer watched"));
            }
            Change::Ahead(name, hook, programs) => {
                note(Change::of_order(&name, hook, &programs));
            }
            Change::Refused(error) => note(format!("{error:#}")),
        }
    }
}

struct Live {
    stop: Arc<AtomicBool>,
    interfaces: Interfaces,
    monitor: RttMonitor,
    output: Output,
    invalid_entries: u64,
    deadline: Option<Instant>,
}

impl Live {
    fn watch(&mut self) -> anyhow::Result<()> {
        let mut next_expiry = Instant::now() + EXPIRE_EVERY;
        let mut next_clock = Instant::now() + CLOCK_EVERY;
        while !self.stop.load(Ordering::Relaxed) && !self.output.done() {
            let now = Instant::now();
            if self.deadline.is_some_and(|d| now >= d) {
                break;
            }
            let left = self.deadline.map_or(READ_EVERY, |d| d - now);
            self.wait(left.min(READ_EVERY))?;
            self.read()?;
            let changes = self.interfaces.follow(&mut self.monitor)?;
            if !changes.is_empty() {
                apply_changes(changes, &mut self.output);
                classify(&mut self.monitor, &self.interfaces, &self.output)?;
            }
            if self.interfaces.is_over() {
                break;
            }
            let now = Instant::now();
            if now >= next_expiry {
                self.expire()?;
                next_expiry = now + EXPIRE_EVERY;
            }
            if now >= next_clock {
                self.output.context.clock = clock()?;
                self.read_classes();
                next_clock = now + CLOCK_EVERY;
            }
        }
        Ok(())
    }

    /// Waits for `time`, or until a link changes.
    fn wait(&self, time: Duration) -> anyhow::Result<()> {
        let mut fds = [PollFd::new(self.interfaces.fd(), PollFlags::POLLIN)];
        let timeout = PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX);
        match poll(&mut fds, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(error) => Err(error).context("wait for events"),
        }
    }

    fn read(&mut self) -> anyhow::Result<()> {
        self.monitor.read(monotonic_ns()?);
        let batch = self.monitor.take();
        self.invalid_entries += batch.bad;
        for event in &batch.events {
            self.output.event(event)?;
        }
        if !batch.events.is_empty() {
            self.output.flush()?;
        }
        Ok(())
    }

    fn read_classes(&mut self) {
        if let Some(table) = &mut self.output.table {
            table.read_classes(|reading| self.monitor.read_classes(reading));
        }
    }

    fn expire(&mut self) -> anyhow::Result<()> {
        let config = self.monitor.config();
        let sets = (config.flow_sets + config.half_sets).div_ceil(EXPIRE_PARTS);
        self.monitor.expire(monotonic_ns()?, sets)?;
        Ok(())
    }

    /// Detaches, reads the remaining events, and prints open flows and the summary.
    fn close(mut self, duration: Duration, meter: Option<Meter>) -> anyhow::Result<()> {
        let over = self.interfaces.is_over();
        let cost = meter.map(|m| m.read(&self.monitor)).transpose()?;
        drop(self.interfaces);
        self.monitor.read(u64::MAX);
        let rest = self.monitor.take();
        for event in &rest.events {
            self.output.event(event)?;
        }
        let usage = self.monitor.usage();
        let mut open = Vec::new();
        self.monitor
            .finish(monotonic_ns()?, |event| open.push(event));
        for event in &open {
            self.output.event(event)?;
        }
        if let Some(table) = &mut self.output.table {
            table.read_classes(|reading| self.monitor.read_classes(reading));
        }
        let mut notes = Vec::new();
        if self.invalid_entries > 0 {
            notes.push(format!(
                "{} entries of the rings of events are invalid",
                self.invalid_entries
            ));
        }
        let run = Run {
            duration_ns: duration.as_nanos() as u64,
            config: *self.monitor.config(),
            usage,
            table_bytes: self.monitor.bytes(),
            cost,
            notes,
        };
        self.output.finish(&run, &self.monitor.stats())?;
        if over && !self.stop.load(Ordering::Relaxed) {
            bail!(
                "all watched interfaces were removed: a pattern such as 'ppp*' waits for new ones"
            );
        }
        Ok(())
    }
}

/// The kernel's statistics of the RTT programs.
struct Meter {
    _on: Statistics,
    empty: Empty,
    before: Vec<(&'static str, RunTime)>,
}

impl Meter {
    fn start(monitor: &RttMonitor) -> anyhow::Result<Meter> {
        let on = Statistics::enable().context("enable the kernel's BPF statistics (--cost)")?;
        let empty = Empty::load().context("load the empty program for comparison")?;
        let before = read_all(monitor)?;
        Ok(Meter {
            _on: on,
            empty,
            before,
        })
    }

    fn read(self, monitor: &RttMonitor) -> anyhow::Result<Vec<Cost>> {
        let after = read_all(monitor)?;
        let empty = self
            .empty
            .measure()
            .context("measure the empty program")?
            .per_run_ns();
        let cost = after
            .iter()
            .zip(&self.before)
            .map(|((program, a), (_, b))| {
                let spent = a.since(*b);
                let gross_ns = spent.per_run_ns();
                Cost {
                    program,
                    runs: spent.runs,
                    gross_ns,
                    empty_ns: empty,
                    net_ns: (gross_ns - empty).max(0.0),
                }
            });
        Ok(cost.collect())
    }
}

fn read_all(monitor: &RttMonitor) -> anyhow::Result<Vec<(&'static str, RunTime)>> {
    monitor
        .run_times()
        .context("read statistics of the RTT programs")
}
