//! The options of a load, which stay with its rules through edits.

use fairpath_rules::Family;
use serde::{Deserialize, Serialize};

use super::given::{NAT, Name};
use super::shared_state::Elsewhere;

/// Options of a load.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Options {
    /// A random number of the load.
    pub load: u64,
    /// Tables that the load left to iptables.
    pub left: Vec<String>,
    /// Interfaces of early drop.
    pub early: Vec<String>,
    /// The rules decide nothing.
    pub shadow: bool,
    /// Tables that it gave to iptables, because rules are refused.
    pub deferred: Vec<Name>,
    /// State of tables that iptables has.
    pub elsewhere: Elsewhere,
    /// The file that keeps the rules for the next start of the machine.
    #[serde(default)]
    pub kept: Option<String>,
}

impl Options {
    /// True for a table that iptables keeps.
    pub fn leaves(&self, family: Family, table: &str) -> bool {
        let mut deferred = self.deferred.iter();
        family.is_ip() && (table == NAT || self.skips(table))
            || deferred.any(|name| (name.family, &name.table[..]) == (family, table))
    }

    /// True for a table that the load did not touch.
    pub fn skips(&self, table: &str) -> bool {
        self.left.iter().any(|left| left == table)
    }

    /// Tables of a family that iptables has, because rules are refused.
    pub fn deferred_of(&self, family: Family) -> impl Iterator<Item = &Name> {
        let deferred = self.deferred.iter();
        deferred.filter(move |name| name.family == family)
    }

    /// Tables that iptables has, and that new rules evaluate, or that are in their files no more.
    pub fn taken_by(&self, new: &Options) -> Vec<Name> {
        // A load in the shadow gives nothing to iptables.
        let stays = |name: &&Name| self.shadow || new.leaves(name.family, &name.table);
        let taken = self.deferred.iter().filter(|name| !stays(name));
        taken.cloned().collect()
    }
}
