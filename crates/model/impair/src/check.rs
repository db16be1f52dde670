//! The self-test of an impairment before it processes packets.
//!
//! Each direction runs in the native runtime and in virtual time, on the same path as with a back end:
//!
//! ```text
//!   impairment without rate:  the loss is in its interval, delays have their distribution
//!                             (Kolmogorov-Smirnov test), order is kept if configured
//!   rate without impairment:  the rate is within 0.5 %
//! ```

use anyhow::{Context, bail};
use fairpath_core::sched::Meta;
use fairpath_statistics::kolmogorov;

use crate::directions::{Ready, delays_are_own, varies};
use crate::interval;
use crate::path::Path;
use crate::plan::Plan;
use crate::validation::percent;

/// Packets of an explicit self-test, and of the one before a run.
const THOROUGH: u32 = 1_000_000;
const QUICK: u32 = 50_000;
/// The interval between packets. If all handles are in use, the next packet arrives later.
const APART_NS: u64 = 20_000;
/// The length of frames.
const FRAME_BYTES: u32 = 1514;
/// Frames for the measurement of a rate.
const FRAMES: u32 = 4_000;
/// Maximum relative error of a rate.
const RATE_SHARE: f64 = 0.005;
/// The probability that a correct build fails. The seed of a run should not prevent its start.
const FALSE_ALARM: f64 = 1e-6;
/// Points at which a distribution is compared, enough to detect an error of 0.1 %.
const POINTS: usize = 1000;
/// Handles of the tested path.
const HANDLES: u32 = 1 << 16;

