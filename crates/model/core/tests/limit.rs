//! Limits of many CPUs, natively: every answer is the oracle's, and the bounds of docs/design/0021 hold.

mod limit_oracle;

use fairpath_core::limit::{LimitConfig, LimitRate, Limits, PACED};
use fairpath_statistics::Random;
use fairpath_units::test_seeds;
use limit_oracle::log;

const SECOND: u64 = 1_000_000_000;
/// Random requests, with changes of rates and clocks that step.
#[test]
fn every_answer_is_that_of_the_oracle() {
    let mut answers = [0u64; 5];
    for seed in test_seeds(4000) {
        let log = log(seed);
        let mut limits = Limits::new(log.cpus, &log.limits).unwrap();
        let mut cpus: Vec<_> = (0..log.cpus).map(|cpu| limits.cpu(cpu).unwrap()).collect();
        for part in &log.parts {
            limits.set_rates(&[part.rate], part.now).unwrap();
            let (limit, cpu, bytes) = part.grant;
            limits.set_grant(limit, cpu, bytes);
            for request in &part.requests {
                let (cpu, now) = (&mut cpus[request.cpu as usize], request.now);
                let answer = match request.paid {
                    0 => cpu.take(request.limit, request.bytes, now),
                    PACED => Err(cpu.pace(request.limit, request.bytes, now).unwrap_or(0)),
                    paid => cpu.pay(request.limit, request.bytes, paid - 1, now),
                };
                assert_eq!(
                    answer.err().unwrap_or(0),
                    request.answer,
                    "seed {seed}: {request:?}"
                );
                let kind = match (request.paid, request.answer) {
                    (PACED, 0) => 2,
                    (PACED, leaves) => 3 + usize::from(leaves > now),
                    (_, answer) => usize::from(answer == 0),
                };
                answers[kind] += 1;
            }
        }
    }
    println!("{answers:?} refused and accepted; paced: dropped, at once, later");
    assert!(answers.iter().all(|count| *count > 1000));
}

/// A run: times and bytes of packets, in order.
struct Run {
    sent: Vec<(u64, u64)>,
    grants: u64,
    by_cpu: Vec<u64>,
    end: u64,
}

/// The use of a limit by CPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
enum LimitUse {
    /// They request bytes before these leave.
    Take,
    /// As schedulers: bytes leave, and the next packet waits for its time.
    Pay,
    /// Packets get their time, and wait elsewhere until then. Those that would wait too long are dropped.
    Pace,
}

const USES: [LimitUse; 3] = [LimitUse::Take, LimitUse::Pay, LimitUse::Pace];

/// CPUs with packets at their times; each tries again when it may.
///
/// `offered` is the share of the rate that each CPU wants to send.
fn run(
    (limits, by): (&Limits, LimitUse),
    rate: LimitRate,
    offered: &[f64],
    bytes: u32,
    length: u64,
    late: u64,
) -> Run {
    let start = SECOND;
    let mut random = Random::new(u64::from(bytes) + offered.len() as u64);
    // Time between two packets of a CPU, and the time of its next attempt.
    let packet_time = f64::from(bytes) * 8e9 / rate.bits as f64;
    let mut arrivals: Vec<f64> = offered
        .iter()
        .map(|share| start as f64 + packet_time / share * random.unit())
        .collect();
    let mut turns: std::collections::BinaryHeap<_> = arrivals
        .iter()
        .enumerate()
        .map(|(cpu, at)| std::cmp::Reverse((*at as u64, cpu)))
        .collect();
    let mut cpus: Vec<_> = (0..offered.len())
        .map(|cpu| limits.cpu(cpu as u32).unwrap())
        .collect();
    let mut out = Run {
        sent: Vec::new(),
        grants: 0,
        by_cpu: vec![0; offered.len()],
        end: start + length,
    };
    // Whether the packet of a CPU has waited for its time.
    let mut waited = vec![false; offered.len()];
    while let Some(std::cmp::Reverse((now, cpu))) = turns.pop() {
        if now >= out.end {
            continue;
        }
        let answer = match by {
            LimitUse::Take => cpus[cpu].take(0, bytes, now),
            LimitUse::Pay if waited[cpu] => Ok(()),
            LimitUse::Pay => cpus[cpu].pay(0, 0, bytes, now),
            LimitUse::Pace => {
                let leaves = cpus[cpu].pace(0, bytes, now);
                if let Some(leaves) = leaves.filter(|leaves| *leaves < out.end) {
                    out.sent.push((leaves, bytes.into()));
                    out.by_cpu[cpu] += u64::from(bytes);
                }
                arrivals[cpu] += packet_time / offered[cpu];
                turns.push(std::cmp::Reverse((arrivals[cpu] as u64, cpu)));
                continue;
            }
        };
        if let Err(later) = answer {
            waited[cpu] = true;
            turns.push(std::cmp::Reverse((later + random.below(late + 1), cpu)));
            continue;
        }
        out.sent.push((now, bytes.into()));
        out.by_cpu[cpu] += u64::from(bytes);
        arrivals[cpu] += packet_time / offered[cpu];
        // A queue holds no more than 10 ms.
        arrivals[cpu] = arrivals[cpu].max(now as f64 - 1e7);
        let mut next = now.max(arrivals[cpu] as u64);
        if by == LimitUse::Pay {
            waited[cpu] = next == now;
            let paid = cpus[cpu].pay(0, bytes, waited[cpu].into(), now);
            if let Some(later) = paid.err().filter(|_| waited[cpu]) {
                next = later + random.below(late + 1);
            }
        }
        turns.push(std::cmp::Reverse((next, cpu)));
    }
    out.sent.sort_by_key(|(at, _)| *at);
    out.grants = (0..offered.len() as u32)
        .map(|cpu| u64::from(limits.pool(0, cpu).grants))
        .sum();
    out
}

