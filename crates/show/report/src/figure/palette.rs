//! Colours and marks: one pair for each name of a report, the same in all of its figures.
//!
//! The colours follow Okabe and Ito's set (Color Universal Design, 2008), darker on white and lighter on
//! black until each has enough contrast with its ground (WCAG 2.2, 1.4.11: at least 3 to 1) and neighbours
//! differ for red-green blind readers; tests compute both. After the eighth name colours repeat with
//! other marks.

use std::collections::BTreeMap;

use crate::figure::Figure;
use crate::figure::series::Role;

/// Colours before they repeat.
pub const COLOURS: usize = 8;
/// Marks before they repeat; the numbers have no common divisor, so that 56 pairs differ.
pub(crate) const MARKS: usize = 7;

/// Grounds and colours on a light screen and in print, as CSS custom properties.
pub const CSS_LIGHT: &str = "--ground:#ffffff;--ink:#1b1f27;--quiet:#5a6270;--rule:#c9ced6;--grid:#e8eaee;\
--c0:#0b62b0;--c1:#c04a00;--c2:#00785a;--c3:#9b3f84;--c4:#8a6a00;--c5:#2a8bb8;--c6:#b3202b;--c7:#5a6270;";
/// The same on a dark screen.
pub const CSS_DARK: &str = "--ground:#12161c;--ink:#e9ecf1;--quiet:#a0a9b8;--rule:#4a5361;--grid:#262d37;\
--c0:#63aef5;--c1:#f58f45;--c2:#3fc79d;--c3:#dc96cb;--c4:#dcc04a;--c5:#9adcf7;--c6:#ff8087;--c7:#a0a9b8;";
/// The style of the classes of SVG elements; no text is below 13 units, which are pixels on the page.
pub const CSS_MARKS: &str = include_str!("marks.css");

/// Which slot each key has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Palette {
    slots: BTreeMap<String, usize>,
}

