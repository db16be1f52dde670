//! Which crate may depend on which: the folder is the rule.
//!
//! ```text
//! crates/base    base                           no kernel, no domain
//! crates/model   base, model                    no clock, no socket
//! crates/edge    base, model                    the kernel's edge; never each other
//! crates/show    base, model                    shows and exports; never each other
//! crates/router  base, model, edge, show, router
//! crates/lab     base, model, edge, show, lab; of these analysis: base, model, show
//! crates/author  base, model, edge, show, author
//! tests benches  everything but the binary
//! xtask          nothing
//! ```
//!
//! A new crate needs no entry here: `crates/PLANE/NAME` says what it may see. The package in it is
//! `fairpath-NAME`. A development dependency is freer: outside of `base` and `model` it may also be
//! the testbed.

use super::{File, Finding};
use anyhow::{Context, Result};
use cargo_metadata::{CargoOpt, DependencyKind, Metadata, MetadataCommand};
use std::collections::{BTreeMap, BTreeSet};

/// Each plane and the planes that its crates may see.
const PLANES: &[(&str, &[&str])] = &[
    ("base", &["base"]),
    ("model", &["base", "model"]),
    ("edge", &["base", "model"]),
    ("show", &["base", "model"]),
    ("router", &["base", "model", "edge", "show", "router"]),
    ("lab", &["base", "model", "edge", "show", "lab"]),
    ("author", &["base", "model", "edge", "show", "author"]),
    ("tests", ALL),
    ("benches", ALL),
    ("xtask", &[]),
];
const ALL: &[&str] = &["base", "model", "edge", "show", "router", "lab", "author"];

/// Planes whose crates neither see a clock nor a socket.
const PURE: &[&str] = &["base", "model"];
/// Crates of other planes that see neither, and what they may see instead of their plane's share.
const PURE_CRATES: &[(&str, &[&str])] = &[("crates/lab/analysis/", &["base", "model", "show"])];

/// True if a path below the root is in a crate that uses neither clock nor socket.
pub fn is_pure_crate(path: &str) -> bool {
    PURE.contains(&plane_of(path)) || PURE_CRATES.iter().any(|(at, _)| path.starts_with(at))
}

/// The plane of a path below the root: that of `crates/PLANE/NAME/...`, else the first folder.
pub fn plane_of(path: &str) -> &str {
    let path = path.strip_prefix("crates/").unwrap_or(path);
    path.split('/').next().unwrap_or(path)
}

/// A crate of ours depends on another of ours.
#[derive(Debug)]
pub struct Arrow {
    pub from: Place,
    pub to: Place,
    pub dev: bool,
    /// The line of the manifest of `from` that says so.
    pub line: usize,
}

/// The manifest of a crate, and its package's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub name: String,
    /// Its manifest, relative to the root.
    pub manifest: String,
}

impl Place {
    fn plane(&self) -> &str {
        plane_of(&self.manifest)
    }

    /// The folder's name: `crates/model/rtt/Cargo.toml` is in `rtt`.
    fn folder(&self) -> &str {
        self.manifest.rsplit('/').nth(1).unwrap_or_default()
    }
}

/// The arrows that cargo knows of in this workspace, crates without any as arrows to themselves.
pub fn from_metadata(files: &[File]) -> Result<Vec<Arrow>> {
    let metadata = MetadataCommand::new().no_deps().exec()?;
    let places: Vec<Place> = metadata
        .workspace_packages()
        .iter()
        .map(|package| Place {
            name: package.name.to_string(),
            manifest: package
                .manifest_path
                .strip_prefix(&metadata.workspace_root)
                .unwrap_or(&package.manifest_path)
                .to_string(),
        })
        .collect();
    let mut arrows = Vec::new();
    for (package, from) in metadata.workspace_packages().iter().zip(&places) {
        let text = files
            .iter()
            .find(|f| f.path == from.manifest)
            .map_or("", |f| &f.text);
        let mut arrow = |to: &Place, dev: bool| {
            arrows.push(Arrow {
                from: from.clone(),
                to: to.clone(),
                dev,
                line: line_of(text, &to.name),
            });
        };
        arrow(from, false);
        for dependency in &package.dependencies {
            if let Some(to) = places.iter().find(|p| p.name == dependency.name) {
                arrow(to, dependency.kind == DependencyKind::Development);
            }
        }
    }
    Ok(arrows)
}

/// Every arrow in the wrong direction, and every crate that is in no plane.
pub fn check(arrows: &[Arrow]) -> Vec<Finding> {
    arrows.iter().filter_map(judge).collect()
}

