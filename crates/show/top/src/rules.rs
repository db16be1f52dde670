//! The view of loaded rules: its order, its selection, and its drawing.
//!
//! ```text
//! PKT/S BIT/S  PKTS BYTES  CHAIN            LINE         RULE
//! 4.10k 26.2M 20.5k 16.4M  4 filter INPUT   rules.v4:13  -m conntrack --ctstate ESTABLISHED -j ACCEPT
//! ...
//! rules.v4:13  20,500 packets  16,400,000 bytes                                     the selected rule
//! -A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT
//! ```
//!
//! The source lists the rules with the highest rates. Sorting and filtering apply to these.

use fairpath_history::loaded_rules::{LoadedRules, RuleCount};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use crate::figures::{UNMEASURED, count, grouped, scaled};
use crate::glyphs::Look;
use crate::text;

/// Number of rules that are requested.
pub const LISTED: usize = 500;
/// Lines of the selected rule: a rule, its figures, two lines of text.
pub const SELECTED_LINES: u16 = 4;
/// Width of a figure with its gap.
const FIGURE: u16 = 6;
/// Maximum width of a chain, and of a place in a file.
const MAX_CHAIN: u16 = 40;
const MAX_PLACE: u16 = 24;
/// Minimum width of the rule next to more columns.
const MIN_RULE: u16 = 20;

/// The order of rules, largest value first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RuleSort {
    /// Packets per second.
    #[default]
    PacketRate,
    /// Bits per second.
    BitRate,
    /// Packets since the load.
    Packets,
    /// Family, file and line, ascending.
    Line,
}

/// The orders in the sequence of the key `s`.
const SORTS: [RuleSort; 4] = [
    RuleSort::PacketRate,
    RuleSort::BitRate,
    RuleSort::Packets,
    RuleSort::Line,
];

impl RuleSort {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            RuleSort::PacketRate => "packet rate",
            RuleSort::BitRate => "bit rate",
            RuleSort::Packets => "packets",
            RuleSort::Line => "line",
        }
    }
}

/// Identifies a rule: family, table, chain, text and number of equal ones before.
type Key = (String, String, String, String, u32);

fn key(rule: &RuleCount) -> Key {
    let [family, table, chain, text] =
        [&rule.family, &rule.table, &rule.chain, &rule.rule].map(Clone::clone);
    (family, table, chain, text, rule.copy)
}

/// The state of the view.
#[derive(Clone, Debug, Default)]
pub struct RulesView {
    /// The order.
    pub sort: RuleSort,
    /// Only rules with this text in rule, chain or place, ignoring case.
    pub filter: Option<String>,
    /// Index of the selected rule in the list.
    pub selected: usize,
    /// Index of the first visible rule.
    pub offset: usize,
    /// The visible rules, in order, as indices of the snapshot's.
    entries: Vec<usize>,
    /// The rule that stays selected. `None` keeps the top of the list selected.
    anchor: Option<Key>,
}

impl RulesView {
    /// Updates the list after an answer, or a change of order or filter.
    pub fn list(&mut self, rules: Option<&LoadedRules>) {
        let rules: &[RuleCount] = rules.map_or(&[], |rules| &rules.rules);
        let filter = self.filter.as_deref().map(str::to_lowercase);
        let is_shown = |rule: &RuleCount| {
            filter.as_deref().is_none_or(|part| {
                let all = format!("{} {} {}", chain(rule), place(rule), rule.rule);
                all.to_lowercase().contains(part)
            })
        };
        self.entries = (0..rules.len())
            .filter(|at| is_shown(&rules[*at]))
            .collect();
        let sort = self.sort;
        self.entries.sort_by(|a, b| {
            let (a, b) = (&rules[*a], &rules[*b]);
            match sort {
                RuleSort::PacketRate => b.rate_pps.total_cmp(&a.rate_pps),
                RuleSort::BitRate => b.rate_bps.total_cmp(&a.rate_bps),
                RuleSort::Packets => b.packets.cmp(&a.packets),
                RuleSort::Line => (&a.family, &a.file, a.line).cmp(&(&b.family, &b.file, b.line)),
            }
        });
        let found = match &self.anchor {
            None => Some(0),
            Some(anchor) => {
                let mut entries = self.entries.iter();
                entries.position(|at| key(&rules[*at]) == *anchor)
            }
        };
        let last = self.entries.len().saturating_sub(1);
        self.selected = found.unwrap_or(self.selected).min(last);
    }

    /// Number of rules in the list.
    pub fn rows(&self) -> usize {
        self.entries.len()
    }

    /// Moves the selection by `by` rules, down if positive.
    pub fn step(&mut self, by: isize, rules: Option<&LoadedRules>) {
        let last = self.entries.len().saturating_sub(1);
        self.selected = self.selected.saturating_add_signed(by).min(last);
        self.anchor = self.current(rules).map(key);
    }

