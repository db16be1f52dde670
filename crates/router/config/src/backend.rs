//! How shaped packets come and go, and what each way can do of what is asked for.

use clap::ValueEnum;
use fairpath_shape::Impaired;

use crate::Shape;

/// Whether a policy's name is that of an author's file.
pub fn is_own(policy: &str) -> bool {
    let extension = std::path::Path::new(policy).extension();
    extension.is_some_and(|extension| extension.eq_ignore_ascii_case("c"))
}

/// How packets come to the scheduler and go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Via {
    /// Fairpath's scheduler as the interface's queue in the kernel (Linux 6.16 with BPF qdiscs)
    Qdisc,
    /// Past the stack: an XDP program takes packets, this process sends them
    Afxdp,
    /// Netfilter hands packets to this process and takes them back
    Nfqueue,
    /// The kernel's own HTB, with fq_codel or CAKE at its leaves where there are any
    Kernel,
}

impl Via {
    /// As in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Via::Qdisc => "qdisc",
            Via::Afxdp => "afxdp",
            Via::Nfqueue => "nfqueue",
            Via::Kernel => "kernel",
        }
    }
}

/// What AF_XDP does with a packet that comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// To the other interface: both are ports of one bridge
    Bridge,
    /// Where the kernel's routes say
    Router,
}

/// What becomes of traffic when the daemon is gone without a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnFailure {
    /// It goes on: unshaped through the stack, or by the kernel's qdisc as it was told last
    Pass,
    /// It stops
    Stop,
}

fn refuse(via: Via, what: &str, why: &str, remedy: &str) -> Result<(), String> {
    Err(format!("via {} cannot {what}: {why}; {remedy}", via.name()))
}

/// Whether a port can do what is asked for; `impaired` is what its lines do on purpose.
///
/// # Errors
/// What it cannot, and what to do.
pub fn takes(via: Via, config: &Shape, impaired: Impaired) -> Result<(), String> {
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
        Via::Kernel => (
            "impair packets",
            "HTB and its leaves know nothing of it",
            "use \"nfqueue\", \"afxdp\" or \"qdisc\"",
        ),
    };
    refuse(via, what, why, remedy)
}
