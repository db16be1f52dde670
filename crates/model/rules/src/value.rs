//! Values of options: from text and back.

mod address;
mod chunks;
mod nat;
mod time;
mod write;

use std::net::Ipv6Addr;

use crate::names::Names;
use crate::spec::{Names as Choices, Type, U32Test};
use crate::tree::{Family, SetMatch, Value};

pub use address::{ipv6_text, length4, length6, net_list, prefix4, prefix6};
pub use time::civil_from_days;
pub use write::{quote, write};

use address::{address_range, nets};
use chunks::chunks;
use nat::{nat_address, nat_ports};
use time::{date, month_days, time_of_day};

/// Longest name of an interface, in bytes.
pub const MAX_INTERFACE: usize = 15;
/// Most slots of a multiport match; a range takes two.
pub const MAX_PORT_SLOTS: usize = 15;
/// Most addresses that a host or a list may stand for.
pub const MAX_ADDRESSES: usize = 1024;

/// Reads the bytes of a number: decimal, `0x` hexadecimal, or octal with a leading 0. Blanks and a plus
/// may be before it, as for `strtoul`, with which the tools read numbers.
pub fn any_number(word: &str) -> Option<u64> {
    let word = word.trim_ascii_start();
    let word = word.strip_prefix('+').unwrap_or(word);
    if let Some(hex) = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        return u64::from_str_radix(hex, 16)
            .ok()
            .filter(|_| !hex.starts_with('+'));
    }
    if word.len() > 1 && word.starts_with('0') {
        return u64::from_str_radix(&word[1..], 8)
            .ok()
            .filter(|_| !word[1..].starts_with('+'));
    }
    word.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then_some(())?;
    word.parse().ok()
}

/// Words after which values are read, with the names that they may use.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The protocol family.
    pub family: Family,
    /// Names of this machine.
    pub names: &'a Names,
}

pub(crate) fn show(word: &[u8]) -> String {
    let text = String::from_utf8_lossy(word);
    let mut out: String = text
        .chars()
        .take(64)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    if text.chars().count() > 64 {
        out.push('…');
    }
    out
}

fn utf8(word: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(word).map_err(|_| format!("\"{}\" is not UTF-8", show(word)))
}

fn number(word: &[u8], max: u64) -> Result<u64, String> {
    let text = utf8(word)?;
    match any_number(text) {
        Some(number) if number <= max => Ok(number),
        Some(_) => Err(format!("{} is more than {max}", show(word))),
        None => Err(format!("\"{}\" is not a number", show(word))),
    }
}

/// Splits at the first `separator`.
fn cut(word: &[u8], separator: u8) -> (&[u8], Option<&[u8]>) {
    match word.iter().position(|byte| *byte == separator) {
        Some(at) => (&word[..at], Some(&word[at + 1..])),
        None => (word, None),
    }
}

fn range(word: &[u8], max: u32) -> Result<Value, String> {
    let (first, last) = cut(word, b':');
    let one = |word: &[u8], default: u32| -> Result<u32, String> {
        if word.is_empty() {
            Ok(default)
        } else {
            Ok(number(word, u64::from(max))? as u32)
        }
    };
    if word.is_empty() {
        return Err("a number is missing".into());
    }
    match last {
        None => {
            let first = one(first, 0)?;
            Ok(Value::Pair(first, first))
        }
        Some(last) => Ok(Value::Pair(one(first, 0)?, one(last, max)?)),
    }
}

/// Reads digits: decimal, or as [`any_number`].
type Base = fn(&str) -> Option<u64>;

/// A port or a service name.
fn port(word: &[u8], base: Base, context: Context) -> Result<u16, String> {
    let text = utf8(word)?;
    if let Some(number) = base(text).filter(|_| !text.is_empty()) {
        return u16::try_from(number)
            .map_err(|_| format!("port {} is more than 65535", show(word)));
    }
    context.names.service(text).ok_or_else(|| {
        format!(
            "\"{}\" is not a port or a service of /etc/services",
            show(word)
        )
    })
}

fn port_range(word: &[u8], base: Base, context: Context) -> Result<(u16, u16), String> {
    let (first, last) = cut(word, b':');
    let or = |word: &[u8], default: u16| {
        if word.is_empty() {
            Ok(default)
        } else {
            port(word, base, context)
        }
    };
    Ok(match last {
        None => {
            let port = port(first, base, context)?;
            (port, port)
        }
        Some(last) => (or(first, 0)?, or(last, u16::MAX)?),
    })
}

