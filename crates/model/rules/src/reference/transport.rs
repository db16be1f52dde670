//! Matches of transport headers: ports, flags, types, SPIs.

use super::context::Context;
use super::view::{Answer, HOT_DROP, Stop, Transport};
use crate::packet::Unknown;
use crate::tree::{Group, Item, Value};

const TCP_HEADER: usize = 20;
const DCCP_HEADER: usize = 12;
const SCTP_HEADER: usize = 12;
const MSS_OPTION: u8 = 2;
const MSS_LENGTH: u8 = 4;

/// True if the option is absent, or the number is in its range (not, if negated).
pub(super) fn in_range(group: &Group, name: &str, number: u32) -> bool {
    group
        .pair(name)
        .is_none_or(|(first, last, not)| (first..=last).contains(&number) != not)
}

fn ports_match(group: &Group, header: &[u8]) -> bool {
    let port = |at: usize| u32::from(u16::from_be_bytes([header[at], header[at + 1]]));
    in_range(group, "--sport", port(0)) && in_range(group, "--dport", port(2))
}

/// Looks an option up among those of TCP or DCCP: types 0 and 1 have no length.
fn has_option(options: &[u8], wanted: u8) -> bool {
    let mut at = 0;
    while at < options.len() {
        match options[at] {
            ty if ty == wanted => return true,
            0 | 1 => at += 1,
            _ => at += usize::from(options.get(at + 1).copied().unwrap_or(1).max(1)),
        }
    }
    false
}

/// `-m tcp` (xt_tcpudp). A fragment at offset 8 could overwrite flags, and is dropped.
pub(super) fn tcp(group: &Group, context: &Context, place: Transport) -> Answer {
    match place.fragment {
        0 => {}
        1 => return Err(HOT_DROP),
        _ => return Ok(false),
    }
    let header: [u8; TCP_HEADER] = context.view.header(place.offset)?;
    if !ports_match(group, &header) {
        return Ok(false);
    }
    if let Some((mask, set, not)) = group.pair("--tcp-flags")
        && (u32::from(header[13]) & mask == set) == not
    {
        return Ok(false);
    }
    // Number 0 is the kernel's mark of no option.
    match group.number("--tcp-option") {
        Some((wanted, not)) if wanted != 0 => {
            let length = usize::from(header[12] >> 4) * 4;
            let length = length.checked_sub(TCP_HEADER).ok_or(HOT_DROP)?;
            let options = context.view.get(place.offset + TCP_HEADER, length)?;
            let options = options.ok_or(HOT_DROP)?;
            Ok(has_option(options, wanted as u8) != not)
        }
        _ => Ok(true),
    }
}

/// `-m udp` (xt_tcpudp).
pub(super) fn udp(group: &Group, context: &Context, place: Transport) -> Answer {
    if place.fragment != 0 {
        return Ok(false);
    }
    let header: [u8; 8] = context.view.header(place.offset)?;
    Ok(ports_match(group, &header))
}

/// `-m icmp` and `-m icmp6`: type, and a range of codes. IPv4: type 255 is any.
pub(super) fn icmp(group: &Group, context: &Context, place: Transport, any: bool) -> Answer {
    if place.fragment != 0 {
        return Ok(false);
    }
    let header: [u8; 8] = context.view.header(place.offset)?;
    let Some(item) = group.items.iter().find(|item| !item.is_head()) else {
        // IPv4: without an option, any type. IPv6: without an option, type 0 and code 0 to 255.
        return Ok(any || header[0] == 0);
    };
    Ok((any && is_any_type(item) || icmp_type(item, header[0], header[1])) != item.not)
}

fn is_any_type(item: &Item) -> bool {
    matches!(item.value, Value::Pair(255, _))
}

/// Compares type and code with an option.
pub(super) fn icmp_type(item: &Item, ty: u8, code: u8) -> bool {
    match item.value {
        Value::Pair(wanted, codes) => {
            u32::from(ty) == wanted && (codes & 0xff..=codes >> 8).contains(&u32::from(code))
        }
        _ => false,
    }
}

/// `-m multiport` (xt_multiport).
pub(super) fn multiport(group: &Group, context: &Context, place: Transport) -> Answer {
    if place.fragment != 0 {
        return Ok(false);
    }
    let header: [u8; 4] = context.view.header(place.offset)?;
    let source = u16::from_be_bytes([header[0], header[1]]);
    let destination = u16::from_be_bytes([header[2], header[3]]);
    for item in group.items {
        let Value::Ranges(ranges) = &item.value else {
            continue;
        };
        let listed = |port: u16| {
            ranges
                .iter()
                .any(|(first, last)| (*first..=*last).contains(&port))
        };
        let holds = match item.name() {
            "--sports" => listed(source),
            "--dports" => listed(destination),
            _ => listed(source) || listed(destination),
        };
        if holds == item.not {
            return Ok(false);
        }
    }
    Ok(true)
}

/// `-m esp` and, for IPv4, `-m ah`: the SPI in a header of this many bytes.
pub(super) fn spi<const N: usize>(
    group: &Group,
    name: &str,
    context: &Context,
    place: Transport,
    at: usize,
) -> Answer {
    if place.fragment != 0 {
        return Ok(false);
    }
    let header: [u8; N] = context.view.header(place.offset)?;
    let spi = u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    Ok(in_range(group, name, spi))
}

