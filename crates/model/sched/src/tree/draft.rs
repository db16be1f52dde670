//! The values of `[scheduler]` and `[[node]]` with their positions in the file.
//!
//! Every key is checked separately, so that one error does not hide the next.

use std::ops::Range;

use fairpath_core::sched::{Over, Overflow};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::{Problems, did_you_mean};
use super::{impaired, queue};
use crate::impair::Spec;
use fairpath_units::quantity::{self, written};
use fairpath_units::text::is_unsafe;

/// Maximum length of a node name, bytes.
const MAX_NAME_BYTES: usize = 255;
/// Maximum of `max_sojourn`, in nanoseconds: an hour.
const MAX_SOJOURN_NS: u64 = 3_600_000_000_000;
/// Maximum weight, which is also the maximum ratio between siblings.
pub(super) const MAX_WEIGHT: u64 = 65_536;
/// Maximum packets in a scheduler.
pub(super) const MAX_PACKETS: u64 = 1 << 22;
/// Maximum flows or hosts that a scheduler can distinguish.
pub(super) const MAX_FLOWS: u64 = 1 << 22;

/// A value of `match`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Match {
    /// `"*"`: everything that no other node matches.
    Rest,
    Number(u32),
    /// A class by name.
    Name(String),
}

/// The value of a parameter as written. The unit of the parameter defines its meaning.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Raw {
    Text(String),
    Number(u64),
}

#[derive(Clone, Debug, Default)]
pub(super) struct QueueDraft {
    pub kind: Option<u32>,
    pub buckets: Option<Spanned<u64>>,
    /// Granularity as a power of two; of `aifo` its headroom.
    pub shift: Option<Spanned<u32>>,
    /// The key that set it.
    pub is_headroom: bool,
    pub below: Option<u32>,
    pub beyond: Option<u32>,
    pub full: Option<Spanned<u32>>,
    pub capacity: Option<u64>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct NodeDraft {
    pub place: Range<usize>,
    pub name: String,
    pub parent: Option<Spanned<String>>,
    pub policy: Option<Spanned<String>>,
    pub over: Option<Spanned<Over>>,
    pub queue: QueueDraft,
    pub limit_packets: u64,
    pub limit_bytes: u64,
    pub weight: Option<u64>,
    pub floor_bps: Option<Spanned<u64>>,
    pub ceil_bps: Option<Spanned<u64>>,
    pub burst_ns: Option<u64>,
    pub classes: Vec<Spanned<Match>>,
    pub dscps: Vec<Spanned<Match>>,
    pub params: Vec<(Spanned<String>, Spanned<Raw>)>,
    pub impair: Option<Spanned<Spec>>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Draft {
    pub limit_packets: Option<u64>,
    pub limit_bytes: u64,
    pub flows: Option<u64>,
    pub hosts: Option<u64>,
    pub overflow: Option<Spanned<Overflow>>,
    pub horizon_ns: u64,
    pub max_sojourn_ns: u64,
    pub seed: u32,
    /// Floors may exceed the rate of the parent, because operators oversubscribe links.
    pub overbooked: bool,
    pub nodes: Vec<NodeDraft>,
}

type Entry<'t> = Spanned<DeValue<'t>>;

/// Reads a file in TOML. O(bytes).
pub(super) fn read(text: &str, problems: &mut Problems) -> Draft {
    let (parsed, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let span = error.span().unwrap_or(0..0);
        problems.error(span, format!("invalid TOML: {}", error.message()));
    }
    let mut draft = Draft::default();
    for (key, value) in parsed.into_inner() {
        let span = value.span();
        match (key.get_ref().as_ref(), value.into_inner()) {
            ("scheduler", DeValue::Table(table)) => scheduler(&mut draft, table, problems),
            ("scheduler", _) => {
                problems.error(
                    span,
                    "scheduler is not a table: begin it with [scheduler]".into(),
                );
            }
            ("node", DeValue::Array(entries)) => {
                for entry in entries {
                    let place = entry.span();
                    match entry.into_inner() {
                        DeValue::Table(table) => draft.nodes.push(node(place, table, problems)),
                        _ => problems.error(
                            place,
                            "a node is not a table: begin it with [[node]]".into(),
                        ),
                    }
                }
            }
            ("node", _) => {
                problems.error(
                    span,
                    "node is not a list of tables: begin each node with [[node]]".into(),
                );
            }
            (word, _) => {
                let known = ["scheduler", "node"];
                unknown("the file", word, key.span(), &known, problems);
            }
        }
    }
    draft
}

fn unknown(of: &str, word: &str, span: Range<usize>, known: &[&str], problems: &mut Problems) {
    let near = did_you_mean(word, known.iter().copied());
    let remedy = match near.as_str() {
        "" => format!("the keys are {}", known.join(", ")),
        near => near.to_owned(),
    };
    problems.error(span, format!("{of}: unknown key \"{word}\": {remedy}"));
}

/// The context of a value: its owner in messages, and the list of problems.
struct Reader<'p> {
    of: String,
    problems: &'p mut Problems,
}

impl Reader<'_> {
    fn refuse<T>(&mut self, span: Range<usize>, text: &str) -> Option<T> {
        self.problems.error(span, format!("{}: {text}", self.of));
        None
    }

