//! The guest's whole world, as one initramfs: no disk, no network card, nothing of the host but what is copied here.
//!
//! ```text
//! /init                    tests/vm/init
//! /fairpath/run.sh         runs and reports; harness.sh has pass, fail, skip; qdisc.sh what some share
//! /fairpath/scenarios/     the scripts, /fairpath/timeouts one line each
//! /usr/bin/                the host's programs with their libraries
//! /usr/lib/applets/        busybox for the rest, last in PATH
//! /usr/lib/modules/        the kernel's modules and what they need
//! ```

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::BufWriter;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::command;
use super::cpio::Cpio;
use super::kernel::Kernel;
use super::scenario::Scenario;

/// Programs that every guest has if the host does, for `--shell`; scenarios name more under `needs`.
const USUAL_PROGRAMS: [&str; 12] = [
    "ip", "tc", "ss", "bridge", "ping", "iperf3", "tcpdump", "ethtool", "jq", "nft", "bpftool",
    "strace",
];
/// Data directories that programs read: qdisc plugins and netem's distributions, iptables' extensions.
const DATA_DIRS: [&str; 4] = [
    "/usr/lib/tc",
    "/usr/lib/x86_64-linux-gnu/tc",
    "/usr/share/tc",
    "/usr/lib/x86_64-linux-gnu/xtables",
];
/// tcpdump gives its rights away to its user; ip reads the protocol names.
const ACCOUNTS: &str = "root:x:0:0:root:/root:/bin/sh\ntcpdump:x:100:100::/:/bin/false\nnobody:x:65534:65534::/:/bin/false\n";
const GROUPS: &str = "root:x:0:\ntcpdump:x:100:\nnogroup:x:65534:\n";
/// The usual directories are links into `/usr`, as on the host the libraries come from.
const LINKS: [(&str, &str); 5] = [
    ("bin", "usr/bin"),
    ("sbin", "usr/bin"),
    ("lib", "usr/lib"),
    ("lib64", "usr/lib64"),
    ("usr/sbin", "bin"),
];

/// The archive while it is written.
pub type Archive = Cpio<BufWriter<File>>;

/// The content of a guest in addition to the kernel's modules.
pub struct Contents<'a> {
    /// `tests/vm`.
    pub tests: &'a Path,
    pub scenarios: &'a [Scenario],
    /// The built binary, if any scenario needs it.
    pub fairpath: Option<&'a Path>,
    /// Where test programs and policies were built.
    pub built: &'a Path,
}

/// Writes the initramfs of `kernel` to `path`; `stage` is a directory for the modules on the way.
pub fn build(path: &Path, stage: &Path, kernel: &Kernel, contents: &Contents) -> Result<()> {
    let file = File::create(path).with_context(|| format!("create {}", path.display()))?;
    let mut cpio = Cpio::new(BufWriter::new(file));
    skeleton(&mut cpio)?;
    add(&mut cpio, &contents.tests.join("init"), "init", 0o755)?;
    scripts(&mut cpio, contents)?;
    programs(&mut cpio, contents)?;
    modules(&mut cpio, stage, kernel)?;
    cpio.finish()
        .with_context(|| format!("write {}", path.display()))?;
    Ok(())
}

fn skeleton(cpio: &mut Archive) -> Result<()> {
    for dir in [
        "usr/bin",
        "usr/lib",
        "usr/lib64",
        "dev",
        "proc",
        "sys",
        "run",
        "tmp",
        "root",
        "var",
        "etc",
    ] {
        cpio.dir(dir)?;
    }
    for (link, target) in LINKS {
        cpio.symlink(link, target)?;
    }
    cpio.symlink("var/run", "../run")?;
    cpio.device("dev/console", 5, 1)?; // before /init mounts devtmpfs
    cpio.file("etc/passwd", 0o644, ACCOUNTS.as_bytes())?;
    cpio.file("etc/group", 0o644, GROUPS.as_bytes())?;
    Ok(())
}

/// The scenarios and what runs them, the same for every user space.
pub fn scripts(cpio: &mut Archive, contents: &Contents) -> Result<()> {
    for (name, mode) in [
        ("harness.sh", 0o755),
        ("qdisc.sh", 0o644),
        ("run.sh", 0o644),
        ("text.sh", 0o644),
    ] {
        add(
            cpio,
            &contents.tests.join(name),
            &format!("fairpath/{name}"),
            mode,
        )?;
    }
    let policies = contents.scenarios.iter().flat_map(|one| &one.policies);
    for name in policies.collect::<BTreeSet<_>>() {
        let object = Path::new(name).with_extension("o");
        let inside = format!("fairpath/policies/{}", object.display());
        add(cpio, &contents.built.join(&object), &inside, 0o644)?;
    }
    let examples = contents.scenarios.iter().flat_map(|one| &one.examples);
    for name in examples.collect::<BTreeSet<_>>() {
        let object = format!("{name}.bpf.o");
        let from = contents.built.join(name).join(&object);
        add(cpio, &from, &format!("fairpath/examples/{object}"), 0o644)?;
    }
    let mut timeouts = String::new();
    for scenario in contents.scenarios {
        let path = format!("fairpath/scenarios/{}.sh", scenario.name);
        cpio.file(&path, 0o755, scenario.script.as_bytes())?;
        timeouts.push_str(&format!(
            "{} {}\n",
            scenario.name,
            scenario.timeout.as_secs()
        ));
    }
    Ok(cpio.file("fairpath/timeouts", 0o644, timeouts.as_bytes())?)
}

