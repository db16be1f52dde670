//! The worker of AF_XDP: one thread that forwards between both interfaces, by what schedules packets.
//!
//! Written once for the shaper and for impairments; [`Schedule`] says what differs. The forwarder reads
//! the clock behind each queue.

use std::os::fd::BorrowedFd;
use std::sync::PoisonError;
use std::thread::{self, JoinHandle};

use anyhow::Context;
use fairpath_afxdp::{Forwarder, Order, Placement, Port, Stop};
use fairpath_bpf::{ForwardPlan, RttMonitor};

use super::ends::{Ends, Rings, pairs};
use super::watch::{Begun, Programs, Watch, detach};
use crate::orders::{self, Command, Lead, Orders, Orphan, Ran};
use crate::privileges::keep_of_worker;

/// What decides about packets of both directions: shaper instances, or the paths of impairments.
pub trait Schedule: Order + Send + Sized + 'static {
    /// What is counted.
    type Counts: Send + 'static;

    /// The worker begins, in its thread.
    fn begin(forwarder: &mut Forwarder<Self>);

    /// The thread runs wherever the kernel likes: why.
    fn not_pinned(why: &str);

    /// What was counted, with what the forwarder has.
    fn counts(forwarder: &Forwarder<Self>) -> Self::Counts;

    /// Carries out an order about its packets.
    fn obey(forwarder: &mut Forwarder<Self>, order: Command<Self::Counts>);

    /// Releases all queued packets after the last arrival, and returns the number of sent packets.
    ///
    /// # Errors
    /// What was lost.
    fn end(forwarder: &mut Forwarder<Self>) -> Result<u64, String>;
}

/// A worker that does not run yet.
pub struct Worker<S> {
    /// Its queues of both interfaces.
    pub port: Port,
    pub rings: Rings,
    pub placement: Placement,
    pub schedule: S,
}

/// A worker in its thread.
struct Thread<C> {
    lead: Lead<C>,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

/// Workers in their threads, and the programs that lead packets to them.
pub struct Running<C> {
    threads: Vec<Thread<C>>,
    programs: Programs,
    /// Over what they bypass.
    watch: Option<Watch>,
}

impl<C: Send + 'static> Running<C> {
    /// Starts workers called `name`; nothing comes yet.
    ///
    /// # Errors
    /// Where a port does not hold what is scheduled, or no thread or descriptor is left.
    pub fn start<S: Schedule<Counts = C>>(
        name: &str,
        ends: &Ends,
        workers: Vec<Worker<S>>,
    ) -> anyhow::Result<Running<C>> {
        // Its drop ends those that were started.
        let mut running = Running {
            threads: Vec::new(),
            programs: Programs::default(),
            watch: None,
        };
        let only = workers.len() == 1;
        for (number, worker) in workers.into_iter().enumerate() {
            let name = match only {
                true => name.to_owned(),
                false => format!("{name} {number}"),
            };
            running.threads.push(Thread::start(name, ends, worker)?);
        }
        Ok(running)
    }

    /// Attaches the programs of `monitor` to both ends: packets come, until what they bypass ends it.
    ///
    /// # Errors
    /// Where the kernel refuses, or packets would bypass a stage that appeared since `begun`.
    pub fn attach(
        &mut self,
        monitor: &mut RttMonitor,
        ends: &Ends,
        begun: Begun,
    ) -> anyhow::Result<()> {
        let count = if ends.is_one_armed() { 1 } else { 2 };
        for link in [&ends.inside, &ends.outside].into_iter().take(count) {
            let program = monitor.attach_forward(link.ifindex, &link.name)?;
            let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
            programs.push(program);
        }
        let stops = self.threads.iter().map(|thread| thread.stop.clone());
        self.watch = Some(begun.watch(self.programs.clone(), stops.collect())?);
        Ok(())
    }

    /// Checks that all run, and bypass nothing.
    ///
    /// # Errors
    /// They have ended: why.
    pub fn check(&self) -> anyhow::Result<()> {
        self.watch.as_ref().map_or(Ok(()), Watch::check)
    }

