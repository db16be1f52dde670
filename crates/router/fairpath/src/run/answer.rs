//! Answers: snapshots of the history, with the counters of the daemon.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use fairpath_backend::Shaping;
use fairpath_class::SlotKey;
use fairpath_config::duration::nanos;
use fairpath_core::{FlowView, OTHER};
use fairpath_history::history::{Meta, parse_subnet};
use fairpath_history::search::Search;
use fairpath_history::snapshot::{
    Answer, Configured, Detail, FlowLine, Kind, MAX_ATTRIBUTE_CHARS, MAX_ATTRIBUTES_SHOWN,
    MAX_CRITERIA_SHOWN, Request, Snapshot, SnapshotRow,
};
use fairpath_shape::Side;
use fairpath_units::text::line;

use super::daemon::Daemon;
use super::engine::Engine;
use super::query::PendingRequest;
use super::rejects::Rejects;
use fairpath_backend::monotonic_ns;

/// Maximum number of peers and flows in one answer.
const MAX_LIST: usize = 1000;
/// Rows below a class whose flows are listed with its own. Each costs a walk of the flow table.
const MAX_WALKS: usize = 16;

impl Daemon {
    /// Answers one request. Never waits for the receiver.
    pub(super) fn answer(&mut self, pending: PendingRequest) {
        if matches!(pending.request, Request::History { .. }) {
            // Its thread answers.
            return self.archiver.question(pending);
        }
        if pending.request == Request::Rules
            && let Some(reader) = &self.engine.loaded_rules
        {
            return reader.question(pending);
        }
        let answer = match pending.request {
            Request::Reload => match self.reload() {
                Ok(text) => Answer::Done { text },
                Err(error) => Answer::Error {
                    text: format!("nothing changed: {error:#}"),
                },
            },
            Request::ShapeStart => done(self.with_shaping(|shaping, engine| {
                let config = engine.config.shape.as_ref();
                let config = config.context("the configuration has no section [shape]")?;
                shaping.start(
                    config,
                    &engine.config.classes.set,
                    engine.kernel.monitor_mut(),
                )
            })),
            Request::ShapeStop => {
                let answer = done(self.with_shaping(|shaping, _| shaping.stop()));
                // `shape start --inside` has nothing else to do.
                self.over = self.file.is_none();
                answer
            }
            Request::ShapeSet { ref rates } => {
                done(self.with_shaping(|shaping, _| shaping.set(rates)))
            }
            ref request => {
                let mut answer = self.engine.answer(request, || self.counters());
                match &mut answer {
                    Answer::Snapshot { snapshot } => {
                        let workers = wants_workers(request);
                        let rows = snapshot.rows.iter_mut();
                        rows.for_each(|row| self.add_queues(row, workers));
                        let shaped = self.shaping.as_ref().zip(self.engine.config.shape.as_ref());
                        let bytes = self.archiver.bytes();
                        snapshot.gauges.insert("history_bytes".to_owned(), bytes);
                        snapshot.shape = shaped.map(|(shaping, config)| shaping.snapshot(config));
                    }
                    Answer::Detail { detail } => self.add_queues(&mut detail.row, true),
                    Answer::History { .. }
                    | Answer::Rules { .. }
                    | Answer::Done { .. }
                    | Answer::Error { .. } => {}
                }
                answer
            }
        };
        pending.answer(answer);
    }

    /// Calls `act` with the shaper and logs the result. An error if no shaper is configured.
    fn with_shaping(
        &mut self,
        act: impl FnOnce(&mut Shaping, &mut Engine) -> anyhow::Result<String>,
    ) -> anyhow::Result<String> {
        let Some(shaping) = &mut self.shaping else {
            anyhow::bail!(
                "shape: the configuration has no section [shape]: add one and reload, or shape without the daemon by `fairpath shape start --inside IF`"
            );
        };
        let result = act(shaping, &mut self.engine);
        match &result {
            Ok(text) => tracing::info!("{text}"),
            Err(error) => tracing::warn!("{error:#}"),
        }
        result
    }

    /// Adds the queues of the shaper to a row.
    fn add_queues(&self, row: &mut SnapshotRow, workers: bool) {
        let (Some(shaping), Some(config)) = (&self.shaping, &self.engine.config.shape) else {
            return;
        };
        [row.down_queue, row.up_queue] = match row.kind {
            Kind::Class => shaping.queues(&row.name, workers),
            Kind::Other => shaping.queues("other", workers),
            // All packets that leave by it.
            Kind::Interface if row.name == config.inside => [shaping.line(Side::Down), None],
            Kind::Interface if config.outside.as_ref() == Some(&row.name) => {
                [None, shaping.line(Side::Up)]
            }
            Kind::Interface | Kind::Subnet => [None, None],
        };
    }

