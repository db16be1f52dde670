//! The shaper: none, TBF or HTB by hand, or `fairpath run` through one of its back ends.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::ValueEnum;
use fairpath_testbed::{Netns, Process};
use nix::mount::{MntFlags, umount2};
use nix::sys::signal::Signal;
use serde::Serialize;
use tempfile::TempDir;

use super::scene::{Scene, subscriber};
use super::{htb, tbf};

/// Ten thousand classes take the daemon ten seconds on an idle machine.
const START_DEADLINE: Duration = Duration::from_secs(180);
/// For SIGKILL.
const END_DEADLINE: Duration = Duration::from_secs(60);
/// The minimum rate that HTB accepts without losing precision.
const MIN_FLOOR_BPS: u64 = 8_000;

/// The shapers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Via {
    /// No shaper; the sender keeps to the rate
    None,
    /// The kernel's TBF: one queue for all
    Tbf,
    /// The kernel's HTB, made by hand with tc
    Htb,
    /// `fairpath run` with via = "kernel": HTB and a program that classifies
    Kernel,
    /// `fairpath run` with via = "nfqueue"
    Nfqueue,
    /// `fairpath run` with via = "afxdp"
    Afxdp,
}

impl std::fmt::Display for Via {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.word())
    }
}

impl Via {
    /// All of them.
    pub const ALL: [Via; 6] = [
        Via::None,
        Via::Tbf,
        Via::Htb,
        Via::Kernel,
        Via::Nfqueue,
        Via::Afxdp,
    ];

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Via::None => "no shaper",
            Via::Tbf => "TBF",
            Via::Htb => "HTB by hand",
            Via::Kernel => "fairpath kernel",
            Via::Nfqueue => "fairpath nfqueue",
            Via::Afxdp => "fairpath afxdp",
        }
    }

    /// On the command line and in the daemon's configuration.
    fn word(self) -> &'static str {
        match self {
            Via::None => "none",
            Via::Tbf => "tbf",
            Via::Htb => "htb",
            Via::Kernel => "kernel",
            Via::Nfqueue => "nfqueue",
            Via::Afxdp => "afxdp",
        }
    }
}

/// A shaper at work; ends when dropped, and what it made in the kernel with its router.
pub struct Running<'s> {
    router: &'s Netns,
    what: What,
    line_bps: u64,
}

enum What {
    Nobody,
    Tbf,
    Htb,
    Daemon(Daemon),
}

