//! `fairpath rtt` compared with tshark on every golden capture.
//!
//! ```text
//! capture ──► tshark ───────────────► tcp.analysis.ack_rtt, resptime ─┐
//!    │           └─► seq, ack, time ─► karn (slow, by definition) ──┐ ├─► equal, within, 95 %
//!    └─────► fairpath rtt -r ─────────► samples by frame ───────────┴─┘
//! ```
//!
//! tshark's own field is reproduced to the nanosecond by `--match tshark`; without it Karn's rule
//! holds, which `karn` states a second time over what tshark read. Other captures are
//! compared with tshark too if `FAIRPATH_CAPTURES` names a directory of them.
//!
//! A comparison is worth nothing if it cannot fail. The code was broken once in each of these ways,
//! and each was noticed: the newest copy taken instead of the oldest (seven captures, and random
//! packets), ACK numbers without the flag passed over (short, icmp-errors), cut options shown
//! (snap80), FIN counted as nothing (nineteen); and, by random packets alone, a SYN that does not
//! begin again, SYN and FIN that count two, a sample of no time shown, an initial number that a second
//! SYN-ACK does not replace, echo matched by number without its checksum.

mod crafted;
mod karn;
mod oracle;
mod quantiles;
mod random;
mod subject;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use fairpath_testbed::{Need, requires};
use fairpath_tests::binary;
use fairpath_units::test_seeds;

/// A sample: the frame that completed it, and its nanoseconds.
type Samples = BTreeSet<(u64, u64)>;

/// The maximum size of captures in the repository.
const MOST_BYTES: u64 = 2 << 20;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden")
}

fn name_of(path: &Path) -> String {
    let name = path.file_name().and_then(|name| name.to_str());
    name.unwrap_or_default().to_owned()
}

fn captures_in(directory: &Path) -> Vec<PathBuf> {
    let mut captures: Vec<PathBuf> = fs::read_dir(directory)
        .expect("read the directory of captures")
        .map(|entry| entry.expect("read a directory entry").path())
        .filter(|path| name_of(path).contains(".pcap"))
        .collect();
    captures.sort();
    captures
}

/// Captures that are not in the repository.
fn external() -> Vec<PathBuf> {
    let directory = std::env::var_os("FAIRPATH_CAPTURES");
    directory.map_or_else(Vec::new, |directory| captures_in(Path::new(&directory)))
}

fn captures() -> Vec<PathBuf> {
    let captures = captures_in(&directory());
    assert!(captures.len() >= 20, "{captures:?}");
    captures
}

/// Describes missing and surplus samples; `None` if both are equal.
fn difference(expected: &Samples, found: &Samples) -> Option<String> {
    let missing: Vec<_> = expected.difference(found).take(5).collect();
    let extra: Vec<_> = found.difference(expected).take(5).collect();
    (expected != found).then(|| {
        format!(
            "{} expected, {} found; (frame, ns) missing {missing:?}, extra {extra:?}",
            expected.len(),
            found.len()
        )
    })
}

/// Holds `--match tshark` against tshark on one capture; returns how many samples of each kind.
fn compared_with_tshark(capture: &Path) -> Result<(usize, usize), String> {
    let expected = oracle::samples(capture);
    let found = subject::samples(capture, &["--method", "seq", "--match", "tshark"]);
    let tcp = difference(&expected.tcp, &found.tcp());
    let icmp = difference(&expected.icmp, &found.icmp());
    match (tcp, icmp) {
        (None, None) => Ok((expected.tcp.len(), expected.icmp.len())),
        (tcp, icmp) => Err(format!(
            "{}: ack_rtt {tcp:?}, resptime {icmp:?}",
            name_of(capture)
        )),
    }
}

#[test]
fn ack_rtt_and_resptime_equal_tshark_by_frame() {
    requires!(Need::Tool("tshark"));
    println!("{}", oracle::version());
    let mut failures = Vec::new();
    let (mut tcp, mut icmp) = (0, 0);
    for capture in captures().into_iter().chain(external()) {
        match compared_with_tshark(&capture) {
            Ok((of_tcp, of_icmp)) => {
                println!(
                    "{:<28} {of_tcp:>5} tcp {of_icmp:>5} icmp  equal",
                    name_of(&capture)
                );
                (tcp, icmp) = (tcp + of_tcp, icmp + of_icmp);
            }
            Err(why) => failures.push(why),
        }
    }
    assert!(
        failures.is_empty(),
        "{}:\n{}",
        oracle::version(),
        failures.join("\n")
    );
    println!("{:<28} {tcp:>5} tcp {icmp:>5} icmp", "all");
    assert!(tcp >= 3000 && icmp >= 100, "{tcp} {icmp}");
}

#[test]
fn random_packets_are_paired_as_tshark_does() {
    requires!(Need::Tool("tshark"));
    let directory = tempfile::tempdir().unwrap();
    for seed in test_seeds(20) {
        let capture = directory.path().join(format!("seed-{seed}.pcap"));
        random::write(&capture, seed, 20_000);
        let (tcp, icmp) = compared_with_tshark(&capture).unwrap();
        println!("seed {seed}: {tcp} tcp, {icmp} icmp, equal");
        assert!(tcp > 500 && icmp > 500);
    }
}

/// A hash that maps such addresses to few sets refuses flows in a nearly empty table.
#[test]
fn stepping_clients_are_paired_as_tshark_does() {
    requires!(Need::Tool("tshark"));
    let directory = tempfile::tempdir().unwrap();
    let capture = directory.path().join("stepping.pcap");
    let clients = random::write_stepping_clients(&capture);
    assert_eq!(compared_with_tshark(&capture), Ok((clients, 0)));
}

