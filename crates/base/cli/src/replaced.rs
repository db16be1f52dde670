//! Replaced option names. An old name is refused with the new one, never accepted silently.

/// An option that has another name now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// Subcommands after `fairpath`, for example `shape status`.
    pub command: &'static str,
    /// The old option, with its value where only that value is replaced.
    pub old: &'static str,
    /// The new option.
    pub new: &'static str,
}

const fn row(command: &'static str, old: &'static str, new: &'static str) -> Replaced {
    Replaced { command, old, new }
}

/// All replaced names.
pub const REPLACED: &[Replaced] = &[
    row("run", "--log", "--log-level"),
    row("rtt", "--top", "--limit"),
    row("rtt", "--flows", "--max-flows"),
    row("rtt", "--except", "--exclude"),
    row("top", "--except", "--exclude"),
    row("shape status", "--classes", "--limit"),
    row("shape start", "--classes", "--class-file"),
    row("shape start", "--packets", "--max-packets"),
    row("shape start", "--queue", "--queue-num"),
    row("impair", "--packets", "--max-packets"),
    row("impair", "--queue", "--queue-num"),
    row("impair", "--limit", "--queue-limit"),
    row("impair", "--for", "--duration"),
    row(
        "impair",
        "--json",
        "--format json, with --write FILE for a file",
    ),
    row("impair", "--check", "--self-test"),
    row("impair", "--no-check", "--no-self-test"),
    row("impair", "--out", "--egress"),
    row("impair", "--in", "--ingress"),
    row("sched run", "--for", "--duration"),
    row("sched run", "--pcap", "--read"),
    row("sched run", "--classes", "--class-file"),
    row("sched run", "--way", "--direction"),
    row("sched run", "--home", "--runtime"),
    row("sched run", "--policy", "--policy-file"),
    row("sched run", "--log", "--record"),
    row("sched run", "--format table", "--format text"),
    row("sched new", "--dir", "--output"),
    row("sched test", "--classes", "--class-file"),
    row("sched test", "--way", "--direction"),
    row("sched test", "--home", "--runtime"),
    row("sched test", "--policy", "--policy-file"),
    row("sched test", "--log", "--record"),
    row("sched check", "--home", "--runtime"),
    row("sched replay", "--home", "--runtime"),
    row("sched replay", "--policy", "--policy-file"),
    row("lab run", "--out", "--output"),
    row("lab run", "--only", "--select"),
    row("lab compare", "--json", "--format json"),
    row("demo", "--out", "--output"),
    row("demo", "--keep", "--output"),
];

/// The new name of option `old` of `command`.
///
/// ```
/// assert_eq!(fairpath_cli::replacement("impair", "--for"), Some("--duration"));
/// assert_eq!(fairpath_cli::replacement("rtt", "--for"), None);
/// ```
pub fn replacement(command: &str, old: &str) -> Option<&'static str> {
    REPLACED
        .iter()
        .find(|row| row.command == command && row.old == old)
        .map(|row| row.new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_replaced_name_is_listed_once() {
        for (at, row) in REPLACED.iter().enumerate() {
            assert_eq!(replacement(row.command, row.old), Some(row.new));
            assert!(row.old.starts_with("--") && row.new.starts_with("--"));
            let repeated = REPLACED[at + 1..]
                .iter()
                .any(|other| (other.command, other.old) == (row.command, row.old));
            assert!(!repeated, "{row:?}");
        }
    }
}
