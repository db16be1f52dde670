//! The state of the screen, and its changes by keys and answers. Nothing here draws or queries.

use std::collections::HashSet;

use fairpath_history::loaded_rules::LoadedRules;
use fairpath_history::snapshot::{Detail, Query, Snapshot, SnapshotRow, Sort};

use crate::glyphs::Look;
use crate::listing::{Fold, Key};
use crate::rules::RulesView;
use crate::table::Trend;
use crate::view::View;

/// The sort orders in the sequence of the key `s`.
pub const SORTS: [Sort; 8] = [
    Sort::Tree,
    Sort::Rate,
    Sort::InsideP95,
    Sort::OutsideP95,
    Sort::Growth,
    Sort::Loss,
    Sort::Flows,
    Sort::Name,
];

/// Maximum length of a filter, characters.
pub const MAX_FILTER: usize = 64;

/// The details view.
#[derive(Clone, Debug, Default)]
pub struct Details {
    /// The name of the class.
    pub class: String,
    /// Its details, after the first answer.
    pub detail: Option<Detail>,
    /// Lines above the window.
    pub scroll: usize,
}

/// The state of the screen.
#[derive(Debug)]
pub struct State {
    /// The query to the source.
    pub query: Query,
    /// Characters and colours.
    pub look: Look,
    /// The last snapshot and its list of rows.
    pub view: Option<View>,
    /// The details view, if it replaces the table.
    pub details: Option<Details>,
    /// The view of loaded rules, if it replaces the table.
    pub rules: Option<RulesView>,
    /// True if the query of the last snapshot requested rules.
    pub has_requested_rules: bool,
    /// True if the help replaces table or details view.
    pub help: bool,
    /// The filter that is being typed.
    pub typing: Option<String>,
    /// True if new snapshots are ignored.
    pub paused: bool,
    /// The quantity of the sparkline.
    pub trend: Trend,
    /// True if the sparkline is visible, so that queries request its points.
    pub has_trend: bool,
    /// Why the source returns no snapshot.
    pub failure: Option<String>,
    /// Index of the selected row in the list.
    pub selected: usize,
    /// Index of the first visible row.
    pub offset: usize,
    /// Number of rows, or of lines of the details view, on the screen as last drawn.
    pub page: usize,
    /// The row that stays selected. `None` keeps the top of the list selected.
    anchor: Option<Key>,
    folded: HashSet<Key>,
    /// Parent and depth before each zoom.
    zooms: Vec<(Option<String>, Option<u32>)>,
}

impl State {
    /// A state without snapshot.
    pub fn new(query: Query, look: Look) -> State {
        State {
            query,
            look,
            view: None,
            details: None,
            rules: None,
            has_requested_rules: false,
            help: false,
            typing: None,
            paused: false,
            trend: Trend::Rate,
            has_trend: false,
            failure: None,
            selected: 0,
            offset: 0,
            page: 1,
            anchor: None,
            folded: HashSet::new(),
            zooms: Vec::new(),
        }
    }

    /// Shows a snapshot, unless paused.
    pub fn show(&mut self, snapshot: Snapshot) {
        self.failure = None;
        if self.paused && self.view.is_some() {
            return;
        }
        self.view = Some(View::new(snapshot, &self.query, &self.folded));
        self.follow();
        self.list_rules(|_| {});
    }

    /// The loaded rules of the last snapshot.
    pub fn loaded_rules(&self) -> Option<&LoadedRules> {
        self.view.as_ref()?.snapshot.rules.as_deref()
    }

    /// Opens or closes the view of loaded rules.
    pub fn switch_rules(&mut self) {
        self.rules = match self.rules {
            Some(_) => None,
            None => Some(RulesView::default()),
        };
        self.list_rules(|_| {});
    }

    /// Changes the view of loaded rules, if it is shown, and updates its list.
    pub fn list_rules(&mut self, change: impl FnOnce(&mut RulesView)) {
        let rules = self
            .view
            .as_ref()
            .and_then(|view| view.snapshot.rules.as_deref());
        if let Some(view) = &mut self.rules {
            change(view);
            view.list(rules);
        }
    }

    /// Moves the selection in the view of loaded rules.
    pub fn step_rules(&mut self, by: isize) {
        let rules = self
            .view
            .as_ref()
            .and_then(|view| view.snapshot.rules.as_deref());
        if let Some(view) = &mut self.rules {
            view.step(by, rules);
        }
    }

