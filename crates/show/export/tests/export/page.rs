//! The page in a real browser: content, mouse and keys, and no console message.

use std::sync::Arc;

use fairpath_export::ServerOptions;
use serde_json::Value;

use crate::browser::Browser;
use crate::made::{ODD, ODD_RULE, Router};
use crate::needs::command;
use crate::web::start;

/// Noon, so that axes are always the same.
const NOON: u64 = 1_762_171_200_000_000_000;

/// True for the entry of a browser about a daemon that keeps no history: status 404, once per page.
fn is_missing_history(event: &Value) -> bool {
    let entry = &event["entry"];
    let is = |key: &str, part: &str| entry[key].as_str().is_some_and(|text| text.contains(part));
    is("url", "/api/history?") && is("text", "404")
}

/// Asserts that there was no console message, exception, failed request, or request elsewhere.
fn assert_quiet(browser: &Browser, origin: &str) {
    for method in [
        "Runtime.consoleAPICalled",
        "Runtime.exceptionThrown",
        "Log.entryAdded",
    ] {
        let events = browser.events(method).into_iter();
        let unexpected = events.filter(|event| !is_missing_history(event));
        assert_eq!(
            unexpected.collect::<Vec<_>>(),
            Vec::<&Value>::new(),
            "{method}"
        );
    }
    let failed = |event: &&Value| event["canceled"] != Value::Bool(true);
    assert_eq!(
        browser
            .events("Network.loadingFailed")
            .into_iter()
            .filter(failed)
            .count(),
        0
    );
    let requests = browser.events("Network.requestWillBeSent");
    assert!(requests.len() >= 11, "{}", requests.len());
    for request in requests {
        let url = request["request"]["url"].as_str().unwrap();
        assert!(url.starts_with(origin), "{url}");
    }
}

/// Runs `steps` in a browser of this width, on the page of the test router.
fn with_page(test: &str, width: u32, steps: fn(&mut Browser)) {
    let Some(chromium) = command(test, "chromium") else {
        return;
    };
    let (_server, address) = start(Arc::new(Router::new(NOON)), ServerOptions::default());
    let mut browser = Browser::start(&chromium, width);
    browser.resize(width, TALL);
    let origin = format!("http://{address}/");
    browser.open(&origin);
    steps(&mut browser);
    assert_quiet(&browser, &origin);
}

/// A window that has all rows of the test router.
const TALL: u32 = 3000;
const ROWS: &str = "document.querySelectorAll('#rows tr').length";
/// The column of rates towards the class, as numbers.
const LIVE: &str = "document.getElementById('state').dataset.state === 'live'";

#[test]
fn rows_appear_and_live_numbers_change() {
    with_page("rows_appear_and_live_numbers_change", 1400, |browser| {
        browser.until(&format!("{ROWS} === 33 && {LIVE}"));
        browser.screenshot("table-light");
        let odd = format!(
            "[...document.querySelectorAll('#rows a')].some((a) => a.textContent === {ODD:?})"
        );
        assert_eq!(
            browser.value(&odd),
            Value::Bool(true),
            "names are text, never markup"
        );
        let cells = "document.querySelector('#rows tr').innerText";
        let before = browser.value(cells);
        browser.until(&format!("{cells} !== {before}"));
        let idle = "[...document.querySelectorAll('#rows tr')].find((tr) => tr.innerText.includes('eth1')).cells[4].innerText";
        assert_eq!(
            browser.value(idle),
            "–",
            "a value that was not measured is a dash"
        );
        // The verdicts of `top`: a score of 34 is critical, a growth of 44 ms a warning.
        let classes = |column: u32| {
            format!(
                "[...document.querySelectorAll('#rows tr')].find((tr) => tr.innerText.includes('sub-10407')).cells[{column}].className"
            )
        };
        for (column, level) in [(7, "warning"), (8, "critical")] {
            let given = browser.value(&classes(column)).to_string();
            assert!(given.contains(level), "{given}");
        }
        assert!(!browser.value(&classes(4)).to_string().contains("warning"));
        browser.prefer("dark");
        browser.screenshot("table-dark");
        for width in [1150, 900] {
            browser.resize(width, TALL);
            browser.screenshot(&format!("table-{width}"));
            assert_eq!(browser.value("document.querySelector('#overview > .card').scrollWidth <= document.querySelector('#overview > .card').clientWidth"), Value::Bool(true));
        }
    });
}

