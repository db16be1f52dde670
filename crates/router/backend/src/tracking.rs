//! Connection tracking, kept on for rules that read connections.
//!
//! The kernel tracks connections of a network namespace while a rule of netfilter needs it. A table
//! of nftables with one rule does, without a hook: no packet meets it.

use std::io::{self, ErrorKind};

use anyhow::Context;

use crate::nfqueue::diversion::output;

const TABLE: [&str; 3] = ["table", "inet", "fairpath_rules"];

/// Keeps connection tracking on in this network namespace.
///
/// # Errors
/// The message of nft.
pub fn keep_tracking() -> anyhow::Result<()> {
    let [table, family, name] = TABLE;
    let text = format!(
        "{table} {family} {name} {{\n  comment \"keeps connection tracking on for fairpath rules\"\n  chain tracking {{\n    ct state new\n  }}\n}}\n"
    );
    if is_tracking()? {
        return Ok(());
    }
    output("nft", &["-f", "-"], &text)
        .map(drop)
        .context("keep connection tracking on with nft (package nftables)")
}

/// True if the table of [`keep_tracking`] is there. Without nft it is not, since nft makes it.
///
/// # Errors
/// The message of nft.
pub fn is_tracking() -> anyhow::Result<bool> {
    let is_missing = |error: &anyhow::Error| {
        let cause = error.root_cause().downcast_ref::<io::Error>();
        cause.is_some_and(|cause| cause.kind() == ErrorKind::NotFound)
    };
    match output("nft", &["list", "tables", "inet"], "") {
        Ok(tables) => Ok(tables.lines().any(|line| line.trim() == TABLE.join(" "))),
        Err(error) if is_missing(&error) => Ok(false),
        Err(error) => Err(error).context("list the tables of nftables"),
    }
}

/// Removes what [`keep_tracking`] made.
///
/// # Errors
/// The message of nft.
pub fn end_tracking() -> anyhow::Result<()> {
    if !is_tracking()? {
        return Ok(());
    }
    output("nft", &[&["delete"], &TABLE[..]].concat(), "")
        .map(drop)
        .context("end connection tracking for rules")
}
