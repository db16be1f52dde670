//! Reading again what was written, and input that no tool wrote.
//!
//! Rules come from the tables of options: each option gets a value of its type, and many of them do
//! not fit together. The properties are of those that are accepted.

use std::io::{BufRead, BufReader, Read};

use fairpath_rules::spec::{Alias, Kind, Opt, SPECS, Spec, Type, type_in};
use fairpath_rules::{
    Family, MAX_LINE, MAX_PROBLEMS, Names, Reading, Ruleset, WithCounters, read, tables_of, to_text,
};
use fairpath_units::test_seed;

fn names() -> Names {
    let mut names = Names::default();
    names.add_services("ssh 22/tcp\nhttp 80/tcp\n");
    names.add_users("root:x:0:0:root:/root:/bin/sh\n");
    names.add_groups("root:x:0:\n");
    names
}

fn reading(family: Family, text: &[u8]) -> Reading {
    read(&mut &text[..], "test", family, &names()).expect("memory")
}

fn accepted(family: Family, text: &str) -> Option<Ruleset> {
    reading(family, text.as_bytes()).complete().ok()
}

/// A generator of test numbers (xorshift, Marsaglia 2003).
struct Random(u64);

impl Random {
    fn new() -> Self {
        Self(test_seed() ^ 1 << 63 | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Mostly small, and sometimes at the limit.
    fn number(&mut self, max: u64) -> u64 {
        match self.below(8) {
            0 => max,
            1 => 0,
            2 => self.next() % max.saturating_add(1),
            _ => self.next() % max.saturating_add(1).clamp(1, 100),
        }
    }

    fn ordered(&mut self, max: u64, separator: &str) -> String {
        let (a, b) = (self.number(max), self.number(max));
        match self.below(4) {
            0 => format!("{}{separator}{}", a.min(b), a.max(b)),
            1 if separator == ":" => format!(":{a}"),
            _ => a.to_string(),
        }
    }

    fn some(&mut self, names: &[&str]) -> String {
        let count = 1 + self.below(3);
        let picked: Vec<&str> = (0..count).map(|_| self.pick(names)).collect();
        picked.join(",")
    }

    fn mac(&mut self) -> String {
        let bytes: Vec<String> = (0..6).map(|_| format!("{:x}", self.number(255))).collect();
        bytes.join(":")
    }

    fn ipv4(&mut self) -> String {
        let address = std::net::Ipv4Addr::from(self.next() as u32);
        match self.below(4) {
            0 => format!("{address}/{}", self.below(33)),
            1 => format!("{address}/255.0.255.0"),
            _ => address.to_string(),
        }
    }

    fn ipv6(&mut self) -> String {
        let groups: u128 = u128::from(self.next()) << 64 | u128::from(self.next());
        let address = std::net::Ipv6Addr::from(groups >> self.below(128));
        match self.below(4) {
            0 => format!("{address}/{}", self.below(129)),
            1 => format!("{address}/ffff:0:ffff::"),
            _ => address.to_string(),
        }
    }

    fn address(&mut self, family: Family) -> String {
        match family {
            Family::Ipv6 => self.ipv6(),
            _ => self.ipv4(),
        }
    }

    fn text(&mut self, max: usize) -> String {
        let letters = [
            "a", "Z", "9", "-", "_", " ", ".", "'", "\\\"", "\\\\", "ü", "$",
        ];
        let length = self.below(max.min(12));
        let inner: String = (0..length).map(|_| self.pick(&letters)).collect();
        format!("\"{inner}\"")
    }
}

fn words(names: &[(&'static str, u64)]) -> Vec<&'static str> {
    names.iter().map(|(name, _)| *name).collect()
}

/// A value of a type, as text.
fn value(ty: Type, family: Family, random: &mut Random) -> String {
    match ty {
        Type::Flag => String::new(),
        Type::Net | Type::PlainNet => random.address(family),
        Type::Net6 => random.ipv6(),
        Type::Mask if family == Family::Ipv6 => "ffff:ffff::".into(),
        Type::Mask => "255.255.255.0".into(),
        Type::Dec(max) | Type::Numbered(_, max) => random.number(max).to_string(),
        Type::Hex { max, .. } | Type::HexUpper(max) => format!("{:#x}", random.number(max)),
        Type::Hex16 { max, .. } => format!("{:x}", random.number(max)),
        Type::Range(max) | Type::OrderedRange(max) => random.ordered(u64::from(max), ":"),
        Type::AddressRange if family == Family::Ipv6 => "2001:db8::1-2001:db8::9".into(),
        Type::AddressRange => "10.0.0.1-10.0.0.9".into(),
        Type::Ports | Type::DecimalPorts => random.ordered(65_535, ":"),
        Type::PortList => {
            let count = 1 + random.below(5);
            let list: Vec<String> = (0..count).map(|_| random.ordered(65_535, ":")).collect();
            list.join(",")
        }
        Type::TcpFlags => {
            let flags = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ALL", "NONE"];
            format!("{} {}", random.some(&flags), random.some(&flags))
        }
        Type::Mark | Type::XMark | Type::MarkOrBits => {
            let max = u64::from(u32::MAX);
            match random.below(3) {
                0 => format!("{:#x}/{:#x}", random.number(max), random.number(max)),
                _ => random.number(max).to_string(),
            }
        }
        Type::Tos => format!("{:#x}/{:#x}", random.number(255), random.number(255)),
        Type::Text(max) | Type::Quoted(max) => random.text(max),
        Type::Word => random.number(65_535).to_string(),
        Type::Name(_) => random.pick(&["list", "a.b", "q-1", "\"x y\""]).into(),
        Type::NatAddress => {
            let address = match family {
                Family::Ipv6 => "2001:db8::1",
                _ => "10.0.0.1",
            };
            match (random.below(3), family) {
                (0, _) => address.into(),
                (1, _) => format!("{address}-{address}"),
                (_, Family::Ipv6) => format!("[{address}]:{}", random.ordered(65_535, "-")),
                _ => format!("{address}:{}", random.ordered(65_535, "-")),
            }
        }
        Type::NatPorts => random.ordered(65_535, "-"),
        Type::Rate => {
            let units = ["second", "min", "h", "day"];
            format!("{}/{}", random.number(10_001), random.pick(&units))
        }
        Type::HashRate => {
            let units = ["/sec", "/min", "/hour", "/day", "kb/s", "mb/s", "b/s"];
            format!("{}{}", random.number(10_000), random.pick(&units))
        }
        Type::HashBurst => {
            let units = ["", "", "b", "kb", "mb"];
            format!("{}{}", random.number(4_000), random.pick(&units))
        }
        Type::Mac => random.mac(),
        Type::MacMask | Type::MacName => match random.below(4) {
            0 => random
                .pick(&["Unicast", "Multicast", "Broadcast", "BGA"])
                .into(),
            1 => format!("{}/{}", random.mac(), random.mac()),
            _ => random.mac(),
        },
        Type::Interface => random
            .pick(&["eth0", "br-1a2b", "ppp+", "+", "eth1.152"])
            .into(),
        Type::Protocol if family == Family::Bridge => random
            .pick(&["IPv4", "ARP", "IPv6", "802_1Q", "LENGTH", "0x9999"])
            .into(),
        Type::Protocol | Type::ProtocolNumber | Type::IpProtocol => match random.below(3) {
            0 => random.number(255).to_string(),
            _ => random
                .pick(&[
                    "tcp",
                    "udp",
                    "icmp",
                    "ipv6-icmp",
                    "sctp",
                    "dccp",
                    "esp",
                    "ah",
                ])
                .into(),
        },
        Type::IcmpType(names) | Type::IcmpRange(names) => match random.below(3) {
            0 => format!("{}/{}", random.number(255), random.number(255)),
            1 => random.number(255).to_string(),
            _ => names[random.below(names.len())].0.into(),
        },
        Type::IgmpRange(_) => random.ordered(255, ":"),
        Type::Bits(names) => random.some(&words(names)),
        Type::Choice(names) | Type::Begun(names) | Type::Named(names) | Type::Exact(names) => {
            random.pick(&words(names)).into()
        }
        Type::Named16(names, max) if names.is_empty() || random.one_in(2) => {
            random.number(max).to_string()
        }
        Type::Named10(names, max) | Type::NamedAny(names, max)
            if names.is_empty() || random.one_in(2) =>
        {
            random.number(max).to_string()
        }
        Type::Named10(names, _) | Type::NamedAny(names, _) | Type::Named16(names, _) => {
            random.pick(&words(names)).into()
        }
        Type::MonthDays => format!("{},{}", 1 + random.below(31), 1 + random.below(31)),
        Type::Date => format!(
            "20{:02}-{:02}-11T01:02:03",
            random.below(38),
            1 + random.below(12)
        ),
        Type::TimeOfDay => format!("{}:{}", random.below(24), random.below(60)),
        Type::Probability => format!("0.{}", random.number(99_999)),
        Type::U32 => format!(
            "\"{}&{:#x}={}\"",
            random.below(60),
            random.number(255),
            random.below(9)
        ),
        Type::Users | Type::Groups => random.ordered(65_535, "-"),
        Type::SetMatch => format!(
            "blocked {}",
            random.pick(&["src", "src,dst", "dst,dst,src"])
        ),
        Type::OptionList => format!(
            "{}:{},{}",
            random.number(255),
            random.number(255),
            random.number(255)
        ),
        Type::Chunks => {
            let lists = ["DATA:Be,SACK", "INIT", "ALL", "NONE", "ABORT:t,ERROR"];
            format!(
                "{} {}",
                random.pick(&["any", "all", "only"]),
                random.pick(&lists)
            )
        }
        Type::AddressList => "::1,2001:db8::2".into(),
        Type::Handle => format!("{:x}:{:x}", random.number(65_535), random.number(65_535)),
        Type::Words => "word".into(),
        Type::ArpField(_) => match random.below(3) {
            0 => format!("{}/{}", random.below(256), random.below(256)),
            _ => random.below(100).to_string(),
        },
        Type::Among => format!("{}={},{}", random.mac(), "10.1.2.3", random.mac()),
    }
}

fn option(spec: &Spec, at: usize, family: Family, random: &mut Random, out: &mut String) {
    let option: &Opt = &spec.options[at];
    if option.names[0].is_empty() {
        return;
    }
    if option.not && random.one_in(4) {
        out.push_str(" !");
    }
    let aliases: Vec<(&str, Alias)> = option.alias.to_vec();
    let mut ty = type_in(spec.kind, at as u8, family);
    let mut name = random.pick(option.names);
    if !aliases.is_empty() && random.one_in(2) {
        let (alias, effect) = random.pick(&aliases);
        name = alias;
        ty = match effect {
            Alias::Value(_) => Type::Flag,
            Alias::Named(names) => Type::Choice(names),
            Alias::Set => ty,
            _ => Type::Dec(255),
        };
    }
    out.push(' ');
    out.push_str(name);
    let value = value(ty, family, random);
    if !value.is_empty() {
        out.push(' ');
        out.push_str(&value);
    }
}

fn some_options(spec: &Spec, family: Family, most: usize, random: &mut Random, out: &mut String) {
    let mut left: Vec<usize> = (0..spec.options.len()).collect();
    for _ in 0..(1 + random.below(most)).min(left.len()) {
        let at = left.swap_remove(random.below(left.len()));
        option(spec, at, family, random, out);
    }
}

/// The protocol that a match needs.
fn needed_protocol(spec: &Spec) -> Option<String> {
    match spec.kind {
        Kind::BridgeIp => Some("IPv4 --ip-proto tcp".into()),
        Kind::BridgeIp6 => Some("IPv6 --ip6-proto udp".into()),
        Kind::BridgeArp | Kind::BridgeArpreply => Some("ARP".into()),
        Kind::Dot3 => Some("LENGTH".into()),
        Kind::Vlan => Some("802_1Q".into()),
        Kind::TargetDnat | Kind::TargetSnat | Kind::TargetMasquerade | Kind::TargetRedirect => {
            Some("tcp".into())
        }
        Kind::TargetTcpmss => Some("tcp --syn".into()),
        Kind::TargetTproxy => Some("udp".into()),
        _ => spec.protocols.first().map(u8::to_string),
    }
}

/// The words of a rule after its chain, with one match or target of the table.
fn rule(spec: &Spec, family: Family, random: &mut Random) -> String {
    let mut out = String::new();
    if spec.kind.is_header() {
        some_options(spec, family, 3, random, &mut out);
        out.push_str(random.pick(&["", " -j ACCEPT", " -j other", " -j RETURN"]));
        return out;
    }
    if let Some(protocol) = needed_protocol(spec) {
        out.push_str(&format!(" -p {protocol}"));
    }
    if spec.kind.is_target() {
        out.push_str(&format!(" -j {}", spec.name));
        if !spec.options.is_empty() {
            some_options(spec, family, 2, random, &mut out);
        }
        return out;
    }
    if family.is_ip() {
        out.push_str(&format!(" -m {}", spec.name));
    }
    some_options(spec, family, 4, random, &mut out);
    out.push_str(random.pick(&["", " -j DROP", " -j other"]));
    out
}

fn file(family: Family, table: &str, chain: &str, rule: &str) -> String {
    let policy = if family == Family::Bridge {
        "ACCEPT"
    } else {
        "-"
    };
    format!("*{table}\n:other {policy}\n:user {policy}\n-A {chain}{rule}\nCOMMIT\n")
}

/// Calls `check` with the accepted ones of random files, and requires some for each match and target.
fn for_random_files(mut check: impl FnMut(Family, &str, Ruleset)) {
    const TRIES: usize = 150;
    let mut random = Random::new();
    for family in Family::ALL {
        for spec in SPECS.iter().filter(|spec| spec.is_in(family)) {
            if matches!(spec.kind, Kind::Opaque | Kind::OpaqueTarget) {
                continue;
            }
            let mut count = 0;
            for _ in 0..TRIES {
                let rule = rule(spec, family, &mut random);
                let found = tables_of(family).iter().find_map(|(table, _)| {
                    let text = file(family, table, "user", &rule);
                    accepted(family, &text).map(|ruleset| (text, ruleset))
                });
                if let Some((text, ruleset)) = found {
                    count += 1;
                    check(family, &text, ruleset);
                }
            }
            assert!(count > 0, "{family}: no rule of {} was accepted", spec.name);
        }
    }
}

/// The tools print these in whole numbers of a unit, and lose the rest.
fn is_rounded(item: &fairpath_rules::Item) -> bool {
    let rounded = [
        (Kind::Limit, "--limit"),
        (Kind::BridgeLimit, "--limit"),
        (Kind::Hashlimit, "--hashlimit-burst"),
    ];
    rounded.contains(&(item.kind, item.name()))
}

#[test]
fn written_rules_are_read_as_the_same() {
    for_random_files(|family, text, ruleset| {
        let written = to_text(&ruleset, WithCounters::AsRead);
        let again = reading(family, written.as_bytes())
            .complete()
            .unwrap_or_else(|error| panic!("{error}\n{text}\n{written}"));
        assert_eq!(to_text(&again, WithCounters::AsRead), written, "{text}");
        for (table, other) in ruleset.tables.iter().zip(&again.tables) {
            let rules = |table: &fairpath_rules::Table| -> Vec<_> {
                let chains = table.sorted();
                let rules = chains.iter().flat_map(|(_, chain)| &chain.rules);
                let exact = |rule: &fairpath_rules::Rule| -> Vec<_> {
                    let items = rule.items.iter().filter(|item| !is_rounded(item));
                    items.cloned().collect()
                };
                rules.map(exact).collect()
            };
            assert_eq!(rules(table), rules(other), "{text}\n{written}");
        }
    });
}

#[test]
fn changed_bytes_never_panic() {
    const CHANGES: usize = 20_000;
    let mut files = Vec::new();
    for_random_files(|family, text, _| files.push((family, text.to_owned().into_bytes())));
    let mut random = Random::new();
    for _ in 0..CHANGES {
        let (family, text) = &files[random.below(files.len())];
        let mut text = text.clone();
        for _ in 0..=random.below(4) {
            if text.is_empty() {
                break;
            }
            let at = random.below(text.len());
            match random.below(5) {
                0 => drop(text.remove(at)),
                1 => text.insert(at, random.next() as u8),
                2 => text.truncate(at.max(1)),
                3 => text[at] = random.pick(b" !-:,/=\"\\\n\t0+#*[]"),
                _ => text[at] = random.next() as u8,
            }
        }
        let read = reading(*family, &text);
        let written = to_text(&read.ruleset, WithCounters::Always);
        assert!(
            written.len() < 1 << 20,
            "{}",
            String::from_utf8_lossy(&text)
        );
    }
}

/// A line of `a` without end, and bytes that are not kept.
struct LongLine {
    left: usize,
}

impl Read for LongLine {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = buffer.len().min(self.left);
        buffer[..count].fill(b'a');
        self.left -= count;
        Ok(count)
    }
}

fn problems_of(input: &mut dyn BufRead) -> Reading {
    read(input, "test", Family::Ipv4, &names()).expect("memory")
}

#[test]
fn long_lines_are_one_problem_each() {
    for length in [MAX_LINE + 1, 10 << 20] {
        let end = "\n*filter\nCOMMIT\n";
        let mut input = BufReader::new(LongLine { left: length }.chain(end.as_bytes()));
        let read = problems_of(&mut input);
        assert_eq!(read.problems.len(), 1);
        let text = read.problems[0].to_string();
        assert!(text.starts_with("test:1: the line has more than"), "{text}");
        assert_eq!(read.ruleset.tables.len(), 1);
    }
}

#[test]
fn a_table_has_a_limit_of_chains() {
    let mut text = String::from("*filter\n");
    for number in 0..fairpath_rules::MAX_CHAINS {
        text.push_str(&format!(":{number:x} - [0:0]\n"));
    }
    text.push_str("COMMIT\n");
    let read = problems_of(&mut text.as_bytes());
    // The three base chains are part of the limit.
    assert_eq!(read.problems.len(), 3);
    let error = read.problems[0].to_string();
    assert!(error.contains("too many chains"), "{error}");
}

#[test]
fn problems_have_a_limit() {
    let text = format!("*filter\n{}COMMIT\n", "-A INPUT -j nosuch\n".repeat(1_000));
    let read = problems_of(&mut text.as_bytes());
    assert_eq!(read.problems.len(), MAX_PROBLEMS);
    assert_eq!(read.more_problems, 1_000 - MAX_PROBLEMS as u64);
}

#[test]
fn lists_of_addresses_have_a_limit() {
    let list = ["10.0.0.1"; 1_000].join(",");
    let rule = format!("*filter\n-A INPUT -s {list} -d {list}\nCOMMIT\n");
    let read = problems_of(&mut rule.as_bytes());
    assert!(
        read.problems[0].text.contains("use a set"),
        "{}",
        read.problems[0]
    );
}

#[test]
fn watchers_stay_next_to_the_target() {
    let text = file(Family::Bridge, "filter", "user", " --log --nflog -j DROP");
    let ruleset = accepted(Family::Bridge, &text).expect("watchers are accepted");
    let table = ruleset.table("filter").expect("the table of the file");
    let chain = table.get(table.find(b"user").expect("the chain of the file"));
    let rule = &chain.rules[0];
    assert_eq!(rule.target, fairpath_rules::Target::Drop);
    let kinds: Vec<Kind> = rule.matches().map(|group| group.kind).collect();
    assert_eq!(kinds, [Kind::BridgeLog, Kind::BridgeNflog]);
    assert!(kinds.iter().all(|kind| kind.is_watcher()));
}
