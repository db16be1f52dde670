//! A separate bpffs, in which attachments outlive their process.
//!
//! The name of a pin is its kind, network namespace, and interface: `mark-4026531840-7`. The caller
//! selects the mount point (the daemon: below `/run`) in the mount namespace of the calling
//! process. Another process must be in the same one to find the pins.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fairpath_units::IfIndex;
use nix::mount::{MsFlags, mount, umount};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};

/// The directory of pins is not available.
#[derive(Debug, thiserror::Error)]
#[error("{what} \"{}\": {source}; needs CAP_SYS_ADMIN and a separate directory", path.display())]
pub struct PinError {
    /// The operation.
    pub what: &'static str,
    /// The path.
    pub path: PathBuf,
    /// The error of the kernel.
    pub source: io::Error,
}

/// A mounted bpffs, separate or shared.
#[derive(Debug, Clone)]
pub struct Pins {
    path: PathBuf,
    /// Prefix of names.
    prefix: String,
    /// It was not mounted before.
    new: bool,
}

impl Pins {
    /// The bpffs at `path`, created and mounted if necessary, readable by its owner only.
    ///
    /// # Errors
    /// [`PinError`].
    pub fn at(path: impl Into<PathBuf>) -> Result<Pins, PinError> {
        let path = path.into();
        let failed = |what: &'static str, source: io::Error| PinError {
            what,
            path: path.clone(),
            source,
        };
        fairpath_files::create_directory(&path, 0o700)
            .map_err(|source| failed("create", source))?;
        let there = statfs(&path).map_err(|error| failed("read the type of", error.into()))?;
        let new = there.filesystem_type() != BPF_FS_MAGIC;
        if new {
            // A mount would hide them.
            let mut inside = fs::read_dir(&path).map_err(|source| failed("read", source))?;
            if inside.next().is_some() {
                let why = io::Error::other("it has files, which a bpffs would hide");
                return Err(failed("mount a bpffs at", why));
            }
            let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
            mount(
                Some("fairpath"),
                &path,
                Some("bpf"),
                flags,
                Some("mode=700"),
            )
            .map_err(|error| failed("mount a bpffs at", error.into()))?;
        }
        Ok(Pins {
            path,
            prefix: String::new(),
            new,
        })
    }

    /// A bpffs shared with other pins: our names begin with `prefix`.
    ///
    /// # Errors
    /// [`PinError`]: there is none.
    pub fn shared(path: impl Into<PathBuf>, prefix: &str) -> Result<Pins, PinError> {
        let path = path.into();
        let failed = |source| PinError {
            what: "look for a bpffs at",
            path: path.clone(),
            source,
        };
        let there = statfs(&path).map_err(|error| failed(error.into()))?;
        if there.filesystem_type() != BPF_FS_MAGIC {
            return Err(failed(io::Error::other("there is no bpffs")));
        }
        Ok(Pins {
            path,
            prefix: prefix.to_owned(),
            new: false,
        })
    }

    /// True if this call mounted the bpffs.
    pub fn is_new(&self) -> bool {
        self.new
    }

    /// The path of a pin of this kind for an interface of the calling thread's network namespace.
    pub(crate) fn of(&self, kind: &str, ifindex: IfIndex) -> Result<PathBuf, PinError> {
        let space = Path::new("/proc/thread-self/ns/net");
        let inode = fs::metadata(space)
            .map_err(|source| PinError {
                what: "open",
                path: space.to_owned(),
                source,
            })?
            .ino();
        Ok(self.join(&format!("{kind}-{inode}-{ifindex}")))
    }

    /// The path of the pin with this name.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path.join(format!("{}{name}", self.prefix))
    }

    /// Removes the pins of this kind for interfaces of this network namespace that are not in
    /// `present`.
    pub(crate) fn sweep(&self, kind: &str, present: &[IfIndex]) -> Result<(), PinError> {
        for ifindex in self.interfaces(kind)? {
            if !present.contains(&ifindex) {
                remove(&self.of(kind, ifindex)?)?;
            }
        }
        Ok(())
    }

    /// The interfaces of this network namespace that have a pin of this kind.
    pub(crate) fn interfaces(&self, kind: &str) -> Result<Vec<IfIndex>, PinError> {
        // The prefix of all names of this namespace, without an interface.
        let any = self.of(kind, IfIndex(0))?;
        let any = any.file_name().unwrap_or_default().to_string_lossy();
        let begin = any.strip_suffix('0');
        let begin = begin.and_then(|any| any.strip_prefix(&self.prefix));
        let names = self.names()?;
        let rests = names
            .iter()
            .filter_map(|name| name.strip_prefix(begin.unwrap_or_default()));
        Ok(rests
            .filter_map(|rest| rest.parse().ok().map(IfIndex))
            .collect())
    }

    /// The names of all pins, unordered.
    ///
    /// # Errors
    /// [`PinError`].
    pub fn names(&self) -> Result<Vec<String>, PinError> {
        let failed = |source| PinError {
            what: "list",
            path: self.path.clone(),
            source,
        };
        let entries = fs::read_dir(&self.path).map_err(failed)?;
        let names = entries.filter_map(Result::ok);
        let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
        // The kernel's own entries (`maps.debug`) have a dot, which no pin can have.
        let ours = names.filter(|name| !name.contains('.'));
        Ok(ours
            .filter_map(|name| Some(name.strip_prefix(&self.prefix)?.to_owned()))
            .collect())
    }

    /// Removes one pin, and with it objects without another reference. False if there was none.
    ///
    /// # Errors
    /// [`PinError`].
    pub fn remove(&self, name: &str) -> Result<bool, PinError> {
        remove(&self.join(name))
    }

    /// Unmounts the bpffs with all pins, and removes the directory.
    ///
    /// # Errors
    /// [`PinError`].
    pub fn unmount(self) -> Result<(), PinError> {
        let path = &self.path;
        let failed = |what: &'static str, source: io::Error| PinError {
            what,
            path: path.clone(),
            source,
        };
        umount(path).map_err(|error| failed("unmount", error.into()))?;
        fs::remove_dir(path).map_err(|source| failed("remove", source))
    }
}

