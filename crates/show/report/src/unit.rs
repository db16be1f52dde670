//! Units: what a number counts, and which SI prefix makes it readable.

use serde::{Deserialize, Serialize};

use crate::number;

/// The unit of a number.
///
/// Values are kept in the base unit (`factor` leads from the value to the symbol: 100 for a share shown
/// in percent); CSV files always hold values as they are, with [`Unit::base_symbol`] in the header.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unit {
    /// "bit/s", "s", "%"; empty for pure numbers.
    pub symbol: String,
    /// Which prefixes may stand before it.
    pub prefixes: Prefixes,
    /// Value times this is in `symbol`.
    pub factor: f64,
}

/// Which SI prefixes may stand before a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Prefixes {
    /// None: percent, segments.
    None,
    /// All, from n to T: bits, bytes.
    All,
    /// Below one only: kiloseconds are unusual.
    Below,
}

/// A unit with a prefix chosen: values are divided by `divide` before they are shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Scaled {
    /// "Mbit/s", "ms".
    pub symbol: String,
    /// 1e6, 1e-3.
    pub divide: f64,
}

const PREFIXES: [(f64, &str); 8] = [
    (1e12, "T"),
    (1e9, "G"),
    (1e6, "M"),
    (1e3, "k"),
    (1.0, ""),
    (1e-3, "m"),
    (1e-6, "µ"),
    (1e-9, "n"),
];

/// Significant digits of a number in running text.
const DIGITS: usize = 3;

impl Unit {
    fn new(symbol: &str, prefixes: Prefixes, factor: f64) -> Unit {
        Unit {
            symbol: symbol.to_owned(),
            prefixes,
            factor,
        }
    }

    /// A pure number: Jain's index, MOS.
    pub fn none() -> Unit {
        Unit::new("", Prefixes::None, 1.0)
    }

    /// Anything counted or measured without prefixes: "segments", "packets", "cores".
    pub fn plain(symbol: &str) -> Unit {
        Unit::new(symbol, Prefixes::None, 1.0)
    }

    /// Bits a second, with prefixes.
    pub fn bits_per_second() -> Unit {
        Unit::new("bit/s", Prefixes::All, 1.0)
    }

    /// Bytes, with (decimal) prefixes.
    pub fn bytes() -> Unit {
        Unit::new("B", Prefixes::All, 1.0)
    }

    /// Seconds, shown as ns, µs, ms or s.
    pub fn seconds() -> Unit {
        Unit::new("s", Prefixes::Below, 1.0)
    }

    /// Values are nanoseconds, shown as ns, µs, ms or s.
    pub fn nanoseconds() -> Unit {
        Unit::new("s", Prefixes::Below, 1e-9)
    }

    /// Values are shares (0.01), shown in percent (1 %).
    pub fn share() -> Unit {
        Unit::new("%", Prefixes::None, 100.0)
    }

    /// Values are percent already.
    pub fn percent() -> Unit {
        Unit::plain("%")
    }

    /// The prefix that suits `typical` (a value as kept, not yet multiplied).
    pub fn scaled(&self, typical: f64) -> Scaled {
        let size = (typical * self.factor).abs();
        let prefix = PREFIXES
            .iter()
            .filter(|(scale, _)| match self.prefixes {
                Prefixes::None => *scale == 1.0,
                Prefixes::All => true,
                Prefixes::Below => *scale <= 1.0,
            })
            // A hair less, so that 999.9999 Mbit/s of rounding is 1 Gbit/s.
            .find(|(scale, _)| size >= scale * 0.999_999);
        let smallest = match self.prefixes {
            Prefixes::None => PREFIXES[4],
            _ => PREFIXES[7],
        };
        let (scale, letter) = match size {
            0.0 => PREFIXES[4],
            _ => *prefix.unwrap_or(&smallest),
        };
        Scaled {
            symbol: format!("{letter}{}", self.symbol),
            divide: scale / self.factor,
        }
    }

    /// A value with its unit and three significant digits: "235 Mbit/s", "1.02 ms", "1 %".
    pub fn show(&self, value: f64) -> String {
        let scaled = self.scaled(value);
        let number = number::short(value / scaled.divide, DIGITS);
        join(&number, &scaled.symbol)
    }

    /// The symbol of values as they are kept, for CSV headers: "ns", "bit/s", "share".
    pub fn base_symbol(&self) -> String {
        match (self.symbol.as_str(), self.factor) {
            (symbol, 1.0) => symbol.to_owned(),
            ("%", 100.0) => "share".to_owned(),
            ("s", 1e-9) => "ns".to_owned(),
            (symbol, factor) => format!("{symbol}/{factor}"),
        }
    }
}

/// Number and unit with a space in which no line ends.
pub(crate) fn join(number: &str, symbol: &str) -> String {
    match symbol {
        "" => number.to_owned(),
        _ => format!("{number}\u{a0}{symbol}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_with_prefix_that_suits_them() {
        let rate = Unit::bits_per_second();
        assert_eq!(rate.show(804.67e6), "805\u{a0}Mbit/s");
        assert_eq!(rate.show(999.999_999e6), "1\u{a0}Gbit/s");
        assert_eq!(rate.show(0.0), "0\u{a0}bit/s");
        assert_eq!(Unit::nanoseconds().show(602_000.0), "602\u{a0}µs");
        assert_eq!(Unit::seconds().show(7200.0), "7200\u{a0}s");
        assert_eq!(Unit::seconds().show(1e-12), "0.001\u{a0}ns");
        assert_eq!(Unit::share().show(0.01), "1\u{a0}%");
        assert_eq!(Unit::plain("segments").show(0.5), "0.5\u{a0}segments");
        assert_eq!(Unit::none().show(4.2134), "4.21");
        assert_eq!(Unit::bits_per_second().show(-5e6), "\u{2212}5\u{a0}Mbit/s");
    }

    #[test]
    fn csv_headers_name_the_unit_that_is_kept() {
        assert_eq!(Unit::share().base_symbol(), "share");
        assert_eq!(Unit::nanoseconds().base_symbol(), "ns");
        assert_eq!(Unit::bits_per_second().base_symbol(), "bit/s");
    }
}
