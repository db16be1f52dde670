//! Drafts of classes: each value is checked alone, not yet against others.

use crate::class::{MAX_CLASSES, MAX_CRITERIA};
use crate::criterion::{Criterion, MATCHES};
use crate::key::Key;
use crate::labels::Labels;
use crate::problem::{ProblemKind, Problems};
use crate::source::{At, Place, Sources};
use crate::value::{self, BadValue};

/// Rates of one direction, bits per second.
#[derive(Clone, Debug, Default)]
pub(crate) struct DraftRates {
    pub floor_bps: Option<At<u64>>,
    pub ceil_bps: Option<At<u64>>,
}

/// A class before the check of the tree.
#[derive(Clone, Debug, Default)]
pub(crate) struct Draft {
    /// Its row is too short, which is reported. It has a name only.
    pub incomplete: bool,
    /// The position of its name, if it has one.
    pub place: Place,
    /// Empty if missing, which was reported.
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

/// All drafts. Read files, then check them with [`crate::ClassSet::build`].
///
/// Reading never fails. `build` reports all problems with file, line and column.
#[derive(Default)]
pub struct Drafts {
    pub(crate) sources: Sources,
    pub(crate) problems: Problems,
    pub(crate) drafts: Vec<Draft>,
    pub(crate) criteria: usize,
    /// Parent nodes in ShapedDevices.csv.
    pub(crate) nodes: Vec<At<String>>,
    /// True if a network.json was read, which defines all nodes.
    pub(crate) network: bool,
    pub(crate) labels: Labels,
    /// Position and number of classes above the limit.
    excess: Option<(Place, usize)>,
}

impl Drafts {
    /// No drafts.
    pub fn new() -> Drafts {
        Drafts::default()
    }

    /// Number of errors so far. `build` finds further ones.
    pub fn errors(&self) -> usize {
        self.problems.errors()
    }

    /// Adds an error of the caller to the report, such as a file that cannot be opened.
    pub fn refuse(&mut self, place: Place, text: String) {
        self.problems.error(ProblemKind::Syntax, place, "", text);
    }

    /// Adds an error about the whole file `name`.
    pub fn refuse_file(&mut self, name: &str, text: String) {
        let place = self.sources.add(name, "");
        self.refuse(place, text);
    }

    /// Adds a class. Classes above the limit are only counted.
    pub(crate) fn push(&mut self, draft: Draft) {
        let fits =
            self.drafts.len() < MAX_CLASSES && self.criteria + draft.criteria.len() <= MAX_CRITERIA;
        if fits {
            self.criteria += draft.criteria.len();
            self.drafts.push(draft);
        } else {
            self.excess.get_or_insert((draft.place, 0)).1 += 1;
        }
    }

    /// Reports classes that [`Drafts::push`] did not add.
    pub(crate) fn report_excess(&mut self) {
        if let Some((place, count)) = self.excess.take() {
            let text = format!(
                "too many classes: {count} more from here, the maximum is {MAX_CLASSES} with {MAX_CRITERIA} criteria"
            );
            self.problems.error(ProblemKind::TooMany, place, "", text);
        }
    }
}

impl Draft {
    /// The subject of a message: `class "a"`, or `class` without name.
    pub fn subject(&self) -> String {
        if self.name.is_empty() {
            "class".to_owned()
        } else {
            format!("class \"{}\"", self.name)
        }
    }

    /// Adds the service levels of another draft. The stricter ones apply.
    pub fn promise(&mut self, other: &Draft) {
        let rtts = [self.rtt_p95_ns, other.rtt_p95_ns];
        self.rtt_p95_ns = rtts.into_iter().flatten().min();
        let losses = [self.loss, other.loss];
        self.loss = losses.into_iter().flatten().reduce(f64::min);
    }

    /// Sets one value of `key` from `text`, or reports why it is invalid.
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

    /// The rate of a key, only for keys of rates.
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

    /// Sets an attribute. The last value of a name applies.
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

    /// Reports a class without name, after all values were set.
    pub fn require_name(&self, problems: &mut Problems, refused: bool) {
        if self.name.is_empty() && !refused {
            let text = "class without name: give it a unique name".to_owned();
            problems.error(ProblemKind::Key, self.place, "", text);
        }
    }
}
