//! Interfaces at which rules of arptables and ebtables run: those of the network namespace with Ethernet
//! addresses.

use anyhow::{Context, bail};
use fairpath_bpf::{FrameFamily, HookError, HookRules, Pins};
use fairpath_netlink::{ArpType, Link, Links};
use fairpath_rules::Family;
use fairpath_units::IfIndex;

use super::loaded::Loaded;

/// Switches of the kernel that give bridged packets to iptables, and its tools.
const TO_IPTABLES: [(&str, &str); 3] = [
    ("bridge-nf-call-iptables", "iptables"),
    ("bridge-nf-call-ip6tables", "ip6tables"),
    ("bridge-nf-call-arptables", "arptables"),
];

/// Refuses rules that are not evaluated.
///
/// # Errors
/// They are of arptables or ebtables for the shadow.
pub fn refuse(family: Family, shadow: bool) -> anyhow::Result<()> {
    if shadow && !family.is_ip() {
        let tool = family.tool();
        bail!("rules of {tool} cannot be tried in the shadow: load them without --shadow");
    }
    Ok(())
}

/// The family as rules have it.
fn family_of(family: FrameFamily) -> Family {
    match family {
        FrameFamily::Arp => Family::Arp,
        FrameFamily::Bridge => Family::Bridge,
    }
}

/// Its tool.
pub fn tool(family: FrameFamily) -> &'static str {
    family_of(family).tool()
}

/// True if there are rules of the family among these, by number.
pub fn are_in<T>(family: FrameFamily, rulesets: &[Option<T>]) -> bool {
    rulesets[family_of(family) as usize].is_some()
}

fn has(family: FrameFamily, loaded: &Loaded) -> bool {
    loaded.ruleset(family_of(family) as usize).is_some()
}

/// A sentence about bridged packets that other rules see first. `None`: there are none, or no rules of
/// ebtables.
pub fn note(loaded: &Loaded) -> Option<String> {
    if !has(FrameFamily::Bridge, loaded) {
        return None;
    }
    let is_on = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/net/bridge/{name}"));
        text.is_ok_and(|text| text.trim() == "1")
    };
    let on: Vec<_> = TO_IPTABLES.iter().filter(|(name, _)| is_on(name)).collect();
    let tools: Vec<&str> = on.iter().map(|(_, tool)| *tool).collect();
    let (name, _) = on.first()?;
    Some(format!(
        "bridged packets meet {} before these rules of ebtables, not after them (net.bridge.{name} = 1)",
        tools.join(", ")
    ))
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

/// The interfaces at which rules of a family run; none if there are no such rules.
///
/// # Errors
/// They cannot be listed.
pub fn interfaces(family: FrameFamily, loaded: &Loaded) -> anyhow::Result<Interfaces> {
    match has(family, loaded) {
        true => all(),
        false => Ok(Interfaces::default()),
    }
}

/// The interfaces at which such rules can run.
///
/// # Errors
/// They cannot be listed.
pub fn all() -> anyhow::Result<Interfaces> {
    let mut links = links()?;
    links.retain(is_evaluated);
    Ok(Interfaces(links))
}

/// The interfaces that have the programs, by family.
#[derive(Default)]
pub struct Attached([Vec<IfIndex>; FrameFamily::ALL.len()]);

impl Attached {
    /// # Errors
    /// The pins cannot be read.
    pub fn of(pins: &Pins) -> Result<Attached, HookError> {
        let mut all = Attached::default();
        for (family, found) in FrameFamily::ALL.into_iter().zip(&mut all.0) {
            *found = HookRules::frame_interfaces(pins, family)?;
        }
        Ok(all)
    }

    /// Removes the programs from all other interfaces.
    pub fn restore(&self, pins: &Pins) {
        for (family, interfaces) in FrameFamily::ALL.into_iter().zip(&self.0) {
            // What stays finds no rules.
            let _ = HookRules::keep_frames(pins, family, interfaces);
        }
    }
}

/// Removes the programs from interfaces that the rules do not need, and those that were removed.
///
/// # Errors
/// The pins cannot be changed.
pub fn keep(pins: &Pins, loaded: &Loaded) -> anyhow::Result<()> {
    for family in FrameFamily::ALL {
        let present = interfaces(family, loaded)?.indexes();
        HookRules::keep_frames(pins, family, &present)?;
    }
    Ok(())
}

/// Interfaces of the loaded rules of a family, by name.
pub struct Coverage {
    family: FrameFamily,
    /// They have the programs.
    pub with: Vec<String>,
    /// They have none, although rules could run there.
    pub without: Vec<String>,
}

impl Coverage {
    /// `None`: there are no rules of the family.
    ///
    /// # Errors
    /// The interfaces or pins cannot be listed.
    pub fn of(
        family: FrameFamily,
        pins: &Pins,
        loaded: &Loaded,
    ) -> anyhow::Result<Option<Coverage>> {
        if !has(family, loaded) {
            return Ok(None);
        }
        let have = HookRules::frame_interfaces(pins, family)?;
        let (with, mut without): (Vec<Link>, Vec<Link>) = links()?
            .into_iter()
            .partition(|link| have.contains(&link.ifindex));
        without.retain(|link| match family {
            FrameFamily::Arp => link.arp,
            FrameFamily::Bridge => is_evaluated(link),
        });
        let names = |links: Vec<Link>| {
            let mut names: Vec<String> = links.into_iter().map(|link| link.name).collect();
            names.sort_unstable();
            names
        };
        Ok(Some(Coverage {
            family,
            with: names(with),
            without: names(without),
        }))
    }

    /// The chains that run, as a line.
    pub fn chains(&self) -> String {
        let interfaces = fairpath_units::counted(self.with.len(), "interface", "interfaces");
        let chains = match self.family {
            FrameFamily::Arp => "INPUT OUTPUT",
            FrameFamily::Bridge => "INPUT FORWARD OUTPUT",
        };
        format!("{} at tcx of {interfaces}: {chains}", tool(self.family))
    }

    /// The names of interfaces without the programs, as a line.
    pub fn line(&self) -> Option<String> {
        let names = fairpath_units::text::line(&self.without.join(", ")).into_owned();
        (!self.without.is_empty()).then(|| {
            format!(
                "interfaces without rules of {}: {names}: `fairpath rules follow --once` puts them to new ones",
                tool(self.family)
            )
        })
    }
}
