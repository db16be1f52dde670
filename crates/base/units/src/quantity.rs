//! Numbers with units: `5ms`, `1514B`, `10KiB`, `100mbit`, `1%`, `1000 packets`.
//!
//! One grammar ([`parse`]) for configurations, trees, traffic, experiments and command lines. A unit
//! is required, except for counts, for zero and for fractions of one. Callers add bounds. Absent:
//! signs and exponents.

use std::time::Duration;

use thiserror::Error;

/// 1 Pbit/s. A larger rate is a typing error.
const MAX_BPS: f64 = 1e15;
/// Integers up to here are exact in a float.
const EXACT: f64 = 9_007_199_254_740_992.0;
/// Between the name of a quantity and its maximum, in [`BadQuantity::what`].
const AT_MOST: &str = " of at most ";

/// A text that is not a number of the expected unit.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{} \"{text}\" {}: write {example}", self.name(), self.problem())]
pub struct BadQuantity {
    /// The text.
    pub text: String,
    /// The expected quantity, for example `rate`, with ` of at most MAXIMUM` for a larger one.
    pub what: &'static str,
    /// Valid values.
    pub example: &'static str,
}

impl BadQuantity {
    fn name(&self) -> &'static str {
        self.what
            .split_once(AT_MOST)
            .map_or(self.what, |(name, _)| name)
    }

    fn problem(&self) -> String {
        if let Some((_, maximum)) = self.what.split_once(AT_MOST) {
            return format!("is too large, the maximum is {maximum}");
        }
        let (is_rate, is_share) = (self.name() == "rate", self.name() == "share");
        let has_unit = is_rate || is_share || self.name() == "time";
        match split(&self.text) {
            Some((number, _)) if is_share && number > 100.0 => "is more than 100%".to_owned(),
            Some((number, word)) if word.is_empty() && is_rate && number == 0.0 => {
                "is zero".to_owned()
            }
            Some((_, word)) if word.is_empty() && has_unit => "has no unit".to_owned(),
            Some((_, word)) if is_rate && word.ends_with("ps") => {
                "is ambiguous, because tc reads bps as bytes per second".to_owned()
            }
            _ => "is invalid".to_owned(),
        }
    }
}

/// Reads a number in `unit`: "ns", "bytes", "bps", "packets" or "" as policies' parameters have it.
///
/// ```
/// use fairpath_units::quantity::read;
///
/// assert_eq!(read("5ms", "ns"), Ok(5_000_000));
/// assert_eq!(read("100mbit", "bps"), Ok(100_000_000));
/// assert_eq!(read("10KiB", "bytes"), Ok(10_240));
/// assert!(read("5", "ns").is_err());
/// ```
///
/// # Errors
/// The text is not such a number, or the number is too large.
pub fn read(text: &str, unit: &str) -> Result<u64, BadQuantity> {
    let (what, fits, example, read): (_, _, _, fn(&str) -> Option<u64>) = match unit {
        "ns" => (
            "time",
            "time of at most 104 days",
            "5ms, 100us or 1.5s",
            time,
        ),
        "bytes" => (
            "number of bytes",
            "number of bytes of at most 8 PiB",
            "1514B, 10KiB or 1MB",
            bytes,
        ),
        "bps" => (
            "rate",
            "rate of at most 1000tbit",
            "100kbit, 100mbit or 100gbit",
            rate,
        ),
        "packets" => (
            "number of packets",
            "number of packets of at most 2^53",
            "1000 or \"1000 packets\"",
            packets,
        ),
        _ => ("whole number", "whole number of at most 2^64-1", "3", plain),
    };
    // With 1 in place of its digits, a number that is only too large is valid.
    let digits = text
        .trim()
        .trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let is_sound = digits.len() < text.trim().len() && read(&format!("1{digits}")).is_some();
    let is_whole = matches!(unit, "ns" | "bytes" | "bps") || !text.contains('.');
    read(text).ok_or_else(|| BadQuantity {
        text: shortened(text),
        what: if is_sound && is_whole { fits } else { what },
        example,
    })
}

/// A time in ns.
///
/// # Errors
/// As [`read`].
pub fn read_time(text: &str) -> Result<u64, BadQuantity> {
    read(text, "ns")
}

/// A rate in bits per second, more than 0.
///
/// # Errors
/// As [`read`].
pub fn read_rate(text: &str) -> Result<u64, BadQuantity> {
    match read(text, "bps") {
        Ok(0) => Err(BadQuantity {
            text: shortened(text),
            what: "rate",
            example: "100kbit, 100mbit or 100gbit",
        }),
        result => result,
    }
}

