//! User space's access to the rules and counts of classes.
//!
//! The kernel may count at the same time. Rules are written to the unused image and activated by
//! one store. Cells and pairs are swapped in the same way before they are read. In a live kernel,
//! the caller waits between a swap and the next use of the old half, until no running program uses
//! it any more (see [`Memory::set_rules`] and [`Memory::read_classes`]).

use std::net::{IpAddr, Ipv6Addr};

use crate::abi::{Counts, Key};
use crate::aggregate::{Cell, ClassCounts, Pair, PairKind, Prefix, Rules, bucket_middle};
use crate::ffi::{self, RawFilter, RawFlow, RawPair};
use crate::image::{self, TooManyRules};
use crate::memory::Memory;

/// Maximum of filters of one monitor (`FP_MAX_FILTERS`).
pub const MAX_FILTERS: usize = 32;
/// Cells, pairs or flows read in one call.
const BATCH: usize = 256;

/// The counts of all classes, and the cells and pairs since the last reading.
#[derive(Clone, Debug, Default)]
pub struct ClassReading {
    /// By slot; they only grow and wrap.
    pub counts: Vec<ClassCounts>,
    /// Unordered.
    pub cells: Vec<Cell>,
    /// Unordered.
    pub pairs: Vec<Pair>,
}

/// A flow of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowView {
    /// Its identity.
    pub key: Key,
    /// Slots of the classes of side 0 and 1.
    pub slots: [u32; 2],
    /// Time of its first packet, in the monitor's clock.
    pub opened: u64,
    /// Time of its last packet.
    pub last: u64,
    /// Minimum round-trip time towards side 0 and 1, nanoseconds; 0 without samples too.
    pub min: [u64; 2],
    /// Estimated median round-trip time towards side 0 and 1, nanoseconds; invalid without samples.
    ///
    /// Of the flow so far, or of its recent samples after a change: each sample moves it by at most
    /// one bucket of [`BUCKETS`](crate::BUCKETS), the first ones by more.
    pub p50: [u64; 2],
    /// Counts of packets from side 0 and 1.
    pub counts: [Counts; 2],
    /// It ended, and keeps its entry for late packets.
    pub closed: bool,
}

/// A filter of packets, by a prefix and a port of one of their ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Excludes packets that match; otherwise packets that match no such filter are excluded.
    pub except: bool,
    /// One end is in it; `None` matches all.
    pub prefix: Option<Prefix>,
    /// One TCP or UDP port equals it.
    pub port: Option<u16>,
}

impl Filter {
    fn raw(&self) -> RawFilter {
        const EXCEPT: u16 = 1;
        const PREFIX: u16 = 2;
        const PORT: u16 = 4;
        let mut raw = RawFilter::default();
        if self.except {
            raw.flags |= EXCEPT;
        }
        if let Some(prefix) = &self.prefix {
            (raw.addr, raw.mask) = image::masked(prefix);
            raw.flags |= PREFIX;
        }
        if let Some(port) = self.port {
            raw.port = port.to_be();
            raw.flags |= PORT;
        }
        raw
    }
}

fn pair_of(raw: &RawPair) -> Option<Pair> {
    let kind = match raw.kind_length & 0xff {
        1 => PairKind::Remote,
        2 => PairKind::Label,
        3 => PairKind::Talker,
        4 => PairKind::Unmatched,
        _ => return None,
    };
    let label = if kind == PairKind::Label {
        raw.addr[0] as u32
    } else {
        0
    };
    let (address, prefix_len) = if kind == PairKind::Label {
        (IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0)
    } else {
        image::address_of(raw.addr, (raw.kind_length >> 8) as u8)
    };
    Some(Pair {
        slot: raw.slot,
        kind,
        address,
        prefix_len,
        label,
        bytes_up: raw.bytes[0],
        bytes_down: raw.bytes[1],
        samples: raw.samples,
        max_rtt_us: raw.max_rtt_us,
        rtt_sum_ns: raw.rtt_sum_ns,
        lost_packets: raw.lost_packets,
    })
}

fn cell_of(key_count: u64) -> Cell {
    let key = (key_count >> 32) as u32 - 1;
    Cell {
        slot: key >> 11,
        leg: (key >> 10 & 1) as u8,
        bucket: (key & 0x3ff) as u16,
        count: key_count as u32,
    }
}

