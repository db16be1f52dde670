//! One TCP endpoint as a state machine: packets and timers in, packets and timers out, time as an argument.
//!
//! Numbers are offsets into a stream: 0 is the SYN, data begin at 1, the FIN follows them. They become 32-bit
//! numbers only in packets.

use std::collections::BTreeMap;

use fairpath_wire::tcp::Flags;

use super::{Flight, MS, Options, Packet, Random, SECOND, Weather};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// Of the generation that was armed last; older ones are void.
    Retransmit(u64),
    DelayedAck(u64),
    /// The application writes this number of bytes.
    Write(u64),
    KeepAlive,
}

#[derive(Clone, Debug)]
pub enum Action {
    Send { packet: Packet, answers: Vec<u64> },
    Timer { at: u64, timer: Timer },
}

/// The differences of hosts.
#[derive(Clone, Debug)]
pub struct Habits {
    pub isn: u32,
    pub mss: u64,
    pub window: u64,
    /// Segments of random sizes: retransmissions then have other borders.
    pub ragged: bool,
    pub timestamps: bool,
    pub clock_hz: u64,
    pub clock_start: u32,
    pub delayed_ack: u64,
    pub min_rto: u64,
    /// Which old segments may still update TS.Recent: none (RFC 7323), or those that end at the last ACK (Linux).
    pub linux: bool,
    pub keep_alive: Option<u64>,
}

#[derive(Clone, Debug)]
pub struct Host {
    habits: Habits,
    random: Random,
    listens: bool,
    /// Data the application will write, and when.
    writes: Vec<(u64, u64)>,
    // The sender, RFC 9293 section 3.3.1.
    una: u64,
    nxt: u64,
    max: u64,
    written: u64,
    all_written: bool,
    cwnd: u64,
    dup_acks: u32,
    recover: u64,
    rto: u64,
    rto_generation: u64,
    // The receiver.
    open: bool,
    peer_isn: u32,
    rcv_nxt: u64,
    peer_fin: Option<u64>,
    early: BTreeMap<u64, u64>,
    last_ack: u64,
    ts_recent: u32,
    ts_started: bool,
    unacked: u32,
    ack_generation: u64,
    /// Arrived transmissions that no packet of ours has answered yet.
    unanswered: Vec<(u64, u64)>,
    out: Vec<Action>,
}

impl Host {
    pub fn new(habits: Habits, seed: u64, listens: bool, writes: Vec<(u64, u64)>) -> Host {
        Host {
            cwnd: habits.window,
            rto: habits.min_rto,
            habits,
            random: Random::new(seed),
            listens,
            writes,
            una: 0,
            nxt: 0,
            max: 0,
            written: 0,
            all_written: false,
            dup_acks: 0,
            recover: 0,
            rto_generation: 0,
            open: false,
            peer_isn: 0,
            rcv_nxt: 0,
            peer_fin: None,
            early: BTreeMap::new(),
            last_ack: 0,
            ts_recent: 0,
            ts_started: false,
            unacked: 0,
            ack_generation: 0,
            unanswered: Vec::new(),
            out: Vec::new(),
        }
    }

