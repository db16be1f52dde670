//! Numbers with units, as people write them: `5ms`, `1514B`, `10KiB`, `100mbit`, `1000 packets`.
//!
//! One grammar ([`parse`]) for configurations, trees, traffic, experiments and command lines, so that
//! a number means the same everywhere. Callers add bounds. Absent: signs, exponents, and times and
//! rates without a unit; command lines and the daemon's own settings read a bare number as seconds.

use std::time::Duration;

use thiserror::Error;

/// 1 Pbit/s: whatever is above is a slip of the pen.
const MAX_BPS: f64 = 1e15;
/// Numbers up to here are exact in a float.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// A text that is no number of this unit.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("\"{text}\" is no {what}; write {example}")]
pub struct BadQuantity {
    /// As it was written.
    pub text: String,
    /// What was wanted.
    pub what: &'static str,
    /// How to write one.
    pub example: &'static str,
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
/// What is no such number, or too large.
pub fn read(text: &str, unit: &str) -> Result<u64, BadQuantity> {
    let (what, fits, example, read): (_, _, _, fn(&str) -> Option<u64>) = match unit {
        "ns" => (
            "time",
            "time that fits (104 days at most)",
            "5ms, 100us or 1.5s",
            time,
        ),
        "bytes" => (
            "number of bytes",
            "number of bytes that fits (8 PiB at most)",
            "1514B, 10KiB or 1MB",
            bytes,
        ),
        "bps" => (
            "rate",
            "rate that fits (1000tbit at most)",
            "100mbit, 1.5gbit or 64kbit",
            rate,
        ),
        "packets" => (
            "number of packets",
            "number of packets that fits",
            "1000 or \"1000 packets\"",
            packets,
        ),
        _ => ("whole number", "whole number that fits", "3", plain),
    };
    // A one in place of the number: was it only too large?
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

/// A rate in bits a second, more than 0.
///
/// # Errors
/// As [`read`].
pub fn read_rate(text: &str) -> Result<u64, BadQuantity> {
    match read(text, "bps") {
        Ok(0) => Err(BadQuantity {
            text: shortened(text),
            what: "rate to send at",
            example: "100mbit: more than 0",
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
    /// Nanoseconds: `ns`, `us`, `ms`, `s`, `min`, `h`.
    Time,
    /// Bits a second: `bit`, `kbit` or `k`, `mbit`, `gbit`, `tbit`, with or without `/s`.
    Rate,
    /// Bytes: `B`, `kB`, `KiB` and so on; a bare number is one of bytes.
    Bytes,
    /// A part of a whole: `1%`; a bare number is the part itself.
    Share,
}

/// Why a text is no number of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It does not begin with a plain number.
    Number,
    /// A number alone, which is 0 at most once it means something.
    NoUnit,
    /// A rate in `bps`, which means bytes to `tc`.
    Ambiguous,
    /// The word behind the number is no such unit.
    OtherUnit,
}

/// Reads a number with its unit, in base units, neither rounded nor bounded: the one grammar of
/// times, rates, sizes and shares. Case and the space before the unit do not matter.
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
/// What is no such number.
pub fn parse(text: &str, unit: Unit) -> Result<f64, Wrong> {
    let (number, word) = split(text).ok_or(Wrong::Number)?;
    if word.is_empty() {
        return match unit {
            Unit::Bytes | Unit::Share => Ok(number),
            Unit::Time | Unit::Rate if number == 0.0 => Ok(0.0),
            Unit::Time | Unit::Rate => Err(Wrong::NoUnit),
        };
    }
    let factor = match unit {
        Unit::Time => time_factor(&word),
        Unit::Rate if word.ends_with("ps") => return Err(Wrong::Ambiguous),
        Unit::Rate => rate_factor(word.strip_suffix("/s").unwrap_or(&word)),
        Unit::Bytes => bytes_factor(&word),
        // By 100, not times 0.01: 57% is 0.57 then.
        Unit::Share => {
            return (word == "%")
                .then(|| number / 100.0)
                .ok_or(Wrong::OtherUnit);
        }
    };
    factor.map(|factor| number * factor).ok_or(Wrong::OtherUnit)
}

/// A time as command lines and the daemon's own settings take it: seconds where there is no unit, and
/// a small `m` is minutes. Elsewhere `m` is refused: in a delay it could be meant for milliseconds.
///
/// # Errors
/// What is no time, or too long for a [`Duration`].
pub fn read_duration(text: &str) -> Result<Duration, BadQuantity> {
    let ns = parse(text, Unit::Time).ok().or_else(|| {
        let (number, word) = split(text)?;
        match word.as_str() {
            "" => Some(number * 1e9),
            "m" if text.trim_end().ends_with('m') => Some(number * 60e9),
            _ => None,
        }
    });
    ns.and_then(|ns| Duration::try_from_secs_f64(ns / 1e9).ok())
        .ok_or_else(|| BadQuantity {
            text: shortened(text),
            what: "time",
            example: "10s, 100ms or 5min",
        })
}

/// The number in front and the word behind, in lower case; `None` where no plain number begins.
fn split(text: &str) -> Option<(f64, String)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (digits, word) = text.split_at(end.unwrap_or(text.len()));
    let number: f64 = digits.parse().ok()?;
    Some((number, word.trim_start().to_ascii_lowercase()))
}

/// As much of a foreign text as a message quotes.
fn shortened(text: &str) -> String {
    text.chars().take(60).collect()
}

fn scaled(value: f64, most: f64) -> Option<u64> {
    let value = value.round();
    (value <= most).then_some(value as u64)
}

fn time_factor(word: &str) -> Option<f64> {
    Some(match word {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "min" => 60e9,
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
    scaled(parse(text, Unit::Bytes).ok()?, EXACT)
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
    fn every_unit_reads_what_its_example_shows() {
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
    fn bare_numbers_are_seconds_on_command_lines_only() {
        let read = |text: &str| read_duration(text).ok();
        assert_eq!(read("10"), Some(Duration::from_secs(10)));
        assert_eq!(read("1.5ms"), Some(Duration::from_micros(1500)));
        assert_eq!(read("5min"), Some(Duration::from_secs(300)));
        assert_eq!(read("5m"), read("5 min"));
        for bad in ["", "s", "-1s", "10days", "1e30h", "99999999999999999999h"] {
            assert_eq!(read(bad), None, "{bad}");
        }
        assert_eq!(parse("10", Unit::Time), Err(Wrong::NoUnit));
        assert_eq!(parse("5m", Unit::Time), Err(Wrong::OtherUnit));
    }

    #[test]
    fn shares_are_parts_or_percentages() {
        assert_eq!(parse("1%", Unit::Share), Ok(0.01));
        assert_eq!(parse("57%", Unit::Share), Ok(0.57));
        assert_eq!(parse("0.05 %", Unit::Share), Ok(0.0005));
        assert_eq!(parse("0.25", Unit::Share), Ok(0.25));
        assert_eq!(parse("1 percent", Unit::Share), Err(Wrong::OtherUnit));
        assert_eq!(parse("-1%", Unit::Share), Err(Wrong::Number));
        assert_eq!(parse("100mbps", Unit::Rate), Err(Wrong::Ambiguous));
    }

    #[test]
    fn what_is_no_number_of_its_unit_is_refused_with_an_example() {
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
            assert!(error.to_string().contains("; write "), "{error}");
        }
        assert!(read_rate("0").is_err());
    }

    #[test]
    fn a_number_that_is_only_too_large_is_told_so() {
        let told = |text: &str, unit: &str| read(text, unit).unwrap_err().to_string();
        for (text, unit) in [
            ("99999999min", "ns"),
            ("99999999999999999999B", "bytes"),
            ("2000tbit", "bps"),
            ("99999999999999999999", ""),
        ] {
            assert!(told(text, unit).contains(" that fits"), "{text}");
        }
        for (text, unit) in [
            ("5 parsecs", "ns"),
            ("1.5", ""),
            ("", "bytes"),
            ("100", "bps"),
        ] {
            assert!(!told(text, unit).contains(" that fits"), "{text}");
        }
    }

    #[test]
    fn what_is_written_reads_as_the_same() {
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
