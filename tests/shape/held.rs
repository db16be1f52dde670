//! One process shapes an interface; a second one is refused, whatever its back end and control socket.

use std::time::Duration;

use fairpath_testbed::{Need, Offloads, requires};
use fairpath_tests::{Daemon, Place};

use crate::by;
use crate::scene::{Scene, snapshot};

const PATIENCE: Duration = Duration::from_secs(30);
const RATES: &str = "down = \"100mbit\"\nup = \"100mbit\"";

/// The state of the back ends in the router: qdiscs, programs of interfaces, rules.
fn attached(scene: &Scene) -> Vec<String> {
    let commands = [
        &["tc", "class", "show", "dev", "lan"][..],
        &["tc", "class", "show", "dev", "wan"],
        &["tc", "qdisc", "show"],
        &["iptables-legacy", "-t", "mangle", "-S"],
        &["ip", "link", "show"],
    ];
    let run = |command: &&[&str]| scene.net.router.run(command).unwrap();
    commands.iter().map(run).collect()
}

/// Another daemon's directory, with shaping of one interface via `port`, on other queues.
fn other(port: &str, interface: &str) -> Place {
    let place = Place::new();
    let shape = format!(
        "[shape]\ninside = \"{interface}\"\nvia = \"{port}\"\nqueue = 50\ndown = \"10mbit\""
    );
    match port {
        // It needs both sides.
        "afxdp" => {
            let peer = if interface == "lan" { "wan" } else { "lan" };
            let shape = format!("{shape}\noutside = \"{peer}\"");
            place.configure(&[interface, peer], &shape);
        }
        _ => place.configure(&[interface], &shape),
    }
    place
}

by!(a_second_process_on_the_interface_is_refused: kernel, nfqueue, afxdp);

fn a_second_process_on_the_interface_is_refused(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = Scene::new(port, Offloads::Off);
    let holder = scene.shape(RATES, "");
    let before = attached(&scene);
    for (second, interface) in [
        ("kernel", "lan"),
        ("kernel", "wan"),
        ("nfqueue", "wan"),
        ("afxdp", "lan"),
    ] {
        let place = other(second, interface);
        let mut refused = Daemon::spawn(&scene.net.router, &place);
        let status = refused.process.wait(PATIENCE).unwrap();
        refused.process.close_tails();
        let output = refused.process.stderr();
        assert!(!status.success(), "{second} on {interface}: {output}");
        let process = format!("process {}", holder.process.id());
        for part in [&format!("{interface:?}"), &process, "kill"] {
            assert!(output.contains(part), "{part} is not in: {output}");
        }
        let after = attached(&scene);
        assert_eq!(
            after,
            before,
            "{second} on {interface}: {output}; {}",
            holder.process.stderr()
        );
    }
    assert_eq!(snapshot(&holder)["running"], true);
    assert!(holder.stop().success());
    // The interface is free, without a file or a socket to remove.
    let place = other("kernel", "wan");
    let next = Daemon::start(&scene.net.router, &place);
    next.logs("shaping via");
    assert!(next.stop().success());
}

by!(a_killed_process_holds_no_interface: kernel, nfqueue);

fn a_killed_process_holds_no_interface(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = Scene::new(port, Offloads::Off);
    for _ in 0..2 {
        scene.shape(RATES, "").kill();
    }
    let daemon = scene.shape(RATES, "");
    assert_eq!(snapshot(&daemon)["running"], true);
    // Stopped and started again by a command, and by a reload with another back end.
    for words in [["stop"], ["start"]] {
        let output = scene.command(&words);
        assert!(output.status.success(), "{output:?}");
    }
    scene.configure(&format!("{RATES}\npackets = 20000\nqueue = 60"), "");
    let answer = daemon.reload().to_string();
    assert!(answer.contains("no shaping for"), "{answer}");
    assert_eq!(snapshot(&daemon)["running"], true);
    // While it is stopped, another process may shape.
    assert!(scene.command(&["stop"]).status.success());
    let place = other("kernel", "wan");
    let next = Daemon::start(&scene.net.router, &place);
    next.logs("shaping via");
    let output = scene.command(&["start"]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let process = format!("process {}", next.process.id());
    assert!(stderr.contains(&process), "{output:?}");
    assert!(next.stop().success());
    let output = scene.command(&["start"]);
    assert!(output.status.success(), "{output:?}");
    assert!(daemon.stop().success());
}
