//! `fairpath run`: the daemon.
//!
//! ```text
//!  signals ------.                        .--> control clients, web server (threads)
//!  requests ------+--> loop (daemon.rs) --+--> hooks, rows, state (threads)
//!  links, clock -'       |        |       '--> service manager, log
//!                     kernel   history
//! ```
//!
//! Only the loop owns kernel and history, and only its thread retains capabilities.

mod answer;
mod control;
mod daemon;
mod engine;
mod hooks;
mod kernel;
mod log;
mod notify;
mod own;
mod query;
mod reading;
mod reload;
mod signals;
mod sinks;
mod state;
mod web;

pub use fairpath_config::Wish;
pub use kernel::globs;
pub use own::Own;
pub use signals::Signals;

use std::path::PathBuf;

use fairpath_cli::{Global, require, wrong_usage};
use fairpath_config as config;
use fairpath_units::counted;

/// Run the daemon: measure on interfaces, count by class, alert and shape.
///
/// It serves `fairpath top`, `status`, `check` and `shape` over its control socket, and Prometheus
/// and browsers over HTTP. It runs in the foreground; the systemd unit is fairpath.service. SIGHUP,
/// or `fairpath reload`, reloads the configuration without losing counts. SIGTERM ends it.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath run --config /etc/fairpath/fairpath.toml\n  \
    fairpath run --check")]
pub struct Args {
    /// Configuration file
    #[arg(short, long, value_name = "FILE", default_value = config::DEFAULT_FILE)]
    config: PathBuf,
    /// Validate the configuration and the files that it names, and exit
    #[arg(long)]
    check: bool,
    /// Minimum level of logged messages [default: info, with -v debug, with -q warn]
    #[arg(long, value_enum, value_name = "LEVEL")]
    log_level: Option<log::Verbosity>,
}

/// Runs `fairpath run`.
///
/// # Errors
/// The configuration is refused, or the daemon cannot start or continue.
pub fn run(args: &Args, global: &Global) -> anyhow::Result<()> {
    log::start(args.log_level.unwrap_or_else(|| log::Verbosity::of(global)));
    let config = config::load(&args.config)?;
    for warning in &config.classes.warnings {
        tracing::warn!("{warning}");
    }
    if args.check {
        return fairpath_cli::print(format!(
            "{}: valid, {}\n",
            args.config.display(),
            counted(config.classes.set.len(), "class", "classes")
        ));
    }
    require("run the daemon", &crate::MONITOR_CAPABILITIES)?;
    daemon::Daemon::start(Some(args.config.clone()), config)?.run()
}

/// Runs a configuration that was made from options, in the foreground.
///
/// # Errors
/// As [`run`].
pub fn run_alone(text: &str, global: &Global) -> anyhow::Result<()> {
    log::start(log::Verbosity::of(global));
    let config =
        config::parse("command line", text).map_err(|refused| wrong_usage(refused.of_options()))?;
    require("shape", &crate::MONITOR_CAPABILITIES)?;
    let started = daemon::Daemon::start(None, config);
    started.map_err(config::error_of_options)?.run()
}
