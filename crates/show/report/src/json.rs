//! The report as JSON: the same value, to be read again or by other programs.

use serde::{Deserialize, Serialize};

use crate::report::ReportDocument;

/// The form of these files; another form is refused with both numbers.
pub const FORMAT: u32 = 1;

#[derive(Serialize)]
struct Written<'a> {
    format: u32,
    report: &'a ReportDocument,
}

#[derive(Deserialize)]
struct Form {
    format: u32,
}

#[derive(Deserialize)]
struct Read {
    report: ReportDocument,
}

/// Why a file is not a report of ours.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It is no JSON, or JSON of something else.
    #[error("read report: not a report's JSON")]
    Json(#[from] serde_json::Error),
    /// Another form.
    #[error(
        "read report: its form is {0}, this program reads form {FORMAT}; make the report again"
    )]
    Format(u32),
}

/// The report's text, without points that are not finite, which JSON cannot hold.
pub fn json(report: &ReportDocument) -> String {
    let mut report = report.clone();
    report.drop_infinite();
    let written = Written {
        format: FORMAT,
        report: &report,
    };
    let mut text =
        serde_json::to_string(&written).expect("a report has string keys and finite numbers");
    text.push('\n');
    text
}

/// Reads what [`json`] wrote.
pub fn read(text: &str) -> Result<ReportDocument, ReadError> {
    let Form { format } = serde_json::from_str(text)?;
    if format != FORMAT {
        return Err(ReadError::Format(format));
    }
    let Read { report } = serde_json::from_str(text)?;
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Axis, Figure, Panel, Point, Series};
    use crate::report::{Block, Section};
    use crate::table::{Cell, Column, Table};
    use crate::unit::Unit;

    #[test]
    fn records_read_back_without_infinite_numbers() {
        let points = vec![Point::new(1.0, f64::NAN), Point::new(2.0, 3.0)];
        let panel = Panel::new(
            "",
            Axis::log("Loss", Unit::share()),
            Axis::linear("Rate", Unit::bits_per_second()),
        );
        let figure = Figure::new("f", "A figure", vec![panel.with(Series::line("a", points))]);
        let mut table = Table::new("t", "A table", vec![Column::number("n", Unit::none())]);
        table.push(vec![Cell::Number(f64::INFINITY)]);
        let mut report = ReportDocument {
            title: "</script>".into(),
            sections: vec![Section::new(
                "Results",
                vec![Block::Figure(figure), Block::Table(table)],
            )],
            ..ReportDocument::default()
        };
        let again = read(&json(&report)).unwrap();
        report.drop_infinite();
        assert_eq!(again, report);
        let Block::Figure(figure) = &again.sections[0].blocks[0] else {
            panic!("not a figure");
        };
        assert_eq!(figure.panels[0].series[0].points, [Point::new(2.0, 3.0)]);
    }

    #[test]
    fn another_form_is_refused_with_both_numbers() {
        let error = read("{\"format\": 9, \"report\": {}}").unwrap_err();
        assert!(error.to_string().contains("form is 9"), "{error}");
        assert!(error.to_string().contains("reads form 1"), "{error}");
        assert!(matches!(read("[]"), Err(ReadError::Json(_))));
    }
}
