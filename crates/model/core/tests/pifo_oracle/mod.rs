//! The queues' oracle: one ordered map a PIFO, keyed by what the papers order by. Slow and plain.
//!
//! Shared by the tests of every runtime. Of the C it uses only the operations and their answers;
//! the window is modelled by absolute bucket numbers, SP-PIFO's bounds are signed, the gradient's
//! sums are computed again for every pop.

#![allow(dead_code)]

pub mod log;

use std::collections::{BTreeMap, VecDeque};

use fairpath_core::pifo::{Kind, NEVER, Op, Outside, PifoConfig, PifoCounts, WhenFull, Window};

const FULL: u32 = 1;
const BELOW: u32 = 2;
const BEYOND: u32 = 3;
const ADMISSION: u32 = 4;
const ITEM: u32 = 5;
const PIFO: u32 = 6;
const RANK: u32 = 7;

/// The position of an item: band, list or absolute bucket (of a heap: the rank), then arrival.
type Key = (u128, u64);

#[derive(Clone, Copy, Default)]
struct Queued {
    q: u32,
    rank: u64,
    key: Key,
    /// Of a PIEO.
    eligible: u64,
    /// The same: no pop found it eligible yet.
    waits: bool,
}

struct Model {
    config: PifoConfig,
    order: BTreeMap<Key, u32>,
    bounds: Vec<i128>,
    seen: VecDeque<u64>,
    counts: PifoCounts,
}

impl Model {
    fn new(config: PifoConfig) -> Model {
        let mut counts = PifoCounts::default();
        if let Kind::Cffs(w) | Kind::Gradient(w) = config.kind {
            counts.base = w.base >> w.shift << w.shift;
        }
        let lists = match config.kind {
            Kind::SpPifo { lists, .. } => lists as usize,
            _ => 0,
        };
        Model {
            config,
            order: BTreeMap::new(),
            bounds: vec![0; lists],
            seen: VecDeque::new(),
            counts,
        }
    }

    fn outside(&mut self, policy: Outside, refusal: u32, nearest: u128) -> Result<u128, u32> {
        match policy {
            Outside::Clamp => Ok(nearest),
            Outside::Drop => Err(refusal),
            Outside::Error => {
                self.counts.errors += 1;
                Err(RANK)
            }
        }
    }

    /// `from`: the position of the item to move.
    fn place(&mut self, rank: u64, others: usize, from: Option<u128>) -> Result<u128, u32> {
        match self.config.kind {
            Kind::Heap | Kind::Pieo { .. } => Ok(u128::from(rank)),
            Kind::Bands { bands, beyond } => {
                if rank < u64::from(bands) {
                    return Ok(u128::from(rank));
                }
                self.counts.was_beyond += 1;
                self.outside(beyond, BEYOND, u128::from(bands) - 1)
            }
            Kind::Cffs(w) | Kind::Gradient(w) => self.window_place(w, rank, others),
            Kind::SpPifo { each, .. } => self.sp_place(rank, each, from),
            Kind::Aifo { .. } => Ok(0),
        }
    }

    /// Buckets have the numbers `rank >> shift`, wherever the window is.
    fn window_place(&mut self, w: Window, rank: u64, others: usize) -> Result<u128, u32> {
        let bucket = |rank: u64| u128::from(rank >> w.shift);
        let n = u128::from(w.buckets);
        let mut first = bucket(self.counts.base);
        if bucket(rank) < first {
            self.counts.was_below += 1;
            return self.outside(w.below, BELOW, first);
        }
        if bucket(rank) >= first + 2 * n && others == 0 {
            first = bucket(rank) - n / 2;
            self.counts.base = (first << w.shift) as u64;
            self.counts.rebases += 1;
        }
        if bucket(rank) >= first + 2 * n {
            self.counts.was_beyond += 1;
            return self.outside(w.beyond, BEYOND, first + 2 * n - 1);
        }
        Ok(bucket(rank))
    }

