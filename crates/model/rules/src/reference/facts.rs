//! Matches of facts that are not in a packet's bytes: connections, sockets, address types, sets, time.

use super::context::Context;
use super::frame::{ETHERNET, ethernet, masked_mac, name_matches};
use super::transport::in_range;
use super::view::{Answer, Stop};
use crate::packet::{InterfaceName, Unknown};
use crate::tree::{Family, Group, Item, Value};

/// Bits of address types.
const UNSPECIFIED: u16 = 1 << 0;
const UNICAST: u16 = 1 << 1;
const MULTICAST: u16 = 1 << 5;

/// `-m state` and `-m conntrack` (xt_conntrack).
///
/// For a packet without an entry the kernel tests the state only, and fails without one.
pub(super) fn conntrack(group: &Group, context: &Context) -> Answer {
    let connection = context.connection()?;
    let state = group
        .number("--ctstate")
        .or_else(|| group.number("--state"));
    if let Some((states, not)) = state
        && (states & u64::from(connection.state) != 0) == not
    {
        return Ok(false);
    }
    if context.entry()?.is_none() {
        return Ok(state.is_some());
    }
    let direction = group.number("--ctdir").map(|(direction, _)| {
        let reply = connection.reply?;
        Some((direction == 1) == reply)
    });
    let status = group.number("--ctstatus").map(|(statuses, not)| {
        let status = connection.status?;
        Some((statuses & u64::from(status) != 0) != not)
    });
    if [direction, status].contains(&Some(Some(false))) {
        return Ok(false);
    }
    let known = ["--ctstate", "--state", "--ctdir", "--ctstatus"];
    let other = |item: &Item| !item.is_head() && !known.contains(&item.name());
    if [direction, status].contains(&Some(None)) || group.items.iter().any(other) {
        return Err(Unknown::Connection.into());
    }
    Ok(true)
}

/// `-m connmark`: false without an entry, also if negated.
pub(super) fn connmark(group: &Group, context: &Context) -> Answer {
    let Some(entry) = context.entry()? else {
        return Ok(false);
    };
    Ok(mark(group, entry.mark.ok_or(Unknown::Connection)?))
}

/// Compares a mark: `--mark value/mask`. The value is not masked.
pub(super) fn mark(group: &Group, mark: u32) -> bool {
    group
        .pair("--mark")
        .is_none_or(|(value, mask, not)| (mark & mask == value) != not)
}

/// `-m addrtype` (xt_addrtype).
pub(super) fn addrtype(group: &Group, context: &Context) -> Answer {
    let facts = context.facts;
    let limited = group.has("--limit-iface-in") || group.has("--limit-iface-out");
    let sides = [
        ("--src-type", facts.source_type, Unknown::SourceType),
        (
            "--dst-type",
            facts.destination_type,
            Unknown::DestinationType,
        ),
    ];
    let mut unknown = None;
    for (name, types, reason) in sides {
        let Some((wanted, not)) = group.number(name) else {
            continue;
        };
        let holds = if context.family == Family::Ipv6 {
            let address = match name {
                "--src-type" => context.view.source()?,
                _ => context.view.destination()?,
            };
            has_type6(wanted as u16, address, types.filter(|_| !limited))
        } else {
            types.and_then(|types| has_type4(wanted as u16, types, limited))
        };
        match holds {
            None => unknown = unknown.or(Some(reason)),
            Some(holds) if holds == not => return Ok(false),
            Some(_) => {}
        }
    }
    unknown.map_or(Ok(true), |reason| Err(reason.into()))
}

/// IPv4: with `--limit-iface-*` an address of another interface counts as unicast.
fn has_type4(wanted: u16, types: u16, limited: bool) -> Option<bool> {
    let holds = wanted & types != 0;
    let is_fixed = types & (UNICAST | MULTICAST) != 0 || holds == (wanted & UNICAST != 0);
    (!limited || is_fixed).then_some(holds)
}

/// IPv6: types that the address has in itself must all fit; of the others, one.
fn has_type6(wanted: u16, address: u128, types: Option<u16>) -> Option<bool> {
    let mapped = address >> 32 == 0xffff;
    let is_multicast = address >> 120 == 0xff;
    let is_unicast = !is_multicast && !mapped && address != 0;
    if wanted & MULTICAST != 0 && !is_multicast
        || wanted & UNICAST != 0 && !is_unicast
        || wanted & UNSPECIFIED != 0 && address != 0
    {
        return Some(false);
    }
    match wanted & !(MULTICAST | UNICAST | UNSPECIFIED) {
        0 => Some(true),
        rest => types.map(|types| types & rest != 0),
    }
}

/// `-m connlimit`: the kernel counts this connection, too.
pub(super) fn connlimit(group: &Group, context: &Context) -> Answer {
    let number = context.facts.connections.ok_or(Unknown::Connections)?;
    if let Some((limit, not)) = group.number("--connlimit-upto") {
        return Ok((u64::from(number) <= limit) != not);
    }
    let above = group.number("--connlimit-above");
    Ok(above.is_none_or(|(limit, not)| (u64::from(number) > limit) != not))
}

/// `-m pkttype`. The kernel sees a looped packet as multicast or broadcast.
pub(super) fn pkttype(group: &Group, context: &Context) -> Answer {
    let Some((wanted, not)) = group.number("--pkt-type") else {
        return Ok(true);
    };
    const LOOPBACK: u8 = 5;
    let ty = match context.facts.packet_type {
        None => return Err(Unknown::PacketType.into()),
        Some(LOOPBACK) => {
            let is_multicast =
                context.family == Family::Ipv6 || context.view.destination()? >> 28 == 0xe;
            if is_multicast { 2 } else { 1 }
        }
        Some(ty) => ty,
    };
    Ok((u64::from(ty) == wanted) != not)
}