    /// Shows the details of a class, unless its view was closed or is paused.
    pub fn show_detail(&mut self, class: &str, detail: Detail) {
        if let Some(details) = &mut self.details
            && details.class == class
            && (!self.paused || details.detail.is_none())
        {
            details.detail = Some(detail);
        }
    }

    /// The selected row.
    pub fn current(&self) -> Option<&SnapshotRow> {
        self.view.as_ref()?.row(self.selected)
    }

    /// Moves the selection by `by` rows, down if positive.
    pub fn step(&mut self, by: isize) {
        let last = self.rows().saturating_sub(1);
        self.selected = self.selected.saturating_add_signed(by).min(last);
        self.anchor = self.current().map(Key::of);
    }

    /// Selects the top of the list, whichever row is there.
    pub fn first(&mut self) {
        self.selected = 0;
        self.anchor = None;
    }

    /// Selects the last row.
    pub fn last(&mut self) {
        self.step(isize::MAX);
    }

    /// Number of rows in the list.
    pub fn rows(&self) -> usize {
        self.view.as_ref().map_or(0, |p| p.entries.len())
    }

    /// Switches to the next or previous sort order.
    pub fn sort(&mut self, forward: bool) {
        let at = SORTS.iter().position(|s| *s == self.query.sort);
        let step = if forward { 1 } else { SORTS.len() - 1 };
        self.query.sort = SORTS[(at.unwrap_or(0) + step) % SORTS.len()];
        self.relist();
    }

    /// Shows only rows whose name contains `part`, or rules that contain it. An empty filter shows all.
    pub fn filter(&mut self, part: &str) {
        let part = (!part.is_empty()).then(|| part.to_owned());
        if self.rules.is_some() {
            return self.list_rules(|view| view.filter = part);
        }
        self.query.filter = part;
        self.relist();
    }

    /// The filter of the table or of the view of rules.
    pub fn active_filter(&self) -> Option<&String> {
        match &self.rules {
            Some(view) => view.filter.as_ref(),
            None => self.query.filter.as_ref(),
        }
    }

    /// Shows at most `levels` levels of the tree, all if `None`.
    pub fn levels(&mut self, levels: Option<u32>) {
        self.folded.clear();
        let top = self.zoom_depth();
        self.query.depth = levels.map(|n| top + n.max(1) - 1);
        self.relist();
    }

    fn zoom_depth(&self) -> u32 {
        let class = self.query.under.as_deref();
        let rows = self.view.as_ref().map(|p| &p.snapshot.rows);
        let found = rows.and_then(|rows| rows.iter().find(|r| Some(r.name.as_str()) == class));
        found.map_or(0, |row| row.depth)
    }

    /// Collapses or expands the selected class.
    ///
    /// Zooms into it if the snapshot does not have the classes below. Returns whether this needs a
    /// query.
    pub fn fold(&mut self) -> bool {
        let Some(view) = &self.view else {
            return false;
        };
        let Some(entry) = view.entries.get(self.selected).copied() else {
            return false;
        };
        let key = Key::of(&view.snapshot.rows[entry.row]);
        match entry.fold {
            Fold::Leaf => return false,
            Fold::Open => {
                self.folded.insert(key);
            }
            Fold::Folded if self.folded.remove(&key) => {}
            Fold::Folded => return self.zoom(),
        }
        self.relist();
        false
    }

    /// Shows only the selected class and the classes below. False if there are none below.
    pub fn zoom(&mut self) -> bool {
        let Some(row) = self.current().filter(|row| row.children > 0) else {
            return false;
        };
        let class = Some(row.name.clone());
        if class == self.query.under {
            return false;
        }
        let before = (self.query.under.take(), self.query.depth.take());
        self.zooms.push(before);
        self.query.under = class;
        self.relist();
        true
    }

    /// Clears the filter, or leaves the last zoom. False if there is neither.
    pub fn back(&mut self) -> bool {
        if self.query.filter.take().is_none() {
            let Some((under, depth)) = self.zooms.pop() else {
                return false;
            };
            self.query.under = under;
            self.query.depth = depth;
        }
        self.relist();
        true
    }

