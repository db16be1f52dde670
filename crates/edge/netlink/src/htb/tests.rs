//! Trees in a throw-away namespace, on this kernel.

use std::collections::BTreeSet;
use std::time::Instant;

use super::*;
use crate::links::{Links, NewLink};
use crate::tc::{PlaceError, Tc};
use crate::testing::in_scratch_namespace;

fn class(minor: u16, parent: u16) -> HtbClass {
    HtbClass {
        minor,
        parent,
        rate_bps: 1_000_000,
        ceil_bps: 2_000_000,
        burst_bytes: 3000,
        cburst_bytes: 3000,
        quantum_bytes: 1514,
        prio: 0,
        leaf_bps: 2_000_000,
    }
}

fn tree(classes: &[HtbClass]) -> HtbTree {
    HtbTree {
        major: HTB_MAJOR,
        default: 9,
        classes: classes.to_vec(),
        leaves: Leaves::Best,
        limit_packets: 10_240,
        frame_bytes: 1514,
    }
}

#[test]
fn parents_come_before_children_in_any_order() {
    let tree = tree(&[class(9, 2), class(3, 2), class(2, 1), class(1, 0)]);
    assert_eq!(tree.check(), Ok(vec![3, 2, 0, 1]));
}

#[test]
fn invalid_htb_classes_are_refused() {
    let refused = |classes: &[HtbClass]| tree(classes).check().unwrap_err();
    assert_eq!(refused(&[class(0, 0)]), BadHtb::Minor(0));
    assert_eq!(refused(&[class(HTB_MAJOR, 0)]), BadHtb::Minor(HTB_MAJOR));
    assert_eq!(refused(&[class(9, 0), class(9, 0)]), BadHtb::Twice(9));
    let orphan = BadHtb::Parent {
        minor: 9,
        parent: 4,
    };
    assert_eq!(refused(&[class(9, 4)]), orphan);
    assert_eq!(refused(&[class(9, 8), class(8, 9)]), BadHtb::Depth(9));
    assert_eq!(refused(&[class(1, 0)]), BadHtb::Default(9));
    assert_eq!(refused(&[class(9, 0), class(1, 9)]), BadHtb::Default(9));
    let slow = HtbClass {
        ceil_bps: 999_999,
        ..class(9, 0)
    };
    assert!(matches!(refused(&[slow]), BadHtb::Rate { minor: 9, .. }));
    let chain: Vec<HtbClass> = (1..=9).map(|at| class(at, at - 1)).collect();
    assert_eq!(refused(&chain), BadHtb::Depth(9));
    assert!(
        tree(&[chain[..7].to_vec(), vec![class(9, 7)]].concat())
            .check()
            .is_ok()
    );
}

