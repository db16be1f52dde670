//! Errors have a remedy, keep finished runs and leave nothing.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use fairpath_analysis::experiment::shipped::names;
use fairpath_analysis::experiment::{Document, FormName};
use fairpath_bpf::BBR3LIKE;
use fairpath_lab::{grid, needs};
use fairpath_testbed::{Feature, Need, RUN_ENV, RunId, leftovers, requires, wait_for};
use fairpath_tests::binary::fairpath;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::scene::{LOSSY, QUEUE, Scene, stderr};

/// Testbeds of process `id`, by what marks the processes in them.
fn testbeds_of(id: u32) -> BTreeSet<String> {
    let mark = format!("{RUN_ENV}=");
    let own = format!("{id}-");
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let marked = entries.filter_map(|entry| {
        let environment = fs::read(entry.path().join("environ")).ok()?;
        let environment = String::from_utf8_lossy(&environment).into_owned();
        let mut words = environment.split('\0');
        let run = words.find_map(|word| word.strip_prefix(&mark))?;
        run.starts_with(&own).then(|| run.to_owned())
    });
    marked.collect()
}

/// Rules of the host's own firewall that we would have made.
fn host_rules() -> String {
    let reported = |words: &[&str]| {
        let output = Command::new(words[0]).args(&words[1..]).output();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        text.unwrap_or_default()
    };
    let all = reported(&["nft", "list", "tables"]) + &reported(&["iptables-save"]);
    let ours = |line: &&str| line.contains("fairpath") || line.contains("NFQUEUE");
    all.lines().filter(ours).collect::<Vec<_>>().join("\n")
}

/// True if the congestion control that the lab brings is registered.
fn has_bbr3like() -> bool {
    let known = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    known.split_whitespace().any(|name| name == BBR3LIKE)
}

#[test]
fn missing_iperf3_is_reported_first() {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = Scene::new(LOSSY);
    let bin = scene.place.path().join("bin");
    fs::create_dir(&bin).unwrap();
    for tool in ["ip", "ethtool", "sh"] {
        let places =
            ["/usr/bin", "/usr/sbin", "/bin", "/sbin"].map(|place| Path::new(place).join(tool));
        let real = places.iter().find(|path| path.exists()).unwrap();
        symlink(real, bin.join(tool)).unwrap();
    }
    let output = scene.command().env("PATH", &bin).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("apt install iperf3"),
        "{}",
        stderr(&output)
    );
    assert!(!scene.out().exists());
}

#[test]
fn a_missing_congestion_control_is_named_with_remedy() {
    requires!(Need::Root, Need::Tool("iperf3"), Need::Tool("ethtool"));
    let scene = Scene::new(&LOSSY.replace("\"bbr\"", "\"bbr9\""));
    let output = scene.run();
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(
        text.contains("no congestion control bbr9") && text.contains("modprobe tcp_bbr9"),
        "{text}"
    );
    assert!(!scene.out().exists());
}

#[test]
fn a_missing_policy_is_named_before_set_up() {
    requires!(Need::Root, Need::Tool("iperf3"), Need::Tool("ethtool"));
    let scene = Scene::new(&QUEUE.replace("\"fq_codel\"", "\"fq_codle\""));
    let output = scene.run();
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(
        text.contains("link wan: no policy \"fq_codle\"")
            && text.contains("did you mean fq_codel?"),
        "{text}"
    );
    assert!(!scene.out().exists());
}

#[test]
fn shipped_experiments_find_their_policies() {
    requires!(
        Need::Root,
        Need::Tool("iperf3"),
        Need::Tool("ethtool"),
        Need::Kernel(Feature::CongestionControl("bbr"))
    );
    for name in names() {
        let document = Document::open(&name).unwrap();
        for form in [FormName::Quick, FormName::Full] {
            let cells = grid::plan(&document, form, 1).unwrap();
            needs::check(&cells, fairpath()).unwrap_or_else(|error| panic!("{name}: {error:#}"));
        }
    }
}

