use fairpath_class::{Drafts, Uplinks};
use fairpath_core::{Cell, ClassCounts, FrameDirection, Method, OwnQueue, Reason};

use super::*;

/// The middles of two buckets, which a histogram reproduces exactly.
const A: u64 = 1_007_616;
const B: u64 = 10_092_544;
/// In the same bucket as `A`, which begins at 999,424 ns.
const BELOW_A: u64 = 1_000_000;

/// A key whose side 0 is `a`.
fn key(proto: u8, a: &str, b: &str) -> Key {
    Key::new(proto, [a, b].map(|end| end.parse().unwrap()))
}

fn sample(key: Key, measured: usize, rtt: u64) -> Event {
    Event::Sample(Sample {
        time: 0,
        number: 0,
        rtt,
        min: rtt,
        key,
        flow: 1,
        measured,
        method: Method::ALL[0],
        ifindex: 0,
        towards: 0,
        own_queue: OwnQueue::Unknown,
        direction: FrameDirection::Unknown,
        seq: 0,
        ack: 0,
        acked_bytes: 0,
    })
}

/// The end of a flow in which side 0 sent these packets.
fn closed(key: Key, data: u32, upstream: u32, repeated: u32, spurious: u32) -> Event {
    let mut counts = [Counts::default(); 2];
    counts[0].data_packets = data;
    counts[0].upstream_lost_packets = upstream;
    counts[0].retransmitted_packets = repeated;
    counts[0].spurious_packets = spurious;
    Event::Closed(FlowRecord {
        time: 0,
        number: 0,
        key,
        flow: 1,
        reason: Reason::Fin,
        side: 0,
        opened: 0,
        counts,
        min: [0; 2],
        towards: [0; 2],
    })
}

fn table(by: By, events: &[Event]) -> Table {
    let mut table = Table::new(by, ClassSet::default());
    for event in events {
        table.add(event);
    }
    table
}

fn names(listing: &Listing) -> Vec<&str> {
    listing.rows.iter().map(|row| row.name.as_str()).collect()
}

fn column(listing: &Listing, name: &str) -> Vec<Value> {
    let at = listing.columns.iter().position(|column| *column == name);
    let at = at.unwrap_or_else(|| panic!("{name}: {:?}", listing.columns));
    let rows = listing.rows.iter();
    rows.map(|row| row.values[at].clone()).collect()
}

const CLIENT: &str = "10.0.0.1:40000";
const SERVER: &str = "192.0.2.1:443";

#[test]
fn rows_by_host_are_as_computed_by_hand() {
    let key = key(TCP, CLIENT, SERVER);
    let mut events = vec![sample(key, 1, A); 19];
    events.push(sample(key, 1, B));
    events.extend([sample(key, 0, BELOW_A), closed(key, 90, 10, 5, 2)]);
    let listing = table(By::Host, &events).listing(Order::P95, 9);
    // The server's p95 is A, the client's is its only sample.
    assert_eq!(names(&listing), ["192.0.2.1", "10.0.0.1"]);
    let server = [20, A, A, A, B, B, 90, 0, 10, 3].map(Value::from);
    assert_eq!(listing.rows[0].values[1..11], server);
    assert_eq!(column(&listing, "upstream_loss_ratio")[0], 0.1);
    assert_eq!(column(&listing, "downstream_loss_ratio")[0], 3.0 / 90.0);
    let client = [1, BELOW_A, BELOW_A, BELOW_A, BELOW_A, BELOW_A, 0, 0, 0, 0];
    assert_eq!(listing.rows[1].values[1..11], client.map(Value::from));
    assert_eq!(column(&listing, "upstream_loss_ratio")[1], Value::Null);
    assert!(listing.rows.iter().all(|r| r.values.len() == 13));
    assert_eq!(listing.columns.len(), 13);
}

#[test]
fn flows_have_a_row_for_each_leg() {
    let v4 = key(TCP, CLIENT, SERVER);
    let v6 = key(TCP, "[2001:db8::1]:40000", "[2001:db8::2]:443");
    let echo = key(58, "[2001:db8::1]:7", "[2001:db8::2]:7");
    let events = [
        sample(v4, 0, A),
        sample(v4, 1, A),
        sample(v6, 1, B),
        sample(echo, 1, A),
    ];
    let listing = table(By::Flow, &events).listing(Order::Name, 9);
    let expected = [
        "2001:db8::1 -> 2001:db8::2",
        "10.0.0.1:40000 -> 192.0.2.1:443",
        "192.0.2.1:443 -> 10.0.0.1:40000",
        "[2001:db8::1]:40000 -> [2001:db8::2]:443",
    ];
    assert_eq!(names(&listing), expected);
    let protocols = ["icmpv6", "tcp", "tcp", "tcp"].map(Value::from);
    assert_eq!(column(&listing, "protocol"), protocols);
    assert_eq!(column(&listing, "dst_port")[3], 443);
    assert_eq!(column(&listing, "p95_rtt_ns"), [A, A, A, B]);
}

#[test]
fn equal_values_are_in_order_of_the_key() {
    let hosts = ["192.0.2.10:1", "192.0.2.9:1", "192.0.2.100:1"];
    let of = |host: &&str| sample(key(TCP, host, "203.0.113.1:1"), 0, A);
    let mut events: Vec<Event> = hosts.iter().map(of).collect();
    let slow = sample(key(TCP, "198.51.100.1:1", "203.0.113.1:1"), 0, B);
    events.push(slow);
    let expected = ["198.51.100.1", "192.0.2.9", "192.0.2.10", "192.0.2.100"];
    for turn in 0..events.len() {
        events.rotate_left(turn);
        let listing = table(By::Host, &events).listing(Order::P95, 9);
        assert_eq!(names(&listing), expected);
    }
    let listing = table(By::Host, &events).listing(Order::P95, 1);
    assert_eq!(
        (names(&listing), listing.further_rows),
        (vec![expected[0]], 3)
    );
}

