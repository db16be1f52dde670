//! A hundred thousand classes, the maximum: built, used and limited in a native instance.

use std::sync::LazyLock;
use std::time::Instant;

use fairpath_class::{ClassSet, Drafts, Uplinks};
use fairpath_core::Rules;
use fairpath_core::sched::{End, Meta};
use fairpath_sched::tree::Diffserv;
use fairpath_shape::htb::{HtbPlanError, MAX_HTB_CLASSES, htb_plan};
use fairpath_shape::{Both, Leaving, Lines, Settings, ShapeInstance};

const CLASSES: u32 = 100_000;
const MS: u64 = 1_000_000;
/// Bytes of an Ethernet frame without its checksum.
const FRAME: u32 = 1514;
const MAJOR: u16 = 0xfa18;

static SET: LazyLock<ClassSet> = LazyLock::new(classes);

/// 100 sites of 999 subscribers of 10 Mbit/s.
fn classes() -> ClassSet {
    let mut csv = String::from("name,parent,prefix,down,up\n");
    for number in 0..CLASSES {
        csv += &match number % 1000 {
            0 => format!("site{},,,1gbit,1gbit\n", number / 1000),
            _ => format!(
                "s{number},site{},10.{}.{}.{}/32,10mbit,10mbit\n",
                number / 1000,
                number >> 16,
                number >> 8 & 255,
                number & 255
            ),
        };
    }
    let mut drafts = Drafts::new();
    drafts.read_file("isp.csv", csv.as_bytes());
    let outcome = ClassSet::build(drafts, Uplinks::Unknown);
    outcome
        .set
        .unwrap_or_else(|| panic!("{:?}", outcome.report.problems))
}

fn settings() -> Settings {
    Settings {
        bps: Both {
            down: 100_000_000_000,
            up: 100_000_000_000,
        },
        ..Settings::default()
    }
}

fn resident_mib() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.unwrap() / 1024
}

#[test]
fn a_hundred_thousand_classes_keep_their_rates() {
    let (begin, before) = (Instant::now(), resident_mib());
    let set = classes();
    let handles = 2 * CLASSES;
    let settings = Settings {
        limit_packets: Some(handles),
        ..settings()
    };
    let lines = Lines::new(&set, &settings).unwrap();
    let (tree, rules) = (&lines.trees.down, Rules::default());
    let built = begin.elapsed();
    let mut instance = ShapeInstance::new(tree, End::Receiver, &rules, handles, false).unwrap();
    let started = begin.elapsed();
    // A packet of each subscriber, and 30 of 1,000 bytes of the last one: 24 ms of its rate.
    let last = CLASSES;
    let meta = |class_id| Meta {
        bytes: 1000,
        class_id,
        flow_hash: class_id,
        ..Meta::default()
    };
    let subscribers = (1..=CLASSES).filter(|class| (class - 1) % 1000 != 0);
    let of: Vec<u32> = subscribers.chain((0..29).map(|_| last)).collect();
    for (handle, class) in (1..).zip(&of) {
        instance.arrive_as(handle, 0, meta(*class));
    }
    let (mut next, mut leaving) = (Some(0), Vec::new());
    let mut sent = vec![0u32; CLASSES as usize + 1];
    let mut end = 0;
    while let Some(at) = next {
        next = instance.turn(at, 4096, &mut leaving).unwrap();
        for left in leaving.drain(..) {
            let Leaving::Send { handle, .. } = left else {
                panic!("{left:?}");
            };
            sent[of[handle as usize - 1] as usize] += 1;
            end = at;
        }
    }
    for class in &of {
        let expected = if *class == last { 30 } else { 1 };
        assert_eq!(sent[*class as usize], expected, "class {class}");
    }
    assert!(
        (23 * MS..32 * MS).contains(&end),
        "the last packet left at {end} ns"
    );
    println!(
        "{CLASSES} classes: {built:?} to build, {:?} to start, {:?} in all, {} MiB",
        started - built,
        begin.elapsed(),
        resident_mib() - before
    );
    instance.audit().unwrap();
}

#[test]
fn htb_refuses_a_hundred_thousand_classes_by_number() {
    let lines = Lines::new(&SET, &settings()).unwrap();
    let refused = htb_plan(&lines.trees.down, FRAME, MAJOR..MAJOR + 1, |_| None).unwrap_err();
    assert!(matches!(refused, HtbPlanError::TooMany { classes } if classes > MAX_HTB_CLASSES));
    let text = refused.to_string();
    for part in ["are more than the 65533", "use another back end"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn tins_of_a_hundred_thousand_classes_are_refused() {
    let settings = Settings {
        diffserv: Diffserv::Diffserv4,
        ..settings()
    };
    let refused = Lines::new(&SET, &settings).unwrap_err();
    let expected = "classes: error: the tree has 500106 nodes: the maximum is 131072";
    assert_eq!(refused.to_string(), expected);
}

#[test]
fn more_than_a_hundred_thousand_classes_are_refused() {
    let mut drafts = Drafts::new();
    let rows: String = (0..=CLASSES).map(|number| format!("s{number}\n")).collect();
    drafts.read_file("isp.csv", format!("name\n{rows}").as_bytes());
    let outcome = ClassSet::build(drafts, Uplinks::Unknown);
    assert!(outcome.set.is_none());
    let problems = format!("{:?}", outcome.report.problems);
    assert!(problems.contains("100000"), "{problems}");
}
