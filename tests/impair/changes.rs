//! Duplicated and corrupted packets.

use fairpath_testbed::{Capture, CaptureOptions, Need, Router, requires};
use fairpath_wire::capture::Reader;

use crate::by;
use crate::scene::{Arrived, Impaired, datagrams, router};
use crate::stream::Course;

by!(duplication_has_the_configured_share: afxdp, nfqueue);
by!(corruption_inverts_one_bit_and_breaks_checksums: afxdp, nfqueue);

const COUNT: u32 = 1500;

fn duplication_has_the_configured_share(port: &'static str) {
    requires!(Need::Root);
    let net = router();
    let impaired = Impaired::between(&net, port, &["--to-peer", "duplicate 10%"]);
    let mut twice = 0;
    for to in Router::SERVER.both() {
        let course = Course::new(&net.client, &net.server, to, COUNT / 2);
        let arrived = Arrived::of(&course.run(usize::MAX));
        assert_eq!(arrived.times.len() as u32, COUNT / 2);
        assert!(arrived.times.values().all(|times| *times <= 2));
        twice += arrived.times.values().filter(|times| **times == 2).count();
    }
    assert!((85..=220).contains(&twice), "{twice}");
    let ended = impaired.end();
    ended.assert_valid();
    assert_eq!(ended.number("to-peer", "duplicated_packets"), twice as u64);
    let sent = ended.number("to-peer", "sent_packets");
    assert_eq!(sent, u64::from(COUNT) + twice as u64);
    assert_eq!(ended.number("to-peer", "stopped_packets"), 0);
}

/// Bits in which an IPv4 datagram of ours differs from one of zeros and a number.
fn corruption(frame: &[u8]) -> Option<u32> {
    let payload = frame.get(14 + 28..14 + 28 + 64)?;
    let bits = payload[4..].iter().map(|byte| byte.count_ones());
    Some(bits.sum())
}

fn corruption_inverts_one_bit_and_breaks_checksums(port: &'static str) {
    requires!(Need::Root, Need::Tool("tcpdump"));
    let net = router();
    let impaired = Impaired::between(&net, port, &["--to-peer", "corrupt 20%"]);
    let options = CaptureOptions::default();
    let capture = Capture::start_anonymous(&net.server, "eth0", &options).unwrap();
    let arrived = datagrams(&net.client, &net.server, Router::SERVER.v4, COUNT);
    let bytes = capture.stop().unwrap().bytes().unwrap();
    let mut reader = Reader::new(std::io::Cursor::new(&bytes)).unwrap();
    let (mut frames, mut corrupted) = (0, 0);
    while let Some(record) = reader.next().unwrap() {
        let is_ours = record.data.get(12..14) == Some(&[8, 0]) && record.data.len() == 14 + 28 + 64;
        let Some(bits) = corruption(record.data).filter(|_| is_ours) else {
            continue;
        };
        frames += 1;
        assert!(bits <= 1, "{bits} bits differ: {:x?}", record.data);
        corrupted += bits;
    }
    let ended = impaired.end();
    ended.assert_valid();
    let reported = ended.number("to-peer", "corrupted_packets");
    assert!((200..=400).contains(&reported), "{reported}");
    // Two thirds of a packet's bits are those of the checked payload.
    assert!(
        u64::from(corrupted) > reported * 4 / 10 && u64::from(corrupted) <= reported,
        "{corrupted} of {reported}"
    );
    assert!(frames > COUNT - 60, "{frames}");
    // A receiver's checksum finds one bit, wherever it is; some are in headers that lead elsewhere.
    assert_eq!(arrived.times.len() as u64, u64::from(COUNT) - reported);
}
