//! Packets in and out of the leaves.

use fairpath_core::sched::{
    Function, Meta, Outcome, OutcomeKind, Over, Overflow, Policy, RATE_SHIFT,
};

use super::policy::{DROP, KEEP, LATER, LINGER};
use super::queue::Item;
use super::{Oracle, reason};

/// Flows keep their turn when their last packet left.
const EMPTY: u32 = Policy::WANTS_EMPTY;
/// `FP_FAT_BANDS`.
const FAT_BANDS: u32 = 64;

/// A packet was sent, or dropped for a reason.
pub(super) type Taken = Result<(), u8>;

impl Oracle {
    fn begin_waiting(&mut self, handle: u32) {
        let packet = self.world.packets[&handle];
        let stats = &mut self.node_mut(packet.leaf).stats;
        stats.packets += 1;
        stats.bytes += packet.meta.bytes;
        if let Some(key) = packet.flow {
            let flow = self.flow_mut(key);
            flow.packets += 1;
            flow.bytes += packet.meta.bytes;
        }
        self.weigh(packet.flow);
    }

    fn end_waiting(&mut self, handle: u32) {
        let packet = self.world.packets[&handle];
        let stats = &mut self.node_mut(packet.leaf).stats;
        stats.packets -= 1;
        stats.bytes -= packet.meta.bytes;
        if let Some(key) = packet.flow {
            let flow = self.flow_mut(key);
            flow.packets -= 1;
            flow.bytes -= packet.meta.bytes;
            flow.queue.retain(|other| *other != handle);
        }
        self.weigh(packet.flow);
    }

    /// Its band among the fattest flows: two an octave of bytes.
    fn weigh(&mut self, flow: Option<(u32, u32)>) {
        let Some(key) = flow.filter(|_| self.plan.config.overflow == Overflow::Fattest) else {
            return;
        };
        let (packets, bytes) = (self.flow_mut(key).packets, self.flow_mut(key).bytes);
        let item = Item::Flow(key.0, key.1);
        let log = (bytes | 1).ilog2();
        let half = if log > 0 { bytes >> (log - 1) & 1 } else { 0 };
        let band = u64::from(FAT_BANDS - 1 - (2 * log + half));
        let seq = self.next_seq();
        let fat = &mut self.world.fat;
        match fat.rank_of(item) {
            _ if packets == 0 => _ = fat.remove(item),
            Some(old) if old == band => {}
            _ => {
                fat.remove(item);
                fat.push(item, band, seq).unwrap();
            }
        }
    }

    /// The packet waits from now on, until `at`; or the reason why it may not, everything put back.
    pub(super) fn admit(&mut self, handle: u32) -> Result<u64, u8> {
        let Some(packet) = self.world.packets.get(&handle).copied() else {
            unreachable!("it came just now")
        };
        let (leaf, config) = (packet.leaf, *self.config(packet.leaf));
        let stats = self.node_mut(leaf).stats;
        if self.supports_flows(leaf) {
            let key = (leaf, packet.meta.flow_hash);
            self.flow_mut(key);
            self.world.packets.get_mut(&handle).unwrap().flow = Some(key);
        }
        let bytes = stats.bytes + packet.meta.bytes;
        if (config.limit_packets > 0 && stats.packets >= config.limit_packets)
            || (config.limit_bytes > 0 && bytes > config.limit_bytes)
        {
            return Err(reason::NODE_LIMIT);
        }
        self.count_hosts(handle);
        let before = self.may_refuse.then(|| self.world.clone());
        let reported = self.reported.len();
        let admitted = self.admit_ranked(handle);
        if let Err(refusal) = admitted {
            let rank = self.world.packets[&handle].rank;
            // The policy's own refusal may change its state: it decided so.
            if refusal != reason::REFUSED {
                assert_eq!(
                    reported,
                    self.reported.len(),
                    "a refused push drops nobody else"
                );
                self.world = before.expect("a plan that refuses nobody");
                self.world.packets.get_mut(&handle).unwrap().rank = rank;
            }
            self.rest_if_idle(handle);
        } else if self.plan.config.ack_filter != 0 && config.over == Over::Flows {
            self.filter_ack(handle);
        }
        admitted
    }

