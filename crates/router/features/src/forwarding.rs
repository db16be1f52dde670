//! The stages of the kernel's forwarding path, and what AF_XDP does at each as a router.

/// The treatment of packets that AF_XDP carries, at one stage of the kernel.
pub struct ForwardingStage {
    /// The stage, in the kernel's words.
    pub stage: &'static str,
    /// The decision of the core or the back end.
    pub decision: Decision,
    /// The method.
    pub how: &'static str,
    /// Tests, with the kernel as the oracle where it decides; empty for a documented difference.
    pub proof: &'static [&'static str],
}

/// The decision at a stage.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The core does the same.
    Done,
    /// The stack gets the packets that need it.
    Stack,
    /// The back end does not start, and names the stage.
    Refused,
    /// A difference for readers to know.
    Documented,
}

impl Decision {
    /// For the table.
    pub fn name(self) -> &'static str {
        match self {
            Decision::Done => "done",
            Decision::Stack => "to the stack",
            Decision::Refused => "refused",
            Decision::Documented => "documented",
        }
    }
}

const UNUSUAL: &[&str] = &["unusual_frames_pass_to_the_stack_unchanged"];
const ANSWERED: &[&str] = &[
    "unusual_frames_pass_to_the_stack_unchanged",
    "packets_for_the_stack_are_answered",
];
const NFTABLES: &[&str] = &["non_empty_nftables_chains_are_named"];
const IPTABLES: &[&str] = &[
    "non_empty_nftables_chains_are_named",
    "non_empty_iptables_chains_are_named",
];
const TRACKED: &[&str] = &["tracked_connections_rules_filters_and_qdiscs_are_named"];
const FILTERS: &[&str] = &[
    "tracked_connections_rules_filters_and_qdiscs_are_named",
    "programs_at_tcx_are_never_bypassed",
];
const CAPTURES: &[&str] = &["captures_on_the_router_miss_carried_packets"];
const SENDERS: &[&str] = &[
    "spoofed_senders_pass_only_as_in_the_kernel",
    "rp_filter_is_followed_while_afxdp_runs",
];

const fn row(
    stage: &'static str,
    decision: Decision,
    how: &'static str,
    proof: &'static [&'static str],
) -> ForwardingStage {
    ForwardingStage {
        stage,
        decision,
        how,
        proof,
    }
}

/// In the order of a packet.
pub static FORWARDING: [ForwardingStage; 30] = {
    use Decision::{Documented, Done, Refused, Stack};
    [
        row(
            "packet sockets (tcpdump) at ingress",
            Documented,
            "they do not see these packets; a capture on the other side of the link does",
            CAPTURES,
        ),
        row(
            "tc filters and programs at ingress",
            Refused,
            "any filter, and any tcx program of another owner",
            FILTERS,
        ),
        row(
            "netfilter ingress",
            Refused,
            "a chain with rules, or with a policy that drops",
            NFTABLES,
        ),
        row(
            "destination MAC address",
            Stack,
            "groups, and other hosts' addresses",
            UNUSUAL,
        ),
        row(
            "VLANs",
            Stack,
            "tags other than the configured one",
            UNUSUAL,
        ),
        row(
            "IP header",
            Stack,
            "options, a wrong checksum, a length beyond the frame, hop-by-hop headers",
            UNUSUAL,
        ),
        row(
            "special addresses (RFC 1812 section 5.3.7, RFC 4291)",
            Stack,
            "0/8, 127/8, classes D and E, unspecified, loopback, link-local, groups",
            UNUSUAL,
        ),
        row(
            "netfilter prerouting, raw",
            Refused,
            "a chain with rules, or with a policy that drops",
            IPTABLES,
        ),
        row(
            "connection tracking, defragmentation",
            Refused,
            "any tracked connection",
            TRACKED,
        ),
        row("address translation", Refused, "a chain of NAT", IPTABLES),
        row(
            "routing rules, VRF",
            Refused,
            "a rule in addition to the three default ones",
            TRACKED,
        ),
        row(
            "route lookup",
            Done,
            "`bpf_fib_lookup`; local, broadcast and missing routes go to the stack",
            ANSWERED,
        ),
        row(
            "several next hops of a route",
            Documented,
            "the hash has no ports, so `fib_multipath_hash_policy` 1 may select another next hop than the kernel; each destination has one",
            &["several_next_hops_are_chosen_without_ports"],
        ),
        row(
            "source check of IPv4 (`rp_filter`, addresses of this host)",
            Done,
            "a second lookup; a packet without proof goes to the stack",
            SENDERS,
        ),
        row(
            "unreachable, prohibit, blackhole",
            Stack,
            "the stack drops and answers",
            UNUSUAL,
        ),
        row(
            "sysctl `forwarding`",
            Stack,
            "of the ingress interface",
            UNUSUAL,
        ),
        row(
            "IPsec policies (XFRM)",
            Refused,
            "directions `fwd` and `out`, and a default that blocks",
            &["ipsec_policies_of_forwarded_packets_are_named"],
        ),
        row(
            "TTL and hop limit",
            Done,
            "decremented; the last one goes to the stack, which answers",
            ANSWERED,
        ),
        row(
            "MTU, fragmentation, ICMP too big",
            Stack,
            "by interface and by route",
            ANSWERED,
        ),
        row(
            "ICMP redirect",
            Documented,
            "none is sent for a packet that leaves by its ingress interface",
            &["afxdp_sends_no_icmp_redirects"],
        ),
        row(
            "netfilter forward and postrouting",
            Refused,
            "a chain with rules, or with a policy that drops",
            IPTABLES,
        ),
        row(
            "flowtables of nftables",
            Refused,
            "the rule that adds flows is in a forward chain, and their connections are tracked",
            NFTABLES,
        ),
        row(
            "BPF programs at netfilter hooks",
            Refused,
            "any, at the hooks of forwarded packets; found at most 250 ms later",
            &["programs_at_netfilter_hooks_are_never_bypassed"],
        ),
        row(
            "IPVS",
            Refused,
            "any service; found at most 250 ms later",
            &["services_of_ipvs_are_a_stage"],
        ),
        row(
            "functions of other modules at netfilter hooks",
            Refused,
            "any unknown one, where the kernel lists them (`nfnetlink_hook`); other kernels do not report them",
            &["unknown_hooks_are_listed_once"],
        ),
        row(
            "tunnels of a route (lwtunnel)",
            Stack,
            "`bpf_fib_lookup` reports them",
            &["every_fib_answer_agrees_with_the_oracle"],
        ),
        row(
            "neighbour",
            Done,
            "an unknown one goes to the stack, which resolves it",
            ANSWERED,
        ),
        row(
            "tc filters and programs at egress, root qdisc",
            Refused,
            "a filter, a tcx program of another owner, or a qdisc other than the default",
            FILTERS,
        ),
        row(
            "packet sockets (tcpdump) at egress",
            Documented,
            "as at ingress",
            CAPTURES,
        ),
        row(
            "counters of `nstat` (IpForwDatagrams)",
            Documented,
            "they count packets of the stack only",
            &["nstat_counts_packets_of_the_stack_only"],
        ),
    ]
};
