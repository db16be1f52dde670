//! Snapshots and details of the history.

use std::collections::{BTreeMap, HashMap, HashSet};

use fairpath_core::{DOWN, INSIDE, OUTSIDE, UP};

use super::account::Account;
use super::alerts::WATCHED;
use super::interval::rate_bps;
use super::pad::Sums;
use super::peers;
use super::tally::Tally;
use super::{History, Node};
use crate::Histogram;
use crate::snapshot::{
    AlertKind, Detail, Kind, Leg, Load, Query, SNAPSHOT_SCHEMA, Snapshot, SnapshotRow, Sort,
    Totals, Volume,
};

/// Parts of a snapshot that come from the daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// Version of this program.
    pub version: String,
    /// Name of the router.
    pub host: String,
    /// Counters of the packet path and the daemon. The history adds its own (`history_...`).
    pub counters: BTreeMap<String, u64>,
}

/// Optional parts of each row.
#[derive(Clone, Copy)]
struct Parts {
    histograms: bool,
    history: bool,
}

impl History {
    /// The snapshot with the rows that `query` selects.
    ///
    /// O(rows), plus sorting. Percentiles are computed for the returned rows, and for all matching rows
    /// if they determine the order. `under` selects the first class of that name in tree order. Rows
    /// without the sort value are last, and equal rows keep their tree order.
    pub fn snapshot(&self, query: &Query, meta: Meta) -> Snapshot {
        self.snapshot_with(query, meta, &|_, _| false)
    }

    /// As [`History::snapshot`]. `found` returns true for rows that `query.search` selects for another
    /// reason than their name.
    pub fn snapshot_with(
        &self,
        query: &Query,
        meta: Meta,
        found: &dyn Fn(Kind, &str) -> bool,
    ) -> Snapshot {
        let parts = Parts {
            histograms: query.histograms,
            history: query.history,
        };
        let rows = self.select(query, found);
        let (rows_selected, skipped) = (rows.len() as u64, query.offset.min(rows.len()));
        let limit = if query.limit > 0 {
            query.limit
        } else {
            rows.len()
        };
        let shown = rows.into_iter().skip(skipped).take(limit);
        let (affected, affected_total) = match query.affected {
            0 => (Vec::new(), 0),
            limit => self.affected(limit),
        };
        let mut sums = Sums::default();
        Snapshot {
            rows_selected,
            affected,
            affected_total,
            past_alerts: match query.past_alerts {
                true => self.past_alerts.iter().cloned().collect(),
                false => Vec::new(),
            },
            total: query
                .total_after_unix_ns
                .map(|after| self.total.show(after, &self.day_clock)),
            rows: shown.map(|row| self.row(row, parts, &mut sums)).collect(),
            alerts: match query.alerts {
                true => self.reported_alerts(),
                false => Vec::new(),
            },
            ..self.summary(meta)
        }
    }

    /// The snapshot without rows, with the reported alerts.
    pub fn status(&self, meta: Meta) -> Snapshot {
        Snapshot {
            alerts: self.reported_alerts(),
            ..self.summary(meta)
        }
    }

    /// The snapshot without rows and alerts.
    fn summary(&self, meta: Meta) -> Snapshot {
        let clock = &self.clock;
        let unix_ns = clock.last.unix_ns;
        let time = jiff::Timestamp::from_nanosecond(i128::from(unix_ns)).unwrap_or_default();
        let mut counters = meta.counters;
        counters.extend(self.counters().map(|(name, n)| (name.to_owned(), n)));
        Snapshot {
            schema: SNAPSHOT_SCHEMA,
            time: time.to_string(),
            unix_ns,
            version: meta.version,
            host: meta.host,
            up_ns: clock.t - clock.start_t,
            counting_since_unix_ns: self.counting_since_unix_ns,
            gap_ns: self.gap_ns,
            interval_ns: self.interval.dt_ns,
            window_ns: clock.window_ns(),
            configuration: self.configuration,
            rows_total: self.nodes.len() as u64,
            counters,
            gauges: self
                .gauges()
                .map(|(name, n)| (name.to_owned(), n))
                .collect(),
            ..Snapshot::default()
        }
    }

