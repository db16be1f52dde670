//! A made-up report with one figure of each kind. Its numbers come from formulas and a counter.

use fairpath_report::figure::{Axis, Figure, Panel, Point, Reference, ReferenceLine, Series};
use fairpath_report::statistics::median_with_interval;
use fairpath_report::{
    Block, Cell, Column, Fact, Headline, Notice, ReportDocument, Section, Table, Unit,
};

/// A text that does harm wherever it is not escaped.
pub const HOSTILE: &str = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>&amp;`<b>`";

/// The n-th of evenly spread numbers in 0..1 (the golden ratio's multiples).
fn spread(n: usize) -> f64 {
    (n as f64 * 0.618_033_988_749_895).fract()
}

/// Goodput of repeats around a value: point with its interval.
fn repeats(x: f64, value: f64, from: usize) -> Point {
    let samples: Vec<f64> = (0..3)
        .map(|i| value * (0.96 + 0.08 * spread(from + i)))
        .collect();
    let estimate = median_with_interval(&samples, 0.95, 1).unwrap();
    Point::estimate(x, &estimate)
}

fn loss_panel(title: &str, rtt: f64) -> Panel {
    let mathis = |loss: f64| 1448.0 * 8.0 * 1.22 / (rtt * loss.sqrt());
    let losses = [0.0, 0.01, 0.02, 0.05, 0.1];
    let cubic = losses.map(|p| repeats(p, mathis(p).min(865e6), (p * 1000.0) as usize));
    let bbr = losses.map(|p| repeats(p, 868e6 * (1.0 - 1.3 * p), (p * 770.0) as usize));
    let model = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1];
    let talk = |zero, one| vec![Point::new(0.0, zero), Point::new(0.01, one)];
    Panel::new(
        title,
        Axis::log("Loss", Unit::share()),
        Axis::zero_based("Goodput", Unit::bits_per_second()),
    )
    .with(
        Series::theory(
            "Mathis for CUBIC",
            model.map(|p| Point::new(p, mathis(p))).to_vec(),
        )
        .like("CUBIC"),
    )
    .with(Series::line("CUBIC", cubic.to_vec()))
    .with(Series::line("BBR", bbr.to_vec()))
    .with(Series::published("CUBIC, RIPE 88", talk(804.67e6, 235.5e6)).like("CUBIC"))
    .with(Series::published("BBR, RIPE 88", talk(868.5e6, 794.06e6)).like("BBR"))
    .with_reference(Reference {
        label: "what the link allows".into(),
        line: ReferenceLine::Across(905e6),
    })
}

fn by_loss() -> Figure {
    let panels = vec![
        loss_panel("Symmetric path", 0.000_6),
        loss_panel("Asymmetric path", 0.000_65),
    ];
    Figure::new("goodput-by-loss", "CUBIC loses most of its goodput at 1 % loss, BBR little", panels)
        .caption("Medians of three runs; whiskers are least and largest, which hold the median with 75 % confidence. Dashed: Mathis from the measured round trip. Hollow: the talk's figures.")
        .command("fairpath lab run ripe88 --quick --seed 7 --output results/ripe88")
}

fn by_rtt() -> Figure {
    let rtts = [2e-4, 1e-3, 5e-3, 2e-2, 1e-1];
    let line = |name: &str, scale: f64, from: usize| {
        let value = |rtt: f64| (scale / rtt).min(9e8);
        let points = rtts
            .iter()
            .enumerate()
            .map(|(i, rtt)| repeats(*rtt, value(*rtt), from + i * 3));
        Series::line(name, points.collect())
    };
    let panel = Panel::new(
        "",
        Axis::log("Round trip", Unit::seconds()),
        Axis::log("Goodput", Unit::bits_per_second()),
    )
    .with(line("CUBIC", 1.4e5, 1))
    .with(line("Reno", 0.9e5, 40))
    .with(line("BBR", 7e7, 90))
    .with_reference(Reference {
        label: "Mathis meets the link".into(),
        line: ReferenceLine::Up(1.6e-4 * 1.9),
    });
    Figure::new(
        "goodput-by-rtt",
        "What 1 % costs depends on the round trip",
        vec![panel],
    )
    .caption("Both axes are logarithmic.")
    .command("fairpath lab run ripe88 --full")
}

fn bars() -> Figure {
    let names = ["FIFO", "CoDel", "FQ-CoDel"].map(str::to_owned).to_vec();
    let bars = |name: &str, values: [f64; 3]| {
        let points = values
            .iter()
            .enumerate()
            .map(|(i, v)| repeats(i as f64, *v, i * 5));
        Series::bars(name, points.collect())
    };
    let panel = Panel::new(
        "",
        Axis::names("Queue of the bottleneck", names),
        Axis::zero_based("Ping", Unit::nanoseconds()),
    )
    .with(bars("idle", [2.1e7, 2.1e7, 2.1e7]))
    .with(bars("p50", [1.84e8, 3.1e7, 2.3e7]))
    .with(bars("p99", [2.21e8, 5.6e7, 2.9e7]));
    Figure::new(
        "ping-by-queue",
        "A fair queue keeps the ping where it was",
        vec![panel],
    )
    .caption("Bars are medians.")
}

