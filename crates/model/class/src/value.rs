//! Parses values: prefixes, MAC addresses, marks, DSCPs, rates, times, shares.

use fairpath_units::quantity::{Unit, Wrong, parse};
use fairpath_units::text::is_unsafe;
use std::net::IpAddr;

use fairpath_core::Prefix;
use thiserror::Error;

/// Maximum length of a name, bytes.
pub const MAX_NAME_BYTES: usize = 255;
/// `IFNAMSIZ` of the kernel without the terminating zero.
const MAX_INTERFACE_BYTES: usize = 15;
/// 1 Pbit/s. A higher rate is a typing error.
const MAX_RATE_BPS: f64 = 1e15;
/// One hour, the maximum RTT of a service level.
const MAX_TIME_NS: f64 = 3.6e12;

/// An invalid value of a key.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("\"{value}\" {wrong}")]
pub struct BadValue {
    /// The text.
    pub value: String,
    /// The cause and the remedy.
    pub wrong: &'static str,
}

fn bad<T>(value: &str, wrong: &'static str) -> Result<T, BadValue> {
    const SHOWN: usize = 60;
    let value = match value.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}...", &value[..at]),
        None => value.to_owned(),
    };
    Err(BadValue { value, wrong })
}

/// The name of a class or a label.
pub(crate) fn name(text: &str) -> Result<String, BadValue> {
    if text.is_empty() {
        bad(text, "is not a name: write 1 to 255 bytes")
    } else if text.len() > MAX_NAME_BYTES {
        bad(text, "is too long: a name has at most 255 bytes")
    } else if text.contains(is_unsafe) {
        bad(
            text,
            "is not a name: remove control characters and those that reorder text",
        )
    } else if text.trim() != text {
        bad(text, "begins or ends with a space: remove it")
    } else {
        Ok(text.to_owned())
    }
}

/// A prefix, and whether bits after its length were cleared.
pub(crate) fn prefix(text: &str) -> Result<(Prefix, bool), BadValue> {
    const WRONG: &str = "is not a prefix: write 192.0.2.0/24, 2001:db8::/32 or an address";
    let (address, len) = match text.split_once('/') {
        Some((address, len)) => (address, Some(len)),
        None => (text, None),
    };
    let Ok(address) = address.parse::<IpAddr>() else {
        return bad(text, WRONG);
    };
    let longest = if address.is_ipv4() { 32 } else { 128 };
    let len = match len {
        None => longest,
        Some(len) if len.bytes().all(|b| b.is_ascii_digit()) => match len.parse() {
            Ok(len) if len <= longest => len,
            _ => {
                return bad(
                    text,
                    "is not a prefix: the maximum length is 32 (IPv6: 128)",
                );
            }
        },
        Some(_) => return bad(text, WRONG),
    };
    let prefix = Prefix::new(address, len);
    Ok((prefix, prefix.address != address))
}

/// A VLAN identifier.
pub(crate) fn vlan(text: &str) -> Result<u16, BadValue> {
    match text.parse() {
        Ok(vlan @ 1..=4094) => Ok(vlan),
        _ => bad(text, "is not a VLAN ID: write 1 to 4094"),
    }
}

/// The name of an interface.
pub(crate) fn interface(text: &str) -> Result<String, BadValue> {
    let wrong = text.is_empty()
        || text.len() > MAX_INTERFACE_BYTES
        || [".", ".."].contains(&text)
        || text.contains(|c: char| c == '/' || c == ':' || c.is_whitespace() || is_unsafe(c));
    if wrong {
        bad(
            text,
            "is not an interface name: write 1 to 15 bytes without spaces, / and :",
        )
    } else if text.contains(['*', '?', '[']) {
        bad(text, "is a pattern: write the name of one interface")
    } else {
        Ok(text.to_owned())
    }
}

/// The MAC address of one host.
pub(crate) fn mac(text: &str) -> Result<[u8; 6], BadValue> {
    let mut mac = [0; 6];
    let separator = if text.contains('-') { '-' } else { ':' };
    let mut parts = text.split(separator);
    for byte in &mut mac {
        let part = parts.next().unwrap_or_default();
        match u8::from_str_radix(part, 16) {
            Ok(value) if part.len() == 2 && !part.starts_with('+') => *byte = value,
            _ => return bad(text, "is not a MAC address: write 02:00:5e:10:00:01"),
        }
    }
    if parts.next().is_some() {
        bad(text, "is not a MAC address: write 02:00:5e:10:00:01")
    } else if mac[0] & 1 != 0 || mac == [0; 6] {
        bad(
            text,
            "is not the MAC address of a host: write a unicast address",
        )
    } else {
        Ok(mac)
    }
}

