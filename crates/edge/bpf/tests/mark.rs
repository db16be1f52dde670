//! The marking program compared with the native classifier: the same class for every packet, one packet per
//! run, without attaching.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fairpath_bpf::{Mark, MarkOptions, MarkTo};
use fairpath_core::limit::{LimitConfig, LimitRate};
use fairpath_core::sched::{Classifier, End};
use fairpath_core::{Frame, FrameDirection, HEAD_BYTES, Link, Prefix, Rules};
use fairpath_statistics::Random;
use fairpath_testbed::{Need, requires};
use fairpath_units::test_seed;
use fairpath_wire::{Frame as Packet, ipv4, ipv6};

const MAJOR: u16 = 0x0fa1;
const CLASSES: u32 = 40;
const PACKETS: u64 = 5_000;
/// A test run's packet belongs to the loopback.
const LO: u32 = 1;

/// Draws packets and addresses.
struct Draw(Random);

impl Draw {
    fn v4(&mut self) -> Ipv4Addr {
        Ipv4Addr::new(
            10,
            self.0.below(4) as u8,
            self.0.below(4) as u8,
            self.0.below(4) as u8,
        )
    }

    fn v6(&mut self) -> Ipv6Addr {
        let mut group = || self.0.below(4) as u16;
        Ipv6Addr::new(0x2001, 0xdb8, group(), group(), 0, 0, 0, group())
    }

    fn packet(&mut self) -> Vec<u8> {
        let dscp = self.0.below(8) as u8 * 8;
        let mut packet = Packet::ethernet([2, 0, 0, 0, 0, self.0.below(3) as u8], [4; 6]);
        for _ in 0..self.0.below(3) {
            packet = packet.vlan(self.0.below(4) as u16 + 1);
        }
        let packet = match self.0.below(10) {
            0 => return packet.zeros(60).build(),
            1..=5 => {
                let mut header = ipv4::Header::new(self.v4(), self.v4());
                header.dscp = dscp;
                packet.ipv4_header(header)
            }
            _ => {
                let mut header = ipv6::Header::new(self.v6(), self.v6());
                header.dscp = dscp;
                if self.0.below(4) == 0 {
                    header.extensions = vec![ipv6::Extension::DestinationOptions(vec![1; 50])];
                }
                packet.ipv6_header(header)
            }
        };
        let bytes = packet
            .udp(1000, 2000)
            .zeros(20 + self.0.below(100) as usize)
            .build();
        // Some are truncated after the IP header. A test run refuses shorter ones.
        let cut = 54 + self.0.below(bytes.len() as u64 - 54) as usize;
        if self.0.below(8) == 0 {
            bytes[..cut].to_vec()
        } else {
            bytes
        }
    }
}

fn rules(random: &mut Draw) -> Rules {
    let mut class = 0;
    let mut next = || {
        class += 1;
        class
    };
    let mut rules = Rules::default();
    for bits in [8, 14, 16, 24, 30, 32] {
        rules
            .prefixes
            .push((Prefix::new(IpAddr::from(random.v4()), bits), next()));
        rules
            .prefixes
            .push((Prefix::new(IpAddr::from(random.v4()), bits), next()));
    }
    for bits in [40, 48, 63, 64, 128] {
        rules
            .prefixes
            .push((Prefix::new(IpAddr::from(random.v6()), bits), next()));
    }
    rules.vlans = vec![(2, next()), (3, next())];
    rules.dscps = vec![(8, next()), (48, next())];
    rules.macs = vec![([2, 0, 0, 0, 0, 1], next())];
    rules
}

fn agree(end: End) {
    let seed = test_seed();
    let mut random = Draw(Random::new(seed));
    println!("seed {seed}, {end:?}");
    let options = MarkOptions {
        classes: CLASSES,
        end,
        to: MarkTo::Htb(MAJOR),
        queues: 0,
    };
    let mut mark = Mark::load(&options).unwrap();
    let mut native = Classifier::new(CLASSES);
    // Every other class has a separate minor; the others go where no class goes.
    let minors: Vec<u16> = (0..CLASSES as u16)
        .map(|n| if n % 2 == 0 { 500 + n } else { 0 })
        .collect();
    let mut counts = vec![0; CLASSES as usize + 1];
    for round in 0..5 {
        let rules = rules(&mut random);
        mark.set(&rules, &minors).unwrap();
        native.set_rules(&rules).unwrap();
        for n in 0..PACKETS / 5 {
            let packet = random.packet();
            let frame = Frame {
                wire_len: packet.len() as u32,
                segs: 1,
                ifindex: LO,
                link: Link::Ethernet as u16,
                direction: FrameDirection::Out as u8,
                ..Frame::default()
            };
            let head = &packet[..packet.len().min(HEAD_BYTES)];
            let (meta, _) = native.look(&frame, head, end);
            let minor = match minors[meta.class_id as usize] {
                0 => minors[0],
                minor => minor,
            };
            let priority = u32::from(MAJOR) << 16 | u32::from(minor);
            let marked = mark.run_unattached(&packet).unwrap();
            assert_eq!(marked, priority, "round {round}, packet {n}: {packet:02x?}");
            counts[meta.class_id as usize] += 1;
        }
    }
    let marked: Vec<u64> = mark.counts().iter().map(|count| count.packets).collect();
    assert_eq!(marked, counts);
    assert!(
        counts.iter().filter(|count| **count > 0).count() > 10,
        "{counts:?}"
    );
}

#[test]
fn marks_equal_the_class_of_the_native_runtime() {
    requires!(Need::Root);
    agree(End::Receiver);
    agree(End::Sender);
}

#[test]
fn pacing_ends_where_fq_is_absent() {
    requires!(Need::Root);
    let options = MarkOptions {
        classes: 1,
        end: End::Sender,
        to: MarkTo::Limits,
        queues: 0,
    };
    let rate = LimitConfig {
        rate: LimitRate::new(1_000_000),
        parent: None,
    };
    let mut mark = Mark::load_with(&options, &[rate]).unwrap();
    mark.set(&Rules::default(), &[1u32]).unwrap();
    let packet = Packet::ethernet([2; 6], [4; 6])
        .ipv4_header(ipv4::Header::new(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST))
        .udp(1000, 2000)
        .zeros(1000)
        .build();
    mark.run_unattached(&packet).unwrap();
    assert_eq!(mark.unpaced(), 0);
    // The loopback has no queue.
    for times in 1..=3 {
        mark.pace(true);
        assert!(mark.paces());
        mark.run_unattached(&packet).unwrap();
        assert!(!mark.paces());
        mark.run_unattached(&packet).unwrap();
        assert_eq!(mark.unpaced(), times);
    }
    let count = mark.counts()[0];
    // The burst of a packet, then what waits for its rate is dropped.
    assert_eq!((count.packets, count.dropped, count.full), (7, 6, 0));
}
