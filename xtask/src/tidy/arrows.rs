//! Which crate may depend on which: data flows one way.
//!
//! ```text
//! units <- wire <- core <- class  rtt  rules    class <- sched <- shape    pure: no clock, no sockets
//! units <- wire <- bpf  netlink  afxdp  nfqueue        the kernel's edge (may use core's types)
//! rtt <- top  export                                   show and export snapshots
//! units, statistics <- report                          pure, too: pages of anything measured
//! pure + edge <- fairpath                              assembly
//! netlink, bpf <- testbed <- demo, lab, bench          outside: they run the binary
//! ```
//!
//! A development dependency is freer, since tests may plant what the product may not: it may be the
//! testbed, wire or anything pure. A pure crate's may only be pure.

use super::{File, Finding};
use anyhow::Result;
use cargo_metadata::{DependencyKind, MetadataCommand};

pub const PURE: &[&str] = &[
    "units",
    "wire",
    "core",
    "class",
    "rtt",
    "sched",
    "shape",
    "rules",
    "report",
    "statistics",
];
const EDGE: &[&str] = &["bpf", "netlink", "afxdp", "nfqueue"];

/// A crate of ours depends on another of ours. Names are without `fairpath-`; the binary's is
/// `fairpath`.
#[derive(Debug)]
pub struct Arrow {
    pub from: String,
    pub to: String,
    pub dev: bool,
    /// The manifest that says so.
    pub path: String,
    pub line: usize,
}

/// The arrows that cargo knows of in this workspace, crates without any as arrows to themselves.
pub fn from_metadata(files: &[File]) -> Result<Vec<Arrow>> {
    let metadata = MetadataCommand::new().no_deps().exec()?;
    let members = metadata.workspace_packages();
    let ours = |name: &str| members.iter().any(|p| p.name.as_str() == name);
    let mut arrows = Vec::new();
    for package in &members {
        let manifest = package.manifest_path.strip_prefix(&metadata.workspace_root);
        let path = manifest.unwrap_or(&package.manifest_path).to_string();
        let text = files
            .iter()
            .find(|f| f.path == path)
            .map_or("", |f| &f.text);
        let mut arrow = |to: &str, dev: bool| {
            arrows.push(Arrow {
                from: short(&package.name),
                to: short(to),
                dev,
                line: line_of(text, to),
                path: path.clone(),
            });
        };
        arrow(&package.name, false);
        for dependency in package.dependencies.iter().filter(|d| ours(&d.name)) {
            arrow(
                &dependency.name,
                dependency.kind == DependencyKind::Development,
            );
        }
    }
    Ok(arrows)
}

/// Every arrow that points the wrong way, and every crate that has no place in the house.
pub fn check(arrows: &[Arrow]) -> Vec<Finding> {
    arrows.iter().filter_map(judge).collect()
}

fn judge(arrow: &Arrow) -> Option<Finding> {
    let Arrow {
        from,
        to,
        dev,
        path,
        line,
    } = arrow;
    let finding = |message, remedy| {
        Some(Finding {
            path: path.clone(),
            line: *line,
            rule: "arrows",
            message,
            remedy,
        })
    };
    let Some(allowed) = allowed(from) else {
        return finding(
            format!("the crate {from} has no place in the house"),
            "give it one in xtask/src/tidy/arrows.rs and in ARCHITECTURE.md",
        );
    };
    if from == to || allowed.contains(&to.as_str()) || *dev && allowed_in_tests(from, to) {
        return None;
    }
    if to == "fairpath" {
        return finding(
            format!("{from} depends on fairpath, on which nothing may depend"),
            "run the binary, or move what is needed into a pure crate",
        );
    }
    let kind = if *dev { " for its tests" } else { "" };
    finding(
        format!(
            "{from} may not depend on {to}{kind} (only on: {})",
            allowed.join(", ")
        ),
        "let the caller pass values in, or move the shared part to a crate both may see",
    )
}

/// What a crate may be built on, or `None` for a crate the house does not know.
fn allowed(from: &str) -> Option<Vec<&'static str>> {
    let everything_but_the_binary = || [PURE, EDGE, &["testbed", "top", "export"]].concat();
    Some(match from {
        "units" | "statistics" | "xtask" => vec![],
        "wire" => vec!["units"],
        "report" => vec!["units", "statistics"],
        "core" => vec!["units", "wire"],
        "class" | "rtt" | "rules" | "bpf" | "netlink" | "afxdp" | "nfqueue" => {
            vec!["units", "wire", "core"]
        }
        // Its trees and its traffic may come from classes.
        "sched" => vec!["units", "wire", "core", "class"],
        // Lanes are schedulers for classes.
        "shape" => vec!["units", "wire", "core", "class", "sched"],
        // What shows and exports snapshots knows no kernel.
        "top" | "export" => vec!["units", "rtt"],
        "fairpath" => [PURE, EDGE, &["top", "export"]].concat(),
        "testbed" => vec!["netlink", "bpf", "units", "wire"],
        // bpf: to plant losses by XDP.
        "demo" => vec!["testbed", "bpf", "units", "report"],
        // netlink: sockets of flows. bpf: congestion control of its own.
        "lab" => vec!["testbed", "bpf", "netlink", "nfqueue", "units", "report"],
        "bench" => everything_but_the_binary(),
        // The lab's records, read as its own pages read them.
        "tests" => [&everything_but_the_binary()[..], &["lab"]].concat(),
        _ => return None,
    })
}

