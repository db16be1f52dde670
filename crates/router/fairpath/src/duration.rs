//! Times as people write them.

use std::time::Duration;

/// Reads `10`, `10s`, `1.5ms`, `5min`, `2h`: seconds where no unit is given.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: f64 = digits
        .parse()
        .map_err(|_| format!("{text:?} is no time; say 10s, 100ms or 5min"))?;
    let unit = match &text[digits.len()..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        other => {
            return Err(format!(
                "{other:?} is no unit of time; use us, ms, s, min or h"
            ));
        }
    };
    Duration::try_from_secs_f64(number * unit).map_err(|_| format!("{text:?} is out of range"))
}

/// Whole nanoseconds; what does not fit is the greatest number.
pub fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_and_without_units() {
        assert_eq!(parse_duration("10"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_duration("1.5ms"), Ok(Duration::from_micros(1500)));
        assert_eq!(parse_duration("5min"), Ok(Duration::from_secs(300)));
        for bad in ["", "s", "-1s", "10 s", "10days", "1e30h"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }
}
