//! Forwarding, slow and obvious: fields are taken apart first, then one rule after the other decides.
//!
//! Written from the documents (RFC 791, 1812, 4291, 8200, 4861, IEEE 802.1Q) and the comments of
//! `bpf/core/forward`; checksums are made from the whole header, never from a difference.

#![allow(dead_code)]

pub mod frames;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fairpath_core::forward::{
    FibAnswer, FibQuestion, ForwardOutcome, ForwardPlan, Forwarding, SenderCheck,
};

/// The expected result for a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    pub outcome: ForwardOutcome,
    pub arrived: usize,
    pub leaves: usize,
    /// Destination, then source.
    pub macs: [[u8; 6]; 2],
}

/// A frame as its link header divides it.
#[derive(Debug)]
struct Link<'a> {
    destination: [u8; 6],
    tags: Vec<u16>,
    ethertype: u16,
    payload: &'a [u8],
}

fn word(bytes: &[u8]) -> u16 {
    u16::from(bytes[0]) << 8 | u16::from(bytes[1])
}

/// `None`: it ends before its payload.
fn link(frame: &[u8]) -> Option<Link<'_>> {
    if frame.len() < 14 {
        return None;
    }
    let destination = frame[..6].try_into().unwrap();
    let (mut ethertype, mut payload, mut tags) = (word(&frame[12..]), &frame[14..], Vec::new());
    if frame[0] % 2 == 1 {
        // Nothing else of it matters.
        return Some(Link {
            destination,
            tags,
            ethertype,
            payload,
        });
    }
    while tags.len() < 2 && [0x8100, 0x88a8].contains(&ethertype) {
        if payload.len() < 4 {
            return None;
        }
        tags.push(word(payload));
        ethertype = word(&payload[2..]);
        payload = &payload[4..];
    }
    Some(Link {
        destination,
        tags,
        ethertype,
        payload,
    })
}

/// By the link header alone.
pub fn look(frame: &[u8], own: &[[u8; 6]]) -> ForwardOutcome {
    let Some(link) = link(frame) else {
        return ForwardOutcome::Short;
    };
    let outcome = direction_of(&link);
    match outcome {
        ForwardOutcome::Group => outcome,
        _ if own.contains(&link.destination) => ForwardOutcome::Own,
        _ => outcome,
    }
}

fn direction_of(link: &Link) -> ForwardOutcome {
    if link.destination[0] % 2 == 1 {
        return ForwardOutcome::Group;
    }
    let is_neighbour = || {
        let ip = link.payload;
        ip.len() > 40 && ip[6] == 58 && (133..=137).contains(&ip[40])
    };
    match link.ethertype {
        0x86dd if is_neighbour() => ForwardOutcome::Neighbour,
        0x0800 | 0x86dd => ForwardOutcome::ToSocket,
        _ => ForwardOutcome::NotIp,
    }
}

