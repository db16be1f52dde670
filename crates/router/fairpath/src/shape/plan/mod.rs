//! `fairpath shape plan`: simulate the rates of a configuration on many virtual CPUs.
//!
//! ```text
//! configuration -> classes, lines --.
//! measure.rs: the cost of a packet -+-> fairpath_sim::plan --> text.rs, json.rs, figure.rs
//! capture or demand ----------------'
//! ```

mod args;
mod figure;
mod json;
mod measure;
mod text;

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, bail};
use fairpath_class::ClassSet;
use fairpath_cli::{VirtualProgress, note, wrong_usage};
use fairpath_files::Existing;
use fairpath_shape::{Impairments, Lines, Settings};
use fairpath_sim::plan::{
    Cost, Offered, PlanFindings, PlanSettings, PlanSubject, Verdict, enough, judge, simulate,
};
use fairpath_sim::traffic::{Capture, HeaderParser};
use fairpath_units::counted;
use fairpath_wire::capture::Reader;
use signal_hook::consts::{SIGINT, SIGTERM};

use args::Format;
pub use args::PlanArgs;

/// Virtual time without `--duration` and without a capture.
const DEFAULT_NS: u64 = 1_000_000_000;
/// The part of the time before rates of a demand are measured: bursts after a pause end in it.
const WARM_UP: u64 = 10;
/// This time at most.
const MAX_WARM_UP_NS: u64 = 1_000_000_000;

/// The result of a plan, as the outputs show it.
pub struct PlanResult<'a> {
    args: &'a PlanArgs,
    settings: PlanSettings,
    /// Where the costs are from.
    cost_origin: String,
    findings: PlanFindings,
    verdicts: Vec<Verdict>,
    /// With `--enough`: the number of CPUs, if any is enough.
    enough: Option<Option<u32>>,
}

impl PlanResult<'_> {
    /// The number of rates that do not hold.
    fn missed(&self) -> usize {
        let missed = self.verdicts.iter().filter(|verdict| !verdict.holds());
        missed.count()
    }

    /// The packets, in a few words.
    fn offered(&self) -> String {
        match &self.args.read {
            Some(path) => format!("capture {}", path.display()),
            None => format!("demand {}", self.args.demand.name()),
        }
    }
}

/// Runs the command.
///
/// # Errors
/// The configuration, the capture or a file is invalid, or some rates do not hold.
pub fn run(args: &PlanArgs) -> anyhow::Result<()> {
    let plan = Plan::new(args)?;
    // A file that cannot be written is reported before the simulation, not after it.
    let figure_file = args.figure.as_deref().map(create).transpose()?;
    let (cost, cost_origin) = measure::cost(args, &plan.classes, &plan.lines)?;
    let settings = plan.settings(cost);
    let (findings, verdicts) = plan.simulate(&settings)?;
    if findings.measured_ns == 0 {
        bail!("plan: it was interrupted before rates were measured");
    }
    let enough = match args.enough && !findings.interrupted {
        true => plan.enough(&settings, &verdicts)?,
        false => None,
    };
    let result = PlanResult {
        args,
        settings,
        cost_origin,
        findings,
        verdicts,
        enough,
    };
    if let (Some(path), Some(mut file)) = (&args.figure, figure_file) {
        file.write_all(figure::of_path(path, &result).as_bytes())
            .with_context(|| format!("write the figure {path:?}"))?;
    }
    fairpath_cli::print(match args.format {
        Format::Text => text::text(&result),
        Format::Json => json::json(&result),
    })?;
    outcome(&result)
}

/// The exit status: an error if some rates do not hold.
fn outcome(result: &PlanResult<'_>) -> anyhow::Result<()> {
    let cpus = counted(result.settings.cpus as usize, "CPU", "CPUs");
    if result.findings.interrupted {
        bail!("plan for {cpus}: it was interrupted: the results cover the simulated time only");
    }
    match result.missed() {
        0 => Ok(()),
        missed => bail!(
            "plan for {cpus}: {}",
            text::not_held(missed, result.verdicts.len())
        ),
    }
}

fn create(path: &Path) -> anyhow::Result<File> {
    if !figure::is_known(path) {
        return Err(wrong_usage(format!(
            "figure {path:?}: its name has no known ending: write FILE.html or FILE.svg"
        )));
    }
    fairpath_files::output(path, Existing::Truncate)
        .with_context(|| format!("create the figure {path:?}"))
}

