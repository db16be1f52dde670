//! The packets that a command traces: a filter in the arena, which ends soon after its command.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::{HookError, HookRules, IP_FAMILIES, has_other_clock, monotonic};
use crate::rtt::wait_for_programs;

/// Words that a filter compares, the first ones of a packet (`FILTER_WORDS`).
pub const FILTER_WORDS: usize = 9;
/// In the direction of the filter, and in the other one (`FILTER_DIRECTIONS`).
const DIRECTIONS: usize = 2;
/// A filter ends after this time if its command does not move the end.
const LASTS: Duration = Duration::from_secs(3);

/// Masks and values by family and word. A packet has all values under their masks.
pub type Compares = [[(u64, u64); FILTER_WORDS]; IP_FAMILIES];

/// The packets that are traced: those of one direction, or also those of the other one.
#[derive(Debug, Clone, Default)]
pub struct TraceFilter {
    /// One direction.
    pub forward: Compares,
    /// The other one.
    pub back: Option<Compares>,
}

/// `struct rules_filter`.
#[derive(Default)]
#[repr(C)]
pub(super) struct Filter {
    until: AtomicU64,
    directions: AtomicU32,
    pad: u32,
    compare: [[[[AtomicU64; 2]; FILTER_WORDS]; IP_FAMILIES]; DIRECTIONS],
}

/// A running trace of a namespace, of which there is one.
#[derive(Debug)]
pub struct Trace {
    until: u64,
}

impl HookRules {
    /// Begins to trace packets that a filter selects, as events ([`HookRules::next_event`]).
    ///
    /// # Errors
    /// [`HookError::Traced`], [`HookError::OtherClock`].
    pub fn trace(&self, filter: &TraceFilter) -> Result<Trace, HookError> {
        if has_other_clock() {
            return Err(HookError::OtherClock);
        }
        let (header, now) = (self.header(), monotonic());
        let of_others = header.filter.until.load(Ordering::Acquire);
        if of_others > now {
            return Err(HookError::Traced);
        }
        let trace = self.extend(of_others).ok_or(HookError::Traced)?;
        // Programs may still read the filter of a command that was killed.
        header.tracing.store(0, Ordering::Release);
        wait_for_programs();
        let directions = [Some(&filter.forward), filter.back.as_ref()];
        for (place, direction) in header
            .filter
            .compare
            .iter()
            .zip(directions.iter().flatten())
        {
            let words = place.iter().flatten().zip(direction.iter().flatten());
            for ([mask, value], word) in words {
                mask.store(word.0, Ordering::Relaxed);
                value.store(word.1, Ordering::Relaxed);
            }
        }
        let count = directions.iter().flatten().count();
        header
            .filter
            .directions
            .store(count as u32, Ordering::Relaxed);
        header.tracing.store(1, Ordering::Release);
        Ok(trace)
    }

    /// True while a command traces, and for some seconds after it was killed.
    pub fn is_traced(&self) -> bool {
        let header = self.header();
        let is_on = header.tracing.load(Ordering::Acquire) != 0;
        is_on && header.filter.until.load(Ordering::Acquire) > monotonic()
    }

    /// Moves the end of a filter that had this one.
    fn extend(&self, before: u64) -> Option<Trace> {
        let until = monotonic() + LASTS.as_nanos() as u64;
        let place = &self.header().filter.until;
        let order = (Ordering::AcqRel, Ordering::Acquire);
        let moved = place.compare_exchange(before, until, order.0, order.1);
        moved.ok().map(|_| Trace { until })
    }

    /// Lets a trace continue. To be called each second. False: it was over in between.
    ///
    /// # Errors
    /// [`HookError::Traced`]: in between, another command began.
    pub fn keep_trace(&self, trace: &mut Trace) -> Result<bool, HookError> {
        let in_time = trace.until > monotonic();
        *trace = self.extend(trace.until).ok_or(HookError::Traced)?;
        self.header().tracing.store(1, Ordering::Release);
        Ok(in_time)
    }

    /// Ends a trace, unless it is over.
    pub fn end_trace(&self, trace: &Trace) {
        let header = self.header();
        // Before another command can take the filter.
        if trace.until > monotonic() {
            header.tracing.store(0, Ordering::Release);
        }
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        let until = &header.filter.until;
        // Fails if another command has taken it.
        let _ = until.compare_exchange(trace.until, 0, order.0, order.1);
    }

    /// Switches off what a killed command left.
    pub(super) fn forget_trace(&self) {
        let header = self.header();
        if header.filter.until.load(Ordering::Acquire) <= monotonic() {
            header.tracing.store(0, Ordering::Relaxed);
        }
    }
}
