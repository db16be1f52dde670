//! Numbers with units in experiments: `850mbit`, `250us`, `1%`.
//!
//! Each is a separate type, so a rate cannot be used as a time. The written form is kept for records and
//! pages. Not accepted: negative numbers, and times and rates without a unit, whose meaning would be
//! ambiguous.

use std::fmt;
use std::str::FromStr;

use fairpath_units::quantity::{Unit, parse};
use serde::{Deserialize, Serialize};

pub use fairpath_units::quantity::BadQuantity;

/// Bits a second, more than 0.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rate(f64);

/// A time, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Time(u64);

/// A share between 0 and 1, written in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Share(f64);

const RATES: [(&str, f64); 4] = [("gbit", 1e9), ("mbit", 1e6), ("kbit", 1e3), ("bit", 1.0)];
const TIMES: [(&str, f64); 4] = [("s", 1e9), ("ms", 1e6), ("us", 1e3), ("ns", 1.0)];
/// A year: whatever is above is a slip of the pen.
const LONGEST_NS: f64 = 3.2e16;

impl Rate {
    /// A rate of this number of bits per second.
    ///
    /// # Panics
    /// Where it is not above 0: a link without a rate has none.
    pub fn from_bps(bps: f64) -> Rate {
        assert!(bps > 0.0, "a rate is above 0");
        Rate(bps)
    }

    /// Bits a second.
    pub fn bps(self) -> f64 {
        self.0
    }

    /// The same, times `factor` (above 0), whole bits.
    #[must_use]
    pub fn times(self, factor: f64) -> Rate {
        Rate((self.0 * factor).round().max(1.0))
    }
}

impl Time {
    /// A time of this number of ns.
    pub fn from_ns(ns: u64) -> Time {
        Time(ns)
    }

    /// In ns.
    pub fn ns(self) -> u64 {
        self.0
    }

    /// In seconds.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The same, times `factor`, whole ns.
    #[must_use]
    pub fn times(self, factor: f64) -> Time {
        Time((self.0 as f64 * factor).round() as u64)
    }
}

impl Share {
    /// Between 0 and 1.
    pub fn value(self) -> f64 {
        self.0
    }
}

impl FromStr for Rate {
    type Err = BadQuantity;

    fn from_str(text: &str) -> Result<Rate, BadQuantity> {
        let value = parse(text, Unit::Rate).ok().filter(|value| *value > 0.0);
        value.map(Rate).ok_or_else(|| BadQuantity {
            text: text.to_owned(),
            what: "rate",
            example: "100mbit, 1.5gbit or 64kbit",
        })
    }
}

impl FromStr for Time {
    type Err = BadQuantity;

    fn from_str(text: &str) -> Result<Time, BadQuantity> {
        let value = parse(text, Unit::Time).ok();
        let value = value.filter(|value| *value < LONGEST_NS);
        let ns = value.map(|value| Time(value.round() as u64));
        ns.ok_or_else(|| BadQuantity {
            text: text.to_owned(),
            what: "time",
            example: "5ms, 250us or 1.5s",
        })
    }
}

impl FromStr for Share {
    type Err = BadQuantity;

    fn from_str(text: &str) -> Result<Share, BadQuantity> {
        // In percent only: a bare 1 would be all where 1 % is meant.
        let value = parse(text, Unit::Share).ok().filter(|_| text.contains('%'));
        let share = value.filter(|value| *value <= 1.0).map(Share);
        share.ok_or_else(|| BadQuantity {
            text: text.to_owned(),
            what: "share",
            example: "1% or 0.05%",
        })
    }
}

/// `value` in the largest unit in which it is 1 at least, without needless digits.
fn in_units(value: f64, units: &[(&str, f64)]) -> String {
    let fits = units.iter().find(|(_, factor)| value >= *factor);
    let (unit, factor) = fits.unwrap_or(&units[units.len() - 1]);
    format!("{}{unit}", plain(value / factor))
}

/// At most six digits behind the point, without zeros at the end.
fn plain(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&in_units(self.0, &RATES))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&in_units(self.0 as f64, &TIMES))
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", plain(self.0 * 100.0))
    }
}

/// The conversions that serde needs for each: from text, and text again.
macro_rules! as_text {
    ($($kind:ty),+) => {$(
        impl TryFrom<String> for $kind {
            type Error = BadQuantity;

            fn try_from(text: String) -> Result<$kind, BadQuantity> {
                text.parse()
            }
        }

        impl From<$kind> for String {
            fn from(value: $kind) -> String {
                value.to_string()
            }
        }
    )+};
}

as_text!(Rate, Time, Share);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_values_read_back() {
        for text in ["850mbit", "1.5gbit", "64kbit", "12bit"] {
            assert_eq!(text.parse::<Rate>().unwrap().to_string(), text);
        }
        for text in ["250us", "1.5s", "20ms", "7ns"] {
            assert_eq!(text.parse::<Time>().unwrap().to_string(), text);
        }
        for text in ["1%", "0.05%", "100%", "0%"] {
            assert_eq!(text.parse::<Share>().unwrap().to_string(), text);
        }
        assert_eq!("0".parse::<Time>().unwrap().ns(), 0);
        assert_eq!("250us".parse::<Time>().unwrap().ns(), 250_000);
    }

    #[test]
    fn invalid_quantities_are_refused_with_an_example() {
        let error = "5".parse::<Time>().unwrap_err().to_string();
        assert_eq!(error, "time \"5\" has no unit: write 5ms, 250us or 1.5s");
        for text in ["0mbit", "100", "-3mbit", "1.2.3mbit", "fast"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
        for text in ["101%", "1", "1 percent"] {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_scaled_quantity_keeps_its_kind() {
        let rate: Rate = "850mbit".parse().unwrap();
        assert_eq!(rate.times(0.1).to_string(), "85mbit");
        let time: Time = "500us".parse().unwrap();
        assert_eq!(time.times(10.0).to_string(), "5ms");
    }
}
