//! AF_XDP: an XDP program takes packets, a thread of this process schedules and sends them.

pub mod ends;
pub mod impairment;
pub mod instances;
pub mod paths;
pub mod shaper;
pub mod skipped;
mod worker;
