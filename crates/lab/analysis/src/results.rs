//! Reads a directory of results: the manifest and every run that is there.
//!
//! A run that cannot be read (half copied, of another form) is no reason to hide the others: it is
//! named in [`Results::unreadable`], which the page shows. Files are read by as many threads as there
//! are processors, since a thousand runs are tens of megabytes of JSON.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;

use thiserror::Error;

use crate::manifest::{self, Manifest};
use crate::record::{self, RunRecord};

/// Maximum runs of a directory; a larger grid is refused, and so is reading it.
pub const MAX_RUNS: usize = 20_000;

/// An experiment's results.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Results {
    /// The description of the experiment.
    pub manifest: Manifest,
    /// Its runs in the order of the grid.
    pub runs: Vec<RunRecord>,
    /// Files that could not be read as runs, each with its reason.
    pub unreadable: Vec<String>,
}

/// Why a directory has no results.
#[derive(Debug, Error)]
pub enum ReadError {
    /// A file or directory that must be there cannot be read.
    #[error(
        "cannot read {path}; give the directory that `fairpath lab run NAME --output DIR` wrote"
    )]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The manifest is not one.
    #[error("{path} is not the manifest of an experiment; run the experiment again")]
    NotAManifest {
        /// Which.
        path: PathBuf,
        /// Where.
        source: serde_json::Error,
    },
    /// Another version wrote it.
    #[error(
        "{path} has form {found}, this program reads form {known}; use the fairpath that wrote it"
    )]
    OtherForm {
        /// Which.
        path: PathBuf,
        /// There.
        found: u32,
        /// Here.
        known: u32,
    },
    /// More runs than any grid has.
    #[error("{path} holds {found} runs, more than {MAX_RUNS}; split the experiment")]
    TooMany {
        /// Which.
        path: PathBuf,
        /// The number of directories found.
        found: usize,
    },
}

/// Reads what `fairpath lab run --output DIR` wrote, finished or not.
///
/// # Errors
/// No directory, no manifest, a manifest of another form, or more than [`MAX_RUNS`] files.
pub fn read(dir: &Path) -> Result<Results, ReadError> {
    let manifest = read_manifest(&dir.join(manifest::FILE))?;
    let files = run_files(&dir.join(manifest::RUNS))?;
    let mut runs = Vec::with_capacity(files.len());
    let mut unreadable = Vec::new();
    for (path, outcome) in files.iter().zip(read_all(&files)) {
        match outcome {
            Ok(run) if run.experiment == manifest.experiment => runs.push(run),
            Ok(run) => unreadable.push(format!(
                "{}: a run of \"{}\", not of \"{}\"",
                path.display(),
                run.experiment,
                manifest.experiment
            )),
            Err(reason) => unreadable.push(format!("{}: {reason}", path.display())),
        }
    }
    runs.sort_by_key(|run| (run.place, run.repeat));
    Ok(Results {
        manifest,
        runs,
        unreadable,
    })
}

fn read_manifest(path: &Path) -> Result<Manifest, ReadError> {
    let text = fs::read_to_string(path).map_err(|source| unreadable(path, source))?;
    let not_a_manifest = |source| ReadError::NotAManifest {
        path: path.to_owned(),
        source,
    };
    // The form is checked first: another form has other keys.
    let form: Form = serde_json::from_str(&text).map_err(not_a_manifest)?;
    if form.format != manifest::FORMAT {
        return Err(ReadError::OtherForm {
            path: path.to_owned(),
            found: form.format,
            known: manifest::FORMAT,
        });
    }
    serde_json::from_str(&text).map_err(not_a_manifest)
}

#[derive(serde::Deserialize)]
struct Form {
    format: u32,
}

fn unreadable(path: &Path, source: io::Error) -> ReadError {
    ReadError::Unreadable {
        path: path.to_owned(),
        source,
    }
}

/// The runs' files, sorted. A grid that was stopped before its first run has no directory of runs.
fn run_files(dir: &Path) -> Result<Vec<PathBuf>, ReadError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(dir, error)),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| unreadable(dir, error))?.path();
        if path.extension().is_some_and(|e| e == "json") {
            files.push(path);
        }
    }
    if files.len() > MAX_RUNS {
        return Err(ReadError::TooMany {
            path: dir.to_owned(),
            found: files.len(),
        });
    }
    files.sort();
    Ok(files)
}

