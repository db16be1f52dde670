//! Limits of rate that many CPUs share: the native runtime of `bpf/core/limit`, and the memory of limits in every
//! runtime.
//!
//! ```text
//!   packet ─ pool of its class on this CPU ─ empty: grant ─┬─ word of the class, shared by all CPUs
//!                                                          └─ pool of the site on this CPU ─ word of the site ─ ...
//! ```
//!
//! docs/design/0021 has the bounds of [`Limits::take`] and their proofs.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Most bytes of a request (`FP_LIMIT_REQUEST`).
pub const MAX_REQUEST: u32 = 1 << 20;
/// Bits a second of a limit, at least.
pub const LOWEST: u64 = 1_000;
/// Bits a second of a limit, at most.
pub const HIGHEST: u64 = 10_000_000_000_000;
/// Limits from a class to the port, at most (`FP_LIMIT_LEVELS`).
pub const LEVELS: usize = 8;
/// Nanoseconds that paced packets may wait, at rates where that is more than four packets.
pub const USUAL_WAIT_NS: u64 = 50_000_000;
/// Nanoseconds until a paced packet leaves, at most (`FP_LIMIT_LONGEST`).
pub const LONGEST_NS: u64 = 5_000_000_000;
/// Value of [`LimitRequest::paid`] for [`LimitCpu::pace`].
pub const PACED: u32 = u32::MAX;
/// Units of time inside of limits in a nanosecond.
const UNITS: u128 = 1 << FRACTION_BITS;
/// `FP_LIMIT_FRACTION`.
const FRACTION_BITS: u32 = 4;
/// Bytes of a usual packet.
const PACKET: u32 = 1514;
/// Bits of the factor that makes bytes a time.
const FACTOR_BITS: u32 = 38;
/// Usual packets that CPUs may give back for others, at a rate whose grants are what a packet needs.
const SPARE_PACKETS: u64 = 16;
/// Most bytes of a pool.
const MAX_POOL: u128 = 1 << 24;
/// No parent (`FP_LIMIT_NONE`).
const NONE: u32 = u32::MAX;
/// Cache lines must not be shared.
const ALIGN: usize = 64;

/// A rate, and the burst above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitRate {
    /// Bits a second, 1 kbit/s to 10 Tbit/s.
    pub bits: u64,
    /// Nanoseconds of the rate that may leave at once after a pause.
    pub burst: u64,
    /// Nanoseconds of the rate that all pools have together.
    pub pools: u64,
    /// Nanoseconds after which a pool loses what it has not used.
    pub life: u64,
    /// Nanoseconds that granted packets may wait before [`LimitCpu::pace`] drops the next one.
    pub wait: u64,
    /// Bytes of a usual packet: a pool with less gets no more than it needs.
    pub packet: u32,
}

impl LimitRate {
    /// A rate with the usual times: 100 us, and 100 ms or 50 ms for what waits. Of the latter, four packets if that is
    /// longer.
    pub fn new(bits: u64) -> LimitRate {
        let packet_ns = u64::from(PACKET) * 8_000_000_000 / bits.max(1);
        LimitRate {
            bits,
            burst: 100_000,
            pools: 100_000,
            life: (4 * packet_ns).max(100_000_000),
            wait: (4 * packet_ns).max(USUAL_WAIT_NS),
            packet: PACKET,
        }
    }

    /// Bytes of the rate that each CPU may have.
    fn share(self, cpus: u32) -> u128 {
        u128::from(self.bits) * u128::from(self.pools) / 8_000_000_000 / u128::from(cpus)
    }

