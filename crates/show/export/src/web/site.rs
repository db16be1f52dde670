//! The answers: metrics, the files of the page, and the data of the page.

use std::convert::Infallible;
use std::sync::Arc;

use fairpath_history::snapshot::Query;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::{Request, Response, StatusCode};
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::guard::{self, Refusal};
use super::{
    Counters, MAX_SNAPSHOTS, SNAPSHOT_WAIT, ServerOptions, SnapshotSource, count, query, view,
};
use crate::metrics::{Exposition, MetricsOptions, openmetrics};

/// The files of the page: path, type, content.
const FILES: [(&str, &str, &str); 12] = [
    (
        "/",
        "text/html; charset=utf-8",
        include_str!("../page/index.html"),
    ),
    (
        "/style.css",
        "text/css; charset=utf-8",
        include_str!("../page/style.css"),
    ),
    ("/page.js", JAVASCRIPT, include_str!("../page/page.js")),
    ("/table.js", JAVASCRIPT, include_str!("../page/table.js")),
    (
        "/overview.js",
        JAVASCRIPT,
        include_str!("../page/overview.js"),
    ),
    ("/rules.js", JAVASCRIPT, include_str!("../page/rules.js")),
    ("/series.js", JAVASCRIPT, include_str!("../page/series.js")),
    (
        "/timeline.js",
        JAVASCRIPT,
        include_str!("../page/timeline.js"),
    ),
    ("/detail.js", JAVASCRIPT, include_str!("../page/detail.js")),
    ("/charts.js", JAVASCRIPT, include_str!("../page/charts.js")),
    (
        "/numbers.js",
        JAVASCRIPT,
        include_str!("../page/numbers.js"),
    ),
    (
        "/icon.svg",
        "image/svg+xml",
        include_str!("../page/icon.svg"),
    ),
];
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const JSON: &str = "application/json";
const PLAIN: &str = "text/plain; charset=utf-8";

type Answer = Response<Full<Bytes>>;

/// The data that answers need.
pub(super) struct Site {
    source: Arc<dyn SnapshotSource>,
    options: ServerOptions,
    pub(super) counters: Arc<Counters>,
    /// A permit is held until a snapshot is complete, even if its request has timed out.
    permits: Arc<Semaphore>,
}

impl Site {
    pub(super) fn new(
        source: Arc<dyn SnapshotSource>,
        options: ServerOptions,
        counters: Arc<Counters>,
    ) -> Site {
        Site {
            source,
            options,
            counters,
            permits: Arc::new(Semaphore::new(MAX_SNAPSHOTS)),
        }
    }

    /// Answers a request. A refusal is an answer too.
    pub(super) async fn answer<B>(&self, request: Request<B>) -> Result<Answer, Infallible> {
        count(&self.counters.requests);
        let answer = match guard::check(&request, &self.options.hosts) {
            Ok(()) => self.route(&request).await,
            Err(refusal) => Err(refusal),
        };
        let mut answer = answer.unwrap_or_else(|refusal| self.refuse(refusal));
        guard::protect(answer.headers_mut());
        Ok(answer)
    }

    async fn route<B>(&self, request: &Request<B>) -> Result<Answer, Refusal> {
        let path = request.uri().path();
        let parameters = request.uri().query().unwrap_or_default();
        match path {
            "/metrics" => self.metrics(request).await,
            _ if !self.options.page => Err(not_found(path)),
            "/api/snapshot" => {
                let query = query::snapshot(parameters).map_err(bad_request)?;
                let snapshot = self.read(move |source| source.snapshot(&query)).await?;
                json(&snapshot.ok_or_else(no_snapshot)?)
            }
            "/api/page" => {
                let wanted = query::page(parameters).map_err(bad_request)?;
                let query = wanted.query.clone();
                let snapshot = self.read(move |source| source.snapshot(&query)).await?;
                json(&view::View::new(
                    &snapshot.ok_or_else(no_snapshot)?,
                    &wanted,
                ))
            }
            "/api/detail" => {
                let query::DetailQuery {
                    class,
                    limit,
                    brief,
                } = query::detail(parameters).map_err(bad_request)?;
                let name = class.clone();
                let mut detail = self.read(move |source| source.detail(&name, limit)).await?;
                if let Some(detail) = detail.as_mut().filter(|_| brief) {
                    let old = detail.recent.len().saturating_sub(query::BRIEF_POINTS);
                    detail.recent.drain(..old);
                    detail.day.clear();
                }
                let none = || {
                    Refusal(
                        StatusCode::NOT_FOUND,
                        format!("no class {class:?}: it was removed, or its name is wrong"),
                    )
                };
                json(&view::JudgedDetail::new(detail.ok_or_else(none)?))
            }
            "/api/history" => {
                let query = query::history(parameters).map_err(bad_request)?;
                query
                    .step()
                    .map_err(|error| bad_request(error.to_string()))?;
                let series = self.read(move |source| source.series(&query)).await?;
                let series = series.ok_or_else(no_snapshot)?;
                json(&series.map_err(|text| Refusal(StatusCode::NOT_FOUND, text))?)
            }
            _ => {
                let file = FILES.iter().find(|(at, _, _)| *at == path);
                let (_, kind, content) = file.ok_or_else(|| not_found(path))?;
                Ok(answer(
                    StatusCode::OK,
                    kind,
                    Bytes::from_static(content.as_bytes()),
                ))
            }
        }
    }

