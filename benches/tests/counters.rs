//! The counted cost of a packet stays within the budget of `docs/design/0017-counted-cost.md`.
//!
//! Instructions and cache lines do not depend on the machine, but on the compiler: another one than
//! that of the page is a skip.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

const PAGE: &str = "docs/design/0017-counted-cost.md";
/// Relative difference that is permitted, in both directions.
const TOLERANCE: f64 = 0.02;
/// Lines that the place of the stack and of the heap may change.
const SPARE_LINES: f64 = 0.15;
const PACKETS: &str = "4096";

/// Instructions and lines of each case and file of the page.
type Budget = BTreeMap<String, BTreeMap<String, [f64; 2]>>;

/// The rows `| case | file | instructions | lines |`, whose file is `all` or in backquotes.
fn budget(page: &str) -> Budget {
    let mut budget = Budget::new();
    for line in page.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if let [_, case, file, instructions, lines, _] = cells[..]
            && (file == "all" || file.starts_with('`'))
            && let (Ok(instructions), Ok(lines)) = (instructions.parse(), lines.parse())
        {
            let files = budget.entry(case.to_owned()).or_default();
            files.insert(file.trim_matches('`').to_owned(), [instructions, lines]);
        }
    }
    budget
}

fn compiler() -> String {
    let output = Command::new("cc").arg("--version").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().next().unwrap_or_default().to_owned()
}

fn counted(case: &str) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_fairpath-bench"))
        .args(["--format", "json", "counters", "--no-pages"])
        .args(["--packets", PACKETS, "--only", case])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    report["counters"]["cases"][0].clone()
}

#[test]
fn packets_cost_their_budget() {
    const TEST: &str = "packets_cost_their_budget";
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = std::fs::read_to_string(root.join(PAGE)).unwrap();
    let compiler = compiler();
    if !page.contains(&format!("`{compiler}`")) {
        let reason = format!("{PAGE} has the counts of another compiler than {compiler}");
        return fairpath_units::skip_test(TEST, "the compiler of the page", &reason);
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        let reason = "valgrind counts the instructions";
        return fairpath_units::skip_test(TEST, "command:valgrind", reason);
    }
    let budget = budget(&page);
    assert!(budget.len() >= 4, "{PAGE} has {} cases", budget.len());
    let mut faults = Vec::new();
    for (case, files) in &budget {
        let counts = counted(case);
        assert_eq!(counts["case"], case.as_str());
        for (file, [instructions, lines]) in files {
            let row = match file.as_str() {
                "all" => &counts["all"],
                file => &counts["files"][file],
            };
            let found = |name: &str| row[name].as_f64().unwrap_or(0.0);
            let differs = |now: f64, then: f64, spare: f64| {
                (now - then).abs() > (then * TOLERANCE).max(spare)
            };
            if differs(found("instructions"), *instructions, 0.5)
                || differs(found("lines"), *lines, SPARE_LINES)
            {
                faults.push(format!(
                    "| {case} | `{file}` | {:.0} | {:.2} | instead of {instructions} and {lines}",
                    found("instructions"),
                    found("lines")
                ));
            }
        }
    }
    assert!(
        faults.is_empty(),
        "the cost of a packet changed; if this is intended, correct {PAGE}:\n{}",
        faults.join("\n")
    );
}