    /// `share`: bytes that a pool may have.
    fn raw(self, cpus: u32, share: u128) -> Result<RawRate, LimitError> {
        if !(LOWEST..=HIGHEST).contains(&self.bits) {
            return Err(LimitError::Rate { bits: self.bits });
        }
        let second = 8_000_000_000 * UNITS;
        let factor = |shift: u32| (second << shift).div_ceil(u128::from(self.bits));
        let fits = |shift: &u32| factor(*shift) < 1 << FACTOR_BITS;
        let shift = (0..64).rev().find(fits).unwrap_or(0);
        let mult = factor(shift);
        let time = |bytes: u128| (bytes * mult).div_ceil(1 << shift);
        let depth = (u128::from(self.burst) * UNITS).max(time(self.packet.into()));
        let packet = u128::from(self.packet);
        let pool = match share.min(MAX_POOL) {
            // With the packet that a scheduler sends beyond it, a pool has no more than its share.
            pool if pool >= 2 * packet => pool - packet,
            _ => 0,
        };
        let most = pool.max(MAX_REQUEST.into());
        let wait = u128::from(self.wait) * UNITS;
        let horizon = depth + wait + u128::from(cpus + 1) * time(most);
        let whole =
            |number: u128| u64::try_from(number).map_err(|_| LimitError::Rate { bits: self.bits });
        Ok(RawRate {
            mult: whole(mult)?,
            depth: whole(depth)?,
            horizon: whole(horizon)?,
            life: self.life,
            wait: self.wait,
            shift,
            pool: pool as u32,
            spare: match pool {
                0 => SPARE_PACKETS * u64::from(self.packet),
                _ => 0,
            },
            pad: 0,
        })
    }
}

/// A limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitConfig {
    /// Its rate.
    pub rate: LimitRate,
    /// The number of the limit around it, which comes before it.
    pub parent: Option<u32>,
}

/// Bytes that a pool of each limit may have: those of the limits below one have together no more than its own,
/// since what they have is sent without it.
fn shares(cpus: u32, limits: &[LimitConfig]) -> Vec<u128> {
    let mut below = vec![0u128; limits.len()];
    for limit in limits {
        if let Some(parent) = limit.parent {
            below[parent as usize] += u128::from(limit.rate.bits);
        }
    }
    let mut shares: Vec<u128> = Vec::with_capacity(limits.len());
    for limit in limits {
        let own = limit.rate.share(cpus);
        shares.push(match limit.parent.map(|parent| parent as usize) {
            None => own,
            Some(parent) => own.min(shares[parent] * u128::from(limit.rate.bits) / below[parent]),
        });
    }
    shares
}

/// Limits cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// A rate outside of the range.
    #[error("a limit of {bits} bit/s: it must be 1 kbit/s to 10 Tbit/s")]
    Rate {
        /// As configured.
        bits: u64,
    },
    /// The parent is not before the limit, or too many are above each other.
    #[error(
        "limit {limit}: its parent must have a lower number, and {LEVELS} may be above each other"
    )]
    Parent {
        /// The number of the limit.
        limit: u32,
    },
    /// There is no space for another limit.
    #[error("there are {limits} limits, and no space for more")]
    Room {
        /// For as many there is space.
        limits: u32,
    },
    /// There is no CPU, or too much memory would be needed.
    #[error("limits of {cpus} CPUs: it must be 1 to 4096")]
    Cpus {
        /// As requested.
        cpus: u32,
    },
}

/// `struct fp_limit_rate`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct RawRate {
    mult: u64,
    depth: u64,
    horizon: u64,
    life: u64,
    wait: u64,
    shift: u32,
    pool: u32,
    spare: u64,
    pad: u64,
}

/// `struct fp_limit`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct RawLimit {
    granted: u64,
    resets: u64,
    spare: u64,
    pad: [u64; 5],
    rate: [RawRate; 2],
    change: u32,
    parent: u32,
    rest: [u64; 7],
}

/// `struct fp_limit_pool`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct RawPool {
    tokens: u64,
    waiting: u64,
    ready: u64,
    ends: u64,
    sent: u64,
    change: u32,
    grants: u32,
    refusals: u32,
    own: u32,
    /// Of a pool that paces: `closed`.
    last: u64,
}

/// `struct fp_limits`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct RawLimits {
    zero: u64,
    count: u32,
    cpus: u32,
    limits: u64,
    pools: u64,
    row: u64,
    pad: [u64; 3],
}

