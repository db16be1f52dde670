//! Loaded rules for users who are not root: the daemon lists them for the group of its control socket.
//!
//! The arena has the packets of events and the seeds of tables, so its pin is for root only.

use anyhow::bail;
use fairpath_history::loaded_rules::LoadedRules;
use fairpath_history::snapshot::{Answer, DEFAULT_SOCKET, Request};
use fairpath_rules::{Family, Ruleset};
use fairpath_top::SocketSource;
use nix::unistd::geteuid;

use super::loaded::Loaded;
use super::{HOOK_FAMILIES, PinArgs};

/// True if this user cannot open the pins.
pub fn is_needed() -> bool {
    !geteuid().is_root()
}

/// The loaded rules of a family with their counters. `None`: iptables has the table.
///
/// # Errors
/// As [`request`].
pub fn listed(place: &PinArgs, family: Family, table: &str) -> anyhow::Result<Option<Ruleset>> {
    let (loaded, _) = request(place, None)?;
    if loaded.options().leaves(family, table) {
        return Ok(None);
    }
    let ruleset = loaded.ruleset(family as usize).cloned();
    Ok(Some(ruleset.unwrap_or_else(|| Ruleset::new(family))))
}

/// The loaded rules with their counters, of all families or the wanted one, and their state.
///
/// # Errors
/// There is no daemon, this user has no access, or no rules are loaded.
pub fn request(place: &PinArgs, wanted: Option<Family>) -> anyhow::Result<(Loaded, LoadedRules)> {
    let socket = match &place.pins {
        None => DEFAULT_SOCKET.into(),
        Some(pins) => pins.with_file_name("control.sock"),
    };
    let Answer::Rules { text, state } = SocketSource::connect(socket)?.query(&Request::Rules)?
    else {
        bail!(
            "list loaded rules: unexpected answer of the daemon: check that it has the version of this command"
        );
    };
    let bytes: Option<Vec<u8>> = text.chars().map(|c| u8::try_from(c).ok()).collect();
    let Some(bytes) = bytes else {
        bail!("list loaded rules: the answer of the daemon is corrupt: restart it");
    };
    let mut loaded = Loaded::read(&bytes)?;
    for family in 0..HOOK_FAMILIES {
        if wanted.is_some_and(|wanted| wanted as usize != family) {
            loaded.forget(family);
        }
    }
    Ok((loaded, *state))
}
