//! Packets and rule sets of the tests.

use fairpath_rules::{
    ChainId, Connection, Counters, Facts, Family, Hook, Outcome, Packet, Reference, Ruleset, Sets,
    Unknown, Verdict,
};

use super::ruleset::ruleset;

/// The answer of a rule for a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    Yes,
    No,
    /// The packet is dropped without a match.
    Hot,
    Unknown(Unknown),
}

pub const YES: Want = Want::Yes;
pub const NO: Want = Want::No;
pub const HOT: Want = Want::Hot;

/// A frame with the facts of a packet.
#[derive(Debug, Clone)]
pub struct Frame {
    pub family: Family,
    pub bytes: Vec<u8>,
    pub network: usize,
    pub length: usize,
    pub facts: Facts,
}

impl Frame {
    pub fn packet(&self) -> Packet<'_> {
        Packet {
            family: self.family,
            bytes: &self.bytes,
            network: self.network,
            length: self.length,
            facts: self.facts.clone(),
        }
    }

    /// Changes a byte after the network header's start.
    pub fn with(mut self, at: usize, bytes: &[u8]) -> Self {
        let at = self.network + at;
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    pub fn facts(mut self, change: impl FnOnce(&mut Facts)) -> Self {
        change(&mut self.facts);
        self
    }

    /// Ends the packet, on the wire and in its header.
    pub fn shorter(mut self, length: usize) -> Self {
        self.bytes.truncate(self.network + length);
        self.length = length;
        match self.family {
            Family::Ipv4 => self.with(2, &(length as u16).to_be_bytes()),
            Family::Ipv6 => self.with(4, &(length as u16 - 40).to_be_bytes()),
            _ => self,
        }
    }

    /// Cuts captured bytes; the packet stays as long as it was.
    pub fn captured(mut self, length: usize) -> Self {
        self.bytes.truncate(self.network + length);
        self
    }
}

pub fn facts() -> Facts {
    Facts {
        input: Some(b"eth0"[..].into()),
        output: Some(b""[..].into()),
        physical_input: Some(b""[..].into()),
        physical_output: Some(b""[..].into()),
        connection: Some(Connection {
            state: 2,
            ..Connection::default()
        }),
        now: 1_000_000_000_000,
        ..Facts::default()
    }
}

const MACS: [u8; 12] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];

fn ethernet(ty: u16) -> Vec<u8> {
    let mut bytes = MACS.to_vec();
    bytes.extend(ty.to_be_bytes());
    bytes
}

