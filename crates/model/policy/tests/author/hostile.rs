//! Forbidden actions of policies, and invalid objects.

use fairpath_core::sched::{Custom, Function, Meta};
use fairpath_policy::{Author, CALL_BUDGET, Problem, Refusal, Violation};
use proptest::prelude::*;

use super::object::{EXIT, block, object, object_with, op, wide};
use super::{State, run, run_text};

fn violation(text: &[u64]) -> Violation {
    run_text(text)
        .expect_err("it does what it may not")
        .violation
}

/// Two policies of one tree may have the same code.
#[test]
fn policies_of_the_same_code_are_distinguished() {
    let text = [op(0xb7, 0, 0, 0, 1), EXIT];
    let functions = [("custom_rank_enqueue", 0, 2)];
    let identity = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut block = block();
        change(&mut block);
        let author = Author::parse(&object_with(&text, &block, &functions)).unwrap();
        author.identity()
    };
    let first = identity(&|_| {});
    assert_eq!(first, identity(&|_| {}));
    // The name, bytes of a flow's state, and what says nothing about behaviour.
    assert_ne!(first, identity(&|block| block[32] = b'c'));
    assert_ne!(first, identity(&|block| block[20] = 56));
    assert_eq!(first, identity(&|block| block[56] = b'b'));
}

#[test]
fn an_endless_loop_is_stopped_by_its_budget() {
    assert_eq!(violation(&[op(0x05, 0, 0, -1, 0), EXIT]), Violation::Budget);
    // The longest way around: every instruction is paid for.
    let mut text = vec![op(0xbf, 3, 3, 0, 0); 30_000];
    text.extend([op(0x05, 0, 0, -30_001, 0), EXIT]);
    assert_eq!(violation(&text), Violation::Budget);
}

#[test]
fn endless_recursion_is_stopped_by_its_depth() {
    assert_eq!(violation(&[op(0x85, 0, 1, 0, -1), EXIT]), Violation::Depth);
}

#[test]
fn loop_of_calls_is_stopped_by_its_budget() {
    let text = [op(0x85, 0, 1, 0, 2), op(0x05, 0, 0, -2, 0), EXIT, EXIT];
    let functions = [("custom_rank_enqueue", 0, 3), ("inner", 3, 1)];
    let object = object_with(&text, &block(), &functions);
    let fault = run(&object, &Meta::default(), &mut State::default()).expect_err("endless");
    assert_eq!(fault.violation, Violation::Budget);
}

#[test]
fn long_loop_within_budget_runs_to_its_end() {
    let count = i32::try_from(CALL_BUDGET / 2 - 10).expect("small");
    let text = [
        op(0xb7, 0, 0, 0, 0),
        op(0x07, 0, 0, 0, 1),
        op(0xa5, 0, 0, -2, count),
        EXIT,
    ];
    assert_eq!(run_text(&text).ok(), u64::try_from(count).ok());
}

#[test]
fn every_structure_ends_where_it_ends() {
    // (argument, bytes): packet, flow, class, global, call
    for (register, bytes) in [(1, 112), (2, 64), (3, 128), (4, 64), (5, 120)] {
        for off in [-1, bytes - 7, bytes, i16::MAX, i16::MIN] {
            let read = violation(&[op(0x79, 0, register, off, 0), EXIT]);
            assert!(
                matches!(read, Violation::Read(_, 8, ..)),
                "r{register}{off:+}: {read}"
            );
            let write = violation(&[op(0x7a, register, 0, off, 0), EXIT]);
            assert!(
                matches!(write, Violation::Write(_, 8, ..)),
                "r{register}{off:+}: {write}"
            );
        }
        let last = [op(0x79, 0, register, bytes - 8, 0), EXIT];
        assert!(run_text(&last).is_ok(), "the last word of r{register}");
    }
    let below = violation(&[op(0x7a, 10, 0, -513, 0), EXIT]);
    let above = violation(&[op(0x7a, 10, 0, i16::MAX, 0), EXIT]);
    assert!(
        matches!(below, Violation::Write("call r", ..))
            || matches!(below, Violation::Write("stack", ..)),
        "{below}"
    );
    assert!(matches!(above, Violation::Write("stack", ..)), "{above}");
}

#[test]
fn the_packet_is_read_only() {
    let write = violation(&[op(0x72, 1, 0, 0, 1), EXIT]);
    assert_eq!(
        write.to_string(),
        "it writes 1 bytes at byte 0 of packet p, which has 112 and is read only"
    );
}