fn c_path(path: &Path) -> io::Result<CString> {
    let bytes = path.as_os_str().as_encoded_bytes();
    CString::new(bytes).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// Pins a program, map or link.
pub(crate) fn pin_object(object: BorrowedFd<'_>, path: &Path) -> Result<(), libbpf_rs::Error> {
    let path = c_path(path)?;
    // SAFETY: a path that ends with 0.
    let failed = unsafe { libbpf_sys::bpf_obj_pin(object.as_raw_fd(), path.as_ptr()) } != 0;
    match failed {
        true => Err(io::Error::last_os_error().into()),
        false => Ok(()),
    }
}

/// Opens a pinned program, map or link.
pub(crate) fn pinned_object(path: &Path) -> Result<OwnedFd, libbpf_rs::Error> {
    let path = c_path(path)?;
    // SAFETY: a path that ends with 0.
    let object = unsafe { libbpf_sys::bpf_obj_get(path.as_ptr()) };
    if object < 0 {
        return Err(io::Error::last_os_error().into());
    }
    // SAFETY: a new descriptor, which no one else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(object) })
}

pub(crate) fn remove(path: &Path) -> Result<bool, PinError> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(PinError {
            what: "remove the pin",
            path: path.to_owned(),
            source,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only names are used, so a directory can replace a bpffs.
    #[test]
    fn only_pins_of_removed_links_are_swept() {
        let place = tempfile::tempdir().unwrap();
        let pins = Pins {
            path: place.path().to_owned(),
            prefix: "ours-".to_owned(),
            new: false,
        };
        let of = |kind: &str, ifindex| pins.of(kind, IfIndex(ifindex)).unwrap();
        let removed = [of("mark", 3), of("mark", 70)];
        let stays = [
            of("mark", 7),
            of("other", 3),
            pins.join("mark-1-3"),
            place.path().join("mark-1-3"),
        ];
        for path in removed.iter().chain(&stays) {
            fs::write(path, "").unwrap();
        }
        assert_eq!(pins.names().unwrap().len(), 5);
        pins.sweep("mark", &[IfIndex(7), IfIndex(1)]).unwrap();
        assert!(removed.iter().all(|path| !path.exists()), "{removed:?}");
        assert!(stays.iter().all(|path| path.exists()), "{stays:?}");
    }
}
