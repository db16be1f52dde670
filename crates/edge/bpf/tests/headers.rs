//! The installed headers, as in use outside this repository: an example is built from an
//! installation and nothing else, verified, and run.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr;

use fairpath_testbed::{Need, requires};
use libbpf_rs::{MapCore, ObjectBuilder, ProgramInput};

/// Where the example maps its arena, how large it is, and where its pool begins.
const ARENA: usize = 3 << 44;
const PAGE: usize = 4096;
const PAGES: usize = 16;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

fn run(command: &mut Command) -> Vec<u8> {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {text}");
    assert_eq!(text, "", "{command:?} warns");
    output.stdout
}

/// An installation below `dir`, of programs that do nothing and of the headers; where these are.
fn install(dir: &Path) -> PathBuf {
    let release = dir.join("target/release");
    fs::create_dir_all(&release).expect("written");
    for name in [
        "fairpath",
        "fairpath-demo",
        "fairpath-lab",
        "fairpath-sched",
    ] {
        let program = release.join(name);
        fs::write(&program, "#!/bin/sh\n").expect("written");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("executable");
    }
    let installed = dir.join("installed");
    run(Command::new(root().join("packaging/install"))
        .args(["install".as_ref(), dir.join("target").as_os_str()])
        .args([installed.as_os_str(), "/usr".as_ref()]));
    installed.join("usr/include")
}

/// Object and formatted pool of the example, built from the installed headers.
fn build(dir: &Path) -> (Vec<u8>, Vec<u8>) {
    let include = format!("-I{}", install(dir).display());
    let example = root().join("examples/pifo-outside");
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang-19".to_owned());
    let (object, format) = (dir.join("outside.bpf.o"), dir.join("format"));
    run(Command::new(clang)
        .args([
            "-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra",
        ])
        .args(["-Wno-unused-parameter", &include, "-c"])
        .arg(example.join("outside.bpf.c"))
        .arg("-o")
        .arg(&object));
    run(Command::new("cc")
        .args(["-O2", "-Wall", "-Wno-unused-function", &include])
        .arg(example.join("format.c"))
        .arg("-o")
        .arg(&format));
    let pool = run(&mut Command::new(format));
    (fs::read(object).expect("built"), pool)
}

#[test]
fn the_example_builds_from_installed_headers_alone() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (object, pool) = build(dir.path());
    assert!(object.starts_with(b"\x7fELF"));
    assert!(
        pool.len() > 64 * 32,
        "64 items of 32 bytes, at least: {}",
        pool.len()
    );
}

#[test]
fn every_installed_header_compiles_alone() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let include = install(dir.path());
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang-19".to_owned());
    let list = fs::read_to_string(root().join("packaging/headers")).expect("it is there");
    for header in list.lines().filter(|line| !line.starts_with('#')) {
        let file = dir.path().join("alone.c");
        fs::write(&file, format!("#include <fairpath/{header}>\n")).expect("written");
        // Formatting is user space's.
        let target: &[&str] = match header {
            "pool.h" | "core/pifo/pool.h" => &[],
            _ => &["-target", "bpf", "-mcpu=v3"],
        };
        run(Command::new(&clang)
            .args(target)
            .args(["-O2", "-fsyntax-only", "-Wall", "-Wno-unused-function"])
            .arg(format!("-I{}", include.display()))
            .arg(&file));
    }
}

#[test]
fn the_example_verifies_and_pops_in_rank_order() {
    requires!(Need::Root);
    fairpath_bpf::quiet_libbpf();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (object, pool) = build(dir.path());
    let mut open = ObjectBuilder::default();
    let object = open
        .open_memory(&object)
        .expect("an object")
        .load()
        .expect("verified");
    assert!(object.maps().any(|map| map.name() == "arena"));
    assert!(pool.len() <= (PAGES - 1) * PAGE);
    for page in 0..PAGES {
        // SAFETY: libbpf mapped the arena's pages where the map said.
        unsafe { ptr::with_exposed_provenance_mut::<u8>(ARENA + page * PAGE).write_volatile(0) };
    }
    let place = ptr::with_exposed_provenance_mut::<u8>(ARENA + PAGE);
    // SAFETY: the pool is shorter than the pages behind the first.
    unsafe { ptr::copy_nonoverlapping(pool.as_ptr(), place, pool.len()) };
    let program = object.progs_mut().next().expect("it has one");
    let output = program.test_run(ProgramInput::default()).expect("it runs");
    // Items 1 to 8 have the ranks 4, 2, 9, 1, 7, 1, 5, 3.
    assert_eq!(output.return_value, 0x4628_1753);
}