fn programs(cpio: &mut Archive, contents: &Contents) -> Result<()> {
    let busybox =
        command::find("busybox").context("busybox is not installed; install busybox-static")?;
    program(cpio, &busybox, "busybox")?;
    cpio.symlink("usr/bin/modprobe", "busybox")?; // the kernel runs /sbin/modprobe
    let shell = command::find("dash")
        .or_else(|| command::find("sh"))
        .context("no sh in PATH")?;
    program(cpio, &shell, "sh")?; // busybox's own would prefer its applets to the programs here
    let examples = contents.scenarios.iter().flat_map(|one| &one.examples);
    for name in examples.collect::<BTreeSet<_>>() {
        program(cpio, &contents.built.join(name).join(name), name)?;
    }
    let needed = contents
        .scenarios
        .iter()
        .flat_map(|scenario| scenario.needs.iter().map(String::as_str));
    let names: BTreeSet<_> = needed
        .chain(USUAL_PROGRAMS)
        .filter(|name| *name != "fairpath")
        .collect();
    for name in names {
        if let Some(path) = command::find(name) {
            program(cpio, &path, name)?;
        }
    }
    if let Some(fairpath) = contents.fairpath {
        program(cpio, fairpath, "fairpath")?;
    }
    DATA_DIRS
        .iter()
        .map(Path::new)
        .filter(|dir| dir.exists())
        .try_for_each(|dir| tree(cpio, dir, dir))
}

/// Adds a program to `/usr/bin`, and its libraries where it looks for them.
fn program(cpio: &mut Archive, path: &Path, name: &str) -> Result<()> {
    add(cpio, path, &format!("usr/bin/{name}"), 0o755)?;
    for library in libraries(path) {
        add(cpio, &library, &in_usr(&library), 0o755)?;
    }
    Ok(())
}

/// The files that ldd resolves, including the interpreter; none for static programs and scripts, at
/// which it fails.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let listing = command::output(Command::new("ldd").arg(program)).unwrap_or_default();
    parse_ldd(&listing)
}

fn parse_ldd(listing: &str) -> Vec<PathBuf> {
    let resolved = listing
        .lines()
        .map(|line| line.split_once("=> ").map_or(line, |(_, path)| path).trim());
    resolved
        .filter(|path| path.starts_with('/'))
        .filter_map(|path| path.split(" (").next())
        .map(PathBuf::from)
        .collect()
}

/// A path with `/lib` and `/lib64` followed into `/usr`, where [`LINKS`] lead.
fn in_usr(path: &Path) -> String {
    let text = path.to_string_lossy();
    if text.starts_with("/lib") {
        format!("usr{text}")
    } else {
        text.into_owned()
    }
}

/// The kernel's modules, copied to `stage` first.
pub fn modules(cpio: &mut Archive, stage: &Path, kernel: &Kernel) -> Result<()> {
    let absent = kernel.stage_modules(stage)?;
    if !absent.is_empty() {
        println!(
            "{}: this kernel has no {}",
            kernel.which.name(),
            absent.join(", ")
        );
    }
    let from = stage.join("usr/lib/modules");
    tree(cpio, &from, Path::new("/usr/lib/modules"))
}

fn tree(cpio: &mut Archive, from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from).with_context(|| format!("read {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            tree(cpio, &entry.path(), &target)?;
        } else {
            let mode = entry.path().metadata()?.permissions().mode() & 0o777;
            add(cpio, &entry.path(), &target.to_string_lossy(), mode)?;
        }
    }
    Ok(())
}

/// Adds a file of this machine as root's.
pub fn add(cpio: &mut Archive, from: &Path, to: &str, mode: u32) -> Result<()> {
    let content = fs::read(from).with_context(|| format!("read {}", from.display()))?;
    cpio.file(to, mode, &content)
        .with_context(|| format!("add {to} to the initramfs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ldd_gives_libraries_and_interpreter_but_not_vdso() {
        let listing = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibmnl.so.0 => /lib/x86_64-linux-gnu/libmnl.so.0 (0x00007f)\n\
             \tlibgone.so => not found\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let expected = [
            "/lib/x86_64-linux-gnu/libmnl.so.0",
            "/lib64/ld-linux-x86-64.so.2",
        ];
        assert_eq!(parse_ldd(listing), expected.map(PathBuf::from));
        assert_eq!(
            parse_ldd("\tnot a dynamic executable\n"),
            Vec::<PathBuf>::new()
        );
    }

    #[test]
    fn libraries_land_below_usr() {
        assert_eq!(in_usr(Path::new("/lib64/ld.so")), "usr/lib64/ld.so");
        assert_eq!(in_usr(Path::new("/usr/lib/tc/x")), "/usr/lib/tc/x");
    }
}
