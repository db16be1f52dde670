//! Matches of ebtables.

use super::context::Context;
use super::frame::{FIRST_ETHERTYPE, ethernet, in_net, is_tagged, link_type, masked_mac};
use super::transport::in_range;
use super::view::{Answer, CUT, Stop, View, has_header, inner};
use crate::packet::Unknown;
use crate::tree::{Family, Group, Item, Value};

const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
/// Hardware type and length of addresses of Ethernet.
const ETHERNET_TYPE: u16 = 1;
const MAC: u8 = 6;

/// True if the option is absent, or the test of its value holds (not, if negated).
fn test(group: &Group, name: &str, holds: impl Fn(&Value) -> bool) -> bool {
    group
        .get(name)
        .is_none_or(|item| holds(&item.value) != item.not)
}

fn equals(group: &Group, name: &str, number: u64) -> bool {
    test(group, name, |value| *value == Value::Number(number))
}

/// `--ip-*` (ebt_ip). Ports need `--ip-proto`, as in the kernel.
pub(super) fn ip(group: &Group, context: &Context) -> Answer {
    let view = inner(&context.view, Family::Ipv4);
    if !has_header(&view)? {
        return Ok(false);
    }
    let (source, destination) = (view.source()?, view.destination()?);
    if !equals(group, "--ip-tos", u64::from(view.tos()?))
        || !test(group, "--ip-src", |value| in_net(value, source))
        || !test(group, "--ip-dst", |value| in_net(value, destination))
    {
        return Ok(false);
    }
    if !group.has("--ip-proto") {
        return Ok(true);
    }
    if !equals(group, "--ip-proto", u64::from(view.byte(9)?)) {
        return Ok(false);
    }
    let place = view.transport4()?;
    let names = [
        "--ip-sport",
        "--ip-dport",
        "--ip-icmp-type",
        "--ip-igmp-type",
    ];
    if names.iter().all(|name| !group.has(name)) {
        return Ok(true);
    }
    if place.fragment != 0 {
        return Ok(false);
    }
    header_fits(group, &view, place.offset, names)
}

/// `--ip6-*` (ebt_ip6).
pub(super) fn ip6(group: &Group, context: &Context) -> Answer {
    let view = inner(&context.view, Family::Ipv6);
    if !has_header(&view)? {
        return Ok(false);
    }
    let (source, destination) = (view.source()?, view.destination()?);
    if !equals(group, "--ip6-tclass", u64::from(view.tos()?))
        || !test(group, "--ip6-src", |value| in_net(value, source))
        || !test(group, "--ip6-dst", |value| in_net(value, destination))
    {
        return Ok(false);
    }
    if !group.has("--ip6-proto") {
        return Ok(true);
    }
    let Some((protocol, at, _)) = view.skip_extensions()? else {
        return Ok(false);
    };
    if !equals(group, "--ip6-proto", u64::from(protocol)) {
        return Ok(false);
    }
    let names = ["--ip6-sport", "--ip6-dport", "--ip6-icmp-type", ""];
    if names.iter().all(|name| !group.has(name)) {
        return Ok(true);
    }
    header_fits(group, &view, at, names)
}

/// Ports, type and code of ICMP, and type of IGMP, in the first four bytes of a transport header.
fn header_fits(group: &Group, view: &View, at: usize, names: [&str; 4]) -> Answer {
    let Some([a, b, c, d]) = view.array(at)? else {
        return Ok(false);
    };
    let [source, destination, icmp, igmp] = names;
    let port = |high, low| u32::from(u16::from_be_bytes([high, low]));
    Ok(in_range(group, source, port(a, b))
        && in_range(group, destination, port(c, d))
        && in_range(group, igmp, u32::from(a))
        && test(group, icmp, |value| match value {
            Value::Pair(types, codes) => in_bytes(*types, a) && in_bytes(*codes, b),
            _ => false,
        }))
}

/// True for a number from the lowest byte of `range` to the next one.
fn in_bytes(range: u32, number: u8) -> bool {
    (range & 0xff..=range >> 8).contains(&u32::from(number))
}

