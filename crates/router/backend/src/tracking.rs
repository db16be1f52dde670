//! Connection tracking, kept on for rules that read connections.
//!
//! The kernel tracks connections of a family in a network namespace while a rule of netfilter needs it. A
//! table of nftables with one rule does, without a hook: no packet meets it.

use std::io::{self, ErrorKind};

use anyhow::Context;

use crate::nfqueue::diversion::output;

/// Connections of IPv4, and of IPv6.
pub type Tracked = [bool; 2];

/// Their tables of nftables.
pub const TRACKING_TABLES: [&str; 2] = ["ip fairpath_rules", "ip6 fairpath_rules"];

/// Keeps connection tracking on in this network namespace for the wanted families, and those that are `there`.
/// Returns all of these.
///
/// # Errors
/// The message of nft.
pub fn keep_tracking(there: Tracked, wanted: Tracked) -> anyhow::Result<Tracked> {
    let text = |table: &str| {
        format!(
            "table {table} {{\n  comment \"keeps connection tracking on for fairpath rules\"\n  chain tracking {{\n    ct state new\n  }}\n}}\n"
        )
    };
    change(|family| wanted[family] && !there[family], text)
        .context("keep connection tracking on with nft (package nftables)")?;
    Ok([0, 1].map(|family| wanted[family] || there[family]))
}

/// The tables of [`keep_tracking`] that are there. Without nft there are none, since nft makes them.
///
/// # Errors
/// The message of nft.
pub fn tracked() -> anyhow::Result<Tracked> {
    let is_missing = |error: &anyhow::Error| {
        let cause = error.root_cause().downcast_ref::<io::Error>();
        cause.is_some_and(|cause| cause.kind() == ErrorKind::NotFound)
    };
    match output("nft", &["list", "tables"], "") {
        Ok(tables) => Ok(TRACKING_TABLES.map(|table| {
            let line = format!("table {table}");
            tables.lines().any(|found| found.trim() == line)
        })),
        Err(error) if is_missing(&error) => Ok([false; 2]),
        Err(error) => Err(error).context("list the tables of nftables"),
    }
}

/// Removes what [`keep_tracking`] made, of the families that are `there` and not needed.
///
/// # Errors
/// The message of nft.
pub fn end_tracking(there: Tracked, needed: Tracked) -> anyhow::Result<()> {
    let text = |table: &str| format!("delete table {table}\n");
    change(|family| there[family] && !needed[family], text)
        .context("end connection tracking for rules")
}

/// Gives nft the text of each family that `is_meant`, if there is one.
fn change(is_meant: impl Fn(usize) -> bool, text: impl Fn(&str) -> String) -> anyhow::Result<()> {
    let tables = TRACKING_TABLES.into_iter().enumerate();
    let meant = tables.filter(|(family, _)| is_meant(*family));
    let texts: String = meant.map(|(_, table)| text(table)).collect();
    if texts.is_empty() {
        return Ok(());
    }
    output("nft", &["-f", "-"], &texts).map(drop)
}
