//! The stages of a temporary namespace, created with the tools of operators.

use std::io::Write;
use std::net::UdpSocket;
use std::process::{Command, Stdio};

use super::*;
use crate::links::{Links, NewLink};
use crate::tc::Tc;
use crate::testing::in_scratch_namespace;

/// Runs a tool in the namespace of this thread; false if it is missing.
fn tool(words: &[&str], input: &str) -> bool {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).stdin(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        return false;
    };
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    assert!(child.wait().unwrap().success(), "{words:?}");
    true
}

fn in_device(name: &'static str, needs: &'static str, test: impl FnOnce(Device<'_>) + Send) {
    if Command::new(needs).arg("--version").output().is_err() {
        fairpath_units::skip_test(name, &format!("command:{needs}"), "the tool is missing");
        return;
    }
    in_scratch_namespace(name, || {
        let mut links = Links::open().unwrap();
        let veth = NewLink::Veth {
            name: "s0",
            peer: "s1",
        };
        links.create(veth).unwrap();
        let ifindex = links.by_name("s0").unwrap().unwrap().ifindex;
        let device = Device {
            ifindex,
            name: "s0",
        };
        assert_eq!(stages(&[device]).unwrap(), vec![], "nothing at first");
        test(device);
    });
}

fn shown(device: Device<'_>) -> Vec<String> {
    let found = stages(&[device]).unwrap();
    found.iter().map(ToString::to_string).collect()
}

#[test]
fn non_empty_nftables_chains_are_named() {
    let name = "non_empty_nftables_chains_are_named";
    in_device(name, "nft", |device| {
        let rules = "
            table inet filter {
                chain in { type filter hook input priority 0; policy drop; }
                chain empty { type filter hook forward priority 0; }
                chain shut { type filter hook forward priority 1; policy drop; }
                chain through { type filter hook prerouting priority 0; ip saddr 192.0.2.1 drop; }
                chain none { ip saddr 192.0.2.1 drop; }
            }
            table ip nat {
                chain out { type nat hook postrouting priority 100; oifname \"s0\" masquerade; }
            }
            table netdev early {
                chain here { type filter hook ingress device \"s0\" priority 0; drop; }
                chain there { type filter hook ingress device \"s1\" priority 0; drop; }
            }";
        assert!(tool(&["nft", "-f", "-"], rules));
        let mut found = shown(device);
        found.sort();
        let expected = [
            "NAT (nft ip nat out)",
            "netfilter (nft inet filter shut)",
            "netfilter (nft inet filter through)",
            "netfilter (nft netdev early here on \"s0\")",
        ];
        assert_eq!(found, expected);
    });
}

#[test]
fn non_empty_iptables_chains_are_named() {
    let name = "non_empty_iptables_chains_are_named";
    in_device(name, "iptables-legacy", |device| {
        let run = |line: &str| tool(&line.split(' ').collect::<Vec<_>>(), "");
        // Tables without a rule, and rules for this host only.
        run("iptables-legacy -t mangle -L -n");
        run("iptables-legacy -A INPUT -s 192.0.2.1 -j DROP");
        assert_eq!(shown(device), Vec::<String>::new());
        run("iptables-legacy -t nat -A POSTROUTING -o s0 -j MASQUERADE");
        run("iptables-legacy -P FORWARD DROP");
        run("ip6tables-legacy -A FORWARD -s 2001:db8::1 -j DROP");
        run("ip6tables-legacy -t raw -A PREROUTING -s 2001:db8::1 -j DROP");
        let mut found = shown(device);
        found.sort();
        let expected = [
            "NAT (iptables nat POSTROUTING)",
            "netfilter (ip6tables filter FORWARD)",
            "netfilter (ip6tables raw PREROUTING)",
            "netfilter (iptables filter FORWARD)",
        ];
        assert_eq!(found, expected);
    });
}

#[test]
fn tracked_connections_rules_filters_and_qdiscs_are_named() {
    let name = "tracked_connections_rules_filters_and_qdiscs_are_named";
    in_device(name, "nft", |device| {
        let run = |line: &str| tool(&line.split(' ').collect::<Vec<_>>(), "");
        run("ip link set lo up");
        run("ip rule add from 192.0.2.0/24 table 5 priority 100");
        run("ip -6 rule add from 2001:db8::/32 table 1000 priority 101");
        Tc::open().unwrap().add_root(device.ifindex, "tbf").unwrap();
        run("tc qdisc add dev s0 clsact");
        run("tc filter add dev s0 ingress protocol ip u32 match ip src 192.0.2.1 flowid 1:1");
        assert!(tool(
            &["nft", "-f", "-"],
            "table ip t { chain c { type filter hook output priority 0; ct state new accept; }; }",
        ));
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = socket.local_addr().unwrap();
        socket.send_to(&[1], to).unwrap();
        let expected = [
            "conntrack (1 connections tracked; without such rules, `conntrack -F` removes what is left)",
            "policy routing (ip rule 100 (table 5))",
            "policy routing (ip -6 rule 101 (table 1000))",
            "tc filter (ingress u32 on \"s0\")",
            "qdisc (tbf 1: on \"s0\")",
        ];
        assert_eq!(shown(device), expected);
    });
}

#[test]
fn ipsec_policies_of_forwarded_packets_are_named() {
    let name = "ipsec_policies_of_forwarded_packets_are_named";
    in_device(name, "ip", |device| {
        let run = |line: &str| assert!(tool(&line.split(' ').collect::<Vec<_>>(), ""), "{line}");
        // For packets to this host only.
        run("ip xfrm policy add src 192.0.2.0/24 dst 198.51.100.1/32 dir in action block");
        run("ip xfrm policy setdefault in block fwd accept out accept");
        assert_eq!(shown(device), Vec::<String>::new());
        run("ip xfrm policy add src 192.0.2.0/24 dst 198.51.100.0/25 dir fwd action block");
        run("ip xfrm policy add src 2001:db8::/32 dst ::/0 dir out action allow");
        run("ip xfrm policy setdefault in accept fwd block out accept");
        let mut found = shown(device);
        found.sort();
        let expected = [
            "IPsec policy (ip xfrm policy setdefault fwd block)",
            "IPsec policy (ip xfrm policy src 192.0.2.0/24 dst 198.51.100.0/25 dir fwd)",
            "IPsec policy (ip xfrm policy src 2001:db8::/32 dst ::/0 dir out)",
        ];
        assert_eq!(found, expected);
    });
}

#[test]
fn changes_of_stages_are_notified() {
    let name = "changes_of_stages_are_notified";
    in_device(name, "nft", |_| {
        let mut watch = StageWatch::open().unwrap();
        let run = |line: &str| tool(&line.split(' ').collect::<Vec<_>>(), "");
        for change in [
            "nft add table inet late",
            "nft delete table inet late",
            "ip rule add from 192.0.2.0/24 table 5 priority 100",
            "ip -6 rule add from 2001:db8::/32 table 1000 priority 101",
            "tc qdisc add dev s0 clsact",
            "ip link set dev s0 name s2",
            "ip xfrm policy add src 192.0.2.0/24 dst 198.51.100.0/24 dir fwd action block",
        ] {
            watch.take();
            run(change);
            assert!(watch.take(), "{change}");
        }
    });
}

#[test]
fn each_change_of_rules_has_another_version() {
    let name = "each_change_of_rules_has_another_version";
    in_device(name, "nft", |_| {
        let run = |line: &str| tool(&line.split(' ').collect::<Vec<_>>(), "");
        let mut versions = vec![rules_version().unwrap()];
        assert_eq!(rules_version().unwrap(), versions[0], "no change");
        for change in [
            "nft add table inet late",
            "nft flush ruleset",
            "iptables-legacy -t mangle -A POSTROUTING -j ACCEPT",
            "iptables-legacy -t mangle -F",
            "ip6tables-legacy -t mangle -N other",
        ] {
            if run(change) {
                let version = rules_version().unwrap();
                assert_ne!(Some(&version), versions.last(), "{change}");
                versions.push(version);
            }
        }
    });
}
