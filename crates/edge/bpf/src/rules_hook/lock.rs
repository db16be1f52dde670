//! Locks of the loaded rules: a byte of one file for each network namespace and right. They end with
//! their process.

use std::fs::File;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};

use super::HookError;

/// The right to change the loaded rules of the calling thread's network namespace, of one process at a
/// time. It ends with the value, and with the process.
#[derive(Debug)]
pub struct HookLock {
    _file: File,
}

/// The right to answer its rejected packets, of one process.
#[derive(Debug)]
pub struct AnswerLock {
    _file: File,
}

/// Bytes of the lock file that a network namespace has, by the number of its inode.
#[derive(Clone, Copy)]
enum LockedByte {
    Change,
    Answer,
}

impl LockedByte {
    fn lock(self) -> Result<libc::flock, HookError> {
        let inode = std::fs::metadata("/proc/thread-self/ns/net").map_err(HookError::Lock)?;
        Ok(libc::flock {
            l_type: libc::F_WRLCK as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: inode.ino() as libc::off_t * 2 + self as libc::off_t,
            l_len: 1,
            l_pid: 0,
        })
    }

    /// `None`: another process has it.
    fn take(self) -> Result<Option<File>, HookError> {
        let file = open_lock()?;
        match fcntl(&file, FcntlArg::F_OFD_SETLK(&self.lock()?)) {
            Ok(_) => Ok(Some(file)),
            Err(Errno::EAGAIN | Errno::EACCES) => Ok(None),
            Err(error) => Err(HookError::Lock(error.into())),
        }
    }
}

impl HookLock {
    /// `None`: another process has it.
    ///
    /// # Errors
    /// [`HookError::Lock`].
    pub fn try_new() -> Result<Option<HookLock>, HookError> {
        Ok(LockedByte::Change
            .take()?
            .map(|file| HookLock { _file: file }))
    }
}

impl AnswerLock {
    /// `None`: another process has it.
    ///
    /// # Errors
    /// [`HookError::Lock`].
    pub fn try_new() -> Result<Option<AnswerLock>, HookError> {
        Ok(LockedByte::Answer
            .take()?
            .map(|file| AnswerLock { _file: file }))
    }

    /// True if a process has it.
    ///
    /// # Errors
    /// [`HookError::Lock`].
    pub fn is_taken() -> Result<bool, HookError> {
        let mut lock = LockedByte::Answer.lock()?;
        let found = fcntl(open_lock()?, FcntlArg::F_OFD_GETLK(&mut lock));
        found.map_err(|error| HookError::Lock(error.into()))?;
        Ok(lock.l_type != libc::F_UNLCK as libc::c_short)
    }
}

fn open_lock() -> Result<File, HookError> {
    let mut options = File::options();
    let options = options.write(true).create(true).truncate(false).mode(0o600);
    options.open(LOCK).map_err(HookError::Lock)
}

/// Only root can open it, so no other user can keep a load waiting.
pub(super) const LOCK: &str = "/run/fairpath-rules.lock";
