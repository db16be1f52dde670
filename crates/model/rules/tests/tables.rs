//! Recent lists and limits by key, with answers computed by hand from the rules of the kernel.

mod ruleset;

use fairpath_core::rules::{CounterMode, Store, Table, check};
use fairpath_rules::image::{Lookups, RECENT_ENTRIES, build};
use fairpath_rules::{
    Core, Facts, Family, Hook, Packet, Reference, Verdict, WithCounters, to_text,
};
use ruleset::ruleset;

const SECOND: u64 = 1_000_000_000;

/// Rules of INPUT in table filter, policy ACCEPT.
struct Host {
    core: Core,
    now: u64,
}

impl Host {
    fn new(rules: &str) -> Host {
        let text = format!("*filter\n:INPUT ACCEPT [0:0]\n{rules}COMMIT\n");
        Host::of(&text, Family::Ipv4)
    }

    fn of(text: &str, family: Family) -> Host {
        let set = ruleset(family, text);
        let built = build(&set, None, Lookups::default()).expect("small");
        check(&built.image).expect("valid image");
        Host {
            core: Core::new(&built, CounterMode::Exact).expect("valid image"),
            now: 1000 * SECOND,
        }
    }

    fn at(&mut self, seconds: f64) -> &mut Host {
        self.now = 1000 * SECOND + (seconds * SECOND as f64) as u64;
        self
    }

    fn verdict(&mut self, bytes: &[u8]) -> Verdict {
        self.hook(Hook::Input, b"eth0", b"", bytes)
    }

    fn hook(&mut self, hook: Hook, input: &[u8], output: &[u8], bytes: &[u8]) -> Verdict {
        let family = if bytes[0] >> 4 == 6 {
            Family::Ipv6
        } else {
            Family::Ipv4
        };
        let frame = [&[2; 14], bytes].concat();
        let packet = Packet {
            family,
            bytes: &frame,
            network: 14,
            length: bytes.len(),
            facts: Facts {
                input: Some(input.into()),
                output: Some(output.into()),
                now: self.now,
                ..Facts::usual()
            },
        };
        let outcome = self.core.evaluate(hook, &packet);
        outcome.expect("rules see the packet").verdict
    }

    /// True if a packet from 10.0.x.y is dropped.
    fn drops(&mut self, source: u16) -> bool {
        self.verdict(&udp(source, 1, 64)) == Verdict::Drop
    }

    fn table(&mut self, number: u32) -> Store {
        self.core.evaluator().0.memory().table(number)
    }
}

/// UDP from 10.0.x.y to 192.0.2.1, port 53, with 100 bytes.
fn udp(source: u16, port: u16, ttl: u8) -> Vec<u8> {
    let mut bytes = vec![0x45, 0, 0, 100, 0, 0, 0, 0, ttl, 17, 0, 0, 10, 0];
    bytes.extend_from_slice(&source.to_be_bytes());
    bytes.extend_from_slice(&[192, 0, 2, 1]);
    bytes.extend_from_slice(&port.to_be_bytes());
    bytes.extend_from_slice(&[0, 53, 0, 80, 0, 0]);
    bytes.resize(100, 0);
    bytes
}

/// A whole packet of fewer bytes.
fn cut_to(bytes: &[u8], length: u8) -> Vec<u8> {
    let mut bytes = bytes[..usize::from(length)].to_vec();
    bytes[3] = length;
    bytes
}

#[test]
fn set_adds_and_rcheck_finds() {
    let mut host = Host::new(
        "-A INPUT -p udp -m recent --rcheck --name seen -j DROP\n\
         -A INPUT -s 10.0.0.1 -m recent --set --name seen\n",
    );
    assert!(!host.drops(1));
    assert!(host.drops(1));
    assert!(!host.drops(2));
    assert!(!host.drops(2));
    assert_eq!(host.table(0).count, 1);
}

#[test]
fn negated_rcheck_is_true_without_entry() {
    let mut host = Host::new(
        "-A INPUT -m recent ! --rcheck --name seen -j DROP\n-A INPUT -m recent --set --name seen\n",
    );
    // Nothing adds an entry, because the first rule drops.
    assert!(host.drops(1));
    assert!(host.drops(1));
    assert_eq!(host.table(0).count, 0);
    // A negated --set adds, and is false.
    let mut host = Host::new("-A INPUT -m recent ! --set --name seen -j DROP\n");
    assert!(!host.drops(1));
    assert!(!host.drops(1));
    assert_eq!(host.table(0).count, 1);
}

