//! The congestion control of bpf/core/cc over a simulated path: what draft-ietf-ccwg-bbr promises,
//! its example test cases among them. Virtual time, fixed seeds.

mod path;

use fairpath_core::cc::{Bbr3Ack, Bbr3Phase};
use path::{Flow, MSS, Path};

const SECOND: u64 = 1_000_000;

fn begin(path: Path) -> Flow {
    Flow::begin(path, 0)
}

/// Packets a second of the model's bandwidth.
fn pps(bw: u64) -> f64 {
    bw as f64 / (1u64 << 24) as f64 * 1e6
}

fn entered(flow: &Flow, phase: Bbr3Phase) -> Vec<u64> {
    let of = flow.phases.iter().filter(|entry| entry.1 == phase);
    of.map(|entry| entry.0).collect()
}

#[test]
fn startup_ends_on_plateau_at_bandwidth_of_link() {
    let mut flow = begin(Path {
        buffer: 1000,
        ..Path::new()
    });
    flow.run(SECOND, |_| ());
    let view = flow.view();
    assert!(view.full_bw_reached());
    let link = 1e6 / flow.path.packet_us();
    assert!((pps(view.max_bw) / link - 1.0).abs() < 0.02, "{view:?}");
    // Down begins and ends with the ACK that ends Drain, if no queue is left.
    let order = flow.phases.iter().map(|entry| entry.1);
    let order: Vec<Bbr3Phase> = order.filter(|phase| *phase != Bbr3Phase::Down).collect();
    use Bbr3Phase::{Cruise, Drain, Startup};
    assert_eq!(order[..3], [Startup, Drain, Cruise]);
    // Doubling from ten packets a round, three rounds more to be sure.
    assert!(
        flow.phases[1].0 < 15 * flow.path.rtt_us,
        "{:?}",
        flow.phases
    );
    assert_eq!(view.inflight_longterm, Bbr3Ack::NONE, "nothing was lost");
}

#[test]
fn drain_leaves_one_bandwidth_delay_product_in_flight() {
    let mut flow = begin(Path {
        buffer: 1000,
        ..Path::new()
    });
    let (mut queue_us, mut after) = (0, None);
    flow.run(SECOND, |flow| match flow.view().phase() {
        Bbr3Phase::Startup | Bbr3Phase::Drain => queue_us = queue_us.max(flow.rtt_us),
        _ => after = after.or(Some((flow.view().min_rtt, flow.in_flight()))),
    });
    assert!(
        queue_us > flow.path.rtt_us * 3 / 2,
        "Startup made a queue: {queue_us}"
    );
    let (min_rtt, flying) = after.unwrap();
    let exact = flow.path.min_rtt_us();
    assert!(u64::from(min_rtt).abs_diff(exact) <= 1, "{min_rtt} {exact}");
    assert!(f64::from(flying) <= flow.path.bdp() + 2.0, "{flying}");
    let drained = flow.phases[2].0 - flow.phases[1].0;
    assert!(drained <= 4 * flow.path.rtt_us, "{:?}", flow.phases);
}

#[test]
fn lossless_bbr3_fills_the_link_and_probes() {
    let mut flow = begin(Path {
        buffer: 1000,
        ..Path::new()
    });
    let share = flow.share(SECOND, 21 * SECOND);
    assert!(share > 0.93, "{share}");
    let ups = entered(&flow, Bbr3Phase::Up);
    for pair in ups.windows(2) {
        // Between two: at most 3 s of waiting, a separate probe, perhaps 200 ms of ProbeRTT, which
        // begins the waiting again.
        assert!(pair[1] - pair[0] < 7 * SECOND, "{ups:?}");
    }
    assert!((4..40).contains(&ups.len()), "{ups:?}");
}

