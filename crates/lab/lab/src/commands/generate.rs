//! `fairpath-lab generate`: the manual pages, from the definition of the command line.
//!
//! Hidden, since only packaging needs it.

use std::path::PathBuf;

use anyhow::Context;

/// Write the manual pages that packages install.
#[derive(clap::Args)]
pub struct Args {
    /// Files to write
    #[arg(value_enum)]
    what: What,
    /// Directory; created if it does not exist
    dir: PathBuf,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum What {
    /// A page for fairpath-lab(1) and for every visible subcommand
    Man,
}

/// Writes the pages of `command`. Existing files are replaced.
///
/// # Errors
/// The directory cannot be created or written.
pub fn run(command: clap::Command, args: &Args) -> anyhow::Result<()> {
    let dir = &args.dir;
    match args.what {
        What::Man => fairpath_files::fill(dir, |new| clap_mangen::generate_to(command, new)),
    }
    .with_context(|| format!("write into {}", dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Parser, Subcommand};

    #[derive(Parser)]
    #[command(name = "fairpath-lab", bin_name = "fairpath lab")]
    struct Cli {
        #[command(subcommand)]
        command: Command,
    }

    #[derive(Subcommand)]
    enum Command {
        /// Shown
        List,
        /// Not
        #[command(hide = true)]
        Generate(Args),
    }

    #[test]
    fn commands_that_are_shown_have_pages() {
        let dir = tempfile::tempdir().unwrap();
        let args = Args {
            what: What::Man,
            dir: dir.path().join("new"),
        };
        run(<Cli as clap::CommandFactory>::command(), &args).unwrap();
        let page = |name: &str| dir.path().join("new").join(name).exists();
        assert!(page("fairpath-lab.1") && page("fairpath-lab-list.1"));
        assert!(!page("fairpath-lab-generate.1"));
    }
}
