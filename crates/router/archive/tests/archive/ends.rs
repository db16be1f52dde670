//! Kills at random moments, and disks that are full for a while.
//!
//! The writer is another process: this test program again, with a variable of the environment.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fairpath_archive::{Archive, HOUR_NS, MAX_WAITING_SLICES};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigHandler, Signal, signal};

use crate::world::{Dice, HOUR, SECOND, THEN, Traffic, World, expect, question};

/// The length of an interval.
const INTERVAL: u64 = 5 * SECOND;
const FILE: &str = "FAIRPATH_TEST_ARCHIVE";

fn writer(test: &str, path: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(FILE, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The traffic of interval `at`, the same in both processes.
fn traffic(at: u64) -> Vec<(usize, Traffic)> {
    Dice(at).traffic(3)
}

/// Writes intervals and prints their number, until it is killed.
fn write(path: &Path, from: u64) {
    let mut archive = Archive::open(path).unwrap();
    let mut world = World::new(&["anna", "bert", "site"]);
    world.now.unix_ns += from * INTERVAL;
    for at in from.. {
        archive
            .take(&world.interval(INTERVAL, traffic(at)))
            .unwrap();
        println!("\nwrote {at}");
    }
}

#[test]
fn a_kill_loses_at_most_ten_seconds() {
    if let Ok(path) = std::env::var(FILE) {
        let path = Path::new(&path);
        let from = std::fs::read_to_string(path.with_extension("from")).unwrap();
        return write(path, from.parse().unwrap());
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("history.db");
    let mut dice = Dice(std::process::id().into());
    let mut from = 0;
    let mut lost = Vec::new();
    // Until hours were completed in between.
    for round in 0.. {
        if round >= 10 && from * INTERVAL > 3 * HOUR_NS {
            break;
        }
        std::fs::write(path.with_extension("from"), from.to_string()).unwrap();
        let mut child = writer("ends::a_kill_loses_at_most_ten_seconds", &path);
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, numbers) = std::sync::mpsc::channel();
        let reader = std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if let Some(number) = line
                    .strip_prefix("wrote ")
                    .and_then(|n| n.parse::<u64>().ok())
                {
                    let _ = sender.send(number);
                }
            }
        });
        let first = numbers
            .recv_timeout(Duration::from_secs(60))
            .expect("the writer writes");
        std::thread::sleep(Duration::from_millis(20 + dice.below(400)));
        child.kill().unwrap();
        child.wait().unwrap();
        reader.join().unwrap();
        let last = numbers.try_iter().last().unwrap_or(first);
        // All but the last seconds are there, each once.
        let series = Archive::open(&path)
            .unwrap()
            .series(&question(
                "anna",
                THEN / HOUR * HOUR,
                THEN + 9_000 * HOUR,
                HOUR * 24,
            ))
            .unwrap();
        let kept = series.total.map_or(0, |total| total.measured_ns / INTERVAL);
        let written = last + 1 - lost.iter().map(|(from, to)| to - from).sum::<u64>();
        assert!(
            kept + 10 * SECOND / INTERVAL >= written && kept <= written + 1,
            "round {round}: {kept} of {written} intervals"
        );
        // One interval may have been written and not printed.
        let next = last + 2;
        lost.push((next - (written + 1).saturating_sub(kept), next));
        from = next;
    }
    let archive = Archive::open(&path).unwrap();
    // What was not lost is what it was.
    let mut world = World::new(&["anna", "bert", "site"]);
    for at in 0..from {
        world.interval(INTERVAL, traffic(at));
    }
    let mut at = 0;
    world.raw.retain(|_| {
        at += 1;
        !lost
            .iter()
            .any(|(from, to)| (*from..*to).contains(&(at - 1)))
    });
    for name in ["anna", "site"] {
        let series = archive
            .series(&question(
                name,
                THEN / HOUR * HOUR,
                THEN + 9_000 * HOUR,
                HOUR * 24,
            ))
            .unwrap();
        expect(&series, &world.raw, "after kills");
    }
}

#[test]
fn a_full_disk_harms_nothing_and_is_counted() {
    if let Ok(path) = std::env::var(FILE) {
        return fill(Path::new(&path));
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("history.db");
    let child = writer("ends::a_full_disk_harms_nothing_and_is_counted", &path);
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("\nfilled"),
        "{text}"
    );
}

fn fill(path: &Path) {
    // SAFETY: ignoring a signal needs no handler.
    unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) }.unwrap();
    let limit = |bytes: u64| setrlimit(Resource::RLIMIT_FSIZE, bytes, u64::MAX >> 1).unwrap();
    let mut archive = Archive::open(path).unwrap();
    let mut world = World::new(&["anna", "bert", "site"]);
    let mut at = 0;
    let mut take = |archive: &mut Archive, world: &mut World, seconds: u64| {
        let mut failed = 0;
        for _ in 0..seconds {
            failed += u64::from(archive.take(&world.interval(SECOND, traffic(at))).is_err());
            at += 1;
        }
        failed
    };
    assert_eq!(take(&mut archive, &mut world, 400), 0);
    // The disk is full: nothing can be written beyond the present size.
    let size = |name: &str| path.with_file_name(name).metadata().map_or(0, |m| m.len());
    limit(size("history.db-wal").min(size("history.db")).max(1));
    let failed = take(&mut archive, &mut world, 100);
    assert!(failed > 5, "{failed} writes failed");
    let now = archive.counters();
    assert_eq!((now.writes_failed, now.slices_dropped), (failed, 0));
    // Answers have what waits.
    let query = |step| question("anna", THEN / HOUR * HOUR, THEN + 20 * HOUR, step);
    expect(
        &archive.series(&query(10 * SECOND)).unwrap(),
        &world.raw,
        "while full",
    );
    limit(u64::MAX >> 1);
    assert_eq!(take(&mut archive, &mut world, 100), 0);
    expect(
        &archive.series(&query(300 * SECOND)).unwrap(),
        &world.raw,
        "after",
    );
    // Too long: the oldest are dropped, and counted.
    limit(1);
    take(
        &mut archive,
        &mut world,
        10 * (MAX_WAITING_SLICES as u64 + 8),
    );
    limit(u64::MAX >> 1);
    archive.flush().unwrap();
    let dropped = archive.counters().slices_dropped;
    assert!((7..=10).contains(&dropped), "{dropped}");
    let kept = archive
        .series(&query(300 * SECOND))
        .unwrap()
        .total
        .unwrap()
        .measured_ns
        / SECOND;
    assert_eq!(kept, world.raw.len() as u64 - 10 * dropped);
    println!("\nfilled");
}
