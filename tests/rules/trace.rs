//! `fairpath rules trace`: paths of real packets.

use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use fairpath_bpf::{HookRules, Pins};
use fairpath_testbed::{Need, Testbed, requires, wait_for};
use serde_json::{Value, json};

use super::live::Router;

const RULES: &str = "# Rules of a test
*raw
-A PREROUTING -p udp -m udp --dport 7009 -j DROP
COMMIT

*mangle
:marks - [0:0]
-A PREROUTING -p udp -j marks
# Nothing has it.
-A marks -m mark --mark 7 -j RETURN
-A marks -m length --length 29 -j RETURN
COMMIT
*filter
:INPUT DROP [0:0]
:udp - [0:0]
-A INPUT -p tcp -j ACCEPT
-A INPUT -p udp -j udp

-A udp -p udp -m udp --dport 7001 -j ACCEPT
-A udp -p udp -m udp --dport 7002 -m limit --limit 1/hour --limit-burst 1 -j ACCEPT
COMMIT
";

/// A command that traces, until it is killed with the value.
pub(super) struct Trace {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Drop for Trace {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Trace {
    /// Begins, and waits until the filter is there.
    pub(super) fn new(router: &Router, words: &[&str]) -> Trace {
        Trace::of(router, &opened(router), words)
    }

    /// The same with the loaded rules, which a process opens once.
    fn of(router: &Router, hooks: &HookRules, words: &[&str]) -> Trace {
        let mut command = router.command(&["trace", "--format", "json"]);
        command.args(words).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let begun = || hooks.is_traced().then_some(());
        wait_for(Duration::from_secs(10), begun).expect("the filter");
        Trace { child, lines }
    }

    /// The next path.
    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"))
    }

    /// The rest, until the command ends.
    pub(super) fn rest(mut self) -> Vec<Value> {
        let lines = self.lines.by_ref().lines();
        let all = lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap());
        let all = all.collect();
        assert!(self.child.wait().unwrap().success());
        all
    }
}

fn opened(router: &Router) -> HookRules {
    let pins = router.place.path("pins");
    let open = || HookRules::open(&Pins::shared(&pins, "").unwrap());
    router.netns.enter(open).unwrap().unwrap().unwrap()
}

fn send(router: &Router, to: &str) {
    let from = if to.starts_with('[') {
        "[::1]:0"
    } else {
        "127.0.0.1:0"
    };
    let send = || UdpSocket::bind(from).unwrap().send_to(b"x", to).unwrap();
    router.netns.enter(send).unwrap();
}

/// Table, hook, verdict and the lines of the path.
fn summary(path: &Value) -> Value {
    let lines = path["path"].as_array().unwrap().iter();
    let lines: Vec<&Value> = lines.map(|line| &line["line"]).collect();
    json!([path["table"], path["hook"], path["verdict"], lines])
}

#[test]
fn traced_paths_have_lines_and_verdicts() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("traced").unwrap());
    router.load(RULES);
    let trace = Trace::new(&router, &["--dport", "7001", "-i", "lo", "--count", "4"]);
    for port in [7002, 7003, 7001] {
        send(&router, &format!("127.0.0.1:{port}"));
    }
    let paths = trace.rest();
    let expected = [
        json!(["raw", "PREROUTING", "ACCEPT", [3, 0]]),
        json!(["mangle", "PREROUTING", "ACCEPT", [8, 10, 11, 0]]),
        json!(["mangle", "INPUT", "ACCEPT", [0]]),
        json!(["filter", "INPUT", "ACCEPT", [16, 17, 19]]),
    ];
    let summaries: Vec<Value> = paths.iter().map(summary).collect();
    assert_eq!(summaries, expected, "{paths:#?}");
    let decided = paths[3]["decided_by"].as_str().unwrap();
    let rule = "/rules.v4:19: -A udp -p udp -m udp --dport 7001 -j ACCEPT";
    assert!(decided.ends_with(rule), "{decided}");
    assert!(paths.iter().all(|path| path["difference"].is_null()));
    // Packets that were sent have an owner; both directions.
    let words = [
        "--src",
        "127.0.0.0/8",
        "--sport",
        "7009",
        "--both",
        "--count",
        "5",
    ];
    let trace = Trace::new(&router, &words);
    send(&router, "127.0.0.1:7009");
    let paths = trace.rest();
    let last = summary(&paths[4]);
    assert_eq!(last, json!(["raw", "PREROUTING", "DROP", [3]]));
    assert_eq!(
        (&paths[0]["user"], &paths[4]["user"]),
        (&json!(0), &Value::Null)
    );
}

