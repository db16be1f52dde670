//! The `sqm` column of `ShapedDevices.csv`: the queue of one circuit, as `QUEUE` or `DOWN/UP`.
//!
//! The queue of all classes is one choice of the shaper and its back end. So a choice for one circuit
//! is refused, with one error for each value and not one for each row. An empty cell has no choice.

use std::collections::BTreeMap;

use crate::problem::{ProblemKind, Problems};
use crate::source::Place;
use crate::table::Cell;

/// Values of the column that choose a queue, each with its first place and its number of rows.
#[derive(Default)]
pub(crate) struct RefusedQueues(BTreeMap<String, (Place, usize)>);

impl RefusedQueues {
    /// Reads the cell of one row. O(log values).
    pub(crate) fn read(&mut self, cell: Cell<'_>) {
        let value = cell.text.trim().to_ascii_lowercase();
        if !matches!(value.as_str(), "" | "/") {
            self.0.entry(value).or_insert((cell.place, 0)).1 += 1;
        }
    }

    pub(crate) fn report(self, problems: &mut Problems) {
        for (value, (place, rows)) in self.0 {
            let unit = if rows == 1 { "row" } else { "rows" };
            let text = format!(
                "sqm \"{value}\" in {rows} {unit}: a circuit cannot choose its queue: \
                 leave the cell empty, and set \"policy\" of [shape] for all classes"
            );
            problems.error(ProblemKind::Value, place, "", text);
        }
    }
}
