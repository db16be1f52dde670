//! The subcommands of `fairpath lab`.

pub mod accept;
pub mod compare;
pub mod generate;
pub mod list;
pub mod report;
pub mod run;
pub mod show;

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Lines for people
    Text,
    /// One JSON document
    Json,
}
