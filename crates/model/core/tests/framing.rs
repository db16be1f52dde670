//! Bytes of packets on a link: the core, the oracle, and published values.

mod sched_oracle;

use fairpath_core::sched::Framing;
use fairpath_units::test_seeds;
use sched_oracle::framing::framed;
use sched_oracle::log::Random;

#[test]
fn framing_equals_the_oracle() {
    for seed in test_seeds(20_000) {
        let mut random = Random::new(seed);
        let cells = random.pick(&[
            (0, 0, 0),
            (48, 53, 0),
            (64, 65, 1),
            (7, 9, 1),
            (1500, 1500, 0),
        ]);
        let framing = Framing {
            overhead: random.pick(&[0, 0, 1, 38, 256, 2048, -14, -64, -78]),
            mpu: random.pick(&[0, 0, 1, 64, 84, 256, 2048]),
            cell_payload: cells.0,
            cell_bytes: cells.1,
            cell_partial: cells.2,
            ..Framing::default()
        };
        let segments = 1 + random.below(3) as u32 * random.below(64) as u32;
        let bytes = segments * random.below(1600) as u32 + random.below(64) as u32;
        assert_eq!(
            i64::from(framing.link_bytes(bytes, segments)),
            framed(&framing, bytes.into(), segments.into()),
            "seed {seed}: {bytes} bytes in {segments} segments, {framing:?}"
        );
    }
}

/// `cake_calc_overhead` and the formulas of tc-cake(8), by their own words.
#[test]
fn every_length_costs_what_cake_charges() {
    let of = |overhead, mpu, link: Framing| Framing {
        overhead,
        mpu,
        ..link
    };
    let plain = Framing::default();
    for bytes in 40..=1500u32 {
        let whole = |with: u32| with.div_ceil(48) * 53;
        for (framing, charged) in [
            // ethernet: overhead 38 mpu 84
            (of(38, 84, plain), (bytes + 38).max(84)),
            // docsis: overhead 18 mpu 64
            (of(18, 64, plain), (bytes + 18).max(64)),
            // pppoe-llcsnap: overhead 40 atm; conservative: overhead 48 atm
            (of(40, 0, Framing::ATM), whole(bytes + 40)),
            (of(48, 0, Framing::ATM), whole(bytes + 48)),
            (of(8, 96, Framing::ATM), whole((bytes + 8).max(96))),
            // pppoe-ptm: overhead 30 ptm
            (of(30, 0, Framing::PTM), ((bytes + 30) * 65).div_ceil(64)),
            (of(-20, 0, plain), bytes - 20),
        ] {
            assert_eq!(framing.link_bytes(bytes, 1), charged, "{bytes} {framing:?}");
        }
    }
    // The table of RFC 2684 sizes: 40 bytes and 8 of AAL5 fill a cell, one more byte takes two.
    let ipoa = of(8, 0, Framing::ATM);
    assert_eq!(
        [40, 41, 1500].map(|n| ipoa.link_bytes(n, 1)),
        [53, 106, 1696]
    );
}

#[test]
fn gso_packets_cost_as_their_segments() {
    let framing = Framing {
        overhead: 40,
        ..Framing::ATM
    };
    let one = framing.link_bytes(1500, 1);
    assert_eq!(framing.link_bytes(45 * 1500, 45), 45 * one);
    assert_eq!(Framing::default().link_bytes(45 * 1514, 45), 45 * 1514);
}
