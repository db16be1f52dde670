//! The ledger from outside: against an oracle that keeps every sample, and against time.

mod alerts;
mod limits;
mod oracle;
mod queries;
mod restarts;
mod world;
