//! Figures and tables as CSV (RFC 4180): one header line with units, numbers as they are kept.
//!
//! A cell that spreadsheets might run as a formula is data here and stays as it is: RFC 4180 has no
//! escape for it, and a changed name would no longer be the name that was measured.

use crate::catalog::Item;
use crate::figure::{Axis, Figure, Panel, Role, Scale, Series};
use crate::table::{Cell, ColumnKind, Table};

/// The CSV of a figure or a table.
pub fn of_item(item: Item) -> String {
    match item {
        Item::Figure(figure) => of_figure(figure),
        Item::Table(table) => of_table(table),
    }
}

/// Every finite point of every series of every panel: panel, series, source, x, y, low, high, note. A gap
/// has its label as the note, and no y.
pub fn of_figure(figure: &Figure) -> String {
    let mut text = String::new();
    // Panels share their quantities; where units differ, the header names those of the first.
    let (x, y) = match figure.panels.first() {
        Some(panel) => (header(&panel.x), header(&panel.y)),
        None => ("x".to_owned(), "y".to_owned()),
    };
    let low = format!("{y} low");
    let high = format!("{y} high");
    line(
        &mut text,
        &["panel", "series", "source", &x, &y, &low, &high, "note"],
    );
    for panel in &figure.panels {
        for series in &panel.series {
            points(&mut text, panel, series);
        }
    }
    text
}

fn points(text: &mut String, panel: &Panel, series: &Series) {
    let source = match series.role {
        Role::Measured => "measured",
        Role::Theory => "model",
        Role::Published => "published",
    };
    let shown = |x: f64| match &panel.x.scale {
        Scale::Names(_) => panel.x.show(x),
        _ => x.to_string(),
    };
    for gap in &series.gaps {
        let (x, none) = (shown(gap.x), String::new());
        let fields = [
            &panel.title,
            &series.name,
            source,
            &x,
            &none,
            &none,
            &none,
            &gap.label,
        ];
        line(text, &fields);
    }
    for point in series.finite() {
        let x = shown(point.x);
        let end = |end: Option<f64>| end.map(|e| e.to_string()).unwrap_or_default();
        let (low, high) = (point.interval.map(|i| i.0), point.interval.map(|i| i.1));
        let y = point.y.to_string();
        let note = point.note.replace('\u{a0}', " ");
        let fields = [
            &panel.title,
            &series.name,
            source,
            &x,
            &y,
            &end(low),
            &end(high),
            &note,
        ];
        line(text, &fields);
    }
}

/// Every row of a table; columns with intervals become three and their confidence.
pub fn of_table(table: &Table) -> String {
    let mut text = String::new();
    let mut names = Vec::new();
    for (i, column) in table.columns.iter().enumerate() {
        let name = match &column.kind {
            ColumnKind::Text => column.name.clone(),
            ColumnKind::Number(unit) => with_unit(&column.name, &unit.base_symbol()),
        };
        if table.has_intervals(i) {
            names.extend(["low", "high", "confidence"].map(|end| format!("{name} {end}")));
            names.insert(names.len() - 3, name);
        } else {
            names.push(name);
        }
    }
    line(&mut text, &names);
    for row in &table.rows {
        let mut fields = Vec::new();
        for i in 0..table.columns.len() {
            cell(&mut fields, row.cells.get(i), table.has_intervals(i));
        }
        line(&mut text, &fields);
    }
    text
}

fn cell(fields: &mut Vec<String>, cell: Option<&Cell>, intervals: bool) {
    let (value, interval) = match cell {
        None | Some(Cell::Missing) => (String::new(), None),
        Some(Cell::Text(text)) => (text.clone(), None),
        Some(Cell::Number(number)) => (finite(*number), None),
        Some(Cell::Estimate(number, interval)) => (finite(*number), Some(interval)),
    };
    fields.push(value);
    if intervals {
        let ends = interval.map(|i| [i.low, i.high, i.confidence]);
        match ends {
            Some(ends) => fields.extend(ends.map(finite)),
            None => fields.extend([String::new(), String::new(), String::new()]),
        }
    }
}

fn finite(number: f64) -> String {
    match number.is_finite() {
        true => number.to_string(),
        false => String::new(),
    }
}

fn header(axis: &Axis) -> String {
    with_unit(&axis.label, &axis.unit.base_symbol())
}

fn with_unit(name: &str, symbol: &str) -> String {
    match symbol {
        "" => name.to_owned(),
        _ => format!("{name} [{symbol}]"),
    }
}

/// One record, its end included (RFC 4180, 2.1 and 2.5 to 2.7).
fn line(text: &mut String, fields: &[impl AsRef<str>]) {
    for (i, field) in fields.iter().map(AsRef::as_ref).enumerate() {
        if i > 0 {
            text.push(',');
        }
        if field.contains([',', '"', '\r', '\n']) {
            text.push('"');
            text.push_str(&field.replace('"', "\"\""));
            text.push('"');
        } else {
            text.push_str(field);
        }
    }
    text.push_str("\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Point, Series};
    use crate::statistics::{Interval, Method};
    use crate::table::Column;
    use crate::unit::Unit;

    #[test]
    fn figures_have_units_in_headers_and_every_point() {
        let panel = Panel::new(
            "one, \"two\"",
            Axis::log("Loss", Unit::share()),
            Axis::linear("Goodput", Unit::bits_per_second()),
        );
        let mut point = Point::new(0.01, 235.5e6);
        point.interval = Some((220e6, 250e6));
        let removed = Point::new(0.1, f64::NAN);
        let panel = panel
            .with(Series::line("CUBIC", vec![point, removed]))
            .with(Series::theory("Mathis", vec![Point::new(0.01, 2e8)]));
        let text = of_figure(&Figure::new("f", "t", vec![panel]));
        assert_eq!(
            text,
            "panel,series,source,Loss [share],Goodput [bit/s],Goodput [bit/s] low,Goodput [bit/s] high,note\r\n\
             \"one, \"\"two\"\"\",CUBIC,measured,0.01,235500000,220000000,250000000,\r\n\
             \"one, \"\"two\"\"\",Mathis,model,0.01,200000000,,,\r\n"
        );
    }

    #[test]
    fn names_stand_in_place_of_their_numbers() {
        let names = vec!["FIFO".to_owned(), "FQ-CoDel".to_owned()];
        let panel = Panel::new(
            "",
            Axis::names("Queue", names),
            Axis::linear("Ping", Unit::nanoseconds()),
        );
        let panel = panel.with(Series::bars("p50", vec![Point::new(1.0, 7e6)]));
        let text = of_figure(&Figure::new("f", "t", vec![panel]));
        assert!(
            text.starts_with("panel,series,source,Queue,Ping [ns]"),
            "{text}"
        );
        assert!(
            text.contains(",p50,measured,FQ-CoDel,7000000,,,\r\n"),
            "{text}"
        );
    }

    #[test]
    fn table_intervals_have_their_own_columns() {
        let interval = Interval {
            low: 1.0,
            high: 3.0,
            confidence: 0.75,
            method: Method::OrderStatistics,
        };
        let columns = vec![Column::text("cc"), Column::number("rtt", Unit::seconds())];
        let mut table = Table::new("t", "t", columns);
        table.push(vec!["bbr".into(), Cell::Estimate(2.0, interval)]);
        table.push(vec!["line\nbreak".into(), Cell::Missing]);
        assert_eq!(
            of_table(&table),
            "cc,rtt [s],rtt [s] low,rtt [s] high,rtt [s] confidence\r\n\
             bbr,2,1,3,0.75\r\n\"line\nbreak\",,,,\r\n"
        );
    }
}