    fn text(&mut self, key: &str, value: Entry<'_>) -> Option<Spanned<String>> {
        let span = value.span();
        match value.into_inner() {
            DeValue::String(text) => Some(Spanned::new(span, text.into_owned())),
            _ => self.refuse(span, &format!("{key} is not a string")),
        }
    }

    /// Reads a number of `unit` from a string, or from an integer if the unit is optional.
    fn quantity(
        &mut self,
        key: &str,
        unit: &str,
        value: &Entry<'_>,
        range: [u64; 2],
    ) -> Option<u64> {
        let span = value.span();
        let Some(raw) = raw(value) else {
            return self.refuse(span, &format!("{key} is not a number or a string"));
        };
        match in_unit(&raw, unit) {
            Ok(number) if (range[0]..=range[1]).contains(&number) => Some(number),
            Ok(_) => {
                let [min, max] = range.map(|bound| written(bound, unit));
                self.refuse(
                    span,
                    &format!("{key} is out of range: write {min} to {max}"),
                )
            }
            Err(wrong) => self.refuse(span, &format!("{key}: {wrong}")),
        }
    }

    fn word<T: Copy>(&mut self, key: &str, value: Entry<'_>, known: &[(&str, T)]) -> Option<T> {
        let word = self.text(key, value)?;
        if let Some((_, found)) = known.iter().find(|(name, _)| name == word.get_ref()) {
            return Some(*found);
        }
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        let text = format!(
            "{key} \"{}\" is unknown: write one of {}",
            word.get_ref(),
            names.join(", ")
        );
        self.refuse(word.span(), &text)
    }

    fn table<'t>(&mut self, key: &str, value: Entry<'t>) -> Option<DeTable<'t>> {
        let span = value.span();
        match value.into_inner() {
            DeValue::Table(table) => Some(table),
            _ => self.refuse(
                span,
                &format!("{key} is not a table: write {{ KEY = VALUE }}"),
            ),
        }
    }

    /// Reads a limit in packets, bytes, or both: `"100 packets"`, `"64KiB"`, or a list.
    fn limit(&mut self, value: Entry<'_>) -> [Option<u64>; 2] {
        let span = value.span();
        let entries = match value.into_inner() {
            DeValue::Array(entries) => entries.into_iter().collect(),
            one => vec![Spanned::new(span.clone(), one)],
        };
        let mut limit = [None; 2];
        for entry in entries {
            let is_bytes = matches!(entry.get_ref(), DeValue::String(text)
                if quantity::read(text, "packets").is_err() && quantity::read(text, "bytes").is_ok());
            let (at, unit, max) = match is_bytes {
                true => (1, "bytes", u64::from(u32::MAX)),
                false => (0, "packets", MAX_PACKETS),
            };
            limit[at] = self.quantity("limit", unit, &entry, [1, max]).or(limit[at]);
        }
        limit
    }

    fn matches(
        &mut self,
        key: &str,
        value: Entry<'_>,
        one: fn(&str) -> Option<Match>,
    ) -> Vec<Spanned<Match>> {
        let span = value.span();
        let entries = match value.into_inner() {
            DeValue::Array(entries) => entries.into_iter().collect(),
            one => vec![Spanned::new(span, one)],
        };
        let mut found = Vec::new();
        for entry in entries {
            let span = entry.span();
            let text = match raw(&entry) {
                Some(Raw::Text(text)) => text,
                Some(Raw::Number(number)) => number.to_string(),
                None => String::new(),
            };
            match one(&text) {
                Some(matched) => found.push(Spanned::new(span, matched)),
                None => {
                    let text = format!("match: \"{text}\" is not a {key}");
                    let _: Option<()> = self.refuse(span, &text);
                }
            }
        }
        found
    }
}