    /// Readable when they have ended before they were stopped; [`Running::check`] says why.
    pub fn ended(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().map(Watch::fd)
    }

    /// The channels for orders, of each worker.
    pub fn leads(&self) -> Vec<&Lead<C>> {
        self.threads.iter().map(|thread| &thread.lead).collect()
    }

    /// Nothing comes any more: the kernel forwards.
    pub fn detach(&mut self) {
        self.watch = None;
        detach(&self.programs);
    }

    /// Waits until the threads end.
    pub fn join(&mut self) {
        for thread in &mut self.threads {
            if let Some(thread) = thread.thread.take() {
                // A panic in it was printed.
                let _ = thread.join();
            }
        }
    }

    /// Ends them at once: what waits is dropped.
    pub fn end(&mut self) {
        self.watch = None;
        detach(&self.programs);
        for thread in &self.threads {
            thread.stop.request();
        }
        self.join();
    }
}

impl<C> Drop for Running<C> {
    fn drop(&mut self) {
        self.watch = None;
        detach(&self.programs);
    }
}

impl<C: Send + 'static> Thread<C> {
    fn start<S: Schedule<Counts = C>>(
        name: String,
        ends: &Ends,
        worker: Worker<S>,
    ) -> anyhow::Result<Thread<C>> {
        let Worker {
            port,
            rings,
            placement,
            schedule,
        } = worker;
        let exits = [ends.inside.ifindex, ends.outside.ifindex];
        let forwarder = Forwarder::with_exits(port, &pairs(ends, &rings), &exits, schedule)?;
        let stop = Stop::new().context("create the descriptor that ends the thread")?;
        let bell = forwarder.bell();
        let (lead, orders) = orders::pair(move || bell.ring());
        let theirs = stop.clone();
        let thread = thread::Builder::new()
            .name(name)
            .spawn(move || carry(forwarder, &orders, &theirs, &placement))
            .context("start the worker thread")?;
        Ok(Thread {
            lead,
            stop,
            thread: Some(thread),
        })
    }
}

impl<C> Drop for Thread<C> {
    fn drop(&mut self) {
        self.stop.request();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Sets the frames that the monitor's program forwards between both interfaces, and the sockets.
///
/// # Errors
/// Where the kernel refuses.
pub fn lead_packets<'p>(
    monitor: &mut RttMonitor,
    plan: &ForwardPlan,
    ends: &Ends,
    ports: impl IntoIterator<Item = &'p Port>,
) -> anyhow::Result<()> {
    monitor.set_forwarding(plan)?;
    let sockets = ports.into_iter().flat_map(Port::sockets);
    for (link, socket) in sockets {
        // One interface may be both exits.
        for (exit, end) in [&ends.inside, &ends.outside].into_iter().enumerate() {
            if end.ifindex == link.ifindex {
                monitor.set_socket(exit, link.queue, socket)?;
            }
        }
    }
    Ok(())
}

/// The thread: packets until the end.
fn carry<S: Schedule>(
    mut forwarder: Forwarder<S>,
    orders: &Orders<S::Counts>,
    stop: &Stop,
    placement: &Placement,
) {
    keep_of_worker();
    if let Err(error) = placement.pin() {
        let why = format!("pin the worker thread ({placement}): {error}");
        S::not_pinned(&why);
    }
    S::begin(&mut forwarder);
    let mut end = None;
    forwarder.run(stop, |forwarder| {
        loop {
            match orders.next() {
                Ok(Some(Command::Count(reply))) => {
                    drop(reply.try_send((S::counts(forwarder), Ran::now())))
                }
                Ok(Some(Command::Stop(reply))) => end = Some(reply),
                Ok(Some(order)) => S::obey(forwarder, order),
                Ok(None) => break,
                Err(Orphan) => {
                    stop.request();
                    break;
                }
            }
        }
        if end.is_some() {
            stop.request();
        }
    });
    if let Some(reply) = end {
        let _ = reply.try_send(S::end(&mut forwarder));
    }
}
