//! `fairpath lab run NAME`: an experiment, from its file to its page.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use clap::Args as ClapArgs;
use fairpath_analysis::experiment::{Document, FormName, ScaleChoice};
use fairpath_analysis::manifest::{self, Manifest};
use fairpath_cli::wrong_usage;
use jiff::Timestamp;

use crate::grid::{self, Cell};
use crate::interrupt::Interrupt;
use crate::run::Bench;
use crate::session::{self, Ended, Session};
use crate::store::Store;
use crate::words::{SETTING_UP, run_cost};
use crate::{machine, needs, progress, recorded};

/// The axis that `--rtt-from` gives values to.
const RTT_AXIS: &str = "rtt";

/// Run an experiment, and write its page of results.
///
/// An interrupted command continues with the remaining runs when it is repeated with the same
/// directory. Needs root and iperf3.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    fairpath lab run ripe88 --quick --output results\n  \
    fairpath lab run ripe88 --select cc=cubic,bbr --select loss=0%,1%\n  \
    fairpath lab run my.toml --rtt-from rtt.json")]
pub struct Args {
    /// Name of an experiment of `fairpath lab list`, or a file that ends in .toml
    #[arg(value_name = "NAME|FILE.toml")]
    experiment: String,
    /// Run the short form, of at most 5 minutes on two processors
    #[arg(long)]
    quick: bool,
    /// Directory of results; results of the same command are continued [default: lab-NAME]
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Run only these values of an axis, for example cc=cubic,bbr; can be repeated
    #[arg(long, value_name = "AXIS=VALUE,...")]
    select: Vec<String>,
    /// Seed of the order and of random numbers, 0 to 2^64 - 1 [default: that of the experiment]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Multiply rates by this factor, above 0 and at most 1, and divide link delays by it [default: that of the experiment]
    #[arg(long, value_name = "FACTOR", value_parser = factor)]
    scale: Option<f64>,
    /// Values of the axis "rtt", from a file that `fairpath rtt --format json` wrote
    #[arg(long, value_name = "FILE")]
    rtt_from: Option<PathBuf>,
    /// The binary `fairpath` [default: $FAIRPATH, or the one in the same directory]
    #[arg(long, value_name = "PATH")]
    fairpath: Option<PathBuf>,
}

/// Runs the experiment. Returns whether it is complete.
///
/// # Errors
/// The experiment cannot be run, or results cannot be written. Finished runs are kept.
pub fn run(args: &Args) -> anyhow::Result<Ended> {
    let form = if args.quick {
        FormName::Quick
    } else {
        FormName::Full
    };
    let mut document = Document::open(&args.experiment)?;
    let mut remarks = document.base().remarks.clone();
    if let Some(file) = &args.rtt_from {
        let recorded = recorded::read(file)?;
        document = document.with_values(RTT_AXIS, &recorded.axis_values())?;
        remarks.push(recorded.words());
    }
    let seed = args.seed.unwrap_or(document.base().seed);
    let mut cells = selected(grid::plan(&document, form, seed)?, &args.select)?;
    if let Some(factor) = args.scale {
        for cell in &mut cells {
            cell.experiment.scale = ScaleChoice::Fixed(factor);
        }
    }
    let fairpath = machine::fairpath(args.fairpath.as_deref());
    needs::check(&cells, &fairpath)?;
    let begun = manifest(args, &document, form, &cells, remarks, seed, &fairpath)?;

    let out = args.output.clone();
    let out = out.unwrap_or_else(|| PathBuf::from(format!("lab-{}", document.base().name)));
    let (store, runs, found) = Store::open(&out, &begun, document.text())?;
    let interrupt = Interrupt::listen()?;
    report_begin(&cells, runs.len(), &out);
    let own = session::own_congestion(&cells)?;
    let mut bench = Bench::new(fairpath, out.clone(), interrupt);
    let ended = Session::new(&mut bench, &store, found, runs).go(&cells);
    drop((bench, own));
    // The page is written even after an error.
    let reported = session::report(&out);
    let ended = ended?;
    let reported = reported?;
    reported.print()?;
    if ended == Ended::Interrupted {
        fairpath_cli::note("interrupted; repeat the command to continue");
    }
    match ended {
        Ended::Whole if !reported.has_all_settings => Ok(Ended::Incomplete),
        ended => Ok(ended),
    }
}

/// A factor of the rates.
fn factor(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok();
    let within = number.filter(|factor| *factor > 0.0 && *factor <= 1.0);
    within.ok_or_else(|| "write a number above 0 and at most 1, for example 0.1".to_owned())
}

fn report_begin(cells: &[Cell], there: usize, out: &std::path::Path) {
    let seconds: f64 = cells.iter().map(|cell| run_cost(&cell.experiment)).sum();
    let trials = cells.first().map_or(0.0, |cell| {
        crate::calibrate::cost(&cell.experiment, SETTING_UP)
    });
    let left = (cells.len().saturating_sub(there)) as f64 / cells.len().max(1) as f64;
    let seconds = if there == 0 {
        seconds + trials
    } else {
        seconds * left
    };
    let time = progress::written(Duration::from_secs_f64(seconds));
    let there = if there > 0 {
        format!(", {there} are complete")
    } else {
        String::new()
    };
    fairpath_cli::note(format_args!(
        "{} runs, about {time}{there}; results in {}",
        cells.len(),
        out.display()
    ));
}

