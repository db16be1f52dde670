//! The values of classes.

use std::time::Duration;

use fairpath_testbed::{Need, Testbed, requires};
use fairpath_tests::{Daemon, Place};
use serde_json::{Value, json};

use super::{ANNA, BERT, CLASSES, Site};

fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("no number: {value}"))
}

fn milliseconds(value: &Value) -> f64 {
    number(value) as f64 / 1e6
}

#[test]
fn subscribers_have_their_bytes_and_configured_delay() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let [inside, outside] = [10, 30].map(Duration::from_millis);
    let site = Site::delayed(&testbed, inside, outside);
    let place = Place::new();
    place.configure(
        &["lan", "wan"],
        &format!("uplinks = [\"wan\"]\nwindow = 60\n{CLASSES}"),
    );
    let daemon = Daemon::start(site.router(), &place);
    site.exchange(ANNA, 12);
    site.exchange(BERT, 4);

    let done = |count: u64| move |row: &Value| row["flows"]["closed"] == count;
    let anna = daemon.row_when("anna", "12 flows closed", done(12));
    let bert = daemon.row_when("bert", "4 flows closed", done(4));
    for (row, flows) in [(&anna, 12), (&bert, 4)] {
        // 20 kB and 1 kB of payload a connection, and their headers.
        let (up, down) = (number(&row["up"]["bytes"]), number(&row["down"]["bytes"]));
        assert!((20_000 * flows..23_000 * flows).contains(&up), "{row:#}");
        assert!((1_000 * flows..3_500 * flows).contains(&down), "{row:#}");
        for (leg, configured) in [("inside", 10.0), ("outside", 30.0)] {
            let median = milliseconds(&row[leg]["p50_rtt_ns"]);
            assert!(number(&row[leg]["samples"]) >= flows, "{row:#}");
            // Other tests run next to this one: the minimum is exact, the median is not.
            assert!(
                (configured * 0.97..configured + 50.0).contains(&median),
                "{leg}: {median} ms"
            );
            let min = milliseconds(&row[leg]["min_rtt_ns"]);
            assert!(
                (configured * 0.97..configured + 5.0).contains(&min),
                "{leg}: {min} ms"
            );
        }
    }
    // One snapshot, so that a late packet cannot change it between rows.
    let snapshot = daemon.query(&json!({"verb": "snapshot", "query": {"under": "site"}}));
    let rows = snapshot["snapshot"]["rows"].as_array().unwrap();
    let [above, below @ ..] = &rows[..] else {
        panic!("no rows: {snapshot:#}");
    };
    assert_eq!(above["children"], 2);
    assert_eq!(below.len(), 2);
    for direction in ["up", "down"] {
        let sum: u64 = below
            .iter()
            .map(|row| number(&row[direction]["bytes"]))
            .sum();
        assert_eq!(number(&above[direction]["bytes"]), sum, "{snapshot:#}");
    }
    assert_eq!(daemon.row("other")["up"]["bytes"], 0);
}

