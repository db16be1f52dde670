//! `fairpath top -i`: a monitor in the asking process, without daemon and configuration.

use fairpath_testbed::{Need, Testbed, requires, wait_for};
use fairpath_tests::{PATIENCE, binary};
use serde_json::Value;

use super::{ANNA, Site};

#[test]
fn top_without_daemon_shows_subnets() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let site = Site::new(&testbed);
    let words = [
        "top",
        "-i",
        "lan",
        "-u",
        "wan",
        "--exclude",
        "203.0.113.0/24 port 9",
        "--interval",
        "1s",
        "--once",
        "--format",
        "json",
    ];
    let mut command = site.router().command_without_sysfs(binary::fairpath());
    command.args(words);
    let process = site.router().spawn(command).unwrap();
    let shown = wait_for(PATIENCE, || {
        site.exchange(ANNA, 4);
        Some(process.stdout()).filter(|text| text.ends_with('\n'))
    });
    let text = shown.unwrap_or_else(|| panic!("nothing: {}", process.stderr()));
    let snapshot: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(snapshot["interfaces"], serde_json::json!(["lan", "wan"]));
    let rows = snapshot["rows"].as_array().unwrap();
    let row = |name: &str| rows.iter().find(|row| row["name"] == name);
    let subnet = row("10.10.1.0/24").unwrap_or_else(|| panic!("{snapshot:#}"));
    assert_eq!(subnet["kind"], "subnet");
    assert!(subnet["up"]["bytes"].as_u64().unwrap() > 0, "{subnet:#}");
    assert!(row("10.10.2.0/24").is_none(), "the uplink's side is remote");
    assert!(process.finish(PATIENCE).is_ok());
}

#[test]
fn a_missing_interface_is_reported() {
    requires!(Need::Root);
    let ns = Testbed::new().netns("here").unwrap();
    let output = fairpath_tests::rtt::run(&ns, &["top", "-i", "nowhere", "--once"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("\"nowhere\": no interface has this name"),
        "{stderr}"
    );
}
