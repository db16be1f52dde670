//! The installed headers, as in use outside this repository: programs are built from an installation and libbpf's
//! headers, verified, and run.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use fairpath_testbed::{Need, requires, wait_for};
use libbpf_rs::{Object, ObjectBuilder, ProgramInput};

/// Calls of each of two threads.
const CALLS: u64 = 20_000;
/// Items that are free at the beginning.
const FREE: u64 = 90;

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

/// A compiler with the headers of an installation and of libbpf.
fn clang(include: &Path) -> Command {
    let mut command =
        Command::new(std::env::var("CLANG").unwrap_or_else(|_| "clang-19".to_owned()));
    let libbpf = concat!("-I", env!("FAIRPATH_LIBBPF"));
    command.args([format!("-I{}", include.display()), libbpf.to_owned()]);
    command
}

/// The AQM of examples/edf, by its own Makefile; guests run it (edf).
#[test]
fn the_example_builds_from_an_installation() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let include = install(dir.path());
    let example = dir.path().join("edf");
    fs::create_dir(&example).expect("created");
    for file in fs::read_dir(root().join("examples/edf")).expect("it is there") {
        let file = file.expect("readable");
        fs::copy(file.path(), example.join(file.file_name())).expect("copied");
    }
    let libbpf = env!("FAIRPATH_LIBBPF");
    let library = Path::new(libbpf).with_file_name("libbpf.a");
    let output = run(Command::new("make")
        .arg("-C")
        .arg(&example)
        .arg(format!("INCLUDE=-I{} -I{libbpf}", include.display()))
        .arg(format!("LIBS={} -lelf -lz", library.display())));
    assert!(!output.is_empty());
    let edf = |words: &[&str]| {
        let output = Command::new(example.join("edf")).args(words).output();
        let output = output.expect("it runs");
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let (status, text) = edf(&["edf.bpf.o", "-4"]);
    assert!(
        status == Some(2) && text.contains("usage: edf OBJECT"),
        "{text}"
    );
    let (status, text) = edf(&["/nothing.bpf.o"]);
    assert!(
        status == Some(1) && text.contains("open the object: No such file"),
        "{text}"
    );
}

/// User space formats plain memory with the same headers.
#[test]
fn user_space_formats_and_uses_a_pool() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (include, format) = (install(dir.path()), dir.path().join("format"));
    run(Command::new("cc")
        .args(["-O2", "-Wall", "-Wno-unused-function"])
        .arg(format!("-I{}", include.display()))
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/headers/format.c"))
        .arg("-o")
        .arg(&format));
    let pool = run(&mut Command::new(format));
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
    let list = fs::read_to_string(root().join("packaging/headers")).expect("it is there");
    for header in list.lines().filter(|line| !line.starts_with('#')) {
        // These are for user space, too.
        let both = ["arena.h", "pool.h", "core/pifo/arena.h", "core/pifo/pool.h"].contains(&header);
        let targets: &[&[&str]] = match both {
            true => &[&["-target", "bpf", "-mcpu=v3"], &[]],
            false => &[&["-target", "bpf", "-mcpu=v3"]],
        };
        for target in targets {
            let file = dir.path().join("alone.c");
            let text =
                format!("{TYPES}#include <bpf/bpf_helpers.h>\n#include <fairpath/{header}>\n");
            fs::write(&file, text).expect("written");
            run(clang(&include)
                .args(*target)
                .args(["-O2", "-fsyntax-only", "-Wall", "-Wno-unused-function"])
                .arg(&file));
        }
    }
}

