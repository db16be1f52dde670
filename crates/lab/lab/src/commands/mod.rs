//! The subcommands of `fairpath lab`.

pub mod accept;
pub mod compare;
pub mod generate;
pub mod list;
pub mod report;
pub mod run;
pub mod show;
