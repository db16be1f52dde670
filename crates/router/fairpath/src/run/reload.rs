//! Taking in the configuration again: all of it or nothing, and not a count is lost.

use fairpath_backend::{Prepared, Shaping};
use fairpath_class::Changes;
use fairpath_config::{self as config, Config};

use super::daemon::Daemon;
use super::engine::{log_changes, settings};
use super::kernel;

/// Names of classes that one line of the log lists.
const NAMES: usize = 8;

impl Daemon {
    /// Reads the configuration again and takes it in; says what changed.
    ///
    /// # Errors
    /// Where it is refused, an address is taken, or the kernel does not take the rules: what ran
    /// goes on as it was.
    pub(super) fn reload(&mut self) -> anyhow::Result<String> {
        self.manager.reloading();
        let result = self.take_in();
        match &result {
            Ok(text) => {
                self.engine.counters.reloads += 1;
                self.engine.notes.remove("reload");
                for line in text.lines() {
                    tracing::info!("{line}");
                }
            }
            Err(error) => {
                self.engine.counters.reloads_refused += 1;
                let text = format!("reload: nothing changed: {error:#}");
                tracing::error!("{text}");
                self.engine.notes.insert("reload", text);
            }
        }
        self.tell_alerts();
        self.manager.ready();
        result
    }

    fn take_in(&mut self) -> anyhow::Result<String> {
        let Some(file) = &self.file else {
            anyhow::bail!("there is no configuration file: it was given by a command line");
        };
        let mut next = config::load(file)?;
        for warning in &next.classes.warnings {
            tracing::warn!("{warning}");
        }
        let waiting = keep_what_needs_a_restart(&self.engine.config, &mut next);
        self.check_room(&next)?;
        // What can fail comes first: addresses, files, rules.
        let prepared = self.web.prepare(&next)?;
        let sinks = self.sinks.prepare(&next)?;
        let changes = next
            .classes
            .set
            .changes_since(&self.engine.config.classes.set);
        let links = self.engine.kernel.want(&next.monitor)?;
        let before = (
            self.engine.row_table.clone(),
            self.engine.config.monitor.clone(),
        );
        self.engine
            .row_table
            .set_classes(&next.classes.set, &next.classes.labels);
        if let Err(error) = self.engine.try_lay_out() {
            self.engine.row_table = before.0;
            log_changes(self.engine.kernel.want(&before.1)?);
            self.engine.layout_due = true;
            return Err(error);
        }
        log_changes(links);
        self.engine.set_label_names();
        self.engine
            .kernel
            .set_filters(&next.monitor.filters, &self.engine.row_table);
        self.engine.ledger.set_settings(settings(&next));
        self.sinks.set(sinks);
        self.web.start(prepared, &self.asker)?;
        let before = std::mem::replace(&mut self.engine.config, next);
        self.engine.generation += 1;
        self.note_waiting(&waiting);
        let mut text = self.describe(&changes, &waiting);
        if let Some(shaped) = self.reload_shaping(&before) {
            text.push_str(&format!("\n{shaped}"));
        }
        Ok(text)
    }

    /// Takes in `[shape]` and the classes' rates; what is refused leaves what runs as it was.
    fn reload_shaping(&mut self, before: &Config) -> Option<String> {
        let leads = self.engine.shape_leads();
        let engine = &mut self.engine;
        let (now, classes) = (&engine.config.shape, &engine.config.classes.set);
        let kernel = engine.kernel.monitor_mut();
        let done = match (&mut self.shaping, &before.shape, now) {
            (Some(shaping), Some(before), Some(now)) => {
                shaping.reload(before, now, classes, leads, kernel)
            }
            (Some(shaping), _, None) => shaping.stop().map(Some),
            (None, _, Some(now)) => {
                let prepared = Prepared::new(Some(now), &engine.config.control.socket);
                Shaping::new(now, classes, leads, prepared).and_then(|mut shaping| {
                    let begun = match now.start {
                        true => shaping.start(now, classes, kernel).map(Some),
                        false => Ok(None),
                    };
                    self.shaping = Some(shaping);
                    begun
                })
            }
            _ => Ok(None),
        };
        let failed = match (&before.shape, now) {
            (Some(_), Some(_)) => "shaping is as it was",
            (None, Some(_)) => "nothing is shaped",
            (_, None) => "shaping has ended",
        };
        if now.is_none() {
            self.shaping = None;
        }
        if done.is_err() && before.shape.is_some() && now.is_some() {
            // What is told and what the next reload is compared with is what is in force.
            self.engine.config.shape = before.shape.clone();
        }
        done.unwrap_or_else(|error| Some(format!("{failed}: {error:#}")))
    }

    /// Slots were made at the start: more rows than that need a restart.
    fn check_room(&self, next: &Config) -> anyhow::Result<()> {
        let [_, slots] = self.engine.row_table.slots();
        let wanted = kernel::least_slots(next) as u64;
        if wanted > slots {
            anyhow::bail!(
                "{wanted} slots are needed for classes, subnets and interfaces, and there are {slots}; \
                 restart to have more (see [monitor] max_classes)"
            );
        }
        Ok(())
    }

    fn note_waiting(&mut self, waiting: &[&'static str]) {
        if waiting.is_empty() {
            self.engine.notes.remove("restart");
        } else {
            let text = format!(
                "changed, but not in force before a restart: {}",
                waiting.join(", ")
            );
            self.engine.notes.insert("restart", text);
        }
    }

    fn describe(&self, changes: &Changes, waiting: &[&'static str]) -> String {
        let mut text = format!("configuration {} is in force", self.engine.generation);
        for (what, names) in [
            ("added", &changes.added),
            ("removed", &changes.removed),
            ("moved", &changes.moved),
            ("changed", &changes.changed),
        ] {
            if !names.is_empty() {
                text.push_str(&format!("\nclasses {what}: {}", some(names)));
            }
        }
        if !waiting.is_empty() {
            text.push_str(&format!("\nnot before a restart: {}", waiting.join(", ")));
        }
        text
    }
}

fn some(names: &[String]) -> String {
    let shown = names
        .iter()
        .take(NAMES)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    match names.len() - names.len().min(NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Puts back what the tables and sockets were made with; names the keys that differ.
fn keep_what_needs_a_restart(now: &Config, next: &mut Config) -> Vec<&'static str> {
    let mut kept = Vec::new();
    let mut keep = |name, differs: bool| {
        if differs {
            kept.push(name);
        }
    };
    let (a, b) = (&now.monitor, &mut next.monitor);
    keep("[monitor] hook", a.hook != b.hook);
    keep("[monitor] method", a.method != b.method);
    keep("[monitor] icmp", a.icmp != b.icmp);
    keep("[monitor] flows", a.flows != b.flows);
    keep("[monitor] flow_timeout", a.flow_timeout != b.flow_timeout);
    keep("[monitor] max_classes", a.max_classes != b.max_classes);
    (b.hook, b.method, b.icmp) = (a.hook, a.method, a.icmp);
    (b.flows, b.flow_timeout, b.max_classes) = (a.flows, a.flow_timeout, a.max_classes);
    keep("[subnets] v4", now.subnets.v4 != next.subnets.v4);
    keep("[subnets] v6", now.subnets.v6 != next.subnets.v6);
    (next.subnets.v4, next.subnets.v6) = (now.subnets.v4, now.subnets.v6);
    keep("[control]", now.control != next.control);
    next.control = now.control.clone();
    kept
}
