//! A thousand runs on disk: read, reported, written.

use std::fs;
use std::path::Path;
use std::time::Instant;

use fairpath_analysis::record::RunRecord;
use fairpath_analysis::results;
use fairpath_analysis::{compare, page};

use crate::synthetic::{self, store};

/// The maximum size of a page of a thousand runs; a phone opens as much in a second.
const MAX_PAGE_BYTES: u64 = 4 << 20;

/// Numbers may differ in the last bit, since JSON is decimal.
fn is_same(read: &RunRecord, made: &RunRecord) -> bool {
    let off = read.flows[0].goodput_bps / made.flows[0].goodput_bps - 1.0;
    let windows = |run: &RunRecord| {
        run.flows[0]
            .samples
            .iter()
            .map(|s| s.cwnd)
            .collect::<Vec<u32>>()
    };
    read.place == made.place
        && read.setting == made.setting
        && off.abs() < 1e-12
        && windows(read) == windows(made)
}

#[test]
fn a_thousand_stored_runs_make_one_page() {
    let losses: Vec<String> = (0..25)
        .map(|i| format!("{}%", f64::from(i) * 0.4))
        .collect();
    let losses: Vec<&str> = losses.iter().map(String::as_str).collect();
    let made = synthetic::ripe88(&losses, 10);
    assert!(made.runs.len() >= 1000);
    let dir = tempfile::tempdir().unwrap();
    store(&made, dir.path());

    let began = Instant::now();
    let read = results::read(dir.path()).unwrap();
    let reading = began.elapsed();
    assert!(read.unreadable.is_empty() && read.manifest == made.manifest);
    let same = read
        .runs
        .iter()
        .zip(&made.runs)
        .filter(|(read, made)| is_same(read, made));
    assert_eq!(same.count(), made.runs.len());

    let began = Instant::now();
    let index = page::write(&read, dir.path()).unwrap();
    let writing = began.elapsed();
    let size = fs::metadata(&index).unwrap().len();
    println!(
        "{} runs: read in {reading:?}, page in {writing:?}, {size} bytes",
        read.runs.len()
    );
    assert!(size < MAX_PAGE_BYTES, "{size} bytes");
}

/// Leaves pages among the temporary files of `cargo test`, for inspection.
#[test]
fn every_kind_of_experiment_has_its_files() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lab-pages");
    for made in [
        synthetic::ripe88(&["0%", "1%", "10%"], 3),
        synthetic::fairness(3),
        synthetic::voice(3),
    ] {
        let dir = dir.join(&made.manifest.experiment);
        let index = page::write(&made, &dir).unwrap();
        assert!(
            fs::read_to_string(&index)
                .unwrap()
                .contains(&made.manifest.title)
        );
        let csv = fs::read_dir(dir.join("data")).unwrap().count();
        assert!(csv > made.manifest.figures.len(), "{csv} CSV files");
        assert!(dir.join("report.md").exists() && dir.join("report.json").exists());
        println!("{}", index.display());
    }
}

#[test]
fn two_directories_of_one_experiment_are_compared() {
    let first = synthetic::ripe88(&["0%", "1%"], 5);
    let mut second = first.clone();
    for run in &mut second.runs {
        if run.setting["loss"] == "1%" && run.setting["cc"] == "cubic" {
            run.flows[0].goodput_bps *= 1.5;
        }
    }
    let comparison = compare::compare(&first, &second).unwrap();
    let text = compare::text(&comparison, "before", "after");
    assert!(text.contains("symmetric, cubic, packets lost 1%"), "{text}");
    let differing = comparison
        .rows
        .iter()
        .filter(|row| row.quantity == "goodput" && row.is_shown());
    assert_eq!(differing.count(), 2, "{text}");
}
