//! `cargo xtask deb`: the Debian package of what an operator installs.
//!
//! dpkg-deb packs a directory that is filled here. The same tree gives the same bytes: every time
//! is that of the last commit (or `SOURCE_DATE_EPOCH`), every owner root, every mode named, and the
//! paths of the building machine are mapped away. The compiled half is left to cargo.

mod contents;
mod control;
mod licences;
mod relink;

use crate::{pages, run};
use anyhow::{Context, Result, bail, ensure};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use control::Facts;

/// Build the Debian package
#[derive(clap::Args)]
pub struct Args {
    /// Directory of the package [default: target/deb]
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Package this binary, and fairpath-lab and fairpath-sched next to it, instead of building them (they must run here)
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// The package's version [default: the workspace's, with the commit if it is no release]
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,
    /// Build it again from a fresh clone in another directory, and fail if a byte differs
    #[arg(long, conflicts_with = "binary")]
    twice: bool,
    /// Compress quickly instead of well, for tests and guests
    #[arg(long)]
    quick: bool,
}

/// A package to build.
pub struct Order<'a> {
    /// The router's binary; the other binaries are next to it.
    pub binary: &'a Path,
    pub version: &'a str,
    /// Seconds since 1970, for everything that carries a time.
    pub epoch: u64,
    /// Directory for the package.
    pub out: &'a Path,
    pub compression: Compression,
}

/// The purpose that a package is optimized for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Small, for people to download.
    Small,
    /// Quickly packed and unpacked, for guests.
    Quick,
}

impl Compression {
    fn flags(self) -> &'static [&'static str] {
        match self {
            Compression::Small => &["-Zxz"],
            Compression::Quick => &["-Zgzip", "-z1"],
        }
    }
}

pub fn run(args: &Args) -> Result<()> {
    let target = run::target_dir().join("deb");
    let out = args.output.clone().unwrap_or_else(|| target.clone());
    let epoch = epoch()?;
    let version = match &args.version {
        Some(version) => version.clone(),
        None => version_of(run::root())?,
    };
    let compression = if args.quick {
        Compression::Quick
    } else {
        Compression::Small
    };
    let make = |binary: &Path, out: &Path| {
        pack(&Order {
            binary,
            version: &version,
            epoch,
            out,
            compression,
        })
    };
    let again = target.join("again");
    if args.twice {
        clone(&again)?;
    }
    let binary = match &args.binary {
        Some(binary) => binary.clone(),
        None => build(run::root(), &target.join("build"), epoch)?,
    };
    let package = make(&binary, &out)?;
    println!("deb: {}", package.display());
    if args.twice {
        // cargo runs in there: the paths it gets may not begin here.
        let again = fs::canonicalize(&again)?;
        let binary = build(&again.join("source"), &again.join("build"), epoch)?;
        let second = make(&binary, &again.join("out"))?;
        same_bytes(&package, &second)?;
        println!(
            "deb: a second build, in {}, gave the same bytes",
            again.display()
        );
    }
    Ok(())
}

/// Fills the package and packs it; returns its path, `OUT/fairpath_VERSION_ARCH.deb`.
pub fn pack(order: &Order) -> Result<PathBuf> {
    fs::create_dir_all(order.out).with_context(|| format!("create {}", order.out.display()))?;
    let work = Work::new(order.out)?;
    let (made, stage) = (work.0.join("made"), work.0.join("stage"));
    pages::write(&made.join("man"), Some(order.binary))?;
    pages::generate("completions", &made.join("completions"), Some(order.binary))?;
    let stripped = made.join("fairpath");
    strip(order.binary, &stripped)?;
    let mut binaries = vec![stripped.clone()];
    for (_, name) in pages::OTHERS {
        let other = pages::next_to(&stripped, name);
        strip(&pages::next_to(order.binary, name), &other)?;
        binaries.push(other);
    }
    let mut tree = contents::Tree::new(&stage, order.epoch);
    contents::fill(&mut tree, &stripped, &made, order)?;
    control::write(
        &mut tree,
        &Facts {
            version: order.version,
            architecture: &architecture()?,
            libraries: &libraries(&binaries, &made)?,
        },
    )?;
    tree.settle()?;
    let package = order.out.join(format!(
        "fairpath_{}_{}.deb",
        order.version,
        architecture()?
    ));
    run::output(
        Command::new("dpkg-deb")
            .arg("--root-owner-group")
            .args(order.compression.flags())
            .arg("--build")
            .args([&stage, &package])
            // One thread: xz cuts blocks by their number.
            .env("DPKG_DEB_THREADS_MAX", "1")
            .env("SOURCE_DATE_EPOCH", order.epoch.to_string()),
    )
    .context("pack; remedy: make setup")?;
    Ok(package)
}

/// A directory next to the package for its parts; it is removed with the value.
struct Work(PathBuf);