unsafe extern "C" {
    #[cfg(test)]
    static fp_native_limit_sizes: [u32; 4];
    fn fp_native_limit_take(
        limits: *mut RawLimits,
        limit: u32,
        cpu: u32,
        bytes: u32,
        now: u64,
    ) -> u64;
    fn fp_native_limit_pay(
        limits: *mut RawLimits,
        limit: u32,
        cpu: u32,
        bytes: u32,
        next: u32,
        now: u64,
    ) -> u64;
    fn fp_native_limit_pace(
        limits: *mut RawLimits,
        limit: u32,
        cpu: u32,
        bytes: u32,
        now: u64,
    ) -> u64;
}

unsafe extern "C" {
    static mut fp_native_before_shared: Option<extern "C" fn()>;
}

/// Calls `hook` before each operation on a shared word, in all threads: for tests that choose their order.
#[doc(hidden)]
pub fn before_shared(hook: Option<extern "C" fn()>) {
    let place = &raw mut fp_native_before_shared;
    // SAFETY: a pointer of the native library; tests set it before threads run.
    unsafe { place.write_volatile(hook) };
}

/// A request of a test run (`struct limit_op`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitRequest {
    /// The limit.
    pub limit: u32,
    /// The CPU.
    pub cpu: u32,
    /// Bytes.
    pub bytes: u32,
    /// 0: they are requested ([`LimitCpu::take`]). [`PACED`]: they wait elsewhere ([`LimitCpu::pace`]). Else they left
    /// ([`LimitCpu::pay`]), and this is one more than the bytes that wait behind.
    pub paid: u32,
    /// Nanoseconds.
    pub now: u64,
    /// 0, or the nanosecond at which to try again. Of paced bytes: that at which they leave; 0: they are dropped.
    pub answer: u64,
}

/// A pool of one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolReading {
    /// Bytes that may leave; a debt is below 0.
    pub tokens: i64,
    /// Bytes of a grant that may leave from [`PoolReading::ready`] on.
    pub waiting: u64,
    /// Nanoseconds.
    pub ready: u64,
    /// Bytes that left.
    pub sent: u64,
    /// Operations on the shared words: grants, and bytes given back.
    pub grants: u32,
    /// Requests that had to wait, or were dropped.
    pub refusals: u32,
    /// Bytes that it gets at once ([`Limits::set_grant`]); 0: its part of the rate.
    pub grant: u32,
}

/// The memory of limits, which all of their CPUs use.
#[derive(Debug)]
struct Memory {
    at: NonNull<RawLimits>,
    layout: Layout,
    owned: bool,
    /// By CPU: whether it was handed out.
    taken: Vec<AtomicBool>,
}

// SAFETY: the core changes shared words by atomic operations, and a pool is used by its CPU only ([`LimitCpu`]).
unsafe impl Send for Memory {}
// SAFETY: as above. User space writes a rate that is not in use before it selects it.
unsafe impl Sync for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: allocated by Limits::new() with this layout.
            unsafe { dealloc(self.at.cast().as_ptr(), self.layout) };
        }
    }
}

/// Limits of some CPUs.
///
/// ```
/// use fairpath_core::limit::{LimitConfig, LimitRate, Limits};
///
/// let rate = LimitRate::new(10_000_000_000);
/// let limits = Limits::new(2, &[LimitConfig { rate, parent: None }])?;
/// let mut cpu = limits.cpu(0).expect("it is unused");
/// assert_eq!(cpu.take(0, 1514, 1_000_000_000), Ok(()));
/// # Ok::<(), fairpath_core::limit::LimitError>(())
/// ```
#[derive(Debug)]
pub struct Limits {
    memory: Arc<Memory>,
    configs: Vec<LimitConfig>,
    /// Numbers of limits that another one may have.
    removed: Vec<u32>,
}

/// One CPU of limits, for one thread. Dropped, another thread may have it.
#[derive(Debug)]
pub struct LimitCpu {
    memory: Arc<Memory>,
    cpu: u32,
}

