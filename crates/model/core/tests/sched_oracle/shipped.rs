//! Shipped policies again, in Rust, from their papers and the heads of their files.
//!
//! Absent: those whose own tests hold them against a model of another kind (qfq, sp_pifo, aifo), and
//! those that differ from one here by names only (edf, hclock, diffserv).

use fairpath_core::sched::{Function, Meta, NEVER, Over, PARAMS, RATE_SHIFT};

use super::policy::{Call, DROP, KEEP, LATER, LINGER, MARK, State};

/// Those that [`query`] knows.
pub const KNOWN: [&str; 13] = [
    "fifo",
    "stfq",
    "hpfq",
    "drr",
    "srpt",
    "lstf",
    "priority",
    "token_bucket",
    "pacing",
    "class_tree",
    "codel",
    "fq_codel",
    "tins",
];

pub fn query(name: &str, function: Function, p: &Meta, s: State, r: &mut Call) -> u64 {
    match name {
        "fifo" => 0,
        "stfq" => stfq(function, p, s, r),
        "hpfq" => hpfq(function, p, s, r),
        "drr" if r.over == Over::Flows as u32 => drr_over_flows(function, p, s, r),
        "drr" => drr_over_children(function, p, s, r),
        "srpt" => srpt(p, s, r),
        "lstf" => r.now.saturating_add(p.hint),
        "priority" => priority(function, p, s, r),
        "token_bucket" => token_bucket(function, p, s, r),
        "pacing" => pacing(function, p, s, r),
        "class_tree" => class_tree(function, p, s, r),
        "codel" => codel(function, p, s, r),
        "fq_codel" => fq_codel(function, p, s, r),
        "tins" => tins(function, p, s, r),
        other => panic!("no policy {other} is written here"),
    }
}

/// Flows and children stand in the queue once, whatever waits behind them.
fn is_unique(r: &Call) -> bool {
    [Over::Flows as u32, Over::Children as u32].contains(&r.over)
}

fn virtual_time(bytes: u32, cost: u32) -> u64 {
    (u64::from(bytes) * u64::from(cost)) >> 8
}

fn time_at(bytes: u64, rate: u64) -> u64 {
    bytes.wrapping_mul(rate) >> RATE_SHIFT
}

/// Bytes that take `ns` at `rate`; whole nanoseconds of a byte where `ns` is hours.
fn bytes_until(ns: u64, rate: u64) -> u64 {
    let (ns, rate) = match ns >> 44 {
        0 => (ns << RATE_SHIFT, rate),
        _ => (ns, rate >> RATE_SHIFT),
    };
    ns.checked_div(rate).unwrap_or(0)
}

fn stfq(function: Function, p: &Meta, s: State, r: &mut Call) -> u64 {
    let finish = &mut s.flow[0];
    let [now, largest, ..] = &mut s.class[PARAMS..] else {
        unreachable!()
    };
    let service = virtual_time(p.bytes, r.cost);
    if function == Function::RankDequeue {
        *now = r.rank.max(*now);
        if is_unique(r) {
            *finish = r.rank.saturating_add(service);
        }
        *largest = (*largest).max(*finish);
        return *finish;
    }
    if r.waiting == 0 {
        *now = (*now).max(*largest);
    }
    let start = (*now).max(*finish);
    if !is_unique(r) {
        *finish = start.saturating_add(service);
        *largest = (*largest).max(*finish);
    } else if r.backlogged == 1 {
        return KEEP;
    }
    start
}

fn hpfq(function: Function, p: &Meta, s: State, r: &mut Call) -> u64 {
    if function == Function::RankDequeue {
        s.class[PARAMS] = s.class[PARAMS].max(r.rank);
        return 0;
    }
    if r.waiting == 0 {
        s.class[PARAMS] = s.class[PARAMS].max(s.class[PARAMS + 1]);
    }
    let start = s.class[PARAMS].max(s.flow[0]);
    s.flow[0] = start.saturating_add(virtual_time(p.bytes, r.cost));
    s.class[PARAMS + 1] = s.class[PARAMS + 1].max(s.flow[0]);
    start
}

/// Parts of a byte that drr counts in.
const BYTE: u64 = 1 << 14;

fn quantum(s: &State, r: &Call) -> u64 {
    let cost = u64::from(r.cost);
    (s.class[0] << 28).checked_div(cost).unwrap_or(0).max(1)
}

