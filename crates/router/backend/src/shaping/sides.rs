//! Interfaces that are removed, renamed or replaced, return or get another MTU while shaping runs.
//!
//! A back end whose sides are separate continues with one of them. Another ends, and starts when both
//! interfaces are there.

use std::time::Instant;

use anyhow::bail;
use fairpath_bpf::RttMonitor;
use fairpath_class::ClassSet;
use fairpath_netlink::{Link, Links};
use fairpath_shape::{Both, Side};
use fairpath_units::IfIndex;

use super::{Port, Shaping, shapes};
use crate::ShapeConfig;
use crate::shape::{Job, find_links, no_such_interface};

/// The link that a side is shaped on, as it was then.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Present {
    ifindex: IfIndex,
    mtu_bytes: u32,
}

impl From<&Link> for Present {
    fn from(link: &Link) -> Present {
        Present {
            ifindex: link.ifindex,
            mtu_bytes: link.mtu_bytes,
        }
    }
}

impl Shaping {
    /// Checks that every configured interface is there.
    ///
    /// # Errors
    /// The first that is absent.
    pub fn expect_interfaces(&self, config: &ShapeConfig) -> anyhow::Result<()> {
        match absent(config, &find_links(config)?).first() {
            Some((_, name)) => bail!(no_such_interface(name)),
            None => Ok(()),
        }
    }

    /// Applies added, removed and changed links.
    pub fn follow_links(
        &mut self,
        config: &ShapeConfig,
        classes: &ClassSet,
        monitor: &mut RttMonitor,
    ) -> Option<String> {
        if self.port.is_none() {
            return self.start_if_awaited(config, classes, monitor);
        }
        match self.follow_sides(config, classes) {
            Ok(text) => text,
            Err(error) => {
                let text = format!("shaping failed: {error:#}");
                Some(self.fail(text))
            }
        }
    }

    /// Starts at once if an interface was absent, and no longer is.
    fn start_if_awaited(
        &mut self,
        config: &ShapeConfig,
        classes: &ClassSet,
        monitor: &mut RttMonitor,
    ) -> Option<String> {
        if self.stopped || self.failure.is_none() {
            return None;
        }
        let was_complete = self.complete;
        self.complete = find_links(config).is_ok_and(|links| absent(config, &links).is_empty());
        if was_complete || !self.complete {
            return None;
        }
        self.start(config, classes, monitor).ok()
    }

    /// Ends the sides whose interface was removed or replaced, and shapes those whose interface is there again.
    pub(super) fn follow_sides(
        &mut self,
        config: &ShapeConfig,
        classes: &ClassSet,
    ) -> anyhow::Result<Option<String>> {
        let began = Instant::now();
        let Some(port) = &mut self.port else {
            return Ok(None);
        };
        let separate = shapes(port.backend.via())?.separate;
        let job = Job {
            config,
            classes,
            lines: &self.lines,
            rules: &self.rules,
            slots: &self.slots,
            links: find_links(config)?,
        };
        let (mut happened, mut failed) = (Vec::new(), Vec::new());
        // If names were swapped, each side joins what the other leaves: all leave first.
        for (side, name) in config.sides() {
            let now = job.links.get(side).as_ref().map(Present::from);
            let Some(before) = *port.present.get(side) else {
                continue;
            };
            if now.is_some_and(|now| now.ifindex == before.ifindex) {
                continue;
            }
            if !separate {
                self.complete = now.is_some();
                bail!("the interface {name:?} was removed or renamed");
            }
            port.hold.release(before.ifindex);
            *port.present.get_mut(side) = None;
            let what = match Links::open()?.list()? {
                links if links.iter().any(|link| link.ifindex == before.ifindex) => "renamed",
                _ => "removed",
            };
            if let Err(error) = port.backend.leave(side) {
                tracing::warn!("end shaping of {name:?}, which was {what}: {error:#}");
            }
            happened.push(format!(
                "interface {name:?} was {what}: shaping {} ends until it returns",
                side.name()
            ));
        }
        for (side, name) in config.sides() {
            let Some(link) = job.links.get(side) else {
                continue;
            };
            let (is, joined) = match *port.present.get(side) {
                Some(before) if before == Present::from(link) && !port.backend.outgrown(side) => {
                    continue;
                }
                // Its packets would not fit.
                Some(before) if !separate && link.mtu_bytes > before.mtu_bytes => bail!(
                    "the MTU of {name:?} is {} and was {} at the start",
                    link.mtu_bytes,
                    before.mtu_bytes
                ),
                Some(_) if !separate => continue,
                Some(_) => {
                    let what = match port.backend.outgrown(side) {
                        true => "has more transmit queues".to_owned(),
                        false => format!("has another MTU, {}", link.mtu_bytes),
                    };
                    port.resize(&job, side)?;
                    (what, Ok(()))
                }
                None => ("is there".to_owned(), port.join(&job, side)),
            };
            match joined {
                Ok(()) => happened.push(format!(
                    "interface {name:?} {is}: shaping {} after {} ms",
                    side.name(),
                    began.elapsed().as_millis()
                )),
                Err(error) => failed.push(format!(
                    "interface {name:?} {is}: shaping {} failed, and is retried: {error:#}",
                    side.name()
                )),
            }
        }
        if !failed.is_empty() {
            let text = failed.join("; ");
            if self.failure() != Some(&text) {
                happened.push(text.clone());
            }
            self.failure = Some((text, Instant::now()));
        } else {
            self.note_absent(config);
        }
        Ok((!happened.is_empty()).then(|| happened.join("; ")))
    }

    /// Reports sides that are not shaped although others are.
    pub(super) fn note_absent(&mut self, config: &ShapeConfig) {
        let Some(port) = &self.port else {
            return;
        };
        let absent: Vec<String> = port
            .absent(config)
            .map(|(side, name)| {
                format!(
                    "{} is not shaped: interface {name:?} is absent",
                    side.name()
                )
            })
            .collect();
        let any = !absent.is_empty();
        self.failure = any.then(|| (absent.join("; "), Instant::now()));
    }
}

/// The configured sides without a link, and their interfaces.
pub(super) fn absent<'a>(
    config: &'a ShapeConfig,
    links: &Both<Option<Link>>,
) -> Vec<(Side, &'a str)> {
    let is_absent = |(side, _): &(Side, &str)| links.get(*side).is_none();
    config.sides().filter(is_absent).collect()
}

impl Port {
    /// The configured sides that are not shaped.
    fn absent<'a>(&'a self, config: &'a ShapeConfig) -> impl Iterator<Item = (Side, &'a str)> {
        let sides = config.sides();
        sides.filter(|(side, _)| self.present.get(*side).is_none())
    }

    /// True if a configured side is not shaped.
    pub(super) fn has_absent(&self, config: &ShapeConfig) -> bool {
        self.absent(config).next().is_some()
    }

    /// Shapes a side again, with the rates that were set.
    fn join(&mut self, job: &Job<'_>, side: Side) -> anyhow::Result<()> {
        let link = job.link(side)?;
        self.hold.add(link)?;
        if let Err(error) = self.backend.join(job, side) {
            self.hold.release(link.ifindex);
            return Err(error);
        }
        *self.present.get_mut(side) = Some(link.into());
        self.set_again(side)
    }

    /// Applies another MTU, or more queues, of a side's link, with the rates that were set.
    fn resize(&mut self, job: &Job<'_>, side: Side) -> anyhow::Result<()> {
        self.backend.resize(job, side)?;
        *self.present.get_mut(side) = Some(job.link(side)?.into());
        self.set_again(side)
    }
}