#[test]
fn probe_rtt_takes_200_ms_every_5_s() {
    let mut flow = begin(Path {
        buffer: 1000,
        ..Path::new()
    });
    let mut min = u32::MAX;
    flow.run(22 * SECOND, |flow| {
        if flow.view().phase() == Bbr3Phase::ProbeRtt {
            min = min.min(flow.view().cwnd);
        }
    });
    let half = flow.path.bdp() / 2.0;
    assert!(f64::from(min) < half + 3.0, "{min}, half is {half}");
    let probes = entered(&flow, Bbr3Phase::ProbeRtt);
    assert!((3..=4).contains(&probes.len()), "{:?}", flow.phases);
    for begin in probes {
        let at = flow
            .phases
            .iter()
            .position(|entry| *entry == (begin, Bbr3Phase::ProbeRtt));
        let (end, next) = flow.phases[at.unwrap() + 1];
        assert!(
            (200_000..400_000).contains(&(end - begin)),
            "{}",
            end - begin
        );
        assert_eq!(next, Bbr3Phase::Cruise);
    }
    assert!(
        flow.share(22 * SECOND, 24 * SECOND) > 0.9,
        "the window came back"
    );
}

/// Over a pipe of 170 packets: where less than 50 fit, one loss in a round is more than 2 % already. At 1 %
/// loss 20 % is lost, because some rounds lose four of 170 by chance, and 15 % of the then safe volume
/// is left free.
#[test]
fn one_percent_loss_costs_little_ten_percent_much() {
    let share = |loss: f64| {
        let path = Path {
            rate_bps: 100_000_000,
            buffer: 173,
            loss,
            seed: 7,
            ..Path::new()
        };
        begin(path).share(2 * SECOND, 22 * SECOND)
    };
    let (none, one, five, ten) = (share(0.0), share(0.01), share(0.05), share(0.1));
    assert!(none > 0.9, "{none}");
    assert!(one > 0.7 * none, "{one} of {none}");
    assert!(five < 0.7 * one, "{five} after {one}");
    assert!(ten < five, "{ten} {five}");
    assert!(ten > 0.02, "{ten}: it does not starve");
}

#[test]
fn a_shallow_buffer_limits_the_volume_in_flight() {
    let mut flow = begin(Path {
        buffer: 8,
        ..Path::new()
    });
    let share = flow.share(4 * SECOND, 14 * SECOND);
    let view = flow.view();
    assert_ne!(view.inflight_longterm, Bbr3Ack::NONE);
    let capacity = flow.path.bdp() + flow.path.buffer as f64;
    assert!(
        f64::from(view.inflight_longterm) < capacity * 1.15,
        "{view:?}"
    );
    assert!(share > 0.8, "{share}");
}

#[test]
fn loss_in_startup_ends_it() {
    let mut flow = begin(Path {
        loss: 0.2,
        ..Path::new()
    });
    // The application is slow: no plateau can be seen.
    flow.app_pps = Some(700.0);
    flow.run(3 * SECOND, |_| ());
    let view = flow.view();
    assert!(view.full_bw_reached(), "{:?}", flow.phases);
    assert_eq!(flow.phases[1].1, Bbr3Phase::Drain);
}

#[test]
fn a_slow_application_without_loss_stays_in_startup() {
    let mut flow = begin(Path::new());
    flow.app_pps = Some(200.0);
    flow.run(4 * SECOND, |_| ());
    assert!(!flow.view().full_bw_reached());
    assert_eq!(entered(&flow, Bbr3Phase::Drain), [] as [u64; 0]);
}

#[test]
fn half_the_bandwidth_is_believed_after_two_cycles() {
    let mut flow = begin(Path {
        buffer: 1000,
        ..Path::new()
    });
    flow.run(3 * SECOND, |_| ());
    flow.path.rate_bps /= 2;
    flow.run(20 * SECOND, |_| ());
    let link = 1e6 / flow.path.packet_us();
    let believed = pps(flow.view().max_bw);
    assert!((believed / link - 1.0).abs() < 0.05, "{believed} of {link}");
}

#[test]
fn twice_the_bandwidth_is_found() {
    let mut flow = begin(Path {
        buffer: 1000,
        ..Path::new()
    });
    flow.run(3 * SECOND, |_| ());
    flow.path.rate_bps *= 2;
    let share = flow.share(15 * SECOND, 20 * SECOND);
    assert!(share > 0.85, "{share}");
}

