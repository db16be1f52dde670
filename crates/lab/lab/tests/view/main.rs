//! Pages of computed experiments in a real browser.

#[path = "../../../../show/export/tests/export/browser.rs"]
#[allow(dead_code, reason = "the other crate's tests press keys, too")]
mod browser;
#[path = "../../../../show/report/tests/page/judge.rs"]
mod judge;
#[path = "../../../../show/export/tests/export/needs.rs"]
mod needs;
#[path = "../../../analysis/tests/pages/synthetic.rs"]
#[allow(dead_code, reason = "the other crate's tests read them closer")]
mod synthetic;
mod view;