    /// Drops the ACK ahead of a later one, unless that is a duplicate.
    fn filter_ack(&mut self, handle: u32) {
        let packet = self.world.packets[&handle];
        let queue = &self.flow_mut(packet.flow.unwrap()).queue;
        let Some(ahead) = queue.iter().rev().nth(1).copied() else {
            return;
        };
        let (new, old) = (packet.meta, self.world.packets[&ahead].meta);
        let end = |meta: &Meta| {
            let ports = (meta.source_port, meta.destination_port);
            (meta.source, meta.destination, ports, meta.ack_flags)
        };
        let reported = |of: &Meta, by: &Meta| {
            let edges = |block: u64| [(block >> 32) as u32, block as u32];
            let blocks = |meta: &Meta| meta.sack.into_iter().filter(|b| *b != 0).map(edges);
            let at_least = |a: u32, b: u32| a.wrapping_sub(b) as i32 >= 0;
            blocks(of).all(|[left, right]| {
                let mut in_blocks =
                    blocks(by).map(|[l, r]| at_least(left, l) && at_least(r, right));
                at_least(by.ack, right) || in_blocks.any(|is_in| is_in)
            })
        };
        let acknowledged = new.ack.wrapping_sub(old.ack) as i32;
        let more = acknowledged > 0 || acknowledged == 0 && !reported(&new, &old);
        let parent = self.config(packet.leaf).parent;
        // References to it cannot be found.
        let is_referred = parent != 0 && self.config(parent).over == Over::References;
        let is_covered = more && reported(&old, &new);
        if new.ack_flags != 0 && end(&new) == end(&old) && is_covered && !is_referred {
            self.take_out(ahead, reason::ACK_FILTERED);
        }
    }

    fn is_idle(&mut self, key: (u32, u32)) -> bool {
        self.flow_mut(key).packets == 0 && !self.holds(Item::Flow(key.0, key.1))
    }

    /// A flow that begins to wait is one more of its hosts.
    fn count_hosts(&mut self, handle: u32) {
        let packet = self.world.packets[&handle];
        let wants = self.wants(packet.leaf, Policy::WANTS_HOSTS)
            && self.config(packet.leaf).over == Over::Flows;
        let Some(key) = packet.flow.filter(|_| wants) else {
            return;
        };
        if self.is_idle(key) {
            let meta = packet.meta;
            self.flow_mut(key).hosts = Some([meta.source, meta.destination]);
        }
    }

    fn rest_if_idle(&mut self, handle: u32) {
        if let Some(key) = self.world.packets[&handle].flow
            && self.is_idle(key)
        {
            self.flow_mut(key).hosts = None;
        }
    }

    fn admit_ranked(&mut self, handle: u32) -> Result<u64, u8> {
        let packet = self.world.packets[&handle];
        let (leaf, meta) = (packet.leaf, packet.meta);
        self.begin_call(leaf, leaf);
        let about = self.about_flow(leaf, packet.flow);
        if self.config(leaf).over == Over::Flows {
            self.call.backlogged = self.holds(about).into();
        }
        self.call.packets += 1;
        self.call.bytes += meta.bytes;
        if packet.flow.is_some() {
            self.call.rank = self.world.ranks.get(&about).copied().unwrap_or(0);
        }
        let rank = self
            .query_again(leaf, Function::RankEnqueue, &meta, about)
            .unwrap_or(0);
        if self.call.verdict & DROP != 0 && self.config(leaf).over == Over::Packets {
            self.world.packets.get_mut(&handle).unwrap().rank = rank;
        }
        if self.call.verdict & DROP != 0 {
            return Err(reason::REFUSED);
        }
        self.world.packets.get_mut(&handle).unwrap().rank = rank;
        let at = match about {
            Item::Flow(..) if self.config(leaf).over == Over::Flows => {
                self.admit_to_flow(handle, rank, about)?
            }
            _ => self.admit_packet(handle, about)?,
        };
        if at <= self.now {
            self.refer(leaf, leaf, &meta)?;
        }
        Ok(at)
    }

