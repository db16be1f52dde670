//! The features, with the reason for each trial and the consequence of absence: the one place this is
//! written.
//!
//! Text output, JSON and `docs/kernel-support.md` all come from here.

use super::probes::{self, Probe};

/// One feature of the kernel, of the user or of the machine.
pub struct Feature {
    /// The name in JSON and in tests.
    pub id: &'static str,
    pub group: Group,
    /// The trial, in one phrase.
    pub tested_by: &'static str,
    pub used_for: &'static str,
    pub instead: &'static str,
    /// The remedy for the operator.
    pub remedy: &'static str,
    /// Capabilities without which the attempt, and its use, are refused.
    pub needs: &'static [&'static str],
    pub probe: Probe,
}

/// The headings of the report, in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    User,
    Bpf,
    Hooks,
    BackEnds,
    Qdiscs,
    Links,
    Tcp,
}

impl Group {
    pub const ALL: [Group; 7] = [
        Group::User,
        Group::Bpf,
        Group::Hooks,
        Group::BackEnds,
        Group::Qdiscs,
        Group::Links,
        Group::Tcp,
    ];

    pub fn title(self) -> &'static str {
        match self {
            Group::User => "User",
            Group::Bpf => "BPF",
            Group::Hooks => "Hooks",
            Group::BackEnds => "Back ends in user space",
            Group::Qdiscs => "Qdiscs and filters",
            Group::Links => "Link kinds",
            Group::Tcp => "TCP congestion control",
        }
    }
}

/// A part of Fairpath and the features it cannot do without.
pub struct Use {
    pub name: &'static str,
    pub what: &'static str,
    pub needs: &'static [&'static str],
}

/// The summary's lines.
pub const USES: [Use; 6] = [
    Use {
        name: "rtt",
        what: "latency, loss and throughput of live traffic",
        needs: &["bpf", "kernel_btf", "arena", "may_goto", "tcx"],
    },
    Use {
        name: "rules",
        what: "packet rules in the kernel",
        needs: &["bpf", "arena", "netfilter_bpf", "tcx"],
    },
    Use {
        name: "queues over AF_XDP",
        what: "scheduling in user space",
        needs: &["bpf", "bpf_link_xdp", "xdp_native", "af_xdp"],
    },
    Use {
        name: "queues in the kernel",
        what: "scheduling in a BPF qdisc",
        needs: &["bpf", "arena", "bpf_qdisc"],
    },
    Use {
        name: "queues over NFQUEUE",
        what: "scheduling of chosen packets",
        needs: &["nfqueue"],
    },
    Use {
        name: "kernel's own queues",
        what: "HTB, with CAKE or FQ-CoDel as leaves if there are any",
        needs: &["bpf", "kernel_btf", "arena", "tcx", "htb"],
    },
];

const BPF: &[&str] = &["CAP_BPF"];
const BPF_PERFMON: &[&str] = &["CAP_BPF", "CAP_PERFMON"];
const BPF_NET: &[&str] = &["CAP_BPF", "CAP_NET_ADMIN"];
const NET: &[&str] = &["CAP_NET_ADMIN"];
const RAW: &[&str] = &["CAP_NET_RAW"];
const ADMIN: &[&str] = &["CAP_SYS_ADMIN"];
const NOTHING: &[&str] = &[];

macro_rules! feature {
    ($id:literal, $group:ident, $needs:ident, $probe:expr,
     $tested_by:literal, $used_for:literal, $instead:literal, $remedy:literal) => {
        Feature {
            id: $id,
            group: Group::$group,
            tested_by: $tested_by,
            used_for: $used_for,
            instead: $instead,
            remedy: $remedy,
            needs: $needs,
            probe: $probe,
        }
    };
}

