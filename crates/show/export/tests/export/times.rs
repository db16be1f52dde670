//! Charts over time in a browser: one axis, zoom, moving, and the history of weeks.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use fairpath_export::ServerOptions;
use serde_json::json;

use crate::browser::Browser;
use crate::made::Router;
use crate::needs::command;
use crate::web::start;

const NOON: u64 = 1_762_171_200_000_000_000;
const NOON_S: u64 = NOON / 1_000_000_000;
const DAY_S: u64 = 86_400;
/// Time that the test history covers.
const STORED_S: u64 = 90 * DAY_S;

/// A request for history: since, until, step, in seconds.
type Queries = Arc<Mutex<Vec<[u64; 3]>>>;

/// A server in front of `inner` that has a history.
fn with_history(inner: SocketAddr, requests: &Queries) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let requests = Arc::clone(requests);
    // The thread ends with the process of the test.
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let requests = Arc::clone(&requests);
            // A browser may end a connection at any time.
            std::thread::spawn(move || forward(stream, inner, &requests).ok());
        }
    });
    address
}

fn forward(mut stream: TcpStream, inner: SocketAddr, requests: &Queries) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    while lines
        .next()
        .transpose()?
        .is_some_and(|line| !line.is_empty())
    {}
    let target = first.split(' ').nth(1).unwrap_or("/");
    if let Some(parameters) = target.strip_prefix("/api/history?") {
        let answer = stored(parameters, requests);
        return write!(
            stream,
            "HTTP/1.0 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{answer}",
            answer.len()
        );
    }
    let mut to = TcpStream::connect(inner)?;
    write!(to, "GET {target} HTTP/1.0\r\nHost: {inner}\r\n\r\n")?;
    let mut answer = Vec::new();
    to.read_to_end(&mut answer)?;
    stream.write_all(&answer)
}

/// The answer of the history: an hour of each day is idle, and has no points.
fn stored(parameters: &str, requests: &Queries) -> String {
    let number = |key: &str| {
        let found = form_urlencoded::parse(parameters.as_bytes()).find(|(name, _)| name == key);
        found.unwrap().1.parse::<u64>().unwrap()
    };
    let [since, until, step] = ["since", "until", "step"].map(number);
    requests.lock().unwrap().push([since, until, step]);
    let first = since.max(NOON_S - STORED_S).next_multiple_of(step);
    let points: Vec<_> = (first..until.min(NOON_S))
        .step_by(step as usize)
        .filter(|at| at / 3600 % 24 != 3)
        .map(|at| {
            let rate = 5e7 + 4e7 * (at as f64 / DAY_S as f64 * std::f64::consts::TAU).sin();
            json!({
                "unix_ns": at * 1_000_000_000, "length_ns": step * 1_000_000_000,
                "bytes_up": 1, "bytes_down": 1, "rate_up_bps": rate / 8.0, "rate_down_bps": rate,
                "peak_up_bps": rate, "peak_down_bps": rate, "inside_samples": 9,
                "inside_p50_rtt_ns": 15_000_000, "inside_p95_rtt_ns": 30_000_000,
                "inside_p99_rtt_ns": 40_000_000, "inside_loss": 0.002,
                "outside_samples": 0, "outside_p50_rtt_ns": null, "outside_p95_rtt_ns": null,
                "outside_p99_rtt_ns": null, "outside_loss": null, "busy_ns": 0,
            })
        })
        .collect();
    json!({"schema": 1, "name": "sub-10074", "kind": "class", "points": points}).to_string()
}

fn click_range(browser: &mut Browser, name: &str) {
    browser.value(&format!(
        "[...document.querySelectorAll('#detail-range button')].find((b) => b.textContent === {name:?}).click()"
    ));
}

/// The labels of the time axis of a chart.
fn labels(browser: &mut Browser, chart: &str) -> Vec<String> {
    let texts = browser.value(&format!(
        "[...document.querySelectorAll('#{chart} text')].filter((t) => t.getAttribute('text-anchor') === 'middle').map((t) => t.textContent)"
    ));
    serde_json::from_value(texts).unwrap()
}

const RANGES: &str =
    "[...document.querySelectorAll('#detail-range button')].map((b) => b.textContent).join()";
const CHARTS: [&str; 4] = ["time-rate", "time-inside", "time-outside", "time-loss"];