#[test]
fn a_dying_iperf3_ends_the_grid_after_three() {
    requires!(Need::Root, Need::Tool("iperf3"), Need::Tool("ethtool"));
    let scene = Scene::new(LOSSY);
    let script = "case \"$*\" in *--client*) kill -KILL $$ ;; esac; exec /usr/bin/iperf3 \"$@\"";
    let path = scene.instead_of("iperf3", script);
    let output = scene.command().env("PATH", path).output().unwrap();
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("3 runs in a row were not measured: flow \"bulk\": iperf3's client"),
        "{text}"
    );
    assert_eq!(scene.records().len(), 3, "each is kept with what was wrong");
}

#[test]
fn a_full_disk_keeps_finished_runs() {
    requires!(
        Need::Root,
        Need::Tool("iperf3"),
        Need::Tool("ethtool"),
        Need::Tool("unshare")
    );
    let scene = Scene::new(LOSSY);
    let lab = scene.command();
    let words: Vec<String> = lab
        .get_args()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let out = scene.out();
    fs::create_dir(&out).unwrap();
    // Capacity for the manifest and a record or two, in a mount namespace that ends with the command.
    let script =
        "mount -t tmpfs -o size=64k none \"$0\" && \"$@\"; status=$?; ls \"$0\"/runs; exit $status";
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", script])
        .arg(&out)
        .arg(lab.get_program())
        .args(words);
    let output = command.output().unwrap();
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("No space left on device") && text.contains("finished runs are kept"),
        "{text}"
    );
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        listed.contains("0000.json") && !listed.contains(".tmp"),
        "{listed}"
    );
}

/// Ends a run under way by these signals, and looks for what is left of it.
fn nothing_is_left_behind(signals: &[Signal]) {
    let text = QUEUE.replace("[links.wan]\n", "[links.wan]\nvia = \"nfqueue\"\n");
    let text = text.replace("\"cubic\"", &format!("\"{BBR3LIKE}\""));
    let divert = "[divert]\nat = \"router\"\nprogram = \"c\"\n";
    let scene = Scene::alone(&format!("{text}\n{divert}"));
    let temporary = scene.place.path().join("tmp");
    fs::create_dir(&temporary).unwrap();
    let mut child = scene
        .command()
        .env("TMPDIR", &temporary)
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let id = child.id();
    // Servers and senders of both flows, the emulator, the watcher and the accepting program.
    let begun = wait_for(Duration::from_secs(60), || {
        let mut runs = testbeds_of(id).into_iter();
        let left = leftovers(&RunId::from_text(&runs.next()?));
        (left.processes.len() >= 7 && has_bbr3like()).then_some(())
    });
    let runs = testbeds_of(id);
    for signal in signals {
        kill(Pid::from_raw(id.cast_signed()), *signal).unwrap();
        std::thread::sleep(Duration::from_millis(2));
    }
    child.wait().unwrap();
    begun.expect("a run under way");
    for run in runs {
        let run = RunId::from_text(&run);
        let is_clean = || leftovers(&run).is_empty().then_some(());
        wait_for(Duration::from_secs(20), is_clean)
            .unwrap_or_else(|| panic!("left: {:?}", leftovers(&run)));
    }
    let is_removed = || (!has_bbr3like()).then_some(());
    wait_for(Duration::from_secs(20), is_removed).expect("the congestion control goes");
    assert_eq!(host_rules(), "");
    let left: Vec<_> = fs::read_dir(&temporary).unwrap().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_killed_run_leaves_nothing() {
    requires!(
        Need::Root,
        Need::Tool("iperf3"),
        Need::Tool("ethtool"),
        Need::Tool("cc"),
        Need::Tool("iptables")
    );
    nothing_is_left_behind(&[Signal::SIGKILL]);
    nothing_is_left_behind(&[Signal::SIGINT, Signal::SIGINT]);
}

#[test]
fn a_wrong_file_is_refused_with_its_place() {
    let scene = Scene::new(&LOSSY.replace("bitrate", "bitrat"));
    let output = scene.run();
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(
        text.contains("x.toml:") && text.contains("did you mean `bitrate`?"),
        "{text}"
    );
}
