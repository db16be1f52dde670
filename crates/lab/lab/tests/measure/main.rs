//! Measurements of real traffic through a router in namespaces.
//!
//! Amounts are asserted, and relations between independent measurements; no tight times. What a busy
//! machine may disturb is measured again by name, three times at most.

mod mathis;
mod passive;
mod path;
mod steady;

use std::sync::Arc;
use std::time::Duration;

use fairpath_bpf::{Dropper, Recoveries};
use fairpath_lab::measure::call::{CallPlan, PAYLOAD_BYTES};
use fairpath_lab::measure::cpu::{CpuMeter, Role};
use fairpath_lab::measure::ping::PingPlan;
use fairpath_lab::measure::sampler::{SAMPLE_EVERY, Sampler};
use fairpath_lab::measure::switch::switch_congestion;
use fairpath_lab::measure::traffic::{Load, Traffic};
use fairpath_lab::measure::{Origin, Window};
use fairpath_netlink::Links;
use fairpath_testbed::{Impairment, Need, Netns, Router, Testbed, requires, wait_for};

use path::{LEAD, bulk, run};
use steady::{steady, timed};

/// Configured loss in the router, on packets from the client.
fn attach(router: &Netns, share: f64) -> Dropper {
    router
        .enter(|| {
            let lan = Links::open().unwrap().by_name("lan").unwrap().unwrap();
            Dropper::attach(lan.ifindex, "lan", share, 1000).unwrap()
        })
        .unwrap()
}

#[test]
fn loss_events_are_as_many_as_retransmissions_allow() {
    requires!(Need::Root, Need::Tool("iperf3"));
    steady!(|| {
        let testbed = Testbed::new();
        let net = Router::new(&testbed).unwrap();
        let dropper = attach(&net.router, 0.01);
        let recoveries = Arc::new(Recoveries::count().unwrap());
        let plans = vec![bulk(&net, "bulk", 5201, "cubic", 3)];
        let ran = run(plans, Some(Arc::clone(&recoveries)), |_| {});
        let window = Window { from: 0.5, to: 3.0 };
        let record = ran.record(0, window);
        let (_, dropped) = dropper.counts();

        timed!(dropped > 20, "{dropped} dropped");
        let events = record.loss_events.clone().unwrap();
        assert!(!events.sampled);
        // Every event repairs at least one segment, and 1 % of loss gives few bursts: most repair one or two.
        assert!(
            events.events <= record.retransmits,
            "{events:?}, {record:?}"
        );
        timed!(
            events.events * 8 >= record.retransmits,
            "{events:?}, {} sent again",
            record.retransmits
        );
        // The configured losses equal the retransmissions, except for packets in flight at the window's ends.
        let whole = ran.record(0, Window { from: 0.0, to: 3.5 });
        timed!(
            whole.retransmits * 2 > dropped,
            "{} of {dropped}",
            whole.retransmits
        );
        timed!(
            whole.retransmits < dropped * 2,
            "{} of {dropped}",
            whole.retransmits
        );
        let share = record.retransmits as f64 / record.segments_sent as f64;
        timed!((0.005..0.02).contains(&share), "{share}");

        // Samples of 100 ms alone see far fewer.
        let sampled = ran.without_recoveries(0).loss_events(window).unwrap();
        timed!(
            sampled.sampled && sampled.events < events.events,
            "{sampled:?} {events:?}"
        );
        assert_eq!(record.congestion_seen, ["cubic"]);
        assert!(
            record.mss_bytes > 1400 && record.mss_bytes < 1461,
            "{}",
            record.mss_bytes
        );
        println!(
            "dropped {dropped}, {events:?}, sampled {}, sent again {} of {}, {:?} a ACK, {:.0} Mbit/s, sampler {:.4} cores",
            sampled.events,
            record.retransmits,
            record.segments_sent,
            record.segments_per_ack,
            record.goodput_bps / 1e6,
            ran.sampled.cores(),
        );
        Ok(())
    });
}

