//! The daemon: start, loop and end.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use fairpath_backend::{Prepared, Shaping};
use fairpath_config::Config;
use fairpath_export::RowsWanted;
use nix::poll::{PollFd, PollFlags};

use super::archive::Archiver;
use super::control::{self, Access, Socket};
use super::engine::{Engine, MAX_REST};
use super::hooks::Hooks;
use super::loaded_rules::LoadedRulesReader;
use super::notify::Manager;
use super::query::{self, RequestQueue, Requester};
use super::rejects::{self, Rejects};
use super::signals::Signals;
use super::sinks::Sinks;
use super::state::{self, Writer};
use super::web::Web;
use crate::privileges;

/// All parts of the daemon.
pub struct Daemon {
    /// File of the configuration; `None` for options.
    pub file: Option<PathBuf>,
    /// The shaper, if configured.
    pub shaping: Option<Shaping>,
    /// Kernel, rows and history.
    pub engine: Engine,
    /// The control socket.
    pub control: control::Server,
    /// Metrics and the web page.
    pub web: Web,
    /// Commands that alerts run.
    pub hooks: Hooks,
    /// Rows and alerts in files.
    pub sinks: Sinks,
    /// Weeks of counts.
    pub archiver: Archiver,
    /// The state file.
    pub writer: Writer,
    /// Answers to rejected packets, if configured.
    pub rejects: Option<Rejects>,
    /// For servers that start later.
    pub requester: Requester,
    /// The service manager.
    pub manager: Manager,
    next_save: Instant,
    next_alive: Instant,
    requests: RequestQueue,
    signals: Signals,
    /// The process only shaped, and was stopped by a command.
    pub over: bool,
}

impl Daemon {
    /// Loads and attaches programs, restores the state, and drops privileges.
    ///
    /// # Errors
    /// Another daemon runs, the kernel refuses, or an address is in use.
    pub fn start(file: Option<PathBuf>, config: Config) -> anyhow::Result<Daemon> {
        let begin = Instant::now();
        let signals = Signals::take()?;
        let socket = Socket::open(&config.control.socket, &config.control.group)?;
        let (requester, requests) = query::channel()?;
        let mut web = Web::default();
        let prepared = web.prepare(&config)?;
        let mut engine = Engine::load(config)?;
        engine.notes = access_note(&socket);
        let ready = Prepared::new(engine.config.shape.as_ref(), &engine.config.control.socket);
        let undo = ready.undo()?;
        // Before the other threads: only these retain the capabilities to change the user of a child.
        let hooks = Hooks::start()?;
        // A process that only shapes in the foreground has another task.
        let rejects = file.as_ref().and_then(|_| prepare_rejects(&mut engine));
        let kept = privileges::keep(engine.config.shape.is_some())?;
        // Threads start after this, so that none inherits more capabilities.
        engine.begin()?;
        let shaping = start_shaping(&mut engine, ready, file.is_some())?;
        web.start(prepared, &requester)?;
        let mut daemon = Daemon {
            control: control::Server::start(socket, requester.clone())?,
            hooks,
            sinks: Sinks::start(&engine.config)?,
            archiver: Archiver::start(&engine.config)?,
            writer: Writer::start()?,
            rejects: rejects.map(Rejects::start).transpose()?,
            manager: Manager::from_environment(),
            next_save: Instant::now() + engine.config.state.save_every,
            next_alive: Instant::now(),
            file,
            shaping,
            engine,
            web,
            requester,
            requests,
            signals,
            over: false,
        };
        undo.started();
        daemon.log_start(&kept, begin.elapsed());
        Ok(daemon)
    }

    fn log_start(&mut self, kept: &[String], took: Duration) {
        let engine = &self.engine;
        engine.log_waiting();
        if let Some(gap) = engine.history.gap_ns() {
            let gap = gap / 1_000_000;
            tracing::info!("state restored; no measurement for {gap} ms");
        }
        for address in self.web.addresses() {
            tracing::info!("serving http://{address}/");
        }
        tracing::info!("retained capabilities: {}", kept.join(", "));
        tracing::info!(
            "ready after {} ms: {} rows, control socket {}",
            took.as_millis(),
            engine.history.rows(),
            self.control.path().display()
        );
        self.manager.ready();
    }

