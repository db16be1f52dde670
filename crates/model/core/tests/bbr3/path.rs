//! A sender over one bottleneck, in virtual time: packets, a queue with an end, losses, ACKs.
//!
//! ```text
//! sender: window, pacing ── loss? ── queue of `buffer` packets ── `rate_bps` ── RTT ── ACK
//! ```
//!
//! Every packet is acknowledged at once; what is lost is found when a packet is acknowledged that was
//! sent three later (RFC 6675), and is sent again as another packet. Rate samples are the draft's
//! ("Delivery Rate Samples").

use std::collections::VecDeque;

use fairpath_core::cc::{Bbr3, Bbr3Ack, Bbr3Phase, Bbr3View};

pub const MSS: u32 = 1448;
/// Acknowledged this much later than it was sent means lost (RFC 6675, DupThresh).
const REORDERING: u64 = 3;
/// Minimum time to a retransmission without an ACK, as in Linux.
const TIMEOUT_US: u64 = 200_000;
const INITIAL_CWND: u32 = 10;

/// The path between sender and receiver.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    pub rate_bps: u64,
    pub rtt_us: u64,
    /// Packets that wait at most.
    pub buffer: u64,
    pub loss: f64,
    pub seed: u64,
}

impl Path {
    /// 20 Mbit/s, 20 ms: 34 packets, with a buffer of as many again.
    pub fn new() -> Path {
        Path {
            rate_bps: 20_000_000,
            rtt_us: 20_000,
            buffer: 35,
            loss: 0.0,
            seed: 1,
        }
    }

    pub fn packet_us(&self) -> f64 {
        f64::from(MSS) * 8e6 / self.rate_bps as f64
    }

    /// Of a packet that meets no queue.
    pub fn min_rtt_us(&self) -> u64 {
        self.rtt_us + self.packet_us() as u64
    }

    /// Bandwidth-delay product in packets.
    pub fn bdp(&self) -> f64 {
        self.rtt_us as f64 / self.packet_us()
    }
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    number: u64,
    at_us: u64,
    /// None: lost on the way.
    ack_at_us: Option<u64>,
    delivered: u32,
    delivered_at_us: u64,
    first_sent_us: u64,
    in_flight: u32,
    lost: u32,
    app_limited: bool,
}

/// The actual values in flight and lost when the acknowledged packet was sent, for comparison.
#[derive(Clone, Copy, Debug)]
pub struct Actual {
    pub tx_in_flight: u32,
    pub lost_since: u32,
}

pub struct Flow {
    pub path: Path,
    pub bbr: Bbr3,
    pub now_us: u64,
    /// Packets that the receiver got.
    pub received: u64,
    /// Phases in order, with their beginning.
    pub phases: Vec<(u64, Bbr3Phase)>,
    /// Packets a second that the application has at most.
    pub app_pps: Option<f64>,
    pub actual: Actual,
    /// Of the newest ACK.
    pub rtt_us: u64,
    base: u32,
    flying: VecDeque<Sent>,
    next: u64,
    next_send_us: f64,
    idle_at_us: f64,
    delivered: u32,
    delivered_at_us: u64,
    first_sent_us: u64,
    lost: u32,
    app_limited_until: u32,
    cwnd: u32,
    cwnd_limited: bool,
    recovery_until: Option<u64>,
    draws: u64,
}

impl Flow {
    /// `base`: where the wrapping counters begin.
    pub fn begin(path: Path, base: u32) -> Flow {
        let first = Bbr3Ack {
            delivered: base,
            lost: base,
            cwnd: INITIAL_CWND,
            mss: MSS,
            max_pacing: u64::MAX,
            srtt_us: path.min_rtt_us() as u32,
            rtt_us: Bbr3Ack::NONE,
            has_sack: 1,
            ..Bbr3Ack::default()
        };
        let bbr = Bbr3::new(&first);
        Flow {
            path,
            phases: vec![(0, bbr.view().phase())],
            bbr,
            now_us: 0,
            received: 0,
            app_pps: None,
            actual: Actual {
                tx_in_flight: 0,
                lost_since: 0,
            },
            rtt_us: 0,
            base,
            flying: VecDeque::new(),
            next: 0,
            next_send_us: 0.0,
            idle_at_us: 0.0,
            delivered: base,
            delivered_at_us: 0,
            first_sent_us: 0,
            lost: base,
            app_limited_until: base,
            cwnd: INITIAL_CWND,
            cwnd_limited: false,
            recovery_until: None,
            draws: path.seed,
        }
    }

