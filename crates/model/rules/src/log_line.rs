//! Lines of LOG as nf_log_syslog of Linux 6.18 prints them.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::tree::Group;

/// A logged packet.
#[derive(Debug, Clone, Copy)]
pub struct Logged<'a> {
    /// Names of the interfaces; empty: none.
    pub input: &'a [u8],
    /// Of the output.
    pub output: &'a [u8],
    /// Link-layer addresses: source, destination.
    pub link: Option<[[u8; 6]; 2]>,
    /// True if they are of Ethernet, not of the loopback device.
    pub is_ethernet: bool,
    /// Its mark.
    pub mark: u32,
    /// The packet from its network header on, which may be cut.
    pub bytes: &'a [u8],
    /// Its length.
    pub length: u32,
}

/// Bytes that may end early, and how many the packet has from there.
#[derive(Clone, Copy)]
struct Bytes<'a>(&'a [u8], i64);

impl<'a> Bytes<'a> {
    fn byte(self, at: usize) -> Option<u8> {
        self.0.get(at).copied()
    }

    fn word(self, at: usize) -> Option<u16> {
        let bytes = self.0.get(at..at + 2)?;
        Some(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn long(self, at: usize) -> Option<u32> {
        Some(u32::from(self.word(at)?) << 16 | u32::from(self.word(at + 2)?))
    }

    fn from(self, at: usize) -> Bytes<'a> {
        let bytes = self.0.get(at..).unwrap_or_default();
        Bytes(bytes, self.1 - at as i64)
    }

    /// That a header is too short, as the kernel calculates it.
    fn incomplete(self) -> String {
        format!("INCOMPLETE [{} bytes] ", self.1 as u32)
    }

    fn array<const N: usize>(self, at: usize) -> Option<[u8; N]> {
        self.0.get(at..at + N)?.try_into().ok()
    }
}

/// The line of a LOG or NFLOG rule for a packet. `options`: those of the target.
pub fn log_line(options: Group, packet: &Logged) -> String {
    let prefix = options.text("--log-prefix");
    let prefix = prefix.or_else(|| options.text("--nflog-prefix"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut out = text(prefix.unwrap_or_default());
    let _ = write!(
        out,
        "IN={} OUT={} ",
        text(packet.input),
        text(packet.output)
    );
    let is_ipv4 = packet.bytes.first().is_some_and(|byte| byte >> 4 == 4);
    if !packet.input.is_empty() {
        link(&mut out, options, packet, is_ipv4);
    }
    let bytes = Bytes(packet.bytes, i64::from(packet.length));
    let whole = match is_ipv4 {
        true => ipv4(&mut out, options, bytes, true),
        false => ipv6(&mut out, options, bytes, true),
    };
    if packet.mark != 0 && whole.is_some() {
        let _ = write!(out, "MARK=0x{:x} ", packet.mark);
    }
    out
}

/// The syslog level of a LOG rule: 0 emergency to 7 debug. NFLOG has that of LOG's default.
pub fn log_level(options: Group) -> u8 {
    options
        .number("--log-level")
        .map_or(4, |(level, _)| level.min(7) as u8)
}

fn link(out: &mut String, options: Group, packet: &Logged, is_ipv4: bool) {
    let colons = |bytes: &[u8]| {
        let words: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        words.join(":")
    };
    let kind: [u8; 2] = match is_ipv4 {
        true => [8, 0],
        false => [0x86, 0xdd],
    };
    let decoded = options.has("--log-macdecode") && packet.is_ethernet;
    let _ = match packet.link {
        None => write!(out, "MAC= "),
        Some([from, to]) if decoded => {
            let (from, to) = (colons(&from), colons(&to));
            let kind = u16::from_be_bytes(kind);
            write!(out, "MACSRC={from} MACDST={to} MACPROTO={kind:04x} ")
        }
        Some([from, to]) => {
            write!(out, "MAC={} ", colons(&[&to[..], &from, &kind].concat()))
        }
    };
}

/// A packet; `outer`: not that in an ICMP error. `None`: the line ends here.
fn ipv4(out: &mut String, options: Group, packet: Bytes, outer: bool) -> Option<()> {
    if packet.0.len() < 20 {
        *out += "TRUNCATED";
        return None;
    }
    let [from, to] = [packet.array(12)?, packet.array(16)?].map(Ipv4Addr::from);
    let (tos, fragment) = (packet.byte(1)?, packet.word(6)?);
    let _ = write!(
        out,
        "SRC={from} DST={to} LEN={} TOS=0x{:02X} PREC=0x{:02X} TTL={} ID={} ",
        packet.word(2)?,
        tos & 0x1e,
        tos & 0xe0,
        packet.byte(8)?,
        packet.word(4)?
    );
    for (bit, name) in [(0x8000, "CE "), (0x4000, "DF "), (0x2000, "MF ")] {
        if fragment & bit != 0 {
            *out += name;
        }
    }
    if fragment & 0x1fff != 0 {
        let _ = write!(out, "FRAG:{} ", fragment & 0x1fff);
    }
    let header = 4 * usize::from(packet.byte(0)? & 15);
    if options.has("--log-ip-options") && header > 20 {
        let Some(bytes) = packet.0.get(20..header) else {
            *out += "TRUNCATED";
            return None;
        };
        hex(out, Some(bytes));
    }
    let rest = packet.from(header);
    let whole = fragment & 0x1fff == 0;
    match packet.byte(9)? {
        1 => {
            *out += "PROTO=ICMP ";
            if whole {
                icmp(out, options, rest, outer);
            }
        }
        51 if !whole => {}
        other => transport(out, options, rest, other, whole)?,
    }
    Some(())
}

fn icmp(out: &mut String, options: Group, bytes: Bytes, outer: bool) -> Option<()> {
    if bytes.0.len() < 8 {
        *out += &bytes.incomplete();
        return None;
    }
    let (kind, code) = (bytes.byte(0)?, bytes.byte(1)?);
    let _ = write!(out, "TYPE={kind} CODE={code} ");
    let needed = match kind {
        3 | 4 | 5 | 11 | 12 => 28,
        13 | 14 => 20,
        17 | 18 => 12,
        _ => 0,
    };
    if bytes.1 < needed {
        *out += &bytes.incomplete();
        return None;
    }
    match kind {
        0 | 8 => {
            let _ = write!(out, "ID={} SEQ={} ", bytes.word(4)?, bytes.word(6)?);
        }
        12 => {
            let _ = write!(out, "PARAMETER={} ", bytes.byte(4)?);
        }
        5 => {
            let gateway = Ipv4Addr::from(bytes.array(4)?);
            let _ = write!(out, "GATEWAY={gateway} ");
        }
        _ => {}
    }
    if matches!(kind, 3 | 4 | 5 | 11) && outer {
        *out += "[";
        ipv4(out, options, bytes.from(8), false);
        *out += "] ";
        if kind == 3 && code == 4 {
            let _ = write!(out, "MTU={} ", bytes.word(6)?);
        }
    }
    Some(())
}

fn ipv6(out: &mut String, options: Group, packet: Bytes, outer: bool) -> Option<()> {
    if packet.0.len() < 40 {
        *out += "TRUNCATED";
        return None;
    }
    let [from, to] = [packet.array::<16>(8)?, packet.array::<16>(24)?].map(|bytes| {
        let words = Ipv6Addr::from(bytes).segments();
        words.map(|word| format!("{word:04x}")).join(":")
    });
    let first = packet.long(0)?;
    let _ = write!(
        out,
        "SRC={from} DST={to} LEN={} TC={} HOPLIMIT={} FLOWLBL={} ",
        u32::from(packet.word(4)?) + 40,
        first >> 20 & 255,
        packet.byte(7)?,
        first & 0xf_ffff
    );
    let (mut next, mut at, mut whole) = (packet.byte(6)?, 40, true);
    let shown = options.has("--log-ip-options");
    // Headers before that of the protocol.
    while matches!(next, 0 | 43 | 44 | 50 | 51 | 60) {
        let header = packet.from(at);
        if header.0.len() < 2 {
            *out += "TRUNCATED";
            return None;
        }
        if shown {
            *out += "OPT ( ";
        }
        let bytes = match next {
            44 => {
                *out += "FRAG:";
                let (Some(offset), Some(id)) = (header.word(2), header.long(4)) else {
                    *out += "TRUNCATED ";
                    return None;
                };
                let _ = write!(out, "{} ", offset & 0xfff8);
                if offset & 1 != 0 {
                    *out += "INCOMPLETE ";
                }
                let _ = write!(out, "ID:{id:08x} ");
                whole &= offset & 0xfff8 == 0;
                8
            }
            50 | 51 => {
                if shown && !secured(out, next, header, whole) {
                    return None;
                }
                if next == 50 {
                    return None;
                }
                4 * (usize::from(header.byte(1)?) + 2)
            }
            _ if !whole => {
                *out += if shown { ")" } else { "" };
                return None;
            }
            _ => 8 * (usize::from(header.byte(1)?) + 1),
        };
        if shown {
            *out += ") ";
        }
        next = header.byte(0)?;
        at += bytes;
    }
    let rest = packet.from(at);
    match next {
        58 => {
            *out += "PROTO=ICMPv6 ";
            if whole {
                icmpv6(out, options, rest, outer)?;
            }
        }
        other => transport(out, options, rest, other, whole)?,
    }
    Some(())
}

/// A header of IPsec: ESP (50) or AH. False: nothing is printed behind it.
fn secured(out: &mut String, kind: u8, header: Bytes, whole: bool) -> bool {
    *out += if kind == 50 { "ESP " } else { "AH " };
    if !whole {
        *out += ")";
        return false;
    }
    let spi = match kind {
        50 => header.long(0).filter(|_| header.0.len() >= 8),
        _ => header.long(4).filter(|_| header.0.len() >= 12),
    };
    let _ = match spi {
        None => write!(out, "{})", header.incomplete()),
        Some(spi) if kind == 50 => write!(out, "SPI=0x{spi:x} )"),
        Some(spi) => write!(out, "SPI=0x{spi:x} "),
    };
    spi.is_some() && kind != 50
}

fn icmpv6(out: &mut String, options: Group, bytes: Bytes, outer: bool) -> Option<()> {
    if bytes.0.len() < 8 {
        *out += &bytes.incomplete();
        return None;
    }
    let (kind, code) = (bytes.byte(0)?, bytes.byte(1)?);
    let _ = write!(out, "TYPE={kind} CODE={code} ");
    match kind {
        128 | 129 => {
            let _ = write!(out, "ID={} SEQ={} ", bytes.word(4)?, bytes.word(6)?);
        }
        4 => {
            let _ = write!(out, "POINTER={:08x} ", bytes.long(4)?);
        }
        _ => {}
    }
    if matches!(kind, 1..=4) && outer {
        *out += "[";
        ipv6(out, options, bytes.from(8), false);
        *out += "] ";
        if kind == 2 {
            let _ = write!(out, "MTU={} ", bytes.long(4)?);
        }
    }
    Some(())
}

/// Protocols that both families have. `None`: the line ends here.
fn transport(
    out: &mut String,
    options: Group,
    bytes: Bytes,
    protocol: u8,
    whole: bool,
) -> Option<()> {
    let (name, header) = match protocol {
        6 => ("TCP".to_owned(), 20),
        17 => ("UDP".to_owned(), 8),
        136 => ("UDPLITE".to_owned(), 8),
        50 => ("ESP".to_owned(), 8),
        51 => ("AH".to_owned(), 12),
        other => (other.to_string(), 0),
    };
    let _ = write!(out, "PROTO={name} ");
    if !whole {
        return Some(());
    }
    if bytes.0.len() < header {
        // The packet has more than is known of it.
        if bytes.1 < header as i64 {
            *out += &bytes.incomplete();
        }
        return matches!(protocol, 50 | 51).then_some(());
    }
    let _ = match protocol {
        6 => return tcp(out, options, bytes),
        17 | 136 => {
            let [from, to, length] = [bytes.word(0)?, bytes.word(2)?, bytes.word(4)?];
            write!(out, "SPT={from} DPT={to} LEN={length} ")
        }
        50 => write!(out, "SPI=0x{:x} ", bytes.long(0)?),
        51 => write!(out, "SPI=0x{:x} ", bytes.long(4)?),
        _ => Ok(()),
    };
    Some(())
}

/// `None`: the line ends here.
fn tcp(out: &mut String, options: Group, bytes: Bytes) -> Option<()> {
    let _ = write!(out, "SPT={} DPT={} ", bytes.word(0)?, bytes.word(2)?);
    let (sequence, answer, words) = (bytes.long(4)?, bytes.long(8)?, bytes.word(12)?);
    if options.has("--log-tcp-sequence") {
        let _ = write!(out, "SEQ={sequence} ACK={answer} ");
    }
    let _ = write!(
        out,
        "WINDOW={} RES=0x{:02X} ",
        bytes.word(14)?,
        words >> 6 & 0x38
    );
    let names = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR", "AE"];
    for (bit, name) in names.iter().enumerate().rev() {
        if words >> bit & 1 != 0 {
            let _ = write!(out, "{name} ");
        }
    }
    let _ = write!(out, "URGP={} ", bytes.word(18)?);
    let header = 4 * usize::from(words >> 12);
    if options.has("--log-tcp-options") && header > 20 {
        let found = bytes.0.get(20..header);
        hex(out, found);
        found?;
    }
    Some(())
}

/// Options; `None`: they are cut.
fn hex(out: &mut String, bytes: Option<&[u8]>) {
    *out += "OPT (";
    match bytes {
        Some(bytes) => {
            for byte in bytes {
                let _ = write!(out, "{byte:02X}");
            }
        }
        None => *out += "TRUNCATED",
    }
    *out += ") ";
}
