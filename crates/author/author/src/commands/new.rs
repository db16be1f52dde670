//! `fairpath sched new`: a policy to begin with, and its script.
//!
//! Both are made from files beside this one; nothing is overwritten.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use fairpath_core::sched::policies;
use fairpath_policy::is_name;

/// Arguments of `fairpath sched new`.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  \
    fairpath sched new shortest && fairpath sched check shortest.c\n\n\
    The guide is docs/guide/sched-policies.md. Exit status: 0 done, 1 failed, 2 wrong usage.")]
pub struct Args {
    /// What the policy is called: small letters, digits, _ and -
    name: String,
    /// What it ranks
    #[arg(long, value_enum, default_value_t = Over::Packets)]
    over: Over,
    /// Where the files go
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Over {
    /// Each packet has its rank
    Packets,
    /// Each flow has a queue of its own, and a rank
    Flows,
}

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let name = &args.name;
    if !is_name(name) {
        bail!(
            "make policy \"{name}\": a name is a small letter, then small letters, digits, _ and -, 23 in all at most"
        );
    }
    if policies().iter().any(|policy| policy.name == *name) {
        bail!(
            "make policy {name}: fairpath has one of that name (fairpath sched show {name}); choose another"
        );
    }
    let (policy, script) = match args.over {
        Over::Packets => (
            include_str!("new/packets.c"),
            include_str!("new/packets.lua"),
        ),
        Over::Flows => (include_str!("new/flows.c"), include_str!("new/flows.lua")),
    };
    let file = |ending| match args.dir.as_path() {
        here if here == Path::new(".") => PathBuf::from(format!("{name}.{ending}")),
        dir => dir.join(format!("{name}.{ending}")),
    };
    let (c, lua) = (file("c"), file("lua"));
    // Neither is written if one is there.
    for path in [&c, &lua] {
        if path.exists() {
            return Err(exists(path));
        }
    }
    write(&c, &policy.replace("@NAME@", name))?;
    write(&lua, &script.replace("@NAME@", name))?;
    print(&c, &lua);
    Ok(())
}

fn exists(path: &Path) -> anyhow::Error {
    anyhow::anyhow!(
        "write {}: it is there already; choose another name or --dir",
        path.display()
    )
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    let mut file = match file {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Err(exists(path)),
        Err(error) if error.kind() == ErrorKind::NotFound => bail!(
            "write {}: there is no such directory; make it first",
            path.display()
        ),
        file => file.with_context(|| format!("write {}", path.display()))?,
    };
    file.write_all(text.as_bytes())
        .with_context(|| format!("write {}", path.display()))
}

fn print(c: &Path, lua: &Path) {
    let (c, lua) = (c.display(), lua.display());
    println!("wrote {c} and {lua}. Next:");
    let check = format!("fairpath sched check {c}");
    let test = format!("fairpath sched test {c} {lua}");
    println!("  {check:<50}  # compile it, ask the verifier, try it");
    println!("  {test:<50}  # what it promises");
    println!(
        "  fairpath sched run {c} --rate 100mbit --traffic 'bulk flows=4; voice'  # a simulated link"
    );
}
