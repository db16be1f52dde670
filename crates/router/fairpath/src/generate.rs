//! `fairpath generate`: manual pages and completions, from the definition of the command line.
//!
//! Hidden, since it is for packaging: the one source of options is what this binary parses, so what
//! is generated cannot differ from what it accepts, and no installed file is needed. Prose comes
//! from the guide, which `cargo xtask docs --man` joins with these pages.

mod outline;

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use clap_complete::Shell;

use crate::external;

/// The shells that have a directory for other packages' completions on every distribution.
const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

#[derive(clap::Args)]
pub struct Args {
    /// What to write
    #[arg(value_enum)]
    what: What,
    /// Where to; created if it does not exist
    dir: PathBuf,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum What {
    /// A page for fairpath(1) and for every subcommand, fairpath-NAME(1)
    Man,
    /// fairpath.bash, _fairpath (zsh) and fairpath.fish
    Completions,
}

/// Writes what `args` ask for about `command`; files that exist are replaced.
pub fn run(command: clap::Command, args: &Args) -> anyhow::Result<()> {
    let dir = &args.dir;
    fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
    let written = match args.what {
        What::Man => clap_mangen::generate_to(command, dir),
        What::Completions => completions(command, args),
    };
    written.with_context(|| format!("write into {}", dir.display()))
}

fn completions(command: clap::Command, args: &Args) -> std::io::Result<()> {
    let mut command = command.mut_subcommands(|shown| match shown.get_name() {
        external::SCHED => outline::of(external::SCHED).unwrap_or(shown),
        _ => shown,
    });
    for shell in SHELLS {
        clap_complete::generate_to(shell, &mut command, "fairpath", &args.dir)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn generated(what: What) -> (tempfile::TempDir, Vec<String>) {
        let dir = tempfile::tempdir().unwrap();
        let args = Args {
            what,
            dir: dir.path().join("new"),
        };
        run(crate::Cli::command(), &args).unwrap();
        let mut names: Vec<String> = fs::read_dir(&args.dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        (dir, names)
    }

    #[test]
    fn every_subcommand_that_is_shown_has_a_page_with_its_options() {
        let (dir, names) = generated(What::Man);
        let page = |name: &str| fs::read_to_string(dir.path().join("new").join(name)).unwrap();
        for shown in crate::Cli::command()
            .get_subcommands()
            .filter(|c| !c.is_hide_set())
        {
            let name = format!("fairpath-{}.1", shown.get_name());
            assert!(names.contains(&name), "{name} is not among {names:?}");
        }
        assert!(names.contains(&"fairpath.1".to_owned()));
        assert!(!names.contains(&"fairpath-generate.1".to_owned()));
        assert!(page("fairpath-rtt.1").contains("rate\\-limit"));
    }

    #[test]
    fn completions_know_the_options_of_subcommands() {
        let (dir, names) = generated(What::Completions);
        assert_eq!(names, ["_fairpath", "fairpath.bash", "fairpath.fish"]);
        for name in names {
            let text = fs::read_to_string(dir.path().join("new").join(&name)).unwrap();
            assert!(text.contains("rate-limit"), "{name}");
        }
    }
}
