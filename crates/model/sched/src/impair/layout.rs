//! Builds the configuration of the core: probabilities as thresholds, distributions as tables.

use fairpath_core::sched::{Framing, ImpairConfig, Plan, Z_SHIFT, chance, mix64};

use super::{Slot, Spec, normal};

/// Default maximum of packets in a delay queue: 100 ms of full-sized packets at 7 Gbit/s, or of small
/// packets at 400 Mbit/s.
pub const DEFAULT_PIPE: u32 = 65_536;

/// The seed of impairment `number` in a direction. The seeds of all impairments differ.
pub fn seed_of(seed: u64, direction: u64, number: u64) -> u64 {
    [direction, number]
        .into_iter()
        .fold(mix64(seed), |seed, part| {
            mix64(seed.wrapping_add((part + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
        })
}

/// The number of a named impairment for [`seed_of`]. Other impairments do not change its outcomes.
fn number_of(name: &str) -> u64 {
    let bytes = name.bytes();
    bytes.fold(mix64(name.len() as u64), |number, byte| {
        mix64(number ^ u64::from(byte))
    })
}

impl Spec {
    /// Adds the impairment to a plan, without assigning it to leaves. Returns its number.
    ///
    /// Both directions of a link have the same specification but different values of `direction`, so
    /// that their random outcomes differ. A rate trace applies to the root of the plan.
    pub fn add_to(&self, plan: &mut Plan, direction: u64) -> u32 {
        self.add(plan, direction, plan.impairments.len() as u64)
    }

    /// The same, but random outcomes depend on a name instead of the position in the plan.
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

    /// The configuration for the core. Its tables are appended to `words` of a plan. `seed` is used
    /// unchanged.
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
            framing: self.framing(),
            ..ImpairConfig::default()
        };
        self.add_jitter(&mut config, words);
        self.add_traces(&mut config, words);
        if let Some(Slot {
            min_ns,
            most_ns,
            packets,
            bytes,
        }) = self.slot
        {
            config.slot_min = min_ns;
            config.slot_spread = (most_ns - min_ns) as u32;
            (config.slot_packets, config.slot_bytes) = (packets, bytes);
        }
        config
    }

    /// The builder limits each number to 2,048.
    fn framing(&self) -> Framing {
        let cell_bytes = match self.cell {
            0 => 0,
            payload => payload + self.cell_overhead,
        };
        Framing {
            overhead: self.overhead as i16,
            mpu: self.mpu as u16,
            cell_payload: self.cell as u16,
            cell_partial: self.cell_partial.into(),
            cell_bytes: cell_bytes as u16,
            ..Framing::default()
        }
    }

    fn add_jitter(&self, config: &mut ImpairConfig, words: &mut Vec<u64>) {
        let deviations = self.distribution.deviations(self.jitter_ns);
        if deviations.is_empty() {
            return;
        }
        let normal = normal::table();
        // The first impairment with jitter adds the shared table.
        config.normal_at = match words.get(..normal.len()) == Some(normal) {
            true => 1,
            false => append(words, normal.iter().copied()),
        };
        config.jitter_at = append(words, deviations.iter().map(|ns| ns.round() as i64 as u64));
        let fixed = |part: f64| (part * f64::from(1u32 << Z_SHIFT)).round() as i32;
        config.rho = fixed(self.correlation);
        config.fresh = fixed((1.0 - self.correlation * self.correlation).sqrt());
    }

    fn add_traces(&self, config: &mut ImpairConfig, words: &mut Vec<u64>) {
        if let Some(trace) = &self.delay_trace {
            let pairs = trace
                .points
                .iter()
                .flat_map(|(time, delay)| [*time, *delay]);
            config.delays_at = append(words, pairs);
            config.delays = trace.points.len() as u32;
            config.delays_period = trace.period_ns;
        }
        if let Some(trace) = &self.rate_trace {
            config.chances_at = append(words, trace.times_ns.iter().copied());
            config.chances = trace.times_ns.len() as u32;
            config.chances_period = trace.period_ns;
        }
    }

    /// Handles that a plan needs for delayed packets.
    pub fn pipe_packets(&self) -> u32 {
        match self.delays() {
            true => self.pipe.unwrap_or(DEFAULT_PIPE),
            false => 0,
        }
    }
}

/// Appends a table to the words. Returns the index of its first word plus 1.
fn append(words: &mut Vec<u64>, table: impl Iterator<Item = u64>) -> u32 {
    let at = words.len() as u32 + 1;
    words.extend(table);
    at
}
