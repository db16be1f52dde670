//! `fairpath rules`: sets of rules in iptables syntax, read, explained, changed and loaded.
//!
//! ```text
//!   files.rs   rules and ipset files, by content    capture.rs   packets of a capture
//!   live/      rules at the hooks of the kernel
//!   one file for each subcommand
//! ```

mod apply;
mod capture;
mod check;
mod convert;
mod diff;
mod explain;
mod files;
mod import;
mod listing;
mod live;
mod path;
mod replace_chain;
mod set;
mod show;
mod stats;

pub use live::{ANSWERING, AnswerCounts, Answers, Figures, Found, PinArgs};

use std::process::ExitCode;

use clap::Subcommand;

/// Check, explain, change and load rules in iptables syntax.
///
/// Files are those of iptables-save, ip6tables-save, arptables-save, ebtables-save and ipset save,
/// recognised by their content. Only import and the commands about loaded rules need privileges. To list
/// loaded rules, membership in the group of the daemon is enough.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    iptables-save > rules.v4\n  \
    fairpath rules check rules.v4\n  \
    fairpath rules explain rules.v4 --src 192.0.2.7 --dport 22 --protocol tcp -i eth0 --ctstate NEW")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Check(check::Args),
    Show(show::Args),
    Explain(Box<explain::Args>),
    Stats(stats::Args),
    Profile(stats::ProfileArgs),
    Diff(diff::Args),
    Apply(apply::Args),
    ReplaceChain(replace_chain::Args),
    Convert(convert::Args),
    Import(import::Args),
    Load(live::LoadArgs),
    Shadow(live::ShadowArgs),
    Confirm(live::ConfirmArgs),
    Counters(live::CountersArgs),
    Set(set::Args),
    Log(live::LogArgs),
    Answer(live::AnswerArgs),
    Trace(live::TraceArgs),
    Follow(live::FollowArgs),
    Unload(live::UnloadArgs),
    Boot(live::BootArgs),
    #[command(hide = true)]
    WatchTables(live::WatchArgs),
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Text for people
    Text,
    /// JSON: one object, or one per line where the command says so
    Json,
}

/// Runs `fairpath rules`.
///
/// # Errors
/// Those of the subcommand.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Set(args) => return set::run(args),
        Command::Apply(args) => return apply::run(args),
        Command::Check(args) => check::run(args),
        Command::Show(args) => show::run(args),
        Command::Explain(args) => explain::run(args),
        Command::Stats(args) => stats::run(args),
        Command::Profile(args) => stats::profile(args),
        Command::Diff(args) => diff::run(args),
        Command::ReplaceChain(args) => replace_chain::run(args),
        Command::Convert(args) => convert::run(args),
        Command::Import(args) => import::run(args),
        Command::Load(args) => live::load(args),
        Command::Shadow(args) => live::shadow(args),
        Command::Confirm(args) => live::confirm(args),
        Command::Counters(args) => live::print_counters(args),
        Command::Log(args) => live::log(args),
        Command::Answer(args) => live::answer(args),
        Command::Trace(args) => live::trace(args),
        Command::Follow(args) => live::follow(args),
        Command::Unload(args) => live::unload(args),
        Command::Boot(args) => live::boot(args),
        Command::WatchTables(args) => live::watch(args),
    }?;
    Ok(ExitCode::SUCCESS)
}
