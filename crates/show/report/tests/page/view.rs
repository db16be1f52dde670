//! The page in a real browser: quiet, readable in light and dark, on a phone, and quick to open.

use std::path::Path;

use fairpath_report::{ReportDocument, files};
use serde_json::json;
use tempfile::TempDir;

use crate::browser::Browser;
use crate::judge::{assert_opens_quickly, assert_quiet, assert_readable};
use crate::needs::command;
use crate::{hard, made};

/// The page of a report in a directory, and its address.
fn written(report: &ReportDocument) -> (TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    write(report, dir.path());
    let url = format!("file://{}/index.html", dir.path().display());
    (dir, url)
}

fn write(report: &ReportDocument, dir: &Path) {
    for file in files(report) {
        let path = dir.join(&file.path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, file.content).unwrap();
    }
}

fn opened(test: &str, report: &ReportDocument, width: u32) -> Option<(TempDir, Browser)> {
    let chromium = command(test, "chromium")?;
    let (dir, url) = written(report);
    let mut browser = Browser::start(&chromium, width);
    browser.open(&url);
    browser.until("document.readyState === 'complete' && document.querySelector('footer')");
    Some((dir, browser))
}

#[test]
fn the_page_is_readable_in_light_and_dark() {
    let test = "the_page_is_readable_in_light_and_dark";
    let Some((_dir, mut browser)) = opened(test, &made::report(40), 1280) else {
        return;
    };
    assert_readable(&mut browser, 1280);
    let ground = "getComputedStyle(document.documentElement).backgroundColor";
    browser.prefer("light");
    assert_eq!(browser.value(ground), "rgb(255, 255, 255)");
    browser.screenshot("report-light");
    browser.prefer("dark");
    assert_eq!(browser.value(ground), "rgb(18, 22, 28)");
    browser.screenshot("report-dark");
    assert_quiet(&browser);
}

#[test]
fn nothing_is_wider_than_a_phone() {
    let test = "nothing_is_wider_than_a_phone";
    let Some((_dir, mut browser)) = opened(test, &made::report(40), 390) else {
        return;
    };
    browser.value("document.querySelectorAll('details').forEach((d) => { d.open = true; })");
    assert_readable(&mut browser, 390);
    browser.value("document.querySelectorAll('details').forEach((d) => { d.open = false; })");
    browser.screenshot("report-phone");
    for width in [800, 799, 600] {
        browser.resize(width, 900);
        assert_readable(&mut browser, width);
    }
    assert_quiet(&browser);
}

/// Of each table that scrolls: (columns out of view, the hint above it).
const HINTS: &str = "[...document.querySelectorAll('.scroll')].filter((s) => s.scrollWidth > s.clientWidth).map((s) => {
    const right = s.getBoundingClientRect().right + 1;
    const hint = s.previousElementSibling;
    return [[...s.querySelectorAll('th')].filter((th) => th.getBoundingClientRect().right > right).length,
      hint.getBoundingClientRect().height > 0 ? hint.textContent : ''];
  })";

#[test]
fn wide_tables_name_the_columns_out_of_view() {
    let test = "wide_tables_name_the_columns_out_of_view";
    let Some((_dir, mut browser)) = opened(test, &made::report(40), 390) else {
        return;
    };
    browser.value("document.querySelectorAll('details').forEach((d) => { d.open = true; })");
    let wide = "document.querySelectorAll('.wider:not([hidden])').length";
    browser.until(&format!("{wide} > 0"));
    browser.until(&format!("{HINTS}.every(([, text]) => text !== '')"));
    let hints = browser.value(HINTS);
    let hints = hints.as_array().unwrap();
    assert!(!hints.is_empty());
    for hint in hints {
        let (columns, text) = (hint[0].as_u64().unwrap(), hint[1].as_str().unwrap());
        let start = match columns {
            1 => "1 more column to the right".to_owned(),
            n => format!("{n} more columns to the right"),
        };
        assert!(columns > 0 && text.starts_with(&start), "{hint}");
    }
    browser.screenshot("report-wide-table");
    browser.value(
        "document.querySelectorAll('.scroll').forEach((s) => { s.scrollLeft = s.scrollWidth; })",
    );
    let back = "[...document.querySelectorAll('.wider:not([hidden])')].every((h) => h.textContent.startsWith('\u{2190}'))";
    browser.until(back);
    browser.resize(1900, 900);
    browser.until(&format!("{wide} === 0"));
    assert_quiet(&browser);
}

#[test]
fn hard_figures_are_readable_too() {
    let test = "hard_figures_are_readable_too";
    let Some((_dir, mut browser)) = opened(test, &hard::report(), 390) else {
        return;
    };
    for width in [390, 1280] {
        browser.resize(width, 900);
        assert_readable(&mut browser, width);
        browser.screenshot(&format!("hard-{width}"));
    }
    let empty = "document.querySelector('#empty').innerText.includes('nothing was measured')";
    assert_eq!(browser.value(empty), true);
    assert_quiet(&browser);
}