impl Drop for LimitCpu {
    fn drop(&mut self) {
        self.memory.taken[self.cpu as usize].store(false, Ordering::Release);
    }
}

impl LimitCpu {
    /// Its number.
    pub fn number(&self) -> u32 {
        self.cpu
    }

    /// The memory of its limits.
    pub(crate) fn address(&self) -> NonNull<u8> {
        self.memory.at.cast()
    }

    /// Takes `bytes` of a limit and of those around it, before they leave. `now` is in nanoseconds.
    ///
    /// # Errors
    /// The nanosecond at which to try again.
    ///
    /// # Panics
    /// There is no such limit, or the bytes are more than [`MAX_REQUEST`].
    pub fn take(&mut self, limit: u32, bytes: u32, now: u64) -> Result<(), u64> {
        self.check(limit, bytes);
        let at = self.memory.at.as_ptr();
        // SAFETY: formatted memory, with this limit; only this value uses the pools of its CPU.
        later(unsafe { fp_native_limit_take(at, limit, self.cpu, bytes, now) })
    }

    /// Charges `bytes` that left to one limit, and requests a grant for the packet that waits behind: its bytes, 1 if they are not
    /// known, or 0 if none waits. It may leave now if the pool has anything, even if it has less.
    ///
    /// # Errors
    /// The nanosecond at which it may leave.
    ///
    /// # Panics
    /// As [`LimitCpu::take`].
    pub fn pay(&mut self, limit: u32, bytes: u32, next: u32, now: u64) -> Result<(), u64> {
        self.check(limit, 0);
        let at = self.memory.at.as_ptr();
        // SAFETY: as take().
        later(unsafe { fp_native_limit_pay(at, limit, self.cpu, bytes, next, now) })
    }

    /// Takes `bytes` of a limit and of those around it, for a packet that waits elsewhere until its time. Returns the
    /// nanosecond at which it leaves, `now` or later. None: it is dropped, because packets wait longer for one of the
    /// limits than [`LimitRate::wait`], or it would leave after [`LONGEST_NS`].
    ///
    /// # Panics
    /// As [`LimitCpu::take`].
    pub fn pace(&mut self, limit: u32, bytes: u32, now: u64) -> Option<u64> {
        self.check(limit, bytes);
        let at = self.memory.at.as_ptr();
        // SAFETY: as take().
        let leaves = unsafe { fp_native_limit_pace(at, limit, self.cpu, bytes, now) };
        (leaves > 0).then_some(leaves)
    }

    fn check(&self, limit: u32, bytes: u32) {
        assert!(bytes <= MAX_REQUEST, "{bytes} bytes are too many");
        // SAFETY: format() wrote it.
        let count = unsafe { self.memory.at.read_volatile() }.count;
        assert!(limit < count, "there is no limit {limit}");
    }
}

fn later(answer: u64) -> Result<(), u64> {
    match answer {
        0 => Ok(()),
        later => Err(later),
    }
}

impl Limits {
    /// Bytes of limits for CPUs.
    ///
    /// # Errors
    /// [`LimitError::Cpus`].
    pub fn bytes(cpus: u32, limits: usize) -> Result<usize, LimitError> {
        let bytes = (1..=4096).contains(&cpus).then(|| {
            let pools = size_of::<RawPool>().checked_mul(limits)?;
            let pools = pools.checked_mul(cpus as usize)?;
            let bytes = size_of::<RawLimit>().checked_mul(limits)?;
            bytes
                .checked_add(pools)?
                .checked_add(size_of::<RawLimits>())
        });
        bytes.flatten().ok_or(LimitError::Cpus { cpus })
    }

    /// Allocates limits, which are numbered from 0 on.
    ///
    /// # Errors
    /// [`LimitError`].
    pub fn new(cpus: u32, limits: &[LimitConfig]) -> Result<Limits, LimitError> {
        Limits::with_room(cpus, limits, limits.len())
    }

