//! The names of back ends, modes and treatments of a failure.

use std::sync::LazyLock;

use clap::ValueEnum;
use clap::builder::PossibleValue;

use crate::description::Description;

/// Registers back ends: each line has a name for code and the back end's [`Description`].
macro_rules! back_ends {
    ($($via:ident: $description:path,)*) => {
        /// The back end: how packets reach the scheduler and leave it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Via {
            $(#[doc = concat!("`", stringify!($description), "`.")] $via,)*
        }

        impl Via {
            /// All of them, in the order of help texts.
            pub const ALL: &[Via] = &[$(Via::$via),*];

            /// Its description.
            pub fn description(self) -> &'static Description {
                match self {
                    $(Via::$via => &$description,)*
                }
            }
        }
    };
}

back_ends! {
    Qdisc: crate::qdisc::DESCRIPTION,
    Xdp: crate::xdp::DESCRIPTION,
    Afxdp: crate::afxdp::DESCRIPTION,
    Nfqueue: crate::nfqueue::DESCRIPTION,
    Kernel: crate::htb::DESCRIPTION,
    Police: crate::police::DESCRIPTION,
}

impl Via {
    /// Name in the configuration and on the command line.
    pub fn name(self) -> &'static str {
        self.description().name
    }

    fn possible_value(self) -> PossibleValue {
        PossibleValue::new(self.name()).help(self.description().help)
    }
}

/// A back end that shapes, as configuration and command line name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShapeVia(pub Via);

impl ValueEnum for ShapeVia {
    fn value_variants<'a>() -> &'a [ShapeVia] {
        static ALL: LazyLock<Vec<ShapeVia>> = LazyLock::new(|| {
            let all = Via::ALL.iter().copied();
            let shaping = all.filter(|via| via.description().shapes.is_some());
            shaping.map(ShapeVia).collect()
        });
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(self.0.possible_value())
    }
}

/// A back end that impairs, as the command line names it; none is "auto".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImpairVia(pub Option<Via>);

impl ValueEnum for ImpairVia {
    fn value_variants<'a>() -> &'a [ImpairVia] {
        static ALL: LazyLock<Vec<ImpairVia>> = LazyLock::new(|| {
            let all = Via::ALL.iter().copied();
            let impairing = all.filter(|via| via.description().impairs.is_some());
            let named = impairing.map(|via| ImpairVia(Some(via)));
            std::iter::once(ImpairVia(None)).chain(named).collect()
        });
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        const AUTO: &str = "XDP for loss only, AF_XDP between two interfaces, NFQUEUE otherwise; printed with the reason";
        match self.0 {
            Some(via) => Some(via.possible_value()),
            None => Some(PossibleValue::new("auto").help(AUTO)),
        }
    }
}

/// Forwarding by AF_XDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// To the other interface; both are ports of one bridge
    Bridge,
    /// By the routes of the kernel
    Router,
}

/// Treatment of traffic after a failure of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnFailure {
    /// Traffic continues: without shaping, or by the qdisc of the kernel as configured last
    Pass,
    /// Traffic stops
    Stop,
}

/// The replacement of AF_XDP where packets would bypass functions of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnBypass {
    /// The kernel forwards, without shaping
    End,
    /// NFQUEUE shapes, until shaping starts again
    Nfqueue,
}

#[cfg(test)]
mod tests {
    /// The example of CONTRIBUTING.md: a back end is a `DESCRIPTION`, and a line of `back_ends!`.
    mod example {
        use crate::description::{Description, Shapes, always_ready};

        static DESCRIPTION: Description = Description {
            name: "example",
            help: "Made by a test",
            marks: false,
            stack: false,
            shapes: Some(Shapes {
                start: |_, _, _| anyhow::bail!("an example shapes nothing"),
                is_ready: always_ready,
                stop: None,
                one_side: None,
                customs: 0,
                record: None,
                framing: None,
                tins: None,
                ack_filter: None,
                impair: None,
                change: None,
                vlans: false,
                forwards: false,
                pins: false,
                grows: false,
                keeps_gso: false,
                separate: false,
            }),
            impairs: None,
        };

        back_ends! {
            Qdisc: crate::qdisc::DESCRIPTION,
            Example: self::DESCRIPTION,
        }

        #[test]
        fn back_end_is_a_description_and_a_line() {
            let names = Via::ALL.iter().map(|via| via.description().name);
            assert_eq!(names.collect::<Vec<_>>(), ["qdisc", "example"]);
            assert!(Via::Example.description().shapes.is_some());
        }
    }
}
