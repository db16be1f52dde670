//! The guest tier: scenarios of `tests/vm` inside kernels that the host does not run.
//!
//! Debian's 6.12 cloud kernel is the floor of what Fairpath promises; the newest one has what later features need. Both are
//! resolved from the archive's index, kept below `.cache/vm`, and booted in QEMU with an initramfs that holds the built binary.
//! Timings in a guest mean little. `tests/vm/README.md` is the manual.

mod archive;
mod command;
mod cpio;
mod debian;
mod guest;
mod initramfs;
mod kernel;
mod scenario;
mod session;
mod version;
mod work;

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use archive::Archive;
pub use archive::mirror;
use kernel::Kernel;
use scenario::{Scenario, UserSpace};
use session::{Finished, Outcome};
use version::DebVersion;
use work::Work;

/// `skip` counts every scenario as skipped; for machines that cannot emulate.
const SWITCH: &str = "FAIRPATH_VM";
/// A ready binary to put into the guests instead of building one.
const BINARY: &str = "FAIRPATH_VM_BINARY";

/// Run scenarios in guests: Debian's 6.12 and newest kernels under QEMU
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which kernel to boot
    #[arg(long, value_enum, default_value = "all")]
    kernel: Choice,
    /// Run only this scenario of tests/vm/scenarios
    #[arg(long, value_name = "NAME")]
    scenario: Option<String>,
    /// Boot into a shell on this terminal instead (the newest kernel unless --kernel says otherwise)
    #[arg(long)]
    shell: bool,
    /// Keep the initramfs and the staged modules below target/vm
    #[arg(long)]
    keep: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Choice {
    Floor,
    Newest,
    All,
}

/// A kernel by its role; the version it stands for comes from the archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    Floor,
    Newest,
}

impl Which {
    pub const ALL: [Which; 2] = [Which::Floor, Which::Newest];

    pub fn name(self) -> &'static str {
        match self {
            Which::Floor => "floor",
            Which::Newest => "newest",
        }
    }

    fn suite(self) -> &'static str {
        match self {
            Which::Floor => "bookworm-backports",
            Which::Newest => "trixie-backports",
        }
    }

    fn describe(self) -> &'static str {
        match self {
            Which::Floor => "6.12",
            Which::Newest => "7.0 or later",
        }
    }

    fn accepts(self, version: &DebVersion) -> bool {
        version.series().is_some_and(|series| match self {
            Which::Floor => series == (6, 12),
            Which::Newest => series >= (7, 0),
        })
    }
}

/// Directories that matter here.
struct Places {
    tests: PathBuf,
    cache: PathBuf,
    target: PathBuf,
}

#[derive(Default)]
struct Tally {
    passed: usize,
    failed: usize,
    skipped: usize,
}

/// Runs the subcommand. An error or a failed scenario is for a non-zero exit status.
pub fn run(args: &Args) -> Result<()> {
    let places = places()?;
    let scenarios = Scenario::load_all(&places.tests.join("scenarios"), args.scenario.as_deref())?;
    if args.shell {
        return shell(args, &places, &scenarios);
    }
    let mut tally = Tally::default();
    if env::var_os(SWITCH).is_some_and(|value| value == "skip") {
        skip_all(args.kernel.kernels(), &scenarios, &mut tally);
    } else {
        run_all(args, &places, &scenarios, &mut tally)?;
    }
    println!(
        "\n{} passed, {} failed, {} skipped",
        tally.passed, tally.failed, tally.skipped
    );
    if tally.failed > 0 {
        bail!("{} of the guest scenarios failed", tally.failed);
    }
    Ok(())
}

impl Choice {
    fn kernels(self) -> &'static [Which] {
        match self {
            Choice::Floor => &[Which::Floor],
            Choice::Newest => &[Which::Newest],
            Choice::All => &Which::ALL,
        }
    }
}

