//! Waiting for packets, for capacity, for a time, or for the end.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use fairpath_units::Nanos;

/// Ends the loop of a forwarder from another thread; clones end the same one.
#[derive(Clone, Debug)]
pub struct Stop(Event);

impl Stop {
    /// Not set yet.
    ///
    /// # Errors
    /// If no file descriptor is left.
    pub fn new() -> io::Result<Stop> {
        Event::new().map(Stop)
    }

    /// Sets it permanently.
    pub fn request(&self) {
        self.0.set();
    }

    pub(crate) fn is_requested(&self) -> bool {
        let mut event = [entry(self.0.fd(), libc::POLLIN)];
        poll(&mut event, Some(Nanos(0)));
        event[0].revents != 0
    }
}

/// Wakes a sleeping forwarder from another thread, so that it handles requests of its owner. Clones
/// wake the same one.
#[derive(Clone, Debug)]
pub struct Bell(Event);

impl Bell {
    pub(crate) fn new() -> io::Result<Bell> {
        Event::new().map(Bell)
    }

    /// Wakes it once, now or at its next sleep.
    pub fn ring(&self) {
        self.0.set();
    }
}

/// A descriptor for polling.
#[derive(Clone, Debug)]
struct Event(Arc<OwnedFd>);

impl Event {
    fn new() -> io::Result<Event> {
        // SAFETY: takes numbers only.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call gave a descriptor that no other code owns.
        Ok(Event(Arc::new(unsafe { OwnedFd::from_raw_fd(fd) })))
    }

    fn fd(&self) -> i32 {
        self.0.as_raw_fd()
    }

    fn set(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight readable bytes. It fails only after 2^64 writes.
        unsafe { libc::write(self.fd(), one.as_ptr().cast(), one.len()) };
    }

    fn clear(&self) {
        let mut times = [0u8; 8];
        // SAFETY: eight writable bytes. It fails if nothing was set, which is harmless.
        unsafe { libc::read(self.fd(), times.as_mut_ptr().cast(), times.len()) };
    }
}

/// Sleeps until a socket has packets (or, if wanted, capacity), the bell rings, the end is set, or
/// `most` is over.
pub(crate) fn wait<'a>(
    sockets: impl Iterator<Item = (BorrowedFd<'a>, bool)>,
    stop: &Stop,
    bell: &Bell,
    most: Option<Nanos>,
) {
    let capacity = |wanted| if wanted { libc::POLLOUT } else { 0 };
    let mut events = vec![
        entry(stop.0.fd(), libc::POLLIN),
        entry(bell.0.fd(), libc::POLLIN),
    ];
    events
        .extend(sockets.map(|(fd, wanted)| entry(fd.as_raw_fd(), libc::POLLIN | capacity(wanted))));
    poll(&mut events, most);
    if events[1].revents != 0 {
        bell.0.clear();
    }
}

/// Sleeps for a time, whatever arrives.
pub(crate) fn rest(time: Nanos) {
    poll(&mut [], Some(time));
}

/// `CLOCK_MONOTONIC`, as the XDP program reads it.
pub(crate) fn now() -> Nanos {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a structure of this size, written by the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

fn entry(fd: i32, events: i16) -> libc::pollfd {
    libc::pollfd {
        fd,
        events,
        revents: 0,
    }
}

/// An interruption counts as an event: the caller checks again anyway.
fn poll(events: &mut [libc::pollfd], most: Option<Nanos>) {
    let time = most.map(|most| libc::timespec {
        tv_sec: (most.0 / 1_000_000_000) as libc::time_t,
        tv_nsec: (most.0 % 1_000_000_000) as libc::c_long,
    });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let count = events.len() as libc::nfds_t;
    // SAFETY: as many entries as said; the time and the absent mask are read only.
    unsafe { libc::ppoll(events.as_mut_ptr(), count, time, std::ptr::null()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stop_stays_set_for_every_clone() {
        let (stop, bell) = (Stop::new().unwrap(), Bell::new().unwrap());
        let other = stop.clone();
        assert!(!stop.is_requested());
        other.request();
        assert!(stop.is_requested() && stop.is_requested());
        wait(std::iter::empty(), &stop, &bell, None);
    }

    #[test]
    fn an_early_bell_wakes_once() {
        let (stop, bell) = (Stop::new().unwrap(), Bell::new().unwrap());
        bell.clone().ring();
        bell.ring();
        wait(std::iter::empty(), &stop, &bell, None);
        let mut events = [entry(bell.0.fd(), libc::POLLIN)];
        poll(&mut events, Some(Nanos(0)));
        assert_eq!(events[0].revents, 0);
    }
}