fn drr_over_flows(function: Function, p: &Meta, s: State, r: &mut Call) -> u64 {
    let quantum = quantum(&s, r);
    let [deficit, turn, ..] = s.flow;
    let round = &mut s.class[PARAMS];
    match function {
        Function::RankEnqueue if r.backlogged == 1 => return KEEP,
        Function::RankEnqueue => return *round + 1,
        Function::OnDrop => {
            if r.packets <= 1 {
                (*deficit, *turn) = (0, 0);
            }
            return 0;
        }
        _ => *round = r.rank.max(*round),
    }
    if *turn == 0 {
        *deficit = deficit.saturating_add(quantum);
    }
    *turn = 0;
    let parts = |bytes: u32| u64::from(bytes) * BYTE;
    if parts(p.bytes) > *deficit {
        // Of more than 129 turns, those before the last 129 pass at once.
        let turns = (parts(p.bytes) - *deficit).div_ceil(quantum);
        let skipped = turns.saturating_sub(129);
        *deficit += skipped * quantum;
        r.verdict = LATER;
        return r.rank.saturating_add(skipped + 1);
    }
    *deficit -= parts(p.bytes);
    if r.packets <= 1 {
        *deficit = 0;
        return KEEP;
    }
    *turn = u64::from(parts(r.next_bytes) <= *deficit);
    if *turn == 1 { KEEP } else { r.rank + 1 }
}

fn drr_over_children(function: Function, p: &Meta, s: State, r: &mut Call) -> u64 {
    let (quantum, bytes) = (quantum(&s, r), u64::from(p.bytes) * BYTE);
    let [deficit, turn, ..] = s.flow;
    let [round, last, ..] = &mut s.class[PARAMS..] else {
        unreachable!()
    };
    match function {
        Function::OnDrop => return 0,
        Function::RankEnqueue if r.backlogged == 1 => return KEEP,
        Function::RankEnqueue => {
            if r.waiting == 0 {
                *round = (*round).max(*last);
            }
            if *turn <= *round {
                (*turn, *deficit) = (*round + 1, quantum);
            }
            return *turn;
        }
        _ => *round = r.rank.max(*round),
    }
    if bytes < *deficit {
        *deficit -= bytes;
        return KEEP;
    }
    let rounds = (bytes - *deficit) / quantum + 1;
    *deficit = *deficit + rounds * quantum - bytes;
    *turn = r.rank.saturating_add(rounds);
    *last = (*last).max(*turn);
    *turn
}

/// Fractions of virtual time are of a byte's 64th, as everywhere.
fn tins(function: Function, p: &Meta, s: State, r: &mut Call) -> u64 {
    let low = u128::from(s.class[0]);
    let [now, largest, ..] = &mut s.class[PARAMS..] else {
        unreachable!()
    };
    let at = &mut s.flow[0];
    if function == Function::RankEnqueue {
        if r.backlogged == 1 {
            return KEEP;
        }
        if r.waiting == 0 {
            *now = (*now).max(*largest);
        }
        *at = (*at).max(*now);
    } else {
        *now = now.saturating_add(64 * u64::from(p.bytes));
        let oldest = now.saturating_sub(64 * 65_536);
        *at = oldest
            .max(*at)
            .saturating_add(virtual_time(p.bytes, r.cost));
        *largest = (*largest).max(*at);
    }
    r.due = *at;
    let times_lighter = u128::from(r.cost);
    match times_lighter > 16_384 && times_lighter >= 16_384 * low {
        true => (1 << 26) - 1,
        false => (1u64 << 40) / u64::from(r.cost),
    }
}

fn srpt(p: &Meta, s: State, r: &Call) -> u64 {
    let patience = s.class[0];
    if patience == 0 {
        return p.hint;
    }
    let left = p.hint.min(1 << 30);
    r.now.saturating_add((left * patience.min(1 << 33)) >> 30)
}

fn priority(function: Function, p: &Meta, s: State, r: &mut Call) -> u64 {
    let [by, guard, ..] = *s.class;
    if function == Function::RankEnqueue && r.backlogged == 1 {
        return KEEP;
    }
    if r.over == Over::Children as u32 {
        if guard > 0 {
            r.due = r.now.saturating_add(guard);
        }
        return r.cost.into();
    }
    let band = match by {
        1 => u64::from(p.mark).min(63),
        2 => p.hint.min(63),
        _ => 7 - u64::from(p.dscp >> 3 & 7),
    };
    if guard > 0 {
        r.now.saturating_add(band.wrapping_mul(guard))
    } else {
        band
    }
}

