//! Packets cost what they take on the link: overhead, minimum and cells.

use std::time::Duration;

use fairpath_testbed::{Need, Offloads, Router, requires};

use crate::by;
use crate::scene::{BERT, Counted, Numbered, Scene, for_a_time, number, settled};

const CLASSES: &str = r#"
[[class]]
name = "anna"
prefix = "10.10.1.2"
[[class]]
name = "bert"
prefix = "10.10.1.3"
"#;

/// UDP and IPv4.
const HEADERS: usize = 28;

by!(packets_cost_their_bytes_on_the_link: nfqueue, afxdp);

fn packets_cost_their_bytes_on_the_link(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = Scene::new(port, Offloads::Off);
    let daemon = scene.shape("down = \"50mbit\"\noverhead = \"pppoe-llcsnap\"", CLASSES);
    scene.meet(&[Router::CLIENT.v4, BERT]);
    // Bytes of IP packets, and of the cells of these and 40 bytes.
    let cases = [
        ("anna", Router::CLIENT.v4, 40, 2 * 53),
        ("bert", BERT, 986, 22 * 53),
    ];
    let before = cases.map(|(name, ..)| settled(&daemon, "down", Some(name)));
    let sinks = cases.map(|(_, at, ..)| Counted::bind(&scene.net.client, at.into()));
    let every = Duration::from_millis(2);
    let sources = cases.map(|(_, to, bytes, _)| {
        Numbered::start(&scene.net.server, to.into(), every, bytes - HEADERS)
    });
    for_a_time(Duration::from_secs(1));
    for source in sources {
        source.finish();
    }
    for sink in sinks {
        assert!(sink.drain(Duration::from_secs(1)).count > 100);
    }
    for ((name, _, _, cost), before) in cases.into_iter().zip(before) {
        let queue = settled(&daemon, "down", Some(name));
        let since = |key| number(&queue, key) - number(&before, key);
        assert_eq!(since("sent_bytes"), since("sent_packets") * cost, "{name}");
    }
    // A reload applies another link to the next packets.
    scene.configure("down = \"50mbit\"\noverhead = 38\nmpu = 84", CLASSES);
    daemon.reload();
    let before = settled(&daemon, "down", Some("anna"));
    let source = Numbered::start(&scene.net.server, scene.to_client(), every, 12);
    for_a_time(Duration::from_millis(500));
    source.finish();
    let queue = settled(&daemon, "down", Some("anna"));
    let since = |key| number(&queue, key) - number(&before, key);
    assert!(since("sent_packets") > 100);
    assert_eq!(since("sent_bytes"), since("sent_packets") * 84);
    assert!(daemon.stop().success());
}
