//! Reads `network.json` of LibreQoS: nested sites and access points, as ancestors of circuits.
//!
//! ```text
//! { "Site_1": { "downloadBandwidthMbps": 1000, "uploadBandwidthMbps": 1000, "type": "Site",
//!               "children": { "AP_A": { ... } } } }
//! ```
//!
//! Every level is parsed into pieces of the text, so that each node has its position. Each level reads
//! the text twice, to at most [`MAX_DEPTH`] levels: O(bytes).

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::class::MAX_DEPTH;
use crate::draft::{Draft, Drafts};
use crate::key::Key;
use crate::problem::ProblemKind;
use crate::source::{At, Place};
use crate::value;

/// The raw keys and values of an object.
struct Object<'t>(Vec<(&'t RawValue, &'t RawValue)>);

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Object<'de>, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Object<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object<'de>, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Object(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// A text and its start. The address of a piece gives its position.
#[derive(Clone, Copy)]
struct Text<'t> {
    text: &'t str,
    start: Place,
}

impl Text<'_> {
    fn place(&self, piece: &RawValue) -> Place {
        let offset = piece.get().as_ptr() as usize - self.text.as_ptr() as usize;
        self.start.at(offset)
    }
}

impl Drafts {
    /// Reads the nodes of a `network.json`, the content of `file`, as classes.
    pub fn read_network(&mut self, file: &str, text: &str) {
        let start = self.sources.add(file, text);
        self.network = true;
        match serde_json::from_str::<Object<'_>>(text) {
            Ok(nodes) => self.nodes_below(Text { text, start }, nodes, None, 0),
            Err(error) => {
                let place = start.at(offset_of(text, error.line(), error.column()));
                self.problems.error(
                    ProblemKind::Syntax,
                    place,
                    "",
                    format!("not a network.json: {error}"),
                );
            }
        }
    }

    fn nodes_below(&mut self, text: Text<'_>, nodes: Object<'_>, parent: Option<&str>, depth: u32) {
        for (key, node) in nodes.0 {
            let place = text.place(key);
            if depth >= MAX_DEPTH {
                let wrong = format!(
                    "too deep: {} is on level {}, the maximum is {MAX_DEPTH}",
                    key.get(),
                    depth + 1
                );
                self.problems.error(ProblemKind::TooDeep, place, "", wrong);
                return;
            }
            let name: String = serde_json::from_str(key.get()).unwrap_or_default();
            let mut draft = Draft {
                place,
                parent: parent.map(|parent| At::new(parent.to_owned(), place)),
                ..Draft::default()
            };
            draft.set(Key::Name, &name, place, &mut self.problems);
            let children = self.node(text, node, &mut draft);
            let name = draft.name.clone();
            self.push(draft);
            if let Some(children) = children {
                self.nodes_below(text, children, Some(&name), depth + 1);
            }
        }
    }

    /// Reads one node into `draft`, and returns its children.
    fn node<'t>(
        &mut self,
        text: Text<'t>,
        node: &'t RawValue,
        draft: &mut Draft,
    ) -> Option<Object<'t>> {
        let mut children = None;
        let Some(object) = self.object(text, node, "a node", draft) else {
            return children;
        };
        for (key, value) in object.0 {
            match serde_json::from_str::<String>(key.get())
                .unwrap_or_default()
                .as_str()
            {
                "downloadBandwidthMbps" => draft.down.ceil_bps = self.mbps(text, value, draft),
                "uploadBandwidthMbps" => draft.up.ceil_bps = self.mbps(text, value, draft),
                "children" if value.get() != "null" => {
                    children = self.object(text, value, "\"children\"", draft);
                }
                "type" => {
                    let kind: String = serde_json::from_str(value.get()).unwrap_or_default();
                    draft.attribute("type", &kind);
                }
                "virtual" if value.get() == "true" => draft.attribute("virtual", "true"),
                _ => {}
            }
        }
        children
    }

    fn object<'t>(
        &mut self,
        text: Text<'t>,
        raw: &'t RawValue,
        what: &str,
        draft: &Draft,
    ) -> Option<Object<'t>> {
        let object = serde_json::from_str(raw.get()).ok();
        if object.is_none() {
            let wrong = format!("node \"{}\": {what} must be an object", draft.name);
            self.problems
                .error(ProblemKind::Value, text.place(raw), &draft.name, wrong);
        }
        object
    }

    fn mbps(&mut self, text: Text<'_>, raw: &RawValue, draft: &Draft) -> Option<At<u64>> {
        let place = text.place(raw);
        match value::mbps(raw.get().trim_matches('"')) {
            _ if raw.get() == "null" => None,
            Ok(bps) => Some(At::new(bps, place)),
            Err(wrong) => {
                let wrong = format!("node \"{}\": bandwidth: {wrong}", draft.name);
                self.problems
                    .error(ProblemKind::Value, place, &draft.name, wrong);
                None
            }
        }
    }
}

/// The offset of a line and column of serde_json (both from 1, columns in bytes).
fn offset_of(text: &str, line: usize, column: usize) -> usize {
    let lines = text.split_inclusive('\n').take(line.saturating_sub(1));
    lines.map(str::len).sum::<usize>() + column.saturating_sub(1)
}
