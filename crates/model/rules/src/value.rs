//! Values of options: from text and back.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::names::{Names, protocol_name};
use crate::spec::{Names as Choices, Type, U32Test};
use crate::tree::{Family, SetMatch, Value};

/// Longest name of an interface, in bytes.
pub const MAX_INTERFACE: usize = 15;
/// Most slots of a multiport match; a range takes two.
pub const MAX_PORT_SLOTS: usize = 15;
/// Most addresses that a host or a list may stand for.
pub const MAX_ADDRESSES: usize = 1024;

/// Reads the bytes of a number: decimal, `0x` hexadecimal, or octal with a leading 0.
pub fn any_number(word: &str) -> Option<u64> {
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

/// An IPv4 address as `inet_aton` reads it with four parts; fewer parts are filled with zeros.
fn ipv4(text: &str) -> Option<u32> {
    if let Ok(address) = text.parse::<Ipv4Addr>() {
        return Some(address.into());
    }
    let mut address = 0u32;
    let mut count = 0;
    for part in text.split('.') {
        let part = u32::try_from(any_number(part)?)
            .ok()
            .filter(|part| *part < 256)?;
        if part > 255 || count == 4 || text.is_empty() {
            return None;
        }
        address |= part << (24 - 8 * count);
        count += 1;
    }
    // One part alone is a 32-bit number, which the original tools refuse in most places.
    (count > 1).then_some(address)
}

fn mask4(text: &str) -> Option<u32> {
    match any_number(text).filter(|_| !text.is_empty()) {
        Some(length) => (length <= 32).then(|| prefix4(length as u32)),
        None => ipv4(text).filter(|_| text.matches('.').count() == 3),
    }
}

fn mask6(text: &str) -> Option<u128> {
    match any_number(text).filter(|_| !text.is_empty()) {
        Some(length) => (length <= 128).then(|| prefix6(length as u32)),
        None => text.parse::<Ipv6Addr>().ok().map(u128::from),
    }
}

/// The mask of an IPv4 prefix.
pub fn prefix4(length: u32) -> u32 {
    u32::MAX.checked_shl(32 - length).unwrap_or(0)
}

/// The mask of an IPv6 prefix.
pub fn prefix6(length: u32) -> u128 {
    u128::MAX.checked_shl(128 - length).unwrap_or(0)
}

/// The length of a prefix, if the mask is one.
pub fn length4(mask: u32) -> Option<u32> {
    (mask.leading_ones() + mask.trailing_zeros() >= 32).then(|| mask.leading_ones())
}

/// The same in IPv6.
pub fn length6(mask: u128) -> Option<u32> {
    (mask.leading_ones() + mask.trailing_zeros() >= 128).then(|| mask.leading_ones())
}

/// The addresses of one element of a list: an address or a host, with its mask.
fn nets(word: &[u8], context: Context, masked: bool, out: &mut Vec<Value>) -> Result<(), String> {
    let text = utf8(word)?;
    let (name, mask) = match text.split_once('/') {
        Some((name, mask)) => (name, Some(mask)),
        None => (text, None),
    };
    let bad_mask = || {
        format!(
            "\"{}\" is not a mask: write a length such as /24, or an address",
            show(mask.unwrap_or_default().as_bytes())
        )
    };
    if name.is_empty() {
        return Err("an address is missing".into());
    }
    if context.family == Family::Ipv6 {
        let mask = match mask {
            None => u128::MAX,
            Some(mask) => mask6(mask).ok_or_else(bad_mask)?,
        };
        let keep = if masked { mask } else { u128::MAX };
        let mut push = |address: u128| {
            out.push(Value::Ipv6(Box::new([address & keep, mask])));
        };
        if let Ok(address) = name.parse::<Ipv6Addr>() {
            push(address.into());
            return Ok(());
        }
        if name == "any" {
            out.push(Value::Ipv6(Box::new([0, 0])));
            return Ok(());
        }
        let found = context
            .names
            .host(name)
            .iter()
            .filter_map(|address| match address {
                IpAddr::V6(address) => Some(u128::from(*address)),
                IpAddr::V4(_) => None,
            });
        let before = found.map(&mut push).count();
        return (before > 0).then_some(()).ok_or_else(|| unknown_host(name));
    }
    let mask = match mask {
        None => u32::MAX,
        Some(mask) => mask4(mask).ok_or_else(bad_mask)?,
    };
    let keep = if masked { mask } else { u32::MAX };
    if let Some(address) = ipv4(name) {
        out.push(Value::Pair(address & keep, mask));
        return Ok(());
    }
    if name == "any" && context.family != Family::Bridge {
        out.push(Value::Pair(0, 0));
        return Ok(());
    }
    // A short network such as 10/8.
    if text.contains('/')
        && let Some(first) = any_number(name).filter(|first| *first < 256)
    {
        out.push(Value::Pair((first as u32) << 24 & keep, mask));
        return Ok(());
    }
    let before = out.len();
    for address in context.names.host(name) {
        if let IpAddr::V4(address) = address {
            out.push(Value::Pair(u32::from(*address) & keep, mask));
        }
    }
    (out.len() > before)
        .then_some(())
        .ok_or_else(|| unknown_host(name))
}

fn unknown_host(name: &str) -> String {
    format!(
        "\"{}\" is not an address, and no host of /etc/hosts: write its address",
        show(name.as_bytes())
    )
}

/// The values of an address list. More than one means a rule for each.
///
/// # Errors
///
/// A bad address or mask, or more than [`MAX_ADDRESSES`].
pub fn net_list(word: &[u8], context: Context) -> Result<Vec<Value>, String> {
    let mut out = Vec::with_capacity(1);
    for part in word.split(|byte| *byte == b',') {
        nets(part.trim_ascii_start(), context, true, &mut out)?;
        if out.len() > MAX_ADDRESSES {
            return Err(format!("more than {MAX_ADDRESSES} addresses in a list"));
        }
    }
    Ok(out)
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

/// Seconds since 1970-01-01 of a date (`2024-05-01` or `2024-05-01T10:20:30`), UTC.
fn date(word: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(word).ok()?;
    let (date, time) = text.split_once('T').unwrap_or((text, "00:00:00"));
    let mut parts = date.splitn(3, '-');
    let year: i64 = parts.next()?.parse().ok()?;
    let month: i64 = parts.next().unwrap_or("1").parse().ok()?;
    let day: i64 = parts.next().unwrap_or("1").parse().ok()?;
    if !(1970..=2038).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let days = days_from_civil(year, month, day);
    Some(days as u64 * 86_400 + time_of_day(time.as_bytes())?)
}

/// Days since 1970-01-01 (Howard Hinnant, chrono-Compatible Low-Level Date Algorithms).
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year - era * 400;
    let of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Year, month and day of days since 1970-01-01.
pub fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days - era * 146_097;
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = (of_year - (153 * shifted + 2) / 5 + 1) as u32;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    } as u32;
    (year + era * 400 + i64::from(month <= 2), month, day)
}