#[test]
fn weeks_are_offered_if_the_daemon_keeps_them() {
    let Some(chromium) = command("weeks_are_offered_if_the_daemon_keeps_them", "chromium") else {
        return;
    };
    let (_server, inner) = start(Arc::new(Router::new(NOON)), ServerOptions::default());
    let requests = Queries::default();
    let address = with_history(inner, &requests);
    let mut browser = Browser::start(&chromium, 1400);
    // Without history, only the ranges of the snapshot.
    browser.open(&format!("http://{inner}/#class=sub-10074"));
    browser.until("document.querySelectorAll('#worst tbody tr').length === 4");
    browser.value("new Promise((done) => setTimeout(done, 1200))");
    assert_eq!(browser.value(RANGES), "5 min,1 h,1 day,−,+,‹,›");
    browser.open(&format!("http://{address}/#class=sub-10074"));
    browser.until(&format!(
        "{RANGES} === '5 min,1 h,1 day,1 week,90 days,−,+,‹,›'"
    ));
    click_range(&mut browser, "90 days");
    browser.until("document.getElementById('step').textContent.includes('6 h')");
    let [since, until, step] = *requests.lock().unwrap().last().unwrap();
    assert_eq!((step, until - since), (6 * 3600, STORED_S + 1));
    let path =
        "document.querySelector('#time-rate polyline').getAttribute('points').split(' ').length";
    let points = browser.value(path).as_u64().unwrap();
    assert!((300..700).contains(&points), "{points}");
    browser.screenshot("detail-90-days");
    click_range(&mut browser, "1 week");
    browser.until("document.getElementById('step').textContent.includes('1 h')");
    let axis = labels(&mut browser, "time-rate");
    assert!(axis.contains(&"11-01".to_owned()), "{axis:?}");
    // The idle hour of each night is a rate of 0, and a gap of round-trip times.
    let runs = "document.querySelectorAll('#time-inside polyline').length";
    assert!(
        browser.value(runs).as_u64() >= Some(14),
        "{}",
        browser.value(runs)
    );
    browser.screenshot("detail-1-week");
}

#[test]
fn charts_zoom_and_move_on_one_axis() {
    let Some(chromium) = command("charts_zoom_and_move_on_one_axis", "chromium") else {
        return;
    };
    let (_server, inner) = start(Arc::new(Router::new(NOON)), ServerOptions::default());
    let requests = Queries::default();
    let address = with_history(inner, &requests);
    let mut browser = Browser::start(&chromium, 1400);
    browser.open(&format!("http://{address}/#class=sub-10074"));
    browser.until(&format!("{RANGES}.includes('90 days')"));
    click_range(&mut browser, "1 day");
    let step = "document.getElementById('step').textContent";
    browser.until(&format!("{step} === 'steps of 5 min'"));
    // A quarter of the day: finer steps, and another axis, the same of all charts.
    browser.drag("#time-inside svg", [0.3, 0.55]);
    browser.until(&format!("{step} === 'steps of 1 min'"));
    let [since, until, _] = *requests.lock().unwrap().last().unwrap();
    let hours = (until - since) as f64 / 3600.0;
    assert!((6.0..6.6).contains(&hours), "{hours} h");
    let axis = labels(&mut browser, CHARTS[0]);
    assert!(axis.len() > 6, "{axis:?}");
    for chart in &CHARTS[1..] {
        assert_eq!(labels(&mut browser, chart), axis, "{chart}");
    }
    // The values at one time are shown in all charts.
    browser.drag("#time-loss svg", [0.5, 0.5]);
    let at = |chart: &str| format!("document.querySelector('#{chart} .at').textContent");
    browser.until(&format!("{}.includes('down')", at("time-rate")));
    let time = browser.value(&format!("{}.slice(0, 5)", at("time-rate")));
    assert_eq!(
        browser.value(&format!("{}.slice(0, 5)", at("time-inside"))),
        time
    );
    let before = axis;
    browser.press(",");
    browser.until(&format!("{step} === 'steps of 1 min'"));
    let moved = labels(&mut browser, CHARTS[3]);
    assert!(moved != before, "{moved:?}");
    // Ever closer, until the shortest time.
    for _ in 0..20 {
        browser.press("+");
    }
    let axis = labels(&mut browser, CHARTS[0]);
    assert!(
        axis.len() > 4 && axis.iter().all(|label| label.len() == 8),
        "{axis:?}"
    );
    // The present again, by a double-click or a key.
    browser.press("0");
    browser.until(
        "document.querySelector('#detail-range [aria-pressed=true]')?.textContent === '5 min'",
    );
    let last = browser.value("document.querySelectorAll('#time-rate polyline').length");
    assert_eq!(last, 2);
}
