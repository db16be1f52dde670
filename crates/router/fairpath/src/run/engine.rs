//! The engine: kernel, rows and ledger, which belong together whoever runs them.
//!
//! The daemon has one for as long as it runs; `fairpath top -i` has one without a daemon.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Context;
use fairpath_backend::Leads;
use fairpath_config::duration::nanos;
use fairpath_config::{Alerts, Config};
use fairpath_core::Prefix;
use fairpath_history::ledger::{AlertRules, Ledger, Moment, Settings, State, parse_subnet};
use fairpath_history::snapshot::{Alert, Kind};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::kernel::{self, Kernel};
use super::state;
use crate::watch::{Change, monotonic_ns, unix_ns};
use fairpath_history::row_table::RowTable;

/// How long a loop rests at most, whatever is due.
pub const MAX_REST: Duration = Duration::from_secs(1);

/// What the loop itself counts, by the names of `Snapshot::counters`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Readings of the kernel.
    pub readings: u64,
    /// Readings that the kernel refused.
    pub readings_failed: u64,
    /// Intervals that passed without one, because the loop was late.
    pub readings_skipped: u64,
    /// Alerts that began or ended.
    pub alerts: u64,
    /// Configurations taken in after the first.
    pub reloads: u64,
    /// Configurations refused.
    pub reloads_refused: u64,
    /// Jumps of the wall clock.
    pub clock_steps: u64,
    /// Subnets that got a row.
    pub subnets_found: u64,
}

/// Kernel, rows and ledger.
pub struct Engine {
    /// The configuration in force, but for what waits for a restart.
    pub config: Config,
    /// Grows with each configuration taken in.
    pub generation: u64,
    /// Programs, tables, attachments.
    pub kernel: Kernel,
    /// Rows and their slots.
    pub row_table: RowTable,
    /// What was counted.
    pub ledger: Ledger,
    /// What the loop counts.
    pub counters: Counters,
    /// Alerts that began or ended and were not taken yet.
    pub alerts: Vec<Alert>,
    /// What an operator should know, by what it is about.
    pub notes: BTreeMap<&'static str, String>,
    /// Links changed, or rows found no slot: rows and rules are to be laid out anew.
    pub layout_due: bool,
    /// When the kernel is read again.
    pub next_reading: Instant,
    /// The last reading went well.
    pub healthy: bool,
    /// Wall clock less monotonic clock at the last reading.
    pub offset_ns: i128,
    /// Of this router.
    pub host: String,
    /// When rows and rules were laid out last.
    pub laid_out: Instant,
    links: u64,
}

