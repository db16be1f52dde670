//! Netfilter rules that send what leaves by an interface to a packet queue.
//!
//! They stand in `mangle` (priority -150) behind routing: forwarded packets and the router's own, with
//! addresses as the inside knows them, since masquerading comes later. By nft where it knows `queue`,
//! else by iptables and ip6tables. Table and chain have names of their own, so that they are replaced
//! as a whole and found again after a crash.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use super::OnFailure;

/// One rule: what leaves by `interface` goes to `queue`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divert {
    /// By its name: it may come and go.
    pub interface: String,
    /// The packet queue's number.
    pub queue: u16,
}

/// Rules in place.
#[derive(Debug)]
pub struct Diversion {
    name: String,
    by: Tool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tool {
    Nft,
    /// The commands for IPv4 and IPv6.
    Iptables([&'static str; 2]),
}

/// In the order in which they are tried.
const TOOLS: [Tool; 3] = [
    Tool::Nft,
    Tool::Iptables(["iptables-legacy", "ip6tables-legacy"]),
    Tool::Iptables(["iptables", "ip6tables"]),
];

impl Tool {
    fn name(self) -> &'static str {
        match self {
            Tool::Nft => "nft",
            Tool::Iptables([name, _]) => name,
        }
    }
}

impl Diversion {
    /// Puts the rules in place, instead of those that a crash left.
    ///
    /// # Errors
    /// What each tool said where none can.
    pub fn begin(diverts: &[Divert], on_failure: OnFailure) -> anyhow::Result<Diversion> {
        let first = diverts.first().map_or(0, |divert| divert.queue);
        let name = format!("fairpath_{first}");
        let mut refusals = Vec::new();
        for by in TOOLS {
            match put(by, &name, diverts, on_failure) {
                Ok(()) => return Ok(Diversion { name, by }),
                Err(error) => {
                    refusals.push(format!("{}: {error:#}", by.name()));
                    // What it could do is no use alone.
                    let _ = take_away(by, &name);
                }
            }
        }
        bail!(
            "send packets to queue {first}: no tool can: {}; install nftables or iptables, and see `fairpath features`",
            refusals.join("; ")
        )
    }

    /// Takes the rules away.
    ///
    /// # Errors
    /// What the tool says.
    pub fn end(&self) -> anyhow::Result<()> {
        take_away(self.by, &self.name)
    }

    /// Which tool made them.
    pub fn by(&self) -> &'static str {
        self.by.name()
    }
}

fn put(by: Tool, name: &str, diverts: &[Divert], on_failure: OnFailure) -> anyhow::Result<()> {
    let bypass = on_failure == OnFailure::Pass;
    match by {
        Tool::Nft => {
            let flags = if bypass { "flags bypass " } else { "" };
            let rules: String = diverts
                .iter()
                .map(|Divert { interface, queue }| {
                    format!("    oifname \"{interface}\" queue {flags}to {queue}\n")
                })
                .collect();
            // The first line makes sure that there is something to delete.
            let text = format!(
                "table inet {name} {{}}\ndelete table inet {name}\ntable inet {name} {{\n  chain shape {{\n    \
                 type filter hook postrouting priority mangle; policy accept;\n{rules}  }}\n}}\n"
            );
            told("nft", &["-f", "-"], &text)
        }
        Tool::Iptables(commands) => {
            for command in commands {
                put_iptables(command, name, diverts, bypass)?;
            }
            Ok(())
        }
    }
}

fn put_iptables(command: &str, name: &str, diverts: &[Divert], bypass: bool) -> anyhow::Result<()> {
    let bypass = if bypass { " --queue-bypass" } else { "" };
    let rules: String = diverts
        .iter()
        .map(|Divert { interface, queue }| {
            format!("-A {name} -o {interface} -j NFQUEUE --queue-num {queue}{bypass}\n")
        })
        .collect();
    // Naming the chain empties it if it is there; the whole comes into force at once.
    let text = format!("*mangle\n:{name} - [0:0]\n{rules}COMMIT\n");
    let restore = format!("{command}-restore");
    told(&restore, &["--noflush", "--wait", "5"], &text)?;
    let jump = |verb| ["-w", "5", "-t", "mangle", verb, "POSTROUTING", "-j", name];
    if told(command, &jump("-C"), "").is_err() {
        told(command, &jump("-A"), "")?;
    }
    Ok(())
}

fn take_away(by: Tool, name: &str) -> anyhow::Result<()> {
    match by {
        Tool::Nft => match told("nft", &["delete", "table", "inet", name], "") {
            // Somebody emptied the ruleset.
            Err(_) if told("nft", &["list", "table", "inet", name], "").is_err() => Ok(()),
            done => done,
        },
        Tool::Iptables(commands) => {
            let both = commands.map(|command| take_away_iptables(command, name));
            both.into_iter().collect()
        }
    }
}

/// Each step is taken, whatever became of the one before: somebody may have emptied the table.
fn take_away_iptables(command: &str, name: &str) -> anyhow::Result<()> {
    let mangle = |rest: &[&str]| {
        let words: Vec<&str> = ["-w", "5", "-t", "mangle"]
            .iter()
            .chain(rest)
            .copied()
            .collect();
        told(command, &words, "")
    };
    let steps: [&[&str]; 3] = [
        &["-D", "POSTROUTING", "-j", name],
        &["-F", name],
        &["-X", name],
    ];
    let done: Vec<_> = steps.iter().map(|step| mangle(step)).collect();
    match mangle(&["-S", name]) {
        Ok(()) => done.into_iter().collect(),
        // Gone, which is what was wanted.
        Err(_) => Ok(()),
    }
}

/// Where iptables keeps its lock: of our own where the usual one cannot be written, as under systemd.
fn own_lock() -> Option<&'static str> {
    let usual = OpenOptions::new()
        .create(true)
        .append(true)
        .open("/run/xtables.lock");
    usual.is_err().then_some("/run/fairpath/xtables.lock")
}

/// Runs a command with `input`; its complaint is the error. Ctrl-C is this process's, which waits for it.
fn told(command: &str, words: &[&str], input: &str) -> anyhow::Result<()> {
    let mut child = Command::new(command);
    if let Some(lock) = own_lock() {
        child.env("XTABLES_LOCKFILE", lock);
    }
    let mut child = child
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .env("LC_ALL", "C")
        .process_group(0)
        .spawn()
        .context("cannot be started")?;
    if let Some(mut stdin) = child.stdin.take() {
        // A command that reads nothing may be gone already.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().context("wait for its end")?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    match said.lines().next() {
        Some(said) => bail!("{}", said.trim()),
        None => bail!("{command}: {}", output.status),
    }
}
