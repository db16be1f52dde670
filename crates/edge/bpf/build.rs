//! Compiles every `bpf/prog/*.bpf.c` and generates its typed skeleton.
//!
//! Embeds the sources of bpf/ and libbpf's headers, too: custom policies are compiled with them.
//!
//! Needs clang 19 or newer: clang 14 drops type tags and crashes on builtins. `CLANG` names it.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use libbpf_cargo::SkeletonBuilder;

include!("../../../bpf/policy_files.rs");

fn main() {
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../../..");
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets it"));
    let libbpf = env::var("DEP_BPF_INCLUDE").expect("libbpf-sys exports its headers");
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang-19".to_owned());
    println!("cargo:rerun-if-env-changed=CLANG");
    // For programs outside the tree, which tests/headers.rs compiles.
    println!("cargo:rustc-env=FAIRPATH_LIBBPF={libbpf}");
    // The kernel's name: BPF code is the same everywhere, but x86 needs fewer barriers.
    let machine = match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("x86_64") => "x86",
        Ok("aarch64") => "arm64",
        _ => "other",
    };
    for folder in ["bpf/core", "bpf/policy", "bpf/policy_files.rs", "bpf/prog"] {
        println!("cargo:rerun-if-changed={}", root.join(folder).display());
    }
    let policies = policy_files(&root);
    fs::write(out.join("policy_files.h"), &policies).expect("OUT_DIR can be written");
    embed(&root, Path::new(&libbpf), &out, &policies);
    for name in [
        "cc_bbr3",
        "drop",
        "empty",
        "impair",
        "inject",
        "mark",
        "netfilter",
        "limit",
        "pifo",
        "pifo_bench",
        "programs",
        "qdisc",
        "recoveries",
        "redirect",
        "rtt",
        "rules",
        "rules_hook",
        "sched",
        "slot",
        "wake_bench",
        "xdp",
    ] {
        let source = root.join(format!("bpf/prog/{name}.bpf.c"));
        let mut builder = SkeletonBuilder::new();
        builder.source(&source).clang(&clang).clang_args([
            "-mcpu=v4",
            // As for the native core.
            "-fno-strict-aliasing",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-Wno-unused-parameter",
            &format!("-I{libbpf}"),
            &format!("-I{}", root.join("bpf/include").display()),
            &format!("-I{}", root.join("bpf").display()),
            &format!("-I{}", out.display()),
            // Debug information does not say where this was built.
            &format!("-ffile-prefix-map={}=.", root.display()),
            &format!("-D__TARGET_ARCH_{machine}"),
        ]);
        // Opened as objects, as an author's own is: no skeleton.
        let result = if ["qdisc", "sched", "slot"].contains(&name) {
            builder
                .obj(out.join(format!("{name}.bpf.o")))
                .build()
                .map(drop)
        } else {
            builder.build_and_generate(out.join(format!("{name}.skel.rs")))
        };
        if let Err(error) = result {
            panic!(
                "compile {} for BPF with {clang}: {error:#}; needs clang 19 or newer (`make setup` installs it)",
                source.display()
            );
        }
    }
}

/// Writes `sources.rs`: the path of each source below bpf/ (and include/bpf/), and its text.
fn embed(root: &Path, libbpf: &Path, out: &Path, policies: &str) {
    let folders = [
        (root.join("bpf/core"), "core"),
        (root.join("bpf/core/class"), "core/class"),
        (root.join("bpf/core/parse"), "core/parse"),
        (root.join("bpf/core/limit"), "core/limit"),
        (root.join("bpf/core/pifo"), "core/pifo"),
        (root.join("bpf/core/rtt"), "core/rtt"),
        (root.join("bpf/core/sched"), "core/sched"),
        (root.join("bpf/include/fairpath"), "include/fairpath"),
        (root.join("bpf/policy"), "policy"),
        (root.join("bpf/prog"), "prog"),
        (libbpf.join("bpf"), "include/bpf"),
    ];
    // Of libbpf, what programs include; of programs, the scheduler and what it includes.
    let wanted = |folder: &str, name: &str| match folder {
        "include/bpf" => ["bpf_helpers.h", "bpf_helper_defs.h", "bpf_core_read.h"].contains(&name),
        // Of round-trip times, what abi.h includes.
        "core/rtt" => name == "methods.h",
        "prog" => name.ends_with(".h") || name.starts_with("sched"),
        _ => name.ends_with(".h") || name.ends_with(".c"),
    };
    let mut text = String::from("&[\n");
    for (folder, place) in folders {
        let entries =
            fs::read_dir(&folder).unwrap_or_else(|e| panic!("list {}: {e}", folder.display()));
        let mut files: Vec<_> = entries.filter_map(Result::ok).map(|e| e.path()).collect();
        files.sort();
        for file in files {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            if file.is_file() && wanted(place, &name) {
                text += &format!(
                    "    ({:?}, include_str!({file:?})),\n",
                    format!("{place}/{name}")
                );
            }
        }
    }
    text += &format!("    (\"core/sched/policy_files.h\", {policies:?}),\n");
    text += "]\n";
    fs::write(out.join("sources.rs"), text).expect("OUT_DIR can be written");
}
