//! The state of every frame of a UMEM. Pure.
//!
//! ```text
//!   free -- take --> filling -- arrive --> held -- send --> sending
//!    | ^                                   ^ |                 |
//!    '-|--------------- copy --------------' |                 |
//!      '------------------------- drop ------'---- complete ---'
//! ```
//!
//! Invariant: a frame is in exactly one state, and the counts add up to all frames. A step that
//! does not fit the state changes nothing and is counted ([`Frames::strays`]). So neither an error
//! of a caller nor an invalid descriptor can put a frame into two states.
//!
//! A packet may have several frames. The first one is its handle and has the headers, and is linked
//! to the others, which change their state with it. The kernel returns sent frames one by one.
//!
//! A frame in the kernel belongs to its queue, so that all frames of a queue can be reclaimed when
//! its interface is removed.

/// A frame of the port's UMEM, by number: the handle of a scheduler. The first frame of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameId(pub u32);

/// Maximum of frames of a packet: one for the linear part of the kernel's buffer, and its fragments
/// (`MAX_SKB_FRAGS`).
pub(crate) const MAX_PARTS: u32 = 18;
/// No further frame.
const NONE: u32 = u32::MAX;

/// The state of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Free,
    Filling,
    Held,
    /// Held, and not the first frame of its packet.
    Part,
    Sending,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    place: Place,
    /// The queue of a frame in the kernel; otherwise undefined.
    queue: u8,
    /// Frames of the packet after this one; 0 unless it is the first.
    parts: u8,
    /// Offset of the packet in the frame, in bytes.
    offset: u16,
    /// Its length in bytes.
    len: u16,
}

/// Frames by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameCounts {
    /// Free.
    pub free: u32,
    /// In the kernel, for reception.
    pub filling: u32,
    /// Held by the user of the port.
    pub held: u32,
    /// In the kernel, for transmission.
    pub sending: u32,
}

impl FrameCounts {
    /// All of them.
    pub fn all(&self) -> u32 {
        self.free + self.filling + self.held + self.sending
    }
}

/// All frames of a UMEM. Every operation is O(1), or O(frames of the packet).
#[derive(Debug)]
pub(crate) struct Frames {
    slots: Vec<Slot>,
    /// By frame: the next one of its packet. Only read as far as [`Slot::parts`] of the first.
    next: Vec<u32>,
    /// Numbers of free frames. The last freed is used first, while it is in the cache.
    free: Vec<u32>,
    counts: FrameCounts,
    /// Steps that did not fit the state.
    pub strays: u64,
    frame_bytes: u32,
}

impl Frames {
    /// Creates `frames` free frames of `frame_bytes`, a power of two up to 4,096.
    pub fn new(frames: u32, frame_bytes: u32) -> Frames {
        let slot = Slot {
            place: Place::Free,
            queue: 0,
            parts: 0,
            offset: 0,
            len: 0,
        };
        let counts = FrameCounts {
            free: frames,
            ..FrameCounts::default()
        };
        Frames {
            slots: vec![slot; frames as usize],
            next: vec![NONE; frames as usize],
            free: (0..frames).rev().collect(),
            counts,
            strays: 0,
            frame_bytes,
        }
    }

    /// The number of frames by state.
    pub fn counts(&self) -> FrameCounts {
        self.counts
    }

    /// Takes a free frame for reception at `queue`. Returns the address of its start in the UMEM.
    pub fn take(&mut self, queue: usize) -> Option<u64> {
        let frame = self.free.pop()?;
        let slot = &mut self.slots[frame as usize];
        (slot.place, slot.queue, slot.parts) = (Place::Filling, queue as u8, 0);
        self.counts.free -= 1;
        self.counts.filling += 1;
        Some(u64::from(frame) * u64::from(self.frame_bytes))
    }

    /// The kernel filled the frame at `address` with `len` bytes: now it is held.
    pub fn arrive(&mut self, address: u64, len: u32) -> Option<FrameId> {
        let (frame, offset) = self.at(address)?;
        if offset + len > self.frame_bytes || !self.is(frame, Place::Filling) {
            self.strays += 1;
            return None;
        }
        let slot = &mut self.slots[frame as usize];
        (slot.place, slot.offset, slot.len) = (Place::Held, offset as u16, len as u16);
        self.counts.filling -= 1;
        self.counts.held += 1;
        Some(FrameId(frame))
    }

