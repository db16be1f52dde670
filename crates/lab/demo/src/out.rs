//! The directory of the samples and the report.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use fairpath_files::Existing;

const SAMPLES: &str = "samples.jsonl";

/// An existing directory without samples of an earlier run.
#[derive(Clone, Debug)]
pub struct Out {
    folder: PathBuf,
    /// Where no other user can write.
    daemon: PathBuf,
    made: bool,
}

impl Out {
    /// Creates the directory if necessary, and removes the samples of an earlier run.
    pub fn prepare(folder: &Path) -> anyhow::Result<Out> {
        let made = !folder.exists();
        fs::create_dir_all(folder)
            .with_context(|| format!("create the directory {}", folder.display()))?;
        // `fairpath rtt --write` appends.
        let samples = folder.join(SAMPLES);
        match fs::remove_file(&samples) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("remove the old {}", samples.display()));
            }
            _ => {}
        }
        let daemon = tempfile::Builder::new()
            .prefix("fairpath-demo-")
            .tempdir()
            .context("create a temporary directory")?
            .keep();
        Ok(Out {
            folder: folder.to_owned(),
            daemon,
            made,
        })
    }

    /// The records of `fairpath rtt`: JSON lines.
    pub fn samples(&self) -> PathBuf {
        self.folder.join(SAMPLES)
    }

    /// Configuration and socket of `fairpath run` during the demo.
    pub fn daemon(&self) -> &Path {
        &self.daemon
    }

    /// Removes the directory of `fairpath run`.
    pub fn remove_daemon(&self) {
        // It does not exist if the daemon never started.
        let _ = fs::remove_dir_all(self.daemon());
    }

    /// Writes a file into the directory.
    pub fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let path = self.folder.join(name);
        fairpath_files::output(&path, Existing::Truncate)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .with_context(|| format!("write {}", path.display()))
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
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_prepared_link_is_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let (secret, shared) = (place.path().join("secret"), place.path().join("shared"));
        fs::write(&secret, "precious").unwrap();
        fs::create_dir(&shared).unwrap();
        fs::set_permissions(&shared, Permissions::from_mode(0o1777)).unwrap();
        let out = Out::prepare(&shared).unwrap();
        symlink(&secret, shared.join("report.txt")).unwrap();
        out.write("report.txt", "new").unwrap_err();
        assert_eq!(fs::read(&secret).unwrap(), b"precious");
        out.remove();
        assert!(!out.daemon().exists());
    }

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