impl Work {
    fn new(out: &Path) -> Result<Work> {
        let dir = out.join(format!("work.{}", std::process::id()));
        fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
        Ok(Work(fs::canonicalize(dir)?))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Builds the release binaries of the tree at `root`, without the paths of the building machine.
fn build(root: &Path, target: &Path, epoch: u64) -> Result<PathBuf> {
    let runtime = env::var_os("CARGO_HOME").map_or_else(
        || PathBuf::from(env::var_os("HOME").unwrap_or_default()).join(".cargo"),
        PathBuf::from,
    );
    fs::create_dir_all(target).with_context(|| format!("create {}", target.display()))?;
    let target = &fs::canonicalize(target)?;
    // The last that fits counts, and the target directory may lie in the root.
    let flags = [
        (root, "/fairpath"),
        (&runtime, "/cargo"),
        (target, "/target"),
    ]
    .map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display()))
    .join("\x1f");
    run::run(
        run::cargo()
            .args(["build", "--release", "--locked", "--quiet"])
            .args(["--package", "fairpath"])
            .args(pages::OTHERS.map(|(package, _)| format!("--package={package}")))
            .arg("--target-dir")
            .arg(target)
            .current_dir(root)
            .env("CARGO_ENCODED_RUSTFLAGS", flags)
            .env("SOURCE_DATE_EPOCH", epoch.to_string()),
    )?;
    Ok(target.join("release/fairpath"))
}

/// The same commit in `DIR/source`; refused where files differ from it.
fn clone(dir: &Path) -> Result<()> {
    let changed = git(run::root(), &["status", "--porcelain"])?;
    ensure!(
        changed.is_empty(),
        "compare with a clone: there are uncommitted changes; remedy: commit or stash them"
    );
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| format!("empty {}", dir.display()))?;
    }
    let mut clone = Command::new("git");
    clone.args(["clone", "--quiet", "--shared"]);
    run::output(clone.arg(run::root()).arg(dir.join("source"))).map(drop)
}

fn same_bytes(first: &Path, second: &Path) -> Result<()> {
    let read = |path: &Path| fs::read(path).with_context(|| format!("read {}", path.display()));
    if read(first)? != read(second)? {
        bail!(
            "{} and {} differ; remedy: diffoscope shows where",
            first.display(),
            second.display()
        );
    }
    Ok(())
}

/// Without symbols and the compiler's notes, as Debian ships programs.
fn strip(from: &Path, to: &Path) -> Result<()> {
    let sections = ["--remove-section=.comment", "--remove-section=.note"];
    let mut strip = Command::new("strip");
    run::output(strip.args(sections).arg("-o").arg(to).arg(from)).map(drop)
}

fn architecture() -> Result<String> {
    let output = run::output(Command::new("dpkg").arg("--print-architecture"))
        .context("remedy: make setup")?;
    Ok(output.trim().to_owned())
}

/// The packages whose libraries the binaries load, with the versions they need of them.
fn libraries(binaries: &[PathBuf], work: &Path) -> Result<String> {
    // dpkg-shlibdeps insists on a source package around it.
    let source = work.join("debian");
    fs::create_dir_all(&source).with_context(|| format!("create {}", source.display()))?;
    fs::write(
        source.join("control"),
        "Source: fairpath\n\nPackage: fairpath\nArchitecture: any\n",
    )
    .with_context(|| format!("write {}", source.display()))?;
    let binaries = binaries.iter().map(fs::canonicalize);
    let output = run::output(
        Command::new("dpkg-shlibdeps")
            .arg("-O")
            .args(binaries.collect::<std::io::Result<Vec<_>>>()?)
            .current_dir(work),
    )
    .context("remedy: make setup")?;
    let depends = output.trim().strip_prefix("shlibs:Depends=");
    Ok(depends
        .with_context(|| format!("dpkg-shlibdeps: unexpected output {output:?}"))?
        .to_owned())
}

/// The time of everything in the package: `SOURCE_DATE_EPOCH`, else that of the last commit.
pub fn epoch() -> Result<u64> {
    let root = run::root();
    let (source, text) = match env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => ("SOURCE_DATE_EPOCH", text),
        Err(_) => (
            "git",
            git(root, &["log", "-1", "--format=%ct"])
                .context("the time of the tree; remedy: set SOURCE_DATE_EPOCH")?,
        ),
    };
    text.trim()
        .parse()
        .with_context(|| format!("{source}: {text:?} is no number of seconds"))
}

/// The version of the tree at `root`: of a release where its tag is on this commit, else one that
/// sorts before that release and after earlier commits.
fn version_of(root: &Path) -> Result<String> {
    let release = env!("CARGO_PKG_VERSION");
    let Ok(commit) = git(
        root,
        &["log", "-1", "--format=%cd.%h", "--date=format:%Y%m%d%H%M%S"],
    ) else {
        return Ok(format!("{release}-1"));
    };
    let tags = git(root, &["tag", "--points-at", "HEAD"])?;
    if tags.lines().any(|tag| tag == format!("v{release}")) {
        return Ok(format!("{release}-1"));
    }
    Ok(format!("{release}~git{}-1", commit.trim()))
}

fn git(root: &Path, arguments: &[&str]) -> Result<String> {
    run::output(Command::new("git").arg("-C").arg(root).args(arguments))
}
