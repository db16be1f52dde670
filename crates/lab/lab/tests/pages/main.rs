//! Pages of computed experiments: what they say, what they must not say, how fast they are made, and
//! how they look in a real browser.

#[path = "../../../../show/export/tests/export/browser.rs"]
#[allow(dead_code, reason = "the other crate's tests press keys, too")]
mod browser;
#[path = "../../../../show/report/tests/page/judge.rs"]
mod judge;
mod large;
#[path = "../../../../show/export/tests/export/needs.rs"]
mod needs;
mod said;
mod synthetic;
mod view;
