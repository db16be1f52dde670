//! The thread that queries the source, one query at a time with one reply each.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;

use fairpath_history::snapshot::{Detail, Query, Snapshot};

use crate::source::{Source, SourceError};

/// Maximum length of each list of the details view.
pub const DETAIL_LIMIT: usize = 20;

/// A query to the source.
#[derive(Clone, Debug)]
pub struct Question {
    /// Rows of the table.
    pub query: Query,
    /// The class of the details view.
    pub class: Option<String>,
}

/// The answer to a query.
#[derive(Debug)]
pub struct Reply {
    /// The snapshot, or the error.
    pub snapshot: Result<Snapshot, SourceError>,
    /// The query requested loaded rules.
    pub has_requested_rules: bool,
    /// The details of the requested class, with its name.
    pub detail: Option<(String, Result<Detail, SourceError>)>,
}

/// The thread and its channels.
#[derive(Debug)]
pub struct Reader {
    questions: Option<Sender<Question>>,
    replies: Receiver<Reply>,
    /// Becomes readable with each reply.
    pub wake: UnixStream,
    /// True if a query is pending.
    pub is_busy: bool,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    /// Starts the thread.
    ///
    /// # Errors
    /// Out of descriptors or threads.
    pub fn start(mut source: Box<dyn Source>) -> io::Result<Reader> {
        let (questions, requested) = channel::<Question>();
        let (answer, replies) = channel();
        let (wake, mut waker) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        let answer_all = move || {
            while let Ok(question) = requested.recv() {
                let reply = query(source.as_mut(), question);
                if answer.send(reply).is_err() || waker.write_all(b".").is_err() {
                    break;
                }
            }
        };
        let builder = std::thread::Builder::new().name("top-reader".to_owned());
        let thread = builder.spawn(answer_all)?;
        Ok(Reader {
            questions: Some(questions),
            replies,
            wake,
            is_busy: false,
            thread: Some(thread),
        })
    }

    /// Sends a query unless one is pending. Returns whether it was sent.
    pub fn send(&mut self, question: Question) -> bool {
        let free = !self.is_busy;
        if let Some(questions) = self.questions.as_ref().filter(|_| free) {
            self.is_busy = questions.send(question).is_ok();
        }
        free
    }

    /// The reply, if it arrived.
    ///
    /// # Errors
    /// The thread ended, which only a panic in the source causes.
    pub fn reply(&mut self) -> Result<Option<Reply>, ThreadEnded> {
        match self.replies.try_recv() {
            Ok(reply) => {
                self.is_busy = false;
                Ok(Some(reply))
            }
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(ThreadEnded),
        }
    }
}

/// The thread ended.
#[derive(Debug)]
pub struct ThreadEnded;

impl Drop for Reader {
    /// Joins the thread only if no query is pending, because a stuck source would delay the end.
    fn drop(&mut self) {
        self.questions = None;
        if let Some(thread) = self.thread.take().filter(|_| !self.is_busy) {
            drop(thread.join());
        }
    }
}

fn query(source: &mut dyn Source, question: Question) -> Reply {
    let snapshot = source.snapshot(&question.query);
    let has_requested_rules = question.query.rules > 0;
    let detail = question.class.filter(|_| snapshot.is_ok()).map(|class| {
        let detail = source.detail(&class, DETAIL_LIMIT);
        (class, detail)
    });
    Reply {
        snapshot,
        has_requested_rules,
        detail,
    }
}