/// The most bytes above the rate in any interval of the run.
fn excess(run: &Run, rate: LimitRate) -> f64 {
    let (mut most, mut least, mut sum) = (0.0f64, f64::MAX, 0.0);
    for (at, bytes) in &run.sent {
        let line = *at as f64 * rate.bits as f64 / 8e9;
        least = least.min(sum - line);
        sum += *bytes as f64;
        most = most.max(sum - line - least);
    }
    most
}

fn one(cpus: u32, rate: LimitRate) -> Limits {
    Limits::new(cpus, &[LimitConfig { rate, parent: None }]).unwrap()
}

/// The demand of CPUs, as shares of the limit: all, one with mice on the others, a quarter, by a power law.
fn demands(cpus: usize) -> Vec<(&'static str, Vec<f64>)> {
    let zipf: f64 = (1..=cpus).map(|n| 1.0 / n as f64).sum();
    let some = |count: usize, much: f64, little: f64| -> Vec<f64> {
        (0..cpus)
            .map(|cpu| if cpu < count { much } else { little })
            .collect()
    };
    vec![
        ("all", some(cpus, 2.0, 0.0)),
        ("one", some(1, 2.0, 0.001)),
        ("a quarter", some(cpus.div_ceil(4), 2.0, 0.002)),
        (
            "power law",
            (1..=cpus).map(|n| 1.3 / zipf / n as f64).collect(),
        ),
    ]
}

