//! `fairpath lab show NAME`: the description or the file of an experiment.

use clap::Args as ClapArgs;
use fairpath_analysis::experiment::Document;
use fairpath_analysis::metrics;

use crate::words;

/// Show an experiment: its question, links, flows, axes and duration.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    fairpath lab show ripe88\n  \
    fairpath lab show ripe88 --toml > my.toml\n  \
    fairpath lab show --metrics\n  \
    fairpath lab show --topologies")]
pub struct Args {
    /// Name of an experiment of `fairpath lab list`, or a file that ends in .toml
    #[arg(value_name = "NAME|FILE.toml", required_unless_present_any = ["metrics", "topologies"])]
    experiment: Option<String>,
    /// List the quantities that the y axis of a figure can have
    #[arg(long, conflicts_with_all = ["toml", "experiment"])]
    metrics: bool,
    /// List the topologies with the names of their hosts and links
    #[arg(long, conflicts_with_all = ["toml", "experiment", "metrics"])]
    topologies: bool,
    /// Print the file of the experiment, as a template
    #[arg(long)]
    toml: bool,
}

/// Prints the description.
///
/// # Errors
/// The experiment does not exist or is invalid.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let text = match &args.experiment {
        None if args.topologies => words::topologies()?,
        None => quantities(),
        Some(name) => {
            let document = Document::open(name)?;
            if args.toml {
                document.text().to_owned()
            } else {
                words::shown(&document)
            }
        }
    };
    fairpath_cli::print(text)
}

/// A line for each quantity: its name, its unit and how it is computed.
fn quantities() -> String {
    let line = |metric: &metrics::Metric| {
        let unit = metric.measure.base();
        format!("{:<20} {unit:<9} {}\n", metric.name, metric.about)
    };
    metrics::all().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_quantity_has_its_unit_and_meaning() {
        let text = quantities();
        assert_eq!(text.lines().count(), metrics::all().count());
        for start in [
            "goodput              bit/s     Bytes that",
            "recovery             s         Time from the first change",
            "jain                           Mean of Jain's",
            "cpu                  cores     Processors",
        ] {
            let is_there = text.lines().any(|line| line.starts_with(start));
            assert!(is_there, "{start}\n{text}");
        }
    }
}
