//! `cargo xtask shots`: the screenshots of README and guide, in docs/images.
//!
//! | file | content |
//! |---|---|
//! | `top.svg` | `fairpath top` in a terminal |
//! | `page.png` | the page of the daemon in Chromium |
//! | `report.png` | the first screen of the report in docs/results/bufferbloat in Chromium |
//!
//! `fairpath demo` creates the network and the traffic. A second daemon, with the page, measures on the
//! demo's router. The command needs root, and what `setup/needs test` installs.

mod svg;
mod terminal;

use crate::run;
use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use terminal::Terminal;

/// Take the screenshots of README and guide (root).
#[derive(clap::Args)]
pub struct Args {
    /// Directory of the built binaries [default: cargo builds them in target/release]
    #[arg(long, value_name = "DIR")]
    binaries: Option<PathBuf>,
    /// Directory for the images
    #[arg(long, value_name = "DIR", default_value = "docs/images")]
    output: PathBuf,
}

const COLUMNS: u16 = 104;
const ROWS: u16 = 20;
/// Until a process is ready, and until the demo has ended.
const DEADLINE: Duration = Duration::from_secs(120);
/// Between the start of the daemon and the screenshots: most parts of the demo have run by then.
const TRAFFIC: Duration = Duration::from_secs(20);
/// For the first drawn screen to fill.
const DRAW: Duration = Duration::from_secs(4);
/// For the page to request and draw its rows.
const PAGE: Duration = Duration::from_secs(4);
const POLL: Duration = Duration::from_millis(100);
const PAGE_ADDRESS: &str = "127.0.0.1:9908";
const REPORT: &str = "docs/results/bufferbloat/index.html";

pub fn run(args: &Args) -> Result<()> {
    ensure!(
        nix::unistd::geteuid().is_root(),
        "network namespaces need root; remedy: run cargo xtask shots as root"
    );
    let binaries = match &args.binaries {
        Some(dir) => fs::canonicalize(dir).with_context(|| format!("open {}", dir.display()))?,
        None => build()?,
    };
    fs::create_dir_all(&args.output)
        .with_context(|| format!("create {}", args.output.display()))?;
    let output = fs::canonicalize(&args.output)?;
    let report = fs::canonicalize(REPORT).with_context(|| format!("open {REPORT}"))?;
    let report = format!("file://{}", report.display());
    chromium(
        Command::new("chromium"),
        &report,
        &output.join("report.png"),
    )?;
    live(&binaries, &output)
}

/// Builds the programs, and returns their directory.
fn build() -> Result<PathBuf> {
    let mut cargo = run::cargo();
    cargo.args(["build", "--release", "--locked", "--bins"]);
    cargo.args(["--package", "fairpath", "--package", "fairpath-demo"]);
    cargo.args(["--package", "fairpath-author"]);
    run::run(&mut cargo)?;
    Ok(fs::canonicalize(run::target_dir().join("release"))?)
}

/// The screenshots that need traffic.
fn live(binaries: &Path, output: &Path) -> Result<()> {
    let work = fs::canonicalize(run::target_dir())?.join("shots");
    if work.exists() {
        fs::remove_dir_all(&work).with_context(|| format!("empty {}", work.display()))?;
    }
    let mut demo = Command::new(binaries.join("fairpath-demo"));
    // The name of the option in all versions of the demo.
    demo.arg("--output").arg(&work);
    demo.env("FAIRPATH_BIN_DIR", binaries).stdout(Stdio::null());
    let demo = Running::start(demo)?;
    let configuration = work.join("daemon/fairpath.toml");
    wait_for("the daemon of the demo", || {
        Ok(work.join("daemon/control.sock").exists().then_some(()))
    })?;
    let router = wait_for("the daemon's process", || child_that_runs(demo.id(), "run"))?;

    let daemon = Running::start(daemon(binaries, &configuration, router)?)?;
    let socket = configuration.with_file_name("shots.sock");
    wait_for("the second daemon", || Ok(socket.exists().then_some(())))?;
    sleep(TRAFFIC);

    top(binaries, &socket, &output.join("top.svg"))?;
    let url = format!("http://{PAGE_ADDRESS}/");
    chromium(inside(router, "chromium"), &url, &output.join("page.png"))?;
    daemon.end()?;
    demo.wait()
}

/// A daemon with the configuration of the demo's own, and with the page.
fn daemon(binaries: &Path, configuration: &Path, router: Pid) -> Result<Command> {
    let text = fs::read_to_string(configuration)
        .with_context(|| format!("read {}", configuration.display()))?;
    ensure!(
        text.contains("\"control.sock\""),
        "the demo's configuration has no control socket"
    );
    let text = text.replace("\"control.sock\"", "\"shots.sock\"");
    let own = configuration.with_file_name("shots.toml");
    fs::write(&own, format!("[web]\nlisten = \"{PAGE_ADDRESS}\"\n{text}"))
        .with_context(|| format!("write {}", own.display()))?;
    let mut command = inside(router, binaries.join("fairpath"));
    command.args(["run", "--config"]).arg(own);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command)
}