fn raw(value: &Entry<'_>) -> Option<Raw> {
    match value.get_ref() {
        DeValue::String(text) => Some(Raw::Text(text.to_string())),
        DeValue::Integer(number) => {
            let number = u64::from_str_radix(number.as_str(), number.radix()).ok();
            number.map(Raw::Number)
        }
        _ => None,
    }
}

/// Reads a value in `unit`. An integer without unit is a count, so times and rates need a unit.
pub(super) fn in_unit(raw: &Raw, unit: &str) -> Result<u64, quantity::BadQuantity> {
    match raw {
        Raw::Text(text) => quantity::read(text, unit),
        Raw::Number(number) if !matches!(unit, "ns" | "bps") => Ok(*number),
        Raw::Number(number) => quantity::read(&number.to_string(), unit),
    }
}

const SCHEDULER_KEYS: [&str; 7] = [
    "limit",
    "flows",
    "hosts",
    "overflow",
    "horizon",
    "max_sojourn",
    "seed",
];

fn scheduler(draft: &mut Draft, table: DeTable<'_>, problems: &mut Problems) {
    let of = "scheduler".to_owned();
    let mut reader = Reader { of, problems };
    for (key, value) in table {
        let span = value.span();
        match key.get_ref().as_ref() {
            "limit" => {
                let [packets, bytes] = reader.limit(value);
                draft.limit_packets = packets;
                draft.limit_bytes = bytes.unwrap_or(0);
            }
            "flows" => draft.flows = reader.quantity("flows", "", &value, [1, MAX_FLOWS]),
            "hosts" => draft.hosts = reader.quantity("hosts", "", &value, [1, MAX_FLOWS]),
            "overflow" => {
                let known = [("tail", Overflow::Tail), ("fattest", Overflow::Fattest)];
                let word = reader.word("overflow", value, &known);
                draft.overflow = word.map(|word| Spanned::new(span, word));
            }
            "horizon" => {
                let range = [0, 86_400_000_000_000];
                let horizon = reader.quantity("horizon", "ns", &value, range);
                draft.horizon_ns = horizon.unwrap_or(0);
            }
            "max_sojourn" => {
                let range = [0, MAX_SOJOURN_NS];
                let most = reader.quantity("max_sojourn", "ns", &value, range);
                draft.max_sojourn_ns = most.unwrap_or(0);
            }
            "seed" => {
                let seed = reader.quantity("seed", "", &value, [0, u64::from(u32::MAX)]);
                draft.seed = seed.unwrap_or(0) as u32;
            }
            word => unknown(
                "scheduler",
                word,
                key.span(),
                &SCHEDULER_KEYS,
                reader.problems,
            ),
        }
    }
}

const NODE_KEYS: [&str; 13] = [
    "name", "parent", "policy", "over", "queue", "limit", "weight", "floor", "ceil", "burst",
    "match", "params", "impair",
];

