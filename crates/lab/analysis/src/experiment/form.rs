//! The extent of the variation: axes, settings, the quick form and the full one.
//!
//! A form says which values of each axis are used. Its settings are all combinations of these, or,
//! where it lists grids, the union of several such products: a second axis that matters for one
//! question alone is not multiplied with everything else.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use toml::Value;

/// One thing that is varied, `[[axis]]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Axis {
    /// Its name in settings and figures.
    pub name: String,
    /// As a figure's axis calls it.
    #[serde(default)]
    pub label: String,
    /// Of its numbers: "%", "ms".
    #[serde(default)]
    pub unit: String,
    /// The dotted path that a value goes to, "links.wan.loss"; none: values name their own.
    #[serde(default)]
    pub set: Vec<String>,
    /// Values in order. An axis that a grid omits stays at the first, or at `base`.
    pub values: Vec<Point>,
    /// The value where a grid leaves the axis out.
    #[serde(default)]
    pub base: Option<String>,
}

/// A value of an axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Point {
    /// Goes to the axis' paths.
    Value(Plain),
    /// Sets separate paths.
    Named(Named),
}

/// A value that is written as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Plain {
    /// "1%", "cubic".
    Text(String),
    /// 3.
    Whole(i64),
    /// 0.5.
    Number(f64),
    /// true.
    Flag(bool),
}

/// A value with a name and what it means.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Named {
    /// As records and figures show it.
    pub name: String,
    /// Dotted paths and what goes there.
    pub set: BTreeMap<String, Value>,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Point::Value(Plain::Text(text)) => f.write_str(text),
            Point::Value(Plain::Whole(number)) => write!(f, "{number}"),
            Point::Value(Plain::Number(number)) => write!(f, "{number}"),
            Point::Value(Plain::Flag(flag)) => write!(f, "{flag}"),
            Point::Named(named) => f.write_str(&named.name),
        }
    }
}

impl Plain {
    /// As the document has it.
    pub fn value(&self) -> Value {
        match self {
            Plain::Text(text) => Value::String(text.clone()),
            Plain::Whole(number) => Value::Integer(*number),
            Plain::Number(number) => Value::Float(*number),
            Plain::Flag(flag) => Value::Boolean(*flag),
        }
    }
}

impl Axis {
    /// Values as they are written.
    pub fn names(&self) -> Vec<String> {
        self.values.iter().map(Point::to_string).collect()
    }

    /// The value called `name`.
    pub fn point(&self, name: &str) -> Option<&Point> {
        self.values.iter().find(|point| point.to_string() == name)
    }

    /// Where it stays when a grid leaves it out.
    pub fn base(&self) -> Option<String> {
        let first = self.values.first().map(Point::to_string);
        self.base.clone().or(first)
    }

    /// Dotted paths and what goes there, for the value called `name`.
    pub fn sets(&self, name: &str) -> Option<Vec<(String, Value)>> {
        match self.point(name)? {
            Point::Value(plain) => {
                let to = |path: &String| (path.clone(), plain.value());
                Some(self.set.iter().map(to).collect())
            }
            Point::Named(named) => Some(named.set.clone().into_iter().collect()),
        }
    }
}

/// Which form of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FormName {
    /// Five minutes at most, on two cores.
    Quick,
    /// All of it.
    Full,
}

impl fmt::Display for FormName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FormName::Quick => "quick",
            FormName::Full => "full",
        })
    }
}

/// Axis names and the values used.
pub type Grid = BTreeMap<String, Vec<String>>;

/// The changes of a form, `[form.quick]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Form {
    /// Runs of each setting.
    #[serde(default)]
    pub repeats: Option<u32>,
    /// Seconds of each run.
    #[serde(default)]
    pub seconds: Option<f64>,
    /// Of these, before the measurement.
    #[serde(default)]
    pub warmup: Option<f64>,
    /// Other dotted paths.
    #[serde(default)]
    pub set: BTreeMap<String, Value>,
    /// The grids; none: all values of all axes.
    #[serde(default)]
    pub grid: Vec<Grid>,
}

impl Form {
    /// Dotted paths and what goes there.
    pub fn sets(&self) -> Vec<(String, Value)> {
        let number = |path: &str, value: Option<f64>| {
            value.map(|value| (path.to_owned(), Value::Float(value)))
        };
        let repeats = |count| ("repeats".to_owned(), Value::Integer(i64::from(count)));
        let own = self.set.clone().into_iter();
        own.chain(self.repeats.map(repeats))
            .chain(number("seconds", self.seconds))
            .chain(number("warmup", self.warmup))
            .collect()
    }
}
