//! Each fault, caused in a record that is otherwise valid.

use super::*;
use crate::experiment::FormName;
use crate::experiment::document::{Document, Setting};
use crate::record::{CpuRecord, PassiveRecord, TcpSample};

fn experiment() -> Experiment {
    parsed("[links.wan.to.server]\nloss = '1%'\n")
}

/// The experiment whose link says this, and what follows it.
pub(super) fn experiment_with(link: &str) -> Experiment {
    parsed(&format!("[links.wan]\n{link}"))
}

fn parsed(links: &str) -> Experiment {
    let text = format!(
        "name = 'x'\ntitle = 'X'\nquestion = '?'\ntopology = 'router'\nseconds = 5\nwatch = 'client'\n\
        [flows.bulk]\ncongestion = 'cubic'\n{links}"
    );
    let document = Document::parse("x.toml", &text).unwrap();
    document.at(FormName::Quick, &Setting::new()).unwrap()
}

pub(super) fn run() -> RunRecord {
    let sample = |at: f64| TcpSample {
        at,
        busy_us: (at * 1e6) as u64,
        ..TcpSample::default()
    };
    RunRecord {
        seconds: 5.0,
        warmup_seconds: 1.0,
        flows: vec![FlowRecord {
            name: "bulk".into(),
            congestion: "cubic".into(),
            congestion_seen: vec!["cubic".into()],
            goodput: (1..=50)
                .map(|tenth| (f64::from(tenth) / 10.0, 1e8))
                .collect(),
            samples: (0..50)
                .map(|tenth| sample(f64::from(tenth) / 10.0))
                .collect(),
            ..FlowRecord::default()
        }],
        links: vec![LinkRecord {
            name: "router/wan: towards server".into(),
            packets: 10_000,
            lost: 101,
            loss_requested: Some(0.01),
            loss_interval: Some((0.0068, 0.0136)),
            delay_requested_ns: Some(1_000_000),
            delay_mean_ns: Some(1_010_000),
            ..LinkRecord::default()
        }],
        passive: Some(PassiveRecord::default()),
        cpu: CpuRecord {
            cpus: 2,
            busy: 1.4,
            parts: [("emulator".to_owned(), 1.0), ("iperf3".to_owned(), 0.3)].into(),
            ..CpuRecord::default()
        },
        ..RunRecord::default()
    }
}