/// The cells that have the selected values of their axes, renumbered.
fn selected(cells: Vec<Cell>, wanted: &[String]) -> anyhow::Result<Vec<Cell>> {
    let mut kept = cells;
    for text in wanted {
        let (axis, values) = text
            .split_once('=')
            .ok_or_else(|| wrong_usage(format!("--select {text}: write AXIS=VALUE,...")))?;
        let values: Vec<&str> = values.split(',').collect();
        let known: Vec<&str> = kept
            .iter()
            .filter_map(|cell| cell.setting.get(axis).map(String::as_str))
            .collect();
        if known.is_empty() {
            return Err(wrong_usage(format!(
                "--select {text}: the experiment has no axis {axis}"
            )));
        }
        if let Some(unknown) = values.iter().find(|value| !known.contains(value)) {
            return Err(wrong_usage(format!(
                "--select {text}: axis {axis} has no value {unknown} in this form"
            )));
        }
        kept.retain(|cell| values.contains(&cell.setting[axis].as_str()));
    }
    for (place, cell) in (0..).zip(&mut kept) {
        cell.place = place;
    }
    if kept.is_empty() {
        return Err(wrong_usage(
            "--select excludes every run; select values that occur together",
        ));
    }
    Ok(kept)
}

fn manifest(
    args: &Args,
    document: &Document,
    form: FormName,
    cells: &[Cell],
    remarks: Vec<String>,
    seed: u64,
    fairpath: &std::path::Path,
) -> anyhow::Result<Manifest> {
    let base = document.base();
    let machine = machine::reported(fairpath);
    if machine.fairpath.is_empty() {
        bail!(
            "run {} --version: this is not the binary fairpath; name it with --fairpath PATH",
            fairpath.display()
        );
    }
    let used = |axis: &fairpath_analysis::experiment::Axis| manifest::Axis {
        name: axis.name.clone(),
        label: axis.label.clone(),
        unit: axis.unit.clone(),
        values: (axis.names().into_iter())
            .filter(|value| cells.iter().any(|cell| cell.setting[&axis.name] == *value))
            .collect(),
    };
    Ok(Manifest {
        format: manifest::FORMAT,
        experiment: base.name.clone(),
        title: base.title.clone(),
        question: base.question.clone(),
        text: base.text.trim().to_owned(),
        form: form.to_string(),
        axes: base.axes.iter().map(used).collect(),
        repeats: cells.iter().map(|cell| cell.repeat + 1).max().unwrap_or(0),
        runs_planned: u32::try_from(cells.len()).unwrap_or(u32::MAX),
        seed,
        figures: base.figures.clone(),
        scale: None,
        remarks,
        not_again: Vec::new(),
        machine,
        command: command(args),
        fairpath_version: env!("CARGO_PKG_VERSION").to_owned(),
        started: Timestamp::now().to_string(),
        ended: None,
    })
}

/// The command that repeats the experiment. The directory is a placeholder.
fn command(args: &Args) -> Vec<String> {
    let mut words: Vec<String> = ["fairpath", "lab", "run", &args.experiment]
        .map(str::to_owned)
        .into();
    words.extend(args.quick.then(|| "--quick".to_owned()));
    words.extend(
        args.select
            .iter()
            .flat_map(|select| ["--select".to_owned(), select.clone()]),
    );
    words.extend(
        args.seed
            .iter()
            .flat_map(|seed| ["--seed".to_owned(), seed.to_string()]),
    );
    let scale = args.scale.iter();
    words.extend(scale.flat_map(|factor| ["--scale".to_owned(), factor.to_string()]));
    let file = args.rtt_from.iter().map(|file| file.display().to_string());
    words.extend(file.flat_map(|file| ["--rtt-from".to_owned(), file]));
    words.extend(["--output".to_owned(), "DIR".to_owned()]);
    words
}

#[cfg(test)]
mod tests {
    use fairpath_cli::WrongUsage;

    use super::*;

    fn cells() -> Vec<Cell> {
        let document = Document::open("ripe88").unwrap();
        grid::plan(&document, FormName::Quick, 88).unwrap()
    }

    #[test]
    fn a_scale_is_a_share() {
        assert_eq!(factor("0.1"), Ok(0.1));
        for wrong in ["0", "1.5", "-1", "NaN", "x"] {
            assert!(factor(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn selected_axis_values_alone_are_run() {
        let kept = selected(cells(), &["cc=bbr".to_owned(), "loss=0%,10%".to_owned()]).unwrap();
        assert_eq!(kept.len(), 12);
        assert!(
            kept.iter()
                .enumerate()
                .all(|(at, cell)| cell.place as usize == at)
        );
        for wrong in ["cc", "colour=red", "cc=reno"] {
            let error = selected(cells(), &[wrong.to_owned()]).unwrap_err();
            assert!(error.is::<WrongUsage>(), "{wrong}: {error}");
        }
    }
}
