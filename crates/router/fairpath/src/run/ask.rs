//! How other threads ask the loop, which alone owns monitor and ledger.
//!
//! ```text
//! control clients --.
//!                    >-- questions (bounded) --> loop --> answer --> asker
//! web server -------'         wake-up
//! ```

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::Duration;

use anyhow::Context;
use fairpath_history::snapshot::{Answer, Request};
use nix::sys::eventfd::{EfdFlags, EventFd};

/// Questions that may wait for the loop; further ones are refused.
const MAX_QUESTIONS: usize = 64;
/// How long an asker waits: many times what the slowest answer takes.
const PATIENCE: Duration = Duration::from_secs(10);
/// Likewise where something is changed: HTB takes seconds for ten thousand classes.
const PATIENCE_TO_CHANGE: Duration = Duration::from_secs(60);

/// One question to the loop.
#[derive(Debug)]
pub struct Question {
    /// What is asked.
    pub request: Request,
    reply: SyncSender<Answer>,
}

impl Question {
    /// Answers; an asker that has gone is not waited for.
    pub fn answer(self, answer: Answer) {
        let _ = self.reply.try_send(answer);
    }
}

/// The asking side; cheap to clone.
#[derive(Clone, Debug)]
pub struct Asker {
    questions: SyncSender<Question>,
    wake: Arc<EventFd>,
}

/// A question got no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// Too many wait already.
    #[error("ask the monitor: {MAX_QUESTIONS} questions wait already; ask again, less often")]
    Busy,
    /// It is ending, or did not come round in time.
    #[error("ask the monitor: no answer in time; it is ending, or overloaded")]
    Late,
}

impl Asker {
    /// Asks and waits for the answer, at most ten seconds; a minute where something is changed.
    ///
    /// # Errors
    /// [`AskError`].
    pub fn ask(&self, request: Request) -> Result<Answer, AskError> {
        let (reply, answer) = mpsc::sync_channel(1);
        let patience = match request.changes() {
            true => PATIENCE_TO_CHANGE,
            false => PATIENCE,
        };
        let question = Question { request, reply };
        self.questions
            .try_send(question)
            .map_err(|_| AskError::Busy)?;
        self.wake();
        answer.recv_timeout(patience).map_err(|_| AskError::Late)
    }
}

impl Asker {
    /// Wakes the loop without asking anything.
    pub fn wake(&self) {
        // Only a full counter refuses, and then the loop is woken anyway.
        let _ = self.wake.write(1);
    }
}

/// The loop's side.
#[derive(Debug)]
pub struct Questions {
    questions: Receiver<Question>,
    wake: Arc<EventFd>,
}

impl Questions {
    /// Readable when something was asked.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// What was asked since the last call, at most as many as can wait.
    pub fn take(&self) -> Vec<Question> {
        // Nothing to read means that nobody asked since: what is queued is taken all the same.
        let _ = self.wake.read();
        self.questions.try_iter().take(MAX_QUESTIONS).collect()
    }
}

/// Both sides.
///
/// # Errors
/// Where the kernel gives no descriptor.
pub fn channel() -> anyhow::Result<(Asker, Questions)> {
    let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
    let wake = EventFd::from_value_and_flags(0, flags).context("make an event descriptor")?;
    let wake = Arc::new(wake);
    let (sender, receiver) = mpsc::sync_channel(MAX_QUESTIONS);
    let asker = Asker {
        questions: sender,
        wake: Arc::clone(&wake),
    };
    let questions = Questions {
        questions: receiver,
        wake,
    };
    Ok((asker, questions))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_question_is_answered_and_too_many_are_refused() {
        let (asker, questions) = channel().unwrap();
        let one = asker.clone();
        let waiting = thread::spawn(move || one.ask(Request::Status));
        let mut poll = [nix::poll::PollFd::new(
            questions.fd(),
            nix::poll::PollFlags::POLLIN,
        )];
        nix::poll::poll(&mut poll, 10_000u16).unwrap();
        for question in questions.take() {
            question.answer(Answer::Done { text: "so".into() });
        }
        let answer = waiting.join().unwrap().unwrap();
        assert_eq!(answer, Answer::Done { text: "so".into() });

        for _ in 0..MAX_QUESTIONS {
            let (reply, _) = mpsc::sync_channel(1);
            let request = Request::Status;
            asker
                .questions
                .try_send(Question { request, reply })
                .unwrap();
        }
        assert_eq!(asker.ask(Request::Status), Err(AskError::Busy));
        assert_eq!(questions.take().len(), MAX_QUESTIONS);
    }
}
