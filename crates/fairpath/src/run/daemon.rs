//! The daemon's life: start, the loop, the end.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use fairpath_core::Prefix;
use fairpath_rtt::ledger::{AlertRules, Ledger, Moment, Settings, State};
use fairpath_rtt::snapshot::Kind;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::ask::{self, Asker, Questions};
use super::config::{Alerts, Config};
use super::control::{self, Access, Socket};
use super::hooks::Hooks;
use super::kernel::{self, Kernel};
use super::notify::Manager;
use super::privileges;
use super::reading::parse_subnet;
use super::roster::Roster;
use super::signals::Signals;
use super::sinks::Sinks;
use super::state::{self, Writer};
use super::web::Web;
use crate::duration::nanos;
use crate::watch::{Change, monotonic_ns, unix_ns};

/// How long the loop rests at most, whatever is due.
const MAX_REST: Duration = Duration::from_secs(1);

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

/// Everything that runs.
pub struct Daemon {
    /// The configuration's file.
    pub file: PathBuf,
    /// The configuration in force, but for what waits for a restart.
    pub config: Config,
    /// Grows with each configuration taken in.
    pub generation: u64,
    /// Programs, tables, attachments.
    pub kernel: Kernel,
    /// Rows and their slots.
    pub roster: Roster,
    /// What was counted.
    pub ledger: Ledger,
    /// What the loop counts.
    pub counters: Counters,
    /// The control socket.
    pub control: control::Server,
    /// Metrics and the page.
    pub web: Web,
    /// Commands that alerts run.
    pub hooks: Hooks,
    /// Rows and alerts in files.
    pub sinks: Sinks,
    /// The state file.
    pub writer: Writer,
    /// For servers that are started later.
    pub asker: Asker,
    /// What an operator should know, by what it is about.
    pub notes: BTreeMap<&'static str, String>,
    /// Links changed, or rows found no slot: rows and rules are to be laid out anew.
    pub layout_due: bool,
    pub(super) manager: Manager,
    pub(super) host: String,
    pub(super) next_reading: Instant,
    pub(super) next_save: Instant,
    /// Wall clock less monotonic clock at the last reading.
    pub(super) offset_ns: i128,
    /// The last reading went well.
    pub(super) healthy: bool,
    next_alive: Instant,
    links: u64,
    questions: Questions,
    signals: Signals,
}

impl Daemon {
    /// Sets everything up: programs loaded and attached, state restored, privileges given up.
    ///
    /// # Errors
    /// Where another daemon runs, the kernel refuses, or an address is taken.
    pub fn start(file: PathBuf, config: Config) -> anyhow::Result<Daemon> {
        let begin = Instant::now();
        let signals = Signals::take()?;
        let socket = Socket::open(&config.control.socket, &config.control.group)?;
        let (asker, questions) = ask::channel()?;
        let mut kernel = Kernel::load(&config)?;
        log_changes(kernel.follow()?);
        let mut web = Web::default();
        let prepared = web.prepare(&config)?;
        let (ledger, subnets) = restore(&config)?;
        let kept = privileges::keep_monitoring()?;
        // Threads from here on: none of them inherits more.
        let mut daemon = Daemon {
            roster: Roster::new(kernel::slots(&config)),
            ledger,
            counters: Counters::default(),
            notes: access_note(&socket),
            control: control::Server::start(socket, asker.clone())?,
            hooks: Hooks::start()?,
            sinks: Sinks::start(&config)?,
            writer: Writer::start()?,
            layout_due: false,
            manager: Manager::from_environment(),
            host: host(),
            next_reading: Instant::now() + config.monitor.interval,
            next_save: Instant::now() + config.state.save_every,
            offset_ns: i128::from(unix_ns()?) - i128::from(monotonic_ns()?),
            healthy: true,
            next_alive: Instant::now(),
            links: kernel.interfaces().generation(),
            generation: 1,
            file,
            config,
            kernel,
            web: Web::default(),
            asker,
            questions,
            signals,
        };
        daemon.first_layout(subnets)?;
        web.start(prepared, &daemon.asker)?;
        daemon.web = web;
        daemon.greet(&kept, begin.elapsed());
        Ok(daemon)
    }