fn time_of_day(word: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(word).ok()?;
    let mut parts = text.split(':');
    let mut seconds = 0;
    for (limit, scale) in [(23, 3_600), (59, 60), (59, 1)] {
        let part: u64 = match parts.next() {
            Some(part) => part.parse().ok().filter(|part| *part <= limit)?,
            None if scale == 1 => 0,
            None => return None,
        };
        seconds += part * scale;
    }
    parts.next().is_none().then_some(seconds)
}

fn month_days(word: &[u8]) -> Result<u64, String> {
    let mut days = 0;
    for part in word.split(|byte| *byte == b',') {
        let part = utf8(part)?;
        // The original tool takes two digits for a day.
        match any_number(part).filter(|_| part.len() < 3) {
            Some(day @ 1..=31) => days |= 1u64 << day,
            _ => {
                return Err(format!(
                    "\"{}\" is not a day of a month",
                    show(part.as_bytes())
                ));
            }
        }
    }
    Ok(days)
}

/// SCTP chunks by name: type numbers of RFC 9260.
const CHUNKS: &[(&str, u8, &str)] = &[
    ("DATA", 0, "----IUBE"),
    ("INIT", 1, ""),
    ("INIT_ACK", 2, ""),
    ("SACK", 3, ""),
    ("HEARTBEAT", 4, ""),
    ("HEARTBEAT_ACK", 5, ""),
    ("ABORT", 6, "-------T"),
    ("SHUTDOWN", 7, ""),
    ("SHUTDOWN_ACK", 8, ""),
    ("ERROR", 9, ""),
    ("COOKIE_ECHO", 10, ""),
    ("COOKIE_ACK", 11, ""),
    ("ECN_ECNE", 12, ""),
    ("ECN_CWR", 13, ""),
    ("SHUTDOWN_COMPLETE", 14, "-------T"),
    ("I_DATA", 64, "----IUBE"),
    ("RE_CONFIG", 130, ""),
    ("PAD", 132, ""),
    ("ASCONF", 193, ""),
    ("ASCONF_ACK", 128, ""),
    ("FORWARD_TSN", 192, ""),
    ("I_FORWARD_TSN", 194, ""),
];
const CHUNK_MODES: Choices = &[("any", 0), ("all", 1), ("only", 2)];

