//! The levels: slices become hours, hours become days, the oldest are removed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use fairpath_history::history::{Counts, Effort, RowName, decode, encode};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Transaction, params};

use crate::{ArchiveError, MEASURED, Slice, file};

/// Measured time of an hour, nanoseconds.
pub const HOUR_NS: u64 = 3_600_000_000_000;
/// Measured time of a day, nanoseconds.
pub const DAY_NS: u64 = 24 * HOUR_NS;
/// Number of days that are kept.
pub const KEPT_DAYS: u64 = 90;
/// Step of an hour, nanoseconds.
pub const MINUTE_NS: u64 = 60_000_000_000;
/// Step of a day, nanoseconds.
pub const FIVE_MINUTES_NS: u64 = 5 * MINUTE_NS;
/// Levels of segments.
pub const HOUR: i64 = 1;
/// See [`HOUR`].
pub const DAY: i64 = 2;
/// Free bytes above which pages are returned to the file system.
const MAX_FREE_BYTES: u64 = 64 << 20;

/// The result of [`write`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Written {
    /// Segments and slices that were removed because the file was too large.
    pub dropped: u64,
    /// Blocks that were corrupted, and are missing in hours and days.
    pub corrupted: u64,
    /// A day was completed.
    pub day: bool,
}

/// Writes rows and slices, and completes hours and days.
pub fn write(
    file: &mut Connection,
    rows: &[(u64, RowName)],
    slices: &VecDeque<Slice>,
    max_bytes: u64,
) -> Result<Written, ArchiveError> {
    let mut written = Written::default();
    let transaction = file.transaction()?;
    add_rows(&transaction, rows)?;
    for slice in slices {
        add_slice(&transaction, slice)?;
        let open = "select coalesce(sum(measured_ns), 0) from slice where hour is null";
        if one(&transaction, open)? as u64 >= HOUR_NS {
            complete_hour(&transaction, &mut written)?;
        }
    }
    while file::used_bytes(&transaction)? > max_bytes && remove_oldest(&transaction)? {
        written.dropped += 1;
    }
    transaction.commit()?;
    if written.dropped > 0 {
        return_pages(file)?;
    }
    Ok(written)
}

fn one(file: &Connection, query: &str) -> Result<i64, ArchiveError> {
    Ok(file.prepare(query)?.query_row([], |row| row.get(0))?)
}

fn add_rows(file: &Transaction<'_>, rows: &[(u64, RowName)]) -> Result<(), ArchiveError> {
    let mut insert = file.prepare("insert into row (number, kind, name) values (?, ?, ?)")?;
    for (number, (kind, name)) in rows {
        insert.execute(params![*number as i64, file::word(*kind), name])?;
    }
    Ok(())
}

fn add_slice(file: &Transaction<'_>, slice: &Slice) -> Result<(), ArchiveError> {
    let slice_row = "insert into slice (id, begin_ns, end_ns, measured_ns) values (?, ?, ?, ?)";
    file.prepare(slice_row)?.execute(params![
        slice.id,
        slice.begin_ns as i64,
        slice.end_ns as i64,
        slice.measured_ns as i64
    ])?;
    let mut insert =
        file.prepare("insert into slice_block (slice, part, block) values (?, ?, ?)")?;
    for (part, block) in &slice.blocks {
        insert.execute(params![slice.id, *part as i64, block])?;
    }
    Ok(())
}

/// Sums by row and step.
type Sums = BTreeMap<u64, BTreeMap<u64, Counts>>;

/// The counts of a block. A corrupted one is counted, because nothing repairs it.
fn decoded(block: ValueRef<'_>, written: &mut Written) -> Vec<(u64, Counts)> {
    let block = block.as_blob().unwrap_or(&[]);
    decode(block, |_| true).unwrap_or_else(|_| {
        written.corrupted += 1;
        Vec::new()
    })
}

fn write_blocks(file: &Transaction<'_>, segment: i64, sums: Sums) -> Result<(), ArchiveError> {
    let mut insert = file.prepare("insert into block (segment, row, block) values (?, ?, ?)")?;
    for (row, steps) in sums {
        let steps: Vec<(u64, Counts)> = steps.into_iter().collect();
        insert.execute(params![segment, row as i64, encode(&steps, Effort::Small)])?;
    }
    Ok(())
}

/// Makes an hour of the slices since the last one. The slices of the hour before are removed.
fn complete_hour(file: &Transaction<'_>, written: &mut Written) -> Result<(), ArchiveError> {
    file.execute(
        "insert into segment (level, first_ns, last_ns, measured_ns)
         select ?, min(begin_ns), max(end_ns), sum(measured_ns) from slice where hour is null",
        [HOUR],
    )?;
    let hour = file.last_insert_rowid();
    let mut times = file.prepare("select begin_ns, measured_ns from slice where hour is null")?;
    let mut times = times.query([])?;
    let mut measured = Sums::new();
    let steps = measured.entry(MEASURED).or_default();
    while let Some(slice) = times.next()? {
        let step = slice.get::<_, i64>(0)? as u64 / MINUTE_NS;
        let time = Counts::measured(slice.get::<_, i64>(1)? as u64);
        steps.entry(step).or_default().add(&time);
    }
    write_blocks(file, hour, measured)?;
    // Part by part: memory is that of one part.
    for part in parts(file)? {
        let mut sums = Sums::new();
        let mut blocks = file.prepare(
            "select begin_ns, block from slice join slice_block on slice = id
             where hour is null and part = ? order by id",
        )?;
        let mut blocks = blocks.query([part])?;
        while let Some(found) = blocks.next()? {
            let step = found.get::<_, i64>(0)? as u64 / MINUTE_NS;
            for (row, counts) in decoded(found.get_ref(1)?, written) {
                sums.entry(row)
                    .or_default()
                    .entry(step)
                    .or_default()
                    .add(&counts);
            }
        }
        write_blocks(file, hour, sums)?;
    }
    file.execute(
        "delete from slice_block where slice in (select id from slice where hour is not null)",
        [],
    )?;
    file.execute("delete from slice where hour is not null", [])?;
    file.execute("update slice set hour = ?", [hour])?;
    let open = "select coalesce(sum(measured_ns), 0) from segment where level = 1 and day is null";
    match one(file, open)? as u64 >= DAY_NS {
        true => complete_day(file, written),
        false => Ok(()),
    }
}

