//! Plans and frames: every field from a list of what matters about it, now and then anything.

use fairpath_core::forward::{Exit, ForwardPlan, Forwarding, SenderCheck};
use fairpath_core::sched::End;
pub use fairpath_statistics::Random;
use fairpath_units::IfIndex;

/// MAC addresses of the exits, of a bridge above them, of a host, and of a group.
pub const EXIT_MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 1, 1], [2, 0, 0, 0, 2, 1]];
pub const BRIDGE_MAC: [u8; 6] = [2, 0, 0, 0, 9, 1];
pub const HOST_MAC: [u8; 6] = [2, 0, 0, 0, 1, 2];
/// Bytes of IP that an exit takes: small, so that frames at the limit are cheap.
pub const MTU: u32 = 600;

const TPIDS: [u16; 3] = [0x8100, 0x88a8, 0x9100];
const NUMBERS: [u16; 4] = [0, 5, 6, 4095];

/// Two interfaces, or two VLANs of one, in all ways that are not refused.
pub fn plan(random: &mut Random, interfaces: [IfIndex; 2]) -> ForwardPlan {
    let router = random.one_in(2);
    let one_armed = random.one_in(4);
    let vlans = match (one_armed, router) {
        (true, _) => [5, 6],
        (false, false) => random.pick(&[[0, 0], [5, 6], [5, 5]]),
        (false, true) => random.pick(&[[0, 0], [5, 6], [5, 0], [0, 6], [6, 6]]),
    };
    let senders =
        [0, 1].map(|_| random.pick(&[SenderCheck::Other, SenderCheck::Strict, SenderCheck::Loose]));
    let exit = |number: usize| {
        let ifindex = interfaces[if one_armed { 0 } else { number }];
        Exit {
            ifindex,
            route: interfaces[number],
            end: [End::Receiver, End::Sender][number],
            mtu: MTU,
            vlan: vlans[number],
            mac: EXIT_MACS[number],
            stack_seen: false,
            sender: senders[number],
        }
    };
    let own = [EXIT_MACS[0], EXIT_MACS[1], BRIDGE_MAC, [2; 6]];
    let known = random.below(5) as usize;
    ForwardPlan {
        forwarding: if router {
            Forwarding::Router
        } else {
            Forwarding::Bridge
        },
        exits: [exit(0), exit(1)],
        own: own[..known].to_vec(),
    }
}

/// Relevant addresses of a FIB; martians are added.
#[derive(Clone, Debug)]
pub struct Addresses {
    pub v4: Vec<[u8; 4]>,
    pub v6: Vec<[u8; 16]>,
}

const MARTIANS_V4: [[u8; 4]; 8] = [
    [0, 0, 0, 0],
    [0, 1, 2, 3],
    [127, 0, 0, 1],
    [224, 0, 0, 1],
    [239, 255, 255, 255],
    [240, 0, 0, 1],
    [255, 255, 255, 255],
    [223, 255, 255, 254],
];

fn martian_v6(random: &mut Random) -> [u8; 16] {
    let mut ip = [0; 16];
    match random.below(7) {
        0 => (),
        1 => ip[15] = 1,
        2 => ip[15] = 2,
        3 => (ip[0], ip[1], ip[15]) = (0xfe, 0x80, 1),
        4 => (ip[0], ip[1], ip[15]) = (0xfe, 0xbf, 1),
        5 => (ip[0], ip[1], ip[15]) = (0xfe, 0xc0, 1),
        _ => (ip[0], ip[1], ip[15]) = (0xff, 0x0e, 1),
    }
    ip
}

