//! Kernels on disk: resolved from the archive, unpacked once per package version, kept below `.cache/vm`.
//!
//! ```text
//! .cache/vm/newest/7.3.4-1~bpo13+1/
//!     vmlinuz  release  packages         the last two for people and for later runs
//!     root/usr/lib/modules/RELEASE/      all modules, still compressed, indexed by depmod
//! ```
//!
//! A version's directory appears by rename, so it is whole or absent. Only the newest version of each kernel is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::Which;
use super::archive::{Archive, Selection, Unreachable, choose};
use super::command;
use super::version::DebVersion;

/// The sources of the guest's modules: a directory, or one module, below `kernel/`. Dependencies are
/// added automatically.
///
/// Whole directories, because the kernel loads what a qdisc, filter or link type needs at its first use.
const MODULES: &[&str] = &[
    "net/sched/",
    "net/netfilter/",
    "net/ipv4/",
    "net/ipv6/",
    "net/bridge/",
    "net/8021q/",
    "net/core/",
    "net/packet/",
    "net/xdp/",
    "drivers/net/veth",
    "drivers/net/bonding/",
    "drivers/net/dummy",
    "drivers/net/ifb",
    "drivers/net/tun",
    "drivers/net/macvlan",
    "drivers/net/vrf",
    "drivers/net/nlmon",
    "drivers/net/ppp/",
    "drivers/net/wireguard/",
    "drivers/net/vxlan/",
    "drivers/net/geneve",
    "drivers/block/virtio_blk",
];

/// A kernel ready to boot.
pub struct Kernel {
    pub which: Which,
    pub version: DebVersion,
    /// As `uname -r` says it.
    pub release: String,
    /// The packages it came from, for people.
    pub packages: String,
    /// Where it was found, for people: `downloaded`, `cached`, or why the cache had to do.
    pub origin: String,
    dir: PathBuf,
}

impl Kernel {
    /// Finds the kernel that the suite's index names today; without network, the newest one in `cache`.
    pub fn resolve(which: Which, archive: &Archive, cache: &Path) -> Result<Self> {
        let store = cache.join(which.name());
        match from_archive(which, archive, &store) {
            Err(error) if error.downcast_ref::<Unreachable>().is_some() => {
                from_cache(which, &store, &error)
            }
            found => found,
        }
    }

    /// The compressed kernel image.
    pub fn image(&self) -> PathBuf {
        self.dir.join("vmlinuz")
    }

    /// Copies the modules of the guest below `root`, decompressed and indexed; returns the patterns that match nothing.
    pub fn stage_modules(&self, root: &Path) -> Result<Vec<&'static str>> {
        let from = modules_dir(&self.dir.join("root"), &self.release);
        let to = modules_dir(root, &self.release);
        let modules_dep = read(&from.join("modules.dep"))?;
        let dependencies = parse_dependencies(&modules_dep);
        let builtin = fs::read_to_string(from.join("modules.builtin")).unwrap_or_default();
        let (wanted, absent) = choose_modules(&dependencies, &builtin);
        for module in &wanted {
            copy(&from.join(module), &to.join(module))?;
        }
        decompress(wanted.iter().map(|module| to.join(module)))?;
        for list in [
            "modules.builtin",
            "modules.builtin.modinfo",
            "modules.order",
        ] {
            let _ = fs::copy(from.join(list), to.join(list));
        }
        depmod(root, &self.release)?;
        Ok(absent)
    }

    fn load(which: Which, dir: PathBuf, version: DebVersion, origin: String) -> Result<Self> {
        let release = read(&dir.join("release"))?.trim().to_string();
        let packages = read(&dir.join("packages"))?.trim().to_string();
        Ok(Kernel {
            which,
            version,
            release,
            packages,
            origin,
            dir,
        })
    }
}