impl Memory {
    /// Activates rules by one store: every packet uses either the old or the new ones.
    ///
    /// `begun` are slots with a new owner: their counts start at zero. No rule may have led to them
    /// before this call. In a live kernel, wait until no running program uses the old rules before
    /// the next call.
    ///
    /// # Errors
    /// [`TooManyRules`]; then the old rules stay active and no slot is reset.
    ///
    /// # Panics
    /// If the monitor has no slots ([`crate::Config::with_classes`]).
    pub fn set_rules(&mut self, rules: &Rules, begun: &[u32]) -> Result<(), TooManyRules> {
        assert!(
            self.config.slots > 0,
            "a monitor without slots has no rules"
        );
        let generation = self.generation.wrapping_add(1).max(1);
        let image = image::build(rules, generation, self.config.image_bytes as usize)?;
        self.generation = generation;
        let used = &mut self.image_bytes[generation as usize % 2];
        *used = (*used).max(image.len() as u64);
        for slot in begun {
            // SAFETY: `rtt` is formatted; the core treats an invalid slot as OTHER.
            unsafe { ffi::fp_native_begin_slot(self.rtt.as_ptr(), *slot, generation) };
        }
        // SAFETY: `rtt` is formatted with slots, so there is space for two images.
        let free = unsafe { ffi::fp_native_free_image(self.rtt.as_ptr()) };
        // SAFETY: build() stays within image_bytes; no packet uses this image.
        unsafe { std::ptr::copy_nonoverlapping(image.as_ptr(), free, image.len()) };
        // SAFETY: `rtt` is formatted.
        unsafe { ffi::fp_native_turn_image(self.rtt.as_ptr()) };
        Ok(())
    }

    /// The active image of rules, 0 or 1; [`Memory::set_rules`] fills the other.
    pub fn rules_image(&self) -> usize {
        // SAFETY: `rtt` is formatted; only this process changes the image.
        unsafe { ffi::fp_native_image(self.rtt.as_ptr()) as usize }
    }

    /// Bytes that rules have used so far, of both images.
    pub fn image_bytes(&self) -> u64 {
        self.image_bytes.iter().sum()
    }

    /// Sets the filters. False if there are more than [`MAX_FILTERS`], of which the first are used.
    pub fn set_filters(&mut self, filters: &[Filter]) -> bool {
        let raw: Vec<RawFilter> = filters.iter().map(Filter::raw).collect();
        // SAFETY: `rtt` is formatted, `raw` has that many filters.
        unsafe { ffi::fp_native_filters(self.rtt.as_ptr(), raw.as_ptr(), raw.len() as u32) };
        raw.len() <= MAX_FILTERS
    }

    /// Measures only packets with an end in a class of `only` (all packets if it is empty), and
    /// none with an end in a class of `except`. Replaces earlier calls. Repeat it when
    /// [`Memory::set_rules`] begins slots among them.
    pub fn filter_classes(&mut self, only: &[u32], except: &[u32]) {
        const ONLY: u32 = 1;
        const EXCEPT: u32 = 2;
        let mut some = 0;
        for slot in 0..self.config.slots {
            // SAFETY: `rtt` is formatted; only this process writes flags of classes.
            unsafe { ffi::fp_native_filter_class(self.rtt.as_ptr(), slot, 0) };
        }
        for (slots, flag) in [(only, ONLY), (except, EXCEPT)] {
            for slot in slots {
                let flags = if flag == EXCEPT && only.contains(slot) {
                    ONLY | EXCEPT
                } else {
                    flag
                };
                // SAFETY: as above; the core treats an invalid slot as OTHER.
                unsafe { ffi::fp_native_filter_class(self.rtt.as_ptr(), *slot, flags) };
                some |= flag;
            }
        }
        // SAFETY: `rtt` is formatted.
        unsafe { ffi::fp_native_filter_classes(self.rtt.as_ptr(), some) };
    }

    /// Counts packets of a monitored interface in a separate slot. False if it is not monitored.
    pub fn count_interface(&mut self, ifindex: u32, slot: u32) -> bool {
        // SAFETY: `rtt` is formatted; only this process writes the table of monitored interfaces.
        unsafe { ffi::fp_native_count_interface(self.rtt.as_ptr(), ifindex, slot) == 0 }
    }

    /// Switches cells and pairs to the other half. In a live kernel, wait until no running program
    /// uses the old half; then call [`Memory::read_classes`] with the result.
    pub fn turn_reading(&mut self) -> u32 {
        // SAFETY: `rtt` is formatted.
        unsafe { ffi::fp_native_turn_reading(self.rtt.as_ptr()) }
    }

