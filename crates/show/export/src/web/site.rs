//! The answers: metrics, the page's files, and what the page reads.

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
use super::{Counters, MAX_PICTURES, PICTURE_WAIT, Pictures, ServerOptions, count, query};
use crate::metrics::{Exposition, MetricsOptions, openmetrics};

/// The page's files: path, type, content.
const FILES: [(&str, &str, &str); 8] = [
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

/// Everything that answers need.
pub(super) struct Site {
    pictures: Arc<dyn Pictures>,
    options: ServerOptions,
    pub(super) counters: Arc<Counters>,
    /// Held while a picture is taken, also when nobody waits for it any more.
    cameras: Arc<Semaphore>,
}

impl Site {
    pub(super) fn new(
        pictures: Arc<dyn Pictures>,
        options: ServerOptions,
        counters: Arc<Counters>,
    ) -> Site {
        Site {
            pictures,
            options,
            counters,
            cameras: Arc::new(Semaphore::new(MAX_PICTURES)),
        }
    }

    /// Answers a request; refusals are answers too.
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
            _ if !self.options.page => Err(nothing_at(path)),
            "/api/snapshot" => {
                let query = query::snapshot(parameters).map_err(bad_request)?;
                let snapshot = self.picture(move |from| from.snapshot(&query)).await?;
                json(&snapshot)
            }
            "/api/detail" => {
                let (class, limit) = query::detail(parameters).map_err(bad_request)?;
                let name = class.clone();
                let detail = self.picture(move |from| from.detail(&name, limit)).await?;
                let none = || {
                    Refusal(
                        StatusCode::NOT_FOUND,
                        format!("there is no class {class:?} (any more)"),
                    )
                };
                json(&detail.ok_or_else(none)?)
            }
            _ => {
                let file = FILES.iter().find(|(at, _, _)| *at == path);
                let (_, kind, content) = file.ok_or_else(|| nothing_at(path))?;
                Ok(answer(
                    StatusCode::OK,
                    kind,
                    Bytes::from_static(content.as_bytes()),
                ))
            }
        }
    }

    async fn metrics<B>(&self, request: &Request<B>) -> Result<Answer, Refusal> {
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
        let metrics = move |from: &dyn Pictures| {
            let mut snapshot = from.snapshot(&Query {
                histograms: true,
                ..Query::default()
            });
            snapshot.counters.extend(counters);
            openmetrics(&snapshot, &options)
        };
        let text = self.picture(metrics).await?;
        Ok(answer(StatusCode::OK, kind, text.into()))
    }

    /// Takes a picture on a thread of its own, where waiting holds up nobody else.
    async fn picture<T: Send + 'static>(
        &self,
        take: impl FnOnce(&dyn Pictures) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let cameras = Arc::clone(&self.cameras);
        let pictures = Arc::clone(&self.pictures);
        let taken = async {
            let camera = cameras.acquire_owned().await.ok()?;
            let shot = tokio::task::spawn_blocking(move || {
                let picture = take(&*pictures);
                drop(camera);
                picture
            });
            shot.await.ok()
        };
        let taken = timeout(PICTURE_WAIT, taken).await;
        taken.ok().flatten().ok_or_else(|| {
            count(&self.counters.requests_timed_out);
            let text = format!(
                "the monitor gave no picture within {} s; remedy: see its log",
                PICTURE_WAIT.as_secs()
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

fn nothing_at(path: &str) -> Refusal {
    Refusal(
        StatusCode::NOT_FOUND,
        format!("nothing is served at {path}"),
    )
}

fn bad_request(text: String) -> Refusal {
    Refusal(StatusCode::BAD_REQUEST, text)
}

fn json(value: &impl Serialize) -> Result<Answer, Refusal> {
    let unwritable = |error| {
        let text = format!("the picture cannot be written as JSON: {error}");
        Refusal(StatusCode::INTERNAL_SERVER_ERROR, text)
    };
    let text = serde_json::to_vec(value).map_err(unwritable)?;
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