    /// Selects the top of the list, whichever rule is there.
    pub fn first(&mut self) {
        (self.selected, self.anchor) = (0, None);
    }

    /// Switches to the next or previous order.
    pub fn next_sort(&mut self, forward: bool) {
        let at = SORTS.iter().position(|sort| *sort == self.sort);
        let step = if forward { 1 } else { SORTS.len() - 1 };
        self.sort = SORTS[(at.unwrap_or(0) + step) % SORTS.len()];
    }

    /// The selected rule.
    pub fn current<'r>(&self, rules: Option<&'r LoadedRules>) -> Option<&'r RuleCount> {
        rules?.rules.get(*self.entries.get(self.selected)?)
    }

    /// The rules in order.
    pub fn rules<'r>(&self, rules: &'r LoadedRules) -> impl Iterator<Item = &'r RuleCount> {
        let entries = self.entries.iter();
        entries.filter_map(|at| rules.rules.get(*at))
    }
}

/// Family, table and chain: `4 filter INPUT`.
fn chain(rule: &RuleCount) -> String {
    let family = rule.family.trim_start_matches("IPv");
    format!("{family} {} {}", rule.table, rule.chain)
}

/// The last part of the file's name, and the line: `rules.v4:12`. Rules of later commands have no line.
fn place(rule: &RuleCount) -> String {
    match rule.line {
        0 => UNMEASURED.to_owned(),
        line => {
            let name = rule.file.rsplit('/').next().unwrap_or_default();
            format!("{name}:{line}")
        }
    }
}

/// Widths of the columns.
#[derive(Clone, Debug)]
pub struct RulesTable {
    look: Look,
    sort: RuleSort,
    /// Figures that fit: up to four.
    figures: usize,
    chain: u16,
    /// 0: not shown.
    place: u16,
    rule: u16,
    /// False before the second reading.
    has_rates: bool,
}

impl RulesTable {
    /// The table of the listed rules, `width` columns wide.
    pub fn new(view: &RulesView, rules: &LoadedRules, width: u16, look: Look) -> RulesTable {
        let widest = |name: fn(&RuleCount) -> String, title: &str, limit: u16| {
            let widths = view.rules(rules).map(|rule| text::width(&name(rule)));
            let widest = widths.max().unwrap_or(0).max(title.len());
            u16::try_from(widest).unwrap_or(u16::MAX).min(limit)
        };
        let mut table = RulesTable {
            look,
            sort: view.sort,
            figures: 4,
            chain: widest(chain, "CHAIN", MAX_CHAIN.min(width / 4)),
            place: widest(place, "LINE", MAX_PLACE.min(width / 5)),
            rule: 0,
            has_rates: rules.interval_ns.is_some(),
        };
        while table.used() + MIN_RULE > width && table.figures > 1 {
            match table.figures {
                // The place is more important than totals in bytes, and less than the rest.
                3 if table.place > 0 => table.place = 0,
                _ => table.figures -= 1,
            }
        }
        table.rule = width.saturating_sub(table.used());
        table
    }

    /// Columns before the rule.
    fn used(&self) -> u16 {
        let place = if self.place > 0 { self.place + 2 } else { 0 };
        self.figures as u16 * FIGURE + 1 + self.chain + 2 + place
    }

    /// Draws the titles.
    pub fn titles(&self, buffer: &mut Buffer, line: Rect) {
        let title = self.look.title();
        let sorted = title.add_modifier(Modifier::UNDERLINED);
        let style = |sort| if self.sort == sort { sorted } else { title };
        let figures = [
            ("PKT/S", style(RuleSort::PacketRate)),
            ("BIT/S", style(RuleSort::BitRate)),
            ("PKTS", style(RuleSort::Packets)),
            ("BYTES", title),
        ];
        let mut x = line.x;
        for (text, style) in &figures[..self.figures] {
            let indent = FIGURE - 1 - text.len() as u16;
            self.write(buffer, line, x + indent, text, text.len() as u16, *style);
            x += FIGURE;
        }
        let columns = [
            ("CHAIN", self.chain, title),
            ("LINE", self.place, style(RuleSort::Line)),
            ("RULE", self.rule, title),
        ];
        self.columns(buffer, line, x + 1, columns);
    }