#[test]
fn packet_history_is_exact_within_a_step() {
    let mut flow = begin(Path {
        loss: 0.02,
        seed: 3,
        ..Path::new()
    });
    let (mut acks, mut wrong) = (0u32, 0u32);
    let mut off = 0.0;
    flow.run(20 * SECOND, |flow| {
        let (view, actual) = (flow.view(), flow.actual);
        let distance = f64::from(view.tx_in_flight) - f64::from(actual.tx_in_flight);
        off += distance.abs();
        acks += 1;
        // A packet was sent between two notes: it may have seen one step more.
        let step = f64::from(actual.tx_in_flight) / 16.0 + 2.0;
        wrong += u32::from(distance.abs() > step);
        assert!(view.lost_since >= actual.lost_since || actual.lost_since - view.lost_since <= 2);
    });
    let mean = off / f64::from(acks);
    assert!(mean < 1.0, "{mean} packets off");
    assert!(
        f64::from(wrong) < 0.02 * f64::from(acks),
        "{wrong} of {acks}"
    );
}

#[test]
fn idle_time_counts_as_an_rtt_probe() {
    let mut flow = begin(Path::new());
    flow.run(4 * SECOND, |_| ());
    let before = entered(&flow, Bbr3Phase::ProbeRtt).len();
    flow.pause(12 * SECOND);
    flow.run(12 * SECOND + 500_000, |_| ());
    assert_eq!(
        entered(&flow, Bbr3Phase::ProbeRtt).len(),
        before,
        "{:?}",
        flow.phases
    );
    assert_eq!(flow.view().min_rtt / 1000, 20);
}

#[test]
fn spurious_loss_episodes_are_undone() {
    let mut flow = begin(Path {
        buffer: 8,
        ..Path::new()
    });
    // A probe that loses much: down, with another safe volume.
    let mut seen = false;
    while !seen {
        let until = flow.now_us + 1000;
        assert!(until < 20 * SECOND, "no probe lost more than the threshold");
        flow.run(until, |flow| {
            seen |= flow.view().too_high() && flow.now_us > SECOND
        });
    }
    assert_eq!(flow.view().phase(), Bbr3Phase::Down);
    let lowered = flow.view();
    let look = flow.look();
    flow.bbr.on_undo(&look);
    let back = flow.view();
    assert_eq!(back.phase(), Bbr3Phase::Refill);
    assert!(back.inflight_longterm >= lowered.inflight_longterm);
    assert!(back.cwnd >= lowered.cwnd);
}

#[test]
fn counters_that_wrap_change_nothing() {
    let path = Path {
        loss: 0.01,
        seed: 5,
        ..Path::new()
    };
    let (mut zero, mut wrapping) = (Flow::begin(path, 0), Flow::begin(path, u32::MAX - 900));
    for flow in [&mut zero, &mut wrapping] {
        flow.run(8 * SECOND, |_| ());
    }
    assert_eq!(zero.counters(), wrapping.counters());
    assert_eq!(zero.phases, wrapping.phases);
    assert_eq!(zero.view(), wrapping.view());
}

#[test]
fn rates_and_volumes_of_any_path_fit() {
    for (rate_bps, rtt_us) in [
        (64_000, 1_000_000),
        (1_000_000, 600_000),
        (10_000_000_000, 100),
        (400_000_000, 50_000),
    ] {
        let bdp = rate_bps * rtt_us / (u64::from(MSS) * 8_000_000);
        let path = Path {
            rate_bps,
            rtt_us,
            buffer: 2 * bdp + 50,
            ..Path::new()
        };
        let mut flow = begin(path);
        // As many round trips as Startup needs, and packets enough to measure.
        let packets_us = (2000.0 * path.packet_us()) as u64;
        let long = (40 * rtt_us).max(packets_us / 4).min(60 * SECOND);
        let share = flow.share(long, 2 * long);
        assert!(share > 0.7, "{path:?}: {share} {:?}", flow.view());
    }
}
