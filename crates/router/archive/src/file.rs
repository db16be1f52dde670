//! The file: its tables and settings.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use fairpath_history::history::RowName;
use fairpath_history::snapshot::Kind;
use rusqlite::{Connection, OpenFlags};

use crate::ArchiveError;

/// Marks the file as ours: "Fair".
const APPLICATION: i64 = 0x4661_6972;
/// Version of the tables.
pub const VERSION: i64 = 1;
/// A reader of another process delays a checkpoint for at most this time.
const BUSY: Duration = Duration::from_secs(5);

/// Blocks of a few kB: fewer pages overflow than with 4 kB. Free pages can be returned.
const SETTINGS: &str = "
    pragma page_size = 16384;
    pragma auto_vacuum = incremental;
    pragma journal_mode = wal;
    pragma synchronous = full;
    pragma journal_size_limit = 16777216;
    pragma cache_size = -4096;
";

const TABLES: &str = "
    create table row (number integer primary key, kind text not null, name text not null, unique (kind, name));
    create table slice (
        id integer primary key, begin_ns integer not null, end_ns integer not null, measured_ns integer not null,
        hour integer
    );
    create table slice_block (
        slice integer not null, part integer not null, block blob not null, primary key (slice, part)
    ) without rowid;
    create table segment (
        id integer primary key autoincrement, level integer not null, first_ns integer not null,
        last_ns integer not null, measured_ns integer not null, day integer
    );
    create table block (segment integer not null, row integer not null, block blob not null);
    create unique index block_by_row on block (segment, row);
";

/// Opens the file to write, and creates it if it is missing.
pub fn open(path: &Path) -> Result<Connection, ArchiveError> {
    fairpath_files::check_directory(fairpath_files::directory_of(path))?;
    match fairpath_files::create(path) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            drop(fairpath_files::append(path)?)
        }
        Err(error) => return Err(error.into()),
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let mut file = Connection::open_with_flags(path, flags)?;
    file.busy_timeout(BUSY)?;
    file.execute_batch(SETTINGS)?;
    if !is_ours(&file)? {
        let tables = file.transaction()?;
        tables.execute_batch(TABLES)?;
        tables.pragma_update(None, "user_version", VERSION)?;
        tables.pragma_update(None, "application_id", APPLICATION)?;
        tables.commit()?;
    }
    Ok(file)
}

/// Opens the file to read.
pub fn open_to_read(path: &Path) -> Result<Connection, ArchiveError> {
    // The engine does not name the file.
    std::fs::File::open(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let file = Connection::open_with_flags(path, flags)?;
    file.busy_timeout(BUSY)?;
    match is_ours(&file)? {
        true => Ok(file),
        false => Err(ArchiveError::OtherProgram),
    }
}

/// True for our file, false for an empty one.
fn is_ours(file: &Connection) -> Result<bool, ArchiveError> {
    let number = |pragma| file.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    let tables = file.query_row("select count(*) from sqlite_schema", [], |row| {
        row.get::<_, i64>(0)
    })?;
    match (number("application_id")?, number("user_version")?) {
        (APPLICATION, VERSION) => Ok(true),
        (APPLICATION, version) => Err(ArchiveError::Newer(version)),
        (0, 0) if tables == 0 => Ok(false),
        _ => Err(ArchiveError::OtherProgram),
    }
}

/// The word of a kind in the file.
pub fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Class => "class",
        Kind::Subnet => "subnet",
        Kind::Interface => "interface",
        Kind::Other => "other",
    }
}

/// Reverses [`word`].
pub fn kind(word: &str) -> Option<Kind> {
    let kinds = [Kind::Class, Kind::Subnet, Kind::Interface, Kind::Other];
    kinds.into_iter().find(|kind| self::word(*kind) == word)
}

/// The numbers of all rows.
pub fn rows(file: &Connection) -> Result<HashMap<RowName, u64>, ArchiveError> {
    let mut all = file.prepare("select number, kind, name from row")?;
    let mut rows = all.query([])?;
    let mut numbers = HashMap::new();
    while let Some(row) = rows.next()? {
        let word: String = row.get(1)?;
        if let Some(kind) = kind(&word) {
            numbers.insert((kind, row.get(2)?), row.get::<_, i64>(0)? as u64);
        }
    }
    Ok(numbers)
}

/// The number of the next slice.
pub fn next_slice(file: &Connection) -> Result<i64, ArchiveError> {
    let last = "select coalesce(max(id), 0) + 1 from slice";
    Ok(file.query_row(last, [], |row| row.get(0))?)
}

/// Bytes of the pages in use.
pub fn used_bytes(file: &Connection) -> Result<u64, ArchiveError> {
    let number = |pragma| file.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    let used = number("page_count")? - number("freelist_count")?;
    Ok((used * number("page_size")?) as u64)
}