#[test]
fn goodput_is_the_receivers_without_warm_up() {
    requires!(Need::Root, Need::Tool("iperf3"));
    steady!(|| {
        let testbed = Testbed::new();
        let net = Router::new(&testbed).unwrap();
        let mut there = bulk(&net, "there", 5201, "reno", 2);
        there.load = Load::Tcp {
            congestion: "reno".to_owned(),
            bitrate_bps: Some(20_000_000),
            window_bytes: None,
        };
        let mut back = bulk(&net, "back", 5202, "cubic", 1);
        back.load = Load::Tcp {
            congestion: "cubic".to_owned(),
            bitrate_bps: Some(10_000_000),
            window_bytes: None,
        };
        (back.reverse, back.start_seconds) = (true, 1.0);
        let mut udp = bulk(&net, "udp", 5203, "", 2);
        udp.load = Load::Udp {
            bitrate_bps: 1_000_000,
            payload_bytes: 500,
        };
        let ran = run(vec![there, back, udp], None, |_| {});
        let window = Window { from: 0.5, to: 2.0 };

        let there = ran.record(0, window);
        timed!(
            (there.goodput_bps / 20e6 - 1.0).abs() < 0.2,
            "{}",
            there.goodput_bps
        );
        assert_eq!(there.congestion_seen, ["reno"]);
        timed!(there.goodput.len() >= 15, "{:?}", there.goodput);
        let back = ran.record(1, window);
        timed!(
            (back.goodput_bps / 10e6 - 1.0).abs() < 0.3,
            "{}",
            back.goodput_bps
        );
        timed!(
            (1.0..1.5).contains(&back.start_seconds),
            "{}",
            back.start_seconds
        );
        assert_eq!(back.congestion_seen, ["cubic"]);
        let udp = ran.record(2, window);
        let packets = udp.udp.clone().unwrap();
        timed!(
            (450..=550).contains(&packets.packets) && packets.lost == 0,
            "{packets:?}"
        );
        timed!(
            (udp.goodput_bps / 1e6 - 1.0).abs() < 0.2,
            "{}",
            udp.goodput_bps
        );
        assert!(udp.samples.is_empty());
        Ok(())
    });
}

#[test]
fn a_switch_mid_run_is_done_and_seen() {
    requires!(Need::Root, Need::Tool("iperf3"));
    let testbed = Testbed::new();
    let net = Router::new(&testbed).unwrap();
    let plans = vec![bulk(&net, "bulk", 5201, "cubic", 2)];
    let ran = run(plans, None, |running| {
        let switched = wait_for(Duration::from_secs(10), || {
            let pid = running.pids().now()["bulk"][0];
            let to_server = |_, peer: std::net::SocketAddr| peer.port() == 5201;
            // The control connection comes first: both are to be there.
            (pid != 0)
                .then(|| switch_congestion(pid, "reno", to_server).ok())?
                .filter(|switched| switched.len() == 2)
        });
        let switched = switched.expect("iperf3 has two connections");
        assert!(
            switched.iter().any(|s| s.was == "cubic" && s.now == "reno"),
            "{switched:?}"
        );
    });
    let record = ran.record(0, Window { from: 0.2, to: 2.0 });
    assert_eq!(
        record.congestion_seen.last().map(String::as_str),
        Some("reno")
    );
}