#[test]
fn loaded_rules_are_shown_on_request() {
    with_page("loaded_rules_are_shown_on_request", 1400, |browser| {
        let state = "document.getElementById('rules-state')?.textContent";
        browser.until(&format!(
            "{state} === '1\u{202f}305 rules · not confirmed, ends in 42 s'"
        ));
        let rows = "document.querySelectorAll('#rules tbody tr').length";
        assert_eq!(browser.value(rows), 0, "closed");
        browser.click("#loaded-rules summary");
        browser.until(&format!("{rows} === 5"));
        let text = |row: u32, column: u32| {
            format!(
                "document.querySelector('#rules tbody').rows[{row}].cells[{column}].textContent"
            )
        };
        assert_eq!(browser.value(&text(1, 0)), ODD_RULE, "text, never markup");
        assert_eq!(browser.value(&text(1, 1)), "IPv4 filter FORWARD");
        assert_eq!(browser.value(&text(1, 2)), "rules.v4:13");
        assert_eq!(browser.value(&text(1, 3)), "4.10 k");
        assert_eq!(browser.value(&text(1, 4)), "26.2 M");
        let packets = browser.value(&text(0, 5));
        browser.until(&format!("{} !== {packets}", text(0, 5)));
        assert_eq!(
            browser.value("document.getElementById('rules-more').textContent"),
            "The 5 with the highest packet rates."
        );
        browser.screenshot("rules");
        browser.resize(390, TALL);
        browser.screenshot("rules-phone");
        let fits = "document.getElementById('loaded-rules').scrollWidth <= document.getElementById('loaded-rules').clientWidth";
        assert_eq!(browser.value(fits), Value::Bool(true));
    });
}

#[test]
fn headings_sort_and_the_filter_filters() {
    with_page("headings_sort_and_the_filter_filters", 1400, |browser| {
        browser.until(&format!("{ROWS} === 33"));
        browser.click("[data-sort=inside_p95]");
        let column = "[...document.querySelectorAll('#rows tr')].map((tr) => parseFloat(tr.cells[4].innerText)).filter((n) => n > 0)";
        browser.until(&format!("(() => {{ const c = {column}; return c.length > 20 && c.every((n, i) => i === 0 || c[i - 1] >= n); }})()"));
        assert_eq!(
            browser.value("document.querySelector('th[aria-sort]').innerText"),
            "p95"
        );
        browser.press("/");
        for key in ["s", "o", "u", "t", "h"] {
            browser.press(key);
        }
        browser.until(&format!(
            "{ROWS} === 1 && document.querySelector('#rows a').textContent === 'Site South'"
        ));
        browser.value("document.getElementById('filter').value = 'nobody'; document.getElementById('filter').dispatchEvent(new Event('input'))");
        browser.until("document.getElementById('empty').innerText.includes('nobody')");
    });
}

#[test]
fn a_click_opens_the_details_of_a_class() {
    with_page("a_click_opens_the_details_of_a_class", 1400, |browser| {
        browser.until(&format!("{ROWS} === 33"));
        browser.click("#rows tr:nth-child(5) td:nth-child(3)");
        let bars = "document.querySelectorAll('#hist-inside rect, #hist-outside rect').length";
        let lines = "document.querySelectorAll('#time-rate polyline, #time-inside polyline, #time-outside polyline, #time-loss polyline').length";
        browser.until(&format!("{bars} > 4 && {lines} >= 6 && document.querySelectorAll('#worst tbody tr').length === 4"));
        assert_eq!(
            browser.value("document.getElementById('class').textContent"),
            ODD
        );
        let axes = browser
            .value("document.getElementById('time-rate').innerText")
            .to_string();
        assert!(axes.contains("Mbit/s") && axes.contains("11:57"), "{axes}");
        let hosts = browser
            .value("document.getElementById('hosts').innerText")
            .to_string();
        assert!(hosts.contains("192.0.2.17"), "{hosts}");
        assert_eq!(
            browser.value("document.querySelectorAll('#tiles .warning, #tiles .critical').length"),
            0,
            "a calm class"
        );
        browser.screenshot("detail-light");
        browser.prefer("dark");
        browser.screenshot("detail-dark");
        browser.press("Escape");
        browser.until("!document.getElementById('overview').hidden && document.getElementById('detail').hidden");
    });
}

/// The growth of a site may be the mean of its classes.
#[test]
fn the_growth_is_explained_by_its_note() {
    with_page("the_growth_is_explained_by_its_note", 1400, |browser| {
        let tile = "[...document.querySelectorAll('#tiles > div')].find((tile) => tile.innerText.includes('Growth'))";
        let mut note = |row: u32, value: &str| {
            browser.until(&format!("{ROWS} === 33"));
            browser.click(&format!("#rows tr:nth-child({row}) td:nth-child(3)"));
            browser.until(&format!(
                "{tile}?.querySelector('.value').textContent === {value:?}"
            ));
            let note = browser.value(&format!("{tile}.querySelector('.note').textContent"));
            browser.press("Escape");
            browser.until("!document.getElementById('overview').hidden");
            note.as_str().unwrap().to_owned()
        };
        let of_site = note(1, "+90 ms");
        assert!(
            of_site.starts_with("mean of its classes; itself ") && of_site.contains(" idle, "),
            "{of_site}"
        );
        let of_subscriber = note(5, "+12 ms");
        assert!(
            !of_subscriber.contains("mean") && of_subscriber.contains(" idle, "),
            "{of_subscriber}"
        );
        // 90 ms of growth are a warning in `top`, too.
        browser.until(&format!("{ROWS} === 33"));
        browser.click("#rows tr:nth-child(1) td:nth-child(3)");
        browser.until(&format!("{tile}?.querySelector('.value.warning')"));
        browser.press("Escape");
        browser.until("!document.getElementById('overview').hidden");
    });
}

