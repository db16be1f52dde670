//! The schema of Parquet files, and the conversion of rows into columns.
//!
//! `time` has a timestamp type that every reader supports. Counts are INT64, because not every reader
//! supports unsigned integers. A value that was not measured is null.

use std::io::Write;
use std::sync::Arc;

use fairpath_history::IntervalRow;
use fairpath_history::histogram::bucket_middle;
use parquet::basic::{ConvertedType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;

use crate::rows::columns::{Column, LISTS, ListColumn, Values, columns};

/// The schema of every file.
pub(super) fn schema() -> Result<Type, ParquetError> {
    let field = |column: &Column| {
        let (physical, converted, repetition) = match column.values {
            Values::Time => (
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
        let field = Type::primitive_type_builder(column.name(), physical)
            .with_converted_type(converted)
            .with_repetition(repetition)
            .build();
        field.map(Arc::new)
    };
    let fields = columns().map(field).chain(LISTS.iter().map(list));
    let fields = fields.collect::<Result<_, _>>()?;
    Type::group_type_builder("fairpath_interval")
        .with_fields(fields)
        .build()
}

/// A list without nulls, as the format recommends.
fn list(column: &ListColumn) -> Result<Arc<Type>, ParquetError> {
    let element = Type::primitive_type_builder("element", Physical::INT64)
        .with_repetition(Repetition::REQUIRED)
        .build()?;
    let elements = Type::group_type_builder("list")
        .with_repetition(Repetition::REPEATED)
        .with_fields(vec![Arc::new(element)])
        .build()?;
    let list = Type::group_type_builder(column.name)
        .with_repetition(Repetition::REQUIRED)
        .with_converted_type(ConvertedType::LIST)
        .with_fields(vec![Arc::new(elements)])
        .build()?;
    Ok(Arc::new(list))
}

/// Writes `rows` as one row group.
pub(super) fn write_group<W: Write + Send>(
    writer: &mut SerializedFileWriter<W>,
    rows: &[IntervalRow],
) -> Result<(), ParquetError> {
    let mut group = writer.next_row_group()?;
    for wanted in columns() {
        let next = group.next_column()?;
        let mut column = next.ok_or_else(|| missing(wanted.name()))?;
        write_column(&mut column, &wanted.values, rows)?;
        column.close()?;
    }
    for wanted in &LISTS {
        let mut column = group.next_column()?.ok_or_else(|| missing(wanted.name))?;
        write_list(&mut column, wanted, rows)?;
        column.close()?;
    }
    group.close().map(drop)
}

fn missing(name: &str) -> ParquetError {
    ParquetError::General(format!("the schema has no column {name}"))
}

fn write_list(
    column: &mut SerializedColumnWriter<'_>,
    list: &ListColumn,
    rows: &[IntervalRow],
) -> Result<(), ParquetError> {
    // Defined: 1 for an element, 0 for an empty list. Repeated: 0 begins a row.
    let (mut values, mut defined, mut repeated) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        let before = values.len();
        for (bucket, samples) in (list.histogram)(row).buckets() {
            repeated.push(i16::from(values.len() > before));
            defined.push(1);
            values.push(signed((list.value)(bucket_middle(bucket), samples)));
        }
        if values.len() == before {
            repeated.push(0);
            defined.push(0);
        }
    }
    let writer = column.typed::<Int64Type>();
    writer.write_batch(&values, Some(&defined), Some(&repeated))?;
    Ok(())
}

fn write_column(
    column: &mut SerializedColumnWriter<'_>,
    values: &Values,
    rows: &[IntervalRow],
) -> Result<(), ParquetError> {
    let levels: Vec<i16>;
    let (numbers, texts, levels): (Vec<i64>, Vec<ByteArray>, Option<&[i16]>) = match values {
        Values::Time => (
            rows.iter().map(|row| signed(row.unix_ns / 1000)).collect(),
            Vec::new(),
            None,
        ),
        Values::Count(value) => (
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
        Values::Text(value) => (Vec::new(), texts(rows.iter().map(value)), None),
        Values::MaybeText(value) => {
            levels = rows
                .iter()
                .map(|row| i16::from(value(row).is_some()))
                .collect();
            (
                Vec::new(),
                texts(rows.iter().filter_map(value)),
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

/// Rows that follow each other often have the same text, which is copied once.
fn texts<'a>(values: impl Iterator<Item = &'a str>) -> Vec<ByteArray> {
    let mut last: Option<(&str, ByteArray)> = None;
    let mut array = |text: &'a str| match &last {
        Some((same, array)) if *same == text => array.clone(),
        _ => {
            let array = ByteArray::from(text);
            last = Some((text, array.clone()));
            array
        }
    };
    values.map(&mut array).collect()
}

/// Saturates at the maximum of INT64, which no count of an interval reaches.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
