//! What goes wrong is told with its remedy, keeps finished runs and leaves nothing.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use fairpath_testbed::{Need, requires, wait_for};

use crate::scene::{LOSSY, QUEUE, Scene, stderr};

/// Processes that bear the mark of a testbed of process `id`.
fn left_of(id: u32) -> Vec<String> {
    let mark = format!("FAIRPATH_TESTBED_RUN={id}-");
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let marked = entries.filter(|entry| {
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        environment
            .split(|byte| *byte == 0)
            .any(|word| word.starts_with(mark.as_bytes()))
    });
    marked
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

#[test]
fn without_iperf3_it_says_so_before_anything_is_made() {
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
fn a_congestion_control_that_the_kernel_lacks_is_named_with_the_remedy() {
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
fn an_iperf3_that_dies_is_named_and_ends_the_grid_after_three_runs() {
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
fn a_full_disk_keeps_finished_runs_and_says_what_to_do() {
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
    // Room for the manifest and a record or two, in a mount namespace that ends with the command.
    let script =
        "mount -t tmpfs -o size=64k none \"$0\" && \"$@\"; status=$?; ls \"$0\"/runs; exit $status";
    let mut command = std::process::Command::new("unshare");
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

#[test]
fn killed_in_the_middle_it_leaves_no_process() {
    requires!(Need::Root, Need::Tool("iperf3"), Need::Tool("ethtool"));
    let scene = Scene::new(QUEUE);
    let mut child = scene
        .command()
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let id = child.id();
    wait_for(Duration::from_secs(60), || {
        (left_of(id).len() >= 4).then_some(())
    })
    .expect("a run under way");
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for(Duration::from_secs(20), || {
        left_of(id).is_empty().then_some(())
    })
    .unwrap_or_else(|| panic!("left: {:?}", left_of(id)));
}

#[test]
fn a_file_that_is_wrong_is_refused_with_its_place() {
    let scene = Scene::new(&LOSSY.replace("bitrate", "bitrat"));
    let output = scene.run();
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(
        text.contains("x.toml:") && text.contains("did you mean `bitrate`?"),
        "{text}"
    );
}
