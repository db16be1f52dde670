//! What happens once an interval: the kernel is read, and rows follow what is there.

use std::time::Instant;

use fairpath_config::duration::nanos;
use fairpath_core::Prefix;
use fairpath_history::ledger::{Ledger, Reading, RowSpec, parse_subnet};
use fairpath_history::snapshot::Kind;

use super::engine::Engine;
use crate::watch::{monotonic_ns, unix_ns};

/// A jump of the wall clock that is worth a line, nanoseconds.
const CLOCK_STEP_NS: u128 = 500_000_000;
/// Bytes of the last half minute that make a subnet worth a row: a scan sends less.
const SUBNET_BYTES: u64 = 10_000;
/// Subnets come and go only every so many readings.
const SUBNETS_EVERY: u64 = 2;

impl Engine {
    /// Reads the kernel and takes the interval in; alerts that began or ended are in
    /// [`Engine::alerts`]. A kernel that refuses is told and tried again. Says whether it was read.
    pub fn read_interval(&mut self, now: Instant) -> bool {
        self.plan_next(now);
        if let Err(error) = self.take_reading() {
            self.healthy = false;
            self.counters.readings_failed += 1;
            self.complain("reading", format!("read the kernel's counters: {error:#}"));
            return false;
        }
        self.healthy = true;
        self.counters.readings += 1;
        self.notes.remove("reading");
        true
    }

    /// After a reading, and after its rows were taken: lays out anew what came or went.
    pub fn follow_traffic(&mut self) {
        let rows_wait = self.row_table.read() && self.notes.contains_key("slots");
        if self.counters.readings.is_multiple_of(SUBNETS_EVERY) {
            self.renew_subnets();
        }
        if self.layout_due || rows_wait {
            self.lay_out();
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

    fn take_reading(&mut self) -> anyhow::Result<()> {
        let (unix_ns, mono_ns) = (unix_ns()?, monotonic_ns()?);
        self.note_clock(unix_ns, mono_ns);
        let read = self.kernel.read();
        let reading = Reading {
            unix_ns,
            mono_ns,
            counts: &read.counts,
            cells: &read.cells,
            pairs: &read.pairs,
        };
        self.alerts.extend(self.ledger.take(&reading));
        Ok(())
    }

    /// Rates go by a clock that is never set; a jump of the other one is only told.
    fn note_clock(&mut self, unix_ns: u64, mono_ns: u64) {
        let offset = i128::from(unix_ns) - i128::from(mono_ns);
        let step = offset - self.offset_ns;
        self.offset_ns = offset;
        if step.unsigned_abs() >= CLOCK_STEP_NS {
            self.counters.clock_steps += 1;
            tracing::info!(
                "the wall clock was set by {} ms; rates are not affected",
                step / 1_000_000
            );
        }
    }

    /// Gives rows to the busiest subnets that no class matches, and takes those of silent ones.
    fn renew_subnets(&mut self) {
        let wanted = &self.config.subnets;
        let idle: Vec<Prefix> = self
            .ledger
            .idle_rows(Kind::Subnet, nanos(wanted.idle))
            .into_iter()
            .filter_map(parse_subnet)
            .collect();
        let busiest = self.ledger.unmatched(wanted.max).into_iter();
        let found = busiest.filter(|(_, bytes)| *bytes >= SUBNET_BYTES);
        let found: Vec<Prefix> = found.map(|(prefix, _)| prefix).collect();
        let renewed = self.row_table.renew_subnets(&idle, &found, wanted.max);
        self.counters.subnets_found += renewed.came as u64;
        self.layout_due |= renewed.came + renewed.went > 0;
    }

    /// Rows and rules anew, for links or subnets that came or went.
    pub fn lay_out(&mut self) {
        self.layout_due = false;
        self.laid_out = Instant::now();
        match self.try_lay_out() {
            Ok(()) => drop(self.notes.remove("layout")),
            Err(error) => self.complain("layout", format!("lay the rows out anew: {error:#}")),
        }
    }

    /// Rows and rules as they should be now. Nothing changes where it fails.
    pub fn try_lay_out(&mut self) -> anyhow::Result<()> {
        let rows = self.lay_rules()?;
        // Slots with a new owner count from zero, those that are kept go on.
        let ended = self.ledger.configure(rows, &[])?;
        self.alerts.extend(ended);
        Ok(())
    }

    /// The first of them. What was counted before there were rules belongs to nobody.
    pub fn lay_out_first(&mut self) -> anyhow::Result<()> {
        let rows = self.lay_rules()?;
        let counts = &self.kernel.read().counts;
        self.ledger.configure(rows, counts)?;
        Ok(())
    }

    /// Puts rules and filters into force; returns the rows that they lead to.
    fn lay_rules(&mut self) -> anyhow::Result<Vec<RowSpec>> {
        let mut row_table = self.row_table.clone();
        let layout = self
            .kernel
            .with_watched(|watched| row_table.layout(watched));
        // The ledger's refusal must come before the kernel counts by these rules.
        Ledger::check(&layout.rows)?;
        self.kernel.set_layout(&layout)?;
        self.kernel
            .set_filters(&self.config.monitor.filters, &row_table);
        self.row_table = row_table;
        if layout.refused > 0 {
            let text = format!(
                "{} rows have no slot and count in \"other\"; raise [monitor] max_classes and restart",
                layout.refused
            );
            self.complain("slots", text);
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
        self.ledger.set_labels(named.collect());
    }
}
