//! Congestion control as a value: the native runtime of `bpf/core/cc`, for tests without a network.
//!
//! [`Bbr3`] is the same C as `fp_bbr3like` of `fairpath-bpf` in the kernel, with ACKs from a
//! simulated path. Volumes are packets, times microseconds.

use std::fmt;

/// The input of one ACK: `struct fp_bbr3_ack` of bpf/core/cc/abi.h.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bbr3Ack {
    /// The sender's clock, microseconds.
    pub now_us: u64,
    /// Length of the rate sample, microseconds; 0 without one.
    pub interval_us: u64,
    /// Maximum pacing rate of the socket in bytes per second.
    pub max_pacing: u64,
    /// Packets delivered so far, including this ACK; wraps.
    pub delivered: u32,
    /// Packets lost so far; wraps.
    pub lost: u32,
    /// `delivered` when the newest packet acknowledged was sent.
    pub prior_delivered: u32,
    /// Packets in flight before this ACK.
    pub prior_in_flight: u32,
    /// Packets in flight now.
    pub in_flight: u32,
    /// Packets newly delivered.
    pub acked: u32,
    /// Packets delivered over the interval.
    pub sample: u32,
    /// Round-trip time, microseconds; [`Bbr3Ack::NONE`] without one.
    pub rtt_us: u32,
    /// Smoothed; 0 before the first.
    pub srtt_us: u32,
    /// The active window.
    pub cwnd: u32,
    /// Bytes of a packet.
    pub mss: u32,
    /// A random number, evenly distributed.
    pub random: u32,
    /// 1 if `prior_delivered` is valid.
    pub sampled: u8,
    /// 1 if the application limited the sample.
    pub app_limited: u8,
    /// 1 if the window was used up.
    pub cwnd_limited: u8,
    /// 1 if selective ACKs detect losses.
    pub has_sack: u8,
    /// 1 in fast recovery and after a timeout.
    pub in_recovery: u8,
    /// 1 if the receiver delayed it.
    pub ack_delayed: u8,
}

impl Bbr3Ack {
    /// No measurement, no limit: `FP_BBR3_NONE32`.
    pub const NONE: u32 = u32::MAX;
}

/// The states of draft-ietf-ccwg-bbr: `enum fp_bbr3_phase`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Bbr3Phase {
    /// Doubles its rate every round.
    Startup,
    /// Drains the queue from Startup.
    Drain,
    /// A little below the bandwidth.
    Down,
    /// At the bandwidth.
    Cruise,
    /// At the bandwidth, short-term limits forgotten.
    Refill,
    /// A quarter above the bandwidth.
    Up,
    /// Half of the pipe, to measure the round-trip time.
    ProbeRtt,
}

impl Bbr3Phase {
    /// All, in the order of the C enumeration.
    pub const ALL: [Bbr3Phase; 7] = [
        Bbr3Phase::Startup,
        Bbr3Phase::Drain,
        Bbr3Phase::Down,
        Bbr3Phase::Cruise,
        Bbr3Phase::Refill,
        Bbr3Phase::Up,
        Bbr3Phase::ProbeRtt,
    ];
}

/// The state and output of a connection: `struct fp_native_bbr3_view` of cc.c.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bbr3View {
    /// Bytes a second.
    pub pacing_rate: u64,
    /// Packets a microsecond, times 2^24.
    pub max_bw: u64,
    /// The same with the limit from losses.
    pub bw: u64,
    /// The window, packets.
    pub cwnd: u32,
    /// Microseconds; [`Bbr3Ack::NONE`] before the first.
    pub min_rtt: u32,
    /// Packets that may be in flight, from probes; [`Bbr3Ack::NONE`]: no limit seen.
    pub inflight_longterm: u32,
    /// Packets that may be in flight, from losses of this cycle; [`Bbr3Ack::NONE`]: no limit.
    pub inflight_shortterm: u32,
    /// Packets in flight when the newest acknowledged packet was sent, as far as known.
    pub tx_in_flight: u32,
    /// Packets lost since then, as far as known.
    pub lost_since: u32,
    phase: u32,
    full_bw_reached: u32,
    mark_app_limited: u32,
    too_high: u32,
}

