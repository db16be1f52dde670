//! Rates of `hashlimit`: packets by time, or bytes by second.
//!
//! Packets: millionths of a second for each packet (the kernel's scale of revision 2 and 3). Bytes: the
//! number of 16-byte units a second is kept in the kernel; the text shows what remains of it.

use std::io::Write;

use crate::arp::decimal;
use crate::tree::Value;
use crate::value::any_number;

/// Bit 63 of the number marks a rate in bytes a second.
pub const BYTES: u64 = 1 << 63;
const SCALE: u64 = 1_000_000;
/// Where a number that was just read has the seconds of its written unit: the default of
/// `--hashlimit-htable-expire` depends on the unit, and 60/hour and 1/minute are one rate.
const UNIT: u32 = 40;
/// Units of bytes, and their bits.
const UNITS: [(&str, u32); 3] = [("mb", 20), ("kb", 10), ("b", 0)];
const PERIODS: [(&str, &str, u64); 4] = [
    ("second", "sec", SCALE),
    ("minute", "min", SCALE * 60),
    ("hour", "hour", SCALE * 3_600),
    ("day", "day", SCALE * 86_400),
];

/// Reads `5/sec` or `512kb/s`, with the seconds of its unit: [`take_unit`] separates them.
pub fn parse(text: &str) -> Result<Value, String> {
    if let Some(bytes) = bytes(text.strip_suffix("/s").unwrap_or(""), decimal)? {
        return Ok(Value::Number(BYTES | rate_of(cost_of(bytes))));
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
    Ok(Value::Number((period / count) | ((period / SCALE) << UNIT)))
}

/// Removes the unit from a number of [`parse`], and returns its seconds, if packets have a rate.
pub fn take_unit(number: &mut u64) -> Option<u64> {
    if *number & BYTES != 0 {
        return None;
    }
    let seconds = *number >> UNIT;
    *number &= (1 << UNIT) - 1;
    Some(seconds)
}

/// Milliseconds after which an idle entry expires, if neither option nor written unit says more:
/// those of the unit in which the tool writes the rate.
pub fn expiry(rate: u64, has_burst: bool) -> u64 {
    if rate & BYTES != 0 {
        // XT_HASHLIMIT_BYTE_EXPIRE and XT_HASHLIMIT_BYTE_EXPIRE_BURST.
        return if has_burst { 60_000 } else { 15_000 };
    }
    let (unit, _) = crate::value::unit_of(&PERIODS.map(|(_, unit, period)| (unit, period)), rate);
    let period = PERIODS.iter().find(|(_, name, _)| *name == unit);
    period.map_or(1000, |(_, _, period)| period / 1000)
}

/// The kernel divides 2^32 by units of 16 bytes, so some rates are rounded.
fn cost_of(bytes: u64) -> u32 {
    u32::MAX / ((bytes >> 4) as u32 + 1)
}

fn rate_of(cost: u32) -> u64 {
    u64::from(u32::MAX.checked_div(cost).unwrap_or(u32::MAX) - 1) << 4
}

/// Bytes with a unit: `10kb`, `2mb`, `300b`.
pub fn bytes(text: &str, base: fn(&str) -> Option<u64>) -> Result<Option<u64>, String> {
    let Some(number) = text.strip_suffix('b').or_else(|| text.strip_suffix('B')) else {
        return Ok(None);
    };
    let (number, scale) = match number.as_bytes().last() {
        Some(b'k' | b'K') => (&number[..number.len() - 1], 1024),
        Some(b'm' | b'M') => (&number[..number.len() - 1], 1024 * 1024),
        _ => (number, 1),
    };
    let count = base(number)
        .filter(|_| !number.is_empty())
        .ok_or_else(|| format!("\"{text}\" is not a number of bytes: write 512kb"))?;
    count
        .checked_mul(scale)
        .filter(|bytes| (16..=u64::from(u32::MAX)).contains(bytes))
        .map(Some)
        .ok_or_else(|| format!("\"{text}\" is not between 16 bytes and 4 GB"))
}

/// Most packets of a burst.
const MAX_BURST: u64 = 1_000_000;

/// Reads a burst: packets, or bytes with a unit. Its rate decides what it counts.
pub fn parse_burst(text: &str) -> Result<Value, String> {
    bytes(text, any_number)?
        .or_else(|| any_number(text).filter(|burst| *burst <= MAX_BURST))
        .filter(|burst| *burst > 0)
        .map(Value::Number)
        .ok_or_else(|| "--hashlimit-burst must be 1 to 1000000 packets, or bytes".into())
}

/// The burst of a rate, with [`BYTES`] where it counts them. The kernel keeps that of bytes as a
/// multiple of the rate.
pub fn burst(rate: u64, burst: u64) -> Result<u64, String> {
    if rate & BYTES == 0 {
        return match burst <= MAX_BURST {
            true => Ok(burst),
            false => Err("--hashlimit-burst must be 1 to 1000000 packets".into()),
        };
    }
    let rate = rate & !BYTES;
    if burst < rate {
        return Err("--hashlimit-burst must be at least the rate, in bytes".into());
    }
    Ok(BYTES | (rate * burst.div_ceil(rate.max(1))))
}

/// Writes a burst; that of bytes in the largest unit, without its remainder, as the original tool.
pub fn write_burst(value: &Value, out: &mut Vec<u8>) {
    let Value::Number(burst) = value else {
        return;
    };
    let bytes = burst & !BYTES;
    if bytes == *burst {
        let _ = write!(out, "{burst}");
        return;
    }
    let (unit, shift) = UNITS
        .into_iter()
        .find(|(_, shift)| bytes >> shift > 0)
        .unwrap_or(("b", 0));
    let _ = write!(out, "{}{unit}", bytes >> shift);
}

/// Writes a rate.
pub fn write(value: &Value, out: &mut Vec<u8>) {
    let Value::Number(rate) = value else {
        return;
    };
    if rate & BYTES != 0 {
        let bytes = rate & !BYTES;
        // The largest unit in which the rate has the same cost without its remainder.
        for (unit, shift) in UNITS {
            let count = bytes >> shift;
            if shift == 0 || count > 0 && cost_of(count << shift) == cost_of(bytes) {
                let _ = write!(out, "{count}{unit}/s");
                return;
            }
        }
        return;
    }
    let (unit, count) =
        crate::value::unit_of(&PERIODS.map(|(_, unit, period)| (unit, period)), *rate);
    let _ = write!(out, "{count}/{unit}");
}

/// A rate as credits, in the scale of the core.
pub struct Credits {
    /// Of a packet, or of each 16 bytes.
    pub cost: u64,
    pub capacity: u64,
    /// Of a nanosecond.
    pub gain: u64,
    pub refills: u64,
    /// Milliseconds until an entry expires, if a rule does not set them.
    pub expire: u64,
}

/// Credits of a second in byte mode: the kernel's with ticks of 1 and 4 milliseconds, so that costs
/// have its rounding, times 15,625. Then a nanosecond has a whole number of them.
const BYTE_SECOND: u64 = 4_194_304_000;
const BYTE_SCALE: u64 = 15_625;
const BYTE_GAIN: u64 = BYTE_SECOND * BYTE_SCALE / 1_000_000_000;
const _: () = assert!(BYTE_GAIN * 1_000_000_000 == BYTE_SECOND * BYTE_SCALE);
/// Most credits of the core.
const MAX_CREDITS: u64 = 1 << 61;
/// Credits of a microsecond in the kernel, whose number of 64 bits overflows with more than 37 hours.
const KERNEL_CREDITS: u64 = 137_438_953;

/// True if the kernel refuses the burst of a rate of packets, or has less credit than the burst.
pub fn overflows(rate: u64, burst: u64) -> bool {
    rate & BYTES == 0
        && rate
            .checked_mul(burst)
            .is_none_or(|us| us > u64::MAX / KERNEL_CREDITS)
}

/// The same of a rule with `--hashlimit-rate-match`: units of an interval at the rate, and most.
pub fn window(rate: u64, burst: Option<u64>) -> Credits {
    let of_bytes = rate & BYTES != 0;
    let per_second = match of_bytes {
        true => rate & !BYTES,
        false => SCALE / rate.max(1),
    };
    let capacity = match of_bytes {
        true => per_second * burst.map_or(1, |burst| burst.div_ceil(per_second.max(1))),
        false => burst.unwrap_or(5) + per_second,
    };
    Credits {
        cost: per_second,
        capacity,
        gain: u64::from(!of_bytes),
        refills: 0,
        expire: expiry(rate, burst.is_some()),
    }
}

/// The credits of `--hashlimit-upto` or `-above` with a burst in packets or bytes.
pub fn credits(rate: u64, burst: Option<u64>) -> Credits {
    if rate & BYTES == 0 {
        let cost = rate.saturating_mul(1000).min(MAX_CREDITS);
        return Credits {
            cost,
            capacity: cost.saturating_mul(burst.unwrap_or(5)).min(MAX_CREDITS),
            gain: 1,
            refills: 0,
            expire: expiry(rate, burst.is_some()),
        };
    }
    let bytes = rate & !BYTES;
    let average = u64::from(u32::MAX) / ((bytes >> 4) + 1);
    Credits {
        cost: ((average * BYTE_SECOND) >> 32) * BYTE_SCALE,
        capacity: BYTE_SECOND * BYTE_SCALE,
        gain: BYTE_GAIN,
        // The program gives the kernel the burst as whole seconds of the rate.
        refills: burst.map_or(0, |burst| burst.div_ceil(bytes.max(1))),
        expire: expiry(rate, burst.is_some()),
    }
}