#[test]
fn seconds_include_their_last_moment() {
    let mut host =
        Host::new("-A INPUT -m recent --rcheck --seconds 10 -j DROP\n-A INPUT -m recent --set\n");
    assert!(!host.at(0.0).drops(1));
    assert!(host.at(9.9).drops(1));
    assert!(host.at(10.0).drops(1));
    assert!(!host.at(10.1).drops(1));
    // The --set of that packet begins another ten seconds.
    assert!(host.at(20.1).drops(1));
}

#[test]
fn update_prolongs_and_rcheck_does_not() {
    for (match_, later) in [("--update", true), ("--rcheck", false)] {
        let mut host = Host::new(&format!(
            "-A INPUT -m recent {match_} --seconds 10 -j DROP\n\
             -A INPUT -p udp -m recent --set\n"
        ));
        assert!(!host.at(0.0).drops(1));
        assert!(host.at(8.0).drops(1));
        assert_eq!(host.at(16.0).drops(1), later, "{match_}");
    }
}

#[test]
fn hitcount_counts_stamps_in_the_window() {
    let mut host = Host::new(
        "-A INPUT -m recent --set --name ssh\n\
         -A INPUT -m recent --rcheck --seconds 60 --hitcount 4 --name ssh -j DROP\n",
    );
    for (at, dropped) in [
        (0.0, false),
        (10.0, false),
        (20.0, false),
        (30.0, true),
        // The first stamp is 61 seconds old, the others are not; the ring has 4.
        (61.0, true),
        // Stamps at 20, 30, 61 and now.
        (75.0, true),
        (200.0, false),
        (201.0, false),
        (202.0, false),
        (203.0, true),
    ] {
        assert_eq!(host.at(at).drops(1), dropped, "at {at}");
    }
}

#[test]
fn hitcount_needs_the_ring_of_its_list() {
    // Lists have the ring of the largest --hitcount: 8 stamps here, so 5 can be counted.
    let mut host = Host::new(
        "-A INPUT -m recent --set --name a\n\
         -A INPUT -m recent --rcheck --hitcount 5 --name a -j DROP\n\
         -A INPUT -m recent --rcheck --hitcount 2 --name a\n",
    );
    for packet in 1..=8 {
        assert_eq!(host.at(f64::from(packet)).drops(1), packet >= 5);
    }
}

#[test]
fn full_list_evicts_least_recently_used() {
    let mut host = Host::new("-A INPUT -m recent --set\n");
    for source in 0..RECENT_ENTRIES as u16 {
        assert!(!host.at(f64::from(source)).drops(source));
    }
    // The first address is used again, so the second is the oldest.
    host.at(200.0).drops(0);
    host.at(201.0).drops(1000);
    let store = host.table(0);
    assert_eq!((store.count, store.evicted), (RECENT_ENTRIES, 1));
    let mut other = Host::new(
        "-A INPUT -p icmp -m recent --rcheck --name l -j DROP\n\
         -A INPUT -p udp -m recent --set --name l\n",
    );
    let icmp = |host: &mut Host, source: u16| {
        let mut bytes = udp(source, 1, 64);
        bytes[9] = 1;
        host.verdict(&bytes) == Verdict::Drop
    };
    for source in 0..RECENT_ENTRIES as u16 {
        other.drops(source);
    }
    other.drops(0);
    other.drops(1000);
    assert!(icmp(&mut other, 0));
    assert!(!icmp(&mut other, 1));
    assert!(icmp(&mut other, 2));
    assert!(icmp(&mut other, 1000));
}

#[test]
fn remove_forgets_an_address() {
    let mut host = Host::new(
        "-A INPUT -p udp -m udp --sport 9 -m recent --remove -j DROP\n\
         -A INPUT -p udp -m udp --sport 8 -m recent --rcheck -j DROP\n\
         -A INPUT -p udp -m udp --sport 7 -m recent --set\n",
    );
    let mut send = |port| host.verdict(&udp(1, port, 64)) == Verdict::Drop;
    assert!(!send(9));
    assert!(!send(7));
    assert!(send(8));
    assert!(send(9));
    assert!(!send(9));
    assert!(!send(8));
    assert_eq!(host.table(0).count, 0);
}

