//! `fairpath shape plan` through the binary: text, JSON, figures, captures, exit statuses.

use std::fs::{self, File};
use std::io::Read;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use fairpath_testbed::Schema;
use fairpath_tests::binary;
use fairpath_wire::capture::{LinkType, Packet, Writer};
use fairpath_wire::frame::Frame;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// Costs are given, so that every run gives the same result.
const FAST: [&str; 4] = ["--cost-local", "300ns", "--cost-shared", "100ns"];

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("plan")
}

fn command(words: &[&str]) -> std::process::Command {
    let mut command = binary::command(binary::fairpath());
    command
        .args(["shape", "plan"])
        .args(words)
        .env("NO_COLOR", "1")
        .current_dir(directory());
    command
}

fn plan(words: &[&str]) -> Output {
    command(&[&["--config", "plan.toml"], words].concat())
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_str(&stdout(output)).unwrap_or_else(|_| panic!("{output:?}"))
}

/// The object, which its schema describes.
#[track_caller]
fn valid(output: &Output) -> Value {
    let plan = json(output);
    let errors = Schema::load("plan").errors(&plan);
    assert!(errors.is_empty(), "{}\n{plan:#}", errors.join("\n"));
    plan
}

fn fast(words: &[&str]) -> Output {
    plan(&[&FAST, words].concat())
}

#[test]
fn text_names_rates_and_repeats() {
    let words = ["--with-cpus", "16", "--demand", "zipf", "--duration", "1s"];
    let output = fast(&words);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = stdout(&output);
    for name in ["line", "campus", "office", "dormitory", "library"] {
        assert!(text.lines().any(|line| line.starts_with(name)), "{text}");
    }
    assert!(text.contains("All 5 rates hold."), "{text}");
    assert!(text.contains("300 ns a packet (given)"), "{text}");
    assert_eq!(text, stdout(&fast(&words)));
    assert!(
        text.lines().all(|line| line.chars().count() <= 110),
        "{text}"
    );
}

#[test]
fn json_has_all_rates_and_cpus() {
    let words = ["--with-cpus", "8", "--duration", "50ms", "--format", "json"];
    let both = fast(&[&words[..], &["--direction", "both"]].concat());
    assert_eq!(both.status.code(), Some(0), "{both:?}");
    let plan = valid(&both);
    assert_eq!((&plan["schema"], &plan["cpus"]), (&1.into(), &8.into()));
    assert_eq!(plan["cpu"].as_array().unwrap().len(), 8);
    let rates = plan["rates"].as_array().unwrap();
    assert_eq!(rates.len(), 10);
    for rate in rates {
        let ratio = rate["achieved_ratio"].as_f64().unwrap();
        assert!(ratio > 0.5 && rate["holds"] == true, "{rate}");
        assert!(
            rate["burst_bytes"].as_u64() <= rate["bound_bytes"].as_u64(),
            "{rate}"
        );
    }
    let used = plan["cpu"][0]["use_ratio"].as_f64().unwrap();
    assert!(used > 0.01 && used < 0.99, "{used}");
}

#[test]
fn slow_cpus_fail_with_their_number() {
    let words = [
        "--with-cpus",
        "2",
        "--cost-local",
        "5us",
        "--duration",
        "100ms",
    ];
    let output = plan(&[&words[..], &["--cost-shared", "100ns", "--enough"]].concat());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = stdout(&output);
    let line = text.lines().find(|line| line.starts_with("line down: "));
    let line = line.unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains("bound by all 2 CPUs: use 4 CPUs."), "{text}");
    assert!(text.contains(" CPUs are enough."), "{text}");
    let error = stderr(&output);
    let begin = "fairpath: error: plan for 2 CPUs: ";
    assert!(
        error.starts_with(begin) && error.contains("do not hold"),
        "{error}"
    );
}

#[test]
fn costs_are_measured_unless_given() {
    let words = [
        "--with-cpus",
        "2",
        "--duration",
        "10ms",
        "--measure",
        "20ms",
    ];
    let output = plan(&[&words[..], &["--format", "json"]].concat());
    let plan = valid(&output);
    assert!(plan["cost_local_ns"].as_u64().unwrap() > 10, "{plan}");
    assert!(plan["cost_shared_ns"].as_u64().unwrap() >= 50, "{plan}");
    let origin = plan["cost"].as_str().unwrap();
    assert!(origin.contains("a packet (measured in 10ms)"), "{origin}");
}

