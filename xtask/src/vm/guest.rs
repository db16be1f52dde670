//! Runs QEMU and feeds its console to a [`Session`], or to a developer's terminal.
//!
//! One processor and no KVM: neither works where this has to run. No network card, no monitor; a disk for restarts.

use std::env;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::Which;
use super::command;
use super::scenario::Scenario;
use super::session::{Finished, Session};

/// Variables for test programs, which the guest gets as words of its kernel's command line. The share of a guest is the
/// usual one even where all tests are whole, because it is slow.
const SETTINGS: [(&str, &str); 2] = [
    ("FAIRPATH_TEST_SEED", "fairpath.seed"),
    ("FAIRPATH_VM_SHARE", "fairpath.share"),
];
const QEMU: &str = "qemu-system-x86_64";
/// Debug builds, tools and modules unpacked, and arenas of tests.
const MEMORY_MIB: &str = "1536";
/// From the last report to the end of QEMU.
const POWER_OFF: Duration = Duration::from_secs(10);

/// The emulated processor.
///
/// QEMU 7.2 now and then leaves `cmpxchg16b` with bits of a pointer in EFLAGS, and half of all boots of 6.12 crashed in
/// `kmem_cache_alloc` or after (6 of 12; without it 0 of 12), so 6.12 does without. 7.x cannot: since it allocates arena
/// pages without locks (`kmalloc_nolock`), a processor without `cmpxchg16b` has no arenas (ENOMEM). It boots well with it.
fn processor(which: Which) -> &'static str {
    match which {
        Which::Floor => "max,-cx16",
        Which::Newest => "max",
    }
}

/// A guest ready to start.
pub struct Guest<'a> {
    pub which: Which,
    pub image: PathBuf,
    pub initramfs: &'a Path,
    pub console_log: &'a Path,
    /// More words for the kernel's command line.
    pub arguments: &'a str,
    /// An empty disk, where the user space has one.
    pub disk: Option<&'a Path>,
}

/// The results of one boot.
pub struct Boot {
    /// `None` if it never came up.
    pub took: Option<Duration>,
    pub finished: Vec<Finished>,
    pub remaining: Vec<Scenario>,
}

/// The emulator, or what to install.
pub fn qemu() -> Result<PathBuf> {
    command::find(QEMU).with_context(|| {
        format!("{QEMU} is not installed; install qemu-system-x86, or set FAIRPATH_VM=skip")
    })
}

impl Guest<'_> {
    /// Boots once and runs as many scenarios as the guest survives.
    pub fn run(&self, scenarios: &[Scenario]) -> Result<Boot> {
        let names: Vec<_> = scenarios
            .iter()
            .map(|scenario| scenario.name.as_str())
            .collect();
        let mut session = Session::new(scenarios, Instant::now());
        self.start(&format!("fairpath.run={}", names.join(",")), &mut session)?;
        while session.is_down() {
            session.restarted();
            let (times, next) = (session.restarts(), session.remaining());
            let name = &next.first().context("a scenario that restarts")?.name;
            self.start(
                &format!("fairpath.restarts={times} fairpath.run={name}"),
                &mut session,
            )?;
        }
        Ok(Boot {
            took: session.boot_time(),
            finished: session.finished().to_vec(),
            remaining: session.remaining(),
        })
    }

    /// From the start of QEMU to its end.
    fn start(&self, order: &str, session: &mut Session) -> Result<()> {
        let mut qemu = self.qemu(order)?;
        qemu.args(["-serial", "stdio"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = Running(qemu.spawn().context("start QEMU")?);
        let lines = console(&mut child.0);
        let mut log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.console_log)?;
        while !(session.is_over() || session.is_down()) {
            step(session, &lines, &mut log)?;
        }
        drain(&lines, &mut log)
    }

    /// Boots into a shell on this terminal.
    pub fn shell(&self) -> Result<()> {
        println!("fairpath-run NAME runs a scenario; poweroff or Ctrl-A X leaves");
        let status = self
            .qemu("fairpath.shell")?
            .args(["-serial", "mon:stdio"])
            .status()
            .context("start QEMU")?;
        anyhow::ensure!(status.success(), "QEMU: {status}");
        Ok(())
    }

    fn qemu(&self, order: &str) -> Result<Command> {
        // Killed with this process, however it ends.
        let mut qemu = Command::new("setpriv");
        qemu.args(["--pdeathsig", "KILL", "--"]).arg(self::qemu()?);
        qemu.args([
            "-machine",
            "pc",
            "-accel",
            "tcg",
            "-cpu",
            processor(self.which),
            "-smp",
            "1",
            "-m",
            MEMORY_MIB,
        ]);
        qemu.args([
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-no-reboot",
        ]);
        qemu.arg("-kernel")
            .arg(&self.image)
            .arg("-initrd")
            .arg(self.initramfs);
        if let Some(disk) = self.disk {
            // It outlives this process of QEMU, and need not outlive a crash of the host.
            let drive = format!("file={},if=virtio,format=raw,cache=unsafe", disk.display());
            qemu.arg("-drive").arg(drive);
        }
        // An oops ends the guest (-no-reboot) instead of leaving a half-dead kernel to test on.
        let kernel = "console=ttyS0 quiet loglevel=4 panic=-1 oops=panic";
        let settings = SETTINGS.map(|(variable, word)| match env::var(variable) {
            Ok(value) => format!("{word}={value} "),
            Err(_) => String::new(),
        });
        qemu.arg("-append").arg(format!(
            "{kernel} {} fairpath.kernel={} {}{order}",
            self.arguments,
            self.which.name(),
            settings.concat()
        ));
        Ok(qemu)
    }
}

/// A child process that does not outlive its owner.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Lines of QEMU's console and of its standard error, until both close.
fn console(child: &mut Child) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    let stdout = child
        .stdout
        .take()
        .map(|pipe| Box::new(pipe) as Box<dyn std::io::Read + Send>);
    let stderr = child
        .stderr
        .take()
        .map(|pipe| Box::new(pipe) as Box<dyn std::io::Read + Send>);
    for pipe in [stdout, stderr].into_iter().flatten() {
        let sender = sender.clone();
        thread::spawn(move || {
            for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line)
                    .trim_end_matches('\r')
                    .to_string();
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
    }
    lines
}

fn step(session: &mut Session, lines: &Receiver<String>, log: &mut File) -> Result<()> {
    let patience = session.deadline().saturating_duration_since(Instant::now());
    match lines.recv_timeout(patience) {
        Ok(line) => {
            writeln!(log, "{line}").context("write the console log")?;
            session.line(&line, Instant::now());
            // A guest that only chatters is as lost as a silent one.
            if Instant::now() >= session.deadline() {
                session.silent(Instant::now());
            }
        }
        Err(RecvTimeoutError::Timeout) => session.silent(Instant::now()),
        Err(RecvTimeoutError::Disconnected) => session.closed(Instant::now()),
    }
    Ok(())
}

/// Keeps the last words, among them what follows a panic.
fn drain(lines: &Receiver<String>, log: &mut File) -> Result<()> {
    let until = Instant::now() + POWER_OFF;
    while let Ok(line) = lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
        writeln!(log, "{line}").context("write the console log")?;
    }
    Ok(())
}
