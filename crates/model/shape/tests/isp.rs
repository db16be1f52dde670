//! Ten thousand classes on four levels, a thousand of them busy: rates, floors and borrowing in
//! virtual time.

use fairpath_class::{ClassSet, Drafts, Uplinks};
use fairpath_core::Rules;
use fairpath_core::sched::{End, Meta};
use fairpath_shape::{Both, Leaving, Lines, Places, Settings, ShapeInstance};

const SECOND: u64 = 1_000_000_000;
const REGIONS: usize = 10;
const SITES: usize = 20;
const SUBSCRIBERS: usize = 49;
/// Handles of a class: it always has something to send, and never more waiting.
const WINDOW: usize = 4;
const BYTES: u32 = 500;

/// An ISP: 10 regions of 20 sites of 49 subscribers, 10,011 classes.
fn classes() -> ClassSet {
    let mut csv = String::from("name,parent,prefix,down_floor,down\nisp,,,,400M\n");
    for region in 0..REGIONS {
        csv.push_str(&format!("r{region},isp,,,50M\n"));
        for site in 0..SITES {
            csv.push_str(&format!("t{region}.{site},r{region},,,20M\n"));
            for subscriber in 0..SUBSCRIBERS {
                // One of a busy site is sure of much, and one may not have its share.
                let (floor, ceil) = match subscriber {
                    0 => ("1500k", "20M"),
                    1 => ("", "300k"),
                    _ => ("", "20M"),
                };
                let number = (region * SITES + site) * SUBSCRIBERS + subscriber;
                csv.push_str(&format!(
                    "s{region}.{site}.{subscriber},t{region}.{site},100.64.{}.{}/32,{floor},{ceil}\n",
                    number >> 8,
                    number & 255
                ));
            }
        }
    }
    let mut drafts = Drafts::new();
    drafts.read_file("isp.csv", csv.as_bytes());
    let outcome = ClassSet::build(drafts, Uplinks::Unknown);
    outcome
        .set
        .unwrap_or_else(|| panic!("{:?}", outcome.report.problems))
}

#[test]
fn classes_of_a_large_isp_reach_their_rates() {
    let set = classes();
    assert_eq!(set.len(), 1 + REGIONS * (1 + SITES * (1 + SUBSCRIBERS)));
    let settings = Settings {
        bps: Both {
            down: 1_000_000_000,
            up: 0,
        },
        policy: "drr".into(),
        ..Settings::default()
    };
    let lines = Lines::new(&set, &settings).unwrap();
    let tree = &lines.trees.down;
    // Ten regions, five sites each, twenty subscribers of each: a thousand.
    let mut busy = Vec::new();
    for region in 0..REGIONS {
        for site in 0..5 {
            for subscriber in 0..20 {
                busy.push(format!("s{region}.{site}.{subscriber}"));
            }
        }
    }
    assert_eq!(busy.len(), 1000);
    let number = |name: &str| set.position(name).unwrap() as u32 + 1;
    let handles = (busy.len() * WINDOW) as u32;
    let rules = Rules::default();
    let mut instance = ShapeInstance::new(tree, End::Receiver, &rules, handles, false).unwrap();
    let meta: Vec<Meta> = busy
        .iter()
        .map(|name| Meta {
            bytes: BYTES,
            class_id: number(name),
            flow_hash: number(name),
            ..Meta::default()
        })
        .collect();
    for handle in 1..=handles {
        instance.arrive_as(handle, 0, meta[(handle as usize - 1) / WINDOW]);
    }
    let (mut now, mut leaving) = (0, Vec::new());
    let mut sent = vec![0u64; busy.len()];
    let (warm, end) = (2 * SECOND, 8 * SECOND);
    while now < end {
        leaving.clear();
        let next = instance.turn(now, 64, &mut leaving).unwrap();
        for departed in &leaving {
            let Leaving::Send { handle, .. } = *departed else {
                panic!("dropped: {departed:?}");
            };
            let at = (handle as usize - 1) / WINDOW;
            sent[at] += if now >= warm { u64::from(BYTES) } else { 0 };
            instance.arrive_as(handle, now, meta[at]);
        }
        now = match leaving.is_empty() {
            true => next.expect("all are busy").max(now + 1),
            false => now,
        };
    }
    let seconds = (end - warm) as f64 / SECOND as f64;
    let bps = |bytes: u64| bytes as f64 * 8.0 / seconds;
    let near = |what: &str, bps: f64, expected: f64| {
        let off = (bps / expected - 1.0).abs();
        assert!(off <= 0.01, "{what}: {bps} bit/s, {expected} expected");
    };
    // The ISP has 400 Mbit/s, each region 40 of its 50, each of five sites 8 of 20: two of its twenty
    // have 1.5 by their floor and 0.3 by their ceiling, and 18 share what is left.
    near("isp", bps(sent.iter().sum()), 400e6);
    for (at, site) in sent.chunks(20).enumerate() {
        near(&format!("site {at}"), bps(site.iter().sum()), 8e6);
        near("a floor", bps(site[0]), 1.5e6);
        near("a ceiling", bps(site[1]), 0.3e6);
        for share in &site[2..] {
            near("a share", bps(*share), (8e6 - 1.5e6 - 0.3e6) / 18.0);
        }
    }
    instance.audit().unwrap();
    let (reader, places) = (instance.reader(), Places::of(tree));
    let figures = places.read(|node| (reader.node_stats(node), reader.account(node)));
    assert_eq!(figures[0].arrived, figures[0].sent + figures[0].held);
}
