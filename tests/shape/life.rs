//! Begin, end, change, and failure.

use std::time::Duration;

use fairpath_testbed::{Iperf3, Iperf3Server, Need, Offloads, Ping, Router, Veth, requires};
use fairpath_tests::{Daemon, binary};
use fairpath_units::{Disturbed, repeat_disturbed};
use nix::sys::signal::Signal;

use crate::by;
use crate::scene::{
    Arrived, Counted, Numbered, Scene, for_a_time, number, queue, settled, snapshot, upstream_lost,
};

const RATES: &str = "down = \"100mbit\"\nup = \"100mbit\"";
const MS: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(30);

by!(traffic_continues_within_100_ms_after_a_kill: nfqueue, afxdp, kernel);

fn traffic_continues_within_100_ms_after_a_kill(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = Scene::new(port, Offloads::Off);
    let daemon = scene.shape(RATES, "");
    let sink = Counted::bind(&scene.net.client, scene.to_client());
    let source = Numbered::start(&scene.net.server, scene.to_client(), MS, 100);
    for_a_time(Duration::from_millis(500));
    daemon.kill();
    for_a_time(Duration::from_millis(700));
    let sent = source.finish();
    let arrived = sink.drain(Duration::from_secs(1));
    println!("{port}: killed: {sent} sent, {arrived:?}");
    assert!(arrived.longest_gap <= 100 * MS, "{arrived:?}");
    assert!(sent - arrived.count <= 100, "{sent} sent, {arrived:?}");
    // The next one finds what was left, and shapes.
    let daemon = Daemon::start(&scene.net.router, &scene.place);
    daemon.logs("shaping via");
    assert!(daemon.stop().success());
    left_nothing(&scene);
}

by!(killed_where_traffic_is_to_stop_nothing_passes_until_the_next: nfqueue);

fn killed_where_traffic_is_to_stop_nothing_passes_until_the_next(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = Scene::new(port, Offloads::Off);
    let daemon = scene.shape(&format!("{RATES}\non_failure = \"stop\""), "");
    // What 100 datagrams, one a millisecond, become.
    let hundred = || {
        let sink = Counted::bind(&scene.net.client, scene.to_client());
        let source = Numbered::start(&scene.net.server, scene.to_client(), MS, 100);
        for_a_time(100 * MS);
        (source.finish(), sink.drain(500 * MS).count)
    };
    let (sent, arrived) = hundred();
    assert_eq!(arrived, sent);
    daemon.kill();
    let (sent, arrived) = hundred();
    assert!(sent > 0 && arrived == 0, "{arrived} of {sent} came");
    let daemon = Daemon::start(&scene.net.router, &scene.place);
    daemon.logs("shaping via");
    let (sent, arrived) = hundred();
    assert_eq!(arrived, sent);
    assert!(daemon.stop().success());
    let (sent, arrived) = hundred();
    assert_eq!(arrived, sent);
    left_nothing(&scene);
}

by!(stopped_and_started_no_packet_is_lost: nfqueue, afxdp);

fn stopped_and_started_no_packet_is_lost(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = Scene::new(port, Offloads::Off);
    let daemon = scene.shape(RATES, "");
    let sink = Counted::bind(&scene.net.client, scene.to_client());
    let source = Numbered::start(&scene.net.server, scene.to_client(), MS, 100);
    for words in [["stop"], ["start"], ["stop"], ["start"]] {
        for_a_time(Duration::from_millis(200));
        let output = scene.command(&words);
        assert!(output.status.success(), "{output:?}");
    }
    for_a_time(Duration::from_millis(200));
    assert!(daemon.stop().success());
    for_a_time(Duration::from_millis(200));
    let sent = source.finish();
    let arrived = sink.drain(Duration::from_secs(1));
    println!("{port}: {sent} sent, {arrived:?}");
    assert_eq!(arrived.count, sent, "{arrived:?}");
    left_nothing(&scene);
}

by!(ctrl_c_held_down_leaves_nothing: nfqueue, afxdp, kernel);

fn ctrl_c_held_down_leaves_nothing(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = Scene::new(port, Offloads::Off);
    let daemon = scene.shape(RATES, "");
    assert!(daemon.interrupt().success());
    left_nothing(&scene);
}

