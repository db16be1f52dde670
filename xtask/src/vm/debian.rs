//! The guest whose user space is Debian's own, with systemd and dpkg: where the package is tested.
//!
//! ```text
//! .cache/vm/debian/rootfs.cpio     made by mmdebstrap from this machine's release, once per recipe
//! + /usr/lib/modules               the kernel's, as for every guest
//! + /fairpath/                     the scenarios; packages/old.deb and packages/new.deb
//! = the initramfs                  both archives one behind the other, which the kernel unpacks in turn
//! ```
//!
//! systemd runs from the initramfs itself, which is up in ten emulated seconds and leaves nothing behind. A scenario that
//! restarts the guest copies its root to the empty disk first; `init` boots from there then.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::command;
use super::cpio::Cpio;
use super::initramfs::{self, Contents};
use super::kernel::Kernel;
use crate::deb;

/// On the kernel's command line: the console is the scenarios', so there is no login.
pub const KERNEL_ARGUMENTS: &str = "systemd.show_status=false \
     systemd.mask=serial-getty@ttyS0.service systemd.mask=getty.target systemd.mask=e2scrub_reap.service";
/// The programs that scenarios use in addition to the dependencies of the package.
const PROGRAMS: [&str; 6] = [
    "systemd-sysv",
    "kmod",
    "iproute2",
    "iputils-ping",
    "curl",
    "nftables",
];
/// Files without use in a guest, which would double its size.
const WITHOUT: [&str; 4] = [
    "/usr/share/doc/*",
    "/usr/share/man/*",
    "/usr/share/locale/*",
    "/usr/share/zoneinfo/*",
];
/// While mmdebstrap installs, this forbids starting services; the package under test is to be started. (It also
/// replaces `start-stop-daemon`, which nothing here uses.)
const POLICY: &str = "./usr/sbin/policy-rc.d";
/// Run by mmdebstrap when all is installed: the package under test is to be unpacked whole, and lists are of no use.
const FINISH: &str =
    r#"rm -rf "$1"/etc/dpkg/dpkg.cfg.d/* "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/*"#;
/// A line that only the newer package's configuration has.
const NEW_CONFIGURATION: &str = "# This line is new in this version.\n";

/// The package under test twice, the second to upgrade to.
pub struct Packages {
    old: PathBuf,
    new: PathBuf,
}

impl Packages {
    /// Packs `binary` below `dir`; the newer package has a higher version and another configuration file.
    pub fn pack(binary: &Path, dir: &Path) -> Result<Packages> {
        let version = env!("CARGO_PKG_VERSION");
        let old = deb::pack(&deb::Order {
            binary,
            version: &format!("{version}-1"),
            epoch: deb::epoch()?,
            out: dir,
            compression: deb::Compression::Quick,
        })?;
        let new = newer(&old, &format!("{version}-2"), dir)?;
        Ok(Packages { old, new })
    }

    /// Packages that this one needs, by name.
    fn depends(&self) -> Result<Vec<String>> {
        let mut dpkg = Command::new("dpkg-deb");
        let field = command::output(dpkg.arg("--field").arg(&self.old).arg("Depends"))?;
        let name = |entry: &str| entry.split_whitespace().next().map(str::to_owned);
        Ok(field.split(',').filter_map(name).collect())
    }
}

/// Repacks a package as what its next version might be.
fn newer(old: &Path, version: &str, dir: &Path) -> Result<PathBuf> {
    let tree = dir.join("newer");
    let _ = fs::remove_dir_all(&tree);
    let mut unpack = Command::new("dpkg-deb");
    unpack.arg("--raw-extract").arg(old).arg(&tree);
    command::run(unpack)?;
    let control = tree.join("DEBIAN/control");
    let text =
        fs::read_to_string(&control).with_context(|| format!("read {}", control.display()))?;
    let changed: String = text
        .lines()
        .map(|line| match line.strip_prefix("Version: ") {
            Some(_) => format!("Version: {version}\n"),
            None => format!("{line}\n"),
        })
        .collect();
    fs::write(&control, changed).with_context(|| format!("write {}", control.display()))?;
    let configuration = tree.join("etc/fairpath/fairpath.toml");
    let mut file = File::options()
        .append(true)
        .open(&configuration)
        .with_context(|| format!("open {}", configuration.display()))?;
    file.write_all(NEW_CONFIGURATION.as_bytes())?;
    let new = dir.join("newer.deb");
    let mut pack = Command::new("dpkg-deb");
    pack.args(["--root-owner-group", "-Zgzip", "-z1", "--build"])
        .args([&tree, &new]);
    command::run(pack)?;
    fs::remove_dir_all(&tree).with_context(|| format!("remove {}", tree.display()))?;
    Ok(new)
}