fn timeline() -> Figure {
    let flow = |name: &str, phase: f64| {
        let rate = |t: f64| {
            5e7 * (1.0 + 0.6 * ((t + phase) * 0.9).sin() * (-t / 20.0).exp())
                + 1e6 * spread((t * 10.0) as usize)
        };
        let points = (0..600)
            .map(|i| f64::from(i) / 10.0)
            .map(|t| Point::new(t, rate(t)));
        Series::line(name, points.collect())
    };
    let panel = |title: &str| {
        Panel::new(
            title,
            Axis::linear("Time", Unit::seconds()),
            Axis::zero_based("Goodput", Unit::bits_per_second()),
        )
        .with(flow("CUBIC", 0.0))
        .with(flow("BBR", 3.4))
        .with_reference(Reference {
            label: "second flow starts".into(),
            line: ReferenceLine::Up(10.0),
        })
    };
    Figure::new(
        "timeline",
        "Two flows share a link",
        vec![
            panel("Buffer of 1 BDP"),
            panel("Buffer of 4 BDP"),
            panel("Buffer of 16 BDP"),
        ],
    )
    .caption("The run whose goodput is nearest to the median.")
}

fn distribution() -> Figure {
    let samples = |scale: f64| {
        (1..4000)
            .map(|i| scale * (1.0 - spread(i)).ln().abs().exp())
            .collect::<Vec<f64>>()
    };
    let panel = Panel::new(
        "",
        Axis::log("Round trip", Unit::nanoseconds()),
        Axis::linear("Share of samples", Unit::share()).range(0.0, 1.0),
    )
    .with(Series::distribution("CUBIC", &samples(3e6)))
    .with(Series::distribution("BBR", &samples(1.2e6)))
    .with(Series::distribution("Reno", &samples(2.2e6)));
    Figure::new("rtt-distribution", "BBR keeps the queue short", vec![panel])
}

fn runs(count: usize) -> Table {
    let columns = vec![
        Column::text("Run"),
        Column::text("Congestion control"),
        Column::number("Loss", Unit::share()),
        Column::number("Goodput", Unit::bits_per_second()),
        Column::number("RTT p50", Unit::nanoseconds()),
        Column::number("Retransmits", Unit::none()),
        Column::text("Faults"),
    ];
    let mut table = Table::new("runs", "All runs", columns);
    table.caption = "Runs with a red edge have an invalid emulation and are in no figure.".into();
    for i in 0..count {
        let row = vec![
            Cell::Text(format!("{i:04}")),
            ["CUBIC", "BBR", "Reno"][i % 3].into(),
            Cell::Number((i % 11) as f64 / 100.0),
            Cell::Number(9e8 * spread(i)),
            Cell::Number(6e5 * (1.0 + spread(i * 3))),
            Cell::Number((i * 37 % 9000) as f64),
        ];
        match i % 17 == 3 {
            true => table.push_marked(
                [
                    row,
                    vec!["lateness p99 of 3.1 ms: others used the CPU".into()],
                ]
                .concat(),
            ),
            false => table.push([row, vec![Cell::Missing]].concat()),
        }
    }
    table
}

fn cells() -> Table {
    let columns = vec![
        Column::text("Path"),
        Column::text("Congestion control"),
        Column::number("At 0 %", Unit::bits_per_second()),
        Column::number("At 1 %", Unit::bits_per_second()),
        Column::number("Change", Unit::share()),
    ];
    let mut table = Table::new("cells", "Medians of all settings", columns);
    for (path, cc, zero, one) in [
        ("symmetric", "CUBIC", 865e6, 243e6),
        ("symmetric", "BBR", 868e6, 856e6),
        ("asymmetric", "CUBIC", 865e6, 226e6),
        ("asymmetric", "BBR", 867e6, 851e6),
    ] {
        let of = |value: f64| {
            Cell::from(median_with_interval(&[value * 0.97, value, value * 1.02], 0.95, 1).unwrap())
        };
        table.push(vec![
            path.into(),
            cc.into(),
            of(zero),
            of(one),
            Cell::Number(one / zero - 1.0),
        ]);
    }
    table
}