#[test]
fn reap_removes_one_old_entry() {
    let mut host = Host::new(
        "-A INPUT -s 10.0.0.9 -m recent --rcheck --seconds 10 --reap -j DROP\n\
         -A INPUT -m recent --set\n",
    );
    host.at(0.0).drops(1);
    host.at(1.0).drops(2);
    // No entry: nothing is reaped.
    host.at(20.0).drops(9);
    assert_eq!(host.table(0).count, 3);
    // Found: the oldest is 21 seconds old, and leaves; the next one only with another packet.
    assert!(host.at(21.0).drops(9));
    assert_eq!((host.table(0).count, host.table(0).expired), (2, 1));
    assert!(host.at(21.0).drops(9));
    assert_eq!(host.table(0).count, 1);
    // The entry itself is old now: it is not in the window, and is reaped.
    assert!(!host.at(60.0).drops(9));
    assert_eq!((host.table(0).count, host.table(0).expired), (1, 3));
}

#[test]
fn reap_keeps_an_updated_entry() {
    // A negated update holds if no stamp is in the window, so it updates an entry that is old itself.
    let mut host = Host::new(
        "-A INPUT -p udp -m udp --sport 7 -m recent --set -j RETURN\n\
         -A INPUT -m recent ! --update --seconds 10 --reap -j DROP\n",
    );
    host.verdict(&udp(1, 7, 64));
    assert!(host.at(20.0).drops(1));
    assert_eq!((host.table(0).count, host.table(0).expired), (1, 0));
    // Without the entry, or its stamp at 20 seconds, it would hold again.
    assert!(!host.at(25.0).drops(1));
    // Another entry that is the oldest is reaped.
    host.at(60.0).verdict(&udp(2, 7, 64));
    assert!(!host.at(61.0).drops(2));
    assert_eq!((host.table(0).count, host.table(0).expired), (1, 1));
}

#[test]
fn rttl_compares_the_ttl_before_forwarding() {
    let mut host = Host::of(
        "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n\
         -A INPUT -m recent --set\n\
         -A FORWARD -m recent --rcheck --rttl -j DROP\nCOMMIT\n",
        Family::Ipv4,
    );
    let verdict = host.verdict(&udp(1, 1, 64));
    assert_eq!(verdict, Verdict::Accept);
    // At FORWARD the TTL was decremented already.
    for (ttl, expected) in [(63, Verdict::Drop), (64, Verdict::Accept)] {
        let verdict = host.hook(Hook::Forward, b"eth0", b"eth1", &udp(1, 1, ttl));
        assert_eq!(verdict, expected, "ttl {ttl}");
    }
}

#[test]
fn mask_and_side_select_the_address() {
    let mut host = Host::new(
        "-A INPUT -m recent --rcheck --name n --mask 255.255.255.0 -j DROP\n\
         -A INPUT -m recent --set --name n --mask 255.255.255.0\n",
    );
    assert!(!host.drops(0x0101));
    assert!(host.drops(0x01ff));
    assert!(!host.drops(0x0201));
    let mut host = Host::new(
        "-A INPUT -m recent --rcheck --rdest --name n -j DROP\n-A INPUT -m recent --set --rdest --name n\n",
    );
    assert!(!host.drops(1));
    assert!(host.drops(2));
}

#[test]
fn list_is_shared_by_tables() {
    let mut host = Host::of(
        "*mangle\n:INPUT ACCEPT [0:0]\n-A INPUT -s 10.0.0.1 -m recent --set --name x\nCOMMIT\n\
         *filter\n:INPUT ACCEPT [0:0]\n-A INPUT -m recent --rcheck --name x -j DROP\nCOMMIT\n",
        Family::Ipv4,
    );
    assert!(host.drops(1));
    assert!(!host.drops(2));
}

#[test]
fn recent_of_ipv6_uses_all_bits() {
    let mut host = Host::of(
        "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -m recent --rcheck -j DROP\n\
         -A INPUT -m recent --set\nCOMMIT\n",
        Family::Ipv6,
    );
    let packet = |last: u8| {
        let mut bytes = vec![0x60, 0, 0, 0, 0, 0, 59, 64];
        bytes.resize(40, 0);
        bytes[23] = last;
        bytes
    };
    assert_eq!(host.verdict(&packet(1)), Verdict::Accept);
    assert_eq!(host.verdict(&packet(2)), Verdict::Accept);
    assert_eq!(host.verdict(&packet(1)), Verdict::Drop);
}

