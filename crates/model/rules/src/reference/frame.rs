//! Items of the frame's own header: `-s -d -i -o -p -f` and those of ARP and of bridges.

use super::context::Context;
use super::view::{Answer, HOT_DROP, Stop, Transport, Walked};
use crate::packet::{InterfaceName, Unknown};
use crate::spec::Kind;
use crate::tree::{Family, Item, Value};

const VLAN: u16 = 0x8100;
const PROVIDER_VLAN: u16 = 0x88a8;
/// The smallest ethertype; smaller values are the length of an 802.3 frame.
pub(super) const FIRST_ETHERTYPE: u16 = 0x600;
/// Length of an Ethernet header.
pub(super) const ETHERNET: usize = 14;
/// Length of the address of an Ethernet device; arptables uses that of the device, not of the packet.
const DEVICE_ADDRESS: usize = 6;

/// Tests one item of a rule's header.
pub(super) fn item(item: &Item, context: &Context) -> Answer {
    let holds = match item.kind {
        Kind::Ip => ip(item, context)?,
        Kind::ArpHeader => arp(item, context)?,
        _ => return bridge(item, context),
    };
    Ok(holds != item.not)
}

/// True if an address is in a network; masks may have holes.
pub(super) fn in_net(value: &Value, address: u128) -> bool {
    match value {
        Value::Pair(net, mask) => address as u32 & mask == *net,
        Value::Ipv6(pair) => address & pair[1] == pair[0],
        _ => false,
    }
}

/// Compares names of interfaces, 16 bytes with the NUL; a trailing + is a prefix.
pub(super) fn name_matches(pattern: &[u8], name: &[u8]) -> bool {
    match pattern.strip_suffix(b"+") {
        Some(prefix) => name.starts_with(prefix),
        None => name == pattern,
    }
}

fn interface(value: &Value, name: &Option<InterfaceName>, unknown: Unknown) -> Answer {
    let Value::Text(pattern) = value else {
        return Ok(false);
    };
    match name {
        _ if ***pattern == *b"+" => Ok(true),
        None => Err(unknown.into()),
        Some(name) => Ok(name_matches(pattern, name)),
    }
}

fn number(value: &Value) -> u64 {
    match value {
        Value::Number(number) => *number,
        _ => 0,
    }
}

fn ip(item: &Item, context: &Context) -> Answer {
    let view = &context.view;
    Ok(match item.name() {
        "-s" => in_net(&item.value, view.source()?),
        "-d" => in_net(&item.value, view.destination()?),
        "-i" => return interface(&item.value, &context.facts.input, Unknown::Input),
        "-o" => return interface(&item.value, &context.facts.output, Unknown::Output),
        "-p" => {
            let wanted = number(&item.value);
            // IPv6 reads the headers of a packet for any protocol, too.
            match (wanted, context.family) {
                (0, Family::Ipv6) => protocol(context).map(|_| true)?,
                (0, _) => true,
                _ => u64::from(protocol(context)?) == wanted,
            }
        }
        _ => view.transport4()?.fragment != 0,
    })
}

/// The protocol as `-p` sees it: for IPv6 that after the extension headers.
fn protocol(context: &Context) -> Result<u8, Stop> {
    if context.family != Family::Ipv6 {
        return context.view.byte(9);
    }
    match context.view.find_header(None)? {
        Walked::Found { protocol, .. } => Ok(protocol),
        Walked::Absent | Walked::Broken => Err(HOT_DROP),
    }
}

/// The transport header for the matches of a rule. IPv6: only a rule with `-p` has one.
pub(super) fn transport(items: &[Item], context: &Context) -> Result<Transport, Stop> {
    if context.family == Family::Ipv4 {
        return context.view.transport4();
    }
    let none = Transport {
        offset: 0,
        fragment: 0,
    };
    let has_protocol = items
        .iter()
        .any(|item| item.kind == Kind::Ip && item.name() == "-p");
    if !has_protocol || context.family != Family::Ipv6 {
        return Ok(none);
    }
    Ok(match context.view.find_header(None)? {
        Walked::Found { place, .. } => place,
        Walked::Absent | Walked::Broken => none,
    })
}

fn masked(value: &Value, field: u32) -> bool {
    match value {
        Value::Pair(value, mask) => field & mask == *value,
        _ => false,
    }
}

