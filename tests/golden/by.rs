//! `fairpath rtt --by`, held against tables made from the samples themselves.
//!
//! The oracle sorts the samples that the same command prints as JSON and takes percentiles by rank.
//! Counts are equal. Percentiles agree within a bucket, and so do minimum and maximum of classes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use fairpath_tests::binary;
use serde_json::Value;

/// A bucket is at most 1/32 of its value; its middle is half of that away.
const OFF: f64 = 1.0 / 64.0 + 1e-6;

fn run(capture: &Path, how: &[&str]) -> String {
    let mut command = binary::command(binary::fairpath());
    command.args(["rtt", "-r"]).arg(capture).args(how);
    let output = command.output().expect("run fairpath");
    assert!(output.status.success(), "{capture:?} {how:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// The samples of a capture.
fn samples(capture: &Path) -> Vec<Value> {
    let lines = run(capture, &["--format", "json", "--samples-only"]);
    let records = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("a JSON object"));
    records
        .filter(|record| record["type"] == "sample")
        .collect()
}

/// Sorted RTTs by the words that `name` makes of a sample.
fn grouped(
    samples: &[Value],
    name: impl Fn(&Value) -> Vec<String>,
) -> BTreeMap<Vec<String>, Vec<u64>> {
    let mut groups: BTreeMap<Vec<String>, Vec<u64>> = BTreeMap::new();
    for sample in samples {
        let rtt = sample["rtt_ns"].as_u64().expect("nanoseconds");
        groups.entry(name(sample)).or_default().push(rtt);
    }
    groups.values_mut().for_each(|rtts| rtts.sort_unstable());
    groups
}

fn word(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Rows of a CSV table by column.
fn table(capture: &Path, how: &[&str]) -> Vec<BTreeMap<String, String>> {
    let text = run(capture, &[&["--format", "csv"], how].concat());
    let mut lines = text.lines();
    let columns: Vec<&str> = lines.next().expect("a header").split(',').collect();
    let row = |line: &str| {
        let values: Vec<&str> = line.split(',').collect();
        assert_eq!(values.len(), columns.len(), "{line}");
        let named = columns.iter().zip(values);
        named
            .map(|(c, v)| ((*c).to_owned(), v.to_owned()))
            .collect()
    };
    lines.map(row).collect()
}

fn number(row: &BTreeMap<String, String>, column: &str) -> f64 {
    row[column]
        .parse()
        .unwrap_or_else(|_| panic!("{row:?}: {column}"))
}

/// `rtts` are sorted; `exact` minimum and maximum.
fn assert_row(row: &BTreeMap<String, String>, rtts: &[u64], exact: bool) {
    assert_eq!(number(row, "samples") as usize, rtts.len(), "{row:?}");
    for (column, q) in [
        ("min_rtt_ns", 0.0),
        ("p50_rtt_ns", 0.50),
        ("p95_rtt_ns", 0.95),
        ("p99_rtt_ns", 0.99),
        ("max_rtt_ns", 1.0),
    ] {
        let rank = ((q * rtts.len() as f64).ceil() as usize).max(1);
        let expected = rtts[rank - 1] as f64;
        let found = number(row, column);
        let off = (found - expected).abs() / expected.max(1.0);
        let most = if exact && (q == 0.0 || q == 1.0) {
            0.0
        } else {
            OFF
        };
        // Buckets begin at 1.024 us.
        assert!(
            off <= most || expected < 1100.0,
            "{column} {found}, expected {expected}: {row:?}"
        );
    }
}

const CAPTURES: [&str; 7] = [
    "plain.pcap",
    "loss.pcap.gz",
    "short.pcapng",
    "ipv6.pcap.gz",
    "icmp.pcap",
    "two-way.pcap.gz",
    "vlan-pppoe.pcap.gz",
];

#[test]
fn rows_by_host_are_those_of_the_samples() {
    for name in CAPTURES {
        let capture = crate::directory().join(name);
        let name = |s: &Value| vec![word(&s["dst_address"]), word(&s["towards"])];
        let expected = grouped(&samples(&capture), name);
        let rows = table(&capture, &["--by", "host", "--sort", "p95"]);
        assert_eq!(rows.len(), expected.len(), "{capture:?}");
        assert!(rows.is_sorted_by(|a, b| number(a, "p95_rtt_ns") >= number(b, "p95_rtt_ns")));
        for row in rows {
            let key = vec![row["host_address"].clone(), row["towards"].clone()];
            assert_row(&row, &expected[&key], true);
        }
    }
}

#[test]
fn rows_by_flow_are_those_of_the_samples() {
    for name in CAPTURES {
        let capture = crate::directory().join(name);
        // A port that is used again is another flow.
        let name = |s: &Value| {
            ["flow", "dst_address", "dst_port"]
                .map(|key| word(&s[key]))
                .to_vec()
        };
        let expected = grouped(&samples(&capture), name);
        let rows = table(&capture, &["--by", "flow", "--sort", "name"]);
        assert_eq!(rows.len(), expected.len(), "{capture:?}");
        let mut left: Vec<(&Vec<String>, &Vec<u64>)> = expected.iter().collect();
        for row in rows {
            let wanted = (row["dst_address"].clone(), row["dst_port"].clone());
            let fits = |(key, rtts): &(&Vec<String>, &Vec<u64>)| {
                (key[1].clone(), key[2].clone()) == wanted
                    && rtts.len() as f64 == number(&row, "samples")
                    && rtts[0] as f64 == number(&row, "min_rtt_ns")
                    && rtts[rtts.len() - 1] as f64 == number(&row, "max_rtt_ns")
            };
            let at = left.iter().position(fits);
            let (_, rtts) = left.remove(at.unwrap_or_else(|| panic!("{row:?} is no flow")));
            assert_row(&row, rtts, true);
        }
    }
}

#[test]
fn rows_by_class_are_those_of_the_classes_hosts() {
    for name in CAPTURES {
        let capture = crate::directory().join(name);
        let samples = samples(&capture);
        let inside = grouped(&samples, |s| vec![word(&s["dst_address"])]);
        let outside = grouped(&samples, |s| vec![word(&s["src_address"])]);
        let mut csv = String::from("name,parent,prefix\nall,,\n");
        for host in inside.keys().chain(outside.keys()).flatten() {
            let length = if host.contains(':') { 128 } else { 32 };
            let line = format!("c-{host},all,{host}/{length}\n");
            if !csv.contains(&line) {
                let _ = csv.write_str(&line);
            }
        }
        let file = tempfile::NamedTempFile::with_suffix(".csv").expect("a file");
        std::fs::write(file.path(), csv).expect("written");
        let path = file.path().to_str().expect("a path");
        let rows = table(&capture, &["--by", "class", "--class-file", path]);
        let mut legs = 0;
        for row in &rows {
            let leg = match row["leg"].as_str() {
                "inside" => &inside,
                _ => &outside,
            };
            if let Some(host) = row["class"].strip_prefix("c-") {
                assert_row(row, &leg[&vec![host.to_owned()]], false);
                legs += 1;
            } else {
                assert_eq!(row["class"], "all");
                assert_eq!(number(row, "samples") as usize, samples.len());
            }
        }
        assert_eq!(legs, inside.len() + outside.len(), "{capture:?}: {rows:?}");
    }
}

#[test]
fn a_limit_and_wrong_uses_are_named() {
    let capture = crate::directory().join("short.pcapng");
    let all = table(&capture, &["--by", "host", "--limit", "0"]);
    let one = table(&capture, &["--by", "host", "--limit", "1"]);
    assert_eq!(one.len(), 1);
    assert_eq!(one[0], all[0]);
    for (how, names) in [
        (&["--format", "csv"][..], "--by"),
        (&["--sort", "p95"], "--by"),
        (&["--by", "class"], "--class-file"),
    ] {
        let mut command = binary::command(binary::fairpath());
        command.args(["rtt", "-r"]).arg(&capture).args(how);
        let output = command.output().expect("run fairpath");
        assert_eq!(output.status.code(), Some(2), "{how:?}: {output:?}");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains(names), "{how:?}: {error}");
    }
}
