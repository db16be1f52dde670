//! `cargo xtask sanitize`: the native core under AddressSanitizer and UBSan, on corrupted packets, queues and rules.
//!
//! Only the C is instrumented (`FAIRPATH_SANITIZE`, read by fairpath-core's build script); clang links, because it knows
//! where its runtime is. Naming the target keeps the flags away from build scripts. Builds in a separate directory.

use crate::run;
use anyhow::Result;

const SANITIZERS: &str = "address,undefined";

/// The tests that take the C where it is most likely to stray.
const TESTS: [&str; 11] = [
    "mutations",
    "pifo",
    "pifo_corruption",
    "sched",
    "sched_corruption",
    "limit",
    "edges_frames",
    "edges_table",
    "edges_tcp",
    "edges_echo",
    "corruption",
];

pub fn run() -> Result<()> {
    let clang = run::llvm_tool("clang")?;
    let version = run::output(std::process::Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.unwrap_or("x86_64-unknown-linux-gnu");
    let mut cargo = run::cargo();
    cargo.args([
        "test",
        "--locked",
        "--package",
        "fairpath-core",
        "--package",
        "fairpath-rules",
        "--target",
        host,
    ]);
    for test in TESTS {
        cargo.args(["--test", test]);
    }
    cargo
        .env("FAIRPATH_SANITIZE", SANITIZERS)
        .env("CLANG", &clang)
        .env("CARGO_TARGET_DIR", run::target_dir().join("sanitize"))
        .env(
            "RUSTFLAGS",
            format!("-Clinker={clang} -Clink-arg=-fsanitize={SANITIZERS}"),
        )
        // A test plans more memory than there is.
        .env("ASAN_OPTIONS", "allocator_may_return_null=1")
        .env("UBSAN_OPTIONS", "print_stacktrace=1");
    run::run(&mut cargo)
}
