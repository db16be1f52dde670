//! Stages of the stack that packets pass by where AF_XDP carries them.

use anyhow::{Context, bail};
use fairpath_netlink::{Device, Link, StageKind, stages as stack_stages};

use crate::Mode;

/// Refuses where packets between `links` would pass by stages that this host has.
///
/// `what` begins the message and names the interfaces; `remedy` is what keeps the stages.
///
/// # Errors
/// The first of the stages, and the remedy.
pub fn refuse<'l>(
    what: &str,
    links: impl IntoIterator<Item = [&'l Link; 2]>,
    mode: Mode,
    remedy: &str,
) -> anyhow::Result<()> {
    let mut all = Vec::new();
    for links in links {
        all.extend(stages(links, mode)?);
    }
    let more = match all.len() {
        0 | 1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
    if let Some(first) = all.first() {
        bail!("{what} via afxdp: packets would bypass {first}{more}: remove it, or use {remedy}");
    }
    Ok(())
}

/// What this router has of them, in words.
///
/// Filters and qdiscs of the interfaces count in both modes. A bridge's packets see no routing, and
/// netfilter only where `bridge-nf-call-iptables` sends them there.
///
/// # Errors
/// The kernel does not report it: then no packet should bypass this process.
fn stages(links: [&Link; 2], mode: Mode) -> anyhow::Result<Vec<String>> {
    let devices = links.map(|link| Device {
        ifindex: link.ifindex,
        name: &link.name,
    });
    let all = stack_stages(&devices).context("find what packets would bypass")?;
    let met = |kind| match mode {
        Mode::Router => true,
        Mode::Bridge if bridge_netfilter() => {
            !matches!(kind, StageKind::PolicyRouting | StageKind::Xfrm)
        }
        Mode::Bridge => matches!(kind, StageKind::Filter | StageKind::Qdisc),
    };
    let all = all.into_iter().filter(|stage| met(stage.kind));
    Ok(all.map(|stage| stage.to_string()).collect())
}

/// Whether bridged packets meet netfilter's IP chains.
fn bridge_netfilter() -> bool {
    let set = |name| {
        let path = format!("/proc/sys/net/bridge/bridge-nf-call-{name}");
        std::fs::read_to_string(path).is_ok_and(|text| text.trim() != "0")
    };
    set("iptables") || set("ip6tables")
}
