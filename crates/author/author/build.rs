//! Lists the test scripts and trees of built-in policies, for `fairpath sched new --like`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    let crate_root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let scripts = crate_root.join("scripts");
    println!("cargo:rerun-if-changed={}", scripts.display());
    let entries = fs::read_dir(&scripts).expect("scripts/ is there");
    let mut files: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    files.sort();
    let row = |file: &PathBuf| {
        let name = file.file_name().unwrap_or_default();
        format!("    ({name:?}, include_str!({file:?})),\n")
    };
    let rows: String = files.iter().map(row).collect();
    let out = env::var("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&out).join("scripts.rs"), format!("&[\n{rows}]\n"))
        .expect("OUT_DIR can be written");
}
