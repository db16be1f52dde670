//! Wrong usage, missing rights and corrupted input have clear errors.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use fairpath_testbed::{Capture, CaptureOptions, Need, Ping, Router, Testbed, requires};
use fairpath_tests::{Records, binary, rtt};

use crate::configured_loss::ConfiguredLoss;

const NOBODY: &str = "65534";

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn fairpath(words: &[&str]) -> Output {
    binary::command(binary::fairpath())
        .args(words)
        .output()
        .unwrap()
}

#[test]
fn wrong_usage_exits_2() {
    let wrong: &[&[&str]] = &[
        &["rtt"],
        &["rtt", "-i"],
        &["rtt", "-i", "lo", "-r", "file"],
        &["rtt", "-i", "lo", "--method", "guess"],
        &["rtt", "-i", "lo", "--hook", "tap"],
        &["rtt", "-i", "lo", "--rate-limit", "often"],
        &["rtt", "-i", "lo", "--duration", "10days"],
        &["rtt", "-i", "lo", "--count", "few"],
        &["rtt", "-r", "file", "--cost"],
        &["rtt", "--no-such-option"],
    ];
    for words in wrong {
        let output = fairpath(words);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{words:?}: {}",
            stderr(&output)
        );
        assert!(
            output.stdout.is_empty() && !output.stderr.is_empty(),
            "{words:?}"
        );
    }
}

/// A capture of three echoes, and the binary, where anybody can read them.
struct Public {
    directory: tempfile::TempDir,
}

impl Public {
    fn new() -> Public {
        let directory = tempfile::Builder::new()
            .prefix("fairpath-")
            .tempdir_in("/tmp")
            .unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        binary::put_into(directory.path(), binary::fairpath());
        Public { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs the binary as the user nobody, in the namespace of the test.
    fn as_nobody(&self, words: &[&str]) -> Output {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]);
        command
            .args(["--inh-caps=-all", "--"])
            .arg(self.path("fairpath"));
        command.args(words).output().unwrap()
    }
}

fn capture_echoes(path: &Path) {
    let router = Router::new(&Testbed::new()).unwrap();
    // On a slow machine the stacks still announce themselves.
    let options = CaptureOptions {
        filter: "icmp".to_owned(),
        ..CaptureOptions::default()
    };
    let capture = Capture::start(&router.router, "wan", path, &options).unwrap();
    Ping::to(Router::SERVER.v4)
        .count(3)
        .run(&router.client)
        .unwrap();
    assert_eq!(capture.stop().unwrap().captured, 6);
}

#[test]
fn captures_need_no_privileges() {
    requires!(
        Need::Root,
        Need::Tool("setpriv"),
        Need::Tool("tcpdump"),
        Need::Tool("ping")
    );
    let public = Public::new();
    let live = public.as_nobody(&["rtt", "-i", "lo"]);
    assert_eq!(live.status.code(), Some(1), "{}", stderr(&live));
    for part in ["CAP_BPF", "CAP_PERFMON", "CAP_NET_ADMIN"] {
        assert!(stderr(&live).contains(part), "{}", stderr(&live));
    }
    assert!(live.stdout.is_empty());

    let path = public.path("wan.pcap");
    capture_echoes(&path);
    let read = public.as_nobody(&["rtt", "--format", "json", "-r", path.to_str().unwrap()]);
    assert!(read.status.success(), "{}", stderr(&read));
    let records = Records::parse(&String::from_utf8(read.stdout).unwrap());
    assert_eq!(records.samples.len(), 3);
}

fn read_bytes(bytes: &[u8]) -> Output {
    let mut child = binary::command(binary::fairpath())
        .args(["rtt", "--format", "json", "-r", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may refuse what it sees before it has seen all.
    let _ = child.stdin.take().unwrap().write_all(bytes);
    child.wait_with_output().unwrap()
}

#[test]
fn garbage_is_refused_and_cut_captures_are_read() {
    requires!(Need::Root, Need::Tool("tcpdump"), Need::Tool("ping"));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("wan.pcap");
    capture_echoes(&path);
    let whole = fs::read(&path).unwrap();

    for garbage in [&b"no capture at all, but a letter"[..], &[], &[0; 4096]] {
        let output = read_bytes(garbage);
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        assert!(output.stdout.is_empty());
        assert!(
            stderr(&output).contains("read capture \"-\""),
            "{}",
            stderr(&output)
        );
    }
    // In the middle of the last packet: two of the three answers are whole.
    let cut = read_bytes(&whole[..whole.len() - 10]);
    assert!(cut.status.success(), "{}", stderr(&cut));
    assert!(
        stderr(&cut).contains("ends in the middle of a packet"),
        "{}",
        stderr(&cut)
    );
    let records = Records::parse(&String::from_utf8(cut.stdout).unwrap());
    assert_eq!(records.samples.len(), 2);
    let absent = fairpath(&["rtt", "-r", "/no/such/file"]);
    assert_eq!(absent.status.code(), Some(1));
    assert!(
        stderr(&absent).contains("\"/no/such/file\""),
        "{}",
        stderr(&absent)
    );
}

#[test]
fn existing_xdp_programs_are_named_and_kept() {
    requires!(Need::Root, Need::Tool("ping"));
    let router = Router::new(&Testbed::new()).unwrap();
    // Drops nothing: only counts what arrives.
    let configured = ConfiguredLoss::at(&router.wan_end, 0.0, 0);
    let ns = &router.router;
    let output = rtt::run(ns, &["rtt", "-i", "wan", "--hook", "xdp"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    for part in [
        "XDP",
        "\"wan\"",
        "the XDP program \"drop\"",
        "holds this hook",
        "--hook tcx",
    ] {
        assert!(stderr(&output).contains(part), "{}", stderr(&output));
    }
    // The remedy works with it.
    let output = rtt::run(ns, &["rtt", "-i", "wan", "--duration", "10ms"]);
    assert!(output.status.success(), "{}", stderr(&output));
    Ping::to(Router::SERVER.v4)
        .count(3)
        .run(&router.client)
        .unwrap();
    let (seen, dropped) = configured.counts();
    assert!(seen >= 3, "the existing program is removed");
    assert_eq!(dropped, 0);
}
