//! One line of JSON for each event, the same bytes as serde_json writes for [`SampleLine`] and
//! [`FlowLine`], but without intermediate strings, which take most of the time.
//!
//! [`SampleLine`]: crate::SampleLine
//! [`FlowLine`]: crate::FlowLine

use std::io::Write;
use std::net::{IpAddr, SocketAddr};

use fairpath_core::{FlowRecord, OwnQueue, Sample};
use fairpath_units::decimal;

use crate::record::{Clock, Context, SCHEMA, protocol, reason};
use crate::text::address_v4;

const DAY_NS: u64 = 86_400_000_000_000;
/// Days from 0000-03-01 to 1970-01-01, in the calendar that continues backwards.
const DAYS_TO_1970: u64 = 719_468;
/// Days of 400 years.
const ERA_DAYS: u64 = 146_097;
/// 9999-01-01: up to it a year has four digits.
const LAST_NS: i128 = 253_370_764_800_000_000_000;

/// Appends the line of a sample, with its newline. O(length).
pub fn sample(out: &mut Vec<u8>, sample: &Sample, context: &Context) {
    let src = sample.key.endpoint(1 - sample.measured);
    let dst = sample.key.endpoint(sample.measured);
    begin(out, "sample");
    text(out, "time", |out| time(out, &context.clock, sample.time));
    frame(out, sample.number);
    number(out, "flow", sample.flow);
    text(out, "protocol", |out| word(out, protocol(&sample.key)));
    endpoint(out, "src_", src);
    endpoint(out, "dst_", dst);
    number(out, "rtt_ns", sample.rtt);
    number(out, "min_rtt_ns", sample.min);
    text(out, "method", |out| word(out, sample.method.name()));
    interface(out, "interface", sample.ifindex, context);
    interface(out, "towards", sample.towards, context);
    key(out, "own_queue_included");
    word(
        out,
        match sample.own_queue {
            OwnQueue::Unknown => "null",
            OwnQueue::In => "true",
            OwnQueue::Out => "false",
        },
    );
    number(out, "seq", sample.seq);
    number(out, "ack", sample.ack);
    number(out, "acked_bytes", sample.acked_bytes);
    word(out, "}\n");
}

/// Appends the line of a flow event, with its newline: `opened`, `closed` or `alive`. O(length).
pub fn flow(out: &mut Vec<u8>, event: &str, flow: &FlowRecord, context: &Context) {
    begin(out, "flow");
    text(out, "event", |out| word(out, event));
    text(out, "time", |out| time(out, &context.clock, flow.time));
    frame(out, flow.number);
    number(out, "flow", flow.flow);
    text(out, "protocol", |out| word(out, protocol(&flow.key)));
    text(out, "reason", |out| word(out, reason(flow.reason)));
    endpoint(out, "by_", flow.key.endpoint(flow.side));
    text(out, "opened_time", |out| {
        time(out, &context.clock, flow.opened);
    });
    key(out, "sides");
    out.push(b'[');
    side(out, flow, 0, context);
    out.push(b',');
    side(out, flow, 1, context);
    word(out, "]}\n");
}

fn side(out: &mut Vec<u8>, flow: &FlowRecord, side: usize, context: &Context) {
    let at = flow.key.endpoint(side);
    let c = &flow.counts[side];
    word(out, "{\"address\":\"");
    address(out, at.ip());
    out.push(b'"');
    number(out, "port", at.port());
    interface(out, "towards", flow.towards[side], context);
    if flow.counts[1 - side].samples == 0 {
        key(out, "min_rtt_ns");
        word(out, "null");
    } else {
        number(out, "min_rtt_ns", flow.min[side]);
    }
    number(out, "packets", c.packets);
    number(out, "bytes", c.bytes);
    number(out, "data_packets", c.data_packets);
    number(out, "samples", c.samples);
    number(out, "sampled_bytes", c.sampled_bytes);
    number(out, "retransmitted_packets", c.retransmitted_packets);
    number(out, "retransmitted_bytes", c.retransmitted_bytes);
    number(out, "upstream_lost_packets", c.upstream_lost_packets);
    number(out, "upstream_lost_bytes", c.upstream_lost_bytes);
    number(out, "spurious_packets", c.spurious_packets);
    number(out, "reordered_packets", c.reordered_packets);
    number(out, "unobserved_bytes", c.unobserved_bytes);
    out.push(b'}');
}

