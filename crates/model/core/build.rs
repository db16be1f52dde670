//! Compiles bpf/core natively. `FAIRPATH_SANITIZE=address,undefined` adds sanitizers (fuzzing).

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

include!("../../../bpf/matches.rs");
include!("../../../bpf/methods.rs");
include!("../../../bpf/policy_files.rs");

fn main() {
    println!("cargo:rerun-if-changed=../../../bpf/core");
    println!("cargo:rerun-if-changed=../../../bpf/policy");
    println!("cargo:rerun-if-changed=src/cc.c");
    println!("cargo:rerun-if-changed=src/forward.c");
    println!("cargo:rerun-if-changed=src/limit.c");
    println!("cargo:rerun-if-changed=src/native.c");
    println!("cargo:rerun-if-changed=src/pifo.c");
    println!("cargo:rerun-if-changed=src/rules.c");
    println!("cargo:rerun-if-changed=src/sched/native.c");
    println!("cargo:rerun-if-env-changed=FAIRPATH_SANITIZE");
    println!("cargo:rerun-if-env-changed=CLANG");
    println!("cargo:rerun-if-changed=../../../bpf/matches.rs");
    println!("cargo:rerun-if-changed=../../../bpf/methods.rs");
    println!("cargo:rerun-if-changed=../../../bpf/policy_files.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    fs::write(
        out.join("policy_files.h"),
        policy_files(Path::new("../../..")),
    )
    .expect("OUT_DIR can be written");
    fs::write(out.join("matches.rs"), matches(Path::new("../../.."))).expect("write to OUT_DIR");
    fs::write(out.join("methods.rs"), methods(Path::new("../../.."))).expect("write to OUT_DIR");
    let mut build = cc::Build::new();
    build
        .file("src/cc.c")
        .file("src/forward.c")
        .file("src/limit.c")
        .file("src/native.c")
        .file("src/pifo.c")
        .file("src/rules.c")
        .file("src/sched/native.c")
        .include("../../../bpf/core")
        .include("../../../bpf/include")
        .include("../../../bpf")
        .include(out)
        .std("gnu11")
        .opt_level(2)
        // The core reads structures as words, as the kernel does.
        .flag("-fno-strict-aliasing")
        .warnings(true)
        .extra_warnings(true)
        .warnings_into_errors(true);
    if let Ok(sanitizers) = env::var("FAIRPATH_SANITIZE") {
        build
            .compiler(env::var("CLANG").unwrap_or_else(|_| "clang-19".into()))
            .flag(format!("-fsanitize={sanitizers}"))
            .flag("-fno-sanitize-recover=all");
    }
    build.compile("fairpath_core_native");
}