fn allowed_in_tests(from: &str, to: &str) -> bool {
    PURE.contains(&to) || to == "testbed" && !PURE.contains(&from)
}

fn short(name: &str) -> String {
    name.strip_prefix("fairpath-").unwrap_or(name).to_owned()
}

/// The line of the manifest that names the dependency (the first if it is there twice).
fn line_of(manifest: &str, name: &str) -> usize {
    let names_it = |line: &str| {
        line.strip_prefix(name)
            .is_some_and(|rest| rest.starts_with(['.', ' ', '=']))
            || line.ends_with(&format!(".{name}]"))
    };
    manifest.lines().position(names_it).map_or(1, |i| i + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(from: &str, to: &str, dev: bool) -> bool {
        let arrow = Arrow {
            from: from.into(),
            to: to.into(),
            dev,
            path: "p".into(),
            line: 1,
        };
        !check(&[arrow]).is_empty()
    }

    #[test]
    fn a_pure_crate_sees_only_pure_crates_before_it() {
        for (from, to) in [
            ("wire", "units"),
            ("core", "wire"),
            ("core", "units"),
            ("rtt", "core"),
            ("rules", "wire"),
        ] {
            assert!(!broken(from, to, false), "{from} -> {to}");
        }
        for (from, to) in [
            ("units", "wire"),
            ("wire", "core"),
            ("core", "rtt"),
            ("rtt", "sched"),
            ("rtt", "netlink"),
        ] {
            assert!(broken(from, to, false), "{from} -> {to}");
        }
    }

    #[test]
    fn edge_crates_never_see_each_other() {
        for (from, to) in [
            ("bpf", "core"),
            ("bpf", "units"),
            ("netlink", "wire"),
            ("nfqueue", "wire"),
        ] {
            assert!(!broken(from, to, false), "{from} -> {to}");
        }
        for (from, to) in [
            ("bpf", "netlink"),
            ("netlink", "afxdp"),
            ("nfqueue", "netlink"),
            ("nfqueue", "bpf"),
            ("afxdp", "bpf"),
            ("bpf", "rtt"),
        ] {
            assert!(broken(from, to, false), "{from} -> {to}");
            assert!(
                PURE.contains(&to) || broken(from, to, true),
                "{from} -> {to} in tests"
            );
        }
    }

    #[test]
    fn nothing_sees_the_binary() {
        for from in ["rtt", "demo", "lab", "tests", "testbed", "xtask", "bench"] {
            assert!(broken(from, "fairpath", false), "{from}");
            assert!(broken(from, "fairpath", true), "{from} in tests");
        }
    }

    #[test]
    fn the_binary_never_sees_the_testbed_outside_its_tests() {
        assert!(broken("fairpath", "testbed", false));
        assert!(!broken("fairpath", "testbed", true));
        assert!(!broken("fairpath", "netlink", false));
    }

    #[test]
    fn testbed_and_demo_see_what_they_were_given() {
        for (from, to) in [
            ("testbed", "netlink"),
            ("testbed", "bpf"),
            ("demo", "testbed"),
            ("demo", "report"),
        ] {
            assert!(!broken(from, to, false), "{from} -> {to}");
        }
        for (from, to) in [
            ("testbed", "rtt"),
            ("testbed", "nfqueue"),
            ("demo", "netlink"),
            ("demo", "rtt"),
        ] {
            assert!(broken(from, to, false), "{from} -> {to}");
        }
    }

    #[test]
    fn tests_of_pure_crates_stay_pure_and_others_may_use_the_testbed() {
        assert!(!broken("wire", "core", true));
        assert!(broken("rtt", "testbed", true));
        assert!(broken("core", "bpf", true));
        assert!(!broken("bpf", "testbed", true));
        assert!(!broken("netlink", "testbed", true));
    }

    #[test]
    fn a_crate_without_a_place_is_found_even_without_dependencies() {
        assert!(broken("utils", "utils", false));
        assert!(!broken("units", "units", false));
    }

    #[test]
    fn the_line_is_the_one_that_names_the_dependency() {
        let manifest = "[package]\nname = \"x\"\n[dependencies]\nfairpath-bpf-x = 1\nfairpath-bpf.workspace = true\n";
        assert_eq!(line_of(manifest, "fairpath-bpf"), 5);
        assert_eq!(
            line_of("\n[dependencies.fairpath-bpf]\n", "fairpath-bpf"),
            2
        );
    }
}