/// A packet mark.
pub(crate) fn mark(text: &str) -> Result<u32, BadValue> {
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let (digits, radix) = hexadecimal.map_or((text, 10), |digits| (digits, 16));
    match u32::from_str_radix(digits, radix) {
        Ok(0) => bad(text, "is the mark of unmarked packets: write 1 or more"),
        Ok(mark) if !digits.starts_with('+') => Ok(mark),
        _ => bad(
            text,
            "is not a mark: write 1 to 4294967295, or 0x1 to 0xffffffff",
        ),
    }
}

/// A differentiated services code point (RFC 2474, 2597, 3246, 5865, 8622).
pub(crate) fn dscp(text: &str) -> Result<u8, BadValue> {
    const WRONG: &str = "is not a DSCP: write 0 to 63, CS0 to CS7, AF11 to AF43, EF, VA, LE or DF";
    let upper = text.to_ascii_uppercase();
    let digit = |at: usize| upper.as_bytes().get(at).map_or(9, |b| b.wrapping_sub(b'0'));
    match upper.as_str() {
        "EF" => Ok(46),
        "VA" | "VOICE-ADMIT" => Ok(44),
        "LE" => Ok(1),
        "DF" | "BE" => Ok(0),
        name if name.len() == 3 && name.starts_with("CS") && digit(2) < 8 => Ok(digit(2) * 8),
        name if name.len() == 4 && name.starts_with("AF") => match (digit(2), digit(3)) {
            (class @ 1..=4, drop @ 1..=3) => Ok(class * 8 + drop * 2),
            _ => bad(text, WRONG),
        },
        number => match number.parse() {
            Ok(dscp @ 0..=63) => Ok(dscp),
            _ => bad(text, WRONG),
        },
    }
}

/// A rate, bits per second.
pub(crate) fn rate_bps(text: &str) -> Result<u64, BadValue> {
    match parse(text, Unit::Rate) {
        Ok(bps) => bits(text, bps),
        Err(Wrong::Number) => bad(text, "is not a rate: write 100kbit, 100mbit or 1.5gbit"),
        Err(Wrong::NoUnit) => bad(text, "has no unit: write 100kbit, 100mbit or 1.5gbit"),
        Err(Wrong::Ambiguous) => bad(
            text,
            "is ambiguous, bits or bytes: write 100kbit, 100mbit or 1.5gbit",
        ),
        Err(Wrong::OtherUnit) => bad(
            text,
            "has no unit of rate: write 100kbit, 100mbit or 1.5gbit",
        ),
    }
}

/// A rate in Mbit/s without unit, as in files of LibreQoS, converted to bits per second.
pub(crate) fn mbps(text: &str) -> Result<u64, BadValue> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => bits(text, number * 1e6),
        _ => bad(text, "is not a number of Mbit/s"),
    }
}

fn bits(text: &str, bps: f64) -> Result<u64, BadValue> {
    if (1.0..=MAX_RATE_BPS).contains(&bps.round()) {
        Ok(bps.round() as u64)
    } else {
        bad(text, "is out of range: write 1bit to 1000tbit")
    }
}

/// A time, nanoseconds.
pub(crate) fn time_ns(text: &str) -> Result<u64, BadValue> {
    match parse(text, Unit::Time) {
        Ok(ns) if (1.0..=MAX_TIME_NS).contains(&ns) => Ok(ns.round() as u64),
        Ok(_) => bad(text, "is out of range: write more than 0, at most 3600s"),
        Err(Wrong::Number) => bad(text, "is not a time: write 40ms, 800us or 1.5s"),
        Err(_) => bad(text, "has no unit of time: write 40ms, 800us or 1.5s"),
    }
}