    /// Runs until SIGTERM or SIGINT, in the foreground also until `fairpath shape stop`.
    ///
    /// # Errors
    /// Changes of links cannot be read.
    pub fn run(mut self) -> anyhow::Result<()> {
        while !self.over && !self.signals.stop() {
            let ended = self.shaping.as_ref().and_then(Shaping::ended);
            let wakers = [self.requests.fd(), self.signals.fd()];
            let wakers: Vec<_> = wakers
                .into_iter()
                .chain(ended)
                .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
                .collect();
            self.engine.rest(self.next_save, &wakers)?;
            self.signals.rest();
            if self.engine.follow_links()? {
                self.shape_links();
            }
            if self.signals.take_reload() {
                // The result is logged.
                let _ = self.reload();
            }
            if self.shaping.as_ref().is_some_and(Shaping::has_ended) {
                self.read_shaping();
            }
            for pending in self.requests.take() {
                self.answer(pending);
            }
            self.work(Instant::now());
        }
        self.stop();
        Ok(())
    }

    /// Reads the shaper; a failure is logged and stored.
    fn read_shaping(&mut self) {
        let (Some(shaping), Some(config)) = (&mut self.shaping, &self.engine.config.shape) else {
            return;
        };
        let classes = &self.engine.config.classes.set;
        let happened = shaping.read(config, classes, self.engine.kernel.monitor_mut());
        self.note_shaping(happened);
    }

    /// Updates back ends and rules after a change of links.
    fn shape_links(&mut self) {
        let leads = self.engine.shape_leads();
        let Some(shaping) = &mut self.shaping else {
            return;
        };
        let Some(config) = &self.engine.config.shape else {
            return;
        };
        let classes = &self.engine.config.classes.set;
        let happened = shaping.follow_links(config, classes, self.engine.kernel.monitor_mut());
        self.note_shaping(happened);
        let classes = &self.engine.config.classes.set;
        let (Some(shaping), Some(config)) = (&mut self.shaping, &self.engine.config.shape) else {
            return;
        };
        if let Err(error) =
            shaping.set_rules(config, classes, leads, self.engine.kernel.monitor_mut())
        {
            tracing::warn!("apply changed links to the shaper: {error:#}");
        }
    }

    fn note_shaping(&mut self, happened: Option<String>) {
        let failure = self.shaping.as_ref().and_then(Shaping::failure);
        match (happened, failure) {
            (Some(text), Some(_)) => tracing::error!("{text}"),
            (Some(text), None) => tracing::info!("{text}"),
            (None, _) => {}
        }
        match failure {
            Some(text) => drop(self.engine.notes.insert("shape", text.to_owned())),
            None => drop(self.engine.notes.remove("shape")),
        }
    }

    /// Does all work that is due.
    fn work(&mut self, now: Instant) {
        if now >= self.engine.next_reading {
            self.read_interval(now);
        }
        self.engine.expire(now);
        if now >= self.next_save {
            self.next_save = now + self.engine.config.state.save_every;
            self.save(false);
        }
        if self.engine.healthy && now >= self.next_alive {
            self.manager.alive();
            self.next_alive = now + self.manager.watchdog_every().unwrap_or(MAX_REST);
        }
    }

    /// Reads the kernel, and updates rows, alerts and the status line.
    fn read_interval(&mut self, now: Instant) {
        self.read_shaping();
        if !self.engine.read_interval(now) {
            return;
        }
        if self.sinks.wants_rows() {
            let history = &self.engine.history;
            self.sinks.rows(match self.engine.config.rows.which {
                RowsWanted::Active => history.interval_rows().collect(),
                RowsWanted::All => history.all_interval_rows().collect(),
            });
        }
        if self.archiver.wants_intervals() {
            self.archiver
                .interval(self.engine.history.interval_counts());
        }
        match self.archiver.problem() {
            Some(text) => drop(self.engine.notes.insert("history", text)),
            None => drop(self.engine.notes.remove("history")),
        }
        self.engine.follow_traffic();
        self.note_series();
        self.report_alerts();
        self.show_status();
    }

    /// Reports that metrics sum rows.
    fn note_series(&mut self) {
        const ABOUT: &str = "series";
        let limit = self.engine.config.metrics.max_series;
        let scrapes = || self.web.counters().get("web_scrapes").copied();
        let loaded = self
            .engine
            .loaded_rules
            .as_ref()
            .and_then(LoadedRulesReader::rules);
        let of_rules = loaded.map_or(0, |rules| fairpath_export::rule_series(&rules));
        let needed = fairpath_export::series_needed(self.engine.history.rows(), of_rules);
        let Some(text) = series_note(self.engine.history.rows(), needed, limit, scrapes) else {
            self.engine.notes.remove(ABOUT);
            return;
        };
        // The number of rows changes with subnets: logged once, and shown as it is now.
        if self.engine.notes.insert(ABOUT, text.clone()).is_none() {
            tracing::warn!("{text}");
        }
    }

