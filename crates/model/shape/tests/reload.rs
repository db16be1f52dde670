//! Counts across reloads that change the shape of the tree: tins appear and disappear, a class gets a
//! child class and loses it, and a class is removed and returns.

use fairpath_class::{ClassSet, Drafts, Uplinks};
use fairpath_core::Rules;
use fairpath_core::sched::{End, Meta};
use fairpath_sched::impair::Spec;
use fairpath_sched::tree::{Diffserv, Tree};
use fairpath_shape::{Both, Figures, Leaving, Lines, Places, Settings, ShapeInstance, Successor};
use fairpath_statistics::Random;
use fairpath_units::test_seed;

const MS: u64 = 1_000_000;
const HANDLES: u32 = 200;

const TREES: [(&[&str], Diffserv); 7] = [
    (
        &["bob,,10.1.0.3/32", "anna,,10.1.0.2/32"],
        Diffserv::BestEffort,
    ),
    (
        &["bob,,10.1.0.3/32", "anna,,10.1.0.2/32"],
        Diffserv::Diffserv4,
    ),
    (
        &["bob,,10.1.0.3/32", "tv,bob,10.1.0.4/32"],
        Diffserv::BestEffort,
    ),
    (
        &["bob,,10.1.0.3/32", "tv,bob,10.1.0.4/32"],
        Diffserv::Diffserv3,
    ),
    // Its former child has no parent now.
    (
        &["bob,,10.1.0.3/32", "tv,,10.1.0.4/32"],
        Diffserv::BestEffort,
    ),
    (&["anna,,10.1.0.2/32"], Diffserv::Diffserv4),
    (&[], Diffserv::BestEffort),
];

fn class_set(rows: &[&str]) -> ClassSet {
    let mut drafts = Drafts::new();
    let csv = format!("name,parent,prefix\n{}\n", rows.join("\n"));
    drafts.read_file("classes.csv", csv.as_bytes());
    let outcome = ClassSet::build(drafts, Uplinks::Unknown);
    let problems = outcome.report.problems;
    outcome.set.unwrap_or_else(|| panic!("{problems:?}"))
}

fn tree((rows, diffserv): (&[&str], Diffserv), delay_ns: u64) -> (Tree, u32) {
    let mut settings = Settings {
        bps: Both {
            down: 8_000_000,
            up: 0,
        },
        diffserv,
        ..Settings::default()
    };
    settings.impair.all.down = (delay_ns > 0).then(|| Spec {
        delay_ns,
        ..Spec::default()
    });
    let set = class_set(rows);
    let classes = set.len() as u32;
    (Lines::new(&set, &settings).unwrap().trees.down, classes)
}

/// A link of 8 Mbit/s whose tree changes.
struct Reloads {
    instance: ShapeInstance,
    tree: Tree,
    classes: u32,
    delay_ns: u64,
    now: u64,
    free: Vec<u32>,
    offered: u64,
    sent: u64,
    dropped: u64,
    random: Random,
}

impl Reloads {
    fn new(random: Random, delay_ns: u64) -> Reloads {
        let (tree, classes) = tree(TREES[0], delay_ns);
        let rules = Rules::default();
        Reloads {
            instance: ShapeInstance::new(&tree, End::Receiver, &rules, HANDLES, false).unwrap(),
            tree,
            classes,
            delay_ns,
            now: 0,
            free: (1..=HANDLES).collect(),
            offered: 0,
            sent: 0,
            dropped: 0,
            random,
        }
    }

    fn settle(&mut self, leaving: &[Leaving]) {
        for one in leaving {
            let handle = match *one {
                Leaving::Send { handle, .. } => {
                    self.sent += 1;
                    handle
                }
                Leaving::Drop { handle, .. } => {
                    self.dropped += 1;
                    handle
                }
            };
            self.free.push(handle);
        }
    }

    /// Three packets in two milliseconds, of which two may leave.
    fn step(&mut self) {
        self.now += 2 * MS;
        for _ in 0..3 {
            let Some(handle) = self.free.pop() else { break };
            let meta = Meta {
                bytes: 1000,
                class_id: self.random.below(u64::from(self.classes) + 1) as u32,
                flow_hash: 1 + self.random.below(5) as u32,
                dscp: self.random.pick(&[0, 8, 34, 46]),
                ..Meta::default()
            };
            self.instance.arrive_as(handle, self.now, meta);
            self.offered += 1;
        }
        self.turn();
    }

    fn turn(&mut self) -> Option<u64> {
        let mut leaving = vec![];
        let next = self.instance.turn(self.now, 8, &mut leaving).unwrap();
        self.settle(&leaving);
        next
    }

    fn reload(&mut self) {
        let pick = self.random.below(TREES.len() as u64) as usize;
        let (next, classes) = tree(TREES[pick], self.delay_ns);
        let rules = Rules::default();
        let successor = Successor::new(&next, &self.tree, &rules, HANDLES, false).unwrap();
        let mut leaving = vec![];
        self.instance
            .replace(successor, self.now, &mut leaving)
            .unwrap();
        self.settle(&leaving);
        (self.tree, self.classes) = (next, classes);
    }

    fn figures(&self) -> Vec<Figures> {
        let reader = self.instance.reader();
        Places::of(&self.tree).read(|node| (reader.node_stats(node), reader.account(node)))
    }

    /// Every node has sent, dropped or queued all packets that came.
    fn check(&self) {
        self.instance.audit().unwrap();
        let figures = self.figures();
        for (at, one) in figures.iter().enumerate() {
            let left = [one.sent, one.dropped(), one.held];
            assert_eq!(one.arrived, left.iter().sum::<u64>(), "node {at}: {left:?}");
            assert_eq!(one.arrived * 1000, one.arrived_bytes, "node {at}");
            assert_eq!(one.sojourns.count(), one.sent, "node {at}");
        }
        let all = &figures[0];
        let expected = (self.offered, self.sent, self.dropped);
        assert_eq!((all.arrived, all.sent, all.dropped()), expected);
    }
}

#[test]
fn counts_balance_whatever_a_reload_changes() {
    println!("seed {}", test_seed());
    for round in 0..20 {
        let mut link = Reloads::new(Random::new(test_seed().wrapping_add(round)), 0);
        for _ in 0..30 {
            for _ in 0..20 {
                link.step();
                link.check();
            }
            link.reload();
            link.check();
        }
    }
}

#[test]
fn delayed_packets_count_once_across_reloads() {
    let mut link = Reloads::new(Random::new(test_seed()), 50 * MS);
    for _ in 0..30 {
        (0..20).for_each(|_| link.step());
        link.reload();
    }
    while let Some(next) = link.turn() {
        link.now = next;
    }
    link.check();
}
