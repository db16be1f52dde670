//! Every match by its kind, and those that read the network header only.

use super::context::Context;
use super::state::{MatchId, State};
use super::view::{Answer, LONGEST, Transport, Walked};
use super::{bridge, extension, facts, lookup, transport};
use crate::packet::Unknown;
use crate::sets::Sets;
use crate::spec::{Kind, Location, U32Test, U32Word};
use crate::tree::{Family, Group, Value};

/// Matches whose answer changes their state. A rule is not evaluated beyond one after an unknown.
pub(super) fn is_stateful(group: &Group) -> bool {
    match group.kind {
        Kind::Limit | Kind::BridgeLimit | Kind::Hashlimit | Kind::Recent | Kind::Quota => true,
        Kind::Statistic => is_nth(group),
        _ => false,
    }
}

/// True if a match, or the header, could find a broken header among bytes that were not captured.
pub(super) fn may_drop(group: &Group, context: &Context) -> bool {
    match group.kind {
        Kind::Ip => {
            let is_found = || matches!(context.view.find_header(None), Ok(Walked::Found { .. }));
            context.family == Family::Ipv6 && group.has("-p") && !is_found()
        }
        Kind::Tcp => group.has("--tcp-option"),
        Kind::Sctp => group.has("--chunk-types"),
        Kind::Dccp => group.has("--dccp-option"),
        Kind::Tcpmss | Kind::Ah6 | Kind::Frag | Kind::Hbh | Kind::Dst | Kind::Rt => true,
        _ => false,
    }
}

fn is_nth(group: &Group) -> bool {
    group.number("--mode").is_some_and(|(mode, _)| mode == 1)
}

/// Tests a match.
pub(super) fn test(
    group: &Group,
    context: &Context,
    place: Result<Transport, super::view::Stop>,
    sets: Option<&Sets>,
    state: &mut State,
    id: MatchId,
) -> Answer {
    match group.kind {
        Kind::Tcp => transport::tcp(group, context, place?),
        Kind::Udp => transport::udp(group, context, place?),
        Kind::Icmp => transport::icmp(group, context, place?, true),
        Kind::Icmp6 => transport::icmp(group, context, place?, false),
        Kind::Multiport => transport::multiport(group, context, place?),
        Kind::Ah => transport::spi::<12>(group, "--ahspi", context, place?, 4),
        Kind::Esp => transport::spi::<8>(group, "--espspi", context, place?, 0),
        Kind::Dccp => transport::dccp(group, context, place?),
        Kind::Sctp => transport::sctp(group, context, place?),
        Kind::Tcpmss => transport::tcpmss(group, context, place?),
        Kind::Ecn => transport::ecn(group, context, place?),
        Kind::Limit | Kind::BridgeLimit => state.limit(group, context, id),
        Kind::Hashlimit => state.hashlimit(group, context),
        Kind::Recent => state.recent(group, context),
        Kind::Quota => state.quota(group, context, id),
        Kind::Statistic if is_nth(group) => state.nth(group, id),
        Kind::Set => lookup::set(group, context, sets, &state.changed_sets),
        // Watchers count with the target.
        Kind::Comment | Kind::BridgeLog | Kind::BridgeNflog => Ok(true),
        _ => test_pure(group, context),
    }
}

/// Tests a match of the network header, of extension headers or of facts.
fn test_pure(group: &Group, context: &Context) -> Answer {
    match group.kind {
        Kind::Ah6 => extension::ah(group, context),
        Kind::Frag => extension::frag(group, context),
        Kind::Hbh | Kind::Dst => extension::options(group, context),
        Kind::Rt => extension::rt(group, context),
        Kind::Ipv6Header => extension::ipv6_header(group, context),
        Kind::Addrtype => facts::addrtype(group, context),
        Kind::Connlimit => facts::connlimit(group, context),
        Kind::State | Kind::Conntrack => facts::conntrack(group, context),
        Kind::Connmark => facts::connmark(group, context),
        Kind::Mac => facts::mac(group, context),
        Kind::Mark => Ok(facts::mark(group, context.mark)),
        Kind::BridgeMark => Ok(bridge::mark(group, context)),
        Kind::Owner => facts::owner(group, context),
        Kind::Physdev => facts::physdev(group, context),
        Kind::Pkttype => facts::pkttype(group, context),
        Kind::Rpfilter => facts::rpfilter(group, context),
        Kind::Statistic => facts::random(group, context),
        Kind::Time => facts::time(group, context),
        Kind::Dscp => dscp(group, context),
        Kind::Tos => tos(group, context),
        Kind::Ttl | Kind::Hl => ttl(group, context),
        Kind::Length => length(group, context),
        Kind::Iprange => iprange(group, context),
        Kind::U32 => u32_match(group, context),
        Kind::Among => bridge::among(group, context),
        Kind::BridgeIp => bridge::ip(group, context),
        Kind::BridgeIp6 => bridge::ip6(group, context),
        Kind::BridgeArp => bridge::arp(group, context),
        Kind::BridgePkttype => bridge::pkttype(group, context),
        Kind::Dot3 => bridge::dot3(group, context),
        Kind::Stp => bridge::stp(group, context),
        Kind::Vlan => bridge::vlan(group, context),
        _ => Err(Unknown::OpaqueMatch.into()),
    }
}

