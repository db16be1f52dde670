//! GSO packets: a wire has none.

use fairpath_testbed::{Iperf3, Iperf3Server, Need, Router, requires};

use crate::by;
use crate::scene::{Impaired, router_with_offloads};

by!(each_segment_of_a_gso_packet_has_its_outcome: xdp, afxdp, nfqueue);

/// The stack hands over up to 64 KiB at once; what is counted must be segments all the same.
fn each_segment_of_a_gso_packet_has_its_outcome(port: &'static str) {
    requires!(Need::Root, Need::Tool("iperf3"));
    let net = router_with_offloads();
    let impaired = Impaired::between(&net, port, &["--to-peer", "loss 1%"]);
    let server = Iperf3Server::start(&net.server, 5201).unwrap();
    let bytes = 4_000_000;
    let run = Iperf3::to(Router::SERVER.v4, server.port()).bytes(bytes);
    let report = run.congestion("cubic").run(&net.client).unwrap();
    let received = report.bytes_received;
    assert!(received > bytes / 2, "{report:?}");
    let ended = impaired.end();
    ended.assert_valid();
    let packets = ended.number("to-peer", "enqueued_packets");
    assert!(packets >= received / 1448, "{packets} for {received} bytes");
    assert_eq!(ended.number("to-peer", "gso_packets"), 0);
    assert!(ended.number("to-peer", "lost_packets") > 0);
}
