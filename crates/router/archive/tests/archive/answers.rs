//! Answers equal a recomputation from the raw samples.

use fairpath_archive::{Archive, ArchiveError, read_series};

use crate::world::{DAY, Dice, HOUR, MINUTE, SECOND, THEN, World, expect, question};

const NAMES: [&str; 4] = ["anna", "bert", "site", "silent"];

/// Compares all names over times of all levels.
fn compare(archive: &Archive, world: &World, what: &str) {
    let now = world.now.unix_ns;
    for name in NAMES {
        for (time, step) in [
            (3 * MINUTE, SECOND),
            (HOUR / 2, 10 * SECOND),
            (HOUR / 2, 30 * SECOND),
            (20 * HOUR, MINUTE),
            (20 * HOUR, 15 * MINUTE),
            (40 * HOUR, 5 * MINUTE),
            (9 * DAY, 6 * HOUR),
        ] {
            // A part of a kept step is answered by the whole step.
            let whole = step.max(5 * MINUTE);
            let since = (now.saturating_sub(time)).max(THEN) / whole * whole;
            let until = now.div_ceil(step) * step;
            let series = archive.series(&question(name, since, until, step)).unwrap();
            expect(
                &series,
                &world.raw,
                &format!("{what}, steps of {} s", step / SECOND),
            );
        }
    }
}

#[test]
fn answers_equal_a_recomputation() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("history.db");
    let mut archive = Archive::open(&path).unwrap();
    let mut world = World::new(&NAMES[..3]);
    let mut dice = Dice(16);
    // Seconds, at first and after longer intervals.
    let lengths = [
        (700, SECOND),
        (4_400, 30 * SECOND),
        (800, 10 * SECOND),
        (700, SECOND),
    ];
    for (count, length) in lengths {
        for _ in 0..count {
            let traffic = dice.traffic(3);
            let traffic = if dice.below(50) == 0 {
                Vec::new()
            } else {
                traffic
            };
            archive.take(&world.interval(length, traffic)).unwrap();
        }
        // `silent` has a row, and no traffic.
        world.configure(&NAMES);
        archive.take(&world.interval(length, Vec::new())).unwrap();
        compare(&archive, &world, "open");
        archive.flush().unwrap();
        drop(archive);
        archive = Archive::open(&path).unwrap();
    }
    // More than a day has passed: all levels are used.
    assert!(world.now.unix_ns > THEN + 36 * HOUR);
    compare(&archive, &world, "opened again");
    let (since, until) = (THEN / DAY * DAY, world.now.unix_ns / HOUR * HOUR + HOUR);
    let query = question("anna", since, until, HOUR);
    let by_reader = read_series(&path, &query).unwrap();
    assert_eq!(by_reader, archive.series(&query).unwrap());
    expect(&by_reader, &world.raw, "another process");
}

#[test]
fn a_set_clock_moves_only_its_steps() {
    let directory = tempfile::tempdir().unwrap();
    let mut archive = Archive::open(&directory.path().join("history.db")).unwrap();
    let mut world = World::new(&NAMES[..3]);
    let mut dice = Dice(17);
    // Without a clock at first, then right, an hour back, far ahead, and right again.
    let right = THEN;
    for unix_ns in [
        3 * SECOND,
        right,
        right - HOUR,
        4_000_000_000 * SECOND,
        right + HOUR,
    ] {
        world.now.unix_ns = unix_ns;
        for _ in 0..3_000 {
            archive
                .take(&world.interval(2 * SECOND, dice.traffic(2)))
                .unwrap();
        }
    }
    for (since, until) in [
        (0, DAY),
        (right - 2 * HOUR, right + 10 * HOUR),
        (4_000_000_000 * SECOND, 4_000_000_000 * SECOND + DAY),
    ] {
        for step in [MINUTE, 5 * MINUTE, HOUR] {
            let query = question("anna", since / HOUR * HOUR, until / HOUR * HOUR, step);
            let series = archive.series(&query).unwrap();
            assert!(!series.points.is_empty());
            expect(&series, &world.raw, &format!("since {}", since / SECOND));
        }
    }
    // A clock that jitters between two steps makes many slices, and loses none.
    for at in 0..2_000 {
        world.now.unix_ns = right + 30 * HOUR + at % 2 * 10 * SECOND;
        archive
            .take(&world.interval(SECOND, dice.traffic(2)))
            .unwrap();
    }
    let series = archive
        .series(&question(
            "bert",
            right + 29 * HOUR,
            right + 31 * HOUR,
            10 * SECOND,
        ))
        .unwrap();
    expect(&series, &world.raw, "a clock that jitters");
}

#[test]
fn stops_are_named_and_idle_steps_omitted() {
    let directory = tempfile::tempdir().unwrap();
    let mut archive = Archive::open(&directory.path().join("history.db")).unwrap();
    let mut world = World::new(&["anna"]);
    let busy = |dice: &mut Dice| vec![(0, dice.traffic(9).pop().unwrap().1)];
    let mut dice = Dice(18);
    world.now.unix_ns = 1_800_000_000 * SECOND;
    let begin = world.now.unix_ns;
    for _ in 0..30 {
        archive
            .take(&world.interval(SECOND, busy(&mut dice)))
            .unwrap();
    }
    for _ in 0..60 {
        archive.take(&world.interval(SECOND, Vec::new())).unwrap();
    }
    // Ten minutes without the daemon.
    world.now.unix_ns += 600 * SECOND;
    for _ in 0..30 {
        archive
            .take(&world.interval(SECOND, busy(&mut dice)))
            .unwrap();
    }
    let end = world.now.unix_ns;
    let series = archive
        .series(&question("anna", begin - 3600 * SECOND, end, 10 * SECOND))
        .unwrap();
    let at = |point: &fairpath_history::series::SeriesPoint| (point.unix_ns - begin) / SECOND;
    assert_eq!(
        series.points.iter().map(at).collect::<Vec<_>>(),
        [0, 10, 20, 690, 700, 710]
    );
    let stops: Vec<_> = series
        .unmeasured
        .iter()
        .map(|span| [span.since_unix_ns, span.until_unix_ns].map(|ns| (ns - begin) / SECOND))
        .collect();
    assert_eq!(stops, [[90, 690]]);
    assert_eq!(series.oldest_unix_ns, Some(begin));
}

#[test]
fn unknown_names_have_a_suggestion() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("history.db");
    let mut archive = Archive::open(&path).unwrap();
    let mut world = World::new(&["anna", "bert"]);
    archive.take(&world.interval(SECOND, Vec::new())).unwrap();
    archive.flush().unwrap();
    let query = question("ana", THEN, THEN + HOUR, MINUTE);
    let refused = archive.series(&query).unwrap_err();
    assert!(
        matches!(&refused, ArchiveError::NoRow { near: Some(near), .. } if near == "anna"),
        "{refused}"
    );
    let query = question("bert", THEN, THEN + HOUR, MINUTE);
    assert_eq!(read_series(&path, &query).unwrap().points, []);
}