#[test]
fn detail_names_remote_host_and_the_live_flow() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let site = Site::new(&testbed);
    let place = Place::new();
    place.write(
        "labels.csv",
        "prefix,label\n10.10.2.0/24,the server's net\n",
    );
    let labels = "[labels]\nfile = \"labels.csv\"\n";
    place.configure(
        &["lan", "wan"],
        &format!("uplinks = [\"wan\"]\n{labels}{CLASSES}{DORA}"),
    );
    let daemon = Daemon::start(site.router(), &place);
    let mut pair =
        fairpath_testbed::TcpPair::connect(&site.net.server, &site.net.client, ANNA).unwrap();
    pair.client_sends(&[0; 50_000]).unwrap();
    site.exchange(ANNA, 4);
    daemon.row_when("anna", "closed", |row| row["flows"]["closed"] == 4);

    let query = json!({"verb": "detail", "class": "anna", "limit": 5});
    let has_flow = |answer: &Value| {
        let flows = answer["detail"]["flows"].as_array();
        flows.is_some_and(|flows| flows.iter().any(|f| f["bytes_down"] == 50_000))
    };
    let answer = fairpath_testbed::wait_for(fairpath_tests::PATIENCE, || {
        Some(daemon.query(&query)).filter(has_flow)
    });
    let detail = answer.expect("the flow is there")["detail"].take();
    assert_eq!(
        detail["busiest_remotes"][0]["name"], "the server's net",
        "{detail:#}"
    );
    assert_eq!(
        detail["busiest_hosts"][0]["name"],
        ANNA.to_string(),
        "{detail:#}"
    );
    let flow = &detail["flows"][0];
    assert_eq!(flow["host_address"], ANNA.to_string());
    assert_eq!(
        flow["remote_address"],
        fairpath_testbed::Router::SERVER.v4.to_string()
    );
    assert_eq!(flow["protocol"], "tcp");

    let recent = detail["recent"].as_array().unwrap();
    let has_traffic = |point: &&Value| point["rate_down_bps"].as_f64() > Some(0.0);
    assert!(recent.iter().any(|point| has_traffic(&point)), "{detail:#}");
    assert_eq!(
        detail["configured"]["criteria"],
        json!(["prefix 10.10.1.2/32"])
    );

    let unknown = daemon.query(&json!({"verb": "detail", "class": "carl", "limit": 5}));
    assert_eq!(unknown["answer"], "error", "{unknown}");
}

const DORA: &str = "[[class]]\nname = \"dora\"\nprefix = \"192.0.2.0/24\"\n\
                    [class.attributes]\ncircuit = \"C-4711\"\ncomment = \"left\u{202e} door\"\n";

#[test]
fn a_search_finds_addresses_and_attributes() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let site = Site::new(&testbed);
    let place = Place::new();
    place.configure(&["lan", "wan"], &format!("{CLASSES}{DORA}"));
    let daemon = Daemon::start(site.router(), &place);
    let found = |text: &str| -> Vec<String> {
        let query = json!({"verb": "snapshot", "query": {"search": text}});
        let answer = daemon.query(&query);
        let rows = answer["snapshot"]["rows"].as_array().unwrap();
        let name = |row: &Value| row["name"].as_str().unwrap().to_owned();
        rows.iter().map(name).collect()
    };
    for text in ["192.0.2.77", "192.0.2.64/30", "c-4711", "DORA"] {
        assert_eq!(found(text), ["dora"], "{text}");
    }
    assert_eq!(found("10.10.1.2"), ["anna"]);
    assert_eq!(found("198.51.100.1"), [""; 0]);
    let detail = daemon.query(&json!({"verb": "detail", "class": "dora", "limit": 1}));
    let configured = &detail["detail"]["configured"];
    let attributes = json!({"circuit": "C-4711", "comment": "left? door"});
    assert_eq!(configured["attributes"], attributes, "clean: {detail}");
}

#[test]
fn unmatched_subnets_have_persistent_rows() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let site = Site::new(&testbed);
    let place = Place::new();
    place.configure(&["lan", "wan"], "uplinks = [\"wan\"]\n");
    let daemon = Daemon::start(site.router(), &place);
    site.exchange(ANNA, 8);
    let found = |row: &Value| row["kind"] == "subnet";
    daemon.row_when("10.10.1.0/24", "a row", found);
    // From now on it counts separately; the uplink's side is remote and has none.
    site.exchange(BERT, 4);
    let row = daemon.row_when("10.10.1.0/24", "4 flows", |row| row["flows"]["closed"] == 4);
    assert!(number(&row["up"]["bytes"]) >= 80_000, "{row:#}");
    assert_eq!(daemon.row("10.10.2.0/24"), Value::Null);
    for name in ["lan", "wan"] {
        assert!(number(&daemon.row(name)["up"]["bytes"]) > 0, "{name}");
    }

    assert!(daemon.stop().success());
    let again = Daemon::start(site.router(), &place);
    let kept = again.row("10.10.1.0/24");
    assert_eq!(kept["up"]["bytes"], row["up"]["bytes"], "{kept:#}");
}
