//! Tins of a class: packets of each DSCP have their share of the rate.

use std::net::IpAddr;
use std::time::Duration;

use fairpath_testbed::{Need, Offloads, Router, requires};

use crate::by;
use crate::scene::{BERT, Counted, Numbered, Scene, for_a_time};

const EF: u8 = 46;

/// The share of the marked packets, where both fill the link for some seconds.
fn share_of_marked(scene: &Scene, dscp: u8) -> f64 {
    let to = [(Router::CLIENT.v4, 0), (BERT, dscp)];
    let sinks = to.map(|(at, _)| Counted::bind(&scene.net.client, at.into()));
    // Twice the rate each.
    let every = Duration::from_micros(500);
    let sources = to.map(|(to, dscp)| {
        let to = IpAddr::from(to);
        Numbered::start_marked(&scene.net.server, (0, dscp), to, every, 958)
    });
    for_a_time(Duration::from_millis(300));
    let before = sinks.each_ref().map(Counted::count);
    for_a_time(Duration::from_millis(1500));
    let after = sinks.each_ref().map(Counted::count);
    for source in sources {
        source.finish();
    }
    for sink in sinks {
        sink.drain(Duration::from_millis(200));
    }
    let [plain, marked] = [0, 1].map(|at| (after[at] - before[at]) as f64);
    assert!(plain + marked > 1000.0, "{plain} {marked}");
    marked / (plain + marked)
}

by!(tins_share_real_packets_by_threshold: nfqueue, afxdp);

fn tins_share_real_packets_by_threshold(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = Scene::new(port, Offloads::Off);
    let keys = |diffserv| format!("down = \"8mbit\"\ndiffserv = \"{diffserv}\"");
    let daemon = scene.shape(&keys("diffserv3"), "");
    scene.meet(&[Router::CLIENT.v4, BERT]);
    // Voice has a quarter, and video of diffserv4 is among the rest of diffserv3.
    for (diffserv, dscp, expected) in [
        ("diffserv3", EF, 0.25),
        ("diffserv3", 26, 0.5),
        ("diffserv4", 8, 0.0625),
        ("besteffort", EF, 0.5),
    ] {
        scene.configure(&keys(diffserv), "");
        daemon.reload();
        let share = share_of_marked(&scene, dscp);
        println!("{port} {diffserv} {dscp}: {share:.3}");
        assert!(
            (share - expected).abs() < 0.03,
            "{diffserv} {dscp}: {share}"
        );
    }
    assert!(daemon.stop().success());
}
