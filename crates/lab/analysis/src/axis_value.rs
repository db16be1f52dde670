//! Values of axes as numbers: "1%", "20ms", "100mbit", "4" and what has no number ("cubic").
//!
//! An axis is drawn with numbers only where all of its values are of one kind; otherwise its values
//! stand side by side as names.

use fairpath_report::Unit;

/// The kind of number of a value; figures never mix them on one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Without a unit.
    Plain,
    /// A share, 0 to 1.
    Share,
    /// In seconds.
    Time,
    /// In bits a second.
    Rate,
    /// In bytes.
    Size,
}

impl Kind {
    /// The unit of what [`number`] gives.
    pub fn unit(self) -> Unit {
        match self {
            Kind::Plain => Unit::none(),
            Kind::Share => Unit::share(),
            Kind::Time => Unit::seconds(),
            Kind::Rate => Unit::bits_per_second(),
            Kind::Size => Unit::bytes(),
        }
    }
}

/// Units as people write them, and what one is in its kind's unit.
const UNITS: &[(&str, Kind, f64)] = &[
    ("%", Kind::Share, 0.01),
    ("ns", Kind::Time, 1e-9),
    ("us", Kind::Time, 1e-6),
    ("µs", Kind::Time, 1e-6),
    ("ms", Kind::Time, 1e-3),
    ("s", Kind::Time, 1.0),
    ("gbit", Kind::Rate, 1e9),
    ("mbit", Kind::Rate, 1e6),
    ("kbit", Kind::Rate, 1e3),
    ("bit", Kind::Rate, 1.0),
    ("kb", Kind::Size, 1e3),
    ("mb", Kind::Size, 1e6),
    ("kib", Kind::Size, 1024.0),
    ("mib", Kind::Size, 1_048_576.0),
    ("b", Kind::Size, 1.0),
];

/// A value with its number in its kind's unit; none for a name.
///
/// "10%" -> (Share, 0.1); "0.5ms" -> (Time, 0.0005); "1gbit" -> (Rate, 1e9); "8" -> (Plain, 8).
pub fn number(text: &str) -> Option<(Kind, f64)> {
    let text = text.trim();
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+')))
        .unwrap_or(text.len());
    // "1e-4": an exponent belongs to the number, if the whole is one.
    if let Ok(plain) = text.parse::<f64>() {
        return plain.is_finite().then_some((Kind::Plain, plain));
    }
    let value: f64 = text[..end].parse().ok()?;
    let unit = text[end..].trim().to_ascii_lowercase();
    let unit = unit.strip_suffix("/s").unwrap_or(&unit);
    UNITS
        .iter()
        .find(|(name, ..)| *name == unit)
        .map(|(_, kind, factor)| (*kind, value * factor))
}

/// The numbers of all values of an axis, if each has one and all are of one kind.
pub fn numbers<'a>(values: impl IntoIterator<Item = &'a str>) -> Option<(Kind, Vec<f64>)> {
    let found: Option<Vec<(Kind, f64)>> = values.into_iter().map(number).collect();
    let found = found?;
    let kind = found.first()?.0;
    // "0" stands for nothing in any unit.
    let kind = found
        .iter()
        .map(|(k, _)| *k)
        .find(|k| *k != Kind::Plain)
        .unwrap_or(kind);
    let fits = |(k, n): &(Kind, f64)| *k == kind || (*k == Kind::Plain && *n == 0.0);
    found
        .iter()
        .all(fits)
        .then(|| (kind, found.iter().map(|(_, n)| *n).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_with_units_are_numbers() {
        for (text, expected) in [
            ("0%", (Kind::Share, 0.0)),
            ("1.5 %", (Kind::Share, 0.015)),
            ("200us", (Kind::Time, 0.0002)),
            ("20ms", (Kind::Time, 0.02)),
            ("2s", (Kind::Time, 2.0)),
            ("1gbit", (Kind::Rate, 1e9)),
            ("100 Mbit/s", (Kind::Rate, 1e8)),
            ("64kib", (Kind::Size, 65536.0)),
            ("8", (Kind::Plain, 8.0)),
            ("1e-4", (Kind::Plain, 1e-4)),
        ] {
            let (kind, value) = number(text).unwrap();
            assert_eq!(kind, expected.0, "{text}");
            assert!((value - expected.1).abs() < 1e-9, "{text}: {value}");
        }
    }

    #[test]
    fn names_are_not_numbers() {
        for text in ["cubic", "", "ms", "1 parsec", "bbr-bbr", "inf", "2x"] {
            assert_eq!(number(text), None, "{text}");
        }
    }

    #[test]
    fn an_axis_of_one_kind_has_numbers() {
        assert_eq!(
            numbers(["0", "1%", "10%"]),
            Some((Kind::Share, vec![0.0, 0.01, 0.1]))
        );
        assert_eq!(numbers(["1%", "10ms"]), None);
        assert_eq!(numbers(["1", "10ms"]), None);
        assert_eq!(numbers(["cubic", "1"]), None);
        assert_eq!(numbers([]), None);
    }
}
