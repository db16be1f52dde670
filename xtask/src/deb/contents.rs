//! The files of the package and their paths.
//!
//! ```text
//! /usr/bin/fairpath                      /usr/share/man/man1, completions of bash, zsh and fish
//! /usr/lib/systemd/system                /usr/share/doc/fairpath: copyright, changelogs, guide
//! /usr/include/fairpath                  headers of queues and policies
//! /usr/lib/sysusers.d, tmpfiles.d        /etc/fairpath/fairpath.toml, the only configuration file
//! /usr/libexec/fairpath                  fairpath-lab and fairpath-sched, which `fairpath NAME` finds
//! ```

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};

use super::relink::Documents;
use super::{Order, licences};
use crate::{pages, run, tidy};

/// Files that are packaged as they are in the repository.
const AS_THEY_ARE: &[(&str, &str)] = &[
    (
        "packaging/fairpath.service",
        "usr/lib/systemd/system/fairpath.service",
    ),
    (
        "packaging/fairpath-rules.service",
        "usr/lib/systemd/system/fairpath-rules.service",
    ),
    (
        "packaging/fairpath-rules-follow.service",
        "usr/lib/systemd/system/fairpath-rules-follow.service",
    ),
    (
        "packaging/debian/sysusers.conf",
        "usr/lib/sysusers.d/fairpath.conf",
    ),
    (
        "packaging/debian/tmpfiles.conf",
        "usr/lib/tmpfiles.d/fairpath.conf",
    ),
    ("packaging/fairpath.toml", "etc/fairpath/fairpath.toml"),
];
/// The headers that are installed, a line each, as below bpf/core.
const HEADERS: &str = "packaging/headers";
/// The output of `fairpath generate completions`, and the directory of each shell.
const COMPLETIONS: &[(&str, &str)] = &[
    (
        "fairpath.bash",
        "usr/share/bash-completion/completions/fairpath",
    ),
    ("_fairpath", "usr/share/zsh/vendor-completions/_fairpath"),
    (
        "fairpath.fish",
        "usr/share/fish/vendor_completions.d/fairpath.fish",
    ),
];
/// Binaries that `fairpath NAME` runs, not meant to be typed.
const LIBEXEC: &str = "usr/libexec/fairpath";
const DOC: &str = "usr/share/doc/fairpath";
/// Directories of the dashboard and of the rules for other programs.
const EXAMPLES: &[(&str, &str)] = &[
    ("packaging/grafana", "grafana"),
    ("packaging/prometheus", "prometheus"),
];
/// Pages about a binary that this package does not contain.
const OF_THE_DEMO: [&str; 2] = ["fairpath-demo.1", "guide/demo.md"];
/// Extensions of the documents and of their images and schemas.
const DOCUMENTS: &[&str] = &["md", "json", "svg", "png"];
/// Documents that are not installed: a recorded report with its data.
const RESULTS: &str = "results/";
/// Pages outside of docs/, and their names in the package, whose README.md is the index of the
/// documents.
const PAGES: [(&str, &str); 2] = [("README.md", "overview.md"), ("SECURITY.md", "SECURITY.md")];
/// Below this prefix, dpkg keeps what the administrator changed.
const CONFIGURATION: &str = "etc/";

/// A directory that becomes a package; what is written into it is remembered in order.
pub struct Tree {
    root: PathBuf,
    epoch: u64,
    files: Vec<(String, Vec<u8>)>,
}

impl Tree {
    /// An empty tree at `root`, which does not exist yet; everything will carry the time `epoch`.
    pub fn new(root: &Path, epoch: u64) -> Self {
        Tree {
            root: root.to_owned(),
            epoch,
            files: Vec::new(),
        }
    }

    /// The path of the tree on this machine.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Writes a file with exactly these permissions; `path` is relative to the system's root.
    pub fn put(&mut self, path: &str, mode: u32, content: &[u8]) -> Result<()> {
        let to = self.root.join(path);
        let dir = to.parent().expect("a file has a directory");
        fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
        fs::write(&to, content).with_context(|| format!("write {}", to.display()))?;
        fs::set_permissions(&to, Permissions::from_mode(mode))
            .with_context(|| format!("set the mode of {}", to.display()))?;
        self.files.push((path.to_owned(), content.to_owned()));
        Ok(())
    }

    fn put_compressed(&mut self, path: &str, content: &[u8]) -> Result<()> {
        self.put(&format!("{path}.gz"), 0o644, &gzip(content)?)
    }

    /// Path and content of everything for the system, sorted; not what is for dpkg alone.
    pub fn files(&self) -> Vec<&(String, Vec<u8>)> {
        let mut files: Vec<_> = self
            .files
            .iter()
            .filter(|(path, _)| !path.starts_with("DEBIAN/"))
            .collect();
        files.sort();
        files
    }

    /// Paths of the files that dpkg treats as the administrator's.
    pub fn configuration(&self) -> Vec<&str> {
        let paths = self.files().into_iter().map(|(path, _)| path.as_str());
        paths
            .filter(|path| path.starts_with(CONFIGURATION))
            .collect()
    }

    /// Gives every directory its mode, and everything its time.
    pub fn settle(&self) -> Result<()> {
        settle(&self.root, UNIX_EPOCH + Duration::from_secs(self.epoch))
    }
}

fn settle(path: &Path, time: std::time::SystemTime) -> Result<()> {
    let context = || format!("settle {}", path.display());
    if path.is_dir() {
        for entry in fs::read_dir(path).with_context(context)? {
            settle(&entry?.path(), time)?;
        }
        fs::set_permissions(path, Permissions::from_mode(0o755)).with_context(context)?;
    }
    let file = File::open(path).with_context(context)?;
    file.set_modified(time).with_context(context)
}