impl Engine {
    /// Loads and attaches everything and restores the state; [`Engine::begin`] lets it count.
    ///
    /// Takes a second or two, most of it the verifier's.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn load(config: Config) -> anyhow::Result<Engine> {
        let mut kernel = Kernel::load(&config)?;
        log_changes(kernel.follow()?);
        let (ledger, subnets) = restore(&config)?;
        let mut row_table = RowTable::new(kernel::slots(&config));
        row_table.set_subnets(subnets);
        Ok(Engine {
            generation: 1,
            row_table,
            ledger,
            counters: Counters::default(),
            alerts: Vec::new(),
            notes: BTreeMap::new(),
            layout_due: false,
            next_reading: Instant::now() + config.monitor.interval,
            healthy: true,
            offset_ns: i128::from(unix_ns()?) - i128::from(monotonic_ns()?),
            host: host(),
            laid_out: Instant::now(),
            links: kernel.interfaces().generation(),
            config,
            kernel,
        })
    }

    /// The first rows and rules: counting begins.
    ///
    /// # Errors
    /// Where the kernel does not take the rules.
    pub fn begin(&mut self) -> anyhow::Result<()> {
        let classes = &self.config.classes;
        self.row_table.set_classes(&classes.set, &classes.labels);
        self.set_label_names();
        self.lay_out_first()
    }

    /// What leads to the classes, by their numbers, as links and slots are now.
    pub fn shape_leads(&self) -> Leads {
        let classes = &self.config.classes.set;
        let rules = self
            .kernel
            .with_watched(|watched| classes.numbered_rules(watched.index_of, &watched.uplinks));
        let [_, count] = self.row_table.slots();
        let mut slots = vec![0; count as usize];
        for (at, key) in classes.slot_keys().enumerate() {
            if let Some(slot) = self
                .row_table
                .slot(&key)
                .and_then(|slot| slots.get_mut(slot as usize))
            {
                *slot = at as u32 + 1;
            }
        }
        Leads { rules, slots }
    }

    /// Takes in what happened to links; whether something did.
    ///
    /// # Errors
    /// Where rtnetlink cannot be read.
    pub fn follow_links(&mut self) -> anyhow::Result<bool> {
        log_changes(self.kernel.follow()?);
        let links = self.kernel.interfaces().generation();
        let changed = std::mem::replace(&mut self.links, links) != links;
        if changed {
            // At once, so that a new uplink's hosts are not taken for local ones; in a storm of
            // links only once an interval.
            self.layout_due = true;
            if self.laid_out.elapsed() >= self.config.monitor.interval {
                self.lay_out();
            }
        }
        Ok(changed)
    }

    /// Closes silent flows, if it is time.
    pub fn expire(&mut self, now: Instant) {
        match self.kernel.expire(now) {
            Ok(false) => {}
            Ok(true) => drop(self.notes.remove("expiry")),
            Err(error) => {
                self.healthy = false;
                self.complain("expiry", format!("close silent flows: {error:#}"));
            }
        }
    }

    /// Logs trouble once, and keeps it as a note.
    pub fn complain(&mut self, about: &'static str, text: String) {
        if self.notes.get(about) != Some(&text) {
            tracing::warn!("{text}");
            self.notes.insert(about, text);
        }
    }

    /// Rests until it is time to read, `due`, something happened to a link, or a descriptor of
    /// `others` is readable.
    ///
    /// # Errors
    /// Where the kernel refuses to wait.
    pub fn rest(&self, due: Instant, others: &[PollFd<'_>]) -> anyhow::Result<()> {
        let due = due.min(self.next_reading).min(self.kernel.next_expiry());
        let rest = due.saturating_duration_since(Instant::now()).min(MAX_REST);
        // Rounded up to poll's milliseconds: waking a moment early would only mean to wait again.
        let rest = rest + Duration::from_micros(999);
        let timeout = PollTimeout::try_from(rest).unwrap_or(PollTimeout::MAX);
        let mut fds = vec![PollFd::new(self.kernel.fd(), PollFlags::POLLIN)];
        fds.extend(others.iter().cloned());
        match poll(&mut fds, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(error) => Err(error).context("wait for events"),
        }
    }
}

/// What the ledger goes by.
pub fn settings(config: &Config) -> Settings {
    Settings {
        window_intervals: config.monitor.window as u32,
        alerts: rules(&config.alerts),
    }
}

fn rules(alerts: &Alerts) -> AlertRules {
    AlertRules {
        shift_factor: alerts.rtt_shift,
        shift_floor_ns: nanos(alerts.rtt_floor),
        loss: alerts.loss,
        ..AlertRules::default()
    }
}

/// A ledger that goes on from the state file, and the subnets that had rows; or a new one. A file
/// that is of no use is set aside.
fn restore(config: &Config) -> anyhow::Result<(Ledger, Vec<Prefix>)> {
    let start = Moment {
        unix_ns: unix_ns()?,
        mono_ns: monotonic_ns()?,
    };
    let settings = settings(config);
    let Some(file) = &config.state.file else {
        return Ok((Ledger::new(settings, start), Vec::new()));
    };
    let shown = file.display();
    let read = state::load(file).map_err(anyhow::Error::from);
    let state = read.and_then(|bytes| Ok(bytes.map(|b| State::from_bytes(&b)).transpose()?));
    match state {
        Ok(Some(state)) => {
            let names = state.names(Kind::Subnet).take(config.subnets.max);
            let subnets = names.filter_map(parse_subnet).collect();
            Ok((Ledger::restore(settings, start, state), subnets))
        }
        Ok(None) => Ok((Ledger::new(settings, start), Vec::new())),
        Err(error) => {
            tracing::warn!("read the state file {shown}: {error:#}; counting begins anew");
            match state::set_aside(file, start.unix_ns) {
                Ok(aside) => tracing::warn!("the state file was moved to {}", aside.display()),
                Err(error) => tracing::warn!("move the state file {shown} away: {error}"),
            }
            Ok((Ledger::new(settings, start), Vec::new()))
        }
    }
}

pub fn log_changes(changes: Vec<Change>) {
    for change in changes {
        match change {
            Change::Known(..) => {}
            Change::Attached(name) => tracing::info!("watching {name}"),
            Change::Renamed(index, name) => {
                tracing::info!("interface {index} is called {name} now")
            }
            Change::Detached(name, why) => tracing::info!("{name} {why}; not watched any more"),
            Change::Refused(error) => tracing::warn!("{error:#}"),
        }
    }
}

fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}
