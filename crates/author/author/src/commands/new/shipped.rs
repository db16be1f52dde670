//! The built-in policies as files, each with its test script, and with the tree that the script needs.

/// A built-in policy.
pub(super) struct Shipped {
    name: &'static str,
    policy: &'static str,
    script: &'static str,
    tree: Option<&'static str>,
}

macro_rules! shipped {
    ($name:literal) => {
        shipped!($name, None)
    };
    ($name:literal with a tree) => {
        shipped!(
            $name,
            Some(include_str!(concat!("../../../scripts/", $name, ".toml")))
        )
    };
    ($name:literal, $tree:expr) => {
        Shipped {
            name: $name,
            policy: include_str!(concat!("../../../../../../bpf/policy/", $name, ".c")),
            script: include_str!(concat!("../../../scripts/", $name, ".lua")),
            tree: $tree,
        }
    };
}

const SHIPPED: &[Shipped] = &[
    shipped!("aifo" with a tree),
    shipped!("class_tree" with a tree),
    shipped!("codel"),
    shipped!("diffserv"),
    shipped!("drr"),
    shipped!("edf"),
    shipped!("fifo"),
    shipped!("fq_codel"),
    shipped!("hclock" with a tree),
    shipped!("hpfq" with a tree),
    shipped!("lstf"),
    shipped!("pacing"),
    shipped!("pfabric"),
    shipped!("priority"),
    shipped!("qfq" with a tree),
    shipped!("sp_pifo"),
    shipped!("srpt"),
    shipped!("stfq"),
    shipped!("tins" with a tree),
    shipped!("token_bucket"),
];

/// Headers of several policies, by the line that includes them.
const HEADERS: [(&str, &str); 3] = [
    (
        "#include \"clocks.h\"\n",
        include_str!("../../../../../../bpf/policy/clocks.h"),
    ),
    (
        "#include \"codel.h\"\n",
        include_str!("../../../../../../bpf/policy/codel.h"),
    ),
    (
        "#include \"guard.h\"\n",
        include_str!("../../../../../../bpf/policy/guard.h"),
    ),
];
const LICENCE: &str = "/* SPDX-License-Identifier: MIT OR GPL-2.0-only */\n";

/// The built-in policy of this name.
pub(super) fn find(name: &str) -> Option<&'static Shipped> {
    SHIPPED.iter().find(|shipped| shipped.name == name)
}

impl Shipped {
    /// The policy in one file, under another name.
    pub fn policy(&self, name: &str) -> String {
        let mut text = self.policy.to_owned();
        for (line, header) in HEADERS {
            text = text.replace(line, header.strip_prefix(LICENCE).unwrap_or(header));
        }
        let begun = format!(
            "{LICENCE}/* {name}: begun as {} of Fairpath {}. */\n",
            self.name,
            env!("CARGO_PKG_VERSION")
        );
        text.replacen(LICENCE, &begun, 1)
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
