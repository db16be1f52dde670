//! Capture files in and out, and packets as values.
//!
//! Pure: no clock, no sockets, no unsafe code; bytes in, values out and back.
//!
//! - [`capture`] reads pcap and pcapng as a stream with bounded memory, plain or gzipped, and writes both.
//! - [`Frame`] makes whole frames, with right lengths and checksums, for tests and generators.
//! - One module per protocol, each in the same order: numbers, the header as a value, `emit`, `parse`.
//!
//! Deliberately absent: a parser for the packet path. That is `bpf/core/parse/parse.h`, which runs in the kernel too; the `parse`
//! functions here allocate, are strict, and check the packets of tests.

#![forbid(unsafe_code)]

pub mod capture;
pub mod checksum;
pub mod ethernet;
pub mod frame;
pub mod icmp;
pub mod ip;
pub mod ipv4;
pub mod ipv6;
pub mod pppoe;
pub mod sll;
pub mod tcp;
pub mod udp;
pub mod vlan;

mod fields;

pub use ethernet::{EtherType, MacAddr};
pub use fields::ParseError;
pub use frame::Frame;
pub use ip::IpProto;