/// `value` of `unit` as [`read`] takes it, in the largest unit that keeps it whole.
pub fn written(value: u64, unit: &str) -> String {
    match unit {
        "ns" | "bytes" | "bps" if value == 0 => "0".to_owned(),
        "ns" => whole(value, &TIMES, "ns"),
        "bytes" => whole(value, &[("MiB", 1 << 20), ("KiB", 1 << 10)], "B"),
        "bps" => whole(value, &RATES, "bit"),
        "packets" => format!("{value} packets"),
        _ => value.to_string(),
    }
}

const TIMES: [(&str, u64); 3] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)];
const RATES: [(&str, u64); 3] = [
    ("gbit", 1_000_000_000),
    ("mbit", 1_000_000),
    ("kbit", 1_000),
];

fn whole(value: u64, units: &[(&str, u64)], smallest: &str) -> String {
    let fits = |(_, factor): &&(&str, u64)| value >= *factor && value.is_multiple_of(*factor);
    match units.iter().find(fits) {
        Some((word, factor)) => format!("{}{word}", value / factor),
        None => format!("{value}{smallest}"),
    }
}

/// A kind of number, by its base unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds: `ns`, `us`, `ms`, `s`, `m` or `min`, `h`.
    Time,
    /// Bits per second: `bit`, `kbit` or `k`, `mbit`, `gbit`, `tbit`, with or without `/s`.
    Rate,
    /// Bytes: `B`, `kB`, `KiB` and so on. [`read`] accepts a bare number as well.
    Bytes,
    /// A share: `1%`, or a fraction below one without a unit.
    Share,
}

/// Why a text is not a number of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It does not begin with a plain number.
    Number,
    /// A number without a unit.
    NoUnit,
    /// A rate in `bps`, which tc reads as bytes per second.
    Ambiguous,
    /// The word after the number is not such a unit.
    OtherUnit,
}

/// Reads a number with its unit, in base units, neither rounded nor bounded.
///
/// The grammar of all times, rates, sizes and shares. Case is ignored, except that minutes are a
/// small `m`. So is a space before the unit.
///
/// ```
/// use fairpath_units::quantity::{Unit, Wrong, parse};
///
/// assert_eq!(parse("1.5 Gbit/s", Unit::Rate), Ok(1.5e9));
/// assert_eq!(parse("5min", Unit::Time), Ok(300e9));
/// assert_eq!(parse("10", Unit::Time), Err(Wrong::NoUnit));
/// ```
///
/// # Errors
/// The text is not such a number.
pub fn parse(text: &str, unit: Unit) -> Result<f64, Wrong> {
    let (number, word) = split(text).ok_or(Wrong::Number)?;
    if word.is_empty() {
        return match unit {
            _ if number == 0.0 => Ok(0.0),
            // A bare 1 could mean 1 % or all.
            Unit::Share if number < 1.0 => Ok(number),
            _ => Err(Wrong::NoUnit),
        };
    }
    let factor = match unit {
        Unit::Time if word == "m" && !text.trim_end().ends_with('m') => None,
        Unit::Time => time_factor(&word),
        Unit::Rate if word.ends_with("ps") => return Err(Wrong::Ambiguous),
        Unit::Rate => rate_factor(word.strip_suffix("/s").unwrap_or(&word)),
        Unit::Bytes => bytes_factor(&word),
        // Division by 100 is exact for 57%, multiplication by 0.01 is not.
        Unit::Share => {
            return (word == "%")
                .then(|| number / 100.0)
                .ok_or(Wrong::OtherUnit);
        }
    };
    factor.map(|factor| number * factor).ok_or(Wrong::OtherUnit)
}

/// A time such as `10s`, `100ms` or `5m`.
///
/// ```
/// use fairpath_units::quantity::read_duration;
///
/// assert_eq!(read_duration("5m").unwrap().as_secs(), 300);
/// assert!(read_duration("5").is_err());
/// ```
///
/// # Errors
/// The text is not a time, or it is too long for a [`Duration`].
pub fn read_duration(text: &str) -> Result<Duration, BadQuantity> {
    let bad = |what| BadQuantity {
        text: shortened(text),
        what,
        example: "10s, 100ms or 5m",
    };
    let ns = parse(text, Unit::Time).map_err(|_| bad("time"))?;
    Duration::try_from_secs_f64(ns / 1e9).map_err(|_| bad("time of at most 584 years"))
}

