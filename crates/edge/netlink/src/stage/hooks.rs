//! Other functions at netfilter hooks (`nfnetlink_hook`, Linux 5.14, if built): IPVS, modules.
//!
//! The other files of this module list chains, NAT and connection tracking, and
//! `fairpath_bpf::netfilter_programs` lists BPF programs: all these are skipped here. A kernel without
//! `nfnetlink_hook` still shows the services of IPVS. Other modules of third parties are then unknown.

use netlink_sys::protocols::NETLINK_NETFILTER;

use super::nftables::NFGEN_LEN;
use super::{Stage, StageError, StageKind, absent, read};
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
const KNOWN: [&str; 16] = [
    "apparmor_",
    "selinux_",
    "smack_",
    "nf_hook_run_bpf",
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

/// Unknown functions at the hooks of forwarded packets; of a kernel that cannot list them, IPVS.
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
    if !found.iter().any(|stage| stage.name.contains("ip_vs")) {
        found.extend(read("/proc/net/ip_vs")?.and_then(|text| ipvs(&text)));
    }
    Ok(found)
}

/// IPVS, if its table has services: its functions are at the hooks then.
fn ipvs(table: &str) -> Option<Stage> {
    let is_service = |line: &&str| {
        let mut kinds = ["TCP ", "UDP ", "SCTP ", "FWM "].into_iter();
        kinds.any(|kind| line.starts_with(kind))
    };
    let services = table.lines().filter(is_service).count();
    (services > 0).then(|| Stage {
        kind: StageKind::Netfilter,
        name: format!("IPVS with {services} services; `ipvsadm -L` lists them"),
        interface: None,
    })
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
    use super::{ipvs, known};

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
        for stranger in ["ip_vs_in_hook", "their_hook"] {
            assert!(!known(stranger), "{stranger}");
        }
    }

    #[test]
    fn services_of_ipvs_are_a_stage() {
        let empty = "\
IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
";
        assert_eq!(ipvs(empty), None);
        let table = format!(
            "{empty}TCP  C0000201:0050 rr  \n  -> 0A0A0102:0050      Route   1      0          0         \n\
             UDP  [2001:0db8:0000:0000:0000:0000:0000:0001]:0035 rr  \nFWM  00000007 wlc \n"
        );
        let name = ipvs(&table).map(|stage| stage.name);
        assert_eq!(
            name.as_deref(),
            Some("IPVS with 3 services; `ipvsadm -L` lists them")
        );
    }
}
