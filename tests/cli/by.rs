//! `fairpath rtt --by` on golden captures, compared with all samples of the same captures.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::{binaries, run, stderr, stdout};

/// Histograms have two significant digits.
const TOLERANCE: f64 = 0.011;

fn captures() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    let names = [
        "two-way.pcap.gz",
        "icmp.pcap",
        "ipv6.pcap.gz",
        "loss.pcap.gz",
    ];
    names.map(|name| directory.join(name)).into()
}

fn lines(words: &[&str]) -> Vec<Value> {
    let output = run(&binaries()[0].path, words);
    assert!(output.status.success(), "{words:?}: {}", stderr(&output));
    let text = stdout(&output);
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

/// RTTs by the address of the measured host, from the samples.
fn samples(capture: &str) -> BTreeMap<String, Vec<u64>> {
    let mut hosts: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for record in lines(&["rtt", "--format", "json", "--samples-only", "-r", capture]) {
        if record["type"] == "sample" {
            // The address has this key in either version of the schema.
            let host = record.get("dst_address").unwrap_or(&record["dst"]);
            let host = host.as_str().unwrap().to_owned();
            let rtts = hosts.entry(host).or_default();
            rtts.push(record["rtt_ns"].as_u64().unwrap());
        }
    }
    for rtts in hosts.values_mut() {
        rtts.sort_unstable();
    }
    hosts
}

fn percentile(sorted: &[u64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted[rank.max(1) - 1] as f64
}

#[test]
fn percentiles_by_host_are_those_of_the_samples() {
    for capture in captures() {
        let capture = capture.to_str().unwrap();
        let expected = samples(capture);
        assert!(!expected.is_empty(), "{capture}");
        let rows = lines(&["rtt", "--by", "host", "--format", "json", "-r", capture]);
        let measured = rows.iter().filter(|row| row["samples"] != 0);
        assert_eq!(measured.count(), expected.len(), "{capture}");
        let mut last = f64::MAX;
        for row in rows.iter().filter(|row| row["samples"] != 0) {
            let rtts = &expected[row["host_address"].as_str().unwrap()];
            assert_eq!(row["samples"], rtts.len(), "{capture}: {row}");
            assert_eq!(row["min_rtt_ns"], rtts[0], "{capture}: {row}");
            assert_eq!(row["max_rtt_ns"], rtts[rtts.len() - 1], "{capture}: {row}");
            for (name, share) in [
                ("p50_rtt_ns", 0.5),
                ("p95_rtt_ns", 0.95),
                ("p99_rtt_ns", 0.99),
            ] {
                let found = row[name].as_f64().unwrap();
                // The range of the histogram begins at 1 us.
                let exact = percentile(rtts, share).max(1_000.0);
                let error = (found.max(1_000.0) / exact - 1.0).abs();
                assert!(error <= TOLERANCE, "{capture} {name}: {error}: {row}");
            }
            let p95 = row["p95_rtt_ns"].as_f64().unwrap();
            assert!(p95 <= last, "{capture}: not sorted by p95");
            last = p95;
        }
    }
}

#[test]
fn csv_has_a_header_and_limited_rows() {
    let capture = captures()[0].clone();
    let words = [
        "rtt",
        "-r",
        capture.to_str().unwrap(),
        "--by",
        "flow",
        "--sort",
        "samples",
    ];
    let words = [&words[..], &["--limit", "1", "--format", "csv"]].concat();
    let output = run(&binaries()[0].path, &words);
    let text = stdout(&output);
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len(), 2, "{text}");
    assert_eq!(rows[0].len(), rows[1].len(), "{text}");
    let begin = [
        "protocol",
        "src_address",
        "src_port",
        "dst_address",
        "dst_port",
        "samples",
    ];
    assert_eq!(rows[0][..6], begin);
}

#[test]
fn classes_have_a_row_for_each_leg() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("classes.toml");
    fs::write(
        &file,
        "[[class]]\nname = \"site\"\nprefix = \"10.10.1.0/24\"\n",
    )
    .unwrap();
    let capture = captures()[0].clone();
    let words = [
        "rtt",
        "-r",
        capture.to_str().unwrap(),
        "--by",
        "class",
        "--format",
        "json",
    ];
    let words = [&words[..], &["--class-file", file.to_str().unwrap()]].concat();
    let legs: Vec<(Value, Value)> = lines(&words)
        .into_iter()
        .map(|row| (row["class"].clone(), row["leg"].clone()))
        .collect();
    for leg in ["inside", "outside"] {
        assert!(legs.contains(&("site".into(), leg.into())), "{legs:?}");
    }
}

#[test]
fn contradicting_options_exit_2() {
    let capture = captures()[0].clone();
    let capture = capture.to_str().unwrap();
    for words in [
        &["--format", "csv"][..],
        &["--by", "class"],
        &["--by", "host", "--class-file", "x.toml"],
        &["--by", "host", "--quiet"],
    ] {
        let output = run(
            &binaries()[0].path,
            &[&["rtt", "-r", capture], words].concat(),
        );
        assert_eq!(
            output.status.code(),
            Some(2),
            "{words:?}: {}",
            stderr(&output)
        );
    }
}
