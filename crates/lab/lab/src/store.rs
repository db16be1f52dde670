//! The directory of results: every run is stored, and an interrupted grid continues.
//!
//! ```text
//! DIR/manifest.json     what the directory is (manifest.rs)
//! DIR/experiment.toml   the experiment as it was written
//! DIR/runs/NNNN.json    one record each, by its place in the order
//! ```
//!
//! A file appears completely or not at all: it is written next to its place, synced and renamed. One
//! process locks the directory while it writes. Finished files are never deleted or changed.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::Serialize;
use tempfile::NamedTempFile;
use thiserror::Error;

use fairpath_analysis::manifest::{self, Manifest};
use fairpath_analysis::record::RunRecord;
use fairpath_analysis::results::{self, ReadError};

/// The experiment's own file.
pub const EXPERIMENT: &str = "experiment.toml";

/// Results could not be read or kept.
#[derive(Debug, Error)]
pub enum StoreError {
    /// A file or directory refused to be written.
    #[error(
        "write {path}; finished runs are kept: free space or fix permissions, and repeat the command"
    )]
    Write {
        /// Which.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A file could not be read.
    #[error("read {path}")]
    Read {
        /// Which.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The existing results are not from this program.
    #[error(transparent)]
    Results(#[from] ReadError),
    /// Another process writes.
    #[error("{0} is in use by another `fairpath lab run`: wait for it, or choose another --output")]
    Busy(PathBuf),
    /// Results of something else.
    #[error("{path} holds other results ({what}); choose another --output, or remove it")]
    Other {
        /// Which directory.
        path: PathBuf,
        /// The difference.
        what: String,
    },
}

/// A directory of results, locked while this value lives.
#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
    _held: Flock<File>,
}

impl Store {
    /// Starts in a new or empty directory, or continues in one with the same experiment: with its runs and its
    /// manifest. A run whose file cannot be read is repeated.
    ///
    /// # Errors
    /// There are other results, another process writes, or nothing can be written.
    pub fn open(
        directory: &Path,
        begun: &Manifest,
        text: &str,
    ) -> Result<(Store, Vec<RunRecord>, Manifest), StoreError> {
        let runs = directory.join(manifest::RUNS);
        fs::create_dir_all(&runs).map_err(|source| StoreError::Write { path: runs, source })?;
        let store = Store {
            directory: directory.to_owned(),
            _held: hold(directory)?,
        };
        if !directory.join(manifest::FILE).exists() {
            store.write(&directory.join(EXPERIMENT), text.as_bytes())?;
            store.keep_manifest(begun)?;
            return Ok((store, Vec::new(), begun.clone()));
        }
        let found = results::read(directory)?;
        store.check_same(&found.manifest, begun, text)?;
        Ok((store, found.runs, found.manifest))
    }

    fn check_same(&self, found: &Manifest, begun: &Manifest, text: &str) -> Result<(), StoreError> {
        let other = |what: String| StoreError::Other {
            path: self.directory.clone(),
            what,
        };
        if found.experiment != begun.experiment {
            return Err(other(format!("of {}", found.experiment)));
        }
        if (&found.form, found.seed, found.runs_planned)
            != (&begun.form, begun.seed, begun.runs_planned)
        {
            return Err(other(format!(
                "form {}, seed {}, {} runs",
                found.form, found.seed, found.runs_planned
            )));
        }
        if let Some(what) = other_machine(found, begun) {
            return Err(other(what));
        }
        if found.axes != begun.axes {
            return Err(other("with other values of its axes".to_owned()));
        }
        let path = self.directory.join(EXPERIMENT);
        let was = fs::read_to_string(&path).map_err(|source| StoreError::Read { path, source })?;
        if was != text {
            return Err(other("the experiment's file has changed since".to_owned()));
        }
        Ok(())
    }

    /// Keeps the manifest, whole.
    ///
    /// # Errors
    /// Nothing can be written.
    pub fn keep_manifest(&self, manifest: &Manifest) -> Result<(), StoreError> {
        self.write_json(&self.directory.join(manifest::FILE), manifest)
    }

    /// Keeps a record at its place, whole.
    ///
    /// # Errors
    /// Nothing can be written.
    pub fn keep(&self, run: &RunRecord) -> Result<(), StoreError> {
        let path = self
            .directory
            .join(manifest::RUNS)
            .join(format!("{:04}.json", run.place));
        self.write_json(&path, run)
    }

    fn write_json(&self, path: &Path, value: &impl Serialize) -> Result<(), StoreError> {
        let json = serde_json::to_vec(value).expect("records are plain data with text for keys");
        self.write(path, &json)
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
        let folder = path.parent().unwrap_or(&self.directory);
        let written = || {
            let mut file = NamedTempFile::new_in(folder)?;
            file.write_all(bytes)?;
            file.as_file().sync_all()?;
            file.persist(path).map_err(|error| error.error)?;
            Ok(())
        };
        written().map_err(|source| StoreError::Write {
            path: path.to_owned(),
            source,
        })
    }
}

/// Returns the differences that affect figures: their runs must not mix.
fn other_machine(found: &Manifest, begun: &Manifest) -> Option<String> {
    let (was, is) = (&found.machine, &begun.machine);
    let reported = [
        ("kernel", &was.kernel, &is.kernel),
        ("processor", &was.cpu_model, &is.cpu_model),
        ("fairpath", &was.fairpath, &is.fairpath),
        ("iperf3", &was.iperf3, &is.iperf3),
    ];
    let differs = reported.into_iter().find(|(_, was, is)| was != is);
    let (what, was, is) = differs?;
    Some(format!("of another {what}: {was}, and now {is}"))
}

/// The directory's own lock: nothing is left of it.
fn hold(directory: &Path) -> Result<Flock<File>, StoreError> {
    let opened = File::open(directory).map_err(|source| StoreError::Read {
        path: directory.to_owned(),
        source,
    })?;
    Flock::lock(opened, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| match errno {
        Errno::EWOULDBLOCK => StoreError::Busy(directory.to_owned()),
        errno => StoreError::Write {
            path: directory.to_owned(),
            source: errno.into(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairpath_analysis::record;

    fn begun() -> Manifest {
        Manifest {
            format: manifest::FORMAT,
            experiment: "tiny".to_owned(),
            form: "quick".to_owned(),
            runs_planned: 2,
            ..Manifest::default()
        }
    }

    fn run(place: u32) -> RunRecord {
        RunRecord {
            format: record::FORMAT,
            experiment: "tiny".to_owned(),
            place,
            ..RunRecord::default()
        }
    }

    #[test]
    fn stored_packets_return_in_order() {
        let scratch = tempfile::tempdir().unwrap();
        let (store, none, _) = Store::open(scratch.path(), &begun(), "text").unwrap();
        assert_eq!(none, []);
        store.keep(&run(1)).unwrap();
        store.keep(&run(0)).unwrap();
        drop(store);
        let (_store, runs, found) = Store::open(scratch.path(), &begun(), "text").unwrap();
        assert_eq!(found, begun());
        assert_eq!(runs.iter().map(|run| run.place).collect::<Vec<_>>(), [0, 1]);
        let names = fs::read_dir(scratch.path().join("runs")).unwrap().count();
        assert_eq!(names, 2, "nothing but records is there");
    }

    #[test]
    fn other_results_are_not_mixed_with_ours() {
        let scratch = tempfile::tempdir().unwrap();
        let (store, _, _) = Store::open(scratch.path(), &begun(), "text").unwrap();
        let busy = Store::open(scratch.path(), &begun(), "text").unwrap_err();
        assert!(matches!(busy, StoreError::Busy(_)), "{busy}");
        drop(store);
        let changed = Store::open(scratch.path(), &begun(), "other text")
            .unwrap_err()
            .to_string();
        assert!(changed.contains("has changed since"), "{changed}");
        let full = Manifest {
            form: "full".to_owned(),
            ..begun()
        };
        let other = Store::open(scratch.path(), &full, "text")
            .unwrap_err()
            .to_string();
        assert!(other.contains("form quick"), "{other}");
        let mut updated = begun();
        updated.machine.kernel = "7.0".to_owned();
        let mixed = Store::open(scratch.path(), &updated, "text")
            .unwrap_err()
            .to_string();
        assert!(mixed.contains("another kernel"), "{mixed}");
    }
}
