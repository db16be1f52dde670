//! FQ-CoDel as RFC 8290 section 4.2 writes it: two lists of queues. Slow, and shares nothing with
//! `bpf/policy/fq_codel.c`. Hosts share as CAKE's do: a quantum is divided by the flows that the
//! busier host has on the lists.

use std::collections::{BTreeMap, VecDeque};

use super::rfc8289::{Codel, Fate, Settings, Waiting};

/// Parts of a byte in which credits are counted.
const BYTE: i64 = 256;

#[derive(Default)]
struct Queue {
    codel: Codel,
    credits: i64,
    source: u8,
    destination: u8,
}

pub struct FqCodel {
    settings: Settings,
    quantum: i64,
    hosts: bool,
    queues: BTreeMap<u32, Queue>,
    new: VecDeque<u32>,
    old: VecDeque<u32>,
}

impl FqCodel {
    pub fn new(settings: Settings, quantum: i64, hosts: bool) -> FqCodel {
        FqCodel {
            settings,
            quantum,
            hosts,
            queues: BTreeMap::new(),
            new: VecDeque::new(),
            old: VecDeque::new(),
        }
    }

    fn grant(&self, flow: u32) -> i64 {
        if !self.hosts {
            return self.quantum * BYTE;
        }
        let me = &self.queues[&flow];
        let listed: Vec<&Queue> = self
            .new
            .iter()
            .chain(&self.old)
            .map(|f| &self.queues[f])
            .collect();
        let from = listed
            .iter()
            .filter(|queue| queue.source == me.source)
            .count();
        let to = listed
            .iter()
            .filter(|queue| queue.destination == me.destination)
            .count();
        let busier = from.max(to).max(1) as i64;
        (self.quantum * BYTE / busier).max(BYTE)
    }

    pub fn enqueue(&mut self, flow: u32, source: u8, destination: u8, packet: Waiting) {
        let listed = self.new.contains(&flow) || self.old.contains(&flow);
        let queue = self.queues.entry(flow).or_default();
        (queue.source, queue.destination) = (source, destination);
        queue.codel.enqueue(packet);
        if !listed {
            self.new.push_back(flow);
            let grant = self.grant(flow);
            self.queues.get_mut(&flow).unwrap().credits = grant;
        }
    }

    /// One packet, with what is dropped on the way.
    pub fn dequeue(&mut self, now: u64, fates: &mut Vec<Fate>) {
        loop {
            let from_new = !self.new.is_empty();
            let list = if from_new { &self.new } else { &self.old };
            let Some(flow) = list.front().copied() else {
                return;
            };
            if self.queues[&flow].credits <= 0 {
                let grant = self.grant(flow);
                self.queues.get_mut(&flow).unwrap().credits += grant;
                self.take(from_new);
                self.old.push_back(flow);
                continue;
            }
            let queue = self.queues.get_mut(&flow).unwrap();
            if let Some((packet, marked)) = queue.codel.dequeue(&self.settings, now, fates) {
                queue.credits -= i64::from(packet.bytes) * BYTE;
                let handle = packet.handle;
                fates.push(Fate::Sent { handle, marked });
                return;
            }
            self.take(from_new);
            if from_new {
                self.old.push_back(flow);
            }
        }
    }

    fn take(&mut self, from_new: bool) {
        let list = if from_new {
            &mut self.new
        } else {
            &mut self.old
        };
        list.pop_front();
    }
}