/// Writes the initramfs to `path`; `stage` is a directory for the modules on the way.
pub fn build(
    path: &Path,
    stage: &Path,
    kernel: &Kernel,
    contents: &Contents,
    packages: &Packages,
    cache: &Path,
) -> Result<()> {
    let rootfs = rootfs(&packages.depends()?, &cache.join("debian"))?;
    let mut file = File::create(path).with_context(|| format!("create {}", path.display()))?;
    let mut from = File::open(&rootfs).with_context(|| format!("open {}", rootfs.display()))?;
    io::copy(&mut from, &mut file).with_context(|| format!("write {}", path.display()))?;
    let mut cpio = Cpio::new(BufWriter::new(file));
    initramfs::scripts(&mut cpio, contents)?;
    let busybox =
        command::find("busybox").context("busybox is not installed; install busybox-static")?;
    let unit = "etc/systemd/system/fairpath-guest.service";
    let wanted = "etc/systemd/system/multi-user.target.wants/fairpath-guest.service";
    cpio.symlink(wanted, &format!("/{unit}"))?;
    for (from, to, mode) in [
        (&busybox, "fairpath/bin/busybox", 0o755),
        (&contents.tests.join("debian-init"), "init", 0o755),
        (&contents.tests.join("debian"), "fairpath/debian", 0o755),
        (&contents.tests.join("fairpath-guest.service"), unit, 0o644),
        (&packages.old, "fairpath/packages/old.deb", 0o644),
        (&packages.new, "fairpath/packages/new.deb", 0o644),
    ] {
        initramfs::add(&mut cpio, from, to, mode)?;
    }
    initramfs::modules(&mut cpio, stage, kernel)?;
    cpio.finish()
        .with_context(|| format!("write {}", path.display()))?;
    Ok(())
}

/// The root file system as an archive, from the cache if it was made by the same recipe.
fn rootfs(depends: &[String], cache: &Path) -> Result<PathBuf> {
    let suite = suite()?;
    let packages: Vec<_> = PROGRAMS
        .iter()
        .map(|name| name.to_string())
        .chain(depends.iter().cloned())
        .collect();
    let recipe = format!(
        "{suite}\n{}\n{}\n{FINISH}\n{POLICY}\n",
        packages.join(","),
        WITHOUT.join(" ")
    );
    let (archive, made_by) = (cache.join("rootfs.cpio"), cache.join("recipe"));
    if archive.exists() && fs::read_to_string(&made_by).is_ok_and(|text| text == recipe) {
        println!("debian: {suite}, cached");
        return Ok(archive);
    }
    fs::create_dir_all(cache).with_context(|| format!("create {}", cache.display()))?;
    println!("debian: making {suite} with mmdebstrap");
    let partial = command::with_suffix(&archive, &format!(".{}", std::process::id()));
    command::run(mmdebstrap(&suite, &packages, &partial)?)
        .context("make Debian's user space; remedy: run once as root with network, or see mmdebstrap(1), MODES")?;
    fs::rename(&partial, &archive).with_context(|| format!("rename {}", partial.display()))?;
    fs::write(&made_by, recipe).with_context(|| format!("write {}", made_by.display()))?;
    Ok(archive)
}

fn mmdebstrap(suite: &str, packages: &[String], archive: &Path) -> Result<Command> {
    let mut mmdebstrap = Command::new("mmdebstrap");
    mmdebstrap.args(["--quiet", "--variant=minbase", "--format=null"]);
    mmdebstrap.arg(format!("--include={}", packages.join(",")));
    for pattern in WITHOUT {
        mmdebstrap.arg(format!("--dpkgopt=path-exclude={pattern}"));
    }
    let archive = std::path::absolute(archive)?;
    let pack = format!(
        r#"cd "$1" && find . -xdev ! -path {POLICY} -print0 | cpio --null --create --format=newc --quiet >'{}'"#,
        archive.display()
    );
    mmdebstrap.arg(format!("--customize-hook={FINISH}"));
    mmdebstrap.arg(format!("--customize-hook={pack}"));
    mmdebstrap.args([suite, "/dev/null"]);
    Ok(mmdebstrap)
}

/// The release of this machine: the package is built against its libraries.
fn suite() -> Result<String> {
    let text = fs::read_to_string("/etc/os-release").context("read /etc/os-release")?;
    let field = |name: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        line.map(|value| value.trim_matches('"').to_owned())
    };
    let debian = field("ID").is_some_and(|id| id == "debian");
    field("VERSION_CODENAME").filter(|_| debian).context(
        "this machine is no release of Debian, whose libraries a package could be built against; \
         set FAIRPATH_VM=skip to go without the guests",
    )
}