/// `--arp-*` (ebt_arp).
pub(super) fn arp(group: &Group, context: &Context) -> Answer {
    let view = &context.view;
    let Some(header) = view.array::<8>(0)? else {
        return Ok(false);
    };
    let field = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let (hardware_length, protocol_length) = (usize::from(header[4]), usize::from(header[5]));
    if !equals(group, "--arp-opcode", u64::from(field(6)))
        || !equals(group, "--arp-htype", u64::from(field(0)))
        || !equals(group, "--arp-ptype", u64::from(field(2)))
    {
        return Ok(false);
    }
    let wants = |names: &[&str]| names.iter().any(|name| group.has(name));
    if wants(&["--arp-ip-src", "--arp-ip-dst", "--arp-gratuitous"]) {
        if header[5] != 4 || field(2) != IPV4 {
            return Ok(false);
        }
        let sender = view.array(8 + hardware_length)?;
        let target = view.array(12 + 2 * hardware_length)?;
        let (Some(sender), Some(target)) = (sender, target) else {
            return Ok(false);
        };
        let (sender, target) = (u32::from_be_bytes(sender), u32::from_be_bytes(target));
        if !test(group, "--arp-ip-src", |value| in_net(value, sender.into()))
            || !test(group, "--arp-ip-dst", |value| in_net(value, target.into()))
            || !test(group, "--arp-gratuitous", |_| sender == target)
        {
            return Ok(false);
        }
    }
    if wants(&["--arp-mac-src", "--arp-mac-dst"]) {
        if header[4] != MAC || field(0) != ETHERNET_TYPE {
            return Ok(false);
        }
        let places = [
            ("--arp-mac-src", 8),
            ("--arp-mac-dst", 8 + hardware_length + protocol_length),
        ];
        for (name, at) in places {
            let Some(item) = group.get(name) else {
                continue;
            };
            match view.array(at)? {
                Some(mac) if masked_mac(&item.value, mac) != item.not => {}
                _ => return Ok(false),
            }
        }
    }
    Ok(true)
}

/// `--vlan-*` (ebt_vlan). The kernel has taken the tag out of the frame.
pub(super) fn vlan(group: &Group, context: &Context) -> Answer {
    let [a, b, c, d] = if is_tagged(context)? {
        if context.link.len() < 18 {
            return Err(Unknown::LinkLayer.into());
        }
        ethernet(context, 14)?
    } else {
        match context.view.array(0)? {
            Some(tag) => tag,
            None => return Ok(false),
        }
    };
    let tag = u16::from_be_bytes([a, b]);
    let encapsulated = match u16::from_be_bytes([c, d]) {
        ty if ty >= FIRST_ETHERTYPE || !is_tagged(context)? => ty,
        // Frames with a length: the kernel's numbers of raw 802.3 and of 802.2.
        _ if context.view.array(0)? == Some([0xff, 0xff]) => 1,
        _ => 4,
    };
    Ok(equals(group, "--vlan-id", u64::from(tag & 0xfff))
        && equals(group, "--vlan-prio", u64::from(tag >> 13))
        && equals(group, "--vlan-encap", u64::from(encapsulated)))
}

/// `--802_3-*` (ebt_802_3): both service access points, and the type of SNAP.
pub(super) fn dot3(group: &Group, context: &Context) -> Answer {
    const SNAP: u8 = 0xaa;
    let view = &context.view;
    // The kernel does not look where the frame ends, so bytes behind the end are not known.
    let [destination, source, control, _] = view.array(0)?.ok_or(CUT)?;
    if !equals(group, "--802_3-sap", u64::from(source))
        || !equals(group, "--802_3-sap", u64::from(destination))
    {
        return Ok(false);
    }
    if group.has("--802_3-type") {
        if (destination, source) != (SNAP, SNAP) {
            return Ok(false);
        }
        // An unnumbered frame has one byte of control, others have two; three bytes of SNAP follow. The
        // kernel's structure of the others has a gap in front of the type.
        let at = if control & 3 != 0 { 6 } else { 8 };
        let ty = u16::from_be_bytes(view.array(at)?.ok_or(CUT)?);
        if !equals(group, "--802_3-type", u64::from(ty)) {
            return Ok(false);
        }
    }
    view.get(0, 10)?.map(|_| true).ok_or(CUT)
}