#[test]
fn too_many_stamps_are_unknown() {
    let mut host = Host::new("-A INPUT -m recent --rcheck --hitcount 60000 -j DROP\n");
    assert!(matches!(host.verdict(&udp(1, 1, 64)), Verdict::Unknown(_)));
}

#[test]
fn upto_permits_burst_then_rate() {
    let mut host = Host::new(
        "-A INPUT -m hashlimit --hashlimit-upto 2/sec --hashlimit-burst 3 --hashlimit-mode srcip \
         --hashlimit-name a -j DROP\n",
    );
    // DROP marks packets below the limit here.
    for expected in [true, true, true, false] {
        assert_eq!(host.at(0.0).drops(1), expected);
    }
    // Another source has its own bucket.
    assert!(host.at(0.0).drops(2));
    assert!(!host.at(0.4).drops(1));
    assert!(host.at(0.5).drops(1));
    assert!(!host.at(0.9).drops(1));
    assert_eq!(host.table(0).count, 2);
}

#[test]
fn above_is_the_opposite_of_upto() {
    let mut host = Host::new(
        "-A INPUT -m hashlimit --hashlimit-above 1/min --hashlimit-burst 1 --hashlimit-mode srcip \
         --hashlimit-name a -j DROP\n",
    );
    assert!(!host.at(0.0).drops(1));
    assert!(host.at(1.0).drops(1));
    assert!(host.at(59.0).drops(1));
}

#[test]
fn entry_expires_after_silence() {
    // A packet each hour and a burst of 2; entries live ten seconds.
    let mut host = Host::new(
        "-A INPUT -m hashlimit --hashlimit-upto 1/hour --hashlimit-burst 2 --hashlimit-mode srcip \
         --hashlimit-name a --hashlimit-htable-expire 10000 -j DROP\n",
    );
    assert!(host.at(0.0).drops(1));
    assert!(host.at(0.0).drops(1));
    // Every packet prolongs the entry, also one above the limit.
    assert!(!host.at(9.0).drops(1));
    assert!(!host.at(18.0).drops(1));
    assert!(host.at(28.0).drops(1));
    assert_eq!(host.table(0).expired, 1);
}

#[test]
fn long_silence_fills_the_bucket_once() {
    let mut host = Host::new(
        "-A INPUT -m hashlimit --hashlimit-upto 1/hour --hashlimit-burst 2 --hashlimit-name a \
         --hashlimit-htable-expire 4000000000 -j DROP\n",
    );
    host.at(0.0).drops(1);
    host.at(0.0).drops(1);
    assert!(!host.at(3_599.0).drops(1));
    assert!(host.at(3_600.0).drops(1));
    // Ten hours give two packets, not ten.
    for expected in [true, true, false] {
        assert_eq!(host.at(39_600.0).drops(1), expected);
    }
}

#[test]
fn burst_beyond_the_kernels_credits_is_unknown() {
    // The kernel refuses two days, and gives three the credit of one and a half.
    for (burst, known) in [(1, true), (2, false), (3, false)] {
        let mut host = Host::new(&format!(
            "-A INPUT -m hashlimit --hashlimit-upto 1/day --hashlimit-burst {burst} \
             --hashlimit-name a -j DROP\n"
        ));
        let verdict = host.verdict(&udp(1, 1, 64));
        assert_eq!(!matches!(verdict, Verdict::Unknown(_)), known, "{burst}");
    }
}

#[test]
fn clock_that_steps_back_gives_nothing() {
    let mut host = Host::new(
        "-A INPUT -m hashlimit --hashlimit-upto 1/sec --hashlimit-burst 1 --hashlimit-name a \
         -j DROP\n",
    );
    assert!(host.at(100.0).drops(1));
    assert!(!host.at(0.0).drops(1));
    assert!(!host.at(100.5).drops(1));
    assert!(host.at(101.0).drops(1));
}

#[test]
fn full_table_drops_packets_of_new_keys() {
    let mut host = Host::new(
        "-A INPUT -m hashlimit --hashlimit-upto 1/min --hashlimit-burst 1 --hashlimit-mode srcip \
         --hashlimit-name a --hashlimit-htable-size 4 --hashlimit-htable-max 4 -j RETURN\n",
    );
    for source in 0..4 {
        assert!(!host.at(0.0).drops(source));
    }
    assert!(host.at(1.0).drops(4));
    assert!(!host.at(1.0).drops(3));
    assert_eq!((host.table(0).count, host.table(0).refused), (4, 1));
    // After a minute the silent entries are gone.
    assert!(!host.at(60.5).drops(4));
    assert_eq!((host.table(0).count, host.table(0).expired), (2, 3));
}

