//! Limits as their description says, slowly: exact times as fractions, and one request after the other.

#![allow(dead_code)] // every test binary uses another part of it

use std::collections::HashMap;

use fairpath_core::limit::{LEVELS, LONGEST_NS, LimitConfig, LimitRate, LimitRequest, PACED};
use fairpath_statistics::Random;

/// Units of time in a nanosecond.
const UNITS: u128 = 16;
/// The core multiplies with a factor below this, rounded up.
const FACTOR: u128 = 1 << 38;

/// A rate as the core has it.
#[derive(Clone, Copy, Debug)]
struct Rate {
    numerator: u128,
    denominator: u128,
    depth: u128,
    horizon: u128,
    life: u64,
    wait: u128,
    pool: u64,
    /// Bytes that others may have of what CPUs were granted and did not use.
    spare: i128,
}

impl Rate {
    /// `share`: bytes that a pool may have.
    fn of(rate: LimitRate, cpus: u32, share: u128) -> Rate {
        let bits = u128::from(rate.bits);
        let (mut numerator, mut denominator) = (8_000_000_000 * UNITS, 1);
        while (2 * numerator).div_ceil(bits) < FACTOR {
            numerator *= 2;
            denominator *= 2;
        }
        let numerator = numerator.div_ceil(bits);
        let time = |bytes: u128| (bytes * numerator).div_ceil(denominator);
        let packet = u64::from(rate.packet);
        let pool = match share.min(1 << 24) as u64 {
            small if small < 2 * packet => 0,
            pool => pool - packet,
        };
        let depth = time(rate.packet.into()).max(u128::from(rate.burst) * UNITS);
        let longest = u128::from(pool).max(1 << 20);
        let wait = u128::from(rate.wait) * UNITS;
        Rate {
            numerator,
            denominator,
            depth,
            horizon: depth + wait + u128::from(cpus + 1) * time(longest),
            life: rate.life,
            wait,
            pool,
            spare: if pool == 0 {
                16 * i128::from(packet)
            } else {
                0
            },
        }
    }

