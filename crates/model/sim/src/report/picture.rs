//! The picture: throughput over time above, the distribution of sojourn times below, one legend.
//!
//! One file without scripts, fonts or references; light or dark as the viewer's system has it.

use std::fmt::Write as _;

use super::chart::{Axis, Frame, Line, Scale, draw, nice};
use super::table::caption;
use super::{CHART_LINES, Report, clean, rate, time};
use crate::simulate::{Histogram, Measured};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 92.0;
const CHART: f64 = 250.0;
/// Lines of the legend are this high; two columns.
const LEGEND: f64 = 22.0;
/// Characters of a name in the legend.
const NAME: usize = 44;

/// Colours that are told apart by people who see few (after Okabe and Ito, 2008), darker on light
/// ground and lighter on dark.
const STYLE: &str = "\
svg{background:#fff;font:13px system-ui,sans-serif;fill:#1f2328}
.head{font-size:18px;font-weight:600}.title{font-size:14px;font-weight:600}
.tick,.about{fill:#59636e}.tick{font-size:12px}.label{fill:#59636e}
.grid{stroke:#e4e7eb}.axis{stroke:#8c959f;fill:none}
.line{fill:none;stroke-width:2;stroke-linejoin:round}.key{stroke-width:3}
.c0{stroke:#0072b2}.c1{stroke:#d55e00}.c2{stroke:#00845f}.c3{stroke:#b0488a}
.c4{stroke:#a87400}.c5{stroke:#6639ba}.c6{stroke:#57606a}.c7{stroke:#9aa2ab;stroke-dasharray:5 4}
@media(prefers-color-scheme:dark){svg{background:#0d1117;fill:#e6edf3}
.tick,.about,.label{fill:#9198a1}.grid{stroke:#262c35}.axis{stroke:#6e7681}
.c0{stroke:#58a6ff}.c1{stroke:#ff8c42}.c2{stroke:#3fce9b}.c3{stroke:#e58ac4}
.c4{stroke:#e3b341}.c5{stroke:#b392f0}.c6{stroke:#c9d1d9}.c7{stroke:#8b949e}}";

pub(super) fn write(report: &Report<'_>) -> String {
    let (kind, groups) = largest(report);
    let legend_rows = groups.len().div_ceil(2) as f64;
    let first = 110.0 + legend_rows * LEGEND;
    let second = first + CHART + 100.0;
    let height = second + CHART + 60.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" height=\"{height:.0}\" role=\"img\">\n<style>{STYLE}</style>\n"
    );
    let subject = escaped(&clean(report.subject, 70));
    let _ = writeln!(
        out,
        "<title>{subject}: throughput and sojourn times by {kind}</title>"
    );
    let _ = writeln!(
        out,
        "<text class=\"head\" x=\"24\" y=\"34\">{subject}</text>"
    );
    let _ = writeln!(
        out,
        "<text class=\"about\" x=\"24\" y=\"56\">{}</text>",
        escaped(&caption(report))
    );
    out += &legend(report, &groups);
    let frame = |top: f64| Frame {
        left: LEFT,
        top,
        width: WIDTH - LEFT - 32.0,
        height: CHART,
    };
    out += &throughput(report, &groups, frame(first), kind);
    out += &sojourn(&groups, frame(second), kind);
    out += "</svg>\n";
    out
}

/// The groups that sent most, in their order, and all others together.
fn largest(report: &Report<'_>) -> (&'static str, Vec<(String, Measured)>) {
    let (kind, groups) = report.groups();
    let mut by_size: Vec<usize> = (0..groups.len()).collect();
    by_size.sort_by_key(|at| std::cmp::Reverse(groups[*at].1.sent.bytes));
    let mut kept: Vec<usize> = by_size.iter().copied().take(CHART_LINES).collect();
    kept.sort_unstable();
    let mut lines: Vec<(String, Measured)> = kept
        .iter()
        .map(|at| (groups[*at].0.clone(), groups[*at].1.clone()))
        .collect();
    let rest = by_size.get(CHART_LINES..).unwrap_or_default();
    if !rest.is_empty() {
        let mut others = Measured::default();
        for at in rest {
            others.merge(groups[*at].1);
        }
        lines.push((format!("others ({})", rest.len()), others));
    }
    (kind, lines)
}

fn legend(report: &Report<'_>, groups: &[(String, Measured)]) -> String {
    let mut out = String::new();
    for (at, (name, measured)) in groups.iter().enumerate() {
        let x = if at % 2 == 0 { 24.0 } else { WIDTH / 2.0 };
        let y = 82.0 + (at / 2) as f64 * LEGEND;
        let colour = colour(at, groups.len());
        let _ = writeln!(
            out,
            "<path class=\"line key c{colour}\" d=\"M{x} {:.1}h22\"/>",
            y - 4.0
        );
        let sent = rate(report.findings.rate_bps(measured.sent.bytes));
        let p99 = time(measured.sojourn.quantile(0.99));
        let name = escaped(&clean(name, NAME));
        let _ = writeln!(
            out,
            "<text x=\"{:.0}\" y=\"{y:.1}\">{name} <tspan class=\"about\">{sent}, p99 {p99}</tspan></text>",
            x + 30.0
        );
    }
    out
}

/// "others" has the last colour.
fn colour(at: usize, groups: usize) -> usize {
    if groups > CHART_LINES && at + 1 == groups {
        CHART_LINES
    } else {
        at
    }
}

fn throughput(
    report: &Report<'_>,
    groups: &[(String, Measured)],
    frame: Frame,
    kind: &str,
) -> String {
    let seconds = report.findings.duration_ns.max(1) as f64 / 1e9;
    let mut most: f64 = 0.0;
    let lines: Vec<Line> = groups
        .iter()
        .enumerate()
        .map(|(at, (_, measured))| {
            let points = points(measured, report.findings.duration_ns);
            most = points.iter().map(|(_, bps)| *bps).fold(most, f64::max);
            Line {
                colour: colour(at, groups.len()),
                points,
                steps: false,
            }
        })
        .collect();
    let step = nice(most / 5.0);
    let most = (most / step).ceil().max(1.0) * step;
    let x = Axis {
        title: "virtual time, s",
        scale: Scale::Linear,
        least: 0.0,
        most: seconds,
        label: short,
    };
    let (unit, label): (_, fn(f64) -> String) = match most {
        most if most >= 2e9 => ("Gbit/s", |bps| short(bps / 1e9)),
        most if most >= 2e6 => ("Mbit/s", |bps| short(bps / 1e6)),
        _ => ("kbit/s", |bps| short(bps / 1e3)),
    };
    let y = Axis {
        title: unit,
        scale: Scale::Linear,
        least: 0.0,
        most,
        label,
    };
    draw(frame, &format!("Throughput by {kind}"), &x, &y, &lines)
}

/// Points of a line at most: more are noise at this width.
const POINTS: usize = 120;

/// Bits a second at the middle of each slot; the last, cut one counts for what it is.
fn points(measured: &Measured, duration_ns: u64) -> Vec<(f64, f64)> {
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
        // A stump of a slot says little about the rate.
        (at == 0 || lasts * 2 > together as u64 * width).then(|| {
            let bytes: u64 = chunk.iter().sum();
            (
                (begin + lasts / 2) as f64 / 1e9,
                bytes as f64 * 8e9 / lasts as f64,
            )
        })
    })
    .collect()
}

/// A number without needless digits.
fn short(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn sojourn(groups: &[(String, Measured)], frame: Frame, kind: &str) -> String {
    let some = || {
        groups
            .iter()
            .map(|(_, measured)| &measured.sojourn)
            .filter(|sojourn| sojourn.count() > 0)
    };
    let least = some()
        .map(|sojourn| sojourn.quantile(0.0))
        .min()
        .unwrap_or(1_000)
        .max(1_000) as f64;
    let most = some()
        .map(Histogram::largest)
        .max()
        .unwrap_or(1_000_000)
        .max(1_000) as f64;
    let least = 10f64.powf(least.log10().floor());
    let most = 10f64.powf(most.log10().ceil()).max(least * 10.0);
    let line = |(at, (_, measured)): (usize, &(String, Measured))| {
        let mut points = vec![(least, 0.0)];
        points.extend(
            measured
                .sojourn
                .distribution()
                .into_iter()
                .map(|(ns, share)| (ns as f64, share)),
        );
        points.push((most, points.last().map_or(0.0, |(_, share)| *share)));
        Line {
            colour: colour(at, groups.len()),
            points,
            steps: true,
        }
    };
    let lines: Vec<Line> = groups
        .iter()
        .enumerate()
        .filter(|(_, (_, m))| m.sojourn.count() > 0)
        .map(line)
        .collect();
    let x = Axis {
        title: "sojourn time (logarithmic)",
        scale: Scale::Log,
        least,
        most,
        label: decade,
    };
    let y = Axis {
        title: "share of packets",
        scale: Scale::Linear,
        least: 0.0,
        most: 1.0,
        label: |share| format!("{:.0} %", share * 100.0),
    };
    draw(
        frame,
        &format!("Sojourn time by {kind}: the share of packets that waited no longer"),
        &x,
        &y,
        &lines,
    )
}

fn decade(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if ns >= 0.999e9 => (ns / 1e9, "s"),
        ns if ns >= 0.999e6 => (ns / 1e6, "ms"),
        ns if ns >= 0.999e3 => (ns / 1e3, "us"),
        _ => (ns, "ns"),
    };
    format!("{value:.0} {unit}")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
