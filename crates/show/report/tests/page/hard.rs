//! Figures that are hard to draw: many names, many series, lines close to each other, nothing at all.

use fairpath_report::figure::{Axis, Figure, Gap, Panel, Point, Reference, ReferenceLine, Series};
use fairpath_report::{Block, ReportDocument, Section, Unit};

fn point(x: f64, y: f64) -> Point {
    Point {
        interval: Some((y * 0.8, y * 1.2)),
        ..Point::new(x, y)
    }
}

/// Ten policies, some with long names, on a logarithmic axis.
fn policies(title: &str) -> Panel {
    let names = [
        "fifo",
        "codel",
        "fq-codel",
        "pie",
        "sfq with a longer name",
        "drr",
        "hfsc",
        "hosts fairly, as cake does",
        "sp-pifo",
        "aifo",
    ];
    let names = names.map(str::to_owned).to_vec();
    let bars = |name: &str, scale: f64| {
        let value = |i: usize| scale * (1.0 + 40.0 * (i as f64 * 1.7).sin().abs());
        Series::bars(name, (0..10).map(|i| point(i as f64, value(i))).collect())
    };
    let paper = vec![Point::new(0.0, 4e6), Point::new(2.0, 3e6)];
    Panel::new(
        title,
        Axis::names("Policy", names),
        Axis::log("Ping p99", Unit::nanoseconds()),
    )
    .with(bars("bulk", 1e6))
    .with(bars("voice", 5e5))
    .with(Series::published("bulk, in the paper", paper).like("bulk"))
}

/// Nine series, and three lines that lie so close that their names must find places.
fn crowded() -> Panel {
    let mut panel = Panel::new(
        "",
        Axis::linear("Loss", Unit::share()),
        Axis::zero_based("Goodput", Unit::bits_per_second()),
    );
    for k in 0..9 {
        let value = |i: i32| 1e9 / f64::from(1 + k) / (1.0 + 0.2 * f64::from(i * k));
        let points = (0..=10).map(|i| point(f64::from(i) / 100.0, value(i)));
        panel = panel.with(Series::line(&format!("algorithm {k}"), points.collect()));
    }
    for k in 0..3 {
        panel = panel.with_reference(Reference {
            label: format!("limit {k} of the link"),
            line: ReferenceLine::Across(9e8 - 1e7 * f64::from(k)),
        });
    }
    panel
}

/// Values on both sides of zero with a band, and steps.
fn around_zero() -> Panel {
    let wave = (0..200).map(|i| f64::from(i) / 10.0).map(|x| Point {
        interval: Some((50.0 * x.sin() - 10.0, 50.0 * x.sin() + 10.0)),
        ..Point::new(x, 50.0 * x.sin())
    });
    let steps = (0..20).map(|i| Point::new(f64::from(i), f64::from(i * 7 % 11) * 5.0 - 20.0));
    Panel::new(
        "",
        Axis::linear("Time", Unit::seconds()),
        Axis::linear("Difference", Unit::percent()),
    )
    .with(Series::line("wave", wave.collect()))
    .with(Series::steps("queue", steps.collect()))
}

/// Nine decades, whose numbers need powers of ten.
fn decades() -> Panel {
    let window = |p: f64| 1.17 / p.powf(0.75);
    let rates: Vec<f64> = (1..9).map(|i| 10_f64.powi(-i)).collect();
    Panel::new(
        "",
        Axis::log("Loss rate", Unit::none()),
        Axis::log("Window", Unit::plain("segments")),
    )
    .with(Series::theory(
        "RFC 9438",
        rates.iter().map(|p| Point::new(*p, window(*p))).collect(),
    ))
    .with(Series::points(
        "measured",
        rates.iter().map(|p| point(*p, 1.1 * window(*p))).collect(),
    ))
}

/// Places without a value: between points, after them, of two series at once, and of bars next to each other.
fn gaps(named: bool) -> Panel {
    let gap = |x: f64| Gap {
        x,
        label: "no valid run".to_owned(),
    };
    let names = || (0..5).map(|i| format!("queue {i}")).collect();
    let x = match named {
        true => Axis::names("Queue", names()),
        false => Axis::linear("Loss", Unit::share()),
    };
    let place = |i: usize| if named { i as f64 } else { i as f64 / 100.0 };
    let series = |name: &str, y: f64, without: [usize; 2]| {
        let there = (0..5).filter(|i| !without.contains(i));
        let points = there.map(|i| point(place(i), y)).collect();
        let gaps = without.map(|i| gap(place(i))).to_vec();
        match named {
            true => Series::bars(name, points).gaps(gaps),
            false => Series::line(name, points).gaps(gaps),
        }
    };
    Panel::new("", x, Axis::zero_based("Goodput", Unit::bits_per_second()))
        .with(series("cubic", 4e8, [1, 4]))
        .with(series("bbr", 8e8, [1, 2]))
}

fn empty() -> Panel {
    Panel::new(
        "",
        Axis::linear("x", Unit::none()),
        Axis::linear("y", Unit::none()),
    )
}

/// One report with all of them.
pub fn report() -> ReportDocument {
    let figure = |id: &str, panels| Block::Figure(Figure::new(id, id, panels));
    let blocks = vec![
        figure("policies", vec![policies("")]),
        figure(
            "policies in two panels",
            vec![policies("Now"), policies("")],
        ),
        figure("crowded", vec![crowded()]),
        figure("around zero", vec![around_zero()]),
        figure("decades", vec![decades()]),
        figure("gaps", vec![gaps(false)]),
        figure("gaps of bars", vec![gaps(true)]),
        figure("empty", vec![empty()]),
        figure("no panels", Vec::new()),
    ];
    ReportDocument {
        title: "Hard figures".into(),
        sections: vec![Section::new("Figures", blocks)],
        ..ReportDocument::default()
    }
}
