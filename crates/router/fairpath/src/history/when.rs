//! Times as people write them.

use anyhow::{anyhow, bail};
use jiff::civil::{DateTime, Weekday};
use jiff::{Span, Timestamp, Unit, Zoned};

const EXAMPLES: &str = "write now, today, yesterday, tuesday, 2026-11-17, \"2026-11-17 18:00\", \
                        or a time before now such as 30m, 6h, 2d, 8w";
const DAYS: [(&str, Weekday); 7] = [
    ("monday", Weekday::Monday),
    ("tuesday", Weekday::Tuesday),
    ("wednesday", Weekday::Wednesday),
    ("thursday", Weekday::Thursday),
    ("friday", Weekday::Friday),
    ("saturday", Weekday::Saturday),
    ("sunday", Weekday::Sunday),
];

/// A point of time. Days begin at midnight of the time zone of `now`.
///
/// # Errors
/// The text is no time, with examples.
pub fn point(text: &str, now: &Zoned) -> anyhow::Result<Zoned> {
    let word = text.trim().to_lowercase();
    let wrong = || anyhow!("{text:?} is no time: {EXAMPLES}");
    let today = now.start_of_day()?;
    let zone = now.time_zone().clone();
    let day = DAYS
        .iter()
        .find(|(name, _)| word.len() >= 3 && name.starts_with(&*word));
    if let Some((_, day)) = day {
        let ago = i64::from(today.weekday().since(*day));
        let ago = if ago == 0 { 7 } else { ago };
        return Ok(today
            .date()
            .checked_sub(Span::new().days(ago))?
            .to_zoned(zone)?);
    }
    match &*word {
        "now" => return Ok(now.clone()),
        "today" => return Ok(today),
        "yesterday" => return Ok(today.yesterday()?),
        _ => {}
    }
    if let Ok(point) = text.trim().parse::<Timestamp>() {
        return Ok(point.to_zoned(zone));
    }
    if let Ok(time) = text.trim().parse::<DateTime>() {
        return Ok(time.to_zoned(zone)?);
    }
    Ok(now.checked_sub(span(&word).map_err(|_| wrong())?)?)
}

/// The time that is `length` after another one: a day is one of the calendar.
///
/// # Errors
/// The text is no length.
pub fn after(since: &Zoned, length: &str) -> anyhow::Result<Zoned> {
    Ok(since.checked_add(span(length)?)?)
}

/// A length in nanoseconds. A day has 24 hours.
///
/// # Errors
/// The text is no length.
pub fn length(text: &str, now: &Zoned) -> anyhow::Result<u64> {
    let ns = span(text)?.total((Unit::Nanosecond, &now.in_tz("UTC")?))?;
    Ok(ns as u64)
}

/// Unix time, 0 for times before 1970.
pub fn unix_ns(point: &Zoned) -> u64 {
    u64::try_from(point.timestamp().as_nanosecond()).unwrap_or(0)
}

fn span(text: &str) -> anyhow::Result<Span> {
    let text = text.trim();
    let wrong = || anyhow!("{text:?} is no length: write for example 10s, 30m, 6h, 2d or 8w");
    let span: Span = text.parse().map_err(|_| wrong())?;
    if span.is_negative() || span.is_zero() || text.starts_with('+') {
        bail!(wrong());
    }
    Ok(span)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Zoned {
        // A Thursday, two days after the end of summer time.
        "2026-10-29T15:30:10[Europe/Berlin]".parse().unwrap()
    }

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, expected) in [
            ("now", "2026-10-29T15:30:10+01:00"),
            ("today", "2026-10-29T00:00:00+01:00"),
            ("Yesterday", "2026-10-28T00:00:00+01:00"),
            ("tuesday", "2026-10-27T00:00:00+01:00"),
            ("thu", "2026-10-22T00:00:00+02:00"),
            ("fri", "2026-10-23T00:00:00+02:00"),
            ("2026-10-24", "2026-10-24T00:00:00+02:00"),
            ("2026-10-24 18:05", "2026-10-24T18:05:00+02:00"),
            ("2026-10-24T16:05:00Z", "2026-10-24T18:05:00+02:00"),
            ("90m", "2026-10-29T14:00:10+01:00"),
            ("7d", "2026-10-22T15:30:10+02:00"),
            ("1w 2h", "2026-10-22T13:30:10+02:00"),
        ] {
            let expected: Timestamp = expected.parse().unwrap();
            assert_eq!(point(text, &now()).unwrap().timestamp(), expected, "{text}");
        }
        let since = point("2026-10-25", &now()).unwrap();
        let hours = after(&since, "1d")
            .unwrap()
            .since(&since)
            .unwrap()
            .get_hours();
        assert_eq!(hours, 25, "the day on which the clock is set back");
    }

    #[test]
    fn other_texts_are_refused_with_examples() {
        for text in [
            "",
            "soon",
            "-2h",
            "+2h",
            "0s",
            "2026-13-01",
            "mo",
            "99999999w",
        ] {
            let refused = point(text, &now()).unwrap_err().to_string();
            assert!(
                text == "99999999w" || refused.contains("write now"),
                "{text}: {refused}"
            );
        }
        assert!(length("1x", &now()).is_err() && length("-5m", &now()).is_err());
        assert_eq!(length("1d", &now()).unwrap(), 86_400_000_000_000);
    }
}
