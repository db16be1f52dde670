//! One line of text for each event, written without intermediate strings: most of the time of a
//! reader of captures is otherwise the formatting of numbers.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};

use fairpath_core::{FlowRecord, Key, Reason, Sample};
use fairpath_units::text::line;
use fairpath_units::{Nanos, decimal};

use crate::record::{Clock, Context, reason};

const DAY_US: u64 = 86_400_000_000;
/// Unix time up to which an RFC 3339 time has a year of four digits, microseconds.
const LAST_US: u64 = 253_402_207_200_000_000;

/// Appends the line of a sample, with its newline. O(length).
pub fn sample(out: &mut Vec<u8>, sample: &Sample, context: &Context) {
    time_of_day(out, &context.clock, sample.time);
    out.push(b' ');
    right(out, sample.rtt);
    out.extend_from_slice(b"  min ");
    right(out, sample.min);
    out.extend_from_slice(b"  ");
    left(out, sample.method.name(), 9);
    out.push(b' ');
    endpoint(out, &sample.key, 1 - sample.measured);
    out.extend_from_slice(b" -> ");
    endpoint(out, &sample.key, sample.measured);
    if let Some(name) = context.interface(sample.towards) {
        out.extend_from_slice(b" towards ");
        out.extend_from_slice(line(&name).as_bytes());
    }
    out.push(b'\n');
}

/// Appends the line of a flow event, with its newline. O(length).
pub fn flow(out: &mut Vec<u8>, event: &str, flow: &FlowRecord, context: &Context) {
    time_of_day(out, &context.clock, flow.time);
    out.push(b' ');
    left(out, event, 7);
    out.push(b' ');
    endpoint(out, &flow.key, 0);
    out.extend_from_slice(b" <-> ");
    endpoint(out, &flow.key, 1);
    out.extend_from_slice(b" (");
    out.extend_from_slice(reason(flow.reason).as_bytes());
    let without_packet = [
        Reason::FirstSeen,
        Reason::Timeout,
        Reason::Evicted,
        Reason::End,
    ];
    if !without_packet.contains(&flow.reason) {
        out.extend_from_slice(b" by ");
        endpoint(out, &flow.key, flow.side);
    }
    out.extend_from_slice(b")\n");
}

/// Time of day with microseconds, in UTC: `15:04:05.123456`.
fn time_of_day(out: &mut Vec<u8>, clock: &Clock, time_ns: u64) {
    let unix_us = (clock.unix_of_zero_ns + i128::from(time_ns)).div_euclid(1_000);
    let Some(us) = u64::try_from(unix_us).ok().filter(|us| *us < LAST_US) else {
        let text = clock.rfc3339(time_ns);
        out.extend_from_slice(text.get(11..26).unwrap_or(&text).as_bytes());
        return;
    };
    let us = us % DAY_US;
    for (number, digits, end) in [
        (us / 3_600_000_000, 2, b":" as &[u8]),
        (us / 60_000_000 % 60, 2, b":"),
        (us / 1_000_000 % 60, 2, b"."),
        (us % 1_000_000, 6, b""),
    ] {
        decimal(out, number, digits);
        out.extend_from_slice(end);
    }
}

/// `ADDRESS:PORT`, or the address alone for ICMP.
fn endpoint(out: &mut Vec<u8>, key: &Key, side: usize) {
    let has_port = key.proto == 6;
    match key.endpoint(side) {
        SocketAddr::V4(at) => {
            address_v4(out, *at.ip());
            if has_port {
                out.push(b':');
                decimal(out, at.port().into(), 1);
            }
        }
        SocketAddr::V6(at) if has_port => write!(out, "{at}").expect("memory takes all"),
        SocketAddr::V6(at) => write!(out, "{}", at.ip()).expect("memory takes all"),
    }
}

pub(crate) fn address_v4(out: &mut Vec<u8>, ip: Ipv4Addr) {
    let [a, b, c, d] = ip.octets();
    decimal(out, a.into(), 1);
    for octet in [b, c, d] {
        out.push(b'.');
        decimal(out, octet.into(), 1);
    }
}

/// A time, right-aligned to 11 characters.
fn right(out: &mut Vec<u8>, ns: u64) {
    const WIDTH: usize = 11;
    let begin = out.len();
    out.extend_from_slice(&[b' '; WIDTH]);
    Nanos(ns).append(out);
    let length = out.len() - begin - WIDTH;
    out.drain(begin..begin + length.min(WIDTH));
}

/// A text, left-aligned.
fn left(out: &mut Vec<u8>, text: &str, width: usize) {
    out.extend_from_slice(text.as_bytes());
    out.resize(out.len() + width.saturating_sub(text.len()), b' ');
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the parts of the standard library.
    fn expected(clock: &Clock, time_ns: u64) -> String {
        let text = clock.rfc3339(time_ns);
        text.get(11..26).unwrap_or(&text).to_owned()
    }

    #[test]
    fn times_of_day_equal_those_of_rfc_3339() {
        let zeros = [0, 1, -1, 1_735_689_600_000_000_000, -86_400_000_000_001];
        let latest = i128::from(LAST_US) * 1_000 - i128::from(u64::MAX);
        for zero in zeros
            .into_iter()
            .chain([latest, latest + 1, i128::from(i64::MAX) * 40])
        {
            let clock = Clock {
                unix_of_zero_ns: zero,
            };
            for time in [0, 999, 1_000, 59_999_999_999, 86_399_999_999_999, u64::MAX] {
                let mut text = Vec::new();
                time_of_day(&mut text, &clock, time);
                let text = String::from_utf8(text).unwrap();
                assert_eq!(text, expected(&clock, time), "{zero} and {time}");
            }
        }
    }

    #[test]
    fn spans_are_aligned_and_never_cut() {
        for (ns, text) in [
            (7, "       7 ns"),
            (20_130_000, "  20.130 ms"),
            (u64::MAX, "18446744073.709 s"),
        ] {
            let mut out = b"x".to_vec();
            right(&mut out, ns);
            assert_eq!(String::from_utf8(out).unwrap(), format!("x{text}"));
        }
    }
}