#[test]
fn figures_load_nothing() {
    let directory = tempfile::tempdir().unwrap();
    for ending in ["html", "svg"] {
        let path = directory.path().join(format!("plan.{ending}"));
        let words = ["--with-cpus", "4", "--duration", "20ms", "--figure"];
        let output = fast(&[&words[..], &[path.to_str().unwrap()]].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let figure = fs::read_to_string(&path).unwrap();
        assert!(
            figure.contains("<svg") && figure.contains("campus down"),
            "{ending}"
        );
        let loads = ["src=\"http", "href=\"http", "@import", "url(http"];
        assert!(loads.iter().all(|word| !figure.contains(word)), "{ending}");
    }
}

#[test]
fn wrong_usage_exits_with_2() {
    let directory = tempfile::tempdir().unwrap();
    let empty = directory.path().join("empty.toml");
    fs::write(&empty, "[monitor]\ninterfaces = [\"lan0\"]\n").unwrap();
    let empty = empty.to_str().unwrap();
    let cases: [(&[&str], &str); 7] = [
        (&[], "--with-cpus"),
        (&["--with-cpus", "0"], "1..=512"),
        (&["--with-cpus", "513"], "1..=512"),
        (&["--with-cpus", "2", "--speed", "2"], "--read"),
        (&["--with-cpus", "2", "--cost-local", "2ms"], "at most 1ms"),
        (
            &["--with-cpus", "2", "--figure", "plan.png"],
            "FILE.html or FILE.svg",
        ),
        (
            &["--with-cpus", "2", "--enough", "-r", "-"],
            "name a file with --read",
        ),
    ];
    for (words, expected) in cases {
        let output = plan(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {output:?}");
        assert!(stderr(&output).contains(expected), "{words:?}: {output:?}");
    }
    let output = command(&["--config", empty, "--with-cpus", "2"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(stderr(&output).contains("no section [shape]"), "{output:?}");
}

/// Examples whose costs are given: others differ by machine.
#[test]
fn the_guide_shows_real_output() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/plan.md");
    let page = fs::read_to_string(page).unwrap();
    let config = fs::read_to_string(directory().join("plan.toml")).unwrap();
    assert!(
        page.contains(&format!("\n```toml\n{config}```\n")),
        "the configuration"
    );
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("fairpath.toml"), config).unwrap();
    let commands = page
        .lines()
        .filter_map(|line| line.strip_prefix("$ fairpath shape plan "));
    let given: Vec<&str> = commands
        .filter(|line| line.contains("--cost-local"))
        .collect();
    assert_eq!(given.len(), 2);
    for words in given {
        let split: Vec<&str> = words.split(' ').collect();
        let output = command(&split).current_dir(&directory).output().unwrap();
        let (text, error) = (stdout(&output), stderr(&output));
        let shown = format!("\n```\n$ fairpath shape plan {words}\n{text}{error}```\n");
        assert!(page.contains(&shown), "the guide should show\n{shown}");
    }
}

/// A capture with `flows` flows to the library, which together have 4 Mbit/s for 200 ms.
fn capture(path: &Path, flows: u16) {
    let mut writer = Writer::pcap(File::create(path).unwrap(), LinkType::ETHERNET).unwrap();
    let macs = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
    for number in 0..100u16 {
        let host = Ipv4Addr::new(198, 51, 100, number as u8 % 50);
        let frame = Frame::ethernet(macs[0], macs[1])
            .ipv4(Ipv4Addr::new(203, 0, 113, 1), host)
            .udp(1000 + number % flows, 443)
            .zeros(958)
            .build();
        let time_ns = u64::from(number) * 2_000_000;
        writer.write(&Packet::new(time_ns, &frame)).unwrap();
    }
    writer.finish().unwrap();
}

#[test]
fn captures_are_classified_spread_and_scaled() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("library.pcap");
    capture(&path, 20);
    let of = |speed: &str| {
        let words = [
            "--with-cpus",
            "4",
            "--format",
            "json",
            "--speed",
            speed,
            "-r",
        ];
        let output = fast(&[&words[..], &[path.to_str().unwrap()]].concat());
        let plan = valid(&output);
        let rates = plan["rates"].as_array().unwrap().iter();
        let library = rates.clone().find(|rate| rate["name"] == "library");
        (output.status.code(), plan.clone(), library.unwrap().clone())
    };
    let (status, plan, library) = of("1");
    assert_eq!(
        (status, &library["holds"]),
        (Some(0), &true.into()),
        "{plan}"
    );
    let offered = library["offered_bps"].as_f64().unwrap();
    assert!((4.0e6..4.1e6).contains(&offered), "{library}");
    let received = plan["cpu"].as_array().unwrap().iter();
    let received = received.map(|cpu| cpu["received_packets"].as_u64().unwrap());
    assert!(received.clone().all(|packets| packets > 5), "{plan}");
    assert!((99..=100).contains(&received.sum::<u64>()), "{plan}");
    // Ten times as fast, the class has its 5 Mbit/s, and packets wait.
    let (status, plan, library) = of("10");
    assert_eq!(
        (status, &library["holds"]),
        (Some(0), &true.into()),
        "{plan}"
    );
    assert!(
        library["p99_sojourn_ns"].as_u64().unwrap() > 1_000_000,
        "{library}"
    );
}

#[test]
fn interrupted_plans_end_with_a_message() {
    let words = [
        "--config",
        "plan.toml",
        "--with-cpus",
        "64",
        "--duration",
        "1h",
    ];
    let mut child = command(&[&words[..], &FAST].concat())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for_handlers(child.id());
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    let status = child.wait().unwrap();
    let mut error = String::new();
    child.stderr.unwrap().read_to_string(&mut error).unwrap();
    assert_eq!(status.code(), Some(1), "{error}");
    assert!(error.contains("it was interrupted"), "{error}");
}

/// Waits until a process catches SIGINT.
fn wait_for_handlers(process: u32) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    let catches = || {
        let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("SigCgt:"))?;
        let mask = u64::from_str_radix(line.trim(), 16).ok()?;
        Some(mask & (1 << (Signal::SIGINT as i32 - 1)) != 0)
    };
    while catches() != Some(true) {
        assert!(std::time::Instant::now() < deadline, "no handler");
        std::thread::yield_now();
    }
}
