//! The built-in policies as files, each with its test script, and with the tree that the script needs.

use fairpath_bpf::author::built_in;

/// Files of `scripts/`, by name.
const SCRIPTS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/scripts.rs"));
const LICENCE: &str = "/* SPDX-License-Identifier: MIT OR GPL-2.0-only */\n";

/// A built-in policy.
pub(super) struct Shipped {
    name: String,
    policy: String,
    script: &'static str,
    tree: Option<&'static str>,
}

/// The built-in policy of this name.
pub(super) fn find(name: &str) -> Option<Shipped> {
    let file = |ending: &str| {
        let file = format!("{name}.{ending}");
        let found = SCRIPTS.iter().find(|(known, _)| *known == file);
        found.map(|(_, text)| *text)
    };
    Some(Shipped {
        name: name.to_owned(),
        policy: built_in(name)?,
        script: file("lua")?,
        tree: file("toml"),
    })
}

impl Shipped {
    /// The policy in one file, under another name.
    pub fn policy(&self, name: &str) -> String {
        let begun = format!(
            "{LICENCE}/* {name}: begun as {} of Fairpath {}. */\n",
            self.name,
            env!("CARGO_PKG_VERSION")
        );
        self.policy
            .replacen(LICENCE, &begun, 1)
            .replace(&self.quoted(), &format!("\"{name}\""))
    }

    /// Its test script for the policy of this name.
    pub fn script(&self, name: &str) -> String {
        self.script.replace(&self.quoted(), &format!("\"{name}\""))
    }

    /// The tree that the script needs.
    pub fn tree(&self, name: &str) -> Option<String> {
        let mut tree = self.tree?.to_owned();
        // A queue may have the same name.
        for key in ["name", "policy"] {
            let old = format!("{key} = {}", self.quoted());
            tree = tree.replace(&old, &format!("{key} = \"{name}\""));
        }
        Some(tree)
    }

    fn quoted(&self) -> String {
        format!("\"{}\"", self.name)
    }
}
