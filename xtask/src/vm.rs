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

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::run;
use archive::Archive;
pub use archive::mirror;
use kernel::Kernel;
use scenario::{Scenario, UserSpace};
use session::{Finished, Outcome};
use version::DebVersion;
use work::Work;

/// `skip` counts every scenario as skipped; for machines that cannot emulate.
const SWITCH: &str = "FAIRPATH_VM";
/// The directory of built programs, if they are not to be built.
const BIN_DIR: &str = "FAIRPATH_BIN_DIR";
/// Where skipped tests are logged; see [`crate::skips`].
const SKIP_LOG: &str = "FAIRPATH_SKIP_LOG";
/// Where repeated measurements are logged: `TEST TAB ATTEMPT TAB REASON`.
const RETRIES_LOG: &str = "FAIRPATH_TEST_RETRIES_LOG";
/// A ready binary to put into the guests instead of building one.
const BINARY: &str = "FAIRPATH_VM_BINARY";

/// Run scenarios in guests: Debian's 6.12 and newest kernels under QEMU
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which kernel to boot
    #[arg(long, value_enum, default_value = "all")]
    kernel: Choice,
    /// Run only these scenarios of tests/vm/scenarios
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    scenario: Vec<String>,
    /// Boot into a shell on this terminal instead (the newest kernel unless --kernel names one)
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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

/// Results of the scenarios; skips and repetitions are also written to their logs, if there are any.
struct Tally {
    passed: usize,
    failed: usize,
    skipped: usize,
    skips: Option<File>,
    retries: Option<File>,
}

impl Tally {
    fn new() -> Result<Self> {
        let open = |log| -> Result<Option<File>> {
            let Some(path) = env::var_os(log) else {
                return Ok(None);
            };
            let file = OpenOptions::new().append(true).create(true).open(&path);
            let file = file.with_context(|| format!("open {}", Path::new(&path).display()))?;
            Ok(Some(file))
        };
        Ok(Tally {
            passed: 0,
            failed: 0,
            skipped: 0,
            skips: open(SKIP_LOG)?,
            retries: open(RETRIES_LOG)?,
        })
    }

    /// Counts, prints and logs a scenario that did not run to its end.
    fn skip(&mut self, which: Which, name: &str, need: &str, reason: &str) {
        self.skipped += 1;
        println!(
            "test {}/{name} ... skipped: needs {need}: {reason}",
            which.name()
        );
        let line = format!("vm/{}/{name}\t{need}\t{}\n", which.name(), one_line(reason));
        if let Err(error) = append(&mut self.skips, &line) {
            self.failed += 1;
            println!("the log of skips cannot be written: {error}");
        }
    }

    /// Prints and logs what a scenario measured again, in the form that native tests log.
    fn repeats(&mut self, which: Which, finished: &Finished) {
        let name = format!("{}/{}", which.name(), finished.scenario);
        for (attempt, reason) in (1..).zip(&finished.repeats) {
            println!("test {name}: repeated {attempt}: {reason}");
            let line = format!("vm/{name}\t{attempt}\t{}\n", one_line(reason));
            if let Err(error) = append(&mut self.retries, &line) {
                self.failed += 1;
                println!("the log of repetitions cannot be written: {error}");
            }
        }
    }
}

/// In one call: the other kernel's guest may write, too.
fn append(log: &mut Option<File>, line: &str) -> io::Result<()> {
    log.as_mut()
        .map_or(Ok(()), |log| log.write_all(line.as_bytes()))
}

fn one_line(text: &str) -> String {
    text.replace(['\t', '\n'], " ")
}

/// Runs the subcommand. An error or a failed scenario is for a non-zero exit status.
pub fn run(args: &Args) -> Result<()> {
    let places = places()?;
    let scenarios = Scenario::load_all(&places.tests.join("scenarios"), &args.scenario)?;
    if args.shell {
        return shell(args, &places, &scenarios);
    }
    let mut tally = Tally::new()?;
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
    policies(scenarios, places)?;
    examples(scenarios, places)?;
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

/// A shell in the user space of the one requested scenario, else in busybox's.
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

/// The binaries if a scenario needs them, as copies without symbols, which debug builds have 100 MB of.
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
    for (package, name) in [
        ("fairpath-lab", "fairpath-lab"),
        ("fairpath-author", "fairpath-sched"),
    ] {
        stripped(name, &program(package, name, places)?, places)?;
    }
    let router = program("fairpath", "fairpath", places)?;
    Ok(Some(stripped("fairpath", &router, places)?))
}