    /// A client and a server with different clocks and habits.
    pub fn random_pair(random: &mut Random, weather: &Weather, options: &Options) -> [Host; 2] {
        let round_trip = 2 * (weather.delay[0] + weather.delay[1]);
        let timestamps = random.chance(850);
        let mut host = |listens: bool| {
            let ragged = random.chance(300);
            let mss = random.pick(&[80, 200, 536]);
            let habits = Habits {
                isn: (random.draw() as u32).wrapping_add(options.shift),
                mss,
                window: mss * random.pick(&[1, 2, 4, 10, 40]),
                ragged,
                timestamps,
                clock_hz: random.pick(&[2, 10, 100, 250, 1000, 1_000_000]),
                clock_start: (random.draw() as u32).wrapping_add(options.shift),
                delayed_ack: random.pick(&[0, MS, 40 * MS, 200 * MS]),
                // The first one now and then runs out for nothing.
                min_rto: round_trip + random.pick(&[5, 50, 250, 250]) * MS,
                linux: random.chance(600),
                keep_alive: random
                    .chance(200)
                    .then(|| random.within(SECOND / 4, SECOND)),
            };
            let one_way = random.chance(350);
            let mut left = match (one_way, listens) {
                (true, true) => random.within(0, 200),
                _ => random.within(options.bytes / 20, options.bytes),
            };
            let mut at = 0;
            let mut writes = Vec::new();
            while left > 0 {
                let bytes = random.within(1, options.bytes / 4).min(left);
                at += random.pick(&[0, MS, 20 * MS, 150 * MS]) + random.within(0, MS);
                writes.push((at, bytes));
                left -= bytes;
            }
            Host::new(habits, random.draw(), listens, writes)
        };
        [host(false), host(true)]
    }

    pub fn open(&mut self, now: u64) -> Vec<Action> {
        self.nxt = 1;
        self.max = 1;
        self.transmit(now, 0, 0, Flags::SYN);
        self.arm_rto(now);
        std::mem::take(&mut self.out)
    }

    pub fn receive(&mut self, now: u64, flight: &Flight) -> Vec<Action> {
        let p = &flight.packet;
        if p.flags.contains(Flags::SYN) {
            self.receive_syn(now, flight);
        } else if self.peer_known() {
            self.receive_segment(now, flight);
        }
        std::mem::take(&mut self.out)
    }

    pub fn timer(&mut self, now: u64, timer: Timer) -> Vec<Action> {
        match timer {
            Timer::Retransmit(generation) if generation == self.rto_generation => self.timeout(now),
            Timer::DelayedAck(generation)
                if generation == self.ack_generation && self.unacked > 0 =>
            {
                self.ack(now);
            }
            Timer::Write(bytes) => {
                self.written += bytes;
                self.writes_left(-1);
                self.push(now);
            }
            Timer::KeepAlive if self.open && self.una == self.max => self.keep_alive(now),
            _ => {}
        }
        std::mem::take(&mut self.out)
    }

    fn peer_known(&self) -> bool {
        self.rcv_nxt > 0
    }

    fn tsval(&self, now: u64) -> u32 {
        let ticks = u128::from(now) * u128::from(self.habits.clock_hz) / u128::from(SECOND);
        (ticks as u32).wrapping_add(self.habits.clock_start)
    }

    /// Sends `[from, to)`; every packet answers what has arrived in order until now.
    fn transmit(&mut self, now: u64, from: u64, payload: u64, flags: Flags) {
        let acks = self.peer_known();
        let mut answers = Vec::new();
        if acks {
            let rcv_nxt = self.rcv_nxt;
            self.unanswered.retain(|&(id, end)| {
                if end <= rcv_nxt {
                    answers.push(id);
                }
                end > rcv_nxt
            });
            self.last_ack = self.rcv_nxt;
            self.unacked = 0;
            self.ack_generation += 1;
        }
        let echo = if acks { self.ts_recent } else { 0 };
        let packet = Packet {
            flow: 0,
            from: 0,
            seq: self.habits.isn.wrapping_add(from as u32),
            ack: if acks {
                self.peer_isn.wrapping_add(self.rcv_nxt as u32)
            } else {
                0
            },
            flags: if acks { flags | Flags::ACK } else { flags },
            window: 60_000,
            payload: payload as u32,
            ts: self.habits.timestamps.then(|| (self.tsval(now), echo)),
        };
        self.out.push(Action::Send { packet, answers });
    }

    fn ack(&mut self, now: u64) {
        self.transmit(now, self.nxt.max(self.una), 0, Flags::default());
    }

    fn keep_alive(&mut self, now: u64) {
        let garbage = self.random.within(0, 2);
        self.transmit(now, self.nxt - 1, garbage, Flags::default());
    }

