//! The file of an experiment, and its table at one setting of the axes.
//!
//! The whole file is read once with places for errors. A setting is the file's table with the form's
//! and the axes' dotted paths set, read again: so an axis may set anything that the file may say, and a
//! path that means nothing is refused like a key that means nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use thiserror::Error;
use toml::{Table, Value};

use super::check;
use super::form::{Form, FormName, Grid, Plain, Point};
use super::{Experiment, shipped};

/// The value of each axis, as written.
pub type Setting = BTreeMap<String, String>;

/// An experiment cannot be used.
#[derive(Debug, Error)]
pub enum LoadError {
    /// No file, and none of that name is shipped.
    #[error(
        "no experiment \"{name}\": {near}`fairpath lab list` names those that are shipped; a file ends in .toml"
    )]
    Unknown {
        /// As requested.
        name: String,
        /// "did you mean ...? ", or nothing.
        near: String,
    },
    /// The file could not be read.
    #[error("read the experiment {path}")]
    Read {
        /// Where.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The file does not say what an experiment may say.
    #[error("{place}: {text}")]
    Refused {
        /// "ripe88.toml:4:10".
        place: String,
        /// Object, cause, remedy.
        text: String,
    },
}

/// An experiment as it was written.
#[derive(Clone, Debug)]
pub struct Document {
    /// Where it comes from, for messages.
    origin: String,
    /// As it was written.
    text: String,
    table: Table,
    base: Experiment,
}

impl Document {
    /// The shipped experiment `name`, or the file of that path.
    ///
    /// # Errors
    /// No such experiment, or one that is refused.
    pub fn open(name: &str) -> Result<Document, LoadError> {
        if let Some(text) = shipped::text(name) {
            return Document::parse(&format!("{name}.toml"), text);
        }
        let path = Path::new(name);
        if path.extension().is_none() {
            let near = nearest(name, shipped::names());
            return Err(LoadError::Unknown {
                name: name.to_owned(),
                near: near.map_or_else(String::new, |near| format!("did you mean \"{near}\"? ")),
            });
        }
        let text = fs::read_to_string(path).map_err(|source| LoadError::Read {
            path: path.to_owned(),
            source,
        })?;
        Document::parse(name, &text)
    }

    /// The experiment in `text`; `origin` names it in messages.
    ///
    /// # Errors
    /// What the text says wrong, with its line, or what settings of its axes come to.
    pub fn parse(origin: &str, text: &str) -> Result<Document, LoadError> {
        let at = |error: toml::de::Error| LoadError::Refused {
            place: place(origin, text, &error),
            text: reported(error.message()),
        };
        let base: Experiment = toml::from_str(text).map_err(at)?;
        let table: Table = toml::from_str(text).map_err(at)?;
        let document = Document {
            origin: origin.to_owned(),
            text: text.to_owned(),
            table,
            base,
        };
        check::document(&document)?;
        Ok(document)
    }

    /// As it was written, axes at nothing in particular.
    pub fn base(&self) -> &Experiment {
        &self.base
    }

    /// This, with other values for an axis, all of which every grid uses that names the axis.
    ///
    /// # Errors
    /// There is no such axis, or a value is refused.
    pub fn with_values(mut self, axis: &str, values: &[String]) -> Result<Document, LoadError> {
        let none = self.refused("", &format!("has no axis {axis} to give values to"));
        let found = self.base.axes.iter_mut().find(|known| known.name == axis);
        let found = found.ok_or(none)?;
        let point = |value: &String| Point::Value(Plain::Text(value.clone()));
        found.values = values.iter().map(point).collect();
        found.base = None;
        let grids = self.base.forms.values_mut().flat_map(|form| &mut form.grid);
        for used in grids.filter_map(|grid| grid.get_mut(axis)) {
            *used = spread(values, used.len());
        }
        self.text += &format!("# axis {axis} as it was run: {}\n", values.join(", "));
        check::document(&self)?;
        Ok(self)
    }

    /// The file.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The form called so; an experiment without forms has its own values for both.
    pub fn form(&self, name: FormName) -> Form {
        self.base.forms.get(&name).cloned().unwrap_or_default()
    }

    /// Values of every axis that `form` uses, in the file's order, whatever order its grids have.
    pub fn used_values(&self, form: FormName) -> Vec<(String, Vec<String>)> {
        let settings = self.settings(form);
        let used = |axis: &super::Axis| {
            let seen = |name: &String| settings.iter().any(|setting| setting[&axis.name] == *name);
            let values = axis.names().into_iter().filter(seen).collect();
            (axis.name.clone(), values)
        };
        self.base.axes.iter().map(used).collect()
    }

    /// All settings of `form`, each once, in the order of its grids.
    pub fn settings(&self, form: FormName) -> Vec<Setting> {
        let grids = self.form(form).grid;
        let everything = (self.base.axes.iter())
            .map(|axis| (axis.name.clone(), axis.names()))
            .collect();
        let grids: Vec<Grid> = if grids.is_empty() {
            vec![everything]
        } else {
            grids
        };
        let mut settings = Vec::new();
        for setting in grids.iter().flat_map(|grid| self.product(grid)) {
            if !settings.contains(&setting) {
                settings.push(setting);
            }
        }
        settings
    }

