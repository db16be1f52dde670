//! A network namespace to try things in.
//!
//! It belongs to one thread (or, without privilege, to this process once all else is done) and to nothing else: no
//! name, no mount. The kernel removes it with everything in it when its owner ends, however that ends.

use std::thread;

use fairpath_netlink::{Link, Links, NetlinkError, NewLink, Tc};
use fairpath_units::IfIndex;
use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};

use super::host::Host;

const VETH: &str = "fp0";
const PEER: &str = "fp1";

/// The inside of the namespace: a veth pair, both ends up, and the loopback.
pub struct Scratch {
    pub links: Links,
    pub tc: Tc,
    /// One end of the pair; `None` when the kernel cannot make one.
    pub veth: Option<Link>,
    pub loopback: IfIndex,
}

/// Whose namespace it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The user's privilege made it: what works inside works outside.
    Privileged,
    /// It is in a private user namespace: features that work inside exist in the kernel, but the user may lack rights outside.
    Unprivileged,
}

/// Why there is no namespace.
#[derive(Clone, Debug)]
pub struct NoScratch(pub String);

/// Runs `work` inside a fresh namespace.
///
/// Without `CAP_SYS_ADMIN` the calling process itself moves into new namespaces and stays there. It must
/// have a single thread then.
pub fn inside<T: Send>(
    host: &Host,
    work: impl FnOnce(&mut Scratch, Owner) -> T + Send,
) -> Result<T, NoScratch> {
    if !host.has("CAP_SYS_ADMIN") {
        enter(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET)?;
        return Ok(work(&mut Scratch::furnish()?, Owner::Unprivileged));
    }
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            enter(CloneFlags::CLONE_NEWNET)?;
            Ok(work(&mut Scratch::furnish()?, Owner::Privileged))
        });
        let died = |_| Err(NoScratch("the probing thread died".to_owned()));
        worker.join().unwrap_or_else(died)
    })
}

fn enter(flags: CloneFlags) -> Result<(), NoScratch> {
    unshare(flags).map_err(|errno| {
        NoScratch(match errno {
            Errno::EPERM | Errno::EACCES | Errno::ENOSPC => {
                "no network namespace may be made (takes CAP_SYS_ADMIN or user namespaces)"
                    .to_owned()
            }
            other => format!("no network namespace can be made: {}", other.desc()),
        })
    })
}

impl Scratch {
    fn furnish() -> Result<Scratch, NoScratch> {
        let furnish = || -> Result<Scratch, NetlinkError> {
            let mut links = Links::open()?;
            let loopback = links.by_name("lo")?.map(|link| link.ifindex);
            let veth = veth_pair(&mut links).ok();
            Ok(Scratch {
                tc: Tc::open()?,
                veth,
                loopback: loopback.unwrap_or(IfIndex(1)),
                links,
            })
        };
        furnish().map_err(|error| {
            NoScratch(format!(
                "the network namespace cannot be furnished: {error}"
            ))
        })
    }

    /// A link for qdiscs and hooks: the veth, else the loopback.
    pub fn any_link(&self) -> IfIndex {
        self.veth
            .as_ref()
            .map_or(self.loopback, |link| link.ifindex)
    }
}

fn veth_pair(links: &mut Links) -> Result<Link, NetlinkError> {
    links.create(NewLink::Veth {
        name: VETH,
        peer: PEER,
    })?;
    let missing = NetlinkError::Malformed {
        operation: "make veth pair",
        lacks: "the link just made",
    };
    for name in [PEER, VETH] {
        if let Some(link) = links.by_name(name)? {
            links.set_up(link.ifindex, true)?;
        }
    }
    links.by_name(VETH)?.ok_or(missing)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn the_namespace_is_new_and_removed_afterwards() {
        let host = Host::read().unwrap();
        if !host.has("CAP_SYS_ADMIN") {
            fairpath_units::skip_test(
                "the_namespace_is_new_and_removed_afterwards",
                "CAP_SYS_ADMIN",
                "needs CAP_SYS_ADMIN",
            );
            return;
        }
        let here = || fs::read_link("/proc/thread-self/ns/net").unwrap();
        let (inside, names) = inside(&host, |scratch, _| {
            let links = scratch.links.list().unwrap();
            let names: Vec<String> = links.into_iter().map(|link| link.name).collect();
            (here(), names)
        })
        .unwrap();
        assert_ne!(inside, here());
        assert!(!names.contains(&"eth0".to_owned()) && names.contains(&VETH.to_owned()));
        let deadline = Instant::now() + Duration::from_secs(10);
        while namespaces_of_this_process().contains(&inside) {
            // A joined thread leaves /proc a moment later.
            assert!(Instant::now() < deadline, "a thread still holds it");
            thread::yield_now();
        }
        assert!(Links::open().unwrap().by_name(VETH).unwrap().is_none());
    }

    fn namespaces_of_this_process() -> Vec<PathBuf> {
        fs::read_dir("/proc/self/task")
            .unwrap()
            .flatten()
            .filter_map(|task| fs::read_link(task.path().join("ns/net")).ok())
            .collect()
    }
}
