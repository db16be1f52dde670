//! The method: the experiment in words, the quantities and how they are computed, the statistics.

use std::collections::BTreeSet;

use fairpath_report::{Block, Cell as TableCell, Column, Section, Table};

use crate::grid::Grid;
use crate::metrics;

/// "Method".
pub fn section(grid: &Grid) -> Section {
    let manifest = grid.manifest;
    let mut blocks: Vec<Block> = paragraphs(&manifest.text);
    blocks.push(Block::Text(design(grid)));
    blocks.push(Block::Table(quantities(grid)));
    blocks.push(Block::Text(STATISTICS.to_owned()));
    if grid.figures().any(|figure| figure.theory) {
        blocks.push(Block::Text(MODELS.to_owned()));
        blocks.push(Block::Code(FORMULAS.to_owned()));
    }
    Section::new("Method", blocks)
}

const STATISTICS: &str = "Values of a setting are medians of its valid runs. Intervals of fewer than eight runs use order \
    statistics, with their exact confidence (75 % for three runs). Intervals of more runs are bootstrap intervals. A change \
    is significant only if an interval of at least 90 % confidence excludes zero (Hodges-Lehmann for few runs). Three runs \
    against three just reach this. Each interval is for one comparison: among many comparisons, some are wrong.";

const MODELS: &str = "Models use the round-trip time and the rate of loss events of each run, and are limited to the link \
    rate. Mathis is the square-root law of Reno, with a constant from the measured segments per ACK (b). Linux counts \
    segments, not ACKs, so the table also has the law with b = 1 (C = 1.22). RFC 9438 is the response function of CUBIC \
    with its Reno-friendly region, which counts segments. Padhye adds timeouts, which Mathis and RFC 9438 do not model. \
    None of them describes BBR.";

const FORMULAS: &str = "\
Mathis (CCR 27(3), 1997):             MSS / RTT * sqrt(3 / (2 b p))
                                      b = 1: MSS / RTT * 1.22 / sqrt(p)
RFC 9438, C = 0.4, beta = 0.7:        MSS / RTT * max(W, sqrt(3 / (2 p)))
                                      W = 1.054 * (RTT / p)^(3/4)
Padhye (ToN 8(2), 2000, equation 32): with timeouts
p*, where Mathis meets the link:      (MSS / RTT * sqrt(3 / (2 b)) / rate)^2
";

fn paragraphs(text: &str) -> Vec<Block> {
    text.split("\n\n")
        .map(|paragraph| {
            paragraph
                .split_whitespace()
                .collect::<Vec<&str>>()
                .join(" ")
        })
        .filter(|paragraph| !paragraph.is_empty())
        .map(Block::Text)
        .collect()
}

/// The grid in a sentence.
fn design(grid: &Grid) -> String {
    let manifest = grid.manifest;
    let axes: Vec<String> = manifest
        .axes
        .iter()
        .filter(|axis| axis.values.len() > 1)
        .map(|axis| format!("{} ({})", axis.title(), axis.values.join(", ")))
        .collect();
    let varied = match axes.is_empty() {
        true => "No parameter varies".to_owned(),
        false => format!("Parameters: {}", axes.join("; ")),
    };
    format!(
        "{varied}. Every setting has {} runs, all in one random order (seed {}), so that changes of the machine over \
         time affect all settings equally. The warm-up of a run is not measured.",
        manifest.repeats, manifest.seed
    )
}

/// The quantities that this report shows, and how each is computed.
fn quantities(grid: &Grid) -> Table {
    let columns = vec![
        Column::text("Name"),
        Column::text("Quantity"),
        Column::text("Computation"),
    ];
    let mut table = Table::new("quantities", "Quantities of this report", columns);
    let requested: BTreeSet<&str> = grid.figures().map(|f| f.y.as_str()).collect();
    for name in requested {
        if let Ok(requested) = metrics::find(name) {
            table.push(vec![
                TableCell::from(name),
                requested.title().into(),
                requested.metric.about.into(),
            ]);
        }
    }
    table
}
