//! The server and raw HTTP clients: limits, refusals, headers, shutdown.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use fairpath_export::{MAX_CONNECTIONS, Server, ServerOptions, SnapshotSource, serve};
use fairpath_history::snapshot::{Detail, Query, Snapshot};

use crate::made::{ODD, Router};

/// A time limit that ends a hanging test.
const DEADLINE: Duration = Duration::from_secs(30);

impl SnapshotSource for Router {
    fn snapshot(&self, query: &Query) -> Option<Snapshot> {
        Some(self.answer(query))
    }

    fn detail(&self, class: &str, limit: usize) -> Option<Detail> {
        Router::detail(self, class, limit)
    }
}

/// A server on a free port, for `source`.
pub fn start(source: Arc<dyn SnapshotSource>, options: ServerOptions) -> (Server, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (serve(listener, source, options).unwrap(), address)
}

fn router() -> (Server, SocketAddr) {
    let router = Arc::new(Router::new(1_700_000_000_000_000_000));
    start(router, ServerOptions::default())
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream
}

/// Sends `head` and reads until the server closes.
pub fn exchange(address: SocketAddr, head: &str) -> String {
    let mut stream = connect(address);
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8(answer).unwrap()
}

/// Status and body of a GET.
pub fn get(address: SocketAddr, target: &str) -> (u16, String) {
    let head = format!("GET {target} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    let answer = exchange(address, &head);
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("{answer:?}"));
    (head[9..12].parse().unwrap(), body.to_owned())
}

#[test]
fn every_answer_forbids_outside_content_and_caching() {
    let (_server, address) = router();
    for target in ["/", "/metrics", "/api/snapshot", "/nowhere"] {
        let answer = exchange(
            address,
            &format!("GET {target} HTTP/1.0\r\nHost: localhost\r\n\r\n"),
        );
        let head = answer.split("\r\n\r\n").next().unwrap().to_lowercase();
        for header in [
            "content-security-policy: default-src 'none';",
            "x-content-type-options: nosniff",
            "x-frame-options: deny",
            "referrer-policy: no-referrer",
            "cross-origin-resource-policy: same-origin",
            "cache-control: no-store",
        ] {
            assert!(head.contains(header), "{target}: {header}\n{head}");
        }
        assert!(!head.contains("access-control"), "{target}");
    }
}

#[test]
fn the_page_refers_to_no_other_server() {
    let (_server, address) = router();
    for target in [
        "/",
        "/style.css",
        "/page.js",
        "/table.js",
        "/overview.js",
        "/series.js",
        "/timeline.js",
        "/detail.js",
        "/charts.js",
        "/numbers.js",
        "/icon.svg",
    ] {
        let (status, body) = get(address, target);
        assert_eq!(status, 200, "{target}");
        let body = body.replace("http://www.w3.org/2000/svg", "");
        assert!(!body.contains("://") && !body.contains("\"//"), "{target}");
        assert!(
            !body.contains("style=\"") && !body.contains(" onclick="),
            "{target}"
        );
    }
}

#[test]
fn the_accept_header_selects_the_metrics_format() {
    let (_server, address) = router();
    let request = |accept: &str| {
        exchange(
            address,
            &format!("GET /metrics HTTP/1.0\r\nHost: localhost\r\n{accept}\r\n"),
        )
    };
    let open =
        request("Accept: application/openmetrics-text;version=1.0.0;q=0.75,text/plain;q=0.5\r\n");
    assert!(
        open.contains("content-type: application/openmetrics-text; version=1.0.0")
            && open.ends_with("# EOF\n")
    );
    let classic = request("");
    assert!(
        classic.contains("content-type: text/plain; version=0.0.4") && !classic.contains("# EOF")
    );
    assert!(classic.contains("fairpath_monitor_web_requests_total 2\n"));
    assert!(classic.contains("fairpath_monitor_web_scrapes_total 2\n"));
}