    /// Counters of the history, by name.
    pub fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let c = &self.counters;
        [
            ("history_cells_without_row", c.cells_without_row),
            ("history_pairs_without_row", c.pairs_without_row),
            ("history_counters_reset", c.counters_reset),
            ("history_day_rows_evicted", c.days_evicted),
            ("history_day_rows_refused", c.days_refused),
            ("history_parked_dropped", c.parked_dropped),
            ("history_peers_refused", self.places.refused),
            ("history_unmatched_dropped", self.unmatched.dropped),
        ]
        .into_iter()
    }

    /// Current sizes, by name. They may decrease, which counters never do.
    pub fn gauges(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        [
            ("history_alerts_active", self.active_alerts.total() as u64),
            ("history_alerts_waiting", self.alerts_waiting),
            ("history_parked", self.parked.len() as u64),
            ("history_peers", self.places.used as u64),
        ]
        .into_iter()
    }

    /// The details of a class, without its open flows, which the caller adds.
    ///
    /// Each list of peers has at most `limit` entries and includes the classes below. If rows of several
    /// kinds have the name, a class is preferred to a subnet, and a subnet to an interface.
    pub fn detail(&self, class: &str, limit: usize) -> Option<Detail> {
        let named = self.nodes.iter().enumerate();
        let named = named.filter(|(_, node)| node.place.spec.name == class);
        let (at, node) = named.min_by_key(|(_, node)| node.place.spec.kind)?;
        let parts = Parts {
            histograms: true,
            history: true,
        };
        let below = self.nodes[at..node.place.end].iter();
        let lists: Vec<&peers::Peers> = below
            .filter_map(|node| node.account.peers.as_deref())
            .collect();
        let shown = peers::show(&lists, self.clock.t, limit, &self.labels);
        let mut sums = Sums::default();
        Some(Detail {
            row: self.row(at, parts, &mut sums),
            worst_remotes: shown.worst,
            busiest_remotes: shown.busiest,
            busiest_hosts: shown.hosts,
            flows: Vec::new(),
            day: node.account.day_points(&self.day_clock, &mut sums),
            recent: node
                .account
                .window
                .as_ref()
                .map_or_else(Vec::new, |window| {
                    let (first, last) = (node.account.first_interval, self.clock.interval);
                    window.recent(first, last, self.interval.unix_ns, self.interval.dt_ns)
                }),
            configured: None,
        })
    }

    /// All rows that a query selects, in its order.
    fn select(&self, query: &Query, found: &dyn Fn(Kind, &str) -> bool) -> Vec<usize> {
        let range = match &query.under {
            None => 0..self.nodes.len(),
            Some(name) => {
                let at = self.nodes.iter().position(|n| n.place.spec.name == *name);
                at.map_or(0..0, |at| at..self.nodes[at].place.end)
            }
        };
        let [filter, search] = [&query.filter, &query.search]
            .map(|text| text.as_ref().map(|text| text.to_lowercase()));
        let mut rows: Vec<usize> = self
            .unfolded(range, query)
            .into_iter()
            .filter(|row| {
                let node = &self.nodes[*row];
                let spec = &node.place.spec;
                matches(node, query, filter.as_deref())
                    && (matches(node, query, search.as_deref()) || found(spec.kind, &spec.name))
            })
            .collect();
        match query.by_parent && query.sort != Sort::Tree {
            true => self.sort_by_parent(rows, query.sort),
            false => {
                self.sort(&mut rows, query.sort);
                rows
            }
        }
    }

    /// The rows of a range, without those below folded rows.
    fn unfolded(&self, range: std::ops::Range<usize>, query: &Query) -> Vec<usize> {
        if query.folded_from_depth.is_none() && query.fold_except.is_empty() {
            return range.collect();
        }
        let except: HashSet<&str> = query.fold_except.iter().map(String::as_str).collect();
        let from = query.folded_from_depth.unwrap_or(u32::MAX);
        let (mut rows, mut at) = (Vec::new(), range.start);
        while at < range.end {
            let place = &self.nodes[at].place;
            rows.push(at);
            let folded = (place.depth >= from) != except.contains(place.spec.name.as_str());
            at = if folded { place.end } else { at + 1 };
        }
        rows
    }

    /// Sorts siblings, and lets the rows of `rows` below each follow it. O(rows * depth), plus sorting.
    fn sort_by_parent(&self, rows: Vec<usize>, sort: Sort) -> Vec<usize> {
        let selected: HashSet<usize> = rows.iter().copied().collect();
        let above = |row: &usize| self.nodes[*row].place.spec.parent;
        let mut below: HashMap<Option<usize>, Vec<usize>> = HashMap::new();
        for row in rows {
            let mut parents = std::iter::successors(above(&row), above);
            let parent = parents.find(|parent| selected.contains(parent));
            below.entry(parent).or_default().push(row);
        }
        for siblings in below.values_mut() {
            self.sort(siblings, sort);
            siblings.reverse();
        }
        let mut waiting = below.remove(&None).unwrap_or_default();
        let mut sorted = Vec::with_capacity(selected.len());
        while let Some(row) = waiting.pop() {
            sorted.push(row);
            waiting.extend(below.remove(&Some(row)).unwrap_or_default());
        }
        sorted
    }

    fn sort(&self, rows: &mut [usize], sort: Sort) {
        match sort {
            Sort::Tree => {}
            Sort::Name => {
                rows.sort_by(|a, b| {
                    self.nodes[*a]
                        .place
                        .spec
                        .name
                        .cmp(&self.nodes[*b].place.spec.name)
                });
            }
            _ => {
                let mut sums = Sums::default();
                // Measured values are at least 0.
                rows.sort_by_cached_key(|row| {
                    let value = self.sort_value(*row, sort, &mut sums).unwrap_or(-1.0);
                    std::cmp::Reverse(Ordered(value))
                });
            }
        }
    }

    fn sort_value(&self, row: usize, sort: Sort, sums: &mut Sums) -> Option<f64> {
        let node = &self.nodes[row];
        let mut p95 = |leg: usize| {
            self.add_up(node, sums);
            sums.quantile(leg, 0.95).map(|ns| ns as f64)
        };
        match sort {
            Sort::Tree | Sort::Name => None,
            Sort::Rate => Some(self.window(node).bytes() as f64),
            Sort::InsideP95 => p95(INSIDE),
            Sort::OutsideP95 => p95(OUTSIDE),
            Sort::Growth => self.load(node).rtt_growth_ns.map(|ns| ns as f64),
            Sort::Loss => largest_loss(&self.window(node)),
            Sort::Flows => Some(node.account.totals.flows().open() as f64),
        }
    }

    fn window(&self, node: &Node) -> Tally {
        let window = node.account.window.as_ref();
        let sum = window.map(|window| window.sum(self.clock.oldest()));
        sum.unwrap_or_default()
    }

    /// Adds up the window of a row in `sums`.
    fn add_up(&self, node: &Node, sums: &mut Sums) {
        sums.clear();
        if let Some(window) = &node.account.window {
            window.add_up(self.clock.oldest(), sums);
        }
    }

    fn load(&self, node: &Node) -> Load {
        let learnt = node.account.learnt.as_ref();
        learnt
            .map(|learnt| learnt.load.load(self.clock.t))
            .unwrap_or_default()
    }

    fn row(&self, row: usize, parts: Parts, sums: &mut Sums) -> SnapshotRow {
        let node = &self.nodes[row];
        let (spec, account) = (&node.place.spec, &node.account);
        let window = self.window(node);
        self.add_up(node, sums);
        let [mut inside, mut outside] =
            [INSIDE, OUTSIDE].map(|leg| leg_of(account, &window, sums, leg));
        if parts.histograms {
            [inside.total.histogram, outside.total.histogram] = account.spread(sums);
        }
        SnapshotRow {
            name: spec.name.clone(),
            kind: spec.kind,
            parent: self.parent_name(row).map(str::to_owned),
            depth: node.place.depth,
            children: node.place.children,
            ceil_up_bps: spec.ceil_up_bps,
            ceil_down_bps: spec.ceil_down_bps,
            up: self.volume(node, &window, UP),
            down: self.volume(node, &window, DOWN),
            inside,
            outside,
            load: self.load(node),
            flows: account.totals.flows(),
            history: match &account.window {
                Some(window) if parts.history => {
                    window.history(account.first_interval, self.clock.interval)
                }
                _ => Vec::new(),
            },
            alerts: alerts(node),
            up_queue: None,
            down_queue: None,
        }
    }

    fn volume(&self, node: &Node, window: &Tally, dir: usize) -> Volume {
        let (total, now) = (&node.account.totals.dir[dir], &window.dir[dir]);
        let window_ns = self.clock.window_ns();
        let unmeasured = now.unmeasured_bytes as f64 / now.bytes as f64;
        Volume {
            bytes: total.bytes,
            packets: total.packets,
            rate_bps: rate_bps(now.bytes, window_ns),
            rate_pps: rate_bps(now.packets, window_ns) / 8.0,
            unmeasured_ratio: (now.bytes > 0).then(|| unmeasured.min(1.0)),
        }
    }
}

