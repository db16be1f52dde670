//! The watched interfaces, by name and pattern, as links appear, are renamed and are removed.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use fairpath_bpf::{Attached, Hook as BpfHook, RttMonitor, TcxProgram, tcx_ahead};
use fairpath_netlink::{ArpType, Link, LinkEvent, LinkWatch};
use fairpath_units::IfIndex;
use globset::{Glob, GlobSet, GlobSetBuilder};

use fairpath_config::Hook;

/// Maximum number of watched interfaces. The table of the core is a little larger.
pub const MAX_INTERFACES: usize = 512;

/// Time between checks of the order of programs at tcx.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// The watched interfaces and their attached programs.
pub struct Interfaces {
    names: Vec<String>,
    patterns: GlobSet,
    has_patterns: bool,
    hook: Hook,
    watch: LinkWatch,
    attached: HashMap<IfIndex, Watched>,
    generation: u64,
    next_check: Instant,
}

struct Watched {
    name: String,
    mtu_bytes: u32,
    _programs: Vec<Attached>,
    hooks: [BpfHook; 2],
    /// By hook: programs ahead that were reported.
    ahead: [Vec<TcxProgram>; 2],
}

/// A change to report.
pub enum Change {
    /// The name of an interface, watched or not: packets may arrive by it.
    Known(IfIndex, String),
    /// Watched from now on.
    Attached(String),
    /// Renamed.
    Renamed(IfIndex, String),
    /// No longer watched, with the reason.
    Detached(String, &'static str),
    /// Programs of others run ahead of Fairpath's at a hook and may end packets; none any more.
    Ahead(String, BpfHook, Vec<TcxProgram>),
    /// It matches a pattern but cannot be watched.
    Refused(anyhow::Error),
}

impl Interfaces {
    /// Reads names and patterns, without attaching.
    ///
    /// # Errors
    /// A pattern is invalid, or rtnetlink cannot be opened.
    pub fn new(wanted: &[String], hook: Hook) -> anyhow::Result<Interfaces> {
        let (names, patterns) = read_wanted(wanted)?;
        Ok(Interfaces {
            names,
            has_patterns: !patterns.is_empty(),
            patterns,
            hook,
            watch: LinkWatch::open()?,
            attached: HashMap::new(),
            generation: 0,
            next_check: Instant::now(),
        })
    }

    /// Replaces the watched interfaces: detaches from the old ones, attaches to the new ones.
    ///
    /// # Errors
    /// A pattern is invalid; nothing has changed.
    pub fn want(
        &mut self,
        wanted: &[String],
        monitor: &mut RttMonitor,
    ) -> anyhow::Result<Vec<Change>> {
        let (names, patterns) = read_wanted(wanted)?;
        self.names = names;
        self.has_patterns = !patterns.is_empty();
        self.patterns = patterns;
        let mut changes = Vec::new();
        let unwanted: Vec<IfIndex> = self
            .attached
            .iter()
            .filter(|(_, watched)| !self.wanted(&watched.name))
            .map(|(ifindex, _)| *ifindex)
            .collect();
        for ifindex in unwanted {
            self.detach(ifindex, "is not configured any more", monitor, &mut changes);
        }
        let links: Vec<Link> = self.watch.table().links().cloned().collect();
        for link in links {
            self.consider(&link, monitor, &mut changes);
        }
        Ok(changes)
    }

    /// Attaches to all present interfaces. Every name must exist.
    ///
    /// # Errors
    /// No interface has a name, or the kernel refuses an attachment by name.
    pub fn start(&mut self, monitor: &mut RttMonitor) -> anyhow::Result<Vec<Change>> {
        let changes = self.follow(monitor)?;
        for name in &self.names {
            if self.attached.values().any(|watched| watched.name == *name) {
                continue;
            }
            for change in changes {
                if let Change::Refused(error) = change {
                    return Err(error);
                }
            }
            let links = self.links();
            let near = fairpath_units::nearest(name, links.iter().copied());
            let near = near.map_or(String::new(), |near| format!("did you mean \"{near}\"? "));
            bail!(
                "watch {name:?}: no interface has this name: {near}there are {}; a pattern such as 'ppp*' waits for interfaces",
                links.join(", ")
            );
        }
        Ok(changes)
    }

