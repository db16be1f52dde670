//! Characters and colours of the screen: Unicode or ASCII, with or without colours.

use std::env;

use ratatui::style::{Color, Modifier, Style};

use fairpath_history::judge::Level;

/// Characters and colours of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Write only ASCII, also for names.
    pub ascii: bool,
    /// Write colours, in addition to bold, dim and reversed text.
    pub colour: bool,
}

impl Look {
    /// Follows the locale (`LC_ALL`, `LC_CTYPE`, `LANG`) and `NO_COLOR` (<https://no-color.org>).
    pub fn from_environment(ascii: bool) -> Look {
        let set = |name| env::var(name).ok().filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
        Look {
            ascii: ascii || !is_utf8(locale.as_deref()),
            colour: set("NO_COLOR").is_none(),
        }
    }

    /// The mark before an expanded class.
    pub fn open(self) -> &'static str {
        if self.ascii { "- " } else { "▾ " }
    }

    /// The mark before a collapsed class.
    pub fn folded(self) -> &'static str {
        if self.ascii { "+ " } else { "▸ " }
    }

    /// The mark at the end of a cut text.
    pub fn cut(self) -> &'static str {
        if self.ascii { ">" } else { "…" }
    }

    /// One column of the line after a title.
    pub fn rule(self) -> &'static str {
        if self.ascii { "-" } else { "─" }
    }

    /// The levels of a sparkline, lowest first.
    pub fn steps(self) -> &'static [&'static str; 8] {
        if self.ascii {
            &["_", ".", ":", "-", "=", "+", "*", "#"]
        } else {
            &["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"]
        }
    }

    /// A bar of `share` (0 to 1) of `width` columns. Every share above 0 is visible.
    pub fn bar(self, share: f64, width: usize) -> String {
        const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
        if share <= 0.0 || width == 0 {
            return String::new();
        }
        let eighths = ((share.min(1.0) * width as f64 * 8.0).round() as usize).max(1);
        if self.ascii {
            return "#".repeat(eighths.div_ceil(8));
        }
        format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8])
    }

    /// The style of a value of this level.
    pub fn level(self, level: Level) -> Style {
        match (level, self.colour) {
            (Level::Normal, _) => Style::new(),
            (Level::Warning, true) => Style::new().fg(Color::Yellow),
            (Level::Warning, false) => Style::new(),
            (Level::Critical, true) => Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
            (Level::Critical, false) => Style::new().add_modifier(Modifier::BOLD),
        }
    }

    /// The style of titles.
    pub fn title(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// The style of less important text.
    pub fn quiet(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// The style of the selected row.
    pub fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }
}

/// POSIX: the default locale is "C", which is ASCII.
fn is_utf8(locale: Option<&str>) -> bool {
    let name = locale.unwrap_or("C").to_ascii_lowercase();
    name.contains("utf-8") || name.contains("utf8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_utf8_locale_allows_unicode() {
        assert!(is_utf8(Some("en_GB.UTF-8")));
        assert!(is_utf8(Some("C.utf8")));
        assert!(!is_utf8(Some("POSIX")));
        assert!(!is_utf8(Some("de_DE.ISO-8859-1")));
        assert!(!is_utf8(None));
    }

    #[test]
    fn a_bar_shows_every_share_above_zero() {
        let unicode = Look {
            ascii: false,
            colour: true,
        };
        let ascii = Look {
            ascii: true,
            ..unicode
        };
        assert_eq!(unicode.bar(0.5, 8), "████");
        assert_eq!(unicode.bar(0.4375, 8), "███▌");
        assert_eq!(unicode.bar(0.0001, 8), "▏");
        assert_eq!(unicode.bar(0.0, 8), "");
        assert_eq!(ascii.bar(0.0001, 8), "#");
        assert_eq!(ascii.bar(7.0, 8), "########");
    }
}
