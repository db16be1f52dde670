//! `fairpath sched` through the binary: formats, files, errors and exit statuses. `guide` tests the
//! pages of the guide, and `hostile` tests invalid input.

mod guide;
mod hostile;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use fairpath_core::sched::policies;
use fairpath_tests::binary;
use fairpath_units::skip_test;
use fairpath_wire::capture::{LinkType, Packet, Writer};
use serde_json::Value;

fn sched(directory: &Path, words: &[&str]) -> Output {
    binary::command(binary::fairpath())
        .arg("sched")
        .args(words)
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("sched/example")
}

/// The output of a command that must succeed.
fn printed(words: &[&str]) -> String {
    let output = sched(&example(), words);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{words:?}: {}",
        stderr(&output)
    );
    stdout(&output)
}

fn json(words: &[&str]) -> Value {
    serde_json::from_str(&printed(words)).unwrap()
}

const TRAFFIC: &str = "bulk name=work flows=2 class=1; bulk name=web flows=4; voice";

fn run(more: &[&str]) -> Vec<String> {
    let words = [
        "run",
        "tree.toml",
        "--rate",
        "20mbit",
        "--duration",
        "2s",
        "--traffic",
        TRAFFIC,
    ];
    words
        .iter()
        .chain(more)
        .map(|word| (*word).to_owned())
        .collect()
}