    /// Configured names without a watched interface.
    pub fn missing(&self) -> Vec<&str> {
        let is_there = |name: &str| self.attached.values().any(|w| w.name == name);
        let names = self.names.iter().map(String::as_str);
        names.filter(|name| !is_there(name)).collect()
    }

    /// Names of all links, watched or not, sorted.
    pub fn links(&self) -> Vec<&str> {
        let links = self.watch.table().links();
        let mut names: Vec<&str> = links.map(|link| link.name.as_str()).collect();
        names.sort_unstable();
        names
    }

    /// Index and name of each watched interface, by name.
    pub fn watched(&self) -> Vec<(IfIndex, &str)> {
        let mut all: Vec<_> = self
            .attached
            .iter()
            .map(|(ifindex, watched)| (*ifindex, watched.name.as_str()))
            .collect();
        all.sort_unstable_by_key(|(_, name)| *name);
        all
    }

    /// The index of the link of this name, watched or not.
    pub fn index_of(&self, name: &str) -> Option<IfIndex> {
        let mut links = self.watch.table().links();
        links.find(|link| link.name == name).map(|l| l.ifindex)
    }

    /// A number that changes when a link appears, is removed or is renamed, or a watched one has another MTU.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Applies changes of links since the last call.
    ///
    /// # Errors
    /// rtnetlink cannot be read.
    pub fn follow(&mut self, monitor: &mut RttMonitor) -> anyhow::Result<Vec<Change>> {
        let mut changes = Vec::new();
        for event in self.watch.events()? {
            let is_change = match &event {
                LinkEvent::Up(link) | LinkEvent::Down(link) | LinkEvent::Changed(link) => {
                    self.note_mtu(link)
                }
                _ => true,
            };
            self.generation += u64::from(is_change);
            match event {
                LinkEvent::Appeared(link) => {
                    changes.push(Change::Known(link.ifindex, link.name.clone()));
                    self.consider(&link, monitor, &mut changes);
                }
                LinkEvent::Renamed { link, .. } => {
                    changes.push(Change::Known(link.ifindex, link.name.clone()));
                    self.renamed(&link, monitor, &mut changes);
                }
                LinkEvent::Removed(link) => {
                    self.detach(link.ifindex, "removed", monitor, &mut changes);
                }
                _ => {}
            }
        }
        let now = Instant::now();
        if now >= self.next_check {
            self.next_check = now + CHECK_EVERY;
            self.check_order(&mut changes);
        }
        Ok(changes)
    }

    /// True if a watched link has another MTU.
    fn note_mtu(&mut self, link: &Link) -> bool {
        let watched = self.attached.get_mut(&link.ifindex);
        watched.is_some_and(|watched| {
            std::mem::replace(&mut watched.mtu_bytes, link.mtu_bytes) != link.mtu_bytes
        })
    }

    /// Programs that attach later may go ahead. The kernel reports no change: it has to be asked.
    fn check_order(&mut self, changes: &mut Vec<Change>) {
        for (ifindex, watched) in &mut self.attached {
            for (hook, known) in watched.hooks.into_iter().zip(&mut watched.ahead) {
                // An interface that was just removed has no programs.
                let ahead = tcx_ahead(*ifindex, hook).unwrap_or_default();
                if ahead != *known {
                    known.clone_from(&ahead);
                    changes.push(Change::Ahead(watched.name.clone(), hook, ahead));
                }
            }
        }
    }

    fn wanted(&self, name: &str) -> bool {
        self.names.iter().any(|n| n == name) || self.patterns.is_match(name)
    }

    fn consider(&mut self, link: &Link, monitor: &mut RttMonitor, changes: &mut Vec<Change>) {
        if !self.wanted(&link.name) || self.attached.contains_key(&link.ifindex) {
            return;
        }
        match self.attach(link, monitor) {
            Ok((programs, hooks)) => {
                let watched = Watched {
                    name: link.name.clone(),
                    mtu_bytes: link.mtu_bytes,
                    _programs: programs,
                    hooks,
                    ahead: Default::default(),
                };
                self.attached.insert(link.ifindex, watched);
                changes.push(Change::Attached(link.name.clone()));
            }
            Err(error) => changes.push(Change::Refused(error)),
        }
    }

