//! What the screen shows and how keys and answers change it. Draws nothing, asks nobody.

use std::collections::HashSet;

use fairpath_history::snapshot::{Detail, Query, Row, Snapshot, Sort};

use crate::glyphs::Look;
use crate::listing::{Fold, Key};
use crate::picture::Picture;
use crate::table::Trend;

/// Sorts in the order that `s` goes through.
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

/// Most characters of a filter.
pub const MAX_FILTER: usize = 64;

/// One class looked at closely.
#[derive(Clone, Debug, Default)]
pub struct Closeup {
    /// Its name.
    pub class: String,
    /// What is known, once an answer is here.
    pub detail: Option<Detail>,
    /// Lines above the window.
    pub scroll: usize,
}

/// The state of the screen.
#[derive(Debug)]
pub struct State {
    /// What the source is asked for.
    pub query: Query,
    /// Characters and colours.
    pub look: Look,
    /// The last picture.
    pub picture: Option<Picture>,
    /// Over the table.
    pub closeup: Option<Closeup>,
    /// Over everything.
    pub help: bool,
    /// The filter that is being typed.
    pub typing: Option<String>,
    /// Pictures are not taken in.
    pub paused: bool,
    /// The sparkline.
    pub trend: Trend,
    /// There is room for the sparkline, so its points are worth asking for.
    pub has_trend: bool,
    /// Why the source gives no picture.
    pub failure: Option<String>,
    /// The selected place in the list.
    pub selected: usize,
    /// The first row shown.
    pub offset: usize,
    /// Rows (or lines of the closeup) that fit, as drawn last.
    pub page: usize,
    /// The row that the selection stays with; none stays at the top of the list.
    anchor: Option<Key>,
    folded: HashSet<Key>,
    /// What was shown before each zoom.
    zooms: Vec<(Option<String>, Option<u32>)>,
}

impl State {
    /// Nothing to show yet.
    pub fn new(query: Query, look: Look) -> State {
        State {
            query,
            look,
            picture: None,
            closeup: None,
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

    /// Takes a picture in, unless paused.
    pub fn show(&mut self, snapshot: Snapshot) {
        self.failure = None;
        if self.paused && self.picture.is_some() {
            return;
        }
        self.picture = Some(Picture::new(snapshot, &self.query, &self.folded));
        self.follow();
    }

    /// Takes in what is known of a class, unless it is no longer looked at, or paused.
    pub fn show_detail(&mut self, class: &str, detail: Detail) {
        if let Some(closeup) = &mut self.closeup
            && closeup.class == class
            && (!self.paused || closeup.detail.is_none())
        {
            closeup.detail = Some(detail);
        }
    }

    /// The row that keys are about.
    pub fn current(&self) -> Option<&Row> {
        self.picture.as_ref()?.row(self.selected)
    }

    /// Selects the row `by` further down or up.
    pub fn step(&mut self, by: isize) {
        let last = self.rows().saturating_sub(1);
        self.selected = self.selected.saturating_add_signed(by).min(last);
        self.anchor = self.current().map(Key::of);
    }

    /// Selects the first row, and stays there whatever row that is.
    pub fn first(&mut self) {
        self.selected = 0;
        self.anchor = None;
    }

    /// Selects the last row.
    pub fn last(&mut self) {
        self.step(isize::MAX);
    }

    /// Rows in the list.
    pub fn rows(&self) -> usize {
        self.picture.as_ref().map_or(0, |p| p.entries.len())
    }

    /// Goes to the next or previous way of sorting.
    pub fn sort(&mut self, forward: bool) {
        let at = SORTS.iter().position(|s| *s == self.query.sort);
        let step = if forward { 1 } else { SORTS.len() - 1 };
        self.query.sort = SORTS[(at.unwrap_or(0) + step) % SORTS.len()];
        self.relist();
    }

    /// Shows only rows whose name contains this; all if it is empty.
    pub fn filter(&mut self, part: &str) {
        self.query.filter = (!part.is_empty()).then(|| part.to_owned());
        self.relist();
    }

    /// Shows no more than so many levels of the tree; all if `None`.
    pub fn levels(&mut self, levels: Option<u32>) {
        self.folded.clear();
        let top = self.zoom_depth();
        self.query.depth = levels.map(|n| top + n.max(1) - 1);
        self.relist();
    }

    fn zoom_depth(&self) -> u32 {
        let class = self.query.under.as_deref();
        let rows = self.picture.as_ref().map(|p| &p.snapshot.rows);
        let found = rows.and_then(|rows| rows.iter().find(|r| Some(r.name.as_str()) == class));
        found.map_or(0, |row| row.depth)
    }

    /// Folds or unfolds the selected class. Returns whether the source must be asked: what lies
    /// below it is not in the picture, so it is zoomed into.
    pub fn fold(&mut self) -> bool {
        let Some(picture) = &self.picture else {
            return false;
        };
        let Some(entry) = picture.entries.get(self.selected).copied() else {
            return false;
        };
        let key = Key::of(&picture.snapshot.rows[entry.row]);
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

    /// Shows only the selected class and what lies below it. False where there is nothing below.
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

    /// Leaves the filter or the last zoom. False where there is neither.
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

    /// Derives the list anew after the query or the folding changed.
    fn relist(&mut self) {
        if let Some(picture) = &mut self.picture {
            picture.list(&self.query, &self.folded);
        }
        self.follow();
    }

    /// Keeps the selection on its row; where that is gone, on its place.
    fn follow(&mut self) {
        let found = match (&self.picture, &self.anchor) {
            (Some(picture), Some(key)) => picture.find(key),
            (_, None) => Some(0),
            _ => None,
        };
        let last = self.rows().saturating_sub(1);
        self.selected = found.unwrap_or(self.selected).min(last);
    }

    /// Moves the window of `page` rows so that the selected one is in it.
    pub fn scroll(&mut self, page: usize) {
        self.page = page.max(1);
        let end = self.rows().saturating_sub(self.page);
        let least = (self.selected + 1).saturating_sub(self.page);
        self.offset = self.offset.clamp(least, self.selected.max(least)).min(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(names: &[(&str, f64)]) -> Snapshot {
        let row = |(name, rate): &(&str, f64)| {
            let mut row = Row {
                name: (*name).to_owned(),
                ..Row::default()
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
    fn the_selection_stays_with_its_row_when_others_overtake_it() {
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
    fn without_a_move_the_selection_stays_at_the_top() {
        let mut state = state();
        state.query.sort = Sort::Rate;
        state.show(rows(&[("a", 3.0), ("b", 2.0)]));
        state.show(rows(&[("a", 3.0), ("b", 9.0)]));
        assert_eq!(state.current().unwrap().name, "b");
    }

    #[test]
    fn a_paused_picture_stays_and_can_still_be_sorted() {
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
    fn the_window_follows_the_selection_and_never_passes_the_end() {
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
    fn a_folded_class_whose_children_are_missing_is_zoomed_into_and_left_again() {
        let mut state = state();
        let mut snapshot = rows(&[("site", 1.0), ("other", 1.0)]);
        snapshot.rows[0].children = 5;
        state.show(snapshot);
        assert!(state.fold());
        assert_eq!(state.query.under.as_deref(), Some("site"));
        assert!(!state.zoom(), "it is zoomed into already");
        assert!(state.back());
        assert_eq!(state.query.under, None);
        assert!(!state.back());
    }
}
