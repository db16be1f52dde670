//! Rulesets in the save format of each tool, from a seed.
//!
//! Rules use the values of [`super::pools`]. Chains jump to later chains only, so there are no loops. Matches with memory
//! do not depend on time: `limit` refills after minutes, and `recent` has no seconds.
//!
//! Connections are as table raw sees them, before connection tracking.
//!
//! Deliberately absent: connections after it, and sets (`sets`).

use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

use fairpath_statistics::Random;

use super::legacy::Tool;
use fairpath_tests::oracle::packets::Toward;
use fairpath_tests::oracle::pools::{
    Focus, HOSTS4, HOSTS6, ICMP, ICMP6, MACS, NUMBERS, ODD4, ODD6, OPTIONS, OPTIONS6, PORTS, TOS,
    TTLS,
};

/// A generated ruleset.
#[derive(Clone, Debug)]
pub struct Ruleset {
    pub text: String,
    /// The frames that its counters describe.
    pub toward: Toward,
    /// Rules use connection tracking, for which the kernel joins fragments before any rule.
    pub tracked: bool,
}

/// The ruleset of this seed.
pub fn generate(tool: Tool, seed: u64) -> Ruleset {
    let mut random = Random::new(seed);
    let table = match (tool, random.below(10)) {
        (Tool::Arp, _) | (_, 9) => Table::Filter,
        (_, 0..6) => Table::Raw,
        _ => Table::Mangle,
    };
    let tracked = table == Table::Raw && random.one_in(4);
    let text = Generator {
        tool,
        table,
        tracked,
        focus: Focus::of(seed),
        random: &mut random,
    }
    .text();
    let toward = match (tool, table) {
        (Tool::V4 | Tool::V6, Table::Filter) => Toward::Input,
        _ => Toward::Ingress,
    };
    Ruleset {
        text,
        toward,
        tracked,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Table {
    Raw,
    Mangle,
    Filter,
}

impl Table {
    fn name(self) -> &'static str {
        match self {
            Table::Raw => "raw",
            Table::Mangle => "mangle",
            Table::Filter => "filter",
        }
    }

    fn base(self) -> &'static str {
        match self {
            Table::Raw | Table::Mangle => "PREROUTING",
            Table::Filter => "INPUT",
        }
    }
}

/// Rules of a few shapes in a long chain: more than those of a chain without lookups.
const LONG: u64 = 90;

const USER_CHAINS: [&str; 6] = ["a", "blocked", "c-3", "D", "e_", "last"];

/// The protocol that a rule requires, for matches that need it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Any,
    Negated,
    Tcp,
    Udp,
    UdpLite,
    Sctp,
    Dccp,
    Icmp,
    Ah,
    Esp,
    Other,
}

impl Protocol {
    fn has_ports(self) -> bool {
        use Protocol::{Dccp, Sctp, Tcp, Udp, UdpLite};
        matches!(self, Tcp | Udp | UdpLite | Sctp | Dccp)
    }
}

struct Generator<'a> {
    tool: Tool,
    table: Table,
    tracked: bool,
    focus: Focus,
    random: &'a mut Random,
}

