//! Code that is allowed in some files only, or nowhere.
//!
//! Each rule is a row: the files that it checks, the refused words, and the remedy. Words are refused in
//! code, not in comments, and in strings only where a string has the same effect.

use super::arrows::{is_pure_crate, plane_of};
use super::source::{Keep, lines_with, mask};
use super::{File, Finding};

struct Rule {
    name: &'static str,
    applies_to: fn(&str) -> bool,
    keep: Keep,
    words: &'static [&'static str],
    remedy: &'static str,
}

const RULES: &[Rule] = &[
    Rule {
        name: "only the testbed creates namespaces",
        applies_to: may_not_create_namespaces,
        keep: Keep::CodeAndStrings,
        words: &["CLONE_NEWNET", "netns add", "\"netns\", \"add\"", "unshare"],
        remedy: "use a namespace of fairpath-testbed (from a test, the demo or the lab)",
    },
    Rule {
        name: "no pure code reads a clock",
        applies_to: is_pure,
        keep: Keep::Code,
        words: &[
            "SystemTime::now",
            "Instant::now",
            "Timestamp::now",
            "Zoned::now",
            "clock_gettime",
            "gettimeofday",
            "bpf_ktime_get_ns",
            "bpf_ktime_get_boot_ns",
            "bpf_ktime_get_coarse_ns",
        ],
        remedy: "take `now` as an argument; the caller has a clock",
    },
    Rule {
        name: "no pure code opens a socket",
        applies_to: is_pure,
        keep: Keep::Code,
        words: &[
            "TcpStream",
            "TcpListener",
            "UdpSocket",
            "UnixStream",
            "UnixListener",
            "UnixDatagram",
        ],
        remedy: "take what was read as an argument; an edge crate or a binary has the socket",
    },
    Rule {
        name: "unsafe only in model/core, compiled policies, edge/ and lab/testbed",
        applies_to: must_be_safe,
        keep: Keep::Code,
        words: &["unsafe"],
        remedy: "move the operation behind a safe function of one of those crates",
    },
    Rule {
        name: "only core and bpf read bpf/",
        applies_to: may_not_read_bpf,
        keep: Keep::CodeAndStrings,
        words: &["bpf/core", "bpf/prog", "join(\"bpf\")"],
        remedy: "use what fairpath-core (native) or fairpath-bpf (kernel) makes of it",
    },
    Rule {
        name: "nothing unfinished",
        applies_to: |path| path.ends_with(".rs"),
        keep: Keep::Code,
        words: &["todo!", "unimplemented!", "#[ignore]", "#[ignore ="],
        remedy: "finish it or remove it; a test whose need is missing logs a skip (CONTRIBUTING.md)",
    },
    Rule {
        name: "only fairpath-cli prints",
        applies_to: may_not_print,
        keep: Keep::Code,
        words: &["println!", "print!", "eprintln!", "eprint!", "dbg!"],
        remedy: "use fairpath_cli::print, note, print_error or print_stderr, which remove escape sequences",
    },
];

const NAMELESS: &[&str] = &["utils", "util", "common", "helpers", "helper", "misc"];

pub fn check(files: &[File]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = files.iter().filter_map(nameless).collect();
    findings.extend(files.iter().filter_map(unlicensed));
    for file in files {
        findings.extend(
            RULES
                .iter()
                .filter(|r| (r.applies_to)(&file.path))
                .flat_map(|r| apply(r, file)),
        );
    }
    findings
}

fn apply(rule: &Rule, file: &File) -> Vec<Finding> {
    let masked = mask(&file.text, rule.keep);
    let finding = |word: &str, line| Finding {
        path: file.path.clone(),
        line,
        rule: rule.name,
        message: format!("`{word}` is not for this file"),
        remedy: rule.remedy.into(),
    };
    let found = |word: &&str| {
        lines_with(&masked, word)
            .into_iter()
            .map(|line| finding(word, line))
            .collect::<Vec<_>>()
    };
    rule.words.iter().flat_map(found).collect()
}

fn nameless(file: &File) -> Option<Finding> {
    let is_nameless = |part: &str| NAMELESS.contains(&part.split('.').next().unwrap_or(part));
    file.path
        .split('/')
        .find(|part| is_nameless(part))
        .map(|part| Finding {
            path: file.path.clone(),
            line: 1,
            rule: "names describe the content",
            message: format!("`{part}` could hold anything"),
            remedy: "name the file after the one thing it does, and move the rest where it is used"
                .into(),
        })
}

/// The kernel's C is under another licence than the rest, so each file says which.
fn unlicensed(file: &File) -> Option<Finding> {
    let first = file.text.lines().next().unwrap_or_default();
    let is_c = file.path.ends_with(".c") || file.path.ends_with(".h");
    let wants = file.path.starts_with("bpf/") && is_c && !file.path.ends_with("/vmlinux.h");
    (wants && !first.contains("SPDX-License-Identifier:")).then(|| Finding {
        path: file.path.clone(),
        line: 1,
        rule: "the kernel's C names its licence",
        message: "the first line has no SPDX-License-Identifier".to_owned(),
        remedy: "begin with: SPDX-License-Identifier: MIT OR GPL-2.0-only".into(),
    })
}

