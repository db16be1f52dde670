//! Limits and remedies: the options of `fairpath rtt`.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use fairpath_testbed::{
    EchoServer, Impairment, Need, Ping, Router, ShortConnections, Testbed, requires,
};
use fairpath_tests::{PATIENCE, Records, Rtt, Sample, binary, rtt};
use serde_json::Value;

fn connections(router: &Router, connections: u64, at_once: usize) {
    let server = EchoServer::start(&router.server, 7000).unwrap();
    let short = ShortConnections {
        connections,
        at_once,
        request_bytes: 300,
        response_bytes: 3000,
    };
    let ip = std::net::IpAddr::from(Router::SERVER.v4);
    let report = short.run(&router.client, ip, server.port()).unwrap();
    assert_eq!(report.failed, 0);
}

#[test]
fn a_full_flow_table_counts_refused_flows() {
    requires!(Need::Root);
    let router = Router::new(&Testbed::new()).unwrap();
    let rtt = Rtt::watch(&router.router, &["wan"], &["--max-flows", "8"]);
    let mut flows = fairpath_tests::flows::Flows::open(
        &router.client,
        &router.server,
        Router::SERVER.v4.into(),
        50,
    )
    .unwrap();
    flows.exchange().unwrap();
    let records = rtt.stop();
    assert_eq!(records.number("/tables/flows/size"), 8);
    assert_eq!(records.number("/tables/flows/used"), 8);
    assert_eq!(records.number("/flows_opened"), 8);
    assert!(records.number("/counters/flows_refused") >= 42);
    // An estimate: with this seed, two flows may have one mark.
    let refused = records.number("/tables/flows/refused");
    assert!((38..=43).contains(&refused), "{refused}");
    assert_eq!(records.number("/tables/flows/refused_at"), 8);
    assert_eq!(records.number("/counters/flows_evicted"), 0);
}

#[test]
fn records_are_appended_to_a_file() {
    requires!(Need::Root, Need::Tool("ping"));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("records.jsonl");
    let router = Router::new(&Testbed::new()).unwrap();
    for run in 1..=2 {
        let rtt = Rtt::watch(
            &router.router,
            &["wan"],
            &["--write", path.to_str().unwrap()],
        );
        Ping::to(Router::SERVER.v4)
            .count(3)
            .run(&router.client)
            .unwrap();
        rtt.process.signal(nix::sys::signal::Signal::SIGTERM);
        let shown = rtt.process.finish(PATIENCE).unwrap();
        assert!(shown.contains("Summary of"), "{shown}");
        let lines: Vec<Value> = fs::read_to_string(&path)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let of = |kind: &str| lines.iter().filter(|l| l["type"] == kind).count();
        assert_eq!((of("sample"), of("summary")), (3 * run, run));
    }
}

/// Echo requests of a client with two addresses: one is a class, the other has DSCP EF for a while.
#[test]
fn live_rows_by_class_use_every_criterion() {
    requires!(Need::Root, Need::Tool("ping"));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("classes.toml");
    let text = format!(
        "[[class]]\nname = \"site\"\n\
         [[class]]\nname = \"anna\"\nparent = \"site\"\nprefix = [\"{}/32\"]\n\
         [[class]]\nname = \"voice\"\ndscp = [\"ef\"]\n",
        Router::CLIENT.v4
    );
    fs::write(&path, text).unwrap();
    let router = Router::new(&Testbed::new()).unwrap();
    let second = "address add 10.10.1.3/24 dev eth0".to_owned();
    router.client.ip_batch(&[second]).unwrap();
    let path = path.to_str().unwrap();
    let args = ["--by", "class", "--class-file", path, "--uplink", "wan"];
    let rtt = Rtt::watch(&router.router, &["lan", "wan"], &args);
    let second = "-I 10.10.1.3";
    for options in [
        "-c 20",
        &format!("-c 10 -Q 0xb8 {second}"),
        &format!("-c 5 {second}"),
    ] {
        let ping = format!("ping -q -i 0.05 {options} {}", Router::SERVER.v4);
        router.client.run(&["sh", "-c", &ping]).unwrap();
    }
    rtt.process.signal(nix::sys::signal::Signal::SIGTERM);
    let shown = rtt.process.finish(PATIENCE).unwrap();
    let rows: HashMap<String, u64> = shown
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .map(|row: Value| {
            let [class, leg] = ["class", "leg"].map(|key| row[key].as_str().unwrap().to_owned());
            (format!("{class} {leg}"), row["samples"].as_u64().unwrap())
        })
        .collect();
    // The server answers the client, so the leg outside is measured.
    let expected = [
        ("anna outside", 20),
        ("site outside", 20),
        ("voice outside", 10),
        ("other inside", 5),
    ];
    assert_eq!(rows, expected.map(|(name, n)| (name.to_owned(), n)).into());
}

