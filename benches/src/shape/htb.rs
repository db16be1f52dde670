//! The peer: HTB with one class for each subscriber, made with `tc` as one would by hand.
//!
//! ```text
//! 1: ── 1:1 the line ──┬─ 1:fffe what is no subscriber's
//!                      └─ 1:10, 1:11, ... the subscribers
//! u32: /16 ── hashed by the third octet ── hashed by the fourth ── one filter in each bucket
//! ```
//!
//! `u32` in two hashes is the fastest classifier of this kernel's that needs no program: two looks,
//! whatever the number of classes. Bursts and quanta are those that Fairpath gives HTB
//! (`fairpath_shape::htb`), so that both are tuned alike. Leaves are HTB's own, a FIFO of the
//! interface's `txqueuelen`. IPv4 only.

use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use anyhow::Context;
use fairpath_shape::htb::{base_quantum_bytes, burst_bytes};
use fairpath_testbed::Netns;

use super::scene::subscriber;

/// An Ethernet frame without FCS, of an MTU of 1500.
const FRAME_BYTES: u32 = 1514;
/// The first subscriber's minor.
const FIRST_MINOR: u32 = 0x10;
/// Table of the third octets.
const THIRD: u32 = 1;
/// The first table of fourth octets; the kernel's own is 0x800.
const FOURTH: u32 = 0x10;
/// 10,000 classes and their filters take about five seconds.
const DEADLINE: Duration = Duration::from_secs(120);

/// Which address a packet's class follows from.
#[derive(Clone, Copy)]
enum End {
    /// The receiver's: what leaves by `lan`.
    Dst,
    /// The sender's: what leaves by `wan`.
    Src,
}

const SIDES: [(&str, End); 2] = [("lan", End::Dst), ("wan", End::Src)];

/// Makes the line and all classes on both interfaces; `most_bps` is the fastest that the line will be.
///
/// # Errors
/// `tc` is missing or says no.
pub fn start(
    router: &Netns,
    classes: u32,
    floor_bps: u64,
    line_bps: u64,
    most_bps: u64,
) -> anyhow::Result<()> {
    let mut script = String::new();
    for (device, end) in SIDES {
        let _ = writeln!(
            script,
            "qdisc add dev {device} root handle 1: htb default fffe"
        );
        script += &line("add", device, line_bps);
        let leaf = |minor: u32| {
            let rates = rates(floor_bps, most_bps);
            let quantum = base_quantum_bytes(line_bps, 1, 1, FRAME_BYTES);
            format!(
                "class add dev {device} parent 1:1 classid 1:{minor:x} htb {rates} quantum {quantum}\n"
            )
        };
        script += &leaf(0xfffe);
        script.extend((0..classes).map(|class| leaf(FIRST_MINOR + class)));
        script += &filters(device, end, classes);
    }
    batch(router, &script)
}

/// Changes the link rate on both interfaces.
///
/// # Errors
/// `tc` says no.
pub fn set_line(router: &Netns, line_bps: u64) -> anyhow::Result<()> {
    let both = SIDES.map(|(device, _)| line("change", device, line_bps));
    batch(router, &both.concat())
}

fn line(verb: &str, device: &str, bps: u64) -> String {
    let rates = rates(bps, bps);
    format!("class {verb} dev {device} parent 1: classid 1:1 htb {rates}\n")
}

fn rates(rate_bps: u64, ceil_bps: u64) -> String {
    let [burst, cburst] = [rate_bps, ceil_bps].map(|bps| burst_bytes(bps, FRAME_BYTES));
    format!("rate {rate_bps}bit ceil {ceil_bps}bit burst {burst}b cburst {cburst}b")
}

fn filters(device: &str, end: End, classes: u32) -> String {
    let (word, at) = match end {
        End::Dst => ("dst", 16),
        End::Src => ("src", 12),
    };
    let add = format!("filter add dev {device} parent 1: protocol ip prio 1");
    let net = subscriber(0);
    let mut script = format!(
        "{add} handle {THIRD:x}: u32 divisor 256\n\
         {add} u32 ht 800:: match ip {word} {net}/16 hashkey mask 0xff00 at {at} link {THIRD:x}:\n"
    );
    for class in 0..classes {
        let (third, fourth) = (class >> 8, class & 0xff);
        let table = FOURTH + third;
        let address = subscriber(class);
        if fourth == 0 {
            let _ = write!(
                script,
                "{add} handle {table:x}: u32 divisor 256\n\
                 {add} u32 ht {THIRD:x}:{third:x}: match ip {word} {address}/24 hashkey mask 0xff at {at} link {table:x}:\n"
            );
        }
        let minor = FIRST_MINOR + class;
        let _ = writeln!(
            script,
            "{add} u32 ht {table:x}:{fourth:x}: match ip {word} {address}/32 flowid 1:{minor:x}"
        );
    }
    script
}

fn batch(router: &Netns, script: &str) -> anyhow::Result<()> {
    let place = tempfile::tempdir().context("make a directory for tc's commands")?;
    let file = place.path().join("batch");
    fs::write(&file, script).context("write tc's commands")?;
    let mut command = router.command_without_sysfs("tc");
    command.arg("-batch").arg(&file);
    router.spawn(command)?.finish(DEADLINE)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_one_filter_in_its_bucket() {
        let script = filters("lan", End::Dst, 600);
        let buckets: std::collections::BTreeSet<&str> = script
            .lines()
            .filter(|line| line.contains("/32"))
            .filter_map(|line| line.split_once(" ht ")?.1.split(' ').next())
            .collect();
        assert_eq!(buckets.len(), 600);
        assert!(script.contains("ht 12:57: match ip dst 100.64.2.87/32 flowid 1:267\n"));
        assert!(filters("wan", End::Src, 2).contains("match ip src 100.64.0.1/32 flowid 1:11\n"));
    }
}