by!(rates_are_set_while_packets_flow: nfqueue, afxdp, kernel);

fn rates_are_set_while_packets_flow(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = Scene::new(port, Offloads::Off);
    let classes = "[[class]]\nname = \"anna\"\nprefix = \"10.10.1.2\"\ndown = \"2mbit\"\n\
                   [[class]]\nname = \"late\"\ninterface = \"late0\"\n";
    let daemon = scene.shape(RATES, classes);
    let sink = Counted::bind(&scene.net.client, scene.to_client());
    // 8 Mbit/s.
    let source = Numbered::start(&scene.net.server, scene.to_client(), MS, 958);
    for_a_time(Duration::from_secs(2));
    let overloaded = queue(&daemon, "down", Some("anna"));
    let dropped = number(&overloaded, "dropped_packets");
    assert!(
        dropped > 100,
        "of 2,000 at a quarter of the rate: {overloaded:#}"
    );
    assert_eq!(overloaded["ceil_bps"], 2_000_000);
    let rate = overloaded["rate_bps"].as_f64().unwrap();
    assert!((1.4e6..2.6e6).contains(&rate), "{overloaded:#}");
    for (class, rate) in [("anna", "20mbit"), ("line", "50mbit")] {
        let output = scene.command(&["set", class, "--down", rate]);
        assert!(output.status.success(), "{output:?}");
    }
    for_a_time(Duration::from_secs(1));
    let then = number(&queue(&daemon, "down", Some("anna")), "dropped_packets");
    for_a_time(Duration::from_secs(1));
    let now = queue(&daemon, "down", Some("anna"));
    assert_eq!(number(&now, "dropped_packets"), then, "{now:#}");
    assert!(number(&now, "backlog_packets") < 20, "{now:#}");
    assert_eq!(now["ceil_bps"], 20_000_000);
    let rate = now["rate_bps"].as_f64().unwrap();
    assert!((6e6..10e6).contains(&rate), "{now:#}");
    assert_eq!(snapshot(&daemon)["links"][0]["ceil_bps"], 50_000_000);
    // The rules of classes change, their rates do not.
    let late = "link add late0 type veth peer name late1".to_owned();
    scene.net.router.ip_batch(&[late]).unwrap();
    for_a_time(Duration::from_secs(2));
    let then = number(&queue(&daemon, "down", Some("anna")), "dropped_packets");
    for_a_time(Duration::from_secs(1));
    let now = queue(&daemon, "down", Some("anna"));
    assert_eq!(now["ceil_bps"], 20_000_000);
    assert_eq!(number(&now, "dropped_packets"), then, "{now:#}");
    assert_eq!(snapshot(&daemon)["links"][0]["ceil_bps"], 50_000_000);
    drop(source);
    let _ = sink.drain(Duration::from_millis(500));
    let output = scene.command(&["set", "nobody", "--down", "20mbit"]);
    assert!(!output.status.success());
    let output = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.contains("no such class"), "{output}");
}

by!(set_rates_stay_until_a_reload: nfqueue);

fn set_rates_stay_until_a_reload(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = Scene::new(port, Offloads::Off);
    let anna = "[[class]]\nname = \"anna\"\nprefix = \"10.10.1.2\"\ndown = \"2mbit\"\n";
    let daemon = scene.shape(RATES, anna);
    let ceil = || queue(&daemon, "down", Some("anna"))["ceil_bps"].clone();
    let command = |words: &[&str]| {
        let output = scene.command(words);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), text)
    };
    let (done, text) = command(&["set", "anna", "--down-floor", "3mbit"]);
    let expected = "down: floor 3mbit is above ceiling 2mbit";
    assert!(!done && text.contains(expected), "{text}");
    for words in [
        &["set", "anna", "--down", "20mbit", "--down-floor", "3mbit"][..],
        &["stop"],
        &["start"],
    ] {
        let (done, text) = command(words);
        assert!(done, "{text}");
    }
    // Ahead of the first reading.
    let links = daemon.status()["shape"]["links"].clone();
    assert_eq!(links.as_array().map(Vec::len), Some(2), "{links:#}");
    assert_eq!(ceil(), 20_000_000);
    daemon.reload();
    assert_eq!(ceil(), 2_000_000);
    for words in [["stop"], ["start"]] {
        assert!(command(&words).0);
    }
    assert_eq!(ceil(), 2_000_000);
    assert!(daemon.stop().success());
}