    /// SP-PIFO's listing with the cost taken before overwriting, list 0 the highest priority.
    fn sp_place(&mut self, rank: u64, each: u32, from: Option<u128>) -> Result<u128, u32> {
        let rank = i128::from(rank);
        let reached = (1..self.bounds.len())
            .rev()
            .find(|&list| rank >= self.bounds[list]);
        let list = reached.unwrap_or(0);
        let held = self
            .order
            .keys()
            .filter(|key| key.0 == list as u128)
            .count();
        if from != Some(list as u128) && held >= each as usize {
            self.counts.was_full += 1;
            return Err(FULL);
        }
        let cost = self.bounds[list] - rank;
        self.bounds[list] = rank;
        if cost > 0 {
            for bound in &mut self.bounds[1..] {
                *bound -= cost;
            }
        }
        Ok(list as u128)
    }

    /// AIFO's condition in fractions, multiplied out.
    fn aifo_admits(&mut self, window: u32, headroom: u32, rank: u64) -> bool {
        let smaller = self.seen.iter().filter(|&&r| r < rank).count() as u128;
        let known = self.seen.len() as u128;
        let capacity = u128::from(self.config.capacity);
        let left = capacity - self.order.len() as u128;
        self.seen.push_back(rank);
        if self.seen.len() > window as usize {
            self.seen.pop_front();
        }
        self.counts.base += 1;
        smaller * capacity * u128::from(256 - headroom) <= left * known * 256
    }

    /// The one that is served next.
    fn front(&self) -> Option<(Key, u32)> {
        let (&key, &item) = self.order.first_key_value()?;
        let Kind::Gradient(w) = self.config.kind else {
            return Some((key, item));
        };
        let first = u128::from(self.counts.base >> w.shift);
        let n = u128::from(w.buckets);
        // The half that is served.
        let start = if key.0 < first + n { first } else { first + n };
        let half = self.order.range((start, 0)..(start + n, 0));
        let mut full: Vec<u128> = half.map(|(key, _)| key.0 - start).collect();
        full.dedup();
        let bucket = start + gradient_pick(w.buckets, &full);
        let (&key, &item) = self.order.range((bucket, 0)..).next().expect("not empty");
        Some((key, item))
    }

    /// Lets the window continue where the primary half is empty.
    fn turn(&mut self) {
        let (Kind::Cffs(w) | Kind::Gradient(w)) = self.config.kind else {
            return;
        };
        let first = u128::from(self.counts.base >> w.shift);
        let Some((key, _)) = self.order.first_key_value() else {
            return;
        };
        if key.0 >= first + u128::from(w.buckets) {
            self.counts.base += u64::from(w.buckets) << w.shift;
            self.counts.rotations += 1;
        }
    }
}

/// 2^(i/16), as integers that were rounded at 2^20.
fn weight(i: u128) -> u128 {
    let root = (((i % 16) as f64 / 16.0).exp2() * f64::from(1 << 20)).round() as u128;
    (root << (i / 16)) >> 20
}

/// The gradient queue's choice among buckets that are not empty.
pub fn gradient_pick(buckets: u32, full: &[u128]) -> u128 {
    let largest = 124 + u128::from(buckets) - 1;
    let (mut a, mut b) = (0, 0);
    for bucket in full {
        let i = largest - bucket;
        a += weight(i);
        b += i * weight(i);
    }
    let middle = b / a;
    let guess = middle + 23;
    let there = |i: &u128| *i <= largest && full.contains(&(largest - *i));
    let below = (middle..=guess).rev().find(there);
    let above = (guess + 1..=middle + 56).find(there);
    largest
        - below
            .or(above)
            .expect("the first is at most 54 above the middle")
}

/// All PIFOs of a pool, and what is in them.
pub struct Oracle {
    items: Vec<Queued>,
    models: Vec<Model>,
    arrivals: u64,
}

