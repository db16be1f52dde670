//! Rules in the syntax of iptables, ip6tables, arptables, ebtables and ipset. Pure: the caller reads
//! and writes files.

mod place;

pub use place::{LineError, Place, ReadError};
