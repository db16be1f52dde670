//! A class tree as `bpf/policy/class_tree.c` describes it, by searching all children at every step.
//! No queues, no shaper: slow, and written from the description.

use std::collections::VecDeque;

/// The number of bytes for which service of floors above the share is remembered.
const LEAD: u64 = 131_072;
/// The time for which an unserved floor is compensated, ns.
const DEBT: u64 = 1_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It has nothing to send now.
    Idle,
    /// It may be chosen.
    Ready,
    /// Not before this time.
    Held(u64),
}

/// A node, with its clocks as a child of its parent. Index 0 is the root.
#[derive(Clone, Debug)]
pub struct Node {
    pub parent: usize,
    pub cost: u64,
    /// ns a byte << 20, 0 none; also `ceil`.
    pub floor: u64,
    pub ceil: u64,
    pub burst: u64,
    packets: VecDeque<(u32, u64)>,
    virtual_time: u64,
    /// The largest share of its children so far.
    finish: u64,
    owed: u64,
    share: u64,
    free: u64,
    rank: u64,
    due: u64,
    /// Among equals, the one with the earliest arrival is first.
    since: u64,
    standing: Standing,
}

impl Node {
    pub fn new(parent: usize, cost: u64, floor: u64, ceil: u64, burst: u64) -> Node {
        Node {
            parent,
            cost,
            floor,
            ceil,
            burst,
            packets: VecDeque::new(),
            virtual_time: 0,
            finish: 0,
            owed: 0,
            share: 0,
            free: 0,
            rank: 0,
            due: 0,
            since: 0,
            standing: Standing::Idle,
        }
    }
}

fn time_at(bytes: u64, rate: u64) -> u64 {
    u64::try_from((u128::from(bytes) * u128::from(rate)) >> 20).unwrap()
}

pub struct Tree {
    nodes: Vec<Node>,
    now: u64,
    stamps: u64,
}

impl Tree {
    pub fn new(nodes: Vec<Node>) -> Tree {
        Tree {
            nodes,
            now: 0,
            stamps: 0,
        }
    }

    fn has_something(&self, node: usize) -> bool {
        let children = (1..self.nodes.len()).filter(|child| self.nodes[*child].parent == node);
        let mut ready = children.filter(|child| self.nodes[*child].standing == Standing::Ready);
        !self.nodes[node].packets.is_empty() || ready.next().is_some()
    }

    /// The child is at its rank from now on, or throttled by its ceiling.
    fn place(&mut self, child: usize) {
        self.stamps += 1;
        let (now, since) = (self.now, self.stamps);
        let node = &mut self.nodes[child];
        let held = node.ceil > 0 && node.free > now;
        node.standing = if held {
            Standing::Held(node.free)
        } else {
            Standing::Ready
        };
        node.since = since;
    }

    /// Entries with something to send are enqueued, up to the first that was queued already or is throttled.
    fn wake_up(&mut self, mut child: usize) {
        while child != 0 && self.nodes[child].standing == Standing::Idle {
            // A busy period begins: virtual time is the largest finish (SFQ, section 2).
            let parent = self.nodes[child].parent;
            if !self.has_something(parent) {
                let node = &mut self.nodes[parent];
                node.virtual_time = node.virtual_time.max(node.finish);
            }
            let virtual_time = self.nodes[parent].virtual_time;
            let now = self.now;
            let node = &mut self.nodes[child];
            node.owed = node.owed.max(now.saturating_sub(node.burst));
            node.free = node.free.max(now.saturating_sub(node.burst));
            node.share = node.share.max(virtual_time);
            (node.rank, node.due) = (node.share, node.owed);
            self.place(child);
            if self.nodes[child].standing != Standing::Ready {
                return;
            }
            child = self.nodes[child].parent;
        }
    }

    /// Time continues: due children can be selected again, the earliest first.
    pub fn at(&mut self, now: u64) {
        self.now = now;
        loop {
            let held = (1..self.nodes.len()).filter_map(|child| match self.nodes[child].standing {
                Standing::Held(until) if until <= now => {
                    Some((until, self.nodes[child].since, child))
                }
                _ => None,
            });
            let Some((_, _, child)) = held.min() else {
                return;
            };
            self.stamps += 1;
            self.nodes[child].since = self.stamps;
            self.nodes[child].standing = Standing::Idle;
            if self.has_something(child) {
                self.nodes[child].standing = Standing::Ready;
                let parent = self.nodes[child].parent;
                self.wake_up(parent);
            }
        }
    }

    pub fn enqueue(&mut self, leaf: usize, handle: u32, bytes: u64) {
        self.nodes[leaf].packets.push_back((handle, bytes));
        self.wake_up(leaf);
    }

    /// The child of `node` that is chosen, and whether its floor chose it.
    fn choose(&self, node: usize) -> Option<(usize, bool)> {
        let ready = (1..self.nodes.len()).filter(|child| {
            self.nodes[*child].parent == node && self.nodes[*child].standing == Standing::Ready
        });
        let due = ready.clone().filter(|child| {
            let child = &self.nodes[*child];
            child.floor > 0 && child.due <= self.now
        });
        let due = due.min_by_key(|child| (self.nodes[*child].due, *child));
        let by_share =
            ready.min_by_key(|child| (self.nodes[*child].rank, self.nodes[*child].since));
        due.map(|child| (child, true))
            .or(by_share.map(|child| (child, false)))
    }

    /// The packet that leaves.
    pub fn dequeue(&mut self) -> Option<u32> {
        let mut path = vec![];
        let mut node = 0;
        while self.nodes[node].packets.is_empty() {
            let (child, by_floor) = self.choose(node)?;
            path.push((child, by_floor));
            node = child;
        }
        let (handle, bytes) = self.nodes[node].packets.pop_front()?;
        for (child, by_floor) in path.into_iter().rev() {
            self.charge(child, by_floor, bytes);
        }
        Some(handle)
    }

    fn charge(&mut self, child: usize, by_floor: bool, bytes: u64) {
        let now = self.now;
        let parent = self.nodes[child].parent;
        let virtual_time = self.nodes[parent].virtual_time;
        let node = &mut self.nodes[child];
        node.share = node.rank.max(virtual_time) + ((bytes * node.cost) >> 8);
        if by_floor {
            node.share = node.share.min(virtual_time + ((LEAD * node.cost) >> 8));
        }
        let packet = time_at(bytes, node.ceil);
        let bucket = node.burst.max(packet);
        node.free = node.free.max(now.saturating_sub(bucket)) + packet;
        let owed = node.owed.max(now.saturating_sub(node.burst + DEBT));
        node.owed = owed.min(now) + time_at(bytes, node.floor);
        let chosen = node.rank;
        (node.rank, node.due) = (node.share, node.owed);
        let share = node.share;
        self.nodes[parent].finish = self.nodes[parent].finish.max(share);
        if !by_floor {
            self.nodes[parent].virtual_time = virtual_time.max(chosen);
        }
        if self.has_something(child) {
            self.place(child);
        } else {
            self.nodes[child].standing = Standing::Idle;
        }
    }

    /// When something is to be had again, nothing being ready.
    pub fn next(&self) -> u64 {
        let held = self.nodes.iter().filter_map(|node| match node.standing {
            Standing::Held(until) => Some(until),
            _ => None,
        });
        held.min().unwrap_or(u64::MAX)
    }
}
