//! The harness itself: it counts injected frames only, the generators fit the kernel, and the comparison finds a difference.

use std::time::Duration;

use fairpath_rules::Family;
use fairpath_testbed::{missing, skip, wait_for};
use fairpath_units::test_seeds;

use super::compare::{answer, compare};
use super::family;
use super::legacy::{Legacy, Tool};
use super::rulesets::generate;
use fairpath_tests::oracle::compare::RuleCount;
use fairpath_tests::oracle::packets::{Toward, frames, refused};

/// The tools, unless a requirement is missing, which skips the test `name`.
fn tools(name: &str) -> Option<[Tool; 3]> {
    let needs = Tool::ALL.map(Tool::needs).concat();
    match missing(&needs) {
        Some(need) => {
            skip(&format!("rules::harness::{name}"), need);
            None
        }
        None => Some(Tool::ALL),
    }
}

fn packets(counts: &[RuleCount]) -> u64 {
    counts.iter().map(|count| count.packets).sum()
}

#[test]
fn an_idle_second_counts_nothing() {
    let Some(tools) = tools("an_idle_second_counts_nothing") else {
        return;
    };
    let all = tools.map(Legacy::new);
    let counted = wait_for(Duration::from_secs(1), || {
        let moved = |legacy: &Legacy| {
            let mut counts = legacy.counters();
            counts.retain(|count| count.packets > 0);
            (!counts.is_empty()).then_some(counts)
        };
        all.iter().find_map(moved)
    });
    assert_eq!(counted, None);
}

#[test]
fn generated_frames_reach_the_first_hook() {
    let Some(tools) = tools("generated_frames_reach_the_first_hook") else {
        return;
    };
    for tool in tools {
        let legacy = Legacy::new(tool);
        let (ingress, input) = match tool {
            Tool::Arp => ("*filter\n:INPUT ACCEPT\n", None),
            _ => (
                "*raw\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n",
                Some("*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n"),
            ),
        };
        for seed in test_seeds(25) {
            all_pass(
                &legacy,
                ingress,
                &frames(family(tool), Toward::Ingress, seed, 64),
            );
            if let Some(input) = input {
                all_pass(
                    &legacy,
                    input,
                    &frames(family(tool), Toward::Input, seed, 64),
                );
            }
        }
    }
}

/// Asserts that each frame is accepted, and names the first that is not.
fn all_pass(legacy: &Legacy, ruleset: &str, frames: &[Vec<u8>]) {
    let passed = |frames: &[Vec<u8>]| answer(legacy, ruleset, frames).accepted as usize;
    if passed(frames) != frames.len() {
        let lost = frames.iter().find(|frame| passed(&[frame.to_vec()]) == 0);
        panic!("{:?} does not count {lost:02x?}", legacy.tool());
    }
}

#[test]
fn malformed_frames_do_not_reach_a_hook() {
    let Some(tools) = tools("malformed_frames_do_not_reach_a_hook") else {
        return;
    };
    for tool in tools {
        let legacy = Legacy::new(tool);
        for (reason, frame) in refused(family(tool)) {
            legacy.load("").unwrap();
            legacy.inject(&[frame]);
            assert_eq!(packets(&legacy.counters()), 0, "{tool:?}: {reason}");
        }
    }
}

#[test]
fn zero_resets_counters() {
    let Some(tools) = tools("zero_resets_counters") else {
        return;
    };
    for tool in tools {
        let legacy = Legacy::new(tool);
        legacy.inject(&frames(family(tool), Toward::Ingress, 0, 5));
        assert!(packets(&legacy.counters()) >= 5);
        legacy.zero();
        assert_eq!(packets(&legacy.counters()), 0);
    }
}

#[test]
fn each_generated_ruleset_loads() {
    let Some(tools) = tools("each_generated_ruleset_loads") else {
        return;
    };
    for tool in tools {
        let legacy = Legacy::new(tool);
        for seed in test_seeds(1000) {
            let ruleset = generate(tool, seed).text;
            if let Err(error) = legacy.load(&ruleset) {
                panic!("seed {seed}: {error}\n{ruleset}");
            }
        }
    }
}

#[test]
fn two_namespaces_give_the_same_answers() {
    let Some(tools) = tools("two_namespaces_give_the_same_answers") else {
        return;
    };
    for tool in tools {
        let (legacy, other) = (Legacy::new(tool), Legacy::new(tool));
        for seed in test_seeds(100) {
            let ruleset = generate(tool, seed);
            let frames = frames(family(tool), ruleset.toward, seed, 128);
            let mut evaluate =
                |frames: &[Vec<u8>]| vec![("other", answer(&other, &ruleset.text, frames))];
            if let Err(difference) = compare(&legacy, &ruleset.text, &frames, &mut evaluate) {
                panic!("seed {seed}: {difference}");
            }
        }
    }
}

#[test]
fn a_difference_is_reduced_to_one_frame() {
    let Some(tools) = tools("a_difference_is_reduced_to_one_frame") else {
        return;
    };
    let (legacy, other) = (Legacy::new(tools[0]), Legacy::new(tools[0]));
    let ruleset =
        "*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -p tcp -m tcp --dport 80\nCOMMIT\n";
    let wrong = ruleset.replace("--dport 80", "--dport 80:81");
    let frames = frames(Family::Ipv4, Toward::Ingress, 7, 256);
    let mut evaluate = |frames: &[Vec<u8>]| vec![("other", answer(&other, &wrong, frames))];
    let difference = compare(&legacy, ruleset, &frames, &mut evaluate).unwrap_err();
    assert_eq!(difference.frames.len(), 1);
    let text = difference.to_string();
    assert!(
        text.contains("! raw PREROUTING rule 0: kernel (0, 0)"),
        "{text}"
    );
}

#[test]
fn a_difference_of_memory_keeps_its_frames() {
    let Some(tools) = tools("a_difference_of_memory_keeps_its_frames") else {
        return;
    };
    let (legacy, other) = (Legacy::new(tools[0]), Legacy::new(tools[0]));
    let ruleset = "*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -m limit --limit 1/hour --limit-burst 3\nCOMMIT\n";
    let wrong = ruleset.replace("burst 3", "burst 4");
    let frames = frames(Family::Ipv4, Toward::Ingress, 7, 128);
    let mut evaluate = |frames: &[Vec<u8>]| vec![("other", answer(&other, &wrong, frames))];
    let difference = compare(&legacy, ruleset, &frames, &mut evaluate).unwrap_err();
    assert_eq!(difference.frames.len(), 4, "{difference}");
}
