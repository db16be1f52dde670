//! Plans on many virtual CPUs: rates hold for every demand, bursts stay within their bound, and plans repeat.

use fairpath_class::{ClassSet, Drafts, Uplinks};
use fairpath_core::Rules;
use fairpath_core::sched::{End, Meta};
use fairpath_shape::{Both, Leaving, Lines, Settings, ShapeInstance, Side};
use fairpath_sim::plan::{
    Cause, Cost, Demand, Offered, Packets, PlanError, PlanFindings, PlanSettings, PlanSubject,
    Verdict, judge, simulate,
};
use fairpath_sim::traffic::TrafficError;
use fairpath_units::test_seeds;

const MS: u64 = 1_000_000;
const DEMANDS: [Demand; 4] = [Demand::All, Demand::One, Demand::Quarter, Demand::Zipf];
/// So fast that no CPU is full.
const FAST: Cost = Cost {
    local_ns: 20,
    shared_ns: 50,
};

struct Subject {
    classes: ClassSet,
    lines: Lines,
}

/// A line of `down` with classes in Fairpath's CSV.
fn subject(down: u64, classes: &str) -> Subject {
    let mut drafts = Drafts::new();
    if !classes.is_empty() {
        drafts.read_file("classes.csv", classes.as_bytes());
    }
    let outcome = ClassSet::build(drafts, Uplinks::Given);
    let classes = outcome
        .set
        .unwrap_or_else(|| panic!("{:?}", outcome.report.problems));
    let settings = Settings {
        bps: Both { down, up: down },
        ..Settings::default()
    };
    let lines = Lines::new(&classes, &settings).unwrap();
    Subject { classes, lines }
}

fn settings(cpus: u32, cost: Cost, warm_up_ms: u64, measured_ms: u64) -> PlanSettings {
    PlanSettings {
        cpus,
        cost,
        duration_ns: Some((warm_up_ms + measured_ms) * MS),
        warm_up_ns: warm_up_ms * MS,
        packet_bytes: 1514,
        seed: 1,
    }
}

impl Subject {
    fn run(&self, settings: &PlanSettings, offered: Offered<'_>) -> PlanFindings {
        self.on(&[Side::Down], settings, offered).unwrap()
    }

    fn on(
        &self,
        sides: &[Side],
        settings: &PlanSettings,
        offered: Offered<'_>,
    ) -> Result<PlanFindings, PlanError> {
        let subject = PlanSubject {
            classes: &self.classes,
            lines: &self.lines,
            sides,
        };
        simulate(&subject, settings, offered, &mut |_| true)
    }
}

fn check_bursts(findings: &PlanFindings) {
    for rate in &findings.rates {
        let bound = rate.bound_bytes.unwrap_or(u64::MAX);
        assert!(rate.burst_bytes <= bound, "{}: {rate:?}", rate.name);
    }
}

#[test]
fn hundred_gigabits_are_used_for_every_demand() {
    let subject = subject(100_000_000_000, "");
    // The burst after the pause before, 5 ms of the rate, takes 17 ms with a demand of 1.3 times the rate.
    let settings = settings(64, FAST, 20, 15);
    for demand in DEMANDS {
        let findings = subject.run(&settings, Offered::Demand(demand));
        let ratio = judge(&findings, &settings)[0].ratio();
        println!(
            "{demand:?}: {ratio:.4}, {:?}",
            findings.rates[0].bound_bytes
        );
        assert!((0.995..1.005).contains(&ratio), "{demand:?}: {ratio}");
        check_bursts(&findings);
    }
}

/// Operations on a word come one after the other, so there is a time for each packet that 512 CPUs cannot go below.
#[test]
fn a_shared_word_bounds_its_rate() {
    let subject = subject(100_000_000_000, "");
    let run = |cpus, shared_ns| {
        let cost = Cost {
            local_ns: 300,
            shared_ns,
        };
        let settings = settings(cpus, cost, 20, 15);
        let findings = subject.run(&settings, Offered::Demand(Demand::All));
        let verdict = judge(&findings, &settings).swap_remove(0);
        let packets = findings.rates[0].sent.packets as f64 / 15e-3;
        println!("{cpus} CPUs, {shared_ns} ns: {packets:.0} packets/s, {verdict:?}");
        (packets, verdict.cause)
    };
    // A pool of each of 512 CPUs would have less than two packets, so that each packet is an operation.
    let (packets, cause) = run(512, 200);
    assert_eq!(cause, Cause::Word { at: 0 });
    assert!((4.9e6..5.1e6).contains(&packets), "{packets}");
    assert_eq!(run(512, 50).1, Cause::Holds);
    assert_eq!(run(64, 200).1, Cause::Holds);
}

