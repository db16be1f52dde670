//! Measurement of a capture in the native runtime.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context, bail};
use fairpath_class::CaptureGap;
use fairpath_cli::note;
use fairpath_core::{Event, Frame, FrameDirection, Link, Monitor};
use fairpath_wire::capture::{Direction, Interface, LinkType, Packet, ReadError, Reader};

use super::args::{Args, Match};
use super::by::{self, ByTable, Named};
use super::output::Output;
use super::progress::Progress;
use super::report::Run;

/// The packet type of outgoing packets in Linux cooked captures.
const SLL_OUTGOING: u16 = 4;
/// Maximum number of times that interfaces of a capture change the rules of `--by class`.
const MAX_TIMES_CLASSIFIED: usize = 1024;

/// The stream of a capture, and its length if it is a file.
fn open(path: &Path) -> anyhow::Result<(Box<dyn Read>, Option<u64>)> {
    if path == Path::new("-") {
        return Ok((Box::new(io::stdin().lock()), None));
    }
    let file = File::open(path).with_context(|| format!("open capture {path:?}"))?;
    let about = file.metadata().ok().filter(Metadata::is_file);
    Ok((Box::new(file), about.map(|about| about.len())))
}

/// Reads a capture to its end.
///
/// # Errors
/// The file cannot be opened, is not a capture, or output fails. A truncated or corrupted capture is
/// measured up to its end or the corruption; the summary and the exit status report it.
pub fn run(args: &Args, path: &Path) -> anyhow::Result<()> {
    let (stream, total) = open(path)?;
    let records = !args.quiet && args.by.is_none() && args.write.is_none();
    let (stream, mut progress) = Progress::of(stream, total, args.progress, records);
    let mut reader = Reader::new(stream).with_context(|| format!("read capture {path:?}"))?;
    let filters = args.filters()?;
    let table = ByTable::new(args)?;
    let config = match &table {
        None => args.config()?,
        Some(table) => table.configured(args.config()?, args.count.is_some()),
    };
    let mut monitor = Monitor::new(&config);
    monitor.set_filters(&filters);
    let mut output = Output::new(args, table)?;
    let mut names = Names::default();
    names.classify(&mut monitor, &output)?;
    let mut capture = Capture {
        first: None,
        last: 0,
        unsupported: 0,
        without_direction: 0,
        interface: None,
        has_several_interfaces: false,
        tshark: args.pairing == Match::Tshark,
    };
    let packets_per_reading = ByTable::packets_per_reading(&config);
    let mut until_reading = packets_per_reading;
    let mut stopped = None;
    let mut failed = Ok(());
    while !output.done() && failed.is_ok() {
        match reader.next() {
            Ok(Some(packet)) => {
                failed = capture.packet(&packet, &mut monitor, &mut output);
            }
            Ok(None) => break,
            Err(error) => {
                stopped = Some(error);
                break;
            }
        }
        if names.read < reader.interfaces().len() && names.add(reader.interfaces(), &mut output) {
            names.classify(&mut monitor, &output)?;
        }
        until_reading -= 1;
        if until_reading == 0 {
            until_reading = packets_per_reading;
            read_classes(&mut monitor, &mut output);
        }
        progress.packet(reader.packets());
    }
    drop(progress);
    failed?;
    let mut open: Vec<Event> = Vec::new();
    monitor.finish(|event| open.push(event));
    for event in &open {
        output.event(event)?;
    }
    read_classes(&mut monitor, &mut output);
    close(args, path, &monitor, output, &capture, stopped)
}

/// The interfaces that the capture described so far. Each is read once, since a capture may describe tens
/// of thousands of them between its packets.
#[derive(Default)]
struct Names {
    read: usize,
    /// The first interface of each name.
    index_of: HashMap<String, u32>,
    /// The interfaces that rules of `--by class` need.
    of_rules: Vec<(u32, String)>,
    times_classified: usize,
}

