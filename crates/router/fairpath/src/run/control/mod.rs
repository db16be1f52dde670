//! The control socket: one JSON object per line for requests and answers.
//!
//! ```text
//! socket.rs  the socket: access, a second daemon, a stale file
//! client.rs  one thread per connection, with limits in bytes and time
//! ```
//!
//! A slow reader never delays the loop: the thread of the connection serialises and writes.

mod client;
mod socket;

pub use socket::{Access, Socket};

use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::Context;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{getsockopt, sockopt};

use super::query::Requester;
use crate::privileges;

/// Maximum number of connections.
pub const MAX_CLIENTS: usize = 32;
/// Of these, reserved for root.
const ROOTS_CLIENTS: usize = 4;

/// Counters since the start of the server.
#[derive(Debug, Default)]
pub struct Counters {
    open: AtomicUsize,
    /// Connections refused because of the limit.
    pub refused: AtomicU64,
    /// Connections closed because the client was too slow or its request too long.
    pub closed: AtomicU64,
}

/// The running server. Drop closes and removes the socket.
#[derive(Debug)]
pub struct Server {
    socket: Socket,
    counters: Arc<Counters>,
    over: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts to serve connections.
    ///
    /// # Errors
    /// The kernel provides no descriptor or thread.
    pub fn start(socket: Socket, requester: Requester) -> anyhow::Result<Server> {
        let over = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
            .context("create an event descriptor")?;
        let over = Arc::new(over);
        let counters = Arc::<Counters>::default();
        let listener = socket.listener().context("share the control socket")?;
        let (end, counted) = (Arc::clone(&over), Arc::clone(&counters));
        let thread = thread::Builder::new()
            .name("control".into())
            .spawn(move || {
                privileges::drop_all();
                accept_until(&end, &listener, &requester, &counted);
            })
            .context("start the control server")?;
        Ok(Server {
            socket,
            counters,
            over,
            thread: Some(thread),
        })
    }

    /// The counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Path of the socket.
    pub fn path(&self) -> &std::path::Path {
        self.socket.path()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Only a full counter refuses the write, and then the thread wakes anyway.
        let _ = self.over.write(1);
        if let Some(thread) = self.thread.take() {
            // A panic in it was printed.
            let _ = thread.join();
        }
    }
}

fn accept_until(
    over: &EventFd,
    listener: &UnixListener,
    requester: &Requester,
    counters: &Arc<Counters>,
) {
    loop {
        let mut fds = [over.as_fd(), listener.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        if poll(&mut fds, PollTimeout::NONE).is_err() {
            continue; // interrupted
        }
        if fds[0].any().unwrap_or(false) {
            return;
        }
        match listener.accept() {
            Ok((stream, _)) => admit(stream, requester, counters),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => {
                tracing::warn!("accept on the control socket: {error}");
                // Without a pause, a lack of descriptors would use all of the CPU.
                thread::sleep(std::time::Duration::from_millis(100));
            }
        }
    }
}

/// Starts a thread for a connection, within the limit.
fn admit(stream: UnixStream, requester: &Requester, counters: &Arc<Counters>) {
    let uid = match getsockopt(&stream, sockopt::PeerCredentials) {
        Ok(peer) => peer.uid(),
        Err(error) => {
            tracing::warn!("read the credentials of a control client: {error}");
            return;
        }
    };
    let maximum = MAX_CLIENTS - if uid == 0 { 0 } else { ROOTS_CLIENTS };
    if counters.open.fetch_add(1, Ordering::Relaxed) >= maximum {
        counters.open.fetch_sub(1, Ordering::Relaxed);
        counters.refused.fetch_add(1, Ordering::Relaxed);
        client::refuse(
            stream,
            &format!("{maximum} connections are open: close one"),
        );
        return;
    }
    let (requester, counted) = (requester.clone(), Arc::clone(counters));
    let serve = move || {
        if client::serve(stream, uid, &requester).is_err() {
            counted.closed.fetch_add(1, Ordering::Relaxed);
        }
        counted.open.fetch_sub(1, Ordering::Relaxed);
    };
    let thread = thread::Builder::new().name("control client".into());
    if let Err(error) = thread.spawn(serve) {
        counters.open.fetch_sub(1, Ordering::Relaxed);
        tracing::warn!("start a thread for a control connection: {error}");
    }
}