    fn attach(
        &self,
        link: &Link,
        monitor: &mut RttMonitor,
    ) -> anyhow::Result<(Vec<Attached>, [BpfHook; 2])> {
        if self.attached.len() >= MAX_INTERFACES {
            bail!(
                "watch {:?}: {MAX_INTERFACES} interfaces are watched already",
                link.name
            );
        }
        let raw = match link.arp_type {
            ArpType::Ethernet | ArpType::Loopback => false,
            ArpType::Ppp | ArpType::None => true,
            other => bail!(
                "watch {:?}: its link type ({other:?}) is neither Ethernet nor plain IP: watch the interface above or below it",
                link.name
            ),
        };
        // XDP programs cannot read packets of a device without a link header.
        let ingress = if self.hook == Hook::Xdp && !raw {
            BpfHook::Xdp
        } else {
            BpfHook::TcxIngress
        };
        let mut programs = Vec::new();
        let hooks = [ingress, BpfHook::TcxEgress];
        for hook in hooks {
            match monitor.attach(hook, link.ifindex, &link.name, raw) {
                Ok(program) => programs.push(program),
                Err(error) => {
                    monitor.unwatch(link.ifindex);
                    return Err(match hook {
                        BpfHook::Xdp => {
                            anyhow!("{error}, or choose tcx (--hook tcx, `hook = \"tcx\"`)")
                        }
                        _ => error.into(),
                    });
                }
            }
        }
        Ok((programs, hooks))
    }

    fn renamed(&mut self, link: &Link, monitor: &mut RttMonitor, changes: &mut Vec<Change>) {
        if !self.wanted(&link.name) {
            self.detach(link.ifindex, "renamed", monitor, changes);
            return;
        }
        match self.attached.get_mut(&link.ifindex) {
            Some(watched) => {
                watched.name.clone_from(&link.name);
                changes.push(Change::Renamed(link.ifindex, link.name.clone()));
            }
            None => self.consider(link, monitor, changes),
        }
    }

    fn detach(
        &mut self,
        ifindex: IfIndex,
        why: &'static str,
        monitor: &mut RttMonitor,
        changes: &mut Vec<Change>,
    ) {
        if let Some(watched) = self.attached.remove(&ifindex) {
            monitor.unwatch(ifindex);
            changes.push(Change::Detached(watched.name, why));
        }
    }

    /// Programs of others that run ahead at some interface, in words.
    pub fn ahead(&self) -> Vec<String> {
        let mut all = Vec::new();
        for watched in self.attached.values() {
            let hooks = watched.hooks.into_iter().zip(&watched.ahead);
            let met = hooks.filter(|(_, ahead)| !ahead.is_empty());
            all.extend(met.map(|(hook, ahead)| Change::of_order(&watched.name, hook, ahead)));
        }
        all
    }

    /// No interface is watched, and no pattern waits for one.
    pub fn is_over(&self) -> bool {
        self.attached.is_empty() && !self.has_patterns
    }

    /// Readable when a link changed.
    pub fn fd(&self) -> std::os::fd::BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.watch)
    }
}

impl Change {
    /// [`Change::Ahead`] in words.
    pub fn of_order(name: &str, hook: BpfHook, ahead: &[TcxProgram]) -> String {
        let programs: Vec<String> = ahead.iter().map(TcxProgram::to_string).collect();
        match programs.is_empty() {
            true => format!("{name}: Fairpath is first at {hook} again"),
            false => format!(
                "{name}: {} runs ahead of Fairpath at {hook}; packets that it ends are not measured, and have no class with via = \"kernel\": attach it after Fairpath, or restart Fairpath",
                programs.join(", ")
            ),
        }
    }
}

/// Names and patterns.
fn read_wanted(wanted: &[String]) -> anyhow::Result<(Vec<String>, GlobSet)> {
    let mut patterns = GlobSetBuilder::new();
    let mut names = Vec::new();
    for text in wanted {
        if text.contains(['*', '?', '[', '{']) {
            let glob = Glob::new(text).with_context(|| {
                format!("interface pattern {text:?} is invalid: write 'ppp*' or 'eth[0-3]'")
            })?;
            patterns.add(glob);
        } else {
            names.push(text.clone());
        }
    }
    let patterns = patterns.build().context("interface patterns")?;
    Ok((names, patterns))
}