impl Names {
    /// Adds those that are new. True if the rules need one of them. O(new interfaces).
    fn add(&mut self, described: &[Interface], output: &mut Output) -> bool {
        let known = self.of_rules.len();
        let new = described.iter().enumerate().skip(self.read);
        for (at, interface) in new {
            self.read += 1;
            let index = at as u32 + 1;
            let name = interface.name.clone().unwrap_or_else(|| format!("#{at}"));
            if output
                .table
                .as_ref()
                .is_some_and(|table| table.names(&name))
            {
                self.of_rules.push((index, name.clone()));
            }
            self.index_of.entry(name.clone()).or_insert(index);
            output.context.names.insert(index, name);
        }
        self.of_rules.len() > known
    }

    /// Activates the rules of `--by class`. O(rules).
    fn classify(&mut self, monitor: &mut Monitor, output: &Output) -> anyhow::Result<()> {
        let named = Named {
            index_of: &|name| self.index_of.get(name).copied(),
            interfaces: self
                .of_rules
                .iter()
                .map(|(i, name)| (*i, name.as_str()))
                .collect(),
        };
        let Some(rules) = output.table.as_ref().and_then(|table| table.rules(&named)) else {
            return Ok(());
        };
        self.times_classified += 1;
        if self.times_classified > MAX_TIMES_CLASSIFIED {
            bail!(
                "measure the capture by class: it adds interfaces of classes or uplinks more than \
                 {MAX_TIMES_CLASSIFIED} times between its packets: name fewer interfaces in the classes"
            );
        }
        monitor
            .set_rules(&rules, &[])
            .map_err(|error| by::refused(&error))
    }
}

fn read_classes(monitor: &mut Monitor, output: &mut Output) {
    if let Some(table) = &mut output.table {
        table.read_classes(|reading| monitor.read_classes(reading));
    }
}

/// Totals of a capture.
struct Capture {
    first: Option<u64>,
    last: u64,
    unsupported: u64,
    /// Packets of unknown direction.
    without_direction: u64,
    interface: Option<u32>,
    has_several_interfaces: bool,
    tshark: bool,
}

impl Capture {
    fn packet(
        &mut self,
        packet: &Packet<'_>,
        monitor: &mut Monitor,
        output: &mut Output,
    ) -> anyhow::Result<()> {
        let Some(frame) = frame_of(packet) else {
            self.unsupported += 1;
            return Ok(());
        };
        self.without_direction += u64::from(frame.direction == FrameDirection::Unknown as u8);
        let interface = *self.interface.get_or_insert(frame.ifindex);
        self.has_several_interfaces |= interface != frame.ifindex;
        // A capture of two interfaces may not begin with its earliest packet.
        self.first = Some(self.first.map_or(packet.time_ns, |f| f.min(packet.time_ns)));
        self.last = self.last.max(packet.time_ns);
        let mut failed = Ok(());
        monitor.frame(&frame, packet.data, |event| {
            if failed.is_ok() {
                failed = output.event(&event);
            }
        });
        failed
    }

    /// Criteria of classes that a capture cannot match as live traffic does.
    fn remarks(&self, table: &ByTable) -> Vec<String> {
        let mut remarks = Vec::new();
        let lacks = |gap| table.uses(|criterion| criterion.in_captures() == Some(gap));
        if lacks(CaptureGap::Absent) {
            remarks.push("classes by mark match no packet: captures have no marks".to_owned());
        }
        if self.without_direction > 0 && lacks(CaptureGap::NeedsDirection) {
            remarks.push(format!(
                "classes by DSCP do not match {} packets, which have no direction in the capture",
                self.without_direction
            ));
        }
        if self.has_several_interfaces && lacks(CaptureGap::OfOneLink) {
            remarks.push(
                "classes by MAC address, VLAN or interface may lack samples of the leg outside: \
                 the capture has several interfaces"
                    .to_owned(),
            );
        }
        remarks
    }
}

fn link_of(packet: &Packet<'_>) -> Option<Link> {
    // The most frequent one first.
    if packet.link == LinkType::ETHERNET {
        return Some(Link::Ethernet);
    }
    Some(match packet.link.canonical() {
        LinkType::RAW | LinkType::IPV4 | LinkType::IPV6 => Link::Raw,
        LinkType::LINUX_SLL => Link::Sll,
        LinkType::LINUX_SLL2 => Link::Sll2,
        LinkType::NULL | LinkType::LOOP => Link::Null,
        LinkType::PPP => Link::Ppp,
        _ => return None,
    })
}