fn judge(arrow: &Arrow) -> Option<Finding> {
    let Arrow {
        from,
        to,
        dev,
        line,
    } = arrow;
    let finding = |message, remedy: &'static str| {
        Some(Finding {
            path: from.manifest.clone(),
            line: *line,
            rule: "arrows",
            message,
            remedy: remedy.into(),
        })
    };
    let Some(allowed) = allowed(&from.manifest) else {
        return finding(
            format!("{} is in no plane", from.name),
            "move it into one of the folders of crates/ (ARCHITECTURE.md)",
        );
    };
    if from == to {
        let named = ["fairpath", &format!("fairpath-{}", from.folder())].contains(&&*from.name);
        return if named || !from.manifest.starts_with("crates/") {
            None
        } else {
            finding(
                format!("{} is in the folder {}", from.name, from.folder()),
                "a crate is called fairpath- and the name of its folder",
            )
        };
    }
    if to.name == "fairpath" {
        return finding(
            format!(
                "{} depends on fairpath, on which nothing may depend",
                from.name
            ),
            "run the binary, or move what is needed into a crate that both may see",
        );
    }
    if allowed.contains(&to.plane()) || *dev && allowed_in_tests(from, to) {
        return None;
    }
    let kind = if *dev { " for its tests" } else { "" };
    finding(
        format!(
            "{} ({}) may not depend on {} ({}){kind}; it may depend on: {}",
            from.name,
            from.plane(),
            to.name,
            to.plane(),
            allowed.join(", ")
        ),
        "let the caller pass values in, or move the shared part to a crate both may see",
    )
}

/// The planes that the crate of a manifest may depend on, or `None` if it is in no plane.
fn allowed(manifest: &str) -> Option<&'static [&'static str]> {
    let of_crate = PURE_CRATES.iter().find(|(at, _)| manifest.starts_with(at));
    let plane = plane_of(manifest);
    of_crate
        .or_else(|| PLANES.iter().find(|(name, _)| *name == plane))
        .map(|(_, planes)| *planes)
}

