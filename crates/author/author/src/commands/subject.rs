//! The subject of a command: a policy by name, a tree in a file, or the tree of the configured classes.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use fairpath_class::{ClassSet, Drafts, MAX_FILE_BYTES, Uplinks};
use fairpath_core::sched::Policy;
use fairpath_sched::tree::{BadTree, Direction, Known, Tree};
use fairpath_units::nearest;

/// The subject for the tree of the classes in `--class-file`.
const CLASSES: &str = "classes";

/// Class files and the direction whose rates apply.
#[derive(Clone, Debug, clap::Args)]
pub struct ClassArgs {
    /// Read classes (TOML or CSV) for packets, trees and the subject "classes"; repeatable
    #[arg(long, value_name = "FILE")]
    class_file: Vec<PathBuf>,
    /// Select the direction whose class rates apply
    #[arg(long, value_enum, default_value_t = DirectionArg::Down, requires = "class_file")]
    direction: DirectionArg,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum DirectionArg {
    /// Packets that the hosts send
    Up,
    /// Packets that the hosts receive
    Down,
}

impl ClassArgs {
    /// The classes, or nothing without class files.
    ///
    /// # Errors
    /// A file cannot be read or is invalid. `fairpath class check` lists all problems.
    pub fn read(&self) -> anyhow::Result<Option<ClassSet>> {
        if self.class_file.is_empty() {
            return Ok(None);
        }
        let mut drafts = Drafts::new();
        for path in &self.class_file {
            let content = content(path).with_context(|| format!("read classes {path:?}"))?;
            drafts.read_file(&path.display().to_string(), &content);
        }
        let outcome = ClassSet::build(drafts, Uplinks::Unknown);
        let first = outcome
            .report
            .problems
            .iter()
            .map(ToString::to_string)
            .next();
        let set = outcome.set.with_context(|| {
            let first = first.unwrap_or_default();
            format!("read classes: {first}: list all problems with `fairpath class check`")
        })?;
        Ok(Some(set))
    }

    fn direction(&self) -> Direction {
        match self.direction {
            DirectionArg::Up => Direction::Up,
            DirectionArg::Down => Direction::Down,
        }
    }
}

/// Reads one byte more than allowed, so that a file that is too long is refused.
fn content(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)?
        .take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut content)?;
    Ok(content)
}

/// Maximum size of a tree file, bytes.
const MAX_TREE_BYTES: u64 = 64 << 20;

/// The custom policy: either `subject` itself, or the file that `--policy-file` names for a tree.
///
/// # Errors
/// Both are given.
pub fn own<'a>(subject: &'a str, policy: Option<&'a Path>) -> anyhow::Result<Option<&'a Path>> {
    match (has_ending(subject, "c"), policy) {
        (true, Some(policy)) => bail!(
            "use policy {policy:?}: {subject:?} is also a policy: omit --policy-file, or name a tree that uses it"
        ),
        (true, None) => Ok(Some(Path::new(subject))),
        (false, policy) => Ok(policy),
    }
}

fn has_ending(subject: &str, ending: &str) -> bool {
    let extension = Path::new(subject).extension();
    extension.is_some_and(|extension| extension.eq_ignore_ascii_case(ending))
}

/// Loads the tree of `subject` and applies `assignments` such as `quantum=300B`. A custom policy is
/// the first of `policies`.
///
/// # Errors
/// The policy or file does not exist, the tree is invalid (each problem is printed to standard
/// error), or an assignment is invalid.
pub fn load(
    subject: &str,
    policies: &[Policy],
    classes: Option<&ClassSet>,
    args: &ClassArgs,
    assignments: &[String],
) -> anyhow::Result<Tree> {
    let mut tree = tree(subject, policies, classes, args)?;
    for warning in &tree.warnings {
        fairpath_cli::print_stderr(format_args!("{warning}\n"));
    }
    for assignment in assignments {
        tree.set(assignment)?;
    }
    Ok(tree)
}

fn tree(
    subject: &str,
    policies: &[Policy],
    classes: Option<&ClassSet>,
    args: &ClassArgs,
) -> anyhow::Result<Tree> {
    let names: Vec<String> = classes.map_or_else(Vec::new, names_of);
    let known = Known {
        policies,
        classes: &names,
    };
    let refused = |bad: BadTree| {
        fairpath_cli::print_stderr(format_args!("{bad}\n"));
        anyhow::anyhow!("build the tree of {subject:?}: the errors are listed above")
    };
    if subject == CLASSES {
        let set = classes
            .context("build the tree of classes: name their files with --class-file FILE")?;
        return Tree::of_classes(set, args.direction(), policies).map_err(refused);
    }
    if has_ending(subject, "toml") {
        let text =
            text(Path::new(subject)).with_context(|| format!("read the tree {subject:?}"))?;
        return Tree::read(subject, &text, known).map_err(refused);
    }
    let policy = match policies.first() {
        Some(own) if has_ending(subject, "c") => own,
        _ => find(subject, policies)?,
    };
    Tree::of_policy(policy, known).map_err(refused)
}

fn names_of(set: &ClassSet) -> Vec<String> {
    set.classes()
        .iter()
        .map(|class| class.name.clone())
        .collect()
}

fn text(path: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let file = File::open(path)?.take(MAX_TREE_BYTES + 1);
    match { file }.read_to_string(&mut text) {
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            bail!("the file is not UTF-8 text: name a tree in TOML")
        }
        read => read?,
    };
    if text.len() as u64 > MAX_TREE_BYTES {
        bail!("the file is too large: the maximum is {MAX_TREE_BYTES} bytes");
    }
    Ok(text)
}

/// The policy with this name.
///
/// # Errors
/// It does not exist. The message suggests the nearest name.
pub fn find<'a>(name: &str, policies: &'a [Policy]) -> anyhow::Result<&'a Policy> {
    let found = policies.iter().find(|policy| policy.name == name);
    found.with_context(|| {
        let near = nearest(name, policies.iter().map(|policy| policy.name.as_str()));
        let near = near.map_or_else(String::new, |near| format!("did you mean \"{near}\"? "));
        format!("find policy {name:?}: it does not exist: {near}`fairpath sched list` prints all names, a tree is a .toml file, and a custom policy is a .c file")
    })
}
