//! The configuration of the daemon: one file, validated and applied as a whole.
//!
//! ```text
//! file.rs     the keys and their types      problem.rs  file:line:column: the problem
//! values.rs   one value and its limits      sections.rs  each section's values
//! measure.rs  hooks and methods             rules.rs    loaded rules, also before the daemon
//! checked.rs  the active configuration      classes.rs  classes and labels, of this and other files
//! shape.rs    shaping, compared with the monitor
//! ```

mod checked;
mod classes;
pub mod duration;
mod file;
pub mod filter;
mod framing;
mod measure;
mod problem;
mod rules;
mod sections;
mod shape;
mod values;

pub use checked::{
    AlertHook, Alerts, Config, Control, Filters, History, Metrics, Monitor, Rows, State, Subnets,
    Web,
};
pub use classes::Classes;
pub use measure::{Hook, Method};
pub use problem::{Refused, error_of_options};
pub use rules::{Fail, Rules, fail_of_rules};

use std::path::Path;
use std::time::Duration;

use anyhow::Context;

/// Default path of the configuration.
pub const DEFAULT_FILE: &str = "/etc/fairpath/fairpath.toml";
/// Maximum size of a configuration. 100,000 classes take 20 % of it.
const MAX_BYTES: u64 = 64 << 20;

/// Reads and checks the configuration.
///
/// # Errors
/// [`Refused`] with all problems, or the file cannot be read.
pub fn load(path: &Path) -> anyhow::Result<Config> {
    let text = read(path)?;
    Ok(parse(&path.display().to_string(), &text)?)
}

/// Reads a text file of limited size.
fn read(path: &Path) -> anyhow::Result<String> {
    let shown = path.display();
    let found = std::fs::metadata(path).with_context(|| {
        format!("read the configuration {shown} (--config FILE names another one)")
    })?;
    if found.len() > MAX_BYTES {
        anyhow::bail!("read the configuration {shown}: it has more than {MAX_BYTES} bytes");
    }
    std::fs::read_to_string(path).with_context(|| format!("read the configuration {shown}"))
}

/// Validates `text`, the content of `file`, and the files that it names.
///
/// # Errors
/// All problems.
pub fn parse(file: &str, text: &str) -> Result<Config, Refused> {
    let mut problems = problem::Problems::of(file, text);
    let source = sections::Source {
        name: file,
        text,
        directory: Path::new(file).parent().unwrap_or(Path::new("")),
    };
    let read = toml::from_str::<file::File>(text)
        .map(|given| sections::check(given, &source, &mut problems));
    let (config, mut reported) = match read {
        Ok((config, reported)) => (Some(config), reported),
        Err(error) => {
            problems.note_syntax(&error);
            (None, Vec::new())
        }
    };
    let own = problems.found();
    let mut all: Vec<String> = own.iter().map(ToString::to_string).collect();
    all.append(&mut reported);
    match config {
        Some(config) if all.is_empty() => Ok(config),
        _ => Err(Refused(all)),
    }
}

/// Interfaces to watch without a configuration file. Texts are as in the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Wish<'a> {
    /// Names or patterns.
    pub interfaces: &'a [String],
    /// Those whose hosts are remote.
    pub uplinks: &'a [String],
    /// Filters of measured packets.
    pub only: &'a [String],
    /// Filters of excluded packets.
    pub except: &'a [String],
    /// Time between two readings.
    pub interval: Duration,
}

/// A configuration of interfaces only, with subnets as rows.
///
/// # Errors
/// A name or a filter is invalid.
pub fn of_wish(wish: &Wish<'_>) -> Result<Config, Refused> {
    let Wish {
        interfaces,
        uplinks,
        only,
        except,
        interval,
    } = wish;
    let millis = interval.as_millis();
    let text = format!(
        "[monitor]\ninterfaces = {interfaces:?}\nuplinks = {uplinks:?}\ninterval = \"{millis}ms\"\n\
         only = {only:?}\nexcept = {except:?}\n[subnets]\nmax = 1000\n[metrics]\nlisten = \"off\"\n[state]\nfile = \"off\"\n"
    );
    parse("command line", &text)
}

#[cfg(test)]
mod tests;
