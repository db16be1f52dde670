//! Packets of [`crate::packet`] to the core and back.

use fairpath_core::rules::{
    CONNECTIONS, CounterMode, Evaluator, HAS_LINK, HEAD, ImageError, MSS_OF_PATH, WORDS, Work,
    action, changed, known, meta, word,
};

use crate::image::{Applied, Built, Live, reads_connection};
use crate::packet::{Changes, Connection, Facts, MssLimit, Packet, Unknown, Verdict};
use crate::tree::{ChainId, Counters, Family, Hook};

/// The native core with the image of a set.
pub struct Core {
    evaluator: Evaluator,
    mode: CounterMode,
    work: Box<Work>,
    /// Bits of each word that the rules read.
    reads: [u64; WORDS],
}

/// The outcome of a packet in the core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoreOutcome {
    /// The verdict.
    pub verdict: Verdict,
    /// The id of the rule that decided; none: a policy, or a header that was cut short.
    pub rule: Option<u32>,
    /// Changes of the packet.
    pub changes: Changes,
    /// Rules that were compared.
    pub evaluated: u32,
    /// Ids of rules and policies that matched, in order.
    pub matched: Vec<u32>,
}

impl Core {
    /// Checks the image and makes its memory.
    ///
    /// # Errors
    ///
    /// [`ImageError`]: the image is corrupt.
    pub fn new(built: &Built, mode: CounterMode) -> Result<Self, ImageError> {
        Ok(Self {
            evaluator: Evaluator::new(&built.image, &built.states, mode)?,
            mode,
            work: Work::new(),
            reads: built.reads,
        })
    }

    /// The same for the image of a set that is edited.
    ///
    /// # Errors
    ///
    /// [`ImageError`]: the image is corrupt.
    pub fn follow(live: &Live, mode: CounterMode) -> Result<Self, ImageError> {
        let mut evaluator = Evaluator::new(live.image().bytes(), live.states(), mode)?;
        evaluator.memory_mut().follow(live.image());
        Ok(Self {
            evaluator,
            mode,
            work: Work::new(),
            reads: [u64::MAX; WORDS],
        })
    }

    /// Follows an edit of the set. Rules that stay keep counters and state.
    ///
    /// # Errors
    ///
    /// [`ImageError`]: the image is corrupt.
    ///
    /// # Panics
    ///
    /// An edit before this one is missing.
    pub fn apply(&mut self, live: &Live, applied: &Applied) -> Result<(), ImageError> {
        match applied {
            Applied::Patch(patch) => self.evaluator.memory_mut().apply(live.image(), patch),
            Applied::Rebuilt(carry) => {
                let mut next = Core::follow(live, self.mode)?.evaluator;
                next.memory_mut().carry(self.evaluator.memory(), carry);
                self.evaluator = next;
            }
        }
        Ok(())
    }

    /// Runs all tables at a hook. `None`: rules do not see the packet, because the kernel drops it
    /// before, or because it is not of the family.
    pub fn evaluate(&mut self, hook: Hook, packet: &Packet) -> Option<CoreOutcome> {
        self.run(packet, |evaluator, work| {
            evaluator.evaluate(hook as u32, work)
        })
    }

    /// Runs one base chain.
    pub fn evaluate_chain(&mut self, chain: u32, packet: &Packet) -> Option<CoreOutcome> {
        self.run(packet, |evaluator, work| {
            evaluator.evaluate_chain(chain, work)
        })
    }

    /// True if the packet is dropped in the driver, because table raw drops it in PREROUTING without another
    /// effect. It is counted then.
    pub fn drop_early(&mut self, packet: &Packet) -> bool {
        fill_for(&mut self.work, packet, &self.reads);
        let length = packet.length as u32;
        self.evaluator.read(&mut self.work)
            && self
                .evaluator
                .memory_mut()
                .drop_early(&mut self.work, length)
    }

    fn run<T>(
        &mut self,
        packet: &Packet,
        evaluate: impl FnOnce(&mut Evaluator, &mut Work) -> T,
    ) -> Option<CoreOutcome> {
        fill_for(&mut self.work, packet, &self.reads);
        if self.evaluator.read(&mut self.work) {
            evaluate(&mut self.evaluator, &mut self.work);
        } else if is_cut(packet) {
            self.work.verdict = action::UNKNOWN;
            self.work.argument = Unknown::CutBytes as u32;
            self.work.rule = fairpath_core::rules::NONE;
        } else {
            return None;
        }
        Some(outcome(&self.work, packet))
    }

    /// Records the rules that match from now on.
    pub fn trace(&mut self, on: bool) {
        self.work.tracing = u32::from(on);
    }

    /// The counters of an id.
    pub fn counters(&self, id: u32) -> Counters {
        let counter = self.evaluator.memory().counter(id);
        Counters {
            packets: counter.packets,
            bytes: counter.bytes,
        }
    }

    /// The counters of a rule.
    pub fn rule_counters(
        &self,
        built: &Built,
        table: usize,
        chain: ChainId,
        rule: usize,
    ) -> Counters {
        self.counters(built.rule_id(table, chain, rule))
    }

