//! `fairpath sched new`: create a policy and its test script from a template.
//!
//! The templates are in `new/`. Existing files are never overwritten.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use fairpath_core::sched::policies;
use fairpath_policy::is_name;

/// Arguments of `fairpath sched new`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath sched new shortest && fairpath sched check shortest.c\n  \
    fairpath sched new shares --over flows --output policies\n\n\
    Guide: docs/guide/sched-policies.md. Exit status: 0 success, 1 failure, 2 wrong usage.")]
pub struct Args {
    /// Name of the policy: at most 23 lower-case letters, digits, _ and -
    name: String,
    /// Select the elements that the policy ranks
    #[arg(long, value_enum, default_value_t = Over::Packets)]
    over: Over,
    /// Write the files into this directory
    #[arg(long, value_name = "DIR", default_value = ".")]
    output: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Over {
    /// Rank each packet
    Packets,
    /// Rank flows, each with its own queue
    Flows,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let name = &args.name;
    if !is_name(name) {
        bail!(
            "create policy \"{name}\": the name is invalid: \
             write at most 23 lower-case letters, digits, _ and -, with a letter first"
        );
    }
    if policies().iter().any(|policy| policy.name == *name) {
        bail!("create policy \"{name}\": a built-in policy has this name: choose another name");
    }
    let (policy, script) = match args.over {
        Over::Packets => (
            include_str!("new/packets.c"),
            include_str!("new/packets.lua"),
        ),
        Over::Flows => (include_str!("new/flows.c"), include_str!("new/flows.lua")),
    };
    let file = |ending| match args.output.as_path() {
        here if here == Path::new(".") => PathBuf::from(format!("{name}.{ending}")),
        dir => dir.join(format!("{name}.{ending}")),
    };
    let (c, lua) = (file("c"), file("lua"));
    // Neither file is written if one of them exists.
    for path in [&c, &lua] {
        if path.exists() {
            return Err(exists(path));
        }
    }
    write(&c, &policy.replace("@NAME@", name))?;
    write(&lua, &script.replace("@NAME@", name))?;
    print(&c, &lua)
}

fn exists(path: &Path) -> anyhow::Error {
    anyhow::anyhow!(
        "write {}: the file exists: choose another name or another --output directory",
        path.display()
    )
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    let mut file = match file {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Err(exists(path)),
        Err(error) if error.kind() == ErrorKind::NotFound => bail!(
            "write {}: the directory does not exist: create it first",
            path.display()
        ),
        file => file.with_context(|| format!("write {}", path.display()))?,
    };
    file.write_all(text.as_bytes())
        .with_context(|| format!("write {}", path.display()))
}

fn print(c: &Path, lua: &Path) -> anyhow::Result<()> {
    let (c, lua) = (c.display(), lua.display());
    let check = format!("fairpath sched check {c}");
    let test = format!("fairpath sched test {c} {lua}");
    fairpath_cli::print(format_args!(
        "Created {c} and {lua}. Next steps:\n\
         \x20 {check:<50}  # compile and verify it\n\
         \x20 {test:<50}  # run its test script\n\
         \x20 fairpath sched run {c} --rate 100mbit --traffic 'bulk flows=4; voice'  # simulate a link\n"
    ))
}
