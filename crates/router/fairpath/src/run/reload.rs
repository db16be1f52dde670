//! Reload of the configuration: completely or not at all, without losing counts.

use fairpath_backend::{Prepared, Shaping};
use fairpath_class::Changes;
use fairpath_config::{self as config, Config};

use super::daemon::Daemon;
use super::engine::{log_changes, settings};
use super::kernel;

/// Maximum number of class names in one line of the log.
const NAMES: usize = 8;

impl Daemon {
    /// Reads the configuration again and applies it. Returns the changes as text.
    ///
    /// # Errors
    /// The configuration is invalid, an address is in use, or the kernel refuses the rules. The
    /// active configuration continues.
    pub(super) fn reload(&mut self) -> anyhow::Result<String> {
        self.manager.reloading();
        let result = self.apply();
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
        self.report_alerts();
        self.manager.ready();
        result
    }

    fn apply(&mut self) -> anyhow::Result<String> {
        let Some(file) = &self.file else {
            anyhow::bail!("there is no configuration file: this process was configured by options");
        };
        let mut next = config::load(file)?;
        for warning in &next.classes.warnings {
            tracing::warn!("{warning}");
        }
        let waiting = retain_until_restart(&self.engine.config, &mut next);
        self.check_slots(&next)?;
        // Steps that can fail come first: addresses, files, rules.
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
        if let Err(error) = self.engine.try_rebuild_rows() {
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
        self.engine.history.set_settings(settings(&next));
        self.sinks.set(sinks);
        self.archiver.set(&next);
        self.web.start(prepared, &self.requester)?;
        let before = std::mem::replace(&mut self.engine.config, next);
        self.engine.generation += 1;
        self.engine.waiting_for = self.engine.kernel.waiting_for();
        self.engine.log_waiting();
        self.note_waiting(&waiting);
        let mut text = self.describe(&changes, &waiting);
        if let Some(shaped) = self.reload_shaping(&before) {
            text.push_str(&format!("\n{shaped}"));
        }
        Ok(text)
    }

    /// Applies `[shape]` and the rates of classes. After a refusal, shaping continues unchanged.
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
            (Some(_), Some(_)) => "shaping is unchanged",
            (None, Some(_)) => "shaping is stopped",
            (_, None) => "shaping has ended",
        };
        if now.is_none() {
            self.shaping = None;
        }
        if done.is_err() && before.shape.is_some() && now.is_some() {
            // Status and the next reload refer to the active configuration.
            self.engine.config.shape = before.shape.clone();
        }
        done.unwrap_or_else(|error| Some(format!("{failed}: {error:#}")))
    }

    /// The number of slots is fixed at the start.
    fn check_slots(&self, next: &Config) -> anyhow::Result<()> {
        let [_, slots] = self.engine.row_table.slots();
        let wanted = kernel::min_slots(next) as u64;
        if wanted > slots {
            anyhow::bail!(
                "classes, subnets and interfaces need {wanted} slots, but there are {slots}: \
                 restart for more (see [monitor] max_classes)"
            );
        }
        Ok(())
    }

    fn note_waiting(&mut self, waiting: &[&'static str]) {
        if waiting.is_empty() {
            self.engine.notes.remove("restart");
        } else {
            let text = format!("changed, active after a restart: {}", waiting.join(", "));
            self.engine.notes.insert("restart", text);
        }
    }

    fn describe(&self, changes: &Changes, waiting: &[&'static str]) -> String {
        let mut text = format!("configuration {} is active", self.engine.generation);
        for (what, names) in [
            ("added", &changes.added),
            ("removed", &changes.removed),
            ("moved", &changes.moved),
            ("changed", &changes.changed),
        ] {
            if !names.is_empty() {
                text.push_str(&format!("\nclasses {what}: {}", name_list(names)));
            }
        }
        if !waiting.is_empty() {
            text.push_str(&format!("\nactive after a restart: {}", waiting.join(", ")));
        }
        text
    }
}

fn name_list(names: &[String]) -> String {
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

/// Restores the values that tables and sockets were created with, and returns the keys that differ.
fn retain_until_restart(now: &Config, next: &mut Config) -> Vec<&'static str> {
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
    keep("[rules] answer", now.rules.answer != next.rules.answer);
    next.rules.answer = now.rules.answer;
    keep("[control]", now.control != next.control);
    next.control = now.control.clone();
    kept
}
