//! Loaded rules with their counts: the part of a snapshot about rules at the kernel's hooks.
//!
//! Plain data, as the rest of the snapshot. [`crate::rule_counts`] makes it of the counters of the kernel.
//! Texts have no unsafe characters and a limited length.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Maximum size of the text of a rule, characters. Longer ones end in "...".
pub const MAX_RULE_CHARS: usize = 160;
/// Maximum number of rules that are listed by their rate.
pub const MAX_LISTED_RULES: usize = 1000;
/// Maximum number of rules with metrics: three series each.
pub const MAX_EXPORTED_RULES: usize = 100;

/// The loaded rules.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadedRules {
    /// Unix time of the last reading of counters, nanoseconds.
    pub unix_ns: u64,
    /// Time since the reading before, which rates cover. `None` after the first reading.
    pub interval_ns: Option<u64>,
    /// Unix time of the load, nanoseconds.
    pub loaded_unix_ns: u64,
    /// Changes with each load and edit.
    pub generation: u64,
    /// False in the shadow: the rules decide nothing.
    pub deciding: bool,
    /// Packets that are counted: "exact", "sampled" or "none". Without counters, all lists are empty.
    pub counter_mode: String,
    /// Time until the rules before come back, if the load waits for its confirmation.
    pub confirm_ns: Option<u64>,
    /// The last load was not confirmed: these are the rules before it.
    pub went_back: bool,
    /// A process answers rejected packets. `None` if no rule rejects.
    pub rejected_are_answered: Option<bool>,
    /// Number of rules.
    pub rules_total: u64,
    /// One file for each family.
    pub files: Vec<RuleFile>,
    /// Packets that passed a base chain up to its policy.
    pub policies: Vec<PolicyCount>,
    /// Packets by table and target of the rules that matched.
    pub targets: Vec<TargetCount>,
    /// Counters of the programs, by name.
    pub counters: BTreeMap<String, u64>,
    /// Rules with the highest packet rate, then with the most packets; at most [`MAX_LISTED_RULES`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleCount>,
    /// Rules with metrics, at most [`MAX_EXPORTED_RULES`], in the order of the files. Empty unless requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exported: Vec<RuleCount>,
}

impl LoadedRules {
    /// A copy with at most this number of rules by rate, and with the rules that have metrics if wanted.
    pub fn part(&self, rules: usize, exported: bool) -> LoadedRules {
        let exported: &[RuleCount] = if exported { &self.exported } else { &[] };
        LoadedRules {
            counter_mode: self.counter_mode.clone(),
            files: self.files.clone(),
            policies: self.policies.clone(),
            targets: self.targets.clone(),
            counters: self.counters.clone(),
            rules: self.rules[..rules.min(self.rules.len())].to_vec(),
            exported: exported.to_vec(),
            ..*self
        }
    }
}

/// A file of loaded rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleFile {
    /// "IPv4" or "IPv6".
    pub family: String,
    /// Its name at the load.
    pub file: String,
    /// Number of its rules.
    pub rules: u64,
}

/// The policy of a base chain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyCount {
    /// "IPv4" or "IPv6".
    pub family: String,
    /// Its table.
    pub table: String,
    /// The name of its hook.
    pub chain: String,
    /// "ACCEPT" or "DROP".
    pub policy: String,
    /// Packets since the load of the chain.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// All rules of a table with one target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetCount {
    /// "IPv4" or "IPv6".
    pub family: String,
    /// Their table.
    pub table: String,
    /// "ACCEPT", "DROP", "REJECT", "LOG" or another target; "chain" for jumps, "none" for rules that only
    /// count.
    pub target: String,
    /// Packets since the start of this process, also of rules that were removed. Never decreases.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A rule with its counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RuleCount {
    /// "IPv4" or "IPv6".
    pub family: String,
    /// Its table.
    pub table: String,
    /// Its chain.
    pub chain: String,
    /// Matches and target, at most [`MAX_RULE_CHARS`].
    pub rule: String,
    /// Number of rules before it in its chain with the same text.
    pub copy: u32,
    /// The file that had it.
    pub file: String,
    /// Its line there. 0 for rules of later commands.
    pub line: u32,
    /// Packets since its load, or since its counter was set to 0.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets per second, over [`LoadedRules::interval_ns`].
    pub rate_pps: f64,
    /// Bits per second.
    pub rate_bps: f64,
}
