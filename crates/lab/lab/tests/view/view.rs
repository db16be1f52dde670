//! The lab's own page in a real browser, made by `fairpath-lab report` from a directory of recorded runs.

use std::process::Command;

use fairpath_analysis::figure::FigureKind;
use fairpath_analysis::page;
use fairpath_analysis::record::RunRecord;
use fairpath_analysis::results::Results;
use fairpath_report::Block;
use serde_json::json;
use tempfile::TempDir;

use crate::browser::Browser;
use crate::judge::{assert_opens_quickly, assert_quiet, assert_readable};
use crate::needs::command;
use crate::synthetic::{self, store};

const WIDE: u32 = 1280;
const PHONE: u32 = 390;

/// Every kind of page: models and the talk, a scale, excluded runs and settings; timelines and bars; voice.
fn kinds() -> [Results; 3] {
    let mut ripe88 = synthetic::ripe88_full(3);
    let without = |run: &RunRecord| {
        run.place % 20 == 7 || (run.setting["loss"] == "5%" && run.setting["cc"] == "bbr")
    };
    for run in ripe88.runs.iter_mut().filter(|run| without(run)) {
        synthetic::invalidate(run);
    }
    [ripe88, synthetic::fairness(3), synthetic::voice(3)]
}

/// A directory as a grid leaves it, with the page that the binary makes of it.
fn reported(results: &Results) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    store(results, dir.path());
    let made = Command::new(env!("CARGO_BIN_EXE_fairpath-lab"))
        .arg("report")
        .arg(dir.path())
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    dir
}

/// Ids of figures and tables that a report of these results has.
fn ids(results: &Results) -> Vec<String> {
    let report = page::report(results);
    let blocks = report.sections.iter().flat_map(|section| &section.blocks);
    blocks
        .filter_map(|block| match block {
            Block::Figure(figure) => Some(figure.id.clone()),
            Block::Table(table) => Some(table.id.clone()),
            _ => None,
        })
        .collect()
}

fn open(browser: &mut Browser, dir: &TempDir) {
    let url = format!("file://{}/index.html", dir.path().display());
    browser.open(&url);
    browser.until(&format!(
        "location.href === '{url}' && document.readyState === 'complete' && document.querySelector('footer')"
    ));
}

/// A browser for each page at `width`, and the results that it shows.
fn each(test: &str, width: u32, judge: impl Fn(&mut Browser, &Results)) {
    let Some(chromium) = command(test, "chromium") else {
        return;
    };
    for results in kinds() {
        let dir = reported(&results);
        let mut browser = Browser::start(&chromium, width);
        open(&mut browser, &dir);
        judge(&mut browser, &results);
        // One request, the page itself, whatever was done with it; and not a word on the console.
        assert_quiet(&browser);
    }
}

#[test]
fn the_lab_page_is_readable_light_and_dark() {
    let test = "the_lab_page_is_readable_light_and_dark";
    each(test, WIDE, |browser, results| {
        let name = &results.manifest.experiment;
        for id in ids(results) {
            let shown = browser.value(&format!(
                "(() => {{ const e = document.getElementById('{id}');
                   return e !== null && (e.querySelectorAll('svg.plot').length > 0 || e.querySelectorAll('tbody tr').length > 0); }})()"
            ));
            assert_eq!(shown, true, "{name}: {id}");
        }
        let headlines = browser.value("document.querySelectorAll('.headlines li').length");
        assert!(headlines.as_u64().unwrap() > 0, "{name} has no headline");
        // Values that the pointer finds, in every drawing.
        let silent = "[...document.querySelectorAll('svg.plot')].filter((s) => !s.querySelector('title')).length";
        assert_eq!(browser.value(silent), 0, "{name}");
        assert_readable(browser, WIDE);
        let ground = "getComputedStyle(document.documentElement).backgroundColor";
        for (scheme, colour) in [("light", "rgb(255, 255, 255)"), ("dark", "rgb(18, 22, 28)")] {
            browser.prefer(scheme);
            assert_eq!(browser.value(ground), colour, "{name}");
            browser.screenshot(&format!("lab-{name}-{scheme}"));
        }
    });
}

#[test]
fn the_terminal_ends_with_headlines_and_invalid_settings() {
    let [ripe88, ..] = kinds();
    let dir = tempfile::tempdir().unwrap();
    store(&ripe88, dir.path());
    let made = Command::new(env!("CARGO_BIN_EXE_fairpath-lab"))
        .arg("report")
        .arg(dir.path())
        .output()
        .unwrap();
    let page = dir.path().join("index.html");
    assert_eq!(
        String::from_utf8(made.stdout).unwrap(),
        format!("{}\n", page.display()),
        "programs read the path alone"
    );
    let text = String::from_utf8(made.stderr).unwrap();
    for spec in &ripe88.manifest.figures {
        let is_compared = spec.kind != FigureKind::Timeline;
        assert_eq!(
            text.contains(&format!("{}\n    ", spec.title)),
            is_compared,
            "{text}"
        );
    }
    let invalid = ripe88.runs.iter().filter(|run| !run.is_true()).count();
    let all = ripe88.runs.len();
    let end = format!(
        "Invalid runs: {invalid} of {all}, excluded from all figures\n\
         Settings without a valid run: symmetric, bbr, packets lost 5%, round trip 5 ms; \
         asymmetric, bbr, packets lost 5%, round trip 5 ms\n\n"
    );
    assert!(text.ends_with(&end), "{text}");
}

#[test]
fn the_labs_page_fits_a_phone() {
    let test = "the_labs_page_fits_a_phone";
    each(test, PHONE, |browser, results| {
        let name = &results.manifest.experiment;
        browser.value("document.querySelectorAll('details').forEach((d) => { d.open = true; })");
        assert_readable(browser, PHONE);
        // Wide tables scroll in themselves, and nothing else reaches beyond the screen.
        let beyond = format!(
            "[...document.querySelectorAll('body *')].filter((e) => !e.closest('.scroll')
               && e.getBoundingClientRect().right > {PHONE} + 1).map((e) => e.outerHTML.slice(0, 90))"
        );
        assert_eq!(browser.value(&beyond), json!([]), "{name}");
        browser.screenshot(&format!("lab-{name}-phone"));
    });
}

#[test]
fn page_of_1000_runs_opens_within_a_second() {
    let test = "page_of_1000_runs_opens_within_a_second";
    let Some(chromium) = command(test, "chromium") else {
        return;
    };
    let losses: Vec<String> = (0..25)
        .map(|i| format!("{}%", f64::from(i) * 0.4))
        .collect();
    let losses: Vec<&str> = losses.iter().map(String::as_str).collect();
    let results = synthetic::ripe88(&losses, 10);
    assert!(results.runs.len() >= 1000);
    let dir = reported(&results);
    let mut browser = Browser::start(&chromium, WIDE);
    open(&mut browser, &dir);
    assert_opens_quickly(
        &mut browser,
        &format!("file://{}/index.html", dir.path().display()),
    );
}
