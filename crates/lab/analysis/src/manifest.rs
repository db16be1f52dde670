//! The description of a directory of results: `manifest.json`, next to the runs.
//!
//! ```text
//! DIR/manifest.json       this file: the experiment as it was run, the machine, the command
//! DIR/runs/NNNN.json      one RunRecord each; the number is its place in the order of the grid
//! DIR/index.html ...      what `fairpath lab report DIR` writes (page)
//! ```
//!
//! Written when the grid begins and again when it ends. Everything that the page says about the
//! experiment comes from here, so that a report can be made without the experiment's own file.

use serde::{Deserialize, Serialize};

use crate::figure::FigureSpec;

/// The form of this file; another form is refused with both numbers.
pub const FORMAT: u32 = 1;
/// Its name in the directory.
pub const FILE: &str = "manifest.json";
/// The directory of the runs, one JSON file each.
pub const RUNS: &str = "runs";

/// An experiment as it was run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// [`FORMAT`].
    pub format: u32,
    /// The experiment's name: "ripe88".
    pub experiment: String,
    /// Its title, one line.
    pub title: String,
    /// The question that it answers, one sentence.
    pub question: String,
    /// The description and its reason, paragraphs with an empty line between them.
    #[serde(default)]
    pub text: String,
    /// "quick" or "full".
    pub form: String,
    /// The varied parameters, in the order of the experiment's file.
    #[serde(default)]
    pub axes: Vec<Axis>,
    /// Runs of each setting.
    pub repeats: u32,
    /// Runs that the whole grid has, repeats included.
    pub runs_planned: u32,
    /// The seed of the grid's random order and of the runs' seeds.
    pub seed: u64,
    /// Figures of the report.
    #[serde(default)]
    pub figures: Vec<FigureSpec>,
    /// The scale of rates and round-trip times for which the emulation is valid here; none: not scaled.
    #[serde(default)]
    pub scale: Option<Scale>,
    /// Remarks for the reader before the figures: fitted values, what stays unanswered. A sentence each.
    #[serde(default)]
    pub remarks: Vec<String>,
    /// Where it ran.
    #[serde(default)]
    pub machine: Machine,
    /// Places of invalid runs that were not repeated, because the time of a quick form was over.
    #[serde(default)]
    pub not_again: Vec<u32>,
    /// The command line that repeats it, as words.
    pub command: Vec<String>,
    /// Version of fairpath-lab.
    pub fairpath_version: String,
    /// When the grid began (RFC 3339).
    pub started: String,
    /// When it ended; none: it was interrupted, or still runs.
    #[serde(default)]
    pub ended: Option<String>,
}

/// One thing that is varied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// The key in [`crate::record::RunRecord::setting`]: "loss".
    pub name: String,
    /// As a figure's axis calls it: "packets lost"; empty: the name.
    #[serde(default)]
    pub label: String,
    /// Unit for axes of figures, where values have one ("%", "ms"). Values carry their own.
    #[serde(default)]
    pub unit: String,
    /// Values as written in the experiment, in its order: "0%", "1%", "10%".
    pub values: Vec<String>,
}

impl Axis {
    /// The words for this axis.
    pub fn title(&self) -> &str {
        if self.label.is_empty() {
            &self.name
        } else {
            &self.label
        }
    }

    /// The position of `value` among the values; an unknown one is last.
    pub fn rank(&self, value: &str) -> usize {
        self.values
            .iter()
            .position(|known| known == value)
            .unwrap_or(self.values.len())
    }
}

/// A network scaled down to what the machine can emulate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scale {
    /// Factor of the rates (0.1: 10 %); round-trip times have its inverse.
    pub factor: f64,
    /// Why, and what stays the same, in a sentence.
    pub text: String,
}

/// The machine, as far as it explains results. Its name and addresses are deliberately omitted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Release and version of the kernel.
    pub kernel: String,
    /// Model of the processor.
    pub cpu_model: String,
    /// Processors that are online.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// "kvm", "qemu", ... as the kernel reports; empty: none.
    #[serde(default)]
    pub virtualisation: String,
    /// First line of `iperf3 --version`.
    pub iperf3: String,
    /// `fairpath --version`.
    pub fairpath: String,
    /// The default congestion control, which no flow relies on.
    pub default_congestion: String,
    /// The congestion controls of the kernel (net.ipv4.tcp_available_congestion_control).
    pub congestion_controls: Vec<String>,
    /// The BBR version of the kernel, and how it was determined; empty: none.
    #[serde(default)]
    pub bbr: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_round_trips_and_refuses_unknown_keys() {
        let manifest = Manifest {
            format: FORMAT,
            experiment: "ripe88".into(),
            axes: vec![Axis {
                name: "loss".into(),
                values: vec!["0%".into(), "1%".into()],
                ..Axis::default()
            }],
            scale: Some(Scale {
                factor: 0.1,
                text: "10 %".into(),
            }),
            ..Manifest::default()
        };
        let text = serde_json::to_string(&manifest).unwrap();
        assert_eq!(serde_json::from_str::<Manifest>(&text).unwrap(), manifest);
        let strange = text.replacen("\"format\"", "\"hostname\":\"secret\",\"format\"", 1);
        let error = serde_json::from_str::<Manifest>(&strange).unwrap_err();
        assert!(error.to_string().contains("hostname"), "{error}");
    }

    #[test]
    fn axis_ranks_its_values_in_order_of_experiment() {
        let axis = Axis {
            name: "cc".into(),
            values: vec!["cubic".into(), "bbr".into()],
            ..Axis::default()
        };
        assert_eq!(axis.title(), "cc");
        assert_eq!(
            [axis.rank("bbr"), axis.rank("cubic"), axis.rank("reno")],
            [1, 0, 2]
        );
    }
}