fn top(binaries: &Path, socket: &Path, to: &Path) -> Result<()> {
    let mut command = Command::new("setsid");
    command.args(["--ctty", "--wait"]);
    command.arg(binaries.join("fairpath"));
    command.args(["top", "--socket"]).arg(socket);
    let terminal = Terminal::start(command, COLUMNS, ROWS)?;
    sleep(DRAW);
    let text = terminal.read(|screen| screen.contents());
    ensure!(
        text.lines().count() > 4,
        "fairpath top drew no table: {text:?}"
    );
    let image = terminal.read(|screen| svg::of_screen(screen, "fairpath top"));
    terminal.end("q")?;
    fs::write(to, image).with_context(|| format!("write {}", to.display()))?;
    println!("shots: {}", to.display());
    Ok(())
}

/// A command in the network namespace of a process.
fn inside(process: Pid, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/proc/{process}/ns/net"));
    command.arg("--").arg(program);
    command
}

/// Takes a screenshot of the page at `url`; `command` runs Chromium.
fn chromium(mut command: Command, url: &str, to: &Path) -> Result<()> {
    let profile = fs::canonicalize(run::target_dir())?.join("shots-profile");
    command.args([
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-extensions",
        "--disable-sync",
        "--no-first-run",
        "--hide-scrollbars",
        "--window-size=1280,800",
    ]);
    command.arg(format!("--user-data-dir={}", profile.display()));
    command.arg(format!("--virtual-time-budget={}", PAGE.as_millis()));
    command.arg(format!("--screenshot={}", to.display()));
    command.arg(url).env("TZ", "UTC");
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let _ = fs::remove_file(to);
    let browser = Running::start(command).context("remedy: make setup")?;
    browser.wait()?;
    let _ = fs::remove_dir_all(profile);
    ensure!(to.exists(), "chromium wrote no {}", to.display());
    println!("shots: {}", to.display());
    Ok(())
}

/// A process that ends with this value.
struct Running {
    child: Child,
    line: String,
}

impl Running {
    fn start(mut command: Command) -> Result<Running> {
        let line = run::line_of(&command);
        println!("$ {line}");
        let child = command.spawn().with_context(|| format!("run {line}"))?;
        Ok(Running { child, line })
    }

    fn id(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    /// Waits for success.
    fn wait(mut self) -> Result<()> {
        let status = self.ended()?;
        ensure!(status.success(), "{}: {status}", self.line);
        Ok(())
    }

    /// Ends it with SIGTERM, and waits.
    fn end(mut self) -> Result<()> {
        kill(self.id(), Signal::SIGTERM).with_context(|| format!("end {}", self.line))?;
        self.ended().map(drop)
    }

    fn ended(&mut self) -> Result<std::process::ExitStatus> {
        let (child, line) = (&mut self.child, &self.line);
        wait_for(line, || Ok(child.try_wait()?))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // SIGTERM first: the demo removes its files.
            let _ = kill(self.id(), Signal::SIGTERM);
            sleep(POLL);
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Polls until there is a value.
fn wait_for<T>(what: &str, mut poll: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let start = Instant::now();
    loop {
        if let Some(value) = poll()? {
            return Ok(value);
        }
        if start.elapsed() > DEADLINE {
            bail!("{what}: not ready after {} s", DEADLINE.as_secs());
        }
        sleep(POLL);
    }
}

/// The child of `parent` whose first argument is `argument`.
fn child_that_runs(parent: Pid, argument: &str) -> Result<Option<Pid>> {
    for entry in fs::read_dir("/proc").context("list /proc")? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let Ok(id) = name.parse() else { continue };
        // A process may end at any time: its files are then missing.
        let stat = fs::read_to_string(path.join("stat")).unwrap_or_default();
        let line = fs::read(path.join("cmdline")).unwrap_or_default();
        let first = line.split(|byte| *byte == 0).nth(1);
        if parent_of(&stat) == Some(parent.as_raw()) && first == Some(argument.as_bytes()) {
            return Ok(Some(Pid::from_raw(id)));
        }
    }
    Ok(None)
}

/// The parent in a line of `/proc/PID/stat`, whose second field may have spaces and brackets.
fn parent_of(stat: &str) -> Option<i32> {
    let (_, after) = stat.rsplit_once(") ")?;
    after.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_follows_name_and_state() {
        assert_eq!(parent_of("12 (a b) c) S 7 12 12 0"), Some(7));
        assert_eq!(parent_of(""), None);
    }

    #[test]
    fn a_child_is_found_by_its_argument() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let found = child_that_runs(Pid::this(), "60").unwrap();
        let none = child_that_runs(Pid::this(), "61").unwrap();
        let id = Pid::from_raw(child.id() as i32);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((found, none), (Some(id), None));
    }
}
