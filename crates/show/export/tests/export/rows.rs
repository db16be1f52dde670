//! Rows in files, also after rotation, crashes and full disks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use fairpath_export::{JsonLines, ParquetOptions, ParquetWriter, RowsWanted};
use fairpath_history::histogram::bucket_middle;
use fairpath_history::snapshot::Kind;
use fairpath_history::{Histogram, IntervalRow};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigHandler, Signal, signal};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use serde_json::{Value, json};

use crate::made::ODD;

const SECOND: u64 = 1_000_000_000;
const START: u64 = 1_762_171_200 * SECOND;

/// Rows of one interval: one with all values, one without RTT samples, one without traffic.
fn interval(at: u64) -> Vec<IntervalRow> {
    let unix_ns = START + at * SECOND;
    let empty = IntervalRow {
        unix_ns,
        interval_ns: SECOND,
        name: "idle".to_owned(),
        ..IntervalRow::default()
    };
    let unmeasured = IntervalRow {
        name: "eth1".to_owned(),
        kind: Kind::Interface,
        packets_down: 7,
        bytes_down: 4200,
        ..empty.clone()
    };
    vec![full(unix_ns, at), unmeasured, empty]
}

/// A row with a different number in every field, built from its JSON so that no field is missing.
fn full(unix_ns: u64, at: u64) -> IntervalRow {
    let row = IntervalRow {
        parent: Some("Site".to_owned()),
        ..IntervalRow::default()
    };
    let Value::Object(mut fields) = serde_json::to_value(&row).unwrap() else {
        unreachable!()
    };
    for (number, (_, value)) in fields.iter_mut().enumerate() {
        if value.is_number() || value.is_null() {
            *value = json!(1000 * at + number as u64);
        }
    }
    fields["name"] = json!(ODD);
    fields["unix_ns"] = json!(unix_ns);
    fields["interval_ns"] = json!(SECOND);
    let row: IntervalRow = serde_json::from_value(Value::Object(fields)).unwrap();
    let mut histograms = <[Histogram; 2]>::default();
    for bucket in 0..at % 5 {
        histograms[0].add((at % 300 + bucket * bucket) as u16, at + 1);
        histograms[1].add((at % 200 + bucket) as u16, bucket + 1);
    }
    let [inside_histogram, outside_histogram] = histograms;
    IntervalRow {
        inside_histogram,
        outside_histogram,
        ..row
    }
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.ends_with('\n'));
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn a_line_has_the_time_and_every_field() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rows.jsonl");
    let mut rows = JsonLines::open(&path, RowsWanted::All).unwrap();
    assert_eq!(rows.write(&interval(3)).unwrap(), 3);
    let read = lines(&path);
    assert_eq!(read[0]["time"], "2025-11-03T12:00:03Z");
    for (line, row) in read.iter().zip(interval(3)) {
        assert_eq!(
            serde_json::from_value::<IntervalRow>(line.clone()).unwrap(),
            IntervalRow {
                // Lines have no distributions.
                inside_histogram: Histogram::default(),
                outside_histogram: Histogram::default(),
                ..row
            }
        );
    }
    assert_eq!(
        read[1]["inside_p95_rtt_ns"],
        Value::Null,
        "a value that was not measured is null"
    );
}

#[test]
fn rows_of_idle_classes_are_excluded_by_default() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rows.jsonl");
    let mut rows = JsonLines::open(&path, RowsWanted::Active).unwrap();
    assert_eq!(rows.write(&interval(0)).unwrap(), 2);
    assert!(lines(&path).iter().all(|line| line["name"] != "idle"));
    assert_eq!("all".parse(), Ok(RowsWanted::All));
    assert!("some".parse::<RowsWanted>().is_err());
}

#[test]
fn rotation_continues_in_a_new_file_when_reopened() {
    let dir = tempfile::tempdir().unwrap();
    let (path, old) = (
        dir.path().join("rows.jsonl"),
        dir.path().join("rows.jsonl.1"),
    );
    let mut rows = JsonLines::open(&path, RowsWanted::All).unwrap();
    rows.write(&interval(0)).unwrap();
    fs::rename(&path, &old).unwrap();
    rows.write(&interval(1)).unwrap();
    assert_eq!(
        lines(&old).len(),
        6,
        "rows go to the old file until reopened"
    );
    rows.reopen().unwrap();
    rows.write(&interval(2)).unwrap();
    assert_eq!((lines(&old).len(), lines(&path).len()), (6, 3));
}

#[test]
fn a_partial_line_does_not_corrupt_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rows.jsonl");
    fs::write(&path, "{\"time\":\"2025").unwrap();
    JsonLines::open(&path, RowsWanted::All)
        .unwrap()
        .write(&interval(0))
        .unwrap();
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().count(), 4);
    assert!(
        text.lines()
            .skip(1)
            .all(|line| serde_json::from_str::<Value>(line).is_ok())
    );
}