#[test]
fn both_ping_phases_and_a_call_are_measured() {
    requires!(Need::Root);
    steady!(|| {
        let testbed = Testbed::new();
        let net = Router::new(&testbed).unwrap();
        let origin = Origin::ahead(LEAD);
        let ping = PingPlan {
            name: "ping".to_owned(),
            from: net.client.clone(),
            to: Router::SERVER.v4,
            interval: Duration::from_millis(20),
        };
        let call = CallPlan {
            name: "call".to_owned(),
            from: net.client.clone(),
            to: net.server.clone(),
            to_ip: Router::SERVER.v4,
            port: 4000,
            dscp: 46,
        };
        let pinging = ping.start(origin).unwrap();
        let calling = call.start(origin, 0.0).unwrap();
        let before = net.server_end.counters().unwrap();
        std::thread::sleep(LEAD + Duration::from_millis(1100));
        // From now on every packet towards the server is lost.
        let dropper = attach_small(&net.router);
        std::thread::sleep(Duration::from_millis(400));
        let (echoes, called) = (pinging.finish().unwrap(), calling.finish().unwrap());
        drop(dropper);

        let good = Window { from: 0.0, to: 1.0 };
        let record = echoes.record(good);
        timed!((40..=52).contains(&record.sent), "{}", record.sent);
        assert_eq!(record.rtts_ns.len() as u32, record.sent);
        timed!(
            record.idle_rtts_ns.len() >= 10,
            "{}",
            record.idle_rtts_ns.len()
        );
        timed!(
            record
                .rtts_ns
                .iter()
                .all(|(_, rtt)| (1_000..500_000_000).contains(rtt)),
            "{record:?}"
        );
        let mut rtts: Vec<u64> = record.rtts_ns.iter().map(|(_, rtt)| *rtt).collect();
        rtts.sort_unstable();
        println!(
            "ping p50 {} ns, worst {:?} ns",
            rtts[rtts.len() / 2],
            rtts.last()
        );
        let lost = echoes.record(Window {
            from: 1.25,
            to: 1.5,
        });
        timed!(lost.sent > 5 && lost.rtts_ns.is_empty(), "{lost:?}");

        let record = called.record(good);
        timed!(
            (49..=51).contains(&record.delays_ns.len()),
            "{}",
            record.delays_ns.len()
        );
        timed!(
            record
                .delays_ns
                .iter()
                .all(|d| d.is_some_and(|d| d > 0 && d < 500_000_000)),
            "{record:?}"
        );
        let mut delays: Vec<u64> = record.delays_ns.iter().filter_map(|d| *d).collect();
        delays.sort_unstable();
        println!(
            "call p50 {} ns, worst {:?} ns",
            delays[delays.len() / 2],
            delays.last()
        );
        let lost = called.record(Window {
            from: 1.25,
            to: 1.5,
        });
        assert!(
            !lost.delays_ns.is_empty() && lost.delays_ns.iter().all(Option::is_none),
            "{lost:?}"
        );
        let after = net.server_end.counters().unwrap();
        assert!(after.rx_bytes - before.rx_bytes > 50 * PAYLOAD_BYTES as u64);
        Ok(())
    });
}

/// Everything that arrives at the router from the client is lost.
fn attach_small(router: &Netns) -> Dropper {
    router
        .enter(|| {
            let lan = Links::open().unwrap().by_name("lan").unwrap().unwrap();
            Dropper::attach(lan.ifindex, "lan", 1.0, 0).unwrap()
        })
        .unwrap()
}

#[test]
fn sampling_forty_flows_takes_under_10_percent_cpu() {
    requires!(Need::Root, Need::Tool("iperf3"));
    steady!(|| {
        let testbed = Testbed::new();
        let net = Router::new(&testbed).unwrap();
        let plans = (0..40u16).map(|n| {
            let mut plan = bulk(&net, &format!("bulk-{n}"), 5201 + n, "cubic", 3);
            plan.load = Load::Tcp {
                congestion: "cubic".to_owned(),
                bitrate_bps: Some(500_000),
                window_bytes: None,
            };
            plan
        });
        let recoveries = Arc::new(Recoveries::count().unwrap());
        let mut meter = CpuMeter::start();
        let ran = run(plans.collect(), Some(recoveries), |running| {
            for (flow, [client, _]) in running.pids().now() {
                meter.watch(&flow, client, Role::Traffic);
            }
        });
        assert_eq!(ran.transfers.len(), 40);
        for n in 0..40 {
            let record = ran.record(n, Window { from: 0.5, to: 3.0 });
            timed!(
                record.samples.len() >= 15,
                "{}: {}",
                record.name,
                record.samples.len()
            );
        }
        println!("sampler: {:.4} cores for 40 flows", ran.sampled.cores());
        timed!(ran.sampled.cores() < 0.1, "{}", ran.sampled.cores());
        Ok(())
    });
}