/// The report over a number of runs.
pub fn report(count: usize) -> ReportDocument {
    let text = |text: &str| Block::Text(text.to_owned());
    ReportDocument {
        title: "What 1 % loss costs".into(),
        kicker: "Fairpath lab · ripe88 · quick form".into(),
        question: "How much goodput do CUBIC and BBR lose on a path that loses packets, and does it matter whether both ways share one path?".into(),
        facts: vec![Fact::new("Runs", format!("{count}, of which 2 were invalid")), Fact::new("Date", "22 November 2026"), Fact::new("Kernel", "6.18.0"), Fact::new("Processor", "2 × Xeon"), Fact::new("Round trip", "0.5 ms without queue (fitted)")],
        summary: vec![
            Headline { value: "−72 %".into(), text: "CUBIC falls from 865 to 243 Mbit/s at 1 % loss on the symmetric path (three runs: 236 to 250).".into(), figure: Some("goodput-by-loss".into()) },
            Headline { value: "−1.4 %".into(), text: "BBR keeps 856 of 868 Mbit/s at 1 %, and 755 at 10 %.".into(), figure: Some("goodput-by-loss".into()) },
            Headline { value: "0.09 %".into(), text: "is the loss from which Mathis is below the link rate at this round trip: longer paths suffer sooner.".into(), figure: Some("goodput-by-rtt".into()) },
        ],
        notices: vec![Notice::note("Each setting ran three times; no interval of three runs reaches more than 75 % confidence."), Notice::warning("2 runs have an invalid emulation and are excluded: `lateness p99` above 2 ms because others used the CPU.")],
        sections: vec![
            Section::new("Results", vec![text("Medians over valid runs. Every figure has its numbers as CSV and the command that repeats it."), Block::Figure(by_loss()), Block::Figure(by_rtt()), Block::Table(cells()), Block::Figure(bars()), Block::Figure(timeline()), Block::Figure(distribution())]),
            Section::new("Method", vec![text("Each run has its own namespaces. Loss is dealt by a counter-based generator in the middle of the path, never at the sender."), Block::List(vec!["Goodput is the receiver's, by iperf3, without the first second.".into(), "Offloads are off where loss is dealt: `tso off, gso off, gro off`.".into()]), Block::Code("B = MSS/RTT * C/sqrt(p),  C = sqrt(3/2)".into())]),
            Section::new("Provenance", vec![Block::Facts(vec![Fact::new("Command", "`fairpath lab run ripe88 --quick --seed 7 --output results/ripe88`"), Fact::new("iperf3", "3.18"), Fact::new("Congestion controls", "reno cubic bbr (v1)")]), Block::Table(runs(count)), Block::Details("Commands of the first run".into(), vec![Block::Code("ip netns exec server iperf3 -s -1\nip netns exec client iperf3 -c 10.0.0.2 -C cubic -t 5 -J".into())])]),
        ],
        command: "fairpath lab run ripe88 --quick --seed 7 --output results/ripe88".into(),
        made_by: "fairpath-lab 0.1.0".into(),
        first_colours: Vec::new(),
    }
}

/// A report in which every text is [`HOSTILE`].
pub fn hostile() -> ReportDocument {
    let text = || HOSTILE.to_owned();
    let names = vec![text(), text()];
    let points = || {
        vec![
            Point {
                note: text(),
                ..Point::new(0.0, 1.0)
            },
            Point::new(1.0, 2.0),
        ]
    };
    let panel = |x: Axis| {
        Panel::new(HOSTILE, x, Axis::linear(HOSTILE, Unit::plain(HOSTILE)))
            .with(Series::line(HOSTILE, points()))
            .with(Series::bars(HOSTILE, points()))
            .with_reference(Reference {
                label: text(),
                line: ReferenceLine::Across(1.5),
            })
    };
    let panels = vec![
        panel(Axis::names(HOSTILE, names)),
        panel(Axis::linear(HOSTILE, Unit::none())),
    ];
    let figure = Figure::new(HOSTILE, HOSTILE, panels)
        .caption(HOSTILE)
        .command(HOSTILE);
    let mut table = Table::new(
        HOSTILE,
        HOSTILE,
        vec![
            Column::text(HOSTILE),
            Column::number(HOSTILE, Unit::plain(HOSTILE)),
        ],
    );
    table.caption = text();
    table.command = Some(text());
    table.push(vec![HOSTILE.into(), HOSTILE.into()]);
    let fact = || Fact::new(HOSTILE, HOSTILE);
    let blocks = vec![
        Block::Text(text()),
        Block::List(vec![text()]),
        Block::Code(text()),
        Block::Facts(vec![fact()]),
        Block::Notice(Notice::warning(HOSTILE)),
        Block::Figure(figure),
        Block::Table(table),
        Block::Details(text(), vec![Block::Text(text())]),
    ];
    ReportDocument {
        title: text(),
        kicker: text(),
        question: text(),
        facts: vec![fact()],
        summary: vec![Headline {
            value: text(),
            text: text(),
            figure: Some(text()),
        }],
        notices: vec![Notice::note(HOSTILE)],
        sections: vec![
            Section::new(HOSTILE, blocks),
            Section::new(HOSTILE, Vec::new()),
        ],
        command: text(),
        made_by: text(),
        first_colours: Vec::new(),
    }
}
