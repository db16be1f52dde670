//! Compares the rates of classes.

use crate::draft::{Draft, DraftRates};
use crate::problem::{ProblemKind, Problems};
use crate::tree::Tree;

/// Reports floors above ceilings, and ceilings above those of ancestors.
pub(crate) fn check(tree: &Tree, problems: &mut Problems) {
    for at in 0..tree.nodes.len() {
        direction(tree, at, "up", |draft| &draft.up, problems);
        direction(tree, at, "down", |draft| &draft.down, problems);
    }
}

fn direction(
    tree: &Tree,
    at: usize,
    word: &str,
    of: fn(&Draft) -> &DraftRates,
    problems: &mut Problems,
) {
    let draft = &tree.nodes[at].draft;
    let (name, rates) = (&draft.name, of(draft));
    let Some(ceil) = &rates.ceil_bps else {
        return;
    };
    if let Some(floor) = rates
        .floor_bps
        .as_ref()
        .filter(|floor| floor.value > ceil.value)
    {
        let text = format!(
            "class \"{name}\": {word}: floor {} is above ceiling {}",
            written(floor.value),
            written(ceil.value)
        );
        problems.error(ProblemKind::Value, floor.place, name, text);
    }
    let around = tree.ancestors(at).find_map(|above| {
        let draft = &tree.nodes[above].draft;
        of(draft)
            .ceil_bps
            .as_ref()
            .map(|ceil| (&draft.name, ceil.value))
    });
    if let Some((above, limit)) = around.filter(|(_, limit)| *limit < ceil.value) {
        let text = format!(
            "class \"{name}\": {word}: ceiling {} is above ceiling {} of its ancestor \"{above}\"",
            written(ceil.value),
            written(limit)
        );
        problems.warning(ProblemKind::Ceiling, ceil.place, name, text);
    }
}

/// An exact rate in the syntax of the configuration.
fn written(bps: u64) -> String {
    let units = [
        (1_000_000_000, "gbit"),
        (1_000_000, "mbit"),
        (1_000, "kbit"),
    ];
    // With up to three decimals.
    for (unit, word) in units {
        if bps >= unit && bps.is_multiple_of(unit / 1000) {
            let number = format!("{}.{:03}", bps / unit, bps % unit / (unit / 1000));
            return format!(
                "{}{word}",
                number.trim_end_matches('0').trim_end_matches('.')
            );
        }
    }
    format!("{bps}bit")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::rate_bps;

    #[test]
    fn written_rates_read_back() {
        for (bps, text) in [
            (20_000_000, "20mbit"),
            (1_500_000_000, "1.5gbit"),
            (64_250, "64.25kbit"),
            (1_234_567_891, "1234567.891kbit"),
            (100_000_000_000, "100gbit"),
            (999, "999bit"),
        ] {
            assert_eq!(written(bps), text);
            assert_eq!(rate_bps(text), Ok(bps));
        }
    }
}
