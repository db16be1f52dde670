//! Shaping without a port: what AF_XDP, NFQUEUE, the BPF qdisc and the kernel's own qdiscs have in
//! common.
//!
//! ```text
//! classes, rates --> lines: a tree for each way --+--> lane: packets in, packets out (user space)
//!                                                 +--> the plan itself (BPF qdisc)
//!                                                 '--> floors and ceilings (the kernel's HTB)
//! counters of nodes ----> figures by class: came = sent + dropped + held, sojourns
//! ```
//!
//! What leaves towards subscribers (down) is scheduled by the class of whoever receives it, what leaves
//! towards the internet (up) by the class of whoever sends it. Pure: `now` is an argument, packets are
//! numbers. Trees may have an author's policy; lanes run it, the kernel's ports do not. Absent: ports, threads, configuration.

mod figures;
pub mod htb;
mod impaired;
mod instance;
mod known;
mod lines;
mod recorder;

pub use figures::{Figures, Places, Sojourns};
pub use impaired::{Impaired, Impairments};
pub use instance::{CHARGES, Leaving, ShapeInstance, ShapeInstanceError, Successor};
pub use known::Known;
pub use lines::{Both, LineError, Lines, Own, Settings, Side};
pub use recorder::Recorder;
