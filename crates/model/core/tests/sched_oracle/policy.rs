//! The inputs and answers of policies, and one that reacts to every input.
//!
//! That one runs in the scheduler too, like a custom policy: the inputs of the two must be equal in every
//! word, or their results differ.

use fairpath_core::sched::{Custom, Function, Meta, NEVER, Over, PARAMS, Param, Policy};

use super::shipped;

/// A flow stays where it is.
pub const KEEP: u64 = u64::MAX - 1;
pub const DROP: u32 = 1;
pub const LATER: u32 = 2;
pub const MARK: u32 = 4;
pub const LINGER: u32 = 8;

/// `struct fp_call`, by its words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call {
    pub now: u64,
    pub rank: u64,
    pub sojourn: u64,
    pub floor: u64,
    pub ceil: u64,
    pub burst: u64,
    pub next_hint: u64,
    pub next_bytes: u32,
    pub cost: u32,
    pub packets: u32,
    pub bytes: u32,
    pub queue_packets: u32,
    pub queue_bytes: u32,
    pub hosts: u32,
    pub backlogged: u32,
    pub by_floor: u32,
    pub reason: u32,
    pub over: u32,
    pub waiting: u32,
    pub due: u64,
    pub verdict: u32,
}

impl Call {
    fn from_words(words: &[u64; 16]) -> Call {
        let (low, high) = (
            |at: usize| words[at] as u32,
            |at: usize| (words[at] >> 32) as u32,
        );
        let [now, rank, sojourn, floor, ceil, burst, next_hint] =
            std::array::from_fn(|at| words[at]);
        Call {
            now,
            rank,
            sojourn,
            floor,
            ceil,
            burst,
            next_hint,
            next_bytes: low(7),
            cost: high(7),
            packets: low(8),
            bytes: high(8),
            queue_packets: low(9),
            queue_bytes: high(9),
            hosts: low(10),
            backlogged: high(10),
            by_floor: low(11),
            reason: high(11),
            over: low(12),
            waiting: high(12),
            due: words[13],
            verdict: low(14),
        }
    }
}

/// State of flow or child, of the node (parameters first), and of the policy.
pub struct State<'a> {
    pub flow: &'a mut [u64; 8],
    pub class: &'a mut [u64; 16],
    pub global: &'a mut [u64; 8],
}

/// The answer of a policy; `None` if it has no function of this kind.
pub type Answer = Option<u64>;

pub fn query(policy: &Policy, function: Function, p: &Meta, state: State, r: &mut Call) -> Answer {
    if !policy.functions.contains(&function) {
        return None;
    }
    Some(if policy.id == Policy::CUSTOM {
        Wild.decide(function, p, state, r)
    } else {
        shipped::query(&policy.name, function, p, state, r)
    })
}

/// Modes of [`Wild`], its first parameter.
pub const MODES: u64 = 4;

/// By its first parameter: 0 does anything, 1 strict priority by DSCP, 2 a token bucket of a byte a
/// nanosecond, 3 flows that linger.
#[derive(Clone, Copy, Debug)]
pub struct Wild;

impl Wild {
    /// The description of a policy with these functions and wants.
    pub fn policy(functions: &[Function], wants: u32) -> Policy {
        Policy {
            id: Policy::CUSTOM,
            name: "wild".into(),
            about: "reacts to everything".into(),
            source: "tests".into(),
            over: vec![Over::Packets, Over::Flows, Over::Children, Over::References],
            usual: Over::Packets,
            wants,
            state_bytes: [64, 128, 64],
            queue: [0; 4],
            params: Vec::<Param>::new(),
            functions: functions.to_vec(),
        }
    }

    fn decide(self, function: Function, p: &Meta, s: State, r: &mut Call) -> u64 {
        match s.class[0] % MODES {
            0 => wild(function, p, s, r),
            1 => match function {
                Function::RankEnqueue => 63 - u64::from(p.dscp & 63),
                Function::RankDequeue => KEEP,
                _ => 0,
            },
            2 => match function {
                Function::SendTime => {
                    let at = s.class[PARAMS].max(r.now);
                    s.class[PARAMS] = at.wrapping_add(p.bytes.into());
                    at
                }
                Function::RankDequeue => r.rank,
                _ => 0,
            },
            _ => match function {
                Function::RankDequeue => {
                    r.verdict = LINGER;
                    r.rank.wrapping_add(1)
                }
                Function::RankEnqueue if r.backlogged == 1 => KEEP,
                _ => 0,
            },
        }
    }
}

/// Mixes a word into a hash (the finalizer of splitmix64).
fn mix(hash: u64, word: u64) -> u64 {
    let x = (hash ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn wild(function: Function, p: &Meta, s: State, r: &mut Call) -> u64 {
    let reported = [
        [
            r.now,
            r.rank,
            r.sojourn,
            r.floor,
            r.ceil,
            r.burst,
            r.next_hint,
        ],
        [
            r.next_bytes,
            r.cost,
            r.packets,
            r.bytes,
            r.queue_packets,
            r.queue_bytes,
            r.hosts,
        ]
        .map(u64::from),
        [
            r.backlogged,
            r.by_floor,
            r.reason,
            r.over,
            r.waiting,
            p.bytes,
            p.flow_hash,
        ]
        .map(u64::from),
    ];
    let reported = reported.iter().flatten();
    let state = s.flow.iter().chain(s.class.iter()).chain(s.global.iter());
    let hash = reported
        .chain(state)
        .fold(function as u64, |hash, word| mix(hash, *word));
    s.flow[(hash % 8) as usize] ^= hash >> 8;
    s.class[PARAMS + (hash >> 3) as usize % 8] ^= hash >> 9;
    s.global[(hash >> 6) as usize % 8] ^= hash >> 10;
    let dice = mix(hash, 1);
    let rank = match dice % 32 {
        0 => NEVER,
        1 => KEEP,
        2 => dice,
        _ => dice >> 8 & 15,
    };
    match function {
        Function::OnDrop => 0,
        Function::SendTime if dice.is_multiple_of(2) => 0,
        Function::SendTime => r.now.saturating_add(dice >> 8 & 1023),
        Function::RankEnqueue => {
            r.verdict = if dice >> 16 & 15 == 0 { DROP } else { 0 };
            r.due = if dice >> 20 & 1 == 0 {
                NEVER
            } else {
                r.now.wrapping_add(dice >> 24 & 255)
            };
            rank
        }
        Function::RankDequeue => {
            r.verdict = match dice >> 16 & 15 {
                0 => DROP,
                1 => LATER,
                2 => MARK,
                3 => LINGER,
                4 => LINGER | MARK,
                5 => LATER | DROP,
                _ => 0,
            };
            r.due = if dice >> 20 & 1 == 0 {
                NEVER
            } else {
                r.now.wrapping_add(dice >> 24 & 255)
            };
            rank
        }
    }
}

impl Custom for Wild {
    fn call(
        &mut self,
        function: Function,
        packet: &Meta,
        flow: &mut [u64; 8],
        class: &mut [u64; 16],
        global: &mut [u64; 8],
        call: &mut [u64; 16],
    ) -> u64 {
        let mut reported = Call::from_words(call);
        let state = State {
            flow,
            class,
            global,
        };
        let answer = self.decide(function, packet, state, &mut reported);
        call[13] = reported.due;
        call[14] = call[14] >> 32 << 32 | u64::from(reported.verdict);
        answer
    }
}
