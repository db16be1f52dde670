//! Every arithmetic operation, jump, load and store on the values where they go wrong, against a
//! table written down from RFC 9669 in numbers that do not wrap.

use super::object::{EXIT, object, op, wide};
use super::{State, interpret, run, run_text};
use fairpath_core::sched::{Custom, Function, Meta};
use fairpath_policy::Author;

const EDGES: [u64; 14] = [
    0,
    1,
    2,
    7,
    31,
    32,
    63,
    64,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    1 << 63,
    u64::MAX,
];

/// The result of an operation; `bits` is its width. `None`: there is no such operation.
fn arithmetic(code: u8, a: u64, b: u64, bits: u32) -> Option<u64> {
    let mask = (1u128 << bits) - 1;
    let (a, b) = (u128::from(a) & mask, u128::from(b) & mask);
    let shift = (b % u128::from(bits)) as u32;
    let signed = (a << (128 - bits)).cast_signed() >> (128 - bits);
    let value = match code {
        0x0 => a + b,
        0x1 => a + (mask + 1) - b,
        0x2 => (a * (b & 0xffff_ffff)) + (((a * (b >> 32)) & mask) << 32),
        0x3 if b == 0 => 0,
        0x3 => a / b,
        0x4 => a | b,
        0x5 => a & b,
        0x6 => a << shift,
        0x7 => a >> shift,
        0x8 => (mask + 1) - a,
        0x9 if b == 0 => a,
        0x9 => a % b,
        0xa => a ^ b,
        0xb => b,
        0xc => (signed >> shift).cast_unsigned(),
        _ => return None,
    };
    Some((value & mask) as u64)
}

#[test]
fn arithmetic_matches_rfc_9669() {
    for code in 0..0xd {
        for (class, bits) in [(7, 64), (4, 32)] {
            for a in EDGES {
                for b in EDGES {
                    let [a0, a1] = wide(0, a);
                    let [b0, b1] = wide(3, b);
                    let by_register = op(code << 4 | 8 | class, 0, 3, 0, 0);
                    let wanted = arithmetic(code, a, b, bits);
                    // Negation has no register form.
                    if code != 8 {
                        let got = interpret(&[a0, a1, b0, b1, by_register, EXIT]).ok();
                        assert_eq!(got, wanted, "{code:#x} of {a:#x} and {b:#x}, {bits} bits");
                    }
                    let constant = (b & 0xffff_ffff) as u32;
                    let extended = i64::from(constant.cast_signed()).cast_unsigned();
                    let by_constant = op(code << 4 | class, 0, 0, 0, constant.cast_signed());
                    let wanted = arithmetic(code, a, extended, bits);
                    let got = interpret(&[a0, a1, by_constant, EXIT]).ok();
                    assert_eq!(
                        got, wanted,
                        "{code:#x} of {a:#x} by {constant:#x}, {bits} bits"
                    );
                }
            }
        }
    }
}

#[test]
fn byte_swaps_reverse_and_cut() {
    let value = 0x0102_0304_0506_0708;
    let [v0, v1] = wide(0, value);
    let cases = [
        (0xdc, 16, 0x0807),
        (0xdc, 32, 0x0807_0605),
        (0xdc, 64, 0x0807_0605_0403_0201),
        (0xd4, 16, 0x0708),
        (0xd4, 32, 0x0506_0708),
        (0xd4, 64, value),
        (0xd7, 16, 0x0807),
    ];
    for (code, bits, wanted) in cases {
        let got = run_text(&[v0, v1, op(code, 0, 0, 0, bits), EXIT]);
        assert_eq!(got.ok(), Some(wanted), "{code:#x} of {bits} bits");
    }
}

/// The outcome of a jump; `None`: there is no such jump.
fn goes(code: u8, a: u64, b: u64, bits: u32) -> Option<bool> {
    let mask = (1u128 << bits) - 1;
    let (a, b) = (u128::from(a) & mask, u128::from(b) & mask);
    let sign = 1u128 << (bits - 1);
    // Order is kept when the sign is turned around.
    let (sa, sb) = (a ^ sign, b ^ sign);
    Some(match code {
        0x1 => a == b,
        0x2 => a > b,
        0x3 => a >= b,
        0x4 => a & b != 0,
        0x5 => a != b,
        0x6 => sa > sb,
        0x7 => sa >= sb,
        0xa => a < b,
        0xb => a <= b,
        0xc => sa < sb,
        0xd => sa <= sb,
        _ => return None,
    })
}