/// Every feature, grouped.
#[rustfmt::skip]
pub const FEATURES: &[Feature] = &[
    feature!("cap_bpf", User, NOTHING, Probe::Host(probes::cap_bpf),
        "reads the effective capabilities of this process",
        "loading every BPF program and map",
        "offline work: capture files and simulation need no capability",
        "run as root, or grant CAP_BPF to the service"),
    feature!("cap_perfmon", User, NOTHING, Probe::Host(probes::cap_perfmon),
        "reads the effective capabilities of this process",
        "arenas, and pointers in BPF programs",
        "nothing live; offline work needs no capability",
        "run as root, or grant CAP_PERFMON to the service"),
    feature!("cap_net_admin", User, NOTHING, Probe::Host(probes::cap_net_admin),
        "reads the effective capabilities of this process",
        "attaching to hooks, qdiscs and links",
        "nothing live; offline work needs no capability",
        "run as root, or grant CAP_NET_ADMIN to the service"),

    feature!("bpf", Bpf, BPF, Probe::Here(fairpath_bpf::probe::bpf),
        "loads a traffic-control program of two instructions",
        "everything on the live path",
        "offline work: capture files and simulation",
        "kernel with CONFIG_BPF_SYSCALL and CONFIG_BPF_JIT"),
    feature!("kernel_btf", Bpf, NOTHING, Probe::Here(fairpath_bpf::probe::kernel_btf),
        "reads and parses /sys/kernel/btf/vmlinux",
        "programs that fit the running kernel's structures",
        "nothing: programs that read kernel structures are not loaded",
        "kernel with CONFIG_DEBUG_INFO_BTF"),
    feature!("arena", Bpf, BPF_PERFMON, Probe::Here(fairpath_bpf::probe::arena),
        "creates an arena, has a program write to it and reads the value back",
        "tables, queues and events shared with user space",
        "nothing live; the same code runs natively on capture files",
        "Linux 6.12 or newer on a 64-bit processor with BPF JIT"),
    feature!("may_goto", Bpf, BPF, Probe::Here(fairpath_bpf::probe::may_goto),
        "loads a program whose loop is bounded by may_goto",
        "loops over rules, options and tables",
        "nothing: programs with loops are not loaded",
        "Linux 6.12 or newer"),
    feature!("prog_test_run_syscall", Bpf, BPF, Probe::Here(fairpath_bpf::probe::prog_test_run_syscall),
        "loads a SYSCALL program and runs it once",
        "tests that kernel and native code agree; schedulers without attaching",
        "the native runtime only",
        "Linux 6.12 or newer"),
    feature!("bpf_stats", Bpf, ADMIN, Probe::Here(fairpath_bpf::probe::bpf_stats),
        "turns run-time statistics on and off again (BPF_ENABLE_STATS)",
        "reporting the cost of programs",
        "cost is not reported",
        "Linux 6.12 or newer"),

    feature!("tcx", Hooks, BPF_NET, Probe::Scratch(probes::tcx),
        "attaches an empty program by a link to the ingress of a veth in a temporary namespace",
        "measuring at ingress and egress; rules",
        "nothing live at these hooks",
        "Linux 6.12 or newer with CONFIG_NET_XGRESS"),
    feature!("xdp_generic", Hooks, BPF_NET, Probe::Scratch(probes::xdp_generic),
        "attaches an empty program in generic mode to a veth in a temporary namespace",
        "links whose driver has no native XDP",
        "the stack: tcx and netfilter",
        "kernel with XDP"),
    feature!("xdp_native", Hooks, BPF_NET, Probe::Scratch(probes::xdp_native),
        "attaches an empty program in native mode to a veth in a temporary namespace",
        "early drop and AF_XDP; the section of each interface has the support of its driver",
        "generic mode, slower",
        "a driver with native XDP"),
    feature!("bpf_link_xdp", Hooks, BPF_NET, Probe::Scratch(probes::bpf_link_xdp),
        "attaches an empty XDP program by a link to a veth in a temporary namespace",
        "XDP programs that are detached when the process ends",
        "nothing: Fairpath attaches no XDP program that remains without it",
        "kernel with BPF links for XDP"),
    feature!("netfilter_bpf", Hooks, BPF_NET, Probe::Scratch(probes::netfilter_bpf),
        "attaches an empty program by a link to the IPv4 forward hook of a temporary namespace",
        "rules at the five netfilter hooks",
        "rules at tcx, without the hooks of local traffic",
        "kernel with CONFIG_NETFILTER_BPF_LINK"),
    feature!("bpf_qdisc", Hooks, BPF_PERFMON, Probe::Here(fairpath_bpf::probe::bpf_qdisc),
        "loads a struct_ops program for Qdisc_ops.reset; registers nothing",
        "scheduling in the kernel at egress",
        "the kernel's HTB, otherwise NFQUEUE; AF_XDP if configured",
        "kernel with CONFIG_NET_SCH_BPF (6.16 and newer may have it)"),
    feature!("bpf_tcp_cc", Hooks, BPF_PERFMON, Probe::Here(fairpath_bpf::probe::bpf_tcp_cc),
        "loads a struct_ops program for tcp_congestion_ops.ssthresh; registers nothing",
        "a congestion control after the draft of BBRv3 in `fairpath lab`",
        "the kernel's own: BBR, CUBIC, Reno",
        "kernel with CONFIG_BPF_JIT and CONFIG_DEBUG_INFO_BTF"),

    feature!("af_xdp", BackEnds, RAW, Probe::Scratch(probes::af_xdp),
        "binds a socket in copy mode, then in zero-copy mode, to a veth in a temporary namespace",
        "moving packets past the stack through queues in user space",
        "NFQUEUE, a BPF qdisc, or the kernel's HTB",
        "kernel with CONFIG_XDP_SOCKETS"),
    feature!("af_xdp_zero_copy", BackEnds, NOTHING, Probe::Drivers(probes::af_xdp_zero_copy),
        "queries the driver of each interface (netdev netlink family) without binding",
        "AF_XDP without copying each frame",
        "copy mode",
        "a network card whose driver has AF_XDP zero copy"),
    feature!("nfqueue", BackEnds, NET, Probe::Scratch(probes::nfqueue),
        "binds a packet queue in a temporary namespace",
        "scheduling packets of the stack in user space",
        "a BPF qdisc, the kernel's HTB, or AF_XDP",
        "modprobe nfnetlink_queue, or a kernel with CONFIG_NETFILTER_NETLINK_QUEUE"),

    feature!("fq_codel", Qdiscs, NET, Probe::Scratch(|s| probes::qdisc(s, "fq_codel")),
        "adds it to a link in a temporary namespace",
        "fair queues with short delay in the kernel's own shaper",
        "CAKE, otherwise NFQUEUE",
        "modprobe sch_fq_codel, or a kernel with CONFIG_NET_SCH_FQ_CODEL"),
    feature!("fq", Qdiscs, NET, Probe::Scratch(|s| probes::qdisc(s, "fq")),
        "adds it to a link in a temporary namespace",
        "delaying packets above a limit (`via = \"police\"`), and pacing test senders as a real host does",
        "such packets are dropped; TCP's internal pacing",
        "modprobe sch_fq, or a kernel with CONFIG_NET_SCH_FQ"),
    feature!("cake", Qdiscs, NET, Probe::Scratch(|s| probes::qdisc(s, "cake")),
        "adds it to a link in a temporary namespace",
        "leaves of the kernel's own shaper",
        "FQ-CoDel, otherwise NFQUEUE",
        "modprobe sch_cake, or a kernel with CONFIG_NET_SCH_CAKE"),
    feature!("htb", Qdiscs, NET, Probe::Scratch(|s| probes::qdisc(s, "htb")),
        "adds it to a link in a temporary namespace",
        "hierarchical rates with the kernel's own qdiscs",
        "a BPF qdisc, or NFQUEUE",
        "modprobe sch_htb, or a kernel with CONFIG_NET_SCH_HTB"),
    feature!("tbf", Qdiscs, NET, Probe::Scratch(|s| probes::qdisc(s, "tbf")),
        "adds it to a link in a temporary namespace",
        "one rate for a whole link in test set-ups",
        "HTB with a single class",
        "modprobe sch_tbf, or a kernel with CONFIG_NET_SCH_TBF"),
    feature!("netem", Qdiscs, NET, Probe::Scratch(|s| probes::qdisc(s, "netem")),
        "adds it to a link in a temporary namespace",
        "delay and loss in test set-ups",
        "delay and loss by a user-space relay",
        "modprobe sch_netem, or a kernel with CONFIG_NET_SCH_NETEM"),
    feature!("clsact", Qdiscs, NET, Probe::Scratch(probes::clsact),
        "adds it to a link in a temporary namespace",
        "detecting filters of other programs",
        "tcx, which needs no qdisc",
        "modprobe sch_ingress, or a kernel with CONFIG_NET_SCH_INGRESS"),
    feature!("flower", Qdiscs, NET, Probe::Scratch(probes::flower),
        "adds a filter for IPv4 at the ingress of a link in a temporary namespace",
        "comparison with, and later offload to, the kernel's own classifier",
        "BPF rules at tcx",
        "modprobe cls_flower, or a kernel with CONFIG_NET_CLS_FLOWER"),

    feature!("veth", Links, NET, Probe::Scratch(probes::veth),
        "creates a pair in a temporary namespace",
        "test set-ups",
        "nothing: tests that need links are skipped",
        "modprobe veth, or a kernel with CONFIG_VETH"),
    feature!("vlan", Links, NET, Probe::Scratch(probes::vlan),
        "creates VLAN 5 on a veth in a temporary namespace",
        "reporting and shaping per VLAN interface",
        "VLAN tags read at the link below",
        "modprobe 8021q, or a kernel with CONFIG_VLAN_8021Q"),
    feature!("bridge", Links, NET, Probe::Scratch(|s| probes::plain_link(s, "bridge")),
        "creates one in a temporary namespace",
        "transparent set-ups between two interfaces",
        "routing, or XDP redirect between the two",
        "modprobe bridge, or a kernel with CONFIG_BRIDGE"),
    feature!("ifb", Links, NET, Probe::Scratch(|s| probes::plain_link(s, "ifb")),
        "creates one in a temporary namespace",
        "shaping ingress with the kernel's own qdiscs",
        "shaping at the egress of the other interface",
        "modprobe ifb numifbs=0, or a kernel with CONFIG_IFB"),
    feature!("tun", Links, NET, Probe::Scratch(probes::tun),
        "creates a unit through /dev/net/tun in a temporary namespace",
        "links without an Ethernet header in tests",
        "veth",
        "modprobe tun, or a kernel with CONFIG_TUN"),
    feature!("ppp", Links, NET, Probe::Scratch(probes::ppp),
        "creates a unit through /dev/ppp in a temporary namespace",
        "one link per subscriber (PPPoE)",
        "measuring PPPoE on the Ethernet link below",
        "modprobe ppp_generic, or a kernel with CONFIG_PPP"),
    feature!("wireguard", Links, NET, Probe::Scratch(|s| probes::plain_link(s, "wireguard")),
        "creates one in a temporary namespace",
        "links between sites",
        "any other tunnel",
        "modprobe wireguard, or a kernel with CONFIG_WIREGUARD"),

    feature!("tcp_cubic", Tcp, NOTHING, Probe::Host(|h| probes::congestion(h, "cubic")),
        "sets it on a socket (TCP_CONGESTION)",
        "test traffic as most hosts send it",
        "reno",
        "modprobe tcp_cubic, or a kernel with CONFIG_TCP_CONG_CUBIC"),
    feature!("tcp_reno", Tcp, NOTHING, Probe::Host(|h| probes::congestion(h, "reno")),
        "sets it on a socket (TCP_CONGESTION)",
        "test traffic with textbook behaviour",
        "cubic",
        "part of every kernel; a container may forbid it"),
    feature!("tcp_bbr", Tcp, NOTHING, Probe::Host(|h| probes::congestion(h, "bbr")),
        "sets it on a socket (TCP_CONGESTION)",
        "test traffic that models the path",
        "cubic",
        "modprobe tcp_bbr, or a kernel with CONFIG_TCP_CONG_BBR"),
    feature!("tcp_dctcp", Tcp, NOTHING, Probe::Host(|h| probes::congestion(h, "dctcp")),
        "sets it on a socket (TCP_CONGESTION)",
        "test traffic that answers ECN marks in proportion",
        "cubic with ECN",
        "modprobe tcp_dctcp, or a kernel with CONFIG_TCP_CONG_DCTCP"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_uses_name_existing_ones() {
        let mut ids: Vec<&str> = FEATURES.iter().map(|f| f.id).collect();
        for needed in USES.iter().flat_map(|u| u.needs) {
            assert!(ids.contains(needed), "{needed} is not in the table");
        }
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count);
    }

    #[test]
    fn features_stand_in_the_order_of_their_groups() {
        let position = |group| Group::ALL.iter().position(|g| *g == group);
        assert!(FEATURES.is_sorted_by_key(|f| position(f.group)));
    }
}