    /// The same with space for `room` limits, see [`Limits::add`].
    ///
    /// # Errors
    /// [`LimitError`].
    pub fn with_room(cpus: u32, limits: &[LimitConfig], room: usize) -> Result<Limits, LimitError> {
        let room = room.max(limits.len());
        let bytes = Limits::bytes(cpus, room)?;
        let layout =
            Layout::from_size_align(bytes, ALIGN).map_err(|_| LimitError::Cpus { cpus })?;
        // SAFETY: the size is not zero: a header always exists.
        let Some(at) = NonNull::new(unsafe { alloc_zeroed(layout) }) else {
            handle_alloc_error(layout)
        };
        // SAFETY: allocated above with these bytes, zeroed, aligned, and freed only by drop().
        match unsafe { Limits::format_with_room(at, cpus, limits, room) } {
            Ok(mut made) => {
                if let Some(memory) = Arc::get_mut(&mut made.memory) {
                    memory.owned = true;
                }
                Ok(made)
            }
            Err(error) => {
                // SAFETY: as above, and nothing refers to it.
                unsafe { dealloc(at.as_ptr(), layout) };
                Err(error)
            }
        }
    }

    /// Formats limits in memory that the caller keeps.
    ///
    /// # Errors
    /// [`LimitError`].
    ///
    /// # Safety
    /// `at` has [`Limits::bytes`] of zeros, aligned to 64, that stay as long as the limits, and that others change by
    /// the core's code only.
    pub unsafe fn format(
        at: NonNull<u8>,
        cpus: u32,
        limits: &[LimitConfig],
    ) -> Result<Limits, LimitError> {
        // SAFETY: as documented.
        unsafe { Limits::format_with_room(at, cpus, limits, limits.len()) }
    }

    /// The same with space for `room` limits.
    ///
    /// # Errors
    /// [`LimitError`].
    ///
    /// # Safety
    /// As [`Limits::format`], with the bytes of `room` limits.
    pub unsafe fn format_with_room(
        at: NonNull<u8>,
        cpus: u32,
        limits: &[LimitConfig],
        room: usize,
    ) -> Result<Limits, LimitError> {
        let room = room.max(limits.len());
        let bytes = Limits::bytes(cpus, room)?;
        let layout =
            Layout::from_size_align(bytes, ALIGN).map_err(|_| LimitError::Cpus { cpus })?;
        let mut levels = Vec::new();
        for (number, limit) in (0..).zip(limits) {
            limit.rate.raw(cpus, 0)?;
            let above = match limit.parent {
                None => Some(0),
                Some(parent) => levels.get(parent as usize).copied(),
            };
            match above {
                Some(above) if above < LEVELS => levels.push(above + 1),
                _ => return Err(LimitError::Parent { limit: number }),
            }
        }
        let first = size_of::<RawLimits>();
        let pools = first + size_of_val_of::<RawLimit>(room);
        let header = RawLimits {
            zero: 0,
            count: room as u32,
            cpus,
            limits: first as u64,
            pools: pools as u64,
            row: size_of_val_of::<RawPool>(room) as u64,
            pad: [0; 3],
        };
        // SAFETY: the header is the beginning of the memory.
        unsafe { at.cast::<RawLimits>().write(header) };
        let made = Limits {
            memory: Arc::new(Memory {
                at: at.cast(),
                layout,
                owned: false,
                taken: (0..cpus).map(|_| AtomicBool::new(false)).collect(),
            }),
            configs: limits.to_vec(),
            removed: Vec::new(),
        };
        let shares = shares(cpus, limits);
        for ((number, limit), share) in (0..).zip(limits).zip(shares) {
            let rate = limit.rate.raw(cpus, share)?;
            let raw = RawLimit {
                granted: 0,
                resets: 0,
                spare: 0,
                pad: [0; 5],
                rate: [rate; 2],
                change: 0,
                parent: limit.parent.unwrap_or(NONE),
                rest: [0; 7],
            };
            // SAFETY: limit_place() is inside of the memory, aligned.
            unsafe { made.limit_place(number).write(raw) };
        }
        Ok(made)
    }