    /// Appends the held frame `part` to the packet `head`, whose last frame is `last`. False if that
    /// has the maximum of frames.
    pub fn join(&mut self, head: FrameId, last: FrameId, part: FrameId) -> bool {
        let parts = self.slots[head.0 as usize].parts;
        if u32::from(parts) + 1 >= MAX_PARTS {
            return false;
        }
        self.slots[head.0 as usize].parts = parts + 1;
        self.slots[part.0 as usize].place = Place::Part;
        self.next[last.0 as usize] = part.0;
        true
    }

    /// The number of frames of a packet.
    pub fn parts(&self, head: FrameId) -> u32 {
        let slot = self.slots.get(head.0 as usize);
        slot.map_or(0, |slot| 1 + u32::from(slot.parts))
    }

    /// Address and bytes of each frame of a held packet.
    pub fn each(&self, head: FrameId) -> impl Iterator<Item = (u64, u32)> {
        let held = self.packet(head).map(|_| self.parts(head));
        let mut frame = head.0;
        (0..held.unwrap_or(0)).map(move |part| {
            if part > 0 {
                frame = self.next[frame as usize];
            }
            let slot = self.slots[frame as usize];
            let start = u64::from(frame) * u64::from(self.frame_bytes);
            (start + u64::from(slot.offset), u32::from(slot.len))
        })
    }

    /// Address and bytes of a held packet's first frame.
    pub fn packet(&self, frame: FrameId) -> Option<(u64, u32)> {
        let slot = self.slots.get(frame.0 as usize)?;
        let start = u64::from(frame.0) * u64::from(self.frame_bytes);
        (slot.place == Place::Held).then(|| (start + u64::from(slot.offset), u32::from(slot.len)))
    }

    /// Free to held, for a copy of a held packet: each frame of the same length and offset.
    pub fn copy(&mut self, of: FrameId) -> Option<FrameId> {
        let slot = *self.slots.get(of.0 as usize)?;
        if slot.place != Place::Held {
            self.strays += 1;
            return None;
        }
        let parts = self.parts(of);
        if self.counts.free < parts {
            return None;
        }
        let (mut from, mut last) = (of.0, NONE);
        let mut head = NONE;
        for _ in 0..parts {
            let frame = self.free.pop()?;
            self.slots[frame as usize] = self.slots[from as usize];
            match last {
                NONE => head = frame,
                last => self.next[last as usize] = frame,
            }
            (from, last) = (self.next[from as usize], frame);
        }
        self.counts.free -= parts;
        self.counts.held += parts;
        Some(FrameId(head))
    }

    /// Held becomes sending at `queue`, with all frames of the packet.
    pub fn send(&mut self, head: FrameId, queue: usize) -> bool {
        if !self.step(head.0, Place::Held, Place::Sending) {
            return false;
        }
        self.slots[head.0 as usize].queue = queue as u8;
        let parts = self.parts(head);
        self.counts.held -= parts;
        self.counts.sending += parts;
        let mut frame = head.0;
        for _ in 1..parts {
            frame = self.next[frame as usize];
            let slot = &mut self.slots[frame as usize];
            (slot.place, slot.queue) = (Place::Sending, queue as u8);
        }
        true
    }

    /// Held becomes free, for a dropped packet.
    pub fn drop(&mut self, head: FrameId) -> bool {
        if !self.step(head.0, Place::Held, Place::Free) {
            return false;
        }
        let parts = self.parts(head);
        self.counts.held -= parts;
        let mut frame = head.0;
        self.put_back(frame);
        for _ in 1..parts {
            frame = self.next[frame as usize];
            self.slots[frame as usize].place = Place::Free;
            self.put_back(frame);
        }
        true
    }