pub fn decide(
    plan: &ForwardPlan,
    ifindex: u32,
    shown: &[u8],
    frame_bytes: u32,
    socket: bool,
    mut fib: impl FnMut(&FibQuestion) -> FibAnswer,
) -> Expected {
    let expected = |outcome, arrived| Expected {
        outcome,
        arrived,
        leaves: 0,
        macs: [[0; 6]; 2],
    };
    let Some(link) = link(shown) else {
        return expected(ForwardOutcome::Short, 0);
    };
    let vlan = link.tags.first().map_or(0, |tag| tag % 4096);
    let bridge = plan.forwarding == Forwarding::Bridge;
    let belongs = |exit: usize| {
        let exit = &plan.exits[exit];
        exit.ifindex.0 == ifindex && (exit.vlan == vlan || bridge && exit.vlan == 0)
    };
    let Some(arrived) = [0, 1].into_iter().find(|exit| belongs(*exit)) else {
        let first = plan.exits[0].ifindex.0 == ifindex;
        return expected(ForwardOutcome::OtherVlan, usize::from(!first));
    };
    let outcome = direction_of(&link);
    if outcome == ForwardOutcome::Group {
        return expected(outcome, arrived);
    }
    let mut own = plan.own.clone();
    own.resize(4, [0; 6]);
    if bridge && own.contains(&link.destination) {
        return expected(ForwardOutcome::Own, arrived);
    }
    if outcome != ForwardOutcome::ToSocket {
        return expected(outcome, arrived);
    }
    if !bridge && link.destination != plan.exits[arrived].mac {
        return expected(ForwardOutcome::OtherHost, arrived);
    }
    if !socket {
        return expected(ForwardOutcome::NoSocket, arrived);
    }
    let ip_bytes = frame_bytes - (shown.len() - link.payload.len()) as u32;
    if bridge {
        return match ip_bytes > plan.exits[1 - arrived].mtu {
            true => expected(ForwardOutcome::TooBig, arrived),
            false => Expected {
                leaves: 1 - arrived,
                ..expected(ForwardOutcome::ToSocket, arrived)
            },
        };
    }
    let mut question = match question(link.payload, ip_bytes) {
        Ok(question) => question,
        Err(outcome) => return expected(outcome, arrived),
    };
    question.arrived_by = plan.exits[arrived].route;
    let answer = fib(&question);
    let refused = match answer.code {
        0 => None,
        4 => Some(ForwardOutcome::Local),
        5 => Some(ForwardOutcome::NotForwarding),
        6 => Some(ForwardOutcome::Tunnel),
        7 => Some(ForwardOutcome::NoNeighbour),
        8 => Some(ForwardOutcome::TooBig),
        _ => Some(ForwardOutcome::Unreachable),
    };
    if let Some(outcome) = refused {
        return expected(outcome, arrived);
    }
    let leaves = (0..2).find(|exit| plan.exits[*exit].route == answer.leaves_by);
    let Some(leaves) = leaves else {
        return expected(ForwardOutcome::OtherExit, arrived);
    };
    let back = FibQuestion {
        arrived_by: answer.leaves_by,
        source: question.destination,
        destination: question.source,
        protocol: 0,
        bytes: 0,
        needs_neighbour: false,
        ..question
    };
    match back.source.is_ipv6() || is_proven(plan, arrived, &fib(&back)) {
        false => expected(ForwardOutcome::Sender, arrived),
        true => Expected {
            leaves,
            macs: [answer.destination, answer.source],
            ..expected(ForwardOutcome::ToSocket, arrived)
        },
    }
}

/// RFC 3704: strict wants the route back to leave by the ingress interface, loose wants any route.
/// Without either, Linux still refuses addresses that are not another host's.
fn is_proven(plan: &ForwardPlan, arrived: usize, back: &FibAnswer) -> bool {
    let exit = &plan.exits[arrived];
    match exit.sender {
        SenderCheck::Other | SenderCheck::Loose => back.code == 0,
        SenderCheck::Strict => back.code == 0 && back.leaves_by == exit.route,
    }
}

fn question(ip: &[u8], bytes: u32) -> Result<FibQuestion, ForwardOutcome> {
    match ip.first().ok_or(ForwardOutcome::Short)? >> 4 {
        4 => question_v4(ip, bytes),
        version => question_v6(ip, bytes, version == 6),
    }
}

fn question_v4(ip: &[u8], bytes: u32) -> Result<FibQuestion, ForwardOutcome> {
    let header = ip.get(..20).ok_or(ForwardOutcome::Short)?;
    if header[0] % 16 != 5 {
        return Err(ForwardOutcome::Options);
    }
    if header[8] < 2 {
        return Err(ForwardOutcome::Ttl);
    }
    let address = |at: usize| Ipv4Addr::new(ip[at], ip[at + 1], ip[at + 2], ip[at + 3]);
    let (source, destination) = (address(12), address(16));
    let martian = |ip: Ipv4Addr| matches!(ip.octets()[0], 0 | 127 | 224..);
    if martian(source) || martian(destination) || !is_whole(header) {
        return Err(ForwardOutcome::Strange);
    }
    if u32::from(word(&ip[2..])) > bytes {
        return Err(ForwardOutcome::Short);
    }
    Ok(FibQuestion {
        arrived_by: fairpath_units::IfIndex(0),
        source: source.into(),
        destination: destination.into(),
        protocol: ip[9],
        flow: u32::from(ip[1] / 4 * 4),
        bytes: word(&ip[2..]),
        needs_neighbour: true,
    })
}