#[test]
fn reader_that_goes_away_ends_the_run_well() {
    requires!(Need::Root, Need::Tool("bash"));
    let router = Router::new(&Testbed::new()).unwrap();
    let script = "set -o pipefail; \"$0\" rtt -i wan --format json | head -n 1";
    let mut command = router.router.command_without_sysfs("bash");
    command.args(["-c", script]).arg(binary::fairpath());
    let pipe = router.router.spawn(command).unwrap();
    pipe.wait_stderr("watching wan", PATIENCE).unwrap();
    // Two, so that something is written after head has gone.
    for _ in 0..2 {
        connections(&router, 20, 4);
    }
    let text = pipe.finish(PATIENCE).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[test]
fn count_and_duration_end_the_run() {
    requires!(Need::Root, Need::Tool("ping"));
    let router = Router::new(&Testbed::new()).unwrap();
    let counting = Rtt::watch(&router.router, &["wan"], &["--count", "7"]);
    let timed = Rtt::watch(&router.router, &["wan"], &["--duration", "300ms"]);
    Ping::to(Router::SERVER.v4)
        .count(10)
        .run(&router.client)
        .unwrap();
    let counted = counting.finish();
    assert_eq!(counted.samples.len(), 7);
    let timed = timed.finish();
    assert!(timed.number("/duration_ns") >= 300_000_000);
}

fn time_ns(sample: &Sample) -> i128 {
    sample
        .time
        .parse::<jiff::Timestamp>()
        .unwrap()
        .as_nanosecond()
}

/// Samples of each leg in their order.
fn legs(records: &Records) -> Vec<Vec<&Sample>> {
    let mut legs: HashMap<_, Vec<&Sample>> = HashMap::new();
    for sample in &records.samples {
        legs.entry((sample.flow, sample.dst))
            .or_default()
            .push(sample);
    }
    legs.into_values().collect()
}

#[test]
fn rate_limit_keeps_samples_of_a_leg_apart() {
    requires!(Need::Root, Need::Tool("ping"));
    let delay = Impairment::delay(Duration::from_millis(10));
    let builder = Router::builder().wan_wire(delay.clone(), delay);
    let router = builder.build(&Testbed::new()).unwrap();
    let by_time = Rtt::watch(&router.router, &["wan"], &["--rate-limit", "100ms"]);
    let by_trips = Rtt::watch(&router.router, &["wan"], &["--rate-limit", "2x"]);
    let all = Rtt::watch(&router.router, &["wan"], &[]);
    let interval = Duration::from_millis(10);
    Ping::to(Router::SERVER.v4)
        .count(60)
        .interval(interval)
        .run(&router.client)
        .unwrap();
    let all = all.stop();
    // Times are those of the real-time clock, whose offset from the monotonic clock is read every second.
    const SLACK_NS: i128 = 1_000_000;
    for (records, min) in [(by_time.stop(), Some(100_000_000)), (by_trips.stop(), None)] {
        let held = records.number("/samples_suppressed");
        assert!(held > 0 && records.samples.len() > 1);
        // Suppressed or not, all are counted.
        assert_eq!(
            records.samples.len() as u64 + held,
            all.samples.len() as u64
        );
        for leg in legs(&records) {
            for two in leg.windows(2) {
                let min = min.unwrap_or(2 * i128::from(two[1].min_rtt_ns));
                let apart = time_ns(two[1]) - time_ns(two[0]);
                assert!(apart >= min - SLACK_NS, "{apart} ns apart, not {min}");
            }
        }
    }
}

#[test]
fn features_in_json_name_the_tests() {
    requires!(Need::Root);
    let ns = Testbed::new().netns("here").unwrap();
    let output = rtt::run(&ns, &["features", "--format", "json"]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    assert!(lines.iter().all(|line| line["schema"] == 1));
    let of = |kind: &'static str| lines.iter().filter(move |l| l["type"] == kind);
    assert_eq!(of("host").count(), 1);
    let mut ids: Vec<&str> = of("feature")
        .map(|l| l["feature"].as_str().unwrap())
        .collect();
    let bpf = ids.iter().filter(|id| id.starts_with("bpf")).count();
    assert!(bpf > 0, "{ids:?}");
    ids.sort_unstable();
    let all = ids.len();
    ids.dedup();
    assert_eq!(ids.len(), all, "an id is there twice");
    // A new namespace has only a loopback interface.
    let names: Vec<_> = of("interface").map(|l| l["name"].as_str()).collect();
    assert_eq!(names, [Some("lo")], "{text}");
}
