//! `--watch`: repeats a command when a file that it reads was saved.
//!
//! Files are compared by time, size and inode, five times a second. So every file system works, and every way in which
//! editors save: in place, or by a new file under the same name.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Time between two reads of the states. A file is complete if two reads find the same.
const INTERVAL: Duration = Duration::from_millis(200);
/// Maximum of headers in the directory of a file. Others are not watched.
const HEADERS: usize = 256;

type State = Vec<(PathBuf, Option<(i64, i64, u64, u64)>)>;

/// Runs `command` now, and after each change of the files or of headers (`.h`) next to them, until SIGINT, SIGTERM or
/// SIGHUP. Failures are printed.
///
/// # Errors
/// The last run failed, or signals cannot be handled.
pub fn repeat(
    files: &[&Path],
    mut command: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("handle signals")?;
    }
    loop {
        let before = state(files);
        let result = command();
        if stop.load(Ordering::Relaxed) {
            return result;
        }
        if let Err(error) = &result {
            fairpath_cli::print_error(fairpath_cli::line(error));
        }
        let names: Vec<String> = files
            .iter()
            .map(|file| file.display().to_string())
            .collect();
        fairpath_cli::note(format_args!(
            "waiting for a change of {} (Ctrl-C ends)",
            names.join(", ")
        ));
        let Some(changed) = next(files, &before, &stop) else {
            return result
                .map_err(|_| anyhow::anyhow!("interrupted: the last run had the problems above"));
        };
        fairpath_cli::note(format_args!("{} changed", changed.display()));
    }
}

/// The file that changed, after it is complete. `None`: a signal.
fn next(files: &[&Path], before: &State, stop: &AtomicBool) -> Option<PathBuf> {
    let mut last = state(files);
    loop {
        thread::sleep(INTERVAL);
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        let now = state(files);
        if now == last
            && let Some(changed) = difference(before, &now)
        {
            return Some(changed);
        }
        last = now;
    }
}

/// The first file of which the states differ.
fn difference(before: &State, now: &State) -> Option<PathBuf> {
    let mut all = now.iter().chain(before);
    let differs = all.find(|file| !before.contains(file) || !now.contains(file));
    differs.map(|(path, _)| path.clone())
}

/// Of the files and of the headers next to them. A file that does not exist has none.
fn state(files: &[&Path]) -> State {
    let of = |metadata: Metadata| {
        (
            metadata.mtime(),
            metadata.mtime_nsec(),
            metadata.size(),
            metadata.ino(),
        )
    };
    let mut paths: Vec<PathBuf> = files.iter().map(|file| file.to_path_buf()).collect();
    for file in files {
        let directory = match file.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let entries = entries.map(|entry| entry.path());
        let is_header = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "h");
        let mut headers: Vec<PathBuf> = entries.filter(is_header).collect();
        headers.sort();
        headers.truncate(HEADERS);
        paths.extend(headers);
    }
    paths.sort();
    paths.dedup();
    paths
        .into_iter()
        .map(|path| {
            let state = fs::metadata(&path).ok().map(of);
            (path, state)
        })
        .collect()
}
