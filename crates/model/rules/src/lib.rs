//! Rules in the syntax of iptables, ip6tables, arptables, ebtables and ipset. Pure: the caller reads
//! and writes files.

mod place;
pub mod sets;

pub use place::{LineError, Place, ReadError};
pub use sets::{Contains, Element, Family, ReadSetsError, Set, SetKey, Sets};