    /// The kernel sent the frame at `address`: now it is free.
    pub fn complete(&mut self, address: u64) -> bool {
        let Some((frame, _)) = self.at(address) else {
            return false;
        };
        if !self.step(frame, Place::Sending, Place::Free) {
            return false;
        }
        self.counts.sending -= 1;
        self.put_back(frame);
        true
    }

    /// Frees all frames of `queue` in the kernel, whose socket must be closed. Returns how many of
    /// them were for transmission. O(frames).
    pub fn take_back(&mut self, queue: usize) -> u32 {
        let mut unsent = 0;
        for frame in 0..self.slots.len() as u32 {
            let slot = &mut self.slots[frame as usize];
            let counted = match slot.place {
                Place::Filling => &mut self.counts.filling,
                Place::Sending => &mut self.counts.sending,
                Place::Free | Place::Held | Place::Part => continue,
            };
            if usize::from(slot.queue) != queue {
                continue;
            }
            *counted -= 1;
            unsent += u32::from(slot.place == Place::Sending);
            slot.place = Place::Free;
            self.put_back(frame);
        }
        unsent
    }

    fn put_back(&mut self, frame: u32) {
        self.counts.free += 1;
        self.free.push(frame);
    }

    /// The frame at this address, and the offset in it.
    fn at(&mut self, address: u64) -> Option<(u32, u32)> {
        let frame = address / u64::from(self.frame_bytes);
        if frame >= self.slots.len() as u64 {
            self.strays += 1;
            return None;
        }
        Some((frame as u32, (address % u64::from(self.frame_bytes)) as u32))
    }

    fn is(&self, frame: u32, place: Place) -> bool {
        self.slots
            .get(frame as usize)
            .is_some_and(|slot| slot.place == place)
    }