fn token_bucket(function: Function, p: &Meta, s: State, r: &Call) -> u64 {
    if function == Function::RankEnqueue {
        return if r.backlogged == 1 { KEEP } else { 0 };
    }
    let [rate, burst, ..] = *s.class;
    let full = if r.over == Over::Flows as u32 {
        &mut s.flow[0]
    } else {
        &mut s.class[PARAMS]
    };
    *full = (*full)
        .max(r.now)
        .saturating_add(time_at(p.bytes.into(), rate));
    full.saturating_sub(time_at(burst, rate))
}

fn pacing(function: Function, p: &Meta, s: State, r: &Call) -> u64 {
    let [rate, by_hint, ..] = *s.class;
    let [next, at, ..] = s.flow;
    if function == Function::SendTime {
        return *at;
    }
    if by_hint > 0 {
        *at = r.now.max(p.hint);
    } else {
        *at = r.now.max(*next);
        let weighed = time_at(p.bytes.into(), rate).wrapping_mul(r.cost.into()) >> 14;
        *next = at.saturating_add(weighed);
    }
    *at
}

fn class_tree(function: Function, p: &Meta, s: State, r: &mut Call) -> u64 {
    let [owed, share, free, floor, ceil, ..] = s.flow;
    let [now, largest, ..] = &mut s.class[PARAMS..] else {
        unreachable!()
    };
    let credit = r.now.saturating_sub(r.burst);
    match function {
        Function::SendTime => return if r.ceil > 0 { *free } else { 0 },
        Function::RankEnqueue => {
            if r.waiting == 0 {
                *now = (*now).max(*largest);
            }
            for (at, was, rate) in [(&mut *owed, floor, r.floor), (&mut *free, ceil, r.ceil)] {
                if *was != rate && *at > r.now {
                    *at = r
                        .now
                        .saturating_add(time_at(bytes_until(*at - r.now, *was), rate));
                }
                *was = rate;
            }
            *owed = credit.max(*owed);
            *free = credit.max(*free);
            *share = (*share).max(*now);
        }
        _ => {
            let bytes = u64::from(p.bytes);
            *share = r
                .rank
                .max(*now)
                .saturating_add(virtual_time(p.bytes, r.cost));
            if r.by_floor == 1 {
                *share = now
                    .saturating_add(virtual_time(131_072, r.cost))
                    .min(*share);
            } else {
                *now = r.rank.max(*now);
            }
            let ahead = match r.ceil {
                0 => 0,
                ceil => r.burst.max(time_at(bytes, ceil)),
            };
            let behind = r.now.saturating_sub(ahead).max(*free);
            *free = behind.saturating_add(time_at(bytes, r.ceil));
            let debt = r.burst.saturating_add(1_000_000_000);
            *owed = r.now.saturating_sub(debt).max(*owed).min(r.now);
            *owed = match r.floor {
                0 => r.now,
                floor => owed.saturating_add(time_at(bytes, floor)),
            };
            *largest = (*largest).max(*share);
        }
    }
    r.due = if r.floor > 0 { *owed } else { NEVER };
    *share
}

/// RFC 8289's state, as the words of `struct codel`.
#[derive(Clone, Copy, Debug)]
struct Codel {
    first_above: u64,
    drop_next: u64,
    count: u32,
    last_count: u32,
    dropping: bool,
    /// 0: the packet before was not dropped; 1: to enter the dropping state; 2: in it.
    after: u32,
}

impl Codel {
    fn load(words: &[u64]) -> Codel {
        Codel {
            first_above: words[0],
            drop_next: words[1],
            count: words[2] as u32,
            last_count: (words[2] >> 32) as u32,
            dropping: words[3] as u32 != 0,
            after: (words[3] >> 32) as u32,
        }
    }

    fn store(self, words: &mut [u64]) {
        words[0] = self.first_above;
        words[1] = self.drop_next;
        words[2] = u64::from(self.count) | u64::from(self.last_count) << 32;
        words[3] = u64::from(self.dropping) | u64::from(self.after) << 32;
    }

    fn emptied(&mut self) {
        (self.first_above, self.dropping, self.after) = (0, false, 0);
    }