/// Each demand is met to 99 % by a line of some Mbit/s.
fn check_low_rates(cpus: u32, mbits: &[u64]) {
    for bits in mbits {
        let subject = subject(bits * 1_000_000, "");
        let settings = settings(cpus, FAST, 2_000, 8_000);
        for demand in DEMANDS {
            let findings = subject.run(&settings, Offered::Demand(demand));
            let ratio = judge(&findings, &settings)[0].ratio();
            let rate = &findings.rates[0];
            println!(
                "{cpus} CPUs, {bits} Mbit/s, {demand:?}: {ratio:.4}, {} dropped, {} of {} bytes above",
                rate.dropped,
                rate.burst_bytes,
                rate.bound_bytes.unwrap_or(0)
            );
            assert!(ratio >= 0.99, "{demand:?}: {ratio}");
            check_bursts(&findings);
        }
    }
}

#[test]
fn low_rates_are_used_on_64_cpus() {
    check_low_rates(64, &[2, 5]);
}

/// A turn of all CPUs takes up to 6 s here, and packets wait for 500 ms at most.
#[test]
fn low_rates_are_used_on_512_cpus() {
    check_low_rates(512, &[1, 5]);
}

const CLASSES: &str = "name,parent,prefix,down,up,down_floor\n\
    site,,,400mbit,400mbit,\n\
    a,site,192.0.2.1/32,300mbit,300mbit,100mbit\n\
    b,site,192.0.2.2/32,300mbit,300mbit,\n\
    c,,192.0.2.3/32,200mbit,200mbit,\n\
    d,,192.0.2.4/32,50mbit,50mbit,\n";

#[test]
fn nested_rates_hold_within_their_bursts() {
    let subject = subject(600_000_000, CLASSES);
    for seed in test_seeds(4) {
        for (cpus, demand) in [2, 16]
            .into_iter()
            .flat_map(|cpus| DEMANDS.map(|d| (cpus, d)))
        {
            let settings = PlanSettings {
                seed,
                ..settings(cpus, FAST, 40, 60)
            };
            let findings = subject.run(&settings, Offered::Demand(demand));
            check_bursts(&findings);
            let verdicts = judge(&findings, &settings);
            for (rate, verdict) in findings.rates.iter().zip(&verdicts) {
                assert!(
                    verdict.holds(),
                    "{demand:?} {cpus} {seed}: {} {verdict:?}",
                    rate.name
                );
            }
        }
    }
}

