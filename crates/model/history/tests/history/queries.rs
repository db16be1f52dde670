//! The rows of a query and their order.

use fairpath_core::{DOWN, INSIDE, UP};
use fairpath_history::history::{History, Meta};
use fairpath_history::snapshot::{Kind, Query, SnapshotRow, Sort};
use proptest::prelude::*;

use crate::world::*;

fn busy_world(seed: u64, leaves: u32) -> History {
    let mut dice = Dice(seed);
    let mut world = World::new(leaves as usize + 1);
    let mut rows = vec![
        group("North"),
        group("south"),
        below(0, group("north east")),
    ];
    for leaf in 1..=leaves {
        let mut spec = class(&format!("Site {}", dice.below(1 << 40)), leaf);
        spec.parent = [None, Some(0), Some(1), Some(2)][dice.below(4) as usize];
        spec.ceil_down_bps = Some(10_000_000);
        if spec.parent.is_none() && dice.below(2) == 0 {
            spec.kind = Kind::Subnet;
        }
        rows.push(spec);
    }
    let mut history = world.history(rows);
    for second in 0..6 {
        for leaf in (1..=leaves).filter(|leaf| leaf % 4 > 0) {
            let busy = (second + leaf) % 2 == 0;
            world.bytes(
                leaf,
                DOWN,
                100,
                if busy { 900_000 } else { 9_000 } + dice.below(99),
            );
            for _ in 0..30 {
                let rtt = dice.rtt(if busy { 60.0 } else { 20.0 }, 0.3);
                world.rtt(leaf, INSIDE, rtt);
            }
            world.data(leaf, UP, 100, 0, dice.below(9) as u32);
            world.counts[leaf as usize].flows_opened += dice.below(50) as u32;
        }
        world.second(&mut history);
    }
    history
}

fn value(row: &SnapshotRow, sort: Sort) -> Option<f64> {
    let float = |ns: Option<u64>| ns.map(|ns| ns as f64);
    match sort {
        Sort::Tree | Sort::Name => None,
        Sort::Rate => Some(row.up.rate_bps + row.down.rate_bps),
        Sort::InsideP95 => float(row.inside.p95_rtt_ns),
        Sort::OutsideP95 => float(row.outside.p95_rtt_ns),
        Sort::Growth => float(row.load.rtt_growth_ns),
        Sort::Flows => Some(row.flows.open() as f64),
        Sort::Loss => {
            let legs = [&row.inside, &row.outside];
            let shares = legs
                .iter()
                .flat_map(|leg| [leg.loss_to_ratio, leg.loss_from_ratio]);
            shares.flatten().max_by(f64::total_cmp)
        }
    }
}

fn is_under(rows: &[SnapshotRow], row: &SnapshotRow, top: &str) -> bool {
    row.name == top
        || row.parent.as_ref().is_some_and(|parent| {
            let parent = rows.iter().find(|row| row.name == *parent).unwrap();
            is_under(rows, parent, top)
        })
}

/// The same result computed from all rows.
fn expected(all: &[SnapshotRow], query: &Query) -> Vec<String> {
    let mut rows: Vec<&SnapshotRow> = all
        .iter()
        .filter(|row| query.kind.is_none_or(|kind| row.kind == kind))
        .filter(|row| query.depth.is_none_or(|depth| row.depth <= depth))
        .filter(|row| {
            query
                .under
                .as_ref()
                .is_none_or(|top| is_under(all, row, top))
        })
        .filter(|row| {
            let name = row.name.to_lowercase();
            query
                .filter
                .as_ref()
                .is_none_or(|part| name.contains(&part.to_lowercase()))
        })
        .collect();
    let folded = |row: &SnapshotRow| {
        let from = query.folded_from_depth.unwrap_or(u32::MAX);
        (row.depth >= from) != query.fold_except.contains(&row.name)
    };
    let in_range = |row: &&SnapshotRow| {
        let under = query.under.as_ref();
        under.is_none_or(|top| is_under(all, row, top))
    };
    rows.retain(|row| !ancestors(all, row).filter(in_range).any(folded));
    if query.by_parent && query.sort != Sort::Tree {
        rows = by_parent(all, &rows, query.sort);
    } else {
        order(&mut rows, query.sort);
    }
    let most = if query.limit == 0 {
        rows.len()
    } else {
        query.limit
    };
    let shown = rows.iter().skip(query.offset).take(most);
    shown.map(|row| row.name.clone()).collect()
}

fn ancestors<'a>(
    all: &'a [SnapshotRow],
    row: &'a SnapshotRow,
) -> impl Iterator<Item = &'a SnapshotRow> {
    let above = |row: &&SnapshotRow| {
        let parent = row.parent.as_ref()?;
        all.iter().find(|row| row.name == *parent)
    };
    std::iter::successors(above(&row), above)
}