fn ports(word: &[u8], context: Context) -> Result<(u16, u16), String> {
    let range = port_range(word, any_number, context)?;
    if range.0 > range.1 {
        return Err(format!(
            "the first port of \"{}\" is larger than the last: exchange them",
            show(word)
        ));
    }
    Ok(range)
}

fn choice(word: &[u8], names: Choices, what: &str) -> Result<u64, String> {
    let text = utf8(word)?;
    names
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(text))
        .map(|(_, number)| *number)
        .ok_or_else(|| {
            let known: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
            format!("\"{}\" is not a {what}: {}", show(word), known.join(", "))
        })
}

/// A day by its number or the beginning of its name.
fn weekday(word: &[u8], names: Choices) -> Option<u64> {
    let text = std::str::from_utf8(word).ok()?;
    let (first, _) = names.first().filter(|(name, _)| *name == "Mon")?;
    debug_assert_eq!(*first, "Mon");
    if let Ok(day @ 1..=7) = text.parse::<u32>() {
        return Some(1 << day);
    }
    let long = [
        "Monday",
        "Tuesday",
        "Wednesday",
        "Thursday",
        "Friday",
        "Saturday",
        "Sunday",
    ];
    let at = long.iter().position(|name| {
        (2..=name.len()).contains(&text.len()) && name[..text.len()].eq_ignore_ascii_case(text)
    })?;
    Some(2 << at)
}

fn bits(word: &[u8], names: Choices) -> Result<u64, String> {
    let mut set = 0;
    for part in word.split(|byte| *byte == b',') {
        set |= match choice(part, names, "known word") {
            Ok(bit) => bit,
            Err(error) => weekday(part, names).ok_or(error)?,
        };
    }
    Ok(set)
}

const TCP_FLAGS: Choices = &[
    ("FIN", 0x01),
    ("SYN", 0x02),
    ("RST", 0x04),
    ("PSH", 0x08),
    ("ACK", 0x10),
    ("URG", 0x20),
    ("ALL", 0x3f),
    ("NONE", 0),
];

/// Periods of rates in ten-thousandths of a second, as the kernel stores them.
const PERIODS: &[(&str, u64)] = &[
    ("sec", 10_000),
    ("min", 10_000 * 60),
    ("hour", 10_000 * 60 * 60),
    ("day", 10_000 * 24 * 60 * 60),
];

/// Ten-thousandths of a second for each packet.
fn rate(word: &[u8]) -> Result<u64, String> {
    let text = utf8(word)?;
    let (count, unit) = text.split_once('/').unwrap_or((text, "sec"));
    let period = if unit.is_empty() {
        None
    } else {
        ["second", "minute", "hour", "day"]
            .iter()
            .zip([10_000u64, 600_000, 36_000_000, 864_000_000])
            .find(|(name, _)| {
                unit.len() <= name.len() && name[..unit.len()].eq_ignore_ascii_case(unit)
            })
            .map(|(_, period)| period)
    };
    let bad =
        || format!("\"{text}\" is not a rate: write a number and /second, /minute, /hour or /day");
    let count: u64 = count
        .parse()
        .ok()
        .filter(|count| *count > 0)
        .ok_or_else(bad)?;
    let period = period.ok_or_else(bad)?;
    if count > period {
        return Err(format!(
            "rate \"{text}\" is too fast: the maximum is 10000/second"
        ));
    }
    Ok(period / count)
}