/// Packets of the round in which the process was stopped, about to leave. Thousands arrive while it
/// is stopped.
const ABOUT_TO_LEAVE: u64 = 8;

by!(a_daemon_that_gets_no_cpu_loses_nothing_that_is_not_counted: nfqueue, afxdp);

fn a_daemon_that_gets_no_cpu_loses_nothing_that_is_not_counted(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = Scene::new(port, Offloads::Off);
    let daemon = scene.shape(RATES, "");
    let sink = Counted::bind(&scene.net.client, scene.to_client());
    let every = Duration::from_micros(100);
    let source = Numbered::start(&scene.net.server, scene.to_client(), every, 100);
    for_a_time(Duration::from_millis(300));
    daemon.process.signal(Signal::SIGSTOP);
    for_a_time(Duration::from_millis(1500));
    daemon.process.signal(Signal::SIGCONT);
    for_a_time(Duration::from_millis(500));
    let sent = source.finish();
    let Arrived {
        count: arrived,
        oldest,
        old,
        ..
    } = sink.drain(Duration::from_secs(2));
    let line = settled(&daemon, "down", None);
    let before = upstream_lost(&daemon, port, "down");
    println!(
        "{port}: {sent} sent, {arrived} received, {before} lost upstream, the oldest {oldest:?}; {line}"
    );
    assert!(old <= ABOUT_TO_LEAVE, "{old} old packets, {oldest:?}");
    let dropped = number(&line, "dropped_packets");
    assert_eq!(sent, arrived + dropped + before, "{line:#}");
    assert!(daemon.stop().success());
}

by!(a_flood_waits_for_half_a_second_at_most: nfqueue, afxdp, kernel);

/// CoDel does not slow it down, and `packets` is far away.
fn a_flood_waits_for_half_a_second_at_most(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = Scene::new(port, Offloads::Off);
    let anna = "[[class]]\nname = \"anna\"\nprefix = \"10.10.1.2\"\ndown = \"2mbit\"\n";
    let daemon = scene.shape(RATES, anna);
    scene.meet(&[Router::CLIENT.v4]);
    let sink = Counted::bind(&scene.net.client, scene.to_client());
    // 16 Mbit/s, a thousand bytes each on the wire.
    let every = Duration::from_micros(500);
    let source = Numbered::start(&scene.net.server, scene.to_client(), every, 958);
    for_a_time(Duration::from_secs(4));
    let (count, oldest) = (sink.count(), sink.oldest());
    println!("{port}: {count} came, the oldest after {oldest:?}");
    // It leaves at the rate of its class, and a reading has a margin for the schedule of this machine.
    assert!((900..1100).contains(&count), "{count} of 1,000");
    assert!(oldest < Duration::from_millis(600), "{oldest:?}");
    if port != "kernel" {
        daemon.process.signal(Signal::SIGSTOP);
        for_a_time(Duration::from_secs(3));
        daemon.process.signal(Signal::SIGCONT);
        for_a_time(Duration::from_secs(1));
        source.finish();
        let Arrived { oldest, old, .. } = sink.drain(Duration::from_secs(1));
        println!("{port}: after a pause, the oldest {oldest:?}");
        assert!(old <= ABOUT_TO_LEAVE, "{old} old packets, {oldest:?}");
        let anna = settled(&daemon, "down", Some("anna"));
        let too_old = &anna["dropped_packets_by_reason"]["too_old"];
        assert!(too_old.as_u64() > Some(100), "{anna:#}");
    }
    assert!(daemon.stop().success());
}

by!(acks_of_a_download_are_filtered: nfqueue, afxdp);