/// Mode, then for each chunk: type | mask of flags << 8 | flags << 16, ordered by type.
fn chunks(mode: &[u8], list: &[u8]) -> Result<Value, String> {
    let mut out = vec![u128::from(choice(
        mode,
        CHUNK_MODES,
        "mode of chunk types",
    )?)];
    let mut found: Vec<u128> = Vec::new();
    for part in list.split(|byte| *byte == b',') {
        let (name, flags) = cut(part, b':');
        let name = utf8(name)?;
        if name.eq_ignore_ascii_case("ALL") || name.eq_ignore_ascii_case("NONE") {
            if name.eq_ignore_ascii_case("ALL") {
                found = (0..=255).collect();
            }
            continue;
        }
        let (_, ty, letters) = CHUNKS
            .iter()
            .find(|(known, _, _)| known.eq_ignore_ascii_case(name))
            .ok_or_else(|| format!("\"{}\" is not an SCTP chunk type", show(name.as_bytes())))?;
        let (mut mask, mut set) = (0u8, 0u8);
        for letter in flags.unwrap_or_default() {
            let bit = letters
                .bytes()
                .position(|known| known.eq_ignore_ascii_case(letter) && known != b'-')
                .ok_or_else(|| format!("chunk {name} has no flag \"{}\"", *letter as char))?;
            mask |= 0x80 >> bit;
            if letter.is_ascii_uppercase() {
                set |= 0x80 >> bit;
            }
        }
        let entry = u128::from(*ty) | u128::from(mask) << 8 | u128::from(set) << 16;
        found.retain(|other| *other as u8 != *ty);
        found.push(entry);
    }
    found.sort_unstable_by_key(|entry| *entry as u8);
    out.extend(found);
    Ok(Value::Numbers(Box::new(out.into())))
}

