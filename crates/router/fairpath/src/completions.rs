//! `fairpath completions SHELL`: completions on standard output.

use clap_complete::{Generator, Shell};

use crate::{external, generate};

/// Print shell completions.
///
/// Packages install them. Without a package, write them where the shell looks for them.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
        fairpath completions bash > /etc/bash_completion.d/fairpath\n  \
        fairpath completions fish > ~/.config/fish/completions/fairpath.fish")]
pub struct Args {
    /// Shell
    #[arg(value_name = "SHELL", value_parser = clap::builder::PossibleValuesParser::new(["bash", "zsh", "fish"]))]
    shell: String,
}

/// Runs `fairpath completions`.
///
/// # Errors
/// Standard output cannot be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let shell = match args.shell.as_str() {
        "zsh" => Shell::Zsh,
        "fish" => Shell::Fish,
        _ => Shell::Bash,
    };
    let mut command = whole();
    command.set_bin_name("fairpath");
    command.build();
    let mut text = Vec::new();
    shell.generate(&command, &mut text);
    fairpath_cli::print(String::from_utf8_lossy(&text))
}

/// The command line with the options of the other binaries, as far as they print them.
pub fn whole() -> clap::Command {
    crate::definition().mut_subcommands(|listed| {
        let name = external::LISTED
            .into_iter()
            .find(|name| *name == listed.get_name());
        name.and_then(generate::outline).unwrap_or(listed)
    })
}