fn from_archive(which: Which, archive: &Archive, store: &Path) -> Result<Kernel> {
    let index = archive.index(which.suite())?;
    let selection = choose(&index, which).with_context(|| {
        format!(
            "suite {} has no complete cloud kernel {}",
            which.suite(),
            which.describe()
        )
    })?;
    let dir = store.join(selection.version.as_str());
    let cached = dir.exists();
    if !cached {
        println!("{}: downloading {}", which.name(), describe(&selection));
        unpack(&selection, archive, &dir)?;
        forget_older(store, &selection.version);
    }
    let origin = if cached { "cached" } else { "downloaded" }.to_string();
    Kernel::load(which, dir, selection.version, origin)
}

fn from_cache(which: Which, store: &Path, error: &anyhow::Error) -> Result<Kernel> {
    match cached_versions(store).into_iter().max() {
        Some(version) => {
            let origin = format!("from the cache, the archive is away: {error:#}");
            Kernel::load(which, store.join(version.as_str()), version, origin)
        }
        None => bail!(
            "kernel {}: {error:#}; {} holds none either: run once with network, or copy that directory from a machine that has it",
            which.name(),
            store.display()
        ),
    }
}

fn cached_versions(store: &Path) -> Vec<DebVersion> {
    let entries = fs::read_dir(store).into_iter().flatten().flatten();
    let whole = entries.filter(|entry| entry.path().join("packages").exists());
    whole
        .map(|entry| DebVersion::new(&entry.file_name().to_string_lossy()))
        .filter(|v| !v.as_str().contains(".new."))
        .collect()
}

fn forget_older(store: &Path, kept: &DebVersion) {
    for version in cached_versions(store)
        .iter()
        .filter(|version| *version < kept)
    {
        let _ = fs::remove_dir_all(store.join(version.as_str()));
    }
}

fn describe(selection: &Selection) -> String {
    let names: Vec<_> = selection
        .packages
        .iter()
        .map(|package| package.name.as_str())
        .collect();
    names.join(", ")
}

/// Downloads and extracts the packages next to `dir`, then renames that directory to it.
fn unpack(selection: &Selection, archive: &Archive, dir: &Path) -> Result<()> {
    let new = command::with_suffix(dir, &format!(".new.{}", std::process::id()));
    let result = unpack_into(selection, archive, &new).and_then(|()| {
        fs::rename(&new, dir)
            .or_else(|error| if dir.exists() { Ok(()) } else { Err(error) })
            .context("rename the unpacked kernel")
    });
    let _ = fs::remove_dir_all(&new);
    result
}

fn unpack_into(selection: &Selection, archive: &Archive, new: &Path) -> Result<()> {
    let extracted = new.join("extracted");
    fs::create_dir_all(&extracted).with_context(|| format!("create {}", extracted.display()))?;
    for package in &selection.packages {
        let deb = new.join("package.deb");
        archive.download(package, &deb)?;
        let mut dpkg = Command::new("dpkg-deb");
        dpkg.arg("--extract").arg(&deb).arg(&extracted);
        command::run(dpkg)?;
        fs::remove_file(&deb)?;
    }
    arrange(&extracted, new, &selection.release)?;
    fs::remove_dir_all(&extracted)?;
    fs::write(new.join("release"), &selection.release)?;
    Ok(fs::write(new.join("packages"), describe(selection))?)
}

/// Debian moved modules from `/lib` to `/usr/lib` and the image from `/boot` to the modules.
fn arrange(extracted: &Path, new: &Path, release: &str) -> Result<()> {
    let root = new.join("root");
    let to = modules_dir(&root, release);
    fs::create_dir_all(to.parent().expect("a modules directory has a parent"))?;
    let found = [
        modules_dir(extracted, release),
        extracted.join("lib/modules").join(release),
    ];
    let modules = found
        .iter()
        .find(|dir| dir.exists())
        .context("the packages hold no modules")?;
    fs::rename(modules, &to)?;
    let images = [
        extracted.join("boot").join(format!("vmlinuz-{release}")),
        to.join("vmlinuz"),
        to.join("vmlinuz.unsigned"),
    ];
    let image = images
        .iter()
        .find(|path| path.exists())
        .context("the packages hold no kernel image")?;
    fs::rename(image, new.join("vmlinuz"))?;
    depmod(&root, release)
}