    pub fn view(&self) -> Bbr3View {
        self.bbr.view()
    }

    /// Runs until `until_us`; `each` sees the flow after every ACK.
    pub fn run(&mut self, until_us: u64, mut each: impl FnMut(&Flow)) {
        loop {
            let ack = self.next_ack();
            let may_send = self.in_flight() < self.cwnd;
            let send = may_send.then_some(self.next_send_us.ceil() as u64);
            let send = send.map(|at| at.max(self.now_us));
            let Some(next) = ack.into_iter().chain(send).min() else {
                self.time_out();
                continue;
            };
            if next > until_us {
                self.now_us = until_us;
                return;
            }
            self.now_us = next;
            if ack == Some(next) {
                self.acknowledge();
                each(self);
            } else {
                self.send();
            }
        }
    }

    pub fn in_flight(&self) -> u32 {
        self.flying.len() as u32
    }

    fn random(&mut self) -> u64 {
        // SplitMix64.
        self.draws = self.draws.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.draws;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// When its ACK comes, if it is not lost: at random, or because the queue is full.
    fn outcome(&mut self) -> Option<u64> {
        let lost = (self.random() >> 11) as f64 / (1u64 << 53) as f64;
        let now = self.now_us as f64;
        let begin = self.idle_at_us.max(now);
        let waiting = (begin - now) / self.path.packet_us();
        if lost < self.path.loss || waiting >= self.path.buffer as f64 {
            return None;
        }
        self.idle_at_us = begin + self.path.packet_us();
        Some(self.idle_at_us as u64 + self.path.rtt_us)
    }

    fn send(&mut self) {
        if self.flying.is_empty() {
            self.first_sent_us = self.now_us;
            self.delivered_at_us = self.now_us;
        }
        let ack_at_us = self.outcome();
        let sent = Sent {
            number: self.next,
            at_us: self.now_us,
            ack_at_us,
            delivered: self.delivered,
            delivered_at_us: self.delivered_at_us,
            first_sent_us: self.first_sent_us,
            in_flight: self.in_flight() + 1,
            lost: self.lost,
            app_limited: self.app_limited_until.wrapping_sub(self.delivered) as i32 > 0,
        };
        self.next += 1;
        self.flying.push_back(sent);
        let view = self.bbr.view();
        let paced = f64::from(MSS) * 1e6 / view.pacing_rate as f64;
        let gap = self.app_pps.map_or(paced, |pps| paced.max(1e6 / pps));
        // The clock counts whole microseconds; truncation must not accumulate.
        if self.now_us as f64 - self.next_send_us >= 1.0 {
            self.next_send_us = self.now_us as f64;
        }
        self.next_send_us += gap;
        if gap > paced {
            self.app_limited_until = self.delivered.wrapping_add(self.in_flight()).max(1);
        }
        self.cwnd_limited |= self.in_flight() >= self.cwnd;
    }

    fn acknowledge(&mut self) {
        let prior_in_flight = self.in_flight();
        let now = Some(self.now_us);
        let at = self.flying.iter().position(|p| p.ack_at_us == now);
        let packet = at.and_then(|at| self.flying.remove(at));
        let packet = packet.expect("an ACK is of a packet in flight");
        self.delivered = self.delivered.wrapping_add(1);
        self.received += 1;
        self.delivered_at_us = self.now_us;
        let before = self.lost;
        self.find_lost(packet.number);
        self.follow_recovery(packet.number, before != self.lost);
        let ack_elapsed = self.now_us - packet.delivered_at_us;
        let send_elapsed = packet.at_us - packet.first_sent_us;
        self.first_sent_us = packet.at_us;
        self.rtt_us = self.now_us - packet.at_us;
        self.actual = Actual {
            tx_in_flight: packet.in_flight,
            lost_since: self.lost.wrapping_sub(packet.lost),
        };
        let ack = Bbr3Ack {
            prior_delivered: packet.delivered,
            prior_in_flight,
            acked: 1,
            sample: self.delivered.wrapping_sub(packet.delivered),
            interval_us: ack_elapsed.max(send_elapsed),
            rtt_us: (self.now_us - packet.at_us) as u32,
            sampled: 1,
            app_limited: packet.app_limited.into(),
            ..self.look()
        };
        self.cwnd_limited = false;
        self.report(&ack);
    }

    /// Updates the state that does not depend on an ACK.
    pub fn look(&mut self) -> Bbr3Ack {
        Bbr3Ack {
            now_us: self.now_us,
            max_pacing: u64::MAX,
            delivered: self.delivered,
            lost: self.lost,
            in_flight: self.in_flight(),
            rtt_us: Bbr3Ack::NONE,
            srtt_us: self.path.min_rtt_us() as u32,
            cwnd: self.cwnd,
            mss: MSS,
            random: self.random() as u32,
            cwnd_limited: self.cwnd_limited.into(),
            has_sack: 1,
            in_recovery: self.recovery_until.is_some().into(),
            ..Bbr3Ack::default()
        }
    }

    fn report(&mut self, ack: &Bbr3Ack) {
        self.bbr.on_ack(ack);
        let view = self.bbr.view();
        self.cwnd = view.cwnd;
        if view.mark_app_limited() {
            self.app_limited_until = self.delivered.wrapping_add(self.in_flight()).max(1);
        }
        if self.phases.last().is_none_or(|last| last.1 != view.phase()) {
            self.phases.push((self.now_us, view.phase()));
        }
    }

    /// All packets in flight are lost, and the window with them: only a timeout shows it.
    fn time_out(&mut self) {
        self.now_us += TIMEOUT_US;
        self.bbr.on_loss_episode(self.cwnd);
        self.lost = self.lost.wrapping_add(self.in_flight());
        self.flying.clear();
        self.recovery_until = Some(self.next);
        self.cwnd = 1;
    }

    /// The first departure of the queue is acknowledged first; only lost packets precede it.
    fn next_ack(&self) -> Option<u64> {
        self.flying.iter().find_map(|packet| packet.ack_at_us)
    }

    fn find_lost(&mut self, acked: u64) {
        let lost = |p: &&Sent| p.ack_at_us.is_none() && p.number + REORDERING <= acked;
        let count = self.flying.iter().take_while(lost).count();
        self.flying.drain(..count);
        self.lost = self.lost.wrapping_add(count as u32);
    }

    /// From the first loss until what was sent by then is through.
    fn follow_recovery(&mut self, acked: u64, loses: bool) {
        if self.recovery_until.is_some_and(|until| acked >= until) {
            self.recovery_until = None;
        }
        if loses && self.recovery_until.is_none() {
            self.recovery_until = Some(self.next);
            self.bbr.on_loss_episode(self.cwnd);
        }
    }

    /// Nothing is sent until `until_us`, and then again.
    pub fn pause(&mut self, until_us: u64) {
        let cwnd = std::mem::replace(&mut self.cwnd, 0);
        while let Some(at) = self.next_ack() {
            self.now_us = at;
            self.acknowledge();
            self.cwnd = 0;
        }
        self.lost = self.lost.wrapping_add(self.flying.len() as u32);
        self.flying.clear();
        self.now_us = until_us;
        self.cwnd = cwnd;
        self.app_limited_until = self.delivered.max(1);
        let look = self.look();
        self.bbr.on_restart(&look);
    }

    /// Goodput between two moments as a share of the link's rate.
    pub fn share(&mut self, from_us: u64, until_us: u64) -> f64 {
        self.run(from_us, |_| ());
        let before = self.received;
        self.run(until_us, |_| ());
        let packets = (self.received - before) as f64;
        packets * self.path.packet_us() / (until_us - from_us) as f64
    }

    /// Packets delivered and lost, from where the counters began.
    pub fn counters(&self) -> (u32, u32) {
        (
            self.delivered.wrapping_sub(self.base),
            self.lost.wrapping_sub(self.base),
        )
    }
}