#[test]
fn the_summary_shows_refused_flows() {
    let directory = tempfile::tempdir().unwrap();
    let capture = directory.path().join("stepping.pcap");
    let clients = random::write_stepping_clients(&capture) as u64;
    let summary = |how: &[&str]| {
        let mut command = binary::command(binary::fairpath());
        let output = command.args(["rtt", "-q", "-r"]).arg(&capture).args(how);
        String::from_utf8(output.output().unwrap().stdout).unwrap()
    };
    assert!(!summary(&[]).contains("refused"), "{}", summary(&[]));
    for how in [
        &["--max-flows", "8"][..],
        &["--max-flows", "8", "--method", "seq", "--match", "tshark"],
    ] {
        let json = summary(&[how, &["--format", "json"]].concat());
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let flows = &json["tables"]["flows"];
        let refused = flows["refused"].as_u64().unwrap();
        assert!(refused.abs_diff(clients - 8) < 20, "{json}");
        assert_eq!(flows["refused_at"], 8);
        let text = summary(how);
        assert!(text.contains("flows, their sets of 8 were full"), "{text}");
        assert!(text.contains("8 entries in use (100.0 %)"), "{text}");
        assert!(
            text.lines().all(|line| line.chars().count() <= 100),
            "{text}"
        );
    }
}

#[test]
fn segments_above_tsharks_limit_are_dropped() {
    requires!(Need::Tool("tshark"));
    let directory = tempfile::tempdir().unwrap();
    let capture = directory.path().join("outstanding.pcap");
    random::write_many_outstanding(&capture, 10_000);
    // The ACK one beyond the last that is kept takes them all and matches none.
    assert_eq!(compared_with_tshark(&capture), Ok((0, 0)));
    random::write_many_outstanding(&capture, 9_999);
    assert_eq!(compared_with_tshark(&capture), Ok((1, 0)));
}

/// The results of the two ways of measuring on one capture.
struct Coverage {
    valid: usize,
    seq: usize,
    hybrid: usize,
}

fn found(valid: &Samples, samples: &Samples) -> usize {
    valid.intersection(samples).count()
}

fn coverage(capture: &Path) -> Coverage {
    let valid = karn::valid(&oracle::packets(capture));
    let of = |method| subject::samples(capture, &["--method", method]).tcp();
    Coverage {
        seq: found(&valid, &of("seq")),
        hybrid: found(&valid, &of("hybrid")),
        valid: valid.len(),
    }
}

fn percent(part: usize, whole: usize) -> f64 {
    if whole == 0 {
        return 100.0;
    }
    100.0 * part as f64 / whole as f64
}

#[test]
fn seq_and_hybrid_find_95_percent_of_karn() {
    requires!(Need::Tool("tshark"));
    let mut failures = Vec::new();
    let mut all = 0;
    for capture in captures() {
        let Coverage { valid, seq, hybrid } = coverage(&capture);
        let (of_seq, of_hybrid) = (percent(seq, valid), percent(hybrid, valid));
        let line = format!(
            "{:<28} {valid:>5} valid, seq {seq:>5} {of_seq:>6.2} %, hybrid {hybrid:>5} {of_hybrid:>6.2} %",
            name_of(&capture)
        );
        println!("{line}");
        if of_seq < 95.0 || of_hybrid < 95.0 {
            failures.push(line);
        }
        all += valid;
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(all >= 3000, "{all}");
}

#[test]
fn every_sample_lies_between_its_acks_segments() {
    requires!(Need::Tool("tshark"));
    for capture in captures() {
        let covered = karn::covered(&oracle::packets(&capture));
        for method in ["seq", "hybrid"] {
            for sample in subject::samples(&capture, &["--method", method]).all {
                let context = || format!("{}, {method}: {sample:?}", name_of(&capture));
                if sample.proto != "tcp" {
                    continue;
                }
                let range = covered.get(&sample.frame);
                let range = range.unwrap_or_else(|| panic!("covers nothing: {}", context()));
                assert!(range.allows(&sample), "{range:?}: {}", context());
            }
        }
    }
}

#[test]
fn karn_differs_from_tshark_at_retransmissions() {
    requires!(Need::Tool("tshark"));
    let capture = directory().join("loss.pcap.gz");
    let tshark = oracle::samples(&capture).tcp;
    let seq = subject::samples(&capture, &["--method", "seq"]).tcp();
    assert!(difference(&tshark, &seq).is_some());
}

#[test]
fn one_nanosecond_and_one_frame_make_a_difference() {
    let samples = Samples::from([(2, 100), (5, 200)]);
    assert_eq!(difference(&samples, &samples), None);
    for other in [
        Samples::from([(2, 100), (5, 201)]),
        Samples::from([(2, 100), (6, 200)]),
        Samples::from([(2, 100)]),
        Samples::from([(2, 100), (5, 200), (7, 300)]),
    ] {
        assert!(difference(&samples, &other).is_some(), "{other:?}");
    }
}

#[test]
fn the_list_of_small_captures_is_complete() {
    let list = fs::read_to_string(directory().join("README.md")).unwrap();
    let rows = list.lines().filter(|line| line.contains(".pcap")).count();
    let captures = captures();
    for capture in &captures {
        let row = format!("| {} |", name_of(capture));
        assert!(list.contains(&row), "no {row} in README.md");
    }
    assert_eq!(rows, captures.len());
    let bytes = |path: &PathBuf| fs::metadata(path).unwrap().len();
    assert!(captures.iter().map(bytes).sum::<u64>() <= MOST_BYTES);
}
