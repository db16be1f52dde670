//! The engine: kernel, rows and history.
//!
//! The daemon has one, and so has `fairpath top -i` without a daemon.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Context;
use fairpath_backend::Leads;
use fairpath_config::duration::nanos;
use fairpath_config::{Alerts, Config};
use fairpath_core::Prefix;
use fairpath_files::UnsafePlace;
use fairpath_history::history::{AlertRules, History, Moment, Settings, State, parse_subnet};
use fairpath_history::snapshot::{Alert, Kind, WaitingFor};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::kernel::{self, Kernel};
use super::loaded_rules::LoadedRulesReader;
use super::state;
use crate::rules::PinArgs;
use fairpath_backend::monotonic_ns;
use fairpath_history::row_table::RowTable;
use fairpath_watch::{Change, unix_ns};

/// Maximum time that a loop waits.
pub const MAX_REST: Duration = Duration::from_secs(1);

/// Counters of the loop, by the names of `Snapshot::counters`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Readings of the kernel.
    pub readings: u64,
    /// Readings that the kernel refused.
    pub readings_failed: u64,
    /// Intervals without a reading, because the loop was late.
    pub readings_skipped: u64,
    /// Alerts that began or ended.
    pub alerts: u64,
    /// Configurations applied after the first.
    pub reloads: u64,
    /// Configurations refused.
    pub reloads_refused: u64,
    /// Steps of the real-time clock.
    pub clock_steps: u64,
    /// Subnets that got a row.
    pub subnets_found: u64,
}

/// Kernel, rows and history.
pub struct Engine {
    /// The active configuration, except for changes that wait for a restart.
    pub config: Config,
    /// Grows with each applied configuration.
    pub generation: u64,
    /// Programs, tables, attachments.
    pub kernel: Kernel,
    /// Rows and their slots.
    pub row_table: RowTable,
    /// Counts over time.
    pub history: History,
    /// Counters of the loop.
    pub counters: Counters,
    /// Alerts that began or ended and are not reported yet.
    pub alerts: Vec<Alert>,
    /// Remarks for the operator, by subject.
    pub notes: BTreeMap<&'static str, String>,
    /// Configured interfaces and uplinks that are not monitored.
    pub waiting_for: Vec<WaitingFor>,
    /// Rows and rules must be rebuilt: links changed, or rows have no slot.
    pub layout_due: bool,
    /// Time of the next reading.
    pub next_reading: Instant,
    /// The last reading succeeded.
    pub healthy: bool,
    /// Real-time clock less monotonic clock at the last reading.
    pub offset_ns: i128,
    /// Host name.
    pub host: String,
    /// When rows and rules were built last.
    pub rebuilt: Instant,
    /// Rules at the kernel's hooks, after [`Engine::begin`].
    pub loaded_rules: Option<LoadedRulesReader>,
    links: u64,
}

impl Engine {
    /// Loads and attaches the programs and restores the state. [`Engine::begin`] starts counting.
    ///
    /// Takes one or two seconds, mostly in the verifier.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn load(config: Config) -> anyhow::Result<Engine> {
        let mut kernel = Kernel::load(&config)?;
        log_changes(kernel.follow()?);
        let (history, subnets) = restore(&config)?;
        let mut row_table = RowTable::new(kernel::slots(&config));
        row_table.set_subnets(subnets);
        Ok(Engine {
            generation: 1,
            row_table,
            history,
            counters: Counters::default(),
            alerts: Vec::new(),
            notes: BTreeMap::new(),
            waiting_for: kernel.waiting_for(),
            layout_due: false,
            next_reading: Instant::now() + config.monitor.interval,
            healthy: true,
            offset_ns: i128::from(unix_ns()?) - i128::from(monotonic_ns()?),
            host: host(),
            rebuilt: Instant::now(),
            loaded_rules: None,
            links: kernel.interfaces().generation(),
            config,
            kernel,
        })
    }

    /// Sets the first rows and rules, and starts counting.
    ///
    /// # Errors
    /// The kernel refuses the rules.
    pub fn begin(&mut self) -> anyhow::Result<()> {
        let place = PinArgs::of_daemon(&self.config.control.socket);
        self.loaded_rules = Some(LoadedRulesReader::start(place)?);
        let classes = &self.config.classes;
        self.row_table.set_classes(&classes.set, &classes.labels);
        self.set_label_names();
        self.build_rows()
    }

    /// Rules of the classes by their numbers, with the present links and slots.
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

    /// Applies changes of links. Returns whether there were any.
    ///
    /// # Errors
    /// rtnetlink cannot be read.
    pub fn follow_links(&mut self) -> anyhow::Result<bool> {
        log_changes(self.kernel.follow()?);
        let ahead = self.kernel.interfaces().ahead();
        match ahead.is_empty() {
            true => drop(self.notes.remove("order")),
            false => drop(self.notes.insert("order", ahead.join("; "))),
        }
        let links = self.kernel.interfaces().generation();
        let changed = std::mem::replace(&mut self.links, links) != links;
        if changed {
            self.waiting_for = self.kernel.waiting_for();
            // Immediately, because the hosts of a new uplink are remote; but at most once per interval.
            self.layout_due = true;
            if self.rebuilt.elapsed() >= self.config.monitor.interval {
                self.rebuild_rows();
            }
        }
        Ok(changed)
    }

    /// Closes silent flows, if it is due.
    pub fn expire(&mut self, now: Instant) {
        match self.kernel.expire(now) {
            Ok(false) => {}
            Ok(true) => drop(self.notes.remove("expiry")),
            Err(error) => {
                self.healthy = false;
                self.warn("expiry", format!("close silent flows: {error:#}"));
            }
        }
    }

    /// Logs the configured interfaces and uplinks that are not monitored.
    pub fn log_waiting(&self) {
        for waiting in &self.waiting_for {
            match waiting.is_pattern() && !waiting.exists {
                true => tracing::info!("waiting for interface {waiting}"),
                false => tracing::warn!("waiting for interface {waiting}"),
            }
        }
    }

    /// Logs a problem once, and keeps it as a note.
    pub fn warn(&mut self, about: &'static str, text: String) {
        if self.notes.get(about) != Some(&text) {
            tracing::warn!("{text}");
            self.notes.insert(about, text);
        }
    }

    /// Waits for the next reading, `due`, a change of links, or a readable descriptor of `others`.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub fn rest(&self, due: Instant, others: &[PollFd<'_>]) -> anyhow::Result<()> {
        let due = due.min(self.next_reading).min(self.kernel.next_expiry());
        let rest = due.saturating_duration_since(Instant::now()).min(MAX_REST);
        // Rounded up to the milliseconds of poll, since an early return would wait again.
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