#[test]
fn impossible_values_are_reported_with_the_flow() {
    requires!(Need::Root, Need::Tool("iperf3"));
    let testbed = Testbed::new();
    let net = Router::new(&testbed).unwrap();
    let refused = Traffic::listen(vec![bulk(&net, "wrong", 5201, "no_such_cc", 1)]).unwrap_err();
    let text = refused.to_string();
    assert!(
        text.contains("flow \"wrong\"") && text.contains("no_such_cc") && text.contains("it has:"),
        "{text}"
    );

    // A port that is taken.
    let taken = Traffic::listen(vec![bulk(&net, "first", 5201, "cubic", 1)]).unwrap();
    let again = bulk(&net, "second", 5201, "cubic", 1);
    let refused = Traffic::listen(vec![again]).unwrap_err().to_string();
    assert!(
        refused.contains("flow \"second\"") && refused.contains("in use"),
        "{refused}"
    );
    drop(taken);

    // A client that dies on the way.
    let plans = vec![bulk(&net, "dying", 5201, "cubic", 5)];
    let running = Traffic::listen(plans)
        .unwrap()
        .begin(Origin::ahead(LEAD))
        .unwrap();
    let pid = wait_for(Duration::from_secs(10), || {
        Some(running.pids().now()["dying"][0]).filter(|pid| *pid != 0)
    });
    let pid = nix::unistd::Pid::from_raw(pid.unwrap().cast_signed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    let died = running.finish().unwrap_err().to_string();
    assert!(
        died.contains("flow \"dying\"") && died.contains("client"),
        "{died}"
    );

    // Ended by the caller, long before its time.
    let plans = vec![bulk(&net, "stopped", 5202, "cubic", 60)];
    let running = Traffic::listen(plans)
        .unwrap()
        .begin(Origin::ahead(LEAD))
        .unwrap();
    running.stop();
    assert_eq!(
        running.finish().unwrap_err().to_string(),
        "the flows were ended early"
    );
}

#[test]
fn buffer_limited_senders_are_detected() {
    requires!(Need::Root, Need::Tool("iperf3"));
    steady!(|| {
        let delay = Impairment::delay(Duration::from_millis(10));
        let net = Router::builder()
            .wan_wire(delay.clone(), delay)
            .build(&Testbed::new())
            .unwrap();
        let mut plan = bulk(&net, "bulk", 5201, "cubic", 2);
        plan.load = Load::Tcp {
            congestion: "cubic".to_owned(),
            bitrate_bps: None,
            window_bytes: Some(16_384),
        };
        let ran = run(vec![plan], None, |_| {});
        let record = ran.record(0, Window { from: 0.5, to: 2.0 });
        let (first, last) = (&record.samples[0], record.samples.last().unwrap());
        let held = (last.rwnd_limited_us - first.rwnd_limited_us)
            + (last.sndbuf_limited_us - first.sndbuf_limited_us);
        let busy = last.busy_us - first.busy_us;
        timed!(held * 2 > busy, "{held} of {busy} us");
        // 16 KiB, which the kernel doubles, each 20 ms are 13 Mbit/s.
        assert!(record.goodput_bps < 40e6, "{}", record.goodput_bps);
        Ok(())
    });
}

#[test]
fn a_sampler_of_nothing_ends_at_once() {
    let sampler = Sampler::start(Vec::new(), Origin::ahead(LEAD), SAMPLE_EVERY, None).unwrap();
    assert!(sampler.finish().unwrap().series.is_empty());
}