fn acks_of_a_download_are_filtered(port: &'static str) {
    requires!(Need::Root, Need::Tool("iperf3"), Need::Tool("ethtool"));
    let scene = Scene::new(port, Offloads::Off);
    // An ACK for two packets of a download takes a fiftieth of its rate, and less where a NAPI poll
    // joins more packets.
    let rates =
        |filter: bool| format!("down = \"40mbit\"\nup = \"100kbit\"\nack_filter = {filter}");
    let daemon = scene.shape(&rates(false), "");
    scene.meet(&[Router::CLIENT.v4]);
    let mut got = Vec::new();
    for (at, filter) in [false, true].into_iter().enumerate() {
        scene.configure(&rates(filter), "");
        daemon.reload();
        let server = Iperf3Server::start(&scene.net.client, 5201 + at as u16).unwrap();
        let bulk = Iperf3::to(Router::CLIENT.v4, server.port()).seconds(60);
        let _bulk = bulk.start(&scene.net.server).unwrap();
        let sent = || number(&queue(&daemon, "down", None), "sent_bytes");
        let before = sent();
        for_a_time(Duration::from_secs(6));
        got.push((sent() - before) as f64);
    }
    let up = queue(&daemon, "up", None);
    println!("{port}: {got:.0?} bytes without and with the filter; {up}");
    let filtered = up["dropped_packets_by_reason"]["ack_filtered"].as_u64();
    assert!(filtered > Some(100), "{up:#}");
    // Eight times as much, four where more packets are joined: 32 MB in place of 4 to 8.
    assert!(got[1] > 2.0 * got[0], "{got:?}");
    assert!(daemon.stop().success());
}

/// No rule, no qdisc, no program.
pub fn left_nothing(scene: &Scene) {
    let router = &scene.net.router;
    let qdiscs = router.run(&["tc", "qdisc", "show"]).unwrap();
    assert!(
        !qdiscs.contains("htb") && !qdiscs.contains("fairpath"),
        "{qdiscs}"
    );
    let links = router.run(&["ip", "-details", "link", "show"]).unwrap();
    assert!(!links.contains("xdp"), "{links}");
    if scene.port == "nfqueue" {
        let rules = router
            .run(&["iptables-legacy", "-t", "mangle", "-S"])
            .unwrap();
        assert!(!rules.contains("fairpath"), "{rules}");
    }
}

by!(a_link_that_goes_down_and_comes_back_is_shaped_again: nfqueue, afxdp, kernel);

fn a_link_that_goes_down_and_comes_back_is_shaped_again(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = Scene::new(port, Offloads::Off);
    let daemon = scene.shape(RATES, "");
    let wan = &scene.net.wan_end;
    for _ in 0..3 {
        wan.set_up(false).unwrap();
        for_a_time(Duration::from_millis(300));
        wan.set_up(true).unwrap();
        for_a_time(Duration::from_millis(300));
    }
    passes_and_is_counted(&scene, &daemon);
    assert!(daemon.stop().success());
    left_nothing(&scene);
}

by!(an_interface_that_is_removed_and_comes_back_is_shaped_again: nfqueue, afxdp, kernel);

fn an_interface_that_is_removed_and_comes_back_is_shaped_again(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = Scene::new(port, Offloads::Off);
    let daemon = scene.shape(RATES, "");
    let test = "shape::life::an_interface_that_is_removed_and_comes_back_is_shaped_again";
    repeat_disturbed(&format!("{test}::{port}"), 3, |attempt| {
        let ms = remove_and_return(&scene, &daemon, attempt as usize);
        Disturbed::unless(ms < 100, format!("shaped after {ms} ms"))
    });
    passes_and_is_counted(&scene, &daemon);
    assert!(daemon.stop().success());
    left_nothing(&scene);
}

/// The time until the interface is shaped, in milliseconds, as the log has it; AF_XDP ends, and starts again.
fn remove_and_return(scene: &Scene, daemon: &Daemon<'_>, attempt: usize) -> u32 {
    let words = ["ip", "link", "delete", "wan"];
    scene.net.router.run(&words).unwrap();
    daemon.status_when("without it", |status| {
        !status["interfaces"].to_string().contains("wan")
    });
    if scene.port != "afxdp" {
        the_other_side_continues(scene, daemon);
    }
    let ends = [&scene.net.wan_end, &scene.net.server_end].map(Clone::clone);
    let [wan, server] = ends;
    let veth = Veth::between(wan, server).build().unwrap();
    veth.fix_neighbours().unwrap();
    for gateway in Router::WAN.both() {
        scene.net.server.add_route("default", gateway).unwrap();
    }
    daemon.status_when("shaping", |status| {
        status["shape"]["running"] == true && status["shape"]["failure"].is_null()
    });
    if scene.port == "afxdp" {
        return 0;
    }
    let log = daemon.process.stderr();
    let begins = "interface \"wan\" is there: shaping up after ";
    let rest = log.split(begins).nth(attempt).unwrap();
    rest.split_once(" ms").unwrap().0.parse().unwrap()
}

