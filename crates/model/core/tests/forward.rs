//! Forwarding by the core, compared with an oracle: decision and bytes, on random frames, on every
//! length of chosen ones, and for every answer of the FIB.
//!
//! `FAIRPATH_TEST_SEED=n` is the seed (printed); `FAIRPATH_TEST_SHARE=full` runs five times as many.

mod forward_oracle;

use std::collections::BTreeMap;

use fairpath_core::forward::{
    FibAnswer, FibQuestion, ForwardOutcome, ForwardPlan, Forwarder, Forwarding, check_link,
};
use fairpath_units::{IfIndex, Share, test_seed};
use forward_oracle::frames::{self, Addresses, BRIDGE_MAC, EXIT_MACS, Random};
use forward_oracle::{change, decide, look};

const INTERFACES: [IfIndex; 2] = [IfIndex(3), IfIndex(8)];
const FRAMES: u64 = 1_500_000;

fn addresses() -> Addresses {
    let v6 = |last| {
        let mut ip = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        ip[15] = last;
        ip
    };
    Addresses {
        v4: vec![
            [192, 0, 2, 1],
            [198, 51, 100, 9],
            [126, 9, 9, 9],
            [1, 0, 0, 1],
        ],
        v6: vec![v6(1), v6(2), v6(0)],
    }
}

/// A frame, how it came, and what its surroundings say.
#[derive(Clone, Debug)]
struct Case {
    plan: ForwardPlan,
    ifindex: u32,
    frame: Vec<u8>,
    /// Bytes that are not shown.
    hidden: u32,
    socket: bool,
    answer: FibAnswer,
    /// For the route back to the sender.
    back: FibAnswer,
}

impl Case {
    fn fib(&self, question: &FibQuestion) -> FibAnswer {
        match question.needs_neighbour {
            true => self.answer,
            false => self.back,
        }
    }
}

fn answer(random: &mut Random) -> FibAnswer {
    let code = match random.one_in(2) {
        true => 0,
        false => random.below(40) as i32 - 25,
    };
    FibAnswer {
        code,
        leaves_by: random.pick(&[INTERFACES[0], INTERFACES[1], INTERFACES[1], IfIndex(77)]),
        source: EXIT_MACS[1],
        destination: random.draw().to_be_bytes()[..6].try_into().unwrap(),
    }
}

fn case(random: &mut Random) -> Case {
    let plan = frames::plan(random, INTERFACES);
    let frame = frames::frame(random, &plan, &addresses());
    let hidden = match random.one_in(8) {
        true => random.below(10_000) as u32,
        false => 0,
    };
    Case {
        ifindex: random.pick(&[3, 3, 3, 8, 8, 8, 9]),
        hidden,
        socket: !random.one_in(16),
        answer: answer(random),
        back: answer(random),
        plan,
        frame,
    }
}

/// Compares one case with the oracle; returns its outcome.
fn check(case: &Case) -> ForwardOutcome {
    let bytes = case.frame.len() as u32 + case.hidden;
    let mut requested: [Vec<FibQuestion>; 2] = Default::default();
    let [ours, theirs] = &mut requested;
    let forwarder = Forwarder::new(&case.plan);
    let decision = forwarder.decide(
        IfIndex(case.ifindex),
        &case.frame,
        bytes,
        |_| case.socket,
        |question| {
            ours.push(*question);
            case.fib(question)
        },
    );
    let expected = decide(
        &case.plan,
        case.ifindex,
        &case.frame,
        bytes,
        case.socket,
        |question| {
            theirs.push(*question);
            case.fib(question)
        },
    );
    assert_eq!(decision.outcome(), expected.outcome, "{case:x?}");
    assert_eq!(decision.arrived(), expected.arrived, "{case:x?}");
    assert_eq!(requested[0], requested[1], "{case:x?}");
    if expected.outcome == ForwardOutcome::ToSocket {
        assert_eq!(decision.leaves(), expected.leaves, "{case:x?}");
        let mut frame = case.frame.clone();
        forwarder.change(&decision, &mut frame).unwrap();
        let growth = frame.len() as i64 - case.frame.len() as i64;
        assert_eq!(growth, i64::from(forwarder.growth(&decision)), "{case:x?}");
        assert_eq!(
            frame,
            change(&case.plan, &expected, &case.frame),
            "{case:x?}"
        );
    }
    let own = [EXIT_MACS[0], EXIT_MACS[1], BRIDGE_MAC, [0; 6]];
    assert_eq!(
        check_link(&case.frame, &own),
        look(&case.frame, &own),
        "{case:x?}"
    );
    expected.outcome
}