#[test]
fn a_full_disk_counts_lost_rows() {
    let mut rows = JsonLines::open(Path::new("/dev/full"), RowsWanted::All).unwrap();
    let error = rows.write(&interval(0)).unwrap_err();
    assert!(
        error.to_string().contains("/dev/full") && error.to_string().contains("free disk space")
    );
    assert_eq!(rows.lost_rows(), 3);
}

fn names(dir: &Path) -> Vec<String> {
    let name = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| name(entry.unwrap()))
        .collect();
    names.sort();
    names
}

/// The rows of a Parquet file as JSON, the timestamp as microseconds.
fn read(path: &Path) -> Vec<BTreeMap<String, Value>> {
    let file = SerializedFileReader::new(fs::File::open(path).unwrap()).unwrap();
    let rows = file.get_row_iter(None).unwrap();
    rows.map(|row| {
        row.unwrap()
            .get_column_iter()
            .map(|(name, field)| (name.clone(), value_of(field)))
            .collect()
    })
    .collect()
}

fn value_of(field: &Field) -> Value {
    match field {
        Field::Null => Value::Null,
        Field::Long(number) | Field::TimestampMicros(number) => json!(number),
        Field::Str(text) => json!(text),
        Field::ListInternal(list) => list.elements().iter().map(value_of).collect(),
        other => panic!("{other:?}"),
    }
}

fn options() -> ParquetOptions {
    ParquetOptions {
        wanted: RowsWanted::All,
        step_ns: SECOND,
        ..ParquetOptions::default()
    }
}

#[test]
fn a_directory_that_cannot_be_created_is_named() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("rows");
    let mut writer = ParquetWriter::open(&dir, options()).unwrap();
    // A file is in the place of the directory.
    fs::remove_dir_all(&dir).unwrap();
    fs::write(&dir, "").unwrap();
    let text = writer.write(interval(1)).unwrap_err().to_string();
    assert!(text.contains(dir.to_str().unwrap()), "{text}");
    assert!(text.contains("check that its directory exists"), "{text}");
    assert_eq!(writer.lost_rows(), 3);
}

#[test]
fn parquet_reads_back_every_field_of_every_row() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = ParquetWriter::open(dir.path(), options()).unwrap();
    let wanted: Vec<IntervalRow> = (0..6000).flat_map(interval).collect();
    for rows in wanted.chunks(3) {
        if let Some(path) = writer.write(rows.to_vec()).unwrap() {
            assert_eq!(path, dir.path().join("fairpath-20251103T120000Z.parquet"));
        }
    }
    writer.finish().unwrap().unwrap();
    assert_eq!(
        names(dir.path()),
        [
            "fairpath-20251103T120000Z.parquet",
            "fairpath-20251103T130000Z.parquet"
        ]
    );
    let read: Vec<_> = names(dir.path())
        .iter()
        .flat_map(|name| read(&dir.path().join(name)))
        .collect();
    assert_eq!(read.len(), wanted.len());
    for (row, wanted) in read.into_iter().zip(&wanted) {
        let Value::Object(fields) = serde_json::to_value(wanted).unwrap() else {
            unreachable!()
        };
        let mut fields: BTreeMap<String, Value> = fields.into_iter().collect();
        fields.insert("time".to_owned(), json!(wanted.unix_ns / 1000));
        let list = |at: usize, histogram: &Histogram| -> Value {
            let value = |(bucket, count)| [bucket_middle(bucket), count][at];
            histogram.buckets().map(value).collect()
        };
        for (leg, histogram) in [
            ("inside", &wanted.inside_histogram),
            ("outside", &wanted.outside_histogram),
        ] {
            fields.insert(format!("{leg}_bucket_rtt_ns"), list(0, histogram));
            fields.insert(format!("{leg}_bucket_samples"), list(1, histogram));
        }
        assert_eq!(row, fields);
    }
}

#[test]
fn the_schema_matches_the_documentation() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = ParquetWriter::open(dir.path(), options()).unwrap();
    writer.write(interval(0)).unwrap();
    let path = writer.finish().unwrap().unwrap();
    let columns: BTreeSet<String> = read(&path)[0].keys().cloned().collect();
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../docs/export.md");
    let page = fs::read_to_string(page).unwrap();
    let documented: BTreeSet<String> = page
        .lines()
        .skip_while(|line| *line != "### Columns")
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .map(str::to_owned)
        .collect();
    assert_eq!(columns, documented);
}