fn sum(header: &[u8]) -> u16 {
    let words = header
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

fn hops(random: &mut Random) -> u8 {
    random.pick(&[0, 1, 2, 3, 64, 64, 64, 64, 64, 64, 128, 255])
}

/// Bytes behind the IP header: few, or as many as bring a packet to the limit.
fn payload_bytes(random: &mut Random, header: u32) -> usize {
    let limit = (MTU - header) as usize;
    match random.below(8) {
        0 => limit - 1,
        1 => limit,
        2 => limit + 1,
        3 => 0,
        _ => random.below(60) as usize,
    }
}

fn ipv4(random: &mut Random, addresses: &Addresses) -> Vec<u8> {
    let bytes = payload_bytes(random, 20);
    let total = match random.below(12) {
        0 => 20 + bytes as u16 + 1,
        1 => (20 + bytes as u16).saturating_sub(3),
        2 => random.draw() as u16,
        _ => 20 + bytes as u16,
    };
    let first = if random.one_in(16) {
        random.pick(&[0x40, 0x44, 0x46, 0x4f])
    } else {
        0x45
    };
    let mut ip = vec![first, random.draw() as u8];
    ip.extend(total.to_be_bytes());
    ip.extend((random.draw() as u32).to_be_bytes());
    ip.extend([hops(random), random.pick(&[1, 6, 17, 58]), 0, 0]);
    for _ in 0..2 {
        let martian = random.one_in(12);
        ip.extend(random.pick(if martian { &MARTIANS_V4 } else { &addresses.v4 }));
    }
    let checksum = match random.below(16) {
        0 => random.draw() as u16,
        1 => 0,
        _ => !sum(&ip),
    };
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    ip.resize(20 + bytes, random.draw() as u8);
    ip
}

fn ipv6(random: &mut Random, addresses: &Addresses) -> Vec<u8> {
    let bytes = payload_bytes(random, 40);
    let claimed = match random.below(12) {
        0 => bytes as u16 + 1,
        1 => (bytes as u16).saturating_sub(3),
        2 => random.pick(&[0, 65_535, 65_496, 65_495]),
        _ => bytes as u16,
    };
    let mut ip = vec![0x60 | random.draw() as u8 & 15];
    ip.extend(&random.draw().to_be_bytes()[..3]);
    ip.extend(claimed.to_be_bytes());
    ip.extend([random.pick(&[0, 6, 17, 44, 58, 58]), hops(random)]);
    for _ in 0..2 {
        let address = match random.one_in(8) {
            true => martian_v6(random),
            false => random.pick(&addresses.v6),
        };
        ip.extend(address);
    }
    // Of ICMPv6: around neighbour discovery.
    let begin = 132 + random.below(7) as u8;
    ip.resize(40 + bytes, begin);
    ip
}

/// A frame that means something, or nearly.
pub fn frame(random: &mut Random, plan: &ForwardPlan, addresses: &Addresses) -> Vec<u8> {
    let exit = random.below(2) as usize;
    let mut frame = match random.below(10) {
        0 => HOST_MAC.to_vec(),
        1 => BRIDGE_MAC.to_vec(),
        2 => vec![0xff; 6],
        3 => vec![0x33, 0x33, 0, 0, 0, 1],
        4 => vec![0; 6],
        5 => EXIT_MACS[1 - exit].to_vec(),
        _ => EXIT_MACS[exit].to_vec(),
    };
    frame.extend(HOST_MAC);
    let vlan = plan.exits[exit].vlan;
    let depth = match random.below(8) {
        0 => random.below(4),
        1 => 2,
        _ => u64::from(vlan != 0 || random.one_in(8)),
    };
    for number in 0..depth {
        let tpid = match random.one_in(4) {
            true => random.pick(&TPIDS),
            false => 0x8100,
        };
        let vlan = match number > 0 || random.one_in(8) {
            true => random.pick(&NUMBERS),
            false => vlan,
        };
        frame.extend(tpid.to_be_bytes());
        frame.extend((vlan | (random.draw() as u16) << 12).to_be_bytes());
    }
    let (ethertype, payload): (u16, Vec<u8>) = match random.below(16) {
        0 => (0x0806, vec![0; 46]),
        1 => (random.draw() as u16, vec![0x45; 40]),
        // One family's number, the other's header.
        2 => (0x0800, ipv6(random, addresses)),
        3 => (0x86dd, ipv4(random, addresses)),
        4..=9 => (0x0800, ipv4(random, addresses)),
        _ => (0x86dd, ipv6(random, addresses)),
    };
    frame.extend(ethertype.to_be_bytes());
    frame.extend(payload);
    if random.one_in(16) {
        let bytes = frame.len() as u64;
        frame.truncate(random.below(bytes.min(90)) as usize);
    }
    if random.one_in(16) && !frame.is_empty() {
        let at = random.below(frame.len().min(60) as u64) as usize;
        frame[at] ^= 1 << random.below(8);
    }
    frame
}