#[test]
fn key_has_ports_and_masked_addresses() {
    let mut host = Host::new(
        "-A INPUT -m hashlimit --hashlimit-upto 1/min --hashlimit-burst 1 \
         --hashlimit-mode srcip,srcport --hashlimit-srcmask 24 --hashlimit-name a -j DROP\n",
    );
    let mut send = |source, port| host.verdict(&udp(source, port, 64)) == Verdict::Drop;
    assert!(send(0x0101, 1));
    assert!(!send(0x0102, 1));
    assert!(send(0x0102, 2));
    assert!(send(0x0201, 1));
    assert_eq!(host.table(0).count, 3);
}

#[test]
fn packet_without_its_ports_is_dropped() {
    let mut host = Host::new(
        "-A INPUT -m hashlimit --hashlimit-above 1/min --hashlimit-mode dstport \
         --hashlimit-name a -j RETURN\n",
    );
    let whole = udp(1, 1, 64);
    assert_eq!(host.verdict(&whole), Verdict::Accept);
    assert_eq!(host.verdict(&cut_to(&whole, 23)), Verdict::Drop);
    // A later fragment has payload there, which the kernel takes for ports.
    let mut fragment = whole.clone();
    fragment[7] = 1;
    assert_eq!(host.verdict(&fragment), Verdict::Accept);
    // A protocol without ports has the key 0.
    let mut icmp = whole;
    icmp[9] = 1;
    assert_eq!(host.verdict(&cut_to(&icmp, 20)), Verdict::Accept);
}

#[test]
fn bytes_cost_their_chunks() {
    // 1600 bytes a second are 101 chunks of 16 bytes; a packet of 100 bytes takes 7 of them.
    let mut host = Host::new(
        "-A INPUT -m hashlimit --hashlimit-upto 1600b/s --hashlimit-mode srcip --hashlimit-name a \
         -j DROP\n",
    );
    let passed = (0..20).filter(|_| host.at(0.0).drops(1)).count();
    assert_eq!(passed, 14);
    // 3 of 101 chunks remained, and 4 come within 40 milliseconds.
    assert!(!host.at(0.039).drops(1));
    assert!(host.at(0.041).drops(1));
}

#[test]
fn burst_of_bytes_fills_the_bucket_again() {
    let mut host = Host::new(
        "-A INPUT -m hashlimit --hashlimit-upto 1600b/s --hashlimit-burst 3200b \
         --hashlimit-mode srcip --hashlimit-name a -j DROP\n",
    );
    // The bucket of 14 packets, and two more times as much.
    let passed = (0..60).filter(|_| host.at(0.0).drops(1)).count();
    assert_eq!(passed, 42);
}

#[test]
fn rules_share_a_table_by_name() {
    let mut host = Host::new(
        "-A INPUT -p udp -m hashlimit --hashlimit-upto 1/min --hashlimit-burst 1 \
         --hashlimit-mode srcip --hashlimit-name a -j RETURN\n\
         -A INPUT -m hashlimit --hashlimit-upto 1000/sec --hashlimit-burst 9 \
         --hashlimit-mode srcip --hashlimit-name a -j DROP\n",
    );
    // The second rule uses the rate of the first: no credit is left.
    assert!(!host.drops(1));
    assert!(!host.drops(1));
    assert_eq!(host.table(0).count, 1);
}

#[test]
fn an_interval_above_the_rate_stops_the_next() {
    let mut host = Host::new(
        "-A INPUT -m hashlimit --hashlimit-above 3/sec --hashlimit-mode srcip --hashlimit-name a \
         --hashlimit-rate-match --hashlimit-rate-interval 2 --hashlimit-htable-expire 9000 -j DROP\n",
    );
    let mut drops = |seconds: f64, packets: usize| -> Vec<bool> {
        (0..packets).map(|_| host.at(seconds).drops(1)).collect()
    };
    // Burst 5, and the rate, which is that of an interval, as in the kernel.
    let first = drops(0.0, 9);
    assert_eq!(first, [&[false; 8][..], &[true]].concat());
    // Within the interval nothing changes. The next one follows 10 packets in 2 seconds.
    assert_eq!(drops(1.999_999_999, 1), [true]);
    assert_eq!(drops(2.0, 3), [true; 3]);
    // 3 in 2 seconds are the rate, and 4 in 2.667, but not in 2.6.
    assert_eq!(drops(4.0, 4), [false; 4]);
    assert_eq!(drops(6.6, 4), [true; 4]);
    assert_eq!(drops(9.266_666_667, 1), [false]);
    // The entry of another key starts at zero, and so does that of an idle one.
    assert!(!host.drops(2));
    assert!((0..9).any(|_| host.at(9.3).drops(1)));
    assert!(!host.at(18.3).drops(1));
}