fn begin(out: &mut Vec<u8>, kind: &str) {
    word(out, "{\"schema\":");
    decimal(out, SCHEMA.into(), 1);
    text(out, "type", |out| word(out, kind));
}

fn frame(out: &mut Vec<u8>, frame: u64) {
    if frame != 0 {
        number(out, "frame", frame);
    }
}

/// A text that needs no escapes.
fn word(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
}

/// A key that is not the first.
fn key(out: &mut Vec<u8>, key: &str) {
    word(out, ",\"");
    word(out, key);
    word(out, "\":");
}

fn number(out: &mut Vec<u8>, name: &str, number: impl Into<u64>) {
    key(out, name);
    decimal(out, number.into(), 1);
}

/// A string whose content needs no escapes.
fn text(out: &mut Vec<u8>, name: &str, content: impl FnOnce(&mut Vec<u8>)) {
    key(out, name);
    out.push(b'"');
    content(out);
    out.push(b'"');
}

fn endpoint(out: &mut Vec<u8>, role: &str, at: SocketAddr) {
    word(out, ",\"");
    word(out, role);
    word(out, "address\":\"");
    address(out, at.ip());
    word(out, "\",\"");
    word(out, role);
    word(out, "port\":");
    decimal(out, at.port().into(), 1);
}

fn address(out: &mut Vec<u8>, ip: IpAddr) {
    match ip {
        IpAddr::V4(v4) => address_v4(out, v4),
        IpAddr::V6(v6) => write!(out, "{v6}").expect("memory takes all"),
    }
}

/// The name of an interface, which may contain anything.
fn interface(out: &mut Vec<u8>, name: &str, ifindex: u32, context: &Context) {
    key(out, name);
    serde_json::to_writer(out, &context.interface(ifindex)).expect("memory takes all");
}

/// [`Clock::rfc3339`].
fn time(out: &mut Vec<u8>, clock: &Clock, time_ns: u64) {
    let unix = clock.unix_of_zero_ns + i128::from(time_ns);
    let Some(ns) = (0..LAST_NS)
        .contains(&unix)
        .then(|| u64::try_from(unix).ok())
        .flatten()
    else {
        word(out, &clock.rfc3339(time_ns));
        return;
    };
    let [year, month, day] = date(ns / DAY_NS);
    let ns = ns % DAY_NS;
    for (number, digits, end) in [
        (year, 4, b"-"),
        (month, 2, b"-"),
        (day, 2, b"T"),
        (ns / 3_600_000_000_000, 2, b":"),
        (ns / 60_000_000_000 % 60, 2, b":"),
        (ns / 1_000_000_000 % 60, 2, b"."),
        (ns % 1_000_000_000, 9, b"Z"),
    ] {
        decimal(out, number, digits);
        out.extend_from_slice(end);
    }
}

/// The date of a day since 1970: years begin in March, so that the leap day is the last (Hinnant,
/// chrono-compatible low-level date algorithms, 2013).
fn date(day: u64) -> [u64; 3] {
    let day = day + DAYS_TO_1970;
    let (era, day) = (day / ERA_DAYS, day % ERA_DAYS);
    let year = (day - day / 1_460 + day / 36_524 - day / (ERA_DAYS - 1)) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day_of_month = day - (153 * month + 2) / 5 + 1;
    let january = u64::from(month >= 10);
    let month = month + 3 - 12 * january;
    [400 * era + year + january, month, day_of_month]
}

#[cfg(test)]
mod tests {
    use fairpath_core::{Counts, FrameDirection, Key, Method, Reason};
    use fairpath_statistics::Random;
    use serde::Serialize;

    use super::*;
    use crate::record::{FlowLine, SampleLine};

    /// Small, or of any number of bits.
    fn any(random: &mut Random) -> u64 {
        let bits = random.below(64);
        random.draw() >> bits
    }

    fn any32(random: &mut Random) -> u32 {
        (random.draw() >> (32 + random.below(32))) as u32
    }

    fn pick<T: Copy>(random: &mut Random, of: &[T]) -> T {
        of[random.below(of.len() as u64) as usize]
    }

