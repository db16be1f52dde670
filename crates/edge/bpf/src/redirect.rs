//! Redirection to AF_XDP: packets of an interface to the sockets of their queues.
//!
//! A value is one interface, with its own program, map of sockets and counters, which end with it.
//! The map does not keep a socket open, and a queue without a socket passes its packets to the
//! stack.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use fairpath_units::IfIndex;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, OpenObject};

use crate::attach::{AttachError, Attached};
use crate::skel::redirect::{RedirectSkel, RedirectSkelBuilder};
use crate::stage::{self, Stage};

/// Maximum of queues per interface with a socket.
pub const MAX_SOCKETS: u32 = 64;
/// Maximum of MAC addresses of this host.
const MAX_OWN: usize = 4;

/// Packets could not be sent to sockets.
#[derive(Debug, thiserror::Error)]
pub enum RedirectError {
    /// The kernel refused the program.
    #[error("load the redirector: {0}; needs CAP_BPF and CAP_NET_ADMIN, and AF_XDP in the kernel")]
    Refused(#[from] libbpf_rs::Error),
    /// It could not be attached.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The map refused a socket.
    #[error("assign an AF_XDP socket to queue {queue}: {source}; queues are 0 to {}", MAX_SOCKETS - 1)]
    Socket {
        /// The queue.
        queue: u32,
        /// The error of the kernel.
        source: libbpf_rs::Error,
    },
    /// Too many addresses.
    #[error(
        "{0} MAC addresses of this host: at most {MAX_OWN} are supported; bridge fewer interfaces"
    )]
    Own(usize),
}

/// The configuration of the program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RedirectOptions {
    /// MAC addresses whose packets go to the stack: of the interface and of its bridge; at most
    /// four.
    pub own: Vec<[u8; 6]>,
    /// Write the time of arrival before each frame, 8 bytes in the machine's order.
    pub stamp: bool,
}

/// Frames by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// Redirected to a socket, which may have been full (`XDP_STATISTICS`).
    pub to_socket: u64,
    /// Passed: the queue had no socket.
    pub no_socket: u64,
    /// Passed: neither IPv4 nor IPv6.
    pub not_ip: u64,
    /// Passed: to a group or to all.
    pub group: u64,
    /// Passed: to this host.
    pub own: u64,
    /// Passed: neighbour discovery.
    pub neighbour: u64,
    /// Passed: shorter than its headers.
    pub short: u64,
    /// Passed: no headroom in the driver.
    pub no_capacity: u64,
}

/// The program of one interface.
pub struct Redirect {
    skel: RedirectSkel<'static>,
    attached: Option<Attached>,
}

impl Redirect {
    /// Loads the program. [`Redirect::attach`] attaches it.
    ///
    /// # Errors
    /// [`RedirectError`].
    pub fn load(options: &RedirectOptions) -> Result<Redirect, RedirectError> {
        if options.own.len() > MAX_OWN {
            return Err(RedirectError::Own(options.own.len()));
        }
        let place: &'static mut MaybeUninit<OpenObject> =
            Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = RedirectSkelBuilder::default().open(place)?;
        if let Some(set) = open.maps.rodata_data.as_deref_mut() {
            set.redirect_stamp = options.stamp.into();
            for (to, own) in set.redirect_own.iter_mut().zip(&options.own) {
                *to = *own;
            }
        }
        Ok(Redirect {
            skel: open.load()?,
            attached: None,
        })
    }

    /// Assigns a socket to the receive queue to which it is bound.
    ///
    /// # Errors
    /// [`RedirectError::Socket`].
    pub fn set_socket(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), RedirectError> {
        let fd = socket.as_raw_fd().to_ne_bytes();
        let map = &self.skel.maps.sockets;
        map.update(&queue.to_ne_bytes(), &fd, MapFlags::ANY)
            .map_err(|source| RedirectError::Socket { queue, source })
    }

    /// Attaches the program to an interface of the current network namespace, after its sockets are
    /// set. An error names another XDP program, which is not replaced.
    ///
    /// # Errors
    /// [`RedirectError::Attach`].
    pub fn attach(&mut self, ifindex: IfIndex, name: &str) -> Result<(), RedirectError> {
        let program = &mut self.skel.progs.redirect;
        self.attached = Some(stage::attach(program, Stage::Forward, ifindex, name)?);
        Ok(())
    }

    /// Frames so far by outcome.
    pub fn outcomes(&self) -> Outcomes {
        let [
            to_socket,
            no_socket,
            not_ip,
            group,
            own,
            neighbour,
            short,
            no_capacity,
        ] = std::array::from_fn(|outcome| self.frames(outcome as u32));
        Outcomes {
            to_socket,
            no_socket,
            not_ip,
            group,
            own,
            neighbour,
            short,
            no_capacity,
        }
    }

    /// One row of the map, summed over all CPUs.
    fn frames(&self, outcome: u32) -> u64 {
        let outcomes = &self.skel.maps.outcomes;
        let row = outcomes.lookup_percpu(&outcome.to_ne_bytes(), MapFlags::ANY);
        let cpus = row.ok().flatten().unwrap_or_default();
        let count = |cpu: &Vec<u8>| {
            cpu.first_chunk()
                .map_or(0, |bytes| u64::from_ne_bytes(*bytes))
        };
        cpus.iter().map(count).sum()
    }
}

impl std::fmt::Debug for Redirect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redirect")
            .field("attached", &self.attached)
            .field("outcomes", &self.outcomes())
            .finish()
    }
}
