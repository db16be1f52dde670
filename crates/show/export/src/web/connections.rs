//! Limits connections in number, size of request heads and duration.
//!
//! A new connection takes the place of the oldest one that waits for a request, if all are in use.
//! So clients that send nothing cannot lock out a scraper.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::site::Site;
use super::{MAX_CONNECTIONS, count};

/// Maximum size of a request's head, bytes.
const MAX_HEAD_BYTES: usize = 16 * 1024;
const MAX_HEADERS: usize = 64;
/// Time limit for a request's head, and for the beginning of the next request.
const HEAD_WAIT: Duration = Duration::from_secs(5);
/// Age at which a connection is shut down gracefully, so that a slow reader cannot keep it.
const CONNECTION_AGE: Duration = Duration::from_secs(120);
/// Further time after which it is closed.
const CONNECTION_GRACE: Duration = Duration::from_secs(10);
/// Pause after a failure to accept, for example without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A connection that may have to end for another one.
struct Open {
    /// Requests that are being answered.
    answering: Arc<AtomicU32>,
    task: AbortHandle,
}

/// Open connections, oldest first.
struct Connections {
    permits: Arc<Semaphore>,
    open: VecDeque<Open>,
}

impl Connections {
    /// A place for a new connection, if necessary that of the oldest one without a request.
    async fn place(&mut self, site: &Site) -> Option<OwnedSemaphorePermit> {
        self.open.retain(|open| !open.task.is_finished());
        if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            return Some(permit);
        }
        let waits = |open: &Open| open.answering.load(Ordering::Relaxed) == 0;
        let at = self.open.iter().position(waits)?;
        // The task has the permit until it is dropped.
        self.open.remove(at)?.task.abort();
        count(&site.counters.connections_replaced);
        Arc::clone(&self.permits).acquire_owned().await.ok()
    }
}

/// Accepts connections until its task is dropped.
pub(super) async fn accept(listener: TcpListener, site: Arc<Site>) {
    let mut connections = Connections {
        permits: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
        open: VecDeque::new(),
    };
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Some(permit) = connections.place(&site).await else {
            count(&site.counters.connections_refused);
            continue;
        };
        count(&site.counters.connections);
        let (site, answering) = (Arc::clone(&site), Arc::<AtomicU32>::default());
        let of_task = Arc::clone(&answering);
        let task = tokio::spawn(async move {
            serve(stream, site, of_task).await;
            drop(permit);
        });
        let task = task.abort_handle();
        connections.open.push_back(Open { answering, task });
    }
}

/// Answers the requests of one connection. Its errors concern only the client and are ignored.
async fn serve(stream: TcpStream, site: Arc<Site>, answering: Arc<AtomicU32>) {
    let answer = service_fn(move |request| {
        let (site, answering) = (Arc::clone(&site), Arc::clone(&answering));
        async move {
            answering.fetch_add(1, Ordering::Relaxed);
            let answer = site.answer(request).await;
            answering.fetch_sub(1, Ordering::Relaxed);
            answer
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WAIT)
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(stream), answer);
    let mut connection = pin!(connection);
    if timeout(CONNECTION_AGE, connection.as_mut()).await.is_err() {
        connection.as_mut().graceful_shutdown();
        let _ = timeout(CONNECTION_GRACE, connection).await;
    }
}
