//! Both directions as the order of the forwarder: which packets leave, and their outcomes.

use fairpath_afxdp::{Arrival, ForwardCounts, FrameId, Order, Outcome, QueueId};
use fairpath_core::sched::SchedRuntimeError;
use fairpath_core::{Frame, FrameDirection, Link as LinkKind};
use fairpath_impair::{Counts, Departure, Path};
use fairpath_units::Nanos;

use crate::monotonic_ns;

/// Both directions as the forwarder's order.
pub struct Paths {
    paths: [Path; 2],
    exits: [QueueId; 2],
    limit: u32,
    inside: u32,
    /// Its thread stays awake before a packet is due, for most of the time if necessary.
    pub precise: bool,
    failure: Option<SchedRuntimeError>,
}

impl Paths {
    /// By exit: the path, and the first queue to leave by; `limit` packets are held by both.
    pub fn new(paths: [Path; 2], exits: [QueueId; 2], limit: u32, inside: u32) -> Paths {
        Paths {
            paths,
            exits,
            limit,
            inside,
            precise: false,
            failure: None,
        }
    }

    /// Outcomes of packets, by egress.
    pub fn reported(&self) -> [Counts; 2] {
        [0, 1].map(|exit| self.paths[exit].reported())
    }

    /// The first queue of the second exit.
    pub fn second_exit(&self) -> QueueId {
        self.exits[1]
    }

    fn drop_all(&mut self, exit: usize, out: &mut Vec<Outcome>) {
        while let Some(handle) = self.paths[exit].take_dropped() {
            out.push(Outcome::Drop(FrameId(handle - 1)));
        }
    }

    fn note<T: Default>(&mut self, done: Result<T, SchedRuntimeError>) -> T {
        done.unwrap_or_else(|error| {
            // A native scheduler does not fail, whatever its policy does.
            self.failure.get_or_insert(error);
            T::default()
        })
    }
}

impl Order for Paths {
    fn arrive(&mut self, arrival: &Arrival, packet: &[u8], out: &mut Vec<Outcome>) {
        let exit = arrival.exit.min(1);
        let handle = arrival.frame.0 + 1;
        let path = &mut self.paths[exit];
        let done = match arrival.meta {
            Some(mut meta) => {
                let arrived = meta.arrival.min(arrival.now.0);
                (meta.class_id, meta.arrival) = (0, arrived);
                path.arrive_as(handle, arrived, meta)
            }
            None => {
                let frame = Frame {
                    now: arrival.now.0,
                    wire_len: arrival.bytes,
                    segs: 1,
                    ifindex: self.inside,
                    link: LinkKind::Ethernet as u16,
                    direction: FrameDirection::Out as u8,
                    ..Frame::default()
                };
                path.arrive(handle, &frame, packet, arrival.bytes)
            }
        };
        if !self.note(done) {
            out.push(Outcome::Drop(arrival.frame));
        }
        self.drop_all(exit, out);
    }

    fn leave(&mut self, to: QueueId, _: Nanos, capacity: u32, out: &mut Vec<Outcome>) {
        for exit in 0..2 {
            if self.exits[exit] != to {
                continue;
            }
            // The turn began before this packet's: its clock is old.
            let now = monotonic_ns().unwrap_or(0);
            let done = self.paths[exit].run_to(now);
            self.note(done);
            self.drop_all(exit, out);
            let (path, mut left) = (&mut self.paths[exit], capacity);
            while path.next_takes().is_some_and(|packets| packets <= left) {
                let Some(Departure { handle, change, .. }) = path.take() else {
                    break;
                };
                left -= 1 + u32::from(change.twice);
                out.push(Outcome::Send(FrameId(handle - 1), change));
            }
        }
    }

    fn handed(&mut self, to: QueueId, done: &ForwardCounts) {
        for exit in 0..2 {
            let path = &mut self.paths[exit];
            if self.exits[exit] != to || !path.is_going() {
                continue;
            }
            // A link is up or down for all that a turn hands over.
            match done.no_link {
                0 => path.note_sent(monotonic_ns().unwrap_or(0)),
                _ => path.note_unsent(),
            }
            let counts = path.counts_mut();
            counts.sent += done.copies;
            counts.copies += done.copies;
            counts.corrupted += done.corrupted;
            counts.own.no_capacity += done.no_capacity;
            counts.own.no_link += done.no_link;
            counts.own.no_copy += done.not_copied;
        }
    }

    fn limit(&self) -> u32 {
        self.limit
    }

    fn wake_at(&self) -> Option<Nanos> {
        let due = self.paths.iter().filter_map(Path::wake_at);
        due.min().map(Nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairpath_impair::Ready;

    const TO: QueueId = QueueId(1);

    /// Both ways alike, with `packets` that came for the second exit.
    fn paths(words: &str, packets: u32) -> Paths {
        let path = || {
            Ready::of_words("to-peer", words, 100, 7)
                .unwrap()
                .plan
                .path(200)
                .unwrap()
        };
        let mut paths = Paths::new([path(), path()], [QueueId(0), TO], 200, 1);
        let mut out = Vec::new();
        for frame in 0..packets {
            let arrival = Arrival {
                frame: FrameId(frame),
                bytes: 64,
                from: QueueId(0),
                exit: 1,
                to: TO,
                now: Nanos(1_000_000),
                meta: None,
            };
            paths.arrive(&arrival, &[0; 64], &mut out);
        }
        assert!(out.is_empty());
        paths
    }

    fn leave(paths: &mut Paths, capacity: u32) -> Vec<Outcome> {
        let mut out = Vec::new();
        paths.leave(TO, Nanos(0), capacity, &mut out);
        out
    }

    #[test]
    fn duplicated_packets_use_two_entries() {
        let mut paths = paths("duplicate 100%", 40);
        assert_eq!(leave(&mut paths, 64).len(), 32);
        assert_eq!(leave(&mut paths, 1), []);
        assert_eq!(leave(&mut paths, 7).len(), 3);
        assert_eq!(leave(&mut paths, 64).len(), 5);
    }

    #[test]
    fn the_forwarders_actions_count() {
        let mut paths = paths("duplicate 100%", 20);
        assert_eq!(leave(&mut paths, 20).len(), 10);
        assert_eq!(paths.reported()[1].sent, 0);
        let done = ForwardCounts {
            sent: 19,
            copies: 9,
            not_copied: 1,
            ..ForwardCounts::default()
        };
        paths.handed(TO, &done);
        let reported = &paths.reported()[1];
        assert_eq!(
            (reported.sent, reported.copies, reported.own.no_copy),
            (19, 9, 1)
        );
        assert_eq!(reported.delays, 10);
        assert_eq!(leave(&mut paths, 64).len(), 10);
        let down = ForwardCounts {
            no_link: 10,
            not_copied: 10,
            ..ForwardCounts::default()
        };
        paths.handed(TO, &down);
        let [other, reported] = paths.reported();
        assert_eq!(
            (reported.sent, reported.delays, reported.own.no_link),
            (19, 10, 10)
        );
        assert_eq!((reported.own.no_copy, other.own.sum()), (11, 0));
    }
}
