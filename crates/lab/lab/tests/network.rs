//! Topologies as networks: packets go the way that is drawn, as a wire carries them.

use fairpath_analysis::topology::{Topology, TopologyChoice};
use fairpath_lab::network::Network;
use fairpath_testbed::{Need, requires};

fn built(name: &str) -> Network {
    let topology = Topology::of(&TopologyChoice::Named(name.to_owned())).unwrap();
    Network::build(&topology, false).unwrap()
}

fn received(network: &Network, host: &str, link: &str) -> u64 {
    let text = network.host(host).run(&["cat", "/proc/net/dev"]).unwrap();
    let line = text
        .lines()
        .find(|line| line.trim_start().starts_with(&format!("{link}:")));
    let counts = line.unwrap().split_once(':').unwrap().1;
    counts.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn ping(network: &Network, from: &str, to: &str) {
    let address = network.address(to).to_string();
    let argv = ["ping", "-n", "-c", "20", "-i", "0.005", "-W", "2", &address];
    let text = network.host(from).run(&argv).unwrap();
    assert!(text.contains(" 0% packet loss"), "{text}");
}

#[test]
fn every_host_reaches_every_other() {
    requires!(Need::Root, Need::Tool("ping"), Need::Tool("ethtool"));
    let network = built("dumbbell");
    ping(&network, "client1", "server2");
    ping(&network, "client2", "client1");
    ping(&network, "server1", "middle");
}

#[test]
fn the_asymmetric_five_answer_by_another_router() {
    requires!(Need::Root, Need::Tool("ping"), Need::Tool("ethtool"));
    let network = built("ripe88-asymmetric");
    ping(&network, "client", "server");
    assert!(
        received(&network, "server", "bottleneck") >= 20,
        "there by r2"
    );
    assert!(received(&network, "r1", "home") >= 20, "back by r3");
    assert!(received(&network, "r2", "bottleneck") < 5, "not back by r2");
}

#[test]
fn without_gso_senders_split_their_packets() {
    requires!(Need::Root, Need::Tool("ethtool"));
    let network = built("router");
    let offloads = network.offloads().unwrap();
    assert_eq!(offloads.len(), 4);
    for (interface, state) in &offloads {
        assert_eq!(
            state, "tso off, gso on, gro off, tx off, sg on",
            "{interface}"
        );
    }
}