    fn time(&self, bytes: u64) -> u128 {
        (u128::from(bytes) * self.numerator).div_ceil(self.denominator)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Pool {
    tokens: i128,
    waiting: i128,
    ready: u64,
    ends: u64,
    change: u32,
    last: u32,
    grant: u32,
    /// Before this time, a refusal is repeated.
    closed: u64,
}

impl Pool {
    /// Bytes that it gets at once.
    fn most(&self, rate: &Rate) -> i128 {
        match self.grant {
            0 => rate.pool.into(),
            grant => grant.into(),
        }
    }

    /// Ends what another rate ends.
    fn follow(&mut self, rate: &Rate, change: u32) {
        if self.change != change {
            self.change = change;
            self.tokens = self.tokens.min(self.most(rate).max(0));
            (self.waiting, self.ready) = (0, 0);
        }
    }

    /// Tokens above the `used` ones end with time. Returns them.
    fn expire(&mut self, used: i128, now: u64) -> i128 {
        let old = match now >= self.ends {
            true => self.tokens - self.tokens.min(used),
            false => 0,
        };
        self.tokens -= old;
        old
    }

    /// A grant that was not used for too long. Returns it.
    fn forget(&mut self, rate: &Rate, now: u64) -> i128 {
        match now.saturating_sub(self.ready) > rate.life {
            true => std::mem::take(&mut self.waiting),
            false => 0,
        }
    }

    /// A grant that may be used until `ends`.
    fn fill(&mut self, ends: u64) {
        self.tokens += std::mem::take(&mut self.waiting);
        self.ends = ends;
    }
}

/// Bytes that a pool may have: no more than its part of that of its parent.
fn share(limits: &[LimitConfig], number: u32, cpus: u32) -> u128 {
    let limit = limits[number as usize];
    let bits = u128::from(limit.rate.bits);
    let own = bits * u128::from(limit.rate.pools) / 8_000_000_000 / u128::from(cpus);
    let Some(parent) = limit.parent else {
        return own;
    };
    let siblings = limits.iter().filter(|other| other.parent == limit.parent);
    let all: u128 = siblings.map(|other| u128::from(other.rate.bits)).sum();
    own.min(share(limits, parent, cpus) * bits / all)
}

/// Limits and the pools of CPUs.
#[derive(Clone, Debug)]
pub struct Oracle {
    cpus: u32,
    limits: Vec<LimitConfig>,
    /// Those of the last change: the rate, and its number.
    rates: Vec<(Rate, u32)>,
    /// Shared words.
    granted: Vec<u128>,
    /// Bytes that were granted, not used, and given back.
    spare: Vec<i128>,
    pools: HashMap<(u32, u32), Pool>,
}

impl Oracle {
    pub fn new(cpus: u32, limits: &[LimitConfig]) -> Oracle {
        let rates = (0..limits.len() as u32)
            .map(|number| {
                let share = share(limits, number, cpus);
                (Rate::of(limits[number as usize].rate, cpus, share), 0)
            })
            .collect();
        Oracle {
            cpus,
            limits: limits.to_vec(),
            rates,
            granted: vec![0; limits.len()],
            spare: vec![0; limits.len()],
            pools: HashMap::new(),
        }
    }

    pub fn set_rate(&mut self, limit: u32, rate: LimitRate, now: u64) {
        let before = self.limits.clone();
        self.limits[limit as usize].rate = rate;
        for number in 0..self.limits.len() as u32 {
            let [old, new] = [&before, &self.limits].map(|limits| {
                (
                    limits[number as usize].rate,
                    share(limits, number, self.cpus),
                )
            });
            if old != new {
                let (_, change) = self.rates[number as usize];
                self.rates[number as usize] = (Rate::of(new.0, self.cpus, new.1), change + 1);
                let (granted, clock) =
                    (&mut self.granted[number as usize], u128::from(now) * UNITS);
                if let Some(ahead) = granted.checked_sub(clock) {
                    let ahead = ahead * u128::from(old.0.bits) / u128::from(new.0.bits);
                    // The word of the core has 64 bits.
                    if u64::try_from(clock + ahead).is_ok() {
                        *granted = clock + ahead;
                    }
                }
            }
        }
    }

    pub fn set_grant(&mut self, limit: u32, cpu: u32, bytes: u32) {
        self.pools.entry((limit, cpu)).or_default().grant = bytes;
    }

    pub fn take(&mut self, limit: u32, cpu: u32, bytes: u32, now: u64) -> Result<(), u64> {
        self.climb(limit, cpu, bytes.into(), now, LEVELS)
            .inspect_err(|later| {
                let pool = self.pools.entry((limit, cpu)).or_default();
                pool.ready = pool.ready.max(*later);
            })
    }

    /// A pool pays from its tokens, or from a grant that its parent has paid.
    fn climb(
        &mut self,
        number: u32,
        cpu: u32,
        need: i128,
        now: u64,
        levels: usize,
    ) -> Result<(), u64> {
        let (rate, change) = self.rates[number as usize];
        let pool = self.pools.entry((number, cpu)).or_default();
        pool.follow(&rate, change);
        let old = pool.expire(0, now);
        self.give_back(number, old);
        let pool = self.pools.entry((number, cpu)).or_default();
        if pool.tokens >= need {
            pool.tokens -= need;
            return Ok(());
        }
        let old = pool.forget(&rate, now);
        self.give_back(number, old);
        let pool = *self.pools.entry((number, cpu)).or_default();
        if pool.tokens + pool.waiting < need {
            if pool.waiting == 0 && self.take_spare(number, need - pool.tokens) {
                let pool = self.pools.entry((number, cpu)).or_default();
                (pool.waiting, pool.ready) = (need - pool.tokens, now);
            } else {
                let more = need.max(pool.most(&rate)) - pool.tokens - pool.waiting;
                self.grant(number, cpu, more, now);
            }
        }
        let pool = self.pools.entry((number, cpu)).or_default();
        if now < pool.ready {
            return Err(pool.ready);
        }
        let (granted, parent) = (pool.waiting, self.limits[number as usize].parent);
        if let Some(parent) = parent.filter(|_| levels > 1) {
            self.climb(parent, cpu, granted, now, levels - 1)?;
        }
        let pool = self.pools.entry((number, cpu)).or_default();
        pool.fill(now + rate.life);
        pool.tokens -= need;
        Ok(())
    }

    /// Bytes without packets are those of the next request, at a low rate.
    fn give_back(&mut self, number: u32, bytes: i128) {
        let (rate, spare) = (
            self.rates[number as usize].0,
            &mut self.spare[number as usize],
        );
        if bytes > 0 && rate.spare > 0 {
            *spare = (*spare + bytes).min(rate.spare);
        }
    }

    /// False: there are less.
    fn take_spare(&mut self, number: u32, bytes: i128) -> bool {
        let (rate, spare) = (
            self.rates[number as usize].0,
            &mut self.spare[number as usize],
        );
        let has = (*spare).min(rate.spare);
        if rate.spare == 0 || has < bytes {
            return false;
        }
        *spare = has - bytes;
        true
    }

    /// When bytes leave that wait elsewhere. None: they are dropped.
    pub fn pace(&mut self, limit: u32, cpu: u32, bytes: u32, now: u64) -> Option<u64> {
        let (_, change) = self.rates[limit as usize];
        let pool = self.pools.entry((limit, cpu)).or_default();
        let is_enough = now < pool.ends && pool.tokens >= bytes.into();
        if pool.change != change {
            pool.closed = 0;
        } else if !is_enough && now < pool.closed {
            return None;
        }
        match self.reserve(limit, cpu, bytes.into(), now, LEVELS) {
            Ok(leaves) => Some(leaves.max(now)),
            Err((opens, _)) => {
                self.pools.entry((limit, cpu)).or_default().closed = opens;
                None
            }
        }
    }

    /// As `climb`, but what a pool gets may leave later. Returns the time of the pool; or when to request again, and
    /// the time of the limits that granted.
    fn reserve(
        &mut self,
        number: u32,
        cpu: u32,
        need: i128,
        now: u64,
        levels: usize,
    ) -> Result<u64, (u64, u64)> {
        let (rate, change) = self.rates[number as usize];
        let clock = u128::from(now) * UNITS;
        let pool = self.pools.entry((number, cpu)).or_default();
        pool.follow(&rate, change);
        let old = pool.expire(0, now);
        self.give_back(number, old);
        let pool = self.pools.entry((number, cpu)).or_default();
        if pool.tokens >= need {
            pool.tokens -= need;
            return Ok(pool.ready);
        }
        let old = pool.forget(&rate, now);
        self.give_back(number, old);
        let pool = self.pools.entry((number, cpu)).or_default();
        let before = pool.ready;
        if pool.tokens + pool.waiting < need {
            let more = need.max(pool.most(&rate)) - pool.tokens - pool.waiting;
            // Packets that have their grants, but wait.
            let granted = self.granted[number as usize];
            let ahead = match granted.checked_sub(clock) {
                Some(ahead) if ahead <= rate.horizon => ahead,
                _ => 0,
            };
            if ahead > rate.depth + rate.wait {
                let opens = (granted - rate.depth - rate.wait).div_ceil(UNITS);
                return Err((u64::try_from(opens).unwrap(), 0));
            }
            let longest = rate.depth + u128::from(LONGEST_NS) * UNITS;
            if ahead + rate.time(u64::try_from(more).unwrap()) > longest {
                return Err((now + 1, 0));
            }
            self.grant(number, cpu, more, now);
        }
        let pool = self.pools.entry((number, cpu)).or_default();
        pool.ready = pool.ready.max(before);
        let (granted, parent) = (pool.waiting, self.limits[number as usize].parent);
        if let Some(parent) = parent.filter(|_| levels > 1) {
            let above = self.reserve(parent, cpu, granted, now, levels - 1);
            let pool = self.pools.entry((number, cpu)).or_default();
            let (Ok(ready) | Err((_, ready))) = above;
            pool.ready = pool.ready.max(ready);
            above.map_err(|(opens, _)| (opens, pool.ready))?;
        }
        let pool = self.pools.entry((number, cpu)).or_default();
        pool.tokens += std::mem::take(&mut pool.waiting) - need;
        pool.ends = pool.ready.max(now) + rate.life;
        Ok(pool.ready)
    }

    /// A pool gets `more` bytes, from a time that moves the shared word.
    fn grant(&mut self, number: u32, cpu: u32, more: i128, now: u64) {
        let (rate, _) = self.rates[number as usize];
        let clock = u128::from(now) * UNITS;
        let granted = &mut self.granted[number as usize];
        let is_valid = *granted >= clock && *granted <= clock + rate.horizon;
        let from = if is_valid { *granted } else { clock };
        *granted = from + rate.time(u64::try_from(more).unwrap());
        let ready = granted.saturating_sub(rate.depth).div_ceil(UNITS);
        let pool = self.pools.entry((number, cpu)).or_default();
        pool.waiting += more;
        pool.ready = u64::try_from(ready).unwrap().max(1);
    }

    /// Bytes that a pool has.
    pub fn tokens(&self, number: u32, cpu: u32) -> i128 {
        self.pools.get(&(number, cpu)).map_or(0, |pool| pool.tokens)
    }

    /// `bytes` left, and `next` wait: 1 is as many as the last.
    pub fn pay(
        &mut self,
        number: u32,
        cpu: u32,
        bytes: u32,
        next: u32,
        now: u64,
    ) -> Result<(), u64> {
        let (rate, change) = self.rates[number as usize];
        let pool = self.pools.entry((number, cpu)).or_default();
        pool.follow(&rate, change);
        if pool.waiting > 0 && now >= pool.ready {
            pool.fill(pool.ready + rate.life);
        }
        let old = pool.expire(bytes.into(), now);
        pool.tokens -= i128::from(bytes);
        if bytes > 0 {
            pool.last = bytes;
        }
        let next = if next == 1 { pool.last.max(1) } else { next };
        let next = i128::from(next.min(1 << 20));
        self.give_back(number, old);
        let pool = self.pools.entry((number, cpu)).or_default();
        if pool.tokens > 0 {
            // Others may need what this CPU does not.
            if next == 0 && rate.spare > 0 {
                let left = std::mem::take(&mut pool.tokens);
                self.give_back(number, left);
            }
            return Ok(());
        }
        pool.tokens = pool.tokens.max(-(1 << 24));
        let pool = *pool;
        let has = pool.tokens + pool.waiting;
        if has < 0 || next > 0 && has == 0 {
            if pool.waiting == 0 && self.take_spare(number, next - has) {
                let pool = self.pools.entry((number, cpu)).or_default();
                (pool.tokens, pool.ends) = (next, now + rate.life);
                return Ok(());
            }
            let wanted = match next {
                0 => 0,
                next => next.max(pool.most(&rate)),
            };
            self.grant(number, cpu, wanted - has, now);
        }
        let pool = self.pools.entry((number, cpu)).or_default();
        if now < pool.ready {
            return Err(pool.ready);
        }
        pool.fill(now + rate.life);
        Ok(())
    }
}

const SECOND: u64 = 1_000_000_000;
/// Bytes of packets: small, usual, and GSO packets.
const SIZES: [u32; 6] = [64, 577, 1514, 9014, 65_549, 524_294];
/// Requests of a part.
const PART: usize = 100;
const PARTS: usize = 8;

/// Requests, and the changes before them.
#[derive(Debug)]
pub struct LogPart {
    /// Of a limit.
    pub rate: (u32, LimitRate),
    /// Limit, CPU, bytes.
    pub grant: (u32, u32, u32),
    pub now: u64,
    pub requests: Vec<LimitRequest>,
}

/// Requests of CPUs with the oracle's answers.
#[derive(Debug)]
pub struct Log {
    pub cpus: u32,
    pub limits: Vec<LimitConfig>,
    /// Each begins with another rate of a limit, and other grants of a CPU.
    pub parts: Vec<LogPart>,
}

fn rate(random: &mut Random) -> LimitRate {
    LimitRate {
        wait: random.pick(&[0, 100_000, 50_000_000]),
        burst: random.pick(&[20_000, 100_000, 1_000_000]),
        pools: random.pick(&[20_000, 100_000, 1_000_000]),
        life: random.pick(&[100_000, 10_000_000, 100_000_000]),
        ..LimitRate::new(
            10u64.pow(5 + random.below(7) as u32) * (1 + random.below(9)) + random.below(1000),
        )
    }
}

/// Random requests of CPUs whose clocks continue by steps, also by long ones and back.
pub fn log(seed: u64) -> Log {
    let mut random = Random::new(seed);
    let cpus = random.pick(&[1, 2, 8, 64, 512]);
    let count = 1 + random.below(6) as u32;
    let config = |number: u32, random: &mut Random| LimitConfig {
        rate: rate(random),
        // Each parent has at most two above it.
        parent: (number > 0 && number.is_multiple_of(2) && random.below(4) > 0)
            .then(|| 2 * random.below(u64::from(number.min(4) / 2)) as u32),
    };
    let limits: Vec<LimitConfig> = (0..count)
        .map(|number| config(number, &mut random))
        .collect();
    let mut oracle = Oracle::new(cpus, &limits);
    let active = 1 + random.below(u64::from(cpus).min(4));
    let mut now = SECOND + random.below(SECOND);
    let mut parts = Vec::new();
    let mut paces = random.one_in(2);
    for _ in 0..PARTS {
        let change = (random.below(count.into()) as u32, rate(&mut random));
        oracle.set_rate(change.0, change.1, now);
        let grant = (
            random.below(count.into()) as u32,
            random.below(active) as u32,
            random.pick(&[0, 0, 1514, 3028, 20_000, 1 << 20]),
        );
        oracle.set_grant(grant.0, grant.1, grant.2);
        let begin = now;
        let mut requests = Vec::new();
        for _ in 0..PART {
            let sizes = if random.one_in(8) { SIZES.len() } else { 3 };
            let mut request = LimitRequest {
                limit: random.below(count.into()) as u32,
                cpu: random.below(active) as u32,
                bytes: SIZES[random.index(sizes)],
                now,
                ..LimitRequest::default()
            };
            // A CPU uses a limit in one way at a time.
            let answer = if request.limit.is_multiple_of(2) {
                if random.one_in(10) {
                    paces = !paces;
                }
                if paces {
                    request.paid = PACED;
                    let leaves = oracle.pace(request.limit, request.cpu, request.bytes, now);
                    Err(leaves.unwrap_or(0))
                } else {
                    oracle.take(request.limit, request.cpu, request.bytes, now)
                }
            } else {
                let next = random.pick(&[0, 1, 64, 1514]);
                request.paid = next + 1;
                request.bytes *= u32::from(!random.one_in(5));
                oracle.pay(request.limit, request.cpu, request.bytes, next, now)
            };
            request.answer = answer.err().unwrap_or(0);
            match random.below(40) {
                0 => now += random.below(SECOND),
                1 => now -= random.below(now.min(1000)),
                2 => now = (now / 2).max(1),
                3..10 => now = now.max(request.answer),
                _ => now += random.below(20_000),
            }
            requests.push(request);
        }
        parts.push(LogPart {
            rate: change,
            grant,
            now: begin,
            requests,
        });
    }
    Log {
        cpus,
        limits,
        parts,
    }
}