fn in_device(name: &str, test: impl FnOnce(&mut Htb, Device<'_>) + Send) {
    in_scratch_namespace(name, || {
        let mut links = Links::open().unwrap();
        let veth = NewLink::Veth {
            name: "h0",
            peer: "h1",
        };
        links.create(veth).unwrap();
        let ifindex = links.by_name("h0").unwrap().unwrap().ifindex;
        let device = Device {
            ifindex,
            name: "h0",
        };
        test(&mut Htb::open().unwrap(), device);
    });
}

/// Four levels: a line, `sites`, each with ten streets of ten or so houses; the default is 9.
fn large(houses: u16) -> HtbTree {
    let mut classes = vec![class(1, 0), class(9, 1)];
    let (mut next, mut site, mut street) = (100, 1, 1);
    for house in 0..houses {
        if house % 100 == 0 {
            site = next;
            classes.push(class(site, 1));
            next += 1;
        }
        if house % 10 == 0 {
            street = next;
            classes.push(class(street, site));
            next += 1;
        }
        next += u16::from(next == HTB_MAJOR);
        classes.push(class(next, street));
        next += 1;
    }
    tree(&classes)
}

fn numbers(htb: &mut Htb, device: Device<'_>) -> BTreeSet<(u16, u16, bool)> {
    let running = htb.running(device, HTB_MAJOR).unwrap().unwrap();
    running.classes().collect()
}

#[test]
fn ten_thousand_classes_are_created_and_unchanged() {
    let name = "ten_thousand_classes_are_created_and_unchanged";
    in_device(name, |htb, device| {
        let tree = large(10_000);
        let began = Instant::now();
        let applied = htb.apply(device, &tree, false).unwrap();
        let made = began.elapsed();
        let leaves = applied.leaves.clone().unwrap();
        assert_eq!(
            (applied.added, applied.handed_over),
            (tree.classes.len(), false)
        );
        let began = Instant::now();
        let stats = htb.stats(device, [HTB_MAJOR]).unwrap().remove(0).unwrap();
        let read = began.elapsed();
        assert_eq!(stats.classes.len(), tree.classes.len());
        assert_eq!(stats.classes.iter().filter(|c| c.leaf).count(), 10_001);
        let began = Instant::now();
        let again = htb.apply(device, &tree, false).unwrap();
        println!(
            "{} classes: made in {made:?}, read in {read:?}, compared in {:?}; leaves: {leaves}",
            tree.classes.len(),
            began.elapsed()
        );
        assert_eq!((again.added, again.changed), (0, 0));
        assert_eq!(
            (again.unchanged, again.handed_over),
            (tree.classes.len(), true)
        );
        assert_eq!((again.leaves, again.stale.len()), (None, 0));
    });
}

#[test]
fn only_differences_are_applied() {
    let name = "only_differences_are_applied";
    in_device(name, |htb, device| {
        let mut tree = large(300);
        htb.apply(device, &tree, false).unwrap();
        let removed = tree.classes.pop().unwrap();
        tree.classes[1].ceil_bps = 40_000_000_000;
        tree.classes[0].quantum_bytes += 500;
        let new = class(removed.minor + 1, removed.parent);
        tree.classes.push(new);
        let applied = htb.apply(device, &tree, false).unwrap();
        assert_eq!((applied.added, applied.changed), (1, 1));
        assert_eq!(applied.stale, vec![removed.minor]);
        assert!(
            htb.retire(device, HTB_MAJOR, &applied.stale, false)
                .unwrap()
                .is_empty()
        );
        let inner: BTreeSet<u16> = tree.classes.iter().map(|c| c.parent).collect();
        let each = |c: &HtbClass| (c.minor, c.parent, !inner.contains(&c.minor));
        assert_eq!(
            numbers(htb, device),
            tree.classes.iter().map(each).collect()
        );
        assert_eq!(htb.apply(device, &tree, false).unwrap().changed, 0);
    });
}

#[test]
fn classes_are_retired_from_the_leaves() {
    let name = "classes_are_retired_from_the_leaves";
    in_device(name, |htb, device| {
        htb.apply(device, &large(300), false).unwrap();
        let applied = htb.apply(device, &large(150), false).unwrap();
        assert_eq!(applied.stale.len(), 150 + 15 + 1);
        assert!(
            htb.retire(device, HTB_MAJOR, &applied.stale, false)
                .unwrap()
                .is_empty()
        );
        assert_eq!(numbers(htb, device).len(), large(150).classes.len());
    });
}

#[test]
fn htb_keeps_other_roots_unless_requested() {
    let name = "htb_keeps_other_roots_unless_requested";
    in_device(name, |htb, device| {
        let mut tc = Tc::open().unwrap();
        tc.add_root(device.ifindex, "tbf").unwrap();
        let refused = htb.apply(device, &large(1), false).unwrap_err().to_string();
        assert!(
            refused.contains("\"h0\"") && refused.contains("tbf 1:"),
            "{refused}"
        );
        assert!(!htb.remove(device, HTB_MAJOR).unwrap());
        assert!(tc.qdiscs().unwrap().iter().any(|q| q.kind == "tbf"));
        htb.apply(device, &large(1), true).unwrap();
        assert!(htb.remove(device, HTB_MAJOR).unwrap());
        let mut roots = tc.qdiscs().unwrap();
        roots.retain(|q| q.ifindex == device.ifindex && q.handle != 0);
        assert_eq!(roots, vec![], "the kernel's default returns");
        // An HTB of another program is not ours, either.
        tc.add_root(device.ifindex, "htb").unwrap();
        assert!(htb.apply(device, &large(1), false).is_err());
    });
}

#[test]
fn htb_refusals_name_class_and_cause() {
    let name = "htb_refusals_name_class_and_cause";
    in_device(name, |htb, device| {
        let mut tree = large(20);
        htb.apply(device, &tree, false).unwrap();
        let busy = htb
            .retire(device, HTB_MAJOR, &[1], true)
            .unwrap_err()
            .to_string();
        assert!(busy.contains("remove class fa1:1 of \"h0\""), "{busy}");
        tree.default = tree.classes[4].minor;
        assert!(matches!(
            htb.apply(device, &tree, false),
            Err(HtbError::Default { running: 9, .. })
        ));
        tree.default = 9;
        tree.classes.last_mut().unwrap().parent = 1;
        assert!(matches!(
            htb.apply(device, &tree, false),
            Err(HtbError::Moves { wanted: 1, .. })
        ));
    });
}

#[test]
fn requested_leaf_kinds_are_used_or_refused() {
    let name = "requested_leaf_kinds_are_used_or_refused";
    in_device(name, |htb, device| {
        for kind in [LeafKind::Cake, LeafKind::FqCodel, LeafKind::Fifo] {
            let tree = HtbTree {
                leaves: Leaves::Only(kind),
                ..large(20)
            };
            match htb.apply(device, &tree, false) {
                Ok(_) => {
                    let all = Tc::open().unwrap().qdiscs().unwrap();
                    let listed = all.iter().filter(|q| q.kind == kind.name()).count();
                    assert_eq!(listed, 21, "{kind}");
                    let running = htb.running(device, HTB_MAJOR).unwrap().unwrap();
                    assert_eq!(running.leaf_kind(9), Some(kind));
                }
                Err(HtbError::Class { source, what, .. }) => {
                    assert_eq!(
                        (source.errno(), what),
                        (Some(libc::ENOENT), "give a queue to")
                    );
                    println!("{kind}: this kernel has none");
                }
                Err(error) => panic!("{error}"),
            }
        }
    });
}

#[test]
fn limits_of_fifos_follow_ceilings_and_packets() {
    let name = "limits_of_fifos_follow_ceilings_and_packets";
    in_device(name, |htb, device| {
        let mut tree = HtbTree {
            leaves: Leaves::Only(LeafKind::Fifo),
            ..large(2)
        };
        let last = tree.classes.len() - 1;
        let minor = tree.classes[last].minor;
        let mut limit = |tree: &HtbTree| {
            htb.apply(device, tree, false).unwrap();
            let running = htb.running(device, HTB_MAJOR).unwrap().unwrap();
            running.leaves[&minor].limit
        };
        // 50 ms at 2 Mbit/s.
        assert_eq!(limit(&tree), 12_500);
        let class = &mut tree.classes[last];
        (class.ceil_bps, class.leaf_bps) = (20_000_000, 20_000_000);
        assert_eq!(limit(&tree), 125_000);
        tree.limit_packets = 40;
        assert_eq!(limit(&tree), 40 * 1514);
        assert_eq!(limit(&tree), 40 * 1514);
    });
}

#[test]
fn trees_of_queues_need_one_dump_each() {
    let name = "trees_of_queues_need_one_dump_each";
    in_device(name, |htb, device| {
        // A veth has as many queues as there are processors.
        match Tc::open().unwrap().split(device.ifindex, false) {
            Err(PlaceError::OneQueue { .. }) => return,
            queues => queues.unwrap(),
        };
        let major = |queue| htb_major(QdiscPlace::Queue(queue));
        let trees = [(0, 20), (1, 30)].map(|(queue, houses)| HtbTree {
            major: major(queue),
            ..large(houses)
        });
        for tree in &trees {
            htb.apply(device, tree, false).unwrap();
        }
        let before = htb.requests();
        let stats = htb.stats(device, (0..3).map(major)).unwrap();
        // Qdiscs of all trees at once, and classes of the two that run.
        assert_eq!(htb.requests() - before, 1 + 2);
        let classes = |stats: Option<HtbStats>| {
            let minors = stats?.classes.into_iter().map(|class| class.minor);
            Some(minors.collect::<BTreeSet<u16>>())
        };
        let wanted = |tree: &HtbTree| Some(tree.classes.iter().map(|c| c.minor).collect());
        let [first, second] = trees.each_ref().map(wanted);
        let found: Vec<_> = stats.into_iter().map(classes).collect();
        assert_eq!(found, [first, second, None]);
        let running = htb.running_at(device, (0..2).map(major)).unwrap();
        let leaves = running.iter().flatten().map(|tree| tree.leaves.len());
        assert_eq!(leaves.collect::<Vec<_>>(), [21, 31]);
    });
}
