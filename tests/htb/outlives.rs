//! The state after the shaping process was killed, and its continuation by the next one.

use fairpath_bpf::{Pins, Took};
use fairpath_core::sched::End;
use fairpath_core::{Prefix, Rules};
use fairpath_netlink::Tc;
use fairpath_testbed::{Need, Offloads, Process, Router, Testbed, requires, wait_for};
use fairpath_tests::htb::{LINE, OTHER, Shaped, class, tree};
use nix::sys::signal::Signal;

use super::site::{PATIENCE, Site, by_prefix};

const BPS: u64 = 100_000_000;

fn shaper(site: &Site, bps: u64) -> Process {
    let mut command = site
        .net
        .router
        .command_without_sysfs(env!("CARGO_BIN_EXE_htb-shape"));
    command.arg("lan").arg(site.pins_path());
    command.args([format!("{}/32", Router::CLIENT.v4), bps.to_string()]);
    let process = site.net.router.spawn(command).unwrap();
    process.wait_stdout("shaping", PATIENCE).unwrap();
    process
}

fn kill(mut process: Process) {
    process.signal(Signal::SIGKILL);
    process.wait(PATIENCE).unwrap();
}

#[test]
fn shaping_survives_kill_9_and_can_be_removed() {
    requires!(Need::Root, Need::Tool("ethtool"));
    let site = Site::new(Offloads::Off);
    let first = shaper(&site, 20_000_000);
    assert!(
        first.stdout().contains("handed over false, program Fresh"),
        "{}",
        first.stdout()
    );
    kill(first);
    let mut seen = site
        .net
        .router
        .enter(|| Shaped::open("lan", 1, End::Receiver).unwrap())
        .unwrap();
    let mut expected = seen.class(5).unwrap().packets;
    let mut comes = |count: u32, seen: &mut Shaped| {
        site.send(Router::CLIENT.v4, count, 200);
        expected += u64::from(count);
        let arrived = wait_for(PATIENCE, || {
            Some(seen.class(5).unwrap().packets).filter(|packets| *packets >= expected)
        });
        assert_eq!(arrived, Some(expected));
    };
    comes(10, &mut seen);
    // Another rate, while packets come.
    let other = seen.class(OTHER).unwrap().packets;
    let second = shaper(&site, 30_000_000);
    assert!(
        second.stdout().contains("handed over true, program Over"),
        "{}",
        second.stdout()
    );
    comes(10, &mut seen);
    kill(second);
    comes(10, &mut seen);
    assert_eq!(site.pins.names().unwrap().len(), 1);
    assert_eq!(
        seen.class(OTHER).unwrap().packets,
        other,
        "nothing missed its class"
    );
    let removed = site.net.router.enter(|| {
        let removed = seen.remove(&site.pins).unwrap();
        (removed, Tc::open().unwrap().qdiscs().unwrap())
    });
    let (removed, left) = removed.unwrap();
    assert_eq!(removed, [true, true]);
    let ours = |q: &&fairpath_netlink::Qdisc| q.ifindex == seen.device().ifindex && q.handle != 0;
    assert_eq!(left.iter().filter(ours).count(), 0, "{left:?}");
    assert!(site.pins.names().unwrap().is_empty());
    let programs = site
        .net
        .router
        .run(&["bpftool", "net", "show", "dev", "lan"]);
    assert!(!programs.unwrap_or_default().contains("mark_egress"));
}

#[test]
fn marks_do_not_pass_to_a_new_interface() {
    requires!(Need::Root);
    let ns = Testbed::new().netns("here").unwrap();
    let place = tempfile::tempdir().unwrap();
    let pins = Pins::at(place.path().join("pins")).unwrap();
    let link = |what: &str| {
        let line = format!("link {what}");
        ns.ip_batch(&[line]).unwrap();
    };
    let mark = || {
        let mark = || {
            let mut shaped = Shaped::open("v0", 1, End::Receiver).unwrap();
            shaped.mark(&Rules::default(), &[OTHER], &pins).unwrap()
        };
        ns.enter(mark).unwrap()
    };
    link("add v0 index 77 type veth peer name v1");
    assert_eq!((mark(), mark()), (Took::Fresh, Took::Over));
    link("delete v0");
    link("add v0 index 77 type veth peer name v1");
    assert_eq!((mark(), mark()), (Took::Fresh, Took::Over));
    assert_eq!(pins.names().unwrap().len(), 1);
    pins.unmount().unwrap();
}

#[test]
fn a_link_is_shaped_after_going_down() {
    requires!(Need::Root, Need::Tool("ethtool"));
    let site = Site::new(Offloads::Off);
    let rules = by_prefix(&[Prefix::new(Router::CLIENT.v4.into(), 32)]);
    let only = tree(BPS, &[class(5, LINE, BPS, BPS)]);
    let mut shaped = site.shape(&only, &rules, &[OTHER, 5]);
    for up in [false, true] {
        site.net.lan_end.set_up(up).unwrap();
    }
    // The neighbour is resolved again, and until its answer packets may be lost.
    let before = shaped.class(5).unwrap().packets;
    let comes = wait_for(PATIENCE, || {
        site.send(Router::CLIENT.v4, 1, 100);
        (shaped.class(5).unwrap().packets > before).then_some(())
    });
    assert!(
        comes.is_some(),
        "nothing comes by the class after the link was down"
    );
    let again = site
        .net
        .router
        .enter(|| shaped.apply(&only).unwrap())
        .unwrap();
    assert_eq!((again.added, again.changed, again.stale.len()), (0, 0, 0));
}

#[test]
fn a_replacing_process_misses_no_packet() {
    requires!(Need::Root, Need::Tool("ethtool"), Need::Tool("iperf3"));
    let site = Site::new(Offloads::Off);
    let mut shapers = vec![shaper(&site, 50_000_000)];
    let server = fairpath_testbed::Iperf3Server::start(&site.net.client, 5201).unwrap();
    let _flood = site.flood(Router::CLIENT.v4.into(), server.port(), "10M");
    let open = || Shaped::open("lan", 1, End::Receiver).unwrap();
    let mut seen = site.net.router.enter(open).unwrap();
    let begun = |seen: &mut Shaped, min: u64| {
        wait_for(PATIENCE, || {
            Some(seen.class(5).unwrap().packets).filter(|packets| *packets >= min)
        })
    };
    let mut packets = begun(&mut seen, 100).expect("traffic begins");
    let other = seen.class(OTHER).unwrap().packets;
    for round in 0..5 {
        shapers.push(shaper(&site, 50_000_000 + round));
        kill(shapers.remove(0));
        packets = begun(&mut seen, packets + 500).expect("traffic continues");
    }
    let missed = seen.class(OTHER).unwrap().packets - other;
    assert_eq!(missed, 0, "packets passed without their class");
}