    fn header(&self) -> RawLimits {
        // SAFETY: format() wrote it.
        unsafe { self.memory.at.read_volatile() }
    }

    fn limit_place(&self, limit: u32) -> NonNull<RawLimit> {
        let header = self.header();
        assert!(limit < header.count, "there is no limit {limit}");
        let at = header.limits as usize + limit as usize * size_of::<RawLimit>();
        // SAFETY: inside of the memory by the comparison above.
        unsafe { self.memory.at.cast::<u8>().add(at) }.cast()
    }

    fn pool_place(&self, limit: u32, cpu: u32) -> NonNull<RawPool> {
        let header = self.header();
        assert!(
            limit < header.count && cpu < header.cpus,
            "there is no pool of limit {limit} on CPU {cpu}"
        );
        let at = header.pools as usize
            + cpu as usize * header.row as usize
            + limit as usize * size_of::<RawPool>();
        // SAFETY: inside of the memory by the comparison above.
        unsafe { self.memory.at.cast::<u8>().add(at) }.cast()
    }

    /// A CPU of these limits, which one thread has. None if there is no such CPU, or another thread has it.
    pub fn cpu(&self, cpu: u32) -> Option<LimitCpu> {
        let taken = self.memory.taken.get(cpu as usize)?;
        let free = !taken.swap(true, Ordering::Acquire);
        free.then(|| LimitCpu {
            memory: Arc::clone(&self.memory),
            cpu,
        })
    }

    /// Changes rates of limits. What was granted and waits ends; what a pool has stays, as far as it has space at the
    /// new rate. `now` is in nanoseconds. O(limits).
    ///
    /// # Errors
    /// [`LimitError::Rate`]: nothing changes.
    ///
    /// # Panics
    /// There is no such limit.
    pub fn set_rates(&mut self, rates: &[(u32, LimitRate)], now: u64) -> Result<(), LimitError> {
        let cpus = self.header().cpus;
        let before = shares(cpus, &self.configs);
        let mut configs = self.configs.clone();
        for (limit, rate) in rates {
            rate.raw(cpus, 0)?;
            configs[*limit as usize].rate = *rate;
        }
        let shares = shares(cpus, &configs);
        for (number, share) in (0..).zip(&shares) {
            let at = number as usize;
            let (old, new) = (self.configs[at].rate, configs[at].rate);
            if (new, share) != (old, &before[at]) {
                self.write_rate(number, new.raw(cpus, *share)?);
                self.rescale(number, now, old.bits, new.bits);
            }
        }
        self.configs = configs;
        Ok(())
    }

    /// Limits for which there is space.
    pub fn free(&self) -> usize {
        self.header().count as usize - self.configs.len() + self.removed.len()
    }

    /// Adds a limit without a parent, and returns its number.
    ///
    /// # Errors
    /// [`LimitError::Room`], [`LimitError::Rate`].
    pub fn add(&mut self, rate: LimitRate, now: u64) -> Result<u32, LimitError> {
        let header = self.header();
        rate.raw(header.cpus, 0)?;
        let number = self.removed.pop().unwrap_or(self.configs.len() as u32);
        if number >= header.count {
            return Err(LimitError::Room {
                limits: header.count,
            });
        }
        let config = LimitConfig { rate, parent: None };
        match self.configs.get_mut(number as usize) {
            Some(place) => *place = config,
            None => self.configs.push(config),
        }
        self.write_rate(number, rate.raw(header.cpus, rate.share(header.cpus))?);
        let place = self.limit_place(number).as_ptr();
        // SAFETY: a field inside of the memory.
        let parent = unsafe { &raw mut (*place).parent };
        // SAFETY: aligned, and no CPU uses the limit yet.
        unsafe { parent.write_volatile(NONE) };
        // What a limit before it left with this number.
        // SAFETY: a field inside of the memory.
        let spare = unsafe { &raw mut (*place).spare };
        // SAFETY: aligned, and no CPU uses the limit yet.
        unsafe { spare.write_volatile(0) };
        for cpu in 0..header.cpus {
            self.set_grant(number, cpu, 0);
        }
        self.word(number)
            .store(now << FRACTION_BITS, Ordering::SeqCst);
        Ok(number)
    }

