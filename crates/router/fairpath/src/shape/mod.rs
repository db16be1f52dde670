//! `fairpath shape`: the command. Back ends are `fairpath-backend`'s; the daemon's loop has them.

mod command;
mod text;

pub use command::{Args, run};
