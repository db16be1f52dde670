//! Requirements of every page: quiet, and readable at any width.

use serde_json::{Value, json};

use crate::browser::Browser;

/// From navigation to the end of loading, for a thousand runs.
const MAX_LOAD_MS: f64 = 1_000.0;
/// A page that needs longer needs it every time; a machine that tests may be busy most of the time.
const MAX_OPENINGS: u32 = 20;
/// When loading ended, in milliseconds since navigation began.
const LOADED: &str = "performance.getEntriesByType('navigation')[0].loadEventEnd";
/// The least size of text in figures, in pixels of the screen.
const MIN_TEXT_PX: f64 = 12.0;

/// Pairs of texts in one drawing that touch, without rotated ones, since their boxes are larger.
const TOUCHING: &str = "(() => { const found = [];
  for (const svg of document.querySelectorAll('svg.plot')) {
    if (!svg.getBoundingClientRect().width) continue;
    const texts = [...svg.querySelectorAll('text')].filter((t) => !t.closest('[transform]'));
    const boxes = texts.map((t) => t.getBoundingClientRect());
    for (let i = 0; i < boxes.length; i++) for (let j = i + 1; j < boxes.length; j++) {
      const [a, b] = [boxes[i], boxes[j]];
      // Boxes of text are higher than its letters.
      if (a.left < b.right && b.left < a.right && a.top + 2 < b.bottom - 2 && b.top + 2 < a.bottom - 2)
        found.push(texts[i].textContent + ' / ' + texts[j].textContent);
    } }
  return found; })()";
/// Texts of drawings that leave them, and the least size of any.
const OUTSIDE: &str = "(() => { const found = [];
  for (const svg of document.querySelectorAll('svg.plot')) {
    const own = svg.getBoundingClientRect();
    if (!own.width) continue;
    for (const t of svg.querySelectorAll('text')) {
      const b = t.getBoundingClientRect();
      if (b.left < own.left - 1 || b.right > own.right + 1 || b.bottom > own.bottom + 1) found.push(t.textContent);
    } }
  return found; })()";
const MIN_TEXT: &str = "Math.min(...[...document.querySelectorAll('svg.plot')].filter((s) => s.getBoundingClientRect().width)
  .map((s) => 13 * s.getBoundingClientRect().width / s.viewBox.baseVal.width))";

/// No console message, exception or failure, and one request only: the page itself.
pub fn assert_quiet(browser: &Browser) {
    for method in [
        "Runtime.consoleAPICalled",
        "Runtime.exceptionThrown",
        "Log.entryAdded",
        "Network.loadingFailed",
        "Page.javascriptDialogOpening",
    ] {
        assert_eq!(browser.events(method), Vec::<&Value>::new(), "{method}");
    }
    let urls = browser.events("Network.requestWillBeSent");
    let others = urls
        .iter()
        .map(|reported| reported["request"]["url"].as_str().unwrap());
    let others: Vec<&str> = others.filter(|url| !url.ends_with("/index.html")).collect();
    assert_eq!(others, Vec::<&str>::new());
    assert_eq!(urls.len(), 1);
}

/// Texts that neither touch nor leave their drawing, large enough, and a page that is not wider than `width`.
pub fn assert_readable(browser: &mut Browser, width: u32) {
    assert_eq!(browser.value(TOUCHING), json!([]), "touching at {width}");
    assert_eq!(browser.value(OUTSIDE), json!([]), "outside at {width}");
    let min = browser.value(MIN_TEXT).as_f64().unwrap();
    assert!(min >= MIN_TEXT_PX - 0.05, "{min} px at {width}");
    let wide = browser.value("document.documentElement.scrollWidth");
    assert!(
        wide.as_u64().unwrap() <= u64::from(width),
        "{wide} at {width}"
    );
}

/// The page at `url` opens within a second, including its first frame.
pub fn assert_opens_quickly(browser: &mut Browser, url: &str) {
    let mut quickest = f64::INFINITY;
    for n in 0..MAX_OPENINGS {
        browser.open(&format!("{url}?{n}"));
        browser.until(&format!("location.search === '?{n}' && {LOADED} > 0"));
        // The first frame counts, too, not only the end of loading.
        let took = browser.value(&format!(
            "new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(Math.max({LOADED},
               performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0)))))"
        ));
        quickest = quickest.min(took.as_f64().unwrap());
        if quickest < MAX_LOAD_MS {
            break;
        }
    }
    eprintln!("{url} opens in {quickest:.0} ms");
    assert!(quickest < MAX_LOAD_MS, "{quickest} ms");
}
