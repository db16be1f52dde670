//! One process shapes an interface. Two would replace each other's qdiscs, and the end of one would remove
//! the other's.
//!
//! The hold is an abstract UNIX socket in the network namespace, named by the index of the interface. The
//! kernel binds a name once and frees it when the process ends, also after SIGKILL. A file would depend on
//! the directory of the control socket, which can differ.

use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use fairpath_netlink::Link;
use fairpath_units::IfIndex;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, socket, sockopt,
};
use nix::unistd::{Uid, geteuid};

/// A holder listens at once after it has bound the name.
const LISTENS_AFTER: Duration = Duration::from_millis(10);
const TRIES: u32 = 20;

/// The interfaces that this process shapes, until dropped.
#[derive(Debug)]
pub struct Hold {
    held: Vec<(IfIndex, UnixListener)>,
}

/// The process that has bound a name.
struct Holder {
    /// 0 in another PID namespace.
    pid: i32,
    uid: Uid,
}

impl Holder {
    /// Any user can bind the name, but shaping needs root or the user of this process.
    fn may_shape(&self) -> bool {
        self.uid.is_root() || self.uid == geteuid()
    }
}

impl Hold {
    /// Holds these interfaces. One that is named twice is held once.
    ///
    /// # Errors
    /// Another process holds one of them.
    pub fn of<'a>(links: impl IntoIterator<Item = &'a Link>) -> anyhow::Result<Hold> {
        let mut hold = Hold { held: Vec::new() };
        for link in links {
            hold.add(link)?;
        }
        Ok(hold)
    }

    /// Holds one more interface, unless it is held already.
    ///
    /// # Errors
    /// Another process holds it.
    pub fn add(&mut self, link: &Link) -> anyhow::Result<()> {
        if self.held.iter().all(|(held, _)| *held != link.ifindex) {
            let name = format!("fairpath-shape-{}", link.ifindex);
            let bound = bind(&name, &link.name)?;
            self.held.extend(bound.map(|bound| (link.ifindex, bound)));
        }
        Ok(())
    }

    /// Releases an interface, which another process may then shape.
    pub fn release(&mut self, ifindex: IfIndex) {
        self.held.retain(|(held, _)| *held != ifindex);
    }

    /// Accepts those that asked who holds an interface, so that the next can ask.
    pub fn answer(&self) {
        for (_, listener) in &self.held {
            while listener.accept().is_ok() {}
        }
    }
}

/// `None` if a user without the right to shape has taken the name.
fn bind(name: &str, interface: &str) -> anyhow::Result<Option<UnixListener>> {
    let address = SocketAddr::from_abstract_name(name);
    let bound = address.and_then(|address| UnixListener::bind_addr(&address));
    let listener = match bound {
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            refuse(name, interface)?;
            return Ok(None);
        }
        bound => bound.with_context(|| format!("hold interface {interface:?}"))?,
    };
    listener
        .set_nonblocking(true)
        .with_context(|| format!("hold interface {interface:?}"))?;
    Ok(Some(listener))
}

/// Fails, unless the holder may not shape.
fn refuse(name: &str, interface: &str) -> anyhow::Result<()> {
    match holder(name) {
        Ok(holder) if !holder.may_shape() => {
            let Holder { pid, uid } = holder;
            tracing::warn!(
                "process {pid} of user {uid} has bound the abstract socket {name:?}: \
                 a second shaper on interface {interface:?} cannot be refused: stop that process"
            );
            Ok(())
        }
        Ok(Holder { pid: 0, .. }) => bail!(
            "shape {interface:?}: a process in another PID namespace already shapes it: \
             stop that process, which `ss -xlp | grep {name}` shows on the host"
        ),
        Ok(Holder { pid, .. }) => bail!(
            "shape {interface:?}: process {pid} already shapes it: \
             stop that process with `kill {pid}` or `systemctl stop fairpath`, or name another interface"
        ),
        Err(error) => bail!(
            "shape {interface:?}: another process already shapes it, and does not answer ({error}): \
             stop that process, which `ss -xlp | grep {name}` shows"
        ),
    }
}

/// The process that listens at this name. Never waits for it.
fn holder(name: &str) -> Result<Holder, io::Error> {
    let address = UnixAddr::new_abstract(name.as_bytes())?;
    for _ in 0..TRIES {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let client: OwnedFd = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
        match connect(client.as_raw_fd(), &address) {
            Ok(()) => {
                let peer = getsockopt(&client, sockopt::PeerCredentials)?;
                return Ok(Holder {
                    pid: peer.pid(),
                    uid: Uid::from_raw(peer.uid()),
                });
            }
            Err(Errno::ECONNREFUSED) => thread::sleep(LISTENS_AFTER),
            Err(error) => return Err(error.into()),
        }
    }
    Err(Errno::ECONNREFUSED.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(of: &str) -> String {
        format!("fairpath-test-{of}-{}", std::process::id())
    }

    fn refusal(name: &str) -> String {
        format!("{:#}", bind(name, "lan").unwrap_err())
    }

    #[test]
    fn a_held_interface_is_refused_until_released() {
        let name = name("release");
        let held = bind(&name, "lan").unwrap();
        let text = refusal(&name);
        let process = format!("process {}", std::process::id());
        assert!(
            text.contains("\"lan\"") && text.contains(&process),
            "{text}"
        );
        drop(held);
        assert!(bind(&name, "lan").unwrap().is_some());
    }

    #[test]
    fn a_thousand_refusals_name_the_holder() {
        let name = name("thousand");
        let hold = Hold {
            held: vec![(IfIndex(1), bind(&name, "lan").unwrap().unwrap())],
        };
        for _ in 0..1000 {
            let text = refusal(&name);
            assert!(text.contains("kill"), "{text}");
            hold.answer();
        }
    }

    #[test]
    fn a_holder_that_never_answers_blocks_no_start() {
        let name = name("silent");
        let _held = bind(&name, "lan").unwrap();
        // Far more than the kernel queues.
        let refusals: Vec<String> = (0..5000).map(|_| refusal(&name)).collect();
        assert!(refusals.iter().all(|text| text.contains("already shapes")));
    }

    #[test]
    fn only_users_that_may_shape_hold_an_interface() {
        let may = |uid: u32| {
            let uid = Uid::from_raw(uid);
            Holder { pid: 1, uid }.may_shape()
        };
        assert!(may(0) && may(geteuid().as_raw()));
        assert!(!may(geteuid().as_raw().wrapping_add(65534)));
    }
}