impl Bbr3View {
    /// Its phase.
    pub fn phase(&self) -> Bbr3Phase {
        Bbr3Phase::ALL[self.phase as usize]
    }

    /// True if it found the pipe full.
    pub fn full_bw_reached(&self) -> bool {
        self.full_bw_reached != 0
    }

    /// True if rate samples of packets in flight are marked as limited by the application.
    pub fn mark_app_limited(&self) -> bool {
        self.mark_app_limited != 0
    }

    /// True if the last ACK reported more than 2 % loss in a probe.
    pub fn too_high(&self) -> bool {
        self.too_high != 0
    }
}

/// `struct fp_bbr3`.
#[repr(C, align(8))]
struct Raw {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    fn fp_native_bbr3_bytes() -> u64;
    fn fp_native_bbr3_ack_bytes() -> u64;
    fn fp_native_bbr3_init(b: *mut Raw, a: *const Bbr3Ack);
    fn fp_native_bbr3_on_ack(b: *mut Raw, a: *const Bbr3Ack);
    fn fp_native_bbr3_on_loss_episode(b: *mut Raw, cwnd: u32);
    fn fp_native_bbr3_on_undo(b: *mut Raw, a: *const Bbr3Ack);
    fn fp_native_bbr3_on_restart(b: *mut Raw, a: *const Bbr3Ack);
    fn fp_native_bbr3_view(b: *const Raw, view: *mut Bbr3View);
}

/// One connection.
pub struct Bbr3 {
    memory: Box<[u64]>,
}

impl Bbr3 {
    /// A connection at `ack`: clock, counters, window, packet size.
    pub fn new(ack: &Bbr3Ack) -> Bbr3 {
        // SAFETY: takes nothing.
        let bytes = unsafe { fp_native_bbr3_bytes() };
        // SAFETY: takes nothing.
        let ack_bytes = unsafe { fp_native_bbr3_ack_bytes() };
        assert_eq!(ack_bytes, size_of::<Bbr3Ack>() as u64, "cc/abi.h and cc.rs");
        let memory = vec![0; bytes.div_ceil(8) as usize].into_boxed_slice();
        let mut bbr3 = Bbr3 { memory };
        // SAFETY: memory of the size and alignment that C needs; `ack` has the same layout.
        unsafe { fp_native_bbr3_init(bbr3.raw(), ack) };
        bbr3
    }

    fn raw(&mut self) -> *mut Raw {
        self.memory.as_mut_ptr().cast()
    }

    /// Handles an ACK; `ack.cwnd` is the active window. The result is in [`Bbr3::view`].
    pub fn on_ack(&mut self, ack: &Bbr3Ack) {
        // SAFETY: initialised memory; `ack` outlives the call.
        unsafe { fp_native_bbr3_on_ack(self.raw(), ack) }
    }

    /// Fast recovery or a timeout begins, with this window.
    pub fn on_loss_episode(&mut self, cwnd: u32) {
        // SAFETY: initialised memory.
        unsafe { fp_native_bbr3_on_loss_episode(self.raw(), cwnd) }
    }

    /// A loss was spurious.
    pub fn on_undo(&mut self, ack: &Bbr3Ack) {
        // SAFETY: initialised memory; `ack` outlives the call.
        unsafe { fp_native_bbr3_on_undo(self.raw(), ack) }
    }

    /// The application sends again, and nothing is in flight.
    pub fn on_restart(&mut self, ack: &Bbr3Ack) {
        // SAFETY: initialised memory; `ack` outlives the call.
        unsafe { fp_native_bbr3_on_restart(self.raw(), ack) }
    }

    /// Its state and output.
    pub fn view(&self) -> Bbr3View {
        let mut view = Bbr3View::default();
        // SAFETY: initialised memory; `view` is as large as in C.
        unsafe { fp_native_bbr3_view(self.memory.as_ptr().cast(), &raw mut view) };
        view
    }
}

impl fmt::Debug for Bbr3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view().fmt(f)
    }
}
