//! A shaped direction: its tree, the rates that all CPUs share, and their meters.

use std::collections::HashSet;

use fairpath_core::sched::{Framing, Meta, NodeConfig, decode_rate};
use fairpath_sched::tree::Tree;
use fairpath_shape::{SharedRates, Side};

use super::meter::Meter;
use super::{PlanError, PlanSettings, PlanSubject};

/// Hosts that an instance of a plan distinguishes, at most.
const MAX_HOSTS: u32 = 64;
/// Flows that it distinguishes in addition to its senders.
const SPARE_FLOWS: u32 = 64;

/// Operations of a CPU on shared words.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Operations {
    /// Their number.
    pub count: u64,
    /// The time that they take, and for which they wait for other CPUs.
    pub ns: u64,
}

/// From a leaf to the root.
#[derive(Clone, Debug, Default)]
pub(super) struct Path {
    /// Places of meters.
    pub meters: Vec<u32>,
    /// Nodes with rates.
    pub rated: Vec<u32>,
}

/// A class with demand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Wanted {
    /// Its number.
    pub class_id: u32,
    /// Its leaf.
    pub leaf: u32,
    /// The rate that its demand is a part of, bits per second.
    pub bps: f64,
}

/// A direction.
#[derive(Debug)]
pub(super) struct Shaped {
    pub side: Side,
    pub tree: Tree,
    /// None: there is one CPU, whose tree has its rates.
    pub shared: Option<SharedRates>,
    pub meters: Vec<Meter>,
    paths: Vec<Path>,
    framing: Framing,
    packet_bytes: u32,
}

impl Shaped {
    /// The direction, before anything is allocated for its CPUs.
    pub fn new(tree: &Tree, side: Side, settings: &PlanSettings) -> Result<Shaped, PlanError> {
        if !tree.impairments.is_empty() {
            return Err(PlanError::Impaired);
        }
        let mut shaped = Shaped {
            side,
            framing: tree.plan.config.framing,
            tree: tree.clone(),
            shared: None,
            meters: Vec::new(),
            paths: Vec::new(),
            packet_bytes: settings.packet_bytes,
        };
        for (id, config) in (1..).zip(&tree.plan.nodes) {
            let name = match id {
                Tree::SHARED => "line",
                _ => tree.names.node(id),
            };
            let meter = Meter::new(side, id, name, config, settings.cpus);
            shaped.meters.extend(meter);
        }
        let mut ceilings = shaped.meters.iter().map(|meter| meter.findings.ceil_bps);
        if ceilings.all(|ceiling| ceiling.is_none()) {
            let direction = side.name();
            return Err(PlanError::NoRates { direction });
        }
        shaped.find_paths();
        Ok(shaped)
    }

    fn config(&self, node: u32) -> &NodeConfig {
        &self.tree.plan.nodes[node as usize - 1]
    }

    /// Nodes come after their parents.
    fn find_paths(&mut self) {
        let mut meter_of = vec![None; self.tree.plan.nodes.len() + 1];
        for (place, meter) in (0..).zip(&self.meters) {
            meter_of[meter.node as usize] = Some(place);
        }
        let mut paths = vec![Path::default()];
        for (node, config) in (1..).zip(&self.tree.plan.nodes) {
            let above: &Path = &paths[config.parent as usize];
            let mut path = Path::default();
            if let Some(place) = meter_of[node as usize] {
                path.meters.push(place);
                path.rated.push(node);
                let above = above.meters.first().map(|place| *place as usize);
                self.meters[place as usize].findings.above = above;
            }
            path.meters.extend(&above.meters);
            path.rated.extend(&above.rated);
            paths.push(path);
        }
        self.paths = paths;
    }

    /// The path of a leaf.
    pub fn path(&self, leaf: u32) -> &Path {
        &self.paths[leaf as usize]
    }

    /// Applies a function to the meters of a leaf and of the nodes above it.
    pub fn on_path(&mut self, leaf: u32, mut apply: impl FnMut(&mut Meter)) {
        for place in &self.paths[leaf as usize].meters {
            apply(&mut self.meters[*place as usize]);
        }
    }