fn node(place: Range<usize>, table: DeTable<'_>, problems: &mut Problems) -> NodeDraft {
    let mut draft = NodeDraft {
        place: place.clone(),
        ..NodeDraft::default()
    };
    // The name comes first, because every message about the node contains it.
    let mut entries: Vec<_> = table.into_iter().collect();
    entries.sort_by_key(|(key, _)| (key.get_ref() != "name", key.span().start));
    let mut reader = Reader {
        of: "node".into(),
        problems,
    };
    if entries
        .first()
        .is_none_or(|(key, _)| key.get_ref() != "name")
    {
        let _: Option<()> = reader.refuse(place, "it has no name: add name = \"...\"");
    }
    for (key, value) in entries {
        match key.get_ref().as_ref() {
            "name" => {
                draft.name = name(&mut reader, value).unwrap_or_default();
                reader.of = format!("node \"{}\"", draft.name);
            }
            word if !NODE_KEYS.contains(&word) => {
                let of = reader.of.clone();
                unknown(&of, word, key.span(), &NODE_KEYS, reader.problems);
            }
            word => take(&mut draft, word, value, &mut reader),
        }
    }
    draft
}

fn name(reader: &mut Reader<'_>, value: Entry<'_>) -> Option<String> {
    let name = reader.text("name", value)?;
    let text = name.get_ref();
    let wrong = text.is_empty()
        || text.len() > MAX_NAME_BYTES
        || text.trim() != text
        || text.contains(is_unsafe);
    if wrong {
        let wrong =
            "its name is empty, has outer spaces or control characters, or exceeds 255 bytes";
        return reader.refuse(name.span(), &format!("{wrong}: choose another name"));
    }
    Some(name.into_inner())
}

fn take(draft: &mut NodeDraft, key: &str, value: Entry<'_>, reader: &mut Reader<'_>) {
    const MAX_BPS: u64 = 1_000_000_000_000_000;
    let span = value.span();
    match key {
        "parent" => draft.parent = reader.text("parent", value),
        "policy" => draft.policy = reader.text("policy", value),
        "over" => {
            let over = reader.word("over", value, &OVERS);
            draft.over = over.map(|over| Spanned::new(span, over));
        }
        "queue" => {
            if let Some(table) = reader.table("queue", value) {
                draft.queue = queue_draft(table, reader);
            }
        }
        "limit" => {
            let limit = reader.limit(value);
            [draft.limit_packets, draft.limit_bytes] = limit.map(Option::unwrap_or_default);
        }
        "weight" => draft.weight = reader.quantity("weight", "", &value, [1, MAX_WEIGHT]),
        "floor" | "ceil" => {
            let rate = reader.quantity(key, "bps", &value, [1, MAX_BPS]);
            let rate = rate.map(|rate| Spanned::new(span, rate));
            if key == "floor" {
                draft.floor_bps = rate;
            } else {
                draft.ceil_bps = rate;
            }
        }
        "burst" => draft.burst_ns = reader.quantity("burst", "ns", &value, [0, 60_000_000_000]),
        "impair" => {
            if let Some(table) = reader.table("impair", value) {
                let spec = impaired::read(&reader.of, span.clone(), table, reader.problems);
                draft.impair = Some(Spanned::new(span, spec));
            }
        }
        "match" => {
            if let Some(table) = reader.table("match", value) {
                matched(draft, table, reader);
            }
        }
        _ => {
            for (name, value) in reader.table("params", value).into_iter().flatten() {
                let name = Spanned::new(name.span(), name.into_inner().into_owned());
                match raw(&value) {
                    Some(raw) => draft.params.push((name, Spanned::new(value.span(), raw))),
                    None => {
                        let text = format!("{} is not a number or a string", name.get_ref());
                        let _: Option<()> = reader.refuse(value.span(), &text);
                    }
                }
            }
        }
    }
}

/// Names of the elements of a queue.
pub(super) const OVERS: [(&str, Over); 4] = [
    ("packets", Over::Packets),
    ("flows", Over::Flows),
    ("children", Over::Children),
    ("references", Over::References),
];

/// Less than `FP_AIFO_HEADROOM_ONE`, the whole capacity.
const MAX_HEADROOM: u64 = 255;