fn allowed_in_tests(from: &Place, to: &Place) -> bool {
    to.name == "fairpath-testbed" && !is_pure_crate(&from.manifest)
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

/// Crates that the router's binary must not link, and their places.
const NOT_IN_THE_ROUTER: &[(&str, &str)] = &[("mlua", "crates/author: `fairpath sched` runs it")];

/// The router's binary links no Lua: all that `fairpath` is built from, by the lock file.
pub fn router() -> Result<Vec<Finding>> {
    let metadata = whole_metadata().context("list what fairpath is built from")?;
    Ok(unwanted(&linked(&metadata, "fairpath")))
}

/// With all packages, those for other systems excepted: a clean clone has not downloaded them.
fn whole_metadata() -> Result<Metadata> {
    let mut command = MetadataCommand::new();
    command.features(CargoOpt::AllFeatures).other_options([
        "--locked".to_owned(),
        "--filter-platform=x86_64-unknown-linux-gnu".to_owned(),
    ]);
    Ok(command.exec()?)
}

fn unwanted(linked: &BTreeSet<&str>) -> Vec<Finding> {
    let there = NOT_IN_THE_ROUTER
        .iter()
        .filter(|(name, _)| linked.contains(name));
    there
        .map(|(name, remedy)| Finding {
            path: "crates/router/fairpath/Cargo.toml".into(),
            line: 1,
            rule: "the router's binary links no Lua",
            message: format!("fairpath is built from {name}"),
            remedy: (*remedy).into(),
        })
        .collect()
}

/// Names of the packages that a package links, at any depth; those of its tests and build are not.
fn linked<'a>(metadata: &'a Metadata, package: &str) -> BTreeSet<&'a str> {
    let names: BTreeMap<_, _> = metadata
        .packages
        .iter()
        .map(|package| (&package.id, package.name.as_str()))
        .collect();
    let nodes = metadata.resolve.iter().flat_map(|resolve| &resolve.nodes);
    let nodes: BTreeMap<_, _> = nodes.map(|node| (&node.id, node)).collect();
    let root = names.iter().find(|(_, name)| **name == package);
    let mut next: Vec<_> = root.into_iter().map(|(id, _)| *id).collect();
    let mut seen = BTreeSet::new();
    while let Some(id) = next.pop() {
        if !seen.insert(id) {
            continue;
        }
        let links = nodes.get(id).into_iter().flat_map(|node| &node.deps);
        let normal = links.filter(|dep| {
            dep.dep_kinds
                .iter()
                .any(|kind| kind.kind == DependencyKind::Normal)
        });
        next.extend(normal.map(|dep| &dep.pkg));
    }
    seen.iter()
        .filter_map(|id| names.get(id).copied())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(path: &str) -> Place {
        let folder = path.rsplit('/').next().unwrap();
        let name = match folder {
            "fairpath" | "xtask" => folder.to_owned(),
            folder => format!("fairpath-{folder}"),
        };
        Place {
            name,
            manifest: format!("{path}/Cargo.toml"),
        }
    }

    fn broken(from: &str, to: &str, dev: bool) -> bool {
        let crates = |path: &str| match path {
            "tests" | "benches" | "xtask" => place(path),
            path => place(&format!("crates/{path}")),
        };
        let arrow = Arrow {
            from: crates(from),
            to: crates(to),
            dev,
            line: 1,
        };
        !check(&[arrow]).is_empty()
    }

    #[test]
    fn no_arrow_points_upwards() {
        for (from, to) in [
            ("base/wire", "base/units"),
            ("model/core", "base/wire"),
            ("model/shape", "model/sched"),
            ("edge/bpf", "model/core"),
            ("show/top", "model/history"),
            ("router/fairpath", "router/worker"),
            ("router/worker", "edge/nfqueue"),
            ("lab/lab", "lab/analysis"),
            ("author/author", "edge/bpf"),
            ("tests", "router/worker"),
            ("lab/analysis", "show/report"),
        ] {
            assert!(!broken(from, to, false), "{from} -> {to}");
        }
        for (from, to) in [
            ("base/units", "model/core"),
            ("model/core", "edge/bpf"),
            ("model/rtt", "show/top"),
            ("edge/bpf", "router/worker"),
            ("show/top", "edge/netlink"),
            ("lab/lab", "router/worker"),
            ("author/author", "lab/testbed"),
            ("lab/analysis", "lab/testbed"),
            ("lab/analysis", "edge/netlink"),
            ("xtask", "base/units"),
        ] {
            assert!(broken(from, to, false), "{from} -> {to}");
        }
    }

    #[test]
    fn crates_of_the_edge_never_see_each_other() {
        for (from, to) in [
            ("edge/bpf", "edge/netlink"),
            ("edge/nfqueue", "edge/bpf"),
            ("show/top", "show/export"),
        ] {
            assert!(broken(from, to, false), "{from} -> {to}");
            assert!(broken(from, to, true), "{from} -> {to} in tests");
        }
    }

    #[test]
    fn no_crate_depends_on_the_binary() {
        for from in ["model/rtt", "lab/demo", "tests", "router/worker", "benches"] {
            assert!(broken(from, "router/fairpath", false), "{from}");
            assert!(broken(from, "router/fairpath", true), "{from} in tests");
        }
    }

    #[test]
    fn only_tests_outside_pure_crates_use_the_testbed() {
        for from in ["edge/bpf", "router/fairpath", "show/export"] {
            assert!(broken(from, "lab/testbed", false), "{from}");
            assert!(!broken(from, "lab/testbed", true), "{from} in tests");
        }
        assert!(broken("model/rtt", "lab/testbed", true));
        assert!(broken("lab/analysis", "lab/testbed", true));
        assert!(!broken("base/wire", "base/units", true));
    }

    #[test]
    fn a_crate_without_a_plane_is_found() {
        assert!(broken("helpers/x", "helpers/x", false));
        assert!(!broken("base/units", "base/units", false));
        let named_otherwise = Place {
            name: "fairpath-other".into(),
            manifest: "crates/base/units/Cargo.toml".into(),
        };
        let arrow = Arrow {
            from: named_otherwise.clone(),
            to: named_otherwise,
            dev: false,
            line: 1,
        };
        assert_eq!(check(&[arrow]).len(), 1);
    }

    #[test]
    fn lua_in_the_router_is_found() {
        assert!(unwanted(&["anyhow", "fairpath-policy"].into()).is_empty());
        assert_eq!(unwanted(&["anyhow", "mlua"].into()).len(), 1);
    }

    #[test]
    fn linked_packages_are_followed_through_others() {
        let metadata = whole_metadata().unwrap();
        assert!(linked(&metadata, "fairpath-author").contains("mlua"));
        let router = linked(&metadata, "fairpath");
        assert!(router.contains("fairpath-core") && !router.contains("mlua"));
    }

    #[test]
    fn line_is_the_one_that_names_the_dependency() {
        let manifest = "[package]\nname = \"x\"\n[dependencies]\nfairpath-bpf-x = 1\nfairpath-bpf.workspace = true\n";
        assert_eq!(line_of(manifest, "fairpath-bpf"), 5);
        assert_eq!(
            line_of("\n[dependencies.fairpath-bpf]\n", "fairpath-bpf"),
            2
        );
    }
}
