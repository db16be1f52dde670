//! Results as an experiment would leave them, computed from a seed: what TCP does under loss is taken
//! from the models, with noise, so that a page can be made and judged without a network.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use fairpath_analysis::figure::{FigureKind, FigureSpec};
use fairpath_analysis::manifest::{self, Axis, Machine, Manifest, Scale};
use fairpath_analysis::model::{Conditions, Prediction};
use fairpath_analysis::record::{
    self, Bottleneck, CallRecord, CommandRecord, CpuRecord, Fault, FaultKind, FlowRecord,
    LinkRecord, LossEvents, PassiveRecord, PingRecord, QueueRecord, RunRecord, TcpSample,
};
use fairpath_analysis::results::Results;

pub const LIMIT_BPS: f64 = 80.6e6;
const SECONDS: f64 = 6.0;
const WARMUP: f64 = 1.0;
const MSS: u32 = 1448;

/// Numbers that depend on a seed and nothing else (SplitMix64).
pub struct Noise(u64);

impl Noise {
    pub fn new(seed: u64) -> Noise {
        Noise(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Between 0 and 1.
    pub fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Around 1, at most `spread` off.
    pub fn factor(&mut self, spread: f64) -> f64 {
        1.0 + spread * (2.0 * self.uniform() - 1.0)
    }
}

pub fn axis(name: &str, label: &str, values: &[&str]) -> Axis {
    Axis {
        name: name.into(),
        label: label.into(),
        values: values.iter().map(|v| (*v).to_owned()).collect(),
        ..Axis::default()
    }
}

pub fn figure(title: &str, kind: FigureKind, y: &str) -> FigureSpec {
    FigureSpec {
        title: title.into(),
        kind,
        x: None,
        y: y.into(),
        by: None,
        split: None,
        theory: false,
        log_x: false,
        log_y: false,
    }
}

fn manifest(name: &str, axes: Vec<Axis>, figures: Vec<FigureSpec>, repeats: u32) -> Manifest {
    let settings: usize = axes.iter().map(|axis| axis.values.len()).product();
    let words = [
        "fairpath", "lab", "run", name, "--quick", "--output", "results",
    ];
    Manifest {
        format: manifest::FORMAT,
        experiment: name.into(),
        title: "What loss costs".into(),
        question: "What does 1 % of lost packets cost CUBIC and BBR?".into(),
        text: "Five hosts in a chain.\n\nLoss is made in the middle.".into(),
        form: "quick".into(),
        axes,
        repeats,
        runs_planned: settings as u32 * repeats,
        seed: 88,
        figures,
        scale: None,
        remarks: vec!["The talk's round trip is not known; ours, base 0.5 ms, is fitted.".into()],
        machine: Machine {
            kernel: "6.18.9".into(),
            cpu_model: "Made up 9000".into(),
            cpus: 2,
            memory_bytes: 8 << 30,
            virtualisation: "kvm".into(),
            iperf3: "iperf 3.18".into(),
            fairpath: "fairpath 0.5.0".into(),
            default_congestion: "bbr".into(),
            congestion_controls: vec!["reno".into(), "cubic".into(), "bbr".into()],
            bbr: "v1 (by the size of its information)".into(),
        },
        not_again: Vec::new(),
        command: words.map(str::to_owned).into(),
        fairpath_version: "0.5.0".into(),
        started: "2026-01-05T10:00:00Z".into(),
        ended: Some("2026-01-05T10:04:30Z".into()),
    }
}

/// One run for each setting and repeat, in the order of the axes.
fn results(manifest: Manifest, make: impl Fn(&Setting, &mut Noise) -> RunRecord) -> Results {
    let mut settings: Vec<Setting> = vec![Setting::new()];
    for axis in &manifest.axes {
        settings = settings
            .iter()
            .flat_map(|part| {
                axis.values.iter().map(|value| {
                    let mut part = part.clone();
                    part.insert(axis.name.clone(), value.clone());
                    part
                })
            })
            .collect();
    }
    let mut runs = Vec::new();
    for repeat in 0..manifest.repeats {
        for setting in &settings {
            let place = runs.len() as u32;
            let mut noise = Noise::new(u64::from(place) + 1);
            runs.push(RunRecord {
                format: record::FORMAT,
                experiment: manifest.experiment.clone(),
                place,
                setting: setting.clone(),
                repeat,
                seed: u64::from(place) + 1,
                started: "2026-01-05T10:00:00Z".into(),
                seconds: SECONDS,
                warmup_seconds: WARMUP,
                ..make(setting, &mut noise)
            });
        }
    }
    Results {
        manifest,
        runs,
        unreadable: Vec::new(),
    }
}

pub type Setting = BTreeMap<String, String>;

/// Loss on two topologies, as the talk had it.
pub fn ripe88(losses: &[&str], repeats: u32) -> Results {
    let axes = vec![
        axis("topology", "topology", &["symmetric", "asymmetric"]),
        axis("cc", "congestion control", &["cubic", "bbr"]),
        axis("loss", "packets lost", losses),
    ];
    let goodput = FigureSpec {
        x: Some("loss".into()),
        by: Some("cc".into()),
        split: Some("topology".into()),
        theory: true,
        ..figure(
            "What loss costs CUBIC and BBR",
            FigureKind::Curve,
            "goodput",
        )
    };
    let again = FigureSpec {
        x: Some("loss".into()),
        by: Some("cc".into()),
        theory: false,
        ..figure("What is sent again", FigureKind::Bars, "retransmits")
    };
    let window = FigureSpec {
        by: Some("cc".into()),
        split: Some("loss".into()),
        ..figure(
            "The congestion window over a run",
            FigureKind::Timeline,
            "cwnd",
        )
    };
    let rtt = FigureSpec {
        by: Some("cc".into()),
        split: Some("loss".into()),
        log_x: true,
        ..figure(
            "Round trips of the flows",
            FigureKind::Distribution,
            "rtt-p50",
        )
    };
    let mut manifest = manifest("ripe88", axes, vec![goodput, again, window, rtt], repeats);
    manifest.scale = Some(Scale {
        factor: 0.1,
        text: "Rates are 10 % of those of the talk and round-trip times ten times as long, so their product is the same.".into(),
    });
    results(manifest, |setting, noise| {
        let loss = share(&setting["loss"]);
        RunRecord {
            flows: vec![flow("bulk", &setting["cc"], loss, 0.0, 1.0, noise)],
            links: vec![link(loss, noise)],
            ..surroundings(noise)
        }
    })
}

/// The same with a second grid, as the full form has it: loss on both paths at one round trip, and
/// round trips on one path without loss and with 1 %.
pub fn ripe88_full(repeats: u32) -> Results {
    let mut results = ripe88(&["0%", "1%", "5%", "10%"], repeats);
    let rtts = ["0.5ms", "5ms", "50ms"];
    results.manifest.axes.push(axis("rtt", "round trip", &rtts));
    results.manifest.figures.push(FigureSpec {
        x: Some("rtt".into()),
        by: Some("cc".into()),
        split: Some("loss".into()),
        theory: true,
        log_x: true,
        ..figure(
            "What 1 % costs depends on the round trip",
            FigureKind::Curve,
            "goodput",
        )
    });
    let mut more = Vec::new();
    for run in &mut results.runs {
        let is_second = run.setting["topology"] == "symmetric"
            && ["0%", "1%"].contains(&run.setting["loss"].as_str());
        run.setting.insert("rtt".into(), rtts[0].into());
        for rtt in &rtts[1..] {
            let mut other = run.clone();
            other.setting.insert("rtt".into(), (*rtt).into());
            // At 10 % of the rates, round-trip times are ten times as long.
            let ms: f64 = rtt.trim_end_matches("ms").parse().unwrap();
            other.bottleneck.as_mut().unwrap().base_rtt_ns = (ms * 1e7) as u64;
            more.extend(is_second.then_some(other));
        }
    }
    results.runs.extend(more);
    for (place, run) in results.runs.iter_mut().enumerate() {
        run.place = place as u32;
    }
    results.manifest.runs_planned = results.runs.len() as u32;
    results
}

/// Two flows on one link, and a queue.
pub fn fairness(repeats: u32) -> Results {
    let axes = vec![
        axis("pair", "pair", &["cubic-cubic", "bbr-bbr", "bbr-cubic"]),
        axis("buffer", "buffer", &["30kb", "120kb"]),
    ];
    let jain = FigureSpec {
        x: Some("pair".into()),
        by: Some("buffer".into()),
        ..figure("How evenly two flows share", FigureKind::Bars, "jain")
    };
    let time = FigureSpec {
        split: Some("pair".into()),
        ..figure(
            "Goodput over the time of a run",
            FigureKind::Timeline,
            "goodput",
        )
    };
    let share = FigureSpec {
        x: Some("pair".into()),
        by: Some("buffer".into()),
        ..figure("What BBR takes", FigureKind::Bars, "share-of-flows@bbr")
    };
    let manifest = manifest("fairness", axes, vec![jain, time, share], repeats);
    results(manifest, |setting, noise| {
        let (first, second) = setting["pair"].split_once('-').unwrap();
        let split = if first == second { 0.5 } else { 0.75 };
        RunRecord {
            flows: vec![
                flow("first", first, 0.0, 0.0, split, noise),
                flow("second", second, 0.0, 1.0, 1.0 - split, noise),
            ],
            ..surroundings(noise)
        }
    })
}

/// A call during bulk traffic, with jitter.
pub fn voice(repeats: u32) -> Results {
    let axes = vec![
        axis("jitter", "jitter", &["0ms", "10ms", "40ms"]),
        axis("cc", "bulk", &["cubic", "bbr"]),
    ];
    let mos = FigureSpec {
        x: Some("jitter".into()),
        by: Some("cc".into()),
        ..figure(
            "Quality of a call during bulk traffic",
            FigureKind::Curve,
            "mos",
        )
    };
    let gaps = FigureSpec {
        x: Some("jitter".into()),
        by: Some("cc".into()),
        ..figure("Audible gaps", FigureKind::Bars, "choppiness")
    };
    let ping = FigureSpec {
        by: Some("cc".into()),
        split: Some("jitter".into()),
        ..figure(
            "Ping during bulk traffic",
            FigureKind::Distribution,
            "ping-p50",
        )
    };
    let manifest = manifest("voice", axes, vec![mos, gaps, ping], repeats);
    results(manifest, |setting, noise| {
        let jitter_ms: f64 = setting["jitter"].trim_end_matches("ms").parse().unwrap();
        RunRecord {
            flows: vec![flow("bulk", &setting["cc"], 0.0, 0.0, 1.0, noise)],
            calls: vec![call(jitter_ms, noise)],
            ..surroundings(noise)
        }
    })
}

/// "1%" -> 0.01.
pub fn share(text: &str) -> f64 {
    text.trim_end_matches('%').parse::<f64>().unwrap() / 100.0
}

/// A run that is not to be believed, with a goodput that would show in any median.
pub fn invalidate(run: &mut RunRecord) {
    run.faults.push(Fault {
        kind: FaultKind::SharedCpu,
        text: "the processors were busy to 99 %; give the lab more of them".into(),
    });
    for flow in &mut run.flows {
        flow.goodput_bps = 1.0;
    }
}

fn flow(name: &str, cc: &str, loss: f64, start: f64, part: f64, noise: &mut Noise) -> FlowRecord {
    let rtt = 0.005 * if loss > 0.0 { 1.05 } else { 1.6 } * noise.factor(0.02);
    let conditions = Conditions {
        rtt_seconds: rtt,
        loss_event_rate: loss * 0.95,
        mss_bytes: f64::from(MSS),
        segments_per_ack: 2.0,
        timeout_seconds: 0.2,
    };
    let limit = LIMIT_BPS * part;
    let bps = match Prediction::of(cc, &conditions) {
        Some(prediction) => prediction
            .bounded(limit)
            .cubic_bps
            .unwrap_or(prediction.mathis_bps),
        None => limit * (1.0 - 0.9 * loss - 0.01),
    } * noise.factor(0.04);
    let segments = (bps * (SECONDS - WARMUP) / 8.0 / f64::from(MSS)) as u64;
    FlowRecord {
        name: name.into(),
        congestion: cc.into(),
        congestion_seen: vec![cc.into()],
        start_seconds: start,
        goodput_bps: bps,
        goodput_with_start_bps: bps * 0.95,
        goodput: ticks(start, 0.5)
            .map(|at| (at + 0.5, bps * noise.factor(0.1)))
            .collect(),
        retransmits: (segments as f64 * loss * noise.factor(0.05)) as u64,
        segments_sent: segments,
        loss_events: Some(LossEvents {
            events: (segments as f64 * loss * 0.95) as u64,
            timeouts: 0,
            segments,
            ..LossEvents::default()
        }),
        samples: samples(cc, start, rtt, bps, noise),
        mss_bytes: MSS,
        segments_per_ack: Some(2.0),
        ..FlowRecord::default()
    }
}

fn ticks(start: f64, step: f64) -> impl Iterator<Item = f64> {
    let count = ((SECONDS - start) / step).round() as u32;
    (0..count).map(move |i| start + f64::from(i) * step)
}

fn samples(cc: &str, start: f64, rtt: f64, bps: f64, noise: &mut Noise) -> Vec<TcpSample> {
    let window = (bps * rtt / 8.0 / f64::from(MSS)).max(2.0);
    ticks(start, 0.1)
        .map(|at| TcpSample {
            at,
            cwnd: (window * noise.factor(0.3)) as u32,
            ssthresh: window as u32,
            rtt_us: (rtt * noise.factor(0.1) * 1e6) as u32,
            rttvar_us: 200,
            min_rtt_us: (rtt * 0.9e6) as u32,
            bytes_acked: (bps * at / 8.0) as u64,
            congestion: cc.into(),
            ..TcpSample::default()
        })
        .collect()
}

fn link(loss: f64, noise: &mut Noise) -> LinkRecord {
    let packets = 30_000;
    LinkRecord {
        name: "router: towards server".into(),
        engine: "xdp".into(),
        requested: format!("loss {}%", loss * 100.0),
        packets,
        lost: (packets as f64 * loss * noise.factor(0.02)) as u64,
        loss_requested: (loss > 0.0).then_some(loss),
        lateness_ns: Some([21_000, 84_000, 310_000, 2_000_000]),
        ..LinkRecord::default()
    }
}

fn call(jitter_ms: f64, noise: &mut Noise) -> CallRecord {
    let delays = (0..250).map(|_| {
        let late = 20.0 + jitter_ms * 4.0 * noise.uniform().powi(4);
        (noise.uniform() > 0.002).then_some((late * 1e6) as u64)
    });
    CallRecord {
        name: "call".into(),
        interval_ns: 20_000_000,
        delays_ns: delays.collect(),
        ..CallRecord::default()
    }
}

fn surroundings(noise: &mut Noise) -> RunRecord {
    let ping = |at: f64, noise: &mut Noise| (at, (5e6 * noise.factor(0.2)) as u64);
    RunRecord {
        bottleneck: Some(Bottleneck {
            rate_bps: 85e6,
            mss_bytes: MSS,
            packet_bytes: 1526,
            goodput_limit_bps: LIMIT_BPS,
            base_rtt_ns: 5_000_000,
        }),
        pings: vec![PingRecord {
            name: "ping".into(),
            sent: 50,
            rtts_ns: ticks(1.0, 0.1).map(|at| ping(at, noise)).collect(),
            idle_rtts_ns: vec![5_000_000, 5_010_000, 5_020_000],
        }],
        queues: vec![QueueRecord {
            name: "router/wan".into(),
            policy: "fifo".into(),
            arrived: 30_000,
            sent: 29_900,
            dropped: 100,
            marked: 0,
            sojourn_ns: Some([900_000, 2_000_000, 2_500_000]),
        }],
        passive: Some(PassiveRecord {
            samples: 20_000,
            rtt_ns: Some([5_000_000, 5_200_000, 6_000_000, 7_000_000]),
            retransmitted: 300,
            segments: 30_000,
        }),
        cpu: CpuRecord {
            cpus: 2,
            busy: 0.4 * noise.factor(0.1),
            parts: [
                ("fairpath impair bottleneck", 0.2 * noise.factor(0.2)),
                ("iperf3 client bulk", 0.1 * noise.factor(0.2)),
                ("iperf3 server bulk", 0.05 * noise.factor(0.2)),
                ("kernel's packet threads", 0.02 * noise.factor(0.2)),
                ("measurement", 0.01 * noise.factor(0.2)),
                ("measurement: fairpath rtt", 0.01 * noise.factor(0.2)),
            ]
            .map(|(part, cores)| (part.to_owned(), cores))
            .into(),
            waited: [("fairpath impair bottleneck".to_owned(), 0.01)].into(),
            shared: vec!["fairpath impair bottleneck".to_owned()],
            ..CpuRecord::default()
        },
        offloads: BTreeMap::from([("router/wan".to_owned(), "tso off, gso off".to_owned())]),
        commands: vec![CommandRecord {
            host: "client".into(),
            argv: ["iperf3", "-c", "10.0.0.2", "-C", "cubic"]
                .map(str::to_owned)
                .into(),
        }],
        ..RunRecord::default()
    }
}

/// On disk, as a grid leaves them.
pub fn store(results: &Results, dir: &Path) {
    let runs = dir.join(manifest::RUNS);
    fs::create_dir_all(&runs).unwrap();
    fs::write(
        dir.join(manifest::FILE),
        serde_json::to_vec(&results.manifest).unwrap(),
    )
    .unwrap();
    for run in &results.runs {
        let path = runs.join(format!("{:04}.json", run.place));
        fs::write(path, serde_json::to_vec(run).unwrap()).unwrap();
    }
}