/// The shortest unit in which a rate is nearly exact, and the packets of it. `periods`: shortest first.
pub(crate) fn unit_of(periods: &[(&'static str, u64)], per_packet: u64) -> (&'static str, u64) {
    let per_packet = per_packet.max(1);
    let mut best = periods[periods.len() - 1];
    for (unit, period) in periods.iter().rev().copied() {
        if per_packet > period || period / per_packet < period % per_packet {
            break;
        }
        best = (unit, period);
    }
    (best.0, best.1 / per_packet)
}

pub(crate) fn rate_text(per_packet: u64) -> String {
    let (unit, count) = unit_of(PERIODS, per_packet);
    format!("{count}/{unit}")
}

/// A link-layer address.
pub(crate) fn mac(text: &str) -> Option<u64> {
    let mut address = 0u64;
    let mut count = 0;
    for part in text.split(':') {
        if part.is_empty() || part.len() > 2 {
            return None;
        }
        address = address << 8 | u64::from_str_radix(part, 16).ok()?;
        count += 1;
    }
    (count == 6).then_some(address)
}

pub(crate) fn mac_text(address: u64) -> String {
    let bytes = address.to_be_bytes();
    format!(
        "{:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}",
        bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]
    )
}

const FULL_MAC: u64 = 0xffff_ffff_ffff;
const MULTICAST: u64 = 0x0100_0000_0000;
/// Names of link-layer addresses with masks; the second number of bits is the mask.
const MAC_NAMES: &[(&str, u64, u64)] = &[
    ("Unicast", 0, MULTICAST),
    ("Multicast", MULTICAST, MULTICAST),
    ("Broadcast", FULL_MAC, FULL_MAC),
    ("BGA", 0x0180_c200_0000, FULL_MAC),
];

fn mac_mask(word: &[u8]) -> Result<Value, String> {
    let text = utf8(word)?;
    if let Some((_, address, mask)) = MAC_NAMES
        .iter()
        .find(|(name, _, _)| name.eq_ignore_ascii_case(text))
    {
        return Ok(Value::Wide(Box::new([*address, *mask])));
    }
    let (address, mask) = text
        .split_once('/')
        .map_or((text, None), |(a, m)| (a, Some(m)));
    let read = |part: &str| {
        mac(part).ok_or_else(|| {
            format!(
                "\"{}\" is not a link-layer address: write six hexadecimal numbers with colons",
                show(part.as_bytes())
            )
        })
    };
    let mask = mask.map_or(Ok(FULL_MAC), read)?;
    Ok(Value::Wide(Box::new([read(address)? & mask, mask])))
}

/// Types of options with lengths: type | (length + 1) << 8, 0 any length.
fn option_list(word: &[u8]) -> Result<Value, String> {
    let mut out = Vec::new();
    for part in word.split(|byte| *byte == b',') {
        let (ty, length) = cut(part, b':');
        let ty = number(ty, 255)?;
        if ty == 0 && length.is_some() {
            return Err("option 0 is one byte of padding and has no length".into());
        }
        // The kernel reads the length 255 as any.
        let length = match length.map(|length| number(length, 255)).transpose()? {
            None | Some(255) => 0,
            Some(length) => length + 1,
        };
        out.push(u128::from(ty | length << 8));
        if out.len() > 16 {
            return Err("more than 16 options in a list".into());
        }
    }
    Ok(Value::Numbers(Box::new(out.into())))
}

fn icmp_type(word: &[u8], names: &[(&str, u8, u8, u8)], family: Family) -> Result<Value, String> {
    let text = utf8(word)?;
    let found: Vec<_> = names
        .iter()
        .filter(|(name, ..)| {
            name.len() >= text.len()
                && !text.is_empty()
                && name[..text.len()].eq_ignore_ascii_case(text)
        })
        .collect();
    let exact = found.iter().find(|(name, ..)| name.len() == text.len());
    if let Some((_, ty, first, last)) = exact.or(match found[..] {
        [_] => found.first(),
        _ => None,
    }) {
        return Ok(icmp_value(*ty, *first, *last, family));
    }
    if found.len() > 1 {
        return Err(format!("\"{}\" is ambiguous among ICMP types", show(word)));
    }
    let (ty, code) = text
        .split_once('/')
        .map_or((text, None), |(t, c)| (t, Some(c)));
    let ty = number(ty.as_bytes(), 255).map_err(|_| {
        format!(
            "\"{}\" is not an ICMP type: write a number, type/code or a name",
            show(word)
        )
    })? as u8;
    Ok(match code {
        None => icmp_value(ty, 0, 255, family),
        Some(code) => {
            let code = number(code.as_bytes(), 255)? as u8;
            icmp_value(ty, code, code, family)
        }
    })
}

fn icmp_value(ty: u8, first: u8, last: u8, family: Family) -> Value {
    // Type 255 is any type and code in IPv4, and no packet has it in IPv6.
    let any = ty == 255 && family == Family::Ipv4;
    let (first, last) = if any { (0, 255) } else { (first, last) };
    Value::Pair(u32::from(ty), u32::from(first) | u32::from(last) << 8)
}

fn accounts(word: &[u8], find: impl Fn(&str) -> Option<u32>) -> Result<Value, String> {
    let text = utf8(word)?;
    if let Some(id) = find(text) {
        return Ok(Value::Pair(id, id));
    }
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let id = |text: &str| number(text.as_bytes(), u64::from(u32::MAX) - 1);
    match (id(first), id(last)) {
        (Ok(first), Ok(last)) if first <= last => Ok(Value::Pair(first as u32, last as u32)),
        _ => Err(format!(
            "\"{}\" is not a known name or a number: write a number or a range such as 100-200",
            show(word)
        )),
    }
}

fn value_mask(word: &[u8], max: u64, full: u64) -> Result<Value, String> {
    let (value, mask) = cut(word, b'/');
    let mask = mask.map_or(Ok(full), |mask| number(mask, max))?;
    Ok(Value::Pair(number(value, max)? as u32, mask as u32))
}

/// The only value of a list.
fn single(mut list: Vec<Value>) -> Result<Value, String> {
    match list.len() {
        1 => Ok(list.swap_remove(0)),
        count => Err(format!(
            "{count} addresses are not permitted here: write a rule for each"
        )),
    }
}

/// The arguments that an option takes.
pub fn arguments(ty: Type) -> usize {
    match ty {
        Type::Flag => 0,
        Type::TcpFlags | Type::Chunks | Type::SetMatch => 2,
        _ => 1,
    }
}

/// Reads a value from its arguments.
///
/// # Errors
///
/// The problem and a remedy, without the option.
pub fn parse(ty: Type, words: &[&[u8]], context: Context) -> Result<Value, String> {
    let word = words.first().copied().unwrap_or_default();
    Ok(match ty {
        Type::Flag => Value::None,
        Type::Net => single(net_list(word, context)?)?,
        Type::PlainNet => {
            let mut out = Vec::new();
            nets(word, context, false, &mut out)?;
            out.swap_remove(0)
        }
        Type::Mask => {
            let mut out = Vec::new();
            nets(word, context, false, &mut out)?;
            out.swap_remove(0)
        }
        Type::Dec(max) | Type::Hex { max, .. } => Value::Number(number(word, max)?),
        Type::Range(max) => range(word, max)?,
        Type::AddressRange => address_range(word, context)?,
        Type::Ports => {
            let (first, last) = ports(word, context)?;
            Value::Pair(u32::from(first), u32::from(last))
        }
        Type::DecimalPorts => {
            let (first, last) = port_range(word, crate::arp::decimal, context)?;
            Value::Pair(u32::from(first), u32::from(last))
        }
        Type::PortList => {
            let list = word
                .split(|byte| *byte == b',')
                .map(|part| match (part.first(), part.last()) {
                    (Some(b':'), _) | (_, Some(b':')) => {
                        Err(format!("\"{}\" has no bound: write both", show(part)))
                    }
                    _ => ports(part, context),
                })
                .collect::<Result<Vec<_>, _>>()?;
            let slots = list.len() + list.iter().filter(|(first, last)| first != last).count();
            if slots > MAX_PORT_SLOTS {
                return Err(format!(
                    "more than {MAX_PORT_SLOTS} ports, where a range counts as two: write more rules"
                ));
            }
            Value::Ranges(Box::new(list.into()))
        }
        Type::TcpFlags => Value::Pair(
            bits(word, TCP_FLAGS)? as u32,
            bits(words.get(1).copied().unwrap_or_default(), TCP_FLAGS)? as u32,
        ),
        Type::Mark | Type::XMark => value_mask(word, u64::from(u32::MAX), u64::from(u32::MAX))?,
        Type::Tos => match choice(word, crate::spec::tos_names(), "name") {
            Ok(tos) => Value::Pair(tos as u32, 0x3f),
            Err(_) => value_mask(word, 255, 255)?,
        },
        Type::Text(max) => {
            if word.is_empty() && (max == 29 || max == 63) {
                return Err("the text is empty".into());
            }
            // The original tools cut it.
            let kept = &word[..word.len().min(max)];
            Value::Text(Box::new(kept.into()))
        }
        Type::Word => Value::Text(Box::new(word.into())),
        Type::Rate => Value::Number(rate(word)?),
        Type::HashRate => crate::hash_rate::parse(utf8(word)?)?,
        Type::HashBurst => crate::hash_rate::parse_burst(utf8(word)?)?,
        Type::Mac => match mac(utf8(word)?) {
            Some(address) => Value::Number(address),
            None => {
                return Err(format!(
                    "\"{}\" is not a link-layer address: write six hexadecimal numbers with colons",
                    show(word)
                ));
            }
        },
        Type::MacMask | Type::MacName => {
            // arptables has no name for the bridge group address.
            if context.family == Family::Arp && word.eq_ignore_ascii_case(b"BGA") {
                return Err("BGA is a name of ebtables only: write 01:80:c2:00:00:00".into());
            }
            mac_mask(word)?
        }
        Type::ArpField(field) => field.parse(word)?,
        Type::Named16(names, max) => match crate::arp::hexadecimal(utf8(word)?) {
            Some(number) if number <= max => Value::Number(number),
            Some(_) => return Err(format!("{} is more than {max:#x}", show(word))),
            None => Value::Number(choice(word, names, "known word")?),
        },
        Type::Name(max) => {
            if word.is_empty() || word.len() > max {
                return Err(format!("a name has 1 to {max} bytes"));
            }
            Value::Text(Box::new(word.into()))
        }
        Type::NatAddress => Value::Text(Box::new(nat_address(utf8(word)?, context)?)),
        Type::NatPorts => Value::Text(Box::new(
            nat_ports(utf8(word)?, context)?.into_bytes().into(),
        )),
        Type::Named10(names, max) | Type::Numbered(names, max) | Type::NamedAny(names, max) => {
            let text = utf8(word)?;
            let base: Base = match ty {
                Type::NamedAny(..) => any_number,
                _ => crate::arp::decimal,
            };
            match base(text).filter(|_| !text.is_empty()) {
                Some(number) if number <= max => Value::Number(number),
                Some(_) => return Err(format!("{} is more than {max}", show(word))),
                None if names.is_empty() => {
                    return Err(format!("\"{}\" is not a decimal number", show(word)));
                }
                None => Value::Number(choice(word, names, "known word")?),
            }
        }
        Type::Exact(names) => {
            let known = names.iter().find(|(name, _)| name.as_bytes() == word);
            match (known, number(word, 255)) {
                (Some((_, number)), _) => Value::Number(*number),
                (None, Ok(level)) if names.len() == 8 && level < 8 => Value::Number(level),
                _ => {
                    let known: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
                    return Err(format!(
                        "\"{}\" is not one of {}",
                        show(word),
                        known.join(", ")
                    ));
                }
            }
        }
        Type::Quoted(max) => {
            if word.len() > max {
                return Err(format!("the text is longer than {max} bytes"));
            }
            if word.contains(&b'"') {
                return Err("the text must not have quotes".into());
            }
            Value::Text(Box::new(word.into()))
        }
        Type::Hex16 { max, form, .. } => {
            let text = utf8(word)?;
            let named = crate::bridge::ethertype_name(text)
                .filter(|_| form != crate::spec::HexForm::Lower)
                .map(u64::from);
            match crate::arp::hexadecimal(text).or(named) {
                Some(number) if number <= max => Value::Number(number),
                _ => {
                    return Err(format!(
                        "\"{}\" is not a hexadecimal number up to 0x{max:x}",
                        show(word)
                    ));
                }
            }
        }
        Type::HexUpper(max) => Value::Number(number(word, max)?),
        Type::Net6 => {
            let context = Context {
                family: Family::Ipv6,
                ..context
            };
            parse(Type::Net, words, context)?
        }
        Type::IpProtocol => {
            let context = Context {
                family: Family::Ipv4,
                ..context
            };
            Value::Number(u64::from(protocol(word, context)?))
        }
        Type::IcmpRange(names) => crate::bridge::icmp_range(utf8(word)?, names)?,
        Type::IgmpRange(names) => crate::bridge::igmp_range(utf8(word)?, names)?,
        Type::MarkOrBits => match word.strip_prefix(b"/") {
            Some(mask) => Value::Number(number(mask, u64::from(u32::MAX))?),
            None => value_mask(word, u64::from(u32::MAX), u64::from(u32::MAX))?,
        },
        Type::OrderedRange(max) => crate::bridge::ordered_range(utf8(word)?, max)?,
        Type::Among => crate::bridge::among(utf8(word)?)?,
        Type::Interface => {
            if word.is_empty() || word.len() > MAX_INTERFACE {
                return Err(format!(
                    "interface name \"{}\" must have 1 to {MAX_INTERFACE} bytes",
                    show(word)
                ));
            }
            // Writers do not quote it.
            let odd = |byte: &u8| {
                byte.is_ascii_whitespace() || byte.is_ascii_control() || b"\"'\\".contains(byte)
            };
            if word.iter().any(odd) {
                return Err(format!(
                    "interface name \"{}\" has a blank, a quote, a backslash or a control character: the format of the save tools cannot have such a name",
                    show(word)
                ));
            }
            Value::Text(Box::new(word.into()))
        }
        Type::Protocol | Type::ProtocolNumber => Value::Number(u64::from(protocol(word, context)?)),
        Type::IcmpType(names) => icmp_type(word, names, context.family)?,
        Type::Bits(names) => Value::Number(bits(word, names)?),
        Type::Choice(names) | Type::Named(names) => Value::Number(match number(word, 255) {
            Ok(known) if names.iter().any(|(_, number)| *number == known) => known,
            _ => choice(word, names, "known word")?,
        }),
        Type::Begun(names) => {
            let begins = |name: &str| {
                let start = name.as_bytes().get(..word.len());
                !word.is_empty() && start.is_some_and(|start| start.eq_ignore_ascii_case(word))
            };
            match names.iter().find(|(name, _)| begins(name)) {
                Some((_, number)) => Value::Number(*number),
                None => Value::Number(choice(word, names, "known word")?),
            }
        }
        Type::MonthDays => Value::Number(month_days(word)?),
        Type::Date => Value::Number(date(word).ok_or_else(|| {
            format!(
                "\"{}\" is not a date: write 2024-05-31T12:00:00",
                show(word)
            )
        })?),
        Type::TimeOfDay => Value::Number(time_of_day(word).ok_or_else(|| {
            format!(
                "\"{}\" is not a time of day: write 22:30 or 22:30:00",
                show(word)
            )
        })?),
        Type::Probability => {
            let share: f64 = utf8(word)?
                .parse()
                .ok()
                .filter(|share| (0.0..=1.0).contains(share))
                .ok_or_else(|| format!("\"{}\" is not a number from 0 to 1", show(word)))?;
            Value::Number((share * f64::from(1u32 << 31)).round() as u64)
        }
        Type::U32 => Value::U32(Box::new(U32Test::parse(word)?)),
        Type::Users => accounts(word, |name| context.names.user(name))?,
        Type::Groups => accounts(word, |name| context.names.group(name))?,
        Type::SetMatch => set_match(word, words.get(1).copied().unwrap_or_default())?,
        Type::OptionList => option_list(word)?,
        Type::Chunks => chunks(word, words.get(1).copied().unwrap_or_default())?,
        Type::AddressList => {
            let mut out = Vec::new();
            for part in word.split(|byte| *byte == b',') {
                let address: Ipv6Addr = utf8(part)?
                    .parse()
                    .map_err(|_| format!("\"{}\" is not an IPv6 address", show(part)))?;
                out.push(u128::from(address));
                if out.len() > 16 {
                    return Err("more than 16 addresses in a list".into());
                }
            }
            Value::Numbers(Box::new(out.into()))
        }
        Type::Handle => {
            let (major, minor) = cut(word, b':');
            let part = |word: &[u8]| {
                crate::arp::hexadecimal(utf8(word)?)
                    .and_then(|part| u16::try_from(part).ok())
                    .ok_or_else(|| format!("\"{}\" is not a class: write 1:10", show(word)))
            };
            Value::Pair(
                u32::from(part(major)?),
                u32::from(part(minor.unwrap_or_default())?),
            )
        }
        Type::Words => Value::Words(Box::new(words.iter().map(|word| (*word).into()).collect())),
    })
}

/// Reads a protocol, or an ethertype of bridges.
///
/// # Errors
///
/// The word is neither a name nor a number.
pub fn protocol(word: &[u8], context: Context) -> Result<u16, String> {
    let text = utf8(word)?;
    if context.family == Family::Bridge {
        return crate::bridge::ethertype(text);
    }
    if text.eq_ignore_ascii_case("all") {
        return Ok(0);
    }
    if let Some(number) = any_number(text) {
        return u8::try_from(number)
            .map(u16::from)
            .map_err(|_| format!("protocol {text} is more than 255"));
    }
    context.names.protocol(text).map(u16::from).ok_or_else(|| {
        format!(
            "\"{}\" is not a protocol: write a name of /etc/protocols or a number",
            show(word)
        )
    })
}

fn set_match(name: &[u8], fields: &[u8]) -> Result<Value, String> {
    if name.is_empty() || name.len() > 31 {
        return Err("the name of a set has 1 to 31 bytes".into());
    }
    let mut destinations = Vec::new();
    for part in fields.split(|byte| *byte == b',') {
        destinations.push(match part {
            b"src" => false,
            b"dst" => true,
            _ => {
                return Err(format!(
                    "\"{}\" is not a field of a set: write src or dst for each dimension",
                    show(part)
                ));
            }
        });
    }
    if destinations.len() > 6 {
        return Err("a set has at most 6 dimensions".into());
    }
    Ok(Value::Set(Box::new(SetMatch {
        name: name.into(),
        destinations,
    })))
}