    fn arm_rto(&mut self, now: u64) {
        self.rto_generation += 1;
        self.out.push(Action::Timer {
            at: now + self.rto,
            timer: Timer::Retransmit(self.rto_generation),
        });
    }

    fn timeout(&mut self, now: u64) {
        if self.una >= self.max {
            return;
        }
        self.rto = (self.rto * 2).min(4 * SECOND);
        self.cwnd = self.habits.mss;
        self.dup_acks = 0;
        self.recover = self.max;
        self.nxt = self.retransmit(now);
        self.arm_rto(now);
    }

    fn end_of_data(&self) -> u64 {
        1 + self.written
    }

    /// One segment from `una` on, and where it ends; it may reach into data never sent before.
    fn retransmit(&mut self, now: u64) -> u64 {
        if self.una == 0 {
            self.transmit(now, 0, 0, Flags::SYN);
            return 1;
        }
        let payload = self.segment_at(self.una);
        let fin = self.fin_behind(self.una + payload);
        self.transmit(
            now,
            self.una,
            payload,
            if fin { Flags::FIN } else { Flags::PSH },
        );
        let end = self.una + payload + u64::from(fin);
        self.max = self.max.max(end);
        end
    }

    fn segment_at(&mut self, from: u64) -> u64 {
        let most = self.habits.mss.min(self.end_of_data().saturating_sub(from));
        if self.habits.ragged && most > 1 {
            return self.random.within(1, most + 1);
        }
        most
    }

    fn fin_behind(&self, at: u64) -> bool {
        self.all_written && at == self.end_of_data()
    }

    fn push(&mut self, now: u64) {
        if !self.open {
            return;
        }
        let idle = self.una == self.max;
        let mut sent = false;
        loop {
            let capacity = (self.una + self.cwnd.min(self.habits.window)).saturating_sub(self.nxt);
            let fin_sent = self.all_written && self.nxt > self.end_of_data();
            let payload = self.segment_at(self.nxt).min(capacity);
            let fin = !fin_sent && self.fin_behind(self.nxt + payload);
            if fin_sent || (payload == 0 && !fin) || capacity == 0 {
                break;
            }
            self.transmit(
                now,
                self.nxt,
                payload,
                if fin { Flags::FIN } else { Flags::PSH },
            );
            self.nxt += payload + u64::from(fin);
            self.max = self.max.max(self.nxt);
            sent = true;
        }
        if idle && sent {
            self.arm_rto(now);
        }
    }

    fn writes_left(&mut self, change: i64) {
        let left = self.writes.len() as i64 + change;
        if change < 0 {
            self.writes.pop();
        }
        self.all_written = left == 0;
    }

    fn establish(&mut self, now: u64) {
        if self.open {
            return;
        }
        self.open = true;
        for (after, bytes) in self.writes.clone() {
            self.out.push(Action::Timer {
                at: now + after,
                timer: Timer::Write(bytes),
            });
        }
        self.writes_left(0);
        if let Some(after) = self.habits.keep_alive {
            for i in 1..6 {
                self.out.push(Action::Timer {
                    at: now + i * after,
                    timer: Timer::KeepAlive,
                });
            }
        }
    }

    fn receive_syn(&mut self, now: u64, flight: &Flight) {
        let p = &flight.packet;
        let first = !self.peer_known();
        if first {
            self.peer_isn = p.seq;
            self.rcv_nxt = 1;
        }
        self.unanswered.push((flight.id, 1));
        if let Some((tsval, _)) = p.ts
            && (first || tsval.wrapping_sub(self.ts_recent) as i32 >= 0)
            && self.last_ack <= 1
        {
            self.ts_recent = tsval;
            self.ts_started = true;
        }
        if self.listens {
            if self.una == 0 {
                (self.nxt, self.max) = (1, 1);
                self.transmit(now, 0, 0, Flags::SYN);
                self.arm_rto(now);
            } else {
                self.ack(now);
            }
            return;
        }
        self.acked(now, p, false);
        self.ack(now);
        self.establish(now);
        self.push(now);
    }

