//! The socket in the file system, for root and one group. The socket of a terminated daemon is
//! replaced, that of a running daemon never.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{Group, chown};

/// The users that may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// Root and this group.
    Group(String),
    /// Only root, and the reason.
    RootOnly(String),
}

/// A listening socket. Drop removes its file if it is still the same.
#[derive(Debug)]
pub struct Socket {
    path: PathBuf,
    inode: u64,
    listener: UnixListener,
    access: Access,
}

impl Socket {
    /// Listens at `path`, for root and `group` if that group exists.
    ///
    /// Replaces a stale socket. Call it before other threads start, because of the umask.
    ///
    /// # Errors
    /// Another daemon listens there, another file is there, or the kernel refuses.
    pub fn open(path: &Path, group: &str) -> anyhow::Result<Socket> {
        let place = fairpath_files::directory_of(path);
        // Another user could otherwise answer in the daemon's place.
        let made = fairpath_files::create_directory(place, 0o755);
        made.with_context(|| {
            format!(
                "create the directory {} of the control socket",
                place.display()
            )
        })?;
        // Two daemons that start at once must check, remove and bind one after the other.
        let directory = File::open(place)
            .with_context(|| format!("open {} of the control socket", place.display()))?;
        let _alone = Flock::lock(directory, FlockArg::LockExclusive)
            .map_err(|(_, error)| error)
            .with_context(|| format!("lock {}", place.display()))?;
        remove_stale(path)?;
        let bind = || format!("listen on the control socket {}", path.display());
        // Only root may connect before the group is set.
        let before = umask(Mode::from_bits_truncate(0o177));
        let listener = UnixListener::bind(path);
        umask(before);
        let listener = listener.with_context(bind)?;
        listener.set_nonblocking(true).with_context(bind)?;
        let access = open_for_group(path, group).with_context(bind)?;
        let inode = fs::symlink_metadata(path).with_context(bind)?.ino();
        Ok(Socket {
            path: path.to_owned(),
            inode,
            listener,
            access,
        })
    }

    /// The users that may connect.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode);
        if ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!("remove the control socket {}: {error}", self.path.display());
        }
    }
}

/// Removes a socket without a listener.
fn remove_stale(path: &Path) -> anyhow::Result<()> {
    let shown = path.display();
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("check {shown}")),
        Ok(found) if !found.file_type().is_socket() => bail!(
            "listen on the control socket {shown}: the path is a file, not a socket: \
             remove it, or set another path in [control] socket"
        ),
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            tracing::info!("removing {shown}, left by a daemon that did not stop cleanly");
            fs::remove_file(path).with_context(|| format!("remove the stale socket {shown}"))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        // Also with a full backlog, another daemon listens.
        _ => bail!(
            "listen on the control socket {shown}: another daemon is running (see `fairpath \
             status --socket {shown}`): stop it, or set another path in [control] socket"
        ),
    }
}

fn open_for_group(path: &Path, group: &str) -> anyhow::Result<Access> {
    let set_mode =
        |mode| fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode));
    let Some(found) = Group::from_name(group).context("look up the group")? else {
        set_mode(0o600)?;
        return Ok(Access::RootOnly(format!("there is no group {group:?}")));
    };
    if let Err(error) = chown(path, None, Some(found.gid)) {
        set_mode(0o600)?;
        return Ok(Access::RootOnly(format!(
            "change its group to {group:?}: {error}"
        )));
    }
    set_mode(0o660)?;
    Ok(Access::Group(group.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn stale_sockets_are_replaced_live_ones_are_not() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("sub/control.sock");
        let first = Socket::open(&path, "no-such-group-of-fairpath").unwrap();
        assert!(matches!(first.access(), Access::RootOnly(_)));
        assert_eq!(mode(&path), 0o600);
        let text = format!("{:#}", Socket::open(&path, "root").unwrap_err());
        assert!(text.contains("another daemon is running"), "{text}");

        // A killed daemon leaves its file.
        drop(first);
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        Socket::open(&path, "root").unwrap();
    }

    #[test]
    fn only_the_group_may_connect() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("control.sock");
        let own = Group::from_gid(nix::unistd::getegid()).unwrap().unwrap();
        let socket = Socket::open(&path, &own.name).unwrap();
        assert_eq!(socket.access(), &Access::Group(own.name));
        assert_eq!(mode(&path), 0o660);
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn other_files_are_left_unchanged() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("control.sock");
        fs::write(&path, "precious").unwrap();
        let text = format!("{:#}", Socket::open(&path, "root").unwrap_err());
        assert!(text.contains("not a socket"), "{text}");
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }
}
