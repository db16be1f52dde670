//! The HTTP server: metrics for a scraper, a page for a browser, both read-only.
//!
//! ```text
//! listener -> connections (limits) -> guard (checks) -> site (answers)
//!                                                        |  requests
//!                                                     SnapshotSource
//! ```
//!
//! A separate thread runs an asynchronous runtime. Calls of [`SnapshotSource`] run on at most
//! [`MAX_SNAPSHOTS`] further threads, so that a stuck daemon delays only the requests that need it.
//! Deliberately absent: TLS, log-in, methods that change anything. A reverse proxy can add TLS and a
//! log-in.

mod connections;
mod guard;
mod query;
mod site;
mod view;

use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use fairpath_history::series::{Series, SeriesQuery};
use fairpath_history::snapshot::{Detail, Query, Snapshot};
use tokio::sync::oneshot;

use crate::metrics::MAX_SERIES;
use site::Site;

/// Maximum number of connections. A further one replaces the oldest one that waits for a request, or
/// is closed immediately. Both are counted.
pub const MAX_CONNECTIONS: usize = 32;
/// Maximum number of snapshots that are requested at the same time.
pub const MAX_SNAPSHOTS: usize = 2;
/// Time limit for the snapshot of an answer. After it the answer is 503.
pub const SNAPSHOT_WAIT: Duration = Duration::from_secs(5);
/// Time that a shutdown waits for a pending snapshot.
const STOP_WAIT: Duration = Duration::from_secs(1);

/// A source of snapshots: the daemon's main loop.
///
/// Calls may block. They come from other threads, at most [`MAX_SNAPSHOTS`] at a time.
pub trait SnapshotSource: Send + Sync {
    /// The snapshot for a query. `None` if the source does not answer, for example while it stops.
    fn snapshot(&self, query: &Query) -> Option<Snapshot>;
    /// The details of one class, with lists of at most `limit`. `None` if there is no such class.
    fn detail(&self, class: &str, limit: usize) -> Option<Detail>;
    /// The counts of a row over a long time. `None` if the source does not answer, a text if it has
    /// no such counts.
    fn series(&self, query: &SeriesQuery) -> Option<Result<Series, String>> {
        Some(Err(format!("no history of {:?} is kept here", query.name)))
    }
}

/// Options of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerOptions {
    /// Accepted host names, in addition to `localhost` and addresses. Requests for others are
    /// refused, so that no web site can rebind its name to this server.
    pub hosts: Vec<String>,
    /// Maximum number of series of `/metrics`.
    pub max_series: usize,
    /// True if the page and `/api/` are served, false for `/metrics` only.
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

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The kernel refused the listener or a thread.
    #[error(
        "serve HTTP: set up the listener and its runtime: check the limits on open files and threads"
    )]
    SetUp(#[source] io::Error),
}

/// Counters since the start of the server.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Accepted connections.
    pub connections: AtomicU64,
    /// Connections closed because of [`MAX_CONNECTIONS`].
    pub connections_refused: AtomicU64,
    /// Connections without a request, closed for a new one.
    pub connections_replaced: AtomicU64,
    /// Requests, with any answer.
    pub requests: AtomicU64,
    /// Refused requests: wrong host, method, path or parameter.
    pub requests_refused: AtomicU64,
    /// Requests without a snapshot in time.
    pub requests_timed_out: AtomicU64,
    /// Requests for metrics.
    pub scrapes: AtomicU64,
}

impl Counters {
    fn named(&self) -> [(&'static str, &AtomicU64); 7] {
        [
            ("web_connections", &self.connections),
            ("web_connections_refused", &self.connections_refused),
            ("web_connections_replaced", &self.connections_replaced),
            ("web_requests", &self.requests),
            ("web_requests_refused", &self.requests_refused),
            ("web_requests_timed_out", &self.requests_timed_out),
            ("web_scrapes", &self.scrapes),
        ]
    }

    /// In the form of `Snapshot::counters`.
    pub(crate) fn read(&self) -> BTreeMap<String, u64> {
        let read =
            |(name, count): (&str, &AtomicU64)| (name.to_owned(), count.load(Ordering::Relaxed));
        self.named().into_iter().map(read).collect()
    }
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// A running server. Dropping it closes the listener and every connection within a second.
#[derive(Debug)]
pub struct Server {
    counters: Arc<Counters>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Counters since the start, with the names of `Snapshot::counters`. `/metrics` includes them.
    pub fn counters(&self) -> BTreeMap<String, u64> {
        self.counters.read()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The thread has printed the message of a panic.
            let _ = thread.join();
        }
    }
}

/// Serves `/metrics`, and with `options.page` the page, until the [`Server`] is dropped.
///
/// The caller binds `listener`, and so chooses the address.
pub fn serve(
    listener: TcpListener,
    source: Arc<dyn SnapshotSource>,
    options: ServerOptions,
) -> Result<Server, ServeError> {
    listener.set_nonblocking(true).map_err(ServeError::SetUp)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(MAX_SNAPSHOTS)
        .thread_name("fairpath-snap")
        .build()
        .map_err(ServeError::SetUp)?;
    let counters = Arc::new(Counters::default());
    let site = Arc::new(Site::new(source, options, Arc::clone(&counters)));
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
