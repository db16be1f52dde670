//! Options of every command.

use clap::ColorChoice;

/// Options that every command of every binary has; flatten it into the top-level arguments.
#[derive(Clone, Copy, Debug, clap::Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// Print more messages, also those of libbpf
    #[arg(short, long, global = true, conflicts_with = "quiet")]
    pub verbose: bool,
    /// Print fewer messages: results, warnings and errors only
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Use colors; auto is for a terminal without NO_COLOR
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        value_enum,
        default_value_t = ColorChoice::Auto
    )]
    pub color: ColorChoice,
}
