//! The directory that keeps the samples and the report.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// A directory that exists, without samples of an earlier run.
#[derive(Clone, Debug)]
pub struct Out {
    folder: PathBuf,
    made: bool,
}

impl Out {
    /// Makes the directory if need be, and removes the samples of an earlier run.
    pub fn prepare(folder: &Path) -> anyhow::Result<Out> {
        let made = !folder.exists();
        fs::create_dir_all(folder).with_context(|| format!("make the directory {folder:?}"))?;
        let folder = folder.to_owned();
        let out = Out { folder, made };
        // `fairpath rtt --write` appends.
        match fs::remove_file(out.samples()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("remove the old {:?}", out.samples()))
            }
            _ => Ok(out),
        }
    }

    /// What `fairpath rtt` writes: JSON lines.
    pub fn samples(&self) -> PathBuf {
        self.folder.join("samples.jsonl")
    }

    /// Where `fairpath run` has its configuration and socket meanwhile.
    pub fn daemon(&self) -> PathBuf {
        self.folder.join("daemon")
    }

    /// Removes that.
    pub fn remove_daemon(&self) {
        // It may never have been made.
        let _ = fs::remove_dir_all(self.daemon());
    }

    /// Writes a file beside the samples.
    pub fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let path = self.folder.join(name);
        fs::write(&path, text).with_context(|| format!("write {path:?}"))
    }

    /// Removes the samples, and the directory if it was made here and is empty.
    pub fn remove(&self) {
        // There may be no samples yet.
        let _ = fs::remove_file(self.samples());
        self.remove_daemon();
        if self.made {
            // Not empty: somebody else's.
            let _ = fs::remove_dir(&self.folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_made_here_is_removed() {
        let place = std::env::temp_dir().join(format!("fairpath-demo-{}", std::process::id()));
        let made = Out::prepare(&place).unwrap();
        fs::write(made.samples(), "").unwrap();
        let found = Out::prepare(&place).unwrap();
        assert!(!made.samples().exists(), "old samples are gone");
        found.remove();
        assert!(place.exists(), "it was there before");
        made.remove();
        assert!(!place.exists());
    }
}