    /// Draws a rule.
    pub fn row(&self, buffer: &mut Buffer, line: Rect, rule: &RuleCount) {
        let rate = |value: f64| match self.has_rates {
            true => scaled(value),
            false => UNMEASURED.to_owned(),
        };
        let figures = [
            // Rare packets are not shown as none.
            match rule.rate_pps {
                slow if self.has_rates && slow > 0.0 && slow < 9.95 => format!("{slow:.1}"),
                packets => rate(packets),
            },
            rate(rule.rate_bps),
            count(rule.packets),
            scaled(rule.bytes as f64),
        ];
        let mut x = line.x;
        for figure in &figures[..self.figures] {
            let text = text::right(figure, usize::from(FIGURE - 1), self.look);
            self.write(buffer, line, x, &text, FIGURE - 1, Style::new());
            x += FIGURE;
        }
        let (chain, place) = (chain(rule), place(rule));
        let plain = Style::new();
        let columns = [
            (&chain[..], self.chain, plain),
            (&place, self.place, self.look.quiet()),
            (&rule.rule, self.rule, plain),
        ];
        self.columns(buffer, line, x + 1, columns);
    }

    fn columns(
        &self,
        buffer: &mut Buffer,
        line: Rect,
        mut x: u16,
        columns: [(&str, u16, Style); 3],
    ) {
        for (text, width, style) in columns {
            if width > 0 {
                self.write(buffer, line, x, text, width, style);
                x += width + 2;
            }
        }
    }

    fn write(&self, buffer: &mut Buffer, line: Rect, x: u16, text: &str, width: u16, style: Style) {
        let width = width.min(line.right().saturating_sub(x));
        if width > 0 {
            let text = text::cut(text, width.into(), self.look);
            buffer.set_string(x, line.y, text, style);
        }
    }
}

/// The selected rule: its place and exact totals, then its text in lines of `width` columns.
pub fn selected(rule: &RuleCount, width: u16, look: Look) -> Vec<String> {
    let place = match rule.line {
        0 => "of a later command".to_owned(),
        line => format!("{}:{line}", rule.file),
    };
    let totals = format!(
        "{} packets  {} bytes",
        grouped(rule.packets),
        grouped(rule.bytes)
    );
    let width = usize::from(width);
    let head = text::cut(&format!("{place}  {totals}"), width, look);
    let text = text::clean(&format!("-A {} {}", rule.chain, rule.rule), look);
    let characters: Vec<char> = text.trim_end().chars().collect();
    // A wide character may end behind the line: it is cut there.
    let pieces = characters.chunks(width.max(1));
    let pieces = pieces.map(|piece| text::cut(&piece.iter().collect::<String>(), width, look));
    std::iter::once(head).chain(pieces).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    const LOOK: Look = Look {
        ascii: true,
        colour: false,
    };

    fn listed(view: &mut RulesView, rules: &LoadedRules) -> Vec<u32> {
        view.list(Some(rules));
        view.rules(rules).map(|rule| rule.line).collect()
    }

    #[test]
    fn rules_are_sorted_and_filtered() {
        let rules = sample::rules();
        let mut view = RulesView::default();
        assert_eq!(listed(&mut view, &rules), [13, 14, 3, 0, 40]);
        view.next_sort(true);
        assert_eq!(listed(&mut view, &rules), [14, 13, 3, 0, 40]);
        view.next_sort(true);
        assert_eq!(listed(&mut view, &rules), [13, 40, 14, 3, 0]);
        view.next_sort(true);
        assert_eq!(listed(&mut view, &rules), [0, 13, 14, 40, 3]);
        view.next_sort(true);
        assert_eq!(view.sort, RuleSort::PacketRate);
        for (filter, lines) in [
            ("input", &[13, 40][..]),
            ("RULES.V4:14", &[14]),
            ("2001:db8", &[3]),
            ("6 raw", &[3]),
            ("nowhere", &[]),
        ] {
            view.filter = Some(filter.to_owned());
            assert_eq!(listed(&mut view, &rules), lines, "{filter}");
        }
    }

    #[test]
    fn the_selection_follows_its_rule() {
        let mut rules = sample::rules();
        let mut view = RulesView::default();
        view.list(Some(&rules));
        view.step(1, Some(&rules));
        assert_eq!(view.current(Some(&rules)).unwrap().line, 14);
        rules.rules[1].rate_pps = 1e9;
        view.list(Some(&rules));
        assert_eq!(
            (view.selected, view.current(Some(&rules)).unwrap().line),
            (0, 14)
        );
        // Unloaded, and another set is loaded.
        view.list(None);
        assert_eq!((view.rows(), view.selected), (0, 0));
        assert!(view.current(None).is_none());
        rules.rules.remove(1);
        view.list(Some(&rules));
        assert_eq!(view.current(Some(&rules)).unwrap().line, 13);
    }

    #[test]
    fn the_selected_rule_is_shown_whole() {
        let rules = sample::rules();
        let lines = selected(&rules.rules[1], 40, LOOK);
        assert_eq!(
            lines,
            [
                "/etc/iptables/rules.v4:14  4,100 packet>",
                "-A FORWARD -s 198.51.100.0/24 -m comment",
                " --comment \"a?[2J L?wen\" -j DROP",
            ]
        );
    }
}
