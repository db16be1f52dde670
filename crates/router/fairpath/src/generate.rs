//! `fairpath generate`: manual pages and completions, from the definition of the command line.
//!
//! Hidden, because it is for packaging. The definition is the only source of options, so generated
//! files cannot differ from the parser. `cargo xtask docs --man` joins the pages with the guide.

mod outline;

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap_complete::Shell;

pub use outline::of as outline;

use crate::completions;

/// The shells that have a directory for completions of packages on every distribution.
const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

/// Write manual pages or completions, as packages install them.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath generate man man1\n  \
    fairpath generate completions completions")]
pub struct Args {
    /// Kind of files
    #[arg(value_enum)]
    kind: Kind,
    /// Directory of the files; created if it does not exist
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Kind {
    /// A page for fairpath(1) and for every subcommand, fairpath-NAME(1)
    Man,
    /// fairpath.bash, _fairpath (zsh) and fairpath.fish
    Completions,
}

/// Runs `fairpath generate`. Existing files are replaced.
///
/// # Errors
/// The directory cannot be created or written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let dir = &args.dir;
    let written = fairpath_files::fill(dir, |new| match args.kind {
        Kind::Man => clap_mangen::generate_to(crate::definition(), new),
        Kind::Completions => write_completions(new),
    });
    written.with_context(|| format!("write to {}", dir.display()))
}

fn write_completions(dir: &Path) -> std::io::Result<()> {
    let mut command = completions::whole();
    for shell in SHELLS {
        clap_complete::generate_to(shell, &mut command, "fairpath", dir)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn generated(kind: Kind) -> (tempfile::TempDir, Vec<String>) {
        let dir = tempfile::tempdir().unwrap();
        let args = Args {
            kind,
            dir: dir.path().join("new"),
        };
        run(&args).unwrap();
        let mut names: Vec<String> = fs::read_dir(&args.dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        (dir, names)
    }

    #[test]
    fn every_listed_subcommand_has_a_manual_page() {
        let (dir, names) = generated(Kind::Man);
        let page = |name: &str| fs::read_to_string(dir.path().join("new").join(name)).unwrap();
        for listed in crate::definition()
            .get_subcommands()
            .filter(|c| !c.is_hide_set())
        {
            let name = format!("fairpath-{}.1", listed.get_name());
            assert!(names.contains(&name), "{name} is missing from {names:?}");
        }
        assert!(names.contains(&"fairpath.1".to_owned()));
        assert!(!names.contains(&"fairpath-generate.1".to_owned()));
        assert!(page("fairpath-rtt.1").contains("rate\\-limit"));
    }

    #[test]
    fn completions_have_the_options_of_subcommands() {
        let (dir, names) = generated(Kind::Completions);
        assert_eq!(names, ["_fairpath", "fairpath.bash", "fairpath.fish"]);
        for name in names {
            let text = fs::read_to_string(dir.path().join("new").join(&name)).unwrap();
            assert!(text.contains("rate-limit"), "{name}");
        }
    }
}
