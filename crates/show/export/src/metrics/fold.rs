//! Limits the number of rows: rows with the most traffic stay, the others are summed by kind.
//!
//! Traffic counts since counting began, so the selection rarely changes. When it does, the counters of
//! `other` can decrease. A scraper treats this as a restart of the counter: one rate is too low or too
//! high. A row whose parent is summed too is not added again, because the parent includes it.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

use fairpath_history::snapshot::{FlowCounts, Kind, Leg, SnapshotRow, Volume};

use super::Reported;

/// The class label of summed rows.
const OTHER: &str = "other";

/// The rows after summing.
pub(super) struct Folded<'a> {
    /// Unchanged rows in their order, then one `other` for each kind of summed rows.
    pub rows: Vec<Cow<'a, SnapshotRow>>,
    /// Number of summed rows.
    pub summed: usize,
}

/// Reduces `rows` to at most `max_rows` rows, sums included. O(n log n).
///
/// A limit below the number of kinds leaves no rows and no sums.
pub(super) fn fold<'a>(
    rows: &'a [SnapshotRow],
    max_rows: usize,
    reported: &Reported<'_>,
) -> Folded<'a> {
    if rows.len() <= max_rows {
        return Folded {
            rows: rows.iter().map(Cow::Borrowed).collect(),
            summed: 0,
        };
    }
    let kinds: HashSet<Kind> = rows.iter().map(|row| row.kind).collect();
    let stay = busiest(rows, max_rows.saturating_sub(kinds.len()));
    let (kept, folded): (Vec<_>, Vec<_>) = rows
        .iter()
        .enumerate()
        .partition(|(at, row)| stay.contains(at) && row.name != OTHER);
    let folded: Vec<&SnapshotRow> = folded.into_iter().map(|(_, row)| row).collect();
    let summed = folded.len();
    let mut kept: Vec<Cow<'_, SnapshotRow>> = kept
        .into_iter()
        .map(|(_, row)| Cow::Borrowed(row))
        .collect();
    if max_rows >= kinds.len() {
        kept.extend(sums(&folded, reported).into_values().map(Cow::Owned));
    }
    Folded { rows: kept, summed }
}

/// The indices of the `count` rows with the most traffic. A parent precedes its children.
fn busiest(rows: &[SnapshotRow], count: usize) -> HashSet<usize> {
    let mut order: Vec<usize> = (0..rows.len()).collect();
    let bytes = |row: &SnapshotRow| row.up.bytes.saturating_add(row.down.bytes);
    order.sort_by_key(|at| (u64::MAX - bytes(&rows[*at]), rows[*at].depth, *at));
    order.truncate(count);
    order.into_iter().collect()
}

fn sums(folded: &[&SnapshotRow], reported: &Reported<'_>) -> BTreeMap<Kind, SnapshotRow> {
    let names: HashSet<(Kind, &str)> = folded
        .iter()
        .map(|row| (row.kind, row.name.as_str()))
        .collect();
    let mut sums: BTreeMap<Kind, SnapshotRow> = BTreeMap::new();
    for row in folded {
        let sum = sums.entry(row.kind).or_insert_with(|| SnapshotRow {
            name: OTHER.to_owned(),
            kind: row.kind,
            ..SnapshotRow::default()
        });
        let in_parent = row
            .parent
            .as_deref()
            .is_some_and(|p| names.contains(&(row.kind, p)));
        if !in_parent {
            add(sum, row);
        }
        sum.alerts.extend(reported.of(row));
    }
    sums
}

fn add(sum: &mut SnapshotRow, row: &SnapshotRow) {
    add_volume(&mut sum.up, &row.up);
    add_volume(&mut sum.down, &row.down);
    add_leg(&mut sum.inside, &row.inside);
    add_leg(&mut sum.outside, &row.outside);
    sum.flows = FlowCounts {
        opened: sum.flows.opened + row.flows.opened,
        closed: sum.flows.closed + row.flows.closed,
        handshakes_failed: sum.flows.handshakes_failed + row.flows.handshakes_failed,
        one_sided: sum.flows.one_sided + row.flows.one_sided,
    };
}

fn add_volume(sum: &mut Volume, volume: &Volume) {
    sum.bytes += volume.bytes;
    sum.packets += volume.packets;
}

fn add_leg(sum: &mut Leg, leg: &Leg) {
    sum.lost_packets += leg.lost_packets;
    sum.data_packets += leg.data_packets;
    sum.reordered_packets += leg.reordered_packets;
    sum.total.samples += leg.total.samples;
    sum.total.sum_ns += leg.total.sum_ns;
    sum.total.unbinned += leg.total.unbinned;
    sum.total.histogram.merge(&leg.total.histogram);
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairpath_history::snapshot::{Alert, AlertKind};

    fn row(name: &str, parent: Option<&str>, bytes: u64) -> SnapshotRow {
        let mut row = SnapshotRow {
            name: name.to_owned(),
            parent: parent.map(str::to_owned),
            depth: u32::from(parent.is_some()),
            ..SnapshotRow::default()
        };
        row.down.bytes = bytes;
        row.inside.total.histogram.record(bytes * 1_000_000);
        row
    }

    #[test]
    fn the_busiest_rows_stay_and_others_are_summed() {
        let mut rows = vec![
            row("site", None, 90),
            row("a", Some("site"), 50),
            row("b", Some("site"), 40),
            row("quiet", None, 7),
            row("c", Some("quiet"), 4),
            row("d", Some("quiet"), 3),
        ];
        rows[5].alerts.push(AlertKind::Loss);
        let alerts = [Alert {
            class: "d".to_owned(),
            alert: AlertKind::Loss,
            ..Alert::default()
        }];
        let folded = fold(&rows, 4, &Reported::new(&alerts));
        let names: Vec<&str> = folded.rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["site", "a", "b", "other"]);
        assert_eq!(folded.summed, 3);
        assert_eq!(
            folded.rows[3].down.bytes, 7,
            "the parent includes its children"
        );
        assert_eq!(folded.rows[3].inside.total.histogram.count(), 1);
        assert_eq!(folded.rows[3].alerts, [AlertKind::Loss], "no alert is lost");
    }

    #[test]
    fn a_class_named_other_makes_one_series() {
        let rows = [
            row("other", None, 90),
            row("a", None, 80),
            row("b", None, 1),
        ];
        let none = Reported::new(&[]);
        let folded = fold(&rows, 2, &none);
        let names: Vec<&str> = folded.rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["other"]);
        assert_eq!(fold(&rows, 3, &none).summed, 0);
    }
}
