//! Shaping without a port: what AF_XDP, NFQUEUE, the BPF qdisc and the kernel's own qdiscs have in
//! common.
//!
//! ```text
//! classes, rates --> lines: a tree per direction -+--> instance: packets in, packets out (user space)
//!                                                 +--> the plan itself (BPF qdisc)
//!                                                 '--> floors and ceilings (the kernel's HTB)
//! counters of nodes ----> figures by class: came = sent + dropped + held, sojourns
//! ```
//!
//! Packets towards subscribers (down) are scheduled by the class of the receiver, packets towards the
//! internet (up) by the class of the sender. Pure: `now` is an argument, packets are
//! numbers. Trees can have a custom policy, which instances run
//! and kernel back ends do not. Not part of it: back ends, threads, configuration.

mod balance;
mod claims;
mod figures;
pub mod framing;
pub mod htb;
mod impaired;
mod instance;
mod known;
mod lines;
mod police;
mod recorder;
mod shared;
mod stack;

pub use balance::{Balance, INTERVAL_NS};
pub use figures::{Figures, Places, Sojourns};
pub use impaired::{Impaired, Impairments};
pub use instance::{CHARGES, Leaving, ShapeInstance, ShapeInstanceError, Successor};
pub use known::Known;
pub use lines::{Both, LineError, Lines, Own, Settings, Side};
pub use police::{PaceQueue, PolicePlan, TooManyLimits, police_plan};
pub use recorder::Recorder;
pub use shared::{NextRates, Part, SharedError, SharedRates, packets_of};
pub use stack::{Debt, STACK_DEBT_NS, StackAlarm, StackCounts};