#[test]
fn snapshots_and_details_are_valid_json() {
    let (_server, address) = router();
    let (status, body) = get(
        address,
        "/api/snapshot?sort=inside_p95&limit=3&filter=sub-1",
    );
    let snapshot: Snapshot = serde_json::from_str(&body).unwrap();
    assert_eq!((status, snapshot.rows.len()), (200, 3));
    assert!(
        snapshot
            .rows
            .is_sorted_by(|a, b| a.inside.p95_rtt_ns >= b.inside.p95_rtt_ns)
    );
    let listed = |target: &str| {
        let (_, body) = get(address, target);
        serde_json::from_str::<Snapshot>(&body)
            .unwrap()
            .alerts
            .len()
    };
    assert_eq!(listed("/api/snapshot?limit=1"), 0);
    assert!(listed("/api/snapshot?limit=1&alerts=1") > 1, "of all rows");
    let (_, body) = get(address, "/api/snapshot?limit=1&rules=2");
    let snapshot: Snapshot = serde_json::from_str(&body).unwrap();
    let rules = snapshot.rules.expect("requested");
    assert_eq!((rules.rules.len(), rules.exported.len()), (2, 0));
    let class: String = form_urlencoded::byte_serialize(ODD.as_bytes()).collect();
    let (status, body) = get(address, &format!("/api/detail?class={class}&limit=2"));
    let detail: Detail = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (status, detail.row.name.as_str(), detail.worst_remotes.len()),
        (200, ODD, 2)
    );
    assert_eq!(get(address, "/api/detail?class=unknown").0, 404);
    assert_eq!(get(address, "/api/snapshot?sort=speed").0, 400);
}

#[test]
fn head_has_a_length_and_no_body() {
    let (_server, address) = router();
    let answer = exchange(
        address,
        "HEAD /style.css HTTP/1.0\r\nHost: localhost\r\n\r\n",
    );
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(
        head.starts_with("HTTP/1.0 200") && !head.contains("content-length: 0"),
        "{head}"
    );
    assert_eq!(body, "");
}

#[test]
fn other_methods_hosts_and_paths_are_refused() {
    let (server, address) = router();
    for (head, status) in [
        (
            "POST /api/snapshot HTTP/1.0\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}",
            "405",
        ),
        ("GET / HTTP/1.0\r\nHost: evil.example\r\n\r\n", "421"),
        (
            "GET http://evil.example/ HTTP/1.0\r\nHost: localhost\r\n\r\n",
            "421",
        ),
        ("GET / HTTP/1.0\r\n\r\n", "400"),
        (
            "GET /../etc/passwd HTTP/1.0\r\nHost: localhost\r\n\r\n",
            "404",
        ),
    ] {
        let answer = exchange(address, head);
        assert_eq!(&answer[9..12], status, "{head}");
    }
    assert_eq!(server.counters()["web_requests_refused"], 5);
}

#[test]
fn an_oversized_request_head_is_refused() {
    let (_server, address) = router();
    let head = format!(
        "GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n",
        "x".repeat(20_000)
    );
    assert!(exchange(address, &head).starts_with("HTTP/1.1 431"));
    let many: String = (0..100).map(|i| format!("X{i}: 1\r\n")).collect();
    let head = format!("GET / HTTP/1.1\r\nHost: localhost\r\n{many}\r\n");
    assert!(exchange(address, &head).starts_with("HTTP/1.1 431"));
}

#[test]
fn an_unfinished_request_is_closed() {
    let (_server, address) = router();
    let (mut silent, mut slow) = (connect(address), connect(address));
    slow.write_all(b"GET / HTTP/1.1\r\nHost: local").unwrap();
    for stream in [&mut silent, &mut slow] {
        // Shorter than the limit of a server with default settings.
        stream.set_read_timeout(Some(DEADLINE * 2 / 3)).unwrap();
        let mut answer = Vec::new();
        // Fails at the deadline if the connection is still open.
        stream.read_to_end(&mut answer).unwrap();
        assert!(!answer.starts_with(b"HTTP/1.1 200"));
    }
}