fn parts(file: &Connection) -> Result<Vec<i64>, ArchiveError> {
    let mut parts = file.prepare(
        "select distinct part from slice join slice_block on slice = id where hour is null order by part",
    )?;
    let parts = parts.query_map([], |row| row.get(0))?;
    Ok(parts.collect::<Result<_, _>>()?)
}

/// Makes a day of the hours since the last one. The hours of the day before are removed.
fn complete_day(file: &Transaction<'_>, written: &mut Written) -> Result<(), ArchiveError> {
    written.day = true;
    let hours = ids(
        file,
        "select id from segment where level = 1 and day is null order by id",
    )?;
    file.execute(
        "insert into segment (level, first_ns, last_ns, measured_ns)
         select ?, min(first_ns), max(last_ns), sum(measured_ns) from segment where level = 1 and day is null",
        [DAY],
    )?;
    let day = file.last_insert_rowid();
    let mut rows = BTreeSet::new();
    for hour in &hours {
        let mut of_hour = file.prepare("select row from block where segment = ?")?;
        let found = of_hour.query_map([hour], |row| row.get::<_, i64>(0))?;
        rows.extend(found.collect::<Result<Vec<_>, _>>()?);
    }
    for row in rows {
        let mut sums = Sums::new();
        let steps = sums.entry(row as u64).or_default();
        for hour in &hours {
            let mut block =
                file.prepare("select block from block where segment = ? and row = ?")?;
            let mut block = block.query([*hour, row])?;
            let Some(found) = block.next()? else {
                continue;
            };
            for (minute, counts) in decoded(found.get_ref(0)?, written) {
                let step = minute * MINUTE_NS / FIVE_MINUTES_NS;
                steps.entry(step).or_default().add(&counts);
            }
        }
        write_blocks(file, day, sums)?;
    }
    for hour in ids(
        file,
        "select id from segment where level = 1 and day is not null",
    )? {
        remove(file, hour)?;
    }
    file.execute("update segment set day = ? where level = 1", [day])?;
    let old = format!(
        "select id from segment where level = 2 order by id desc limit -1 offset {KEPT_DAYS}"
    );
    for day in ids(file, &old)? {
        remove(file, day)?;
    }
    Ok(())
}

/// Rows numbered below `below` without counts.
pub fn unused_rows(file: &Connection, below: u64) -> Result<Vec<u64>, ArchiveError> {
    let mut rows = file.prepare(
        "select number from row where number < ? and number not in (select row from block)",
    )?;
    let rows = rows.query_map([below as i64], |row| row.get::<_, i64>(0))?;
    Ok(rows
        .map(|row| row.map(|row| row as u64))
        .collect::<Result<_, _>>()?)
}

/// Removes names of rows.
pub fn remove_rows(file: &mut Connection, rows: &[u64]) -> Result<(), ArchiveError> {
    let transaction = file.transaction()?;
    for row in rows {
        transaction.execute("delete from row where number = ?", [*row as i64])?;
    }
    Ok(transaction.commit()?)
}

fn ids(file: &Connection, query: &str) -> Result<Vec<i64>, ArchiveError> {
    let mut ids = file.prepare(query)?;
    let ids = ids.query_map([], |row| row.get(0))?;
    Ok(ids.collect::<Result<_, _>>()?)
}

fn remove(file: &Connection, segment: i64) -> Result<(), ArchiveError> {
    file.execute("delete from block where segment = ?", [segment])?;
    file.execute("delete from segment where id = ?", [segment])?;
    Ok(())
}

/// Removes the oldest day, else the oldest hour, else the oldest slice. False if there is only one slice.
fn remove_oldest(file: &Connection) -> Result<bool, ArchiveError> {
    if let [day] = ids(
        file,
        "select id from segment where level = 2 order by id limit 1",
    )?[..]
    {
        remove(file, day)?;
        for hour in ids(
            file,
            &format!("select id from segment where level = 1 and day = {day}"),
        )? {
            remove(file, hour)?;
        }
        return Ok(true);
    }
    if let [hour] = ids(file, "select id from segment order by id limit 1")?[..] {
        remove(file, hour)?;
        return Ok(true);
    }
    let [slice, _] = ids(file, "select id from slice order by id limit 2")?[..] else {
        return Ok(false);
    };
    file.execute("delete from slice_block where slice = ?", [slice])?;
    file.execute("delete from slice where id = ?", [slice])?;
    Ok(true)
}

/// Returns free pages to the file system, if there are many.
fn return_pages(file: &Connection) -> Result<(), ArchiveError> {
    let number = |pragma| file.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    let free = (number("freelist_count")? * number("page_size")?) as u64;
    if free > MAX_FREE_BYTES {
        file.execute_batch("pragma incremental_vacuum")?;
    }
    Ok(())
}
