//! Other functions at netfilter hooks (`nfnetlink_hook`, Linux 5.14, if built): BPF programs, IPVS,
//! modules.
//!
//! The other files of this module list chains, NAT and connection tracking, which are skipped here.

use netlink_sys::protocols::NETLINK_NETFILTER;

use super::nftables::NFGEN_LEN;
use super::{Stage, StageError, StageKind, absent};
use crate::connection::{Connection, NetlinkError, dumped};
use crate::message::{Request, attr_str};

const NFNL_MSG_HOOK_GET: u16 = 12 << 8;
const NFNLA_HOOK_HOOKNUM: u16 = 1;
const NFNLA_HOOK_FUNCTION_NAME: u16 = 4;
const NFNLA_HOOK_MODULE_NAME: u16 = 5;
const FAMILIES: [(u8, &str); 3] = [(2, "ip"), (10, "ip6"), (7, "bridge")];
const HOOKS: [(u32, &str); 3] = [(0, "prerouting"), (2, "forward"), (4, "postrouting")];
/// Functions (prefixes) that their rules represent, or that have no effect. Those of security
/// modules apply to local sockets of every host.
const KNOWN: [&str; 15] = [
    "apparmor_",
    "selinux_",
    "smack_",
    "nft_",
    "ipt_do_table",
    "ip6t_do_table",
    "iptable_",
    "ip6table_",
    "ipv4_conntrack_",
    "ipv6_conntrack_",
    "nf_confirm",
    "nf_nat_",
    "ipv4_confirm",
    "br_nf_",
    "ip_sabotage_in",
];

/// Unknown functions at the hooks of forwarded packets. None if the kernel cannot list them.
pub(super) fn others() -> Result<Vec<Stage>, StageError> {
    let mut found = Vec::new();
    for (family, family_name) in FAMILIES {
        for (hook, hook_name) in HOOKS {
            let functions = absent(functions(family, hook))?;
            let others = functions
                .into_iter()
                .filter(|(function, _)| !known(function));
            found.extend(others.map(|(function, module)| Stage {
                kind: StageKind::Netfilter,
                name: match module {
                    Some(module) => format!("{family_name} {hook_name} {function} [{module}]"),
                    None => format!("{family_name} {hook_name} {function}"),
                },
                interface: None,
            }));
        }
    }
    Ok(found)
}

fn known(function: &str) -> bool {
    function.contains("defrag") || KNOWN.iter().any(|known| function.starts_with(known))
}

fn functions(family: u8, hook: u32) -> Result<Vec<(String, Option<String>)>, NetlinkError> {
    let mut connection = Connection::open(NETLINK_NETFILTER)?;
    let mut header = [0; NFGEN_LEN];
    header[0] = family;
    let request = Request::new(NFNL_MSG_HOOK_GET, dumped(), &header)
        .attr(NFNLA_HOOK_HOOKNUM, &hook.to_be_bytes());
    connection.dump("list netfilter hooks", &request, |message| {
        let attributes = message.payload.get(NFGEN_LEN..)?;
        let function = attr_str(attributes, NFNLA_HOOK_FUNCTION_NAME)?;
        Some((function, attr_str(attributes, NFNLA_HOOK_MODULE_NAME)))
    })
}

#[cfg(test)]
mod tests {
    use super::known;

    #[test]
    fn unknown_hooks_are_listed_once() {
        for reported in [
            "nft_do_chain_inet",
            "ipt_do_table",
            "nf_nat_ipv4_out",
            "ipv4_conntrack_defrag",
        ] {
            assert!(known(reported), "{reported}");
        }
        for stranger in ["ip_vs_in_hook", "bpf_prog_50e5_drop"] {
            assert!(!known(stranger), "{stranger}");
        }
    }
}
