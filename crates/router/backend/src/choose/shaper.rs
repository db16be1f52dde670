//! The back end of shaping: the configured one, or the best of this kernel, with the reason.

use fairpath_class::{ClassSet, Whom};
use fairpath_core::sched::Framing;
use fairpath_netlink::{NetlinkError, Tc};
use fairpath_sched::tree::Diffserv;
use fairpath_shape::Impaired;

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
    if let Some(cannot) = shapes.tins.filter(|_| splits) {
        return refuse(cannot.what, cannot.why, cannot.remedy);
    }
    let in_process = "use \"nfqueue\" or \"afxdp\"";
    if let (Some(own), Some(why)) = (&config.lines.own, shapes.own_policy) {
        return refuse(&format!("run policy {}", own.file), why, in_process);
    }
    match (&config.record, shapes.record) {
        (Some(_), Some(why)) => refuse("record", why, in_process),
        _ => Ok(()),
    }
}

/// The back end of this configuration. `impaired` are the impairments of its links.
///
/// Without [shape] via, the first that supports the configuration: the BPF qdisc, which continues
/// without the daemon; HTB with leaves of low latency; NFQUEUE, also for custom policies, recording
/// and `on_failure = "stop"`. AF_XDP bypasses netfilter and conntrack, so it must be configured.
pub fn choose(config: &ShapeConfig, classes: &ClassSet, impaired: Impaired) -> Choice {
    let chosen = |via, reason: String| Choice {
        reason,
        ..traits(via)
    };
    if let Some(via) = config.via {
        return chosen(via, "configured".to_owned());
    }
    if let Some(own) = &config.lines.own {
        let text = format!(
            "policy {} runs in this process, not in the kernel",
            own.file
        );
        return chosen(Via::Nfqueue, text);
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
    let plain = config.lines.tree.is_none() && config.lines.set.is_empty();
    if !plain || config.lines.policy != "fq_codel" {
        let text = format!("{none}, and HTB does not support the configured policies");
        return chosen(Via::Nfqueue, text);
    }
    let leaves = has_aqm_leaves();
    if matches!(leaves, Ok(true)) {
        return chosen(
            Via::Kernel,
            format!("{none}, but HTB with FQ-CoDel or CAKE as leaves"),
        );
    }
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
    let leaves = match leaves {
        Ok(_) => "nor HTB with FQ-CoDel or CAKE as leaves".to_owned(),
        Err(error) => format!("and the search for HTB with FQ-CoDel or CAKE failed: {error}"),
    };
    chosen(Via::Nfqueue, format!("{none}, {leaves}"))
}

/// True if this kernel has HTB, and FQ-CoDel or CAKE for its leaves.
fn has_aqm_leaves() -> Result<bool, NetlinkError> {
    let mut tc = Tc::open()?;
    Ok(tc.supports("htb")? && (tc.supports("fq_codel")? || tc.supports("cake")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impairments_choose_a_back_end_without_gso_packets() {
        let config = ShapeConfig {
            inside: "eth0".into(),
            outside: None,
            vlans: None,
            via: None,
            mode: None,
            lines: fairpath_shape::Settings::default(),
            queue: 40,
            on_failure: OnFailure::Pass,
            on_bypass: crate::OnBypass::End,
            record: None,
            start: true,
        };
        let impaired = Impaired {
            some: true,
            changes: false,
        };
        let choice = choose(&config, &ClassSet::default(), impaired);
        assert_eq!(choice.via, Via::Nfqueue);
        assert!(choice.reason.contains("on the wire"), "{}", choice.reason);
        takes(choice.via, &config, impaired).unwrap();
    }
}
