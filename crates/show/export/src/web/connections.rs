//! Connections: how many at a time, how large a request's head, how long each may last.

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

/// A request's head, bytes.
const MAX_HEAD_BYTES: usize = 16 * 1024;
const MAX_HEADERS: usize = 64;
/// For a request's head to arrive, and for the next one to begin.
const HEAD_WAIT: Duration = Duration::from_secs(10);
/// A connection is asked to end at this age: whoever reads slowly does not stay for ever.
const CONNECTION_AGE: Duration = Duration::from_secs(120);
/// And ended after this much more.
const CONNECTION_GRACE: Duration = Duration::from_secs(10);
/// Before trying again when no connection can be taken (no file descriptors left).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Takes connections until its task is dropped.
pub(super) async fn accept(listener: TcpListener, site: Arc<Site>) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            count(&site.counters.connections_refused);
            continue;
        };
        count(&site.counters.connections);
        let site = Arc::clone(&site);
        tokio::spawn(async move {
            converse(stream, site).await;
            drop(place);
        });
    }
}

/// Answers the requests of one connection. Its errors are the client's: nobody here can mend them.
async fn converse(stream: TcpStream, site: Arc<Site>) {
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