/// `-m dccp` (xt_dccp).
pub(super) fn dccp(group: &Group, context: &Context, place: Transport) -> Answer {
    if place.fragment != 0 {
        return Ok(false);
    }
    let header: [u8; DCCP_HEADER] = context.view.header(place.offset)?;
    let ty = header[8] >> 1 & 15;
    if !ports_match(group, &header) {
        return Ok(false);
    }
    // INVALID is every type from 10 on.
    if let Some((types, not)) = group.number("--dccp-types")
        && (types >> ty.min(10) & 1 == 1) == not
    {
        return Ok(false);
    }
    let Some((wanted, not)) = group.number("--dccp-option") else {
        return Ok(true);
    };
    // The negation applies to the answer of a broken header, too.
    let broken = Stop::HotDrop { matched: not };
    let basic = DCCP_HEADER + if header[8] & 1 == 1 { 4 } else { 0 };
    let fixed = basic + dccp_type_length(ty);
    let length = usize::from(header[4]) * 4;
    let length = length.checked_sub(fixed).ok_or(broken)?;
    if length == 0 {
        return Ok(not);
    }
    let options = context.view.get(place.offset + fixed, length)?;
    Ok(has_option(options.ok_or(broken)?, wanted as u8) != not)
}

/// Bytes of the header that depend on the packet type (RFC 4340 section 5).
fn dccp_type_length(ty: u8) -> usize {
    match ty {
        2 => 0,
        0 => 4,
        3..=6 | 8 | 9 => 8,
        _ => 12,
    }
}

/// `-m sctp` (xt_sctp): ports, and types and flags of chunks.
pub(super) fn sctp(group: &Group, context: &Context, place: Transport) -> Answer {
    if place.fragment != 0 {
        return Ok(false);
    }
    let header: [u8; SCTP_HEADER] = context.view.header(place.offset)?;
    if !ports_match(group, &header) {
        return Ok(false);
    }
    match group.get("--chunk-types") {
        Some(Item {
            value: Value::Numbers(wanted),
            not,
            ..
        }) => match chunks(wanted, context, place.offset + SCTP_HEADER) {
            // The negation applies to the answer of a broken chunk, too.
            Err(Stop::HotDrop { .. }) => Err(Stop::HotDrop { matched: *not }),
            answer => Ok(answer? != *not),
        },
        _ => Ok(true),
    }
}

/// Compares the chunks of a packet with a list: the mode (0 any, 1 all, 2 only), then chunks.
fn chunks(wanted: &[u128], context: &Context, start: usize) -> Answer {
    let [mode, list @ ..] = wanted else {
        return Ok(false);
    };
    let mut missing: Vec<u8> = list.iter().map(|entry| *entry as u8).collect();
    let mut at = start;
    loop {
        let [ty, flags, high, low]: [u8; 4] = context.view.header(at)?;
        let length = usize::from(u16::from_be_bytes([high, low]));
        if length == 0 {
            return Err(HOT_DROP);
        }
        at += length.next_multiple_of(4);
        let entry = list.iter().find(|entry| **entry as u8 == ty);
        let fits = entry.is_some_and(|entry| {
            let (mask, set) = ((entry >> 8) as u8, (entry >> 16) as u8);
            flags & mask == set
        });
        match mode {
            0 if fits => return Ok(true),
            1 if fits => missing.retain(|missing| *missing != ty),
            2 if !fits => return Ok(false),
            _ => {}
        }
        if at >= context.view.length {
            break;
        }
    }
    Ok(match mode {
        0 => false,
        1 => missing.is_empty(),
        _ => true,
    })
}

/// `-m tcpmss` (xt_tcpmss). It does not read the fragment offset.
pub(super) fn tcpmss(group: &Group, context: &Context, place: Transport) -> Answer {
    if context.mss_unknown {
        return Err(Unknown::OpaqueTarget.into());
    }
    let Some((first, last, not)) = group.pair("--mss") else {
        return Ok(true);
    };
    let header: [u8; TCP_HEADER] = context.view.header(place.offset)?;
    let length = usize::from(header[12] >> 4) * 4;
    let length = length.checked_sub(TCP_HEADER).ok_or(HOT_DROP)?;
    let options = context.view.get(place.offset + TCP_HEADER, length)?;
    let options = options.ok_or(HOT_DROP)?;
    Ok(match find_mss(options) {
        Some(at) => {
            let mss = u32::from(u16::from_be_bytes([options[at], options[at + 1]]));
            (first..=last).contains(&mss) != not
        }
        None => not,
    })
}

/// The place of the value of the MSS option.
fn find_mss(options: &[u8]) -> Option<usize> {
    let mut at = 0;
    while at < options.len() {
        match options[at..] {
            [MSS_OPTION, MSS_LENGTH, _, _, ..] => return Some(at + 2),
            [0 | 1, ..] => at += 1,
            _ => at += usize::from(options.get(at + 1).copied().unwrap_or(1).max(1)),
        }
    }
    None
}

/// `-m ecn` (xt_ecn). It does not read the fragment offset.
pub(super) fn ecn(group: &Group, context: &Context, place: Transport) -> Answer {
    if let Some((wanted, not)) = group.number("--ecn-ip-ect")
        && (u64::from(context.view.tos()? & 3) == wanted) == not
    {
        return Ok(false);
    }
    let ece = group.get("--ecn-tcp-ece");
    let cwr = group.get("--ecn-tcp-cwr");
    if ece.is_none() && cwr.is_none() {
        return Ok(true);
    }
    let Some(header) = context.view.array::<TCP_HEADER>(place.offset)? else {
        return Ok(false);
    };
    let is =
        |item: Option<&Item>, bit: u8| item.is_none_or(|item| (header[13] & bit != 0) != item.not);
    Ok(is(ece, 0x40) && is(cwr, 0x80))
}