/// Packets of the router to the client are shaped, and the other side is reported.
fn the_other_side_continues(scene: &Scene, daemon: &Daemon<'_>) {
    let shape = snapshot(daemon);
    assert_eq!(shape["running"], true, "{shape:#}");
    let failure = shape["failure"].to_string();
    assert!(
        failure.contains("up is not shaped") && failure.contains("wan"),
        "{shape:#}"
    );
    let before = number(&queue(daemon, "down", None), "sent_packets");
    let ping = Ping::to(Router::CLIENT.v4).count(20);
    let ping = ping.interval(Duration::from_millis(10));
    assert_eq!(ping.run(&scene.net.router).unwrap().received, 20);
    let sent = number(&queue(daemon, "down", None), "sent_packets") - before;
    assert!((20..40).contains(&sent), "{sent}");
    let refused = scene.command(&["set", "line", "--up", "50mbit"]);
    let refused = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.contains("it has no interface"), "{refused}");
}

/// A hundred datagrams pass, and are in the figures of both sides.
pub fn passes_and_is_counted(scene: &Scene, daemon: &Daemon<'_>) {
    scene.meet(&[Router::CLIENT.v4]);
    let before = ["down", "up"].map(|side| number(&queue(daemon, side, None), "sent_packets"));
    let ping = Ping::to(Router::CLIENT.v4).count(100);
    let report = ping
        .interval(Duration::from_millis(10))
        .run(&scene.net.server)
        .unwrap();
    assert_eq!(report.received, 100, "{report:?}");
    for (at, side) in ["down", "up"].into_iter().enumerate() {
        let line = queue(daemon, side, None);
        let sent = number(&line, "sent_packets") - before[at];
        assert!((100..130).contains(&sent), "{side}: {sent}: {line:#}");
    }
}

by!(an_interface_that_is_not_there_yet_is_waited_for: nfqueue, kernel);

fn an_interface_that_is_not_there_yet_is_waited_for(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = Scene::new(port, Offloads::Off);
    let shape = format!("[shape]\ninside = \"lan\"\noutside = \"late0\"\nvia = \"{port}\"");
    scene.place.configure(&["lan", "late0"], &shape);
    let daemon = Daemon::start(&scene.net.router, &scene.place);
    daemon.logs("shaping via");
    let shape = daemon.status()["shape"].clone();
    assert_eq!(shape["running"], true, "{shape:#}");
    assert!(shape["failure"].to_string().contains("late0"), "{shape:#}");
    let add = [
        "ip", "link", "add", "late0", "type", "veth", "peer", "name", "late1",
    ];
    scene.net.router.run(&add).unwrap();
    daemon.logs("interface \"late0\" is there: shaping up after ");
    daemon.status_when("complete", |status| status["shape"]["failure"].is_null());
    assert!(daemon.stop().success());
    left_nothing(&scene);
}

by!(stop_ends_a_process_without_configuration: nfqueue, afxdp, kernel);

fn stop_ends_a_process_without_configuration(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = Scene::new(port, Offloads::Off);
    let mut command = scene.net.router.command_without_sysfs(binary::fairpath());
    let words = ["shape", "start", "--inside", "lan", "--outside", "wan"];
    command
        .args(words)
        .args(["--down", "100mbit", "--via", port]);
    command.arg("--socket").arg(scene.place.socket());
    let mut process = scene.net.router.spawn(command).unwrap();
    process
        .wait_stderr("ready after", PATIENCE)
        .unwrap_or_else(|error| panic!("{error}; {}", process.stderr()));
    let output = scene.command(&["stop"]);
    assert!(output.status.success(), "{output:?}");
    let status = process.wait(PATIENCE).unwrap();
    assert!(status.success(), "{}", process.stderr());
    left_nothing(&scene);
}