/// The kernel's limit is empty, that of the path is full.
#[test]
fn answers_by_state_are_marked() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("state").unwrap());
    router.load(RULES);
    let trace = Trace::new(&router, &["--rule", "rules.v4:20", "--count", "2"]);
    for _ in 0..2 {
        send(&router, "127.0.0.1:7001");
        send(&router, "127.0.0.1:7002");
    }
    let [first, second] = &trace.rest()[..] else {
        panic!("two paths");
    };
    assert_eq!(
        (&first["verdict"], &first["line"]),
        (&json!("ACCEPT"), &json!(20))
    );
    assert!(first["difference"].is_null(), "{first}");
    assert_eq!(second["verdict"], "DROP");
    assert_eq!(second["decided_by"], "the policy of filter INPUT");
    let difference = second["difference"].as_str().unwrap();
    assert!(difference.contains("/rules.v4:20: -A udp"), "{difference}");
    let wrong = router.fails(&["trace", "--rule", "filter/udp/9"]);
    assert!(wrong.contains("no loaded rule"), "{wrong}");
    let wrong = router.fails(&["trace"]);
    assert!(wrong.contains("or --all"), "{wrong}");
}

/// Addresses of IPv6, and rules that are replaced during the trace: each packet has the lines of its rules.
#[test]
fn traces_continue_over_loads() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("over").unwrap());
    let text = |comments: &str| {
        format!("{comments}*filter\n-A INPUT -p udp -m udp --dport 7001 -j DROP\nCOMMIT\n")
    };
    let load = |comments: &str| {
        let file = router.file("rules.v6", &text(comments));
        router.done(&["load", "--family", "ipv6", &file]);
    };
    load("");
    let mut trace = Trace::new(&router, &["--dst", "::1/127", "-i", "lo"]);
    let mut lines = Vec::new();
    for comments in ["", "# one\n", "# one\n# two\n"] {
        load(comments);
        send(&router, "[::1]:7001");
        lines.push(trace.next()["line"].clone());
    }
    assert_eq!(lines, [2, 3, 4]);
    // An edit: rules of the file keep their lines.
    let mut command = router.command(&["apply", "--loaded"]);
    let edit = "ip6tables -I INPUT -p udp -m udp --dport 7002 -j DROP";
    let output = command.arg("--").args(edit.split(' ')).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    for (to, line) in [("[::1]:7001", 4), ("[::1]:7002", 0)] {
        send(&router, to);
        assert_eq!(trace.next()["line"], line);
    }
}

#[test]
fn killed_traces_end_soon() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("killed-trace").unwrap());
    router.load(RULES);
    let hooks = opened(&router);
    let mut cursor = hooks.events();
    // Nothing is reported without a trace.
    send(&router, "127.0.0.1:7001");
    assert!(hooks.next_event(&mut cursor).is_none());
    let trace = Trace::of(&router, &hooks, &["--all"]);
    let second = router.fails(&["trace", "--all"]);
    assert!(second.contains("another command traces"), "{second}");
    // The filter continues while its command runs.
    let start = Instant::now();
    let still = || (start.elapsed() > Duration::from_secs(4)).then_some(());
    wait_for(Duration::from_secs(10), still).unwrap();
    assert!(hooks.is_traced());
    send(&router, "127.0.0.1:7001");
    assert!(hooks.next_event(&mut cursor).is_some());
    drop(trace);
    let ended = || (!hooks.is_traced()).then_some(());
    wait_for(Duration::from_secs(5), ended).expect("the end");
    while hooks.next_event(&mut cursor).is_some() {}
    send(&router, "127.0.0.1:7001");
    assert!(hooks.next_event(&mut cursor).is_none());
    let trace = Trace::of(&router, &hooks, &["--dport", "7001", "--count", "1"]);
    send(&router, "127.0.0.1:7001");
    assert_eq!(trace.rest().len(), 1);
    assert!(!hooks.is_traced());
}
