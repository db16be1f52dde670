//! Limits connections in number, size of request heads and duration.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::site::Site;
use super::{MAX_CONNECTIONS, count};

/// Maximum size of a request's head, bytes.
const MAX_HEAD_BYTES: usize = 16 * 1024;
const MAX_HEADERS: usize = 64;
/// Time limit for a request's head, and for the beginning of the next request.
const HEAD_WAIT: Duration = Duration::from_secs(10);
/// Age at which a connection is shut down gracefully, so that a slow reader cannot keep it.
const CONNECTION_AGE: Duration = Duration::from_secs(120);
/// Further time after which it is closed.
const CONNECTION_GRACE: Duration = Duration::from_secs(10);
/// Pause after a failure to accept, for example without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections until its task is dropped.
pub(super) async fn accept(listener: TcpListener, site: Arc<Site>) {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else {
            count(&site.counters.connections_refused);
            continue;
        };
        count(&site.counters.connections);
        let site = Arc::clone(&site);
        tokio::spawn(async move {
            serve(stream, site).await;
            drop(permit);
        });
    }
}

/// Answers the requests of one connection. Its errors concern only the client and are ignored.
async fn serve(stream: TcpStream, site: Arc<Site>) {
    let answer = service_fn(move |request| {
        let site = Arc::clone(&site);
        async move { site.answer(request).await }
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
