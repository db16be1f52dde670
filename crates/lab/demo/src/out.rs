//! The directory of the samples and the report.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// An existing directory without samples of an earlier run.
#[derive(Clone, Debug)]
pub struct Out {
    folder: PathBuf,
    made: bool,
}

impl Out {
    /// Creates the directory if necessary, and removes the samples of an earlier run.
    pub fn prepare(folder: &Path) -> anyhow::Result<Out> {
        let made = !folder.exists();
        fs::create_dir_all(folder)
            .with_context(|| format!("create the directory {}", folder.display()))?;
        let folder = folder.to_owned();
        let out = Out { folder, made };
        // `fairpath rtt --write` appends.
        match fs::remove_file(out.samples()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("remove the old {}", out.samples().display()))
            }
            _ => Ok(out),
        }
    }

    /// The records of `fairpath rtt`: JSON lines.
    pub fn samples(&self) -> PathBuf {
        self.folder.join("samples.jsonl")
    }

    /// Configuration and socket of `fairpath run` during the demo.
    pub fn daemon(&self) -> PathBuf {
        self.folder.join("daemon")
    }

    /// Removes the directory of `fairpath run`.
    pub fn remove_daemon(&self) {
        // It does not exist if the daemon never started.
        let _ = fs::remove_dir_all(self.daemon());
    }

    /// Writes a file into the directory.
    pub fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let path = self.folder.join(name);
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))
    }

    /// Removes the samples, and the directory if this process created it and it is empty.
    pub fn remove(&self) {
        // There may be no samples yet.
        let _ = fs::remove_file(self.samples());
        self.remove_daemon();
        if self.made {
            // Files of other programs keep it.
            let _ = fs::remove_dir(&self.folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn existing_directories_are_kept() {
        let place = std::env::temp_dir().join(format!("fairpath-demo-{}", std::process::id()));
        let made = Out::prepare(&place).unwrap();
        fs::write(made.samples(), "").unwrap();
        let found = Out::prepare(&place).unwrap();
        assert!(!made.samples().exists(), "old samples are removed");
        found.remove();
        assert!(place.exists(), "it existed before");
        made.remove();
        assert!(!place.exists());
    }
}