/// A share above 0, at most 1. A bare `1` is refused, because it may mean 1 %.
pub(crate) fn share(text: &str) -> Result<f64, BadValue> {
    match parse(text, Unit::Share) {
        Ok(share) if share > 0.0 && (share < 1.0 || share == 1.0 && text.contains('%')) => {
            Ok(share)
        }
        _ => bad(text, "is not a share: write 1% or 0.01"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_in_every_documented_form() {
        for (text, bps) in [
            ("100mbit", 100_000_000),
            ("1.5gbit", 1_500_000_000),
            ("20M", 20_000_000),
            ("20 Mbit/s", 20_000_000),
            ("64kbit", 64_000),
            ("0.5m", 500_000),
            ("1t", 1_000_000_000_000),
            ("1200bit", 1200),
        ] {
            assert_eq!(rate_bps(text), Ok(bps), "{text}");
        }
        for text in [
            "", "20", "M", "-1M", "1e3M", "20x", "0M", "9999999T", "1.2.3M", "nanM", "20Mbps",
            "20MBps", "٣M",
        ] {
            assert!(rate_bps(text).is_err(), "{text}");
        }
        assert_eq!(mbps("2.5"), Ok(2_500_000));
        assert!(mbps("fast").is_err() && mbps("0").is_err() && mbps("inf").is_err());
    }

    #[test]
    fn prefixes_are_masked_and_bare_addresses_are_hosts() {
        let read = |text| prefix(text).map(|(prefix, cleared)| (prefix.to_string(), cleared));
        assert_eq!(read("192.0.2.7"), Ok(("192.0.2.7/32".into(), false)));
        assert_eq!(read("2001:db8::1"), Ok(("2001:db8::1/128".into(), false)));
        assert_eq!(read("192.0.2.7/24"), Ok(("192.0.2.0/24".into(), true)));
        assert_eq!(read("0.0.0.0/0"), Ok(("0.0.0.0/0".into(), false)));
        for text in [
            "",
            "/24",
            "192.0.2.0/33",
            "192.0.2.0/",
            "192.0.2.0/+8",
            "192.0.2",
            "::/129",
            "x",
        ] {
            assert!(prefix(text).is_err(), "{text}");
        }
    }

    #[test]
    fn dscps_are_those_of_the_rfcs() {
        for (text, value) in [
            ("EF", 46),
            ("af41", 34),
            ("AF13", 14),
            ("CS6", 48),
            ("LE", 1),
            ("63", 63),
        ] {
            assert_eq!(dscp(text), Ok(value), "{text}");
        }
        for text in ["64", "CS8", "AF50", "AF14", "AF1", "CS", "x", ""] {
            assert!(dscp(text).is_err(), "{text}");
        }
    }

    #[test]
    fn marks_macs_vlans_and_interfaces_have_bounds() {
        assert_eq!((mark("0x10"), mark("7")), (Ok(16), Ok(7)));
        assert!(
            ["0", "0x", "+1", "0x+1", "4294967296"]
                .into_iter()
                .all(|t| mark(t).is_err())
        );
        assert_eq!(mac("02:00:5e:10:00:fF"), Ok([2, 0, 0x5e, 0x10, 0, 0xff]));
        assert_eq!(mac("02-00-5e-10-00-01"), Ok([2, 0, 0x5e, 0x10, 0, 1]));
        for text in [
            "",
            "02:00",
            "01:00:5e:00:00:01",
            "00:00:00:00:00:00",
            "02:00:5e:10:00:01:02",
            "2:0:5e:10:0:1",
        ] {
            assert!(mac(text).is_err(), "{text}");
        }
        assert_eq!((vlan("1"), vlan("4094")), (Ok(1), Ok(4094)));
        assert!(
            ["0", "4095", "-1", ""]
                .into_iter()
                .all(|t| vlan(t).is_err())
        );
        assert_eq!(interface("eth0.100"), Ok("eth0.100".into()));
        assert!(
            ["", "a b", "ppp*", "a/b", "0123456789abcdef"]
                .into_iter()
                .all(|t| interface(t).is_err())
        );
    }

    #[test]
    fn thresholds_have_units() {
        assert_eq!(
            (time_ns("40ms"), time_ns("1.5s")),
            (Ok(40_000_000), Ok(1_500_000_000))
        );
        assert!(
            ["40", "0ms", "-1ms", "2h", "4000s"]
                .into_iter()
                .all(|t| time_ns(t).is_err())
        );
        assert_eq!((share("1%"), share("0.02")), (Ok(0.01), Ok(0.02)));
        assert!(
            ["1", "0", "101%", "0%", "x"]
                .into_iter()
                .all(|t| share(t).is_err())
        );
    }
}