impl Generator<'_> {
    fn text(&mut self) -> String {
        let users = &USER_CHAINS[..self.random.index(USER_CHAINS.len() + 1)];
        let base = self.table.base();
        let policy = if self.chance(3) { "DROP" } else { "ACCEPT" };
        let mut text = format!("*{}\n:{base} {policy} [0:0]\n", self.table.name());
        for chain in users {
            writeln!(text, ":{chain} - [0:0]").unwrap();
        }
        let similar = self.tool != Tool::Arp && self.chance(16);
        let mut chain_of_rules = |chain: &str, later: &[&str], most: u64| {
            let similar = if similar { LONG } else { 0 };
            for rule in 0..self.random.below(most) + 1 + similar {
                let is_similar = rule < similar && !self.chance(10);
                let rule = match self.tool {
                    _ if is_similar => self.similar_rule(chain, later),
                    Tool::Arp => self.arp_rule(later),
                    Tool::V4 | Tool::V6 => self.rule(later),
                };
                writeln!(text, "-A {chain}{rule}").unwrap();
            }
        };
        chain_of_rules(base, users, 10);
        for (at, chain) in users.iter().enumerate() {
            chain_of_rules(chain, &users[at + 1..], 6);
        }
        text + "COMMIT\n"
    }

    /// True in one of `times` cases.
    fn chance(&mut self, times: u64) -> bool {
        self.random.one_in(times)
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        self.random.pick(from)
    }

    /// A negation, in one of four cases.
    fn not(&mut self) -> &'static str {
        if self.chance(4) { "! " } else { "" }
    }

    /// `option value`, negated in one of four cases.
    fn maybe_not(&mut self, option: &str, value: impl std::fmt::Display) -> String {
        format!(" {}{option} {value}", self.not())
    }

    fn rule(&mut self, later: &[&str]) -> String {
        // With more comparisons than a record of the image has.
        let long = self.chance(match self.focus {
            Focus::Extensions => 3,
            _ => 10,
        });
        let mut rule = String::new();
        for option in ["-s", "-d"] {
            if long && !self.chance(4) {
                let host = self.host(option == "-s");
                rule += &format!(" {option} {host}");
            } else if self.chance(5) {
                let network = self.network(option == "-s");
                rule += &self.maybe_not(option, network);
            }
        }
        if long {
            rule += " -i in0";
        } else if self.chance(8) {
            let names = ["in0", "in0", "in+", "in0+", "i+", "eth0", "in00", "in", "+"];
            let name = self.pick(&names);
            rule += &self.maybe_not("-i", name);
        }
        let protocol = self.protocol(&mut rule);
        if self.tool == Tool::V4 && self.chance(8) {
            rule += &format!(" {}-f", self.not());
        }
        if self.table == Table::Mangle && protocol == Protocol::Tcp && self.chance(3) {
            return rule + &self.mss();
        }
        if long {
            for part in self.usual_matches() {
                if !self.chance(3) {
                    rule += part;
                }
            }
        }
        for _ in 0..self.random.below(3) {
            let part = match self.random.below(4) {
                _ if self.tracked && self.chance(3) => self.connection(),
                0 | 1 => self.match_of(protocol).unwrap_or_default(),
                _ => self.any_match(),
            };
            // After one of them again, iptables takes an option of both for the other.
            let has_both =
                [" -m mark", " -m connmark"].map(|name| rule.contains(name)) == [true; 2];
            if !(has_both && part.contains(" --mark ")) {
                rule += &part;
            }
        }
        // Without a condition the rules after a verdict would see nothing.
        let target = match rule.is_empty() && !self.chance(6) {
            true => String::new(),
            false => self.target(later),
        };
        rule + &target
    }

    /// Matches of words that most frames meet.
    fn usual_matches(&self) -> [&'static str; 5] {
        let hops = match self.tool {
            Tool::V6 => " -m hl --hl-gt 1",
            _ => " -m ttl --ttl-gt 1",
        };
        [
            " -m mark --mark 0",
            " -m mark ! --mark 3/3",
            hops,
            " -m tos ! --tos 0x04/0x04",
            " -m pkttype ! --pkt-type broadcast",
        ]
    }

    /// A connection as table raw sees it: none, a template, or untracked.
    fn connection(&mut self) -> String {
        let states = ["NEW", "INVALID", "UNTRACKED", "NEW,INVALID", "ESTABLISHED"];
        match self.random.below(4) {
            0 => {
                let mark = self.pick(&["0", "1", "1/1", "0x10/0xf0"]);
                " -m connmark".to_owned() + &self.maybe_not("--mark", mark)
            }
            1 => {
                let status = self.pick(&["NONE", "CONFIRMED", "ASSURED,SEEN_REPLY"]);
                " -m conntrack".to_owned() + &self.maybe_not("--ctstatus", status)
            }
            2 => {
                let direction = self.pick(&["ORIGINAL", "REPLY"]);
                format!(" -m conntrack --ctdir {direction}")
            }
            _ => {
                let states = self.pick(&states);
                " -m conntrack".to_owned() + &self.maybe_not("--ctstate", states)
            }
        }
    }

    /// One of few shapes with many values, by the chain: such chains have lookups.
    fn similar_rule(&mut self, chain: &str, later: &[&str]) -> String {
        let known = self.chance(3);
        let number = self.random.below(256);
        let side = if chain.len().is_multiple_of(2) {
            "-s"
        } else {
            "-d"
        };
        let address = match (self.tool, known) {
            (Tool::V6, true) => self.address6(true).to_string(),
            (Tool::V6, false) => format!("2001:db8::{number:x}"),
            (_, true) => self.address4().to_string(),
            (_, false) => format!("198.51.100.{number}"),
        };
        let protocol = self.pick(&["tcp", "tcp", "udp"]);
        let port = self.pick(&PORTS);
        let rule = match chain.len() % 3 {
            0 => format!(" {side} {address}"),
            1 => format!(" {side} {address} -p {protocol} -m {protocol} --dport {port}"),
            _ => format!(" -p {protocol} -m {protocol} --sport {port} {side} {address}"),
        };
        rule + &self.target(later)
    }

    /// An address that frames have.
    fn host(&mut self, source: bool) -> String {
        match self.tool {
            Tool::V6 => self.address6(source).to_string(),
            _ => self.address4().to_string(),
        }
    }

    /// A network with a mask of whole or other bits.
    fn network(&mut self, source: bool) -> String {
        match self.tool {
            Tool::V4 | Tool::Arp => {
                let masks = [
                    "",
                    "",
                    "/32",
                    "/24",
                    "/25",
                    "/8",
                    "/0",
                    "/1",
                    "/31",
                    "/255.0.255.0",
                    "/255.255.0.255",
                    "/0.0.0.1",
                    "/0.0.0.0",
                ];
                let (address, mask) = (self.address4(), self.pick(&masks));
                format!("{address}{mask}")
            }
            Tool::V6 => {
                let masks = [
                    "",
                    "",
                    "/128",
                    "/64",
                    "/32",
                    "/48",
                    "/0",
                    "/1",
                    "/127",
                    "/ffff::ffff",
                    "/::f",
                    "/ffff:0:ffff::",
                    "/::",
                ];
                let (address, mask) = (self.address6(source), self.pick(&masks));
                format!("{address}{mask}")
            }
        }
    }

    fn address4(&mut self) -> Ipv4Addr {
        let from = if self.chance(3) { &ODD4 } else { &HOSTS4 };
        self.pick(from).into()
    }

    /// Destinations include addresses of groups.
    fn address6(&mut self, source: bool) -> Ipv6Addr {
        let odd = if source { &ODD6[..1] } else { &ODD6[..] };
        let from = if self.chance(3) { odd } else { &HOSTS6[..] };
        self.pick(from).into()
    }

    fn protocol(&mut self, rule: &mut String) -> Protocol {
        use Protocol::{Ah, Any, Dccp, Esp, Icmp, Negated, Other, Sctp, Tcp, Udp, UdpLite};
        let icmp = if self.tool == Tool::V4 {
            "icmp"
        } else {
            "ipv6-icmp"
        };
        let any = self.chance(2);
        let kind = match self.focus {
            _ if any => self.random.below(24),
            Focus::Tcp => 0,
            Focus::Udp => 5,
            Focus::Icmp => 11,
            Focus::Sctp => 9,
            Focus::Dccp => 10,
            Focus::Ah => 12,
            Focus::Esp => 13,
            Focus::Extensions => self.random.below(24),
        };
        let (protocol, name) = match kind {
            0..5 => (Tcp, "tcp"),
            5..8 => (Udp, "udp"),
            8 => (UdpLite, "udplite"),
            9 => (Sctp, "sctp"),
            10 => (Dccp, "dccp"),
            11 => (Icmp, icmp),
            // As number of IPv6 it would match extension headers, which the tool warns about.
            12 if self.tool == Tool::V4 => (Ah, "ah"),
            13 => (Esp, "esp"),
            14 => (Other, self.pick(&["2", "47", "58", "1", "59", "255", "44"])),
            15 => (Negated, self.pick(&["tcp", "udp", icmp, "47", "sctp"])),
            _ => return Any,
        };
        let not = if protocol == Negated { "! " } else { "" };
        write!(rule, " {not}-p {name}").unwrap();
        protocol
    }

    /// A match that needs the protocol.
    fn match_of(&mut self, protocol: Protocol) -> Option<String> {
        if protocol.has_ports() && self.chance(4) {
            return Some(self.multiport());
        }
        Some(match protocol {
            Protocol::Tcp => match self.random.below(8) {
                0 => " -m ecn".to_owned() + &self.ecn_of_tcp(),
                _ => " -m tcp".to_owned() + &self.tcp(),
            },
            Protocol::Udp => " -m udp".to_owned() + &self.ports(),
            Protocol::Sctp => " -m sctp".to_owned() + &self.ports() + &self.chunks(),
            Protocol::Dccp => " -m dccp".to_owned() + &self.ports() + &self.dccp(),
            Protocol::Icmp => self.icmp(),
            Protocol::Ah => " -m ah".to_owned() + &self.numbers("--ahspi"),
            Protocol::Esp => " -m esp".to_owned() + &self.numbers("--espspi"),
            Protocol::Any | Protocol::Negated | Protocol::Other | Protocol::UdpLite => return None,
        })
    }

    fn port_range(&mut self) -> String {
        let (one, other) = (self.pick(&PORTS), self.pick(&PORTS));
        let (low, high) = (one.min(other), one.max(other));
        match self.random.below(8) {
            0 => format!("{low}:{high}"),
            1 => format!(":{high}"),
            2 => format!("{low}:"),
            3 => "0:65535".to_owned(),
            _ => one.to_string(),
        }
    }

    fn ports(&mut self) -> String {
        let mut text = String::new();
        for option in ["--sport", "--dport"] {
            if self.chance(2) {
                let ports = self.port_range();
                text += &self.maybe_not(option, ports);
            }
        }
        text
    }

    fn tcp(&mut self) -> String {
        let mut text = if self.chance(3) {
            String::new()
        } else {
            self.ports()
        };
        if self.chance(3) {
            let sets = [
                "FIN,SYN,RST,ACK SYN",
                "SYN,ACK SYN,ACK",
                "ALL NONE",
                "ALL FIN,PSH,URG",
                "RST RST",
                "SYN,RST SYN,RST",
                "ACK,URG ACK",
                "NONE NONE",
                "ALL ALL",
            ];
            let flags = self.pick(&sets);
            text += &self.maybe_not("--tcp-flags", flags);
        }
        if self.chance(4) {
            let option = self.pick(&OPTIONS);
            text += &self.maybe_not("--tcp-option", option);
        }
        text
    }

    fn ecn_of_tcp(&mut self) -> String {
        let flags = [
            " --ecn-tcp-cwr",
            " ! --ecn-tcp-cwr",
            " --ecn-tcp-ece",
            " ! --ecn-tcp-ece",
        ];
        let flag = self.pick(&flags);
        flag.to_owned()
    }

    fn multiport(&mut self) -> String {
        let option = self.pick(&["--sports", "--dports", "--ports"]);
        let mut list = Vec::new();
        for _ in 0..1 + self.random.below(6) {
            let (one, other) = (self.pick(&PORTS), self.pick(&PORTS));
            list.push(match self.chance(4) && one < other {
                true => format!("{one}:{other}"),
                false => one.to_string(),
            });
        }
        " -m multiport".to_owned() + &self.maybe_not(option, list.join(","))
    }

    fn chunks(&mut self) -> String {
        if self.chance(2) {
            return String::new();
        }
        let quantity = self.pick(&["any", "all", "only"]);
        let chunks = [
            "ALL",
            "NONE",
            "DATA",
            "DATA:Be",
            "DATA:BE",
            "INIT",
            "INIT,INIT_ACK",
            "SACK,DATA:U",
            "ABORT:T",
            "ABORT",
            "SHUTDOWN_COMPLETE:t",
            "DATA,INIT,SACK,ABORT,SHUTDOWN",
        ];
        let chunks = self.pick(&chunks);
        self.maybe_not("--chunk-types", format!("{quantity} {chunks}"))
    }

    fn dccp(&mut self) -> String {
        let mut text = String::new();
        if self.chance(2) {
            let types = [
                "REQUEST",
                "RESPONSE,DATA",
                "ACK,DATAACK,CLOSEREQ",
                "CLOSE,RESET",
                "INVALID",
            ];
            let types = self.pick(&types);
            text += &self.maybe_not("--dccp-types", types);
        }
        if self.chance(3) {
            let option = self.pick(&OPTIONS);
            text += &self.maybe_not("--dccp-option", option);
        }
        text
    }

    fn icmp(&mut self) -> String {
        let (v4, (kind, code)) = match self.tool {
            Tool::V6 => (false, self.pick(&ICMP6)),
            _ => (true, self.pick(&ICMP)),
        };
        let (name, option) = if v4 {
            ("icmp", "--icmp-type")
        } else {
            ("icmp6", "--icmpv6-type")
        };
        let wanted = match self.random.below(5) {
            0 => kind.to_string(),
            1 if v4 => self
                .pick(&["any", "echo-request", "destination-unreachable"])
                .to_owned(),
            1 => self
                .pick(&["echo-request", "packet-too-big", "no-route"])
                .to_owned(),
            _ => format!("{kind}/{code}"),
        };
        format!(" -m {name}") + &self.maybe_not(option, wanted)
    }

    /// A number of 32 bits, or a range.
    fn number_range(&mut self) -> String {
        let (one, other) = (self.pick(&NUMBERS), self.pick(&NUMBERS));
        let (low, high) = (one.min(other), one.max(other));
        if self.chance(2) {
            format!("{low}:{high}")
        } else {
            one.to_string()
        }
    }

    fn numbers(&mut self, option: &str) -> String {
        let range = self.number_range();
        self.maybe_not(option, range)
    }

    /// A match for any protocol, except those that only one family has.
    fn any_match(&mut self) -> String {
        if self.tool == Tool::V6 && self.focus == Focus::Extensions && self.chance(2) {
            return self.extension();
        }
        match self.random.below(18) {
            0 => self.mac(),
            1 => self.iprange(),
            2 => self.mark(),
            3 => self.length(),
            4 => self.packet_type(),
            5 => self.hops(),
            6 => self.dscp(),
            7 => self.tos(),
            8 => self.ecn(),
            9 => self.address_type(),
            10 => self.u32(),
            11 => self.statistic(),
            12 => self.limit(),
            13 => self.quota(),
            14 => self.recent(),
            15 => self.comment(),
            _ if self.tool == Tool::V6 => self.extension(),
            _ => self.recent(),
        }
    }

    fn mac(&mut self) -> String {
        let mac = mac(self.pick(&MACS[1..5]));
        " -m mac".to_owned() + &self.maybe_not("--mac-source", mac)
    }

    fn iprange(&mut self) -> String {
        let mut text = " -m iprange".to_owned();
        let options: &[&str] = self.pick(&[
            &["--src-range"][..],
            &["--dst-range"],
            &["--src-range", "--dst-range"],
        ]);
        for option in options {
            let range = if self.tool == Tool::V6 {
                let ends = [(); 2].map(|()| self.address6(false));
                format!("{}-{}", ends[0].min(ends[1]), ends[0].max(ends[1]))
            } else {
                let ends = [(); 2].map(|()| self.address4());
                format!("{}-{}", ends[0].min(ends[1]), ends[0].max(ends[1]))
            };
            text += &self.maybe_not(option, range);
        }
        text
    }

    fn mark(&mut self) -> String {
        let mark = self.pick(&[
            "0",
            "0x1",
            "0x1/0x1",
            "0x10/0xf0",
            "0/0xff",
            "0xffffffff",
            "5",
        ]);
        " -m mark".to_owned() + &self.maybe_not("--mark", mark)
    }

    fn length(&mut self) -> String {
        let length = self.pick(&["20", "28:60", "40", ":48", "60:", "48:90", "0", "100:65535"]);
        " -m length".to_owned() + &self.maybe_not("--length", length)
    }

    fn packet_type(&mut self) -> String {
        let kind = self.pick(&["unicast", "broadcast", "multicast"]);
        " -m pkttype".to_owned() + &self.maybe_not("--pkt-type", kind)
    }

    fn hops(&mut self) -> String {
        let (name, prefix) = if self.tool == Tool::V4 {
            ("ttl", "ttl")
        } else {
            ("hl", "hl")
        };
        let value = self.pick(&TTLS);
        match self.random.below(3) {
            0 => format!(" -m {name} --{prefix}-lt {value}"),
            1 => format!(" -m {name} --{prefix}-gt {value}"),
            _ => format!(" -m {name}") + &self.maybe_not(&format!("--{prefix}-eq"), value),
        }
    }

    fn dscp(&mut self) -> String {
        let dscp = self.pick(&TOS) >> 2;
        " -m dscp".to_owned()
            + &if self.chance(4) {
                let class = self.pick(&["EF", "CS0", "AF11", "BE"]);
                self.maybe_not("--dscp-class", class)
            } else {
                self.maybe_not("--dscp", dscp)
            }
    }

    fn tos(&mut self) -> String {
        let (tos, mask) = (self.pick(&TOS), self.pick(&["", "/0xff", "/0x3f", "/0x1c"]));
        " -m tos".to_owned() + &self.maybe_not("--tos", format!("{tos:#04x}{mask}"))
    }

    fn ecn(&mut self) -> String {
        let bits = self.random.below(4);
        " -m ecn".to_owned() + &self.maybe_not("--ecn-ip-ect", bits)
    }

    fn address_type(&mut self) -> String {
        let types: &[&str] = match self.tool {
            Tool::V6 => &[
                "LOCAL",
                "UNICAST",
                "MULTICAST",
                "ANYCAST",
                "UNREACHABLE",
                "LOCAL,MULTICAST",
            ],
            _ => &[
                "LOCAL",
                "UNICAST",
                "BROADCAST",
                "MULTICAST",
                "ANYCAST",
                "UNSPEC",
                "LOCAL,BROADCAST",
                "BLACKHOLE,PROHIBIT",
                "UNREACHABLE",
            ],
        };
        let mut text = " -m addrtype".to_owned();
        if self.chance(3) {
            let kind = self.pick(types);
            text += &self.maybe_not("--src-type", kind);
        } else {
            let kind = self.pick(types);
            text += &self.maybe_not("--dst-type", kind);
            if self.chance(4) {
                text += " --limit-iface-in";
            }
        }
        text
    }

    fn u32(&mut self) -> String {
        let v4 = [
            "6&0xFF=1",
            "0&0xFFFF=20:48",
            "4&0x3FFF=0",
            "0>>22&0x3C@0>>16=22,53,80:443",
            "0>>22&0x3C@12>>26&0x3C@0=0x0:0x7fffffff",
            "12=0xc0000202 && 16=0xc0000201",
            "0>>22&0x3C@12&0x02000000=0x02000000",
            "5>>24=0x40:0x80",
            "40=0:0xffffffff",
            "0>>22&0x3C@4&0xFFFF=0:65535 && 6&0xFF=6,17",
        ];
        let v6 = [
            "6>>24=6,17",
            "4>>16=8:40",
            "6&0xFF=64",
            "40>>16=22,53,80:443",
            "24=0x20010db8",
            "40&0xFFFF=80 && 6>>24=6",
            "8=0x20010db8 && 20=2",
            "60=0:0xffffffff",
            "40>>8&0xFF@48=0:0x7fffffff",
        ];
        let test = self.pick(if self.tool == Tool::V6 {
            &v6[..]
        } else {
            &v4[..]
        });
        format!(" -m u32 {}--u32 \"{test}\"", self.not())
    }

    fn statistic(&mut self) -> String {
        let every = 1 + self.random.below(5);
        let packet = self.random.below(every);
        format!(
            " -m statistic --mode nth {}--every {every} --packet {packet}",
            self.not()
        )
    }

    /// No bucket refills within a test. The kernel refuses a burst that takes more than about 37 hours.
    fn limit(&mut self) -> String {
        let (rate, most) = self.pick(&[("1/hour", 9), ("6/hour", 20), ("1/day", 1)]);
        let burst = 1 + self.random.below(most);
        format!(" -m limit --limit {rate} --limit-burst {burst}")
    }

    fn quota(&mut self) -> String {
        let quota = self.pick(&[0, 28, 40, 100, 333, 1000, 5000]);
        " -m quota".to_owned() + &self.maybe_not("--quota", quota)
    }

    /// Two lists, which rules share.
    fn recent(&mut self) -> String {
        let action = self.pick(&["--set", "--set", "--rcheck", "--update", "--remove"]);
        let name = self.pick(&["r0", "r1"]);
        let side = self.pick(&["--rsource", "--rdest"]);
        let mut text = format!(" -m recent {}{action}", self.not());
        if matches!(action, "--rcheck" | "--update") && self.chance(2) {
            write!(text, " --hitcount {}", 1 + self.random.below(5)).unwrap();
        }
        if action != "--set" && action != "--remove" && self.chance(5) {
            text += " --rttl";
        }
        write!(text, " --name {name} {side}").unwrap();
        text
    }

    fn comment(&mut self) -> String {
        let comments = [
            "plain",
            "two words",
            "it's \\\"quoted\\\"",
            "! -j DROP",
            "",
            "[1:2]",
        ];
        format!(" -m comment --comment \"{}\"", self.pick(&comments))
    }

    /// A match on extension headers of IPv6.
    fn extension(&mut self) -> String {
        match self.random.below(6) {
            0 => self.fragment_header(),
            1 => self.options_header("hbh"),
            2 => self.options_header("dst"),
            3 => self.routing_header(),
            4 => {
                let mut text = " -m ah".to_owned();
                if self.chance(2) {
                    text += &self.numbers("--ahspi");
                }
                if self.chance(3) {
                    let len = self.pick(&[0, 12, 16, 24]);
                    text += &self.maybe_not("--ahlen", len);
                }
                if self.chance(4) {
                    text += " --ahres";
                }
                text
            }
            _ => self.header_names(),
        }
    }

    fn fragment_header(&mut self) -> String {
        let mut text = " -m frag".to_owned();
        if self.chance(2) {
            text += &self.numbers("--fragid");
        }
        if self.chance(6) {
            text += " --fragres";
        }
        if self.chance(3) {
            text += self.pick(&[" --fragfirst", " --fragmore", " --fraglast"]);
        }
        text
    }

    fn options_header(&mut self, name: &str) -> String {
        let mut text = format!(" -m {name}");
        if self.chance(2) {
            let len = self.pick(&[8, 16, 24, 0]);
            text += &self.maybe_not(&format!("--{name}-len"), len);
        }
        if self.chance(2) {
            let mut options = Vec::new();
            for _ in 0..1 + self.random.below(3) {
                let option = self.pick(&OPTIONS6);
                options.push(match option {
                    5 if self.chance(2) => "5:2".to_owned(),
                    0x1e if self.chance(2) => format!("30:{}", self.random.below(5)),
                    _ => option.to_string(),
                });
            }
            write!(text, " --{name}-opts {}", options.join(",")).unwrap();
        }
        text
    }

    fn routing_header(&mut self) -> String {
        let mut text = " -m rt".to_owned();
        if self.chance(4) {
            text += self.pick(&[
                " --rt-type 0 --rt-0-res",
                " --rt-type 0 --rt-0-addrs 2001:db8::2",
                " --rt-type 0 --rt-0-addrs 2001:db8::2,2001:db8::102 --rt-0-not-strict",
                " --rt-type 0 --rt-0-addrs 2001:db9::1 --rt-0-not-strict",
            ]);
            return text;
        }
        if self.chance(2) {
            let kind = self.pick(&[0, 2, 4]);
            text += &self.maybe_not("--rt-type", kind);
        }
        if self.chance(2) {
            let left = self.pick(&["0", "1", "1:3", "0:2"]);
            text += &self.maybe_not("--rt-segsleft", left);
        }
        if self.chance(2) {
            let len = self.pick(&[8, 24, 40]);
            text += &self.maybe_not("--rt-len", len);
        }
        text
    }

    fn header_names(&mut self) -> String {
        let names = [
            "hop", "dst", "route", "frag", "auth", "esp", "none", "prot", "hop,dst", "dst,frag",
        ];
        let names = self.pick(&names);
        let soft = if self.chance(2) { " --soft" } else { "" };
        " -m ipv6header".to_owned() + &self.maybe_not("--header", names) + soft
    }

    fn target(&mut self, later: &[&str]) -> String {
        if self.tracked && self.chance(4) {
            let targets = [
                "CT --notrack",
                "NOTRACK",
                "CT --zone 1",
                "CT --zone 1",
                "CONNMARK --set-mark 1",
                "CONNMARK --set-xmark 0x10/0xf0",
                "CONNMARK --save-mark",
                "CONNMARK --restore-mark",
            ];
            return format!(" -j {}", self.pick(&targets));
        }
        let name = match self.random.below(16) {
            0 | 1 => "ACCEPT",
            2 | 3 => "DROP",
            4 => "RETURN",
            5..9 => return String::new(),
            9 if self.table != Table::Mangle || self.chance(2) => {
                "LOG --log-prefix \"to be read \" --log-level 7"
            }
            9..11 if self.table == Table::Mangle && self.chance(2) => return self.change(),
            10 | 11 if self.table == Table::Mangle => {
                let marks = [
                    "--set-mark 1",
                    "--set-xmark 0x10/0xf0",
                    "--or-mark 0x4",
                    "--and-mark 0xfe",
                    "--xor-mark 0x11",
                    "--set-mark 0x5/0xff",
                ];
                return format!(" -j MARK {}", self.pick(&marks));
            }
            _ if later.is_empty() => return String::new(),
            15 => return format!(" -g {}", self.pick(later)),
            _ => self.pick(later),
        };
        format!(" -j {name}")
    }

    /// A target that changes the header, which later matches read.
    fn change(&mut self) -> String {
        let (tos, dscp) = (self.pick(&TOS), self.random.below(64));
        let hops = match self.tool {
            Tool::V6 => ["HL", "hl"],
            _ => ["TTL", "ttl"],
        };
        let [how, most] = self.pick(&[["set", "255"], ["inc", "9"], ["dec", "9"]]);
        match self.random.below(4) {
            0 => format!(" -j TOS --set-tos {tos:#04x}"),
            1 => format!(" -j DSCP --set-dscp {dscp}"),
            _ => format!(" -j {} --{}-{how} {most}", hops[0], hops[1]),
        }
    }

    /// A limit of the MSS with the match that it needs, or a match of its result.
    fn mss(&mut self) -> String {
        let mss = self.pick(&[1, 500, 536, 1220, 1460, 65_000]);
        let flags = " -m tcp --tcp-flags SYN,RST SYN";
        match self.random.below(4) {
            0 => " -m tcpmss".to_owned() + &self.maybe_not("--mss", format!("1:{mss}")),
            1 => " -m tcp".to_owned() + &self.maybe_not("--tcp-option", 2),
            _ => format!("{flags} -j TCPMSS --set-mss {mss}"),
        }
    }

    /// `option value`, negated in front of the option or of the value. The tool refuses names after the latter.
    fn arp_maybe_not(&mut self, option: &str, value: impl std::fmt::Display) -> String {
        let value = value.to_string();
        let has_names = matches!(option, "--opcode" | "--h-type" | "--proto-type");
        let named = has_names && value.starts_with(char::is_alphabetic);
        match self.random.below(8) {
            1 if !named => format!(" {option} ! {value}"),
            0 | 1 => format!(" ! {option} {value}"),
            _ => format!(" {option} {value}"),
        }
    }

    fn arp_rule(&mut self, later: &[&str]) -> String {
        let mut rule = String::new();
        for option in ["-s", "-d"] {
            if self.chance(5) {
                let network = self.network(option == "-s");
                rule += &self.arp_maybe_not(option, network);
            }
        }
        for option in ["--src-mac", "--dst-mac"] {
            if self.chance(5) {
                let name = self.pick(&["Unicast", "Multicast", "Broadcast"]);
                let masks = [
                    "",
                    "",
                    "/ff:ff:ff:00:00:00",
                    "/ff:00:ff:00:ff:00",
                    "/01:00:00:00:00:00",
                ];
                let (address, mask) = (mac(self.pick(&MACS)), self.pick(&masks));
                let wanted = if self.chance(4) {
                    name.to_owned()
                } else {
                    address + mask
                };
                rule += &self.arp_maybe_not(option, wanted);
            }
        }
        let fields: [(&str, &[&str]); 5] = [
            ("-i", &["in0", "in+", "in0+", "eth0", "+"]),
            (
                "--opcode",
                &[
                    "1",
                    "2",
                    "Request",
                    "Reply",
                    "1/3",
                    "256/65280",
                    "ARP_NAK",
                    "0",
                    "257",
                ],
            ),
            (
                "--h-type",
                &["1", "6", "0/0xff00", "1/0xff", "0xffff", "Ethernet"],
            ),
            (
                "--proto-type",
                &["0x800", "0x800/0xff00", "0x86dd", "0", "0x806", "IPv4"],
            ),
            ("--h-length", &["6", "6/7", "4", "0/1"]),
        ];
        for (option, values) in fields {
            if self.chance(6) {
                let value = self.pick(values);
                rule += &self.arp_maybe_not(option, value);
            }
        }
        let target = match self.random.below(12) {
            0..2 => "ACCEPT",
            2..4 => "DROP",
            4 => "RETURN",
            5..8 => return rule,
            _ if later.is_empty() => return rule,
            _ => self.pick(later),
        };
        match rule.is_empty() && !self.chance(6) {
            true => rule,
            false => format!("{rule} -j {target}"),
        }
    }
}

fn mac(bytes: [u8; 6]) -> String {
    bytes.map(|byte| format!("{byte:02x}")).join(":")
}
