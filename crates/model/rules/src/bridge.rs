//! Words of ebtables files: ethertypes, ranges, lists of addresses, and the protocols of matches.
//!
//! The canonical form is that of `ebtables-nft-save`, Debian's default. `ebtables-legacy-save` writes
//! addresses without leading zeros, names of ethertypes in `--arp-ptype` and `--vlan-encap`, a comma
//! after an among list, and `--log-prefix ""`; it omits `/0`, and the blank after `--nflog-prefix`. Both
//! forms are read. The tools differ about `--ip-tos 10`, which is sixteen to the legacy tool, and ten here,
//! and about `--ip-src 10.0.0.1/0`, whose mask is `/32` to the legacy tool.

use std::io::Write;
use std::net::Ipv4Addr;

use crate::arp::{decimal, hexadecimal};
use crate::spec::{Kind, Names, SPECS};
use crate::tree::{Family, Hook, Item, Value};
use crate::value::{mac, show};

/// Names of ethertypes, without regard to case (`/etc/ethertypes` of Debian 12). The first one of a
/// number is written.
const ETHERTYPES: &[(&str, u16)] = &[
    ("IPv4", 0x0800),
    ("ip", 0x0800),
    ("ip4", 0x0800),
    ("X25", 0x0805),
    ("ARP", 0x0806),
    ("ether-arp", 0x0806),
    ("FR_ARP", 0x0808),
    ("BPQ", 0x08ff),
    ("TRILL", 0x22f3),
    ("L2-IS-IS", 0x22f4),
    ("TEB", 0x6558),
    ("RAW_FR", 0x6559),
    ("RARP", 0x8035),
    ("ATALK", 0x809b),
    ("AARP", 0x80f3),
    ("802_1Q", 0x8100),
    ("8021q", 0x8100),
    ("1q", 0x8100),
    ("802.1q", 0x8100),
    ("dot1q", 0x8100),
    ("IPX", 0x8137),
    ("NetBEUI", 0x8191),
    ("IPv6", 0x86dd),
    ("ip6", 0x86dd),
    ("PPP", 0x880b),
    ("MPLS", 0x8847),
    ("MPLS_MULTI", 0x8848),
    ("ATMMPOA", 0x884c),
    ("PPP_DISC", 0x8863),
    ("PPP_SES", 0x8864),
    ("ATMFATE", 0x8884),
    ("EAPOL", 0x888e),
    ("S-TAG", 0x88a8),
    ("EAP_PREAUTH", 0x88c7),
    ("LLDP", 0x88cc),
    ("MACSEC", 0x88e5),
    ("PBB", 0x88e7),
    ("macinmac", 0x88e7),
    ("MVRP", 0x88f5),
    ("PTP", 0x88f7),
    ("FCOE", 0x8906),
    ("FIP", 0x8914),
    ("ROCE", 0x8915),
    ("LoWPAN", 0xa0ed),
];

/// 802.3 frames with a length instead of a type.
pub const LENGTH: u16 = 0;
/// Most addresses of an among list.
pub const MAX_AMONG: usize = 4096;

/// The number of an ethertype's name.
pub fn ethertype_name(text: &str) -> Option<u16> {
    ETHERTYPES
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(text))
        .map(|(_, number)| *number)
}

/// Reads the value of `-p`: a name, `LENGTH`, or a number. Numbers are hexadecimal with or without
/// `0x`.
///
/// # Errors
///
/// An unknown name, or a number below 0x0600.
pub fn ethertype(text: &str) -> Result<u16, String> {
    if text.eq_ignore_ascii_case("length") {
        return Ok(LENGTH);
    }
    match hexadecimal(text) {
        Some(number @ 0x600..=0xffff) => return Ok(number as u16),
        Some(_) => {}
        None => {
            if let Some(number) = ethertype_name(text) {
                return Ok(number);
            }
        }
    }
    Err(format!(
        "\"{}\" is not an ethertype: write a name such as IPv4, or 0x0600 to 0xffff",
        show(text.as_bytes())
    ))
}

/// The form in which `-p` is written.
pub fn ethertype_text(number: u16) -> String {
    if number == LENGTH {
        return "Length".into();
    }
    ETHERTYPES
        .iter()
        .find(|(_, known)| *known == number)
        .map_or_else(|| format!("0x{number:x}"), |(name, _)| (*name).to_owned())
}

/// The match that has this option. ebtables loads matches by the names of their options.
pub fn match_of_option(name: &[u8]) -> Option<Kind> {
    SPECS
        .iter()
        .filter(|spec| {
            spec.is_in(Family::Bridge) && !spec.kind.is_header() && !spec.kind.is_target()
        })
        .find(|spec| {
            spec.options
                .iter()
                .any(|option| option.names.iter().any(|known| known.as_bytes() == name))
        })
        .map(|spec| spec.kind)
}

