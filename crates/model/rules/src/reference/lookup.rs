//! Lookups of packets in sets: `-m set` (xt_set).

use super::context::Context;
use super::view::{Answer, Stop, View};
use crate::packet::Unknown;
use crate::sets::{Contains, SetKey, Sets};
use crate::tree::{Family, Group, SetMatch, Value};
use std::collections::BTreeSet;
use std::net::IpAddr;

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP6: u8 = 58;
const SCTP: u8 = 132;
const UDP_LITE: u8 = 136;

/// Tests a packet; sets that a rule changed have unknown contents.
pub(super) fn set(
    group: &Group,
    context: &Context,
    sets: Option<&Sets>,
    changed: &BTreeSet<Box<[u8]>>,
) -> Answer {
    let Some(item) = group.get("--match-set") else {
        return Ok(true);
    };
    let Value::Set(wanted) = &item.value else {
        return Ok(true);
    };
    // A set does not show whether an element with nomatch made it answer no.
    if group.has("--return-nomatch") || changed.contains(&wanted.name) {
        return Err(Unknown::Set.into());
    }
    let set = std::str::from_utf8(&wanted.name)
        .ok()
        .and_then(|name| Some((sets?, sets?.get(name)?)));
    let Some((sets, set)) = set else {
        return Err(Unknown::Set.into());
    };
    if wanted.destinations.len() < usize::from(set.dimension()) {
        return Ok(item.not);
    }
    let Some(key) = key(wanted, context)? else {
        return Ok(item.not);
    };
    match set.contains(sets, &key, context.facts.now) {
        Contains::Yes => Ok(!item.not),
        Contains::No => Ok(item.not),
        Contains::Unknown(_) => Err(Unknown::SetType.into()),
    }
}

/// The key of a packet. A packet without the port of the second field has none.
fn key(wanted: &SetMatch, context: &Context) -> Result<Option<SetKey>, Stop> {
    let side = |destination: bool| match destination {
        true => context.view.destination(),
        false => context.view.source(),
    };
    let Some(first) = wanted.destinations.first() else {
        return Ok(None);
    };
    let address = side(*first)?;
    let addr = match context.family {
        Family::Ipv6 => IpAddr::V6(address.into()),
        _ => IpAddr::V4((address as u32).into()),
    };
    let port = match wanted.destinations.get(1) {
        Some(destination) => port(context, *destination)?,
        None => None,
    };
    Ok(Some(SetKey { addr, port }))
}

/// Protocol and port (`ip_set_get_ip4_port`, `ip_set_get_ip6_port`).
fn port(context: &Context, destination: bool) -> Result<Option<(u8, u16)>, Stop> {
    let view = &context.view;
    if context.family == Family::Ipv6 {
        return match view.skip_extensions()? {
            Some((protocol, at, fragment)) if fragment & !7 == 0 => {
                transport_port(view, protocol, at, destination)
            }
            _ => Ok(None),
        };
    }
    let place = view.transport4()?;
    let protocol = view.byte(9)?;
    if protocol == 0 {
        return Ok(None);
    }
    if place.fragment != 0 {
        let has_ports = matches!(protocol, TCP | SCTP | UDP | UDP_LITE | ICMP);
        return Ok((!has_ports).then_some((protocol, 0)));
    }
    transport_port(view, protocol, place.offset, destination)
}

fn transport_port(
    view: &View,
    protocol: u8,
    at: usize,
    destination: bool,
) -> Result<Option<(u8, u16)>, Stop> {
    let size = match protocol {
        TCP => 20,
        SCTP => 12,
        UDP | UDP_LITE | ICMP | ICMP6 => 8,
        _ => return Ok(Some((protocol, 0))),
    };
    let Some(header) = view.get(at, size)? else {
        return Ok(None);
    };
    let is_icmp = matches!(protocol, ICMP | ICMP6);
    let from = if destination && !is_icmp { 2 } else { 0 };
    let port = u16::from_be_bytes([header[from], header[from + 1]]);
    Ok(Some((protocol, port)))
}