#[test]
fn windows_of_bytes_count_lengths() {
    // The kernel's rate is 192 bytes a second, its burst the same or a multiple; packets have 100.
    for (burst, most) in [("", 1), (" --hashlimit-burst 400b", 5)] {
        let mut host = Host::new(&format!(
            "-A INPUT -m hashlimit --hashlimit-above 200b/s{burst} --hashlimit-name a \
             --hashlimit-rate-match -j DROP\n",
        ));
        let drops = (0..7).map(|_| host.drops(1)).collect::<Vec<_>>();
        assert_eq!(drops.iter().filter(|drops| !**drops).count(), most);
        assert!(host.at(1.0).drops(1), "{most}");
        assert!(!host.at(2.0).drops(1), "{most}");
    }
}

/// The first rule in the order of save files decides, in which chains are sorted by name.
#[test]
fn order_of_declaration_decides_about_no_table() {
    for [first, second] in [["aa", "zz"], ["zz", "aa"]] {
        for (rule, limits) in [("zz", [1, 9]), ("aa", [9, 1])] {
            let text = format!(
                "*filter\n:INPUT ACCEPT\n:{first} -\n:{second} -\n-A INPUT -j {rule}\n\
                 -A zz -m hashlimit --hashlimit-above 1/min --hashlimit-burst {} \
                 --hashlimit-name a -j DROP\n\
                 -A aa -m hashlimit --hashlimit-above 1/min --hashlimit-burst {} \
                 --hashlimit-name a -j DROP\nCOMMIT\n",
                limits[0], limits[1]
            );
            let mut host = Host::of(&text, Family::Ipv4);
            let passed = (0..20).filter(|_| !host.drops(1)).count();
            assert_eq!(passed, limits[1], "{text}");
        }
        // A list has the mask of its first rule.
        let text = format!(
            "*filter\n:INPUT ACCEPT\n:{first} -\n:{second} -\n-A INPUT -j zz\n-A INPUT -j aa\n\
             -A zz -m recent --set --name r --mask 255.255.0.0\n\
             -A aa -m recent --rcheck --hitcount 2 --name r -j DROP\nCOMMIT\n"
        );
        let mut host = Host::of(&text, Family::Ipv4);
        assert_eq!(
            [host.drops(1), host.drops(2), host.drops(2)],
            [false, false, true]
        );
    }
}

/// The core has no table for a first rule like this, so it knows no answer of the others either.
#[test]
fn rules_after_a_refused_one_are_unknown() {
    let mut host = Host::new(
        "-A INPUT -s 192.0.2.9 -m hashlimit --hashlimit-above 1/sec --hashlimit-name a \
         --hashlimit-rate-match --hashlimit-rate-interval 4294968\n\
         -A INPUT -m hashlimit --hashlimit-above 1/sec --hashlimit-name a \
         --hashlimit-rate-match -j DROP\n",
    );
    assert!(matches!(host.verdict(&udp(1, 1, 64)), Verdict::Unknown(_)));
}

/// The burst of a window is no credit, which would overflow.
#[test]
fn bursts_of_windows_are_large() {
    for rate in [
        "1/sec --hashlimit-burst 200000",
        "1/day --hashlimit-burst 1000000",
    ] {
        let limit = format!("--hashlimit-above {rate} --hashlimit-name a");
        let rule = format!("-A INPUT -m hashlimit {limit} --hashlimit-rate-match -j DROP\n");
        assert!(!Host::new(&rule).drops(1));
        let rule = format!("-A INPUT -m hashlimit {limit} -j DROP\n");
        let verdict = Host::new(&rule).verdict(&udp(1, 1, 64));
        assert!(matches!(verdict, Verdict::Unknown(_)), "{rate}");
    }
}

