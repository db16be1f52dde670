//! From a configuration's classes to classes of the kernel, twice.

use std::collections::HashMap;
use std::fmt::Write;

use fairpath_class::{ClassSet, Drafts, Uplinks};
use fairpath_core::sched::End;
use fairpath_netlink::HTB_MAJOR;
use fairpath_shape::htb::{HtbPlan, htb_plan};
use fairpath_shape::{Both, Lines, Settings};
use fairpath_testbed::{Need, Offloads, requires};
use fairpath_tests::htb::{FRAME, Shaped, tree_of};

use super::site::Site;

/// Streets of twenty subscribers, on sites of ten streets; `first` is the first subscriber.
fn plan(first: u32, running: &HashMap<u16, (u16, bool)>) -> HtbPlan {
    let mut rows = "name,parent,prefix,down,down_floor\n".to_owned();
    for site in 0..5 {
        writeln!(rows, "site {site},,172.16.{site}.0/24,400mbit,").unwrap();
        for street in site * 10..site * 10 + 10 {
            writeln!(
                rows,
                "street {street},site {site},172.17.{street}.0/24,100mbit,"
            )
            .unwrap();
        }
    }
    for n in first..first + 1000 {
        let (street, high, low) = (n / 20 % 50, n / 250, n % 250);
        writeln!(
            rows,
            "sub {n},street {street},10.20.{high}.{low}/32,50mbit,1mbit"
        )
        .unwrap();
    }
    let mut drafts = Drafts::new();
    drafts.read_file("classes.csv", rows.as_bytes());
    let set = ClassSet::build(drafts, Uplinks::Unknown).set.unwrap();
    let settings = Settings {
        bps: Both {
            down: 1_000_000_000,
            up: 1_000_000_000,
        },
        ..Settings::default()
    };
    let tree = Lines::new(&set, &settings).unwrap().trees.down;
    htb_plan(&tree, FRAME, HTB_MAJOR..HTB_MAJOR + 1, |minor| {
        running.get(&minor).copied()
    })
    .unwrap()
}

fn running(shaped: &mut Shaped) -> HashMap<u16, (u16, bool)> {
    let mut htb = fairpath_netlink::Htb::open().unwrap();
    let running = htb.running(shaped.device(), HTB_MAJOR).unwrap().unwrap();
    running
        .classes()
        .map(|(minor, parent, leaf)| (minor, (parent, leaf)))
        .collect()
}

#[test]
fn a_reload_changes_only_differences() {
    requires!(Need::Root, Need::Tool("ethtool"));
    let site = Site::new(Offloads::Off);
    let run = || {
        let mut shaped = Shaped::open("lan", 1, End::Receiver).unwrap();
        let first = plan(0, &HashMap::new());
        let classes = first.classes.len();
        assert_eq!(shaped.apply(&tree_of(&first)).unwrap().added, classes);
        // As the next process sees it: it knows nothing but what runs.
        let there = running(&mut shaped);
        let again = shaped.apply(&tree_of(&plan(0, &there))).unwrap();
        assert_eq!((again.added, again.changed, again.stale.len()), (0, 0, 0));
        // 10 % of the subscribers are removed, and another 10 % added.
        let next = shaped.apply(&tree_of(&plan(100, &there))).unwrap();
        assert!(shaped.retire(&next.stale).unwrap().is_empty());
        println!(
            "{} added, {} changed, {} gone",
            next.added,
            next.changed,
            next.stale.len()
        );
        assert!(
            next.added <= 110 && next.stale.len() == next.added,
            "{next:?}"
        );
        assert_eq!(next.unchanged + next.changed + next.added, classes);
        assert_eq!(next.changed, 0, "no other class changes");
    };
    site.net.router.enter(run).unwrap();
}
