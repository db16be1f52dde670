//! `fairpath run` that impairs classes as it shapes them.

use std::net::Ipv4Addr;
use std::time::Duration;

use fairpath_testbed::{Need, Ping, Router, requires};
use fairpath_tests::{Daemon, Place};

use crate::by;
use crate::scene::{datagrams, router};

by!(a_class_has_its_own_losses_and_the_rest_those_of_all: nfqueue, afxdp);

/// Another address of the client's, in no class.
const BERT: Ipv4Addr = Ipv4Addr::new(10, 10, 1, 3);

fn a_class_has_its_own_losses_and_the_rest_those_of_all(port: &'static str) {
    requires!(Need::Root, Need::Tool("ping"));
    let (net, place) = (router(), Place::new());
    let add = format!("{BERT}/24");
    let command = ["ip", "address", "add", &add, "dev", "eth0"];
    net.client.run(&command).unwrap();
    let rest = format!(
        "uplinks = [\"wan\"]\n[[class]]\nname = \"anna\"\nprefix = \"{}/32\"\n\
         [shape]\ninside = \"lan\"\noutside = \"wan\"\nvia = \"{port}\"\ndown = \"100mbit\"\n\
         [shape.impair]\nup = \"delay=20ms\"\n\
         [shape.impair_class.anna]\ndown = \"pattern=00010\"\n",
        Router::CLIENT.v4
    );
    place.configure(&["lan", "wan"], &rest);
    let daemon = Daemon::start(&net.router, &place);
    daemon.logs("shaping via");
    // Neighbours know each other from here on; what goes up is delayed.
    for address in [Router::CLIENT.v4, BERT] {
        let ping = Ping::to(address).count(10);
        let report = ping.run(&net.server).unwrap();
        assert!(report.received >= 8, "{report:?}");
        assert!(report.min >= Duration::from_millis(20), "{report:?}");
    }
    let arrived = datagrams(&net.server, &net.client, Router::CLIENT.v4, 1000);
    let lost: Vec<u32> = (0..1000)
        .filter(|n| !arrived.times.contains_key(n))
        .collect();
    assert_eq!(lost.len(), 200);
    assert!(
        lost.windows(2).all(|pair| pair[1] - pair[0] == 5),
        "{lost:?}"
    );
    let arrived = datagrams(&net.server, &net.client, BERT, 300);
    assert_eq!(arrived.times.len(), 300);
}
