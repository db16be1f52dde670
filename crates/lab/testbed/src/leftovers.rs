//! The leftovers of a run, which must be none.
//!
//! Processes are found by [`RUN_ENV`] in their environment, namespaces by the alias of their `lo`.
//! A namespace is visible from outside only through a process or a descriptor in it, so all of
//! `/proc/*/task/*/ns/net` and `/proc/*/fd` is searched. Unreadable entries are skipped: processes
//! start and end during this time.

use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::netns::Netns;
use crate::run::{RUN_ENV, RunId};

/// Directories where named namespaces, sockets or scratch files would appear.
const FILE_PLACES: &[&str] = &["/run/netns", "/tmp", "/dev/shm", "/run"];

/// A process of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftProcess {
    /// Process id.
    pub id: u32,
    /// Its command line.
    pub command: String,
}

/// The leftovers of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Processes, zombies excepted.
    pub processes: Vec<LeftProcess>,
    /// Inodes of namespaces.
    pub namespaces: Vec<u64>,
    /// Files that bear the run's identity in their name.
    pub files: Vec<PathBuf>,
}

impl Leftovers {
    /// True if nothing is left.
    pub fn is_empty(&self) -> bool {
        *self == Leftovers::default()
    }
}

/// Looks for what is left of `run`, in all processes this user may look into.
///
/// Killed processes take a moment to go: poll with [`crate::wait_for`]. About 3 ms per namespace of the
/// machine.
pub fn leftovers(run: &RunId) -> Leftovers {
    Leftovers {
        processes: process_ids().filter_map(|id| process_of(run, id)).collect(),
        namespaces: namespaces_of(run),
        files: files_of(run),
    }
}

fn process_ids() -> impl Iterator<Item = u32> {
    names_in(Path::new("/proc")).filter_map(|name| name.parse().ok())
}

fn names_in(directory: &Path) -> impl Iterator<Item = String> + use<> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}

fn process_of(run: &RunId, id: u32) -> Option<LeftProcess> {
    let environment = fs::read(format!("/proc/{id}/environ")).ok()?;
    let marker = format!("{RUN_ENV}={run}");
    environment
        .split(|byte| *byte == 0)
        .find(|entry| *entry == marker.as_bytes())?;
    let words = fs::read(format!("/proc/{id}/cmdline")).ok()?;
    let command = String::from_utf8_lossy(&words)
        .trim_end_matches('\0')
        .replace('\0', " ");
    Some(LeftProcess { id, command })
}

fn namespaces_of(run: &RunId) -> Vec<u64> {
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    for path in process_ids().flat_map(namespace_paths) {
        let Some(inode) = namespace_inode(&path) else {
            continue;
        };
        if seen.insert(inode) && belongs(run, &path) {
            found.push(inode);
        }
    }
    found
}

/// Links under `/proc` that may lead to a network namespace.
fn namespace_paths(id: u32) -> impl Iterator<Item = PathBuf> {
    let [tasks, fds] = ["task", "fd"].map(|part| PathBuf::from(format!("/proc/{id}/{part}")));
    let of_tasks = names_in(&tasks).map(move |task| tasks.join(task).join("ns/net"));
    let of_fds = names_in(&fds).map(move |fd| fds.join(fd));
    of_tasks.chain(of_fds)
}

/// N of a link to `net:[N]`.
fn namespace_inode(path: &Path) -> Option<u64> {
    let target = fs::read_link(path).ok()?;
    target
        .to_str()?
        .strip_prefix("net:[")?
        .strip_suffix(']')?
        .parse()
        .ok()
}

fn belongs(run: &RunId, path: &Path) -> bool {
    let alias = || {
        let file = File::open(path).ok()?;
        file.metadata().ok().filter(|found| found.ino() != 0)?;
        let ns = Netns::hold("leftover", run, file).ok()?;
        ns.run(&["ip", "link", "show", "dev", "lo"]).ok()
    };
    let marker = format!("alias {RUN_ENV}={run}");
    alias().is_some_and(|text| text.lines().any(|line| line.trim() == marker))
}

fn files_of(run: &RunId) -> Vec<PathBuf> {
    let in_place = |place: &&str| {
        let place = PathBuf::from(*place);
        names_in(&place)
            .filter(|name| name.contains(run.as_str()))
            .map(move |name| place.join(name))
    };
    FILE_PLACES.iter().flat_map(in_place).collect()
}
