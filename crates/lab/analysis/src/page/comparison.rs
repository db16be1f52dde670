//! Two directories of results on one page: the figures of the experiment with a line for each directory, the
//! runs of both above each other, and the differences with intervals.

use fairpath_report::{Block, Section};
use fairpath_report::{
    Cell as TableCell, Column, Fact, Headline, Notice, ReportDocument, Table, TableRow,
};

use super::{CONGESTION, figures, over_time};
use crate::compare::{CannotCompare, Comparison, ComparisonRow, compare};
use crate::grid::{Grid, Setting};
use crate::manifest::Axis;
use crate::metrics;
use crate::results::Results;

/// The axis of the two directories.
pub(super) const RESULTS: &str = "results";

/// The page that compares `second` with `first`, and their comparison. `names` are those of the lines.
///
/// # Errors
/// [`CannotCompare`] has the reason.
pub fn comparison(
    first: &Results,
    second: &Results,
    names: [&str; 2],
) -> Result<(ReportDocument, Comparison), CannotCompare> {
    let compared = compare(first, second)?;
    let both = both(first, second, &compared, names);
    let grid = Grid::new(&both);
    let mut sections = vec![figures::section(figures::all(&grid))];
    sections.push(differences(&compared, names));
    sections.extend(over_time::section(&grid));
    let manifest = &both.manifest;
    let document = ReportDocument {
        title: format!("{}: {} and {}", first.manifest.title, names[0], names[1]),
        kicker: format!("Fairpath lab: comparison, {}", manifest.experiment),
        question: manifest.question.clone(),
        facts: vec![
            Fact::new("First", names[0]),
            Fact::new("Second", names[1]),
            Fact::new(
                "Settings in both",
                both_settings(&compared).len().to_string(),
            ),
        ],
        summary: vec![Headline {
            value: String::new(),
            text: compared.verdict.clone(),
            figure: None,
        }],
        notices: compared.remarks.iter().map(Notice::note).collect(),
        sections,
        command: format!("fairpath lab compare {} {}", names[0], names[1]),
        made_by: format!("fairpath-lab {}", manifest.fairpath_version),
        first_colours: CONGESTION.map(str::to_owned).into(),
    };
    Ok((document, compared))
}

/// The settings that were compared.
fn both_settings(compared: &Comparison) -> Vec<&Setting> {
    let mut settings: Vec<&Setting> = compared.rows.iter().map(|row| &row.setting).collect();
    settings.sort();
    settings.dedup();
    settings
}

/// The runs of both with another axis, and figures with a line for each of its values.
fn both(first: &Results, second: &Results, compared: &Comparison, names: [&str; 2]) -> Results {
    let settings = both_settings(compared);
    let mut both = Results {
        manifest: first.manifest.clone(),
        ..Results::default()
    };
    both.manifest.axes.push(Axis {
        name: RESULTS.to_owned(),
        values: names.map(str::to_owned).into(),
        ..Axis::default()
    });
    for (results, name) in [first, second].into_iter().zip(names) {
        let of_both = |run: &&crate::record::RunRecord| settings.contains(&&run.setting);
        let runs = results.runs.iter().filter(of_both).cloned();
        both.runs.extend(runs.map(|mut run| {
            run.setting.insert(RESULTS.to_owned(), name.to_owned());
            run
        }));
    }
    for figure in &mut both.manifest.figures {
        // What distinguished the lines makes panels.
        let before = figure.by.replace(RESULTS.to_owned());
        figure.split = before.or_else(|| figure.split.take());
    }
    both
}

/// A row for each setting and quantity.
fn differences(compared: &Comparison, names: [&str; 2]) -> Section {
    let columns = ["Setting", "Quantity", names[0], names[1], "Difference"];
    let columns = columns.into_iter().map(Column::text).collect();
    let mut table = Table::new("differences", "Differences by setting", columns);
    table.caption =
        "Medians of valid runs. A difference is shown if its interval excludes zero.".to_owned();
    table.rows = compared.rows.iter().map(row).collect();
    Section::new("Differences", vec![Block::Table(table)])
}