    async fn metrics<B>(&self, request: &Request<B>) -> Result<Answer, Refusal> {
        count(&self.counters.scrapes);
        let accept = request
            .headers()
            .get(ACCEPT)
            .and_then(|accept| accept.to_str().ok());
        let options = MetricsOptions {
            max_series: self.options.max_series,
            exposition: Exposition::accepted(accept.unwrap_or_default()),
        };
        let kind = options.exposition.content_type();
        let counters = self.counters.read();
        let metrics = move |source: &dyn SnapshotSource| {
            let mut snapshot = source.snapshot(&Query {
                histograms: true,
                alerts: true,
                exported_rules: true,
                ..Query::default()
            })?;
            // The daemon's sums include those of its other addresses.
            for (name, count) in counters {
                snapshot.counters.entry(name).or_insert(count);
            }
            Some(openmetrics(&snapshot, &options))
        };
        let text = self.read(metrics).await?.ok_or_else(no_snapshot)?;
        Ok(answer(StatusCode::OK, kind, text.into()))
    }

    /// Calls the source on a separate thread, so that it delays no other request.
    async fn read<T: Send + 'static>(
        &self,
        call: impl FnOnce(&dyn SnapshotSource) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let permits = Arc::clone(&self.permits);
        let source = Arc::clone(&self.source);
        let answer = async {
            let permit = permits.acquire_owned().await.ok()?;
            let task = tokio::task::spawn_blocking(move || {
                let result = call(&*source);
                drop(permit);
                result
            });
            task.await.ok()
        };
        let answer = timeout(SNAPSHOT_WAIT, answer).await;
        answer.ok().flatten().ok_or_else(|| {
            count(&self.counters.requests_timed_out);
            let text = format!(
                "the daemon did not answer within {} s: see its log",
                SNAPSHOT_WAIT.as_secs()
            );
            Refusal(StatusCode::SERVICE_UNAVAILABLE, text)
        })
    }

    fn refuse(&self, Refusal(status, text): Refusal) -> Answer {
        if status.is_client_error() {
            count(&self.counters.requests_refused);
        }
        let mut answer = answer(status, PLAIN, format!("{text}\n").into());
        if status == StatusCode::METHOD_NOT_ALLOWED {
            answer
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        }
        answer
    }
}

/// Without a snapshot, zeros would look like measurements.
fn no_snapshot() -> Refusal {
    let text = "the daemon has no snapshot now, because it starts or stops: try again";
    Refusal(StatusCode::SERVICE_UNAVAILABLE, text.to_owned())
}

fn not_found(path: &str) -> Refusal {
    Refusal(StatusCode::NOT_FOUND, format!("no page {path}"))
}

fn bad_request(text: String) -> Refusal {
    Refusal(StatusCode::BAD_REQUEST, text)
}

fn json(value: &impl Serialize) -> Result<Answer, Refusal> {
    let failed = |error| {
        let text = format!("the snapshot cannot be written as JSON: {error}");
        Refusal(StatusCode::INTERNAL_SERVER_ERROR, text)
    };
    let text = serde_json::to_vec(value).map_err(failed)?;
    Ok(answer(StatusCode::OK, JSON, text.into()))
}

fn answer(status: StatusCode, kind: &'static str, content: Bytes) -> Answer {
    let mut answer = Response::new(Full::new(content));
    *answer.status_mut() = status;
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}
