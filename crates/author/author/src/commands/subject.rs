//! What a verb is about: a policy by name, a tree in a file, or the tree of an operator's classes.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use fairpath_class::{ClassSet, Drafts, MAX_FILE_BYTES, Uplinks};
use fairpath_core::sched::Policy;
use fairpath_sched::tree::{BadTree, Known, Tree, Way};
use fairpath_units::nearest;

/// The word that stands for the tree of the classes that `--classes` names.
const CLASSES: &str = "classes";

/// Files with classes, and which of their rates hold.
#[derive(Clone, Debug, clap::Args)]
pub struct ClassArgs {
    /// Files with classes, as `fairpath class check` reads them: packets of captures get classes,
    /// trees may name them, and SUBJECT may be "classes"
    #[arg(long, value_name = "FILE")]
    classes: Vec<PathBuf>,
    /// Which of the classes' rates hold: of what their hosts send, or receive
    #[arg(long, value_enum, default_value_t = Direction::Down, requires = "classes")]
    way: Direction,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Direction {
    Up,
    Down,
}

impl ClassArgs {
    /// The classes, if files are named.
    ///
    /// # Errors
    /// Files that cannot be read, or hold errors: `fairpath class check` shows all of them.
    pub fn read(&self) -> anyhow::Result<Option<ClassSet>> {
        if self.classes.is_empty() {
            return Ok(None);
        }
        let mut drafts = Drafts::new();
        for path in &self.classes {
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
            format!("read classes: {first}; `fairpath class check` shows everything that is wrong")
        })?;
        Ok(Some(set))
    }

    fn way(&self) -> Way {
        match self.way {
            Direction::Up => Way::Up,
            Direction::Down => Way::Down,
        }
    }
}

/// One byte more than allowed is enough to be refused.
fn content(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)?
        .take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut content)?;
    Ok(content)
}

/// Bytes of a tree's file at most.
const MAX_TREE_BYTES: u64 = 64 << 20;

/// The author's file that `subject` is, or that `--policy` names for a tree.
///
/// # Errors
/// Both at once.
pub fn own<'a>(subject: &'a str, policy: Option<&'a Path>) -> anyhow::Result<Option<&'a Path>> {
    match (has_ending(subject, "c"), policy) {
        (true, Some(policy)) => bail!(
            "use policy {policy:?}: {subject:?} is one already; leave --policy out, or name a tree that uses it"
        ),
        (true, None) => Ok(Some(Path::new(subject))),
        (false, policy) => Ok(policy),
    }
}

fn has_ending(subject: &str, ending: &str) -> bool {
    let extension = Path::new(subject).extension();
    extension.is_some_and(|extension| extension.eq_ignore_ascii_case(ending))
}

/// The tree that `subject` means, with `assignments` made (`quantum=300B`), of these policies: an
/// author's, if there is one, is the first.
///
/// # Errors
/// No such policy or file, a tree with errors (each is told on standard error), a bad assignment.
pub fn load(
    subject: &str,
    policies: &[Policy],
    classes: Option<&ClassSet>,
    args: &ClassArgs,
    assignments: &[String],
) -> anyhow::Result<Tree> {
    let mut tree = tree(subject, policies, classes, args)?;
    for warning in &tree.warnings {
        eprintln!("{warning}");
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
    let told = |bad: BadTree| {
        eprintln!("{bad}");
        anyhow::anyhow!("build the tree of {subject:?}: it has errors, which stand above")
    };
    if subject == CLASSES {
        let set =
            classes.context("build the tree of classes: name their files with --classes FILE")?;
        return Tree::of_classes(set, args.way(), policies).map_err(told);
    }
    if has_ending(subject, "toml") {
        let text =
            text(Path::new(subject)).with_context(|| format!("read the tree {subject:?}"))?;
        return Tree::read(subject, &text, known).map_err(told);
    }
    let policy = match policies.first() {
        Some(own) if has_ending(subject, "c") => own,
        _ => find(subject, policies)?,
    };
    Tree::of_policy(policy, known).map_err(told)
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
            bail!("it is no text in UTF-8; is it a tree's file?")
        }
        read => read?,
    };
    if text.len() as u64 > MAX_TREE_BYTES {
        bail!("the file is larger than {MAX_TREE_BYTES} bytes, which no tree needs");
    }
    Ok(text)
}

/// The policy called `name`.
///
/// # Errors
/// There is none; the nearest is named.
pub fn find<'a>(name: &str, policies: &'a [Policy]) -> anyhow::Result<&'a Policy> {
    let found = policies.iter().find(|policy| policy.name == name);
    found.with_context(|| {
        let near = nearest(name, policies.iter().map(|policy| policy.name.as_str()));
        let near = near.map_or_else(String::new, |near| format!("did you mean \"{near}\"? "));
        format!("find policy {name:?}: there is none; {near}`fairpath sched list` has their names; a tree's file ends in .toml, an author's policy in .c")
    })
}