fn row(row: &ComparisonRow) -> TableRow {
    let shown = |value: f64| match metrics::find(&row.quantity) {
        Ok(requested) => requested.metric.measure.unit().show(value),
        Err(_) => value.to_string(),
    };
    let cells = [
        row.words.clone(),
        row.quantity.clone(),
        shown(row.first),
        shown(row.second),
        row.verdict.clone(),
    ];
    TableRow {
        cells: cells.into_iter().map(TableCell::Text).collect(),
        marked: row.is_shown(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{FigureKind, FigureSpec};
    use crate::manifest::Manifest;
    use crate::record::{Bottleneck, FlowRecord, RunRecord};

    fn axis(name: &str, values: &[&str]) -> Axis {
        Axis {
            name: name.to_owned(),
            values: values.iter().map(|value| (*value).to_owned()).collect(),
            ..Axis::default()
        }
    }

    /// Three runs for each congestion control and loss: the rate is `rate`, less for more loss.
    fn results(rate: f64, losses: &[&str]) -> Results {
        let mut runs = Vec::new();
        for cc in ["cubic", "bbr"] {
            for (at, loss) in losses.iter().enumerate() {
                for repeat in 0..3u32 {
                    let setting = [("cc", cc), ("loss", loss)];
                    runs.push(RunRecord {
                        place: runs.len() as u32,
                        setting: setting
                            .map(|(axis, value)| (axis.to_owned(), value.to_owned()))
                            .into(),
                        repeat,
                        bottleneck: Some(Bottleneck {
                            rate_bps: 1e9,
                            base_rtt_ns: 1_000_000,
                            ..Bottleneck::default()
                        }),
                        flows: vec![FlowRecord {
                            name: "main".to_owned(),
                            congestion: cc.to_owned(),
                            goodput_bps: rate / (1 + at) as f64 + f64::from(repeat),
                            ..FlowRecord::default()
                        }],
                        ..RunRecord::default()
                    });
                }
            }
        }
        let figure = FigureSpec {
            title: "Loss".to_owned(),
            kind: FigureKind::Curve,
            x: Some("loss".to_owned()),
            y: "goodput".to_owned(),
            by: Some("cc".to_owned()),
            split: None,
            theory: false,
            log_x: false,
            log_y: false,
        };
        Results {
            manifest: Manifest {
                experiment: "x".to_owned(),
                axes: vec![axis("cc", &["cubic", "bbr"]), axis("loss", losses)],
                figures: vec![figure],
                ..Manifest::default()
            },
            runs,
            ..Results::default()
        }
    }

    #[test]
    fn a_figure_has_a_line_for_each_directory() {
        let (before, after) = (
            results(4e8, &["0%", "1%", "2%"]),
            results(5e8, &["0%", "1%"]),
        );
        let (document, compared) = comparison(&before, &after, ["before", "after"]).unwrap();
        assert_eq!(both_settings(&compared).len(), 4);
        let Block::Figure(figure) = &document.sections[0].blocks[0] else {
            panic!("{:?}", document.sections[0]);
        };
        assert_eq!(
            figure.panels.len(),
            2,
            "a panel for each congestion control"
        );
        for panel in &figure.panels {
            let names: Vec<&str> = panel.series.iter().map(|line| line.name.as_str()).collect();
            assert_eq!(names, ["before", "after"]);
            // A setting of one directory alone is in neither line.
            let points = panel.series.iter().map(|line| line.points.len());
            assert_eq!(points.collect::<Vec<_>>(), [2, 2]);
            assert!(
                (panel.series[1].points[0].y / panel.series[0].points[0].y - 1.25).abs() < 0.01
            );
        }
        let Block::Table(table) = &document.sections[1].blocks[0] else {
            panic!("{:?}", document.sections[1]);
        };
        assert_eq!(table.rows.len(), 4);
        assert!(table.rows.iter().all(|row| row.marked), "{table:?}");
    }
}