    /// All combinations of one grid; an omitted axis stays at its base.
    fn product(&self, grid: &Grid) -> Vec<Setting> {
        let mut settings = vec![Setting::new()];
        for axis in &self.base.axes {
            let stays = axis.base().into_iter().collect();
            let values = grid.get(&axis.name).cloned().unwrap_or(stays);
            let with = |setting: &Setting| {
                let setting = setting.clone();
                let name = axis.name.clone();
                let one = move |value: &String| {
                    let mut setting = setting.clone();
                    setting.insert(name.clone(), value.clone());
                    setting
                };
                values.iter().map(one).collect::<Vec<_>>()
            };
            settings = settings.iter().flat_map(with).collect();
        }
        settings
    }

    /// The experiment at one setting.
    ///
    /// # Errors
    /// What the setting comes to is refused, naming the axes' values.
    pub fn at(&self, form: FormName, setting: &Setting) -> Result<Experiment, LoadError> {
        let mut table = self.table.clone();
        for (path, value) in self.form(form).sets() {
            self.set(&mut table, &path, value, &format!("form {form}"))?;
        }
        for axis in &self.base.axes {
            let Some(value) = setting.get(&axis.name) else {
                continue;
            };
            let what = format!("axis {} at {value}", axis.name);
            let sets = axis.sets(value).ok_or_else(|| {
                let near = nearest(value, axis.names());
                let near = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
                self.refused(
                    &what,
                    &format!("no such value among {}{near}", axis.names().join(", ")),
                )
            })?;
            for (path, value) in sets {
                self.set(&mut table, &path, value, &what)?;
            }
        }
        let experiment: Result<Experiment, _> = Value::Table(table).try_into();
        let mut experiment = experiment.map_err(|error: toml::de::Error| {
            self.refused(&words(setting), &reported(error.message()))
        })?;
        check::setting(&mut experiment).map_err(|text| self.refused(&words(setting), &text))?;
        Ok(experiment)
    }

    /// Puts `value` at a dotted path; tables on the way are made.
    fn set(
        &self,
        table: &mut Table,
        path: &str,
        value: Value,
        what: &str,
    ) -> Result<(), LoadError> {
        let (parents, last) = path.rsplit_once('.').unwrap_or(("", path));
        let mut place = table;
        for part in parents.split('.').filter(|part| !part.is_empty()) {
            let next = place
                .entry(part)
                .or_insert_with(|| Value::Table(Table::new()));
            place = next.as_table_mut().ok_or_else(|| {
                self.refused(
                    what,
                    &format!("the path {path} goes through {part}, which is a value; name a table"),
                )
            })?;
        }
        place.insert(last.to_owned(), value);
        Ok(())
    }

    /// An error of this file that has no line.
    pub(super) fn refused(&self, what: &str, text: &str) -> LoadError {
        let origin = &self.origin;
        let place = if what.is_empty() {
            origin.clone()
        } else {
            format!("{origin}: {what}")
        };
        LoadError::Refused {
            place,
            text: text.to_owned(),
        }
    }
}