/// A remedy for options of ebtables that Fairpath refuses.
pub fn refused_option(name: &[u8]) -> Option<&'static str> {
    match name {
        b"--among-src-file" | b"--among-dst-file" => {
            Some("write the addresses into the rule with --among-src or --among-dst")
        }
        b"--ulog" | b"--ulog-prefix" | b"--ulog-nlgroup" | b"--ulog-cprange"
        | b"--ulog-qthreshold" => Some("Linux 3.17 removed ulog: use --nflog"),
        b"-m" | b"--match" => Some("write the options of the match without it"),
        _ => None,
    }
}

/// Reads `first:last` or one number by `one`.
fn span(text: &str, max: u64, one: impl Fn(&str) -> Option<u64>) -> Option<(u32, u32)> {
    let (first, last) = text.split_once(':').unwrap_or((text, text));
    let number = |text: &str| {
        one(text)
            .filter(|number| *number <= max)
            .map(|number| number as u32)
    };
    let span = (number(first)?, number(last)?);
    (span.0 <= span.1).then_some(span)
}

fn nonempty(text: &str) -> Option<u64> {
    (!text.is_empty())
        .then(|| crate::value::any_number(text))
        .flatten()
}

/// Reads a name, or `type[:type][/code[:code]]`.
///
/// # Errors
///
/// An unknown name, a number above 255, or a range whose end is before its start.
pub fn icmp_range(text: &str, names: &[(&str, u8, u8, u8)]) -> Result<Value, String> {
    let bad = || {
        format!(
            "\"{}\" is not an ICMP type: write a name, or type:type/code:code",
            show(text.as_bytes())
        )
    };
    let found: Vec<_> = names
        .iter()
        .filter(|(name, ..)| {
            !text.is_empty()
                && name.len() >= text.len()
                && name.as_bytes()[..text.len()].eq_ignore_ascii_case(text.as_bytes())
        })
        .collect();
    let exact = found.iter().find(|(name, ..)| name.len() == text.len());
    let only = (found.len() == 1).then(|| &found[0]);
    if let Some((_, ty, first, last)) = exact.or(only) {
        let ty = u32::from(*ty);
        return Ok(Value::Pair(
            ty | ty << 8,
            u32::from(*first) | u32::from(*last) << 8,
        ));
    }
    let (types, codes) = match text.split_once('/') {
        Some((types, codes)) => (types, Some(codes)),
        None => (text, None),
    };
    let types = span(types, 255, nonempty).ok_or_else(bad)?;
    let codes = match codes {
        Some(codes) => span(codes, 255, nonempty).ok_or_else(bad)?,
        None => (0, 255),
    };
    Ok(Value::Pair(types.0 | types.1 << 8, codes.0 | codes.1 << 8))
}

/// Writes a value of [`icmp_range`].
pub fn write_icmp_range(types: u32, codes: u32, names: &[(&str, u8, u8, u8)], out: &mut Vec<u8>) {
    let (first, last) = (types & 0xff, types >> 8);
    let (code, end) = (codes & 0xff, codes >> 8);
    let known = names.iter().find(|(_, ty, low, high)| {
        let (ty, low, high) = (u32::from(*ty), u32::from(*low), u32::from(*high));
        first == last && (ty, low, high) == (first, code, end)
    });
    if let Some((name, ..)) = known {
        out.extend_from_slice(name.as_bytes());
        return;
    }
    write_span(first, last, out);
    out.push(b'/');
    write_span(code, end, out);
}

/// Writes a number, or `first:last`.
pub fn write_span(first: u32, last: u32, out: &mut Vec<u8>) {
    let _ = if first == last {
        write!(out, "{first}")
    } else {
        write!(out, "{first}:{last}")
    };
}

/// Reads a name or a range of numbers up to 255.
///
/// # Errors
///
/// Neither.
pub fn igmp_range(text: &str, names: Names) -> Result<Value, String> {
    if let Some((_, number)) = names
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(text))
    {
        return Ok(Value::Pair(*number as u32, *number as u32));
    }
    span(text, 255, nonempty)
        .map(|(first, last)| Value::Pair(first, last))
        .ok_or_else(|| {
            format!(
                "\"{}\" is not an IGMP type: write a name, or type:type",
                show(text.as_bytes())
            )
        })
}

/// Reads a decimal range; a missing end is the smallest or largest number.
///
/// # Errors
///
/// Not a range, or its end is before its start.
pub fn ordered_range(text: &str, max: u32) -> Result<Value, String> {
    let bad = || {
        format!(
            "\"{}\" is not a range: write two numbers up to {max} such as 1:5",
            show(text.as_bytes())
        )
    };
    let one = |text: &str, default: u32| match text {
        "" => Some(default),
        text => decimal(text)
            .filter(|number| *number <= u64::from(max))
            .map(|number| number as u32),
    };
    let (first, last) = match text.split_once(':') {
        Some((first, last)) => (one(first, 0), one(last, max)),
        None if text.is_empty() => return Err(bad()),
        None => (one(text, 0), one(text, 0)),
    };
    match (first, last) {
        (Some(first), Some(last)) if first <= last => Ok(Value::Pair(first, last)),
        _ => Err(bad()),
    }
}