/// The programs of `tests/src/bin` that scenarios need; [`command::find`] knows where their copies lie.
fn test_programs(scenarios: &[Scenario], places: &Places) -> Result<()> {
    let sources = places.tests.join("../src/bin");
    let needs = scenarios.iter().flat_map(|scenario| &scenario.needs);
    let names: BTreeSet<&String> = needs
        .filter(|need| sources.join(format!("{need}.rs")).is_file())
        .collect();
    for name in names {
        stripped(name, &program("fairpath-tests", name, places)?, places)?;
    }
    Ok(())
}

/// Builds the custom policies of scenarios to objects in [`command::BUILT`], without privileges as their authors do.
fn policies(scenarios: &[Scenario], places: &Places) -> Result<()> {
    let all = scenarios.iter().flat_map(|scenario| &scenario.policies);
    let names: BTreeSet<&String> = all.collect();
    if names.is_empty() {
        return Ok(());
    }
    let builder = program("fairpath-author", "fairpath-sched", places)?;
    let to = places.target.join(command::BUILT);
    fs::create_dir_all(&to)?;
    for name in names {
        // Without capabilities, so the verifier of this kernel does not decide.
        let mut build = Command::new("setpriv");
        build
            .args(["--bounding-set=-all", "--inh-caps=-all"])
            .arg(&builder)
            .arg("build")
            .arg(places.tests.join("policies").join(name))
            .arg("--write")
            .arg(to.join(name).with_extension("o"));
        command::run(build).with_context(|| format!("build policy {name}"))?;
    }
    Ok(())
}

/// Builds the examples of scenarios as their readers do, with the libbpf that Fairpath has.
fn examples(scenarios: &[Scenario], places: &Places) -> Result<()> {
    let all = scenarios.iter().flat_map(|scenario| &scenario.examples);
    let names: BTreeSet<&String> = all.collect();
    if names.is_empty() {
        return Ok(());
    }
    let libbpf = libbpf(places)?;
    let root = run::root();
    for name in names {
        let to = places.target.join(command::BUILT).join(name);
        fs::create_dir_all(&to)?;
        for file in fs::read_dir(root.join("examples").join(name))? {
            let file = file?;
            fs::copy(file.path(), to.join(file.file_name()))?;
        }
        let include = [root.join("bpf/include"), libbpf.join("include")];
        let include = include.map(|path| format!("-I{}", path.display()));
        let mut make = Command::new("make");
        make.arg("-C").arg(&to);
        make.arg(format!("INCLUDE={}", include.join(" ")));
        make.arg(format!("LIBS={}/libbpf.a -lelf -lz", libbpf.display()));
        command::run(make).with_context(|| format!("build examples/{name}"))?;
    }
    Ok(())
}

/// Headers and library of libbpf, where Cargo built them last.
fn libbpf(places: &Places) -> Result<PathBuf> {
    let builds = places.target.join("debug/build");
    let outs = fs::read_dir(&builds).with_context(|| format!("read {}", builds.display()))?;
    let outs = outs.filter_map(|entry| Some(entry.ok()?.path().join("out")));
    let built = outs.filter_map(|out| {
        let time = out.join("libbpf.a").metadata().ok()?.modified().ok()?;
        Some((time, out))
    });
    let last = built.max_by_key(|(time, _)| *time);
    let last = last.context("libbpf was not built: run `cargo build`")?;
    Ok(last.1)
}

