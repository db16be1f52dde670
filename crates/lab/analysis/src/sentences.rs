//! The first sentences of the page, from the figures: never more than the intervals allow.
//!
//! Each figure with an axis is described by its lines: from the baseline (the value zero, or the first) to
//! the others. An insignificant change is stated as such, with its number of runs.

use fairpath_report::Headline;

use super::change::Change;
use super::grid::{Cell, Grid, Setting};
use crate::axis_value;
use crate::figure::{FigureKind, FigureSpec};
use crate::metrics::{self, Measure, Requested};

pub use super::model_sentences::on_theory;

/// Sentences at the top of a page, unless there are more figures; more are in the figures.
pub const MAX_HEADLINES: usize = 10;
/// Sentences of the main figure, which is the first.
const MAX_OF_MAIN: usize = 8;
/// Sentences of another figure.
const MAX_OF_FIGURE: usize = 6;

/// The sentences of all figures in order. `ids` are the figures' ids, by their place in [`Grid::figures`].
///
/// Every figure that compares settings has one at least. Without any valid run there is none.
pub fn headlines(grid: &Grid, ids: &[String]) -> Vec<Headline> {
    let mut of_figures = of_figures(grid);
    let mut spare = MAX_HEADLINES.saturating_sub(of_figures.len());
    let mut all = Vec::new();
    for (index, sentences) in &mut of_figures {
        let most = if all.is_empty() {
            MAX_OF_MAIN
        } else {
            MAX_OF_FIGURE
        };
        shorten(sentences, most.min(1 + spare));
        spare -= sentences.len() - 1;
        all.extend(sentences.drain(..).map(|(value, text)| Headline {
            value,
            text,
            figure: ids.get(*index).cloned(),
        }));
    }
    all
}

/// The first sentence of each figure that compares settings, after the title of the figure.
pub fn one_per_figure<'a>(grid: &Grid<'a>) -> Vec<(&'a str, String)> {
    let specs: Vec<&'a FigureSpec> = grid.figures().collect();
    let one = |(index, mut sentences): (usize, Vec<(String, String)>)| {
        shorten(&mut sentences, 1);
        let (value, text) = sentences.swap_remove(0);
        let text = match value.as_str() {
            "" => text,
            value => format!("{value}: {text}"),
        };
        (specs[index].title.as_str(), text)
    };
    of_figures(grid).into_iter().map(one).collect()
}

/// (The place in [`Grid::figures`], its sentences) of each figure that has any.
fn of_figures(grid: &Grid) -> Vec<(usize, Vec<(String, String)>)> {
    let mut all: Vec<(usize, Vec<(String, String)>)> = Vec::new();
    if grid.cells.iter().all(|cell| cell.runs.is_empty()) {
        return all;
    }
    for (index, spec) in grid.figures().enumerate() {
        let mut sentences = figure_sentences(grid, spec);
        // What did not change is news of the main figure only, or once if there is nothing else.
        if !all.is_empty() {
            match sentences.iter().any(|(value, _)| !value.is_empty()) {
                true => sentences.retain(|(value, _)| !value.is_empty()),
                false => sentences.truncate(1),
            }
        }
        if !sentences.is_empty() {
            all.push((index, sentences));
        }
    }
    all
}

/// Excludes unchanged quantities first, from the last, and then changed ones.
fn shorten(sentences: &mut Vec<(String, String)>, most: usize) {
    while sentences.len() > most {
        let unchanged = sentences.iter().rposition(|(value, _)| value.is_empty());
        sentences.remove(unchanged.unwrap_or(sentences.len() - 1));
    }
}

/// (The figure in large type, the sentence).
fn figure_sentences(grid: &Grid, spec: &FigureSpec) -> Vec<(String, String)> {
    let Ok(requested) = metrics::find(&spec.y) else {
        return Vec::new();
    };
    let axis = match (&spec.x, &spec.by, spec.kind) {
        (Some(x), ..) => x,
        // A timeline or a distribution is described by the axis of its lines.
        (None, Some(by), FigureKind::Distribution) => by,
        _ => return Vec::new(),
    };
    // Not every value has the quantity: without a flow of BBR there is no share of it.
    let is_measured = |value: &&str| {
        let mut cells = grid.cells.iter().filter(|cell| cell.value(axis) == *value);
        cells.any(|cell| cell.runs.is_empty() || !cell.values(&requested).is_empty())
    };
    let first = || grid.values(axis).into_iter().find(is_measured);
    let Some(baseline) = grid.baseline(axis).filter(is_measured).or_else(first) else {
        return Vec::new();
    };
    let others: Vec<&str> = reported(&grid.values(axis), baseline);
    let lines = lines(grid, spec, axis);
    let mut sentences = Vec::new();
    // The nearest value first for every line, then the next one: the first sentences are the most asked.
    for value in others {
        for line in &lines {
            let cells = || grid.cells_of(line);
            let from = cells().find(|cell| cell.value(axis) == baseline);
            let to = cells().find(|cell| cell.value(axis) == value);
            if let (Some(from), Some(to)) = (from, to) {
                sentences.extend(sentence(grid, &requested, axis, line, (from, to)));
            }
        }
    }
    sentences
}