    /// Reports alerts that began or ended to log, files and hooks.
    pub fn report_alerts(&mut self) {
        for alert in std::mem::take(&mut self.engine.alerts) {
            self.engine.counters.alerts += 1;
            if alert.active {
                tracing::warn!("alert begins: {}", alert.text);
            } else {
                tracing::info!("alert ends: {}", alert.text);
            }
            self.sinks.alert(&alert);
            if let Some(hook) = &self.engine.config.alerts.hook {
                self.hooks.run(hook, &alert);
            }
        }
    }

    fn show_status(&mut self) {
        let interfaces = self.engine.kernel.interfaces().watched();
        let names: Vec<&str> = interfaces.iter().map(|(_, name)| *name).collect();
        let rows = self.engine.history.rows();
        let line = match names.len() {
            0 => "waiting for interfaces".to_owned(),
            1..=8 => format!("watching {}; {rows} rows", names.join(", ")),
            many => format!("watching {many} interfaces; {rows} rows"),
        };
        self.manager.status(&line);
    }

    /// Writes the state in the thread of the writer; `last` waits for earlier writes.
    fn save(&self, last: bool) {
        let Some(file) = &self.engine.config.state.file else {
            return;
        };
        let state = self.engine.history.save();
        let content: state::Content = Box::new(move || Ok(state.to_bytes()?));
        if last {
            self.writer.save_last(file, content);
        } else {
            self.writer.save(file, content);
        }
    }

    fn stop(mut self) {
        self.manager.stopping();
        if let Some(shaping) = self.shaping.as_mut().filter(|_| !self.over) {
            match shaping.stop() {
                Ok(text) => tracing::info!("{text}"),
                Err(error) => tracing::warn!("{error:#}"),
            }
        }
        tracing::info!("stopping: reading the counters and saving the state");
        self.read_interval(Instant::now());
        self.save(true);
        // Requests end first, then counting, then writing.
        drop(self.control);
        drop(self.web);
        drop(self.rejects);
        drop(self.engine);
        drop(self.hooks);
        drop(self.sinks);
        drop(self.archiver);
        drop(self.writer);
        tracing::info!("stopped");
    }
}

/// Sockets for answers to rejected packets, if configured. Without them, the daemon measures all the same.
fn prepare_rejects(engine: &mut Engine) -> Option<rejects::Prepared> {
    rejects::Prepared::new(&engine.config).unwrap_or_else(|error| {
        let text = format!("rules that reject packets drop them silently: {error:#}");
        tracing::warn!("{text}");
        engine.notes.insert("rejects", text);
        None
    })
}

/// The shaper, if configured. A failure ends the start, except that the daemon `waits` for missing
/// interfaces.
fn start_shaping(
    engine: &mut Engine,
    prepared: Prepared,
    waits: bool,
) -> anyhow::Result<Option<Shaping>> {
    let leads = engine.shape_leads();
    let Some(config) = &engine.config.shape else {
        return Ok(None);
    };
    let classes = &engine.config.classes.set;
    let mut shaping = Shaping::new(config, classes, leads, prepared)?;
    if config.start {
        if !waits {
            shaping.expect_interfaces(config)?;
        }
        match shaping.start(config, classes, engine.kernel.monitor_mut()) {
            Ok(text) => tracing::info!("{text}"),
            Err(error) => {
                let sides = [Some(&config.inside), config.outside.as_ref()];
                let interfaces = engine.kernel.interfaces();
                let absent = |name: &&String| interfaces.index_of(name).is_none();
                if !waits || !sides.into_iter().flatten().any(|name| absent(&name)) {
                    return Err(error);
                }
                tracing::warn!("shaping waits: {error:#}");
            }
        }
    }
    Ok(Some(shaping))
}

/// The note on metrics that sum rows. None without a scrape: each web page has metrics, too.
fn series_note(
    rows: usize,
    needed: usize,
    limit: usize,
    scrapes: impl FnOnce() -> Option<u64>,
) -> Option<String> {
    (needed > limit && scrapes().unwrap_or(0) > 0).then(|| {
        format!(
            "metrics: rows with the least traffic are summed as class=\"other\", because the {rows} rows need \
             {needed} series: set [metrics] max_series, now {limit}, to at least {needed}"
        )
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summed_rows_are_reported_to_scrapers_only() {
        let needed = fairpath_export::series_needed(1_000, 0);
        let note = |limit, scrapes| series_note(1_000, needed, limit, || scrapes);
        assert_eq!(note(needed - 1, None), None);
        assert_eq!(note(needed - 1, Some(0)), None);
        assert_eq!(note(needed, Some(9)), None);
        let text = note(needed - 1, Some(1)).unwrap();
        assert!(text.ends_with(&format!("to at least {needed}")), "{text}");
    }
}
