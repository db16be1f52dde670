//! Dates, times of a day, and days of a month.

use std::io::Write;

use super::{any_number, show, utf8};

/// Seconds since 1970-01-01 of a date (`2024-05-01` or `2024-05-01T10:20:30`), UTC.
pub(super) fn date(word: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(word).ok()?;
    let (date, time) = text.split_once('T').unwrap_or((text, "00:00:00"));
    let mut parts = date.splitn(3, '-');
    let year: i64 = parts.next()?.parse().ok()?;
    let month: i64 = parts.next().unwrap_or("1").parse().ok()?;
    let day: i64 = parts.next().unwrap_or("1").parse().ok()?;
    if !(1970..=2038).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let days = days_from_civil(year, month, day);
    Some(days as u64 * 86_400 + time_of_day(time.as_bytes())?)
}

/// Days since 1970-01-01 (Howard Hinnant, chrono-Compatible Low-Level Date Algorithms).
pub(super) fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year - era * 400;
    let of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Year, month and day of days since 1970-01-01.
pub fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days - era * 146_097;
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = (of_year - (153 * shifted + 2) / 5 + 1) as u32;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    } as u32;
    (year + era * 400 + i64::from(month <= 2), month, day)
}

pub(super) fn time_of_day(word: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(word).ok()?;
    let mut parts = text.split(':');
    let mut seconds = 0;
    for (limit, scale) in [(23, 3_600), (59, 60), (59, 1)] {
        let part: u64 = match parts.next() {
            Some(part) => part.parse().ok().filter(|part| *part <= limit)?,
            None if scale == 1 => 0,
            None => return None,
        };
        seconds += part * scale;
    }
    parts.next().is_none().then_some(seconds)
}

pub(super) fn month_days(word: &[u8]) -> Result<u64, String> {
    let mut days = 0;
    for part in word.split(|byte| *byte == b',') {
        let part = utf8(part)?;
        // The original tool takes two digits for a day.
        match any_number(part).filter(|_| part.len() < 3) {
            Some(day @ 1..=31) => days |= 1u64 << day,
            _ => {
                return Err(format!(
                    "\"{}\" is not a day of a month",
                    show(part.as_bytes())
                ));
            }
        }
    }
    Ok(days)
}

pub(super) fn time_text(seconds: u64, out: &mut Vec<u8>) {
    let _ = write!(
        out,
        "{:02}:{:02}:{:02}",
        seconds / 3_600,
        seconds / 60 % 60,
        seconds % 60
    );
}