fn chunks_text(numbers: &[u128]) -> String {
    let mode = CHUNK_MODES[numbers[0] as usize].0;
    if numbers.len() == 1 {
        return format!("{mode} NONE");
    }
    if numbers.len() == 257 {
        return format!("{mode} ALL");
    }
    let list: Vec<String> = numbers[1..]
        .iter()
        .map(|entry| {
            let ty = *entry as u8;
            let (mask, set) = ((entry >> 8) as u8, (entry >> 16) as u8);
            let Some((name, _, letters)) = CHUNKS.iter().find(|(_, known, _)| *known == ty) else {
                return ty.to_string();
            };
            let mut out = (*name).to_owned();
            if mask != 0 {
                out.push(':');
                for (at, letter) in letters.bytes().enumerate() {
                    let bit = 0x80u8 >> at;
                    if mask & bit != 0 {
                        let letter = letter as char;
                        out.push(if set & bit != 0 {
                            letter.to_ascii_uppercase()
                        } else {
                            letter.to_ascii_lowercase()
                        });
                    }
                }
            }
            out
        })
        .collect();
    format!("{mode} {}", list.join(","))
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

/// `ADDRESS[-ADDRESS][:PORTS]`, with brackets before ports in IPv6.
fn nat_address(text: &str, context: Context) -> Result<Box<[u8]>, String> {
    let v6 = context.family == Family::Ipv6;
    let (addresses, ports) = if let Some(inner) = text.strip_prefix('[').filter(|_| v6) {
        let (inner, after) = inner
            .split_once(']')
            .ok_or("the bracket has no end: add ]")?;
        match (after.strip_prefix(':'), after) {
            (Some(ports), _) => (inner, Some(ports)),
            (None, "") => (inner, None),
            _ => return Err(format!("\"{}\" has words after ]", show(text.as_bytes()))),
        }
    } else if v6 {
        (text, None)
    } else {
        match text.split_once(':') {
            Some((address, ports)) => (address, Some(ports)),
            None => (text, None),
        }
    };
    let valid = |address: &str| match v6 {
        true => address.parse::<Ipv6Addr>().is_ok(),
        false => address.parse::<Ipv4Addr>().is_ok(),
    };
    let empty = addresses.is_empty() && ports.is_some();
    if !empty && !addresses.split('-').all(valid) || addresses.split('-').count() > 2 {
        return Err(format!(
            "\"{}\" is not an address or a range of them",
            show(addresses.as_bytes())
        ));
    }
    let addresses = match addresses.split_once('-') {
        Some((first, last)) if first == last => first,
        _ => addresses,
    };
    Ok(match ports {
        None => addresses.as_bytes().into(),
        Some(ports) => {
            // A base after a slash shifts the range.
            let (range, base) = match ports.split_once('/') {
                Some((range, base)) => (range, Some(base)),
                None => (ports, None),
            };
            let mut out = nat_ports(range, context)?;
            if let Some(base) = base {
                let base = port(base.as_bytes(), any_number, context)?;
                out = format!("{out}/{base}");
            }
            match v6 {
                true => format!("[{addresses}]:{out}").into_bytes().into(),
                false => format!("{addresses}:{out}").into_bytes().into(),
            }
        }
    })
}

/// `PORT[-PORT]`, as numbers.
fn nat_ports(text: &str, context: Context) -> Result<String, String> {
    let number = |text: &str| port(text.as_bytes(), any_number, context);
    // The name of a service may have a hyphen.
    if let Ok(port) = number(text) {
        return Ok(port.to_string());
    }
    let (first, last) = text
        .split_once('-')
        .ok_or_else(|| format!("\"{}\" is not a port", show(text.as_bytes())))?;
    let (first, last) = (number(first)?, number(last)?);
    if first > last {
        return Err(format!(
            "the first port of \"{}\" is larger than the last: exchange them",
            show(text.as_bytes())
        ));
    }
    Ok(if first == last {
        first.to_string()
    } else {
        format!("{first}-{last}")
    })
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

fn address_range(word: &[u8], context: Context) -> Result<Value, String> {
    let text = utf8(word)?;
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let bad = |part: &str| format!("\"{}\" is not an address", show(part.as_bytes()));
    if context.family == Family::Ipv6 {
        let read = |part: &str| {
            part.parse::<Ipv6Addr>()
                .map(u128::from)
                .map_err(|_| bad(part))
        };
        return Ok(Value::Ipv6(Box::new([read(first)?, read(last)?])));
    }
    let read = |part: &str| ipv4(part).ok_or_else(|| bad(part));
    Ok(Value::Pair(read(first)?, read(last)?))
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

fn net4(address: u32, mask: u32, whole: bool, out: &mut Vec<u8>) {
    let _ = write!(out, "{}", Ipv4Addr::from(address));
    match length4(mask) {
        Some(32) if !whole => {}
        Some(length) => {
            let _ = write!(out, "/{length}");
        }
        None => {
            let _ = write!(out, "/{}", Ipv4Addr::from(mask));
        }
    }
}

/// An IPv6 address as inet_ntop writes it: IPv4-compatible ones end in dotted form.
pub fn ipv6_text(address: u128, out: &mut Vec<u8>) {
    let _ = if address >> 32 == 0 && address >> 16 != 0 {
        write!(out, "::{}", Ipv4Addr::from(address as u32))
    } else {
        write!(out, "{}", Ipv6Addr::from(address))
    };
}

fn net6(address: u128, mask: u128, whole: bool, out: &mut Vec<u8>) {
    ipv6_text(address, out);
    match length6(mask) {
        Some(128) if !whole => {}
        Some(length) => {
            let _ = write!(out, "/{length}");
        }
        None => {
            let _ = write!(out, "/{}", Ipv6Addr::from(mask));
        }
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

fn time_text(seconds: u64, out: &mut Vec<u8>) {
    let _ = write!(
        out,
        "{:02}:{:02}:{:02}",
        seconds / 3_600,
        seconds / 60 % 60,
        seconds % 60
    );
}
