//! The configuration: read from one file, checked whole, taken in whole or not at all.
//!
//! ```text
//! file.rs     the keys and their types      problem.rs  file:line:column: what is wrong
//! values.rs   one value and its limits      sections.rs  each section's values
//! measure.rs  how packets are seen and measured
//! checked.rs  the configuration in force    classes.rs  classes and labels, of this and other files
//! shape.rs    what is scheduled, held against what is measured
//! ```

mod checked;
mod classes;
pub mod duration;
mod file;
pub mod filter;
mod measure;
mod problem;
mod sections;
mod shape;
mod values;

pub use checked::{
    AlertHook, Alerts, Config, Control, Filters, Metrics, Monitor, Rows, State, Subnets, Web,
};
pub use classes::Classes;
pub use measure::{Hook, Method};
pub use problem::Refused;

use std::path::Path;
use std::time::Duration;

use anyhow::Context;

/// Where the configuration is unless told otherwise.
pub const DEFAULT_FILE: &str = "/etc/fairpath/fairpath.toml";
/// A configuration file is never larger; a hundred thousand classes take a fifth of it.
const MAX_BYTES: u64 = 64 << 20;

/// Reads and checks the configuration.
///
/// # Errors
/// [`Refused`] with all that is wrong with it, or where it cannot be read.
pub fn load(path: &Path) -> anyhow::Result<Config> {
    let text = read(path)?;
    Ok(parse(&path.display().to_string(), &text)?)
}

/// Reads a file that is to be a reasonable text.
fn read(path: &Path) -> anyhow::Result<String> {
    let shown = path.display();
    let found = std::fs::metadata(path).with_context(|| {
        format!("read the configuration {shown}; name another one by --config FILE")
    })?;
    if found.len() > MAX_BYTES {
        anyhow::bail!("read the configuration {shown}: it has more than {MAX_BYTES} bytes");
    }
    std::fs::read_to_string(path).with_context(|| format!("read the configuration {shown}"))
}

/// Checks `text`, the content of `file`, and what it names.
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
    let (config, mut told) = match read {
        Ok((config, told)) => (Some(config), told),
        Err(error) => {
            problems.note_syntax(&error);
            (None, Vec::new())
        }
    };
    let own = problems.found();
    let mut all: Vec<String> = own.iter().map(ToString::to_string).collect();
    all.append(&mut told);
    match config {
        Some(config) if all.is_empty() => Ok(config),
        _ => Err(Refused(all)),
    }
}

/// What somebody wants to watch without a configuration; texts as the configuration has them.
#[derive(Clone, Copy, Debug)]
pub struct Wish<'a> {
    /// Names or patterns.
    pub interfaces: &'a [String],
    /// Those of them whose hosts are remote.
    pub uplinks: &'a [String],
    /// Filters: only such packets.
    pub only: &'a [String],
    /// Filters: all but such packets.
    pub except: &'a [String],
    /// Between two readings.
    pub interval: Duration,
}

/// A configuration of a few interfaces and nothing else: no files, no addresses, subnets as classes.
///
/// # Errors
/// For names that cannot be.
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
