//! Forwarding through AF_XDP by the XDP program of the monitor (`rtt_forward`, bpf/prog/forward.h).
//! The core decides ([`fairpath_core::forward`]).
//!
//! ```text
//!   set_forwarding(plan), set_socket(exit, queue, fd), attach_forward(interface)   in this order
//! ```
//!
//! Invariant: the stack gets the packets of a queue without a socket, and every frame before
//! [`RttMonitor::set_forwarding`]. The map does not keep a socket open: if a process ends, the
//! stack handles its traffic.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use fairpath_core::forward::MAX_OWN;
use fairpath_units::IfIndex;
use libbpf_rs::{MapCore, MapFlags, ProgramInput};

pub use fairpath_core::forward::{
    EXITS, Exit, ForwardOutcome, ForwardPlan, Forwarding, SenderCheck,
};

use crate::attach::{AttachError, Attached};
use crate::rtt::{RttMonitor, RunError};
use crate::stack_sent::StackSent;
use crate::stage::{self, Stage};

/// Maximum of receive queues per interface with a socket.
pub const EXIT_QUEUES: u32 = 64;
/// Maximum growth of a frame: metadata and a tag.
const CAPACITY_BYTES: usize = 256;

/// Forwarding could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// Loaded without forwarding.
    #[error("forward through AF_XDP: the monitor was loaded without `Options::with_forwarding`")]
    NotLoaded,
    /// Two egress interfaces with the same identity.
    #[error(
        "forward between two VLANs of interface {} with VLAN {vlan}: one interface needs two different VLANs, 1 to 4094", .ifindex.0
    )]
    SameExits {
        /// Of both.
        ifindex: IfIndex,
        /// Of both.
        vlan: u16,
    },
    /// A bridge adds no tags.
    #[error(
        "bridge between VLAN {} and VLAN {}: a bridge changes tags, but neither adds nor removes them; set a VLAN on both sides or on none", .0[0], .0[1]
    )]
    Tags([u16; EXITS]),
    /// Too many addresses.
    #[error(
        "{0} MAC addresses of this host: at most {MAX_OWN} are supported; bridge fewer interfaces"
    )]
    Own(usize),
    /// A map refused an entry.
    #[error(
        "set up forwarding in the XDP program: {0}; egress interfaces are 0 and 1, queues 0 to 63"
    )]
    Map(#[from] libbpf_rs::Error),
    /// The counters of the stack could not be mapped.
    #[error("map the counters of the stack: {0}; see `fairpath features`")]
    Counts(#[from] io::Error),
}

/// Frames by ingress interface and outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitOutcomes([u64; ForwardOutcome::COUNT]);

impl ExitOutcomes {
    /// With one outcome.
    pub fn of(&self, outcome: ForwardOutcome) -> u64 {
        self.0[outcome as usize]
    }

    /// Frames that the stack got.
    pub fn to_stack(&self) -> u64 {
        self.0.iter().sum::<u64>()
            - self.of(ForwardOutcome::ToSocket)
            - self.of(ForwardOutcome::Lost)
    }
}

impl RttMonitor {
    /// True if it was loaded with the program that forwards ([`Options::with_forwarding`](crate::Options::with_forwarding)).
    pub fn forwards(&self) -> bool {
        self.forwards
    }

    /// Activates a plan for all interfaces of [`RttMonitor::attach_forward`]. Frames in progress
    /// may use parts of the previous plan.
    ///
    /// # Errors
    /// [`ForwardError`].
    pub fn set_forwarding(&self, plan: &ForwardPlan) -> Result<(), ForwardError> {
        if !self.forwards {
            return Err(ForwardError::NotLoaded);
        }
        check(plan)?;
        let map = &self.skel.maps.forward;
        map.update(&0u32.to_ne_bytes(), &plan.to_bytes(), MapFlags::ANY)?;
        Ok(())
    }

    /// Assigns a socket to the receive queue to which it is bound.
    ///
    /// # Errors
    /// [`ForwardError::Map`].
    pub fn set_socket(
        &self,
        exit: usize,
        queue: u32,
        socket: BorrowedFd<'_>,
    ) -> Result<(), ForwardError> {
        if !self.forwards {
            return Err(ForwardError::NotLoaded);
        }
        // Values out of range are outside the map.
        let key = match queue {
            queue if queue < EXIT_QUEUES => exit as u32 * EXIT_QUEUES + queue,
            _ => u32::MAX,
        };
        let fd = socket.as_raw_fd().to_ne_bytes();
        let map = &self.skel.maps.sockets;
        Ok(map.update(&key.to_ne_bytes(), &fd, MapFlags::ANY)?)
    }

    /// Attaches `rtt_forward` to an interface of the current network namespace, in place of the
    /// measuring XDP program. An interface of two exits has it once.
    ///
    /// [`AttachError`]: names another XDP program, which is not replaced.
    pub fn attach_forward(
        &mut self,
        ifindex: IfIndex,
        name: &str,
    ) -> Result<Attached, AttachError> {
        let program = &mut self.skel.progs.rtt_forward;
        let attached = stage::attach(program, Stage::Forward, ifindex, name)?;
        self.watch(ifindex);
        Ok(attached)
    }

    /// Frames so far by ingress interface and outcome.
    pub fn outcomes(&self) -> [ExitOutcomes; EXITS] {
        let frames = |exit: usize, outcome: usize| {
            let key = (exit * ForwardOutcome::COUNT + outcome) as u32;
            let row = self
                .skel
                .maps
                .outcomes
                .lookup_percpu(&key.to_ne_bytes(), MapFlags::ANY);
            let cpus = row.ok().flatten().unwrap_or_default();
            let count = |cpu: &Vec<u8>| cpu.first_chunk().map_or(0, |b| u64::from_ne_bytes(*b));
            cpus.iter().map(count).sum()
        };
        std::array::from_fn(|exit| {
            ExitOutcomes(std::array::from_fn(|outcome| frames(exit, outcome)))
        })
    }

    /// Runs `rtt_forward` once over a frame, as if it came by an interface with the program, and
    /// returns the result. Nothing is sent. For tests.
    ///
    /// # Errors
    /// [`RunError::TestRun`].
    pub fn run_forward(&self, ifindex: IfIndex, frame: &[u8]) -> Result<Ran, RunError> {
        // `struct xdp_md`: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex.
        let words = [0, frame.len() as u32, 0, ifindex.0, 0, 0];
        let mut context: Vec<u8> = words.into_iter().flat_map(u32::to_ne_bytes).collect();
        let mut after = context.clone();
        let mut data = vec![0; frame.len() + CAPACITY_BYTES];
        let input = ProgramInput {
            context_in: Some(&mut context),
            context_out: Some(&mut after),
            data_in: Some(frame),
            data_out: Some(&mut data),
            ..ProgramInput::default()
        };
        let program = &self.skel.progs.rtt_forward;
        let verdict = program
            .test_run(input)
            .map_err(RunError::TestRun)?
            .return_value;
        let [begin, end] = [0, 4].map(|at| {
            let word = after[at..].first_chunk().copied().unwrap_or_default();
            u32::from_ne_bytes(word) as usize
        });
        Ok(Ran {
            verdict,
            note: data[..begin].to_vec(),
            frame: data[begin..end].to_vec(),
        })
    }

    /// A reader of the traffic of the stack on the egress interfaces, for another thread. It needs
    /// the tcx egress programs on these interfaces.
    ///
    /// # Errors
    /// [`ForwardError`].
    pub fn stack_sent(&self) -> Result<StackSent, ForwardError> {
        if !self.forwards {
            return Err(ForwardError::NotLoaded);
        }
        Ok(StackSent::map(self.skel.maps.stack_sent.as_fd())?)
    }
}

/// The result of [`RttMonitor::run_forward`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// 1 dropped, 2 passed, 4 redirected.
    pub verdict: u32,
    /// The bytes before the frame.
    pub note: Vec<u8>,
    /// The frame afterwards.
    pub frame: Vec<u8>,
}