impl Oracle {
    pub fn new(items: u32, pifos: &[PifoConfig]) -> Oracle {
        Oracle {
            items: vec![Queued::default(); items as usize + 1],
            models: pifos.iter().map(|&config| Model::new(config)).collect(),
            arrivals: 0,
        }
    }

    /// The expected counts of the pool; `searched` is not modelled.
    pub fn counts(&self, q: u32) -> PifoCounts {
        let model = &self.models[q as usize - 1];
        PifoCounts {
            count: model.order.len() as u32,
            ..model.counts
        }
    }

    pub fn queued(&self) -> usize {
        self.models.iter().map(|m| m.order.len()).sum()
    }

    /// The operation with its answer.
    pub fn answer(&mut self, op: Op) -> Op {
        let mut op = op.question();
        match op.name() {
            "push" => {
                let done = self.push(op.q, op.item, op.rank);
                (op.answer, op.extra) = done.map_or_else(|e| (e, 0), |out| (0, u64::from(out)));
            }
            "pieo push" => {
                op.answer = self
                    .pieo_push(op.q, op.item, op.time, op.rank)
                    .err()
                    .unwrap_or(0);
            }
            "remove" => op.answer = self.remove(op.item).err().unwrap_or(0),
            "move" => op.answer = self.move_to(op.item, op.rank).err().unwrap_or(0),
            "pieo next" => op.extra = self.pieo_next(op.q),
            _ => {
                let found = match op.name() {
                    "pop" => self.pop(op.q),
                    "peek" => self.queue(op.q).and_then(|m| m.front()).map(|f| f.1),
                    "last" => self
                        .queue(op.q)
                        .and_then(|m| m.order.last_key_value().map(|(_, &item)| item)),
                    _ => self.pieo_pop(op.q, op.time),
                };
                op.answer = found.unwrap_or(0);
                op.extra = found.map_or(0, |item| self.items[item as usize].rank);
            }
        }
        op
    }

    /// A PIFO that has pops and looks separate.
    fn queue(&self, q: u32) -> Option<&Model> {
        let model = self.models.get((q as usize).checked_sub(1)?)?;
        (!matches!(model.config.kind, Kind::Pieo { .. })).then_some(model)
    }

    fn is_free(&self, item: u32) -> bool {
        item != 0 && self.items.get(item as usize).is_some_and(|i| i.q == 0)
    }

    fn enter(&mut self, q: u32, item: u32, rank: u64, key: Key) {
        self.models[q as usize - 1].order.insert(key, item);
        self.items[item as usize] = Queued {
            q,
            rank,
            key,
            ..Queued::default()
        };
    }

    fn leave(&mut self, item: u32) -> &mut Model {
        let Queued { q, key, .. } = self.items[item as usize];
        let model = &mut self.models[q as usize - 1];
        assert_eq!(model.order.remove(&key), Some(item));
        self.items[item as usize].q = 0;
        model
    }

    fn push(&mut self, q: u32, item: u32, rank: u64) -> Result<u32, u32> {
        self.arrivals += 1;
        let seq = self.arrivals;
        if self.queue(q).is_none() {
            return Err(PIFO);
        }
        if !self.is_free(item) {
            return Err(ITEM);
        }
        let model = &mut self.models[q as usize - 1];
        let is_full = model.order.len() == model.config.capacity as usize;
        let mut admitted = true;
        if let Kind::Aifo { window, headroom } = model.config.kind {
            admitted = model.aifo_admits(window, headroom, rank);
        }
        let approximate = matches!(model.config.kind, Kind::SpPifo { .. } | Kind::Aifo { .. });
        if approximate && is_full {
            model.counts.was_full += 1;
            return Err(FULL);
        }
        if !admitted {
            model.counts.not_admitted += 1;
            return Err(ADMISSION);
        }
        let place = model.place(rank, model.order.len(), None)?;
        let mut out = 0;
        if is_full {
            let (&(last, _), &item) = model.order.last_key_value().expect("capacity is not 0");
            if model.config.full == WhenFull::Refuse || place >= last {
                model.counts.was_full += 1;
                return Err(FULL);
            }
            model.counts.pushed_out += 1;
            out = item;
            self.leave(item);
        }
        self.models[q as usize - 1].counts.pushed += 1;
        self.enter(q, item, rank, (place, seq));
        Ok(out)
    }

