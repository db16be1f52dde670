//! The table for pipes and logs, and the snapshot as JSON.

use std::process::Stdio;

use fairpath_history::snapshot::Snapshot;
use fairpath_tests::binary;

use crate::daemon::{Daemon, row, snapshot as snapshot_of, town};

fn once(daemon: &Daemon, args: &[&str]) -> String {
    let mut command = binary::command(binary::fairpath());
    command
        .args(["top", "--once", "--socket"])
        .arg(daemon.socket());
    command
        .args(args)
        .env("LC_ALL", "C.UTF-8")
        .env_remove("COLUMNS");
    let output = command.output().expect("start fairpath");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn once_prints_the_whole_table_in_120_columns() {
    let daemon = Daemon::showing(town());
    let text = once(&daemon, &[]);
    let expected = [
        "fairpath gw-7  08:28:17 UTC  window 10s every 100ms                                                           sort: tree",
        "5 classes  up 5.00M  down 85.0M  23 flows",
        "                BIT/S      RTT IN ms   RTT OUT ms       LOAD       LOSS IN %     LOSS OUT %",
        "CLASS           UP  DOWN   p50   p95    p50   p95    +ms  score     to   from     to   from  FLOWS RATE",
        "▾ North mast 4.00M 68.0M  65.0   130~  15.0  30.0   45.0~    72   1.20~     0   1.20~     0     13 ▇▁▄▇▂▅█▂▅█▃▆▁▃▆▁▄▇▁▄▇",
        "    ann      2.00M 34.0M  25.0  50.0   15.0  30.0   15.0     90   0.40      0   0.40      0     11 ▂▄▆█▁▃▅▇▁▃▅▇▁▂▄▆█▂▄▆█",
        "    carla    10.0M  170M   185   370!  15.0  30.0    135!    18!  3.60!     0   3.60!     0     19 ▅▂█▆▃▁▇▄▂█▅▃▁▆▄▁▇▅▂█▆",
        "▾ West mast  1.00M 17.0M  5.00  10.0   15.0  30.0      0     99      0      0      0      0     10 █▁▂▄▅▇█▁▃▄▆▇▁▂▃▅▆█▁▂▄",
        "    bob      1.00M 17.0M  5.00  10.0   15.0  30.0      0     99      0      0      0      0     10 █▁▂▄▅▇█▁▃▄▆▇▁▂▃▅▆█▁▂▄",
    ];
    assert_eq!(text.lines().collect::<Vec<_>>(), expected, "\n{text}");
    let query = daemon.last_query().unwrap();
    assert_eq!((query.limit, query.history), (0, true));
}

#[test]
fn json_is_the_daemons_snapshot() {
    let daemon = Daemon::showing(town());
    let text = once(&daemon, &["--format", "json"]);
    assert_eq!(text.lines().count(), 1);
    let snapshot: Snapshot = serde_json::from_str(&text).unwrap();
    assert_eq!(snapshot, town());
    assert!(daemon.last_query().unwrap().histograms);
}

#[test]
fn a_closed_pipe_is_no_failure() {
    // More than a pipe holds.
    let mut snapshot = snapshot_of(
        (0..1_500)
            .map(|i| row(&format!("c{i}"), None, 0, i % 9))
            .collect(),
    );
    for row in &mut snapshot.rows {
        row.history.clear();
    }
    let daemon = Daemon::showing(snapshot);
    let mut child = binary::command(binary::fairpath())
        .args(["top", "--once", "--socket"])
        .arg(daemon.socket())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start fairpath");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("wait for it");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.is_empty(), "{stderr}");
}