#[test]
fn jumps_match_rfc_9669() {
    for code in (1..0xe).filter(|code| ![8, 9].contains(code)) {
        for (class, bits) in [(5, 64), (6, 32)] {
            for a in EDGES {
                for b in EDGES {
                    let [a0, a1] = wide(2, a);
                    let [b0, b1] = wide(3, b);
                    let yes = [op(0xb7, 0, 0, 0, 0), EXIT, op(0xb7, 0, 0, 0, 1), EXIT];
                    let jump = op(code << 4 | 8 | class, 2, 3, 2, 0);
                    let text = [&[a0, a1, b0, b1, jump][..], &yes].concat();
                    let wanted = goes(code, a, b, bits).map(u64::from);
                    assert_eq!(
                        interpret(&text).ok(),
                        wanted,
                        "{code:#x} {a:#x} {b:#x} {bits}"
                    );
                    let constant = ((b & 0xffff_ffff) as u32).cast_signed();
                    let jump = op(code << 4 | class, 2, 0, 2, constant);
                    let text = [&[a0, a1, jump][..], &yes].concat();
                    let extended = i64::from(constant).cast_unsigned();
                    let wanted = goes(code, a, extended, bits).map(u64::from);
                    assert_eq!(
                        interpret(&text).ok(),
                        wanted,
                        "{code:#x} {a:#x} {constant:#x} {bits}"
                    );
                }
            }
        }
    }
}

/// Each program is compiled once, with its operands in the flow's words.
#[test]
fn compiled_operations_match_rfc_9669() {
    let load = [op(0x79, 0, 2, 0, 0), op(0x79, 3, 2, 8, 0)];
    let yes = [op(0xb7, 0, 0, 0, 0), EXIT, op(0xb7, 0, 0, 0, 1), EXIT];
    let check = |text: &[u64], wanted: &dyn Fn(u64, u64) -> Option<u64>| {
        let author = Author::parse(&object(&[&load[..], text].concat())).unwrap();
        let mut machine = author.compiled().unwrap();
        for a in EDGES {
            for b in EDGES {
                let mut flow = [a, b, 0, 0, 0, 0, 0, 0];
                let (packet, rank) = (Meta::default(), Function::RankEnqueue);
                let mut rest = State::default();
                let (class, global) = (&mut rest.class, &mut rest.global);
                let got = machine.call(rank, &packet, &mut flow, class, global, &mut rest.call);
                assert_eq!(Some(got), wanted(a, b), "{text:016x?} of {a:#x} and {b:#x}");
            }
        }
    };
    let low = |constant: u64| ((constant & 0xffff_ffff) as u32).cast_signed();
    let extended = |constant: u64| i64::from(low(constant)).cast_unsigned();
    for (class, bits) in [(7, 64), (4, 32)] {
        for code in 0..0xd {
            if code != 8 {
                let text = [op(code << 4 | 8 | class, 0, 3, 0, 0), EXIT];
                check(&text, &|a, b| arithmetic(code, a, b, bits));
            }
            for constant in EDGES {
                let text = [op(code << 4 | class, 0, 0, 0, low(constant)), EXIT];
                let wanted = extended(constant);
                check(&text, &|a, _| arithmetic(code, a, wanted, bits));
            }
        }
    }
    for (class, bits) in [(5, 64), (6, 32)] {
        for code in (1..0xe).filter(|code| ![8, 9].contains(code)) {
            let jump = op(code << 4 | 8 | class, 0, 3, 2, 0);
            let text = [&[jump][..], &yes].concat();
            check(&text, &|a, b| goes(code, a, b, bits).map(u64::from));
            for constant in EDGES {
                let jump = op(code << 4 | class, 0, 0, 2, low(constant));
                let text = [&[jump][..], &yes].concat();
                let wanted = extended(constant);
                check(&text, &|a, _| goes(code, a, wanted, bits).map(u64::from));
            }
        }
    }
}