    fn admit_packet(&mut self, handle: u32, about: Item) -> Result<u64, u8> {
        let packet = self.world.packets[&handle];
        let at = self.send_time(packet.leaf, &packet.meta, about);
        if at > self.now {
            let horizon = self.plan.config.horizon;
            if horizon > 0 && at - self.now > horizon {
                return Err(reason::HORIZON);
            }
            self.shape(Item::Packet(handle), at);
        } else {
            self.push_packet(handle)?;
        }
        self.begin_waiting(handle);
        Ok(at.max(self.now))
    }

    /// A packet enters its leaf's queue, and perhaps pushes another one out.
    fn push_packet(&mut self, handle: u32) -> Result<(), u8> {
        let packet = self.world.packets[&handle];
        let seq = self.next_seq();
        let pushed = self
            .queue(packet.leaf)
            .push(Item::Packet(handle), packet.rank, seq)?;
        let Some(Item::Packet(out)) = pushed else {
            return Ok(());
        };
        self.end_waiting(out);
        self.query_drop(out, reason::PUSHED_OUT);
        self.drop_packet(out, reason::PUSHED_OUT);
        Ok(())
    }

    fn query_drop(&mut self, handle: u32, reason: u8) {
        let packet = self.world.packets[&handle];
        self.begin_call(packet.leaf, packet.leaf);
        let about = self.about_flow(packet.leaf, packet.flow);
        self.call.reason = reason.into();
        self.query(packet.leaf, Function::OnDrop, &packet.meta, about);
    }

    fn admit_to_flow(&mut self, handle: u32, rank: u64, flow: Item) -> Result<u64, u8> {
        let packet = self.world.packets[&handle];
        let key = packet.flow.unwrap();
        let shaped = self.world.shaper.values().any(|held| *held == flow);
        let mut delayed = shaped;
        if shaped {
            if rank != KEEP {
                self.flow_mut(key).rank = rank;
            }
        } else if let Some(old) = self.queue(packet.leaf).rank_of(flow) {
            if rank != KEEP && rank != old {
                self.rank_flow(packet.leaf, flow, rank);
            }
        } else {
            self.flow_mut(key).rank = rank;
            let at = self.send_time(packet.leaf, &packet.meta, flow);
            delayed = at > self.now;
            if delayed {
                self.shape(flow, at);
            } else {
                let seq = self.next_seq();
                self.queue(packet.leaf).push(flow, rank, seq)?;
                self.world.ranks.insert(flow, rank);
            }
        }
        self.flow_mut(key).queue.push_back(handle);
        self.begin_waiting(handle);
        Ok(if delayed { u64::MAX } else { self.now })
    }

    fn rank_flow(&mut self, leaf: u32, flow: Item, rank: u64) {
        let seq = self.next_seq();
        self.queue(leaf).put_elsewhere(flow, rank, seq);
        if let Some(rank) = self.queue(leaf).rank_of(flow) {
            self.world.ranks.insert(flow, rank);
        }
    }

    fn about_leaving(&mut self, leaf: u32, handle: u32, rank: u64) -> Item {
        let packet = self.world.packets[&handle];
        self.begin_call(leaf, leaf);
        let about = self.about_flow(leaf, packet.flow);
        self.call.sojourn = self.now - packet.enqueued;
        self.call.rank = rank;
        about
    }

    /// Its policy decides on a packet that may leave, unless it is too old: a rank, and the reason of a drop.
    fn query_leaving(&mut self, leaf: u32, handle: u32, about: Item) -> (Option<u64>, Taken) {
        let meta = self.world.packets[&handle].meta;
        if self.is_too_old(leaf, meta.bytes) {
            self.call.reason = reason::TOO_OLD.into();
            self.query_again(leaf, Function::OnDrop, &meta, about);
            self.call.verdict = DROP;
            return (None, Err(reason::TOO_OLD));
        }
        let rank = self.query_again(leaf, Function::RankDequeue, &meta, about);
        let dropped = self.call.verdict & DROP != 0;
        (rank, if dropped { Err(reason::POLICY) } else { Ok(()) })
    }