#[test]
fn the_pointer_finds_the_nearest_value() {
    let test = "the_pointer_finds_the_nearest_value";
    let Some((_dir, mut browser)) = opened(test, &made::report(5), 1280) else {
        return;
    };
    // Ten pixels from the third point of CUBIC's line.
    let reported = browser.value(
        "(() => { const hits = [...document.querySelectorAll('#goodput-by-rtt .on-wide .h')];
           const at = hits[2].getBoundingClientRect(); const svg = hits[2].closest('.plot');
           svg.dispatchEvent(new PointerEvent('pointermove', {clientX: at.x + at.width / 2 + 10, clientY: at.y + at.height / 2}));
           return svg.parentElement.querySelector('.tip').innerText; })()",
    );
    let reported = reported.as_str().unwrap();
    let near =
        "(() => { const tip = document.querySelector('.tip:not([hidden])').getBoundingClientRect();
        const ring = document.querySelector('.here').getBoundingClientRect();
        return Math.abs(tip.left - ring.right) < 20 && Math.abs(tip.bottom - ring.top) < 20; })()";
    assert_eq!(
        browser.value(near),
        true,
        "the values are next to their point"
    );
    assert!(
        reported.starts_with("CUBIC\nRound trip 5\u{a0}ms: "),
        "{reported}"
    );
    assert!(reported.contains("Mbit/s ["), "{reported}");
    assert!(
        reported.ends_with("n\u{a0}=\u{a0}3, 75\u{a0}% confidence"),
        "{reported}"
    );
    browser.screenshot("report-tip");
    let away = "(() => { const svg = document.querySelector('#goodput-by-rtt .on-wide');
        svg.dispatchEvent(new PointerEvent('pointerleave')); return svg.parentElement.querySelector('.tip').hidden; })()";
    assert_eq!(browser.value(away), true);
    // Without the script the same text is the browser's own.
    let title = "document.querySelectorAll('#goodput-by-rtt .on-wide .h title')[2].textContent";
    assert_eq!(browser.value(title), reported);
    assert_quiet(&browser);
}

#[test]
fn hostile_texts_do_nothing() {
    let test = "hostile_texts_do_nothing";
    let Some((dir, mut browser)) = opened(test, &made::hostile(), 390) else {
        return;
    };
    assert_eq!(
        browser.value("document.querySelectorAll('img, script').length"),
        1
    );
    assert_eq!(browser.value("document.title"), made::HOSTILE);
    let wide = "[...document.querySelectorAll('body *')].filter((e) => !e.closest('.scroll') && e.getBoundingClientRect().right > 391).map((e) => e.outerHTML.slice(0, 90))";
    assert_eq!(browser.value(wide), json!([]));
    assert_eq!(browser.value("document.documentElement.scrollWidth"), 390);
    assert_quiet(&browser);
    // The figure's own file is XML, which forgives nothing.
    let name = std::fs::read_dir(dir.path().join("figures"))
        .unwrap()
        .next();
    let svg = name.unwrap().unwrap().path();
    browser.open(&format!("file://{}", svg.display()));
    browser.until("document.documentElement.nodeName === 'svg'");
    assert_eq!(
        browser.value("document.querySelectorAll('parsererror, script, img').length"),
        0
    );
}

#[test]
fn scripts_that_are_not_pages_do_not_run() {
    let test = "scripts_that_are_not_pages_do_not_run";
    let Some((_dir, mut browser)) = opened(test, &made::report(1), 800) else {
        return;
    };
    let ran = "(() => { const s = document.createElement('script'); s.textContent = 'globalThis.ran = true';
        document.body.append(s); return globalThis.ran === true; })()";
    assert_eq!(browser.value(ran), false);
    assert_eq!(
        browser.value("document.documentElement.classList.contains('js')"),
        true
    );
}

#[test]
fn a_thousand_runs_open_within_a_second() {
    let test = "a_thousand_runs_open_within_a_second";
    let Some((dir, mut browser)) = opened(test, &made::report(1_000), 1280) else {
        return;
    };
    assert_opens_quickly(
        &mut browser,
        &format!("file://{}/index.html", dir.path().display()),
    );
}

#[test]
fn custom_figures_are_readable() {
    let test = "custom_figures_are_readable";
    let Some((dir, mut browser)) = opened(test, &made::report(5), 900) else {
        return;
    };
    for name in ["goodput-by-loss", "goodput-by-rtt", "timeline"] {
        browser.open(&format!(
            "file://{}/figures/{name}.svg",
            dir.path().display()
        ));
        browser.until("document.documentElement.nodeName === 'svg'");
        let texts = browser.value("document.querySelectorAll('text').length");
        assert!(texts.as_u64().unwrap() > 10, "{texts}");
        browser.screenshot(&format!("figure-{name}"));
    }
}
