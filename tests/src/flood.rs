//! SYNs from everywhere to one closed port: a raw socket, paced to a rate.
//!
//! Source address and port are random; the sequence number is their complement, so that one
//! checksum is right for all of them.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fairpath_testbed::Netns;
use fairpath_wire::{Frame, tcp};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockProtocol, SockType, setsockopt, socket, sockopt,
};

/// Sources are here (RFC 2544: never routed outside), and no host answers them.
pub const SOURCES: &str = "198.18.0.0/16";
/// SYNs sent between two readings of the clock.
const BURST: u64 = 64;
const SEED: u64 = 0x5eed_f10d;

/// A running flood; ends when stopped or dropped.
#[derive(Debug)]
pub struct Flood {
    state: Arc<State>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

#[derive(Debug, Default)]
struct State {
    stop: AtomicBool,
    sent: AtomicU64,
}

impl Flood {
    /// Floods `to` from inside `ns` with up to `rate` SYNs a second.
    ///
    /// # Errors
    /// Where a raw socket is refused.
    pub fn start(ns: &Netns, to: Ipv4Addr, port: u16, rate: u64) -> io::Result<Flood> {
        let open = || -> io::Result<UdpSocket> {
            let raw = raw_socket()?;
            raw.connect(SocketAddr::new(to.into(), 0))?;
            Ok(raw)
        };
        let raw = ns.enter(open).map_err(io::Error::other)??;
        let state = Arc::<State>::default();
        let theirs = Arc::clone(&state);
        let thread = thread::spawn(move || send(&raw, &template(to, port), rate, &theirs));
        Ok(Flood {
            state,
            thread: Some(thread),
        })
    }

    /// SYNs sent so far.
    pub fn sent(&self) -> u64 {
        self.state.sent.load(Ordering::Relaxed)
    }

    /// Ends it and returns the number of sent SYNs.
    ///
    /// # Errors
    /// What a send said.
    pub fn stop(mut self) -> io::Result<u64> {
        self.state.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("only stop() and drop() take it");
        thread.join().expect("the sender does not panic")?;
        Ok(self.sent())
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // What went wrong in it has been printed.
            let _ = thread.join();
        }
    }
}

/// Sends whole IP packets as they are given, from the namespace it was made in.
pub(crate) fn raw_socket() -> io::Result<UdpSocket> {
    let raw = socket(
        AddressFamily::Inet,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::Raw,
    )?;
    setsockopt(&raw, sockopt::SndBuf, &(1 << 20))?;
    // Only to say connect() and send() without unsafe code: it stays a raw socket.
    Ok(UdpSocket::from(raw))
}

/// A SYN whose low address word, source port and sequence number are 0 in sum.
fn template(to: Ipv4Addr, port: u16) -> Vec<u8> {
    let header = tcp::Header {
        dst_port: port,
        seq: u32::MAX,
        flags: tcp::Flags::SYN,
        window: 64_240,
        ..tcp::Header::default()
    };
    Frame::raw()
        .ipv4(Ipv4Addr::new(198, 18, 0, 0), to)
        .tcp(header)
        .build()
}

fn send(raw: &UdpSocket, template: &[u8], rate: u64, state: &State) -> io::Result<()> {
    let (mut packet, mut random, mut sent) = (template.to_vec(), SEED, 0);
    let begin = Instant::now();
    while !state.stop.load(Ordering::Relaxed) {
        let due = begin.elapsed().as_micros() as u64 * rate / 1_000_000;
        if sent >= due {
            thread::sleep(Duration::from_micros(200));
            continue;
        }
        for _ in 0..BURST.min(due - sent) {
            // Knuth's MMIX generator; its high half is random enough.
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let word = (random >> 32) as u32;
            packet[14..16].copy_from_slice(&(word as u16).to_be_bytes());
            packet[20..22].copy_from_slice(&((word >> 16) as u16).to_be_bytes());
            packet[24..28].copy_from_slice(&(!word).to_be_bytes());
            match raw.send(&packet) {
                // The queue is full: that is what floods do.
                Err(error) if error.raw_os_error() == Some(105) => {}
                other => drop(other?),
            }
            sent += 1;
        }
        state.sent.store(sent, Ordering::Relaxed);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_checksum_is_right_for_all_sources() {
        let to = Ipv4Addr::new(10, 0, 0, 1);
        let sum = |src: Ipv4Addr, port, seq| {
            let header = tcp::Header {
                src_port: port,
                dst_port: 9,
                seq,
                flags: tcp::Flags::SYN,
                window: 64_240,
                ..tcp::Header::default()
            };
            let packet = Frame::raw().ipv4(src, to).tcp(header).build();
            [packet[36], packet[37]]
        };
        let blank = template(to, 9);
        for word in [0x1234_5678_u32, 0xffff_0001, 0x8000_7fff] {
            let src = Ipv4Addr::from(0xc612_0000 | (word & 0xffff));
            assert_eq!(sum(src, (word >> 16) as u16, !word), [blank[36], blank[37]]);
        }
    }
}
