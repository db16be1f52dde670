//! Traffic and its measurements. Each part is usable alone and returns its part of a record.
//!
//! ```text
//!            Origin (second 0 of the run), Window (its measured part)
//!              │
//! traffic ─────┼─ iperf3, a process pair a flow ──► Transfer ──┬─► FlowRecord
//! sampler ─────┼─ tcp_info and recoveries by sock_diag ► Sampled ┘
//! ping, call ──┼─ our threads ────────► PingRecord, CallRecord
//! passive ─────┼─ the installed `fairpath rtt` ──► PassiveRecord
//! cpu ─────────┴─ /proc ──► CpuRecord             switch: see there
//! ```
//!
//! The order of a run: choose an [`Origin`] a little ahead, start sampler, pings and calls, start the traffic,
//! wait for its end, finish the others, and turn all of it into records with the run's [`Window`].

pub mod call;
mod clock;
pub mod cpu;
pub mod passive;
pub mod ping;
mod precise;
pub mod sampler;
pub mod switch;
pub mod traffic;

pub use clock::{Origin, Window};
