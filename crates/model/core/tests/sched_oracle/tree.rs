//! Above the leaves: children that have something to send, references, and the shaper.

use fairpath_core::sched::{Function, Meta, NEVER, Over, PARAMS, Policy};

use super::policy::KEEP;
use super::queue::Item;
use super::{Oracle, Reference, reason};

/// Children may be due, or become eligible.
const DUE: u32 = Policy::WANTS_DUE;
const ELIGIBLE: u32 = Policy::WANTS_ELIGIBLE;

impl Oracle {
    /// The child enters its parent's queue.
    pub(super) fn show(&mut self, child: u32) {
        let parent = self.config(child).parent;
        let (rank, due) = (self.node_mut(child).rank, self.node_mut(child).due);
        let seq = self.next_seq();
        let virtual_time = self.node_mut(parent).class[PARAMS];
        if self.wants(parent, ELIGIBLE) && due != NEVER && due > virtual_time {
            let queue = &mut self.world.due[parent as usize - 1];
            queue.push(Item::Node(child), due, seq).unwrap();
            return;
        }
        self.queue(parent)
            .push(Item::Node(child), rank, seq)
            .unwrap();
        self.world.ranks.insert(Item::Node(child), rank);
        self.show_due(child, parent, due);
    }

    /// Children whose time has come in the node's virtual time may be chosen from now on; where there
    /// is none, it leaps to the first.
    fn release(&mut self, node: u32) {
        while let Some((item, eligible)) = self.world.due[node as usize - 1].first() {
            if eligible > self.node_mut(node).class[PARAMS] {
                if self.queue(node).len() > 0 {
                    return;
                }
                self.node_mut(node).class[PARAMS] = eligible;
            }
            let Item::Node(child) = item else {
                panic!("{item:?} becomes eligible")
            };
            self.world.due[node as usize - 1].remove(item);
            let (rank, seq) = (self.node_mut(child).rank, self.next_seq());
            self.queue(node).push(item, rank, seq).unwrap();
        }
    }

    fn show_due(&mut self, child: u32, parent: u32, due: u64) {
        let queue = &mut self.world.due[parent as usize - 1];
        queue.remove(Item::Node(child));
        if due != NEVER && self.wants(parent, DUE) {
            let queue = &mut self.world.due[parent as usize - 1];
            // Of equal times, the child with the lowest number is the first.
            queue.push(Item::Node(child), due, child.into()).unwrap();
        }
    }

    fn hide(&mut self, child: u32) {
        let parent = self.config(child).parent;
        self.queue(parent).remove(Item::Node(child));
        self.world.due[parent as usize - 1].remove(Item::Node(child));
    }

    /// The child is in the queue of its parent, eligible or not.
    fn is_queued(&mut self, child: u32) -> bool {
        let parent = self.config(child).parent;
        let due = self.world.due[parent as usize - 1].rank_of(Item::Node(child));
        self.queue(parent).rank_of(Item::Node(child)).is_some()
            || self.wants(parent, ELIGIBLE) && due.is_some()
    }

    /// `child` has something to send: it enters its parent's queue, its parent the next one.
    pub(super) fn activate(&mut self, child: u32, leaf: u32, meta: &Meta) {
        let Some(parent) = self.parent(child, Over::Children) else {
            return;
        };
        if self.holds(Item::Node(child)) {
            return;
        }
        self.begin_call(parent, leaf);
        let about = self.about_child(child);
        let rank = self
            .query_again(parent, Function::RankEnqueue, meta, about)
            .unwrap_or(0);
        let at = self.send_time(parent, meta, about);
        // Of a woken child, the packet is unknown.
        let next = if leaf == 0 || *meta == Meta::default() {
            1
        } else {
            meta.bytes
        };
        let at = at.max(self.pay(child, 0, next, false));
        let due = self.call.due;
        (self.node_mut(child).rank, self.node_mut(child).due) = (rank, due);
        if at > self.now {
            return self.shape(Item::Node(child), at);
        }
        self.show(child);
        self.activate(parent, leaf, meta);
    }