/// The folder of the crate that a Rust file belongs to (`core`, `tests`), and its path in there.
fn crate_of(path: &str) -> Option<(&str, &str)> {
    if !path.ends_with(".rs") {
        return None;
    }
    match path.strip_prefix("crates/") {
        Some(below) => below.split_once('/')?.1.split_once('/'),
        None => path.split_once('/'),
    }
}

/// Excluded in addition to the testbed: tests, which may build their own when it is the testbed that they
/// test; the guest's runner, whose init is alone on its machine; and these rules, which name the words.
fn may_not_create_namespaces(path: &str) -> bool {
    match crate_of(path) {
        Some(("testbed" | "tests", _)) | None => false,
        Some(("xtask", inside)) => !inside.starts_with("src/vm") && !inside.starts_with("src/tidy"),
        // What the kernel can do is tried where it harms nothing, also without the testbed.
        Some(("features", "src/scratch.rs") | ("netlink", "src/testing.rs")) => false,
        Some((_, inside)) => !inside.starts_with("tests/"),
    }
}

/// Pure crates and the C they share with the kernel; their benches may read a clock.
fn is_pure(path: &str) -> bool {
    path.starts_with("bpf/core/")
        || is_pure_crate(path)
            && crate_of(path).is_some_and(|(_, inside)| inside.starts_with("src/"))
}

/// The core's bindings, the kernel's edge, and the testbed.
fn must_be_safe(path: &str) -> bool {
    crate_of(path).is_some_and(|(name, inside)| {
        !["core", "testbed"].contains(&name)
            && plane_of(path) != "edge"
            && !path.starts_with("crates/model/policy/src/compiled/")
            && inside.starts_with("src/")
    })
}

/// The source of crates, except tests and the settings of the test runner in base/units.
fn may_not_print(path: &str) -> bool {
    path.starts_with("crates/")
        && crate_of(path).is_some_and(|(name, inside)| {
            !["cli", "units"].contains(&name)
                && inside.starts_with("src/")
                && !inside.contains("/tests/")
                && !inside.ends_with("tests.rs")
        })
}