fn matches(node: &Node, query: &Query, filter: Option<&str>) -> bool {
    let spec = &node.place.spec;
    query.kind.is_none_or(|kind| kind == spec.kind)
        && query.depth.is_none_or(|depth| node.place.depth <= depth)
        && filter.is_none_or(|filter| spec.name.to_lowercase().contains(filter))
}

fn largest_loss(window: &Tally) -> Option<f64> {
    let legs = [INSIDE, OUTSIDE].map(|leg| window.loss(leg));
    let shares = legs.into_iter().flat_map(|loss| [loss.to, loss.from]);
    shares
        .filter_map(|share| share.value())
        .max_by(f64::total_cmp)
}

/// A leg, without the distribution of its totals.
fn leg_of(account: &Account, window: &Tally, sums: &Sums, leg: usize) -> Leg {
    let (now, total) = (window.loss(leg), account.totals.loss(leg).both());
    let rtts = &account.totals.leg[leg];
    Leg {
        samples: window.leg[leg].samples,
        min_rtt_ns: sums.quantile(leg, 0.0),
        p50_rtt_ns: sums.quantile(leg, 0.5),
        p95_rtt_ns: sums.quantile(leg, 0.95),
        p99_rtt_ns: sums.quantile(leg, 0.99),
        loss_to_ratio: now.to.value(),
        loss_from_ratio: now.from.value(),
        lost_packets: total.lost,
        data_packets: total.of,
        reordered_packets: account.totals.reordered(leg),
        total: Totals {
            samples: rtts.samples,
            sum_ns: rtts.sum_ns,
            unbinned: rtts.unbinned,
            histogram: Histogram::default(),
        },
    }
}

/// The kinds of active alerts, without duplicates.
fn alerts(node: &Node) -> Vec<AlertKind> {
    let active = WATCHED
        .iter()
        .zip(node.account.holds())
        .filter(|(_, hold)| hold.active);
    let mut seen = HashSet::new();
    active
        .map(|((kind, _), _)| *kind)
        .filter(|kind| seen.insert(*kind))
        .collect()
}

/// A float with a total order.
#[derive(PartialEq)]
struct Ordered(f64);

impl Eq for Ordered {}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Ordered) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ordered {
    fn cmp(&self, other: &Ordered) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}
