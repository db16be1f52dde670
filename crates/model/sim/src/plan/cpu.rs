//! A virtual CPU: it receives packets, its instances have their turn, and it is busy for the cost of both.

use std::collections::VecDeque;

use fairpath_core::Rules;
use fairpath_core::sched::{Meta, NEVER, SchedReader};
use fairpath_shape::{Leaving, ShapeInstance};

use super::demand::{NO_SENDER, Senders};
use super::shaped::{Operations, Shaped};
use super::{BATCH, CpuFindings, PlanError, PlanSettings, RING_PACKETS};

/// The protocol of generated packets.
const UDP: u8 = 17;

/// A packet that waits for a CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    /// The time of its arrival.
    pub at: u64,
    /// Index of its direction.
    pub side: usize,
    /// Its leaf.
    pub leaf: u32,
    /// Its description.
    pub meta: Meta,
}

/// A packet in an instance.
#[derive(Clone, Copy, Debug, Default)]
struct Handled {
    at: u64,
    leaf: u32,
    sender: u32,
    bytes: u32,
}

/// The instance of one direction.
#[derive(Debug)]
struct InstanceOfCpu {
    instance: ShapeInstance,
    free: Vec<u32>,
    /// By handle.
    packets: Vec<Handled>,
    /// Operations on shared words that were counted, by node.
    counted: Vec<u32>,
    leaving: Vec<Leaving>,
}

/// The result of a turn.
struct Turn {
    operations: Operations,
    has_sent: bool,
    next: Option<u64>,
}

/// A CPU.
#[derive(Debug)]
pub(super) struct Cpu {
    number: u32,
    instances: Vec<InstanceOfCpu>,
    pub senders: Senders,
    ring: VecDeque<Waiting>,
    /// The CPU is busy until then.
    free_at: u64,
    /// The time of its next step.
    pub due: u64,
    busy_ns: u64,
    counts: CpuFindings,
}

impl Cpu {
    /// A CPU with a ring and its senders, for instances of `handles` packets.
    pub fn new(
        number: u32,
        senders: Senders,
        shaped: &[Shaped],
        handles: u32,
    ) -> Result<Cpu, PlanError> {
        let instances: Result<Vec<_>, _> = shaped
            .iter()
            .map(|shaped| InstanceOfCpu::new(number, shaped, handles, senders.len()))
            .collect();
        Ok(Cpu {
            number,
            due: senders.next_time().unwrap_or(NEVER),
            instances: instances?,
            senders,
            ring: VecDeque::new(),
            free_at: 0,
            busy_ns: 0,
            counts: CpuFindings::default(),
        })
    }

    /// Bytes of a CPU for one direction, without the scheduler.
    pub fn bytes(handles: u32, senders: u32, nodes: usize) -> u64 {
        let packets = (size_of::<Handled>() + size_of::<u32>()) as u64 * u64::from(handles);
        let ring = (RING_PACKETS * size_of::<Waiting>()) as u64;
        packets + ring + Senders::bytes(senders) + (size_of::<u32>() * nodes) as u64
    }

    /// A packet of a capture arrives. False: the ring is full.
    pub fn arrive(&mut self, waiting: Waiting) -> bool {
        if self.ring.len() == RING_PACKETS {
            self.counts.lost += 1;
            return false;
        }
        self.ring.push_back(waiting);
        self.due = self.due.min(self.free_at.max(waiting.at));
        true
    }

    /// Receives packets, sends, and is busy.
    pub fn step(
        &mut self,
        now: u64,
        shaped: &mut [Shaped],
        settings: &PlanSettings,
        measured_from: u64,
    ) -> Result<(), PlanError> {
        let received = self.receive(now, shaped);
        let (mut operations, mut next) = (Operations::default(), NEVER);
        let number = self.number;
        let cost = settings.cost;
        for (instance, shaped) in self.instances.iter_mut().zip(shaped) {
            let words = (number, cost.shared_ns);
            let turn = instance.turn(words, now, shaped, &mut self.senders, measured_from)?;
            operations.count += turn.operations.count;
            operations.ns += turn.operations.ns;
            // At least a nanosecond later where nothing could leave.
            let again = now + u64::from(!turn.has_sent);
            next = next.min(turn.next.unwrap_or(NEVER).max(again));
        }
        let busy = u64::from(received) * cost.local_ns + operations.ns;
        self.free_at = now + busy;
        if now >= measured_from {
            self.busy_ns += busy;
            self.counts.packets += u64::from(received);
            self.counts.operations += operations.count;
        }
        let arrives = self.senders.next_time().unwrap_or(NEVER);
        let waits = self.ring.front().map_or(NEVER, |waiting| waiting.at);
        self.due = next.min(arrives).min(waits).max(self.free_at);
        Ok(())
    }

    /// The counters of its instance of a direction.
    pub fn reader(&self, side: usize) -> SchedReader {
        self.instances[side].instance.reader()
    }