fn check(plan: &ForwardPlan) -> Result<(), ForwardError> {
    let [a, b] = &plan.exits;
    let tags = [a.vlan, b.vlan];
    let tagged = tags.map(|vlan| vlan != 0);
    if a.ifindex == b.ifindex && (a.vlan == b.vlan || tagged != [true, true]) {
        let (ifindex, vlan) = (a.ifindex, a.vlan);
        return Err(ForwardError::SameExits { ifindex, vlan });
    }
    if plan.forwarding == Forwarding::Bridge && tagged[0] != tagged[1] {
        return Err(ForwardError::Tags(tags));
    }
    match plan.own.len() {
        0..=MAX_OWN => Ok(()),
        own => Err(ForwardError::Own(own)),
    }
}

#[cfg(test)]
mod tests {
    use fairpath_core::sched::End;

    use super::*;

    fn plan(ifindexes: [u32; 2], vlans: [u16; 2], forwarding: Forwarding) -> ForwardPlan {
        let exit = |i: usize| Exit {
            ifindex: IfIndex(ifindexes[i]),
            route: IfIndex(ifindexes[i]),
            end: End::Sender,
            mtu: 1500,
            vlan: vlans[i],
            mac: [2; 6],
            stack_seen: false,
            sender: SenderCheck::default(),
        };
        ForwardPlan {
            forwarding,
            exits: [exit(0), exit(1)],
            own: Vec::new(),
        }
    }

    #[test]
    fn identical_egress_interfaces_are_refused() {
        use Forwarding::{Bridge, Router};
        for (ifindexes, vlans, forwarding, fine) in [
            ([1, 2], [0, 0], Bridge, true),
            ([1, 2], [5, 6], Bridge, true),
            ([1, 2], [5, 0], Bridge, false),
            ([1, 2], [5, 0], Router, true),
            ([1, 1], [5, 6], Bridge, true),
            ([1, 1], [5, 5], Router, false),
            ([1, 1], [0, 6], Router, false),
        ] {
            let checked = check(&plan(ifindexes, vlans, forwarding));
            assert_eq!(
                checked.is_ok(),
                fine,
                "{vlans:?} {forwarding:?} {checked:?}"
            );
        }
        let mut many = plan([1, 2], [0, 0], Bridge);
        many.own = vec![[2; 6]; 5];
        assert!(matches!(check(&many), Err(ForwardError::Own(5))));
    }
}
