//! Capture files in and out, and packets as values.
//!
//! Pure: no clock, no sockets, no unsafe code; bytes in, values out and back.
//!
//! [`capture`] reads pcap and pcapng as a stream with bounded memory, plain or gzipped, and writes both.

#![forbid(unsafe_code)]

pub mod capture;
