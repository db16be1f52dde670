//! The schema of Parquet files, and the conversion of rows into columns.
//!
//! The first column is `time`: `unix_ns` as a timestamp type that every reader supports. The others
//! are the fields of [`IntervalRow`] in their order. Counts are INT64, because not every reader
//! supports unsigned integers. A value that was not measured is null.

use std::io::Write;
use std::sync::Arc;

use fairpath_history::IntervalRow;
use fairpath_history::snapshot::Kind;
use parquet::basic::{ConvertedType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;

/// The values of a column.
enum Values {
    /// Microseconds since 1970, UTC.
    Time(fn(&IntervalRow) -> u64),
    Count(fn(&IntervalRow) -> u64),
    Maybe(fn(&IntervalRow) -> Option<u64>),
    Text(fn(&IntervalRow) -> &str),
    MaybeText(fn(&IntervalRow) -> Option<&str>),
}

/// Makes columns with the names of their fields.
macro_rules! columns {
    ($($values:ident $field:ident,)*) => {
        [$((stringify!($field), Values::$values(|row| row.$field)),)*]
    };
}

const IDENTITY: [(&str, Values); 6] = [
    ("time", Values::Time(|row| row.unix_ns / 1000)),
    ("unix_ns", Values::Count(|row| row.unix_ns)),
    ("interval_ns", Values::Count(|row| row.interval_ns)),
    ("name", Values::Text(|row| &row.name)),
    ("kind", Values::Text(kind)),
    ("parent", Values::MaybeText(|row| row.parent.as_deref())),
];

const MEASURED: [(&str, Values); 34] = columns![
    Count bytes_up, Count bytes_down, Count packets_up, Count packets_down,
    Count unmeasured_bytes_up, Count unmeasured_bytes_down,
    Count inside_samples, Maybe inside_min_rtt_ns, Maybe inside_p50_rtt_ns, Maybe inside_p95_rtt_ns,
    Maybe inside_p99_rtt_ns, Maybe inside_max_rtt_ns, Maybe inside_mean_rtt_ns,
    Count inside_lost_to_packets, Count inside_data_to_packets,
    Count inside_lost_from_packets, Count inside_data_from_packets,
    Count outside_samples, Maybe outside_min_rtt_ns, Maybe outside_p50_rtt_ns, Maybe outside_p95_rtt_ns,
    Maybe outside_p99_rtt_ns, Maybe outside_max_rtt_ns, Maybe outside_mean_rtt_ns,
    Count outside_lost_to_packets, Count outside_data_to_packets,
    Count outside_lost_from_packets, Count outside_data_from_packets,
    Count reordered_packets_up, Count reordered_packets_down,
    Count flows_opened, Count flows_closed, Count handshakes_failed, Count flows_one_sided,
];

fn kind(row: &IntervalRow) -> &str {
    match row.kind {
        Kind::Class => "class",
        Kind::Subnet => "subnet",
        Kind::Interface => "interface",
        Kind::Other => "other",
    }
}

fn columns() -> impl Iterator<Item = &'static (&'static str, Values)> {
    IDENTITY.iter().chain(&MEASURED)
}

/// The schema of every file.
pub(super) fn schema() -> Result<Type, ParquetError> {
    let field = |(name, values): &(&str, Values)| {
        let (physical, converted, repetition) = match values {
            Values::Time(_) => (
                Physical::INT64,
                ConvertedType::TIMESTAMP_MICROS,
                Repetition::REQUIRED,
            ),
            Values::Count(_) => (Physical::INT64, ConvertedType::NONE, Repetition::REQUIRED),
            Values::Maybe(_) => (Physical::INT64, ConvertedType::NONE, Repetition::OPTIONAL),
            Values::Text(_) => (
                Physical::BYTE_ARRAY,
                ConvertedType::UTF8,
                Repetition::REQUIRED,
            ),
            Values::MaybeText(_) => (
                Physical::BYTE_ARRAY,
                ConvertedType::UTF8,
                Repetition::OPTIONAL,
            ),
        };
        let field = Type::primitive_type_builder(name, physical)
            .with_converted_type(converted)
            .with_repetition(repetition)
            .build();
        field.map(Arc::new)
    };
    let fields = columns().map(field).collect::<Result<_, _>>()?;
    Type::group_type_builder("fairpath_interval")
        .with_fields(fields)
        .build()
}

/// Writes `rows` as one row group.
pub(super) fn write_group<W: Write + Send>(
    writer: &mut SerializedFileWriter<W>,
    rows: &[IntervalRow],
) -> Result<(), ParquetError> {
    let mut group = writer.next_row_group()?;
    for (name, values) in columns() {
        let missing = || ParquetError::General(format!("the schema has no column {name}"));
        let mut column = group.next_column()?.ok_or_else(missing)?;
        write_column(&mut column, values, rows)?;
        column.close()?;
    }
    group.close().map(drop)
}

fn write_column(
    column: &mut SerializedColumnWriter<'_>,
    values: &Values,
    rows: &[IntervalRow],
) -> Result<(), ParquetError> {
    let levels: Vec<i16>;
    let (numbers, texts, levels): (Vec<i64>, Vec<ByteArray>, Option<&[i16]>) = match values {
        Values::Time(value) | Values::Count(value) => (
            rows.iter().map(|row| signed(value(row))).collect(),
            Vec::new(),
            None,
        ),
        Values::Maybe(value) => {
            levels = rows
                .iter()
                .map(|row| i16::from(value(row).is_some()))
                .collect();
            (
                rows.iter().filter_map(value).map(signed).collect(),
                Vec::new(),
                Some(&levels),
            )
        }
        Values::Text(value) => (
            Vec::new(),
            rows.iter().map(|row| value(row).into()).collect(),
            None,
        ),
        Values::MaybeText(value) => {
            levels = rows
                .iter()
                .map(|row| i16::from(value(row).is_some()))
                .collect();
            (
                Vec::new(),
                rows.iter().filter_map(value).map(ByteArray::from).collect(),
                Some(&levels),
            )
        }
    };
    match values {
        Values::Text(_) | Values::MaybeText(_) => column
            .typed::<ByteArrayType>()
            .write_batch(&texts, levels, None)?,
        _ => column
            .typed::<Int64Type>()
            .write_batch(&numbers, levels, None)?,
    };
    Ok(())
}

/// Saturates at the maximum of INT64, which no count of an interval reaches.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
