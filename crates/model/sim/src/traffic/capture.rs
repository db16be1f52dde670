//! The packets of a capture at their times, the first one at 0.
//!
//! A flow has the same addresses, protocol and ports. Packets other than IP are excluded and counted.
//! Decreasing times are replaced by the previous time and counted. Lengths are those on the link.

use std::collections::HashMap;
use std::io::Read;
use std::net::IpAddr;

use fairpath_class::ClassSet;
use fairpath_core::sched::{Classifier, End, Meta};
use fairpath_core::{Frame, FrameDirection, Link, TooManyRules};
use fairpath_wire::capture::{LinkType, Reader};

use super::{Arrival, Arrivals, Finished, MAX_ROWS, TrafficError, TrafficRow};

/// Reads addresses, ports, DSCP and class of captured packets with the parser and rules of the core.
#[derive(Debug)]
pub struct HeaderParser {
    classifier: Classifier,
}

/// Ethertype of PPPoE sessions.
const PPPOE_SESSION: [u8; 2] = [0x88, 0x64];
/// Bytes of a packet that are parsed.
const HEAD_BYTES: usize = 192;

impl HeaderParser {
    /// A parser with these classes. Without classes every packet is in class 0.
    ///
    /// # Errors
    /// The number of criteria exceeds the capacity of the core.
    pub fn new(set: Option<&ClassSet>) -> Result<HeaderParser, TooManyRules> {
        let mut classifier = Classifier::new(set.map_or(0, |set| set.len() as u32));
        if let Some(set) = set {
            // The interfaces of a capture are unknown on this machine.
            classifier.set_rules(&set.numbered_rules(|_| None, &[]))?;
        }
        Ok(HeaderParser { classifier })
    }

    /// The description of a packet, in the class of its receiver or else of its sender, and whose class it is.
    /// `None` for packets other than IP and for unknown link types. Fields beyond the captured length are 0.
    fn look(&mut self, link: LinkType, data: &[u8]) -> Option<(Meta, End)> {
        let link = match link.canonical() {
            LinkType::ETHERNET => Link::Ethernet,
            LinkType::RAW | LinkType::IPV4 | LinkType::IPV6 => Link::Raw,
            LinkType::LINUX_SLL => Link::Sll,
            LinkType::LINUX_SLL2 => Link::Sll2,
            LinkType::NULL | LinkType::LOOP => Link::Null,
            LinkType::PPP => Link::Ppp,
            LinkType::PPP_ETHER => return self.look_in_session(data),
            _ => return None,
        };
        // Criteria of the link apply to packets that leave for a host, or arrive from it.
        let mut meta = self.of(link, data, FrameDirection::Out, End::Receiver)?;
        if meta.class_id == 0 {
            meta.class_id = self
                .of(link, data, FrameDirection::In, End::Sender)?
                .class_id;
            if meta.class_id != 0 {
                return Some((meta, End::Sender));
            }
        }
        Some((meta, End::Receiver))
    }

    fn of(&mut self, link: Link, data: &[u8], direction: FrameDirection, end: End) -> Option<Meta> {
        let frame = Frame {
            wire_len: data.len() as u32,
            segs: 1,
            link: link as u16,
            direction: direction as u8,
            ..Frame::default()
        };
        let (meta, is_whole) = self.classifier.look(&frame, data, end);
        (is_whole || meta.destination != [0; 16]).then_some(meta)
    }

    /// PPPoE whose Ethernet header was not captured.
    fn look_in_session(&mut self, data: &[u8]) -> Option<(Meta, End)> {
        let mut frame = [0; HEAD_BYTES];
        let length = data.len().min(HEAD_BYTES - 14);
        frame[12..14].copy_from_slice(&PPPOE_SESSION);
        frame[14..14 + length].copy_from_slice(&data[..length]);
        self.look(LinkType::ETHERNET, &frame[..14 + length])
    }
}

/// A capture as traffic.
pub struct Capture<R> {
    reader: Reader<R>,
    looks: HeaderParser,
    rows: Vec<TrafficRow>,
    flows: HashMap<FlowKey, u32>,
    next: Option<Arrival>,
    end: End,
    first: Option<u64>,
    last: u64,
    not_ip: u64,
    went_back: u64,
}

type FlowKey = ([u8; 16], [u8; 16], u16, u16, u8);

impl<R: Read> Capture<R> {
    /// Traffic that begins with the first packet of `reader`.
    pub fn new(reader: Reader<R>, looks: HeaderParser) -> Capture<R> {
        Capture {
            reader,
            looks,
            rows: Vec::new(),
            flows: HashMap::new(),
            next: None,
            end: End::Receiver,
            first: None,
            last: 0,
            not_ip: 0,
            went_back: 0,
        }
    }

    /// Whose class the next packet has: of its sender only if its receiver has none.
    pub fn end(&self) -> End {
        self.end
    }

    fn row(&mut self, meta: &Meta) -> u32 {
        let key = (
            meta.source,
            meta.destination,
            meta.source_port,
            meta.destination_port,
            meta.protocol,
        );
        if let Some(row) = self.flows.get(&key) {
            return *row;
        }
        let last = MAX_ROWS - 1;
        if self.rows.len() > last {
            return last as u32;
        }
        let is_last = self.rows.len() == last;
        let name = if is_last {
            "others".to_owned()
        } else {
            name_of(meta)
        };
        let sample = (!is_last).then_some(*meta);
        self.rows.push(TrafficRow {
            name,
            class: meta.class_id,
            weight: 1,
            sample,
        });
        let row = self.rows.len() as u32 - 1;
        self.flows.insert(key, row);
        row
    }
}

