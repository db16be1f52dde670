//! Stages of the stack that packets pass by where AF_XDP carries them.

use anyhow::Context;
use fairpath_bpf::{Hook, HookedProgram, netfilter_programs, tcx_programs};
use fairpath_netlink::{Device, Link, StageKind, stages as stack_stages};
use nix::errno::Errno;
use nix::net::if_::if_indextoname;

use super::ends::receive_queues;
use crate::Mode;

const NFPROTO_IPV6: u32 = 10;

/// Packets would bypass stages: which, and the remedy.
#[derive(Debug)]
pub struct Bypassed(pub String);

impl std::fmt::Display for Bypassed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Bypassed {}

/// The stages that packets between some pairs of links bypass. The same list is read at the start and
/// [while it runs](super::watch).
pub struct Skipped {
    /// The begin of messages, with the names of the interfaces.
    what: String,
    links: Vec<[Link; 2]>,
    /// Links and their receive queues at the start. The others have no socket.
    queues: Vec<(Link, u32)>,
    mode: Mode,
    /// What keeps the stages.
    remedy: &'static str,
}

impl Skipped {
    /// For packets between each two of `links`.
    pub fn new<'l>(
        what: String,
        links: impl IntoIterator<Item = [&'l Link; 2]>,
        mode: Mode,
        remedy: &'static str,
    ) -> Skipped {
        let links: Vec<_> = links
            .into_iter()
            .map(|pair| pair.map(Link::clone))
            .collect();
        let mut queues: Vec<(Link, u32)> = Vec::new();
        for link in links.iter().flatten() {
            if !queues
                .iter()
                .any(|(there, _)| there.ifindex == link.ifindex)
            {
                queues.push((link.clone(), receive_queues(link)));
            }
        }
        Skipped {
            what,
            links,
            queues,
            mode,
            remedy,
        }
    }

    /// Refuses to start where this host has such stages.
    ///
    /// # Errors
    /// [`Bypassed`] with the first of the stages, or the kernel does not report them.
    pub fn refuse(&self) -> anyhow::Result<()> {
        match self.look()? {
            Some(stages) => Err(Bypassed(format!(
                "{} via afxdp: packets would bypass {stages}: remove it, or use {}",
                self.what, self.remedy
            ))
            .into()),
            None => Ok(()),
        }
    }

    /// Why a running back end has to end, if it does.
    pub fn end(&self, stages: &str) -> String {
        format!(
            "{} via afxdp has ended, because packets would bypass {stages}: the kernel forwards without it; remove it, or use {}",
            self.what, self.remedy
        )
    }

    /// Why a running back end has to begin again with other sockets, if it does: packets of a receive queue without
    /// one would go through the stack, at any rate.
    pub fn other_queues(&self) -> Option<String> {
        self.queues.iter().find_map(|(link, before)| {
            let now = receive_queues(link);
            (now != *before).then(|| {
                format!(
                    "{} via afxdp has ended, because {:?} has {} and had {before}: it begins again with these",
                    self.what,
                    name_of(link),
                    fairpath_units::counted(now as usize, "receive queue", "receive queues"),
                )
            })
        })
    }

    /// The stages of this host now: the first, and how many more.
    ///
    /// # Errors
    /// The kernel does not report it: then no packet should bypass this process.
    pub fn look(&self) -> anyhow::Result<Option<String>> {
        let mut all = Vec::new();
        for pair in &self.links {
            all.extend(stages(pair, self.mode)?);
        }
        let Some(first) = all.first() else {
            return Ok(None);
        };
        Ok(Some(match all.len() {
            1 => first.clone(),
            count => format!("{first} and {} more", count - 1),
        }))
    }
}

/// What this router has of them, in words.
///
/// Filters, programs and qdiscs of the interfaces count in both modes. A bridge's packets see no routing, and
/// netfilter only where `bridge-nf-call-iptables` sends them there.
///
/// # Errors
/// The kernel does not report it: then no packet should bypass this process.
fn stages(links: &[Link; 2], mode: Mode) -> anyhow::Result<Vec<String>> {
    let names = [name_of(&links[0]), name_of(&links[1])];
    let devices = [0, 1].map(|at| Device {
        ifindex: links[at].ifindex,
        name: &names[at],
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
    let mut named: Vec<String> = all.map(|stage| stage.to_string()).collect();
    if met(StageKind::Netfilter) {
        named.extend(hooked_programs()?);
    }
    for device in &devices {
        named.extend(programs(device)?);
    }
    Ok(named)
}

/// BPF programs at the hooks of forwarded packets. `nfnetlink_hook` lists them too, where it is built.
fn hooked_programs() -> anyhow::Result<Vec<String>> {
    let all = netfilter_programs().context("list the BPF programs at netfilter hooks")?;
    let named = all.iter().filter_map(
        |HookedProgram {
             program,
             family,
             hook,
         }| {
            let hook = match hook {
                0 => "prerouting",
                2 => "forward",
                4 => "postrouting",
                _ => return None,
            };
            let family = if *family == NFPROTO_IPV6 { "ip6" } else { "ip" };
            Some(format!("netfilter ({family} {hook}, {program})"))
        },
    );
    Ok(named.collect())
}

/// Programs of other owners at tcx, in the words of [`Stage`](fairpath_netlink::Stage).
fn programs(device: &Device<'_>) -> anyhow::Result<Vec<String>> {
    let mut named = Vec::new();
    for (hook, name) in [(Hook::TcxIngress, "ingress"), (Hook::TcxEgress, "egress")] {
        let found = match tcx_programs(device.ifindex, hook) {
            // A kernel without tcx, or an interface that was just removed, has no programs.
            Err(error) if is_absent(&error) => Vec::new(),
            found => {
                found.with_context(|| format!("list the programs at tcx of {:?}", device.name))?
            }
        };
        let of = |program| format!("tcx {name} ({program} on {:?})", device.name);
        named.extend(found.iter().map(of));
    }
    Ok(named)
}

fn is_absent(error: &std::io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::EINVAL | Errno::ENODEV))
}

/// The name of a link now: rules name interfaces, which may be renamed.
fn name_of(link: &Link) -> String {
    let name = if_indextoname(link.ifindex.0);
    let name = name.ok().and_then(|name| name.into_string().ok());
    name.unwrap_or_else(|| link.name.clone())
}

/// Whether bridged packets meet netfilter's IP chains.
fn bridge_netfilter() -> bool {
    let set = |name| {
        let path = format!("/proc/sys/net/bridge/bridge-nf-call-{name}");
        std::fs::read_to_string(path).is_ok_and(|text| text.trim() != "0")
    };
    set("iptables") || set("ip6tables")
}