    fn greet(&mut self, kept: &[String], took: Duration) {
        for missing in self.kernel.interfaces().missing() {
            tracing::warn!("waiting for interface {missing}: there is none of this name yet");
        }
        if let Some(gap) = self.ledger.gap_ns() {
            tracing::info!(
                "state restored; nothing was measured for {} ms",
                gap / 1_000_000
            );
        }
        for address in self.web.addresses() {
            tracing::info!("serving http://{address}/");
        }
        tracing::info!("kept of all privileges: {}", kept.join(", "));
        tracing::info!(
            "ready after {} ms: {} rows, control socket {}",
            took.as_millis(),
            self.ledger.rows(),
            self.control.path().display()
        );
        self.manager.ready();
    }

    /// Runs until SIGTERM or SIGINT.
    ///
    /// # Errors
    /// Where links cannot be followed any more.
    pub fn run(mut self) -> anyhow::Result<()> {
        while !self.signals.stop() {
            self.wait()?;
            self.signals.rest();
            log_changes(self.kernel.follow()?);
            let links = self.kernel.interfaces().generation();
            if std::mem::replace(&mut self.links, links) != links {
                self.layout_due = true;
            }
            if self.signals.take_reload() {
                // The outcome is logged; a signal has nobody to tell it to.
                let _ = self.reload();
            }
            for question in self.questions.take() {
                self.answer(question);
            }
            self.work(Instant::now());
        }
        self.stop();
        Ok(())
    }

    /// What is due by the clock.
    fn work(&mut self, now: Instant) {
        if now >= self.next_reading {
            self.read_interval(now);
        }
        if let Err(error) = self.kernel.expire(now) {
            self.healthy = false;
            self.complain("expiry", format!("close silent flows: {error:#}"));
        }
        if now >= self.next_save {
            self.next_save = now + self.config.state.save_every;
            self.save(false);
        }
        if self.healthy && now >= self.next_alive {
            self.manager.alive();
            self.next_alive = now + self.manager.watchdog_every().unwrap_or(MAX_REST);
        }
    }

    /// Logs trouble once, and keeps it as a note.
    pub(super) fn complain(&mut self, about: &'static str, text: String) {
        if self.notes.get(about) != Some(&text) {
            tracing::warn!("{text}");
            self.notes.insert(about, text);
        }
    }

    /// Until something is due, was asked, or happened to a link.
    fn wait(&self) -> anyhow::Result<()> {
        let now = Instant::now();
        let due = self
            .next_reading
            .min(self.kernel.next_expiry())
            .min(self.next_save);
        let rest = due.saturating_duration_since(now).min(MAX_REST);
        // Rounded up: waking a moment early would only mean to wait again.
        let rest = rest + Duration::from_millis(u64::from(rest.subsec_nanos() % 1_000_000 > 0));
        let timeout = PollTimeout::try_from(rest).unwrap_or(PollTimeout::MAX);
        let fds = [self.kernel.fd(), self.questions.fd(), self.signals.fd()];
        let mut fds = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        match poll(&mut fds, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(error) => Err(error).context("wait for events"),
        }
    }

    /// Writes the state in the writer's thread; `last` waits for its turn.
    pub(super) fn save(&self, last: bool) {
        let Some(file) = &self.config.state.file else {
            return;
        };
        let state = self.ledger.save();
        let content: state::Content = Box::new(move || Ok(state.to_bytes()?));
        if last {
            self.writer.save_last(file, content);
        } else {
            self.writer.save(file, content);
        }
    }

    fn stop(mut self) {
        self.manager.stopping();
        tracing::info!("stopping: a last reading, and the state is saved");
        self.read_interval(Instant::now());
        self.save(true);
        // In this order: nobody asks any more, then nothing is counted any more, then all is written.
        drop(self.control);
        drop(self.web);
        drop(self.kernel);
        drop(self.hooks);
        drop(self.sinks);
        drop(self.writer);
        tracing::info!("stopped");
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

fn access_note(socket: &Socket) -> BTreeMap<&'static str, String> {
    let mut notes = BTreeMap::new();
    match socket.access() {
        Access::Group(group) => tracing::info!("the group {group} may read the control socket"),
        Access::RootOnly(why) => {
            let text = format!("only root may use the control socket: {why}");
            tracing::info!("{text}");
            notes.insert("control", text);
        }
    }
    notes
}

pub(super) fn log_changes(changes: Vec<Change>) {
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
