//! `fairpath shape`: the command. `fairpath-backend` has the back ends, the daemon runs them.

mod command;
mod plan;
mod text;

pub use command::{Args, run};
