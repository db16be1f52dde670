//! The files of a report: which there are, how large they grow, and that texts stay texts.

use fairpath_report::figure::{Axis, Figure, Panel, Point, Series};
use fairpath_report::{Block, OutputFile, ReportDocument, Section, Unit, files};

use crate::made;

/// A page of a thousand runs is not larger.
const MAX_PAGE_BYTES: usize = 1_000_000;

fn content<'a>(files: &'a [OutputFile], path: &str) -> &'a str {
    let found = files.iter().find(|file| file.path == path);
    &found.unwrap_or_else(|| panic!("no {path}")).content
}

#[test]
fn every_figure_and_table_has_its_files() {
    let files = files(&made::report(20));
    let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    for path in [
        "index.html",
        "report.md",
        "report.json",
        "data/goodput-by-loss.csv",
        "figures/goodput-by-loss.svg",
        "data/runs.csv",
        "figures/timeline.svg",
    ] {
        assert!(paths.contains(&path), "{path} in {paths:?}");
    }
    let markdown = content(&files, "report.md");
    for file in files.iter().filter(|file| file.path.contains('/')) {
        assert!(
            markdown.contains(&format!("({})", file.path)),
            "{}",
            file.path
        );
    }
}

#[test]
fn thousand_runs_make_a_page_of_bounded_size() {
    let files = files(&made::report(1_000));
    let page = content(&files, "index.html");
    assert!(page.len() < MAX_PAGE_BYTES, "{}", page.len());
    assert_eq!(content(&files, "data/runs.csv").lines().count(), 1_001);
}

#[test]
fn million_points_make_a_figure_of_bounded_size() {
    let points = (0..1_000_000).map(|i| Point::new(f64::from(i), f64::from(i % 1009)));
    let panel = Panel::new(
        "",
        Axis::linear("x", Unit::none()),
        Axis::linear("y", Unit::none()),
    );
    let panel = panel.with(Series::line("many", points.collect()));
    let report = ReportDocument {
        sections: vec![Section::new(
            "Results",
            vec![Block::Figure(Figure::new(
                "many",
                "Many points",
                vec![panel],
            ))],
        )],
        ..ReportDocument::default()
    };
    let page = fairpath_report::page::html(&report);
    assert!(page.len() < 80_000, "{}", page.len());
}

#[test]
fn no_text_becomes_markup() {
    for file in files(&made::hostile()) {
        assert!(!file.path.contains(['<', '"', ' ']), "{}", file.path);
        if file.path.ends_with(".csv") || file.path.ends_with(".json") {
            continue;
        }
        let lower = match file.path.as_str() {
            "report.md" => without_code(&file.content).to_lowercase(),
            _ => file.content.to_lowercase(),
        };
        assert!(!lower.contains("<script>alert"), "{}", file.path);
        assert!(!lower.contains("<img"), "{}", file.path);
        assert!(!lower.contains("\"'>"), "{}", file.path);
    }
}

/// Markdown without what is fenced or between backticks, in which nothing is markup.
fn without_code(text: &str) -> String {
    let mut fenced = false;
    let lines = text.lines().filter(|line| {
        let fence = line.starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    });
    let spans = |line: &str| line.split('`').step_by(2).collect::<String>();
    lines.map(spans).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_same_report_gives_the_same_files() {
    assert_eq!(files(&made::report(30)), files(&made::report(30)));
}

#[test]
fn an_empty_report_is_a_page_too() {
    let page = fairpath_report::page::html(&ReportDocument::default());
    assert!(page.contains("<main>") && page.ends_with("</html>\n"));
}