/// `-m mac`: the source in the Ethernet header; false without one, also if negated.
pub(super) fn mac(group: &Group, context: &Context) -> Answer {
    let Some(item) = group.get("--mac-source") else {
        return Ok(true);
    };
    if context.facts.no_link {
        return Ok(false);
    }
    if context.link.len() < ETHERNET {
        return Err(Unknown::LinkLayer.into());
    }
    Ok(masked_mac(&item.value, ethernet(context, 6)?) != item.not)
}

/// `-m owner` (xt_owner). Without a socket, it matches if all its options are negated.
pub(super) fn owner(group: &Group, context: &Context) -> Answer {
    let socket = context.facts.owner.ok_or(Stop::Unknown(Unknown::Owner))?;
    let Some(owner) = socket else {
        let all_negated = group.items.iter().all(|item| item.is_head() || item.not);
        return Ok(all_negated);
    };
    if group.get("--socket-exists").is_some_and(|item| item.not)
        || !in_range(group, "--uid-owner", owner.user)
    {
        return Ok(false);
    }
    let Some((first, last, not)) = group.pair("--gid-owner") else {
        return Ok(true);
    };
    let primary = (first..=last).contains(&owner.group);
    if !primary && group.has("--suppl-groups") {
        return Err(Unknown::Owner.into());
    }
    Ok(primary != not)
}

/// `-m physdev` (xt_physdev).
pub(super) fn physdev(group: &Group, context: &Context) -> Answer {
    let known = |name: &Option<InterfaceName>| {
        name.clone()
            .map(|name| (!name.is_empty()).then_some(name))
            .ok_or(Stop::Unknown(Unknown::Physical))
    };
    let input = known(&context.facts.physical_input)?;
    let output = known(&context.facts.physical_output)?;
    if input.is_none() && output.is_none() {
        let all_negated = group.items.iter().all(|item| item.is_head() || item.not);
        return Ok(all_negated);
    }
    let flag = |name: &str, holds: bool| group.get(name).is_none_or(|item| holds != item.not);
    if !flag("--physdev-is-bridged", output.is_some())
        || !flag("--physdev-is-in", input.is_some())
        || !flag("--physdev-is-out", output.is_some())
    {
        return Ok(false);
    }
    let name_fits = |item: &Item, name: &[u8]| match &item.value {
        Value::Text(pattern) => name_matches(pattern, name) != item.not,
        _ => false,
    };
    // A missing input port is no reason to fail, a missing output port is one.
    if let (Some(item), Some(name)) = (group.get("--physdev-in"), &input)
        && !name_fits(item, name)
    {
        return Ok(false);
    }
    Ok(group
        .get("--physdev-out")
        .is_none_or(|item| output.is_some_and(|name| name_fits(item, &name))))
}

/// `-m rpfilter`. The fact is that of a strict check, so that the options leave some answers open.
pub(super) fn rpfilter(group: &Group, context: &Context) -> Answer {
    let passes = context
        .facts
        .reverse_path
        .ok_or(Stop::Unknown(Unknown::ReversePath))?;
    let wider = group.has("--loose") || group.has("--accept-local");
    if group.has("--validmark") || wider && !passes {
        return Err(Unknown::ReversePath.into());
    }
    Ok(passes != group.has("--invert"))
}

/// `-m statistic --mode random`: 31 random bits below a share of 2^31.
pub(super) fn random(group: &Group, context: &Context) -> Answer {
    let Some((share, not)) = group.number("--probability") else {
        return Ok(true);
    };
    let random = context.facts.random.ok_or(Stop::Unknown(Unknown::Random))?;
    Ok((u64::from(random & 0x7fff_ffff) < share) != not)
}

const DAY: i64 = 86_400;

/// `-m time` (xt_time).
pub(super) fn time(group: &Group, context: &Context) -> Answer {
    let (utc, offset) = context.facts.date.ok_or(Stop::Unknown(Unknown::Date))?;
    let local = if group.has("--kerneltz") { offset } else { 0 };
    let mut now = (utc as i64).saturating_add(i64::from(local));
    let number = |name: &str, default: i64| {
        group
            .number(name)
            .map_or(default, |(number, _)| number as i64)
    };
    if now < number("--datestart", 0) || now > number("--datestop", i64::from(i32::MAX)) {
        return Ok(false);
    }
    let (start, stop) = (number("--timestart", 0), number("--timestop", DAY - 1));
    let of_day = now.rem_euclid(DAY);
    if start < stop {
        if of_day < start || of_day > stop {
            return Ok(false);
        }
    } else {
        if of_day < start && of_day > stop {
            return Ok(false);
        }
        // The part after midnight belongs to the day before.
        if group.has("--contiguous") && of_day <= stop {
            now -= DAY;
        }
    }
    let days = now.div_euclid(DAY);
    // 1970-01-01 was a Thursday, day 4.
    let weekday = (days + 3).rem_euclid(7) + 1;
    let (_, _, monthday) = crate::value::civil_from_days(days);
    let listed = |name: &str, day: u32| {
        group
            .number(name)
            .is_none_or(|(set, not)| (set >> day & 1 == 1) != not)
    };
    Ok(listed("--weekdays", weekday as u32) && listed("--monthdays", monthday))
}