/// Every file's run, or why there is none, in the files' order.
fn read_all(files: &[PathBuf]) -> Vec<Result<RunRecord, String>> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let share = files.len().div_ceil(threads).max(1);
    thread::scope(|scope| {
        let readers: Vec<_> = files
            .chunks(share)
            .map(|part| scope.spawn(|| part.iter().map(|p| read_run(p)).collect::<Vec<_>>()))
            .collect();
        readers
            .into_iter()
            .flat_map(|reader| reader.join().expect("reading a run does not panic"))
            .collect()
    })
}

fn read_run(path: &Path) -> Result<RunRecord, String> {
    let bytes = fs::read(path).map_err(|error| error.to_string())?;
    // The format is checked first: another one has other keys.
    let form: Form = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    if form.format != record::FORMAT {
        return Err(format!(
            "record format {}, this program reads {}: use the fairpath that wrote it",
            form.format,
            record::FORMAT
        ));
    }
    serde_json::from_slice(&bytes).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(dir: &Path, place: u32) {
        let run = RunRecord {
            format: record::FORMAT,
            experiment: "ripe88".into(),
            place,
            ..RunRecord::default()
        };
        let path = dir.join(manifest::RUNS).join(format!("{place:04}.json"));
        fs::write(path, serde_json::to_vec(&run).unwrap()).unwrap();
    }

    fn directory(manifest: &Manifest) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(manifest::RUNS)).unwrap();
        let text = serde_json::to_vec(manifest).unwrap();
        fs::write(dir.path().join(manifest::FILE), text).unwrap();
        dir
    }

    fn ripe88() -> Manifest {
        Manifest {
            format: manifest::FORMAT,
            experiment: "ripe88".into(),
            ..Manifest::default()
        }
    }

    #[test]
    fn runs_are_in_grid_order_and_broken_named() {
        let dir = directory(&ripe88());
        for place in [3, 1, 2, 0] {
            write(dir.path(), place);
        }
        fs::write(dir.path().join("runs/0009.json"), "{\"format\":1,").unwrap();
        let older = "{\"format\":1,\"older_key\":null}";
        fs::write(dir.path().join("runs/0010.json"), older).unwrap();
        fs::write(dir.path().join("runs/notes.txt"), "not a run").unwrap();
        let results = read(dir.path()).unwrap();
        let places: Vec<u32> = results.runs.iter().map(|r| r.place).collect();
        assert_eq!(places, [0, 1, 2, 3]);
        let texts = results.unreadable.join("\n");
        assert_eq!(results.unreadable.len(), 2, "{texts}");
        assert!(texts.contains("0009.json"), "{texts}");
        assert!(texts.contains("record format 1"), "{texts}");
    }

    #[test]
    fn a_grid_without_runs_is_read() {
        let dir = directory(&ripe88());
        fs::remove_dir(dir.path().join(manifest::RUNS)).unwrap();
        assert!(read(dir.path()).unwrap().runs.is_empty());
    }

    #[test]
    fn runs_of_another_experiment_are_not_mixed_in() {
        let dir = directory(&Manifest {
            experiment: "voice".into(),
            ..ripe88()
        });
        write(dir.path(), 0);
        let results = read(dir.path()).unwrap();
        assert!(results.runs.is_empty());
        assert!(
            results.unreadable[0].contains("\"ripe88\""),
            "{:?}",
            results.unreadable
        );
    }

    #[test]
    fn another_format_and_no_directory_are_distinguished() {
        let dir = directory(&Manifest {
            format: 9,
            ..ripe88()
        });
        let error = read(dir.path()).unwrap_err();
        assert!(
            matches!(error, ReadError::OtherForm { found: 9, .. }),
            "{error}"
        );
        let error = read(Path::new("/nowhere/at/all")).unwrap_err();
        assert!(error.to_string().contains("--output DIR"), "{error}");
    }
}
