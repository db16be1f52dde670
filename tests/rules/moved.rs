//! Interfaces and namespaces that come, go and move: rules stay in the namespace of their load, and reach the
//! interfaces that have the index of an earlier one.

use std::net::UdpSocket;
use std::time::Duration;

use fairpath_testbed::{Need, Netns, Testbed, requires};
use serde_json::{Value, json};

use super::live::{Router, filter};

const LAN: &str = "10.1.0.1";

/// `lan` with an index at a router, and `eth0` at a client.
fn link(router: &Netns, client: &Netns, index: u32) {
    let peer = client.path();
    let lines = [
        format!("link add lan index {index} type veth peer name eth0 netns {peer}"),
        "link set lan up".to_owned(),
        format!("addr add {LAN}/24 dev lan"),
    ];
    router.ip_batch(&lines).unwrap();
    let lines = ["link set eth0 up", "addr add 10.1.0.2/24 dev eth0"];
    client.ip_batch(&lines.map(str::to_owned)).unwrap();
}

fn pings(client: &Netns) -> Result<String, String> {
    let words = ["ping", "-c", "1", "-W", "1", "-n", LAN];
    client.run(&words).map_err(|error| error.to_string())
}

fn shown(router: &Router) -> Value {
    serde_json::from_str(&router.done(&["show", "--format", "json"])).unwrap()
}

/// The kernel gives a new namespace the number of one that ended, and pins have this number.
#[test]
fn rules_of_ended_namespaces_are_not_adopted() {
    requires!(Need::Root, Need::Tool("ping"));
    let testbed = Testbed::new();
    let [past, new, client] = ["past", "new", "client"].map(|name| testbed.netns(name).unwrap());
    link(&new, &client, 50);
    let mut router = Router::new(past.clone());
    let file = router.file("rules.arp", "*filter\n-A INPUT -j DROP\n");
    router.done(&["load", &file]);
    let pins = router.place.path("pins");
    for pin in std::fs::read_dir(&pins).unwrap() {
        let pin = pin.unwrap().path();
        let name = pin.file_name().unwrap().to_str().unwrap().to_owned();
        let here = name.replace(
            &format!("-{}-", past.inode()),
            &format!("-{}-", new.inode()),
        );
        if here != name {
            std::fs::rename(&pin, pins.join(here)).unwrap();
        }
    }
    router.netns = new.clone();
    new.run(&["ip", "link", "set", "lo", "up"]).unwrap();
    for words in [
        &["show"][..],
        &["counters"],
        &["apply", "--loaded", "--edits", &file],
    ] {
        let none = router.fails(words);
        assert!(none.contains("no rules are loaded"), "{words:?}: {none}");
    }
    pings(&client).unwrap();
    new.run(&["ip", "neigh", "flush", "all"]).unwrap();
    client.run(&["ip", "neigh", "flush", "all"]).unwrap();
    assert_eq!(router.done(&["load", &file]), "loaded 1 rule\n");
    pings(&client).unwrap_err();
    let counters = router.done(&["counters"]);
    assert!(!counters.contains("[0:0] -A INPUT -j DROP"), "{counters}");
    router.done(&["unload"]);
    pings(&client).unwrap();
}

#[test]
fn rules_stay_behind_when_an_interface_moves() {
    requires!(Need::Root, Need::Tool("ping"));
    let testbed = Testbed::new();
    let [from, to, client] = ["from", "to", "client"].map(|name| testbed.netns(name).unwrap());
    link(&from, &client, 50);
    let router = Router::new(from.clone());
    let raw = "*raw\n-A PREROUTING -p udp -m udp --dport 7777 -j DROP\nCOMMIT\n";
    let files = [
        router.file("rules.v4", raw),
        router.file("rules.arp", "*filter\n-A INPUT -j DROP\n"),
    ];
    router.done(&["load", &files[0], &files[1], "--early-drop", "lan"]);
    assert_eq!(shown(&router)["early_drop"], json!(["lan"]));
    pings(&client).unwrap_err();
    client.run(&["ip", "neigh", "flush", "all"]).unwrap();
    let lines = [format!("link set lan netns {}", to.path())];
    from.ip_batch(&lines).unwrap();
    let lines = [
        "link set lan up".to_owned(),
        format!("addr add {LAN}/24 dev lan"),
    ];
    to.ip_batch(&lines).unwrap();
    assert_eq!(shown(&router)["early_drop"], json!([]));
    pings(&client).unwrap();
    let receiver = to.enter(|| UdpSocket::bind((LAN, 7777)).unwrap()).unwrap();
    receiver
        .set_read_timeout(Some(Duration::from_secs(2)))
        .unwrap();
    let send = || {
        let sender = UdpSocket::bind("0.0.0.0:0").unwrap();
        sender.send_to(b"x", (LAN, 7777)).unwrap()
    };
    client.enter(send).unwrap();
    receiver.recv(&mut [0; 8]).unwrap();
    // Another one with this index gets its own programs.
    let other = testbed.netns("other").unwrap();
    link(&from, &other, 50);
    let state = shown(&router);
    assert_eq!(state["early_drop"], json!([]));
    assert_eq!(state["arp_interfaces_without"], json!(["lan"]));
    router.done(&["load", &files[0], &files[1], "--early-drop", "lan"]);
    let state = shown(&router);
    assert_eq!(state["early_drop"], json!(["lan"]));
    assert_eq!(state["arp_interfaces_without"], json!([]));
    pings(&other).unwrap_err();
    assert!(
        from.run(&["ip", "-d", "link", "show", "lan"])
            .unwrap()
            .contains("xdp")
    );
    pings(&client).unwrap();
}

