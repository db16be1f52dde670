//! The configuration by direction: checked, built, and as text.

use anyhow::{Context, bail};
use fairpath_core::sched::{LossConfig, Policy, policies};
use fairpath_sched::impair::{Builder, Distribution, Loss, Spec, seed_of};
use fairpath_sched::tree::{Known, Link, Tree};
use fairpath_units::nearest;
use fairpath_units::quantity::{read, read_rate, written};

use crate::bursts::inflation;
use crate::network::Network;
use crate::plan::{Plan, keeps_order};
use crate::report::Direction;
use crate::validation::Configured;

/// A direction that can be started.
pub struct Ready {
    /// As text.
    pub direction: Direction,
    /// For ports that hold packets.
    pub plan: Plan,
    /// For XDP.
    pub loss: LossConfig,
    /// Nothing but loss is configured for, or nothing at all.
    pub only_loss: bool,
    /// Packets leave twice.
    pub copies: bool,
    /// As it was read.
    pub spec: Spec,
    /// Bits a second; 0 none.
    pub bps: u64,
}

/// The built directions by name; without `both`, only those with an impairment.
///
/// # Errors
/// What is wrong with a description, and whose it is.
pub fn of(
    wanted: Vec<(&'static str, Network)>,
    both: bool,
    packets: u32,
    seed: u64,
) -> anyhow::Result<Vec<Ready>> {
    let mut ready = Vec::new();
    for (direction, (name, network)) in (0u64..).zip(wanted) {
        if network.is_none() && !both {
            continue;
        }
        let one = build(name, &network, seed, direction, packets);
        ready.push(one.with_context(|| format!("impair, direction {name}"))?);
    }
    Ok(ready)
}

impl Ready {
    /// The first direction, called `name`, of these words.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn of_words(
        name: &'static str,
        words: &str,
        packets: u32,
        seed: u64,
    ) -> anyhow::Result<Ready> {
        let network = Network::of_words(words).map_err(anyhow::Error::msg)?;
        build(name, &network, seed, 0, packets)
    }
}

fn build(
    name: &'static str,
    network: &Network,
    seed: u64,
    direction: u64,
    packets: u32,
) -> anyhow::Result<Ready> {
    let mut spec = spec_of(network)?;
    spec.seed = seed;
    let bps = network
        .rate
        .as_deref()
        .map_or(Ok(0), read_rate)
        .context("rate")?;
    let (tree, policy) = tree_of(network, &spec, bps, direction)?;
    let is_plain = bps == 0 && spec.rate_trace.is_none() && !spec.frames();
    let only_loss =
        is_plain && network.policy.is_none() && (spec.is_nothing() || spec.is_loss_alone());
    Ok(Ready {
        direction: Direction {
            name,
            text: text_of(&spec, network),
            configured: configuration_of(&spec, is_plain, bps),
            has_queue: bps > 0 || spec.rate_trace.is_some(),
        },
        plan: Plan {
            name,
            tree,
            packets,
            changes: spec.duplicate > 0.0 || spec.corrupt > 0.0,
            in_order: keeps_order(policy) && !spec.order_free && spec.reorder == 0.0,
        },
        // As the plan's first impairment has it.
        loss: spec.loss.to_config(seed_of(seed, direction, 0)),
        only_loss,
        copies: spec.duplicate > 0.0,
        spec,
        bps,
    })
}

fn spec_of(network: &Network) -> anyhow::Result<Spec> {
    let mut builder = Builder::default();
    for (key, value) in network.settings() {
        builder.set(key, &value)?;
    }
    Ok(builder.finish()?)
}

/// The impaired leaf on its line, and its policy.
fn tree_of(
    network: &Network,
    spec: &Spec,
    bps: u64,
    direction: u64,
) -> anyhow::Result<(Tree, &'static Policy)> {
    let policies = policies();
    let policy = find(network.policy.as_deref().unwrap_or("fifo"), policies)?;
    let known = Known {
        policies,
        classes: &[],
    };
    let mut tree = Tree::of_policy(policy, known)?;
    for assignment in &network.set {
        tree.set(assignment)?;
    }
    if let Some(limit) = network.queue_limit {
        tree.plan.config.limit_packets = limit;
    }
    if !spec.is_nothing() {
        tree.plan.nodes[0].impair = spec.add_to(&mut tree.plan, direction);
    }
    let burst = network
        .burst
        .as_deref()
        .map_or(Ok(0), |text| read(text, "bytes"));
    let burst_bits = burst.context("burst")?.saturating_mul(8);
    let burst_ns = u128::from(burst_bits) * 1_000_000_000 / u128::from(bps.max(1));
    let line = Link {
        bps,
        burst_ns: u64::try_from(burst_ns).unwrap_or(u64::MAX),
        stack: false,
    };
    Ok((tree.on_link(&line)?, policy))
}

