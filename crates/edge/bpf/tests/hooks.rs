//! The glue of the hooks: headers wherever they lie, verdicts, direction. One packet a run, unattached.

use std::net::{Ipv4Addr, Ipv6Addr};

use fairpath_bpf::{Hook, Options, RttMonitor};
use fairpath_core::{Config, Event, Frame, FrameDirection, Link, Method, Monitor, OwnQueue};
use fairpath_testbed::{Need, requires};
use fairpath_wire::ipv6::Extension;
use fairpath_wire::tcp::{Flags, Header, TcpOption};
use fairpath_wire::{Frame as Packet, ipv6};

const A6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const B6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
const A4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const B4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

fn monitor() -> RttMonitor {
    RttMonitor::load(&Options::live(Config::default().with_flows(1024))).unwrap()
}

fn syn(ports: (u16, u16)) -> Header {
    Header {
        src_port: ports.0,
        dst_port: ports.1,
        seq: 100,
        flags: Flags::SYN,
        options: vec![TcpOption::Timestamps { tsval: 7, tsecr: 0 }],
        ..Header::default()
    }
}

/// Headers of 14 + 16 + 8 + 40 + 56 + 32 bytes: the first read of a hundred bytes does not reach TCP.
fn deep() -> Vec<u8> {
    let mut ip = ipv6::Header::new(A6, B6);
    ip.extensions = vec![Extension::DestinationOptions(vec![1; 50])];
    let frame = Packet::ethernet([2; 6], [4; 6]);
    let frame = frame.vlan(1).vlan(2).vlan(3).vlan(4).pppoe(5);
    frame.ipv6_header(ip).tcp(syn((1000, 80))).zeros(40).build()
}

/// Notes 2.21: bytes after the first read are fetched by the helper for non-linear data.
#[test]
fn headers_beyond_the_first_look_are_not_missed() {
    requires!(Need::Root);
    let packet = deep();
    for hook in [Hook::TcxIngress, Hook::TcxEgress, Hook::Xdp] {
        let mut monitor = monitor();
        monitor.run_hook(hook, &packet).unwrap();
        let stats = monitor.stats();
        assert_eq!((stats.frames, stats.tcp_packets), (1, 1), "{hook}");
        assert_eq!((stats.truncated, stats.malformed), (0, 0), "{hook}");
        assert_eq!(stats.half_open_started, 1, "{hook}");
    }
}

/// Every length of a packet, whatever it cuts: the kernel's look gives what the native one gives.
#[test]
fn packets_of_any_length_are_read_completely() {
    requires!(Need::Root);
    let whole = deep();
    let mut kernel = monitor();
    let mut native = Monitor::new(&Config::default().with_flows(1024));
    for bytes in 14..whole.len() {
        let packet = &whole[..bytes];
        kernel.run_hook(Hook::TcxIngress, packet).unwrap();
        let frame = Frame {
            now: 1,
            wire_len: bytes as u32,
            link: Link::Ethernet as u16,
            direction: FrameDirection::In as u8,
            ..Frame::default()
        };
        native.frame(&frame, packet, |_| ());
        let (k, n) = (kernel.stats(), native.stats());
        assert_eq!(
            (k.not_ip, k.truncated, k.malformed, k.half_open_started),
            (n.not_ip, n.truncated, n.malformed, n.half_open_started),
            "{bytes} bytes"
        );
    }
}

/// Notes 2.23: tcx is before the egress queue, so live samples include it.
#[test]
fn a_live_sample_has_the_own_queue_within() {
    requires!(Need::Root);
    let mut monitor = monitor();
    let question = Packet::ethernet([2; 6], [4; 6]).ipv4(A4, B4);
    let question = question.tcp(syn((1000, 80))).build();
    let answer = Header {
        flags: Flags::SYN | Flags::ACK,
        ack: 101,
        options: vec![TcpOption::Timestamps { tsval: 9, tsecr: 7 }],
        ..syn((80, 1000))
    };
    let answer = Packet::ethernet([4; 6], [2; 6])
        .ipv4(B4, A4)
        .tcp(answer)
        .build();
    monitor.run_hook(Hook::TcxEgress, &question).unwrap();
    monitor.run_hook(Hook::TcxIngress, &answer).unwrap();
    let events = monitor.take().events;
    let [Event::Sample(sample)] = events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(sample.method, Method::Handshake);
    assert_eq!(sample.own_queue, OwnQueue::In);
    assert_eq!(
        (sample.direction, sample.towards),
        (FrameDirection::In, sample.ifindex)
    );
}

#[test]
fn a_live_monitor_refuses_to_replay() {
    requires!(Need::Root);
    let frame = Frame::default();
    let error = monitor().replay(&[(frame, &[0; 60])]).unwrap_err();
    assert!(error.to_string().contains("Options::replay"), "{error}");
}