#[test]
fn random_frames_agree_with_the_oracle() {
    let mut random = Random::new(test_seed());
    let mut met = BTreeMap::new();
    for _ in 0..Share::reported().of(FRAMES) {
        *met.entry(check(&case(&mut random)) as usize).or_insert(0) += 1;
    }
    // What a hook detects is not the core's.
    let hooks = [
        ForwardOutcome::NoHeadroom,
        ForwardOutcome::NoScratch,
        ForwardOutcome::Lost,
    ];
    for (outcome, name) in ForwardOutcome::ALL {
        let times = met.get(&(outcome as usize)).copied().unwrap_or(0);
        println!("{name}: {times}");
        assert!(hooks.contains(&outcome) || times >= 20, "{name}: {times}");
    }
}

#[test]
fn frames_of_every_length_agree_with_the_oracle() {
    let mut random = Random::new(test_seed() ^ 1);
    for _ in 0..Share::reported().of(1000) {
        let whole = case(&mut random);
        for bytes in 0..whole.frame.len().min(100) {
            let frame = whole.frame[..bytes].to_vec();
            check(&Case {
                frame,
                ..whole.clone()
            });
            // Shown in part, but not cut.
            let hidden = whole.hidden + (whole.frame.len() - bytes) as u32;
            let frame = whole.frame[..bytes].to_vec();
            check(&Case {
                frame,
                hidden,
                ..whole.clone()
            });
        }
    }
}

#[test]
fn every_fib_answer_agrees_with_the_oracle() {
    let mut random = Random::new(test_seed() ^ 2);
    for code in -200..=200 {
        let mut met = 0;
        while met < 5 {
            let mut case = case(&mut random);
            (case.answer.code, case.socket) = (code, true);
            let forwarder = Forwarder::new(&case.plan);
            let mut requested = false;
            let shown = case.frame.len() as u32 + case.hidden;
            let ifindex = IfIndex(case.ifindex);
            forwarder.decide(
                ifindex,
                &case.frame,
                shown,
                |_| true,
                |question| {
                    requested = true;
                    case.fib(question)
                },
            );
            check(&case);
            met += u32::from(requested);
        }
    }
}

/// Every checksum that a header can have, so that each carry over the end of the circle is met.
#[test]
fn ttl_decrement_keeps_checksums_valid() {
    let mut random = Random::new(test_seed() ^ 3);
    let plan = loop {
        let plan = frames::plan(&mut random, INTERFACES);
        if plan.forwarding == Forwarding::Router && plan.exits.iter().all(|exit| exit.vlan == 0) {
            break plan;
        }
    };
    let mut frame = [&EXIT_MACS[0][..], &[2; 6], &[8, 0]].concat();
    frame.extend([0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0]);
    frame.extend([192, 0, 2, 1, 198, 51, 100, 9]);
    let answer = FibAnswer {
        code: 0,
        leaves_by: INTERFACES[1],
        source: [4; 6],
        destination: [6; 6],
    };
    for id in 0..=u16::MAX {
        frame[18..20].copy_from_slice(&id.to_be_bytes());
        frame[24..26].fill(0);
        let words = frame[14..34].chunks(2);
        let sum: u32 = words.map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        let checksum = !(((sum & 0xffff) + (sum >> 16)) as u16);
        frame[24..26].copy_from_slice(&checksum.to_be_bytes());
        let case = Case {
            plan: plan.clone(),
            ifindex: 3,
            frame: frame.clone(),
            hidden: 0,
            socket: true,
            answer,
            back: FibAnswer {
                leaves_by: INTERFACES[0],
                ..answer
            },
        };
        assert_eq!(check(&case), ForwardOutcome::ToSocket);
    }
}

/// A caller that keeps a decision for another frame gets an error, and reads no other memory.
#[test]
fn frame_that_ends_before_its_headers_is_refused() {
    let mut random = Random::new(test_seed() ^ 4);
    let mut met = 0;
    while met < 1000 {
        let case = case(&mut random);
        let forwarder = Forwarder::new(&case.plan);
        let bytes = case.frame.len() as u32 + case.hidden;
        let ifindex = IfIndex(case.ifindex);
        let decision = forwarder.decide(
            ifindex,
            &case.frame,
            bytes,
            |_| true,
            |question| case.fib(question),
        );
        if decision.outcome() != ForwardOutcome::ToSocket
            || case.plan.forwarding != Forwarding::Router
        {
            continue;
        }
        for bytes in 0..20 {
            let mut cut = case.frame[..bytes].to_vec();
            forwarder.change(&decision, &mut cut).unwrap_err();
        }
        met += 1;
    }
}
