//! Errors name the cause and the remedy.

use fairpath_bpf::Dropper;
use fairpath_testbed::{Need, Offloads, requires};
use fairpath_units::IfIndex;
use nix::net::if_::if_nametoindex;

use crate::bridge::Bridge;

#[test]
fn existing_programs_are_named_and_kept() {
    requires!(Need::Root);
    let bridge = Bridge::build(Offloads::Off);
    let attach = || {
        let index = IfIndex(if_nametoindex("wan").unwrap());
        Dropper::attach(index, "wan", 0.0, 0).unwrap()
    };
    let _dropper = bridge.bridge.enter(attach).unwrap();
    let Err(error) = bridge.open(&bridge.opening()) else {
        panic!("it replaced an existing program");
    };
    let text = format!("{error:#}");
    assert!(text.contains("the XDP program \"drop\" (id "), "{text}");
    let links = bridge
        .bridge
        .run(&["ip", "-d", "link", "show", "wan"])
        .unwrap();
    assert!(links.contains("name drop"), "{links}");
    let links = bridge
        .bridge
        .run(&["ip", "-d", "link", "show", "lan"])
        .unwrap();
    assert!(
        !links.contains("xdp"),
        "the other one is left, too: {links}"
    );
}

#[test]
fn an_mtu_above_a_frame_is_refused() {
    requires!(Need::Root);
    let bridge = Bridge::build(Offloads::Off);
    bridge.links[1].set_mtu(1771).unwrap();
    let mut opening = bridge.opening();
    let text = format!("{:#}", bridge.open(&opening).err().unwrap());
    assert!(
        text.contains("\"wan\": its MTU of 1771 is above 1770"),
        "{text}"
    );
    opening.mtu = 1771;
    bridge.open(&opening).unwrap();
}

#[test]
fn a_queue_has_one_owner() {
    requires!(Need::Root);
    let bridge = Bridge::build(Offloads::Off);
    let _first = bridge.open(&bridge.opening()).unwrap();
    let text = format!("{:#}", bridge.open(&bridge.opening()).err().unwrap());
    assert!(
        text.contains("another AF_XDP socket has this queue"),
        "{text}"
    );
}

#[test]
fn a_queue_that_is_not_there_is_named() {
    requires!(Need::Root);
    let bridge = Bridge::build(Offloads::Off);
    let mut opening = bridge.opening();
    opening.queues = 2;
    let text = format!("{:#}", bridge.open(&opening).err().unwrap());
    assert!(text.contains("\"lan\" queue 1"), "{text}");
}
