//! The stages of the stack that packets pass, and that AF_XDP would bypass.
//!
//! ```text
//!            tc ingress --- prerouting --- routing --- forward --- postrouting --- tc egress --- qdisc
//! in --- XDP ---------------------- AF_XDP goes straight ------------------------------------------- out
//! ```
//!
//! [`stages`] lists those that have something to do: chains with rules or a policy other than
//! accept, NAT, connection tracking, policy routing, IPsec policies, filters and qdiscs of the interfaces. Empty
//! chains, which the firewall of every distribution leaves, are not listed. Chains for local
//! traffic only (input, output) are not listed either.
//!
//! Deliberately absent: other BPF programs at tcx, netfilter hooks and XDP (see
//! `fairpath_bpf::tcx_programs`, `netfilter_programs` and [`crate::Link::xdp`]), and `bridge-nf-call-iptables`, which sends bridged packets through the
//! chains listed here.

mod device;
mod hooks;
mod nftables;
mod routing;
mod version;
mod watch;
mod xfrm;
mod xtables;

use std::fmt;
use std::io;

use crate::connection::NetlinkError;
use crate::htb::Device;

pub use version::{RulesVersion, rules_version};
pub use watch::StageWatch;

/// A kind of stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StageKind {
    /// A chain of nftables or iptables, or anything else at a netfilter hook.
    Netfilter,
    /// A chain that translates addresses.
    Nat,
    /// Connections are tracked.
    Conntrack,
    /// A routing rule in addition to the three default ones.
    PolicyRouting,
    /// An IPsec policy for forwarded packets.
    Xfrm,
    /// A filter of tc at the interface.
    Filter,
    /// A root qdisc that is not the default.
    Qdisc,
}

impl StageKind {
    /// For messages: "NAT", "conntrack".
    pub fn name(self) -> &'static str {
        match self {
            StageKind::Netfilter => "netfilter",
            StageKind::Nat => "NAT",
            StageKind::Conntrack => "conntrack",
            StageKind::PolicyRouting => "policy routing",
            StageKind::Xfrm => "IPsec policy",
            StageKind::Filter => "tc filter",
            StageKind::Qdisc => "qdisc",
        }
    }
}

/// A stage that packets pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// Its kind.
    pub kind: StageKind,
    /// In the words of its tool: `nft inet filter forward`, `iptables nat POSTROUTING`, `rule 100
    /// (table 5)`.
    pub name: String,
    /// Its interface; `None` if it applies to the whole namespace.
    pub interface: Option<String>,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}", self.kind.name(), self.name)?;
        match &self.interface {
            Some(interface) => write!(f, " on \"{interface}\")"),
            None => f.write_str(")"),
        }
    }
}

/// The stages could not be listed.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// The kernel did not answer.
    #[error("list what packets pass in the stack")]
    Netlink(#[from] NetlinkError),
    /// A file of `/proc` could not be read.
    #[error("list what packets pass in the stack: read {path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// The cause.
        source: io::Error,
    },
    /// A table of iptables could not be read.
    #[error(
        "list what packets pass in the stack: read table \"{table}\" of {tool}: {source}; needs CAP_NET_ADMIN and CAP_NET_RAW"
    )]
    Table {
        /// The table.
        table: String,
        /// Its tool.
        tool: &'static str,
        /// The error of the kernel.
        source: io::Error,
    },
}

/// All stages for packets between these interfaces, in the calling thread's namespace.
///
/// Parts that this kernel lacks are no stages. Needs `CAP_NET_ADMIN`, and for iptables also
/// `CAP_NET_RAW`. O(chains, rules of iptables, routing rules, qdiscs).
///
/// # Errors
/// [`StageError`]: then the list is unknown, and nothing should be bypassed.
pub fn stages(devices: &[Device<'_>]) -> Result<Vec<Stage>, StageError> {
    let mut found = nftables::chains(devices)?;
    found.extend(xtables::chains()?);
    found.extend(hooks::others()?);
    found.extend(conntrack()?);
    found.extend(routing::rules()?);
    found.extend(xfrm::policies()?);
    found.extend(device::filters_and_roots(devices)?);
    found.sort_by_key(|stage| stage.kind);
    Ok(found)
}

/// IPsec policies of packets that are forwarded or sent, as `ip xfrm policy` prints them.
///
/// # Errors
/// The kernel does not list them.
pub fn ipsec_policies() -> Result<Vec<String>, StageError> {
    let policies = xfrm::policies()?;
    Ok(policies.into_iter().map(|stage| stage.name).collect())
}

/// Connections tracked now: a namespace without rules for it tracks none.
fn conntrack() -> Result<Option<Stage>, StageError> {
    let count = read("/proc/sys/net/netfilter/nf_conntrack_count")?;
    let tracked = count.as_deref().and_then(|text| text.trim().parse().ok());
    Ok(tracked.filter(|count: &u64| *count > 0).map(|count| Stage {
        kind: StageKind::Conntrack,
        // They outlive the rules that tracked them, up to 5 days.
        name: format!(
            "{count} connections tracked; without such rules, `conntrack -F` removes what is left"
        ),
        interface: None,
    }))
}

/// A file's text; `None` where the kernel has no such file.
fn read(path: &str) -> Result<Option<String>, StageError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(StageError::Read {
            path: path.to_owned(),
            source,
        }),
    }
}

/// Errors that mean that a netlink family is missing.
fn absent<T: Default>(answer: Result<T, NetlinkError>) -> Result<T, StageError> {
    match answer {
        Err(error)
            if matches!(
                error.errno(),
                Some(libc::EINVAL | libc::EOPNOTSUPP | libc::ENOENT | libc::EPROTONOSUPPORT)
            ) =>
        {
            Ok(T::default())
        }
        answer => Ok(answer?),
    }
}

#[cfg(test)]
mod tests;
