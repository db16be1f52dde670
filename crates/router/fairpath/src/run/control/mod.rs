//! The control socket: one JSON object a line, asked and answered.
//!
//! ```text
//! socket.rs  the socket itself: who may connect, is another daemon there, what a crash left
//! client.rs  one thread a connection, with limits in bytes and time
//! ```
//!
//! The loop is never waited upon by a slow reader: a connection's thread serialises and writes.

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

use super::ask::Asker;
use super::privileges;

/// Connections at once.
pub const MAX_CLIENTS: usize = 32;
/// Of these, kept for root: whoever repairs the router gets in.
const ROOTS_CLIENTS: usize = 4;

/// What the server counted since it started.
#[derive(Debug, Default)]
pub struct Counters {
    open: AtomicUsize,
    /// Connections refused because there were too many.
    pub refused: AtomicU64,
    /// Connections ended because the other side read or wrote too slowly, or too much.
    pub cut_off: AtomicU64,
}

/// The running server; dropping it closes and removes the socket.
#[derive(Debug)]
pub struct Server {
    socket: Socket,
    counters: Arc<Counters>,
    over: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves connections from now on.
    ///
    /// # Errors
    /// Where the kernel gives no descriptor or thread.
    pub fn start(socket: Socket, asker: Asker) -> anyhow::Result<Server> {
        let over = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
            .context("make an event descriptor")?;
        let over = Arc::new(over);
        let counters = Arc::<Counters>::default();
        let listener = socket.listener().context("share the control socket")?;
        let (end, counted) = (Arc::clone(&over), Arc::clone(&counters));
        let thread = thread::Builder::new()
            .name("control".into())
            .spawn(move || {
                privileges::keep_nothing();
                accept_until(&end, &listener, &asker, &counted);
            })
            .context("start the control server")?;
        Ok(Server {
            socket,
            counters,
            over,
            thread: Some(thread),
        })
    }

    /// What it counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Where it listens.
    pub fn path(&self) -> &std::path::Path {
        self.socket.path()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Only a full counter refuses, and then the thread is woken anyway.
        let _ = self.over.write(1);
        if let Some(thread) = self.thread.take() {
            // A panic in it was printed.
            let _ = thread.join();
        }
    }
}

fn accept_until(over: &EventFd, listener: &UnixListener, asker: &Asker, counters: &Arc<Counters>) {
    loop {
        let mut fds = [over.as_fd(), listener.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        if poll(&mut fds, PollTimeout::NONE).is_err() {
            continue; // interrupted
        }
        if fds[0].any().unwrap_or(false) {
            return;
        }
        match listener.accept() {
            Ok((stream, _)) => admit(stream, asker, counters),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => {
                tracing::warn!("accept on the control socket: {error}");
                // Out of descriptors: without a pause this would spin until one is free.
                thread::sleep(std::time::Duration::from_millis(100));
            }
        }
    }
}

/// Starts a thread for a connection, if there may be another.
fn admit(stream: UnixStream, asker: &Asker, counters: &Arc<Counters>) {
    let uid = match getsockopt(&stream, sockopt::PeerCredentials) {
        Ok(peer) => peer.uid(),
        Err(error) => {
            tracing::warn!("ask who connected to the control socket: {error}");
            return;
        }
    };
    let most = MAX_CLIENTS - if uid == 0 { 0 } else { ROOTS_CLIENTS };
    if counters.open.fetch_add(1, Ordering::Relaxed) >= most {
        counters.open.fetch_sub(1, Ordering::Relaxed);
        counters.refused.fetch_add(1, Ordering::Relaxed);
        client::refuse(
            stream,
            &format!("{most} connections are open already; close some"),
        );
        return;
    }
    let (asker, counted) = (asker.clone(), Arc::clone(counters));
    let serve = move || {
        if client::serve(stream, uid, &asker).is_err() {
            counted.cut_off.fetch_add(1, Ordering::Relaxed);
        }
        counted.open.fetch_sub(1, Ordering::Relaxed);
    };
    let thread = thread::Builder::new().name("control client".into());
    if let Err(error) = thread.spawn(serve) {
        counters.open.fetch_sub(1, Ordering::Relaxed);
        tracing::warn!("start a thread for a control connection: {error}");
    }
}