    /// The next packets go into the instances.
    fn receive(&mut self, now: u64, shaped: &mut [Shaped]) -> u32 {
        let mut received = 0;
        while received < BATCH {
            let Some((waiting, sender)) = self.next_packet(now, shaped) else {
                break;
            };
            received += 1;
            let instance = &mut self.instances[waiting.side];
            let shaped = &mut shaped[waiting.side];
            if !instance.enqueue(now, &waiting, sender, shaped) {
                drop_packet(shaped, waiting.leaf, sender, now);
                self.senders.release(sender, now);
            }
        }
        received
    }

    fn next_packet(&mut self, now: u64, shaped: &[Shaped]) -> Option<(Waiting, u32)> {
        if let Some(waiting) = self.ring.pop_front() {
            return Some((waiting, NO_SENDER));
        }
        let (at, sender, number) = self.senders.take(now)?;
        let side = sender.side as usize;
        let meta = Meta {
            arrival: at,
            bytes: shaped[side].packet_bytes(),
            flow_hash: sender.flow_hash,
            class_id: sender.class_id,
            protocol: UDP,
            segments: 1,
            ..Meta::default()
        };
        let waiting = Waiting {
            at,
            side,
            leaf: sender.leaf,
            meta,
        };
        Some((waiting, number))
    }

    /// The findings of the measured time, which ended at `now`.
    pub fn finish(self, now: u64, measured_ns: u64) -> CpuFindings {
        // The last step may end later.
        let behind = self.free_at.saturating_sub(now);
        let busy = self.busy_ns.saturating_sub(behind).min(measured_ns);
        CpuFindings {
            use_ratio: busy as f64 / measured_ns.max(1) as f64,
            ..self.counts
        }
    }
}

impl InstanceOfCpu {
    fn new(
        number: u32,
        shaped: &Shaped,
        handles: u32,
        senders: u32,
    ) -> Result<InstanceOfCpu, PlanError> {
        let part = shaped
            .shared
            .as_ref()
            .and_then(|shared| shared.part(number));
        let tree = shaped.tree_of(handles, senders);
        let end = shaped.side.end();
        // Packets have their classes already.
        let rules = Rules::default();
        Ok(InstanceOfCpu {
            instance: ShapeInstance::sharing(&tree, end, &rules, handles, false, part)?,
            free: (1..=handles).rev().collect(),
            packets: vec![Handled::default(); handles as usize + 1],
            counted: vec![0; tree.plan.nodes.len() + 1],
            leaving: Vec::new(),
        })
    }

    /// False: the instance has no space.
    fn enqueue(&mut self, now: u64, waiting: &Waiting, sender: u32, shaped: &Shaped) -> bool {
        let Some(handle) = self.free.pop() else {
            return false;
        };
        self.packets[handle as usize] = Handled {
            at: waiting.at,
            leaf: waiting.leaf,
            sender,
            bytes: shaped.link_bytes(&waiting.meta),
        };
        self.instance.arrive_as(handle, now, waiting.meta);
        true
    }

    fn turn(
        &mut self,
        (cpu, each_ns): (u32, u64),
        now: u64,
        shaped: &mut Shaped,
        senders: &mut Senders,
        measured_from: u64,
    ) -> Result<Turn, PlanError> {
        let next = self.instance.turn(now, BATCH, &mut self.leaving)?;
        let (mut operations, mut last, mut has_sent) = (Operations::default(), 0, false);
        for leaving in std::mem::take(&mut self.leaving) {
            let (Leaving::Send { handle, .. } | Leaving::Drop { handle, .. }) = leaving;
            let packet = self.packets[handle as usize];
            self.free.push(handle);
            if packet.leaf != last {
                last = packet.leaf;
                let counted = (cpu, &mut *self.counted);
                let more = shaped.operate(last, counted, now, each_ns, now >= measured_from);
                operations.count += more.count;
                operations.ns += more.ns;
            }
            match leaving {
                Leaving::Send { .. } => {
                    has_sent = true;
                    send_packet(shaped, &packet, now, now >= measured_from);
                }
                Leaving::Drop { .. } => drop_packet(shaped, packet.leaf, packet.sender, now),
            }
            senders.release(packet.sender, now);
        }
        Ok(Turn {
            operations,
            has_sent,
            next,
        })
    }
}

fn send_packet(shaped: &mut Shaped, packet: &Handled, now: u64, is_measured: bool) {
    let sojourn = now - packet.at;
    shaped.on_path(packet.leaf, |meter| {
        meter.send(now, packet.bytes, sojourn, is_measured);
        if packet.sender == NO_SENDER {
            meter.leave(now);
        }
    });
}

fn drop_packet(shaped: &mut Shaped, leaf: u32, sender: u32, now: u64) {
    shaped.on_path(leaf, |meter| {
        meter.findings.dropped += 1;
        if sender == NO_SENDER {
            meter.leave(now);
        }
    });
}
