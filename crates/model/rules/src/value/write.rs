//! Values as text, in the canonical form.

use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::address::{net4, net6};
use super::chunks::chunks_text;
use super::time::{civil_from_days, time_text};
use super::{FULL_MAC, MAC_NAMES, TCP_FLAGS, mac_text, rate_text};
use crate::names::protocol_name;
use crate::spec::{Names as Choices, Type};
use crate::tree::{Family, Value};

/// Writes text as the original tools quote it.
pub fn quote(text: &[u8], out: &mut Vec<u8>) {
    let bare = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-' || *byte == b'_';
    if !text.is_empty() && text.iter().all(bare) {
        out.extend_from_slice(text);
        return;
    }
    always_quote(text, out);
}

fn always_quote(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text {
        if matches!(byte, b'"' | b'\\' | b'\'') {
            out.push(b'\\');
        }
        out.push(*byte);
    }
    out.push(b'"');
}

fn list(names: Choices, set: u64, out: &mut Vec<u8>) {
    let mut first = true;
    let mut seen = 0;
    for (name, bit) in names {
        if *bit != 0 && set & bit == *bit && seen & bit == 0 {
            if !first {
                out.push(b',');
            }
            out.extend_from_slice(name.as_bytes());
            first = false;
            seen |= bit;
        }
    }
    if first && let Some((name, _)) = names.iter().find(|(_, bit)| *bit == 0) {
        out.extend_from_slice(name.as_bytes());
    }
}

