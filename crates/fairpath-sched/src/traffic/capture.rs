//! The packets of a capture at their times, the first one at 0.
//!
//! A flow is what has the same addresses, protocol and ports. Packets that are no IP are left out
//! and counted; so are steps back in time, which become equal times. Lengths are those on the wire.

use std::collections::HashMap;
use std::io::Read;
use std::net::IpAddr;

use fairpath_class::{ClassSet, Endpoint};
use fairpath_core::sched::Meta;
use fairpath_wire::capture::Reader;

use super::headers::{self, Headers};
use super::{Arrival, Arrivals, Finished, MAX_ROWS, Row, TrafficError};

/// Which class a captured packet is in, by its destination's class, else its source's.
pub struct ClassOf<'a> {
    set: Option<&'a ClassSet>,
    known: HashMap<(IpAddr, u8, Option<u16>), u32>,
}

/// Hosts whose class is remembered.
const REMEMBERED: usize = 1 << 16;

impl<'a> ClassOf<'a> {
    /// By these classes; by none, every packet is in class 0.
    pub fn new(set: Option<&'a ClassSet>) -> ClassOf<'a> {
        ClassOf {
            set,
            known: HashMap::new(),
        }
    }

    /// O(1) for hosts that were seen, else O(criteria).
    fn number(&mut self, headers: &Headers) -> u32 {
        let meta = &headers.meta;
        match self.of(meta.destination_ip(), meta.dscp, headers.vlan) {
            0 => self.of(meta.source_ip(), meta.dscp, headers.vlan),
            number => number,
        }
    }

    fn of(&mut self, address: IpAddr, dscp: u8, vlan: Option<u16>) -> u32 {
        let Some(set) = self.set else {
            return 0;
        };
        if self.known.len() == REMEMBERED {
            self.known.clear();
        }
        *self.known.entry((address, dscp, vlan)).or_insert_with(|| {
            let endpoint = Endpoint {
                address,
                mark: None,
                mac: None,
                vlan,
                dscp: Some(dscp),
                interface: None,
            };
            let class = set.classify(&endpoint);
            let at = class.and_then(|class| set.position(&class.name));
            at.map_or(0, |at| at as u32 + 1)
        })
    }
}

/// A capture as traffic.
pub struct Capture<'a, R> {
    reader: Reader<R>,
    classes: ClassOf<'a>,
    rows: Vec<Row>,
    flows: HashMap<FlowKey, u32>,
    next: Option<Arrival>,
    first: Option<u64>,
    last: u64,
    not_ip: u64,
    went_back: u64,
}

type FlowKey = ([u8; 16], [u8; 16], u16, u16, u8);

impl<'a, R: Read> Capture<'a, R> {
    /// Begins with the first packet that `reader` gives.
    pub fn new(reader: Reader<R>, classes: ClassOf<'a>) -> Capture<'a, R> {
        Capture {
            reader,
            classes,
            rows: Vec::new(),
            flows: HashMap::new(),
            next: None,
            first: None,
            last: 0,
            not_ip: 0,
            went_back: 0,
        }
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
        self.rows.push(Row {
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

impl<R: Read> Arrivals for Capture<'_, R> {
    fn next_time(&mut self) -> Result<Option<u64>, TrafficError> {
        while self.next.is_none() {
            let Some(packet) = self.reader.next()? else {
                break;
            };
            let Some(headers) = headers::read(packet.link, packet.data) else {
                self.not_ip += 1;
                continue;
            };
            let first = *self.first.get_or_insert(packet.time_ns);
            let now = packet.time_ns.saturating_sub(first);
            self.went_back += u64::from(now < self.last);
            self.last = self.last.max(now);
            let class_id = self.classes.number(&headers);
            let meta = Meta {
                arrival: self.last,
                bytes: packet.wire_len.max(1),
                class_id,
                segments: 1,
                ..headers.meta
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

    fn rows(&self) -> &[Row] {
        &self.rows
    }

    fn left_out(&self) -> Vec<(&'static str, u64)> {
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