    /// It waited longer than the limit, and than four packets of its length take at the lowest ceiling.
    fn is_too_old(&self, leaf: u32, bytes: u32) -> bool {
        let (sojourn, most) = (self.call.sojourn, self.plan.config.max_sojourn);
        let mut slowest = 0;
        let mut node = leaf;
        while node != 0 {
            slowest = slowest.max(self.config(node).ceil);
            node = self.config(node).parent;
        }
        let quarter = u128::from(sojourn.min(1 << 40) / 4) << RATE_SHIFT;
        most != 0 && sojourn > most && u128::from(bytes) * u128::from(slowest) <= quarter
    }

    /// The first packet, and its outcome.
    pub(super) fn give_packet(&mut self, leaf: u32) -> (u32, Taken) {
        let Some((Item::Packet(handle), rank)) = self.queue(leaf).first() else {
            panic!("leaf {leaf} has no packet")
        };
        let about = self.about_leaving(leaf, handle, rank);
        let (_, taken) = self.query_leaving(leaf, handle, about);
        self.queue(leaf).remove(Item::Packet(handle));
        self.end_waiting(handle);
        (handle, taken)
    }

    /// The first packet of the first flow, if it does not wait on.
    pub(super) fn give_from_flow(&mut self, leaf: u32) -> Option<(u32, Taken)> {
        let Some((Item::Flow(_, hash), waited)) = self.queue(leaf).first() else {
            panic!("leaf {leaf} has no flow")
        };
        let (key, item) = ((leaf, hash), Item::Flow(leaf, hash));
        let Some(handle) = self.flow_mut(key).queue.front().copied() else {
            self.pass_empty_flow(leaf, key, item, waited);
            return None;
        };
        let about = self.about_leaving(leaf, handle, waited);
        if let Some(next) = self.flow_mut(key).queue.get(1).copied() {
            let next = self.world.packets[&next].meta;
            (self.call.next_hint, self.call.next_bytes) = (next.hint, next.bytes);
        }
        let (rank, taken) = self.query_leaving(leaf, handle, about);
        let rank = rank.unwrap_or(KEEP);
        let verdict = self.call.verdict;
        if verdict & LATER != 0 && verdict & DROP == 0 {
            self.rank_flow(leaf, item, rank);
            self.stats.put_off += 1;
            return None;
        }
        self.end_waiting(handle);
        self.rerank(leaf, key, item, rank, waited);
        self.call.verdict = verdict;
        Some((handle, taken))
    }

    fn pass_empty_flow(&mut self, leaf: u32, key: (u32, u32), item: Item, waited: u64) {
        if self.wants(leaf, EMPTY) {
            self.begin_call(leaf, leaf);
            let about = self.about_flow(leaf, Some(key));
            self.call.rank = waited;
            let nobody = Meta::default();
            let rank = self
                .query_again(leaf, Function::RankDequeue, &nobody, about)
                .unwrap_or(KEEP);
            if self.call.verdict & LINGER != 0 && rank != KEEP {
                self.stats.put_off += 1;
                return self.rank_flow(leaf, item, rank);
            }
        }
        self.queue(leaf).remove(item);
        self.flow_mut(key).hosts = None;
    }