fn mac_of(bytes: [u8; 6]) -> u64 {
    bytes
        .into_iter()
        .fold(0, |address, byte| address << 8 | u64::from(byte))
}

/// Compares a link-layer address under a mask.
pub(super) fn masked_mac(value: &Value, bytes: [u8; 6]) -> bool {
    match value {
        Value::Wide(pair) => (mac_of(bytes) ^ pair[0]) & pair[1] == 0,
        Value::Number(address) => mac_of(bytes) == *address,
        _ => false,
    }
}

fn arp(item: &Item, context: &Context) -> Answer {
    let view = &context.view;
    let sender = 8;
    let target = sender + DEVICE_ADDRESS + 4;
    let ip =
        |at: usize| -> Result<u128, Stop> { Ok(u128::from(u32::from_be_bytes(view.fixed(at)?))) };
    Ok(match item.name() {
        "-s" => in_net(&item.value, ip(sender + DEVICE_ADDRESS)?),
        "-d" => in_net(&item.value, ip(target + DEVICE_ADDRESS)?),
        "--src-mac" => masked_mac(&item.value, view.fixed(sender)?),
        "--dst-mac" => masked_mac(&item.value, view.fixed(target)?),
        "-i" => return interface(&item.value, &context.facts.input, Unknown::Input),
        "-o" => return interface(&item.value, &context.facts.output, Unknown::Output),
        "--h-length" => masked(&item.value, u32::from(view.byte(4)?)),
        "--opcode" => masked(&item.value, u32::from(view.u16(6)?)),
        "--h-type" => masked(&item.value, u32::from(view.u16(0)?)),
        _ => masked(&item.value, u32::from(view.u16(2)?)),
    })
}

/// Bytes of the Ethernet header.
pub(super) fn ethernet<const N: usize>(context: &Context, at: usize) -> Result<[u8; N], Stop> {
    if context.link.len() < ETHERNET {
        return Err(Unknown::LinkLayer.into());
    }
    context
        .link
        .get(at..at + N)
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or(Stop::Unknown(Unknown::LinkLayer))
}

/// The type in the Ethernet header.
pub(super) fn link_type(context: &Context) -> Result<u16, Stop> {
    Ok(u16::from_be_bytes(ethernet(context, 12)?))
}

/// True if the frame has a VLAN tag, which the kernel has removed from its bytes.
pub(super) fn is_tagged(context: &Context) -> Result<bool, Stop> {
    Ok(matches!(link_type(context)?, VLAN | PROVIDER_VLAN))
}

/// Tests an item of ebtables. A missing device is no match, also not of `+`.
fn bridge(item: &Item, context: &Context) -> Answer {
    let facts = context.facts;
    let holds = match item.name() {
        "-p" => {
            let ty = match is_tagged(context)? {
                true => VLAN,
                false => link_type(context)?,
            };
            match number(&item.value) as u16 {
                crate::bridge::LENGTH => ty < FIRST_ETHERTYPE,
                wanted => ty == wanted,
            }
        }
        "-s" => masked_mac(&item.value, ethernet(context, 6)?),
        "-d" => masked_mac(&item.value, ethernet(context, 0)?),
        "-i" => device(&item.value, &facts.input, Unknown::Input)?.unwrap_or(false),
        "-o" => device(&item.value, &facts.output, Unknown::Output)?.unwrap_or(false),
        "--logical-in" => match device(&item.value, &facts.logical_input, Unknown::Physical)? {
            // The kernel tests the bridge only if the device is a port of one.
            None => return Ok(true),
            Some(holds) => holds,
        },
        _ => match device(&item.value, &facts.logical_output, Unknown::Physical)? {
            None => return Ok(true),
            Some(holds) => holds,
        },
    };
    Ok(holds != item.not)
}

/// Compares the name of a device; `None` if the packet has none.
fn device(
    value: &Value,
    name: &Option<InterfaceName>,
    unknown: Unknown,
) -> Result<Option<bool>, Stop> {
    match (value, name) {
        (_, None) => Err(unknown.into()),
        (_, Some(name)) if name.is_empty() => Ok(None),
        (Value::Text(pattern), Some(name)) => Ok(Some(name_matches(pattern, name))),
        _ => Ok(Some(false)),
    }
}