    /// Updates the list after a change of the query or of collapsed classes.
    fn relist(&mut self) {
        if let Some(view) = &mut self.view {
            view.list(&self.query, &self.folded);
        }
        self.follow();
    }

    /// Keeps the selection on its row, or on its index if the row was removed.
    fn follow(&mut self) {
        let found = match (&self.view, &self.anchor) {
            (Some(view), Some(key)) => view.find(key),
            (_, None) => Some(0),
            _ => None,
        };
        let last = self.rows().saturating_sub(1);
        self.selected = found.unwrap_or(self.selected).min(last);
    }

    /// Scrolls so that the selected row is among the `page` visible ones.
    pub fn scroll(&mut self, page: usize) {
        self.page = page.max(1);
        self.offset = scrolled(self.offset, self.selected, self.page, self.rows());
    }
}

/// The index of the first visible row, so that the selected one is among `page` visible ones of `rows`.
pub fn scrolled(offset: usize, selected: usize, page: usize, rows: usize) -> usize {
    let end = rows.saturating_sub(page);
    let first = (selected + 1).saturating_sub(page);
    offset.clamp(first, selected.max(first)).min(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(names: &[(&str, f64)]) -> Snapshot {
        let row = |(name, rate): &(&str, f64)| {
            let mut row = SnapshotRow {
                name: (*name).to_owned(),
                ..SnapshotRow::default()
            };
            row.up.rate_bps = *rate;
            row
        };
        Snapshot {
            rows: names.iter().map(row).collect(),
            rows_total: names.len() as u64,
            ..Snapshot::default()
        }
    }

    fn state() -> State {
        let look = Look {
            ascii: false,
            colour: false,
        };
        State::new(Query::default(), look)
    }

    #[test]
    fn the_selection_follows_its_row() {
        let mut state = state();
        state.query.sort = Sort::Rate;
        state.show(rows(&[("a", 3.0), ("b", 2.0), ("c", 1.0)]));
        state.step(1);
        assert_eq!(state.current().unwrap().name, "b");
        state.show(rows(&[("a", 3.0), ("b", 2.0), ("c", 9.0)]));
        assert_eq!((state.selected, &*state.current().unwrap().name), (2, "b"));
        state.show(rows(&[("a", 3.0), ("c", 9.0)]));
        assert_eq!(state.current().unwrap().name, "a");
    }

    #[test]
    fn the_selection_stays_at_the_top_until_moved() {
        let mut state = state();
        state.query.sort = Sort::Rate;
        state.show(rows(&[("a", 3.0), ("b", 2.0)]));
        state.show(rows(&[("a", 3.0), ("b", 9.0)]));
        assert_eq!(state.current().unwrap().name, "b");
    }

    #[test]
    fn a_paused_snapshot_can_be_sorted() {
        let mut state = state();
        state.show(rows(&[("a", 1.0), ("b", 2.0)]));
        state.paused = true;
        state.show(rows(&[("x", 1.0)]));
        assert_eq!(state.rows(), 2);
        state.sort(true);
        assert_eq!(state.query.sort, Sort::Rate);
        assert_eq!(state.current().unwrap().name, "b");
        state.sort(false);
        assert_eq!(state.current().unwrap().name, "a");
    }

    #[test]
    fn scrolling_follows_the_selection_within_the_list() {
        let mut state = state();
        let names: Vec<String> = (0..30).map(|i| format!("c{i:02}")).collect();
        let named: Vec<(&str, f64)> = names.iter().map(|n| (n.as_str(), 0.0)).collect();
        state.show(rows(&named));
        state.step(12);
        state.scroll(10);
        assert_eq!(state.offset, 3);
        state.last();
        state.scroll(10);
        assert_eq!((state.selected, state.offset), (29, 20));
        state.scroll(25);
        assert_eq!(state.offset, 5);
        state.first();
        state.scroll(25);
        assert_eq!(state.offset, 0);
    }

    #[test]
    fn expanding_a_class_without_loaded_children_zooms() {
        let mut state = state();
        let mut snapshot = rows(&[("site", 1.0), ("other", 1.0)]);
        snapshot.rows[0].children = 5;
        state.show(snapshot);
        assert!(state.fold());
        assert_eq!(state.query.under.as_deref(), Some("site"));
        assert!(!state.zoom(), "already zoomed");
        assert!(state.back());
        assert_eq!(state.query.under, None);
        assert!(!state.back());
    }
}