    /// The evaluator, for benches.
    pub fn evaluator(&mut self) -> (&mut Evaluator, &mut Work) {
        (&mut self.evaluator, &mut self.work)
    }
}

/// Bytes of a link-layer header.
const LINK_BYTES: usize = 14;

/// True if the packet has a header of its family whose bytes were not captured.
fn is_cut(packet: &Packet) -> bool {
    let needed = match packet.family {
        Family::Ipv4 => 20,
        Family::Ipv6 => 40,
        Family::Arp => 28,
        Family::Bridge => 0,
    };
    packet.length >= needed && packet.network_bytes().len() < needed
}

/// Two words of a name, zero-padded.
fn name(name: &[u8]) -> [u64; 2] {
    let mut bytes = [0u8; 16];
    let length = name.len().min(15);
    bytes[..length].copy_from_slice(&name[..length]);
    [0, 8].map(|at| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes")))
}

/// Fills a scratch with a packet: everything that the core's reader does not read itself.
pub fn fill(work: &mut Work, packet: &Packet) {
    let facts = &packet.facts;
    work.word = [0; 16];
    work.unknown = [0; 16];
    work.physical = [0; 4];
    work.known = 0;
    work.family = packet.family as u32;
    let bytes = match packet.family {
        Family::Bridge if packet.network < LINK_BYTES => &[],
        Family::Bridge => packet.bytes,
        _ => packet.network_bytes(),
    };
    let length = bytes.len().min(HEAD);
    work.head[..length].copy_from_slice(&bytes[..length]);
    work.head[length..].fill(0);
    work.captured = length as u32;
    work.length = packet.length as u32;
    if packet.family == Family::Bridge {
        work.length += packet.network as u32;
    }
    work.now = facts.now;
    work.path = facts.path_mtu.unwrap_or(0);
    work.evaluated = 0;
    work.logged = 0;
    work.changed = 0;
    work.traced = 0;
    work.priority = 0;
    work.mss = 0;
    work.mss_limits = 0;
    work.mss_unknown = 0;
    work.error = 0;
    fill_interfaces(work, packet);
    fill_facts(work, facts);
    fill_link(work, packet);
    work.slow = misses(work, &[u64::MAX; WORDS]);
}

/// 1 if bits are unknown that rules read: the packet is evaluated in the order of each rule.
fn misses(work: &Work, reads: &[u64; WORDS]) -> u32 {
    let mut words = work.unknown.iter().zip(reads);
    u32::from(words.any(|(unknown, read)| unknown & read != 0))
}

impl Built {
    /// Fills a scratch as [`fill`] does, for this image: facts that no rule of it reads do not make a
    /// packet slow.
    pub fn fill(&self, work: &mut Work, packet: &Packet) {
        fill_for(work, packet, &self.reads);
    }
}

fn fill_for(work: &mut Work, packet: &Packet, reads: &[u64; WORDS]) {
    fill(work, packet);
    work.slow = misses(work, reads);
    if !reads_connection(reads) {
        work.known |= known::NO_READS;
    }
}

fn fill_interfaces(work: &mut Work, packet: &Packet) {
    let facts = &packet.facts;
    for (interface, at) in [(&facts.input, word::IN), (&facts.output, word::OUT)] {
        match interface {
            Some(interface) => {
                let words = name(interface);
                (work.word[at], work.word[at + 1]) = (words[0], words[1]);
            }
            None => (work.unknown[at], work.unknown[at + 1]) = (u64::MAX, u64::MAX),
        }
    }
    let devices = match packet.family {
        Family::Bridge => (&facts.logical_input, &facts.logical_output),
        _ => (&facts.physical_input, &facts.physical_output),
    };
    if let (Some(input), Some(output)) = devices {
        let (input, output) = (name(input), name(output));
        work.physical = [input[0], input[1], output[0], output[1]];
        work.known |= known::PHYSICAL;
    }
}

/// Bits of `--ctstate`: INVALID, UNTRACKED.
const NO_CONNECTION: u8 = 17;

fn fill_facts(work: &mut Work, facts: &Facts) {
    work.word[word::MARK] = u64::from(facts.mark);
    match facts.connection {
        Some(connection) => {
            let connection = match connection.state & NO_CONNECTION {
                0 => connection,
                // Of no connection nothing else is known, or read.
                _ => Connection {
                    state: connection.state,
                    ..Connection::default()
                },
            };
            work.word[word::META] = u64::from(connection.state) << meta::STATE;
            match connection.mark {
                Some(mark) => work.word[word::MARK] |= u64::from(mark) << 32,
                None => work.unknown[word::MARK] = u64::from(u32::MAX) << 32,
            }
            let reply = connection.reply.map(u8::from);
            for (byte, at) in [(connection.status, meta::STATUS), (reply, meta::REPLY)] {
                match byte {
                    Some(byte) => work.word[word::META] |= u64::from(byte) << at,
                    None => work.unknown[word::META] |= 0xff << at,
                }
            }
        }
        None => {
            work.unknown[word::MARK] = u64::from(u32::MAX) << 32;
            work.unknown[word::META] = 0xffff | 0xff << meta::REPLY;
        }
    }
    for (kind, shift) in [(facts.source_type, 0), (facts.destination_type, 16)] {
        match kind {
            Some(bits) => work.word[word::TYPE] |= u64::from(bits) << shift,
            None => work.unknown[word::TYPE] |= 0xffff << shift,
        }
    }
    match facts.connections {
        Some(number) => work.word[word::TYPE] |= u64::from(number) << CONNECTIONS,
        None => work.unknown[word::TYPE] |= 0xffff << CONNECTIONS,
    }
    match facts.packet_type {
        Some(kind) => work.word[word::MISC] |= u64::from(kind),
        None => work.unknown[word::MISC] |= 0xff,
    }
    match facts.reverse_path {
        Some(passes) => work.word[word::MISC] |= u64::from(passes) << 8,
        None => work.unknown[word::MISC] |= 0xff << 8,
    }
    if let Some(owner) = facts.owner {
        work.known |= known::OWNER;
        if let Some(owner) = owner {
            work.known |= known::OWNED | known::SOCKET;
            (work.user, work.group) = (owner.user, owner.group);
        }
    }
    if let Some((date, offset)) = facts.date {
        work.known |= known::DATE;
        (work.date, work.local_offset) = (date, offset as u32);
    }
    if let Some(random) = facts.random {
        work.known |= known::RANDOM;
        work.random = random;
    }
}

fn fill_link(work: &mut Work, packet: &Packet) {
    // The core reads those of bridges itself.
    if matches!(packet.family, Family::Arp | Family::Bridge) {
        return;
    }
    if packet.facts.no_link {
        return;
    }
    // If the header is missing, the address is unknown.
    work.word[word::SMAC] = HAS_LINK;
    if packet.network < LINK_BYTES {
        work.unknown[word::SMAC] = 0xffff_ffff_ffff;
        work.unknown[word::DMAC] = 0xffff_ffff_ffff;
        return;
    }
    let mac = |at: usize| {
        let mut bytes = [0u8; 8];
        bytes[..6].copy_from_slice(&packet.bytes[at..at + 6]);
        u64::from_le_bytes(bytes)
    };
    work.word[word::DMAC] = mac(0);
    work.word[word::SMAC] |= mac(6);
    work.known |= known::LINK;
}

/// The results of an evaluation.
pub fn outcome(work: &Work, packet: &Packet) -> CoreOutcome {
    let verdict = verdict_of(work.verdict, work.argument);
    let has = |bit| work.changed & bit != 0;
    let field = |shift: u32| (work.word[word::META] >> shift) as u8;
    let changes = Changes {
        mark: work.word[word::MARK] as u32,
        connection_mark: (has(changed::CONNMARK) || packet.facts.connection.is_some())
            .then_some((work.word[word::MARK] >> 32) as u32)
            .filter(|_| has(changed::CONNMARK)),
        priority: has(changed::PRIORITY).then_some(work.priority),
        tos: has(changed::TOS).then_some(field(meta::TOS)),
        ttl: has(changed::TTL).then_some(field(meta::TTL)),
        mss: has(changed::MSS).then_some(match work.mss {
            MSS_OF_PATH => MssLimit::Path,
            bytes => MssLimit::Bytes(bytes as u16),
        }),
        untracked: has(changed::UNTRACKED),
        logged: work.logged,
    };
    let traced = (work.traced as usize).min(work.trace.len());
    CoreOutcome {
        verdict,
        rule: (work.rule != fairpath_core::rules::NONE).then_some(work.rule),
        changes,
        evaluated: work.evaluated,
        matched: if work.tracing != 0 {
            work.trace[..traced].to_vec()
        } else {
            Vec::new()
        },
    }
}

/// A verdict of the core (`fairpath_core::rules::action`) with its argument.
pub fn verdict_of(verdict: u32, argument: u32) -> Verdict {
    match verdict {
        action::ACCEPT => Verdict::Accept,
        action::REJECT => Verdict::Reject(argument as u8),
        action::QUEUE => Verdict::Queue,
        action::UNKNOWN => Verdict::Unknown(unknown(argument)),
        _ => Verdict::Drop,
    }
}

fn unknown(reason: u32) -> Unknown {
    use Unknown::{
        Connection, Connections, CutBytes, Date, Depth, DestinationType, Input, LinkLayer,
        OpaqueMatch, OpaqueTarget, Output, Owner, PacketType, Physical, Random, ReversePath, Set,
        SetType, SourceType, Steps, Translation,
    };
    [
        OpaqueMatch,
        OpaqueTarget,
        Input,
        Output,
        Physical,
        Connection,
        SourceType,
        DestinationType,
        PacketType,
        Owner,
        ReversePath,
        Date,
        Random,
        Translation,
        CutBytes,
        Set,
        LinkLayer,
        Steps,
        SetType,
        Depth,
        Connections,
    ]
    .into_iter()
    .find(|known| *known as u32 == reason)
    .unwrap_or(OpaqueMatch)
}