/// Each demand with each use.
fn by_use(
    demands: Vec<(&'static str, Vec<f64>)>,
) -> impl Iterator<Item = (LimitUse, (&'static str, Vec<f64>))> {
    let uses = demands
        .into_iter()
        .map(|demand| USES.map(|by| (by, demand.clone())));
    uses.flatten()
}

/// The most bytes above the rate: a scheduler may send a packet more than a pool has, and one grant to paced packets may
/// have begun before.
fn most(limits: &Limits, limit: u32, by: LimitUse, largest: u32) -> f64 {
    let beyond = match by {
        LimitUse::Take => 0,
        LimitUse::Pay => u64::from(limits.cpus()) * u64::from(largest),
        LimitUse::Pace => limits.usual_grant(limit).max(largest).into(),
    };
    (limits.burst(limit, largest) + beyond) as f64
}

/// All demand vectors of the field: the limit is used, never exceeded, and words are rarely shared.
#[test]
fn limits_of_many_cpus_are_used_whole() {
    for (cpus, bits) in [(2, 10), (8, 25), (64, 100), (128, 400)] {
        let rate = LimitRate {
            wait: 500_000,
            ..LimitRate::new(bits * 1_000_000_000)
        };
        for (by, (name, offered)) in by_use(demands(cpus)) {
            let limits = one(cpus as u32, rate);
            let run = run((&limits, by), rate, &offered, 1514, 4_000_000, 0);
            let sent: u64 = run.by_cpu.iter().sum();
            let wanted: f64 = offered.iter().sum::<f64>().min(1.0);
            let used = sent as f64 * 8e9 / (run.end - SECOND) as f64 / rate.bits as f64 / wanted;
            let shared = run.grants as f64 / run.sent.len() as f64;
            let above = excess(&run, rate);
            let most = most(&limits, 0, by, 1514);
            println!(
                "{cpus} CPUs, {bits} Gbit/s, {by:?}, {name}: {:.2} % used, {shared:.3} shared operations a packet, {above:.0} of {most:.0} bytes above",
                used * 100.0
            );
            assert!(used >= 0.995, "{cpus} CPUs, {name}: {used}");
            assert!(
                above <= most,
                "{cpus} CPUs, {name}: {above} bytes above, {most} allowed"
            );
            assert!(shared <= 0.15 || cpus > 64, "{cpus} CPUs, {name}: {shared}");
        }
    }
}

/// CPUs that always have packets get equal shares, whatever their clocks and sizes of packets.
#[test]
fn starved_cpus_take_turns() {
    let cases = [
        (2, 10_000_000_000),
        (64, 100_000_000_000),
        (512, 10_000_000_000),
        (64, 5_000_000),
    ];
    // Paced packets do not take turns: the first get the rate, and others are dropped.
    let uses = [LimitUse::Take, LimitUse::Pay];
    for ((cpus, bits), by) in cases.into_iter().flat_map(|case| uses.map(|by| (case, by))) {
        let rate = LimitRate::new(bits);
        let limits = one(cpus, rate);
        let pool = (bits / 80_000 / u64::from(cpus)).max(1514);
        let length = 100 * pool * u64::from(cpus) * 8_000_000_000 / bits;
        let run = run(
            (&limits, by),
            rate,
            &vec![1.0; cpus as usize],
            1514,
            length,
            0,
        );
        let (least, most) = (
            run.by_cpu.iter().min().unwrap(),
            run.by_cpu.iter().max().unwrap(),
        );
        println!("{cpus} CPUs, {bits} bit/s, {by:?}: {least} to {most} bytes, pools of {pool}");
        assert!(
            most - least <= 2 * pool + 1514,
            "{cpus} CPUs: {least} to {most}"
        );
    }
}

/// A class of few Mbit/s on many CPUs: every packet goes to the shared word.
#[test]
fn low_rates_are_used_whole() {
    for bits in [100_000, 2_000_000, 50_000_000, 1_000_000_000] {
        let rate = LimitRate::new(bits);
        for (by, (name, offered)) in by_use(demands(64)) {
            let limits = one(64, rate);
            let length = 2000 * 1514 * 8 * 1_000_000_000 / bits;
            let run = run((&limits, by), rate, &offered, 1514, length, 0);
            let sent: u64 = run.by_cpu.iter().sum();
            let wanted = offered.iter().sum::<f64>().min(1.0);
            let used = sent as f64 * 8e9 / (run.end - SECOND) as f64 / bits as f64 / wanted;
            let above = excess(&run, rate);
            println!(
                "{bits} bit/s, {by:?}, {name}: {:.2} % used, {above:.0} bytes above",
                used * 100.0
            );
            assert!(used >= 0.99, "{bits} bit/s, {by:?}, {name}: {used}");
            // Each CPU sends at its time, so no packet is above but the first.
            assert!(
                above <= 2.0 * 1514.0 + bits as f64 / 80_000.0,
                "{bits} bit/s, {name}: {above}"
            );
        }
    }
}

/// CPUs with bursts, pauses and separate clocks, that come late, and stop: no interval has more of a class, of
/// its site or of the port than the bound.
#[test]
fn no_interval_has_more_than_the_bound() {
    let mut nearest = 0.0f64;
    for seed in test_seeds(400) {
        let mut random = Random::new(seed);
        let cpus = random.pick(&[1, 2, 8, 64]);
        let bits = 10u64.pow(5 + random.below(7) as u32) * (1 + random.below(4));
        let rates = [bits, bits / 2, bits / 3, bits / 3, bits / 2].map(LimitRate::new);
        let parents = [None, Some(0), Some(1), Some(1), Some(0)];
        let configs = rates.iter().zip(parents);
        let configs: Vec<_> = configs
            .map(|(rate, parent)| LimitConfig {
                rate: *rate,
                parent,
            })
            .collect();
        let limits = Limits::new(cpus, &configs).unwrap();
        let mut handles: Vec<_> = (0..cpus).map(|cpu| limits.cpu(cpu).unwrap()).collect();
        let sizes: &[u32] = random.pick(&[&[64, 1514][..], &[1514], &[1514, 65_549], &[524_294]]);
        let largest = *sizes.iter().max().unwrap();
        // The time of a packet at the whole rate.
        let packet = (u64::from(largest) * 8_000_000_000 / bits).max(1);
        let mut turns: std::collections::BinaryHeap<_> = (0..cpus)
            .map(|cpu| std::cmp::Reverse((SECOND, cpu)))
            .collect();
        let mut sent = vec![Vec::new(); configs.len()];
        for _ in 0..4000 {
            let Some(std::cmp::Reverse((now, cpu))) = turns.pop() else {
                break;
            };
            let class = 2 + random.index(3);
            let bytes = random.pick(sizes);
            let mut next = match handles[cpu as usize].take(class as u32, bytes, now) {
                Ok(()) => {
                    let mut at = Some(class as u32);
                    while let Some(number) = at {
                        sent[number as usize].push((now, u64::from(bytes)));
                        at = configs[number as usize].parent;
                    }
                    now
                }
                Err(later) => {
                    assert!(later > now, "seed {seed}");
                    later
                }
            };
            next += match random.below(20) {
                0 => random.below(100 * packet),
                1 => random.below(10 * packet),
                2 => random.below(1_000_000_000),
                // It does not come again.
                3 if random.one_in(200) => continue,
                _ => 0,
            };
            turns.push(std::cmp::Reverse((next, cpu)));
        }
        for (number, config) in configs.iter().enumerate() {
            let run = Run {
                sent: sent[number].clone(),
                grants: 0,
                by_cpu: Vec::new(),
                end: 0,
            };
            let (above, most) = (
                excess(&run, config.rate),
                limits.burst(number as u32, largest) as f64,
            );
            assert!(
                above <= most,
                "seed {seed}, limit {number}: {above} of {most}, {cpus} CPUs, {bits} bit/s"
            );
            nearest = nearest.max(above / most);
        }
    }
    println!("at most {:.0} % of the bound", nearest * 100.0);
    assert!(nearest > 0.3);
}

/// CPUs of which some are online: they always have packets.
struct Online<'a> {
    limits: &'a Limits,
    /// It pays as schedulers do; else it takes.
    pays: bool,
    cpus: Vec<fairpath_core::limit::LimitCpu>,
    online: Vec<bool>,
    /// By CPU: whether its packet has its grant.
    granted: Vec<bool>,
    /// By CPU: the time of its turn. Earlier ones of a CPU that left are void.
    due: Vec<u64>,
    turns: std::collections::BinaryHeap<std::cmp::Reverse<(u64, usize)>>,
    sent: Vec<(u64, u64)>,
    /// Bytes that CPUs had when they went offline.
    held: i64,
}

impl<'a> Online<'a> {
    fn new(limits: &'a Limits, pays: bool) -> Online<'a> {
        let cpus = limits.cpus() as usize;
        Online {
            limits,
            pays,
            cpus: (0..limits.cpus())
                .map(|cpu| limits.cpu(cpu).unwrap())
                .collect(),
            online: vec![false; cpus],
            granted: vec![false; cpus],
            due: vec![0; cpus],
            turns: std::collections::BinaryHeap::new(),
            sent: Vec::new(),
            held: 0,
        }
    }

    fn has(&self, cpu: usize) -> i64 {
        let pool = self.limits.pool(0, cpu as u32);
        pool.tokens + pool.waiting as i64
    }

    /// It stops where it is, or after its packets were dropped.
    fn leave(&mut self, cpu: usize, is_empty: bool, now: u64) {
        self.online[cpu] = false;
        if is_empty && self.pays {
            let _ = self.cpus[cpu].pay(0, 0, 0, now);
        }
        self.held += self.has(cpu).max(0);
    }

    fn come(&mut self, cpu: usize, now: u64) {
        self.online[cpu] = true;
        self.granted[cpu] = false;
        self.turn(cpu, now);
    }

    fn turn(&mut self, cpu: usize, at: u64) {
        self.due[cpu] = at;
        self.turns.push(std::cmp::Reverse((at, cpu)));
    }

    /// Packets of `bytes` until `end`.
    fn run(&mut self, bytes: u32, end: u64) {
        while let Some(std::cmp::Reverse((now, cpu))) = self.turns.peek().copied() {
            if now >= end {
                break;
            }
            self.turns.pop();
            if !self.online[cpu] || self.due[cpu] != now {
                continue;
            }
            let limit = &mut self.cpus[cpu];
            let answer = match self.pays {
                false => limit.take(0, bytes, now),
                true if self.granted[cpu] => Ok(()),
                true => limit.pay(0, 0, bytes, now),
            };
            let next = match (answer, self.pays) {
                (Err(later), pays) => {
                    self.granted[cpu] = pays;
                    later
                }
                (Ok(()), false) => {
                    self.sent.push((now, bytes.into()));
                    now
                }
                (Ok(()), true) => {
                    self.sent.push((now, bytes.into()));
                    self.granted[cpu] = true;
                    limit.pay(0, bytes, 1, now).err().unwrap_or(now)
                }
            };
            self.turn(cpu, next);
        }
    }
}

/// CPUs stop with tokens, grants that wait, and debts, permanently or for a long time, and others begin: nothing is lost
/// but what those had, and no interval has more than the bound.
#[test]
fn cpus_that_disappear_cost_their_pools() {
    let (mut most_lost, mut nearest, mut least) = (0.0f64, 0.0f64, 1.0f64);
    let uses = [LimitUse::Take, LimitUse::Pay];
    for (seed, by) in test_seeds(300).flat_map(|seed| uses.map(|by| (seed, by))) {
        let mut random = Random::new(seed);
        let cpus = random.pick(&[2, 8, 64]);
        let bits = 10u64.pow(5 + random.below(7) as u32) * (1 + random.below(4));
        let bytes = random.pick(&[64, 1514, 65_549]);
        let rate = LimitRate::new(bits);
        let limits = one(cpus, rate);
        let mut online = Online::new(&limits, by == LimitUse::Pay);
        // The time in which each CPU sends its pool, or a packet.
        let pool = u64::from(limits.usual_grant(0).max(bytes));
        let turn = pool * u64::from(cpus) * 8_000_000_000 / bits;
        let (mut now, mut left) = (SECOND, 0);
        for _ in 0..8 {
            let share = 1 + random.below(cpus.into());
            let mut some = false;
            for cpu in 0..cpus as usize {
                let is_online = random.below(cpus.into()) < share;
                match (online.online[cpu], is_online) {
                    (true, false) => {
                        left += 1;
                        online.leave(cpu, random.one_in(2), now);
                    }
                    (false, true) => online.come(cpu, now),
                    _ => {}
                }
                some |= is_online;
            }
            if !some {
                online.come(random.index(cpus as usize), now);
            }
            now += turn * (1 + random.below(20)) + 1;
            online.run(bytes, now);
        }
        let time = now - SECOND;
        let sent: u64 = online.sent.iter().map(|(_, bytes)| bytes).sum();
        let whole = time as f64 * bits as f64 / 8e9;
        // What those that are online have at the end, too, and the first time until which each has come.
        let has: i64 = (0..cpus as usize)
            .filter(|cpu| online.online[*cpu])
            .map(|cpu| online.has(cpu).max(0))
            .sum();
        let lost = whole - sent as f64;
        let most_held = (online.held + has) as f64 + f64::from(bytes) + whole * 0.0005;
        assert!(
            lost <= most_held,
            "seed {seed}, {by:?}: {lost} bytes lost, {most_held} held by {left} CPUs of {cpus}, {bits} bit/s, {bytes}"
        );
        let run = Run {
            sent: online.sent,
            grants: 0,
            by_cpu: Vec::new(),
            end: 0,
        };
        let (above, bound) = (excess(&run, rate), most(&limits, 0, by, bytes));
        assert!(above <= bound, "seed {seed}: {above} of {bound}");
        nearest = nearest.max(above / bound);
        most_lost = most_lost.max(lost / most_held);
        least = least.min(sent as f64 / whole);
    }
    println!(
        "at most {:.0} % of what they held lost, {:.0} % of the bound above, {:.0} % used",
        most_lost * 100.0,
        nearest * 100.0,
        least * 100.0
    );
    assert!(most_lost > 0.3 && nearest > 0.3);
}

/// Packets of one CPU and class leave in order, none too late, and no interval has more than the bound. A limit with
/// others on its path has what packets wait for those in addition.
#[test]
fn paced_packets_leave_within_their_bounds() {
    let (mut nearest, mut kinds) = (0.0f64, [0u64; 3]);
    for seed in test_seeds(400) {
        let mut random = Random::new(seed);
        let cpus = random.pick(&[1, 2, 8, 64]);
        let bits = 10u64.pow(5 + random.below(7) as u32) * (1 + random.below(4));
        let wait = random.pick(&[0, 1_000_000, 50_000_000]);
        let rates = [bits, bits / 2, bits / 3, bits / 3, bits / 2].map(|bits| LimitRate {
            wait,
            ..LimitRate::new(bits)
        });
        let parents = match random.one_in(3) {
            true => [None; 5],
            false => [None, Some(0), Some(1), Some(1), Some(0)],
        };
        let configs = rates.iter().zip(parents);
        let configs: Vec<_> = configs
            .map(|(rate, parent)| LimitConfig {
                rate: *rate,
                parent,
            })
            .collect();
        let limits = Limits::new(cpus, &configs).unwrap();
        let mut handles: Vec<_> = (0..cpus).map(|cpu| limits.cpu(cpu).unwrap()).collect();
        let sizes: &[u32] = random.pick(&[&[64, 1514][..], &[1514], &[1514, 65_549]]);
        let largest = *sizes.iter().max().unwrap();
        let numbers = 0..configs.len() as u32;
        let grant = numbers.map(|number| limits.usual_grant(number)).max();
        let grant = u64::from(grant.unwrap().max(largest));
        // The slowest limit of the paths, and its grant.
        let slowest = rates.iter().map(|rate| rate.bits).min().unwrap();
        let longest = wait + grant * 8_000_000_000 / slowest + 1;
        let packet = (u64::from(largest) * 8_000_000_000 / bits).max(1);
        let (mut now, mut sent) = (SECOND, vec![Vec::new(); configs.len()]);
        let mut last = std::collections::HashMap::new();
        for _ in 0..4000 {
            let (cpu, class) = (random.below(cpus.into()), 2 + random.index(3));
            let bytes = random.pick(sizes);
            match handles[cpu as usize].pace(class as u32, bytes, now) {
                None => kinds[0] += 1,
                Some(leaves) => {
                    kinds[1 + usize::from(leaves > now)] += 1;
                    let before = last.insert((cpu, class), leaves);
                    assert!(
                        before.is_none_or(|before| before <= leaves) && leaves >= now,
                        "seed {seed}: {leaves} at {now}, after {before:?}"
                    );
                    assert!(leaves <= now + longest, "seed {seed}: {}", leaves - now);
                    let mut at = Some(class as u32);
                    while let Some(number) = at {
                        sent[number as usize].push((leaves, u64::from(bytes)));
                        at = configs[number as usize].parent;
                    }
                }
            }
            now += match random.below(20) {
                0 => random.below(20 * packet),
                1 => random.below(1_000_000_000),
                _ => random.below(packet),
            };
        }
        for (number, config) in configs.iter().enumerate() {
            let mut sent = std::mem::take(&mut sent[number]);
            sent.sort_by_key(|(at, _)| *at);
            let run = Run {
                sent,
                grants: 0,
                by_cpu: Vec::new(),
                end: 0,
            };
            let beyond = match parents[1] {
                None => 0.0,
                Some(_) => longest as f64 * config.rate.bits as f64 / 8e9,
            };
            let above = excess(&run, config.rate);
            let most = (limits.burst(number as u32, largest) + grant) as f64 + beyond;
            assert!(
                above <= most,
                "seed {seed}, limit {number}: {above} of {most}, {cpus} CPUs, {bits} bit/s"
            );
            nearest = nearest.max(above / most);
        }
    }
    println!(
        "{kinds:?} dropped, at once, later; at most {:.0} % of the bound",
        nearest * 100.0
    );
    assert!(nearest > 0.3 && kinds.iter().all(|count| *count > 1000));
}
