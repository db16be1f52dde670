//! The HTTP server: metrics for a scraper, a page for a browser, both read-only.
//!
//! ```text
//! listener -> connections (how many, how long) -> guard (who may ask what) -> site (the answers)
//!                                                                             |  asks
//!                                                                          Pictures
//! ```
//!
//! One thread of its own with an asynchronous runtime; what asks [`Pictures`] runs on at most
//! [`MAX_PICTURES`] threads more, so a daemon that does not answer holds up nothing but the answer.
//! Deliberately absent: TLS, log-in, verbs that change anything. Whoever wants the page elsewhere
//! puts a reverse proxy with both in front.

mod connections;
mod guard;
mod query;
mod site;

use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use fairpath_history::snapshot::{Detail, Query, Snapshot};
use tokio::sync::oneshot;

use crate::metrics::MAX_SERIES;
use site::Site;

/// Connections at a time; more are closed at once and counted.
pub const MAX_CONNECTIONS: usize = 32;
/// Pictures that are waited for at a time.
pub const MAX_PICTURES: usize = 2;
/// How long an answer waits for its picture, in all; then it is 503.
pub const PICTURE_WAIT: Duration = Duration::from_secs(5);
/// How long shutting down waits for a picture that is being taken.
const STOP_WAIT: Duration = Duration::from_secs(1);

/// Whoever can be asked for pictures: the daemon's main loop. Calls may wait; they come from other
/// threads, at most [`MAX_PICTURES`] at a time.
pub trait Pictures: Send + Sync {
    /// The picture that `query` asks for.
    fn snapshot(&self, query: &Query) -> Snapshot;
    /// Everything of one class, lists of at most `limit`; `None` if there is no such class.
    fn detail(&self, class: &str, limit: usize) -> Option<Detail>;
}

/// What is served, and to whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerOptions {
    /// Names by which the server may be asked, beside `localhost` and addresses: requests for
    /// others are refused, so that no web site can rebind its name to this server.
    pub hosts: Vec<String>,
    /// Series of `/metrics` at most.
    pub max_series: usize,
    /// Whether the page and what it reads are served, or `/metrics` alone.
    pub page: bool,
}

impl Default for ServerOptions {
    fn default() -> ServerOptions {
        ServerOptions {
            hosts: Vec::new(),
            max_series: MAX_SERIES,
            page: true,
        }
    }
}

/// Why the server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The listener or the runtime was refused by the kernel.
    #[error(
        "serve HTTP: set up the listener and its runtime; remedy: check the limits on files and threads"
    )]
    SetUp(#[source] io::Error),
}

/// What the server did, since it was started.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Connections taken.
    pub connections: AtomicU64,
    /// Closed at once because there were [`MAX_CONNECTIONS`].
    pub connections_refused: AtomicU64,
    /// Answered in whatever way.
    pub requests: AtomicU64,
    /// Of those, refused: wrong host, verb, path or parameter.
    pub requests_refused: AtomicU64,
    /// Of those, given up because no picture came in time.
    pub requests_timed_out: AtomicU64,
}

impl Counters {
    fn named(&self) -> [(&'static str, &AtomicU64); 5] {
        [
            ("web_connections", &self.connections),
            ("web_connections_refused", &self.connections_refused),
            ("web_requests", &self.requests),
            ("web_requests_refused", &self.requests_refused),
            ("web_requests_timed_out", &self.requests_timed_out),
        ]
    }

    /// As `Snapshot::counters` holds them.
    pub(crate) fn read(&self) -> BTreeMap<String, u64> {
        let read =
            |(name, count): (&str, &AtomicU64)| (name.to_owned(), count.load(Ordering::Relaxed));
        self.named().into_iter().map(read).collect()
    }
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// A running server; dropping it closes the listener and every connection, within a second.
#[derive(Debug)]
pub struct Server {
    counters: Arc<Counters>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// What it did since it was started, by the names that `Snapshot::counters` uses; `/metrics`
    /// has them too.
    pub fn counters(&self) -> BTreeMap<String, u64> {
        self.counters.read()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It ends in any case; a panic of its own was printed by the thread.
            let _ = thread.join();
        }
    }
}

/// Serves `/metrics`, and with `options.page` the page, until the [`Server`] is dropped.
///
/// `listener` is bound already, so that its address and who may reach it are the caller's choice.
pub fn serve(
    listener: TcpListener,
    pictures: Arc<dyn Pictures>,
    options: ServerOptions,
) -> Result<Server, ServeError> {
    listener.set_nonblocking(true).map_err(ServeError::SetUp)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(MAX_PICTURES)
        .thread_name("fairpath-pictures")
        .build()
        .map_err(ServeError::SetUp)?;
    let counters = Arc::new(Counters::default());
    let site = Arc::new(Site::new(pictures, options, Arc::clone(&counters)));
    let listener = {
        let _context = runtime.enter();
        tokio::net::TcpListener::from_std(listener).map_err(ServeError::SetUp)?
    };
    let (stop, stopped) = oneshot::channel();
    let run = move || {
        runtime.spawn(connections::accept(listener, site));
        // Ends when the sender is dropped.
        let _ = runtime.block_on(stopped);
        runtime.shutdown_timeout(STOP_WAIT);
    };
    let thread = std::thread::Builder::new()
        .name("fairpath-web".to_owned())
        .spawn(run);
    Ok(Server {
        counters,
        stop: Some(stop),
        thread: Some(thread.map_err(ServeError::SetUp)?),
    })
}
