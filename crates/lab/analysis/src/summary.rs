//! The end of a command in a terminal: a headline for each question, and the limits of the results.
//!
//! The page has the same at its top.

use crate::grid::Grid;
use crate::sentences;

/// Settings that are named; more are only counted.
pub const MAX_NAMED_SETTINGS: usize = 20;

/// Lines for a terminal: a headline for each figure that compares settings, the number of invalid runs,
/// and the settings without a valid run.
pub fn text(grid: &Grid) -> String {
    let mut text = String::new();
    for (title, headline) in sentences::one_per_figure(grid) {
        text += &format!("{title}\n    {headline}\n");
    }
    let (runs, excluded) = grid.counts();
    text += &match (runs, excluded) {
        (0, _) => "No run is complete: there are no results.\n".to_owned(),
        (runs, 0) => format!("Invalid runs: none of {runs}\n"),
        (runs, excluded) => {
            format!("Invalid runs: {excluded} of {runs}, excluded from all figures\n")
        }
    };
    if let Some(settings) = without_valid_run(grid) {
        text += &format!("Settings without a valid run: {settings}\n");
    }
    text.replace(['\u{a0}', '\u{202f}'], " ")
}

/// "loss 10%, cubic; loss 10%, bbr": the settings whose runs are all invalid, by name; none if every
/// setting has a valid run.
pub fn without_valid_run(grid: &Grid) -> Option<String> {
    let mut names: Vec<String> = (grid.without_valid_run())
        .map(|cell| match grid.words(&cell.setting) {
            words if words.is_empty() => "the only one".to_owned(),
            words => words,
        })
        .collect();
    let more = names.len().saturating_sub(MAX_NAMED_SETTINGS);
    names.truncate(MAX_NAMED_SETTINGS);
    if more > 0 {
        names.push(format!("{more} more"));
    }
    (!names.is_empty()).then(|| names.join("; "))
}
