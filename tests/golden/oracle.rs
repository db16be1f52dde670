//! The results of tshark for a capture.

use std::path::Path;
use std::process::Command;

use crate::Samples;
use crate::karn::Packet;

/// The measurements of tshark.
pub struct Measured {
    /// `tcp.analysis.ack_rtt`.
    pub tcp: Samples,
    /// `icmp.resptime` and `icmpv6.resptime`.
    pub icmp: Samples,
}

/// tshark's name and version.
pub fn version() -> String {
    let output = Command::new("tshark").arg("--version").output();
    let text = output.expect("tshark is there").stdout;
    let text = String::from_utf8_lossy(&text);
    text.lines().next().unwrap_or_default().to_owned()
}

/// One row a frame that `filter` lets through, a column a field.
fn fields(capture: &Path, filter: &str, names: &[&str]) -> Vec<Vec<String>> {
    let mut command = Command::new("tshark");
    command
        .args(["-n", "-T", "fields", "-Y", filter, "-r"])
        .arg(capture);
    for name in names {
        command.args(["-e", name]);
    }
    let output = command.output().expect("tshark is there");
    assert!(output.status.success(), "{capture:?}: {output:?}");
    let text = String::from_utf8(output.stdout).expect("numbers are ASCII");
    let split = |line: &str| line.split('\t').map(str::to_owned).collect();
    text.lines().map(split).collect()
}

/// Seconds with nine decimals as nanoseconds; none where tshark printed nothing.
///
/// Time that went backwards is negative: tshark shows it, a monitor refuses it.
fn nanos(seconds: &str) -> Option<u64> {
    if seconds.is_empty() || seconds.starts_with('-') {
        return None;
    }
    let (whole, part) = seconds.split_once('.').expect("seconds have decimals");
    assert_eq!(part.len(), 9, "{seconds}");
    let number = |digits: &str| digits.parse::<u64>().expect("digits");
    Some(number(whole) * 1_000_000_000 + number(part))
}

/// Milliseconds, a double that tshark prints with 15 digits: whole nanoseconds up to eleven days.
fn nanos_of_ms(milliseconds: &str) -> Option<u64> {
    let ms: f64 = milliseconds.parse().ok()?;
    Some((ms * 1e6).round() as u64)
}

/// The round-trip times.
pub fn samples(capture: &Path) -> Measured {
    let names = [
        "frame.number",
        "tcp.analysis.ack_rtt",
        "icmp.resptime",
        "icmpv6.resptime",
    ];
    let filter = "tcp.analysis.ack_rtt or icmp.resptime or icmpv6.resptime";
    let mut measured = Measured {
        tcp: Samples::new(),
        icmp: Samples::new(),
    };
    for row in fields(capture, filter, &names) {
        let frame = row[0].parse().expect("a frame has a number");
        measured.tcp.extend(nanos(&row[1]).map(|rtt| (frame, rtt)));
        let echoes = row[2..].iter().filter_map(|ms| nanos_of_ms(ms));
        measured.icmp.extend(echoes.map(|rtt| (frame, rtt)));
    }
    measured
}

/// The TCP segments; of cooked captures of a router only what comes in, for all else is a repeat.
pub fn packets(capture: &Path) -> Vec<Packet> {
    let filter = "tcp.len and !icmp and !icmpv6 and (!sll or sll.pkttype == 0)";
    let names = [
        "frame.number",
        "frame.time_epoch",
        "tcp.stream",
        "tcp.srcport",
        "tcp.seq_raw",
        "tcp.ack_raw",
        "tcp.len",
        "tcp.flags",
        "tcp.options.timestamp.tsval",
        "tcp.options.timestamp.tsecr",
    ];
    let rows = fields(capture, filter, &names);
    rows.iter().map(|row| packet(row)).collect()
}

fn packet(row: &[String]) -> Packet {
    let number = |at: usize| row[at].parse().expect("a number");
    let flags = u32::from_str_radix(row[7].trim_start_matches("0x"), 16).expect("hexadecimal");
    Packet {
        frame: row[0].parse().expect("a frame has a number"),
        time: nanos(&row[1]).expect("a frame has a time"),
        stream: number(2),
        port: number(3),
        seq: number(4),
        ack: (flags & 0x10 != 0).then(|| number(5)),
        numbers: number(6) + (flags & 1) + (flags >> 1 & 1),
        tsval: row[8].parse().ok(),
        tsecr: row[9].parse().ok(),
    }
}
