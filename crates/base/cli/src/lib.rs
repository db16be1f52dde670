//! The command line that all binaries share.
//!
//! ```text
//! words --> parse: clap, replaced names --> arguments --> command --> report: one line, exit status
//! ```
//!
//! Exit status 2 is wrong usage, 1 is any other failure. Every error begins with
//! `fairpath: error: `. Pure except for standard streams and `/proc/self/status`.

mod capability;
mod failure;
mod global;
mod output;
mod parse;
mod progress;
mod replaced;

pub use capability::{Capability, NeedsPrivilege, require};
pub use failure::{WrongUsage, line, note, print_error, print_stderr, report, wrong_usage};
pub use global::Global;
pub use output::{
    color_stdout, print, print_bytes, print_colored, print_to_reader, reader_has_ended,
};
pub use parse::{FAILURE, Refusal, WRONG_USAGE, command, parse, parse_from};
pub use progress::VirtualProgress;
pub use replaced::{REPLACED, Replaced, replacement};

/// Version of the package, commit and version of libbpf, as `--version` prints them.
pub const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (commit ",
    env!("FAIRPATH_COMMIT"),
    ", libbpf ",
    env!("FAIRPATH_LIBBPF"),
    ")"
);

#[cfg(test)]
mod tests {
    use super::VERSION;

    #[test]
    fn version_names_commit_and_libbpf() {
        assert!(VERSION.starts_with(env!("CARGO_PKG_VERSION")), "{VERSION}");
        assert!(VERSION.contains("commit "), "{VERSION}");
        assert!(VERSION.contains("libbpf 1."), "{VERSION}");
    }
}
