//! Seconds that `fairpath class check` takes for many classes, by format.
//!
//! No peer does this, so the target is a time: an operator saves a file and waits for the answer.

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, bail};
use serde::Serialize;

use crate::measure::{Measured, Target};
use crate::table::{build, grouped};

/// Seconds that are short enough.
const TARGET: f64 = 1.0;
/// Subscribers of a site.
const SITE: usize = 300;

/// The options of the check.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Classes of each file
    #[arg(long, default_value_t = 100_000)]
    classes: usize,
    /// Rounds of all formats
    #[arg(long, default_value_t = 5)]
    rounds: u32,
}

impl Args {
    /// The defaults above.
    pub fn usual() -> Args {
        Args {
            classes: 100_000,
            rounds: 5,
        }
    }
}

/// All of it.
#[derive(Debug, Serialize)]
pub struct CheckReport {
    classes: usize,
    formats: Vec<FormatRow>,
    targets: Vec<Target>,
}

#[derive(Debug, Serialize)]
struct FormatRow {
    file: &'static str,
    bytes: u64,
    seconds: Measured,
}

/// Measures it all.
///
/// # Errors
/// Where the bench itself fails: no place for the files, a check that finds something.
pub fn run(args: &Args) -> anyhow::Result<CheckReport> {
    if args.rounds == 0 || args.classes == 0 {
        bail!("nothing to measure: give at least one round and one class");
    }
    let fairpath = crate::fairpath()?;
    let dir = tempfile::tempdir().context("make a temporary directory")?;
    let files = [
        ("classes.csv", csv(args.classes)),
        ("classes.toml", toml(args.classes)),
        ("ShapedDevices.csv", shaped_devices(args.classes)),
    ];
    let mut rows = Vec::new();
    for (file, text) in &files {
        let path = dir.path().join(file);
        fs::write(&path, text).with_context(|| format!("write {path:?}"))?;
        let mut seconds = Vec::new();
        for _ in 0..args.rounds {
            let start = Instant::now();
            let mut check = Command::new(&fairpath);
            let output = check
                .args(["class", "check", "--strict"])
                .arg(&path)
                .output()?;
            seconds.push(start.elapsed().as_secs_f64());
            if !output.status.success() {
                bail!(
                    "{file}: the check found something: {}",
                    String::from_utf8_lossy(&output.stdout)
                );
            }
        }
        rows.push(FormatRow {
            file,
            bytes: text.len() as u64,
            seconds: Measured::of(seconds),
        });
    }
    let target = |row: &FormatRow| {
        let what = format!(
            "check of {} classes, {}",
            grouped(args.classes as u64),
            row.file
        );
        Target::at_most(what, row.seconds.median, TARGET, "s")
    };
    Ok(CheckReport {
        classes: args.classes,
        targets: rows.iter().map(target).collect(),
        formats: rows,
    })
}

/// A subscriber's site, address and prefix.
fn subscriber(number: usize) -> (usize, Ipv4Addr, Ipv6Addr) {
    let v4 = Ipv4Addr::from(0x0a00_0000 + number as u32);
    let v6 = Ipv6Addr::from((0x2001_0db8 << 96) + ((number as u128) << 64));
    (number / SITE, v4, v6)
}

fn subscribers(classes: usize) -> impl Iterator<Item = (usize, (usize, Ipv4Addr, Ipv6Addr))> {
    // One of SITE + 1 classes is a site.
    (0..classes - classes.div_ceil(SITE + 1)).map(|number| (number, subscriber(number)))
}

fn csv(classes: usize) -> String {
    let mut text = "name,parent,prefix,up,down\n".to_owned();
    for (number, (site, v4, v6)) in subscribers(classes) {
        if number % SITE == 0 {
            let _ = writeln!(text, "site-{site},,,,10gbit");
        }
        let _ = writeln!(text, "sub-{number},site-{site},{v4};{v6}/64,20M,100mbit");
    }
    text
}

fn toml(classes: usize) -> String {
    let mut text = String::new();
    for (number, (site, v4, v6)) in subscribers(classes) {
        if number % SITE == 0 {
            let _ = writeln!(text, "[[class]]\nname = \"site-{site}\"\ndown = \"10gbit\"");
        }
        let _ = writeln!(
            text,
            "[[class]]\nname = \"sub-{number}\"\nparent = \"site-{site}\"\nprefix = [\"{v4}\", \"{v6}/64\"]\nup = \"20M\"\ndown = \"100mbit\""
        );
    }
    text
}

fn shaped_devices(classes: usize) -> String {
    let mut text = "Circuit ID,Circuit Name,Device ID,Device Name,Parent Node,MAC,IPv4,IPv6,Download Min Mbps,\
                    Upload Min Mbps,Download Max Mbps,Upload Max Mbps,Comment\n"
        .to_owned();
    for (number, (site, v4, v6)) in subscribers(classes) {
        let _ = writeln!(
            text,
            "{number},\"{number} High St., Ely\",{number},Router,site-{site},,{v4},{v6}/64,1,1,100,20,"
        );
    }
    text
}

impl CheckReport {
    /// For people.
    pub fn text(&self) -> String {
        let heads = ["file", "MB", "seconds", "least", "most"];
        let row = |row: &FormatRow| {
            let seconds = &row.seconds;
            let times = [seconds.median, seconds.min, seconds.most].map(|s| format!("{s:.2}"));
            let megabytes = format!("{:.1}", row.bytes as f64 / 1e6);
            [vec![row.file.to_owned(), megabytes], times.to_vec()].concat()
        };
        let rows: Vec<_> = self.formats.iter().map(row).collect();
        let targets: String = self.targets.iter().map(Target::text).collect();
        format!(
            "\nfairpath class check, {} classes\n{}{targets}",
            grouped(self.classes as u64),
            build(&heads, &rows)
        )
    }
}
