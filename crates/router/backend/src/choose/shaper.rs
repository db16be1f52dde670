//! The back end of shaping: the configured one, or the best of this kernel, with the reason.

use fairpath_class::{ClassSet, Whom};
use fairpath_core::sched::Framing;
use fairpath_netlink::{CAKE_LEAVES, LeafKind, NetlinkError, Tc};
use fairpath_sched::tree::Diffserv;
use fairpath_shape::htb::is_fair_to_gso;
use fairpath_shape::{Both, Impaired};
use fairpath_units::quantity::written;

use super::{Choice, traits};
use crate::{OnFailure, ShapeConfig, Via};

/// Why a back end without [`crate::Shapes`] cannot shape.
pub const HOLDS_NONE: &str = "it does not queue packets";

fn refuse(via: Via, what: &str, why: &str, remedy: &str) -> Result<(), String> {
    Err(format!("via {} cannot {what}: {why}: {remedy}", via.name()))
}

/// Checks that a back end supports the configuration. `impaired` are the impairments of its links.
///
/// # Errors
/// The unsupported request, and the remedy.
pub fn takes(via: Via, config: &ShapeConfig, impaired: Impaired) -> Result<(), String> {
    let refuse = |what: &str, why: &str, remedy: &str| refuse(via, what, why, remedy);
    let Some(shapes) = &via.description().shapes else {
        return refuse("shape", HOLDS_NONE, "remove [shape] via");
    };
    if let (OnFailure::Stop, Some(why)) = (config.on_failure, shapes.stop) {
        return refuse(
            "support [shape] on_failure = \"stop\"",
            why,
            "use \"nfqueue\"",
        );
    }
    if let (None, Some(why)) = (&config.outside, shapes.one_side) {
        return refuse("shape one side", why, "name [shape] outside");
    }
    let cannot = shapes.impair.filter(|_| impaired.some);
    if let Some(cannot) = cannot.or_else(|| shapes.change.filter(|_| impaired.changes)) {
        return refuse(cannot.what, cannot.why, cannot.remedy);
    }
    let frames = config.lines.framing != Framing::default();
    if let Some(cannot) = shapes.framing.filter(|_| frames) {
        return refuse(cannot.what, cannot.why, cannot.remedy);
    }
    let splits = config.lines.diffserv != Diffserv::BestEffort;
    let filters = config.lines.ack_filter;
    let cannot = shapes.tins.filter(|_| splits);
    if let Some(cannot) = cannot.or_else(|| shapes.ack_filter.filter(|_| filters)) {
        return refuse(cannot.what, cannot.why, cannot.remedy);
    }
    let in_process = "use \"nfqueue\" or \"afxdp\"";
    let (customs, most) = (&config.lines.customs, shapes.customs);
    if let (Some(own), 0) = (customs.first(), most) {
        let why = "it has no scheduler of Fairpath";
        return refuse(
            &format!("run policy {}", own.file),
            why,
            "use \"qdisc\", \"nfqueue\" or \"afxdp\"",
        );
    }
    if customs.len() > most {
        let what = format!("run {} custom policies", customs.len());
        return refuse(&what, &format!("it has places for {most}"), in_process);
    }
    match (&config.record, shapes.record) {
        (Some(_), Some(why)) => refuse("record", why, in_process),
        _ => Ok(()),
    }
}

