//! The minimum and the maximum of each key: every back end starts with them, and passes packets.

use std::time::Duration;

use fairpath_testbed::{Need, Offloads, Ping, Router, requires};

use fairpath_tests::Daemon;

use crate::by;
use crate::scene::{Scene, snapshot};

const MINIMUM: &str =
    "down = \"1kbit\"\nup = \"1kbit\"\npackets = 64\nmax_sojourn = \"0s\"\nqueue = 0";
const MAXIMUM: &str =
    "down = \"400gbit\"\nup = \"400gbit\"\npackets = 1048576\nmax_sojourn = \"60s\"\nqueue = 65530";
/// Of what counts the overhead of the link.
const MINIMUM_FRAMING: &str = "overhead = -64\nmpu = 0";
const MAXIMUM_FRAMING: &str = "overhead = 256\nmpu = 256\natm = \"atm\"";

by!(limits_of_every_key_pass_packets: nfqueue, afxdp, kernel);

fn limits_of_every_key_pass_packets(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = Scene::new(port, Offloads::Off);
    scene.meet(&[Router::CLIENT.v4]);
    for (keys, framing) in [(MINIMUM, MINIMUM_FRAMING), (MAXIMUM, MAXIMUM_FRAMING)] {
        // HTB has no overhead of the link.
        let framing = if port == "kernel" { "" } else { framing };
        let keys = match (port, keys) {
            ("afxdp", MAXIMUM) => &afxdp_names_its_limit(&scene),
            _ => keys,
        };
        let daemon = scene.shape(&format!("{keys}\n{framing}"), "");
        // At 1 kbit/s, an echo and its answer take 0.8 s each, or 0.2 s with the minimum overhead.
        let ping = Ping::to(Router::CLIENT.v4).count(2);
        let report = ping
            .interval(Duration::from_secs(2))
            .run(&scene.net.server)
            .unwrap();
        assert_eq!(report.received, 2, "{keys}: {report:?}");
        assert_eq!(snapshot(&daemon)["running"], true);
        assert!(daemon.stop().success(), "{keys}");
    }
}

/// Frames of both directions are in one memory. Returns what it can have.
fn afxdp_names_its_limit(scene: &Scene) -> String {
    scene.configure(MAXIMUM, "");
    let mut refused = Daemon::spawn(&scene.net.router, &scene.place);
    let status = refused.process.wait(Duration::from_secs(60)).unwrap();
    refused.process.close_tails();
    let output = refused.process.stderr();
    assert!(!status.success(), "{output}");
    let reported = "packets via afxdp: it has frames for 1040384: lower [shape] packets";
    assert!(output.contains(reported), "{output}");
    MAXIMUM.replace("1048576", "500000")
}
