//! New TCP flows at a rate: handshakes that complete and are reset, from ever other addresses.
//!
//! ```text
//!   client's side                         server's side
//!   SYN       198.18.x.y:p  -> 198.19.0.1:443
//!                                <-       SYN-ACK
//!   ACK                     ->
//!                                <-       RST-ACK
//! ```
//!
//! One thread sends all four from both sides in their order, so each flow passes the router whole.
//! No host answers: the addresses are routed to the two ends, which do not have them.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fairpath_testbed::Netns;
use fairpath_wire::{Frame, tcp};

use crate::flood::raw_socket;

/// Where flows come from: RFC 2544, never routed outside.
pub const CLIENTS: &str = "198.18.0.0/16";
/// Where they go to.
pub const SERVERS: &str = "198.19.0.0/16";
/// Flows started between two readings of the clock.
const BURST: u64 = 16;
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 19, 0, 1);
/// Offsets in a packet without a link header.
const SOURCE: usize = 12;
const DESTINATION: usize = 16;
const SOURCE_PORT: usize = 20;
const DESTINATION_PORT: usize = 22;

/// A running generator; ends when stopped or dropped.
#[derive(Debug)]
pub struct NewFlows {
    state: Arc<State>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

#[derive(Debug, Default)]
struct State {
    stop: AtomicBool,
    begun: AtomicU64,
}

impl NewFlows {
    /// Begins up to `rate` flows a second between two namespaces that route [`CLIENTS`] and
    /// [`SERVERS`] to each other.
    ///
    /// # Errors
    /// Where a raw socket is refused.
    pub fn start(client: &Netns, server: &Netns, rate: u64) -> io::Result<NewFlows> {
        let sockets = [
            client.enter(raw_socket).map_err(io::Error::other)??,
            server.enter(raw_socket).map_err(io::Error::other)??,
        ];
        let state = Arc::<State>::default();
        let theirs = Arc::clone(&state);
        let thread = thread::spawn(move || send(&sockets, rate, &theirs));
        Ok(NewFlows {
            state,
            thread: Some(thread),
        })
    }

    /// Flows begun so far.
    pub fn begun(&self) -> u64 {
        self.state.begun.load(Ordering::Relaxed)
    }

    /// Ends it and returns the number of started flows.
    ///
    /// # Errors
    /// What a send said.
    pub fn stop(mut self) -> io::Result<u64> {
        self.state.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("only stop() and drop() take it");
        thread.join().expect("the sender does not panic")?;
        Ok(self.begun())
    }
}

impl Drop for NewFlows {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // What went wrong in it has been printed.
            let _ = thread.join();
        }
    }
}

/// One of a flow's packets; the client's address and port are patched in.
struct Step {
    packet: Vec<u8>,
    from_client: bool,
}

fn steps() -> [Step; 4] {
    let step = |from_client, flags, seq, ack| {
        let (source, destination) = if from_client {
            (Ipv4Addr::UNSPECIFIED, SERVER)
        } else {
            (SERVER, Ipv4Addr::UNSPECIFIED)
        };
        let header = tcp::Header {
            src_port: if from_client { 0 } else { 443 },
            dst_port: if from_client { 443 } else { 0 },
            seq,
            ack,
            flags,
            window: 64_240,
            ..tcp::Header::default()
        };
        Step {
            packet: Frame::raw().ipv4(source, destination).tcp(header).build(),
            from_client,
        }
    };
    use tcp::Flags;
    [
        step(true, Flags::SYN, 1, 0),
        step(false, Flags::SYN | Flags::ACK, 7, 2),
        step(true, Flags::ACK, 2, 8),
        step(false, Flags::RST | Flags::ACK, 8, 2),
    ]
}

impl Step {
    /// Checksums of TCP stay wrong: neither the ends nor a router check them.
    fn send(&mut self, sockets: &[UdpSocket; 2], flow: u64) -> io::Result<()> {
        let host = Ipv4Addr::new(198, 18, (flow >> 8) as u8, flow as u8);
        let port = 1024 + ((flow >> 16) % 64_000) as u16;
        let (address_at, port_at) = if self.from_client {
            (SOURCE, SOURCE_PORT)
        } else {
            (DESTINATION, DESTINATION_PORT)
        };
        self.packet[address_at..address_at + 4].copy_from_slice(&host.octets());
        self.packet[port_at..port_at + 2].copy_from_slice(&port.to_be_bytes());
        let (socket, to) = if self.from_client {
            (&sockets[0], SERVER)
        } else {
            (&sockets[1], host)
        };
        match socket.send_to(&self.packet, SocketAddr::new(to.into(), 0)) {
            // The queue is full: the flow is the poorer for a packet.
            Err(error) if error.raw_os_error() == Some(105) => Ok(()),
            other => other.map(drop),
        }
    }
}

fn send(sockets: &[UdpSocket; 2], rate: u64, state: &State) -> io::Result<()> {
    let (mut steps, mut begun) = (steps(), 0);
    let begin = Instant::now();
    while !state.stop.load(Ordering::Relaxed) {
        let due = (begin.elapsed().as_micros() as u64).saturating_mul(rate) / 1_000_000;
        if begun >= due {
            thread::sleep(Duration::from_micros(200));
            continue;
        }
        for _ in 0..BURST.min(due - begun) {
            for step in &mut steps {
                step.send(sockets, begun)?;
            }
            begun += 1;
        }
        state.begun.store(begun, Ordering::Relaxed);
    }
    Ok(())
}
