//! The requirements of a test, and the skip if one is missing.
//!
//! ```no_run
//! use fairpath_testbed::{Feature, Need, requires};
//!
//! fn shaping_holds_its_rate() {
//!     requires!(Need::Root, Need::Tool("iperf3"), Need::Kernel(Feature::Qdisc("tbf")));
//!     // …
//! }
//! ```
//!
//! A missing need prints `SKIP name: reason` to stderr, appends a line (`test`, `need`, `reason`, tabs between) to the file named by
//! `FAIRPATH_SKIP_LOG` (one `write` each, so parallel tests do not mix lines), and returns from the
//! test. The runner counts the lines: a skip is not a pass.

use std::env;
use std::fmt;

use nix::unistd::geteuid;

use crate::run::Testbed;

pub use fairpath_units::SKIP_LOG_ENV;
use fairpath_units::skip_test;

/// Something a test cannot do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The right to make namespaces.
    Root,
    /// A program in `PATH`.
    Tool(&'static str),
    /// A part of the kernel, found by trying it in a namespace.
    Kernel(Feature),
}

/// A part of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// A kind of link: `veth`, `bridge`, `vlan`, `ifb`.
    Link(&'static str),
    /// A queueing discipline that needs no options, or `tbf`.
    Qdisc(&'static str),
    /// A congestion control.
    CongestionControl(&'static str),
    /// TUN devices.
    Tun,
    /// Connection tracking and masquerading, by iptables-legacy.
    Masquerade,
}

impl fmt::Display for Need {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Need::Root => write!(out, "root"),
            Need::Tool(name) => write!(out, "the tool {name}"),
            Need::Kernel(Feature::Link(kind)) => write!(out, "a kernel with {kind} links"),
            Need::Kernel(Feature::Qdisc(kind)) => write!(out, "a kernel with qdisc {kind}"),
            Need::Kernel(Feature::CongestionControl(name)) => {
                write!(out, "a kernel with congestion control {name}")
            }
            Need::Kernel(Feature::Tun) => write!(out, "a kernel with TUN devices"),
            Need::Kernel(Feature::Masquerade) => {
                write!(out, "a kernel that masquerades, and iptables-legacy")
            }
        }
    }
}

impl Need {
    /// As the skip log has it: what the runner can check.
    fn id(&self) -> String {
        match self {
            Need::Root => "root".to_owned(),
            Need::Tool(name) => format!("command:{name}"),
            Need::Kernel(Feature::Link(id) | Feature::Qdisc(id)) => format!("feature:{id}"),
            Need::Kernel(Feature::CongestionControl(name)) => format!("feature:tcp_{name}"),
            Need::Kernel(Feature::Tun) => "feature:tun".to_owned(),
            // `fairpath features` has no line for it.
            Need::Kernel(Feature::Masquerade) => "a kernel that masquerades".to_owned(),
        }
    }

    /// True if it is there. Kernel features cost about 20 ms.
    pub fn is_met(&self) -> bool {
        match self {
            Need::Root => geteuid().is_root() && Testbed::new().netns("probe").is_ok(),
            Need::Tool(name) => in_path(name),
            Need::Kernel(feature) => feature.works().unwrap_or(false),
        }
    }
}

impl Feature {
    fn works(self) -> Option<bool> {
        let ns = Testbed::new().netns("probe").ok()?;
        let works = |argv: &[&str]| Some(ns.run(argv).is_ok());
        match self {
            Feature::Link("veth") => works(&[
                "ip", "link", "add", "name", "p0", "type", "veth", "peer", "name", "p1",
            ]),
            Feature::Link(kind @ ("vlan" | "macvlan")) => {
                ns.run(&[
                    "ip", "link", "add", "name", "p0", "type", "veth", "peer", "name", "p1",
                ])
                .ok()?;
                let id: &[&str] = if kind == "vlan" { &["id", "1"] } else { &[] };
                let add = [
                    "ip", "link", "add", "link", "p0", "name", "p2", "type", kind,
                ];
                works(&[&add[..], id].concat())
            }
            Feature::Link(kind) => works(&["ip", "link", "add", "name", "p0", "type", kind]),
            Feature::Qdisc("tbf") => works(&[
                "tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", "1mbit", "burst", "2000",
                "latency", "1ms",
            ]),
            Feature::Qdisc(kind) => works(&["tc", "qdisc", "add", "dev", "lo", "root", kind]),
            Feature::CongestionControl(name) => Some(ns.set_congestion_control(name).is_ok()),
            Feature::Masquerade => works(&[
                "iptables-legacy",
                "-t",
                "nat",
                "-A",
                "POSTROUTING",
                "-j",
                "MASQUERADE",
            ]),
            Feature::Tun => works(&["ip", "tuntap", "add", "name", "p0", "mode", "tun"]),
        }
    }
}

fn in_path(name: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|directory| directory.join(name).is_file())
}

/// The first need that is not met; later ones are not tried.
pub fn missing(needs: &[Need]) -> Option<Need> {
    needs.iter().copied().find(|need| !need.is_met())
}

/// Reports that the test `name` is skipped, because `need` is missing.
///
/// A log that cannot be written is reported on standard error.
pub fn skip(name: &str, need: Need) {
    skip_test(name, &need.id(), &format!("needs {need}"));
}

/// The function around a function item nested in it; [`requires!`](crate::requires) uses it for the test's name.
pub fn test_name<T>(_nested: T) -> &'static str {
    let name = std::any::type_name::<T>();
    name.rsplit_once("::").map_or(name, |(around, _)| around)
}

/// Returns from the calling test, with a printed and logged skip, unless all [`Need`]s are met.
#[macro_export]
macro_rules! requires {
    ($($need:expr),+ $(,)?) => {
        if let Some(need) = $crate::missing(&[$($need),+]) {
            fn nested() {}
            $crate::skip($crate::test_name(nested), need);
            return;
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_test_is_its_path() {
        fn nested() {}
        let expected = "fairpath_testbed::need::tests::the_name_of_a_test_is_its_path";
        assert_eq!(test_name(nested), expected);
    }

    #[test]
    fn a_missing_tool_is_found_missing() {
        let absent = Need::Tool("no-such-tool-of-fairpath");
        assert_eq!(missing(&[Need::Tool("sh"), absent]), Some(absent));
    }
}