/// The frame of a captured packet for the core; `None` for an unsupported link type.
fn frame_of(packet: &Packet<'_>) -> Option<Frame> {
    let link = link_of(packet)?;
    let mut direction = match packet.direction {
        Some(Direction::Inbound) => FrameDirection::In,
        Some(Direction::Outbound) => FrameDirection::Out,
        None => FrameDirection::Unknown,
    };
    let mut ifindex = packet.interface + 1;
    let word = |at: usize| {
        packet
            .data
            .get(at..at + 2)
            .map(|b| u16::from_be_bytes([b[0], b[1]]))
    };
    match link {
        Link::Sll => direction = sll_direction(word(0)?),
        Link::Sll2 => {
            direction = sll_direction(u16::from(*packet.data.get(10)?));
            ifindex = u32::from(word(4)?) << 16 | u32::from(word(6)?);
        }
        _ => {}
    }
    Some(Frame {
        now: packet.time_ns,
        number: packet.number,
        wire_len: packet.wire_len,
        ifindex,
        link: link as u16,
        direction: direction as u8,
        // Packet sockets capture after the egress queue.
        flags: if direction == FrameDirection::Out {
            Frame::AFTER_QUEUE
        } else {
            0
        },
        ..Frame::default()
    })
}

fn sll_direction(packet_type: u16) -> FrameDirection {
    if packet_type == SLL_OUTGOING {
        FrameDirection::Out
    } else {
        FrameDirection::In
    }
}

fn close(
    args: &Args,
    path: &Path,
    monitor: &Monitor,
    output: Output,
    capture: &Capture,
    stopped: Option<ReadError>,
) -> anyhow::Result<()> {
    let mut notes = Vec::new();
    if capture.unsupported > 0 {
        notes.push(format!(
            "{} packets of unsupported link types",
            capture.unsupported
        ));
    }
    if capture.tshark {
        notes.push("packets are paired as tshark does, without Karn's rule".to_owned());
    }
    match (&output.table, &stopped) {
        (Some(table), _) => notes.extend(capture.remarks(table)),
        (None, Some(error)) => notes.push(format!("{path:?} ends early: {error}")),
        (None, None) => {}
    }
    let stats = monitor.stats();
    let run = Run {
        duration_ns: capture
            .last
            .saturating_sub(capture.first.unwrap_or(capture.last)),
        config: *monitor.config(),
        usage: monitor.usage(),
        table_bytes: monitor.bytes() as u64,
        cost: None,
        notes,
    };
    output.finish(&run, &stats)?;
    match stopped {
        None => Ok(()),
        // A capture that is still being written ends in the middle of a packet.
        Some(ReadError::Truncated { .. }) if !args.quiet || stats.frames > 0 => {
            note(format!(
                "{path:?} ends in the middle of a packet; all complete packets are measured"
            ));
            Ok(())
        }
        Some(error) => bail!("read capture {path:?}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct RttLine {
        #[command(flatten)]
        args: Args,
    }

    /// The number of interfaces that were read, if `count` are described `step` at a time.
    fn work(count: usize, step: usize) -> usize {
        let line = RttLine::parse_from(["rtt", "-r", "a.pcapng"]);
        let mut output = Output::new(&line.args, None).unwrap();
        let interface = |at: usize| Interface {
            name: (!at.is_multiple_of(3)).then(|| format!("port{}", at % 1000)),
            link: LinkType::ETHERNET,
        };
        let all: Vec<Interface> = (0..count).map(interface).collect();
        let mut names = Names::default();
        for described in (0..=count).step_by(step) {
            names.add(&all[..described], &mut output);
        }
        assert_eq!(output.context.names.len(), count);
        assert_eq!(output.context.names[&1], "#0");
        assert_eq!(names.index_of["port1"], 2, "the first of this name");
        names.read
    }

    #[test]
    fn naming_interfaces_is_linear_in_their_number() {
        for step in [1, 4, 64] {
            let mut before = work(1024, step);
            for count in [2048, 4096, 8192, 16_384, 32_768, 65_536] {
                let doubled = work(count, step);
                assert!(
                    doubled <= 2 * before,
                    "{count} by {step}: {before}, {doubled}"
                );
                before = doubled;
            }
        }
    }
}
