//! Answers: the counts of a row from the levels that have the step, each time from one level.

use std::collections::BTreeMap;
use std::ops::Range;

use fairpath_history::history::{Counts, decode};
use fairpath_history::series::{SERIES_SCHEMA, Series, SeriesPoint, SeriesQuery, Span};
use fairpath_history::snapshot::Kind;
use rusqlite::{Connection, OptionalExtension, params};

use crate::levels::{DAY, FIVE_MINUTES_NS, MINUTE_NS};
use crate::{Archive, ArchiveError, MEASURED, PART_ROWS, SLICE_NS, file};

const SECOND_NS: u64 = 1_000_000_000;
/// Order in which a name without kind is searched.
const KINDS: [Kind; 4] = [Kind::Class, Kind::Interface, Kind::Subnet, Kind::Other];

/// Levels from the finest, by their steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Interval,
    Slice,
    Hour,
    Day,
}

impl Level {
    /// The coarsest whose steps fit into `step_ns`.
    fn of(step_ns: u64) -> Level {
        let fits = |native: u64| step_ns.is_multiple_of(native);
        match step_ns {
            _ if fits(FIVE_MINUTES_NS) => Level::Day,
            _ if fits(MINUTE_NS) => Level::Hour,
            _ if fits(SLICE_NS) => Level::Slice,
            _ => Level::Interval,
        }
    }
}

/// Sums by begin and length of a step.
#[derive(Debug, Default)]
struct Steps {
    step_ns: u64,
    time: Range<u64>,
    counts: BTreeMap<(u64, u64), Counts>,
    measured: BTreeMap<(u64, u64), u64>,
    corrupted: u64,
}

impl Steps {
    /// Adds the counts of a row over a kept step.
    fn add(&mut self, row: u64, begin_ns: u64, native_ns: u64, counts: &Counts) {
        let length = self.step_ns.max(native_ns);
        let begin = begin_ns / length * length;
        if begin >= self.time.end || begin.saturating_add(length) <= self.time.start {
            return;
        }
        match row {
            MEASURED => *self.measured.entry((begin, length)).or_default() += counts.measured_ns,
            _ => self.counts.entry((begin, length)).or_default().add(counts),
        }
    }

    /// Adds a row of a block of rows.
    fn add_row(&mut self, block: &[u8], row: u64, begin_ns: u64, native_ns: u64) {
        for (row, counts) in self.decoded(block, |key| key == row) {
            self.add(row, begin_ns, native_ns, &counts);
        }
    }

    /// Adds measured time.
    fn add_time(&mut self, measured_ns: u64, begin_ns: u64, native_ns: u64) {
        self.add(
            MEASURED,
            begin_ns,
            native_ns,
            &Counts::measured(measured_ns),
        );
    }

    /// The counts of a block. A corrupted one is counted: the others are still true.
    fn decoded(&mut self, block: &[u8], wanted: impl Fn(u64) -> bool) -> Vec<(u64, Counts)> {
        decode(block, wanted).unwrap_or_else(|_| {
            self.corrupted += 1;
            Vec::new()
        })
    }
}

