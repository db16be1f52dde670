//! From a specification to what the core reads: chances as thresholds, distributions as tables.

use fairpath_core::sched::{ImpairConfig, Plan, Z_SHIFT, chance, mix64};

use super::{Slot, Spec, normal};

/// Packets that may be delayed at a time unless the specification says: 100 ms of full-sized packets
/// at 7 Gbit/s, of small ones at 400 Mbit/s.
pub const STANDARD_PIPE: u32 = 65_536;

/// The seed of impairment `number` in a direction: no two are alike, whatever the seed is.
pub fn seed_of(seed: u64, direction: u64, number: u64) -> u64 {
    [direction, number]
        .into_iter()
        .fold(mix64(seed), |seed, part| {
            mix64(seed.wrapping_add((part + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
        })
}

/// The number of an impairment for [`seed_of`] by a name, so that it has the same fates whichever
/// others there are.
fn number_of(name: &str) -> u64 {
    let bytes = name.bytes();
    bytes.fold(mix64(name.len() as u64), |number, byte| {
        mix64(number ^ u64::from(byte))
    })
}

impl Spec {
    /// Adds the impairment to a plan, without a leaf that it is before; its number there.
    ///
    /// Both directions of a link have the same specification and other numbers for `direction`, so
    /// that they do not share their fates. A rate trace becomes that of the plan's root.
    pub fn add_to(&self, plan: &mut Plan, direction: u64) -> u32 {
        self.add(plan, direction, plan.impairments.len() as u64)
    }

    /// Likewise, with fates that go by a name and not by the place among the plan's impairments.
    pub fn add_named(&self, plan: &mut Plan, direction: u64, name: &str) -> u32 {
        self.add(plan, direction, number_of(name))
    }

    fn add(&self, plan: &mut Plan, direction: u64, number: u64) -> u32 {
        let config = self.to_config(seed_of(self.seed, direction, number), &mut plan.words);
        plan.impairments.push(config);
        let number = plan.impairments.len() as u32;
        if self.rate_trace.is_some() {
            plan.config.service = number;
        }
        number
    }

    /// As the core reads it; what it looks up is put behind `words`, which are a plan's. `seed` is
    /// used as it is.
    pub fn to_config(&self, seed: u64, words: &mut Vec<u64>) -> ImpairConfig {
        let mut config = ImpairConfig {
            loss: self.loss.to_config(seed),
            delay: self.delay_ns,
            copy: chance(self.duplicate),
            corrupt: chance(self.corrupt),
            ahead: chance(self.reorder),
            gap: self.reorder_gap,
            free_order: self.order_free.into(),
            release: self.release_ns,
            overhead: self.overhead,
            cell_payload: self.cell,
            cell_bytes: if self.cell > 0 {
                self.cell + self.cell_overhead
            } else {
                0
            },
            ..ImpairConfig::default()
        };
        self.lay_jitter(&mut config, words);
        self.lay_traces(&mut config, words);
        if let Some(Slot {
            least_ns,
            most_ns,
            packets,
            bytes,
        }) = self.slot
        {
            config.slot_least = least_ns;
            config.slot_spread = (most_ns - least_ns) as u32;
            (config.slot_packets, config.slot_bytes) = (packets, bytes);
        }
        config
    }

    fn lay_jitter(&self, config: &mut ImpairConfig, words: &mut Vec<u64>) {
        let deviations = self.distribution.deviations(self.jitter_ns);
        if deviations.is_empty() {
            return;
        }
        let normal = normal::table();
        // The first that needs it lays it at the beginning, or behind what is there.
        config.normal_at = match words.get(..normal.len()) == Some(normal) {
            true => 1,
            false => lay(words, normal.iter().copied()),
        };
        config.jitter_at = lay(words, deviations.iter().map(|ns| ns.round() as i64 as u64));
        let fixed = |part: f64| (part * f64::from(1u32 << Z_SHIFT)).round() as i32;
        config.rho = fixed(self.correlation);
        config.fresh = fixed((1.0 - self.correlation * self.correlation).sqrt());
    }

    fn lay_traces(&self, config: &mut ImpairConfig, words: &mut Vec<u64>) {
        if let Some(trace) = &self.delay_trace {
            let pairs = trace
                .points
                .iter()
                .flat_map(|(time, delay)| [*time, *delay]);
            config.delays_at = lay(words, pairs);
            config.delays = trace.points.len() as u32;
            config.delays_period = trace.period_ns;
        }
        if let Some(trace) = &self.rate_trace {
            config.chances_at = lay(words, trace.times_ns.iter().copied());
            config.chances = trace.times_ns.len() as u32;
            config.chances_period = trace.period_ns;
        }
    }

    /// Handles that a plan needs for packets that are delayed.
    pub fn pipe_packets(&self) -> u32 {
        match self.delays() {
            true => self.pipe.unwrap_or(STANDARD_PIPE),
            false => 0,
        }
    }
}

/// Puts a table behind the words; its first one's index plus 1.
fn lay(words: &mut Vec<u64>, table: impl Iterator<Item = u64>) -> u32 {
    let at = words.len() as u32 + 1;
    words.extend(table);
    at
}
