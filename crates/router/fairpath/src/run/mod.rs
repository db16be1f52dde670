//! `fairpath run`: the daemon.
//!
//! ```text
//!  signals ------.                        .--> control clients, web server (threads)
//!  questions -----+--> loop (daemon.rs) --+--> hooks, rows, state (threads)
//!  links, clock -'       |        |       '--> service manager, log
//!                     kernel   ledger
//! ```
//!
//! The loop alone owns kernel and ledger, and is the only thread that keeps capabilities.

mod answer;
mod ask;
mod control;
mod daemon;
mod engine;
mod hooks;
mod kernel;
mod log;
mod notify;
mod own;
mod privileges;
mod reading;
mod reload;
mod signals;
mod sinks;
mod state;
mod web;

pub use fairpath_config::Wish;
pub use own::Own;
pub use signals::Signals;

use std::path::PathBuf;

use fairpath_config as config;

/// Watches interfaces for as long as the router runs, and answers `fairpath top`, `status` and
/// `check`, Prometheus and browsers.
///
/// Runs in the foreground; systemd's unit is fairpath.service. SIGHUP, or `fairpath reload`, takes in
/// the configuration again without losing a count; SIGTERM ends it.
#[derive(clap::Args)]
pub struct Args {
    /// Configuration file
    #[arg(short, long, value_name = "FILE", default_value = config::DEFAULT_FILE)]
    config: PathBuf,
    /// Check the configuration and what it names, and run nothing
    #[arg(long)]
    check: bool,
    /// What is worth a line of the log
    #[arg(long, value_enum, value_name = "LEVEL", default_value_t)]
    log: log::Verbosity,
}

/// Runs `fairpath run`.
///
/// # Errors
/// Where the configuration is refused, or the daemon cannot start or go on.
pub fn run(args: &Args) -> anyhow::Result<()> {
    log::start(args.log);
    let config = config::load(&args.config)?;
    for warning in &config.classes.warnings {
        tracing::warn!("{warning}");
    }
    if args.check {
        println!(
            "{}: fine; {} classes",
            args.config.display(),
            config.classes.set.len()
        );
        return Ok(());
    }
    daemon::Daemon::start(Some(args.config.clone()), config)?.run()
}

/// Runs a configuration that is in no file, in the foreground.
///
/// # Errors
/// As [`run`].
pub fn run_alone(text: &str) -> anyhow::Result<()> {
    log::start(log::Verbosity::default());
    let config = config::parse("command line", text)?;
    daemon::Daemon::start(None, config)?.run()
}
