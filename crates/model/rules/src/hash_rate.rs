//! Rates of `hashlimit`: packets by time, or bytes by second.
//!
//! Packets: millionths of a second for each packet (the kernel's scale of revision 2 and 3). Bytes: the
//! number of 16-byte units a second is kept in the kernel; the text shows what remains of it.

use std::io::Write;

use crate::tree::Value;

/// Bit 63 of the number marks a rate in bytes a second.
pub const BYTES: u64 = 1 << 63;
const SCALE: u64 = 1_000_000;
const PERIODS: [(&str, &str, u64); 4] = [
    ("second", "sec", SCALE),
    ("minute", "min", SCALE * 60),
    ("hour", "hour", SCALE * 3_600),
    ("day", "day", SCALE * 86_400),
];

/// Reads `5/sec` or `512kb/s`.
pub fn parse(text: &str) -> Result<Value, String> {
    if let Some(bytes) = bytes(text.strip_suffix("/s").unwrap_or(""))? {
        // The kernel divides 2^32 by units of 16 bytes, so some rates are rounded down.
        let cost = u32::MAX / ((bytes >> 4) as u32 + 1);
        let units = u32::MAX.checked_div(cost).unwrap_or(u32::MAX) - 1;
        return Ok(Value::Number(BYTES | u64::from(units) << 4));
    }
    let bad =
        || format!("\"{text}\" is not a rate: write a number and /second, /minute, /hour or /day");
    let (count, unit) = text.split_once('/').unwrap_or((text, "second"));
    let count: u64 = count
        .parse()
        .ok()
        .filter(|count| *count > 0)
        .ok_or_else(bad)?;
    let (_, _, period) = PERIODS
        .iter()
        .find(|(name, _, _)| {
            !unit.is_empty()
                && unit.len() <= name.len()
                && name[..unit.len()].eq_ignore_ascii_case(unit)
        })
        .ok_or_else(bad)?;
    if count > *period {
        return Err(format!(
            "rate \"{text}\" is too fast: the maximum is 1000000/second"
        ));
    }
    Ok(Value::Number(period / count))
}

/// Bytes with a unit: `10kb`, `2mb`, `300b`.
pub fn bytes(text: &str) -> Result<Option<u64>, String> {
    let Some(number) = text.strip_suffix('b').or_else(|| text.strip_suffix('B')) else {
        return Ok(None);
    };
    let (number, scale) = match number.as_bytes().last() {
        Some(b'k' | b'K') => (&number[..number.len() - 1], 1024),
        Some(b'm' | b'M') => (&number[..number.len() - 1], 1024 * 1024),
        _ => (number, 1),
    };
    let count: u64 = number
        .parse()
        .map_err(|_| format!("\"{text}\" is not a number of bytes: write 512kb"))?;
    count
        .checked_mul(scale)
        .filter(|bytes| (16..=u64::from(u32::MAX)).contains(bytes))
        .map(Some)
        .ok_or_else(|| format!("\"{text}\" is not between 16 bytes and 4 GB"))
}

/// Writes a rate.
pub fn write(value: &Value, out: &mut Vec<u8>) {
    let Value::Number(rate) = value else {
        return;
    };
    if rate & BYTES != 0 {
        let bytes = rate & !BYTES;
        let _ = if bytes >= 1024 * 1024 && bytes.is_multiple_of(1024 * 1024) {
            write!(out, "{}mb/s", bytes >> 20)
        } else if bytes >= 1024 && bytes.is_multiple_of(1024) {
            write!(out, "{}kb/s", bytes >> 10)
        } else {
            write!(out, "{bytes}b/s")
        };
        return;
    }
    let (unit, count) =
        crate::value::unit_of(&PERIODS.map(|(_, unit, period)| (unit, period)), *rate);
    let _ = write!(out, "{count}/{unit}");
}