/// Tests every direction and returns the results, one per line.
///
/// # Errors
/// A direction differs from its configuration.
pub fn all(directions: &[Ready], thorough: bool) -> anyhow::Result<String> {
    let mut text = String::new();
    for ready in directions {
        let name = ready.direction.name;
        let lines = one(ready, if thorough { THOROUGH } else { QUICK });
        let lines = lines.with_context(|| format!("self-test of direction {name}"))?;
        text.extend(lines.iter().map(|line| format!("{name:<9} {line}\n")));
    }
    Ok(text)
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

/// The outcomes of a sequence of packets.
struct Passed {
    arrived: u64,
    lost: u64,
    /// Number and delay of sent packets, in order of departure.
    left: Vec<(u32, u64)>,
}

/// The tree of the direction without its rate.
fn without_rate(ready: &Ready) -> Plan {
    let mut tree = ready.plan.tree.clone();
    for node in &mut tree.plan.nodes {
        node.ceil = 0;
    }
    tree.plan.config.service = 0;
    // The queue is not tested here.
    tree.plan.config.limit_packets = HANDLES;
    Plan {
        tree,
        packets: HANDLES,
        ..ready.plan
    }
}

fn pass(ready: &Ready, packets: u32) -> anyhow::Result<Passed> {
    let mut path = without_rate(ready).path(HANDLES)?;
    let mut seen = Passed {
        arrived: packets.into(),
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
            // All handles are in use: the packet arrives when another one has left.
            now = path.wake_at().context("packets never leave")?.max(now);
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
    if all != seen.arrived {
        bail!("{all} of {} packets were sent or dropped", seen.arrived);
    }
    Ok(seen)
}

/// A UDP packet of one of 64 flows.
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
    seen: &mut Passed,
) -> anyhow::Result<()> {
    path.run_to(now)?;
    while let Some(departure) = path.take() {
        let (number, arrived) = numbers[departure.handle as usize];
        seen.left.push((number, departure.due - arrived));
        free.push(departure.handle);
    }
    path.note_sent(now);
    while let Some(handle) = path.take_dropped() {
        free.push(handle);
    }
    Ok(())
}

fn of_loss(ready: &Ready, seen: &Passed) -> anyhow::Result<String> {
    let configured = &ready.direction.configured;
    if let Some(wanted) = configured.lost_by_pattern(seen.arrived) {
        let text = format!("loss {} of {} packets", seen.lost, seen.arrived);
        match seen.lost == wanted {
            true => return Ok(format!("{text}, as in the pattern")),
            false => bail!("{text}, but the pattern loses {wanted}"),
        }
    }
    let (low, high) =
        interval::of_share_but(FALSE_ALARM, seen.lost, seen.arrived, configured.inflation);
    let text = format!(
        "loss {} of {} packets, configured {}, interval {} to {}",
        seen.lost,
        seen.arrived,
        percent(configured.loss),
        percent(low),
        percent(high)
    );
    match (low..=high).contains(&configured.loss) {
        true => Ok(text),
        false => bail!("{text}: the configured loss is outside of the interval"),
    }
}

/// Compares delays if only the configured delay affects packets. Order, slots and releases change it.
/// The link has no rate here.
fn of_delay(ready: &Ready, seen: &Passed) -> anyhow::Result<Option<String>> {
    let (spec, configured) = (&ready.spec, &ready.direction.configured);
    if !spec.delays() {
        return Ok(None);
    }
    if !delays_are_own(spec) {
        return Ok(Some(
            "delay not tested, because slots, releases, traces or reordering change it".to_owned(),
        ));
    }
    if !varies(spec) {
        let wanted = spec.mean_delay_ns().round() as u64;
        if let Some((number, delay)) = seen.left.iter().find(|(_, delay)| *delay != wanted) {
            bail!("delay of packet {number}: {delay} ns instead of {wanted} ns");
        }
        let wanted = wanted as f64 / 1e6;
        return Ok(Some(format!("delay {wanted:.3} ms for every packet")));
    }
    if configured.kept_order || spec.correlation != 0.0 {
        return Ok(None);
    }
    let mut delays: Vec<u64> = seen.left.iter().map(|(_, delay)| *delay).collect();
    delays.sort_unstable();
    let distance = kolmogorov::distance(&delays, POINTS, |delay| {
        // Negative delays count as 0.
        let from_mean = delay as f64 - spec.delay_ns as f64;
        let share = || spec.distribution.share_below(spec.jitter_ns, from_mean);
        (delay > 0).then(share)
    });
    let max = kolmogorov::most(FALSE_ALARM, delays.len() as u64);
    let text = format!("distance of the delay distribution {distance:.5}, maximum {max:.5}");
    match distance <= max {
        true => Ok(Some(text)),
        false => bail!("{text}"),
    }
}

fn of_order(ready: &Ready, seen: &Passed) -> anyhow::Result<String> {
    let inversions = seen.left.windows(2).filter(|pair| pair[1].0 < pair[0].0);
    let inversions = inversions.count();
    match (ready.plan.in_order, inversions) {
        (true, 0) => Ok("order kept".to_owned()),
        (true, n) => bail!("order: {n} packets were reordered instead of 0"),
        (false, n) => Ok(format!("order free: {n} packets were reordered")),
    }
}

/// Measures the rate of a link with a constant backlog.
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
            // The rate is measured from the end of the first packet.
            (first, last) = (if sent == 0 { departure.due } else { first }, departure.due);
            sent += 1;
            path.arrive_as(departure.handle, now, meta(0))?;
        }
        now = path
            .wake_at()
            .context("rate: the link sends nothing although packets wait")?
            .max(now);
    }
    let bits = f64::from(sent - 1) * f64::from(FRAME_BYTES) * 8.0;
    let bps = bits * 1e9 / (last - first) as f64;
    let text = format!(
        "rate {:.4} Mbit/s, configured {:.4}",
        bps / 1e6,
        ready.bps as f64 / 1e6
    );
    match (bps / ready.bps as f64 - 1.0).abs() <= RATE_SHARE {
        true => Ok(text),
        false => bail!("{text}: the error exceeds 0.5 %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directions::ready_of;

    /// All options of a direction.
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
        "queue_limit 1 delay 20ms",
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
    fn every_option_passes_the_self_test() {
        ALONE.iter().for_each(|words| must(words));
    }

    #[test]
    fn every_option_passes_with_a_rate() {
        for words in ALONE {
            must(&format!("{words} rate 10mbit"));
        }
        must("rate 10mbit burst 20kb loss 1%");
        must("policy codel set target=7ms rate 10mbit overhead 24 cell 48 cell-overhead 5");
        must("rate 64kbit");
        must("rate 10gbit");
    }

    #[test]
    fn options_with_files_pass_the_self_test() {
        let place = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = place.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        // The first distribution has a mean but no deviation.
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
    fn wrong_impairments_fail_the_self_test() {
        let broken = |words: &str, breaks: fn(&mut Ready)| {
            let mut ready = ready_of(words);
            breaks(&mut ready);
            format!("{:#}", all(&[ready], false).unwrap_err())
        };
        let error = broken("loss 1%", |ready| ready.direction.configured.loss = 0.02);
        assert!(error.contains("outside of the interval"), "{error}");
        let error = broken("pattern 10", |ready| {
            ready.plan.tree.plan.impairments[0].loss = ready_of("loss 50%").loss;
        });
        assert!(error.contains("the pattern loses"), "{error}");
        let error = broken("delay 20ms rate 10mbit", |ready| {
            ready.plan.tree.plan.impairments[0].delay += 1;
        });
        assert!(
            error.contains("20000001 ns instead of 20000000 ns"),
            "{error}"
        );
        let error = broken("delay 20ms jitter 5ms order free", |ready| {
            ready.spec.jitter_ns += 500_000;
        });
        assert!(
            error.contains("distance of the delay distribution"),
            "{error}"
        );
        let error = broken("delay 20ms jitter 5ms order free", |ready| {
            ready.plan.in_order = true;
        });
        assert!(error.contains("reordered"), "{error}");
        let error = broken("rate 10mbit", |ready| ready.bps = 10_100_000);
        assert!(error.contains("exceeds 0.5 %"), "{error}");
    }
}
