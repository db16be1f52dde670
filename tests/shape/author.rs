//! An author's own policy on real packets: its order, its change, and what is wrong with it.

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::time::Duration;

use fairpath_testbed::{Need, Offloads, Router, requires};
use fairpath_tests::Daemon;
use fairpath_tests::binary::{command, fairpath};

use crate::by;
use crate::scene::{Counted, Numbered, Scene, for_a_time, snapshot};

/// The observer of the order.
const PORT: u16 = 7778;
/// Sources of datagrams: which of them goes first is the policy's to say.
const FIRST: u16 = 6001;
const SECOND: u16 = 6002;
/// A source that the policy cannot stand.
const POISON: u16 = 6003;
/// Datagrams of each source.
const EACH: usize = 40;
/// 40 datagrams of 1,000 bytes take 167 ms.
const RATES: &str = "down = \"2mbit\"\nup = \"20mbit\"\npolicy = \"mine.o\"";
const MS: Duration = Duration::from_millis(1);

/// A policy by which what comes from `port` goes before all else; `more` is in its body.
fn mine(port: u16, more: &str) -> String {
    format!(
        "#include <fairpath/policy.h>\n\
         struct flow {{ }};\nstruct class {{ PARAMS; }};\nstruct global {{ }};\n\
         POLICY{{ STATE, .name = \"mine\", .about = \"one source first\", .source = \"a test\",\n\
         \t.over = PACKETS, .usual = FP_OVER_PACKETS }};\n\
         RANK_ENQUEUE\n{{\n{more}\n\treturn p->source_port == {port} ? 0 : 1;\n}}\n"
    )
}

/// Builds the policy to `mine.o` without capabilities, so without the verifier of this kernel.
fn build(scene: &Scene, policy: &str) {
    scene.place.write("mine.c", policy);
    let mut build = command(Path::new("setpriv"));
    build.args(["--bounding-set=-all", "--inh-caps=-all"]);
    build.arg(fairpath()).args(["sched", "build"]);
    build.arg(scene.place.path("mine.c"));
    let output = build.output();
    let output = output.unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
}

/// Datagrams of two sources at the server, and where they come to at the client.
struct Pair {
    sources: [UdpSocket; 2],
    sink: UdpSocket,
    to: SocketAddr,
}

impl Pair {
    fn new(scene: &Scene) -> Pair {
        let bind = |port: u16| UdpSocket::bind(("0.0.0.0", port)).unwrap();
        let server = &scene.net.server;
        let source = |port| server.enter(|| bind(port)).unwrap();
        let sink = scene.net.client.enter(|| bind(PORT)).unwrap();
        sink.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        Pair {
            sources: [source(FIRST), source(SECOND)],
            sink,
            to: SocketAddr::new(scene.to_client(), PORT),
        }
    }

    /// Sends all of one source, then all of the other; the sources and numbers as they came.
    fn run(&self, then: [usize; 2]) -> Vec<(u16, u8)> {
        for at in then {
            for number in 0..EACH {
                let mut payload = [0; 1000];
                payload[0] = number as u8;
                self.sources[at].send_to(&payload, self.to).unwrap();
            }
        }
        let mut arrived = Vec::new();
        let mut payload = [0; 2048];
        while let Ok((_, from)) = self.sink.recv_from(&mut payload) {
            arrived.push((from.port(), payload[0]));
        }
        arrived
    }
}

/// All came; all of `first`, without others between, before most of what was sent before them; each
/// source in its own order.
fn assert_first(arrived: &[(u16, u8)], first: u16) {
    assert_eq!(arrived.len(), 2 * EACH, "{arrived:?}");
    for port in [FIRST, SECOND] {
        let numbers: Vec<u8> = (arrived.iter().filter(|(from, _)| *from == port))
            .map(|(_, number)| *number)
            .collect();
        assert_eq!(numbers, (0..EACH as u8).collect::<Vec<u8>>(), "{arrived:?}");
    }
    let at = arrived.iter().position(|(from, _)| *from == first).unwrap();
    let together = &arrived[at..at + EACH];
    assert!(
        together.iter().all(|(from, _)| *from == first),
        "{arrived:?}"
    );
    assert!(
        at <= EACH / 2,
        "{at} of {EACH} left before the others came: {arrived:?}"
    );
}

by!(an_authors_policy_decides_the_order_of_real_packets: nfqueue, afxdp);

fn an_authors_policy_decides_the_order_of_real_packets(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"), Need::Tool("clang-19"));
    let scene = Scene::new(port, Offloads::Off);
    build(&scene, &mine(FIRST, ""));
    let daemon = scene.shape(RATES, "");
    scene.meet(&[Router::CLIENT.v4]);
    let pair = Pair::new(&scene);
    assert_first(&pair.run([1, 0]), FIRST);
    assert!(daemon.stop().success());
}

