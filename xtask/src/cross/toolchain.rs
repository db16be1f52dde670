//! A compiler for arm64 from Debian's archive, unpacked and not installed.
//!
//! ```text
//! .cache/arm64/root/      packages, unpacked: rustc-web, its libraries, both standard libraries, libelf and zlib
//! .cache/arm64/rustc      runs that rustc with those libraries
//! .cache/arm64/recipe     its recipe; another recipe rebuilds it
//! ```
//!
//! `rustc-web` is the newest Rust that Debian keeps for its browsers in the security archive of its
//! oldest release; the standard library for arm64 is built from the same source, as it must be. apt
//! resolves, verifies and downloads with separate lists: the machine's lists do not change.

use crate::{run, vm};
use anyhow::{Context, Result, ensure};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The release whose `rustc-web` runs on every newer one, too.
const SUITE: &str = "bookworm";
/// Packages that are taken by name; what rustc loads comes by dependency.
const PACKAGES: [&str; 7] = [
    "rustc-web",
    "libstd-rust-web-dev",
    "libstd-rust-web-dev:arm64",
    "libelf-dev:arm64",
    "libelf1:arm64",
    "zlib1g-dev:arm64",
    "zlib1g:arm64",
];
/// Whose dependencies are the libraries that rustc loads.
const LOADED_BY_RUSTC: &str = "libstd-rust-web-dev:amd64";
/// This machine's own, which any program here loads already.
const OF_THIS_MACHINE: [&str; 4] = ["libc6", "libgcc-s1", "libstdc++6", "gcc-12-base"];
/// 145 MB when this was written; far more is an error.
const MAX_DOWNLOAD_BYTES: u64 = 300_000_000;
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
const RUSTC: &str = "#!/bin/sh
here=$(dirname \"$(readlink -f \"$0\")\")
LD_LIBRARY_PATH=$here/root/usr/lib/x86_64-linux-gnu exec \"$here/root/usr/bin/rustc\" \"$@\"
";

/// An unpacked compiler.
pub struct Toolchain {
    dir: PathBuf,
}

impl Toolchain {
    /// The one in `dir`, which is made if it is not there or was made by another recipe.
    pub fn get(dir: &Path) -> Result<Toolchain> {
        let toolchain = Toolchain {
            dir: dir.to_owned(),
        };
        let recipe = format!("{SUITE}\n{}\n{RUSTC}", PACKAGES.join(" "));
        let made_by = dir.join("recipe");
        if fs::read_to_string(&made_by).is_ok_and(|text| text == recipe) {
            return Ok(toolchain);
        }
        println!("cross: fetching a compiler for arm64 from Debian's archive");
        let new = dir.with_extension(format!("new.{}", std::process::id()));
        let result = fill(&new).and_then(|()| {
            fs::write(new.join("recipe"), &recipe).context("write the recipe")?;
            if dir.exists() {
                fs::remove_dir_all(dir).with_context(|| format!("remove {}", dir.display()))?;
            }
            fs::rename(&new, dir).with_context(|| format!("rename to {}", dir.display()))
        });
        let _ = fs::remove_dir_all(&new);
        result.map(|()| toolchain)
    }

    /// Where the packages are unpacked.
    pub fn root(&self) -> PathBuf {
        self.dir.join("root")
    }

    /// The compiler, to be run by cargo.
    pub fn rustc(&self) -> PathBuf {
        self.dir.join("rustc")
    }

    /// Headers that are the same on every machine.
    pub fn include(&self) -> PathBuf {
        self.root().join("usr/include")
    }

    /// Where a program for arm64 finds its libraries: Debian 12 keeps some in `/lib`.
    pub fn loader_path(&self) -> String {
        let other = self.root().join("lib/aarch64-linux-gnu");
        format!("{}:{}", self.libraries().display(), other.display())
    }

    /// arm64's libraries, to link with.
    pub fn libraries(&self) -> PathBuf {
        self.root().join("usr/lib/aarch64-linux-gnu")
    }
}

fn fill(dir: &Path) -> Result<()> {
    let apt = Apt::new(&dir.join("apt"))?;
    run::output(&mut apt.command("apt-get", &["update", "-qq"])).context("fetch lists")?;
    let mut packages: Vec<String> = PACKAGES.iter().map(|name| name.to_string()).collect();
    packages.extend(apt.dependencies(LOADED_BY_RUSTC)?);
    let (bytes, files) = apt.download(&packages)?;
    println!("cross: {files} packages, {} MB", bytes / 1_000_000);
    let root = dir.join("root");
    fs::create_dir_all(&root).with_context(|| format!("create {}", root.display()))?;
    for package in apt.downloaded()? {
        let mut dpkg = Command::new("dpkg-deb");
        run::output(dpkg.arg("--extract").arg(&package).arg(&root))?;
    }
    let rustc = dir.join("rustc");
    fs::write(&rustc, RUSTC).context("write rustc's wrapper")?;
    fs::set_permissions(&rustc, Permissions::from_mode(0o755)).context("make rustc executable")?;
    fs::remove_dir_all(&apt.dir).with_context(|| format!("remove {}", apt.dir.display()))?;
    new_enough(&rustc)
}

/// Reports a compiler that is too old for the workspace, before a crate fails to build with it.
fn new_enough(rustc: &Path) -> Result<()> {
    let output = run::output(Command::new(rustc).arg("--version"))?;
    let version = output.split_whitespace().nth(1).unwrap_or_default();
    let floor = env!("CARGO_PKG_RUST_VERSION");
    ensure!(
        numbers(version) >= numbers(floor),
        "{SUITE}'s rustc-web is {version}, older than the {floor} that Fairpath needs; \
         is its security archive reached?"
    );
    println!("cross: {}", output.trim());
    Ok(())
}

/// Major and minor version.
fn numbers(version: &str) -> Vec<u32> {
    let parts = version.split(['.', '-']).take(2);
    parts.filter_map(|part| part.parse().ok()).collect()
}

/// apt with separate lists, cache and sources, for both machines.
struct Apt {
    dir: PathBuf,
}

impl Apt {
    fn new(dir: &Path) -> Result<Apt> {
        for part in ["lists/partial", "cache/archives/partial", "debs"] {
            let part = dir.join(part);
            fs::create_dir_all(&part).with_context(|| format!("create {}", part.display()))?;
        }
        let dir = fs::canonicalize(dir).with_context(|| format!("find {}", dir.display()))?;
        let mirror = vm::mirror();
        let source = |mirror: &str, suite: &str| {
            format!("deb [arch=amd64,arm64 signed-by={KEYRING}] {mirror} {suite} main\n")
        };
        let sources = source(&mirror, SUITE)
            + &source(&format!("{mirror}-security"), &format!("{SUITE}-security"));
        let settings = format!(
            "Dir::State \"{0}\";\nDir::State::status \"{0}/status\";\nDir::Cache \"{0}/cache\";\n\
             Dir::Etc::sourcelist \"{0}/sources.list\";\nDir::Etc::sourceparts \"-\";\n\
             APT::Architecture \"amd64\";\nAPT::Architectures {{ \"amd64\"; \"arm64\"; }};\n\
             APT::Sandbox::User \"\";\nAcquire::Languages \"none\";\nAcquire::Retries \"3\";\n\
             APT::Update::Post-Invoke-Success \"\";\n#clear APT::Update::Post-Invoke-Success;\n",
            dir.display()
        );
        for (name, text) in [
            ("sources.list", sources.as_str()),
            ("apt.conf", settings.as_str()),
            ("status", ""),
        ] {
            fs::write(dir.join(name), text).with_context(|| format!("write apt's {name}"))?;
        }
        Ok(Apt { dir })
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments);
        command
            .env("APT_CONFIG", self.dir.join("apt.conf"))
            .current_dir(self.dir.join("debs"));
        command
    }

    /// Names of what `package` needs, without what this machine has.
    fn dependencies(&self, package: &str) -> Result<Vec<String>> {
        let arguments = ["depends", "--recurse", "--important", package];
        let tree = run::output(&mut self.command("apt-cache", &arguments))?;
        let names = tree
            .lines()
            .filter(|line| !line.starts_with([' ', '<', '|']));
        Ok(names
            .filter(|name| !OF_THIS_MACHINE.contains(name) && !PACKAGES.contains(name))
            .map(str::to_owned)
            .collect())
    }

    /// Downloads packages, unless they are more than [`MAX_DOWNLOAD_BYTES`]; returns bytes and files.
    fn download(&self, packages: &[String]) -> Result<(u64, usize)> {
        let names: Vec<&str> = packages.iter().map(String::as_str).collect();
        let mut arguments = vec!["download", "-qq", "--print-uris"];
        arguments.extend(&names);
        let listed = run::output(&mut self.command("apt-get", &arguments))?;
        // 'URI' FILE BYTES HASH
        let size = |line: &str| line.split_whitespace().nth(2)?.parse::<u64>().ok();
        let sizes: Vec<u64> = listed.lines().filter_map(size).collect();
        let bytes = sizes.iter().sum();
        ensure!(
            bytes <= MAX_DOWNLOAD_BYTES,
            "the compiler for arm64 is {bytes} bytes to download, more than {MAX_DOWNLOAD_BYTES}"
        );
        arguments.remove(2);
        run::output(&mut self.command("apt-get", &arguments)).context("download packages")?;
        Ok((bytes, sizes.len()))
    }

    fn downloaded(&self) -> Result<Vec<PathBuf>> {
        let dir = self.dir.join("debs");
        let entries = fs::read_dir(&dir).with_context(|| format!("read {}", dir.display()))?;
        entries.map(|entry| Ok(entry?.path())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_number() {
        assert!(numbers("1.100.0") > numbers("1.96.0"));
        assert!(numbers("1.88.0-nightly") >= numbers("1.88"));
        assert!(numbers("1.85.0") < numbers("1.88"));
    }
}
