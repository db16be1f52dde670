//! The input of dpkg: control file, maintainer scripts, configuration files, checksums.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use super::contents::Tree;
use crate::run;

const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// The values of the placeholders of the control file.
pub struct Facts<'a> {
    pub version: &'a str,
    pub architecture: &'a str,
    /// Packages of shared libraries, as dpkg-shlibdeps names them.
    pub libraries: &'a str,
}

/// Writes `DEBIAN/` for everything that is in `tree` by now.
pub fn write(tree: &mut Tree, facts: &Facts) -> Result<()> {
    let template = read("control")?;
    let sizes = tree
        .files()
        .iter()
        .map(|(_, content)| content.len())
        .collect::<Vec<_>>();
    let control = fill(&template, facts, installed_kib(&sizes));
    let conffiles: String = tree
        .configuration()
        .iter()
        .map(|path| format!("/{path}\n"))
        .collect();
    let sums = checksums(tree)?;
    tree.put("DEBIAN/control", 0o644, control.as_bytes())?;
    tree.put("DEBIAN/conffiles", 0o644, conffiles.as_bytes())?;
    tree.put("DEBIAN/md5sums", 0o644, sums.as_bytes())?;
    for script in SCRIPTS {
        tree.put(&format!("DEBIAN/{script}"), 0o755, read(script)?.as_bytes())?;
    }
    Ok(())
}

fn fill(template: &str, facts: &Facts, installed_kib: usize) -> String {
    template
        .replace("@VERSION@", facts.version)
        .replace("@ARCHITECTURE@", facts.architecture)
        .replace("@INSTALLED_SIZE@", &installed_kib.to_string())
        .replace("@SHLIBS@", facts.libraries)
}

/// As dpkg-gencontrol counts: each file in whole KiB.
fn installed_kib(sizes: &[usize]) -> usize {
    sizes.iter().map(|bytes| bytes.div_ceil(1024)).sum()
}

/// `md5sums`: everything but configuration, which may change.
fn checksums(tree: &Tree) -> Result<String> {
    let configuration = tree.configuration();
    let mut command = Command::new("md5sum");
    command.current_dir(tree.root());
    for (path, _) in tree.files() {
        if !configuration.contains(&path.as_str()) {
            command.arg(path);
        }
    }
    run::output(&mut command)
}

fn read(name: &str) -> Result<String> {
    let path = run::root().join("packaging/debian").join(name);
    fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_file_has_no_unfilled_placeholder() {
        let facts = Facts {
            version: "1.2-1",
            architecture: "amd64",
            libraries: "libc6 (>= 2.34)",
        };
        let control = fill(&read("control").unwrap(), &facts, 7);
        for line in [
            "Version: 1.2-1",
            "Architecture: amd64",
            "Installed-Size: 7",
            "Depends: libc6 (>= 2.34), systemd",
        ] {
            assert!(control.lines().any(|l| l == line), "{line} in\n{control}");
        }
        let fields = control.lines().filter(|line| !line.contains("<"));
        assert!(!fields.collect::<String>().contains('@'));
    }

    #[test]
    fn size_counts_whole_kib_of_each_file() {
        assert_eq!(installed_kib(&[1, 1024, 1025]), 4);
    }
}