#[test]
fn equal_seeds_give_equal_findings() {
    let subject = subject(600_000_000, CLASSES);
    let run = |seed| {
        let settings = PlanSettings {
            seed,
            ..settings(8, FAST, 5, 20)
        };
        let sides = &Side::BOTH;
        subject
            .on(sides, &settings, Offered::Demand(Demand::Zipf))
            .unwrap()
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

/// Packets of one class at given times.
struct Given {
    packets: Vec<(u64, Meta)>,
    at: usize,
}

impl Given {
    fn new(count: u64, every_ns: u64) -> Given {
        let packet = |n: u64| Meta {
            bytes: 1000,
            class_id: 1 + n as u32 % 4,
            flow_hash: n as u32 % 7,
            segments: 1,
            ..Meta::default()
        };
        Given {
            packets: (0..count).map(|n| (n * every_ns, packet(n))).collect(),
            at: 0,
        }
    }
}

impl Packets for Given {
    fn next_time(&mut self) -> Result<Option<u64>, TrafficError> {
        Ok(self.packets.get(self.at).map(|(at, _)| *at))
    }

    fn take(&mut self) -> Option<(Meta, End)> {
        let (_, meta) = self.packets.get(self.at)?;
        self.at += 1;
        Some((*meta, End::Receiver))
    }

    fn excluded(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// The bytes by class that one worker sends of these packets, which it receives at once.
fn sent_by_one_worker(subject: &Subject, given: &Given) -> [u64; 5] {
    const START: u64 = 1_000_000_000;
    let (tree, rules) = (&subject.lines.trees.down, Rules::default());
    let handles = tree.plan.config.limit_packets;
    let mut instance = ShapeInstance::new(tree, End::Receiver, &rules, handles, false).unwrap();
    let (mut sent, mut leaving, mut next) = ([0; 5], Vec::new(), None);
    let end = given.packets.last().unwrap().0 + START;
    let mut turn = |instance: &mut ShapeInstance, now| {
        let next = instance.turn(now, 64, &mut leaving).unwrap();
        for left in leaving.drain(..) {
            if let Leaving::Send { handle, .. } = left {
                let meta = given.packets[handle as usize - 1].1;
                sent[meta.class_id as usize] += u64::from(meta.bytes);
            }
        }
        next.map(|at| at.max(now + 1))
    };
    for (handle, (at, meta)) in (1..).zip(&given.packets) {
        let now = at + START;
        while let Some(at) = next.filter(|at| *at < now && *at < end) {
            next = turn(&mut instance, at);
        }
        instance.arrive_as(handle, now, *meta);
        // A plan ends with the last packet.
        if *at + START < end {
            next = turn(&mut instance, now);
        }
    }
    sent
}

#[test]
fn one_cpu_equals_a_single_worker() {
    let subject = subject(
        0,
        &CLASSES.replace("site,,,400mbit,400mbit,\n", "site,,,,,\n"),
    );
    let mut given = Given::new(9000, 10_000);
    // The packets themselves cost nothing here, so that the worker and the CPU act at the same times.
    let settings = PlanSettings {
        duration_ns: None,
        ..settings(
            1,
            Cost {
                local_ns: 0,
                shared_ns: 0,
            },
            0,
            0,
        )
    };
    let alone = sent_by_one_worker(&subject, &given);
    let packets: &mut dyn Packets = &mut given;
    let offered = Offered::Capture {
        packets,
        speed: 1.0,
    };
    let findings = subject.run(&settings, offered);
    let sent = |name: &str| {
        let rate = findings.rates.iter().find(|rate| rate.name == name);
        rate.unwrap().sent.bytes
    };
    assert_eq!(
        ["a", "b", "c", "d"].map(sent),
        [alone[2], alone[3], alone[4], 0]
    );
}

#[test]
fn shared_and_single_workers_send_alike() {
    let subject = subject(1_000_000_000, "");
    let sent = |cpus| {
        let settings = settings(cpus, FAST, 50, 50);
        let findings = subject.run(&settings, Offered::Demand(Demand::All));
        findings.rates[0].sent.bytes as f64
    };
    let alone = sent(1);
    for cpus in [2, 32] {
        let ratio = sent(cpus) / alone;
        assert!((0.995..1.005).contains(&ratio), "{cpus}: {ratio}");
    }
}

fn verdict(cpus: u32, demand: Demand) -> (PlanFindings, Verdict) {
    // A microsecond a packet: 12 Gbit/s of a CPU.
    let cost = Cost {
        local_ns: 1000,
        shared_ns: 100,
    };
    let settings = settings(cpus, cost, 20, 10);
    let findings = subject(40_000_000_000, "").run(&settings, Offered::Demand(demand));
    let verdict = judge(&findings, &settings).swap_remove(0);
    (findings, verdict)
}

#[test]
fn slow_cpus_bound_a_rate() {
    let (findings, verdict) = verdict(2, Demand::All);
    assert!(findings.cpus.iter().all(|cpu| cpu.use_ratio > 0.99));
    let needed = 4;
    assert_eq!(
        verdict.cause,
        Cause::Cpus {
            cpus: vec![0, 1],
            needed
        }
    );
    assert!((0.55..0.65).contains(&verdict.ratio()), "{verdict:?}");
    let (findings, verdict) = self::verdict(8, Demand::All);
    assert!(verdict.holds(), "{verdict:?}");
    let uses = findings.cpus.iter().map(|cpu| cpu.use_ratio);
    assert!(uses.into_iter().all(|ratio| (0.3..0.6).contains(&ratio)));
}

#[test]
fn an_elephant_is_bound_by_its_cpu() {
    let (findings, verdict) = verdict(16, Demand::One);
    let Cause::Cpus { cpus, needed } = verdict.cause else {
        panic!("{verdict:?}");
    };
    assert_eq!((cpus.len(), needed), (1, 4));
    assert!(findings.cpus[cpus[0] as usize].use_ratio > 0.99);
}

#[test]
fn plans_beyond_the_limits_are_refused() {
    let subject = subject(1_000_000_000, "");
    let refused = |cpus| {
        let settings = settings(cpus, FAST, 1, 1);
        let found = subject.on(&[Side::Down], &settings, Offered::Demand(Demand::All));
        found.unwrap_err().to_string()
    };
    assert!(refused(0).contains("must be 1 to 512"));
    assert!(refused(513).contains("must be 1 to 512"));
    let rows = (0..20_000u32).map(|n| {
        let [_, _, high, low] = n.to_be_bytes();
        format!("c{n},,10.0.{high}.{low}/32,1mbit,1mbit\n")
    });
    let many = self::subject(
        1_000_000_000,
        &("name,parent,prefix,down,up\n".to_owned() + &rows.collect::<String>()),
    );
    let settings = settings(512, FAST, 1, 1);
    let found = many.on(&[Side::Down], &settings, Offered::Demand(Demand::All));
    assert!(matches!(found, Err(PlanError::Memory { cpus: 512, .. })));
}

#[test]
fn nothing_limited_is_refused() {
    let settings = settings(2, FAST, 1, 1);
    let found = subject(0, "").on(&[Side::Down], &settings, Offered::Demand(Demand::All));
    assert!(matches!(
        found,
        Err(PlanError::NoRates { direction: "down" })
    ));
}

#[test]
fn an_interrupted_plan_reports_its_time() {
    let subject = subject(10_000_000_000, "");
    let plan = PlanSubject {
        classes: &subject.classes,
        lines: &subject.lines,
        sides: &[Side::Down],
    };
    let settings = settings(4, FAST, 1, 1000);
    let mut looks = 0;
    let mut watch = |_| {
        looks += 1;
        looks < 4
    };
    let findings = simulate(&plan, &settings, Offered::Demand(Demand::All), &mut watch).unwrap();
    assert!(findings.interrupted && findings.measured_ns < 900 * MS);
}