    /// No CPU uses a limit any more, and it is around no other: another one may have its number.
    ///
    /// # Panics
    /// There is no such limit.
    pub fn remove(&mut self, limit: u32) {
        assert!(
            (limit as usize) < self.configs.len(),
            "there is no limit {limit}"
        );
        if !self.removed.contains(&limit) {
            self.removed.push(limit);
        }
    }

    /// A limit continues one of other limits: what was granted there is granted here.
    ///
    /// # Panics
    /// There is no such limit.
    pub fn continue_from(&mut self, limit: u32, other: &Limits, of_other: u32) {
        let granted = other.word(of_other).load(Ordering::SeqCst);
        self.word(limit).store(granted, Ordering::SeqCst);
    }

    /// Writes the rate that is not in use, then the number that selects it.
    fn write_rate(&mut self, limit: u32, rate: RawRate) {
        let place = self.limit_place(limit).as_ptr();
        // SAFETY: a field inside of the memory.
        let change_at = unsafe { &raw mut (*place).change };
        // SAFETY: aligned, and only this value writes it.
        let change = unsafe { change_at.read_volatile() }.wrapping_add(1);
        // SAFETY: a field inside of the memory.
        let unused = unsafe { &raw mut (*place).rate[change as usize & 1] };
        // SAFETY: aligned; the core reads the other rate.
        unsafe { unused.write_volatile(rate) };
        std::sync::atomic::fence(Ordering::SeqCst);
        // SAFETY: aligned, as above.
        unsafe { change_at.write_volatile(change) };
    }

