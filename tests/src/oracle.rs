//! The kernel's rule tables as the oracle of evaluators of rules: what the suite of rules and the guests share.
//!
//! ```text
//! pools    values that packets and rules share
//! packets  packets of IPv4, IPv6 and ARP, from a seed
//! bridge   frames and rulesets of ebtables, from a seed
//! compare  counters and accepted frames of the kernel and of an evaluator
//! ```

pub mod bridge;
pub mod compare;
pub mod packets;
pub mod pools;
