//! The daemon's life: start, the loop, the end.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use fairpath_export::RowsWanted;
use nix::poll::{PollFd, PollFlags};

use super::ask::{self, Asker, Questions};
use super::config::Config;
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
    /// The configuration's file.
    pub file: PathBuf,
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
    pub fn start(file: PathBuf, config: Config) -> anyhow::Result<Daemon> {
        let begin = Instant::now();
        let signals = Signals::take()?;
        let socket = Socket::open(&config.control.socket, &config.control.group)?;
        let (asker, questions) = ask::channel()?;
        let mut web = Web::default();
        let prepared = web.prepare(&config)?;
        let mut engine = Engine::load(config)?;
        engine.notes = access_note(&socket);
        let kept = privileges::keep_monitoring()?;
        // Threads from here on: none of them inherits more.
        engine.begin()?;
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
            self.engine.follow_links()?;
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
