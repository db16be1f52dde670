//! Commands that run until they are interrupted: reports that are repeated, and the end of their terminal.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use fairpath_testbed::{Need, Testbed, requires};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::live::{Router, arrives, filter};

#[test]
fn reports_repeat_until_the_terminal_ends() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("reports").unwrap());
    router.load(&filter(&["INPUT -p udp -m udp --dport 9"]));
    let words = ["counters", "--watch", "--interval", "100ms", "--zero"];
    let mut command = router.command(&words);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || {
        let mut rules = lines.by_ref().map(Result::unwrap);
        rules.find(|line| line.ends_with("--dport 9")).unwrap()
    };
    assert!(next().starts_with("[0:0]"));
    arrives(&router.netns, 9);
    // One report has the packet, and the next one begins at 0 again.
    let begin = Instant::now();
    while !next().starts_with("[1:") {
        assert!(begin.elapsed() < Duration::from_secs(10));
    }
    assert!(next().starts_with("[0:0]"));
    kill(Pid::from_raw(child.id() as i32), Signal::SIGHUP).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn readers_end_with_their_terminal() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("readers").unwrap());
    router.load(&filter(&["INPUT -p udp -m udp --dport 9 -j REJECT"]));
    for words in [&["log"][..], &["trace", "--all"], &["answer"]] {
        let mut command = router.command(words);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        // Before it handles the signal, the signal ends it with a failure.
        std::thread::sleep(Duration::from_millis(1000));
        kill(Pid::from_raw(child.id() as i32), Signal::SIGHUP).unwrap();
        let begin = Instant::now();
        while child.try_wait().unwrap().is_none() {
            assert!(begin.elapsed() < Duration::from_secs(10), "{words:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(child.wait().unwrap().success(), "{words:?}");
    }
}