/// The counts of a row, from the file and the memory of its writer.
pub fn series(
    file: &Connection,
    writer: Option<&Archive>,
    query: &SeriesQuery,
) -> Result<Series, ArchiveError> {
    let mut query = query.clone();
    // The engine's numbers are signed. This is the year 2262.
    query.until_unix_ns = query.until_unix_ns.min(i64::MAX as u64);
    let query = &query;
    // One view of the file, also while another process writes.
    let view = file.unchecked_transaction()?;
    let oldest = oldest(&view, writer)?;
    let mut kept = query.clone();
    // A step that is chosen fits the time that has counts.
    kept.since_unix_ns = query.since_unix_ns.max(
        oldest
            .unwrap_or(0)
            .min(query.until_unix_ns.saturating_sub(1)),
    );
    let step_ns = match query.step_ns {
        None if query.since_unix_ns < query.until_unix_ns => kept.step()?,
        _ => query.step()?,
    };
    let (kind, row) = find(file, writer, query)?;
    let level = Level::of(step_ns);
    let begin_ns = query.since_unix_ns / step_ns * step_ns;
    let mut steps = Steps {
        step_ns,
        time: begin_ns..query.until_unix_ns,
        ..Steps::default()
    };
    segments(&view, level, row, &mut steps)?;
    slices(&view, level, row, writer, &mut steps)?;
    if let Some(writer) = writer {
        memory(writer, level, row, &mut steps);
    }
    let mut total = Counts::default();
    let mut points = Vec::new();
    let measured_of = |key: &(u64, u64)| steps.measured.get(key).copied().unwrap_or(0);
    for (key, counts) in &steps.counts {
        total.add(counts);
        points.push(SeriesPoint::of(counts, key.0, key.1, measured_of(key)));
    }
    let measured = steps.measured.values().sum();
    let length = query.until_unix_ns - begin_ns;
    Ok(Series {
        schema: SERIES_SCHEMA,
        name: query.name.clone(),
        kind,
        since_unix_ns: begin_ns,
        until_unix_ns: query.until_unix_ns,
        step_ns,
        oldest_unix_ns: oldest,
        unmeasured: unmeasured(&steps, oldest),
        corrupted: steps.corrupted,
        total: (!points.is_empty()).then(|| SeriesPoint::of(&total, begin_ns, length, measured)),
        points,
    })
}

/// The row of a name.
fn find(
    file: &Connection,
    writer: Option<&Archive>,
    query: &SeriesQuery,
) -> Result<(Kind, u64), ArchiveError> {
    let kinds = KINDS
        .into_iter()
        .filter(|kind| query.kind.is_none_or(|wanted| wanted == *kind));
    for kind in kinds {
        let number = match writer {
            Some(writer) => writer.numbers.get(&(kind, query.name.clone())).copied(),
            None => {
                let mut find =
                    file.prepare("select number from row where kind = ? and name = ?")?;
                let found = find.query_row(params![file::word(kind), query.name], |row| {
                    row.get::<_, i64>(0)
                });
                found.optional()?.map(|number| number as u64)
            }
        };
        if let Some(number) = number {
            return Ok((kind, number));
        }
    }
    let all = file::rows(file)?;
    let names = all.keys().map(|(_, name)| name.as_str());
    let near = fairpath_units::nearest(&query.name, names);
    Err(ArchiveError::NoRow {
        name: query.name.clone(),
        near: near.map(str::to_owned),
    })
}

/// Days, and hours that no day contains, or that are finer and complete.
fn segments(
    file: &Connection,
    level: Level,
    row: u64,
    steps: &mut Steps,
) -> Result<(), ArchiveError> {
    let number = |query| file.query_row(query, [], |row| row.get::<_, i64>(0));
    // The day whose hours are there, too, and the hour whose slices are.
    let without_day = match level < Level::Day {
        true => number("select coalesce(max(day), 0) from segment where level = 1")?,
        false => 0,
    };
    let without_hour = match level < Level::Hour {
        true => number("select coalesce(max(hour), 0) from slice")?,
        false => 0,
    };
    let mut blocks = file.prepare(
        "select level, row, block from segment join block on segment = id
         where row in (?1, ?2) and first_ns < ?3 and last_ns > ?4
         and (level = 2 and id != ?5 or level = 1 and id != ?6 and (day is null or day = ?5))",
    )?;
    let (from, until) = (steps.time.start, steps.time.end);
    // A day's step contains the begin of the time.
    let from = from.saturating_sub(FIVE_MINUTES_NS);
    let bounds = params![
        MEASURED as i64,
        row as i64,
        until as i64,
        from as i64,
        without_day,
        without_hour
    ];
    let mut found = blocks.query(bounds)?;
    while let Some(block) = found.next()? {
        let native_ns = match block.get::<_, i64>(0)? {
            DAY => FIVE_MINUTES_NS,
            _ => MINUTE_NS,
        };
        let row = block.get::<_, i64>(1)? as u64;
        let keys = from / native_ns..until.div_ceil(native_ns);
        let block = block.get_ref(2)?.as_blob().unwrap_or(&[]);
        for (step, counts) in steps.decoded(block, |step| keys.contains(&step)) {
            steps.add(row, step * native_ns, native_ns, &counts);
        }
    }
    Ok(())
}

