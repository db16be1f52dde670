//! Whether this build impairs as it says, before packets are trusted to it.
//!
//! Each direction runs natively, in virtual time, by the very path that its port drives:
//!
//! ```text
//!   its impairment, no rate:  share lost in its interval; delays as their distribution has them
//!                             (Kolmogorov and Smirnov); order kept where that is promised
//!   its rate, nothing else:   bits a second within 0.5 %
//! ```

use anyhow::{Context, bail};
use fairpath_core::sched::Meta;
use fairpath_statistics::kolmogorov;

use crate::directions::{Ready, delays_are_own, varies};
use crate::interval;
use crate::path::Path;
use crate::plan::Plan;
use crate::truth::percent;

/// Packets of a check that is asked for, and of the one before a run.
const THOROUGH: u32 = 1_000_000;
const QUICK: u32 = 50_000;
/// Between packets of the check of delays, unless all handles wait: then the next comes later.
const APART_NS: u64 = 20_000;
/// Of the check of a rate.
const FRAME_BYTES: u32 = 1514;
/// Frames that a rate is measured by.
const FRAMES: u32 = 4_000;
/// By how much of it a rate may be off.
const RATE_SHARE: f64 = 0.005;
/// How many builds in order a check may refuse: a run's own seed is no reason not to begin.
const UNLUCKY: f64 = 1e-6;
/// Places at which a distribution is compared: enough to find what is wrong by a thousandth.
const PLACES: usize = 1000;
/// Handles of a path under check.
const HANDLES: u32 = 1 << 16;

/// Checks every direction; what was found, a line each.
///
/// # Errors
/// What is not as it should be.
pub fn all(directions: &[Ready], thorough: bool) -> anyhow::Result<String> {
    let mut told = String::new();
    for ready in directions {
        let name = ready.direction.name;
        let lines = one(ready, if thorough { THOROUGH } else { QUICK });
        let lines = lines.with_context(|| format!("check of direction {name} before the start"))?;
        told.extend(lines.iter().map(|line| format!("{name:<9} {line}\n")));
    }
    Ok(told)
}

fn one(ready: &Ready, packets: u32) -> anyhow::Result<Vec<String>> {
    let seen = pass(ready, packets)?;
    let mut lines = vec![of_loss(ready, &seen)?];
    lines.extend(of_delay(ready, &seen)?);
    lines.push(of_order(ready, &seen)?);
    if ready.bps > 0 {
        lines.push(of_rate(ready)?);
    }
    Ok(lines)
}

/// What became of packets that came one after another.
struct Seen {
    came: u64,
    lost: u64,
    /// Of those that left, in the order of leaving: number and delay.
    left: Vec<(u32, u64)>,
}

/// The direction's tree with nothing on its line but packets.
fn without_rate(ready: &Ready) -> Plan {
    let mut tree = ready.plan.tree.clone();
    for node in &mut tree.plan.nodes {
        node.ceil = 0;
    }
    tree.plan.config.service = 0;
    // What waits in the queue is nobody's question here.
    tree.plan.config.limit_packets = HANDLES;
    Plan {
        tree,
        packets: HANDLES,
        ..ready.plan
    }
}

fn pass(ready: &Ready, packets: u32) -> anyhow::Result<Seen> {
    let mut path = without_rate(ready).path(HANDLES)?;
    let mut seen = Seen {
        came: packets.into(),
        lost: 0,
        left: Vec::new(),
    };
    let mut free: Vec<u32> = (1..=HANDLES).rev().collect();
    let mut now = 1_000_000_000;
    let mut numbers = vec![(0u32, 0u64); HANDLES as usize + 1];
    for number in 0..packets {
        now += APART_NS;
        collect(&mut path, now, &mut free, &numbers, &mut seen)?;
        let handle = loop {
            if let Some(handle) = free.pop() {
                break handle;
            }
            // Slots and long delays hold them all: it comes when one of them has left.
            now = path.wake_at().context("packets wait for ever")?.max(now);
            collect(&mut path, now, &mut free, &numbers, &mut seen)?;
        };
        numbers[handle as usize] = (number, now);
        path.arrive_as(handle, now, meta(number))?;
    }
    while let Some(next) = path.wake_at() {
        collect(&mut path, next, &mut free, &numbers, &mut seen)?;
    }
    seen.lost = path.counts().lost;
    let all = seen.left.len() as u64 + path.counts().lost + path.counts().dropped;
    if all != seen.came {
        bail!("of {} packets, {all} came to an end", seen.came);
    }
    Ok(seen)
}

/// A datagram of one flow, or of many where policies look at flows.
fn meta(number: u32) -> Meta {
    Meta {
        bytes: FRAME_BYTES,
        segments: 1,
        protocol: 17,
        flow_hash: number % 64,
        ..Meta::default()
    }
}

