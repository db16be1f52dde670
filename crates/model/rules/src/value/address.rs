//! Addresses, masks and lists of networks, from text and back.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Context, MAX_ADDRESSES, any_number, show, utf8};
use crate::tree::{Family, Value};

/// An IPv4 address as `inet_aton` reads it with four parts; fewer parts are filled with zeros.
pub(super) fn ipv4(text: &str) -> Option<u32> {
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

pub(super) fn mask4(text: &str) -> Option<u32> {
    match any_number(text).filter(|_| !text.is_empty()) {
        Some(length) => (length <= 32).then(|| prefix4(length as u32)),
        None => ipv4(text).filter(|_| text.matches('.').count() == 3),
    }
}

pub(super) fn mask6(text: &str) -> Option<u128> {
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
pub(super) fn nets(
    word: &[u8],
    context: Context,
    masked: bool,
    out: &mut Vec<Value>,
) -> Result<(), String> {
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

pub(super) fn unknown_host(name: &str) -> String {
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

pub(super) fn address_range(word: &[u8], context: Context) -> Result<Value, String> {
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

pub(super) fn net4(address: u32, mask: u32, whole: bool, out: &mut Vec<u8>) {
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

pub(super) fn net6(address: u128, mask: u128, whole: bool, out: &mut Vec<u8>) {
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