    /// Operations of a CPU on the words above a leaf since they were counted (`counted`: by node). Each takes
    /// `each_ns`, and those on a word come one after the other.
    pub fn operate(
        &mut self,
        leaf: u32,
        (cpu, counted): (u32, &mut [u32]),
        now: u64,
        each_ns: u64,
        is_measured: bool,
    ) -> Operations {
        let mut all = Operations::default();
        let Some(shared) = &self.shared else {
            return all;
        };
        let path = &self.paths[leaf as usize];
        for (node, place) in path.rated.iter().zip(&path.meters) {
            let grants = shared.grants(*node, cpu);
            let counted = &mut counted[*node as usize];
            let count = u64::from(grants.wrapping_sub(*counted));
            *counted = grants;
            if count > 0 {
                let ns = count * each_ns;
                let meter = &mut self.meters[*place as usize];
                all.ns += ns + meter.use_word(now, ns, is_measured);
                all.count += count;
            }
        }
        all
    }

    /// Bytes of a generated packet: of its Ethernet frame.
    pub fn packet_bytes(&self) -> u32 {
        self.packet_bytes
    }

    /// The same on the link.
    pub fn generated_bytes(&self) -> u32 {
        self.framing.link_bytes(self.packet_bytes, 1)
    }

    /// Bytes of the meters.
    pub fn meter_bytes(&self) -> u64 {
        let meters = self.meters.iter();
        meters.map(|meter| meter.bytes()).sum()
    }

    /// Bytes of a packet on the link.
    pub fn link_bytes(&self, meta: &Meta) -> u32 {
        self.framing.link_bytes(meta.bytes, meta.segments.into())
    }

    /// The classes with demand: those without classes below, or all packets if there are no others. A class without a
    /// ceiling has its part of the nearest rate above.
    pub fn wanted(&self, subject: &PlanSubject<'_>) -> Vec<Wanted> {
        let mut classes: Vec<(u32, u32)> = Vec::new();
        for class_id in (1..self.tree.plan.class_table.len() as u32).chain([0]) {
            let is_rest = class_id == 0;
            if is_rest && !classes.is_empty() || self.has_classes_below(subject, class_id) {
                continue;
            }
            let meta = Meta {
                class_id,
                ..Meta::default()
            };
            classes.extend(self.tree.leaf(&meta).map(|leaf| (class_id, leaf)));
        }
        let mut leaves = HashSet::new();
        classes.retain(|(_, leaf)| leaves.insert(*leaf));
        self.rates_of(&classes)
    }

    fn has_classes_below(&self, subject: &PlanSubject<'_>, class_id: u32) -> bool {
        let at = (class_id as usize).wrapping_sub(1);
        let is_class = at < subject.classes.len();
        is_class && subject.classes.subtree(at).len() > 1
    }

    fn rates_of(&self, classes: &[(u32, u32)]) -> Vec<Wanted> {
        let rated = |leaf: u32| {
            let mut rated = self.path(leaf).rated.iter();
            rated.find(|node| self.config(**node).ceil != 0).copied()
        };
        let mut users = vec![0u32; self.tree.plan.nodes.len() + 1];
        for node in classes.iter().filter_map(|(_, leaf)| rated(*leaf)) {
            users[node as usize] += 1;
        }
        let wanted = classes.iter().filter_map(|(class_id, leaf)| {
            let node = rated(*leaf)?;
            let bps = decode_rate(self.config(node).ceil);
            Some(Wanted {
                class_id: *class_id,
                leaf: *leaf,
                bps: bps as f64 / f64::from(users[node as usize]),
            })
        });
        wanted.collect()
    }

    /// The tree of an instance for `handles` packets, and flows for its senders, or for all packets of a capture.
    pub fn tree_of(&self, handles: u32, senders: u32) -> Tree {
        let mut tree = self.tree.clone();
        let config = &mut tree.plan.config;
        config.limit_packets = handles;
        config.packets = handles;
        config.flows = config.flows.min(match senders {
            0 => handles,
            senders => 2 * senders + SPARE_FLOWS,
        });
        config.hosts = config.hosts.min(MAX_HOSTS);
        tree
    }

    /// Shares the rates among CPUs.
    pub fn share(&mut self, settings: &PlanSettings, largest: u32) -> Result<(), PlanError> {
        if settings.cpus == 1 {
            return Ok(());
        }
        let shared = SharedRates::new(&self.tree, settings.cpus, false)?;
        for meter in &mut self.meters {
            meter.findings.bound_bytes = shared.burst(meter.node, largest);
        }
        self.shared = Some(shared);
        Ok(())
    }
}