    fn key_of(random: &mut Random) -> Key {
        let v6 = random.below(2) == 1;
        let mut end = || -> SocketAddr {
            let ip: IpAddr = if v6 {
                let bits = (u128::from(any(random)) << 64) | u128::from(any(random));
                IpAddr::V6(bits.into())
            } else {
                IpAddr::V4(any32(random).into())
            };
            SocketAddr::new(ip, any32(random) as u16)
        };
        let ends = [end(), end()];
        let proto = match (random.below(3), v6) {
            (0, true) => 58,
            (0, false) => 1,
            _ => 6,
        };
        Key::new(proto, ends)
    }

    fn context(random: &mut Random) -> Context {
        let zeros = [
            0,
            1_735_689_600_000_000_000,
            -1,
            -1_000_000_000_000_000_000,
            LAST_NS - 1,
            LAST_NS,
            253_402_300_799_999_999_999,
            i128::from(i64::MAX) * 40,
        ];
        let names = [
            (1, "eth0"),
            (2, "a \"quoted\"\\ name\n\u{7f}\u{1}"),
            (3, "ümläut 漢字 \u{2028}"),
            (4, ""),
        ];
        Context {
            clock: Clock {
                unix_of_zero_ns: pick(random, &zeros),
            },
            names: names.map(|(i, name)| (i, name.to_owned())).into(),
        }
    }

    fn counts(random: &mut Random) -> Counts {
        Counts {
            packets: any(random),
            bytes: any(random),
            retransmitted_bytes: any(random),
            upstream_lost_bytes: any(random),
            sampled_bytes: any(random),
            retransmitted_packets: any32(random),
            upstream_lost_packets: any32(random),
            spurious_packets: any32(random),
            reordered_packets: any32(random),
            unobserved_bytes: any32(random),
            samples: pick(random, &[0, 1, u32::MAX]),
            data_packets: any32(random),
            zero: 0,
        }
    }

    fn by_serde(line: &impl Serialize) -> String {
        serde_json::to_string(line).unwrap() + "\n"
    }

    #[test]
    fn random_records_equal_those_of_serde() {
        let mut random = Random::new(16);
        for _ in 0..20_000 {
            let context = context(&mut random);
            let record = Sample {
                time: any(&mut random),
                number: pick(&mut random, &[0, 1, 99]),
                rtt: any(&mut random),
                min: any(&mut random),
                key: key_of(&mut random),
                flow: any32(&mut random),
                measured: random.below(2) as usize,
                method: pick(&mut random, Method::ALL),
                ifindex: random.below(7) as u32,
                towards: random.below(7) as u32,
                own_queue: pick(
                    &mut random,
                    &[OwnQueue::Unknown, OwnQueue::In, OwnQueue::Out],
                ),
                direction: FrameDirection::Unknown,
                seq: any32(&mut random),
                ack: any32(&mut random),
                acked_bytes: any32(&mut random),
            };
            let mut out = Vec::new();
            sample(&mut out, &record, &context);
            let expected = by_serde(&SampleLine::new(&record, &context));
            assert_eq!(String::from_utf8(out).unwrap(), expected);

            let record = FlowRecord {
                time: any(&mut random),
                number: pick(&mut random, &[0, 1, 99]),
                key: key_of(&mut random),
                flow: any32(&mut random),
                reason: pick(&mut random, &[Reason::Syn, Reason::FirstSeen, Reason::End]),
                side: random.below(2) as usize,
                opened: any(&mut random),
                counts: [counts(&mut random), counts(&mut random)],
                min: [any(&mut random), any(&mut random)],
                towards: [random.below(7) as u32, random.below(7) as u32],
            };
            let event = pick(&mut random, &["opened", "closed", "alive"]);
            let mut out = Vec::new();
            flow(&mut out, event, &record, &context);
            let expected = by_serde(&FlowLine::new(event, &record, &context));
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }

    #[test]
    fn every_day_has_its_date() {
        let clock = Clock::default();
        let last = u64::MAX / DAY_NS;
        for day in 0..=last {
            let mut out = Vec::new();
            time(&mut out, &clock, day * DAY_NS);
            assert_eq!(
                String::from_utf8(out).unwrap(),
                clock.rfc3339(day * DAY_NS),
                "day {day}"
            );
        }
    }
}