/// Each need of the headers is the first error where it is not met.
#[test]
fn unmet_needs_are_named() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let include = install(dir.path());
    let old_libbpf = dir.path().join("old/bpf");
    fs::create_dir_all(&old_libbpf).expect("created");
    let version = "#define LIBBPF_MAJOR_VERSION 1\n#define LIBBPF_MINOR_VERSION 4\n";
    fs::write(old_libbpf.join("libbpf_version.h"), version).expect("written");
    let old_libbpf = format!("-I{}", dir.path().join("old").display());
    for (header, words, remedy) in [
        (
            "pifo.h",
            &["-target", "bpf", "-mcpu=v2"][..],
            "add -mcpu=v3",
        ),
        (
            "pieo.h",
            &[
                "-target",
                "bpf",
                "-mcpu=v3",
                "-U__clang_major__",
                "-D__clang_major__=18",
            ],
            "install clang-19",
        ),
        (
            "packets.h",
            &["-target", "bpf", "-mcpu=v3", "-U__clang__"],
            "install clang-19",
        ),
        ("arena.h", &[&old_libbpf], "libbpf 1.5 or newer"),
    ] {
        let file = dir.path().join("alone.c");
        fs::write(&file, format!("#include <fairpath/{header}>\n")).expect("written");
        let mut command = Command::new(clang(&include).get_program());
        command.args(words).arg("-Wno-builtin-macro-redefined");
        command.args(clang(&include).get_args());
        let output = command
            .arg("-fsyntax-only")
            .arg(&file)
            .output()
            .expect("it runs");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{header}");
        let first = text
            .lines()
            .find(|line| line.contains("error:"))
            .unwrap_or("");
        assert!(first.contains(remedy), "{header}: {text}");
    }
}

/// The types that programs have from vmlinux.h.
const TYPES: &str =
    "typedef unsigned char __u8; typedef unsigned short __u16; typedef unsigned int __u32;
typedef unsigned long long __u64; typedef int __s32; typedef long long __s64; typedef __u16 __be16;
typedef __u32 __be32; typedef __u32 __wsum;
";

/// The numbers of `struct values` of headers/queues.bpf.c.
#[derive(Debug)]
struct Values {
    batch: u64,
    rounds: u64,
    busy: u64,
    served: u64,
    last: u64,
    last_at: u64,
    early: u64,
    free: u64,
    queued: u64,
}

fn call(object: &Object, name: &str, context: Option<&mut [u8]>) -> u32 {
    let program = object.progs_mut().find(|program| program.name() == name);
    let program = program.unwrap_or_else(|| panic!("no program {name}"));
    let input = ProgramInput {
        context_in: context,
        ..ProgramInput::default()
    };
    program.test_run(input).expect("it runs").return_value
}

fn values(object: &Object) -> Values {
    let mut bytes = [0; 72];
    call(object, "read_values", Some(&mut bytes));
    let mut words = bytes
        .chunks_exact(8)
        .map(|word| u64::from_ne_bytes(word.try_into().expect("8")));
    let mut next = || words.next().expect("nine words");
    Values {
        batch: next(),
        rounds: next(),
        busy: next(),
        served: next(),
        last: next(),
        last_at: next(),
        early: next(),
        free: next(),
        queued: next(),
    }
}

/// Initialization in BPF, order, peek, batches, a PIFO of PIFOs, a lock and a timer.
#[test]
fn programs_outside_the_tree_use_every_header() {
    requires!(Need::Root);
    fairpath_bpf::quiet_libbpf();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("queues.bpf.o");
    run(clang(&install(dir.path()))
        .args([
            "-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra",
        ])
        .args(["-Wno-unused-parameter", "-c"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/headers/queues.bpf.c"))
        .arg("-o")
        .arg(&file));
    let mut open = ObjectBuilder::default();
    let open = open.open_file(&file).expect("an object");
    let object = open.load().expect("verified");
    assert_eq!(call(&object, "begin", None), 0);
    // Items 1 to 8 have the ranks 4, 2, 9, 1, 7, 1, 5, 3.
    assert_eq!(call(&object, "order", None), 0x4628_1753);
    assert_eq!(values(&object).batch, 4);
    // Three turns of the queue GOLD for one of REST, the earlier of two at one rank first.
    assert_eq!(call(&object, "nested", None), 0x3343_3444);
    assert_eq!(values(&object).free, FREE);

    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..CALLS).for_each(|_| assert_eq!(call(&object, "shared", None), 0)));
        }
    });
    let after = values(&object);
    assert_eq!(after.rounds + after.busy, 2 * CALLS, "{after:?}");
    assert!(after.rounds >= CALLS, "{after:?}");
    assert_eq!((after.free, after.queued), (FREE, 0), "{after:?}");

    assert_eq!(call(&object, "timed", None), 0);
    let served = wait_for(Duration::from_secs(10), || {
        (values(&object).served == 10).then_some(())
    });
    let after = values(&object);
    assert!(served.is_some(), "{after:?}");
    assert_eq!((after.early, after.free), (0, FREE), "{after:?}");
    assert!(after.last >= after.last_at, "{after:?}");
}
