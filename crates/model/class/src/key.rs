//! The keys of a class: the same in TOML and as columns of CSV.

use fairpath_units::nearest;

use crate::criterion::MATCHES;

/// The prefix of a column of an attribute: `attributes.plan`.
pub(crate) const ATTRIBUTE: &str = "attributes.";

/// A key of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    Name,
    Parent,
    Prefix,
    /// One of [`MATCHES`].
    Match(usize),
    Up,
    Down,
    UpFloor,
    DownFloor,
    RttP95,
    Loss,
}

/// The words of [`MATCHES`] follow this one.
const PREFIXES: &str = "prefixes";

const WORDS: &[(&str, Key)] = &[
    ("name", Key::Name),
    ("parent", Key::Parent),
    ("prefix", Key::Prefix),
    (PREFIXES, Key::Prefix),
    ("up", Key::Up),
    ("down", Key::Down),
    ("up_floor", Key::UpFloor),
    ("down_floor", Key::DownFloor),
    ("rtt_p95", Key::RttP95),
    ("loss", Key::Loss),
];

impl Key {
    /// The key of `word`.
    pub fn find(word: &str) -> Option<Key> {
        let found = all().find(|(known, _)| *known == word);
        found.map(|(_, key)| key)
    }

    /// Its word in messages.
    pub fn word(self) -> &'static str {
        let found = all().find(|(_, key)| *key == self);
        found.map_or("", |(word, _)| word)
    }

    /// True if several values may be given.
    pub fn is_list(self) -> bool {
        matches!(self, Key::Prefix | Key::Match(_))
    }

    /// True if TOML may give it as a number.
    pub fn may_be_number(self) -> bool {
        match self {
            Key::Match(at) => MATCHES[at].may_be_number,
            _ => self == Key::Loss,
        }
    }
}

/// Every word with its key, in the order of messages.
fn all() -> impl Iterator<Item = (&'static str, Key)> {
    let behind = |word: &str| match word {
        PREFIXES => MATCHES,
        _ => &[],
    };
    WORDS.iter().flat_map(move |(word, key)| {
        let matches = behind(word).iter().enumerate();
        std::iter::once((*word, *key)).chain(matches.map(|(at, of)| (of.word, Key::Match(at))))
    })
}

/// `did you mean "prefix"?`, or all keys if none is similar.
pub(crate) fn suggestion(word: &str) -> String {
    let known = all().map(|(known, _)| known);
    match nearest(word, known.chain(["attributes"])) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None => {
            let words: Vec<_> = all().map(|(known, _)| known).collect();
            format!("known keys are {}, attributes", words.join(", "))
        }
    }
}
