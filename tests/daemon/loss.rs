//! Loss by class and leg, compared with the drops of a dropper.

use fairpath_testbed::{Iperf3, Iperf3Server, LinkEnd, Need, Router, Testbed, requires};
use fairpath_tests::{Daemon, Place};
use serde_json::Value;

use super::configured_loss::ConfiguredLoss;
use super::{CLASSES, Site};

/// Frames of at least this many bytes are data of a bulk transfer.
const DATA_FRAME_BYTES: u32 = 1000;
/// Of the normal distribution, which the binomial one is near: 99 of 100 lie within.
const Z_99: f64 = 2.576;
const SHARE: f64 = 0.01;
const BYTES: u64 = 16_000_000;

/// Anna uploads while some of what passes `lossy` is dropped; returns her row, and the numbers of eligible
/// and dropped packets.
fn upload(lossy: impl Fn(&Router) -> &LinkEnd) -> (Value, u64, u64) {
    let testbed = Testbed::new();
    let site = Site::new(&testbed);
    let configured = ConfiguredLoss::at(lossy(&site.net), SHARE, DATA_FRAME_BYTES);
    let place = Place::new();
    place.configure(&["lan", "wan"], &format!("uplinks = [\"wan\"]\n{CLASSES}"));
    let daemon = Daemon::start(site.router(), &place);
    let server = Iperf3Server::start(&site.net.server, 5201).unwrap();
    let transfer = Iperf3::to(Router::SERVER.v4, server.port())
        .bytes(BYTES)
        .congestion("cubic")
        .one_cpu();
    transfer.run(&site.net.client).unwrap();
    let row = daemon.row_when("anna", "all flows closed", |row| {
        row["flows"]["closed"] == 2 && row["flows"]["opened"] == 2
    });
    assert_eq!(daemon.row("bert")["inside"]["data_packets"], 0);
    let (eligible, dropped) = configured.counts();
    (row, eligible, dropped)
}

fn lost(row: &Value, leg: &str) -> f64 {
    let number = row[leg]["lost_packets"].as_u64();
    number.unwrap_or_else(|| panic!("no loss: {row:#}")) as f64
}

/// The class's lost packets on that leg are those dropped, within the interval for this number of frames.
fn is_reported(row: &Value, leg: &str, other: &str, eligible: u64, dropped: u64) {
    let configured = dropped as f64 / eligible as f64;
    let interval = Z_99 * (configured * (1.0 - configured) * eligible as f64).sqrt();
    let (reported, elsewhere) = (lost(row, leg), lost(row, other));
    println!(
        "{leg}: dropped {dropped} of {eligible}, reported {reported}, on the other leg {elsewhere}"
    );
    assert!(dropped > 30, "the dropper dropped {dropped} only");
    assert!((reported - dropped as f64).abs() <= interval, "{row:#}");
    // Tail probes and spurious retransmissions aside, nothing happened on the other leg.
    let noise = dropped / 50 + 3 + eligible / 1000;
    assert!(elsewhere <= noise as f64, "{row:#}");
}

#[test]
fn subscriber_side_loss_is_reported_inside() {
    requires!(Need::Root, Need::Tool("iperf3"));
    let (row, eligible, dropped) = upload(|net| &net.lan_end);
    is_reported(&row, "inside", "outside", eligible, dropped);
}

#[test]
fn server_side_loss_is_reported_outside() {
    requires!(Need::Root, Need::Tool("iperf3"));
    let (row, eligible, dropped) = upload(|net| &net.server_end);
    is_reported(&row, "outside", "inside", eligible, dropped);
}
