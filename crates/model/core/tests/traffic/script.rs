//! Hand-made packets: one line of a test is one packet, and the monitor is asked right after it.
//!
//! ```text
//! let mut talk = Talk::new(Config::default());
//! talk.at(10).from(A).seq(1001).ack(501).data(100).ts(7, 3).send();
//! ```
//!
//! Times are milliseconds. Host A is 10.0.0.0:40000, host B 192.0.2.1:443.

use fairpath_core::{Config, Event, FlowRecord, Frame, Monitor, Sample};
use fairpath_wire::tcp::Flags;

use super::{Flow, MS, Observed, Packet};

pub const A: usize = 0;
pub const B: usize = 1;

/// A monitor and its events.
pub struct Talk {
    pub monitor: Monitor,
    pub flow: Flow,
    pub samples: Vec<Sample>,
    pub opened: Vec<FlowRecord>,
    pub ended: Vec<FlowRecord>,
    number: u64,
}

impl Talk {
    pub fn new(config: Config) -> Talk {
        Talk {
            monitor: Monitor::new(&config),
            flow: Flow::numbered(0),
            samples: Vec::new(),
            opened: Vec::new(),
            ended: Vec::new(),
            number: 0,
        }
    }

    pub fn default() -> Talk {
        Talk::new(Config::default().with_flows(64))
    }

    pub fn at(&mut self, ms: u64) -> ScriptedPacket<'_> {
        self.at_ns(ms * MS)
    }

    pub fn at_ns(&mut self, at: u64) -> ScriptedPacket<'_> {
        let packet = Packet {
            flow: 0,
            from: A,
            seq: 0,
            ack: 0,
            flags: Flags::ACK,
            window: 1000,
            payload: 0,
            ts: None,
        };
        ScriptedPacket {
            talk: self,
            at,
            packet,
            meta: Frame::default(),
        }
    }

    /// Any frame; `meta.now` says when.
    pub fn frame(&mut self, meta: Frame, data: &[u8]) {
        let (samples, opened, ended) = (&mut self.samples, &mut self.opened, &mut self.ended);
        self.number += 1;
        let meta = Frame {
            number: self.number,
            ..meta
        };
        self.monitor.frame(&meta, data, |event| match event {
            Event::Sample(sample) => samples.push(sample),
            Event::Opened(record) => opened.push(record),
            Event::Closed(record) | Event::Alive(record) => ended.push(record),
        });
    }

    /// SYN, SYN-ACK, ACK from time `ms` on: A has 10 ms to its side, B 20. Both begin at 1000 and 500: data at 1001, 501.
    pub fn handshake(&mut self, ms: u64) {
        self.at(ms).seq(1000).flags(Flags::SYN).send();
        let syn_ack = Flags::SYN | Flags::ACK;
        self.at(ms + 20)
            .from(B)
            .seq(500)
            .ack(1001)
            .flags(syn_ack)
            .send();
        self.at(ms + 30).seq(1001).ack(501).send();
    }

    /// The same with timestamps: A's clock at 1, B's at 2.
    pub fn handshake_ts(&mut self, ms: u64) {
        self.at(ms).seq(1000).flags(Flags::SYN).ts(1, 0).send();
        let syn_ack = Flags::SYN | Flags::ACK;
        self.at(ms + 20)
            .from(B)
            .seq(500)
            .ack(1001)
            .flags(syn_ack)
            .ts(2, 1)
            .send();
        self.at(ms + 30).seq(1001).ack(501).ts(1, 2).send();
    }

    /// Reports the open flows.
    pub fn finish(&mut self) {
        let ended = &mut self.ended;
        self.monitor.finish(|event| match event {
            Event::Closed(record) | Event::Alive(record) => ended.push(record),
            other => panic!("only ends are reported at the end: {other:?}"),
        });
    }

    /// Round trips so far in milliseconds, and forgets them.
    pub fn rtts(&mut self) -> Vec<u64> {
        self.samples
            .drain(..)
            .map(|sample| sample.rtt / MS)
            .collect()
    }
}

/// A packet on its way into a [`Talk`].
#[must_use = "send it"]
pub struct ScriptedPacket<'a> {
    talk: &'a mut Talk,
    at: u64,
    pub packet: Packet,
    pub meta: Frame,
}

impl ScriptedPacket<'_> {
    pub fn from(mut self, host: usize) -> Self {
        self.packet.from = host;
        self
    }

    pub fn seq(mut self, seq: u32) -> Self {
        self.packet.seq = seq;
        self
    }

    pub fn ack(mut self, ack: u32) -> Self {
        self.packet.ack = ack;
        self
    }

    pub fn data(mut self, bytes: u32) -> Self {
        self.packet.payload = bytes;
        self
    }

    pub fn ts(mut self, tsval: u32, tsecr: u32) -> Self {
        self.packet.ts = Some((tsval, tsecr));
        self
    }

    pub fn flags(mut self, flags: Flags) -> Self {
        self.packet.flags = flags;
        self
    }

    pub fn window(mut self, window: u16) -> Self {
        self.packet.window = window;
        self
    }

    /// Changes what the driver says of the frame.
    pub fn seen(mut self, change: impl FnOnce(&mut Frame)) -> Self {
        change(&mut self.meta);
        self
    }

    pub fn send(self) {
        self.send_changed(|_| {});
    }

    /// Sends the frame after changing its bytes.
    pub fn send_changed(self, change: impl FnOnce(&mut Vec<u8>)) {
        let seen = Observed {
            at: self.at,
            number: 0,
            packet: self.packet,
        };
        let (mut meta, mut bytes) = self.talk.flow.frame(&seen);
        change(&mut bytes);
        let given = self.meta;
        meta.segs = given.segs;
        meta.ifindex = given.ifindex;
        meta.rx_ifindex = given.rx_ifindex;
        meta.direction = given.direction;
        meta.vlan = given.vlan;
        meta.flags = given.flags;
        self.talk.frame(meta, &bytes);
    }
}