fn name_of(meta: &Meta) -> String {
    let end = |ip: IpAddr, port: u16| match ip {
        ip if port == 0 => ip.to_string(),
        IpAddr::V4(ip) => format!("{ip}:{port}"),
        IpAddr::V6(ip) => format!("[{ip}]:{port}"),
    };
    let protocol = match meta.protocol {
        1 | 58 => "icmp".to_owned(),
        6 => "tcp".to_owned(),
        17 => "udp".to_owned(),
        number => number.to_string(),
    };
    let from = end(meta.source_ip(), meta.source_port);
    format!(
        "{protocol} {from} {}",
        end(meta.destination_ip(), meta.destination_port)
    )
}

impl<R: Read> Arrivals for Capture<R> {
    fn next_time(&mut self) -> Result<Option<u64>, TrafficError> {
        while self.next.is_none() {
            let Some(packet) = self.reader.next()? else {
                break;
            };
            let Some((seen, end)) = self.looks.look(packet.link, packet.data) else {
                self.not_ip += 1;
                continue;
            };
            self.end = end;
            let first = *self.first.get_or_insert(packet.time_ns);
            let now = packet.time_ns.saturating_sub(first);
            self.went_back += u64::from(now < self.last);
            self.last = self.last.max(now);
            let meta = Meta {
                arrival: self.last,
                bytes: packet.wire_len.max(1),
                ..seen
            };
            let row = self.row(&meta);
            self.next = Some(Arrival {
                meta,
                row,
                sender: 0,
            });
        }
        Ok(self.next.map(|next| next.meta.arrival))
    }

    fn take(&mut self) -> Option<Arrival> {
        self.next.take()
    }

    fn sent(&mut self, _: u32, _: u64, _: bool) -> Option<Finished> {
        None
    }

    fn dropped(&mut self, _: u32, _: u64) -> Option<Finished> {
        None
    }

    fn patience_ns(&self) -> u64 {
        u64::MAX
    }

    fn rows(&self) -> &[TrafficRow] {
        &self.rows
    }

    fn excluded(&self) -> Vec<(&'static str, u64)> {
        let counted = [
            ("packets_not_ip", self.not_ip),
            ("packets_back_in_time", self.went_back),
        ];
        counted
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairpath_statistics::Random;

    const UDP4: [u8; 46] = [
        2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x81, 0, 0x20, 7, 0x08, 0, // VLAN 7
        0x45, 0xb9, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 198, 51, 100,
        2, // EF, ECT(1)
        0x30, 0x39, 0, 53, 0, 8, 0, 0,
    ];

    fn read(link: LinkType, data: &[u8]) -> Option<Meta> {
        let seen = HeaderParser::new(None).unwrap().look(link, data);
        seen.map(|(meta, _)| meta)
    }

    #[test]
    fn headers_of_a_tagged_udp_packet_are_read() {
        let meta = read(LinkType::ETHERNET, &UDP4).unwrap();
        assert_eq!((meta.dscp, meta.ecn, meta.protocol), (46, 1, 17));
        assert_eq!((meta.source_port, meta.destination_port), (12345, 53));
        assert_eq!(meta.source_ip().to_string(), "192.0.2.1");
        assert_eq!(meta.destination_ip().to_string(), "198.51.100.2");
        assert_ne!(meta.flow_hash, 0);
        let raw = read(LinkType::RAW, &UDP4[18..]).unwrap();
        assert_eq!(raw, Meta { bytes: 28, ..meta });
    }

    #[test]
    fn ipv6_extensions_and_fragments_are_parsed() {
        let mut packet = vec![0x6b, 0x90, 0, 0, 0, 24, 44, 64];
        packet.extend([0; 15].into_iter().chain([1]).chain([0; 15]).chain([2]));
        packet.extend([0, 0, 0, 1, 0, 0, 0, 0]); // fragment, the first; hop-by-hop follows
        packet.extend([17, 0, 0, 0, 0, 0, 0, 0]);
        packet.extend([0, 80, 1, 187, 0, 8, 0, 0]);
        let meta = read(LinkType::IPV6, &packet).unwrap();
        assert_eq!(
            (meta.protocol, meta.source_port, meta.destination_port),
            (17, 80, 443)
        );
        assert_eq!((meta.dscp, meta.ecn), (46, 1));
        packet[43] = 8;
        let meta = read(LinkType::IPV6, &packet).unwrap();
        assert_eq!((meta.source_port, meta.destination_port), (0, 0));
    }

    #[test]
    fn arbitrary_bytes_do_not_panic() {
        let mut looks = HeaderParser::new(None).unwrap();
        let mut random = Random::new(7);
        let links = [0, 1, 9, 51, 101, 108, 113, 228, 229, 276, 999];
        for _ in 0..100_000 {
            let mut bytes = UDP4.to_vec();
            for _ in 0..random.below(6) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.draw() as u8;
            }
            bytes.truncate(random.below(47) as usize);
            let link = links[random.below(links.len() as u64) as usize];
            let _ = looks.look(LinkType(link), &bytes);
        }
    }
}