impl Palette {
    /// Slots in order of first appearance: what is measured first, then what only models or others name.
    pub fn of<'a>(figures: impl Iterator<Item = &'a Figure> + Clone) -> Palette {
        Palette::beginning_with(&[], figures)
    }

    /// The same, but each of `first` that appears has the slot of its place there, so it looks alike in all
    /// reports. Other names have the slots that are left.
    pub fn beginning_with<'a>(
        first: &[String],
        figures: impl Iterator<Item = &'a Figure> + Clone,
    ) -> Palette {
        let mut palette = Palette::default();
        let series = || {
            figures
                .clone()
                .flat_map(|figure| &figure.panels)
                .flat_map(|panel| &panel.series)
        };
        for (slot, key) in first.iter().enumerate() {
            if series().any(|series| series.key == *key) {
                palette.slots.insert(key.clone(), slot);
            }
        }
        for series in series().filter(|s| s.role == Role::Measured) {
            palette.give(&series.key);
        }
        for series in series() {
            palette.give(&series.key);
        }
        palette
    }

    fn give(&mut self, key: &str) {
        if self.slots.contains_key(key) {
            return;
        }
        let is_free = |slot: &usize| self.slots.values().all(|taken| taken != slot);
        let free = (0..).find(is_free).expect("slots are finite");
        self.slots.insert(key.to_owned(), free);
    }

    /// The number of the colour, below [`COLOURS`].
    pub(crate) fn colour(&self, key: &str) -> usize {
        self.slot(key) % COLOURS
    }

    /// The number of the mark, below [`MARKS`].
    pub(crate) fn mark(&self, key: &str) -> usize {
        self.slot(key) % MARKS
    }

    fn slot(&self, key: &str) -> usize {
        self.slots.get(key).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Rgb = [f64; 3];

    /// Linear light of a custom property in one of the style texts.
    fn colour(css: &str, name: &str) -> Rgb {
        let start = css.find(&format!("--{name}:#")).unwrap() + name.len() + 4;
        let part = |i: usize| {
            let byte = u8::from_str_radix(&css[start + 2 * i..start + 2 * i + 2], 16).unwrap();
            let share = f64::from(byte) / 255.0;
            match share <= 0.04045 {
                true => share / 12.92,
                false => ((share + 0.055) / 1.055).powf(2.4),
            }
        };
        [part(0), part(1), part(2)]
    }

    /// WCAG 2.2, contrast ratio.
    fn contrast(a: Rgb, b: Rgb) -> f64 {
        let luminance = |c: Rgb| 0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2];
        let (a, b) = (luminance(a) + 0.05, luminance(b) + 0.05);
        a.max(b) / a.min(b)
    }

    #[test]
    fn text_and_marks_stand_out_from_their_ground() {
        for css in [CSS_LIGHT, CSS_DARK] {
            let ground = colour(css, "ground");
            for text in ["ink", "quiet"] {
                assert!(contrast(colour(css, text), ground) >= 4.5, "{text} {css}");
            }
            for i in 0..COLOURS {
                let ratio = contrast(colour(css, &format!("c{i}")), ground);
                assert!(ratio >= 3.0, "c{i}: {ratio} {css}");
            }
        }
    }

    /// Full deuteranopia and protanopia (Machado, Oliveira, Fernandes, IEEE TVCG 15, 2009), linear light.
    const BLIND: [[Rgb; 3]; 2] = [
        [
            [0.367_322, 0.860_646, -0.227_968],
            [0.280_085, 0.672_501, 0.047_413],
            [-0.011_820, 0.042_940, 0.968_881],
        ],
        [
            [0.152_286, 1.052_583, -0.204_868],
            [0.114_503, 0.786_281, 0.099_216],
            [-0.003_882, -0.048_116, 1.051_998],
        ],
    ];

    fn seen(by: &[Rgb; 3], c: Rgb) -> Rgb {
        by.map(|row| (row[0] * c[0] + row[1] * c[1] + row[2] * c[2]).clamp(0.0, 1.0))
    }

    /// CIELAB (1976) under D65, and the distance of two colours in it.
    fn distance(a: Rgb, b: Rgb) -> f64 {
        let f = |t: f64| match t > 0.008_856 {
            true => t.cbrt(),
            false => 7.787 * t + 16.0 / 116.0,
        };
        let lab = |c: Rgb| {
            let x = f((0.4124 * c[0] + 0.3576 * c[1] + 0.1805 * c[2]) / 0.950_47);
            let y = f(0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2]);
            let z = f((0.0193 * c[0] + 0.1192 * c[1] + 0.9505 * c[2]) / 1.088_83);
            [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
        };
        let (a, b) = (lab(a), lab(b));
        (0..3).map(|i| (a[i] - b[i]).powi(2)).sum::<f64>().sqrt()
    }

    #[test]
    fn first_colours_differ_for_red_green_blind_readers() {
        // Most figures have two to four series; more are distinguished by their marks.
        for css in [CSS_LIGHT, CSS_DARK] {
            for by in &BLIND {
                for i in 0..4 {
                    for j in i + 1..4 {
                        let of = |n: usize| seen(by, colour(css, &format!("c{n}")));
                        let apart = distance(of(i), of(j));
                        assert!(apart >= 15.0, "c{i} c{j}: {apart} {css}");
                    }
                }
            }
        }
    }

    #[test]
    fn first_names_have_one_look_in_all_reports() {
        let first = ["cubic", "bbr", "reno"].map(str::to_owned);
        let looks = |names: &[&str]| {
            let axis = || crate::figure::Axis::linear("", crate::unit::Unit::none());
            let mut panel = crate::figure::Panel::new("", axis(), axis());
            panel.series = (names.iter())
                .map(|name| crate::figure::Series::line(name, Vec::new()))
                .collect();
            let figure = Figure::new("f", "", vec![panel]);
            let palette = Palette::beginning_with(&first, std::iter::once(&figure));
            let look = |name: &&str| (palette.colour(name), palette.mark(name));
            names.iter().map(look).collect::<Vec<_>>()
        };
        assert_eq!(looks(&["bbr", "fifo", "codel"]), [(1, 1), (0, 0), (2, 2)]);
        assert_eq!(looks(&["reno", "cubic", "bbr"]), [(2, 2), (0, 0), (1, 1)]);
        assert_eq!(looks(&["fifo", "codel"]), [(0, 0), (1, 1)], "none of them");
    }

    #[test]
    fn fifty_six_names_have_different_looks() {
        let series = |i: usize| crate::figure::Series::line(&i.to_string(), Vec::new());
        let axis = || crate::figure::Axis::linear("", crate::unit::Unit::none());
        let mut panel = crate::figure::Panel::new("", axis(), axis());
        panel.series = (0..56).map(series).collect();
        let figure = Figure::new("f", "", vec![panel]);
        let palette = Palette::of(std::iter::once(&figure));
        let looks = (0..56)
            .map(|i| i.to_string())
            .map(|k| (palette.colour(&k), palette.mark(&k)));
        assert_eq!(looks.collect::<std::collections::BTreeSet<_>>().len(), 56);
    }
}
