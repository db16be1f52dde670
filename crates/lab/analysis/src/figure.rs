//! Figures of an experiment: a measured quantity over an axis.

use serde::{Deserialize, Serialize};

/// One figure of the report, in the experiment's file as `[[figure]]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FigureSpec {
    /// The finding, as a sentence for managers.
    pub title: String,
    /// Its form.
    pub kind: FigureKind,
    /// The axis along x (curves, bars); none for timelines and distributions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x: Option<String>,
    /// The measured quantity (`metrics` lists them): "goodput", "ping-p99".
    pub y: String,
    /// The axis that distinguishes the lines (or groups of bars).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The axis that makes one panel for each of its values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
    /// True if models (Mathis, Padhye, RFC 9438) are drawn with the measurements.
    #[serde(default)]
    pub theory: bool,
    /// Logarithmic axes.
    #[serde(default)]
    pub log_x: bool,
    /// The same.
    #[serde(default)]
    pub log_y: bool,
}

/// Forms of figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FigureKind {
    /// Medians with intervals over an axis with numbers.
    Curve,
    /// Medians with intervals by named values.
    Bars,
    /// A quantity over the time of a run, one typical run a line.
    Timeline,
    /// Distribution of a quantity's samples over all valid runs of a setting.
    Distribution,
}