/// The journal of three intervals, as a crash leaves it.
fn crashed(dir: &Path) -> PathBuf {
    let mut writer = ParquetWriter::open(dir, options()).unwrap();
    (0..3).for_each(|at| drop(writer.write(interval(at)).unwrap()));
    // Nothing is completed.
    std::mem::forget(writer);
    dir.join("fairpath-20251103T120000Z.parquet.journal")
}

#[test]
fn files_of_a_crash_are_completed() {
    let dir = tempfile::tempdir().unwrap();
    let journal = crashed(dir.path());
    fs::write(dir.path().join("notes.parquet.journal"), "not ours").unwrap();
    // As of a crash while the file was made.
    fs::write(
        dir.path().join("fairpath-20251103T120000Z.parquet.part"),
        "PAR1",
    )
    .unwrap();
    let mut writer = ParquetWriter::open(dir.path(), options()).unwrap();
    let expected = ["fairpath-20251103T120000Z.parquet", "notes.parquet.journal"];
    assert_eq!((writer.recover(), writer.lost_rows()), (1, 0));
    assert_eq!(names(dir.path()), expected);
    assert_eq!(read(&dir.path().join(expected[0])).len(), 9);
    assert!(!journal.exists());
}

#[test]
fn another_writer_leaves_the_open_file_alone() {
    // A reload opens the next writer before it ends the present one.
    let dir = tempfile::tempdir().unwrap();
    let mut present = ParquetWriter::open(dir.path(), options()).unwrap();
    present.write(interval(0)).unwrap();
    let mut next = ParquetWriter::open(dir.path(), options()).unwrap();
    present.write(interval(1)).unwrap();
    let path = present.finish().unwrap().unwrap();
    assert_eq!((next.recover(), present.lost_rows()), (0, 0));
    assert_eq!(read(&path).len(), 6);
    next.write(interval(2)).unwrap();
    assert_eq!(read(&next.finish().unwrap().unwrap()).len(), 3);
}

#[test]
fn a_cut_journal_has_its_complete_steps() {
    let dir = tempfile::tempdir().unwrap();
    let whole = fs::read(crashed(dir.path())).unwrap();
    let file = dir.path().join("fairpath-20251103T120000Z.parquet");
    let journal = dir.path().join("fairpath-20251103T120000Z.parquet.journal");
    let mut counts = BTreeSet::new();
    // Every kill ends the journal somewhere.
    for length in (0..whole.len()).step_by(7).chain([whole.len()]) {
        fs::write(&journal, &whole[..length]).unwrap();
        let mut writer = ParquetWriter::open(dir.path(), options()).unwrap();
        assert_eq!(writer.recover(), 1);
        let rows = read(&file).len();
        assert_eq!(rows % 3, 0, "whole steps of {length} bytes");
        assert!(rows as u64 + writer.lost_rows() <= 9);
        counts.insert(rows);
        fs::remove_file(&file).unwrap();
    }
    assert_eq!(counts.into_iter().collect::<Vec<_>>(), [0, 3, 6, 9]);
    // Another content is kept under another name.
    fs::write(&journal, "another content").unwrap();
    let mut writer = ParquetWriter::open(dir.path(), options()).unwrap();
    assert_eq!(writer.recover(), 0);
    assert_eq!(
        names(dir.path()),
        ["fairpath-20251103T120000Z.parquet.journal.refused"]
    );
}