fn question_v6(ip: &[u8], bytes: u32, is_six: bool) -> Result<FibQuestion, ForwardOutcome> {
    let header = ip.get(..40).ok_or(ForwardOutcome::Short)?;
    if !is_six {
        return Err(ForwardOutcome::Strange);
    }
    if header[6] == 0 {
        return Err(ForwardOutcome::Options);
    }
    if header[7] < 2 {
        return Err(ForwardOutcome::Ttl);
    }
    let address = |at: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&ip[at..at + 16]).unwrap());
    let (source, destination) = (address(8), address(24));
    let martian = |ip: Ipv6Addr| ip.octets()[0] == 0xff || ip.segments()[0] & 0xffc0 == 0xfe80;
    let nobody = [Ipv6Addr::UNSPECIFIED, Ipv6Addr::LOCALHOST];
    if martian(source) || martian(destination) || nobody.contains(&source) {
        return Err(ForwardOutcome::Strange);
    }
    // The field has 16 bits: a jumbogram's length does not fit it.
    let total = word(&ip[4..]).wrapping_add(40);
    if u32::from(total) > bytes {
        return Err(ForwardOutcome::Short);
    }
    let first = u32::from_be_bytes(ip[..4].try_into().unwrap());
    Ok(FibQuestion {
        arrived_by: fairpath_units::IfIndex(0),
        source: IpAddr::V6(source),
        destination: IpAddr::V6(destination),
        protocol: ip[6],
        flow: first % (1 << 28),
        bytes: total,
        needs_neighbour: true,
    })
}

/// The sum over all words in ones' complement, which is all ones without corruption.
fn sum(header: &[u8]) -> u16 {
    let mut sum: u32 = header.chunks(2).map(|pair| u32::from(word(pair))).sum();
    while sum > 0xffff {
        sum = sum % 0x10000 + sum / 0x10000;
    }
    sum as u16
}

fn is_whole(header: &[u8]) -> bool {
    sum(header) == 0xffff
}

/// The frame as it leaves.
pub fn change(plan: &ForwardPlan, expected: &Expected, frame: &[u8]) -> Vec<u8> {
    let divided = link(frame).unwrap();
    let vlan = plan.exits[expected.leaves].vlan;
    let with = |macs: &[u8], tags: &[u16], tpids: &[u16], payload: &[u8]| {
        let mut out = macs.to_vec();
        for (tag, tpid) in tags.iter().zip(tpids) {
            out.extend(tpid.to_be_bytes());
            out.extend(tag.to_be_bytes());
        }
        out.extend(divided.ethertype.to_be_bytes());
        out.extend(payload);
        out
    };
    let (mut tags, mut tpids) = (divided.tags.clone(), Vec::new());
    for number in 0..tags.len() {
        tpids.push(word(&frame[12 + 4 * number..]));
    }
    // Priority and drop bits stay.
    let retag = |tag: u16| tag / 4096 * 4096 + vlan;
    if plan.forwarding == Forwarding::Bridge {
        if let (true, Some(outer)) = (vlan != 0, tags.first_mut()) {
            *outer = retag(*outer);
        }
        return with(&frame[..12], &tags, &tpids, divided.payload);
    }
    match (vlan != 0, tags.is_empty()) {
        (true, false) => tags[0] = retag(tags[0]),
        (true, true) => {
            tags.push(vlan);
            tpids.push(0x8100);
        }
        (false, false) => {
            tags.remove(0);
            tpids.remove(0);
        }
        (false, true) => (),
    }
    let mut payload = divided.payload.to_vec();
    if payload[0] >> 4 == 4 {
        payload[8] -= 1;
        payload[10..12].fill(0);
        let checksum = !sum(&payload[..20]);
        payload[10..12].copy_from_slice(&checksum.to_be_bytes());
    } else {
        payload[7] -= 1;
    }
    with(&expected.macs.concat(), &tags, &tpids, &payload)
}
