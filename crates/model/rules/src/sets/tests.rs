use super::*;
use fairpath_units::test_seed;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

fn read(text: &str) -> Result<Sets, ReadSetsError> {
    Sets::read("sets", text.as_bytes())
}

fn sets(text: &str) -> Sets {
    read(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn message(text: &str) -> String {
    let error = read(text).expect_err(text);
    error.to_string()
}

fn key(addr: &str, port: Option<(u8, u16)>) -> SetKey {
    let addr = addr.parse().unwrap();
    SetKey { addr, port }
}

const ALL: &str = r#"create a hash:ip family inet hashsize 1024 maxelem 65536 netmask 24 timeout 60 counters comment skbinfo bucketsize 12 initval 0x0012abcd
add a 10.0.0.0 timeout 60 packets 1 bytes 2 comment "a  b" skbmark 0x1/0xff skbprio 1:10 skbqueue 3
add a 10.0.1.0 timeout 0 packets 0 bytes 0
create b hash:net family inet6 hashsize 64 maxelem 9 forceadd bucketsize 2
add b ::1.2.3.4
add b 2001:db8::/32
add b 2001:db8::/48 nomatch
create c hash:ip,port family inet hashsize 1024 maxelem 65536 bucketsize 12 netmask 16
add c 10.0.0.0,icmp:echo-request
add c 10.0.0.0,icmp:200/7
add c 10.0.0.0,tcp:80
add c 10.0.0.0,gre:0
add c 10.0.0.0,200:0
create d hash:net,port family inet6 hashsize 1024 maxelem 65536 bucketsize 12
add d 2001:db8::/32,udp:53
add d 2001:db8::/32,ipv6-icmp:echo-request
create o hash:net,iface family inet6 hashsize 1024 timeout 5
add o 10.0.0.0/8,eth0 timeout 3
create p hash:ip bitmask 255.0.255.0
create l list:set size 8 timeout 3 comment
add l d timeout 0
add l a timeout 3 comment "x"
"#;

#[test]
fn writing_and_reading_again_is_identical() {
    let first = sets(ALL).to_string();
    assert_eq!(first, ALL);
    assert_eq!(sets(&first).to_string(), first);
}

#[test]
fn defaults_are_written_as_the_tool_does() {
    let text = "create x iphash -6\ncreate l setlist\n";
    let expected = "create x hash:ip family inet6 hashsize 1024 maxelem 65536 bucketsize 12\n\
                    create l list:set size 8\n";
    assert_eq!(sets(text).to_string(), expected);
}

#[test]
fn ranges_become_the_largest_networks() {
    let text = "create x hash:net,port\nadd x 10.0.0.0-10.0.0.2,udp:1-2\n";
    let all = sets(text);
    let found: Vec<_> = all.get("x").unwrap().elements().collect();
    let pairs: Vec<_> = found
        .iter()
        .map(|e| (e.net.to_string(), e.length))
        .collect();
    let pairs: Vec<_> = pairs.iter().map(|(net, n)| (net.as_str(), *n)).collect();
    assert_eq!(pairs[0], ("10.0.0.0", 31));
    assert_eq!(pairs[3], ("10.0.0.2", 32));
    assert_eq!((found[1].proto, found[1].port), (17, 2));
}

/// Each row is a file with an error in its last line: column, part of the message.
const REFUSED: &[(&str, u32, &str)] = &[
    ("-A x 1.2.3.4", 1, "short form: write add"),
    ("ipset create x hash:ip", 1, "remove this word"),
    ("list", 1, "not supported"),
    ("create", 7, "name of the set is missing"),
    ("create x", 9, "type of the set is missing"),
    ("create x hash:no", 10, "unknown"),
    ("create x hash:ip family inet5", 25, "write inet or inet6"),
    ("create x hash:ip netmask 33", 26, "write 1 to 32"),
    ("create x hash:net netmask 3", 19, "unknown"),
    ("create x hash:ip maxelem", 18, "has no value"),
    ("create x hash:ip counters counters", 27, "occurs twice"),
    ("create x hash:ip timeout 2147484", 26, "out of range"),
    ("create a,b hash:ip", 8, "comma"),
    (
        "create 0123456789012345678901234567890x hash:ip",
        8,
        "32 bytes",
    ),
    ("create x hash:ip\ncreate x hash:ip", 8, "exists already"),
    (
        "create x hash:ip\ncreate x hash:ip maxelem 2 -exist",
        8,
        "other options",
    ),
    ("add x 10.0.0.1", 5, "does not exist"),
    ("create x hash:ip\nadd x", 6, "element is missing"),
    ("create x hash:ip\nadd x 0.0.0.0", 7, "address 0"),
    ("create x hash:ip\nadd x 0.0.0.1/30", 7, "address 0"),
    ("create x hash:ip\nadd x 10.0.0.0/0", 16, "write 1 to 32"),
    ("create x hash:ip\nadd x 10.1", 7, "whole numeric address"),
    ("create x hash:ip\nadd x ::1", 7, "family inet"),
    ("create x hash:ip\nadd x 10.0.0.1,80", 16, "no ports"),
    ("create x hash:ip\nadd x 10.0.0.0/8", 7, "more than 4194304"),
    ("create x hash:ip\nadd x 10.0.0.1 nomatch", 16, "unknown"),
    (
        "create x hash:ip\nadd x 10.0.0.1 timeout 1",
        16,
        "create line",
    ),
    (
        "create x hash:ip\nadd x 10.0.0.1\nadd x 10.0.0.1",
        7,
        "already",
    ),
    ("create x hash:ip\ndel x 10.0.0.1", 7, "not in the set"),
    (
        "create x hash:ip maxelem 1\nadd x 10.0.0.2/31",
        7,
        "raise maxelem 1",
    ),
    ("create x hash:ip -6\nadd x ::2/127", 7, "single addresses"),
    ("create x hash:net -6\nadd x ::2-::3", 7, "write networks"),
    (
        "create x hash:net\nadd x 0.0.0.0-255.255.255.255",
        7,
        "two halves",
    ),
    (
        "create x hash:ip,port\nadd x 10.0.0.1",
        7,
        "write for example",
    ),
    (
        "create x hash:ip,port\nadd x 10.0.0.1,ssh",
        16,
        "number of the service",
    ),
    (
        "create x hash:ip,port\nadd x 10.0.0.1,gre:1",
        20,
        "write gre:0",
    ),
    (
        "create x hash:ip,port\nadd x 10.0.0.1,icmpv6:0/0",
        16,
        "family inet6",
    ),
    (
        "create x hash:ip,port\nadd x 10.0.0.1,icmp:",
        21,
        "TYPE/CODE",
    ),
    (
        "create x hash:ip,port\nadd x 10.0.0.1,0:0",
        16,
        "write 1 to 255",
    ),
    (
        "create x hash:ip comment\nadd x 10.0.0.1 comment \"",
        24,
        "not closed",
    ),
    (
        "create x hash:ip skbinfo\nadd x 10.0.0.1 skbmark 1",
        24,
        "0x1",
    ),
    (
        "create x hash:ip skbinfo\nadd x 10.0.0.1 skbprio 1",
        24,
        "1:10",
    ),
    ("create l list:set\nadd l l", 7, "is a list"),
    ("create l list:set\nadd l x", 7, "does not exist"),
    (
        "create x hash:ip\ncreate l list:set\nadd l x\ndestroy x",
        9,
        "in list \"l\"",
    ),
    (
        "create x hash:ip\ncreate l list:set\nadd l x\ndestroy",
        0,
        "has members",
    ),
    (
        "create x hash:ip\ncreate l list:set\nadd l x\nrename x y",
        8,
        "in list",
    ),
    (
        "create x hash:ip\ncreate l list:set\nadd l x before x",
        7,
        "this place",
    ),
    (
        "create x hash:ip\ncreate y hash:net\nswap x y",
        8,
        "another type",
    ),
    ("create x hash:ip\nrename x x", 10, "exists already"),
    ("create x hash:ip\nflush x y", 9, "unknown"),
    (
        "create x hash:mac\nadd x 1\nadd x 1 timeout 3",
        7,
        "already",
    ),
];

#[test]
fn refusals_name_column_problem_and_remedy() {
    for (text, column, part) in REFUSED {
        let message = message(text);
        let line = text.lines().count();
        let place = match column {
            0 => format!("sets:{line}: "),
            column => format!("sets:{line}:{column}: "),
        };
        assert!(message.starts_with(&place), "{text}: {message}");
        assert!(message.contains(part), "{text}: {message}");
    }
}

#[test]
fn a_long_line_is_refused() {
    let long = format!("# {}\n", "x".repeat(MAX_LINE));
    assert!(message(&long).contains("more than 65536 bytes"));
    let fits = format!("#{}\n", "x".repeat(MAX_LINE - 2));
    assert!(sets(&fits).is_empty());
}

#[test]
fn bytes_that_are_no_text_are_refused() {
    let error = Sets::read("sets", &b"# \xff\n"[..]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "sets:1:3: the text is not UTF-8: remove the byte"
    );
}

#[test]
fn a_list_contains_the_keys_of_its_members() {
    let all = sets(
        "create n hash:net\nadd n 10.0.0.0/8\ncreate p hash:ip,port\nadd p 192.0.2.1,tcp:80\n\
         create o hash:mac\ncreate l list:set\nadd l n\nadd l p\n",
    );
    let with_opaque = format!("{all}add l o before n\n");
    let (known, opaque) = (all, sets(&with_opaque));
    let web = Some((6, 80));
    let unknown = Some(Contains::Unknown("hash:mac"));
    for (addr, port, answer, with_opaque) in [
        ("10.1.2.3", None, Contains::Yes, Some(Contains::Yes)),
        ("192.0.2.1", web, Contains::Yes, Some(Contains::Yes)),
        ("192.0.2.1", None, Contains::No, unknown),
        ("::1", web, Contains::No, unknown),
    ] {
        let key = key(addr, port);
        assert_eq!(known.contains("l", &key), Some(answer), "{addr}");
        assert_eq!(opaque.contains("l", &key), with_opaque, "{addr}");
    }
    assert_eq!(known.contains("nope", &key("::1", None)), None);
}

#[test]
fn swap_keeps_members_and_moves_contents() {
    let all = sets(
        "create x hash:ip\nadd x 10.0.0.1\ncreate y hash:ip\ncreate l list:set\nadd l x\n\
         swap x y\n",
    );
    let members: Vec<_> = all.get("l").unwrap().members().collect();
    assert_eq!(members, ["x"]);
    assert_eq!(all.get("x").unwrap().len(), 0);
    assert_eq!(all.get("y").unwrap().len(), 1);
}

#[test]
fn family_and_dimension_follow_the_type() {
    let all = sets(ALL);
    for (name, family, dimension, opaque) in [
        ("a", Some(Family::Inet), 1, None),
        ("d", Some(Family::Inet6), 2, None),
        ("o", Some(Family::Inet6), 2, Some("hash:net,iface")),
        ("p", Some(Family::Inet), 1, Some("hash:ip with bitmask")),
        ("l", None, 1, None),
    ] {
        let set = all.get(name).unwrap();
        assert_eq!(set.family(), family, "{name}");
        assert_eq!(set.dimension(), dimension, "{name}");
        assert_eq!(set.opaque(), opaque, "{name}");
    }
}

/// A generator of test numbers (xorshift, Marsaglia 2003).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[test]
fn longest_prefix_decides_as_a_scan_does() {
    let mut random = Random(test_seed() | 1 << 40);
    let mut all = sets("create x hash:net\ncreate y hash:net -6\n");
    let mut nets = BTreeMap::new();
    for _ in 0..3000 {
        let length = 20 + (random.next() % 13) as u8;
        let net = table::network(
            u128::from(0x0a00_0000 | (random.next() as u32 % 0x4000)),
            length,
            32,
        );
        let nomatch = random.next().is_multiple_of(3);
        nets.insert((net as u32, length), nomatch);
        let flag = if nomatch { " nomatch" } else { "" };
        let addr = Ipv4Addr::from(net as u32);
        let addr6 = Ipv6Addr::from(net << 96);
        all.apply_line(&format!("add x {addr}/{length}{flag} -exist"))
            .unwrap();
        all.apply_line(&format!("add y {addr6}/{length}{flag} -exist"))
            .unwrap();
    }
    for _ in 0..3000 {
        let addr = 0x0a00_0000 | (random.next() as u32 % 0x5000);
        let scanned = nets
            .iter()
            .filter(|((net, length), _)| u64::from(addr ^ net) >> (32 - length) == 0)
            .max_by_key(|((_, length), _)| *length);
        let expected = match scanned {
            Some((_, false)) => Contains::Yes,
            _ => Contains::No,
        };
        let v4 = SetKey {
            addr: Ipv4Addr::from(addr).into(),
            port: None,
        };
        let v6 = SetKey {
            addr: Ipv6Addr::from(u128::from(addr) << 96).into(),
            port: None,
        };
        assert_eq!(all.contains("x", &v4), Some(expected), "{}", v4.addr);
        assert_eq!(all.contains("y", &v6), Some(expected), "{}", v6.addr);
    }
}

#[test]
fn files_with_changed_bytes_still_read_identically() {
    let mut random = Random(test_seed() | 1 << 40);
    let bytes = b"-/,:. \"#09ax\n";
    let mut accepted = 0;
    for _ in 0..20_000 {
        let mut text = ALL.as_bytes().to_vec();
        let at = random.next() as usize % text.len();
        text[at] = bytes[random.next() as usize % bytes.len()];
        let Ok(sets) = Sets::read("sets", text.as_slice()) else {
            continue;
        };
        accepted += 1;
        let written = sets.to_string();
        let again = read(&written).unwrap_or_else(|error| panic!("{error}\n{written}"));
        assert_eq!(again.to_string(), written);
    }
    assert!(accepted > 1000, "{accepted}");
}