/// "loss 1%, cc cubic".
pub fn words(setting: &Setting) -> String {
    let one = |(axis, value): (&String, &String)| format!("{axis} {value}");
    setting.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// FILE:LINE:COLUMN of an error.
fn place(origin: &str, text: &str, error: &toml::de::Error) -> String {
    let start = error.span().map_or(0, |span| span.start);
    let before = text.get(..start).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before
        .rsplit('\n')
        .next()
        .unwrap_or_default()
        .chars()
        .count()
        + 1;
    format!("{origin}:{line}:{column}")
}

/// As many of the values as a grid used before, first and last among them (so two at least), or all where
/// there are fewer.
fn spread(values: &[String], count: usize) -> Vec<String> {
    let last = values.len().saturating_sub(1);
    match count.max(2) {
        count if count > last => values.to_vec(),
        count => (0..count)
            .map(|at| values[at * last / (count - 1)].clone())
            .collect(),
    }
}

/// The message of serde, with the nearest valid key.
fn reported(message: &str) -> String {
    let message = message.replace('\n', "; ");
    let mut quoted = message.split('`').skip(1).step_by(2);
    let unknown = message
        .contains("unknown field")
        .then(|| quoted.next())
        .flatten();
    let near = unknown.and_then(|unknown| nearest(unknown, quoted.map(str::to_owned)));
    match near {
        Some(near) => format!("{message}; did you mean `{near}`?"),
        None => message,
    }
}

/// The known name that `name` is most like, if any is like it at all.
pub fn nearest(name: &str, known: impl IntoIterator<Item = String>) -> Option<String> {
    let known: Vec<String> = known.into_iter().collect();
    fairpath_units::nearest(name, known.iter().map(String::as_str)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
name = "tiny"
title = "Tiny"
question = "Does it work?"
topology = "router"

[links.wan]
rate = "100mbit"

[flows.bulk]
congestion = "cubic"

[[axis]]
name = "loss"
set = ["links.wan.to.server.loss"]
values = ["0%", "1%"]

[[axis]]
name = "who"
values = [
  { name = "one", set = { "flows.bulk.number" = 1 } },
  { name = "two", set = { "flows.bulk.number" = 2, "flows.bulk.congestion" = "bbr" } },
]

[form.quick]
repeats = 2
grid = [{ loss = ["1%"], who = ["one", "two"] }, { loss = ["0%", "1%"] }]
"#;

    fn document() -> Document {
        Document::parse("tiny.toml", TEXT).unwrap()
    }

    fn refusal(from: &str, to: &str) -> String {
        assert!(TEXT.contains(from), "{from}");
        let text = TEXT.replacen(from, to, 1);
        Document::parse("tiny.toml", &text).unwrap_err().to_string()
    }

    #[test]
    fn grid_keeps_as_many_values_as_it_had() {
        let values = ["1", "2", "3", "4", "5"].map(str::to_owned);
        assert_eq!(spread(&values, 3), ["1", "3", "5"]);
        assert_eq!(spread(&values, 1), ["1", "5"]);
        assert_eq!(spread(&values[..2], 3), ["1", "2"]);
        let document = Document::open("loss-cost").unwrap();
        let before = document.settings(FormName::Quick).len();
        let document = document.with_values(
            "rtt",
            &["1ms", "2ms", "3ms", "4ms", "5ms"].map(str::to_owned),
        );
        assert_eq!(document.unwrap().settings(FormName::Quick).len(), before);
    }

    #[test]
    fn a_form_is_the_union_of_its_grids() {
        let words: Vec<String> = document()
            .settings(FormName::Quick)
            .iter()
            .map(words)
            .collect();
        assert_eq!(
            words,
            ["loss 1%, who one", "loss 1%, who two", "loss 0%, who one"]
        );
        assert_eq!(document().settings(FormName::Full).len(), 4);
        let used = document().used_values(FormName::Quick);
        assert_eq!(used[0].1, ["0%", "1%"]);
    }

    #[test]
    fn a_setting_changes_what_its_axes_name() {
        let document = document();
        let settings = document.settings(FormName::Quick);
        let two = document.at(FormName::Quick, &settings[1]).unwrap();
        assert_eq!(two.flows["bulk"].congestion.as_deref(), Some("bbr"));
        assert_eq!((two.flows["bulk"].number, two.repeats), (2, 2));
        assert_eq!(two.links["wan"].towards("server").loss.to_string(), "1%");
        assert_eq!(two.links["wan"].towards("client").loss.to_string(), "0%");
    }

    #[test]
    fn errors_have_position_and_suggestion() {
        let error = refusal("congestion =", "congestoin =");
        assert!(
            error.starts_with("tiny.toml:11:1: unknown field"),
            "{error}"
        );
        assert!(error.ends_with("did you mean `congestion`?"), "{error}");
        let error = refusal("100mbit", "100");
        assert!(error.contains("write 100mbit"), "{error}");
        let error = refusal("[links.wan]", "[links.wna]");
        assert!(
            error.contains("wna") && error.contains("did you mean wan"),
            "{error}"
        );
        let error = refusal("rate = \"100mbit\"", "rtt = \"20ms\"\ndelay = \"5ms\"");
        assert!(
            error.contains("link wan: rtt 20ms and delay are both set"),
            "{error}"
        );
        let error = refusal(
            "rate = \"100mbit\"",
            "rtt = \"20ms\"\n[links.wan.to.server]\ndelay = \"5ms\"",
        );
        assert!(
            error.contains("rtt 20ms and to.server.delay are both set"),
            "{error}"
        );
        let error = refusal("loss = [\"1%\"]", "loss = [\"2%\"]");
        assert!(error.contains("loss at 2%"), "{error}");
        let error = refusal("links.wan.to.server.loss", "links.wan.to.srever.loss");
        assert!(error.contains("srever"), "{error}");
        let error = refusal("links.wan.to.server.loss", "name.wan");
        assert!(error.contains("goes through name"), "{error}");
    }

    #[test]
    fn an_axis_may_be_given_other_values() {
        let values = ["2%".to_owned(), "3%".to_owned()];
        let document = document().with_values("loss", &values).unwrap();
        let words: Vec<String> = document
            .settings(FormName::Quick)
            .iter()
            .map(words)
            .collect();
        assert_eq!(words.len(), 4, "{words:?}");
        assert!(words.contains(&"loss 3%, who two".to_owned()));
        assert!(
            document
                .text()
                .ends_with("# axis loss as it was run: 2%, 3%\n")
        );
        assert!(document.with_values("colour", &values).is_err());
    }

    #[test]
    fn unknown_experiments_have_a_suggestion() {
        let error = Document::open("ripe8").unwrap_err().to_string();
        assert!(error.contains("did you mean \"ripe88\"?"), "{error}");
        let error = Document::open("/nowhere/x.toml").unwrap_err().to_string();
        assert_eq!(error, "read the experiment /nowhere/x.toml");
    }
}
