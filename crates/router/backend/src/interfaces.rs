//! Packets that interfaces dropped since the start, which no back end observes.
//!
//! ```text
//!   ring of the driver, of a veth --full--> before: lost to the port, and counted by the interface
//!   port --> interface --full, down-------> behind: handed to the kernel, and not sent
//! ```
//!
//! Counters that cannot be read are an error each time, and never 0.

use anyhow::Context;
use fairpath_netlink::{Link, Links};

/// Of one interface, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Of what arrived: by its driver, by the kernel behind it, and of a veth by the other end, whose
    /// counter has what did not fit into the ring.
    pub before: u64,
    /// Of what was to leave by it.
    pub behind: u64,
}

/// Interfaces that are looked after.
pub struct Interfaces {
    links: Links,
    ends: Vec<(Link, Result<Dropped, String>)>,
}

impl Interfaces {
    /// From now on.
    ///
    /// # Errors
    /// There is no netlink socket. [`Interfaces::since`] reports failed reads.
    pub fn watch<'a>(ends: impl IntoIterator<Item = &'a Link>) -> anyhow::Result<Interfaces> {
        let mut links = Links::open().context("read counters of interfaces")?;
        let ends = ends.into_iter().map(|link| {
            let begin = look(&mut links, link);
            (link.clone(), begin)
        });
        let ends = ends.collect();
        Ok(Interfaces { links, ends })
    }

    /// Of each, in the order in which they were named; what could not be read, and why.
    pub fn since(&mut self) -> Vec<Result<Dropped, String>> {
        let Interfaces { links, ends } = self;
        let since = |(link, begin): &(Link, Result<Dropped, String>)| {
            let (begin, now) = (begin.clone()?, look(links, link)?);
            Ok(Dropped {
                before: now.before.saturating_sub(begin.before),
                behind: now.behind.saturating_sub(begin.behind),
            })
        };
        ends.iter().map(since).collect()
    }
}

fn look(links: &mut Links, link: &Link) -> Result<Dropped, String> {
    let unread = |error| {
        let error = anyhow::Error::new(error).context(format!("interface {:?}", link.name));
        format!("{error:#}")
    };
    let own = links.drops(link.ifindex).map_err(unread)?;
    let other = match link.is_kind("veth") {
        true => links.drops_of_other_end(link.ifindex).map_err(unread)?,
        false => Default::default(),
    };
    Ok(Dropped {
        // One that this end would not take is counted by both.
        before: own.arriving.max(other.leaving),
        behind: own.leaving,
    })
}