/// `--stp-*` (ebt_stp). The kernel reads each byte after the first three one place too early: that
/// of the version as the type, and that of the type as the flags.
pub(super) fn stp(group: &Group, context: &Context) -> Answer {
    const START: [u8; 5] = [0x42, 0x42, 3, 0, 0];
    const CONFIG: u8 = 0;
    let view = &context.view;
    if view.array(0)? != Some(START) || view.array(5)? != Some([CONFIG]) {
        return Ok(false);
    }
    if !equals(group, "--stp-type", u64::from(CONFIG)) {
        return Ok(false);
    }
    let has_fields = |item: &Item| !item.is_head() && item.name() != "--stp-type";
    if !group.items.iter().any(has_fields) {
        return Ok(true);
    }
    let Some(message) = view.array::<31>(6)? else {
        return Ok(false);
    };
    let number = |at: usize, count: usize| {
        let bytes = message[at..at + count].iter();
        bytes.fold(0, |number, byte| number << 8 | u32::from(*byte))
    };
    let mac = |at: usize| -> [u8; 6] { std::array::from_fn(|byte| message[at + byte]) };
    let numbers = [
        ("--stp-root-prio", number(1, 2)),
        ("--stp-root-cost", number(9, 4)),
        ("--stp-sender-prio", number(13, 2)),
        ("--stp-port", number(21, 2)),
        ("--stp-msg-age", number(23, 2)),
        ("--stp-max-age", number(25, 2)),
        ("--stp-hello-time", number(27, 2)),
        ("--stp-forward-delay", number(29, 2)),
    ];
    let addresses = [("--stp-root-addr", mac(3)), ("--stp-sender-addr", mac(15))];
    Ok(equals(group, "--stp-flags", u64::from(message[0]))
        && numbers
            .into_iter()
            .all(|(name, number)| in_range(group, name, number))
        && addresses
            .into_iter()
            .all(|(name, mac)| test(group, name, |value| masked_mac(value, mac))))
}

/// `--mark value/mask`, and `--mark /bits`: one of these bits is set.
pub(super) fn mark(group: &Group, context: &Context) -> bool {
    test(group, "--mark", |value| match value {
        Value::Pair(value, mask) => context.mark & mask == *value,
        Value::Number(bits) => u64::from(context.mark) & bits != 0,
        _ => false,
    })
}

/// `--pkttype-type`.
pub(super) fn pkttype(group: &Group, context: &Context) -> Answer {
    let ty = context
        .facts
        .packet_type
        .ok_or(Stop::Unknown(Unknown::PacketType))?;
    Ok(equals(group, "--pkttype-type", u64::from(ty)))
}

/// `--among-src` and `--among-dst` (ebt_among): a list of `mac` or `mac=address`.
pub(super) fn among(group: &Group, context: &Context) -> Answer {
    for (name, mac_at, is_destination) in [("--among-src", 6, false), ("--among-dst", 0, true)] {
        let Some(item) = group.get(name) else {
            continue;
        };
        let mac: [u8; 6] = ethernet(context, mac_at)?;
        let Some(address) = among_address(context, is_destination)? else {
            return Ok(false);
        };
        let Value::Numbers(entries) = &item.value else {
            return Err(Unknown::OpaqueMatch.into());
        };
        let listed = entries.iter().any(|entry| {
            // An entry with the address 0.0.0.0 is one without an address.
            let (listed, wanted) = ((entry >> 33) as u64, *entry as u32);
            masked_mac(&Value::Number(listed), mac) && (wanted == 0 || wanted == address)
        });
        if listed == item.not {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The address of an IPv4 or ARP packet, also of one with a tag, and 0 of others; `None` if the packet
/// is too short.
fn among_address(context: &Context, is_destination: bool) -> Result<Option<u32>, Stop> {
    let view = &context.view;
    let ty = match is_tagged(context)? {
        true => u16::from_be_bytes(ethernet(context, 16)?),
        false => link_type(context)?,
    };
    let address = match ty {
        IPV4 => {
            if view.get(0, 20)?.is_none() {
                return Ok(None);
            }
            view.array(if is_destination { 16 } else { 12 })?
        }
        ARP => match view.array::<8>(0)? {
            Some([_, _, _, _, MAC, 4, _, _]) => view.array(if is_destination { 24 } else { 14 })?,
            _ => return Ok(None),
        },
        _ => Some([0; 4]),
    };
    Ok(address.map(u32::from_be_bytes))
}
