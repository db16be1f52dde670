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
mod archive;
mod control;
mod daemon;
mod engine;
mod hooks;
mod kernel;
mod loaded_rules;
mod log;
mod notify;
mod own;
mod query;
mod reading;
mod rejects;
mod reload;
mod signals;
mod sinks;
mod state;
mod web;

pub use fairpath_config::Wish;
pub use own::Own;
pub use signals::Signals;

use std::path::PathBuf;

use fairpath_cli::{Global, require, wrong_usage};
use fairpath_config as config;
use fairpath_netlink::Links;
use fairpath_units::counted;
use fairpath_watch::Configured;

/// Run the daemon: measure on interfaces, count by class, alert and shape.
///
/// It serves `fairpath top`, `status`, `check`, `alerts` and `shape` over its control socket, and
/// Prometheus and browsers over HTTP. It runs in the foreground; the systemd unit is fairpath.service. SIGHUP,
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
        warn_of_interfaces(&config.monitor);
        for warning in missing_directories(&config) {
            tracing::warn!("{warning}");
        }
        return fairpath_cli::print(format!(
            "{}: valid, {}\n",
            args.config.display(),
            counted(config.classes.set.len(), "class", "classes")
        ));
    }
    require("run the daemon", &crate::MONITOR_CAPABILITIES)?;
    daemon::Daemon::start(Some(args.config.clone()), config)?.run()
}

/// Warns of interfaces and uplinks that this machine does not have. The configuration may be for
/// another one, and interfaces may appear later, so it is valid.
fn warn_of_interfaces(monitor: &config::Monitor) {
    let links = match Links::dump() {
        Ok(links) => links,
        Err(error) => return tracing::warn!("list interfaces, to check their names: {error}"),
    };
    let names: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
    match Configured::new(&monitor.interfaces, &monitor.uplinks) {
        Ok(configured) => {
            for waiting in configured.waiting_for(&names) {
                tracing::warn!("{waiting}");
            }
        }
        Err(error) => tracing::warn!("{error:#}"),
    }
}

/// Directories of output files that do not exist on this machine.
fn missing_directories(config: &config::Config) -> Vec<String> {
    let files = [
        ("[rows] json", &config.rows.json),
        ("[alerts] json", &config.alerts.json),
    ];
    let missing = files.into_iter().filter_map(|(key, file)| {
        let directory = fairpath_files::directory_of(file.as_ref()?);
        let text = format!(
            "{key}: directory {directory:?} does not exist: create it, or correct the path"
        );
        (!directory.exists()).then_some(text)
    });
    let parquet = config.rows.parquet.iter().filter(|path| !path.exists());
    let parquet = parquet.map(|path| {
        format!("[rows] parquet: directory {path:?} does not exist: the daemon creates it, or correct the path")
    });
    missing.chain(parquet).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_directories_are_named() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().display();
        let of = |json: &str, parquet: &str| {
            let text = format!(
                "[monitor]\ninterfaces = [\"a\"]\n[rows]\njson = \"{place}{json}\"\n\
                 parquet = \"{place}{parquet}\"\n[alerts]\njson = \"{place}{json}\"\n"
            );
            missing_directories(&config::parse("test.toml", &text).unwrap())
        };
        assert!(of("/rows", "").is_empty());
        let missing = of("/none/rows", "/parqet");
        let expected = [
            format!("[rows] json: directory \"{place}/none\" does not exist"),
            format!("[alerts] json: directory \"{place}/none\" does not exist"),
            format!("[rows] parquet: directory \"{place}/parqet\" does not exist"),
        ];
        assert_eq!(missing.len(), 3, "{missing:?}");
        for (text, expected) in missing.iter().zip(expected) {
            assert!(text.starts_with(&expected), "{text}");
        }
    }
}