    fn rerank(&mut self, leaf: u32, key: (u32, u32), item: Item, rank: u64, waited: u64) {
        let verdict = self.call.verdict;
        let Some(head) = self.flow_mut(key).queue.front().copied() else {
            if verdict & LINGER != 0 && rank != KEEP {
                self.rank_flow(leaf, item, rank);
            }
            if verdict & LINGER == 0 && !self.wants(leaf, EMPTY) {
                self.queue(leaf).remove(item);
                self.flow_mut(key).hosts = None;
            }
            return;
        };
        if verdict & DROP != 0 {
            return;
        }
        if self.has(leaf, Function::SendTime) {
            self.begin_call(leaf, leaf);
            let about = self.about_flow(leaf, Some(key));
            let meta = self.world.packets[&head].meta;
            let at = self.send_time(leaf, &meta, about);
            if at > self.now {
                self.flow_mut(key).rank = if rank == KEEP { waited } else { rank };
                self.queue(leaf).remove(item);
                return self.shape(item, at);
            }
        }
        if rank != KEEP {
            self.rank_flow(leaf, item, rank);
        }
    }

    pub(super) fn wake_packet(&mut self, handle: u32) {
        let packet = self.world.packets[&handle];
        let pushed = self.push_packet(handle);
        let before = self.may_refuse.then(|| self.world.clone());
        let woken = pushed.and_then(|()| self.refer(packet.leaf, packet.leaf, &packet.meta));
        let Err(reason) = woken else { return };
        if pushed.is_ok() {
            self.world = before.expect("a plan that refuses nobody");
        }
        self.queue(packet.leaf).remove(Item::Packet(handle));
        self.end_waiting(handle);
        self.drop_packet(handle, reason);
    }

    pub(super) fn wake_flow(&mut self, key: (u32, u32)) {
        let Some(head) = self.flow_mut(key).queue.front().copied() else {
            self.flow_mut(key).hosts = None;
            return;
        };
        let (leaf, item) = (key.0, Item::Flow(key.0, key.1));
        let (rank, seq) = (self.flow_mut(key).rank, self.next_seq());
        self.queue(leaf).push(item, rank, seq).unwrap();
        self.world.ranks.insert(item, rank);
        let meta = self.world.packets[&head].meta;
        self.activate(leaf, leaf, &meta);
    }

    /// Takes a packet out, wherever it is.
    pub(super) fn take_out(&mut self, handle: u32, reason: u8) {
        let packet = self.world.packets[&handle];
        self.query_drop(handle, reason);
        self.queue(packet.leaf).remove(Item::Packet(handle));
        self.unshape(Item::Packet(handle));
        self.end_waiting(handle);
        if self.config(packet.leaf).over == Over::Flows && !self.wants(packet.leaf, EMPTY) {
            let key = packet.flow.unwrap();
            if self.flow_mut(key).packets == 0 {
                self.queue(packet.leaf).remove(Item::Flow(key.0, key.1));
                self.unshape(Item::Flow(key.0, key.1));
                self.flow_mut(key).hosts = None;
            }
        }
        self.drop_packet(handle, reason);
    }

    pub(super) fn send(&mut self, handle: u32, marked: bool) {
        let packet = self.world.packets[&handle];
        self.stats.sent += 1;
        self.stats.sent_bytes += u64::from(packet.meta.bytes - packet.more);
        self.charge_service(packet.meta.bytes);
        self.report(OutcomeKind::Sent, handle, 0, self.now - packet.enqueued);
        if let Some(last) = self.reported.last_mut() {
            last.flags = packet.flags | if marked { Outcome::MARK } else { 0 };
            last.bit = packet.bit;
        }
        self.world.packets.remove(&handle);
    }

    /// Every reference stands for a packet below it that may be sent: as many as there are.
    pub fn well_formed(&self) -> Result<(), String> {
        for child in 1..=self.plan.nodes.len() as u32 {
            let Some(parent) = self.parent(child, Over::References) else {
                continue;
            };
            let to = |item: &Item| matches!(item, Item::Reference(id) if self.world.references[id].child == child);
            let queued = self.world.queues[parent as usize - 1]
                .items()
                .filter(|item| to(item));
            let held = self.world.shaper.values().filter(|item| to(item));
            let (above, below) = (queued.count() + held.count(), self.waiting(child));
            if above != below {
                return Err(format!(
                    "node {child}: {above} references to {below} entries"
                ));
            }
        }
        Ok(())
    }
}