/// Writes a value in its canonical form.
pub fn write(ty: Type, value: &Value, family: Family, out: &mut Vec<u8>) {
    match (ty, value) {
        (Type::Net, Value::Pair(address, mask)) => net4(*address, *mask, family.is_ip(), out),
        (Type::PlainNet, Value::Pair(address, mask)) => net4(*address, *mask, false, out),
        (Type::Net, Value::Ipv6(net)) => net6(net[0], net[1], true, out),
        (Type::PlainNet, Value::Ipv6(net)) => net6(net[0], net[1], false, out),
        (Type::Mask, Value::Pair(mask, _)) => {
            let _ = write!(out, "{}", Ipv4Addr::from(*mask));
        }
        (Type::Mask, Value::Ipv6(net)) => {
            let _ = write!(out, "{}", Ipv6Addr::from(net[0]));
        }
        (
            Type::Dec(_) | Type::ProtocolNumber | Type::Named(_) | Type::Numbered(..),
            Value::Number(number),
        ) => {
            let _ = write!(out, "{number}");
        }
        (Type::Hex { digits, .. }, Value::Number(number)) => {
            let _ = write!(out, "0x{number:0width$x}", width = usize::from(digits));
        }
        (Type::Range(_) | Type::Ports | Type::DecimalPorts, Value::Pair(first, last)) => {
            let _ = if first == last {
                write!(out, "{first}")
            } else {
                write!(out, "{first}:{last}")
            };
        }
        (Type::AddressRange, Value::Pair(first, last)) => {
            let _ = write!(out, "{}-{}", Ipv4Addr::from(*first), Ipv4Addr::from(*last));
        }
        (Type::AddressRange, Value::Ipv6(range)) => {
            let _ = write!(
                out,
                "{}-{}",
                Ipv6Addr::from(range[0]),
                Ipv6Addr::from(range[1])
            );
        }
        (Type::PortList, Value::Ranges(ranges)) => {
            for (at, (first, last)) in ranges.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                let _ = if first == last {
                    write!(out, "{first}")
                } else {
                    write!(out, "{first}:{last}")
                };
            }
        }
        (Type::TcpFlags, Value::Pair(mask, set)) => {
            let names = &TCP_FLAGS[..6];
            for (at, flags) in [*mask, *set].into_iter().enumerate() {
                if at > 0 {
                    out.push(b' ');
                }
                if flags == 0 {
                    out.extend_from_slice(b"NONE");
                } else {
                    list(names, u64::from(flags), out);
                }
            }
        }
        (Type::Mark, Value::Pair(value, mask)) => {
            let _ = write!(out, "0x{value:x}");
            if *mask != u32::MAX {
                let _ = write!(out, "/0x{mask:x}");
            }
        }
        (Type::XMark, Value::Pair(value, mask)) => {
            let _ = write!(out, "0x{value:x}/0x{mask:x}");
        }
        (Type::Tos, Value::Pair(value, mask)) => {
            let _ = write!(out, "0x{value:02x}/0x{mask:02x}");
        }
        (Type::ArpField(field), Value::Pair(value, mask)) => field.write(*value, *mask, out),
        (Type::MacName, Value::Wide(pair)) => {
            let name = MAC_NAMES
                .iter()
                .find(|(_, address, mask)| pair[..] == [*address, *mask]);
            match name {
                Some((name, ..)) => out.extend_from_slice(name.as_bytes()),
                None => write(Type::MacMask, value, family, out),
            }
        }
        (
            Type::Named10(names, _) | Type::NamedAny(names, _) | Type::Exact(names),
            Value::Number(number),
        ) => match names.iter().find(|(_, known)| known == number) {
            Some((name, _)) => out.extend_from_slice(name.as_bytes()),
            None => {
                let _ = write!(out, "{number}");
            }
        },
        (Type::Named16(names, _), Value::Number(number)) => {
            match names.iter().find(|(_, known)| known == number) {
                Some((name, _)) => out.extend_from_slice(name.as_bytes()),
                // The original tool writes decimal, which it would read as hexadecimal.
                None => {
                    let _ = match number {
                        0..10 => write!(out, "{number}"),
                        _ => write!(out, "0x{number:x}"),
                    };
                }
            }
        }
        (Type::Name(_), Value::Text(text)) => quote_word(text, out),
        (Type::Quoted(_), Value::Text(text)) => always_quote(text, out),
        (Type::Hex16 { digits, form, .. }, Value::Number(number)) => {
            let width = usize::from(digits);
            let _ = match form {
                crate::spec::HexForm::BareNames => write!(out, "{number:0width$X}"),
                _ => write!(out, "0x{number:0width$x}"),
            };
        }
        (Type::HexUpper(_), Value::Number(number)) => {
            let _ = write!(out, "0x{number:02X}");
        }
        (Type::Net6, Value::Ipv6(net)) => net6(net[0], net[1], false, out),
        (Type::IpProtocol, Value::Number(0)) => out.extend_from_slice(b"ip"),
        (Type::IpProtocol, value) => write(Type::Protocol, value, Family::Ipv4, out),
        (Type::IcmpRange(names), Value::Pair(types, codes)) => {
            crate::bridge::write_icmp_range(*types, *codes, names, out);
        }
        (Type::IgmpRange(names), Value::Pair(first, last)) => {
            let name = names
                .iter()
                .find(|(_, known)| first == last && *known == u64::from(*first));
            match name {
                Some((name, _)) => out.extend_from_slice(name.as_bytes()),
                None => crate::bridge::write_span(*first, *last, out),
            }
        }
        (Type::MarkOrBits, Value::Number(mask)) => {
            let _ = write!(out, "/0x{mask:x}");
        }
        (Type::MarkOrBits, value) => write(Type::Mark, value, family, out),
        (Type::OrderedRange(_), Value::Pair(first, last)) => {
            crate::bridge::write_span(*first, *last, out);
        }
        (Type::Among, Value::Numbers(list)) => crate::bridge::write_among(list, out),
        (Type::Text(_), Value::Text(text)) => quote(text, out),
        (_, Value::Text(text)) => out.extend_from_slice(text),
        (Type::Rate, Value::Number(rate)) => out.extend_from_slice(rate_text(*rate).as_bytes()),
        (Type::HashRate, value) => crate::hash_rate::write(value, out),
        (Type::HashBurst, value) => crate::hash_rate::write_burst(value, out),
        (Type::Mac, Value::Number(address)) => {
            out.extend_from_slice(mac_text(*address).as_bytes());
        }
        (Type::MacMask, Value::Wide(pair)) => {
            out.extend_from_slice(mac_text(pair[0]).as_bytes());
            if pair[1] != FULL_MAC {
                out.push(b'/');
                out.extend_from_slice(mac_text(pair[1]).as_bytes());
            }
        }
        (Type::Protocol, Value::Number(0)) if family != Family::Bridge => {
            out.extend_from_slice(b"all");
        }
        (Type::Protocol, Value::Number(number)) if family != Family::Bridge => {
            match protocol_name(*number as u8) {
                Some(name) => out.extend_from_slice(name.as_bytes()),
                None => {
                    let _ = write!(out, "{number}");
                }
            }
        }
        (Type::Protocol, Value::Number(number)) => {
            out.extend_from_slice(crate::bridge::ethertype_text(*number as u16).as_bytes());
        }
        (Type::IcmpType(_), Value::Pair(ty, codes)) => {
            let (first, last) = (codes & 0xff, codes >> 8);
            let _ = match (*ty, first, last) {
                (255, 0, 255) if family == Family::Ipv4 => write!(out, "any"),
                (ty, 0, 255) => write!(out, "{ty}"),
                (ty, code, _) => write!(out, "{ty}/{code}"),
            };
        }
        (Type::Bits(names), Value::Number(set)) => list(names, *set, out),
        (Type::Choice(names) | Type::Begun(names), Value::Number(number)) => {
            if let Some((name, _)) = names.iter().find(|(_, known)| known == number) {
                out.extend_from_slice(name.as_bytes());
            }
        }
        (Type::MonthDays, Value::Number(days)) => {
            let days: Vec<String> = (1..32)
                .filter(|day| days & (1 << day) != 0)
                .map(|day| day.to_string())
                .collect();
            out.extend_from_slice(days.join(",").as_bytes());
        }
        (Type::Date, Value::Number(seconds)) => {
            let (year, month, day) = civil_from_days((seconds / 86_400) as i64);
            let _ = write!(out, "{year:04}-{month:02}-{day:02}T");
            time_text(seconds % 86_400, out);
        }
        (Type::TimeOfDay, Value::Number(seconds)) => time_text(*seconds, out),
        (Type::Probability, Value::Number(share)) => {
            let _ = write!(out, "{:.11}", *share as f64 / f64::from(1u32 << 31));
        }
        (Type::U32, Value::U32(test)) => {
            let _ = write!(out, "\"{}\"", test.text());
        }
        (Type::Users | Type::Groups, Value::Pair(first, last)) => {
            let _ = if first == last {
                write!(out, "{first}")
            } else {
                write!(out, "{first}-{last}")
            };
        }
        (Type::SetMatch, Value::Set(set)) => {
            out.extend_from_slice(&set.name);
            for (at, destination) in set.destinations.iter().enumerate() {
                out.push(if at == 0 { b' ' } else { b',' });
                out.extend_from_slice(if *destination { b"dst" } else { b"src" });
            }
        }
        (Type::OptionList, Value::Numbers(numbers)) => {
            for (at, entry) in numbers.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                let _ = write!(out, "{}", *entry as u8);
                if entry >> 8 != 0 {
                    let _ = write!(out, ":{}", (entry >> 8) - 1);
                }
            }
        }
        (Type::Chunks, Value::Numbers(numbers)) => {
            out.extend_from_slice(chunks_text(numbers).as_bytes());
        }
        (Type::AddressList, Value::Numbers(numbers)) => {
            for (at, address) in numbers.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                let _ = write!(out, "{}", Ipv6Addr::from(*address));
            }
        }
        (Type::Handle, Value::Pair(major, minor)) => {
            let _ = match family {
                Family::Arp => write!(out, "{major:x}:{minor:x}"),
                _ => write!(out, "{major:04x}:{minor:04x}"),
            };
        }
        (_, Value::Words(words)) => {
            for (at, word) in words.iter().enumerate() {
                if at > 0 {
                    out.push(b' ');
                }
                quote_word(word, out);
            }
        }
        (ty, value) => debug_assert!(
            matches!((ty, value), (Type::Flag, Value::None)),
            "{ty:?} has no form for {value:?}"
        ),
    }
}

/// Writes a word of an unknown extension: in quotes only if it needs them.
fn quote_word(word: &[u8], out: &mut Vec<u8>) {
    let plain = |byte: &u8| !byte.is_ascii_whitespace() && !matches!(byte, b'"' | b'\\');
    if !word.is_empty() && word.iter().all(plain) {
        out.extend_from_slice(word);
    } else {
        quote(word, out);
    }
}