fn run_all(args: &Args, places: &Places, scenarios: &[Scenario], tally: &mut Tally) -> Result<()> {
    guest::qemu()?;
    let archive = Archive::from_apt(&places.cache);
    let fairpath = fairpath_for(scenarios, places)?;
    test_programs(scenarios, places)?;
    for which in args.kernel.kernels() {
        let selected: Vec<_> = scenarios
            .iter()
            .filter(|scenario| scenario.kernels.contains(which))
            .cloned()
            .collect();
        let runnable = without_lacking(*which, selected, tally);
        if runnable.is_empty() {
            continue;
        }
        let kernel = resolve(*which, &archive, places)?;
        for user_space in UserSpace::ALL {
            let mut here = runnable.clone();
            here.retain(|scenario| scenario.user_space == user_space);
            if !here.is_empty() {
                let fairpath = fairpath.as_deref();
                let work = Work::new(&kernel, user_space, &here, fairpath, places, args.keep)?;
                run_guest(&kernel, &work, here, tally)?;
            }
        }
    }
    Ok(())
}

/// Boots a guest, again if scenarios remain after it died on one.
fn run_guest(
    kernel: &Kernel,
    work: &Work,
    mut remaining: Vec<Scenario>,
    tally: &mut Tally,
) -> Result<()> {
    let console_log = work.console_log();
    let guest = work.guest(kernel, &console_log);
    while !remaining.is_empty() {
        let boot = guest.run(&remaining)?;
        match boot.took {
            Some(took) => println!("{}: booted in {}", kernel.which.name(), seconds(took)),
            None => println!("{}: did not boot", kernel.which.name()),
        }
        boot.finished
            .iter()
            .for_each(|finished| show(kernel.which, finished, &console_log, tally));
        remaining = boot.remaining;
    }
    Ok(())
}

/// A shell in the user space of the one scenario that was asked for, else in busybox's.
fn shell(args: &Args, places: &Places, scenarios: &[Scenario]) -> Result<()> {
    let which = if args.kernel == Choice::Floor {
        Which::Floor
    } else {
        Which::Newest
    };
    let user_space = match scenarios {
        [only] => only.user_space,
        _ => UserSpace::Busybox,
    };
    let kernel = resolve(which, &Archive::from_apt(&places.cache), places)?;
    let fairpath = fairpath_for(scenarios, places)?;
    let fairpath = fairpath.as_deref();
    let work = Work::new(&kernel, user_space, scenarios, fairpath, places, args.keep)?;
    work.guest(&kernel, &work.console_log()).shell()
}

fn resolve(which: Which, archive: &Archive, places: &Places) -> Result<Kernel> {
    let kernel = Kernel::resolve(which, archive, &places.cache)?;
    println!(
        "{}: {} {} ({})",
        which.name(),
        kernel.packages,
        kernel.version,
        kernel.origin
    );
    Ok(kernel)
}

fn places() -> Result<Places> {
    let metadata = cargo_metadata::MetadataCommand::new()
        .no_deps()
        .exec()
        .context("cargo metadata")?;
    let root = metadata.workspace_root.into_std_path_buf();
    Ok(Places {
        tests: root.join("tests/vm"),
        cache: root.join(".cache/vm"),
        target: metadata.target_directory.into(),
    })
}

/// Builds the binaries if a scenario needs them and leaves copies without symbols, which debug builds have 100 MB of.
/// Where the package is made, both are needed.
fn fairpath_for(scenarios: &[Scenario], places: &Places) -> Result<Option<PathBuf>> {
    if let Some(binary) = env::var_os(BINARY) {
        println!("fairpath: {} ({BINARY})", Path::new(&binary).display());
        return Ok(Some(binary.into()));
    }
    if !scenarios
        .iter()
        .any(|scenario| scenario.needs.iter().any(|need| need == "fairpath"))
    {
        return Ok(None);
    }
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args([
            "build",
            "--quiet",
            "--package",
            "fairpath",
            "--package",
            "fairpath-lab",
            "--package",
            "fairpath-author",
        ])
        .status()
        .context("run cargo")?;
    anyhow::ensure!(status.success(), "build fairpath: {status}");
    stripped("fairpath-lab", places)?;
    stripped("fairpath-sched", places)?;
    Ok(Some(stripped("fairpath", places)?))
}