    /// Reads the counts, and empties a half that is not in use.
    pub fn read_classes(&mut self, half: u32, into: &mut ClassReading) {
        into.counts
            .resize(self.config.slots as usize, ClassCounts::default());
        // SAFETY: `counts` has `slots` elements.
        unsafe { ffi::fp_native_counts(self.rtt.as_ptr(), into.counts.as_mut_ptr()) };
        into.cells.clear();
        into.pairs.clear();
        if self.config.slots > 0 {
            self.read_cells(half, into);
            self.read_pairs(half, into);
        }
    }

    fn read_cells(&mut self, half: u32, into: &mut ClassReading) {
        let mut batch = [0; BATCH];
        let mut at = 0;
        loop {
            // SAFETY: `batch` has that much memory; the half is not in use.
            let used = unsafe {
                ffi::fp_native_cells(
                    self.rtt.as_ptr(),
                    half,
                    &raw mut at,
                    batch.as_mut_ptr(),
                    BATCH as u32,
                )
            };
            if used == 0 {
                break;
            }
            into.cells
                .extend(batch[..used as usize].iter().copied().map(cell_of));
        }
    }

    fn read_pairs(&mut self, half: u32, into: &mut ClassReading) {
        let mut batch = [RawPair::default(); BATCH];
        let mut at = 0;
        loop {
            // SAFETY: `batch` has that much memory; the half is not in use.
            let used = unsafe {
                ffi::fp_native_pairs(
                    self.rtt.as_ptr(),
                    half,
                    &raw mut at,
                    batch.as_mut_ptr(),
                    BATCH as u32,
                )
            };
            if used == 0 {
                break;
            }
            into.pairs
                .extend(batch[..used as usize].iter().filter_map(pair_of));
        }
    }

    /// Slot for [`Memory::flows`] of all classes.
    pub const ALL_SLOTS: u32 = u32::MAX;

    /// Flows with an end in the class of a slot, at most `limit`, sorted by bytes. Walks through
    /// the whole flow table: for interactive queries, not for loops.
    pub fn flows(&self, slot: u32, limit: usize) -> Vec<FlowView> {
        let mut flows = Vec::new();
        let mut batch = [RawFlow::default(); BATCH];
        let mut at = 0;
        while self.config.slots > 0 && at < self.config.flow_sets {
            // SAFETY: `batch` has that much memory; the kernel writes only counters at the same
            // time.
            let used = unsafe {
                ffi::fp_native_flows(
                    self.rtt.as_ptr(),
                    slot,
                    &raw mut at,
                    batch.as_mut_ptr(),
                    BATCH as u32,
                )
            };
            flows.extend(batch[..used as usize].iter().map(view_of));
            keep_busiest(&mut flows, limit.saturating_mul(2));
        }
        keep_busiest(&mut flows, limit);
        flows
    }
}

fn view_of(raw: &RawFlow) -> FlowView {
    FlowView {
        key: raw.key,
        slots: raw.slot,
        opened: raw.opened,
        last: raw.last,
        min: raw.min,
        p50: raw.p50.map(bucket_middle),
        counts: raw.counts,
        closed: raw.closed != 0,
    }
}

fn keep_busiest(flows: &mut Vec<FlowView>, limit: usize) {
    flows.sort_by_key(|f| std::cmp::Reverse(f.counts[0].bytes + f.counts[1].bytes));
    flows.truncate(limit);
}

#[cfg(test)]
mod tests {
    use crate::abi::Config;

    /// A CPU costs 96 bytes a class.
    #[test]
    fn class_counts_are_limited_by_classes_and_cpus() {
        let one = Config::default().with_classes(16_000);
        let many = Config {
            cpus: 64,
            ..Config::default().with_classes(10_000)
        };
        assert!(one.slots > 16_000 && many.slots > 10_000);
        assert!(one.class_bytes() <= 8 << 20, "{}", one.class_bytes());
        let of_cpus = many.class_bytes() - Config { cpus: 0, ..many }.class_bytes();
        assert!(of_cpus <= 64 << 20, "{of_cpus}");
        // Nothing else in the layout grows with classes, except the rules.
        for config in [one, many] {
            let all = |config: &Config| crate::Memory::bytes(config) - 2 * config.image_bytes;
            let without = Config {
                slots: 0,
                image_bytes: 0,
                ..config
            };
            assert!(all(&config) - all(&without) <= config.class_bytes() + 4096);
        }
    }
}