fn collect(
    path: &mut Path,
    now: u64,
    free: &mut Vec<u32>,
    numbers: &[(u32, u64)],
    seen: &mut Seen,
) -> anyhow::Result<()> {
    path.run_to(now)?;
    while let Some(departure) = path.take() {
        let (number, came) = numbers[departure.handle as usize];
        seen.left.push((number, departure.due - came));
        free.push(departure.handle);
    }
    path.note_sent(now);
    while let Some(handle) = path.take_dropped() {
        free.push(handle);
    }
    Ok(())
}

fn of_loss(ready: &Ready, seen: &Seen) -> anyhow::Result<String> {
    let asked = &ready.direction.asked;
    if let Some(wanted) = asked.lost_by_pattern(seen.came) {
        let told = format!("loss {} of {} packets", seen.lost, seen.came);
        match seen.lost == wanted {
            true => return Ok(format!("{told}: as the pattern has it")),
            false => bail!("{told}: the pattern loses {wanted} of them"),
        }
    }
    let (low, high) = interval::of_share_but(UNLUCKY, seen.lost, seen.came, asked.inflation);
    let told = format!(
        "loss {} of {} packets: {} in {} to {}",
        seen.lost,
        seen.came,
        percent(asked.loss),
        percent(low),
        percent(high)
    );
    match (low..=high).contains(&asked.loss) {
        true => Ok(told),
        false => bail!("{told}: it is not, and that is no bad luck"),
    }
}

/// Only where packets leave by their own delays: order, slots and releases make them others. The
/// line has no rate here.
fn of_delay(ready: &Ready, seen: &Seen) -> anyhow::Result<Option<String>> {
    let (spec, asked) = (&ready.spec, &ready.direction.asked);
    if !spec.delays() {
        return Ok(None);
    }
    if !delays_are_own(spec) {
        return Ok(Some(
            "delay not checked: slots, releases, traces or reordering make it another".to_owned(),
        ));
    }
    if !varies(spec) {
        let wanted = spec.mean_delay_ns().round() as u64;
        if let Some((number, delay)) = seen.left.iter().find(|(_, delay)| *delay != wanted) {
            bail!("delay of packet {number}: {delay} ns, and not {wanted}");
        }
        let wanted = wanted as f64 / 1e6;
        return Ok(Some(format!("delay {wanted:.3} ms, each packet's")));
    }
    if asked.kept_order || spec.correlation != 0.0 {
        return Ok(None);
    }
    let mut delays: Vec<u64> = seen.left.iter().map(|(_, delay)| *delay).collect();
    delays.sort_unstable();
    let distance = kolmogorov::distance(&delays, PLACES, |delay| {
        // Nothing leaves before it came: what would be less is 0.
        let from_mean = delay as f64 - spec.delay_ns as f64;
        let share = || spec.distribution.share_below(spec.jitter_ns, from_mean);
        (delay > 0).then(share)
    });
    let most = kolmogorov::most(UNLUCKY, delays.len() as u64);
    let told = format!(
        "delay distribution {:.5} away from its own, of {most:.5}",
        distance
    );
    match distance <= most {
        true => Ok(Some(told)),
        false => bail!("{told}"),
    }
}

fn of_order(ready: &Ready, seen: &Seen) -> anyhow::Result<String> {
    let inversions = seen.left.windows(2).filter(|pair| pair[1].0 < pair[0].0);
    let inversions = inversions.count();
    match (ready.plan.in_order, inversions) {
        (true, 0) => Ok("order kept".to_owned()),
        (true, n) => bail!("order: {n} packets were overtaken, and none should be"),
        (false, n) => Ok(format!("order free: {n} packets were overtaken")),
    }
}

