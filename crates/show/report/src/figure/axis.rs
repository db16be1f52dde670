//! Axes: what is measured, in which unit, on which scale.

use serde::{Deserialize, Serialize};

use crate::figure::mapping::Range;
use crate::unit::Unit;

/// An axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// "Goodput"; the unit is added.
    pub label: String,
    /// Of its values.
    pub unit: Unit,
    /// The mapping from values to positions.
    pub scale: Scale,
    /// Least and largest value shown; `None`: what the data need.
    pub range: Option<(f64, f64)>,
    /// True if zero is shown whatever the data are (linear scales only).
    pub from_zero: bool,
    /// The range that it shares with other panels, while it is drawn.
    #[serde(skip)]
    pub(crate) shown: Option<Range>,
}

/// The mapping from values to positions on an axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Equal steps, equal distances.
    Linear,
    /// Equal ratios, equal distances. Zero has a separate position beyond a gap in the axis.
    Log,
    /// Named values at 0, 1, 2 ...
    Names(Vec<String>),
}

impl Axis {
    /// A linear axis over what the data need.
    pub fn linear(label: &str, unit: Unit) -> Axis {
        Axis {
            label: label.to_owned(),
            unit,
            scale: Scale::Linear,
            range: None,
            from_zero: false,
            shown: None,
        }
    }

    /// A linear axis that begins at zero: for quantities whose ratio matters.
    pub fn zero_based(label: &str, unit: Unit) -> Axis {
        Axis {
            from_zero: true,
            ..Axis::linear(label, unit)
        }
    }

    /// A logarithmic axis.
    pub fn log(label: &str, unit: Unit) -> Axis {
        Axis {
            scale: Scale::Log,
            ..Axis::linear(label, unit)
        }
    }

    /// An axis of named values.
    pub fn names(label: &str, names: Vec<String>) -> Axis {
        Axis {
            scale: Scale::Names(names),
            ..Axis::linear(label, Unit::none())
        }
    }

    /// With a separate range.
    pub fn range(mut self, low: f64, high: f64) -> Axis {
        self.range = Some((low, high));
        self
    }

    /// A value as hover texts and notes show it.
    pub(crate) fn show(&self, value: f64) -> String {
        match &self.scale {
            Scale::Names(names) => name_at(names, value).unwrap_or_default().to_owned(),
            _ => self.unit.show(value),
        }
    }
}

/// The name at a place, if the place is one.
pub(crate) fn name_at(names: &[String], value: f64) -> Option<&str> {
    let index = value.round();
    let there = index >= 0.0 && index < names.len() as f64;
    there.then(|| names[index as usize].as_str())
}