    /// A rate of `child` changed: where it waits, it gets the rank and the time of the new rate.
    pub(super) fn rank_again(&mut self, child: u32) {
        let item = Item::Node(child);
        let Some(parent) = self.parent(child, Over::Children) else {
            return;
        };
        if !self.holds(item) {
            return;
        }
        self.begin_call(parent, 0);
        let about = self.about_child(child);
        (self.call.backlogged, self.call.rank) = (1, self.node_mut(child).rank);
        let empty = Meta::default();
        let rank = self.query_again(parent, Function::RankEnqueue, &empty, about);
        let rank = rank.filter(|rank| *rank != KEEP);
        let shared = self.pay(child, 0, 1, false);
        if let Some(rank) = rank {
            (self.node_mut(child).rank, self.node_mut(child).due) = (rank, self.call.due);
        }
        if self.world.shaper.values().any(|held| *held == item) {
            let at = self.send_time(parent, &empty, about);
            let at = at.max(shared).max(self.now);
            self.unshape(item);
            self.shape(item, at);
        } else if rank.is_some() {
            self.hide(child);
            self.show(child);
        }
    }

    /// `child` may have nothing to send any more.
    pub(super) fn settle(&mut self, child: u32) {
        let parent = self.config(child).parent;
        if parent == 0 || self.waiting(child) > 0 {
            return;
        }
        if self.config(parent).over == Over::Children && self.is_queued(child) {
            self.hide(child);
            self.return_grants(child);
        }
        self.settle(parent);
    }

    /// A packet of `leaf` is known above `child`: by references, or because its parent has an entry.
    pub(super) fn refer(&mut self, child: u32, leaf: u32, meta: &Meta) -> Result<(), u8> {
        let Some(parent) = self.parent(child, Over::References) else {
            self.activate(child, leaf, meta);
            return Ok(());
        };
        self.begin_call(parent, leaf);
        let about = self.about_child(child);
        if self.world.references.len() >= self.plan.config.references as usize {
            return Err(reason::NO_REFERENCE);
        }
        self.next_reference += 1;
        let id = self.next_reference;
        let rank = self
            .query_again(parent, Function::RankEnqueue, meta, about)
            .unwrap_or(0);
        self.world
            .references
            .insert(id, Reference { child, leaf, rank });
        let at = self.send_time(parent, meta, about);
        if at > self.now {
            self.shape(Item::Reference(id), at);
            return Ok(());
        }
        let seq = self.next_seq();
        self.queue(parent).push(Item::Reference(id), rank, seq)?;
        self.refer(parent, leaf, meta)
    }

    pub(super) fn wake_reference(&mut self, id: u32) {
        let Reference { child, leaf, rank } = self.world.references[&id];
        let parent = self.config(child).parent;
        let seq = self.next_seq();
        self.queue(parent)
            .push(Item::Reference(id), rank, seq)
            .unwrap();
        let first = match self.queue(leaf).first() {
            Some((Item::Packet(handle), _)) => self.world.packets[&handle].meta,
            _ => Meta::default(),
        };
        self.refer(parent, leaf, &first)
            .expect("the pool has references for all");
    }

    /// From the root down by the first entries: nodes, each with the entry chosen and whether it was
    /// due; the last is the leaf.
    fn descend(&mut self) -> (Vec<(u32, Item, bool)>, u32) {
        let (mut path, mut node) = (vec![], 1);
        while self.config(node).over as u32 > Over::Flows as u32 {
            if self.wants(node, ELIGIBLE) {
                self.release(node);
            }
            let due = self.world.due[node as usize - 1].first();
            let due = due.filter(|entry| self.wants(node, DUE) && entry.1 <= self.now);
            let first = due.or(self.queue(node).first());
            let item = first
                .expect("a node in the queue of its parent has an entry")
                .0;
            path.push((node, item, due.is_some()));
            node = match item {
                Item::Node(child) => child,
                Item::Reference(id) => self.world.references[&id].child,
                other => panic!("{other:?} is no child"),
            };
        }
        (path, node)
    }

