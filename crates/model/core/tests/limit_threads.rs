//! Threads that share limits, in chosen orders of their operations on shared words: nothing is granted twice, and
//! nothing is lost.
//!
//! `shuttle` chooses the orders, at random and by priorities (PCT: Burckhardt and others, ASPLOS 2010).

use std::sync::Mutex;

use fairpath_core::limit::{LimitConfig, LimitCpu, LimitRate, Limits, before_shared};
use fairpath_units::Share;
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::{check_pct, check_random, thread};

const SECOND: u64 = 1_000_000_000;
/// A byte takes a nanosecond.
const RATE: u64 = 8_000_000_000;
const THREADS: u32 = 3;
const PACKETS: u64 = 12;
const BYTES: u32 = 1000;
/// Orders in `make soak`; `make test` has its share of them.
const ORDERS: u64 = 5_000;

/// The hook is one for the process.
static ALONE: Mutex<()> = Mutex::new(());

extern "C" fn choose() {
    thread::yield_now();
}

/// With the hook, alone.
fn chosen(check: impl FnOnce(usize)) {
    let alone = ALONE.lock().unwrap();
    before_shared(Some(choose));
    check(Share::reported().of(ORDERS) as usize);
    before_shared(None);
    drop(alone);
}

/// Sends packets as a scheduler does, and waits by moving the common clock on.
fn pay_all(mut cpu: LimitCpu, clock: &AtomicU64) -> LimitCpu {
    let mut ready = cpu.pay(0, 0, BYTES, clock.load(Ordering::SeqCst));
    for packet in 0..PACKETS {
        while let Err(later) = ready {
            clock.fetch_max(later, Ordering::SeqCst);
            ready = cpu.pay(0, 0, BYTES, clock.load(Ordering::SeqCst));
        }
        let next = u32::from(packet + 1 < PACKETS);
        ready = cpu.pay(0, BYTES, next, clock.load(Ordering::SeqCst));
    }
    cpu
}

fn take_all(mut cpu: LimitCpu, clock: &AtomicU64) -> LimitCpu {
    for _ in 0..PACKETS {
        while let Err(later) = cpu.take(0, BYTES, clock.load(Ordering::SeqCst)) {
            clock.fetch_max(later, Ordering::SeqCst);
            thread::yield_now();
        }
    }
    cpu
}

/// As a scheduler whose packets are too old when their grant may be used: each third one is dropped.
fn drop_some(mut cpu: LimitCpu, clock: &AtomicU64) -> LimitCpu {
    for packet in 0..PACKETS {
        let mut ready = cpu.pay(0, 0, BYTES, clock.load(Ordering::SeqCst));
        while let Err(later) = ready {
            clock.fetch_max(later, Ordering::SeqCst);
            ready = cpu.pay(0, 0, BYTES, clock.load(Ordering::SeqCst));
        }
        let bytes = if packet % 3 == 0 { 0 } else { BYTES };
        let _ = cpu.pay(0, bytes, 0, clock.load(Ordering::SeqCst));
    }
    cpu
}

/// All packets come at once, and the clock is that of the last one that leaves.
fn pace_all(mut cpu: LimitCpu, clock: &AtomicU64) -> LimitCpu {
    let mut last = 0;
    for _ in 0..PACKETS {
        let leaves = cpu.pace(0, BYTES, SECOND).expect("none waits too long");
        assert!(leaves >= last, "{leaves} after {last}");
        last = leaves;
        thread::yield_now();
    }
    clock.fetch_max(last, Ordering::SeqCst);
    cpu
}

/// All bytes that left, wait in pools or were given back are granted, each once, and none of them too early. `packets` of
/// each thread leave.
fn run(pools: u64, (send, packets): (fn(LimitCpu, &AtomicU64) -> LimitCpu, u64)) {
    let rate = LimitRate {
        burst: 2 * u64::from(BYTES),
        pools,
        packet: BYTES,
        life: SECOND,
        ..LimitRate::new(RATE)
    };
    let limits = Limits::new(THREADS, &[LimitConfig { rate, parent: None }]).unwrap();
    // The word is before the clock: the first grants compare, and others add.
    let clock = Arc::new(AtomicU64::new(SECOND));
    let threads: Vec<_> = (0..THREADS)
        .map(|cpu| {
            let (cpu, clock) = (limits.cpu(cpu).unwrap(), Arc::clone(&clock));
            thread::spawn(move || send(cpu, &clock))
        })
        .collect();
    let cpus: Vec<LimitCpu> = threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .collect();
    let pools = || (0..THREADS).map(|cpu| limits.pool(0, cpu));
    let had: i64 = pools()
        .map(|pool| pool.sent as i64 + pool.tokens + pool.waiting as i64)
        .sum();
    let granted = had + limits.spare(0) as i64;
    assert_eq!(limits.resets(0), 0);
    let ahead = limits.granted(0) as i64 - SECOND as i64;
    let (least, end) = (granted, clock.load(Ordering::SeqCst) as i64);
    // Rounded to 1/16 ns for each grant. A clock beyond the word lost what was not granted.
    let grants: i64 = pools().map(|pool| i64::from(pool.grants)).sum();
    assert!(ahead >= least, "{granted} bytes are granted in {ahead} ns");
    assert!(
        ahead <= least + grants || end > SECOND as i64 + least,
        "{granted} bytes in {ahead} ns"
    );
    let sent: i64 = pools().map(|pool| pool.sent as i64).sum();
    assert_eq!(sent, i64::from(THREADS) * packets as i64 * i64::from(BYTES));
    let most = limits.burst(0, BYTES) as i64 + i64::from(THREADS * BYTES);
    assert!(
        sent <= end - SECOND as i64 + most,
        "{sent} bytes until {end}"
    );
    drop(cpus);
}

#[test]
fn every_order_grants_each_byte_once() {
    // A pool of several packets, and one of none.
    for pools in [30_000, 0] {
        let all: fn(LimitCpu, &AtomicU64) -> LimitCpu = pay_all;
        for send in [
            (all, PACKETS),
            (take_all, PACKETS),
            (pace_all, PACKETS),
            (drop_some, 2 * PACKETS / 3),
        ] {
            chosen(|orders| check_random(move || run(pools, send), orders));
            chosen(|orders| check_pct(move || run(pools, send), orders, 3));
        }
    }
}