    /// Counters of the daemon's threads, by name.
    fn counters(&self) -> BTreeMap<String, u64> {
        let control = self.control.counters();
        let hooks = self.hooks.counters();
        let [saves, saves_failed] = self.writer.counts();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let daemon = [
            ("control_refused", count(&control.refused)),
            ("control_closed", count(&control.closed)),
            ("hooks_done", count(&hooks.done)),
            ("hooks_failed", count(&hooks.failed)),
            ("hooks_dropped", count(&hooks.dropped)),
            ("state_saves", saves),
            ("state_saves_failed", saves_failed),
        ];
        let mut all: BTreeMap<String, u64> = self.web.counters();
        all.extend(self.sinks.counters().map(|(name, n)| (name.to_owned(), n)));
        let rejects = self.rejects.iter().flat_map(Rejects::counters);
        let daemon = daemon.into_iter().chain(self.archiver.counters());
        let daemon = daemon.chain(rejects);
        all.extend(daemon.map(|(name, n)| (name.to_owned(), n)));
        all
    }
}

/// True if queues are wanted with what each worker did of them.
fn wants_workers(request: &Request) -> bool {
    matches!(request, Request::Snapshot { query } if query.workers)
}

fn done(result: anyhow::Result<String>) -> Answer {
    match result {
        Ok(text) => Answer::Done { text },
        Err(error) => Answer::Error {
            text: format!("{error:#}"),
        },
    }
}

impl Engine {
    /// Answers requests that need no daemon. `more` are additional counters.
    pub fn answer(&self, request: &Request, more: impl Fn() -> BTreeMap<String, u64>) -> Answer {
        match request {
            Request::Snapshot { query } => {
                let search = query.search.as_deref().map(Search::new);
                let found = |kind: Kind, name: &str| {
                    let search = search.as_ref();
                    search.is_some_and(|search| self.row_table.found(search, kind, name))
                };
                let meta = self.meta(more());
                let mut snapshot = self.history.snapshot_with(query, meta, &found);
                let loaded_rules = self.loaded_rules.as_ref();
                snapshot.rules = loaded_rules.and_then(|reader| reader.show(query));
                self.finish(snapshot)
            }
            Request::Status => self.finish(self.history.status(self.meta(more()))),
            Request::Detail { class, limit } => self.detail(class, (*limit).min(MAX_LIST)),
            Request::History { .. } => Answer::Error {
                text:
                    "history: this process keeps none: query the daemon, or name its file by --file"
                        .to_owned(),
            },
            Request::Rules => Answer::Error {
                text: "rules: this process does not list them: query the daemon".to_owned(),
            },
            Request::Reload => Answer::Error {
                text: "reload: this process has no configuration file".to_owned(),
            },
            Request::ShapeStart | Request::ShapeStop | Request::ShapeSet { .. } => Answer::Error {
                text: "shape: this process is not the daemon".to_owned(),
            },
        }
    }

    fn finish(&self, mut snapshot: Snapshot) -> Answer {
        let names = self.kernel.interfaces().watched();
        snapshot.gauges.extend(self.gauges());
        let snapshot = Snapshot {
            configuration: self.generation,
            interfaces: names.into_iter().map(|(_, name)| name.to_owned()).collect(),
            waiting_for: self.waiting_for.clone(),
            notes: self.notes.values().cloned().collect(),
            interval_ns: nanos(self.config.monitor.interval),
            ..snapshot
        };
        Answer::Snapshot {
            snapshot: Box::new(snapshot),
        }
    }

    fn meta(&self, mut counters: BTreeMap<String, u64>) -> Meta {
        let own = &self.counters;
        let engine = [
            ("readings", own.readings),
            ("readings_failed", own.readings_failed),
            ("readings_skipped", own.readings_skipped),
            ("alerts", own.alerts),
            ("reloads", own.reloads),
            ("reloads_refused", own.reloads_refused),
            ("clock_steps", own.clock_steps),
            ("subnets_found", own.subnets_found),
        ];
        let all = engine.into_iter().chain(self.kernel.stats().by_name());
        counters.extend(all.map(|(name, n)| (name.to_owned(), n)));
        Meta {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            host: self.host.clone(),
            counters,
        }
    }

