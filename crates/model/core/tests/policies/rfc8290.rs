//! FQ-CoDel as RFC 8290 section 4.2 writes it: two lists of queues. Slow, and shares nothing with
//! `bpf/policy/fq_codel.c`. One step is taken earlier: a queue that has used up its credit goes to the
//! end of the old ones when it sends, and not at its next turn. A new queue that arrives in
//! between is then behind it.

use std::collections::{BTreeMap, VecDeque};

use super::rfc8289::{Codel, PacketOutcome, Settings, Waiting};

#[derive(Default)]
struct Queue {
    codel: Codel,
    credits: i64,
}

pub struct FqCodel {
    settings: Settings,
    quantum: i64,
    queues: BTreeMap<u32, Queue>,
    new: VecDeque<u32>,
    old: VecDeque<u32>,
}

impl FqCodel {
    pub fn new(settings: Settings, quantum: i64) -> FqCodel {
        FqCodel {
            settings,
            quantum,
            queues: BTreeMap::new(),
            new: VecDeque::new(),
            old: VecDeque::new(),
        }
    }

    pub fn enqueue(&mut self, flow: u32, packet: Waiting) {
        let listed = self.new.contains(&flow) || self.old.contains(&flow);
        let queue = self.queues.entry(flow).or_default();
        queue.codel.enqueue(packet);
        if !listed {
            queue.credits = self.quantum;
            self.new.push_back(flow);
        }
    }

    /// One packet, with what is dropped on the way.
    pub fn dequeue(&mut self, now: u64, results: &mut Vec<PacketOutcome>) {
        loop {
            let from_new = !self.new.is_empty();
            let list = if from_new { &self.new } else { &self.old };
            let Some(flow) = list.front().copied() else {
                return;
            };
            if self.queues[&flow].credits <= 0 {
                self.queues.get_mut(&flow).unwrap().credits += self.quantum;
                self.take(from_new);
                self.old.push_back(flow);
                continue;
            }
            let queue = self.queues.get_mut(&flow).unwrap();
            if let Some((packet, marked)) = queue.codel.dequeue(&self.settings, now, results) {
                queue.credits -= i64::from(packet.bytes);
                let handle = packet.handle;
                results.push(PacketOutcome::Sent { handle, marked });
                if queue.credits <= 0 {
                    queue.credits += self.quantum;
                    self.take(from_new);
                    self.old.push_back(flow);
                }
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
