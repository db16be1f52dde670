//! Rules in the syntax of iptables, ip6tables, arptables, ebtables and ipset. Pure: the caller reads
//! and writes files.
//!
//! ```text
//!   iptables-save, ip6tables-save --.
//!   arptables-save, ebtables-save --+--> Ruleset (one tree) --> write: the same four formats
//!   -A -I -D -R -N -X -P -F -Z -----'
//! ```

mod arp;
mod bridge;
mod canonical;
mod check;
mod convert;
mod diff;
mod evaluate;
mod hash_rate;
mod hooks;
pub mod image;
mod listing;
mod log_line;
mod names;
mod packet;
mod path;
mod place;
mod read;
pub mod reference;
mod rejection;
pub mod sets;
pub mod spec;
mod stats;
mod tree;
pub mod value;
mod words;
mod write;

pub use check::*;
pub use convert::*;
pub use diff::*;
pub use evaluate::*;
pub use hooks::{
    Answer, AnswerRow, HOOKS, HookAnswer, Point, answer, answers, change_answer, depends_on_hooks,
    frame_answer, frame_chain_reason, has_effect, hook_answer, markdown, matches_answer,
    rule_answer,
};
pub use listing::{ListError, Listing};
pub use log_line::{Logged, log_level, log_line};
pub use names::{Names, protocol_name};
pub use packet::*;
pub use path::{Stretch, path};
pub use place::{LineError, Place, ReadError};
pub use read::{Edit, MAX_LINE, MAX_PROBLEMS, Parser, Reading, new_table, read, restore, same};
pub use reference::{Outcome, Reference, RuleAt, RuleResult, Step};
pub use rejection::{Rejected, Silence};
pub use sets::{Contains, ReadSetsError, SetKey, Sets};
pub use stats::*;
pub use tree::*;
pub use words::{MAX_WORDS, Word, split};
pub use write::{
    WithCounters, item_text, rule_line, rule_string, rule_text, to_bytes, to_text, write,
};
