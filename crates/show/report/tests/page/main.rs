//! Reports that are whole, and their pages in a real browser.

#[path = "../../../export/tests/export/browser.rs"]
#[allow(dead_code, reason = "the other crate's tests press keys, too")]
mod browser;
mod files;
mod hard;
mod judge;
mod made;
#[path = "../../../export/tests/export/needs.rs"]
mod needs;
mod view;