/// A share from 0 to 1, such as `1%` or `0.01`.
///
/// # Errors
/// The text is not a share, or it is more than 100%.
pub fn read_share(text: &str) -> Result<f64, BadQuantity> {
    let share = parse(text, Unit::Share).ok().filter(|share| *share <= 1.0);
    share.ok_or_else(|| BadQuantity {
        text: shortened(text),
        what: "share",
        example: "1% or 0.01",
    })
}

/// The number and the word after it, in lower case. `None` if the text does not begin with a number.
fn split(text: &str) -> Option<(f64, String)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (digits, word) = text.split_at(end.unwrap_or(text.len()));
    let number: f64 = digits.parse().ok()?;
    Some((number, word.trim_start().to_ascii_lowercase()))
}

/// The part of a text that a message quotes.
fn shortened(text: &str) -> String {
    text.chars().take(60).collect()
}

fn scaled(value: f64, maximum: f64) -> Option<u64> {
    let value = value.round();
    (value <= maximum).then_some(value as u64)
}

fn time_factor(word: &str) -> Option<f64> {
    Some(match word {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" | "min" => 60e9,
        "h" => 3600e9,
        _ => return None,
    })
}

fn bytes_factor(word: &str) -> Option<f64> {
    Some(match word {
        "b" | "byte" | "bytes" => 1.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "kib" => 1024.0,
        "mib" => 1024.0 * 1024.0,
        "gib" => 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    })
}

fn rate_factor(word: &str) -> Option<f64> {
    Some(match word {
        "bit" => 1.0,
        "kbit" | "k" => 1e3,
        "mbit" | "m" => 1e6,
        "gbit" | "g" => 1e9,
        "tbit" | "t" => 1e12,
        _ => return None,
    })
}

fn time(text: &str) -> Option<u64> {
    scaled(parse(text, Unit::Time).ok()?, EXACT)
}

fn bytes(text: &str) -> Option<u64> {
    let number = match split(text)? {
        (number, word) if word.is_empty() => number,
        _ => parse(text, Unit::Bytes).ok()?,
    };
    scaled(number, EXACT)
}

fn rate(text: &str) -> Option<u64> {
    scaled(parse(text, Unit::Rate).ok()?, MAX_BPS)
}

fn packets(text: &str) -> Option<u64> {
    let (number, word) = split(text)?;
    let is_whole = number.fract() == 0.0;
    (is_whole && matches!(word.as_str(), "" | "packet" | "packets" | "p"))
        .then(|| scaled(number, EXACT))?
}