#[test]
fn hosts_without_samples_are_last_and_empty() {
    let dead = key(TCP, CLIENT, "192.0.2.7:443");
    let silent = key(TCP, CLIENT, "192.0.2.8:443");
    let events = [
        closed(dead, 4, 0, 3, 0),
        closed(silent, 0, 0, 0, 0),
        sample(key(TCP, CLIENT, SERVER), 1, A),
    ];
    for order in [Order::P95, Order::Min, Order::Max, Order::Samples] {
        let listing = table(By::Host, &events).listing(order, 9);
        assert_eq!(names(&listing), ["192.0.2.1", "192.0.2.7"], "{order:?}");
        assert_eq!(column(&listing, "p95_rtt_ns")[1], Value::Null);
    }
    let listing = table(By::Host, &events).listing(Order::Loss, 9);
    assert_eq!(names(&listing), ["192.0.2.7", "192.0.2.1"]);
}

#[test]
fn samples_beyond_a_limit_are_counted() {
    let host = |n: u8| key(TCP, &format!("192.0.2.{n}:1"), "203.0.113.1:1");
    let mut full = Table::new(By::Host, ClassSet::default());
    (full.max_rows, full.max_buckets) = (2, 3);
    for event in [
        sample(host(1), 0, A),
        sample(host(2), 0, A),
        sample(host(3), 0, A), // no row
        sample(host(1), 0, B),
        sample(host(2), 0, B),       // no bucket
        sample(host(1), 0, BELOW_A), // into a used bucket
        // Side 0 sends to 203.0.113.1, which has no row.
        closed(host(1), 1, 0, 0, 0),
    ] {
        full.add(&event);
    }
    let listing = full.listing(Order::Name, 9);
    assert_eq!(names(&listing), ["192.0.2.1", "192.0.2.2"]);
    assert_eq!(column(&listing, "samples"), [3, 1]);
    assert_eq!((listing.excluded_samples, listing.excluded_flows), (2, 1));
}

#[test]
fn an_empty_table_has_columns_and_no_rows() {
    for by in [By::Host, By::Flow, By::Class] {
        let listing = table(by, &[]).listing(Order::P95, 9);
        assert!(listing.rows.is_empty());
        assert!(listing.columns.ends_with(&FIGURES));
    }
}

fn set(csv: &str) -> ClassSet {
    let mut drafts = Drafts::new();
    drafts.read_csv("test.csv", csv);
    ClassSet::build(drafts, Uplinks::Unknown).set.unwrap()
}

fn cell(slot: u32, leg: usize, rtt_ns: u64, count: u32) -> Cell {
    Cell {
        slot,
        leg: leg as u8,
        bucket: bucket_of(rtt_ns),
        count,
    }
}

#[test]
fn classes_include_those_below_them() {
    let set = set("name,parent,prefix\nsite,,\nbert,site,10.0.0.2/32\nanna,site,10.0.0.1/32\n");
    let slot = |name| set.position(name).unwrap() as u32 + 1;
    let mut counts = vec![ClassCounts::default(); set.len() + 1];
    counts[slot("anna") as usize].dir[DOWN].data_packets = 100;
    counts[slot("anna") as usize].dir[DOWN].retransmitted_packets = 2;
    counts[slot("bert") as usize].dir[UP].data_packets = 10;
    counts[OTHER as usize].dir[UP].data_packets = 7;
    counts[OTHER as usize].dir[DOWN].data_packets = 7;
    let reading = ClassReading {
        counts,
        cells: vec![
            cell(slot("anna"), INSIDE, BELOW_A, 2),
            cell(slot("bert"), INSIDE, B, 1),
            cell(OTHER, INSIDE, B, 4),
        ],
        ..ClassReading::default()
    };
    let mut table = Table::new(By::Class, set);
    table.add_classes(&reading);
    let listing = table.listing(Order::Name, 9);
    let expected = [
        "anna inside",
        "bert inside",
        "bert outside",
        "other inside",
        "site inside",
        "site outside",
    ];
    assert_eq!(names(&listing), expected);
    assert_eq!(column(&listing, "samples"), [2, 1, 0, 4, 3, 0]);
    assert_eq!(column(&listing, "data_packets"), [100, 0, 10, 7, 100, 10]);
    let loss = column(&listing, "downstream_loss_ratio");
    assert_eq!([&loss[0], &loss[1]], [&json!(0.02), &Value::Null]);
    // Minimum and maximum are the middles of buckets.
    assert_eq!(column(&listing, "min_rtt_ns")[..2], [A, B]);
    assert_eq!(column(&listing, "max_rtt_ns")[4], B);
}

#[test]
fn readings_of_classes_add_up_when_counters_wrap() {
    let set = set("name,prefix\nanna,10.0.0.1/32\n");
    let mut table = Table::new(By::Class, set);
    for (data, unbinned) in [(u32::MAX - 1, 3), (3, 5)] {
        let mut counts = vec![ClassCounts::default(); 2];
        counts[1].dir[DOWN].data_packets = data;
        counts[1].leg[INSIDE].unbinned = unbinned;
        table.add_classes(&ClassReading {
            counts,
            cells: vec![cell(1, INSIDE, A, 2)],
            ..ClassReading::default()
        });
    }
    let listing = table.listing(Order::P95, 9);
    assert_eq!(names(&listing), ["anna inside"]);
    assert_eq!(column(&listing, "samples"), [4]);
    assert_eq!(column(&listing, "data_packets"), [u64::from(u32::MAX) + 4]);
    assert_eq!(listing.excluded_samples, 5);
}
