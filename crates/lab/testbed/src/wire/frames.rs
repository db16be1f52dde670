//! Frames by hand: a packet socket on an interface, for what no stack would send.

use std::io;

use super::port::{Inbox, Port, Received};
use crate::netns::Netns;

/// A packet socket could not be used.
#[derive(Debug, thiserror::Error)]
#[error("send and receive frames on \"{ifname}\": {source}; needs CAP_NET_RAW and the link up")]
pub struct FrameError {
    /// The interface.
    pub ifname: String,
    /// The cause.
    pub source: io::Error,
}

/// Sends frames as they are, and sees those that arrive, VLAN tags in place.
#[derive(Debug)]
pub struct FrameSocket {
    ifname: String,
    port: Port,
    inbox: Inbox,
}

impl FrameSocket {
    /// On an interface of `ns`.
    ///
    /// # Errors
    /// [`FrameError`], also where the namespace cannot be entered.
    pub fn open(ns: &Netns, ifname: &str) -> Result<FrameSocket, FrameError> {
        let opened = ns.enter(|| Port::packet(ifname));
        let ifname = ifname.to_owned();
        match opened.map_err(io::Error::other).and_then(|opened| opened) {
            Ok(port) => Ok(FrameSocket {
                ifname,
                port,
                inbox: Inbox::new(),
            }),
            Err(source) => Err(FrameError { ifname, source }),
        }
    }

    /// Sends a frame, from its Ethernet header on.
    ///
    /// # Errors
    /// [`FrameError`].
    pub fn send(&self, frame: &[u8]) -> Result<(), FrameError> {
        self.port.send(frame).map_err(|error| FrameError {
            ifname: self.ifname.clone(),
            source: error.into(),
        })
    }

    /// The next frame that has arrived, if there is one.
    pub fn receive(&mut self) -> Option<Vec<u8>> {
        match self.port.receive(&mut self.inbox) {
            Received::Frame { .. } => Some(self.inbox.frame().to_vec()),
            Received::Oversized | Received::Empty | Received::Broken => None,
        }
    }
}
