//! Classes as they are read: each value checked for itself, nothing yet held against the others.

use crate::class::{MAX_CLASSES, MAX_CRITERIA};
use crate::criterion::{Criterion, MATCHES};
use crate::key::Key;
use crate::labels::Labels;
use crate::problem::{ProblemKind, Problems};
use crate::source::{At, Place, Sources};
use crate::value::{self, BadValue};

/// One direction's rates, bits a second.
#[derive(Clone, Debug, Default)]
pub(crate) struct DraftRates {
    pub floor_bps: Option<At<u64>>,
    pub ceil_bps: Option<At<u64>>,
}

/// A class as it is read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Draft {
    /// Of the name if there is one.
    pub place: Place,
    /// Empty if none was given, which was told.
    pub name: String,
    pub parent: Option<At<String>>,
    pub criteria: Vec<At<Criterion>>,
    pub up: DraftRates,
    pub down: DraftRates,
    pub rtt_p95_ns: Option<u64>,
    pub loss: Option<f64>,
    /// By name.
    pub attributes: Vec<(String, String)>,
}

/// Everything read so far. Give it files, then let [`crate::ClassSet::build`] check the whole.
///
/// Reading never fails: what is wrong is noted, with file, line and column, and told by `build`.
#[derive(Default)]
pub struct Drafts {
    pub(crate) sources: Sources,
    pub(crate) problems: Problems,
    pub(crate) drafts: Vec<Draft>,
    pub(crate) criteria: usize,
    /// Parent nodes that ShapedDevices.csv speaks of.
    pub(crate) nodes: Vec<At<String>>,
    /// Whether a network.json was read: then it has all nodes.
    pub(crate) network: bool,
    pub(crate) labels: Labels,
    /// Where classes beyond the limit began, and how many there were.
    beyond: Option<(Place, usize)>,
}

impl Drafts {
    /// Nothing read yet.
    pub fn new() -> Drafts {
        Drafts::default()
    }

    /// Whether something was wrong so far. `build` finds more.
    pub fn errors(&self) -> usize {
        self.problems.errors()
    }

    /// Notes an error of the caller's, such as a file that a configuration names but nobody can
    /// open. It stands with the others in the report.
    pub fn refuse(&mut self, place: Place, text: String) {
        self.problems.error(ProblemKind::Syntax, place, "", text);
    }

    /// Notes that the file called `name` cannot be taken at all.
    pub fn refuse_file(&mut self, name: &str, text: String) {
        let place = self.sources.add(name, "");
        self.refuse(place, text);
    }

    /// Takes a class; beyond a limit it is only counted.
    pub(crate) fn push(&mut self, draft: Draft) {
        let fits =
            self.drafts.len() < MAX_CLASSES && self.criteria + draft.criteria.len() <= MAX_CRITERIA;
        if fits {
            self.criteria += draft.criteria.len();
            self.drafts.push(draft);
        } else {
            self.beyond.get_or_insert((draft.place, 0)).1 += 1;
        }
    }

    /// Tells what [`Drafts::push`] did not take.
    pub(crate) fn tell_beyond(&mut self) {
        if let Some((place, count)) = self.beyond.take() {
            let text = format!(
                "too many classes: {count} more from here, the maximum is {MAX_CLASSES} with {MAX_CRITERIA} criteria"
            );
            self.problems.error(ProblemKind::TooMany, place, "", text);
        }
    }
}

impl Draft {
    /// Who a message is about: `class "a"`, or a class that has no name yet.
    pub fn subject(&self) -> String {
        if self.name.is_empty() {
            "class".to_owned()
        } else {
            format!("class \"{}\"", self.name)
        }
    }

    /// Takes `text`, one value of `key`; what is wrong with it is noted.
    pub fn set(&mut self, key: Key, text: &str, place: Place, problems: &mut Problems) {
        if let Err(error) = self.try_set(key, text, place, problems) {
            let text = format!("{}: {}: {error}", self.subject(), key.word());
            problems.error(ProblemKind::Value, place, &self.name, text);
        }
    }

    fn try_set(
        &mut self,
        key: Key,
        text: &str,
        place: Place,
        problems: &mut Problems,
    ) -> Result<(), BadValue> {
        let criterion = match key {
            Key::Name => {
                self.name = value::name(text)?;
                self.place = place;
                return Ok(());
            }
            Key::Parent => {
                self.parent = Some(At::new(value::name(text)?, place));
                return Ok(());
            }
            Key::RttP95 => {
                self.rtt_p95_ns = Some(value::time_ns(text)?);
                return Ok(());
            }
            Key::Loss => {
                self.loss = Some(value::share(text)?);
                return Ok(());
            }
            Key::Up | Key::Down | Key::UpFloor | Key::DownFloor => {
                *self.rate(key) = Some(At::new(value::rate_bps(text)?, place));
                return Ok(());
            }
            Key::Prefix => self.prefix(text, place, problems)?,
            Key::Match(at) => (MATCHES[at].read)(text)?,
        };
        self.criteria.push(At::new(criterion, place));
        Ok(())
    }

    /// Only for keys of rates; any other is taken as the ceiling of what is received.
    fn rate(&mut self, key: Key) -> &mut Option<At<u64>> {
        match key {
            Key::Up => &mut self.up.ceil_bps,
            Key::UpFloor => &mut self.up.floor_bps,
            Key::DownFloor => &mut self.down.floor_bps,
            _ => &mut self.down.ceil_bps,
        }
    }

    fn prefix(
        &self,
        text: &str,
        place: Place,
        problems: &mut Problems,
    ) -> Result<Criterion, BadValue> {
        let (prefix, cleared) = value::prefix(text)?;
        if cleared {
            let text = format!(
                "{}: prefix \"{text}\" has bits after its length: read as {prefix}",
                self.subject()
            );
            problems.warning(ProblemKind::Value, place, &self.name, text);
        }
        Ok(Criterion::Prefix(prefix))
    }

    /// Notes an attribute; names and values are free, the last of a name counts.
    pub fn attribute(&mut self, name: &str, value: &str) {
        if !value.is_empty() {
            let entry = (name.to_owned(), value.to_owned());
            match self
                .attributes
                .binary_search_by(|(known, _)| known.as_str().cmp(name))
            {
                Ok(at) => self.attributes[at] = entry,
                Err(at) => self.attributes.insert(at, entry),
            }
        }
    }

    /// Notes a class without name; call it when everything was set.
    pub fn require_name(&self, problems: &mut Problems, refused: bool) {
        if self.name.is_empty() && !refused {
            let text = "class without name: give it a unique name".to_owned();
            problems.error(ProblemKind::Key, self.place, "", text);
        }
    }
}
