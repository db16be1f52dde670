//! Numbers with units, as people write them: `5ms`, `1514B`, `10KiB`, `100mbit`, `1000 packets`.
//!
//! One reader for trees, traffic and the command line, so that a number means the same everywhere.
//! Inside, everything is a whole number of nanoseconds, bytes, bits a second or packets. Absent:
//! negative numbers, and times and rates without unit, since nobody knows what they mean.

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
/// use fairpath_sched::quantity::read;
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
        text: text.chars().take(60).collect(),
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
            text: text.to_owned(),
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

/// The number in front and the word behind, in lower case; `None` where no plain number begins.
fn split(text: &str) -> Option<(f64, String)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (digits, word) = text.split_at(end.unwrap_or(text.len()));
    let number: f64 = digits.parse().ok()?;
    Some((number, word.trim_start().to_ascii_lowercase()))
}

fn scaled(number: f64, factor: f64, most: f64) -> Option<u64> {
    let value = (number * factor).round();
    (value <= most).then_some(value as u64)
}

fn time(text: &str) -> Option<u64> {
    let (number, word) = split(text)?;
    let factor = match word.as_str() {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "min" => 60e9,
        "h" => 3600e9,
        "" if number == 0.0 => 1.0,
        _ => return None,
    };
    scaled(number, factor, EXACT)
}

fn bytes(text: &str) -> Option<u64> {
    let (number, word) = split(text)?;
    let factor = match word.as_str() {
        "" | "b" | "byte" | "bytes" => 1.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "kib" => 1024.0,
        "mib" => 1024.0 * 1024.0,
        "gib" => 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    scaled(number, factor, EXACT)
}

/// `mbps` is refused: to `tc` it means bytes.
fn rate(text: &str) -> Option<u64> {
    let (number, word) = split(text)?;
    let factor = match word.trim_end_matches("/s") {
        "bit" => 1.0,
        "kbit" | "k" => 1e3,
        "mbit" | "m" => 1e6,
        "gbit" | "g" => 1e9,
        "tbit" | "t" => 1e12,
        "" if number == 0.0 => 1.0,
        _ => return None,
    };
    scaled(number, factor, MAX_BPS)
}

fn packets(text: &str) -> Option<u64> {
    let (number, word) = split(text)?;
    let is_whole = number.fract() == 0.0;
    (is_whole && matches!(word.as_str(), "" | "packet" | "packets" | "p"))
        .then(|| scaled(number, 1.0, EXACT))?
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
