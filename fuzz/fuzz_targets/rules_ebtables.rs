//! Files of ebtables-save; `rules/save_file.rs` describes the input.

#![no_main]

#[path = "rules/save_file.rs"]
mod save_file;

use fairpath_rules::Family;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| save_file::run(input, Family::Bridge));
