//! Frames whose IP header claims a length that the frame does not have.

use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};

use fairpath_testbed::{Need, Netns, Testbed, requires};
use fairpath_tests::{Daemon, Place};
use fairpath_wire::{Frame, MacAddr};
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockType, SockaddrLike, sendto, socket,
};

use super::{ANNA, BERT, CLASSES, Site, counter};

/// The frames of the attack.
const FRAMES: u64 = 10_000;

/// A socket for whole frames, and the address of an interface of this namespace for it.
fn wire(ns: &Netns, interface: &str) -> (OwnedFd, LinkAddr) {
    ns.enter(|| {
        let flags = SockFlag::SOCK_CLOEXEC;
        let fd = socket(AddressFamily::Packet, SockType::Raw, flags, None).unwrap();
        let address = getifaddrs().unwrap().find_map(|found| {
            let address = found.address?;
            let is_link = address.family() == Some(AddressFamily::Packet);
            (found.interface_name == interface && is_link).then(|| *address.as_link_addr().unwrap())
        });
        (fd, address.expect("the interface has a link address"))
    })
    .unwrap()
}

fn send(wire: &(OwnedFd, LinkAddr), frame: &[u8]) {
    while let Err(error) = sendto(wire.0.as_raw_fd(), frame, &wire.1, MsgFlags::empty()) {
        assert_eq!(error, nix::Error::ENOBUFS, "send a frame");
    }
}

/// The finding: one subscriber sends frames of 42 bytes in the name of another, each of which
/// claims 65,535. They counted as 655 MB of the other one.
#[test]
fn forged_ip_lengths_count_bytes_of_their_frames() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let site = Site::new(&testbed);
    let place = Place::new();
    place.configure(&["lan", "wan"], &format!("uplinks = [\"wan\"]\n{CLASSES}"));
    let daemon = Daemon::start(site.router(), &place);
    let before = counter(&daemon.status(), "malformed");

    let wire = wire(&site.net.client, "eth0");
    let mut forged = datagram(BERT);
    assert_eq!(forged.len(), 42);
    forged[14 + 2..14 + 4].fill(0xff);
    for _ in 0..FRAMES {
        send(&wire, &forged);
    }
    let row = daemon.row_when("bert", "the real bytes", |row| {
        row["up"]["packets"].as_u64() >= Some(FRAMES)
    });
    assert_eq!(row["up"]["bytes"], FRAMES * 28, "{row:#}");
    let malformed = || counter(&daemon.status(), "malformed") - before;
    assert_eq!(malformed(), FRAMES);

    // A frame that is longer than its packet is normal: Ethernet pads to 60 bytes.
    let mut padded = datagram(ANNA);
    padded.resize(60, 0);
    for _ in 0..FRAMES {
        send(&wire, &padded);
    }
    let row = daemon.row_when("anna", "the padded packets", |row| {
        row["up"]["packets"].as_u64() >= Some(FRAMES)
    });
    assert_eq!(row["up"]["bytes"], FRAMES * 28, "{row:#}");
    assert_eq!(malformed(), FRAMES);
}

fn datagram(source: Ipv4Addr) -> Vec<u8> {
    Frame::ethernet(MacAddr::local(9), MacAddr::local(8))
        .ipv4(source, [192, 0, 2, 1].into())
        .udp(1, 2)
        .build()
}
