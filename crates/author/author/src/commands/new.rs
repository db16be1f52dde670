//! `fairpath sched new`: create a policy and its test script, from a template or as a built-in policy.
//!
//! Files: `new/`, and the built-in policies with their scripts. Existing files are never overwritten.

mod shipped;

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use fairpath_core::sched::policies;
use fairpath_policy::is_name;
use fairpath_units::nearest;

/// Arguments of `fairpath sched new`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath sched new shortest && fairpath sched check shortest.c\n  \
    fairpath sched new shares --over flows --output policies\n  \
    fairpath sched new mine --like drr             begin with a built-in policy\n\n\
    Guide: docs/guide/sched-policies.md. Exit status: 0 success, 1 failure, 2 wrong usage.")]
pub struct Args {
    /// Name of the policy: at most 23 lower-case letters, digits, _ and -
    name: String,
    /// Select the elements that the policy ranks
    #[arg(long, value_enum, default_value_t = Over::Packets)]
    over: Over,
    /// Copy a built-in policy with its test script (`fairpath sched list` shows them)
    #[arg(long, value_name = "POLICY", conflicts_with = "over")]
    like: Option<String>,
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

/// The texts of the files.
struct Texts {
    policy: String,
    script: String,
    tree: Option<String>,
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
    let texts = texts(args)?;
    let file = |ending| match args.output.as_path() {
        here if here == Path::new(".") => PathBuf::from(format!("{name}.{ending}")),
        dir => dir.join(format!("{name}.{ending}")),
    };
    let (c, lua, toml) = (file("c"), file("lua"), file("toml"));
    let mut files = vec![(&c, texts.policy), (&lua, texts.script)];
    let tree = texts.tree.map(|tree| files.push((&toml, tree)));
    // No file is written if one of them exists.
    for (path, _) in &files {
        if path.exists() {
            return Err(exists(path));
        }
    }
    for (path, text) in &files {
        write(path, text)?;
    }
    print(&c, &lua, tree.map(|()| toml.as_path()))
}

fn texts(args: &Args) -> anyhow::Result<Texts> {
    let name = &args.name;
    let Some(like) = &args.like else {
        let (policy, script) = match args.over {
            Over::Packets => (
                include_str!("new/packets.c"),
                include_str!("new/packets.lua"),
            ),
            Over::Flows => (include_str!("new/flows.c"), include_str!("new/flows.lua")),
        };
        return Ok(Texts {
            policy: policy.replace("@NAME@", name),
            script: script.replace("@NAME@", name),
            tree: None,
        });
    };
    let Some(shipped) = shipped::find(like) else {
        let names = policies().iter().map(|policy| policy.name.as_str());
        let hint = match nearest(like, names) {
            Some(name) => format!("did you mean {name}?"),
            None => "list them with `fairpath sched list`".to_owned(),
        };
        bail!("create policy \"{name}\": no built-in policy has the name \"{like}\": {hint}");
    };
    Ok(Texts {
        policy: shipped.policy(name),
        script: shipped.script(name),
        tree: shipped.tree(name),
    })
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

fn print(c: &Path, lua: &Path, tree: Option<&Path>) -> anyhow::Result<()> {
    let (c, lua) = (c.display(), lua.display());
    let check = format!("fairpath sched check {c}");
    let (created, test) = match tree.map(Path::display) {
        None => (
            format!("{c} and {lua}"),
            format!("fairpath sched test {c} {lua}"),
        ),
        Some(tree) => (
            format!("{c}, {lua} and {tree}"),
            format!("fairpath sched test {tree} {lua} --policy-file {c}"),
        ),
    };
    fairpath_cli::print(format_args!(
        "Created {created}. Next steps:\n\
         \x20 {check:<50}  # compile and verify it\n\
         \x20 {test:<50}  # run its test script\n\
         \x20 fairpath sched run {c} --rate 100mbit --traffic 'bulk flows=4; voice'  # simulate a link\n"
    ))
}