/// The back end of this configuration. `impaired` are the impairments of its links.
///
/// Without [shape] via, the first that supports the configuration: the BPF qdisc, which continues
/// without the daemon; HTB with leaves of low latency, where it is fair; NFQUEUE, also for custom policies, recording
/// and `on_failure = "stop"`. AF_XDP bypasses netfilter and conntrack, so it must be configured.
pub fn choose(config: &ShapeConfig, classes: &ClassSet, impaired: Impaired) -> Choice {
    let chosen = |via, reason: String| Choice {
        reason,
        ..traits(via)
    };
    if let Some(via) = config.via {
        return chosen(via, "configured".to_owned());
    }
    if impaired.some {
        let text = "impairments apply to packets as on the wire, and back ends in the kernel receive GSO packets";
        return chosen(Via::Nfqueue, text.to_owned());
    }
    if config.on_failure == OnFailure::Stop {
        let text = "on_failure = \"stop\" needs a process that carries packets";
        return chosen(Via::Nfqueue, text.to_owned());
    }
    if config.record.is_some() {
        let text = "only a scheduler in this process can be recorded";
        return chosen(Via::Nfqueue, text.to_owned());
    }
    if fairpath_bpf::probe::bpf_qdisc().is_ok() {
        return chosen(Via::Qdisc, "this kernel has BPF qdiscs".to_owned());
    }
    let none = "this kernel has no BPF qdiscs (CONFIG_NET_SCH_BPF, Linux 6.16)";
    if config.lines.framing != Framing::default() {
        let text = format!("{none}, and HTB does not count the overhead of GSO packets");
        return chosen(Via::Nfqueue, text);
    }
    if config.lines.diffserv != Diffserv::BestEffort {
        let text = format!("{none}, and HTB does not split classes by DSCP");
        return chosen(Via::Nfqueue, text);
    }
    if config.lines.ack_filter {
        return chosen(
            Via::Nfqueue,
            format!("{none}, and HTB does not filter ACKs"),
        );
    }
    let plain = config.lines.tree.is_none() && config.lines.set.is_empty();
    if !plain || config.lines.policy != "fq_codel" {
        let text = format!("{none}, and HTB does not support the configured policies");
        return chosen(Via::Nfqueue, text);
    }
    let leaf = match best_leaf(classes.classes().len()) {
        Ok(Some(leaf)) => leaf,
        Ok(None) => {
            let text = format!("{none}, nor HTB with FQ-CoDel or CAKE as leaves");
            return chosen(Via::Nfqueue, text);
        }
        Err(error) => {
            let text = format!("{none}, and the search for HTB with its leaves failed: {error}");
            return chosen(Via::Nfqueue, text);
        }
    };
    let unseen = |class: &fairpath_class::Class| {
        let mut criteria = class.criteria.iter();
        criteria.any(|criterion| matches!(criterion.whom(), Whom::Link(_)))
    };
    if let Some(class) = classes.classes().iter().find(|class| unseen(class)) {
        let text = format!(
            "{none}, and class {:?} has criteria that NFQUEUE does not support",
            class.name
        );
        return chosen(Via::Kernel, text);
    }
    // CAKE splits GSO packets.
    if let Some(bps) = unfair_to_gso_bps(config, classes).filter(|_| leaf != LeafKind::Cake) {
        let text = format!(
            "{none}, and HTB with {leaf} gives GSO packets more than their share of {}",
            written(bps, "bps")
        );
        return chosen(Via::Nfqueue, text);
    }
    chosen(
        Via::Kernel,
        format!("{none}, but HTB with {leaf} as leaves"),
    )
}

/// The lowest rate that classes share where HTB would be unfair to those without GSO packets.
fn unfair_to_gso_bps(config: &ShapeConfig, classes: &ClassSet) -> Option<u64> {
    let classes = classes.classes();
    let Both { down, up } = config.lines.bps;
    let links = [down, up].into_iter().filter(|_| !classes.is_empty());
    let parents = classes.iter().filter_map(|class| class.parent);
    let shared = parents.flat_map(|parent| {
        [&classes[parent].down, &classes[parent].up].map(|rates| rates.ceil_bps)
    });
    let rates = links.chain(shared.flatten());
    rates.filter(|bps| *bps != 0 && !is_fair_to_gso(*bps)).min()
}

/// The best leaf for this number of classes, if this kernel has HTB and one that limits delay.
fn best_leaf(classes: usize) -> Result<Option<LeafKind>, NetlinkError> {
    let mut tc = Tc::open()?;
    if !tc.supports("htb")? {
        return Ok(None);
    }
    // With those of classes without one.
    let cake = 2 * classes < CAKE_LEAVES && tc.supports("cake")?;
    Ok(match cake {
        true => Some(LeafKind::Cake),
        false => tc.supports("fq_codel")?.then_some(LeafKind::FqCodel),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configured() -> ShapeConfig {
        ShapeConfig {
            inside: "eth0".into(),
            outside: None,
            vlans: None,
            via: None,
            mode: None,
            workers: None,
            lines: fairpath_shape::Settings::default(),
            queue: 40,
            on_failure: OnFailure::Pass,
            on_bypass: crate::OnBypass::End,
            record: None,
            start: true,
        }
    }

    #[test]
    fn impairments_choose_a_back_end_without_gso_packets() {
        let config = configured();
        let impaired = Impaired {
            some: true,
            changes: false,
        };
        let choice = choose(&config, &ClassSet::default(), impaired);
        assert_eq!(choice.via, Via::Nfqueue);
        assert!(choice.reason.contains("on the wire"), "{}", choice.reason);
        takes(choice.via, &config, impaired).unwrap();
    }

    #[test]
    fn slow_shared_rates_are_unfair_to_gso() {
        let site = |rate: &str| {
            let csv = format!(
                "name,parent,prefix,down\nsite,,10.1.0.0/16,{rate}\na,site,10.1.0.1/32,10mbit\n"
            );
            let mut drafts = fairpath_class::Drafts::new();
            drafts.read_file("classes.csv", csv.as_bytes());
            fairpath_class::ClassSet::build(drafts, fairpath_class::Uplinks::Unknown)
                .set
                .unwrap()
        };
        let config = |bps| ShapeConfig {
            lines: fairpath_shape::Settings {
                bps: Both { down: bps, up: 0 },
                ..fairpath_shape::Settings::default()
            },
            ..configured()
        };
        let found = |bps, classes: &ClassSet| unfair_to_gso_bps(&config(bps), classes);
        assert_eq!(found(19_000_000, &ClassSet::default()), None);
        assert_eq!(found(19_000_000, &site("1gbit")), Some(19_000_000));
        assert_eq!(found(1_000_000_000, &site("1gbit")), None);
        assert_eq!(found(0, &site("100mbit")), Some(100_000_000));
    }
}