    fn pop(&mut self, q: u32) -> Option<u32> {
        let (_, item) = self.queue(q)?.front()?;
        let model = &mut self.models[q as usize - 1];
        model.turn();
        model.counts.popped += 1;
        self.leave(item);
        Some(item)
    }

    fn is_queued(&self, item: u32) -> bool {
        self.items.get(item as usize).is_some_and(|i| i.q != 0)
    }

    fn remove(&mut self, item: u32) -> Result<(), u32> {
        if !self.is_queued(item) {
            return Err(ITEM);
        }
        self.leave(item).counts.removed += 1;
        Ok(())
    }

    fn move_to(&mut self, item: u32, rank: u64) -> Result<(), u32> {
        if !self.is_queued(item) {
            return Err(ITEM);
        }
        let before = self.items[item as usize];
        if before.waits {
            // Another eligible time; the rank stays.
            self.leave(item).counts.moved += 1;
            self.arrivals += 1;
            let key = (before.key.0, self.arrivals);
            self.enter(before.q, item, before.rank, key);
            let at = &mut self.items[item as usize];
            (at.eligible, at.waits) = (rank, true);
            return Ok(());
        }
        let q = before.q;
        let model = &mut self.models[q as usize - 1];
        let place = model.place(rank, model.order.len() - 1, Some(before.key.0))?;
        model.counts.moved += 1;
        self.leave(item);
        self.arrivals += 1;
        let seq = self.arrivals;
        self.enter(q, item, rank, (place, seq));
        Ok(())
    }

    /// The PIEO's model and its latest time, which is in `base`.
    fn pieo(&mut self, q: u32) -> Option<&mut Model> {
        let model = self.models.get_mut((q as usize).checked_sub(1)?)?;
        matches!(model.config.kind, Kind::Pieo { .. }).then_some(model)
    }

    fn pieo_push(&mut self, q: u32, item: u32, eligible: u64, rank: u64) -> Result<(), u32> {
        if self.pieo(q).is_none() {
            return Err(PIFO);
        }
        self.arrivals += 1;
        let seq = self.arrivals;
        if !self.is_free(item) {
            return Err(ITEM);
        }
        self.enter(q, item, rank, (u128::from(rank), seq));
        let model = &mut self.models[q as usize - 1];
        model.counts.pushed += 1;
        let waits = eligible > model.counts.base;
        let at = &mut self.items[item as usize];
        (at.eligible, at.waits) = (eligible, waits);
        Ok(())
    }

    fn pieo_pop(&mut self, q: u32, now: u64) -> Option<u32> {
        let model = self.pieo(q)?;
        model.counts.base = model.counts.base.max(now);
        let now = model.counts.base;
        let order = &self.models[q as usize - 1].order;
        for &item in order.values() {
            let at = &mut self.items[item as usize];
            at.waits &= at.eligible > now;
        }
        let item = *order.values().find(|&&i| !self.items[i as usize].waits)?;
        self.leave(item).counts.popped += 1;
        Some(item)
    }

    fn pieo_next(&mut self, q: u32) -> u64 {
        let Some(model) = self.pieo(q) else {
            return NEVER;
        };
        let (now, items): (u64, Vec<u32>) =
            (model.counts.base, model.order.values().copied().collect());
        let at = |&i: &u32| self.items[i as usize];
        let eligible = items
            .iter()
            .map(at)
            .map(|i| if i.waits { i.eligible } else { now });
        eligible.min().map_or(NEVER, |min| min.max(now))
    }
}
