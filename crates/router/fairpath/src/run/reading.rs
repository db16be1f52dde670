//! The work of each interval: reading the kernel, and updating rows.

use std::time::Instant;

use fairpath_config::duration::nanos;
use fairpath_core::Prefix;
use fairpath_history::history::{History, Reading, RowSpec, parse_subnet};
use fairpath_history::snapshot::Kind;

use super::engine::Engine;
use fairpath_backend::monotonic_ns;
use fairpath_watch::unix_ns;

/// Minimum logged step of the real-time clock, nanoseconds.
const CLOCK_STEP_NS: u128 = 500_000_000;
/// Minimum bytes of a new subnet in the last 30 s: a scan sends less.
const SUBNET_BYTES: u64 = 10_000;
/// Subnets are added and removed each time after this number of readings.
const SUBNETS_EVERY: u64 = 2;

impl Engine {
    /// Reads the kernel and adds the interval to the history. [`Engine::alerts`] has the alerts that
    /// began or ended. A failure is logged and retried. Returns whether the reading succeeded.
    pub fn read_interval(&mut self, now: Instant) -> bool {
        self.plan_next(now);
        if let Err(error) = self.add_reading() {
            self.healthy = false;
            self.counters.readings_failed += 1;
            self.warn("reading", format!("read the kernel's counters: {error:#}"));
            return false;
        }
        self.healthy = true;
        self.counters.readings += 1;
        self.notes.remove("reading");
        match self.loaded_rules.as_ref().and_then(|rules| rules.problem()) {
            Some(text) => self.warn("rules", text),
            None => drop(self.notes.remove("rules")),
        }
        true
    }

    /// After a reading and its rows: updates subnets and rebuilds rows if needed.
    pub fn follow_traffic(&mut self) {
        let rows_wait = self.row_table.read() && self.notes.contains_key("slots");
        if self.counters.readings.is_multiple_of(SUBNETS_EVERY) {
            self.renew_subnets();
        }
        if self.layout_due || rows_wait {
            self.rebuild_rows();
        }
    }

    fn plan_next(&mut self, now: Instant) {
        let interval = self.config.monitor.interval;
        self.next_reading += interval;
        let late = now.saturating_duration_since(self.next_reading);
        if !late.is_zero() {
            let missed = late.as_nanos() / interval.as_nanos() + 1;
            self.counters.readings_skipped += missed as u64;
            self.next_reading = now + interval;
        }
    }

    fn add_reading(&mut self) -> anyhow::Result<()> {
        let (unix_ns, mono_ns) = (unix_ns()?, monotonic_ns()?);
        self.check_clock(unix_ns, mono_ns);
        let read = self.kernel.read();
        let reading = Reading {
            unix_ns,
            mono_ns,
            counts: &read.counts,
            cells: &read.cells,
            pairs: &read.pairs,
        };
        self.alerts.extend(self.history.take(&reading));
        Ok(())
    }

    /// Rates use the monotonic clock; a step of the real-time clock is only logged.
    fn check_clock(&mut self, unix_ns: u64, mono_ns: u64) {
        let offset = i128::from(unix_ns) - i128::from(mono_ns);
        let step = offset - self.offset_ns;
        self.offset_ns = offset;
        if step.unsigned_abs() >= CLOCK_STEP_NS {
            self.counters.clock_steps += 1;
            tracing::info!(
                "the real-time clock was set by {} ms; rates are not affected",
                step / 1_000_000
            );
        }
    }

    /// Adds rows for the busiest subnets without a class, and removes those of silent ones.
    fn renew_subnets(&mut self) {
        let wanted = &self.config.subnets;
        let idle: Vec<Prefix> = self
            .history
            .idle_rows(Kind::Subnet, nanos(wanted.idle))
            .into_iter()
            .filter_map(parse_subnet)
            .collect();
        let busiest = self.history.unmatched(wanted.max).into_iter();
        let found = busiest.filter(|(_, bytes)| *bytes >= SUBNET_BYTES);
        let found: Vec<Prefix> = found.map(|(prefix, _)| prefix).collect();
        let renewed = self.row_table.renew_subnets(&idle, &found, wanted.max);
        self.counters.subnets_found += renewed.arrived as u64;
        self.layout_due |= renewed.arrived + renewed.went > 0;
    }

    /// Rebuilds rows and rules, for changed links or subnets.
    pub fn rebuild_rows(&mut self) {
        self.layout_due = false;
        self.rebuilt = Instant::now();
        match self.try_rebuild_rows() {
            Ok(()) => drop(self.notes.remove("layout")),
            Err(error) => self.warn("layout", format!("rebuild the rows: {error:#}")),
        }
    }

    /// Rebuilds rows and rules. Nothing changes if it fails.
    pub fn try_rebuild_rows(&mut self) -> anyhow::Result<()> {
        let rows = self.activate_rules()?;
        // Slots with a new row count from zero, the others continue.
        let ended = self.history.configure(rows, &[])?;
        self.alerts.extend(ended);
        Ok(())
    }

    /// Builds the first rows and rules. Earlier counts are ignored.
    pub fn build_rows(&mut self) -> anyhow::Result<()> {
        let rows = self.activate_rules()?;
        let counts = &self.kernel.read().counts;
        self.alerts.extend(self.history.configure(rows, counts)?);
        Ok(())
    }

    /// Activates rules and filters, and returns their rows.
    fn activate_rules(&mut self) -> anyhow::Result<Vec<RowSpec>> {
        let mut row_table = self.row_table.clone();
        let layout = self
            .kernel
            .with_watched(|watched| row_table.layout(watched));
        // The history must accept the rows before the kernel counts by these rules.
        History::check(&layout.rows)?;
        self.kernel.set_layout(&layout)?;
        self.kernel
            .set_filters(&self.config.monitor.filters, &row_table);
        self.row_table = row_table;
        if layout.refused > 0 {
            let text = format!(
                "{} rows have no slot and are counted in \"other\": raise [monitor] max_classes and restart",
                layout.refused
            );
            self.warn("slots", text);
        } else {
            self.notes.remove("slots");
        }
        Ok(layout.rows)
    }

    pub fn set_label_names(&mut self) {
        let labels = self.row_table.labels();
        let named = labels
            .prefixes()
            .iter()
            .filter_map(|(_, number)| Some((*number, labels.name(*number)?.to_owned())));
        self.history.set_labels(named.collect());
    }
}
