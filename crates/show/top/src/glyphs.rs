//! What is drawn with: box and block characters, or plain ASCII; and colours, or none.

use std::env;

use ratatui::style::{Color, Modifier, Style};

use crate::judge::Level;

/// Characters and colours of a screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Only ASCII is written, names included.
    pub ascii: bool,
    /// Colours besides bold, dim and reversed.
    pub colour: bool,
}

impl Look {
    /// By the locale (`LC_ALL`, `LC_CTYPE`, `LANG`) and `NO_COLOR` (<https://no-color.org>).
    pub fn from_environment(ascii: bool) -> Look {
        let set = |name| env::var(name).ok().filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
        Look {
            ascii: ascii || !is_utf8(locale.as_deref()),
            colour: set("NO_COLOR").is_none(),
        }
    }

    /// Before a class whose children are shown.
    pub fn open(self) -> &'static str {
        if self.ascii { "- " } else { "▾ " }
    }

    /// Before a class whose children are folded away.
    pub fn folded(self) -> &'static str {
        if self.ascii { "+ " } else { "▸ " }
    }

    /// Stands where a text was cut.
    pub fn cut(self) -> &'static str {
        if self.ascii { ">" } else { "…" }
    }

    /// A line under a title, one column of it.
    pub fn rule(self) -> &'static str {
        if self.ascii { "-" } else { "─" }
    }

    /// Steps of a sparkline, lowest first.
    pub fn steps(self) -> &'static [&'static str; 8] {
        if self.ascii {
            &["_", ".", ":", "-", "=", "+", "*", "#"]
        } else {
            &["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"]
        }
    }

    /// A bar of `share` (0 to 1) of `width` columns; what is more than nothing shows.
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

    /// How a judged value is written.
    pub fn level(self, level: Level) -> Style {
        match (level, self.colour) {
            (Level::Fine, _) => Style::new(),
            (Level::Watch, true) => Style::new().fg(Color::Yellow),
            (Level::Watch, false) => Style::new(),
            (Level::Bad, true) => Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
            (Level::Bad, false) => Style::new().add_modifier(Modifier::BOLD),
        }
    }

    /// Titles.
    pub fn title(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// What need not be read.
    pub fn quiet(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// The row that keys are about.
    pub fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }
}

/// POSIX: without a locale it is "C", which is ASCII.
fn is_utf8(locale: Option<&str>) -> bool {
    let name = locale.unwrap_or("C").to_ascii_lowercase();
    name.contains("utf-8") || name.contains("utf8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_utf8_locale_gets_more_than_ascii() {
        assert!(is_utf8(Some("en_GB.UTF-8")));
        assert!(is_utf8(Some("C.utf8")));
        assert!(!is_utf8(Some("POSIX")));
        assert!(!is_utf8(Some("de_DE.ISO-8859-1")));
        assert!(!is_utf8(None));
    }

    #[test]
    fn a_bar_is_as_long_as_its_share_and_never_hides_what_is_there() {
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
