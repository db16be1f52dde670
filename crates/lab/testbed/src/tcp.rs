//! TCP connections of the test's own: many short ones, or one long-lived pair under its control.
//!
//! A socket always belongs to the namespace in which it was opened; only opening needs a thread inside.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::netns::{Netns, NetnsError};

/// Time after which a read, write or connect is given up.
const IO_DEADLINE: Duration = Duration::from_secs(20);
/// The interval at which a listening thread checks whether it shall end.
const STOP_LOOK_MS: u8 = 50;
/// Most connections that an [`EchoServer`] serves at once; more wait in the backlog.
const SERVER_THREADS: usize = 16;
/// Request and response sizes, big endian u32 each, before the request's bytes.
const HEADER_LEN: usize = 8;
/// Bytes written or read at once.
const CHUNK: usize = 16 * 1024;

/// A connection failed.
#[derive(Debug, thiserror::Error)]
pub enum TcpError {
    /// The namespace could not be entered.
    #[error("enter the namespace of a connection")]
    Netns(#[from] NetnsError),
    /// Listening failed.
    #[error("listen on port {port}")]
    Listen {
        /// The port.
        port: u16,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Connecting failed.
    #[error("connect to {to}")]
    Connect {
        /// Where to.
        to: SocketAddr,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Data did not pass.
    #[error("{operation} on the connection to {to}")]
    Transfer {
        /// The operation.
        operation: &'static str,
        /// The peer.
        to: SocketAddr,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// Answers each request of [`ShortConnections`] with the requested number of bytes; ends on drop.
#[derive(Debug)]
pub struct EchoServer {
    port: u16,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl EchoServer {
    /// Listens in `ns` on `port`, both families; returns when connections are accepted.
    pub fn start(ns: &Netns, port: u16) -> Result<EchoServer, TcpError> {
        let listener = Arc::new(listen(ns, Ipv6Addr::UNSPECIFIED.into(), port)?);
        let nonblocking = listener.set_nonblocking(true);
        nonblocking.map_err(|source| TcpError::Listen { port, source })?;
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (0..SERVER_THREADS).map(|_| {
            let (listener, stop) = (Arc::clone(&listener), Arc::clone(&stop));
            thread::spawn(move || serve(&listener, &stop))
        });
        Ok(EchoServer {
            port,
            threads: threads.collect(),
            stop,
        })
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for EchoServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic there has been printed, and the test sees missing answers.
            let _ = thread.join();
        }
    }
}

fn serve(listener: &TcpListener, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let mut ready = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        // An interrupted wait is a short one.
        let _ = poll(&mut ready, PollTimeout::from(STOP_LOOK_MS));
        if let Ok((stream, _)) = listener.accept() {
            // The client reports what goes wrong.
            let _ = answer(stream);
        }
    }
}

fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    prepare(&stream)?;
    let mut header = [0; HEADER_LEN];
    stream.read_exact(&mut header)?;
    let size = |at: usize| {
        let bytes = [header[at], header[at + 1], header[at + 2], header[at + 3]];
        u64::from(u32::from_be_bytes(bytes))
    };
    skip(&mut stream, size(0))?;
    fill(&mut stream, size(4))?;
    // The client closes first, so TIME_WAIT stays with it and the server's port is free at once.
    stream.read(&mut header).map(drop)
}

/// Many TCP connections, each with one request and one response.
#[derive(Clone, Copy, Debug)]
pub struct ShortConnections {
    /// Number of connections.
    pub connections: u64,
    /// Connections open at once.
    pub at_once: usize,
    /// Bytes of a request, without 8 of its header.
    pub request_bytes: u32,
    /// Bytes of a response.
    pub response_bytes: u32,
}

/// The results of short connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortReport {
    /// Connections that got their whole response.
    pub completed: u64,
    /// Connections that did not.
    pub failed: u64,
    /// Time from the first connect to the last close.
    pub elapsed: Duration,
}

impl ShortConnections {
    /// Makes them from `ns` to an [`EchoServer`], on threads inside the namespace.
    pub fn run(
        &self,
        ns: &Netns,
        ip: impl Into<IpAddr>,
        port: u16,
    ) -> Result<ShortReport, TcpError> {
        let to = SocketAddr::new(ip.into(), port);
        let (started, next, completed) = (Instant::now(), AtomicU64::new(0), AtomicU64::new(0));
        let work = || {
            while next.fetch_add(1, Ordering::Relaxed) < self.connections {
                if self.once(to).is_ok() {
                    completed.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        // Threads inherit the namespace of the thread that makes them.
        ns.enter(|| {
            thread::scope(|scope| {
                for _ in 0..self.at_once.max(1) {
                    scope.spawn(work);
                }
            });
        })?;
        let completed = completed.into_inner();
        let failed = self.connections - completed;
        Ok(ShortReport {
            completed,
            failed,
            elapsed: started.elapsed(),
        })
    }

    fn once(&self, to: SocketAddr) -> io::Result<()> {
        let mut stream = TcpStream::connect_timeout(&to, IO_DEADLINE)?;
        prepare(&stream)?;
        let mut header = [0; HEADER_LEN];
        header[..4].copy_from_slice(&self.request_bytes.to_be_bytes());
        header[4..].copy_from_slice(&self.response_bytes.to_be_bytes());
        stream.write_all(&header)?;
        fill(&mut stream, self.request_bytes.into())?;
        skip(&mut stream, self.response_bytes.into())
    }
}

/// One connection, both ends in the test's hands.
#[derive(Debug)]
pub struct TcpPair {
    /// The end that connected.
    pub client: TcpStream,
    /// The end that accepted.
    pub server: TcpStream,
}

impl TcpPair {
    /// Connects from `client` to `ip` in `server`, on a free port; `TCP_NODELAY` on both ends.
    pub fn connect(
        client: &Netns,
        server: &Netns,
        ip: impl Into<IpAddr>,
    ) -> Result<TcpPair, TcpError> {
        let ip = ip.into();
        let listener = listen(server, ip, 0)?;
        let failed = |source| TcpError::Listen { port: 0, source };
        let to = listener.local_addr().map_err(failed)?;
        let connected = client.enter(|| TcpStream::connect_timeout(&to, IO_DEADLINE))?;
        let client = connected.map_err(|source| TcpError::Connect { to, source })?;
        let (server, _) = accept(&listener).map_err(failed)?;
        for end in [&client, &server] {
            prepare(end).map_err(|source| TcpError::Transfer {
                operation: "prepare",
                to,
                source,
            })?;
        }
        Ok(TcpPair { client, server })
    }

    /// The client writes `bytes`; returns when the server has read them all.
    pub fn client_sends(&mut self, bytes: &[u8]) -> Result<(), TcpError> {
        pass(&mut self.client, &mut self.server, bytes)
    }

    /// The server writes `bytes`; returns when the client has read them all.
    pub fn server_sends(&mut self, bytes: &[u8]) -> Result<(), TcpError> {
        pass(&mut self.server, &mut self.client, bytes)
    }

    /// Address of the client's end.
    pub fn client_addr(&self) -> io::Result<SocketAddr> {
        self.client.local_addr()
    }

    /// Address of the server's end.
    pub fn server_addr(&self) -> io::Result<SocketAddr> {
        self.server.local_addr()
    }
}

/// Writes in pieces that any socket buffer holds, reading each before the next.
fn pass(from: &mut TcpStream, to: &mut TcpStream, bytes: &[u8]) -> Result<(), TcpError> {
    let peer = to
        .local_addr()
        .unwrap_or(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0));
    let failed = |operation| {
        move |source| TcpError::Transfer {
            operation,
            to: peer,
            source,
        }
    };
    for chunk in bytes.chunks(CHUNK) {
        from.write_all(chunk).map_err(failed("write"))?;
        skip(to, chunk.len() as u64).map_err(failed("read"))?;
    }
    Ok(())
}

/// Waits for a port that is in use: between fork and exec, a process that another thread starts holds a copy of every
/// socket, also of one that was closed here.
fn listen(ns: &Netns, ip: IpAddr, port: u16) -> Result<TcpListener, TcpError> {
    let deadline = Instant::now() + IO_DEADLINE;
    loop {
        match ns.enter(|| TcpListener::bind((ip, port)))? {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse && Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(STOP_LOOK_MS.into()));
            }
            listener => return listener.map_err(|source| TcpError::Listen { port, source }),
        }
    }
}

/// Accepts with a deadline: the client may be gone again.
fn accept(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    let mut ready = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
    let timeout = PollTimeout::try_from(IO_DEADLINE).unwrap_or(PollTimeout::MAX);
    match poll(&mut ready, timeout)? {
        0 => Err(io::ErrorKind::TimedOut.into()),
        _ => listener.accept(),
    }
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(IO_DEADLINE))?;
    stream.set_write_timeout(Some(IO_DEADLINE))
}

fn fill(stream: &mut TcpStream, bytes: u64) -> io::Result<()> {
    io::copy(&mut io::repeat(0x55).take(bytes), stream).map(drop)
}

fn skip(stream: &mut TcpStream, bytes: u64) -> io::Result<()> {
    match io::copy(&mut stream.take(bytes), &mut io::sink())? {
        all if all == bytes => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