by!(a_tree_may_have_an_authors_policy_at_its_leaves: nfqueue);

fn a_tree_may_have_an_authors_policy_at_its_leaves(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"), Need::Tool("clang-19"));
    let scene = Scene::new(port, Offloads::Off);
    build(&scene, &mine(FIRST, ""));
    let tree = "[[node]]\nname = \"root\"\npolicy = \"stfq\"\n\n\
                [[node]]\nname = \"leaf\"\nparent = \"root\"\npolicy = \"mine\"\nmatch = { class = \"*\" }\n";
    scene.place.write("tree.toml", tree);
    let daemon = scene.shape(&format!("{RATES}\ntree = \"tree.toml\""), "");
    scene.meet(&[Router::CLIENT.v4]);
    let pair = Pair::new(&scene);
    assert_first(&pair.run([1, 0]), FIRST);
    assert!(daemon.stop().success());
}

by!(only_valid_policy_changes_are_applied: nfqueue, afxdp);

fn only_valid_policy_changes_are_applied(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"), Need::Tool("clang-19"));
    let scene = Scene::in_order(port);
    build(&scene, &mine(FIRST, ""));
    let daemon = scene.shape(RATES, "");
    scene.meet(&[Router::CLIENT.v4]);
    let pair = Pair::new(&scene);
    assert_first(&pair.run([1, 0]), FIRST);

    let sink = Counted::bind(&scene.net.client, scene.to_client());
    let source = Numbered::start(&scene.net.server, scene.to_client(), MS, 100);
    for first in [SECOND, FIRST, SECOND] {
        for_a_time(100 * MS);
        build(&scene, &mine(first, ""));
        took_in(&daemon);
    }
    for_a_time(100 * MS);
    let sent = source.finish();
    let arrived = sink.drain(Duration::from_secs(1));
    println!("{port}: {sent} sent, {arrived:?}");
    assert_eq!((arrived.count, arrived.reordered), (sent, 0), "{arrived:?}");
    assert_first(&pair.run([0, 1]), SECOND);

    scene.place.write("mine.o", "no object");
    let answer = daemon.reload().to_string();
    let place = scene.place.path("mine.o");
    assert!(answer.contains(&place.display().to_string()), "{answer}");
    assert!(answer.contains("fairpath.toml:"), "{answer}");
    assert_first(&pair.run([0, 1]), SECOND);
    assert!(daemon.stop().success());
}

fn took_in(daemon: &Daemon<'_>) {
    let answer = daemon.reload();
    assert_eq!(answer["answer"], "done", "{answer:#}");
    let text = answer["text"].as_str().unwrap_or_default();
    assert!(!text.contains("shaping is unchanged"), "{text}");
}

by!(a_stopped_policy_is_reported_and_loses_no_packet: nfqueue, afxdp);

fn a_stopped_policy_is_reported_and_loses_no_packet(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"), Need::Tool("clang-19"));
    let scene = Scene::new(port, Offloads::Off);
    let looping = format!("\twhile (p->source_port == {POISON})\n\t\t;");
    build(&scene, &mine(FIRST, &looping));
    let daemon = scene.shape(RATES, "");
    scene.meet(&[Router::CLIENT.v4]);
    let sink = Counted::bind(&scene.net.client, scene.to_client());
    let source = Numbered::start(&scene.net.server, scene.to_client(), MS, 100);
    for_a_time(100 * MS);
    let poison = scene
        .net
        .server
        .enter(|| UdpSocket::bind(("0.0.0.0", POISON)));
    let poison = poison.unwrap().unwrap();
    poison.send_to(&[0; 8], (scene.to_client(), PORT)).unwrap();
    daemon.logs("was stopped: RANK_ENQUEUE: it loops");
    let shape = snapshot(&daemon);
    let failure = shape["failure"].as_str().unwrap_or_default();
    assert!(failure.contains("policy mine was stopped"), "{shape:#}");
    assert!(failure.contains("mine.c:9"), "{shape:#}");
    for_a_time(100 * MS);
    let sent = source.finish();
    let arrived = sink.drain(Duration::from_secs(1));
    println!("{port}: {sent} sent, {arrived:?}; {failure}");
    assert_eq!(arrived.count, sent, "{arrived:?}");
    // It restarts.
    let status = daemon.status_when("shaping again", |status| status["shape"]["running"] == true);
    assert!(status["shape"]["failure"].is_null(), "{status:#}");
    assert!(daemon.stop().success());
}