    /// One try: whether a packet left.
    pub(super) fn try_one(&mut self) -> bool {
        let (path, leaf) = self.descend();
        let taken = match self.config(leaf).over {
            Over::Packets => Some(self.give_packet(leaf)),
            _ => self.give_from_flow(leaf),
        };
        let Some((handle, outcome)) = taken else {
            self.settle(leaf);
            return false;
        };
        let sent = outcome.is_ok();
        let marked = sent && self.call.verdict & super::policy::MARK != 0;
        self.node_mut(leaf).stats.marked += u64::from(marked);
        self.stats.marked += u64::from(marked);
        self.ascend(&path, leaf, handle, sent);
        match outcome {
            Ok(()) => self.send(handle, marked),
            Err(reason) => self.drop_packet(handle, reason),
        }
        sent
    }

    /// References are used up, children charged and ranked again, the empty go.
    fn ascend(&mut self, path: &[(u32, Item, bool)], leaf: u32, handle: u32, sent: bool) {
        let bytes = u64::from(self.world.packets[&handle].meta.bytes);
        let mut node = leaf;
        let count = |oracle: &mut Oracle, node: u32| {
            if sent {
                oracle.node_mut(node).stats.sent += 1;
                oracle.node_mut(node).stats.sent_bytes += bytes;
            }
        };
        count(self, node);
        let mut has_packets = self.node_mut(leaf).stats.packets > 0;
        for (parent, item, due) in path.iter().rev().copied() {
            if sent {
                self.charge(parent, node, item, (due, has_packets), leaf, handle);
            }
            if let Item::Reference(id) = item {
                self.queue(parent).remove(item);
                self.world.references.remove(&id);
            } else if self.waiting(node) == 0 && self.is_queued(node) {
                self.hide(node);
                if !sent {
                    self.return_grants(node);
                }
            }
            has_packets |= self.config(parent).over != Over::Children;
            has_packets |= self.has_others(parent, node);
            node = parent;
            count(self, node);
        }
    }

    /// Another child than this one is queued.
    fn has_others(&self, parent: u32, child: u32) -> bool {
        let at = parent as usize - 1;
        let mut queues = vec![&self.world.queues[at]];
        if self.wants(parent, ELIGIBLE) {
            queues.push(&self.world.due[at]);
        }
        queues.iter().any(|queue| {
            let own = queue.rank_of(Item::Node(child)).is_some();
            queue.len() > usize::from(own)
        })
    }

    fn charge(
        &mut self,
        parent: u32,
        child: u32,
        item: Item,
        (due, has_packets): (bool, bool),
        leaf: u32,
        handle: u32,
    ) {
        let packet = self.world.packets[&handle];
        self.begin_call(parent, leaf);
        let about = self.about_child(child);
        self.call.sojourn = self.now - packet.enqueued;
        self.call.by_floor = due.into();
        self.call.rank = self.queue(parent).rank_of(item).unwrap();
        let waited = self.call.rank;
        let rank = self.query_again(parent, Function::RankDequeue, &packet.meta, about);
        let rank = rank.unwrap_or(waited);
        self.node_mut(child).stats.by_floor += u64::from(due);
        if self.config(parent).over == Over::References {
            return;
        }
        let waits = self.waiting(child) > 0;
        let next = u32::from(waits && has_packets);
        let shared = self.pay(child, packet.meta.bytes, next, due);
        if !waits {
            return;
        }
        let due = self.call.due;
        let new = if rank == KEEP { waited } else { rank };
        (self.node_mut(child).rank, self.node_mut(child).due) = (new, due);
        let at = self.send_time(parent, &packet.meta, about).max(shared);
        if at > self.now {
            self.hide(child);
            return self.shape(item, at);
        }
        if self.wants(parent, ELIGIBLE) {
            self.hide(child);
            return self.show(child);
        }
        if rank != KEEP {
            let seq = self.next_seq();
            self.queue(parent).put_elsewhere(item, rank, seq);
        }
        self.show_due(child, parent, due);
    }
}