impl<'s> Running<'s> {
    /// Starts it with the first rate of `lines`; all of these can be set later.
    ///
    /// # Errors
    /// It does not start, in three minutes for the daemon.
    pub fn start(via: Via, scene: &'s Scene, lines: &[u64]) -> anyhow::Result<Running<'s>> {
        let (Some(&first), Some(&min), Some(&most)) =
            (lines.first(), lines.iter().min(), lines.iter().max())
        else {
            bail!("start {}: without a rate", via.name());
        };
        let (router, classes) = (scene.router(), scene.classes());
        let floor_bps = (min / u64::from(classes.max(1))).max(MIN_FLOOR_BPS);
        let what = match via {
            Via::None => What::Nobody,
            Via::Tbf => {
                tbf::set_line(router, "add", first)?;
                What::Tbf
            }
            Via::Htb => {
                htb::start(router, classes, floor_bps, first, most)?;
                What::Htb
            }
            via => What::Daemon(Daemon::start(router, via, classes, floor_bps, first, None)?),
        };
        Ok(Running {
            router,
            what,
            line_bps: first,
        })
    }

    /// Gives the line another rate.
    ///
    /// # Errors
    /// The shaper refuses.
    pub fn set_line(&mut self, bps: u64) -> anyhow::Result<()> {
        if self.line_bps == bps {
            return Ok(());
        }
        match &self.what {
            What::Nobody => {}
            What::Tbf => tbf::set_line(self.router, "change", bps)?,
            What::Htb => htb::set_line(self.router, bps)?,
            What::Daemon(daemon) => daemon.set_line(bps)?,
        }
        self.line_bps = bps;
        Ok(())
    }

    /// The process, if it is one.
    pub fn process(&self) -> Option<u32> {
        match &self.what {
            What::Nobody | What::Tbf | What::Htb => None,
            What::Daemon(daemon) => Some(daemon.id()),
        }
    }
}

/// `fairpath run`, which shapes; killed when dropped.
pub struct Daemon {
    process: Process,
    place: TempDir,
}

impl Daemon {
    /// Starts it by a back end, with a floor for each class, the rate of the link, and a number of
    /// workers if it should not select one.
    ///
    /// # Errors
    /// It does not shape in three minutes.
    pub fn start(
        router: &Netns,
        via: Via,
        classes: u32,
        floor_bps: u64,
        line_bps: u64,
        workers: Option<u32>,
    ) -> anyhow::Result<Daemon> {
        let place = tempfile::tempdir().context("make a directory for the daemon")?;
        let text = configuration(place.path(), via, line_bps, workers);
        let file = place.path().join("fairpath.toml");
        fs::write(&file, text).context("write the daemon's configuration")?;
        fs::write(place.path().join("classes.csv"), table(classes, floor_bps))
            .context("write the daemon's classes")?;
        let mut command = router.command_without_sysfs(crate::fairpath()?);
        command.args(["run", "--config"]).arg(&file);
        let daemon = Daemon {
            process: router.spawn(command)?,
            place,
        };
        for text in ["ready after", "shaping via"] {
            daemon.process.wait_stderr(text, START_DEADLINE)?;
        }
        Ok(daemon)
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Leaves one CPU to all of its threads.
    ///
    /// # Errors
    /// There is no such CPU, or `taskset` is missing.
    pub fn stay_on(&self, cpu: usize) -> anyhow::Result<()> {
        let [cpu, process] = [cpu.to_string(), self.id().to_string()];
        let output = Command::new("taskset")
            .args(["--all-tasks", "--cpu-list", "--pid", &cpu, &process])
            .output()
            .context("start taskset")?;
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr);
            bail!("move the daemon to CPU {cpu}: {}", why.trim());
        }
        Ok(())
    }

    fn set_line(&self, bps: u64) -> anyhow::Result<()> {
        let rate = format!("{bps}bit");
        let output = Command::new(crate::fairpath()?)
            .args([
                "shape", "set", "line", "--down", &rate, "--up", &rate, "--socket",
            ])
            .arg(self.place.path().join("control.sock"))
            .output()
            .context("start fairpath shape set")?;
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr);
            bail!("set the line to {rate}: {}", why.trim());
        }
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.process.signal(Signal::SIGKILL);
        // What is still there goes with the bench, by the process's own guard.
        let _ = self.process.wait(END_DEADLINE);
        // Where the daemon kept what outlives it; nothing is mounted there otherwise.
        let _ = umount2(&self.place.path().join("pins"), MntFlags::MNT_DETACH);
    }
}

fn configuration(place: &Path, via: Via, line_bps: u64, workers: Option<u32>) -> String {
    let workers = workers.map_or(String::new(), |n| format!("workers = {n}\n"));
    let place = place.display();
    format!(
        "class_files = [\"classes.csv\"]\n\
         [control]\nsocket = \"{place}/control.sock\"\n[state]\nfile = \"{place}/state\"\n\
         [metrics]\nlisten = \"off\"\n\
         [monitor]\ninterfaces = [\"lan\", \"wan\"]\nuplinks = [\"wan\"]\n\
         [shape]\ninside = \"lan\"\noutside = \"wan\"\nvia = \"{via}\"\n\
         down = \"{line_bps}bit\"\nup = \"{line_bps}bit\"\n{workers}"
    )
}

/// As the peer has them: a floor each, and the link rate as the only ceiling.
fn table(classes: u32, floor_bps: u64) -> String {
    let mut csv = String::from("name,prefix,down_floor,up_floor\n");
    for class in 0..classes {
        let address = subscriber(class);
        let _ = writeln!(
            csv,
            "subscriber {class},{address}/32,{floor_bps}bit,{floor_bps}bit"
        );
    }
    csv
}
