//! The figure of a plan: achieved and configured rates, and the use of CPUs.

use std::path::Path;

use fairpath_cli::VERSION;
use fairpath_report::figure::{
    Axis, Figure, Palette, Panel, Point, Reference, ReferenceLine, Series, svg_column,
};
use fairpath_report::{Block, Fact, Headline, Notice, ReportDocument, Section, Unit, page};
use fairpath_sim::plan::FULL_FROM;
use fairpath_sim::report::clean;
use fairpath_units::counted;
use fairpath_units::quantity::written;

use super::PlanResult;
use super::text::{sentences, sorted};

/// Maximum number of rates in a figure.
const MAX_RATES: usize = 20;
/// Columns of a name.
const NAME: usize = 24;

/// True if the ending of a path is that of a figure.
pub fn is_known(path: &Path) -> bool {
    ["html", "svg"].iter().any(|known| has_ending(path, known))
}

fn has_ending(path: &Path, ending: &str) -> bool {
    path.extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case(ending))
}

/// The content of a file: a self-contained page, or its panels.
pub fn of_path(path: &Path, result: &PlanResult<'_>) -> String {
    match has_ending(path, "svg") {
        true => svg(result),
        false => html(result),
    }
}

fn title(result: &PlanResult<'_>) -> String {
    let cpus = counted(result.settings.cpus as usize, "virtual CPU", "virtual CPUs");
    format!("Rates on {cpus}: {}", clean(&result.offered(), 60))
}

fn svg(result: &PlanResult<'_>) -> String {
    let panels = vec![rates(result).apart(), cpus(result).apart()];
    let figure = Figure::new("plan", &title(result), panels);
    svg_column(&figure, &Palette::of(std::iter::once(&figure)))
}

fn html(result: &PlanResult<'_>) -> String {
    let mut sentences = sentences(result);
    let figure = |id: &str, title: &str, panel| Block::Figure(Figure::new(id, title, vec![panel]));
    let summary = Headline {
        value: String::new(),
        text: sentences.remove(0),
        figure: Some("rates".to_owned()),
    };
    let blocks = vec![
        figure("rates", "Achieved rates", rates(result)),
        figure("cpus", "Use of CPUs", cpus(result)),
    ];
    let report = ReportDocument {
        title: title(result),
        kicker: "Fairpath, plan of shaping".to_owned(),
        question: "Which configured rates hold on these CPUs?".to_owned(),
        facts: vec![
            Fact::new("Cost", result.cost_origin.clone()),
            Fact::new("Seed", result.settings.seed.to_string()),
        ],
        summary: vec![summary],
        notices: sentences.into_iter().map(Notice::note).collect(),
        sections: vec![Section::new("Results", blocks)],
        command: command(result),
        made_by: format!("fairpath {VERSION}"),
        ..ReportDocument::default()
    };
    page::html(&report)
}

/// The command that repeats the plan, with its costs.
fn command(result: &PlanResult<'_>) -> String {
    let (args, settings) = (result.args, &result.settings);
    let offered = match &args.read {
        Some(path) => format!("--read {} --speed {}", path.display(), args.speed),
        None => format!("--demand {}", args.demand.name()),
    };
    let duration = settings.duration_ns.map_or_else(String::new, |ns| {
        format!(" --duration {}", written(ns, "ns"))
    });
    format!(
        "fairpath shape plan --config {} --with-cpus {} {offered} --direction {} --cost-local {}ns \
         --cost-shared {}ns --packet-bytes {} --seed {}{duration}",
        args.config.display(),
        settings.cpus,
        args.direction.name(),
        settings.cost.local_ns,
        settings.cost.shared_ns,
        settings.packet_bytes,
        settings.seed
    )
}

/// Bars of the achieved rates next to the configured ones.
fn rates(result: &PlanResult<'_>) -> Panel {
    let shown: Vec<_> = sorted(result).into_iter().take(MAX_RATES).collect();
    let names = shown.iter().map(|(of, _)| {
        let name = clean(&of.name, NAME);
        format!("{name} {}", of.side.name())
    });
    let bars = |value: &dyn Fn(usize) -> f64| -> Vec<Point> {
        let places = 0..shown.len();
        places.map(|at| Point::new(at as f64, value(at))).collect()
    };
    let configured = bars(&|at| {
        let of = shown[at].0;
        of.ceil_bps.or(of.floor_bps).unwrap_or(0) as f64
    });
    let achieved = bars(&|at| shown[at].1.achieved_bps);
    Panel::new(
        "Configured and achieved rates",
        Axis::names("Rate", names.collect()),
        Axis::zero_based("Rate", Unit::bits_per_second()),
    )
    .with(Series::bars("configured", configured))
    .with(Series::bars("achieved", achieved))
}

fn cpus(result: &PlanResult<'_>) -> Panel {
    let uses = result.findings.cpus.iter().enumerate();
    let points = uses.map(|(cpu, of)| Point::new(cpu as f64, of.use_ratio));
    Panel::new(
        "Use of each CPU",
        Axis::linear("CPU", Unit::none()),
        Axis::zero_based("Use", Unit::share()).range(0.0, 1.0),
    )
    .with(Series::points("use", points.collect()))
    .with_reference(Reference {
        label: "full".to_owned(),
        line: ReferenceLine::Across(FULL_FROM),
    })
}
