//! Names that outlive the process: pins in a bpffs of our own, and the names themselves.
//!
//! A directory for each name holds `link` (the registration) and `arena` (its memory). The usual
//! /sys/fs/bpf is not used: under `ip netns exec` it is another one, or none.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};

use super::QdiscError;

/// Bytes of a qdisc's name (`IFNAMSIZ`), the zero behind it included.
pub(super) const NAME_BYTES: usize = 16;
/// Names that one place takes turns with.
const TURNS: u8 = 26;

/// Where qdiscs are pinned.
#[derive(Clone, Debug)]
pub struct QdiscPins {
    dir: PathBuf,
}

fn failed(what: &str, path: &Path, source: io::Error) -> QdiscError {
    QdiscError::Pins {
        what: what.to_owned(),
        path: path.to_owned(),
        source,
    }
}

impl QdiscPins {
    /// Makes `dir` a bpffs if it is none yet. Needs `CAP_SYS_ADMIN` for that.
    ///
    /// # Errors
    /// [`QdiscError::Pins`]: the directory cannot be made, or nothing be mounted there.
    pub fn open(dir: &Path) -> Result<QdiscPins, QdiscError> {
        fs::create_dir_all(dir).map_err(|error| failed("make the directory", dir, error))?;
        let kind = statfs(dir).map_err(|error| failed("look at", dir, error.into()))?;
        if kind.filesystem_type() != BPF_FS_MAGIC {
            let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
            mount(Some("bpf"), dir, Some("bpf"), flags, Some("mode=0700"))
                .map_err(|error| failed("mount a bpffs at", dir, error.into()))?;
        }
        Ok(QdiscPins {
            dir: dir.to_owned(),
        })
    }

    /// The names that are pinned.
    ///
    /// # Errors
    /// [`QdiscError::Pins`].
    pub fn names(&self) -> Result<Vec<String>, QdiscError> {
        let entries = fs::read_dir(&self.dir).map_err(|error| failed("read", &self.dir, error))?;
        let name = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().into_string().ok();
        Ok(entries.filter_map(name).collect())
    }

    /// Unpins a name. A qdisc that is on a device works on, but nobody can be given the name any more.
    ///
    /// # Errors
    /// [`QdiscError::Pins`].
    pub fn remove(&self, name: &str) -> Result<(), QdiscError> {
        for file in [self.link(name), self.arena(name)] {
            match fs::remove_file(&file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(failed("remove the pin", &file, error));
                }
                _ => {}
            }
        }
        let dir = self.dir.join(name);
        fs::remove_dir(&dir).map_err(|error| failed("remove", &dir, error))
    }

    pub(super) fn make(&self, name: &str) -> Result<(), QdiscError> {
        let dir = self.dir.join(name);
        fs::create_dir_all(&dir).map_err(|error| failed("make", &dir, error))
    }

    pub(super) fn link(&self, name: &str) -> PathBuf {
        self.dir.join(name).join("link")
    }

    pub(super) fn arena(&self, name: &str) -> PathBuf {
        self.dir.join(name).join("arena")
    }
}

/// 32-bit FNV-1a, which spreads names of interfaces well enough.
fn hash(text: &str) -> u32 {
    let fold = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    text.bytes().fold(0x811c_9dc5, fold)
}

/// The names that the qdisc of one place may have, one after the other: `fairpath`, six digits
/// of a hash over `place`, and a letter. The kernel knows names for the whole machine, so `place` says
/// daemon, namespace, interface and queue; a successor beside its predecessor takes the next letter.
pub fn qdisc_names(place: &str) -> impl Iterator<Item = String> {
    let hash = hash(place);
    let digits = (hash >> 24 ^ hash) & 0xff_ffff;
    (0..TURNS).map(move |turn| format!("fairpath{digits:06x}{}", (b'a' + turn) as char))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_into_what_the_kernel_takes_and_tell_places_apart() {
        let places = ["a near0 0", "a near0 1", "b near0 0", "a near1 0"];
        let mut names: Vec<String> = places.iter().flat_map(|place| qdisc_names(place)).collect();
        assert!(
            names.iter().all(|name| name.len() < NAME_BYTES),
            "{names:?}"
        );
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