/// Builds the programs of `tests/src/bin` that scenarios need; [`command::find`] knows where they lie.
fn test_programs(scenarios: &[Scenario], places: &Places) -> Result<()> {
    let sources = places.tests.join("../src/bin");
    let needs = scenarios.iter().flat_map(|scenario| &scenario.needs);
    let names: BTreeSet<&String> = needs
        .filter(|need| sources.join(format!("{need}.rs")).is_file())
        .collect();
    for name in names {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let status = Command::new(cargo)
            .args(["build", "--quiet", "--package", "fairpath-tests", "--bin"])
            .arg(name)
            .status()
            .context("run cargo")?;
        anyhow::ensure!(status.success(), "build {name}: {status}");
        stripped(name, places)?;
    }
    Ok(())
}

/// A copy of a built program without symbols; with them, where they cannot be taken out.
fn stripped(name: &str, places: &Places) -> Result<PathBuf> {
    let built = places.target.join("debug").join(name);
    let to = places.target.join(command::BUILT);
    fs::create_dir_all(&to)?;
    let mut strip = Command::new("strip");
    strip.arg("-o").arg(to.join(name)).arg(&built);
    Ok(if command::run(strip).is_ok() {
        to.join(name)
    } else {
        built
    })
}

fn skip_all(kernels: &[Which], scenarios: &[Scenario], tally: &mut Tally) {
    for which in kernels {
        for scenario in scenarios
            .iter()
            .filter(|scenario| scenario.kernels.contains(which))
        {
            skipped(*which, &scenario.name, &format!("{SWITCH}=skip"), tally);
        }
    }
}

/// Scenarios whose programs the host has; the others are counted as skipped.
fn without_lacking(which: Which, scenarios: Vec<Scenario>, tally: &mut Tally) -> Vec<Scenario> {
    let lacks = |scenario: &Scenario| {
        scenario
            .needs
            .iter()
            .find(|need| *need != "fairpath" && command::find(need).is_none())
            .cloned()
    };
    let mut runnable = Vec::new();
    for scenario in scenarios {
        match lacks(&scenario) {
            Some(program) => skipped(
                which,
                &scenario.name,
                &format!("{program} is not installed on the host"),
                tally,
            ),
            None => runnable.push(scenario),
        }
    }
    runnable
}

fn skipped(which: Which, name: &str, reason: &str, tally: &mut Tally) {
    tally.skipped += 1;
    println!("test {}/{name} ... skipped: {reason}", which.name());
}

fn show(which: Which, finished: &Finished, console_log: &Path, tally: &mut Tally) {
    let name = format!("{}/{}", which.name(), finished.scenario);
    match &finished.outcome {
        Outcome::Passed => {
            tally.passed += 1;
            println!(
                "test {name} ... ok ({} checks, {})",
                finished.checks.len(),
                seconds(finished.took)
            );
        }
        Outcome::Skipped(reason) => skipped(which, &finished.scenario, reason, tally),
        Outcome::Failed(reason) => {
            tally.failed += 1;
            println!(
                "test {name} ... FAILED ({}): {reason}",
                seconds(finished.took)
            );
            finished
                .checks
                .iter()
                .for_each(|check| println!("  passed before: {check}"));
            finished
                .console
                .iter()
                .for_each(|line| println!("  | {line}"));
            println!("  console: {}", console_log.display());
        }
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floor_is_6_12_only_and_newest_begins_at_7() {
        let accepts = |which: Which, text: &str| which.accepts(&DebVersion::new(text));
        assert!(accepts(Which::Floor, "6.12.95-1~bpo12+1"));
        assert!(!accepts(Which::Floor, "6.1.2-1"));
        assert!(!accepts(Which::Newest, "6.19.14-1"));
        assert!(accepts(Which::Newest, "7.3.4-1~bpo13+1"));
        assert!(accepts(Which::Newest, "10.1.1-1"));
    }
}
