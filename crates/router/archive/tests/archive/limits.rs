//! Bytes, days and rows that are kept; files that are not ours.

use std::fs;

use fairpath_archive::{Archive, ArchiveError, KEPT_DAYS, MAX_UNUSED_ROWS, read_series};

use crate::world::{DAY, Dice, HOUR, MINUTE, SECOND, THEN, World, expect, question};

#[test]
fn the_last_ninety_days_are_kept() {
    let directory = tempfile::tempdir().unwrap();
    let mut archive = Archive::open(&directory.path().join("history.db")).unwrap();
    let mut world = World::new(&["anna", "bert"]);
    let mut dice = Dice(3);
    // Intervals of an hour: each is a slice, and an hour.
    for _ in 0..(KEPT_DAYS + 3) * 24 {
        archive
            .take(&world.interval(HOUR, dice.traffic(2)))
            .unwrap();
    }
    let series = archive
        .series(&question("anna", THEN / DAY * DAY, world.now.unix_ns, DAY))
        .unwrap();
    let oldest = series.oldest_unix_ns.unwrap();
    let days = (world.now.unix_ns - oldest) / DAY;
    assert!((KEPT_DAYS..=KEPT_DAYS + 1).contains(&days), "{days} days");
    let kept: Vec<_> = world
        .raw
        .iter()
        .filter(|raw| raw.unix_ns >= oldest)
        .cloned()
        .collect();
    let since = (oldest / DAY + 1) * DAY;
    let until = (world.now.unix_ns / DAY + 1) * DAY;
    let series = archive
        .series(&question("anna", since, until, DAY))
        .unwrap();
    expect(&series, &kept, "days");
}

#[test]
fn a_large_file_loses_its_oldest_days() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("history.db");
    let mut archive = Archive::open(&path).unwrap();
    let names: Vec<String> = (0..40).map(|at| format!("class{at}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut world = World::new(&names);
    let mut dice = Dice(4);
    let max_bytes = 1 << 20;
    archive.set_max_bytes(max_bytes);
    for _ in 0..8 * 24 * 4 {
        archive
            .take(&world.interval(15 * MINUTE, dice.traffic(40)))
            .unwrap();
        assert!(archive.counters().bytes <= max_bytes);
    }
    assert!(archive.counters().segments_dropped > 0);
    let on_disk = fs::metadata(&path).unwrap().len();
    assert!(on_disk <= 2 * max_bytes, "{on_disk}");
    let series = archive
        .series(&question(
            "class7",
            THEN / DAY * DAY,
            world.now.unix_ns,
            HOUR,
        ))
        .unwrap();
    let oldest = series.oldest_unix_ns.unwrap();
    assert!(oldest > THEN && oldest < world.now.unix_ns - DAY);
    let kept: Vec<_> = world
        .raw
        .iter()
        .filter(|raw| raw.unix_ns >= oldest)
        .cloned()
        .collect();
    let (since, until) = (
        (oldest / DAY + 1) * DAY,
        (world.now.unix_ns / HOUR + 1) * HOUR,
    );
    let series = archive
        .series(&question("class7", since, until, HOUR))
        .unwrap();
    expect(&series, &kept, "under the cap");
}

#[test]
fn many_unused_rows_are_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("history.db");
    let mut archive = Archive::open(&path).unwrap();
    let mut world = World::new(&["anna"]);
    let mut dice = Dice(5);
    let used = |name: &str| read_series(&path, &question(name, THEN, THEN + DAY, HOUR));
    for day in 0..4 {
        let names: Vec<String> = (0..MAX_UNUSED_ROWS)
            .map(|at| format!("{day}-{at}"))
            .collect();
        let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
        names.insert(0, "anna");
        world.configure(&names);
        for _ in 0..25 {
            archive
                .take(&world.interval(HOUR, dice.traffic(2)))
                .unwrap();
        }
    }
    archive.flush().unwrap();
    // With counts, or configured.
    for name in ["anna", "0-0", "3-7"] {
        used(name).unwrap();
    }
    assert!(matches!(used("0-7"), Err(ArchiveError::NoRow { .. })));
    // The writer forgot it too, and gives another number when it returns.
    world.configure(&["0-7"]);
    archive
        .take(&world.interval(HOUR, dice.traffic(1)))
        .unwrap();
    archive.take(&world.interval(HOUR, Vec::new())).unwrap();
    archive.flush().unwrap();
    used("0-7").unwrap();
}

#[test]
fn other_files_are_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("history.db");
    fs::write(
        &path,
        "not a database, and longer than a header of a hundred bytes".repeat(9),
    )
    .unwrap();
    let before = fs::read(&path).unwrap();
    let refused = Archive::open(&path).unwrap_err();
    assert!(refused.is_corrupt(), "{refused}");
    assert_eq!(fs::read(&path).unwrap(), before);
    assert!(
        !Archive::open(&directory.path().join("missing/history.db"))
            .unwrap_err()
            .is_corrupt()
    );
    assert!(
        read_series(
            &directory.path().join("none.db"),
            &question("anna", 0, DAY, HOUR)
        )
        .is_err()
    );
}

#[test]
fn a_corrupted_block_hides_only_its_counts() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("history.db");
    let mut archive = Archive::open(&path).unwrap();
    let mut world = World::new(&["anna"]);
    let mut dice = Dice(6);
    for _ in 0..1_000 {
        archive
            .take(&world.interval(10 * SECOND, dice.traffic(1)))
            .unwrap();
    }
    drop(archive);
    // The log is in the file now. Corruption in the middle of blocks, not of the engine's pages.
    let engine = rusqlite::Connection::open(&path).unwrap();
    engine
        .execute(
            "update slice_block set block = substr(block, 1, 9) where slice % 3 = 0",
            [],
        )
        .unwrap();
    drop(engine);
    let mut archive = Archive::open(&path).unwrap();
    let query = question("anna", THEN / HOUR * HOUR, THEN + 9 * HOUR, 10 * SECOND);
    let series = archive.series(&query).unwrap();
    assert!(
        series.corrupted > 100 && series.points.len() > 300,
        "{series:?}"
    );
    // The next hour is completed without them.
    for _ in 0..400 {
        archive
            .take(&world.interval(10 * SECOND, dice.traffic(1)))
            .unwrap();
    }
    assert!(archive.counters().blocks_corrupted > 0);
    assert_eq!(archive.counters().writes_failed, 0);
}