/// The kernel has the burst that was written; the tool writes it without the remainder of its unit.
#[test]
fn bursts_of_bytes_are_exact() {
    let text = "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -m hashlimit --hashlimit-upto 16b/s \
                --hashlimit-burst 1104b --hashlimit-name a -j DROP\nCOMMIT\n";
    let set = ruleset(Family::Ipv4, text);
    let saved = to_text(&set, WithCounters::Never);
    assert!(saved.contains("--hashlimit-burst 1kb "), "{saved}");
    // The bucket takes one packet, and is filled again 69 times for 1104 bytes, 64 times for 1 kB.
    for (text, most) in [(text, 70), (&saved, 65)] {
        let mut host = Host::of(text, Family::Ipv4);
        let passed = (0..200).filter(|_| host.drops(1)).count();
        assert_eq!(passed, most, "{text}");
    }
}

/// A rule of packets on a table of bytes, and of a limit on one of windows, and the other way round.
#[test]
fn rules_of_another_kind_are_unknown() {
    let kinds = [
        "1/sec",
        "1kb/s",
        "1/sec --hashlimit-rate-match",
        "1kb/s --hashlimit-rate-match",
    ];
    for first in kinds {
        for second in kinds {
            let text = format!(
                "*filter\n:INPUT ACCEPT\n-A INPUT -m hashlimit --hashlimit-upto {first} \
                 --hashlimit-name a\n-A INPUT -m hashlimit --hashlimit-above {second} \
                 --hashlimit-name a -j DROP\nCOMMIT\n"
            );
            let set = ruleset(Family::Ipv4, &text);
            let bytes = udp(1, 1, 64);
            let packet = Packet {
                family: Family::Ipv4,
                bytes: &bytes,
                network: 0,
                length: bytes.len(),
                facts: Facts::usual(),
            };
            let of_reference = Reference::new(&set, None).evaluate(Hook::Input, &packet);
            for verdict in [
                Host::of(&text, Family::Ipv4).verdict(&bytes),
                of_reference.verdict,
            ] {
                let is_unknown = matches!(verdict, Verdict::Unknown(_));
                assert_eq!(is_unknown, first != second, "{text}");
            }
        }
    }
}

#[test]
fn intervals_beyond_the_kernels_ticks_are_unknown() {
    let host = |interval: u64| {
        Host::new(&format!(
            "-A INPUT -m hashlimit --hashlimit-above 1/sec --hashlimit-name a \
             --hashlimit-rate-match --hashlimit-rate-interval {interval} -j DROP\n",
        ))
    };
    assert!(!host(4_294_967).drops(1));
    let verdict = host(4_294_968).verdict(&udp(1, 1, 64));
    assert!(matches!(verdict, Verdict::Unknown(_)));
}

#[test]
fn corrupt_tables_are_refused() {
    let text = "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -m recent --set\n\
                -A INPUT -m hashlimit --hashlimit-upto 1/sec --hashlimit-name a\n\
                -A INPUT -m hashlimit --hashlimit-upto 1/sec --hashlimit-name b \
                --hashlimit-rate-match\nCOMMIT\n";
    let set = ruleset(Family::Ipv4, text);
    let built = build(&set, None, Lookups::default()).expect("small");
    check(&built.image).expect("valid image");
    let number = |at: usize| {
        u32::from_le_bytes(built.image[at..at + 4].try_into().expect("four bytes")) as usize
    };
    let first = number(40);
    let [second, third] = [1, 2].map(|table| first + table * size_of::<Table>());
    // Number of tables, memory of all, then kind, entries, buckets, stamps, place, capacity; rate,
    // unit and interval of a window.
    for (at, value) in [
        (44, 1u32),
        (48, 8),
        (52, 1),
        (first, 2),
        (first, 3),
        (first + 4, 0),
        (first + 4, u32::MAX),
        (first + 8, 6),
        (first + 12, 4096),
        (first + 12, u32::MAX),
        (first + 16, 1 << 30),
        (first + 16, 4),
        (second, 4),
        (second + 16, 0),
        (second + 68, 1 << 30),
        (third + 60, 3),
        (third + 72, 2),
        (third + 88, 0),
        (third + 88, 4_294_968),
    ] {
        let mut image = built.image.clone();
        image[at..at + 4].copy_from_slice(&value.to_le_bytes());
        assert!(check(&image).is_err(), "byte {at}, {value}");
    }
}
