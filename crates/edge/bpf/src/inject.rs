//! Traffic for benchmarks: TCP with many flows from both sides of a router, counted at its
//! destination.

use std::mem::MaybeUninit;

use fairpath_units::IfIndex;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{OpenObject, ProgramInput};

use crate::attach::{self, AttachError, Attached, Hook};
use crate::skel::inject::{InjectSkel, InjectSkelBuilder};

/// Ethernet, IPv4, and TCP with timestamps.
const HEADER_BYTES: u32 = 66;
/// Ethernet.
const LINK_BYTES: u32 = 14;
/// Bytes of one of the kernel's frames for a run.
const MAX_IP_BYTES: u32 = 1500;
/// Maximum of flows by addresses and ports.
const MAX_FLOWS: u32 = 4096 * 60_000;

/// The traffic could not be generated.
#[derive(Debug, thiserror::Error)]
pub enum InjectError {
    /// The kernel refused the programs.
    #[error("load the traffic generator: {0}; needs CAP_BPF and CAP_NET_ADMIN")]
    Refused(#[from] libbpf_rs::Error),
    /// The sink could not be attached.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// Injecting failed.
    #[error("inject packets: {0}; needs live frames in BPF_PROG_TEST_RUN (Linux 5.18)")]
    Run(#[source] libbpf_rs::Error),
    /// Unsupported packets.
    #[error(
        "generate traffic of {flows} flows and packets of {ip_bytes} bytes: use 1 to {MAX_FLOWS} flows and 53 to {MAX_IP_BYTES} bytes"
    )]
    Traffic {
        /// Requested.
        flows: u32,
        /// Requested.
        ip_bytes: u32,
    },
}

/// One side of the traffic: its interface, and that of the router.
#[derive(Clone, Copy, Debug)]
pub struct Side {
    /// The interface towards the router.
    pub ifindex: IfIndex,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// The MAC address of the router on the same link.
    pub router: [u8; 6],
}

/// The hook that counts and drops packets at their destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sink {
    /// XDP. A veth copies packets with less headroom than XDP needs before: those that were sent
    /// through AF_XDP, and none that the stack forwarded.
    Xdp,
    /// tcx ingress of an interface without XDP: nothing is copied.
    Tcx,
}

/// The traffic: data from the clients, and an ACK for each data packet from the servers.
#[derive(Clone, Copy, Debug)]
pub struct Traffic {
    /// The side of the clients (10.64.0.0/10).
    pub clients: Side,
    /// The side of the servers (10.128.0.0/10).
    pub servers: Side,
    /// 5-tuples, used in turn for each packet.
    pub flows: u32,
    /// Bytes of a data packet from the IP header.
    pub ip_bytes: u32,
    /// Number of data packets, of all flows, between data and its ACK.
    pub lag: u32,
    /// Where forwarded packets end.
    pub sink: Sink,
    /// Instead of data and ACKs: data only, to random destinations, the same in each run.
    pub fan: Option<Fan>,
}

/// Destinations `A.B.C.D`, all equally likely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fan {
    /// The number of values of A, from [`Fan::FIRST`] on; of B and C, from 0 on; and of D, which are 1 and each
    /// [`Fan::HOSTS`] more. Below 1 counts as 1.
    pub each: [u32; 4],
}

impl Fan {
    /// The first A.
    pub const FIRST: u32 = 16;
    /// From a D to the next one.
    pub const HOSTS: u32 = 16;
}

/// Packets that the router forwarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrived {
    /// At the servers.
    pub data: u64,
    /// At the clients.
    pub acks: u64,
}

impl Arrived {
    /// Both.
    pub fn packets(&self) -> u64 {
        self.data + self.acks
    }

    /// The difference to `earlier`.
    #[must_use]
    pub fn since(&self, earlier: Arrived) -> Arrived {
        Arrived {
            data: self.data - earlier.data,
            acks: self.acks - earlier.acks,
        }
    }
}

/// The generator and its sinks, removed on drop.
pub struct Injector {
    skel: InjectSkel<'static>,
    frame: Vec<u8>,
    _sinks: [Attached; 2],
}

impl Injector {
    /// Loads the generator and attaches its sinks to both sides, which must be in the current
    /// network namespace. The router's interfaces need an XDP program (or GRO) to accept frames.
    ///
    /// # Errors
    /// [`InjectError`].
    pub fn new(traffic: &Traffic) -> Result<Injector, InjectError> {
        let Traffic {
            flows, ip_bytes, ..
        } = *traffic;
        let min = HEADER_BYTES - LINK_BYTES + 1;
        if !(1..=MAX_FLOWS).contains(&flows) || !(min..=MAX_IP_BYTES).contains(&ip_bytes) {
            return Err(InjectError::Traffic { flows, ip_bytes });
        }
        let place: &'static mut MaybeUninit<OpenObject> =
            Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = InjectSkelBuilder::default().open(place)?;
        if let Some(set) = open.maps.rodata_data.as_deref_mut() {
            set.inject_flows = flows;
            set.inject_lag = traffic.lag;
            set.inject_ip_bytes = ip_bytes;
            if let Some(fan) = traffic.fan {
                set.inject_fan = fan.each.map(|each| each.max(1));
            }
            for (i, side) in [traffic.clients, traffic.servers].into_iter().enumerate() {
                set.inject_link[i] = side.ifindex.0;
                set.inject_from[i] = side.mac;
                set.inject_to[i] = side.router;
            }
        }
        let mut skel = open.load()?;
        let mut sink = |side: Side, name| {
            let (program, hook) = match traffic.sink {
                Sink::Xdp => (&mut skel.progs.sink, Hook::Xdp),
                Sink::Tcx => (&mut skel.progs.sink_skb, Hook::TcxIngress),
            };
            attach::attach(program, hook, side.ifindex, name)
        };
        let sinks = [
            sink(traffic.clients, "clients")?,
            sink(traffic.servers, "servers")?,
        ];
        Ok(Injector {
            skel,
            frame: vec![0; (ip_bytes + LINK_BYTES) as usize],
            _sinks: sinks,
        })
    }

    /// Sends `packets`, half of them data, from the thread's CPU and namespace.
    ///
    /// # Errors
    /// [`InjectError::Run`].
    pub fn send(&self, packets: u32) -> Result<(), InjectError> {
        let input = ProgramInput {
            data_in: Some(&self.frame),
            flags: libbpf_sys::BPF_F_TEST_XDP_LIVE_FRAMES,
            repeat: packets,
            ..ProgramInput::default()
        };
        let run = self.skel.progs.inject.test_run(input);
        run.map(drop).map_err(InjectError::Run)
    }

    /// Sent packets, including those dropped before the first ACKs were due.
    pub fn sent(&self) -> u64 {
        self.skel.maps.bss_data.as_deref().map_or(0, |bss| {
            // SAFETY: mapped memory that the program adds to; one aligned load.
            unsafe { (&raw const bss.injected).read_volatile() }
        })
    }

    /// Packets forwarded so far.
    pub fn arrived(&self) -> Arrived {
        let bss = self.skel.maps.bss_data.as_deref();
        bss.map_or_else(Arrived::default, |bss| {
            // SAFETY: mapped memory that the program adds to; an aligned load for each.
            let [acks, data] = unsafe { (&raw const bss.arrived).read_volatile() };
            Arrived { data, acks }
        })
    }
}

impl std::fmt::Debug for Injector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Injector")
            .field("sent", &self.sent())
            .field("arrived", &self.arrived())
            .finish()
    }
}