/// xtask is excluded: it checks the format of the C code, and builds nothing from it.
fn may_not_read_bpf(path: &str) -> bool {
    // It holds the page of new things against all sources.
    path != "tests/places/main.rs"
        && crate_of(path).is_some_and(|(name, _)| !["core", "bpf", "xtask"].contains(&name))
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    /// The names of the rules that the made-up file breaks.
    fn broken(path: &str, text: &str) -> Vec<&'static str> {
        check(&[file(path, text)])
            .into_iter()
            .map(|f| f.rule)
            .collect()
    }

    #[test]
    fn only_the_command_line_crate_prints() {
        let rule = RULES.iter().find(|rule| rule.name.contains("prints"));
        let rule = rule.unwrap().name;
        for text in [
            "    println!(\"{name}\");",
            "eprintln!()",
            "print!(\"\")",
            "dbg!(name)",
        ] {
            let found = broken("crates/router/fairpath/src/top.rs", text);
            assert!(found.contains(&rule), "{text}");
            for path in [
                "crates/base/cli/src/output.rs",
                "crates/edge/netlink/src/htb/tests.rs",
                "crates/edge/netlink/tests/a.rs",
                "xtask/src/main.rs",
            ] {
                assert!(!broken(path, text).contains(&rule), "{path}: {text}");
            }
        }
        assert_eq!(
            broken("crates/show/top/src/a.rs", "// println!(a)\n"),
            [""; 0]
        );
    }

    #[test]
    fn only_testbed_and_tests_create_namespaces() {
        let texts = [
            "clone(CloneFlags::CLONE_NEWNET)",
            "run(\"ip netns add a\")",
            "Command::new(\"ip\").args([\"netns\", \"add\", name])",
            "Command::new(\"unshare\")",
        ];
        for text in texts {
            for path in [
                "crates/router/fairpath/src/main.rs",
                "crates/edge/bpf/src/lib.rs",
                "xtask/src/test.rs",
            ] {
                assert!(
                    broken(path, text).contains(&RULES[0].name),
                    "{path}: {text}"
                );
            }
            for path in [
                "crates/lab/testbed/src/ns.rs",
                "tests/netns/a.rs",
                "crates/edge/bpf/tests/a.rs",
                "xtask/src/vm.rs",
            ] {
                assert_eq!(broken(path, text), [""; 0], "{path}: {text}");
            }
        }
        assert_eq!(
            broken(
                "crates/router/fairpath/src/main.rs",
                "// ip netns add\nlet unshared = 1;"
            ),
            [""; 0]
        );
    }

    #[test]
    fn pure_code_reads_no_clock() {
        for word in RULES[1].words {
            assert_eq!(
                broken("crates/model/rtt/src/lib.rs", &format!("let t = {word}();")),
                [RULES[1].name]
            );
            assert_eq!(
                broken(
                    "crates/router/fairpath/src/main.rs",
                    &format!("let t = {word}();")
                ),
                [""; 0]
            );
        }
        let c = "// SPDX-License-Identifier: MIT OR GPL-2.0-only\nnow = bpf_ktime_get_ns();";
        assert_eq!(broken("bpf/core/rtt.h", c), [RULES[1].name]);
        assert_eq!(broken("bpf/prog/rtt.bpf.c", c), [""; 0]);
        assert_eq!(
            broken("crates/model/core/benches/rtt.rs", "Instant::now()"),
            [""; 0]
        );
    }

    #[test]
    fn pure_code_opens_no_socket() {
        let text = "let s = UdpSocket::bind(at)?;";
        for path in [
            "crates/model/rtt/src/lib.rs",
            "crates/lab/analysis/src/page/mod.rs",
        ] {
            assert_eq!(broken(path, text), [RULES[2].name], "{path}");
            assert_eq!(broken(path, "Instant::now()"), [RULES[1].name], "{path}");
        }
        for path in ["crates/lab/lab/src/run.rs", "crates/edge/netlink/src/a.rs"] {
            assert_eq!(broken(path, text), [""; 0], "{path}");
        }
    }

    #[test]
    fn unsafe_stays_in_its_crates() {
        for path in [
            "crates/model/rtt/src/a.rs",
            "crates/router/fairpath/src/main.rs",
            "xtask/src/run.rs",
            "tests/src/lib.rs",
        ] {
            assert_eq!(
                broken(path, "fn f() { unsafe { g() } }"),
                [RULES[3].name],
                "{path}"
            );
        }
        for name in ["model/core", "edge/bpf", "edge/netlink", "lab/testbed"] {
            assert_eq!(
                broken(&format!("crates/{name}/src/a.rs"), "unsafe {}"),
                [""; 0]
            );
        }
        assert_eq!(
            broken(
                "crates/model/rtt/src/a.rs",
                "// unsafe\n#![forbid(unsafe_code)]\n\"unsafe\""
            ),
            [""; 0]
        );
    }

    #[test]
    fn only_core_and_bpf_read_the_c() {
        for text in [
            "include_str!(\"../../../bpf/core/rtt.h\")",
            "root.join(\"bpf\")",
            "\"bpf/prog/rtt.bpf.c\"",
        ] {
            assert_eq!(
                broken("crates/model/rtt/build.rs", text),
                [RULES[4].name],
                "{text}"
            );
            assert_eq!(broken("crates/edge/bpf/build.rs", text), [""; 0], "{text}");
        }
        assert_eq!(
            broken(
                "crates/router/fairpath/src/main.rs",
                "\"/sys/fs/bpf/fairpath\""
            ),
            [""; 0]
        );
    }

    #[test]
    fn nothing_is_left_unfinished() {
        for text in [
            "todo!()",
            "unimplemented!(\"x\")",
            "#[ignore]\nfn f() {}",
            "#[ignore = \"slow\"]",
        ] {
            assert!(
                broken("tests/netns/a.rs", text).contains(&RULES[5].name),
                "{text}"
            );
        }
        assert_eq!(
            broken("tests/netns/a.rs", "// todo!\nf(\"todo!\")"),
            [""; 0]
        );
    }

    #[test]
    fn c_for_the_kernel_names_its_licence() {
        let rule = "the kernel's C names its licence";
        assert_eq!(broken("bpf/core/rtt.h", "#pragma once\n"), [rule]);
        assert_eq!(broken("bpf/prog/rtt.bpf.c", ""), [rule]);
        assert_eq!(
            broken("bpf/core/rtt.h", "/* SPDX-License-Identifier: MIT */\n"),
            [""; 0]
        );
        assert_eq!(broken("bpf/prog/vmlinux.h", ""), [""; 0]);
    }

    #[test]
    fn nameless_files_and_directories_are_found() {
        for path in [
            "crates/router/fairpath/src/utils.rs",
            "tests/common/mod.rs",
            "bpf/helpers/README.md",
            "misc.md",
        ] {
            assert_eq!(broken(path, ""), ["names describe the content"], "{path}");
        }
        assert_eq!(
            broken("crates/router/fairpath/src/commonality.rs", ""),
            [""; 0]
        );
    }

    #[test]
    fn a_finding_names_file_line_rule_and_remedy() {
        let findings = check(&[file("crates/router/fairpath/src/main.rs", "\n\nunsafe {}")]);
        assert_eq!(
            findings[0].to_string(),
            "crates/router/fairpath/src/main.rs:3: unsafe only in model/core, compiled policies, edge/ and lab/testbed: \
             `unsafe` is not for this file; remedy: move the operation behind a safe function of one of those crates"
        );
    }
}