    fn law(self, interval: u64, since: u64) -> u64 {
        let square = interval.wrapping_mul(interval);
        let each = square.checked_div(self.count.into()).unwrap_or(0);
        since.saturating_add(each.isqrt())
    }

    /// Section 5.5, `dodequeue()`.
    fn is_enabled(&mut self, param: &[u64], r: &Call, behind: u64) -> bool {
        if r.sojourn < param[0] || behind <= param[4] {
            self.first_above = 0;
        } else if self.first_above == 0 {
            self.first_above = r.now.saturating_add(param[1]);
        } else {
            return r.now >= self.first_above;
        }
        false
    }

    fn enter(&mut self, interval: u64, now: u64) {
        let delta = self.count.wrapping_sub(self.last_count);
        let recently = now.saturating_sub(self.drop_next) < interval.wrapping_mul(16);
        self.count = if delta > 1 && recently { delta } else { 1 };
        self.last_count = self.count;
        self.drop_next = self.law(interval, now);
        self.dropping = true;
    }

    /// Section 5.5, `dequeue()`, a packet a call.
    fn decide(&mut self, param: &[u64], p: &Meta, r: &Call, behind: u64) -> u32 {
        let marks = p.ecn > 0 && param[2] > 0;
        let early = p.ecn > 0 && param[3] > 0 && r.sojourn > param[3];
        let send = if early { MARK } else { 0 };
        let is_enabled = self.is_enabled(param, r, behind);
        let after = std::mem::take(&mut self.after);
        if after == 1 || !is_enabled {
            self.dropping &= after == 1 || is_enabled;
            return send;
        }
        if !self.dropping {
            self.enter(param[1], r.now);
            self.after = u32::from(!marks);
            return if marks { MARK } else { DROP };
        }
        if after == 2 {
            self.drop_next = self.law(param[1], self.drop_next);
        }
        if r.now < self.drop_next {
            return send;
        }
        self.count = self.count.wrapping_add(1);
        if marks {
            self.drop_next = self.law(param[1], self.drop_next);
            return MARK;
        }
        self.after = 2;
        DROP
    }
}

fn codel(function: Function, p: &Meta, s: State, r: &mut Call) -> u64 {
    let (param, words) = s.class.split_at_mut(PARAMS);
    let mut codel = Codel::load(words);
    if function == Function::RankDequeue {
        let behind = u64::from(r.queue_bytes.saturating_sub(p.bytes));
        r.verdict = codel.decide(param, p, r, behind);
    } else if r.queue_packets == 0 {
        codel.emptied();
    }
    codel.store(words);
    0
}

fn fq_codel(function: Function, p: &Meta, s: State, r: &mut Call) -> u64 {
    let mut codel = Codel::load(s.flow);
    let mut credit = s.flow[4] as i64;
    let whole = s.class[5] as i64 * 256;
    let grant = match s.class[6] {
        0 => whole,
        _ => (whole / i64::from(r.hosts)).max(256),
    };
    if function == Function::RankEnqueue {
        if r.backlogged == 1 {
            return KEEP;
        }
        s.flow[4] = grant as u64;
        return 2 * s.class[PARAMS];
    }
    let round = s.class[PARAMS].max(r.rank / 2);
    s.class[PARAMS] = round;
    let after = |credit: &mut i64| {
        let mut rounds = 0;
        while *credit <= 0 && rounds < 31 {
            *credit += grant;
            rounds += 1;
        }
        2 * (round + rounds) + 1
    };
    let rank = if credit <= 0 {
        r.verdict = if r.packets > 0 { LATER } else { LINGER };
        after(&mut credit)
    } else if r.packets == 0 {
        codel.emptied();
        r.verdict = if r.rank.is_multiple_of(2) { LINGER } else { 0 };
        2 * (round + 1) + 1
    } else {
        let behind = u64::from(r.bytes.saturating_sub(p.bytes));
        r.verdict = codel.decide(&*s.class, p, r, behind);
        if r.verdict & DROP == 0 {
            credit -= i64::from(p.bytes) * 256;
        }
        if r.verdict & DROP > 0 || credit > 0 {
            KEEP
        } else {
            r.verdict |= LINGER;
            after(&mut credit)
        }
    };
    codel.store(s.flow);
    s.flow[4] = credit as u64;
    rank
}