#[test]
fn loads_and_stores_touch_exactly_their_bytes() {
    for (size, bits) in [(1usize, 0x10u8), (2, 0x08), (4, 0x00), (8, 0x18)] {
        for at in 0..=64 - size {
            let start: [u64; 8] = std::array::from_fn(|i| 0x0101_0101_0101_0101 * (i as u64 + 1));
            let mut bytes: Vec<u8> = start.iter().flat_map(|word| word.to_le_bytes()).collect();
            let value = 0xf1e2_d3c4_b5a6_9788_u64;
            let [v0, v1] = wide(3, value);
            let off = i16::try_from(at).expect("small");
            // r0 = old; *(flow + at) = value
            let load = op(0x61 | bits, 0, 2, off, 0);
            let store = op(0x63 | bits, 2, 3, off, 0);
            let mut state = State {
                flow: start,
                ..State::default()
            };
            let got = run(
                &object(&[v0, v1, load, store, EXIT]),
                &Meta::default(),
                &mut state,
            );
            let mut old = [0; 8];
            old[..size].copy_from_slice(&bytes[at..at + size]);
            bytes[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
            assert_eq!(
                got.ok(),
                Some(u64::from_le_bytes(old)),
                "{size} bytes at {at}"
            );
            let after: Vec<u8> = state
                .flow
                .iter()
                .flat_map(|word| word.to_le_bytes())
                .collect();
            assert_eq!(after, bytes, "{size} bytes at {at}");
            // And of a constant, extended by its sign.
            let store = op(0x62 | bits, 2, 0, off, -2);
            let mut state = State::default();
            run(&object(&[store, EXIT]), &Meta::default(), &mut state).expect("inside");
            let after: Vec<u8> = state
                .flow
                .iter()
                .flat_map(|word| word.to_le_bytes())
                .collect();
            assert_eq!(after[at..at + size], (-2i64).to_le_bytes()[..size]);
        }
    }
}

#[test]
fn policies_receive_packets_as_struct_fp_meta() {
    let packet = Meta {
        arrival: 0x1122_3344_5566_7788,
        hint: 9,
        bytes: 1514,
        flow_hash: 0xdead_beef,
        class_id: 3,
        mark: 4,
        source: std::array::from_fn(|i| i as u8),
        destination: std::array::from_fn(|i| 100 + i as u8),
        source_port: 443,
        destination_port: 50_000,
        protocol: 17,
        dscp: 46,
        ecn: 2,
        segments: 5,
        ack_flags: 0x110,
        ack: 77,
        sack: [78 << 32 | 79, 0, 0, 80 << 32 | 81],
    };
    // (size in BPF's bits, offset, value)
    let members = [
        (0x18, 0, packet.arrival),
        (0x18, 8, 9),
        (0x00, 16, 1514),
        (0x00, 20, 0xdead_beef),
        (0x00, 24, 3),
        (0x00, 28, 4),
        (0x10, 33, 1),
        (0x10, 63, 115),
        (0x08, 64, 443),
        (0x08, 66, 50_000),
        (0x10, 68, 17),
        (0x10, 69, 46),
        (0x10, 70, 2),
        (0x10, 71, 5),
    ];
    for (bits, at, wanted) in members {
        let text = [op(0x61 | bits, 0, 1, at, 0), EXIT];
        let got = run(&object(&text), &packet, &mut State::default());
        assert_eq!(got.ok(), Some(wanted), "at {at}");
    }
}

#[test]
fn functions_get_arguments_and_keep_callers_registers() {
    // r6 = 5; r1 = 7; r2 = 8; r0 = f(r1, r2) (r6 = 100 there; r1 * r2); r0 += r6; return
    let text = [
        op(0xb7, 6, 0, 0, 5),
        op(0xb7, 1, 0, 0, 7),
        op(0xb7, 2, 0, 0, 8),
        op(0x85, 0, 1, 0, 2),
        op(0x0f, 0, 6, 0, 0),
        EXIT,
        op(0xb7, 6, 0, 0, 100),
        op(0xbf, 0, 1, 0, 0),
        op(0x2f, 0, 2, 0, 0),
        EXIT,
    ];
    let functions = [("custom_rank_enqueue", 0, 6), ("inner", 6, 4)];
    let object = super::object::object_with(&text, &super::object::block(), &functions);
    let got = run(&object, &Meta::default(), &mut State::default());
    assert_eq!(got.ok(), Some(61));
}