    fn step(&mut self, frame: u32, from: Place, to: Place) -> bool {
        if !self.is(frame, from) {
            self.strays += 1;
            return false;
        }
        self.slots[frame as usize].place = to;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u32 = 2048;

    fn counts(frames: &Frames) -> [u32; 4] {
        let c = frames.counts();
        assert_eq!(c.all(), frames.slots.len() as u32);
        [c.free, c.filling, c.held, c.sending]
    }

    #[test]
    fn frames_are_free_after_a_cycle() {
        let mut frames = Frames::new(3, BYTES);
        let address = frames.take(0).unwrap();
        assert_eq!(counts(&frames), [2, 1, 0, 0]);
        let frame = frames.arrive(address + 256, 60).unwrap();
        assert_eq!(frames.packet(frame), Some((address + 256, 60)));
        assert_eq!(counts(&frames), [2, 0, 1, 0]);
        assert!(frames.send(frame, 0));
        assert_eq!(frames.packet(frame), None, "the kernel reads it now");
        assert_eq!(counts(&frames), [2, 0, 0, 1]);
        assert!(frames.complete(address + 256));
        assert_eq!(counts(&frames), [3, 0, 0, 0]);
        assert_eq!(frames.strays, 0);
    }

    #[test]
    fn only_queued_packets_can_be_copied() {
        let mut frames = Frames::new(2, BYTES);
        let address = frames.take(0).unwrap();
        assert_eq!(frames.copy(FrameId(0)), None, "the kernel fills it");
        let frame = frames.arrive(address + 256, 60).unwrap();
        let copy = frames.copy(frame).unwrap();
        assert_ne!(frame, copy);
        let at = u64::from(copy.0) * u64::from(BYTES);
        assert_eq!(frames.packet(copy), Some((at + 256, 60)));
        assert_eq!(counts(&frames), [0, 0, 2, 0]);
        assert_eq!(frames.copy(frame), None, "no frame is free");
        assert!(frames.drop(frame) && frames.send(copy, 0));
        assert_eq!((counts(&frames), frames.strays), ([1, 0, 0, 1], 1));
    }

    /// A held packet of `parts` full frames.
    fn several(frames: &mut Frames, parts: u32) -> FrameId {
        let mut one = || {
            let address = frames.take(0).unwrap();
            frames.arrive(address + 256, BYTES - 256).unwrap()
        };
        let all: Vec<_> = (0..parts).map(|_| one()).collect();
        for pair in all.windows(2) {
            assert!(frames.join(all[0], pair[0], pair[1]));
        }
        all[0]
    }

    #[test]
    fn all_frames_of_a_packet_change_their_state() {
        let mut frames = Frames::new(7, BYTES);
        let head = several(&mut frames, 3);
        assert_eq!((counts(&frames), frames.parts(head)), ([4, 0, 3, 0], 3));
        let whole: Vec<_> = frames.each(head).collect();
        let at = |frame: u64| (frame * u64::from(BYTES) + 256, BYTES - 256);
        assert_eq!(whole, [at(0), at(1), at(2)]);
        assert!(!frames.send(FrameId(1), 0), "not its first frame");
        let copy = frames.copy(head).unwrap();
        assert_eq!(counts(&frames), [1, 0, 6, 0]);
        let copied: Vec<_> = frames.each(copy).collect();
        assert_eq!(copied, [at(3), at(4), at(5)]);
        assert_eq!(frames.copy(head), None, "one frame is free");
        assert!(frames.send(head, 0) && frames.drop(copy));
        assert_eq!(counts(&frames), [4, 0, 0, 3]);
        for (address, _) in whole {
            assert!(frames.complete(address));
        }
        assert_eq!((counts(&frames), frames.strays), ([7, 0, 0, 0], 1));
        let again = several(&mut frames, 1);
        assert_eq!(frames.parts(again), 1, "a frame forgets its last packet");
    }

    #[test]
    fn packets_have_a_maximum_of_frames() {
        let mut frames = Frames::new(MAX_PARTS + 1, BYTES);
        let head = several(&mut frames, MAX_PARTS);
        let last = FrameId(MAX_PARTS - 1);
        let address = frames.take(0).unwrap();
        let part = frames.arrive(address, 1).unwrap();
        assert!(!frames.join(head, last, part));
        assert!(frames.drop(part) && frames.drop(head));
        assert_eq!(counts(&frames), [MAX_PARTS + 1, 0, 0, 0]);
    }

    #[test]
    fn invalid_frame_steps_are_counted_without_effect() {
        let mut frames = Frames::new(2, BYTES);
        let address = frames.take(0).unwrap();
        assert!(!frames.send(FrameId(0), 0) && !frames.drop(FrameId(0)) && !frames.complete(0));
        assert_eq!(frames.arrive(address + 2000, 49), None, "beyond its end");
        assert_eq!(frames.arrive(1 << 40, 1), None);
        assert!(!frames.complete(u64::MAX) && !frames.send(FrameId(2), 0));
        assert_eq!(counts(&frames), [1, 1, 0, 0]);
        assert_eq!(frames.strays, 7);
        let frame = frames.arrive(address, 1).unwrap();
        assert!(frames.drop(frame));
        assert!(!frames.drop(frame), "only once");
        assert_eq!(counts(&frames), [2, 0, 0, 0]);
    }

    #[test]
    fn last_freed_frames_are_used_first() {
        let mut frames = Frames::new(4, BYTES);
        let first = frames.take(0).unwrap();
        frames.take(0).unwrap();
        let frame = frames.arrive(first, 1).unwrap();
        frames.drop(frame);
        assert_eq!(frames.take(0), Some(first));
    }

    #[test]
    fn only_frames_of_the_queue_are_reclaimed() {
        let mut frames = Frames::new(6, BYTES);
        let addresses = [0, 0, 1, 1, 1].map(|queue| frames.take(queue).unwrap());
        let held: Vec<_> = [1, 2, 3]
            .map(|i| frames.arrive(addresses[i], 60).unwrap())
            .into();
        assert!(frames.send(held[0], 1) && frames.send(held[1], 0));
        assert_eq!(counts(&frames), [1, 2, 1, 2]);
        assert_eq!(frames.take_back(1), 1, "one was to be sent there");
        assert_eq!(counts(&frames), [3, 1, 1, 1]);
        assert_eq!(frames.take_back(0), 1);
        assert_eq!(counts(&frames), [5, 0, 1, 0]);
        assert!(frames.packet(held[2]).is_some(), "held ones stay");
        assert_eq!(frames.strays, 0);
    }
}