#[test]
fn unset_and_invented_addresses_lead_nowhere() {
    for register in [0, 6, 7, 8, 9] {
        let read = violation(&[op(0x79, 0, register, 0, 0), EXIT]);
        assert!(matches!(read, Violation::Read("no memory", ..)), "{read}");
    }
    for address in [u64::MAX, u64::MAX - 7, 8 << 32, 1 << 63, 0xffff_ffff] {
        let [a0, a1] = wide(3, address);
        violation(&[a0, a1, op(0x79, 0, 3, 0, 0), EXIT]);
        violation(&[a0, a1, op(0x7a, 3, 0, 0, 0), EXIT]);
    }
}

#[test]
fn code_that_does_not_return_is_stopped() {
    assert_eq!(violation(&[op(0xb7, 0, 0, 0, 0)]), Violation::End);
}

#[test]
fn a_stopped_policy_is_a_counting_fifo() {
    let object = object(&[op(0x79, 0, 2, 64, 0), EXIT]);
    let author = Author::parse(&object).expect("well-formed");
    let mut machine = author.machine();
    let watch = machine.watch();
    assert_eq!((watch.fault(), watch.unanswered()), (None, 0));
    for _ in 0..3 {
        let mut state = State {
            call: [7; 16],
            ..State::default()
        };
        let State {
            flow,
            class,
            global,
            call,
        } = &mut state;
        let rank = machine.call(
            Function::RankEnqueue,
            &Meta::default(),
            flow,
            class,
            global,
            call,
        );
        // Due by rank alone, sent without a mark.
        assert_eq!((rank, call[13], call[14] & 0xffff_ffff), (0, u64::MAX, 0));
    }
    assert_eq!(watch.unanswered(), 3);
    assert_eq!(
        watch.fault().expect("it was stopped").to_string(),
        "RANK_ENQUEUE: it reads 8 bytes at byte 64 of flow f, which has 64, in custom_rank_enqueue, instruction 0"
    );
}

#[test]
fn a_policy_changes_only_answers_of_a_call() {
    let mut text: Vec<u64> = (0..15).map(|i| op(0x7a, 5, 0, 8 * i, -1)).collect();
    text.push(EXIT);
    let mut state = State {
        call: [7; 16],
        ..State::default()
    };
    run(&object(&text), &Meta::default(), &mut state).expect("within the call");
    let mut wanted = [7; 16];
    (wanted[13], wanted[14]) = (u64::MAX, u64::MAX);
    assert_eq!(state.call, wanted);
}

#[test]
fn helpers_variables_atomics_and_unknown_instructions_are_refused() {
    let refused = |text: &[u64]| match Author::parse(&object(text)) {
        Err(problems) => match &problems[0] {
            Problem::Code(refusal) => refusal.clone(),
            Problem::Block(defect) => panic!("{defect}"),
        },
        Ok(_) => panic!("{text:x?} was taken"),
    };
    let helper = refused(&[op(0x85, 0, 0, 0, 5), EXIT]);
    assert_eq!(
        helper,
        Refusal::Helper {
            helper: 5,
            line: None
        }
    );
    assert_eq!(
        refused(&[op(0xdb, 2, 3, 0, 0), EXIT]),
        Refusal::Atomic(None)
    );
    let unknown = [
        op(0xbf, 10, 1, 0, 0), // writes the stack's address
        op(0xbf, 11, 1, 0, 0), // no such register
        op(0x05, 0, 0, 5, 0),  // out of the code
        op(0x05, 0, 0, -2, 0), // the same, before it
        op(0x85, 0, 1, 0, 7),  // calls what is no function
        op(0x85, 0, 2, 0, 7),  // a kernel function
        op(0x30, 0, 0, 0, 0),  // packet access of old
        op(0x18, 0, 1, 0, 0),  // a map
        op(0x81, 0, 2, 0, 0),  // version 4
        op(0x37, 0, 0, 1, 3),  // the same
        op(0xff, 0, 0, 0, 0),
    ];
    for op in unknown {
        let refusal = refused(&[op, EXIT]);
        assert!(
            matches!(refusal, Refusal::Unknown { .. }),
            "{op:#x}: {refusal}"
        );
    }
}