/// The values worth a sentence: of many numbers only the first after the baseline (1 % of loss, where
/// there is one) and the last.
fn reported<'a>(values: &[&'a str], baseline: &str) -> Vec<&'a str> {
    let others: Vec<&str> = values.iter().copied().filter(|v| *v != baseline).collect();
    let one_percent = others.iter().copied().find(|v| *v == "1%");
    match (others.first(), others.last()) {
        (Some(first), Some(last)) if others.len() > 3 && axis_value::number(first).is_some() => {
            vec![one_percent.unwrap_or(first), last]
        }
        _ => others,
    }
}

/// Every combination of the other axes that the figure names; those that it does not name stay where
/// most cells are.
fn lines(grid: &Grid, spec: &FigureSpec, axis: &str) -> Vec<Setting> {
    let others: Vec<&str> = grid
        .manifest
        .axes
        .iter()
        .map(|a| a.name.as_str())
        .filter(|name| *name != axis)
        .collect();
    let is_named = |name: &str| {
        [&spec.by, &spec.split]
            .into_iter()
            .flatten()
            .any(|n| n == name)
    };
    let stays = |line: &Setting| {
        let mut unnamed = line.iter().filter(|(name, _)| !is_named(name));
        unnamed.all(|(name, value)| grid.commonest(name) == Some(value))
    };
    grid.combinations(&others)
        .into_iter()
        .filter(stays)
        .collect()
}

fn sentence(
    grid: &Grid,
    requested: &Requested,
    axis: &str,
    line: &Setting,
    (from, to): (&Cell, &Cell),
) -> Option<(String, String)> {
    let unit = requested.metric.measure.unit();
    let known = grid.axis(axis)?;
    let (was, is) = (
        grid.shown(axis, from.value(axis)),
        grid.word(known, to.value(axis)),
    );
    let who = match grid.words(line) {
        empty if empty.is_empty() => String::new(),
        words => format!("{words}: "),
    };
    let quantity = lower_first(&requested.title());
    if let Some(cell) = [to, from].into_iter().find(|cell| cell.runs.is_empty()) {
        let without = grid.word(known, cell.value(axis));
        let text = format!(
            "{who}{quantity} with {is} instead of {was} is unknown, because no run with {without} is valid."
        );
        return Some((String::new(), text));
    }
    let change = Change::between(&from.values(requested), &to.values(requested))?;
    let (before, after) = (unit.show(change.from), unit.show(change.to));
    let runs = from.values(requested).len().min(to.values(requested).len());
    if !change.is_shown() {
        let text = match change.can_be_shown() {
            true => format!(
                "{who}no significant change of {quantity} with {is} ({after}) instead of {was} ({before}); \
                  {runs} runs each."
            ),
            false => format!(
                "{who}{quantity} was {after} with {is} and {before} with {was}. With {} this is not \
                  significant.",
                few(runs)
            ),
        };
        return Some((String::new(), text));
    }
    // A difference that no reader can see is none.
    if before == after {
        let text = format!("{who}{quantity} stays at {after} with {is} instead of {was}.");
        return Some((String::new(), text));
    }
    let verb = if change.to < change.from {
        "falls"
    } else {
        "rises"
    };
    let (value, how_much) = match change.headline() {
        // An index or a score is stated as it is: percent of it have no meaning.
        Some(_) if requested.metric.measure == Measure::Number => (after.clone(), String::new()),
        Some(headline) => (headline, format!(" ({})", change.words())),
        None => (after.clone(), String::new()),
    };
    let text = format!(
        "{who}{quantity} {verb} from {before} to {after} with {is} instead of {was}{how_much}."
    );
    Some((value, text))
}

fn few(runs: usize) -> String {
    match runs {
        1 => "a single run each".to_owned(),
        n => format!("only {n} runs each"),
    }
}

