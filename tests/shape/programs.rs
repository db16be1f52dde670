//! Programs of other owners at the interfaces between which AF_XDP carries packets.

use std::time::Duration;

use fairpath_bpf::{Dropper, Hook, Passer, probe};
use fairpath_testbed::{Need, requires};
use fairpath_tests::Rtt;
use fairpath_units::IfIndex;
use nix::net::if_::if_nametoindex;

use crate::later::{assert_ended, passes, received, runs, scene};
use crate::scene::{Scene, for_a_time};

/// A program at tcx that this process owns.
pub(crate) fn attach(scene: &Scene, interface: &str, hook: Hook) -> Passer {
    let attach = || {
        let index = IfIndex(if_nametoindex(interface).unwrap());
        Passer::attach(index, hook).unwrap()
    };
    scene.net.router.enter(attach).unwrap()
}

#[test]
fn programs_at_tcx_are_never_bypassed() {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = scene();
    let daemon = scene.start();
    for (interface, hook, name) in [
        (
            "lan",
            Hook::TcxIngress,
            "tcx ingress (the program \"pass_ingress\"",
        ),
        (
            "wan",
            Hook::TcxEgress,
            "tcx egress (the program \"pass_egress\"",
        ),
    ] {
        let program = attach(&scene, interface, hook);
        assert_ended(&scene, &daemon, name);
        assert!(passes(&scene));
        // Neither at a start.
        let start = scene.command(&["start"]);
        let text = String::from_utf8_lossy(&start.stderr).into_owned();
        assert!(!start.status.success() && text.contains(name), "{text}");
        drop(program);
        let start = scene.command(&["start"]);
        assert!(start.status.success(), "{start:?}");
    }
    assert!(daemon.stop().success());
}

/// Not even on a kernel that cannot list functions at netfilter hooks.
#[test]
fn programs_at_netfilter_hooks_are_never_bypassed() {
    requires!(Need::Root, Need::Tool("ethtool"));
    const NF_DROP: i32 = 0;
    let scene = scene();
    let attach = || probe::netfilter_link(NF_DROP);
    let Ok(program) = scene.net.router.enter(attach).unwrap() else {
        fairpath_units::skip_test(
            "programs_at_netfilter_hooks_are_never_bypassed",
            "feature:netfilter_bpf",
            "the kernel has no such hook",
        );
        return;
    };
    drop(program);
    let daemon = scene.start();
    assert!(passes(&scene));
    let program = scene.net.router.enter(attach).unwrap().unwrap();
    let name = "netfilter (ip forward, the program \"fairpath_probe\"";
    assert_ended(&scene, &daemon, name);
    assert!(!passes(&scene), "the kernel drops them");
    let start = scene.command(&["start"]);
    let text = String::from_utf8_lossy(&start.stderr).into_owned();
    assert!(!start.status.success() && text.contains(name), "{text}");
    drop(program);
    let start = scene.command(&["start"]);
    assert!(start.status.success(), "{start:?}");
    assert!(passes(&scene) && runs(&daemon.status()));
    assert!(daemon.stop().success());
}

/// It changes no packet, so AF_XDP stays, also where the monitor came first.
#[test]
fn a_monitor_does_not_end_afxdp() {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = scene();
    let earlier = Rtt::watch(&scene.net.router, &["lan"], &[]);
    let daemon = scene.start();
    let _later = Rtt::watch(&scene.net.router, &["wan"], &[]);
    // Longer than any look.
    for_a_time(Duration::from_secs(1));
    let before = received(&daemon);
    assert!(passes(&scene));
    assert!(runs(&daemon.status()) && received(&daemon) > before);
    drop(earlier);
    assert!(daemon.stop().success());
}

/// The kernel refuses it, so nothing of AF_XDP is lost.
#[test]
fn other_xdp_programs_cannot_replace_afxdp() {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = scene();
    let daemon = scene.start();
    let attach = || {
        let index = IfIndex(if_nametoindex("lan").unwrap());
        Dropper::attach(index, "lan", 1.0, 0).map(drop)
    };
    let attached = scene.net.router.enter(attach).unwrap();
    assert!(attached.is_err(), "two XDP programs at one interface");
    let before = received(&daemon);
    assert!(passes(&scene));
    assert!(runs(&daemon.status()) && received(&daemon) > before);
    assert!(daemon.stop().success());
}
