//! Interfaces at which rules of arptables run: those of the network namespace with Ethernet addresses.

use anyhow::{Context, bail};
use fairpath_bpf::{HookRules, Pins};
use fairpath_netlink::{ArpType, Link, Links};
use fairpath_rules::Family;
use fairpath_units::IfIndex;

use super::loaded::Loaded;

/// Refuses rules that are not evaluated.
///
/// # Errors
/// They are of ebtables, or of arptables for the shadow.
pub fn refuse(family: Family, shadow: bool) -> anyhow::Result<()> {
    match family {
        Family::Bridge => bail!(
            "rules of ebtables have no place at these hooks yet: load them with ebtables-restore"
        ),
        Family::Arp if shadow => {
            bail!("rules of arptables cannot be tried in the shadow: load them without --shadow")
        }
        _ => Ok(()),
    }
}

/// Interfaces with their names.
#[derive(Default)]
pub struct Interfaces(Vec<Link>);

impl Interfaces {
    /// All of this network namespace.
    ///
    /// # Errors
    /// They cannot be listed.
    pub fn of_namespace() -> anyhow::Result<Interfaces> {
        links().map(Interfaces)
    }

    /// For the programs.
    pub fn named(&self) -> Vec<(IfIndex, &str)> {
        let links = self.0.iter();
        links.map(|link| (link.ifindex, &link.name[..])).collect()
    }

    /// Their indexes.
    pub fn indexes(&self) -> Vec<IfIndex> {
        self.0.iter().map(|link| link.ifindex).collect()
    }
}

/// True if the programs know the addresses of the interface.
fn is_evaluated(link: &Link) -> bool {
    matches!(link.arp_type, ArpType::Ethernet | ArpType::Loopback)
}

fn links() -> anyhow::Result<Vec<Link>> {
    Links::dump().context("list the interfaces of this network namespace")
}

/// The interfaces at which rules run; none if there are no rules of arptables.
///
/// # Errors
/// They cannot be listed.
pub fn interfaces(loaded: &Loaded) -> anyhow::Result<Interfaces> {
    if loaded.ruleset(Family::Arp as usize).is_none() {
        return Ok(Interfaces::default());
    }
    all()
}

/// The interfaces at which rules of arptables can run.
///
/// # Errors
/// They cannot be listed.
pub fn all() -> anyhow::Result<Interfaces> {
    let mut links = links()?;
    links.retain(is_evaluated);
    Ok(Interfaces(links))
}

/// Removes the programs from interfaces that the rules do not need, and those that were removed.
///
/// # Errors
/// The pins cannot be changed.
pub fn keep(pins: &Pins, loaded: &Loaded) -> anyhow::Result<()> {
    let present = interfaces(loaded)?.indexes();
    Ok(HookRules::keep_arp(pins, &present)?)
}

/// Interfaces of the loaded rules of arptables, by name.
pub struct Coverage {
    /// They have the programs.
    pub with: Vec<String>,
    /// They have none, although they use ARP.
    pub without: Vec<String>,
}

impl Coverage {
    /// `None`: there are no rules of arptables.
    ///
    /// # Errors
    /// The interfaces or pins cannot be listed.
    pub fn of(pins: &Pins, loaded: &Loaded) -> anyhow::Result<Option<Coverage>> {
        if loaded.ruleset(Family::Arp as usize).is_none() {
            return Ok(None);
        }
        let have = HookRules::arp_interfaces(pins)?;
        let (with, mut without): (Vec<Link>, Vec<Link>) = links()?
            .into_iter()
            .partition(|link| have.contains(&link.ifindex));
        without.retain(|link| link.arp);
        let names = |links: Vec<Link>| {
            let mut names: Vec<String> = links.into_iter().map(|link| link.name).collect();
            names.sort_unstable();
            names
        };
        Ok(Some(Coverage {
            with: names(with),
            without: names(without),
        }))
    }

    /// The names of interfaces without the programs, as a line.
    pub fn line(&self) -> Option<String> {
        let names = fairpath_units::text::line(&self.without.join(", ")).into_owned();
        (!self.without.is_empty()).then(|| {
            format!(
                "interfaces without rules of arptables: {names}: `fairpath rules follow --once` puts them to new ones"
            )
        })
    }
}