/// Reads `MAC[=IPV4],...`.
///
/// # Errors
///
/// A bad address, an empty list, or more than [`MAX_AMONG`] addresses.
pub fn among(text: &str) -> Result<Value, String> {
    let mut list = Vec::new();
    // ebtables permits a comma at the end.
    for part in text.strip_suffix(',').unwrap_or(text).split(',') {
        let (address, ip) = match part.split_once('=') {
            Some((address, ip)) => (address, Some(ip)),
            None => (part, None),
        };
        let address = mac(address).ok_or_else(|| {
            format!(
                "\"{}\" is not a link-layer address: write six hexadecimal numbers with colons",
                show(address.as_bytes())
            )
        })?;
        let ip = match ip {
            None => 0,
            Some(ip) => ip
                .parse::<Ipv4Addr>()
                .map(|ip| u128::from(u32::from(ip)) | 1 << 32)
                .map_err(|_| format!("\"{}\" is not an IPv4 address", show(ip.as_bytes())))?,
        };
        if list.len() == MAX_AMONG {
            return Err(format!("more than {MAX_AMONG} addresses in a list"));
        }
        list.push(u128::from(address) << 33 | ip);
    }
    list.sort_unstable();
    list.dedup();
    Ok(Value::Numbers(Box::new(list.into())))
}

/// Writes a value of [`among`].
pub fn write_among(list: &[u128], out: &mut Vec<u8>) {
    for (at, entry) in list.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        let address = (entry >> 33) as u64;
        for byte in (0..6).rev() {
            let _ = write!(out, "{:x}", address >> (8 * byte) & 0xff);
            if byte > 0 {
                out.push(b':');
            }
        }
        if entry >> 32 & 1 == 1 {
            let _ = write!(out, "={}", Ipv4Addr::from(*entry as u32));
        }
    }
}

/// Checks that `-p` names the protocol of a match.
///
/// # Errors
///
/// The protocol that is missing.
pub fn check_protocol(kind: Kind, header: &[Item]) -> Result<(), String> {
    let (needed, names): (&[u64], &str) = match kind {
        Kind::BridgeIp => (&[0x0800], "IPv4"),
        Kind::BridgeIp6 => (&[0x86dd], "IPv6"),
        Kind::BridgeArp | Kind::BridgeArpreply => (&[0x0806, 0x8035], "ARP or -p RARP"),
        Kind::Dot3 => (&[LENGTH as u64], "LENGTH"),
        Kind::Vlan => (&[0x8100], "802_1Q"),
        _ => return Ok(()),
    };
    let fits = header.iter().any(|item| {
        item.kind == Kind::BridgeHeader
            && item.option == 0
            && !item.not
            && matches!(item.value, Value::Number(number) if needed.contains(&number))
    });
    if fits {
        Ok(())
    } else {
        Err(format!("{} needs -p {names}", kind.spec().name))
    }
}

/// Checks the protocol inside of an IP match: ports and ICMP types need `--ip-proto`.
///
/// # Errors
///
/// The option that is missing.
pub fn check_inner_protocol(kind: Kind, items: &[Item]) -> Result<(), String> {
    let proto = match kind {
        Kind::BridgeIp => "--ip-proto",
        Kind::BridgeIp6 => "--ip6-proto",
        _ => return Ok(()),
    };
    let index = kind.spec().option_index(proto);
    let number = items.iter().find_map(|item| match item.value {
        Value::Number(number) if Some(item.option) == index && !item.not => Some(number),
        _ => None,
    });
    for item in items {
        let (needed, names): (&[u64], &str) = match item.name() {
            "--ip-sport" | "--ip-dport" | "--ip6-sport" | "--ip6-dport" => {
                (&[6, 17, 33, 132, 136], "tcp, udp, udplite, sctp or dccp")
            }
            "--ip-icmp-type" => (&[1], "icmp"),
            "--ip6-icmp-type" => (&[58], "ipv6-icmp"),
            "--ip-igmp-type" => (&[2], "igmp"),
            _ => continue,
        };
        if !number.is_some_and(|number| needed.contains(&number)) {
            return Err(format!("{} needs {proto} {names}", item.name()));
        }
    }
    Ok(())
}

/// The table and the hooks of a target; an empty list is any.
pub fn places(kind: Kind) -> &'static [(&'static str, &'static [Hook])] {
    match kind {
        Kind::BridgeArpreply => &[("nat", &[Hook::Prerouting])],
        Kind::BridgeDnat => &[
            ("nat", &[Hook::Prerouting, Hook::Output]),
            ("broute", &[Hook::Brouting]),
        ],
        Kind::BridgeRedirect => &[("nat", &[Hook::Prerouting]), ("broute", &[Hook::Brouting])],
        Kind::BridgeSnat => &[("nat", &[Hook::Postrouting])],
        _ => &[],
    }
}
