//! The figure of a simulation: throughput over time, and the distribution of sojourn times.

use fairpath_report::Unit;
use fairpath_report::figure::{Axis, Figure, Palette, Panel, Point, Series, svg_column};
use fairpath_sim::report::SimulationReport;
use fairpath_sim::simulate::Measured;

/// One SVG file with both panels and one legend.
pub fn svg(report: &SimulationReport<'_>) -> String {
    let (kind, lines) = report.lines();
    let duration_ns = report.findings.duration_ns;
    let time = Axis::zero_based("Virtual time", Unit::seconds());
    let mut throughput = Panel::new(
        &format!("Throughput by {kind}"),
        time.range(0.0, duration_ns as f64 / 1e9),
        Axis::zero_based("Throughput", Unit::bits_per_second()),
    );
    let mut sojourn = Panel::new(
        &format!("Distribution of sojourn times by {kind}"),
        Axis::log("Sojourn time", Unit::nanoseconds()),
        Axis::zero_based("Share of packets", Unit::share()).range(0.0, 1.0),
    );
    for (at, (name, measured)) in lines.iter().enumerate() {
        // Names can be equal, but indices cannot.
        let key = at.to_string();
        let rates = Series::line(name, rates(measured, duration_ns));
        let waits = Series::steps(name, waits(measured));
        throughput = throughput.with(rates.like(&key));
        sojourn = sojourn.with(waits.like(&key));
    }
    let figure = Figure::new("link", &report.caption(), vec![throughput, sojourn]);
    svg_column(&figure, &Palette::of(std::iter::once(&figure)))
}

/// Maximum points of a line. More points would only be noise at this width.
const POINTS: usize = 120;

/// Bits per second at the middle of each slot. The last slot can be shorter.
fn rates(measured: &Measured, duration_ns: u64) -> Vec<Point> {
    let width = measured.series.width_ns();
    let slots = duration_ns.div_ceil(width) as usize;
    let together = slots.div_ceil(POINTS).max(1);
    let mut sums = measured.series.sums().to_vec();
    sums.resize(slots.max(sums.len()), 0);
    let sums = sums.chunks(together).enumerate();
    sums.filter_map(|(at, chunk)| {
        let begin = (at * together) as u64 * width;
        let end = (begin + together as u64 * width).min(duration_ns);
        let lasts = end.checked_sub(begin).filter(|lasts| *lasts > 0)?;
        // A short last slot gives an unreliable rate.
        (at == 0 || lasts * 2 > together as u64 * width).then(|| {
            let bytes: u64 = chunk.iter().sum();
            let middle = (begin + lasts / 2) as f64 / 1e9;
            Point::new(middle, bytes as f64 * 8e9 / lasts as f64)
        })
    })
    .collect()
}

/// The share of packets with at most each sojourn time, from 0 at the shortest.
fn waits(measured: &Measured) -> Vec<Point> {
    let steps = measured.sojourn.distribution();
    let first = steps.first().map(|(ns, _)| (*ns, 0.0));
    let steps = first.into_iter().chain(steps);
    steps
        .map(|(ns, share)| Point::new(ns as f64, share))
        .collect()
}
