//! Which back end shapes: what was named, or the best that this kernel can do, and why.

use fairpath_class::ClassSet;
use fairpath_netlink::{NetlinkError, Tc};
use fairpath_shape::Impaired;

use super::{Choice, traits};
use crate::{OnFailure, ShapeConfig, Via};

fn refuse(via: Via, what: &str, why: &str, remedy: &str) -> Result<(), String> {
    Err(format!("via {} cannot {what}: {why}; {remedy}", via.name()))
}

/// Whether a port can do what is asked for; `impaired` is what its lines do on purpose.
///
/// # Errors
/// What it cannot, and what to do.
pub fn takes(via: Via, config: &ShapeConfig, impaired: Impaired) -> Result<(), String> {
    let refuse = |what: &str, why: &str, remedy: &str| refuse(via, what, why, remedy);
    if config.on_failure == OnFailure::Stop && via != Via::Nfqueue {
        let why = match via {
            Via::Afxdp => "the kernel forwards when this process is gone",
            _ => "the kernel goes on shaping when this process is gone",
        };
        return refuse("keep on_failure = \"stop\"", why, "use \"nfqueue\"");
    }
    if via == Via::Afxdp && config.outside.is_none() {
        let why = "it carries packets from one interface to another";
        return refuse("shape one side", why, "name [shape] outside");
    }
    impairs(via, impaired)?;
    if matches!(via, Via::Nfqueue | Via::Afxdp) {
        return Ok(());
    }
    let lanes = "use \"nfqueue\" or \"afxdp\"";
    if let Some(own) = &config.lines.own {
        let why = match via {
            Via::Kernel => "HTB and its leaves rank by themselves",
            _ => "the qdisc's program has shipped policies only",
        };
        return refuse(&format!("run policy {}", own.file), why, lanes);
    }
    match config.record {
        Some(_) => refuse("record", "its scheduler runs in the kernel", lanes),
        None => Ok(()),
    }
}

/// Whether a port can do this to packets.
fn impairs(via: Via, impaired: Impaired) -> Result<(), String> {
    if !impaired.some {
        return Ok(());
    }
    let (what, why, remedy) = match via {
        Via::Afxdp => return Ok(()),
        Via::Nfqueue | Via::Qdisc if !impaired.changes => return Ok(()),
        Via::Nfqueue => (
            "duplicate or corrupt packets",
            "it hands packets back as they came",
            "use \"afxdp\"",
        ),
        Via::Qdisc => (
            "duplicate or corrupt packets",
            "a BPF qdisc may neither copy nor write them",
            "use \"afxdp\"",
        ),
        Via::Kernel | Via::Xdp => (
            "impair packets",
            "HTB and its leaves know nothing of it",
            "use \"nfqueue\", \"afxdp\" or \"qdisc\"",
        ),
    };
    refuse(via, what, why, remedy)
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
        use fairpath_class::Criterion::{Mac, Vlan};
        let mut criteria = class.criteria.iter();
        criteria.any(|criterion| matches!(criterion, Mac(_) | Vlan(_)))
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