/// The only fault of a run after a change.
fn fault_of(change: impl FnOnce(&mut RunRecord)) -> Fault {
    let mut run = run();
    change(&mut run);
    let mut found = faults(&run, &experiment());
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

#[test]
fn a_run_without_faults_is_true() {
    assert_eq!(faults(&run(), &experiment()), []);
}

#[test]
fn window_limited_senders_are_named() {
    let fault = fault_of(|run| {
        for sample in &mut run.flows[0].samples {
            sample.rwnd_limited_us = (sample.at * 1e5) as u64;
        }
    });
    assert_eq!(fault.kind, FaultKind::WindowLimited);
    assert!(fault.text.contains("flow bulk: 10 %"), "{}", fault.text);
}

#[test]
fn a_window_limit_before_measurement_is_no_fault() {
    let mut run = run();
    for sample in &mut run.flows[0].samples {
        sample.rwnd_limited_us = (sample.at.min(1.0) * 5e5) as u64;
    }
    assert_eq!(faults(&run, &experiment()), []);
}

#[test]
fn unexpected_congestion_control_is_named() {
    let fault = fault_of(|run| run.flows[0].congestion_seen = vec!["bbr".into()]);
    assert_eq!(fault.kind, FaultKind::WrongCongestion);
    assert!(
        fault
            .text
            .contains("configured cubic, but the kernel used bbr"),
        "{}",
        fault.text
    );

    let mut switched = run();
    switched.flows[0].name = "bulk-2".into();
    switched.flows[0].congestion_seen = vec!["cubic".into(), "bbr".into()];
    let mut experiment = experiment();
    let switch = crate::experiment::SwitchSpec {
        at: 2.0,
        to: "bbr".into(),
    };
    experiment.flows.get_mut("bulk").unwrap().switch = vec![switch];
    assert_eq!(faults(&switched, &experiment), []);
}

#[test]
fn unexpected_loss_and_gso_packets_are_named() {
    let fault = fault_of(|run| run.links[0].lost = 0);
    assert_eq!(fault.kind, FaultKind::NotImpaired);
    assert!(
        fault.text.contains("0.000 % of 10000 packets"),
        "{}",
        fault.text
    );
    let fault = fault_of(|run| run.links[0].loss_requested = Some(0.02));
    assert_eq!(fault.kind, FaultKind::NotImpaired);
    let fault = fault_of(|run| run.links[0].gso_packets = 7);
    assert_eq!(fault.kind, FaultKind::OffloadsOn);
    let fault = fault_of(|run| run.links[0].delay_mean_ns = Some(1_100_000));
    assert_eq!(fault.kind, FaultKind::NotImpaired);
    let fault = fault_of(|run| run.links.clear());
    assert_eq!(
        (fault.kind, fault.text.contains("towards server")),
        (FaultKind::NotImpaired, true)
    );
}

#[test]
fn a_flow_faster_than_its_link_is_invalid() {
    let fault = fault_of(|run| {
        run.bottleneck = Some(crate::record::Bottleneck {
            goodput_limit_bps: 80e6,
            ..Default::default()
        });
        run.flows[0].goodput_bps = 100e6;
    });
    assert!(
        fault.text.contains("reached 100.0 Mbit/s"),
        "{}",
        fault.text
    );
    let fault = fault_of(|run| {
        run.bottleneck = Some(crate::record::Bottleneck {
            goodput_limit_bps: 80e6,
            ..Default::default()
        });
        let mut second = run.flows[0].clone();
        second.name = "bulk-2".into();
        run.flows.push(second);
        run.flows
            .iter_mut()
            .for_each(|flow| flow.goodput_bps = 50e6);
    });
    assert!(fault.text.contains("100.0 Mbit/s"), "{}", fault.text);
}

#[test]
fn enabled_offloads_of_emulated_links_are_named() {
    let state = |run: &mut RunRecord, state: &str| {
        run.offloads.insert("client/lan".into(), state.into());
    };
    let fault = fault_of(|run| state(run, "tso on, gso on, gro off"));
    assert_eq!(fault.kind, FaultKind::OffloadsOn);
    assert!(
        fault.text.contains("enabled at client/lan"),
        "{}",
        fault.text
    );
    let mut off = run();
    state(&mut off, "tso off, gso on, gro off");
    assert_eq!(faults(&off, &experiment()), []);
}

#[test]
fn emulator_drops_and_invalid_results_are_named() {
    let fault = fault_of(|run| run.links[0].own_dropped = 3);
    assert_eq!(fault.kind, FaultKind::EmulatorFailed);
    let fault = fault_of(|run| run.links[0].invalid = Some("its thread was late".into()));
    assert_eq!(
        fault.text,
        "router/wan: towards server: its thread was late"
    );
}

#[test]
fn full_processors_and_a_greedy_host_are_named() {
    let fault = fault_of(|run| {
        run.cpu.busy = 1.99;
        run.cpu.parts.insert("iperf3".into(), 0.9);
        run.cpu.waited.insert("iperf3".into(), 0.3);
    });
    assert_eq!(fault.kind, FaultKind::SharedCpu);
    assert!(
        fault.text.contains("iperf3 waited 30 %") && fault.text.contains("iperf3 90 %"),
        "{}",
        fault.text
    );
    let fault = fault_of(|run| run.cpu.busy = 1.96);
    assert!(
        fault
            .text
            .starts_with("what is no part of the run used 33 %"),
        "{}",
        fault.text
    );
    let mut carried = run();
    (carried.cpu.busy, carried.cpu.interrupts) = (1.96, 0.4);
    assert_eq!(faults(&carried, &experiment()), [], "packets in interrupts");
    let mut own = run();
    own.cpu.waited.insert(PASSIVE_PART.into(), 0.3);
    assert_eq!(faults(&own, &experiment()), [], "it holds nobody back");
    let mut machine = experiment();
    machine.measures_machine = true;
    let mut stolen = run();
    (stolen.cpu.busy, stolen.cpu.stolen) = (1.0, 0.2);
    assert_eq!(faults(&stolen, &machine), []);
    let fault = fault_of(|run| (run.cpu.busy, run.cpu.stolen) = (1.0, 0.2));
    assert!(fault.text.contains("took 10 %"), "{}", fault.text);
}

#[test]
fn each_direction_of_a_link_needs_a_record() {
    let loss = experiment_with("rate = '100mbit'\n[links.wan.to.server]\nloss = '1%'\n");
    let missing = |run: &RunRecord| -> Vec<String> {
        let faults = faults(run, &loss).into_iter();
        faults.map(|fault| fault.text).collect()
    };
    let mut run = run();
    let reported = missing(&run);
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(
        reported[0].contains("nothing was done to packets towards router"),
        "{reported:?}"
    );
    let mut back = run.links[0].clone();
    back.name = "router/wan: towards router".into();
    (back.lost, back.loss_requested) = (50, Some(0.005));
    back.loss_interval = Some((0.003, 0.007));
    run.links.push(back);
    assert_eq!(missing(&run), [""; 0]);
}

#[test]
fn words_not_read_by_the_emulator_are_named() {
    let fault = fault_of(|run| {
        run.links[0].stated = "delay 1000000ns loss 1%".into();
        run.links[0].requested = "delay=1ms".into();
    });
    assert_eq!(fault.kind, FaultKind::NotImpaired);
    assert!(
        fault
            .text
            .contains("loss: configured 1%, but the emulator reported no value"),
        "{}",
        fault.text
    );
}

#[test]
fn missing_measurements_are_named() {
    let fault = fault_of(|run| run.passive = None);
    assert_eq!(fault.kind, FaultKind::NotMeasured);
    let fault = fault_of(|run| run.flows[0].goodput.truncate(20));
    assert!(
        fault.text.contains("known for 1.0 s of 4.0 s"),
        "{}",
        fault.text
    );
    let mut short = run();
    short.flows[0].goodput.truncate(20);
    let mut experiment = experiment();
    experiment.flows.get_mut("bulk").unwrap().seconds = Some(2.0);
    assert_eq!(faults(&short, &experiment), [], "it was to end then");
}

/// Changes a run by a share of one quantity.
type Configure = fn(&mut RunRecord, f64);

/// Each printed limit is exact: a run just below it is valid, a run just above it is invalid.
#[test]
fn reported_validation_equals_the_criteria() {
    let reported = criteria().join(" ").replace('\u{a0}', " ");
    let limits: [(&str, Configure, f64); 6] = [
        ("within 5 % or 50 us of the configured delay", delayed, 0.05),
        ("limit a sender for at most 5 %", window_limited_for, 0.05),
        ("No rate is exceeded by 10 %", faster_by, 0.1),
        ("wait for a processor for at most 10 %", waits, 0.1),
        ("Other programs use at most 25 %", others_use, 0.25),
        ("the host steals at most 5 %", host_takes, 0.05),
    ];
    for (words, change, limit) in limits {
        assert!(reported.contains(words), "{words}: {reported}");
        for (share, faulty) in [(limit - 0.01, false), (limit + 0.01, true)] {
            let mut run = run();
            change(&mut run, share);
            let found = faults(&run, &experiment());
            assert_eq!(!found.is_empty(), faulty, "{words} at {share}: {found:?}");
        }
    }
}

/// A direction without a separate delay: 5 % of a long round-trip time are more than 50 us, also if its
/// rate planned a mean wait of some ns per packet.
#[test]
fn unimpaired_directions_are_compared_with_the_rtt() {
    for (requested, mean, is_wrong) in [
        (0, 200_000, false),
        (9, 200_000, false),
        (9, 300_000, true),
        (60_000, 120_000, true),
    ] {
        let mut run = run();
        run.bottleneck = Some(crate::record::Bottleneck {
            base_rtt_ns: 5_000_000,
            ..crate::record::Bottleneck::default()
        });
        run.links[0].delay_requested_ns = Some(requested);
        run.links[0].delay_mean_ns = Some(mean);
        let reported = wrong_delay(&run.links[0], &run).is_some();
        assert_eq!(reported, is_wrong, "{requested} {mean}");
    }
}

fn delayed(run: &mut RunRecord, share: f64) {
    run.links[0].delay_requested_ns = Some(20_000_000);
    run.links[0].delay_mean_ns = Some((20e6 * (1.0 + share)) as u64);
}

fn window_limited_for(run: &mut RunRecord, share: f64) {
    for sample in &mut run.flows[0].samples {
        sample.rwnd_limited_us = (sample.busy_us as f64 * share) as u64;
    }
}

fn faster_by(run: &mut RunRecord, share: f64) {
    run.flows[0].goodput_bps = 1e8 * (1.0 + share);
    run.bottleneck = Some(crate::record::Bottleneck {
        goodput_limit_bps: 1e8,
        ..crate::record::Bottleneck::default()
    });
}

fn waits(run: &mut RunRecord, share: f64) {
    run.cpu.waited = [("emulator".to_owned(), share)].into();
}

fn others_use(run: &mut RunRecord, share: f64) {
    let parts: f64 = run.cpu.parts.values().sum();
    run.cpu.busy = parts + share * f64::from(run.cpu.cpus);
}

fn host_takes(run: &mut RunRecord, share: f64) {
    run.cpu.stolen = share * f64::from(run.cpu.cpus);
}