fn dscp(group: &Group, context: &Context) -> Answer {
    let Some((wanted, not)) = group.number("--dscp") else {
        return Ok(true);
    };
    Ok((u64::from(context.view.tos()? >> 2) == wanted) != not)
}

fn tos(group: &Group, context: &Context) -> Answer {
    let Some((value, mask, not)) = group.pair("--tos") else {
        return Ok(true);
    };
    Ok((u32::from(context.view.tos()?) & mask == value) != not)
}

fn ttl(group: &Group, context: &Context) -> Answer {
    let ttl = u64::from(context.view.ttl()?);
    for item in group.items {
        let Value::Number(wanted) = item.value else {
            continue;
        };
        let holds = match item.name() {
            "--ttl-lt" | "--hl-lt" => ttl < wanted,
            "--ttl-gt" | "--hl-gt" => ttl > wanted,
            _ => ttl == wanted,
        };
        if holds == item.not {
            return Ok(false);
        }
    }
    Ok(true)
}

/// `-m length`: the length in the header.
fn length(group: &Group, context: &Context) -> Answer {
    let length = match context.family {
        Family::Ipv6 => match u32::from(context.view.u16(4)?) {
            // A jumbogram, or segments of TCP.
            0 if context.view.byte(6)? == 0 || context.view.length > LONGEST => {
                context.view.length as u32
            }
            payload => payload + 40,
        },
        _ => u32::from(context.view.u16(2)?),
    };
    Ok(transport::in_range(group, "--length", length))
}

fn iprange(group: &Group, context: &Context) -> Answer {
    let sides = [
        ("--src-range", context.view.source()?),
        ("--dst-range", context.view.destination()?),
    ];
    Ok(sides.into_iter().all(|(name, address)| {
        group.get(name).is_none_or(|item| {
            let holds = match &item.value {
                Value::Pair(first, last) => {
                    (u128::from(*first)..=u128::from(*last)).contains(&address)
                }
                Value::Ipv6(pair) => (pair[0]..=pair[1]).contains(&address),
                _ => false,
            };
            holds != item.not
        })
    }))
}

/// `-m u32` (xt_u32). A place beyond the packet is no match, before the negation.
fn u32_match(group: &Group, context: &Context) -> Answer {
    let Some(item) = group.get("--u32") else {
        return Ok(true);
    };
    let Value::U32(test) = &item.value else {
        return Ok(true);
    };
    Ok(u32_holds(test, context)? != item.not)
}

fn u32_holds(test: &U32Test, context: &Context) -> Answer {
    if context.mss_unknown {
        return Err(Unknown::OpaqueTarget.into());
    }
    for word in &test.tests {
        let Some(value) = u32_value(word, context)? else {
            return Ok(false);
        };
        let listed = |(first, last): &(u32, u32)| (*first..=*last).contains(&value);
        if !word.ranges.iter().any(listed) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn u32_value(word: &U32Word, context: &Context) -> Result<Option<u32>, super::view::Stop> {
    let read = |at: usize| -> Result<Option<u32>, super::view::Stop> {
        let changed = context.checksum_unknown;
        if changed.is_some_and(|place| at < place + 2 && place < at + 4) {
            return Err(Unknown::OpaqueTarget.into());
        }
        Ok(context.view.array(at)?.map(u32::from_be_bytes))
    };
    let mut start = 0u32;
    let Some(mut value) = read(word.offset as usize)? else {
        return Ok(None);
    };
    for step in &word.steps {
        match step {
            Location::And(mask) => value &= mask,
            // The kernel refuses counts from 32 on.
            Location::ShiftLeft(count) => value = value.checked_shl(*count).unwrap_or(0),
            Location::ShiftRight(count) => value = value.checked_shr(*count).unwrap_or(0),
            Location::At(offset) => {
                let Some(next) = start.checked_add(value) else {
                    return Ok(None);
                };
                start = next;
                let Some(found) = read(start as usize + *offset as usize)? else {
                    return Ok(None);
                };
                value = found;
            }
        }
    }
    Ok(Some(value))
}
