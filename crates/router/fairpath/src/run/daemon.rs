//! The daemon's life: start, the loop, the end.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use fairpath_backend::{Prepared, Shaping};
use fairpath_config::Config;
use fairpath_export::RowsWanted;
use nix::poll::{PollFd, PollFlags};

use super::ask::{self, Asker, Questions};
use super::control::{self, Access, Socket};
use super::engine::{Engine, MAX_REST};
use super::hooks::Hooks;
use super::notify::Manager;
use super::privileges;
use super::signals::Signals;
use super::sinks::Sinks;
use super::state::{self, Writer};
use super::web::Web;

/// Everything that runs.
pub struct Daemon {
    /// The configuration's file, if it is in one.
    pub file: Option<PathBuf>,
    /// What is scheduled, if anything is configured.
    pub shaping: Option<Shaping>,
    /// Kernel, rows and ledger.
    pub engine: Engine,
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
    /// The service manager.
    pub manager: Manager,
    next_save: Instant,
    next_alive: Instant,
    questions: Questions,
    signals: Signals,
}

impl Daemon {
    /// Sets everything up: programs loaded and attached, state restored, privileges given up.
    ///
    /// # Errors
    /// Where another daemon runs, the kernel refuses, or an address is taken.
    pub fn start(file: Option<PathBuf>, config: Config) -> anyhow::Result<Daemon> {
        let begin = Instant::now();
        let signals = Signals::take()?;
        let socket = Socket::open(&config.control.socket, &config.control.group)?;
        let (asker, questions) = ask::channel()?;
        let mut web = Web::default();
        let prepared = web.prepare(&config)?;
        let mut engine = Engine::load(config)?;
        engine.notes = access_note(&socket);
        let ready = Prepared::new(engine.config.shape.as_ref(), &engine.config.control.socket);
        let kept = privileges::keep(engine.config.shape.is_some())?;
        // Threads from here on: none of them inherits more.
        engine.begin()?;
        let shaping = begin_shaping(&mut engine, ready, file.is_some())?;
        web.start(prepared, &asker)?;
        let mut daemon = Daemon {
            control: control::Server::start(socket, asker.clone())?,
            hooks: Hooks::start()?,
            sinks: Sinks::start(&engine.config)?,
            writer: Writer::start()?,
            manager: Manager::from_environment(),
            next_save: Instant::now() + engine.config.state.save_every,
            next_alive: Instant::now(),
            file,
            shaping,
            engine,
            web,
            asker,
            questions,
            signals,
        };
        daemon.greet(&kept, begin.elapsed());
        Ok(daemon)
    }

    fn greet(&mut self, kept: &[String], took: Duration) {
        let engine = &self.engine;
        for missing in engine.kernel.interfaces().missing() {
            tracing::warn!("waiting for interface {missing}: there is none of this name yet");
        }
        if let Some(gap) = engine.ledger.gap_ns() {
            let gap = gap / 1_000_000;
            tracing::info!("state restored; nothing was measured for {gap} ms");
        }
        for address in self.web.addresses() {
            tracing::info!("serving http://{address}/");
        }
        tracing::info!("kept of all privileges: {}", kept.join(", "));
        tracing::info!(
            "ready after {} ms: {} rows, control socket {}",
            took.as_millis(),
            engine.ledger.rows(),
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
            let wakers = [self.questions.fd(), self.signals.fd()];
            let wakers = wakers.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
            self.engine.rest(self.next_save, &wakers)?;
            self.signals.rest();
            if self.engine.follow_links()? {
                self.shape_links();
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

    /// Reads the shaper; what went wrong is logged and noted.
    fn read_shaping(&mut self) {
        let (Some(shaping), Some(config)) = (&mut self.shaping, &self.engine.config.shape) else {
            return;
        };
        let classes = &self.engine.config.classes.set;
        let happened = shaping.read(config, classes, self.engine.kernel.monitor_mut());
        self.note_shaping(happened);
    }

    /// Links came, went or changed: ports and rules that name them follow.
    fn shape_links(&mut self) {
        let leads = self.engine.shape_leads();
        let Some(shaping) = &mut self.shaping else {
            return;
        };
        let happened = shaping.follow_links();
        self.note_shaping(happened);
        let classes = &self.engine.config.classes.set;
        let (Some(shaping), Some(config)) = (&mut self.shaping, &self.engine.config.shape) else {
            return;
        };
        if let Err(error) =
            shaping.set_rules(config, classes, leads, self.engine.kernel.monitor_mut())
        {
            tracing::warn!("shape by the links that there are now: {error:#}");
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

    /// What is due by the clock.
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

    /// Reads the kernel; rows, alerts and the manager's line follow.
    fn read_interval(&mut self, now: Instant) {
        self.read_shaping();
        if !self.engine.read_interval(now) {
            return;
        }
        if self.sinks.wants_rows() {
            let ledger = &self.engine.ledger;
            self.sinks.rows(match self.engine.config.rows.which {
                RowsWanted::Active => ledger.interval_rows().collect(),
                RowsWanted::All => ledger.all_interval_rows().collect(),
            });
        }
        self.engine.follow_traffic();
        self.tell_alerts();
        self.show_status();
    }

    /// Tells everybody of alerts that began or ended.
    pub fn tell_alerts(&mut self) {
        for alert in std::mem::take(&mut self.engine.alerts) {
            self.engine.counters.alerts += 1;
            if alert.active {
                tracing::warn!("alert begins: {}", alert.text);
            } else {
                tracing::info!("alert is over: {}", alert.text);
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
        let rows = self.engine.ledger.rows();
        let line = match names.len() {
            0 => "waiting for interfaces".to_owned(),
            1..=8 => format!("watching {}; {rows} rows", names.join(", ")),
            many => format!("watching {many} interfaces; {rows} rows"),
        };
        self.manager.status(&line);
    }

    /// Writes the state in the writer's thread; `last` waits for its turn.
    fn save(&self, last: bool) {
        let Some(file) = &self.engine.config.state.file else {
            return;
        };
        let state = self.engine.ledger.save();
        let content: state::Content = Box::new(move || Ok(state.to_bytes()?));
        if last {
            self.writer.save_last(file, content);
        } else {
            self.writer.save(file, content);
        }
    }

    fn stop(mut self) {
        self.manager.stopping();
        if let Some(shaping) = &mut self.shaping {
            match shaping.stop() {
                Ok(text) => tracing::info!("{text}"),
                Err(error) => tracing::warn!("{error:#}"),
            }
        }
        tracing::info!("stopping: a last reading, and the state is saved");
        self.read_interval(Instant::now());
        self.save(true);
        // In this order: nobody asks any more, then nothing is counted any more, then all is written.
        drop(self.control);
        drop(self.web);
        drop(self.engine);
        drop(self.hooks);
        drop(self.sinks);
        drop(self.writer);
        tracing::info!("stopped");
    }
}

/// The shaper, if one is configured. One that cannot begin ends the start, unless it `waits` for an
/// interface that is not there yet.
fn begin_shaping(
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