/// Fills `tree`; `made` has what was generated.
pub fn fill(tree: &mut Tree, binary: &Path, made: &Path, order: &Order) -> Result<()> {
    tree.put("usr/bin/fairpath", 0o755, &read(binary)?)?;
    for (_, name) in pages::OTHERS {
        let content = read(&pages::next_to(binary, name))?;
        tree.put(&format!("{LIBEXEC}/{name}"), 0o755, &content)?;
    }
    for (from, to) in AS_THEY_ARE {
        tree.put(to, 0o644, &read(&run::root().join(from))?)?;
    }
    let headers = fs::read_to_string(run::root().join(HEADERS));
    let headers = headers.with_context(|| format!("read {HEADERS}"))?;
    for name in headers.lines().filter(|line| !line.starts_with('#')) {
        let header = read(&run::root().join("bpf/include/fairpath").join(name))?;
        tree.put(&format!("usr/include/fairpath/{name}"), 0o644, &header)?;
    }
    for (from, to) in COMPLETIONS {
        tree.put(to, 0o644, &read(&made.join("completions").join(from))?)?;
    }
    for page in list(&made.join("man"))? {
        let name = page.file_name().unwrap_or_default().to_string_lossy();
        if !OF_THE_DEMO.contains(&&*name) {
            tree.put_compressed(&format!("usr/share/man/man1/{name}"), &read(&page)?)?;
        }
    }
    documentation(tree, order)
}

fn documentation(tree: &mut Tree, order: &Order) -> Result<()> {
    let root = run::root();
    let docs = root.join("docs");
    let mut documents = Documents::default();
    for (page, name) in PAGES {
        documents.add(Path::new(page), name);
    }
    documents.add(Path::new("CHANGELOG.md"), "changelog.gz");
    let mut others = Vec::new();
    for file in tidy::walk(&docs, DOCUMENTS)? {
        // A page keeps its directory.
        let name = file.strip_prefix(&docs)?.to_string_lossy().into_owned();
        if OF_THE_DEMO.contains(&&*name) || name.starts_with(RESULTS) {
            continue;
        }
        documents.add(file.strip_prefix(run::root())?, &name);
        others.push((file, name));
    }
    let pages = PAGES.map(|(page, name)| (root.join(page), name.to_owned()));
    for (file, name) in others.into_iter().chain(pages) {
        let content = match name.ends_with(".md") {
            true => documents
                .relink(file.strip_prefix(run::root())?, &text(&file)?)
                .into(),
            false => read(&file)?,
        };
        tree.put(&format!("{DOC}/{name}"), 0o644, &content)?;
    }
    for (from, to) in EXAMPLES {
        let from = root.join(from);
        for example in from
            .exists()
            .then(|| list(&from))
            .transpose()?
            .unwrap_or_default()
        {
            let name = example.file_name().unwrap_or_default().to_string_lossy();
            tree.put(
                &format!("{DOC}/examples/{to}/{name}"),
                0o644,
                &read(&example)?,
            )?;
        }
    }
    let copyright = text(&root.join("packaging/debian/copyright"))?;
    let mit = text(&root.join("LICENSE-MIT"))?;
    let copyright = copyright.replace("@MIT@\n", &licences::indented(&mit));
    tree.put(&format!("{DOC}/copyright"), 0o644, copyright.as_bytes())?;
    tree.put_compressed(
        &format!("{DOC}/changelog"),
        &read(&root.join("CHANGELOG.md"))?,
    )?;
    tree.put_compressed(
        &format!("{DOC}/changelog.Debian"),
        changelog(order)?.as_bytes(),
    )?;
    tree.put_compressed(
        &format!("{DOC}/third-party-licences"),
        licences::of_dependencies()?.as_bytes(),
    )
}

/// Debian's changelog is about packaging; what changed for users is in the other one.
fn changelog(order: &Order) -> Result<String> {
    let date = run::output(
        Command::new("date")
            .args(["--utc", "--rfc-email"])
            .arg(format!("--date=@{}", order.epoch)),
    )?;
    let control = text(&run::root().join("packaging/debian/control"))?;
    let maintainer = control
        .lines()
        .find_map(|line| line.strip_prefix("Maintainer: "))
        .context("packaging/debian/control names no maintainer")?;
    Ok(format!(
        "fairpath ({}) unstable; urgency=medium\n\n  * What changed is in changelog.gz.\n\n -- {maintainer}  {}\n",
        order.version,
        date.trim()
    ))
}

fn text(path: &Path) -> Result<String> {
    String::from_utf8(read(path)?).with_context(|| format!("read {}", path.display()))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("read {}", path.display()))
}

/// The files of a directory, sorted.
fn list(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = fs::read_dir(dir)
        .with_context(|| format!("read {}", dir.display()))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

/// Compressed as Debian compresses: best, and without name or time.
fn gzip(content: &[u8]) -> Result<Vec<u8>> {
    let mut child = Command::new("gzip")
        .args(["-9n", "--stdout"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("run gzip")?;
    let mut input = child.stdin.take().expect("its input is a pipe");
    let content = content.to_owned();
    // From another thread: both pipes may fill.
    let writer = std::thread::spawn(move || input.write_all(&content));
    let output = child.wait_with_output().context("run gzip")?;
    let written = writer.join().expect("writing does not panic");
    written.context("feed gzip")?;
    ensure!(output.status.success(), "gzip: {}", output.status);
    Ok(output.stdout)
}