/// 10.0.0.1 to 10.0.0.2, TTL 64, TOS 0x28.
pub fn v4(protocol: u8, payload: &[u8]) -> Frame {
    let mut bytes = ethernet(0x0800);
    let length = 20 + payload.len();
    bytes.extend([0x45, 0x28, (length >> 8) as u8, length as u8]);
    bytes.extend([0, 1, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    bytes.extend(payload);
    Frame {
        family: Family::Ipv4,
        bytes,
        network: 14,
        length,
        facts: facts(),
    }
}

/// 2001:db8::1 to 2001:db8::2, hop limit 64, traffic class 0x28.
pub fn v6(next: u8, payload: &[u8]) -> Frame {
    let mut bytes = ethernet(0x86dd);
    bytes.extend([0x62, 0x80, 0, 0]);
    bytes.extend((payload.len() as u16).to_be_bytes());
    bytes.extend([next, 64]);
    for last in [1, 2] {
        bytes.extend([
            0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last,
        ]);
    }
    bytes.extend(payload);
    Frame {
        family: Family::Ipv6,
        bytes,
        network: 14,
        length: 40 + payload.len(),
        facts: facts(),
    }
}

/// A TCP header from port 1000 to port 80, with flags and options (multiples of 4 bytes).
pub fn tcp(flags: u8, options: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x03, 0xe8, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0];
    bytes.extend([((20 + options.len()) as u8 / 4) << 4, flags]);
    bytes.extend([0, 0, 0, 0, 0, 0]);
    bytes.extend(options);
    bytes
}

/// A UDP header from port 1000 to port 53 with 8 bytes of data.
pub fn udp() -> Vec<u8> {
    let mut bytes = vec![0x03, 0xe8, 0, 53, 0, 16, 0, 0];
    bytes.extend([0; 8]);
    bytes
}

/// A frame of a bridge.
pub fn bridge(ty: u16, payload: &[u8]) -> Frame {
    let mut bytes = ethernet(ty);
    bytes.extend(payload);
    Frame {
        family: Family::Bridge,
        bytes,
        network: 14,
        length: payload.len(),
        facts: facts(),
    }
}

/// An ARP request of 10.0.0.1 for 10.0.0.2.
pub fn arp_bytes() -> Vec<u8> {
    let mut bytes = vec![0, 1, 8, 0, 6, 4, 0, 1];
    bytes.extend([2, 0, 0, 0, 0, 1, 10, 0, 0, 1]);
    bytes.extend([0, 0, 0, 0, 0, 0, 10, 0, 0, 2]);
    bytes
}

pub fn arp() -> Frame {
    Frame {
        family: Family::Arp,
        ..bridge(0x0806, &arp_bytes())
    }
}

/// A table filter with an INPUT chain and these lines.
pub fn filter(family: Family, lines: &str) -> Ruleset {
    let commit = if family.is_ip() { "COMMIT\n" } else { "" };
    ruleset(
        family,
        &format!("*filter\n:INPUT ACCEPT\n:FORWARD ACCEPT\n:OUTPUT ACCEPT\n{lines}\n{commit}"),
    )
}

pub fn base(ruleset: &Ruleset, table: &str, chain: &str) -> ChainId {
    ruleset
        .table(table)
        .and_then(|table| table.find(chain.as_bytes()))
        .unwrap()
}

/// Counters of the rules of a chain, packets only.
pub fn packets(reference: &Reference, ruleset: &Ruleset, chain: &str) -> Vec<u64> {
    let id = base(ruleset, "filter", chain);
    let rules = ruleset.table("filter").unwrap().get(id).rules.len();
    (0..rules)
        .map(|rule| reference.counters("filter", id, rule).packets)
        .collect()
}

pub fn policy(reference: &Reference, ruleset: &Ruleset, chain: &str) -> Counters {
    reference.policy_counters("filter", base(ruleset, "filter", chain))
}

pub fn want(outcome: &Outcome) -> Want {
    match (&outcome.verdict, outcome.at) {
        (Verdict::Unknown(unknown), _) => Want::Unknown(*unknown),
        (Verdict::Drop, None) => Want::Hot,
        (Verdict::Drop, Some(_)) => Want::Yes,
        _ => Want::No,
    }
}

/// The answer of one rule with these options.
pub fn answer(options: &str, frame: &Frame) -> Want {
    answer_with(options, frame, None)
}

pub fn answer_with(options: &str, frame: &Frame, sets: Option<&Sets>) -> Want {
    let ruleset = filter(frame.family, &format!("-A INPUT {options} -j DROP"));
    let mut reference = Reference::new(&ruleset, sets);
    want(&reference.evaluate(Hook::Input, &frame.packet()))
}

pub fn check(cases: &[(&str, &Frame, Want)]) {
    for (options, frame, want) in cases {
        assert_eq!(answer(options, frame), *want, "{options}");
    }
}

/// The answers of one rule for the same packet at these seconds.
pub fn answers_at(options: &str, frame: &Frame, seconds: &[f64]) -> Vec<bool> {
    let ruleset = filter(frame.family, &format!("-A INPUT {options} -j DROP"));
    let mut reference = Reference::new(&ruleset, None);
    let mut at = |second: &f64| {
        let frame = frame.clone().facts(|facts| {
            facts.now = 1_000_000_000_000 + (second * 1e9).round() as u64;
        });
        want(&reference.evaluate(Hook::Input, &frame.packet())) == YES
    };
    seconds.iter().map(&mut at).collect()
}