const QUEUE_KEYS: [&str; 8] = [
    "kind",
    "buckets",
    "granularity",
    "headroom",
    "below",
    "beyond",
    "full",
    "capacity",
];

fn queue_draft(table: DeTable<'_>, reader: &mut Reader<'_>) -> QueueDraft {
    let mut draft = QueueDraft::default();
    for (key, value) in table {
        let span = value.span();
        match key.get_ref().as_ref() {
            "kind" => draft.kind = reader.word("kind", value, &queue::KINDS),
            "buckets" => {
                let buckets = reader.quantity("buckets", "", &value, [1, 1 << 20]);
                draft.buckets = buckets.map(|buckets| Spanned::new(span, buckets));
            }
            "granularity" => match reader.quantity("granularity", "", &value, [1, 1 << 62]) {
                Some(width) if width.is_power_of_two() => {
                    draft.shift = Some(Spanned::new(span, width.trailing_zeros()));
                }
                Some(_) => {
                    let text = "granularity is not a power of two: write 1, 2, 4, 8 ...";
                    let _: Option<()> = reader.refuse(span, text);
                }
                None => {}
            },
            "headroom" => {
                let parts = reader.quantity("headroom", "", &value, [0, MAX_HEADROOM]);
                draft.shift = parts.map(|parts| Spanned::new(span, parts as u32));
                draft.is_headroom = true;
            }
            "below" => draft.below = reader.word("below", value, &queue::OUTSIDE),
            "beyond" => draft.beyond = reader.word("beyond", value, &queue::OUTSIDE),
            "full" => {
                let full = reader.word("full", value, &queue::FULL);
                draft.full = full.map(|full| Spanned::new(span, full));
            }
            "capacity" => {
                draft.capacity = reader.quantity("capacity", "packets", &value, [1, MAX_PACKETS])
            }
            word => {
                let of = format!("{}: queue", reader.of);
                unknown(&of, word, key.span(), &QUEUE_KEYS, reader.problems);
            }
        }
    }
    draft
}

fn matched(draft: &mut NodeDraft, table: DeTable<'_>, reader: &mut Reader<'_>) {
    for (key, value) in table {
        match key.get_ref().as_ref() {
            "class" => draft.classes = reader.matches("class", value, class),
            "dscp" => {
                let key = "DSCP: 0 to 63, CS0 to CS7, AF11 to AF43, EF, VA, LE, DF or \"*\"";
                draft.dscps = reader.matches(key, value, dscp);
            }
            word => {
                let of = format!("{}: match", reader.of);
                unknown(&of, word, key.span(), &["class", "dscp"], reader.problems);
            }
        }
    }
}

fn class(text: &str) -> Option<Match> {
    match text {
        "" => None,
        "*" => Some(Match::Rest),
        text => Some(match text.parse() {
            Ok(number) => Match::Number(number),
            Err(_) => Match::Name(text.to_owned()),
        }),
    }
}

fn dscp(text: &str) -> Option<Match> {
    match text {
        "*" => Some(Match::Rest),
        text => dscp_number(text).map(|dscp| Match::Number(dscp.into())),
    }
}

/// Reads a DSCP by name (RFC 2474, 2597, 3246, 5865, 8622) or number.
pub fn dscp_number(text: &str) -> Option<u8> {
    let upper = text.to_ascii_uppercase();
    let digits = upper.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    let word = &upper[..upper.len() - digits.len()];
    let number: Option<u8> = digits.parse().ok();
    match (word, number) {
        ("", Some(dscp @ 0..64)) => Some(dscp),
        ("EF", None) => Some(46),
        ("VA", None) => Some(44),
        ("LE", None) => Some(1),
        ("DF" | "BE", None) => Some(0),
        ("CS", Some(class @ 0..8)) => Some(class * 8),
        ("AF", Some(af)) if (1..=4).contains(&(af / 10)) && (1..=3).contains(&(af % 10)) => {
            Some(af / 10 * 8 + af % 10 * 2)
        }
        _ => None,
    }
}