    fn receive_segment(&mut self, now: u64, flight: &Flight) {
        let p = &flight.packet;
        let from = self.rcv_nxt.wrapping_add_signed(i64::from(
            p.seq
                .wrapping_sub(self.peer_isn.wrapping_add(self.rcv_nxt as u32)) as i32,
        ));
        let fin = p.flags.contains(Flags::FIN);
        let end = from + u64::from(p.payload) + u64::from(fin);
        // RFC 7323 section 5.3, R1 (PAWS) and R3; R2 is the window.
        if let Some((tsval, _)) = p.ts {
            let older = tsval.wrapping_sub(self.ts_recent) as i32;
            if self.ts_started && older < 0 {
                if end > from {
                    self.ack(now);
                }
                return;
            }
            let old = if self.habits.linux {
                end < self.last_ack
            } else {
                end <= self.rcv_nxt && end > from
            };
            if !old && from <= self.last_ack {
                self.ts_recent = tsval;
                self.ts_started = true;
            }
        }
        if fin {
            self.peer_fin = Some(end);
        }
        if end > from {
            // Before its ACK is read, which may send data: these echo its timestamp, so they answer a copy.
            self.unanswered.push((flight.id, end));
        }
        self.acked(now, p, p.payload == 0 && !fin);
        if end == from {
            // A keep-alive without data is answered all the same.
            if from < self.rcv_nxt {
                self.ack(now);
            }
            self.push(now);
            return;
        }
        self.take_data(now, from, end);
        self.push(now);
    }

    fn take_data(&mut self, now: u64, from: u64, end: u64) {
        let in_order = from <= self.rcv_nxt && end > self.rcv_nxt;
        let gaps = !self.early.is_empty();
        if in_order {
            self.rcv_nxt = end;
            while let Some((&early_from, &early_end)) = self.early.first_key_value() {
                if early_from > self.rcv_nxt {
                    break;
                }
                self.rcv_nxt = self.rcv_nxt.max(early_end);
                self.early.pop_first();
            }
        } else if from > self.rcv_nxt {
            let slot = self.early.entry(from).or_insert(end);
            *slot = (*slot).max(end);
        }
        self.unacked += 1;
        let at_once = !in_order || gaps || self.unacked >= 2 || self.habits.delayed_ack == 0;
        if at_once || self.peer_fin == Some(self.rcv_nxt) {
            self.ack(now);
        } else {
            self.ack_generation += 1;
            self.out.push(Action::Timer {
                at: now + self.habits.delayed_ack,
                timer: Timer::DelayedAck(self.ack_generation),
            });
        }
    }

    fn acked(&mut self, now: u64, p: &Packet, pure: bool) {
        if !p.flags.contains(Flags::ACK) {
            return;
        }
        let ahead = p
            .ack
            .wrapping_sub(self.habits.isn.wrapping_add(self.una as u32)) as i32;
        if ahead < 0 {
            return;
        }
        let ack = self.una + ahead as u64;
        if ack > self.max {
            return;
        }
        if ack == self.una {
            if pure && self.una < self.max && self.una > 0 {
                self.dup_acks += 1;
                if self.dup_acks == 3 && self.una >= self.recover {
                    self.recover = self.max;
                    let end = self.retransmit(now);
                    self.nxt = self.nxt.max(end);
                    self.arm_rto(now);
                }
            }
            return;
        }
        self.una = ack;
        self.nxt = self.nxt.max(ack);
        self.dup_acks = 0;
        self.rto = self.habits.min_rto;
        self.cwnd = (self.cwnd + self.habits.mss).min(self.habits.window);
        if self.listens {
            self.establish(now);
        }
        if self.una < self.recover && self.una < self.max && self.nxt > self.una {
            let end = self.retransmit(now);
            self.nxt = self.nxt.max(end);
        }
        if self.una < self.max {
            self.arm_rto(now);
        } else {
            self.rto_generation += 1;
        }
    }
}
