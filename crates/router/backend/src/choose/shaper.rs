//! Which back end shapes: what was named, or the best that this kernel can do, and why.

use fairpath_class::{ClassSet, Whom};
use fairpath_netlink::{NetlinkError, Tc};
use fairpath_shape::Impaired;

use super::{Choice, traits};
use crate::{OnFailure, ShapeConfig, Via};

/// Why a back end without [`crate::Shapes`] cannot shape.
pub const HOLDS_NONE: &str = "it holds no packets";

fn refuse(via: Via, what: &str, why: &str, remedy: &str) -> Result<(), String> {
    Err(format!("via {} cannot {what}: {why}; {remedy}", via.name()))
}

/// Whether a port can do what is asked for; `impaired` is what its lines do on purpose.
///
/// # Errors
/// What it cannot, and what to do.
pub fn takes(via: Via, config: &ShapeConfig, impaired: Impaired) -> Result<(), String> {
    let refuse = |what: &str, why: &str, remedy: &str| refuse(via, what, why, remedy);
    let Some(shapes) = &via.description().shapes else {
        return refuse("shape", HOLDS_NONE, "leave [shape] via out");
    };
    if let (OnFailure::Stop, Some(why)) = (config.on_failure, shapes.stop) {
        return refuse("keep on_failure = \"stop\"", why, "use \"nfqueue\"");
    }
    if let (None, Some(why)) = (&config.outside, shapes.one_side) {
        return refuse("shape one side", why, "name [shape] outside");
    }
    let cannot = shapes.impair.filter(|_| impaired.some);
    if let Some(cannot) = cannot.or_else(|| shapes.change.filter(|_| impaired.changes)) {
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

/// The port for this configuration; `impaired` is what its lines do on purpose.
///
/// Unless it is named: the BPF qdisc, which keeps everything in the kernel and works on when the
/// daemon is gone; else the kernel's own qdiscs, where they can do what is asked and have leaves that
/// keep latency low; else NFQUEUE, as for an author's policy, for recording, and where traffic is to
/// stop with the process. AF_XDP takes packets past netfilter and conntrack, so it is only used where it is named.
pub fn choose(config: &ShapeConfig, classes: &ClassSet, impaired: Impaired) -> Choice {
    let chosen = |via, reason: String| Choice {
        reason,
        ..traits(via)
    };
    if let Some(via) = config.via {
        return chosen(via, "named in the configuration".to_owned());
    }
    if let Some(own) = &config.lines.own {
        let text = format!(
            "policy {} runs in this process, not in the kernel",
            own.file
        );
        return chosen(Via::Nfqueue, text);
    }
    if impaired.some {
        let text = "packets are impaired as they are on the wire, where the kernel's ports may have many as one";
        return chosen(Via::Nfqueue, text.to_owned());
    }
    if config.on_failure == OnFailure::Stop {
        let text = "traffic is to stop where this process is gone";
        return chosen(Via::Nfqueue, text.to_owned());
    }
    if config.record.is_some() {
        let text = "what is scheduled in this process can be recorded";
        return chosen(Via::Nfqueue, text.to_owned());
    }
    if fairpath_bpf::probe::bpf_qdisc().is_ok() {
        return chosen(Via::Qdisc, "this kernel has BPF qdiscs".to_owned());
    }
    let none = "this kernel has no BPF qdiscs (CONFIG_NET_SCH_BPF, Linux 6.16)";
    let plain = config.lines.tree.is_none() && config.lines.set.is_empty();
    if !plain || config.lines.policy != "fq_codel" {
        let text = format!("{none}, and its own cannot have the policies that are asked for");
        return chosen(Via::Nfqueue, text);
    }
    let leaves = has_aqm_leaves();
    if matches!(leaves, Ok(true)) {
        return chosen(
            Via::Kernel,
            format!("{none}, but FQ-CoDel or CAKE for the leaves of HTB"),
        );
    }
    let unseen = |class: &fairpath_class::Class| {
        let mut criteria = class.criteria.iter();
        criteria.any(|criterion| matches!(criterion.whom(), Whom::Link(_)))
    };
    if let Some(class) = classes.classes().iter().find(|class| unseen(class)) {
        let text = format!(
            "{none}, and class {:?} is told by what NFQUEUE does not see",
            class.name
        );
        return chosen(Via::Kernel, text);
    }
    let leaves = match leaves {
        Ok(_) => "nor HTB with FQ-CoDel or CAKE for its leaves".to_owned(),
        Err(error) => format!("and whether it has HTB with FQ-CoDel or CAKE is not known: {error}"),
    };
    chosen(Via::Nfqueue, format!("{none}, {leaves}"))
}

/// Whether this kernel has HTB, and qdiscs for its leaves that keep latency low.
fn has_aqm_leaves() -> Result<bool, NetlinkError> {
    let mut tc = Tc::open()?;
    Ok(tc.knows("htb")? && (tc.knows("fq_codel")? || tc.knows("cake")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_impaired_comes_to_a_port_that_sees_packets_as_on_the_wire() {
        let config = ShapeConfig {
            inside: "eth0".into(),
            outside: None,
            vlans: None,
            via: None,
            mode: None,
            lines: fairpath_shape::Settings::default(),
            queue: 40,
            on_failure: OnFailure::Pass,
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
