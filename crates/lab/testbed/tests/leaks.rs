//! Nothing is left behind, however a test ends.
//!
//! A test starts itself again as a child that builds a testbed and then panics, or waits to be killed. A namespace has no name, so the child also connects one of its links
//! to a namespace of the parent: when the child's namespace is removed, so is the parent's end.

use std::env;
use std::process::Command;
use std::time::Duration;

use fairpath_testbed::{
    Capture, CaptureOptions, EchoServer, Iperf3, Iperf3Server, Leftovers, LinkEnd, Need, Netns,
    Process, Router, RunId, Testbed, Veth, leftovers, requires, wait_for,
};
use nix::sys::signal::Signal;

/// Set in the child: how it shall end.
const ENDING: &str = "FAIRPATH_TESTBED_TEST_ENDING";
const DEADLINE: Duration = Duration::from_secs(30);

/// A testbed with everything in it that could stay behind.
fn build_everything(here: &Netns, testbed: &Testbed) {
    let delay = || fairpath_testbed::Impairment::delay(Duration::from_millis(1));
    let router = Router::builder()
        .wan_wire(delay(), delay())
        .build(testbed)
        .unwrap();
    let canary = Veth::between(
        LinkEnd::new(&router.router, "in"),
        LinkEnd::new(here, "canary"),
    );
    canary.build().unwrap();
    let server = Iperf3Server::start(&router.server, 5201).unwrap();
    let transfer = Iperf3::to(Router::SERVER.v4, 5201)
        .seconds(600)
        .bitrate_bps(1_000_000);
    let running = transfer.start(&router.client).unwrap();
    let options = CaptureOptions::default();
    let capture = Capture::start_anonymous(&router.router, "lan", &options).unwrap();
    let echo = EchoServer::start(&router.server, 7000).unwrap();
    let mut shell = router.client.command("sh");
    shell.args(["-c", "sleep 600 & wait"]);
    let shell = router.client.spawn(shell).unwrap();

    println!("built {} end", testbed.run_id());
    match env::var(ENDING).as_deref() {
        Ok("panic") => panic!("as requested"),
        _ => std::thread::sleep(Duration::from_secs(600)),
    }
    drop((server, running, capture, echo, shell));
}

/// In a child, which is the same test started again: builds everything and ends as requested.
///
/// False where no test is the parent.
fn is_child() -> bool {
    if env::var_os(ENDING).is_none() {
        return false;
    }
    let testbed = Testbed::new();
    build_everything(&testbed.current_netns().unwrap(), &testbed);
    true
}

/// Starts `test` again inside `observer` and waits until its testbed exists.
fn start_child(observer: &Netns, test: &str, ending: &str) -> (Process, RunId) {
    let mut command: Command = observer.command(env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    command.env(ENDING, ending);
    let child = observer.spawn(command).unwrap();
    if let Err(error) = child.wait_stdout(" end\n", DEADLINE) {
        panic!("{error}\n{}", child.stdout());
    }
    let output = child.stdout();
    let built = output
        .lines()
        .find_map(|line| line.split_once("built ")?.1.strip_suffix(" end"));
    (child, RunId::from_text(built.unwrap()))
}

fn assert_nothing_left(observer: &Netns, run: &RunId) {
    let mut last = Leftovers::default();
    let clean = wait_for(DEADLINE, || {
        last = leftovers(run);
        last.is_empty().then_some(())
    });
    assert_eq!(clean, Some(()), "{last:#?}");
    let canary_stopped = wait_for(DEADLINE, || {
        (!observer.link_names().unwrap().contains("canary")).then_some(())
    });
    assert_eq!(
        canary_stopped,
        Some(()),
        "the namespace of the child lives on"
    );
}

/// The check itself must see what is there.
fn assert_all_seen(observer: &Netns, run: &RunId) {
    let programs = [
        "iperf3 --server",
        "iperf3 --json",
        "tcpdump",
        "sh -c",
        "sleep 600",
    ];
    let runs = |seen: &Leftovers, program| {
        seen.processes
            .iter()
            .any(|found| found.command.starts_with(program))
    };
    let mut seen = Leftovers::default();
    let all = wait_for(DEADLINE, || {
        seen = leftovers(run);
        programs
            .iter()
            .all(|program| runs(&seen, program))
            .then_some(())
    });
    assert_eq!(all, Some(()), "{programs:?}: {seen:#?}");
    assert_eq!(
        seen.namespaces.len(),
        4,
        "client, router, server, wire: {seen:#?}"
    );
    assert!(observer.link_names().unwrap().contains("canary"));
}

#[test]
fn kill_9_leaves_nothing() {
    requires!(Need::Root, Need::Tool("iperf3"), Need::Tool("tcpdump"));
    if is_child() {
        return;
    }
    let observer = Testbed::new().netns("observer").unwrap();
    let (mut child, run) = start_child(&observer, "kill_9_leaves_nothing", "kill");
    assert_all_seen(&observer, &run);
    child.signal(Signal::SIGKILL);
    child.wait(DEADLINE).unwrap();
    assert_nothing_left(&observer, &run);
}

#[test]
fn ctrl_c_leaves_nothing() {
    requires!(Need::Root, Need::Tool("iperf3"), Need::Tool("tcpdump"));
    if is_child() {
        return;
    }
    let observer = Testbed::new().netns("observer").unwrap();
    let (mut child, run) = start_child(&observer, "ctrl_c_leaves_nothing", "kill");
    child.signal(Signal::SIGINT);
    child.wait(DEADLINE).unwrap();
    assert_nothing_left(&observer, &run);
}

#[test]
fn a_panic_leaves_nothing_in_a_living_process() {
    requires!(Need::Root, Need::Tool("iperf3"), Need::Tool("tcpdump"));
    let observer = Testbed::new().netns("observer").unwrap();
    let testbed = Testbed::new();
    let panicking = || {
        let router = Router::new(&testbed).unwrap();
        let canary = Veth::between(
            LinkEnd::new(&router.router, "in"),
            LinkEnd::new(&observer, "canary"),
        );
        canary.build().unwrap();
        let _server = Iperf3Server::start(&router.server, 5201).unwrap();
        let seen = leftovers(testbed.run_id());
        assert_eq!(
            (seen.processes.len(), seen.namespaces.len()),
            (1, 3),
            "{seen:#?}"
        );
        panic!("as requested");
    };
    let outcome = std::thread::scope(|scope| scope.spawn(panicking).join());
    assert_eq!(outcome.unwrap_err().downcast_ref(), Some(&"as requested"));
    assert_nothing_left(&observer, testbed.run_id());
}

#[test]
fn a_panic_of_the_whole_test_leaves_nothing() {
    requires!(Need::Root, Need::Tool("iperf3"), Need::Tool("tcpdump"));
    if is_child() {
        return;
    }
    let observer = Testbed::new().netns("observer").unwrap();
    let (mut child, run) = start_child(
        &observer,
        "a_panic_of_the_whole_test_leaves_nothing",
        "panic",
    );
    child.wait(DEADLINE).unwrap();
    assert_nothing_left(&observer, &run);
}