    fn gauges(&self) -> BTreeMap<String, u64> {
        let [slots_used, slots] = self.row_table.slots();
        let [memory, flows] = self.kernel.size();
        let stats = self.kernel.stats();
        [
            ("slots_used", slots_used),
            ("slots", slots),
            ("kernel_memory_bytes", memory),
            ("flows_capacity", flows),
            (
                "flows_open",
                stats.flows_opened.saturating_sub(stats.flows_closed),
            ),
            ("classes", self.row_table.classes().len() as u64),
            ("subnets", self.row_table.subnets().len() as u64),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    fn detail(&self, class: &str, limit: usize) -> Answer {
        let Some(mut detail) = self.history.detail(class, limit) else {
            return Answer::Error {
                text: format!(
                    "show {class:?}: there is no row of this name: `fairpath top --once` lists all rows"
                ),
            };
        };
        detail.flows = self.flows(&detail, limit);
        detail.configured = self.configured(&detail.row);
        Answer::Detail {
            detail: Box::new(detail),
        }
    }

    /// The configuration of a class, with clean texts.
    fn configured(&self, row: &SnapshotRow) -> Option<Configured> {
        let classes = self.row_table.classes();
        let at = classes
            .position(&row.name)
            .filter(|_| row.kind == Kind::Class)?;
        let class = &classes.classes()[at];
        let clean = |text: &str| {
            let text = line(text);
            text.chars().take(MAX_ATTRIBUTE_CHARS).collect::<String>()
        };
        let criteria = class.criteria.iter().take(MAX_CRITERIA_SHOWN);
        let attributes = class.attributes.iter().take(MAX_ATTRIBUTES_SHOWN);
        Some(Configured {
            criteria: criteria
                .map(|criterion| clean(&criterion.to_string()))
                .collect(),
            criteria_total: class.criteria.len() as u64,
            attributes: attributes
                .map(|(name, value)| (clean(name), clean(value)))
                .collect(),
            sla_p95_rtt_ns: class.sla.rtt_p95_ns,
            sla_loss_ratio: class.sla.loss,
        })
    }

    /// Open flows of the row and of the rows below it.
    fn flows(&self, detail: &Detail, limit: usize) -> Vec<FlowLine> {
        // The monotonic clock does not fail here. Ages would be 0.
        let now = monotonic_ns().unwrap_or(0);
        let mut flows: Vec<FlowLine> = self
            .slots_of(&detail.row)
            .into_iter()
            .flat_map(|slot| {
                let views = self.kernel.flows(slot, limit);
                views
                    .into_iter()
                    .map(move |view| flow_line(&view, slot, now))
            })
            .collect();
        flows.sort_by_key(|flow| std::cmp::Reverse(flow.bytes_up + flow.bytes_down));
        flows.truncate(limit);
        flows
    }

    fn slots_of(&self, row: &SnapshotRow) -> Vec<u32> {
        let slot = |key: &SlotKey| self.row_table.slot(key);
        match row.kind {
            Kind::Other => vec![OTHER],
            Kind::Subnet => parse_subnet(&row.name)
                .and_then(|p| slot(&SlotKey::Subnet(p)))
                .into_iter()
                .collect(),
            // Flows belong to classes, not to interfaces.
            Kind::Interface => Vec::new(),
            Kind::Class => {
                let mut slots = self.row_table.slots_below(&row.name);
                slots.truncate(MAX_WALKS);
                slots
            }
        }
    }
}

/// A flow from the side of the class of `slot`.
fn flow_line(view: &FlowView, slot: u32, now: u64) -> FlowLine {
    let host = usize::from(view.slots[0] != slot);
    let remote = 1 - host;
    let ends = [host, remote].map(|side| view.key.endpoint(side));
    let ports = ends.map(|end| if view.key.proto == 6 { end.port() } else { 0 });
    let measured =
        |side: usize, rtt_ns: [u64; 2]| (view.counts[1 - side].samples > 0).then_some(rtt_ns[side]);
    let retransmitted = view
        .counts
        .iter()
        .map(|c| u64::from(c.retransmitted_packets))
        .sum();
    FlowLine {
        proto: match view.key.proto {
            6 => "tcp",
            58 => "icmpv6",
            _ => "icmp",
        }
        .to_owned(),
        host: ends[0].ip(),
        host_port: ports[0],
        remote: ends[1].ip(),
        remote_port: ports[1],
        age_ns: now.saturating_sub(view.opened),
        idle_ns: now.saturating_sub(view.last),
        bytes_up: view.counts[host].bytes,
        bytes_down: view.counts[remote].bytes,
        inside_min_rtt_ns: measured(host, view.min),
        inside_p50_rtt_ns: measured(host, view.p50),
        outside_min_rtt_ns: measured(remote, view.min),
        outside_p50_rtt_ns: measured(remote, view.p50),
        retransmitted_packets: retransmitted,
    }
}
