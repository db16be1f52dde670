//! Requests of other threads to the loop, which owns monitor and history.
//!
//! ```text
//! control clients --.
//!                    >-- requests (bounded) --> loop --> answer --> requester
//! web server -------'         wake-up
//! ```

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::Duration;

use anyhow::Context;
use fairpath_history::snapshot::{Answer, Request};
use nix::sys::eventfd::{EfdFlags, EventFd};

/// Maximum number of requests that wait for the loop. Further ones are refused.
const MAX_PENDING: usize = 64;
/// Maximum time of an answer, many times that of the slowest one.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// The same for a change: HTB takes seconds for 10,000 classes.
const CHANGE_TIME: Duration = Duration::from_secs(60);

/// One request to the loop.
#[derive(Debug)]
pub struct PendingRequest {
    /// The request.
    pub request: Request,
    reply: SyncSender<Answer>,
}

impl PendingRequest {
    /// Answers. A requester that ended is ignored.
    pub fn answer(self, answer: Answer) {
        let _ = self.reply.try_send(answer);
    }
}

/// The side of other threads, cheap to clone.
#[derive(Clone, Debug)]
pub struct Requester {
    requests: SyncSender<PendingRequest>,
    wake: Arc<EventFd>,
}

/// A request without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The queue is full.
    #[error("request to the daemon: {MAX_PENDING} requests wait already: retry, less often")]
    Busy,
    /// The loop ends, or is overloaded.
    #[error("request to the daemon: no answer in time: it is stopping or overloaded")]
    Late,
}

impl Requester {
    /// Sends a request and waits for the answer: at most 10 s, or 60 s for a change.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn query(&self, request: Request) -> Result<Answer, RequestError> {
        let (reply, answer) = mpsc::sync_channel(1);
        let timeout = match request.changes() {
            true => CHANGE_TIME,
            false => ANSWER_TIME,
        };
        let pending = PendingRequest { request, reply };
        self.requests
            .try_send(pending)
            .map_err(|_| RequestError::Busy)?;
        self.wake();
        answer.recv_timeout(timeout).map_err(|_| RequestError::Late)
    }
}

impl Requester {
    /// Wakes the loop without a request.
    pub fn wake(&self) {
        // Only a full counter refuses the write, and then the loop wakes anyway.
        let _ = self.wake.write(1);
    }
}

/// The side of the loop.
#[derive(Debug)]
pub struct RequestQueue {
    requests: Receiver<PendingRequest>,
    wake: Arc<EventFd>,
}

impl RequestQueue {
    /// Readable when there is a request.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// The requests since the last call.
    pub fn take(&self) -> Vec<PendingRequest> {
        // The counter may be zero although requests are queued.
        let _ = self.wake.read();
        self.requests.try_iter().take(MAX_PENDING).collect()
    }
}

/// Both sides.
///
/// # Errors
/// The kernel provides no descriptor.
pub fn channel() -> anyhow::Result<(Requester, RequestQueue)> {
    let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
    let wake = EventFd::from_value_and_flags(0, flags).context("create an event descriptor")?;
    let wake = Arc::new(wake);
    let (sender, receiver) = mpsc::sync_channel(MAX_PENDING);
    let requester = Requester {
        requests: sender,
        wake: Arc::clone(&wake),
    };
    let requests = RequestQueue {
        requests: receiver,
        wake,
    };
    Ok((requester, requests))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn queries_are_answered_and_excess_ones_refused() {
        let (requester, requests) = channel().unwrap();
        let one = requester.clone();
        let waiting = thread::spawn(move || one.query(Request::Status));
        let mut poll = [nix::poll::PollFd::new(
            requests.fd(),
            nix::poll::PollFlags::POLLIN,
        )];
        nix::poll::poll(&mut poll, 10_000u16).unwrap();
        for pending in requests.take() {
            pending.answer(Answer::Done { text: "so".into() });
        }
        let answer = waiting.join().unwrap().unwrap();
        assert_eq!(answer, Answer::Done { text: "so".into() });

        for _ in 0..MAX_PENDING {
            let (reply, _) = mpsc::sync_channel(1);
            let request = Request::Status;
            requester
                .requests
                .try_send(PendingRequest { request, reply })
                .unwrap();
        }
        assert_eq!(requester.query(Request::Status), Err(RequestError::Busy));
        assert_eq!(requests.take().len(), MAX_PENDING);
    }
}