/// Clients that send nothing, and one that sends its head byte by byte, hold all connections.
#[test]
fn silent_clients_cannot_lock_out_a_scrape() {
    let (server, address) = router();
    let mut silent: Vec<TcpStream> = (0..MAX_CONNECTIONS).map(|_| connect(address)).collect();
    silent[0].write_all(b"GET / HT").unwrap();
    for _ in 0..3 {
        let answer = exchange(address, "GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
    }
    let counters = server.counters();
    assert_eq!(counters["web_connections_refused"], 0);
    assert!(counters["web_connections_replaced"] >= 1, "{counters:?}");
    // The oldest one has ended, the newest one is still answered.
    assert!(matches!(silent[0].read(&mut [0]), Ok(0) | Err(_)));
    let newest = silent.last_mut().unwrap();
    newest
        .write_all(b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    newest.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
}

/// A further connection is closed if every open one waits for its answer.
#[test]
fn connections_above_the_limit_are_closed() {
    let stuck = Arc::new(Stuck::default());
    let (server, address) = start(Arc::clone(&stuck) as _, ServerOptions::default());
    let mut waiting: Vec<TcpStream> = (0..MAX_CONNECTIONS).map(|_| connect(address)).collect();
    for stream in &mut waiting {
        let head = b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n";
        stream.write_all(head).unwrap();
    }
    let requests = || server.counters()["web_requests"] == MAX_CONNECTIONS as u64;
    wait_until(requests);
    let mut refused = connect(address);
    assert!(
        matches!(refused.read(&mut [0]), Ok(0) | Err(_)),
        "closed without an answer"
    );
    let counters = server.counters();
    assert_eq!(counters["web_connections"], MAX_CONNECTIONS as u64);
    assert_eq!(counters["web_connections_refused"], 1);
    assert_eq!(counters["web_connections_replaced"], 0);
    stuck.release();
}

fn wait_until(condition: impl Fn() -> bool) {
    let begin = std::time::Instant::now();
    while !condition() {
        assert!(begin.elapsed() < DEADLINE, "still waiting");
        std::thread::yield_now();
    }
}

/// Returns no snapshot until it is released.
#[derive(Default)]
struct Stuck {
    free: Mutex<bool>,
    changed: Condvar,
}

impl Stuck {
    fn release(&self) {
        *self.free.lock().unwrap() = true;
        self.changed.notify_all();
    }
}

impl SnapshotSource for Stuck {
    fn snapshot(&self, _: &Query) -> Option<Snapshot> {
        let free = self.free.lock().unwrap();
        drop(self.changed.wait_while(free, |free| !*free).unwrap());
        Some(Snapshot::default())
    }

    fn detail(&self, _: &str, _: usize) -> Option<Detail> {
        None
    }
}

#[test]
fn a_stuck_daemon_delays_no_other_request() {
    let stuck = Arc::new(Stuck::default());
    let (server, address) = start(stuck.clone(), ServerOptions::default());
    let waiting: Vec<_> = (0..5)
        .map(|_| std::thread::spawn(move || get(address, "/metrics").0))
        .collect();
    assert_eq!(get(address, "/").0, 200);
    for thread in waiting {
        assert_eq!(thread.join().unwrap(), 503);
    }
    assert_eq!(server.counters()["web_requests_timed_out"], 5);
    stuck.release();
    assert_eq!(get(address, "/metrics").0, 200, "later requests succeed");
}

/// A daemon that stops.
struct Silent;

impl SnapshotSource for Silent {
    fn snapshot(&self, _: &Query) -> Option<Snapshot> {
        None
    }

    fn detail(&self, _: &str, _: usize) -> Option<Detail> {
        None
    }
}

/// A scraper must not take zeros for measurements.
#[test]
fn without_a_snapshot_there_are_no_metrics() {
    let (_server, address) = start(Arc::new(Silent), ServerOptions::default());
    for target in ["/metrics", "/api/snapshot"] {
        let (status, text) = get(address, target);
        assert_eq!(status, 503, "{text}");
        assert!(text.contains("no snapshot now"), "{text}");
    }
}

/// A daemon with two addresses, which has refused seven requests.
struct Sums;

impl SnapshotSource for Sums {
    fn snapshot(&self, _: &Query) -> Option<Snapshot> {
        Some(Snapshot {
            counters: [("web_requests_refused".to_owned(), 7)].into(),
            ..Snapshot::default()
        })
    }

    fn detail(&self, _: &str, _: usize) -> Option<Detail> {
        None
    }
}

#[test]
fn metrics_show_the_refusals_of_all_addresses() {
    let (_server, address) = start(Arc::new(Sums), ServerOptions::default());
    assert_eq!(get(address, "/nowhere").0, 404);
    let (_, text) = get(address, "/metrics");
    assert!(
        text.contains("fairpath_monitor_web_requests_refused_total 7\n"),
        "{text}"
    );
    assert!(
        text.contains("fairpath_monitor_web_requests_total 2\n"),
        "{text}"
    );
}

#[test]
fn without_the_page_only_metrics_are_served() {
    let router = Arc::new(Router::new(1_700_000_000_000_000_000));
    let options = ServerOptions {
        page: false,
        ..ServerOptions::default()
    };
    let (_server, address) = start(router, options);
    assert_eq!(get(address, "/metrics").0, 200);
    assert_eq!(
        (get(address, "/").0, get(address, "/api/snapshot").0),
        (404, 404)
    );
}

#[test]
fn dropping_the_server_closes_its_connections() {
    let (server, address) = router();
    let mut idle = connect(address);
    assert_eq!(get(address, "/").0, 200);
    drop(server);
    assert!(matches!(idle.read(&mut [0]), Ok(0) | Err(_)));
    TcpListener::bind(address).unwrap();
}
