//! `fairpath rules log`: packets that loaded rules logged or rejected, as they come.

use fairpath_bpf::{Event, Occurrence};
use fairpath_rules::spec::Kind;
use fairpath_rules::{Group, Hook, Logged, RuleAt, Ruleset, log_level, log_line, rule_string};
use fairpath_units::text::line;
use serde_json::json;

use super::super::Format;
use super::PinArgs;
use super::reader::{Next, Reader, wall};
use crate::run::Signals;

/// Print the packets that loaded rules log, until it is interrupted.
///
/// A line is that of the kernel for LOG, with the prefix of the rule. Each reader gets all packets from
/// now on. If packets come faster than they are read, the lost ones are counted.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath rules log\n  \
    fairpath rules log --rejects --format json\n  \
    fairpath rules log --journal")]
pub struct LogArgs {
    /// Print rejected packets, too
    #[arg(long)]
    rejects: bool,
    /// Begin each line with its level, as journald reads it
    #[arg(long, conflicts_with = "format")]
    journal: bool,
    /// End after this number of packets [default: no end]
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    #[command(flatten)]
    place: PinArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Of a rule that is not known any more.
pub(super) const NO_OPTIONS: Group = Group {
    kind: Kind::OpaqueTarget,
    items: &[],
};

/// Runs `fairpath rules log`.
///
/// # Errors
/// No rules are loaded.
pub fn run(args: &LogArgs) -> anyhow::Result<()> {
    let mut reader = Reader::new(&args.place)?;
    let signals = Signals::take()?;
    let mut left = args.count.unwrap_or(u64::MAX);
    while !signals.stop() && left > 0 {
        let event = match reader.next(&signals)? {
            Next::Event(event) => event,
            Next::None => continue,
            Next::Unloaded => break,
        };
        let wanted = match event.occurrence {
            Occurrence::Logged { .. } => true,
            Occurrence::Rejected { .. } => args.rejects,
            Occurrence::Traced(_) => false,
        };
        if !wanted {
            continue;
        }
        if !print(args, &event, reader.rule(&event))? {
            // The reader is gone.
            return Ok(());
        }
        left -= 1;
    }
    reader.report_lost();
    Ok(())
}

/// False: the reader has closed the pipe.
fn print(args: &LogArgs, event: &Event, rule: Option<(&Ruleset, RuleAt)>) -> anyhow::Result<bool> {
    let found = rule.map(|(ruleset, at)| {
        let table = &ruleset.tables[at.table];
        let chain = table.get(at.chain);
        (ruleset.family, table, chain, &chain.rules[at.rule])
    });
    let options = found.map_or(NO_OPTIONS, |(.., rule)| rule.target_options());
    let packet = Logged {
        input: &event.input,
        output: &event.output,
        link: event.link,
        is_ethernet: event.is_ethernet,
        mark: event.mark,
        bytes: &event.bytes,
        length: event.length,
    };
    let text = log_line(options, &packet);
    let rejected = matches!(event.occurrence, Occurrence::Rejected { .. });
    let time = wall(event.time);
    let out = match args.format {
        Format::Json => {
            let rule = found.map(|(family, table, chain, rule)| {
                json!({"table": table.name, "chain": chain.name(),
                    "rule": rule_string(family, table, chain, rule)})
            });
            json!({"time": time.to_string(), "event": if rejected { "reject" } else { "log" },
                "level": log_level(options), "family": if event.is_ipv4 { "IPv4" } else { "IPv6" },
                "hook": Hook::ALL[event.hook].chain(), "length": event.length, "line": text.trim_end(),
                "rule": rule})
            .to_string()
        }
        Format::Text => {
            let text = line(text.trim_end());
            let text = match rejected {
                true => format!("rejected: {text}"),
                false => text.into_owned(),
            };
            match args.journal {
                true => format!("<{}>{text}", log_level(options)),
                false => format!("{time:.3} {text}"),
            }
        }
    };
    fairpath_cli::print_to_reader(format!("{out}\n"))
}