#[test]
fn every_defect_of_the_block_is_reported() {
    let with = |changes: &[(usize, u8)]| {
        let mut block = block();
        changes.iter().for_each(|(at, value)| block[*at] = *value);
        let object = object_with(&[EXIT], &block, &[("custom_rank_enqueue", 0, 1)]);
        let problems = Author::parse(&object).err().unwrap_or_default();
        problems
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("; ")
    };
    assert_eq!(with(&[]), "");
    let cases: [(&[(usize, u8)], &str); 8] = [
        (&[(0, 2)], "version 2"),
        (&[(8, 2)], "usual"),
        (&[(12, 16)], "WANTS_HOSTS"),
        (&[(20, 65)], "struct flow has 65 bytes"),
        (&[(24, 32)], "begin it with PARAMS"),
        (&[(32, b'B')], "small letter"),
        (&[(392 + 168, b'x')], "[0] has no name"),
        (&[(392, b'x'), (416, b'm'), (432, b'y')], "not one of"),
    ];
    for (changes, wanted) in cases {
        let reported = with(changes);
        assert!(reported.contains(wanted), "{changes:?}: {reported}");
    }
    let several = with(&[(12, 16), (24, 32), (32, b'B')]);
    assert_eq!(
        several.split("; ").count(),
        4,
        "three, one of them with a remedy: {several}"
    );
    let empty = object_with(&[EXIT], &block(), &[("custom_send_time", 0, 1)]);
    let reported = Author::parse(&empty).expect_err("no rank")[0].to_string();
    assert!(reported.contains("no RANK_ENQUEUE"), "{reported}");
}

/// A small policy with everything: a loop, a call, the stack, a constant.
fn sample() -> Vec<u8> {
    let [c0, c1] = wide(3, 0x1234_5678_9abc);
    let text = [
        op(0x7b, 10, 1, -8, 0),
        c0,
        c1,
        op(0x61, 6, 1, 16, 0),
        op(0xb7, 7, 0, 0, 4),
        op(0xbf, 1, 6, 0, 0),
        op(0x85, 0, 1, 0, 5),
        op(0x0f, 6, 0, 0, 0),
        op(0x17, 7, 0, 0, 1),
        op(0x55, 7, 0, -5, 0),
        op(0x7b, 2, 6, 8, 0),
        EXIT,
        op(0xbf, 0, 1, 0, 0),
        op(0x37, 0, 0, 0, 3),
        EXIT,
    ];
    object_with(
        &text,
        &block(),
        &[("custom_rank_enqueue", 0, 12), ("third", 12, 3)],
    )
}

/// Reads an object and, if it is one, calls all that it has.
fn survive(object: &[u8]) -> bool {
    let Ok(author) = Author::parse(object) else {
        return false;
    };
    let mut machine = author.machine();
    let mut state = State::default();
    for function in author.policy.functions {
        let State {
            flow,
            class,
            global,
            call,
        } = &mut state;
        machine.call(function, &Meta::default(), flow, class, global, call);
    }
    true
}

#[test]
fn flipped_bits_of_an_object_never_panic() {
    let object = sample();
    assert!(survive(&object));
    let mut taken = 0;
    for bit in 0..8 * object.len() {
        let mut corrupted = object.clone();
        corrupted[bit / 8] ^= 1 << (bit % 8);
        taken += u32::from(survive(&corrupted));
    }
    assert!(
        taken > 0,
        "some bits are of texts: those objects are well-formed"
    );
}

#[test]
fn no_truncated_object_makes_anything_panic() {
    let object = sample();
    for end in 0..object.len() {
        assert!(!survive(&object[..end]), "{end} bytes of {}", object.len());
    }
}

proptest! {
    #![proptest_config(fairpath_units::property!(4096))]

    #[test]
    fn no_bytes_of_code_make_anything_panic(text in prop::collection::vec(any::<u64>(), 1..64)) {
        survive(&object(&text));
    }

    /// Almost programs: known operations, registers that exist, short ways.
    #[test]
    fn no_known_instructions_make_anything_panic(
        text in prop::collection::vec(
            (0..256u32, 0..11u8, 0..11u8, -8i16..64, any::<i32>()), 1..64),
    ) {
        let text: Vec<u64> = text
            .into_iter()
            .map(|(code, dst, src, off, imm)| {
                let (code, off) = match code & 7 {
                    0 => (0xbf, 0),
                    1..=3 => ((code & 0x1b) as u8 | 0x60, off),
                    4 | 7 => ((code % 0xd0) as u8 & 0xf8 | (code & 7) as u8, 0),
                    _ => ((code % 0xe0) as u8 & 0xf8 | (code & 7) as u8, off),
                };
                op(code, dst.min(9), src, off, imm)
            })
            .chain([EXIT])
            .collect();
        survive(&object(&text));
    }

    #[test]
    fn no_bytes_at_all_make_anything_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        survive(&bytes);
        let header = sample();
        let count = bytes.len().min(64);
        bytes[..count].copy_from_slice(&header[..count]);
        survive(&bytes);
    }
}