/// The rows without selected ancestors in order, each before those below it.
fn by_parent<'a>(
    all: &'a [SnapshotRow],
    rows: &[&'a SnapshotRow],
    sort: Sort,
) -> Vec<&'a SnapshotRow> {
    let is_selected = |row: &SnapshotRow| rows.iter().any(|other| other.name == row.name);
    let mut tops: Vec<&SnapshotRow> = rows
        .iter()
        .copied()
        .filter(|row| !ancestors(all, row).any(is_selected))
        .collect();
    order(&mut tops, sort);
    let mut sorted = Vec::new();
    for top in tops {
        let below: Vec<&SnapshotRow> = rows
            .iter()
            .copied()
            .filter(|row| ancestors(all, row).any(|above| above.name == top.name))
            .collect();
        sorted.push(top);
        sorted.extend(by_parent(all, &below, sort));
    }
    sorted
}

fn order(rows: &mut [&SnapshotRow], sort: Sort) {
    match sort {
        Sort::Tree => {}
        Sort::Name => rows.sort_by_key(|row| row.name.clone()),
        sort => rows.sort_by(|a, b| {
            let value = |row| value(row, sort).unwrap_or(-1.0);
            value(b).total_cmp(&value(a))
        }),
    }
}

fn sorts() -> impl Strategy<Value = Sort> {
    prop::sample::select(vec![
        Sort::Tree,
        Sort::Name,
        Sort::Rate,
        Sort::InsideP95,
        Sort::OutsideP95,
        Sort::Growth,
        Sort::Loss,
        Sort::Flows,
    ])
}

fn queries() -> impl Strategy<Value = Query> {
    let names = ["North", "south", "north east", "nowhere"]
        .map(str::to_owned)
        .to_vec();
    let parts = ["site 1", "NORTH", "7", ""].map(str::to_owned).to_vec();
    let folds = vec![None, Some(0), Some(1), Some(9)];
    let folds = (
        prop::sample::select(folds),
        prop::sample::subsequence(names.clone(), 0..3),
    );
    (
        (sorts(), prop::bool::ANY, folds),
        prop::option::of(prop::sample::select(parts)),
        prop::option::of(prop::sample::select(names)),
        prop::option::of(prop::sample::select(vec![
            Kind::Class,
            Kind::Subnet,
            Kind::Other,
        ])),
        prop::option::of(0u32..3),
        (0usize..9, 0usize..4),
    )
        .prop_map(
            |(order, filter, under, kind, depth, (limit, offset))| Query {
                sort: order.0,
                by_parent: order.1,
                folded_from_depth: order.2.0,
                fold_except: order.2.1,
                offset,
                filter,
                under,
                kind,
                depth,
                limit,
                ..Query::default()
            },
        )
}

proptest! {
    #![proptest_config(fairpath_units::property!(100))]

    #[test]
    fn a_query_returns_its_rows_in_order(
        seed in 0u64..20, leaves in 1u32..30, query in queries(),
    ) {
        let history = busy_world(seed, leaves);
        let all = snapshot_of(&history).rows;
        let reported = history.snapshot(&query, Meta::default());
        let names: Vec<String> = reported.rows.iter().map(|row| row.name.clone()).collect();
        prop_assert_eq!(names, expected(&all, &query));
        prop_assert_eq!(reported.rows_total, all.len() as u64);
        let whole = Query { limit: 0, offset: 0, ..query };
        prop_assert_eq!(reported.rows_selected, expected(&all, &whole).len() as u64);
    }
}

#[test]
fn histograms_and_history_are_optional() {
    let history = busy_world(3, 8);
    let plain = history.snapshot(&Query::default(), Meta::default());
    let full = snapshot_of(&history);
    let bare = |row: &SnapshotRow| row.inside.total.histogram.is_empty() && row.history.is_empty();
    assert!(plain.rows.iter().all(bare));
    assert!(
        full.rows
            .iter()
            .any(|row| !row.inside.total.histogram.is_empty())
    );
    assert!(full.rows.iter().any(|row| row.history.len() == 6));
    assert!(full.rows.iter().any(|row| row.load.score.is_some()));
}

#[test]
fn a_snapshot_has_times_and_counters() {
    let history = busy_world(3, 8);
    let meta = Meta {
        version: "1".into(),
        host: "edge".into(),
        counters: [("samples".to_owned(), 5)].into(),
    };
    let status = history.status(meta);
    assert!(status.rows.is_empty());
    assert_eq!(status.time, "2027-01-15T08:00:06Z");
    assert_eq!((status.up_ns, status.interval_ns), (6 * SECOND, SECOND));
    assert_eq!((status.configuration, status.rows_total), (1, 11));
    assert_eq!(status.counting_since_unix_ns, THEN);
    assert_eq!((status.gap_ns, status.counters["samples"]), (None, 5));
    assert_eq!(status.counters["history_cells_without_row"], 0);
}