fn find(name: &str, known: &'static [Policy]) -> anyhow::Result<&'static Policy> {
    if let Some(policy) = known.iter().find(|policy| policy.name == name) {
        return Ok(policy);
    }
    let near = nearest(name, known.iter().map(|policy| policy.name.as_str()));
    let near = near.map_or(String::new(), |near| format!(", is {near:?} meant?"));
    bail!("policy {name:?}: unknown policy{near}: `fairpath sched list` lists all")
}

/// The reference of validation; `is_plain`: no rate increases delays.
fn configuration_of(spec: &Spec, is_plain: bool, bps: u64) -> Configured {
    let rho = spec.correlation.max(0.0);
    let mean_ns = spec.mean_delay_ns();
    Configured {
        loss: spec.mean_loss(),
        inflation: inflation(&spec.loss),
        pattern: match &spec.loss {
            Loss::Pattern(bits) => Some(bits.as_slice().into()),
            _ => None,
        },
        delay_ns: (mean_ns > 0.0).then_some(mean_ns),
        jitter_ns: deviation_ns(spec),
        deviation_ns: spec.delay_deviation_ns(),
        delay_inflation: (1.0 + rho) / (1.0 - rho),
        only_delay: is_plain && delays_are_own(spec),
        holds: spec.delays() || bps > 0 || spec.rate_trace.is_some(),
        kept_order: varies(spec) && !spec.order_free,
    }
}

/// True if each packet has exactly its random delay, without rate and order.
pub fn delays_are_own(spec: &Spec) -> bool {
    spec.slot.is_none() && spec.release_ns == 0 && spec.reorder == 0.0 && spec.delay_trace.is_none()
}

/// True if delays of packets are not all the same.
pub fn varies(spec: &Spec) -> bool {
    deviation_ns(spec) > 0.0
}

/// The standard deviation of a delay.
fn deviation_ns(spec: &Spec) -> f64 {
    match &spec.distribution {
        Distribution::Uniform => spec.jitter_ns as f64 / 3.0_f64.sqrt(),
        Distribution::Measured { delays_ns, .. } if !delays_ns.is_empty() => {
            let count = delays_ns.len() as f64;
            let mean = delays_ns.iter().map(|ns| *ns as f64).sum::<f64>() / count;
            let square = |ns: &u64| (*ns as f64 - mean).powi(2);
            (delays_ns.iter().map(square).sum::<f64>() / count).sqrt()
        }
        _ => spec.jitter_ns as f64,
    }
}

/// In words that read as the same direction.
fn text_of(spec: &Spec, network: &Network) -> String {
    let unseeded = Spec {
        seed: Spec::default().seed,
        ..spec.clone()
    };
    let mut words = Vec::new();
    if !unseeded.is_nothing() {
        words.push(unseeded.to_string());
    }
    let rest = [
        ("rate", network.rate.clone()),
        ("burst", network.burst.clone()),
        ("policy", network.policy.clone()),
        (
            "queue_limit",
            network.queue_limit.map(|limit| written(limit.into(), "")),
        ),
    ];
    for (key, value) in rest {
        words.extend(value.map(|value| format!("{key}={value}")));
    }
    words.extend(
        network
            .set
            .iter()
            .map(|assignment| format!("set={assignment}")),
    );
    match words.is_empty() {
        true => "none".to_owned(),
        false => words.join(" "),
    }
}

/// A direction of these words, for tests.
#[cfg(test)]
pub fn ready_of(words: &str) -> Ready {
    Ready::of_words("to-peer", words, 100, 7).unwrap()
}

#[cfg(test)]
mod tests {
    use fairpath_core::sched::Meta;

    use super::*;

    fn ready(words: &str) -> Ready {
        ready_of(words)
    }

    #[test]
    fn printed_directions_read_back() {
        let words =
            "loss=1% delay=20ms jitter=2ms rate=10mbit policy=codel queue_limit=50 set=target=7ms";
        let text = ready(words).direction.text;
        assert_eq!(text, words);
        assert_eq!(ready("none").direction.text, "none");
        assert_eq!(
            ready("gemodel 1%,25%").direction.text,
            "gilbert_elliott=p=1%,r=25%,h=100%,k=0%"
        );
    }

    #[test]
    fn loss_alone_is_what_xdp_can_do() {
        for (words, alone) in [
            ("loss 1%", true),
            ("none", true),
            ("4state 1%,30%", true),
            ("loss 1% delay 1ms", false),
            ("rate 1mbit", false),
            ("policy codel", false),
            ("corrupt 1%", false),
        ] {
            assert_eq!(ready(words).only_loss, alone, "{words}");
        }
    }

    #[test]
    fn means_are_judged_only_without_other_queues() {
        let only = |words: &str| ready(words).direction.configured.only_delay;
        assert!(only("delay 20ms") && only("delay 20ms jitter 1ms"));
        let configured = |words: &str| ready(words).direction.configured;
        assert_eq!(configured("rate 1mbit").delay_ns, None);
        assert!(configured("rate 1mbit").holds && !configured("loss 1%").holds);
        assert!(!only("delay 20ms rate 1mbit") && !only("delay 20ms release 5ms"));
        let configured = ready("delay 20ms jitter 3ms distribution normal correlation 50%")
            .direction
            .configured;
        assert_eq!(
            (configured.jitter_ns, configured.delay_inflation),
            (3e6, 3.0)
        );
        assert!(configured.kept_order);
    }

    /// The deviation of a normal distribution's positive part with mass at 0 is 0.58 of the whole.
    #[test]
    fn clamped_delays_scatter_less_than_their_jitter() {
        for (words, wanted) in [
            ("delay 20ms", 0.0),
            ("delay 20ms jitter 3ms distribution normal", 3e6),
            ("delay 20ms jitter 3ms", 3e6 / 3.0_f64.sqrt()),
            ("jitter 3ms distribution normal", 3e6 * 0.5838),
        ] {
            let deviation = ready(words).direction.configured.deviation_ns;
            let is_near = (deviation - wanted).abs() <= 0.01 * wanted;
            assert!(is_near, "{words}: {deviation} instead of {wanted}");
        }
    }

    #[test]
    fn back_ends_without_marking_drop() {
        let reported = |marks: bool| {
            let plan = ready("rate 1mbit policy codel set target=1ms set interval=5ms").plan;
            let mut path = match marks {
                true => plan.path(100).unwrap(),
                false => plan.path_without_marks(100).unwrap(),
            };
            // ECT(0), 1,000 bytes each 4 ms to a line that takes 8.
            for handle in 1..=100u32 {
                let meta = Meta {
                    bytes: 1000,
                    segments: 1,
                    ecn: 2,
                    ..Meta::default()
                };
                let at = u64::from(handle) * 4_000_000;
                assert!(path.arrive_as(handle, at, meta).unwrap());
            }
            path.run_to(2_000_000_000).unwrap();
            while path.take().is_some() {}
            path.note_sent(2_000_000_000);
            path.reported()
        };
        let (marked, dropped) = (reported(true), reported(false));
        assert!(marked.marked > 5 && marked.dropped == 0, "{marked:?}");
        assert!(dropped.marked == 0 && dropped.dropped > 5, "{dropped:?}");
        let [p50, p95, p99] = marked.sojourn_ns.unwrap();
        // 4 ms more with each packet: of 100 the last waits 400.
        assert!((150_000_000..=300_000_000).contains(&p50), "{p50}");
        assert!(p50 < p95 && p95 <= p99 && p99 < 600_000_000, "{p95} {p99}");
    }

    #[test]
    fn directions_lose_equally_in_plan_and_xdp() {
        let ready = ready("loss 10%");
        assert_eq!(ready.plan.tree.plan.impairments[0].loss, ready.loss);
        let network = Network::of_words("loss 10%").unwrap();
        let other = build("from-peer", &network, 7, 1, 100).unwrap();
        assert_ne!(other.loss.seed, ready.loss.seed);
    }
}