/// A line that always has something to send.
fn of_rate(ready: &Ready) -> anyhow::Result<String> {
    let mut tree = ready.plan.tree.clone();
    for node in &mut tree.plan.nodes {
        (node.impair, node.burst) = (0, 0);
    }
    tree.plan.config.limit_packets = HANDLES;
    let plan = Plan {
        tree,
        packets: HANDLES,
        ..ready.plan
    };
    let mut path = plan.path(HANDLES)?;
    let (mut sent, mut first, mut last) = (0u32, 0, 0);
    let mut now = 1_000_000_000;
    for handle in 1..=2 {
        path.arrive_as(handle, now, meta(0))?;
    }
    while sent < FRAMES {
        path.run_to(now)?;
        while let Some(departure) = path.take() {
            // Of the first, the end counts: the rate is of what follows.
            (first, last) = (if sent == 0 { departure.due } else { first }, departure.due);
            sent += 1;
            path.arrive_as(departure.handle, now, meta(0))?;
        }
        now = path
            .wake_at()
            .context("rate: a line with packets has nothing to send")?
            .max(now);
    }
    let bits = f64::from(sent - 1) * f64::from(FRAME_BYTES) * 8.0;
    let bps = bits * 1e9 / (last - first) as f64;
    let told = format!(
        "rate {:.4} Mbit/s of {:.4}",
        bps / 1e6,
        ready.bps as f64 / 1e6
    );
    match (bps / ready.bps as f64 - 1.0).abs() <= RATE_SHARE {
        true => Ok(told),
        false => bail!("{told}: more than 0.5 % off"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directions::ready_of;

    /// Everything that a direction may have, in words.
    const ALONE: [&str; 26] = [
        "loss 1%",
        "loss 5% loss-correlation 30%",
        "gemodel 1%,25%,70%,1%",
        "4state 1%,30%",
        "pattern 1111111110000000000000000000000000000000000000001",
        "delay 20ms",
        "delay 3s",
        "delay 20ms jitter 5ms",
        "delay 20ms jitter 5ms order free",
        "delay 20ms jitter 2s distribution normal",
        "delay 20ms jitter 5ms distribution normal order free",
        "delay 20ms jitter 5ms distribution pareto order free",
        "delay 20ms jitter 5ms distribution paretonormal order free",
        "delay 20ms jitter 5ms distribution normal correlation 50%",
        "delay 20ms reorder 1%",
        "delay 20ms reorder 1% reorder-gap 5",
        "slot 10ms,30ms,8",
        "slot 1ms,2ms delay 20ms",
        "release 5ms",
        "release 2s delay 20ms",
        "duplicate 1%",
        "corrupt 1%",
        "delay 20ms overhead 18",
        "policy codel delay 20ms",
        "policy fq_codel",
        "limit 1 delay 20ms",
    ];

    fn check(words: &str) -> anyhow::Result<String> {
        all(&[ready_of(words)], false)
    }

    fn must(words: &str) {
        if let Err(error) = check(words) {
            panic!("{words}: {error:#}");
        }
    }

    #[test]
    fn each_option_may_begin() {
        ALONE.iter().for_each(|words| must(words));
    }

    #[test]
    fn each_option_may_begin_with_a_rate() {
        for words in ALONE {
            must(&format!("{words} rate 10mbit"));
        }
        must("rate 10mbit burst 20kb loss 1%");
        must("policy codel set target=7ms rate 10mbit overhead 24 cell 48 cell-overhead 5");
        must("rate 64kbit");
        must("rate 10gbit");
    }

    #[test]
    fn what_a_file_says_may_begin() {
        let place = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = place.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        // All the same, and not: the first has no deviation, and a mean all the same.
        let same = file("same delays", "20ms\n20ms\n");
        let measured = file("delays", "5ms\n20ms\n80ms\n");
        let rates = file("rates", "1\n2\n10\n");
        let delays = file("trace", "0s 20ms\n10ms 80ms\n20ms\n");
        let all = [
            format!("distribution=\"{same}\""),
            format!("distribution=\"{measured}\""),
            format!("distribution=\"{measured}\" order free"),
            format!("delay_trace={delays}"),
            format!("delay_trace={delays} jitter 5ms order free"),
            "delay_trace=\"0s 20ms, 10ms 80ms, 20ms\"".to_owned(),
        ];
        for words in all {
            must(&words);
            must(&format!("{words} rate 10mbit"));
            must(&format!("{words} rate_trace {rates}"));
        }
        must(&format!("rate_trace {rates}"));
    }

    #[test]
    fn what_is_not_as_asked_for_is_refused() {
        let broken = |words: &str, breaks: fn(&mut Ready)| {
            let mut ready = ready_of(words);
            breaks(&mut ready);
            format!("{:#}", all(&[ready], false).unwrap_err())
        };
        let error = broken("loss 1%", |ready| ready.direction.asked.loss = 0.02);
        assert!(error.contains("no bad luck"), "{error}");
        let error = broken("pattern 10", |ready| {
            ready.plan.tree.plan.impairments[0].loss = ready_of("loss 50%").loss;
        });
        assert!(error.contains("the pattern loses"), "{error}");
        let error = broken("delay 20ms rate 10mbit", |ready| {
            ready.plan.tree.plan.impairments[0].delay += 1;
        });
        assert!(error.contains("20000001 ns, and not 20000000"), "{error}");
        let error = broken("delay 20ms jitter 5ms order free", |ready| {
            ready.spec.jitter_ns += 500_000;
        });
        assert!(error.contains("away from its own"), "{error}");
        let error = broken("delay 20ms jitter 5ms order free", |ready| {
            ready.plan.in_order = true;
        });
        assert!(error.contains("overtaken"), "{error}");
        let error = broken("rate 10mbit", |ready| ready.bps = 10_100_000);
        assert!(error.contains("0.5 % off"), "{error}");
    }
}