fn words(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

#[test]
fn list_and_show_print_every_built_in_policy() {
    let listed = printed(&["list"]);
    let all = json(&["list", "--format", "json"]);
    assert_eq!(all["schema"], 1);
    assert_eq!(all["policies"].as_array().unwrap().len(), policies().len());
    for policy in policies() {
        assert!(
            listed.contains(&policy.name) && listed.contains(&policy.source),
            "{}",
            policy.name
        );
        let shown = json(&["show", &policy.name, "--format", "json"]);
        assert_eq!(
            (&shown["schema"], &shown["name"]),
            (&1.into(), &policy.name.as_str().into())
        );
        let text = printed(&["show", &policy.name]);
        assert!(
            policy
                .params
                .iter()
                .all(|param| text.contains(&param.about)),
            "{text}"
        );
    }
}

#[test]
fn no_table_is_wider_than_80_columns() {
    let table = printed(&words(&run(&[])));
    let transfers = printed(&[
        "run",
        "srpt",
        "--rate",
        "50mbit",
        "--duration",
        "1s",
        "--traffic",
        "transfers load=40mbit; incast flows=30 name=a-rather-long-name-of-a-source",
    ]);
    for line in table.lines().chain(transfers.lines()) {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn json_and_csv_agree_and_add_up() {
    let found = json(&words(&run(&["--format", "json"])));
    assert_eq!(
        (&found["schema"], &found["rate_bps"]),
        (&1.into(), &20_000_000.into())
    );
    let number = |value: &Value| value.as_u64().unwrap();
    let total = &found["total"];
    let accounted = number(&total["sent"]["packets"])
        + number(&total["dropped"]["packets"])
        + number(&found["backlog_packets"]);
    assert_eq!(number(&total["offered"]["packets"]), accounted);
    let csv = printed(&words(&run(&["--format", "csv"])));
    let mut lines = csv.lines();
    let columns: Vec<&str> = lines.next().unwrap().split(',').collect();
    let at = columns
        .iter()
        .position(|column| *column == "sent_bytes")
        .unwrap();
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
    assert!(rows.iter().all(|row| row.len() == columns.len()), "{csv}");
    let flows: u64 = rows
        .iter()
        .filter(|row| row[0] == "flow")
        .map(|row| row[at].parse::<u64>().unwrap())
        .sum();
    assert_eq!(flows, number(&total["sent"]["bytes"]));
    let work = found["classes"]
        .as_array()
        .unwrap()
        .iter()
        .find(|class| class["name"] == "1")
        .unwrap();
    let share = number(&work["sent_bps"]) as f64 / 20e6;
    assert!((share - 0.75).abs() < 0.01, "weight 3 of 4 gives {share}");
}

#[test]
fn only_the_same_seed_repeats_the_output() {
    let with_seed = |seed: &str| {
        printed(&[
            "run",
            "stfq",
            "--rate",
            "10mbit",
            "--duration",
            "1s",
            "--traffic",
            "poisson rate=9mbit",
            "--seed",
            seed,
            "--format",
            "csv",
        ])
    };
    assert_eq!(with_seed("4"), with_seed("4"));
    assert_ne!(with_seed("4"), with_seed("5"));
}

#[test]
fn both_runtimes_print_the_same_results() {
    let kernel = run(&["--runtime", "kernel", "--format", "csv"]);
    let output = sched(&example(), &words(&kernel));
    if !output.status.success() && stderr(&output).contains("CAP_BPF") {
        skip_test(
            "both_runtimes_print_the_same_results",
            "root",
            "the kernel runtime needs CAP_BPF and CAP_PERFMON",
        );
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(stdout(&output), printed(&words(&run(&["--format", "csv"]))));
}

#[test]
fn capture_is_simulated_with_flows_and_classes() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = Writer::pcap(Vec::new(), LinkType::RAW).unwrap();
    for number in 0..100u32 {
        let host = (number % 2 + 1) as u8;
        let mut packet = vec![
            0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, host, 192, 0, 2, 1, 0x10, 0, 0, 53,
            0, 8, 0, 0,
        ];
        packet.resize(500, 0);
        let time_ns = 1_000_000_000_000 + u64::from(number) * 100_000;
        let packet = Packet {
            link: LinkType::RAW,
            ..Packet::new(time_ns, &packet)
        };
        writer.write(&packet).unwrap();
    }
    fs::write(directory.path().join("c.pcap"), writer.finish().unwrap()).unwrap();
    fs::write(
        directory.path().join("c.csv"),
        "name,prefix\none,10.0.0.1\ntwo,10.0.0.2\n",
    )
    .unwrap();
    let output = sched(
        directory.path(),
        &[
            "run",
            "drr",
            "--read",
            "c.pcap",
            "--class-file",
            "c.csv",
            "--rate",
            "20mbit",
            "--format",
            "json",
        ],
    );
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let found: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(
        (
            &found["total"]["sent"]["packets"],
            &found["backlog_packets"]
        ),
        (&100.into(), &0.into())
    );
    let classes: Vec<&str> = found["classes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|class| class["name"].as_str().unwrap())
        .collect();
    assert_eq!(classes, ["one", "two"]);
    assert_eq!(found["flows"][0]["name"], "udp 10.0.0.1:4096 192.0.2.1:53");
    // The last packet arrives after 9.9 ms, and 100 packets of 0.2 ms take 20 ms.
    assert_eq!(found["duration_ns"], 20_000_000);
}

#[test]
fn figure_and_log_are_written() {
    let directory = tempfile::tempdir().unwrap();
    let [svg, log] =
        ["p.svg", "p.log"].map(|name| directory.path().join(name).display().to_string());
    printed(&words(&run(&["--svg", &svg, "--record", &log])));
    let figure = fs::read_to_string(&svg).unwrap();
    assert!(figure.starts_with("<svg ") && figure.ends_with("</svg>\n"));
    assert!(
        figure.contains("prefers-color-scheme:dark") && !figure.contains("http://www.w3.org/1999")
    );
    assert!(fs::read(&log).unwrap().starts_with(b"fpschlog"));
}

#[test]
fn errors_have_a_remedy_and_exit_with_1() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(
        directory.path().join("bad.toml"),
        "[[node]]\nname = \"a\"\npolicy = \"fifi\"\n",
    )
    .unwrap();
    fs::write(directory.path().join("no.pcap"), "this is no capture").unwrap();
    let traffic = ["--rate", "1mbit", "--traffic", "bulk"];
    let cases: [(&[&str], &str); 8] = [
        (&["show", "stf"], "did you mean \"stfq\"?"),
        (&["run", "nosuch"], "fairpath sched list"),
        (
            &["run", "bad.toml"],
            "bad.toml:3:10: error: node \"a\": policy \"fifi\" does not exist: did you mean \"fifo\"?",
        ),
        (&["run", "none.toml"], "none.toml"),
        (&["run", "classes"], "--class-file FILE"),
        (
            &["run", "fifo", "--set", "x=1"],
            "policy fifo has no parameter \"x\": it has none",
        ),
        (
            &["run", "fifo", "--traffic", "blk"],
            "did you mean \"bulk\"?",
        ),
        (
            &["run", "fifo", "--traffic", "cbr rate=1mbit class=gold"],
            "class \"gold\" does not exist",
        ),
    ];
    for (words, expected) in cases {
        let more: &[&str] = match (words[0], words.contains(&"--traffic")) {
            ("run", true) => &traffic[..2],
            ("run", false) => &traffic,
            _ => &[],
        };
        let output = sched(directory.path(), &[words, more].concat());
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        assert!(
            stderr(&output).contains(expected),
            "{words:?}: {}",
            stderr(&output)
        );
        assert_eq!(stdout(&output), "", "{words:?}");
    }
    let output = sched(
        directory.path(),
        &["run", "fifo", "--rate", "1mbit", "--read", "no.pcap"],
    );
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("no.pcap"), "{}", stderr(&output));
}

#[test]
fn run_warns_of_long_rounds() {
    let directory = tempfile::tempdir().unwrap();
    let child = |name: &str, weight: u32, class: &str| {
        format!(
            "[[node]]\nname = \"{name}\"\nparent = \"root\"\npolicy = \"fifo\"\nweight = {weight}\nmatch = {{ class = [{class}] }}\n"
        )
    };
    let root = "[[node]]\nname = \"root\"\npolicy = \"stfq\"\n";
    let tree = [
        root,
        &child("heavy", 1000, "1"),
        &child("light", 1, "\"*\""),
    ]
    .concat();
    fs::write(directory.path().join("long.toml"), tree).unwrap();
    // 1,001 packets of 1514 bytes.
    for (rate, time, warns) in [("100mbit", "121.2 ms", true), ("1gbit", "12.1 ms", false)] {
        let words = ["run", "long.toml", "--duration", "10ms", "--rate", rate];
        let output = sched(
            directory.path(),
            &[&words[..], &["--traffic", "cbr rate=1mbit"]].concat(),
        );
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let printed = stderr(&output);
        let round =
            format!("node \"root\": a round of its 2 children is 1515514 bytes, {time} at {rate}");
        assert!(printed.contains(&round), "{printed}");
        let remedy = "the lightest child can wait as long: use weights that differ less";
        assert_eq!(printed.contains(remedy), warns, "{printed}");
    }
}

#[test]
fn wrong_usage_exits_2() {
    for words in [
        &["run", "fifo", "--rate", "1mbit"][..],
        &["run", "fifo", "--traffic", "bulk"],
        &["run", "fifo", "--rate", "100", "--traffic", "bulk"],
        &[
            "run",
            "fifo",
            "--rate",
            "1mbit",
            "--traffic",
            "bulk",
            "--read",
            "x",
        ],
        &[
            "run",
            "fifo",
            "--rate",
            "1mbit",
            "--traffic",
            "bulk",
            "--duration",
            "10",
        ],
        &["show"],
    ] {
        assert_eq!(sched(&example(), words).status.code(), Some(2), "{words:?}");
    }
}

/// Runs the scripts of the built-in policies with the policy or tree of the same name.
#[test]
fn every_script_passes_in_both_runtimes() {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/author/author/scripts");
    let mut names: Vec<String> = fs::read_dir(&scripts)
        .unwrap()
        .filter_map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            name.strip_suffix(".lua").map(str::to_owned)
        })
        .collect();
    names.sort();
    assert!(names.len() > policies().len(), "{names:?}");
    for name in names {
        let subject = match scripts.join(format!("{name}.toml")).exists() {
            true => format!("{name}.toml"),
            false if name.starts_with("xdq-") => "-".to_owned(),
            false => name.clone(),
        };
        let script = format!("{name}.lua");
        let output = sched(&scripts, &["test", &subject, &script, "--runtime", "both"]);
        if (stdout(&output) + &stderr(&output)).contains("CAP_BPF") {
            skip_test(
                "every_script_passes_in_both_runtimes",
                "root",
                "the kernel runtime needs CAP_BPF and CAP_PERFMON",
            );
            return;
        }
        let text = stdout(&output);
        assert_eq!(output.status.code(), Some(0), "{name}: {text}");
        assert!(text.contains("(runtime: native, kernel)"), "{name}: {text}");
    }
}