fn lower_first(text: &str) -> String {
    // "BBR's estimate", "MOS": names keep their capitals.
    let second_is_lower = text.chars().nth(1).is_some_and(char::is_lowercase);
    let mut letters = text.chars();
    match letters.next() {
        Some(first) if second_is_lower && !text.starts_with("Jain") => {
            first.to_lowercase().chain(letters).collect()
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{Axis, Manifest};
    use crate::record::{FlowRecord, RunRecord};
    use crate::results::Results;

    fn results(rows: &[(&str, &str, f64)]) -> Results {
        let axis = |name: &str, values: &[&str]| Axis {
            name: name.into(),
            values: values.iter().map(|v| (*v).to_owned()).collect(),
            ..Axis::default()
        };
        let run = |(cc, loss, mbit): &(&str, &str, f64)| RunRecord {
            setting: [("cc", *cc), ("loss", *loss)]
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .into(),
            flows: vec![FlowRecord {
                goodput_bps: mbit * 1e6,
                ..FlowRecord::default()
            }],
            ..RunRecord::default()
        };
        Results {
            manifest: Manifest {
                axes: vec![
                    axis("cc", &["cubic", "bbr"]),
                    axis("loss", &["0%", "1%", "10%"]),
                ],
                figures: vec![FigureSpec {
                    title: "t".into(),
                    kind: FigureKind::Curve,
                    x: Some("loss".into()),
                    y: "goodput".into(),
                    by: Some("cc".into()),
                    split: None,
                    theory: false,
                    log_x: false,
                    log_y: false,
                }],
                ..Manifest::default()
            },
            runs: rows.iter().map(run).collect(),
            ..Results::default()
        }
    }

    fn texts(results: &Results) -> Vec<(String, String)> {
        headlines(&Grid::new(results), &["f".to_owned()])
            .into_iter()
            .map(|h| (h.value, h.text.replace('\u{a0}', " ")))
            .collect()
    }

    #[test]
    fn a_decrease_has_its_interval() {
        let results = results(&[
            ("cubic", "0%", 800.0),
            ("cubic", "0%", 810.0),
            ("cubic", "0%", 805.0),
            ("cubic", "1%", 230.0),
            ("cubic", "1%", 240.0),
            ("cubic", "1%", 235.0),
        ]);
        let reported = texts(&results);
        assert_eq!(reported.len(), 1);
        assert_eq!(reported[0].0.replace('\u{a0}', " "), "\u{2212}71 %");
        let text = &reported[0].1;
        assert!(
            text.contains("goodput falls from 805 Mbit/s to 235 Mbit/s"),
            "{text}"
        );
        assert!(text.contains("with loss 1% instead of 0%"), "{text}");
        assert!(text.contains("90 % confidence"), "{text}");
    }

    #[test]
    fn two_runs_support_no_conclusion() {
        let results = results(&[
            ("cubic", "0%", 800.0),
            ("cubic", "0%", 810.0),
            ("cubic", "1%", 230.0),
            ("cubic", "1%", 240.0),
        ]);
        let reported = texts(&results);
        assert_eq!(reported[0].0, "");
        assert!(
            reported[0]
                .1
                .contains("235 Mbit/s with loss 1% and 805 Mbit/s with 0%"),
            "{}",
            reported[0].1
        );
        assert!(
            reported[0]
                .1
                .contains("With only 2 runs each this is not significant"),
            "{}",
            reported[0].1
        );
    }

    #[test]
    fn changed_tests_are_excluded_last() {
        let sentence = |value: &str| (value.to_owned(), String::new());
        let mut sentences: Vec<_> = ["", "a", "", "b", "c", "d"].map(sentence).into();
        shorten(&mut sentences, 4);
        let left: Vec<&str> = sentences.iter().map(|(value, _)| value.as_str()).collect();
        assert_eq!(left, ["a", "b", "c", "d"]);
        shorten(&mut sentences, 3);
        assert_eq!(sentences.len(), 3);
        assert_eq!(sentences[2].0, "c");
    }

    #[test]
    fn first_losses_are_reported_before_the_last() {
        let mut rows = Vec::new();
        for (cc, factor) in [("cubic", 0.3), ("bbr", 0.9)] {
            for (loss, share) in [("0%", 1.0), ("1%", factor), ("10%", factor * factor)] {
                rows.extend([1.0, 1.01, 0.99].map(|noise| (cc, loss, 800.0 * share * noise)));
            }
        }
        let results = results(&rows);
        let reported: Vec<String> = texts(&results).into_iter().map(|(_, text)| text).collect();
        assert_eq!(reported.len(), 4);
        assert!(
            reported[0].starts_with("cubic: ") && reported[0].contains("loss 1%"),
            "{reported:?}"
        );
        assert!(
            reported[1].starts_with("bbr: ") && reported[1].contains("loss 1%"),
            "{reported:?}"
        );
        assert!(
            reported[2].contains("loss 10%") && reported[3].contains("loss 10%"),
            "{reported:?}"
        );
    }
}