/// A program of ours: from [`BIN_DIR`], else built now.
fn program(package: &str, name: &str, places: &Places) -> Result<PathBuf> {
    if let Some(directory) = env::var_os(BIN_DIR) {
        return Ok(PathBuf::from(directory).join(name));
    }
    let status = run::cargo()
        .args(["build", "--quiet", "--package", package, "--bin", name])
        .status()
        .context("run cargo")?;
    anyhow::ensure!(status.success(), "build {name}: {status}");
    Ok(places.target.join("debug").join(name))
}

/// A copy of a built program without symbols; with them, where they cannot be taken out.
fn stripped(name: &str, built: &Path, places: &Places) -> Result<PathBuf> {
    let to = places.target.join(command::BUILT);
    fs::create_dir_all(&to)?;
    // The other kernel's guest may be packed at the same time, from the same copies.
    let partial = to.join(format!("{name}.{}", std::process::id()));
    let mut strip = Command::new("strip");
    strip.arg("-o").arg(&partial).arg(built);
    if command::run(strip).is_err() {
        return Ok(built.to_owned());
    }
    fs::rename(&partial, to.join(name)).with_context(|| format!("name {name}"))?;
    Ok(to.join(name))
}

/// The scenarios that exist, and the kernels that each makes a promise about.
pub fn scenarios() -> Result<BTreeMap<String, Vec<Which>>> {
    let all = Scenario::load_all(&places()?.tests.join("scenarios"), &[])?;
    let named = all
        .into_iter()
        .map(|scenario| (scenario.name, scenario.kernels));
    Ok(named.collect())
}

fn skip_all(kernels: &[Which], scenarios: &[Scenario], tally: &mut Tally) {
    for which in kernels {
        for scenario in scenarios
            .iter()
            .filter(|scenario| scenario.kernels.contains(which))
        {
            let reason = format!("{SWITCH}=skip");
            tally.skip(
                *which,
                &scenario.name,
                "a machine that may emulate",
                &reason,
            );
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
            Some(program) => tally.skip(
                which,
                &scenario.name,
                &format!("command:{program}"),
                "it is not installed on the host",
            ),
            None => runnable.push(scenario),
        }
    }
    runnable
}

fn show(which: Which, finished: &Finished, console_log: &Path, tally: &mut Tally) {
    let name = format!("{}/{}", which.name(), finished.scenario);
    tally.repeats(which, finished);
    match &finished.outcome {
        Outcome::Passed => {
            tally.passed += 1;
            println!(
                "test {name} ... ok ({} checks, {})",
                finished.checks.len(),
                seconds(finished.took)
            );
        }
        Outcome::Skipped(text) => {
            // The harness begins it with the need, and has judged it by the guest's own features.
            let (need, reason) = text.split_once(' ').unwrap_or((text, "no reason"));
            tally.skip(which, &finished.scenario, need, reason);
        }
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
    fn repeats_are_logged_as_native_tests_log_them() {
        let path = env::temp_dir().join(format!("fairpath-retries-{}", std::process::id()));
        let mut tally = Tally {
            passed: 0,
            failed: 0,
            skipped: 0,
            skips: None,
            retries: Some(File::create(&path).unwrap()),
        };
        let finished = Finished {
            scenario: "qdisc".to_owned(),
            outcome: Outcome::Passed,
            checks: Vec::new(),
            repeats: vec!["slow".to_owned(), "slow\tagain".to_owned()],
            took: Duration::ZERO,
            console: Vec::new(),
        };
        tally.repeats(Which::Newest, &finished);
        let logged = fs::read_to_string(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(
            logged,
            "vm/newest/qdisc\t1\tslow\nvm/newest/qdisc\t2\tslow again\n"
        );
        assert_eq!(tally.failed, 0);
    }

    #[test]
    fn floor_is_6_12_and_newest_from_7() {
        let accepts = |which: Which, text: &str| which.accepts(&DebVersion::new(text));
        assert!(accepts(Which::Floor, "6.12.95-1~bpo12+1"));
        assert!(!accepts(Which::Floor, "6.1.2-1"));
        assert!(!accepts(Which::Newest, "6.19.14-1"));
        assert!(accepts(Which::Newest, "7.3.4-1~bpo13+1"));
        assert!(accepts(Which::Newest, "10.1.1-1"));
    }
}
