//! The keys of a class: the same in TOML and as columns of CSV.

use fairpath_units::nearest;

/// Before the name of an attribute where it is a column: `attributes.plan`.
pub(crate) const ATTRIBUTE: &str = "attributes.";

/// What can be said of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    Name,
    Parent,
    Prefix,
    Vlan,
    Interface,
    Mac,
    Mark,
    Dscp,
    Up,
    Down,
    UpFloor,
    DownFloor,
    RttP95,
    Loss,
}

const WORDS: &[(&str, Key)] = &[
    ("name", Key::Name),
    ("parent", Key::Parent),
    ("prefix", Key::Prefix),
    ("prefixes", Key::Prefix),
    ("vlan", Key::Vlan),
    ("interface", Key::Interface),
    ("mac", Key::Mac),
    ("mark", Key::Mark),
    ("dscp", Key::Dscp),
    ("up", Key::Up),
    ("down", Key::Down),
    ("up_floor", Key::UpFloor),
    ("down_floor", Key::DownFloor),
    ("rtt_p95", Key::RttP95),
    ("loss", Key::Loss),
];

impl Key {
    /// The key that is written `word`.
    pub fn find(word: &str) -> Option<Key> {
        let found = WORDS.iter().find(|(known, _)| *known == word);
        found.map(|(_, key)| *key)
    }

    /// How it is written in messages.
    pub fn word(self) -> &'static str {
        let found = WORDS.iter().find(|(_, key)| *key == self);
        found.map_or("", |(word, _)| word)
    }

    /// Whether several values may be given.
    pub fn is_list(self) -> bool {
        use Key::*;
        matches!(self, Prefix | Vlan | Interface | Mac | Mark | Dscp)
    }

    /// Whether TOML may give it as a number.
    pub fn may_be_number(self) -> bool {
        use Key::*;
        matches!(self, Vlan | Mark | Dscp | Loss)
    }
}

/// `; did you mean "prefix"?`, or all keys where none is near.
pub(crate) fn suggestion(word: &str) -> String {
    let known = WORDS.iter().map(|(known, _)| *known);
    match nearest(word, known.chain(["attributes"])) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None => {
            let words: Vec<_> = WORDS.iter().map(|(known, _)| *known).collect();
            format!("there are {}, attributes", words.join(", "))
        }
    }
}