/// Slices that no hour contains, or that are finer.
fn slices(
    file: &Connection,
    level: Level,
    row: u64,
    writer: Option<&Archive>,
    steps: &mut Steps,
) -> Result<(), ArchiveError> {
    let recent = writer.and_then(|writer| writer.recent.first_slice());
    let before = recent
        .filter(|_| level == Level::Interval)
        .unwrap_or(i64::MAX);
    let finer = level < Level::Hour;
    let mut slices = file.prepare(
        "select id, begin_ns, measured_ns from slice
         where id < ?1 and (hour is null or ?2) and begin_ns < ?3 and end_ns > ?4",
    )?;
    let mut blocks = file.prepare("select block from slice_block where slice = ? and part = ?")?;
    let (from, until) = (steps.time.start, steps.time.end);
    let from = from.saturating_sub(FIVE_MINUTES_NS);
    let mut found = slices.query(params![before, finer, until as i64, from as i64])?;
    while let Some(slice) = found.next()? {
        let begin_ns = slice.get::<_, i64>(1)? as u64;
        steps.add_time(slice.get::<_, i64>(2)? as u64, begin_ns, SLICE_NS);
        let mut block = blocks.query(params![slice.get::<_, i64>(0)?, (row / PART_ROWS) as i64])?;
        if let Some(block) = block.next()? {
            let block = block.get_ref(0)?.as_blob().unwrap_or(&[]);
            steps.add_row(block, row, begin_ns, SLICE_NS);
        }
    }
    Ok(())
}

/// Slices that wait, the open one, and the last intervals.
fn memory(writer: &Archive, level: Level, row: u64, steps: &mut Steps) {
    let recent = writer.recent.first_slice();
    let recent = recent.filter(|_| level == Level::Interval);
    let before = recent.unwrap_or(i64::MAX);
    for slice in writer.waiting.iter().filter(|slice| slice.id < before) {
        steps.add_time(slice.measured_ns, slice.begin_ns, SLICE_NS);
        let part = slice
            .blocks
            .iter()
            .find(|(part, _)| *part == row / PART_ROWS);
        if let Some((_, block)) = part {
            steps.add_row(block, row, slice.begin_ns, SLICE_NS);
        }
    }
    let open = &writer.open;
    if writer.next_slice < before && open.measured_ns > 0 {
        steps.add_time(open.measured_ns, open.begin_ns, SLICE_NS);
        if let Some(counts) = open.rows.get(&row) {
            steps.add(row, open.begin_ns, SLICE_NS, counts);
        }
    }
    if recent.is_some() {
        for interval in writer.recent.intervals() {
            steps.add_time(interval.length_ns, interval.unix_ns, SECOND_NS);
            steps.add_row(&interval.block, row, interval.unix_ns, SECOND_NS);
        }
    }
}

/// The begin of the first measurement.
fn oldest(file: &Connection, writer: Option<&Archive>) -> Result<Option<u64>, ArchiveError> {
    let first = "select min(ns) from (select min(first_ns) ns from segment union select min(begin_ns) ns from slice)";
    let first: Option<i64> = file.query_row(first, [], |row| row.get(0))?;
    let open = writer.filter(|writer| writer.open.measured_ns > 0);
    let waiting = writer.into_iter().flat_map(|writer| writer.waiting.iter());
    let memory = waiting
        .map(|slice| slice.begin_ns)
        .chain(open.map(|writer| writer.open.begin_ns));
    Ok(first
        .map(|first| first as u64)
        .into_iter()
        .chain(memory)
        .min())
}

/// Times between measured steps, from the first measurement on.
fn unmeasured(steps: &Steps, oldest: Option<u64>) -> Vec<Span> {
    let mut spans = Vec::new();
    let Some(mut at) = oldest.map(|oldest| oldest.max(steps.time.start)) else {
        return spans;
    };
    // The last slice of a file is not written yet.
    let ends = (steps.time.end.saturating_sub(2 * SLICE_NS), 0);
    for (begin, length) in steps.measured.keys().copied().chain([ends]) {
        if begin > at {
            spans.push(Span {
                since_unix_ns: at,
                until_unix_ns: begin,
            });
        }
        at = at.max(begin.saturating_add(length));
    }
    spans
}
