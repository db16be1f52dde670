//! Rules that an earlier rule covers, by the words that both compare.

use std::collections::HashMap;

use fairpath_core::rules::{UNIT, action, test, word};

use super::encoded::{Encoded, NOT};
use super::rule::Encoder;
use crate::packet::Unknown;
use crate::tree::{Family, Item, Rule, Target};

/// The comparisons of a rule, for checks of sets.
#[derive(Debug, Clone, Default)]
pub struct Compared {
    /// Words that must have a value: number, mask, value.
    pub words: Vec<(u32, u64, u64)>,
    /// True if the comparisons are the whole rule.
    pub whole: bool,
    /// True if no packet passes them.
    pub never: bool,
}

/// Finds the comparisons of rules.
pub struct RuleWords {
    encoder: Encoder<'static>,
    encoded: Encoded,
}

impl RuleWords {
    /// For rules of a family.
    pub fn new(family: Family) -> Self {
        Self {
            encoder: Encoder::new(family, None),
            encoded: Encoded::default(),
        }
    }

    /// The names of the option, match or target of a rule that the core does not evaluate, the usual
    /// one first.
    pub fn not_evaluated(&mut self, rule: &Rule) -> Option<Vec<&'static str>> {
        if !self.is_unknown(rule) {
            return None;
        }
        for group in rule.matches() {
            let mut alone = |items: Vec<Item>| {
                self.is_unknown(&Rule {
                    items: items.into(),
                    target: Target::None,
                    ..rule.clone()
                })
            };
            if !alone(group.items.to_vec()) {
                continue;
            }
            let options = || group.items.iter().filter(|item| !item.is_head());
            // An option without which the match is evaluated, or one that alone is not.
            let mut found = options().find(|option| {
                let without = options().filter(|other| other != option).cloned();
                let head = std::iter::once(Item::head(group.kind));
                alone(vec![Item::head(group.kind), (*option).clone()])
                    && !alone(head.chain(without).collect())
            });
            if found.is_none() {
                found =
                    options().find(|option| alone(vec![Item::head(group.kind), (*option).clone()]));
            }
            return Some(match found {
                Some(option) => {
                    let spec = &group.spec().options[usize::from(option.option)];
                    spec.names.to_vec()
                }
                None => vec![group.spec().name],
            });
        }
        let Target::Extension(kind) = rule.target else {
            return None;
        };
        // An option without which the target is evaluated.
        let mut options = rule.target_options().items.iter();
        let found = options.find(|option| {
            let others = rule.items.iter().filter(|other| other != option);
            let others: Vec<Item> = others.cloned().collect();
            !self.is_unknown(&Rule {
                items: others.into(),
                ..rule.clone()
            })
        });
        let spec = kind.spec();
        Some(match found {
            Some(option) => spec.options[usize::from(option.option)].names.to_vec(),
            None => vec![spec.name],
        })
    }

    /// True if the answer of a rule is unknown whatever the facts and sets are.
    fn is_unknown(&mut self, rule: &Rule) -> bool {
        self.encoded.bytes.clear();
        self.encoded.records.clear();
        self.encoder.states.clear();
        if self.encoder.encode(rule, 0, &mut self.encoded).is_err() {
            return false;
        }
        let bytes = self.encoded.bytes_of(&self.encoded.records[0]);
        let number =
            |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let mut place = UNIT * (1 + usize::from(bytes[2]));
        for _ in 0..bytes[3] {
            if bytes[place] == test::UNKNOWN && number(place + 4) != Unknown::Set as u32 {
                return true;
            }
            place += usize::from(bytes[place + 1]) * UNIT;
        }
        number(8) == action::UNKNOWN | (Unknown::OpaqueTarget as u32) << 8
    }

    /// The comparisons of a rule.
    pub fn of(&mut self, rule: &Rule) -> Compared {
        self.encoded.bytes.clear();
        self.encoded.records.clear();
        self.encoder.states.clear();
        let mut compared = Compared::default();
        if self.encoder.encode(rule, 0, &mut self.encoded).is_err() {
            return compared;
        }
        let record = self.encoded.records[0];
        let bytes = self.encoded.bytes_of(&record);
        let tests = usize::from(bytes[3]);
        let change = bytes[8] as u32 == action::TARGET;
        compared.whole = tests == usize::from(change);
        let mut place = UNIT * (1 + usize::from(bytes[2]));
        for _ in 0..tests {
            compared.never |= bytes[place] == test::NEVER;
            place += usize::from(bytes[place + 1]) * UNIT;
        }
        for (shape, mask, value) in self.encoded.compares(&record) {
            if shape & NOT != 0 {
                compared.whole = false;
                compared.never |= mask == 0 && value == 0;
                continue;
            }
            compared.never |= value & !mask != 0;
            let word = shape & 15;
            match compared.words.iter_mut().find(|(other, ..)| *other == word) {
                Some((_, other_mask, other_value)) => {
                    compared.never |= (*other_value ^ value) & *other_mask & mask != 0;
                    *other_mask |= mask;
                    *other_value |= value;
                }
                None => compared.words.push((word, mask, value)),
            }
        }
        compared.words.sort_unstable();
        compared
    }
}

/// Most sets of fields of rules that cover others.
const MAX_COVERS: usize = 256;

/// Words and masks.
type Fields = Vec<(u32, u64)>;

/// Rules that take all packets with certain values, by the fields that they compare.
#[derive(Debug, Default)]
pub struct Covered {
    fields: Vec<(Fields, HashMap<Vec<u64>, u32>)>,
    by_fields: HashMap<Fields, usize>,
}

impl Covered {
    /// Adds a rule whose comparisons are whole.
    pub fn add(&mut self, compared: &Compared, rule: u32) {
        let fields: Fields = compared.words.iter().map(|(w, m, _)| (*w, *m)).collect();
        let values: Vec<u64> = compared.words.iter().map(|(_, _, v)| *v).collect();
        let at = match self.by_fields.get(&fields) {
            Some(at) => *at,
            None if self.fields.len() == MAX_COVERS => return,
            None => {
                self.fields.push((fields.clone(), HashMap::new()));
                self.by_fields.insert(fields, self.fields.len() - 1);
                self.fields.len() - 1
            }
        };
        self.fields[at].1.entry(values).or_insert(rule);
    }

    /// Forgets rules that compare words which a rule changed: marks, or fields of the header.
    pub fn forget(&mut self, marks: bool, fields: bool) {
        let is_changed = |word: &u32| {
            marks && *word == word::MARK as u32 || fields && *word == word::META as u32
        };
        for (words, rules) in &mut self.fields {
            if words.iter().any(|(word, _)| is_changed(word)) {
                rules.clear();
            }
        }
    }

    /// The first rule that takes every packet of this one.
    pub fn find(&self, compared: &Compared) -> Option<u32> {
        let mut first: Option<u32> = None;
        for (fields, rules) in &self.fields {
            let mut key = Vec::with_capacity(fields.len());
            for (word, mask) in fields {
                match compared.words.iter().find(|(other, ..)| other == word) {
                    Some((_, other, value)) if other & mask == *mask => key.push(value & mask),
                    _ => break,
                }
            }
            if key.len() == fields.len()
                && let Some(rule) = rules.get(&key)
            {
                first = Some(first.map_or(*rule, |first| first.min(*rule)));
            }
        }
        first
    }
}