/// The input of a plan.
struct Plan<'a> {
    args: &'a PlanArgs,
    classes: Arc<ClassSet>,
    lines: Lines,
    stop: Arc<AtomicBool>,
}

impl Plan<'_> {
    fn new(args: &PlanArgs) -> anyhow::Result<Plan<'_>> {
        args.check()?;
        let config = fairpath_config::load(&args.config)?;
        let Some(shape) = config.shape else {
            return Err(wrong_usage(format!(
                "plan {:?}: the configuration has no section [shape]: add one with the rates of the line",
                args.config
            )));
        };
        if shape.lines.impair != Impairments::default() {
            note("impairments of the configuration are not simulated");
        }
        let settings = Settings {
            impair: Impairments::default(),
            ..shape.lines
        };
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&stop)).context("handle signals")?;
        }
        Ok(Plan {
            args,
            lines: Lines::new(&config.classes.set, &settings)?,
            classes: config.classes.set,
            stop,
        })
    }

    fn settings(&self, cost: Cost) -> PlanSettings {
        let args = self.args;
        let is_demand = args.read.is_none();
        let duration_ns = args.duration.or(is_demand.then_some(DEFAULT_NS));
        PlanSettings {
            cpus: args.with_cpus,
            cost,
            duration_ns,
            warm_up_ns: match is_demand {
                true => (duration_ns.unwrap_or(0) / WARM_UP).min(MAX_WARM_UP_NS),
                false => 0,
            },
            packet_bytes: args.packet_bytes,
            seed: args.seed,
        }
    }

    fn simulate(&self, settings: &PlanSettings) -> anyhow::Result<(PlanFindings, Vec<Verdict>)> {
        let findings = match &self.args.read {
            None => self.simulate_offered(settings, Offered::Demand(self.args.demand.into()))?,
            Some(path) => {
                let reader =
                    Reader::new(open(path)?).with_context(|| format!("read capture {path:?}"))?;
                let parser = HeaderParser::new(Some(&self.classes))?;
                let packets = &mut Capture::new(reader, parser);
                let speed = self.args.speed;
                self.simulate_offered(settings, Offered::Capture { packets, speed })
                    .with_context(|| format!("plan with {path:?}"))?
            }
        };
        let verdicts = judge(&findings, settings);
        Ok((findings, verdicts))
    }

    fn simulate_offered(
        &self,
        settings: &PlanSettings,
        offered: Offered<'_>,
    ) -> anyhow::Result<PlanFindings> {
        let subject = PlanSubject {
            classes: &self.classes,
            lines: &self.lines,
            sides: self.args.direction.sides(),
        };
        let about = format!("{} CPUs: ", settings.cpus);
        let mut progress = VirtualProgress::new(&about, settings.duration_ns);
        let mut watch = |now: u64| {
            progress.show(now);
            !self.stop.load(Ordering::Relaxed)
        };
        let findings = simulate(&subject, settings, offered, &mut watch);
        progress.clear();
        Ok(findings?)
    }

    /// The lowest number of CPUs for which all rates hold. `verdicts` are those of `settings`. `None`: interrupted.
    fn enough(
        &self,
        settings: &PlanSettings,
        verdicts: &[Verdict],
    ) -> anyhow::Result<Option<Option<u32>>> {
        let all_hold = |verdicts: &[Verdict]| verdicts.iter().all(Verdict::holds);
        let known = all_hold(verdicts);
        let mut interrupted = false;
        let found = enough(settings.cpus, |cpus| {
            if cpus == settings.cpus || interrupted {
                return Ok::<bool, anyhow::Error>(known || interrupted);
            }
            let (findings, verdicts) = self.simulate(&PlanSettings { cpus, ..*settings })?;
            interrupted = findings.interrupted;
            Ok(all_hold(&verdicts))
        })?;
        if interrupted {
            note("interrupted: the number of CPUs that are enough is not known");
            return Ok(None);
        }
        Ok(Some(found))
    }
}

/// The stream of a capture.
fn open(path: &Path) -> anyhow::Result<Box<dyn Read>> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    let file = File::open(path).with_context(|| format!("open capture {path:?}"))?;
    Ok(Box::new(file))
}