    /// Grants ahead of the clock take as long as at the new rate.
    fn rescale(&self, limit: u32, now: u64, from: u64, to: u64) {
        let clock = now << FRACTION_BITS;
        let _ = self
            .word(limit)
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |granted| {
                let ahead =
                    u128::from(granted.checked_sub(clock)?) * u128::from(from) / u128::from(to);
                u64::try_from(u128::from(clock) + ahead).ok()
            });
    }

    /// The shared word.
    fn word(&self, limit: u32) -> &AtomicU64 {
        let place = self.limit_place(limit).as_ptr();
        // SAFETY: a field inside of the memory.
        let word = unsafe { &raw mut (*place).granted };
        // SAFETY: aligned, inside of memory that lives as long as these limits, and changed by atomic operations only.
        unsafe { AtomicU64::from_ptr(word) }
    }

    /// Their memory.
    pub(crate) fn address(&self) -> NonNull<u8> {
        self.memory.at.cast()
    }

    /// CPUs that share them.
    pub fn cpus(&self) -> u32 {
        self.header().cpus
    }

    /// The pool of a limit on a CPU.
    ///
    /// # Panics
    /// There is no such limit or CPU.
    pub fn pool(&self, limit: u32, cpu: u32) -> PoolReading {
        // SAFETY: pool_place() is inside of the memory.
        let raw = unsafe { self.pool_place(limit, cpu).read_volatile() };
        PoolReading {
            tokens: raw.tokens as i64,
            waiting: raw.waiting,
            ready: raw.ready,
            sent: raw.sent,
            grants: raw.grants,
            refusals: raw.refusals,
            grant: raw.own,
        }
    }

    /// The time until which all grants of a limit have left at the rate, nanoseconds.
    ///
    /// # Panics
    /// There is no such limit.
    pub fn granted(&self, limit: u32) -> u64 {
        self.word(limit).load(Ordering::SeqCst) >> FRACTION_BITS
    }

    /// Bytes that CPUs gave back, for the next request of any of them.
    ///
    /// # Panics
    /// There is no such limit.
    pub fn spare(&self, limit: u32) -> u64 {
        let place = self.limit_place(limit).as_ptr();
        // SAFETY: a field inside of the memory.
        let spare = unsafe { &raw const (*place).spare };
        // SAFETY: aligned.
        unsafe { spare.read_volatile() }
    }

    /// Sets the bytes that a CPU gets of a limit at once, at most [`MAX_REQUEST`]; 0: its part of the rate. CPUs that
    /// wait get the rate in proportion.
    ///
    /// # Panics
    /// There is no such limit or CPU.
    pub fn set_grant(&mut self, limit: u32, cpu: u32, bytes: u32) {
        let place = self.pool_place(limit, cpu).as_ptr();
        // SAFETY: a field inside of the memory.
        let own = unsafe { &raw mut (*place).own };
        // SAFETY: aligned; only user space writes it.
        unsafe { own.write_volatile(bytes.min(MAX_REQUEST)) };
    }

    /// The rate of a limit.
    ///
    /// # Panics
    /// There is no such limit.
    pub fn rate(&self, limit: u32) -> LimitRate {
        self.configs[limit as usize].rate
    }

    /// Bytes that a CPU gets of a limit at once by its part of the rate; 0: as many as its packet has.
    ///
    /// # Panics
    /// There is no such limit.
    pub fn usual_grant(&self, limit: u32) -> u32 {
        let cpus = self.header().cpus;
        let config = self.configs[limit as usize];
        let share = match config.parent {
            None => config.rate.share(cpus),
            Some(_) => shares(cpus, &self.configs)[limit as usize],
        };
        let raw = config.rate.raw(cpus, share);
        raw.map_or(0, |raw| raw.pool)
    }

    /// Times that the clock went back too far for a limit.
    ///
    /// # Panics
    /// There is no such limit.
    pub fn resets(&self, limit: u32) -> u64 {
        let place = self.limit_place(limit).as_ptr();
        // SAFETY: a field inside of the memory.
        let resets = unsafe { &raw const (*place).resets };
        // SAFETY: aligned.
        unsafe { resets.read_volatile() }
    }

    /// The most bytes above the rate that leave in any time, with requests of at most `largest` bytes: the depth,
    /// what its pools have, what they gave back, and what those below it have.
    ///
    /// # Panics
    /// There is no such limit.
    pub fn burst(&self, limit: u32, largest: u32) -> u64 {
        let cpus = self.header().cpus;
        let shares = shares(cpus, &self.configs);
        let is_below = |mut number: u32| {
            loop {
                match self.configs[number as usize].parent {
                    _ if number == limit => return true,
                    None => return false,
                    Some(parent) => number = parent,
                }
            }
        };
        let raw = |number: u32| {
            let rate = self.configs[number as usize].rate;
            rate.raw(cpus, shares[number as usize]).ok()
        };
        let Some(own) = raw(limit) else {
            return 0;
        };
        let bits = u128::from(self.configs[limit as usize].rate.bits);
        let depth = u128::from(own.depth) * bits / (8_000_000_000 * UNITS) + 1;
        let numbers = (0..self.configs.len() as u32).filter(|number| is_below(*number));
        let pools: u128 = numbers
            .filter_map(|number| Some((number, raw(number)?)))
            .map(|(number, rate)| {
                let own = |cpu| self.pool(number, cpu).grant;
                let each = |cpu| u128::from(rate.pool.max(own(cpu)).max(largest));
                (0..cpus).map(each).sum::<u128>()
            })
            .sum();
        u64::try_from(depth + u128::from(own.spare) + pools).unwrap_or(u64::MAX)
    }
}

fn size_of_val_of<T>(count: usize) -> usize {
    size_of::<T>() * count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_those_of_the_core() {
        // SAFETY: a constant of limit.c.
        let sizes = unsafe { fp_native_limit_sizes };
        let ours = [
            size_of::<RawLimits>(),
            size_of::<RawLimit>(),
            size_of::<RawRate>(),
            size_of::<RawPool>(),
        ];
        assert_eq!(sizes.map(|size| size as usize), ours);
        assert!(ours.iter().all(|size| size % ALIGN == 0));
    }
}