/// Settings of the history.
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
        rtt_p95_ns: alerts.rtt_p95.map(nanos),
        ..AlertRules::default()
    }
}

/// The history of the state file with its subnets, or an empty one. An invalid file is moved.
fn restore(config: &Config) -> anyhow::Result<(History, Vec<Prefix>)> {
    let start = Moment {
        unix_ns: unix_ns()?,
        mono_ns: monotonic_ns()?,
    };
    let settings = settings(config);
    let Some(file) = &config.state.file else {
        return Ok((History::new(settings, start), Vec::new()));
    };
    let shown = file.display();
    // Other errors, for example a missing directory, are reported and counted with each save.
    if let Err(error) = fairpath_files::check_directory(fairpath_files::directory_of(file))
        && error
            .get_ref()
            .is_some_and(|cause| cause.is::<UnsafePlace>())
    {
        return Err(error).with_context(|| format!("[state] file = {file:?}"));
    }
    let read = state::load(file).map_err(anyhow::Error::from);
    let state = read.and_then(|bytes| Ok(bytes.map(|b| State::from_bytes(&b)).transpose()?));
    match state {
        Ok(Some(state)) => {
            let names = state.names(Kind::Subnet).take(config.subnets.max);
            let subnets = names.filter_map(parse_subnet).collect();
            Ok((History::restore(settings, start, state), subnets))
        }
        Ok(None) => Ok((History::new(settings, start), Vec::new())),
        Err(error) => {
            tracing::warn!("read the state file {shown}: {error:#}; counters start at zero");
            match state::move_away(file, start.unix_ns) {
                Ok(aside) => tracing::warn!("the state file was moved to {}", aside.display()),
                Err(error) => tracing::warn!("move the state file {shown} away: {error}"),
            }
            Ok((History::new(settings, start), Vec::new()))
        }
    }
}

pub fn log_changes(changes: Vec<Change>) {
    for change in changes {
        match change {
            Change::Known(..) => {}
            Change::Attached(name) => tracing::info!("watching {name}"),
            Change::Renamed(index, name) => {
                tracing::info!("interface {index} is now {name}")
            }
            Change::Detached(name, why) => tracing::info!("{name} {why}; no longer watched"),
            Change::Ahead(name, hook, programs) => {
                let text = Change::of_order(&name, hook, &programs);
                match programs.is_empty() {
                    true => tracing::info!("{text}"),
                    false => tracing::warn!("{text}"),
                }
            }
            Change::Refused(error) => tracing::warn!("{error:#}"),
        }
    }
}

fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alert_settings_reach_the_history() {
        let text =
            "[monitor]\ninterfaces = [\"lan0\"]\n[alerts]\nrtt_p95 = \"200ms\"\nloss = 0.5\n";
        let config = fairpath_config::parse("f.toml", text).unwrap();
        let rules = settings(&config).alerts;
        assert_eq!((rules.rtt_p95_ns, rules.loss), (Some(200_000_000), 0.5));
    }
}
