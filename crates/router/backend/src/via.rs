//! The names of back ends, of modes, and of what happens when the process is gone.

use clap::ValueEnum;
use clap::builder::PossibleValue;

/// How packets come to the scheduler and go on: the back end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Via {
    /// Fairpath's scheduler as the interface's queue in the kernel (Linux 6.16 with BPF qdiscs)
    Qdisc,
    /// Loss only, where packets arrive; nothing in user space
    Xdp,
    /// Past the stack: an XDP program takes packets, this process sends them
    Afxdp,
    /// Netfilter hands packets to this process and takes them back
    Nfqueue,
    /// The kernel's own HTB, with fq_codel or CAKE at its leaves where there are any
    Kernel,
}

impl Via {
    /// As in the configuration and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Via::Qdisc => "qdisc",
            Via::Xdp => "xdp",
            Via::Afxdp => "afxdp",
            Via::Nfqueue => "nfqueue",
            Via::Kernel => "kernel",
        }
    }
}

/// A back end that shapes, as configuration and command line name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShapeVia(pub Via);

impl ValueEnum for ShapeVia {
    fn value_variants<'a>() -> &'a [ShapeVia] {
        &[
            ShapeVia(Via::Qdisc),
            ShapeVia(Via::Afxdp),
            ShapeVia(Via::Nfqueue),
            ShapeVia(Via::Kernel),
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        self.0.to_possible_value()
    }
}

/// A back end that impairs, as the command line names it; none is "auto".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImpairVia(pub Option<Via>);

impl ValueEnum for ImpairVia {
    fn value_variants<'a>() -> &'a [ImpairVia] {
        &[
            ImpairVia(None),
            ImpairVia(Some(Via::Xdp)),
            ImpairVia(Some(Via::Afxdp)),
            ImpairVia(Some(Via::Nfqueue)),
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        const AUTO: &str = "XDP for loss alone, AF_XDP between two interfaces, NFQUEUE otherwise; told with its reason";
        match self.0 {
            Some(via) => via.to_possible_value(),
            None => Some(PossibleValue::new("auto").help(AUTO)),
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
