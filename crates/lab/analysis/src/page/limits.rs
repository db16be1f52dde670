//! Limits of valid results: few loss events, runs that were not repeated, machines that differ.

use std::collections::BTreeSet;

use fairpath_report::Notice;

use crate::grid::Grid;
use crate::results::Results;
use crate::validation::FEW_LOSS_EVENTS;

/// Runs that are named; more are only counted.
const MAX_NAMED_RUNS: usize = 10;

/// Invalid runs that were not repeated, because the time of the quick form was over.
pub fn not_again(grid: &Grid) -> Option<Notice> {
    let left = &grid.manifest.not_again;
    (!left.is_empty()).then(|| {
        Notice::warning(format!(
            "{} invalid runs were not repeated, because the five minutes of the quick form were over (runs {}). \
             Repeat the command to run them.",
            left.len(),
            named(left)
        ))
    })
}

/// Runs of several kernels or versions in one directory.
pub fn mixed(results: &Results) -> Option<Notice> {
    let runs = results.runs.iter();
    let made: BTreeSet<_> = runs.map(|run| (&run.kernel, &run.fairpath)).collect();
    (made.len() > 1).then(|| {
        let reported: Vec<String> = made
            .iter()
            .map(|(kernel, fairpath)| format!("{kernel}, {fairpath}"))
            .collect();
        Notice::warning(format!(
            "The results mix runs of different kernels or versions: {}.",
            reported.join("; ")
        ))
    })
}

/// Settings whose runs had too few loss events for a comparison with a model.
pub fn few_loss_events(grid: &Grid) -> Option<String> {
    let cells = grid.cells.iter();
    let few = cells.filter(|cell| cell.runs.iter().any(|run| !run.remarks.is_empty()));
    let settings: Vec<String> = few.map(|cell| grid.words(&cell.setting)).collect();
    (!settings.is_empty()).then(|| {
        format!(
            "Flows had fewer than {FEW_LOSS_EVENTS} loss events in runs of {}. Their agreement with a model is chance.",
            settings.join("; ")
        )
    })
}

fn named(runs: &[u32]) -> String {
    let mut words: Vec<String> = (runs.iter().take(MAX_NAMED_RUNS))
        .map(u32::to_string)
        .collect();
    if runs.len() > MAX_NAMED_RUNS {
        words.push("...".to_owned());
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::Manifest;
    use crate::record::RunRecord;

    fn results(kernels: &[&str]) -> Results {
        let run = |kernel: &&str| RunRecord {
            kernel: (*kernel).to_owned(),
            remarks: vec!["few".to_owned()],
            ..RunRecord::default()
        };
        Results {
            manifest: Manifest {
                not_again: (0..12).collect(),
                ..Manifest::default()
            },
            runs: kernels.iter().map(run).collect(),
            unreadable: Vec::new(),
        }
    }

    #[test]
    fn runs_not_done_are_counted_and_named() {
        let results = results(&[]);
        let grid = Grid::new(&results);
        let notice = not_again(&grid).unwrap();
        assert!(
            notice.text.starts_with("12 invalid runs"),
            "{}",
            notice.text
        );
        assert!(
            notice
                .text
                .contains("(runs 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ...)"),
            "{}",
            notice.text
        );
    }

    #[test]
    fn runs_of_two_kernels_are_reported() {
        assert_eq!(mixed(&results(&["6.18", "6.18"])), None);
        let notice = mixed(&results(&["6.18", "7.0"])).unwrap();
        assert!(notice.text.contains("6.18, ; 7.0, "), "{}", notice.text);
    }

    #[test]
    fn settings_with_few_loss_events_are_named() {
        let results = results(&["6.18"]);
        let reported = few_loss_events(&Grid::new(&results)).unwrap();
        assert!(reported.contains("fewer than 20 loss events"), "{reported}");
    }
}
