//! Which port: what was named, or the best that this kernel can do, and why.

use super::Via;
use crate::run::ShapeConfig;

/// A port and what trees for it must be like.
pub struct Choice {
    /// The port.
    pub via: Via,
    /// Why, for people.
    pub reason: String,
    /// Packets can be marked (CE).
    pub marks: bool,
    /// What the stack sends by the same interfaces can only be charged.
    pub stack: bool,
}

/// What a port can do.
pub fn traits(via: Via) -> Choice {
    Choice {
        via,
        reason: String::new(),
        // A BPF qdisc may not write packets, NFQUEUE cannot write super-packets back.
        marks: matches!(via, Via::Afxdp | Via::Kernel),
        stack: via == Via::Afxdp,
    }
}

/// The port for this configuration.
///
/// Unless it is named: the BPF qdisc, which keeps everything in the kernel and works on when the
/// daemon is gone; else the kernel's own qdiscs, if they can do what is asked; else NFQUEUE. AF_XDP
/// takes packets past netfilter and conntrack, so it is only used where it is named.
pub fn choose(config: &ShapeConfig) -> Choice {
    let chosen = |via, reason: String| Choice {
        reason,
        ..traits(via)
    };
    if let Some(via) = config.via {
        return chosen(via, "named in the configuration".to_owned());
    }
    let no_qdisc = match fairpath_bpf::probe::bpf_qdisc() {
        Ok(()) => return chosen(Via::Qdisc, "this kernel has BPF qdiscs".to_owned()),
        Err(_) => "this kernel has no BPF qdiscs (CONFIG_NET_SCH_BPF, Linux 6.16)",
    };
    chosen(Via::Nfqueue, no_qdisc.to_owned())
}