#[test]
fn keys_select_collapse_and_open_rows() {
    with_page("keys_select_collapse_and_open_rows", 1400, |browser| {
        browser.until(&format!("{ROWS} === 33"));
        browser.press("ArrowDown");
        browser.press("ArrowLeft");
        browser.until(&format!("{ROWS} === 19"));
        let rates = "document.querySelector('#rows tr').innerText";
        let before = browser.value(rates);
        browser.until(&format!("{rates} !== {before}"));
        assert_eq!(
            browser.value("document.activeElement.textContent"),
            "Site North",
            "a new snapshot keeps the focus"
        );
        browser.press("ArrowRight");
        browser.until(&format!("{ROWS} === 33"));
        browser.press("ArrowDown");
        browser.press("Enter");
        browser.until("document.getElementById('class').textContent === 'sub-10000' && document.querySelectorAll('#flows tbody tr').length > 0");
    });
}

#[test]
fn the_focus_stays_on_a_row_that_moves() {
    with_page("the_focus_stays_on_a_row_that_moves", 1400, |browser| {
        browser.until(&format!("{ROWS} === 33"));
        browser.click("[data-sort=rate]");
        browser
            .until("document.querySelector('th[aria-sort]') && !document.querySelector('.fold')");
        let links = "[...document.querySelectorAll('#rows a')]";
        browser.value(&format!(
            "{links}.find((a) => a.textContent === 'sub-10185').focus()"
        ));
        let at = format!("{links}.findIndex((a) => a.textContent === 'sub-10185')");
        // Upwards, so that the row itself moves, not its neighbours.
        browser.value(&format!("globalThis.lowest = {at}"));
        browser.until(&format!("(lowest = Math.max(lowest, {at})) > {at}"));
        assert_eq!(
            browser.value("document.activeElement.textContent"),
            "sub-10185"
        );
    });
}

#[test]
fn the_page_fits_a_telephone() {
    with_page("the_page_fits_a_telephone", 390, |browser| {
        let fits = "document.documentElement.scrollWidth <= 390 && document.querySelector('#overview > .card').scrollWidth <= document.querySelector('#overview > .card').clientWidth";
        browser.until(&format!("{ROWS} === 33"));
        browser.screenshot("table-narrow");
        let name = "document.querySelector('#rows tr:nth-child(2) a')";
        assert_eq!(
            browser.value(&format!("{name}.scrollWidth <= {name}.clientWidth")),
            Value::Bool(true),
            "names are whole"
        );
        assert_eq!(browser.value(fits), Value::Bool(true), "the table");
        browser.click("#rows tr:nth-child(5) a");
        browser.until("document.querySelectorAll('#worst tbody tr').length === 4");
        assert_eq!(
            browser.value("document.documentElement.scrollWidth"),
            390,
            "the detail"
        );
        browser.screenshot("detail-narrow");
    });
}

#[test]
fn a_hidden_page_sends_no_request() {
    with_page("a_hidden_page_sends_no_request", 1400, |browser| {
        browser.until(&format!("{ROWS} === 33"));
        // Counts requests from now on. A visible page sends at least two in 2.5 seconds.
        browser.value(
            "(() => { const real = fetch; globalThis.requests = 0; globalThis.fetch = (...a) => { requests++; return real(...a); };
               Object.defineProperty(document, 'hidden', {value: true, configurable: true}); document.dispatchEvent(new Event('visibilitychange')); })()",
        );
        let after = browser.value("new Promise((done) => setTimeout(() => { globalThis.requests = 0; setTimeout(() => done(requests), 2500); }, 1500))");
        assert_eq!(after, 0);
        browser
            .value("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))");
        browser.until("requests > 0");
    });
}

#[test]
fn the_page_reports_a_lost_daemon() {
    let test = "the_page_reports_a_lost_daemon";
    let Some(chromium) = command(test, "chromium") else {
        return;
    };
    let (server, address) = start(Arc::new(Router::new(NOON)), ServerOptions::default());
    let mut browser = Browser::start(&chromium, 1400);
    browser.resize(1400, TALL);
    browser.open(&format!("http://{address}/"));
    browser.until(&format!("{ROWS} === 33 && {LIVE}"));
    drop(server);
    browser.until("!document.getElementById('problem').hidden && document.getElementById('problem').innerText.includes('does not answer')");
    browser.screenshot("stale");
    assert_eq!(browser.value(ROWS), 33, "the last snapshot stays");
    let listener = std::net::TcpListener::bind(address).unwrap();
    let _server = fairpath_export::serve(
        listener,
        Arc::new(Router::new(NOON)),
        ServerOptions::default(),
    )
    .unwrap();
    browser.until(&format!(
        "document.getElementById('problem').hidden && {LIVE}"
    ));
}
