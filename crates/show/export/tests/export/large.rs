//! A router with any number of classes, from a real history: its selection, order and sums.

use std::sync::{Arc, Mutex, OnceLock};

use fairpath_core::{Cell, ClassCounts, DOWN, INSIDE, UP, bucket_of};
use fairpath_export::SnapshotSource;
use fairpath_history::history::{History, Meta, Moment, NO_SLOT, Reading, RowSpec, Settings};
use fairpath_history::snapshot::{Detail, Query, Snapshot};

const SECOND: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
/// Classes of a site.
const SITE: u32 = 50;
/// Seconds of traffic.
const SECONDS: u64 = 24;

/// A history after some seconds of traffic.
pub struct Large(Mutex<History>);

/// 10,000 classes at `unix_ns`, built once for all tests.
pub fn large(unix_ns: u64) -> Arc<Large> {
    static LARGE: OnceLock<Arc<Large>> = OnceLock::new();
    Arc::clone(LARGE.get_or_init(|| Arc::new(Large::new(10_000, unix_ns))))
}

impl Large {
    /// `classes` below sites of [`SITE`] each. One class of 500 becomes slow, and another one loses
    /// packets.
    pub fn new(classes: u32, unix_ns: u64) -> Large {
        let mut now = Moment {
            unix_ns: unix_ns - SECONDS * SECOND,
            mono_ns: SECOND,
        };
        let mut history = History::new(Settings::default(), now);
        let mut rows = Vec::new();
        let (mut slots, mut site) = (Vec::new(), 0);
        for class in 0..classes {
            if class % SITE == 0 {
                site = rows.len();
                rows.push(RowSpec {
                    slot: NO_SLOT,
                    name: format!("Site {:03}", class / SITE + 1),
                    ..RowSpec::default()
                });
            }
            slots.push(class + 1);
            rows.push(RowSpec {
                slot: class + 1,
                name: format!("subscriber-{class:05}"),
                parent: Some(site),
                ceil_up_bps: Some(40_000_000),
                ceil_down_bps: Some(250_000_000),
                ..RowSpec::default()
            });
        }
        let mut counts = vec![ClassCounts::default(); classes as usize + 1];
        history.configure(rows, &counts).unwrap();
        for second in 0..SECONDS {
            let mut cells = Vec::new();
            for slot in &slots {
                let slow = slot % 500 == 7 && second >= SECONDS / 2;
                let lossy = slot % 500 == 9 && second >= SECONDS / 2;
                let rtt = if slow { 180 } else { 12 + u64::from(slot % 17) } * MS;
                let counts = &mut counts[*slot as usize];
                for (dir, bytes) in [(UP, 12_000), (DOWN, 140_000 + 90 * slot % 70_000)] {
                    counts.dir[dir].packets += 100;
                    counts.dir[dir].bytes += u64::from(bytes) * (second % 4 + 1);
                    counts.dir[dir].data_packets += 100;
                    counts.dir[dir].retransmitted_packets += if lossy { 6 } else { 0 };
                }
                counts.leg[INSIDE].samples += 10;
                counts.leg[INSIDE].sum_ns += 10 * rtt;
                cells.push(Cell {
                    slot: *slot,
                    leg: INSIDE as u8,
                    bucket: bucket_of(rtt),
                    count: 10,
                });
            }
            now.unix_ns += SECOND;
            now.mono_ns += SECOND;
            history.take(&Reading {
                unix_ns: now.unix_ns,
                mono_ns: now.mono_ns,
                counts: &counts,
                cells: &cells,
                pairs: &[],
            });
        }
        Large(Mutex::new(history))
    }
}

impl SnapshotSource for Large {
    fn snapshot(&self, query: &Query) -> Option<Snapshot> {
        let meta = Meta {
            host: "gw-large".to_owned(),
            version: "0.1.0".to_owned(),
            ..Meta::default()
        };
        Some(self.0.lock().unwrap().snapshot(query, meta))
    }

    fn detail(&self, class: &str, limit: usize) -> Option<Detail> {
        self.0.lock().unwrap().detail(class, limit)
    }
}