fn plain(text: &str) -> Option<u64> {
    let text = text.trim();
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        // `parse` would take a sign.
        None if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok(),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_reads_its_examples() {
        for (text, unit, value) in [
            ("5ms", "ns", 5_000_000),
            ("1.5s", "ns", 1_500_000_000),
            ("0", "ns", 0),
            ("1514B", "bytes", 1514),
            ("1514", "bytes", 1514),
            ("1MB", "bytes", 1_000_000),
            ("1MiB", "bytes", 1 << 20),
            ("100mbit", "bps", 100_000_000),
            ("1.5 Gbit/s", "bps", 1_500_000_000),
            ("20M", "bps", 20_000_000),
            ("1000 packets", "packets", 1000),
            ("7", "packets", 7),
            ("18446744073709551615", "", u64::MAX),
            ("0x10", "", 16),
        ] {
            assert_eq!(read(text, unit), Ok(value), "{text} {unit}");
        }
    }

    #[test]
    fn times_need_a_unit_and_m_is_minutes() {
        let read = |text: &str| read_duration(text).ok();
        assert_eq!(read("10s"), Some(Duration::from_secs(10)));
        assert_eq!(read("1.5ms"), Some(Duration::from_micros(1500)));
        assert_eq!(read("5min"), Some(Duration::from_secs(300)));
        assert_eq!(read("5m"), read("5 min"));
        assert_eq!(read("0"), Some(Duration::ZERO));
        for bad in [
            "",
            "10",
            "s",
            "-1s",
            "5M",
            "10days",
            "99999999999999999999h",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
        assert_eq!(parse("10", Unit::Time), Err(Wrong::NoUnit));
        assert_eq!(parse("5m", Unit::Time), Ok(300e9));
        assert_eq!(parse("5M", Unit::Time), Err(Wrong::OtherUnit));
    }

    #[test]
    fn shares_are_percentages_or_fractions_below_one() {
        assert_eq!(parse("1%", Unit::Share), Ok(0.01));
        assert_eq!(parse("57%", Unit::Share), Ok(0.57));
        assert_eq!(parse("0.05 %", Unit::Share), Ok(0.0005));
        assert_eq!(parse("0.25", Unit::Share), Ok(0.25));
        assert_eq!(parse("0", Unit::Share), Ok(0.0));
        assert_eq!(parse("1", Unit::Share), Err(Wrong::NoUnit));
        assert_eq!(parse("1.0", Unit::Share), Err(Wrong::NoUnit));
        assert_eq!(parse("1 percent", Unit::Share), Err(Wrong::OtherUnit));
        assert_eq!(parse("-1%", Unit::Share), Err(Wrong::Number));
        assert_eq!(parse("100mbps", Unit::Rate), Err(Wrong::Ambiguous));
        assert!(read_share("101%").is_err() && read_share("100%") == Ok(1.0));
    }

    #[test]
    fn bare_sizes_are_bytes_only_by_read() {
        assert_eq!(parse("1514", Unit::Bytes), Err(Wrong::NoUnit));
        assert_eq!(parse("64KiB", Unit::Bytes), Ok(65_536.0));
        assert_eq!(read("1514", "bytes"), Ok(1514));
    }

    #[test]
    fn invalid_numbers_are_refused_with_an_example() {
        for (text, unit) in [
            ("5", "ns"),
            ("5 parsecs", "ns"),
            ("-5ms", "ns"),
            ("", "bytes"),
            ("1e400B", "bytes"),
            ("99999999999999999999B", "bytes"),
            ("100", "bps"),
            ("2000tbit", "bps"),
            ("100mbps", "bps"),
            ("1.5", "packets"),
            ("1.5", ""),
            ("+1", ""),
            ("nan", ""),
            ("NaNms", "ns"),
            ("infs", "ns"),
        ] {
            let error = read(text, unit).unwrap_err();
            assert!(error.to_string().contains(": write "), "{error}");
        }
        assert!(read_rate("0").is_err());
    }

    #[test]
    fn errors_name_object_problem_and_remedy() {
        let message = |text: &str, unit: &str| read(text, unit).unwrap_err().to_string();
        for (text, unit, expected) in [
            (
                "100",
                "bps",
                "rate \"100\" has no unit: write 100kbit, 100mbit or 100gbit",
            ),
            (
                "100mbps",
                "bps",
                "rate \"100mbps\" is ambiguous, because tc reads bps as bytes per second: \
                 write 100kbit, 100mbit or 100gbit",
            ),
            (
                "5",
                "ns",
                "time \"5\" has no unit: write 5ms, 100us or 1.5s",
            ),
            (
                "5 parsecs",
                "ns",
                "time \"5 parsecs\" is invalid: write 5ms, 100us or 1.5s",
            ),
            (
                "2000tbit",
                "bps",
                "rate \"2000tbit\" is too large, the maximum is 1000tbit: \
                 write 100kbit, 100mbit or 100gbit",
            ),
        ] {
            assert_eq!(message(text, unit), expected);
        }
        let share = read_share("1").unwrap_err().to_string();
        assert_eq!(share, "share \"1\" has no unit: write 1% or 0.01");
        let rate = read_rate("0").unwrap_err().to_string();
        assert!(rate.starts_with("rate \"0\" is zero"), "{rate}");
    }

    #[test]
    fn numbers_that_are_only_too_large_are_named() {
        let message = |text: &str, unit: &str| read(text, unit).unwrap_err().to_string();
        for (text, unit) in [
            ("99999999min", "ns"),
            ("99999999999999999999B", "bytes"),
            ("2000tbit", "bps"),
            ("99999999999999999999", ""),
        ] {
            assert!(message(text, unit).contains("is too large"), "{text}");
        }
        for (text, unit) in [
            ("5 parsecs", "ns"),
            ("1.5", ""),
            ("", "bytes"),
            ("100", "bps"),
        ] {
            assert!(!message(text, unit).contains("is too large"), "{text}");
        }
    }

    #[test]
    fn written_values_read_as_the_same() {
        for value in [
            0,
            1,
            999,
            1000,
            1_500_000,
            5_000_000,
            1 << 20,
            1514,
            3_600_000_000_000,
        ] {
            for unit in ["ns", "bytes", "bps", "packets", ""] {
                let text = written(value, unit);
                assert_eq!(read(&text, unit), Ok(value), "{text}");
            }
        }
    }
}