#[test]
fn rows_are_added_up_to_steps() {
    let dir = tempfile::tempdir().unwrap();
    let options = ParquetOptions {
        step_ns: 60 * SECOND,
        ..options()
    };
    let mut writer = ParquetWriter::open(dir.path(), options).unwrap();
    (30..150).for_each(|at| drop(writer.write(interval(at)).unwrap()));
    let read = read(&writer.finish().unwrap().unwrap());
    let of_interface: Vec<_> = read.iter().filter(|row| row["name"] == "eth1").collect();
    let brief = |key: &str| {
        of_interface
            .iter()
            .map(|row| row[key].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(brief("bytes_down"), [30 * 4200, 60 * 4200, 30 * 4200]);
    assert_eq!(
        brief("interval_ns"),
        [30, 60, 30].map(|seconds| seconds * SECOND)
    );
    let begins = [0, 60, 120].map(|seconds| START + seconds * SECOND);
    assert_eq!(brief("unix_ns"), begins);
}

#[test]
fn the_oldest_files_go_above_the_size() {
    let dir = tempfile::tempdir().unwrap();
    let write = |max_bytes: u64| {
        let options = ParquetOptions {
            rotate_ns: 10 * SECOND,
            max_bytes,
            ..options()
        };
        let mut writer = ParquetWriter::open(dir.path(), options).unwrap();
        (0..60).for_each(|at| drop(writer.write(interval(at)).unwrap()));
        writer.finish().unwrap();
        writer.take_removed()
    };
    assert_eq!(write(u64::MAX), 0);
    let all = names(dir.path());
    let size: u64 = all
        .iter()
        .map(|name| fs::metadata(dir.path().join(name)).unwrap().len())
        .sum();
    assert_eq!(all.len(), 6);
    fs::write(dir.path().join("aaa.parquet"), vec![0; 1 << 20]).unwrap();
    assert!(write(size / 2) > 0);
    let left = names(dir.path());
    assert!(
        left.contains(&"aaa.parquet".to_owned()),
        "files of others stay: {left:?}"
    );
    assert!((2..=4).contains(&left.len()), "{left:?}");
    // The newest stays, however large.
    write(1);
    assert_eq!(names(dir.path()).len(), 2);
}

const FULL: &str = "FAIRPATH_TEST_FULL_DISK";

#[test]
fn a_full_disk_loses_only_what_is_counted() {
    if let Some(dir) = std::env::var_os(FULL) {
        return fill(Path::new(&dir));
    }
    // The limit of sizes is that of a process.
    let dir = tempfile::tempdir().unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "rows::a_full_disk_loses_only_what_is_counted"])
        .env(FULL, dir.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout);
    assert!(
        child.status.success() && text.contains("1 passed"),
        "{text}"
    );
    // The next start completes what could not be completed.
    let mut writer = ParquetWriter::open(dir.path(), options()).unwrap();
    assert_eq!(writer.recover(), 1);
    let read = read(&dir.path().join("fairpath-20251103T120000Z.parquet"));
    let begins: BTreeSet<u64> = read
        .iter()
        .map(|row| row["unix_ns"].as_u64().unwrap())
        .collect();
    assert!(begins.into_iter().eq([START, START + 2 * SECOND]));
}

fn fill(dir: &Path) {
    let mut writer = ParquetWriter::open(dir, options()).unwrap();
    writer.write(interval(0)).unwrap();
    let journal = dir.join("fairpath-20251103T120000Z.parquet.journal");
    let size = fs::metadata(&journal).unwrap().len();
    let limit = |bytes: u64| setrlimit(Resource::RLIMIT_FSIZE, bytes, u64::MAX >> 1).unwrap();
    // SAFETY: ignoring a signal needs no handler.
    unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) }.unwrap();
    // The journal cannot grow: a step is lost, and nothing else.
    limit(size + 10);
    writer.write(interval(1)).unwrap_err();
    assert_eq!(writer.lost_rows(), 3);
    assert_eq!(fs::metadata(&journal).unwrap().len(), size);
    limit(u64::MAX >> 1);
    writer.write(interval(2)).unwrap();
    // The file cannot be written: its journal stays.
    limit(20);
    writer.finish().unwrap_err();
    assert_eq!(writer.lost_rows(), 3);
    assert!(journal.exists());
}

#[test]
fn a_dropped_writer_completes_its_file() {
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        ParquetWriter::open(dir.path(), options())
            .unwrap()
            .write(interval(0))
            .unwrap();
    }
    assert_eq!(
        names(dir.path()),
        [
            "fairpath-20251103T120000Z-001.parquet",
            "fairpath-20251103T120000Z.parquet"
        ]
    );
    assert!(
        names(dir.path())
            .iter()
            .all(|name| read(&dir.path().join(name)).len() == 3)
    );
}

#[test]
fn only_the_newest_files_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let options = ParquetOptions {
        rotate_ns: 10 * SECOND,
        keep_files: 2,
        ..options()
    };
    let mut writer = ParquetWriter::open(dir.path(), options).unwrap();
    (0..40).for_each(|at| drop(writer.write(interval(at)).unwrap()));
    writer.finish().unwrap();
    assert_eq!(
        names(dir.path()),
        [
            "fairpath-20251103T120020Z.parquet",
            "fairpath-20251103T120030Z.parquet"
        ]
    );
}

#[test]
fn a_removed_directory_counts_lost_rows() {
    let dir = tempfile::tempdir().unwrap();
    let into = dir.path().join("rows");
    let options = ParquetOptions {
        rotate_ns: 10 * SECOND,
        ..options()
    };
    let mut writer = ParquetWriter::open(&into, options).unwrap();
    writer.write(interval(0)).unwrap();
    fs::remove_dir_all(&into).unwrap();
    assert!(writer.write(interval(20)).is_err());
    assert_eq!(writer.lost_rows(), 3, "rows of the file");
    writer.write(interval(30)).unwrap();
    writer.finish().unwrap();
    let written = ["20", "30"].map(|second| format!("fairpath-20251103T1200{second}Z.parquet"));
    assert_eq!(names(&into), written, "the directory is created again");
}