#[test]
fn an_interface_with_an_earlier_index_gets_rules() {
    requires!(Need::Root, Need::Tool("ping"));
    let testbed = Testbed::new();
    let [netns, away, client] =
        ["router", "away", "client"].map(|name| testbed.netns(name).unwrap());
    link(&netns, &client, 50);
    let router = Router::new(netns.clone());
    let rules = "*mangle\n-A POSTROUTING -p icmp -j TTL --ttl-set 77\nCOMMIT\n";
    let raw = "*raw\n-A PREROUTING -p udp -m udp --dport 7777 -j DROP\nCOMMIT\n";
    let file = router.file("rules.v4", &format!("{raw}{rules}"));
    let load = || router.done(&["load", &file, "--early-drop", "lan"]);
    load();
    let has_rules = |client: &Netns| pings(client).unwrap().contains("ttl=77");
    assert!(has_rules(&client));
    // One that moves, and one that is removed.
    let changes = [
        format!("link set lan netns {}", away.path()),
        "link del lan".to_owned(),
    ];
    let mut clients = Vec::new();
    for (number, change) in changes.into_iter().enumerate() {
        netns.ip_batch(&[change]).unwrap();
        let client = testbed.netns(&format!("client{number}")).unwrap();
        link(&netns, &client, 50);
        let state = shown(&router);
        assert_eq!(
            state["interfaces_without_changes"],
            json!(["lan"]),
            "{number}"
        );
        assert_eq!(state["early_drop"], json!([]), "{number}");
        if number == 0 {
            router.done(&["follow", "--once"]);
            assert!(has_rules(&client));
        }
        load();
        assert!(has_rules(&client));
        let state = shown(&router);
        assert_eq!(state["interfaces_without_changes"], json!([]), "{number}");
        assert_eq!(state["early_drop"], json!(["lan"]), "{number}");
        let link = netns.run(&["ip", "-d", "link", "show", "lan"]).unwrap();
        assert!(link.contains("xdp"), "{number}: {link}");
        clients.push(client);
    }
}

/// Nothing is loaded, and nothing was before.
#[test]
fn a_first_load_that_ends_is_named() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("ended").unwrap());
    let file = router.file("rules.v4", &filter(&["INPUT -p udp -j DROP"]));
    router.done(&["load", &file, "--confirm", "1s"]);
    std::thread::sleep(Duration::from_millis(1100));
    for words in ["show", "counters", "confirm"] {
        let ended = router.fails(&[words]);
        assert!(
            ended.contains("the first load was not confirmed in time"),
            "{ended}"
        );
    }
    for words in [
        &["apply", "--loaded", "--", "-A", "INPUT", "-j", "DROP"][..],
        &["apply", "--loaded", "--", "-S"],
        &["set", "add", "banned", "192.0.2.1"],
        &["set", "test", "banned", "192.0.2.1"],
    ] {
        let pins = router.place.path("pins");
        let pins = ["--pins", pins.to_str().unwrap()];
        let (verb, rest) = words.split_at(2);
        let mut command = router
            .netns
            .command_without_sysfs(super::commands::fairpath());
        command.arg("rules").args(verb).args(pins).args(rest);
        let output = command.output().unwrap();
        let ended = String::from_utf8_lossy(&output.stderr);
        assert!(
            ended.contains("the first load was not confirmed in time"),
            "{words:?}: {ended}"
        );
    }
    router.done(&["unload"]);
    let none = router.fails(&["show"]);
    assert!(!none.contains("confirmed"), "{none}");
}