fn modules_dir(root: &Path, release: &str) -> PathBuf {
    root.join("usr/lib/modules").join(release)
}

/// Writes `modules.dep` and `modules.alias`, whichever of `/lib` and `/usr/lib` this machine's depmod was built for.
fn depmod(root: &Path, release: &str) -> Result<()> {
    let lib = root.join("lib");
    if !lib.exists() {
        std::os::unix::fs::symlink("usr/lib", &lib)
            .with_context(|| format!("create {}", lib.display()))?;
    }
    let program = command::find("depmod").context("depmod is not installed; install kmod")?;
    let mut depmod = Command::new(program);
    depmod.arg("-b").arg(root).arg(release);
    command::run(depmod)
}

/// `modules.dep`: each module and all it needs, as paths below the modules directory.
fn parse_dependencies(text: &str) -> BTreeMap<&str, Vec<&str>> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(module, needs)| (module, needs.split_whitespace().collect()))
        .collect()
}

/// The modules that [`MODULES`] requires with their dependencies, and the patterns that neither they nor the built-in ones match.
fn choose_modules<'a>(
    dependencies: &BTreeMap<&'a str, Vec<&'a str>>,
    builtin: &str,
) -> (BTreeSet<&'a str>, Vec<&'static str>) {
    let matches = |path: &str, pattern: &str| {
        let rest = path
            .strip_prefix("kernel/")
            .and_then(|path| path.strip_prefix(pattern));
        rest.is_some_and(|rest| pattern.ends_with('/') || rest.starts_with(".ko"))
    };
    let mut wanted = BTreeSet::new();
    let mut absent = Vec::new();
    for pattern in MODULES {
        let mut found = builtin.lines().any(|path| matches(path, pattern));
        for (module, needs) in dependencies
            .iter()
            .filter(|(module, _)| matches(module, pattern))
        {
            wanted.insert(*module);
            wanted.extend(needs);
            found = true;
        }
        if !found {
            absent.push(*pattern);
        }
    }
    (wanted, absent)
}

/// Decompressed on the host: in the guest it would cost every boot.
fn decompress(modules: impl Iterator<Item = PathBuf>) -> Result<()> {
    let compressed: Vec<_> = modules
        .filter(|path| path.extension().is_some_and(|ext| ext == "xz"))
        .collect();
    if compressed.is_empty() {
        return Ok(());
    }
    let mut xz = Command::new("xz");
    xz.arg("--decompress").args(compressed);
    command::run(xz)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().expect("a module has a directory"))?;
    fs::copy(from, to)
        .with_context(|| format!("copy {}", from.display()))
        .map(drop)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODULES_DEP: &str = "kernel/net/sched/sch_netem.ko.xz:\n\
        kernel/net/sched/act_ct.ko.xz: kernel/net/netfilter/nf_nat.ko.xz kernel/lib/libcrc32c.ko.xz\n\
        kernel/drivers/net/veth.ko.xz:\n\
        kernel/drivers/net/vethx.ko.xz:\n\
        kernel/drivers/gpu/drm/drm.ko.xz:\n";

    #[test]
    fn chosen_modules_bring_only_their_dependencies() {
        let dependencies = parse_dependencies(MODULES_DEP);
        let (wanted, _) = choose_modules(&dependencies, "");
        let expected = [
            "kernel/drivers/net/veth.ko.xz",
            "kernel/lib/libcrc32c.ko.xz",
            "kernel/net/netfilter/nf_nat.ko.xz",
            "kernel/net/sched/act_ct.ko.xz",
            "kernel/net/sched/sch_netem.ko.xz",
        ];
        assert_eq!(wanted.into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_pattern_needs_a_module_or_builtin() {
        let dependencies = parse_dependencies(MODULES_DEP);
        let (_, absent) = choose_modules(&dependencies, "kernel/drivers/net/tun.ko\n");
        assert!(absent.contains(&"drivers/net/ppp/"));
        assert!(!absent.contains(&"drivers/net/tun"));
        assert!(!absent.contains(&"drivers/net/veth"));
    }
}
