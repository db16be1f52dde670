//! The thread that asks the source: one question at a time, each answered once.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;

use fairpath_history::snapshot::{Detail, Query, Snapshot};

use crate::source::{Source, SourceError};

/// Entries of each list of a closeup.
pub const DETAIL_LIMIT: usize = 20;

/// What is wanted now.
#[derive(Clone, Debug)]
pub struct Question {
    /// Rows of the table.
    pub query: Query,
    /// The class that is looked at closely.
    pub class: Option<String>,
}

/// What came of it.
#[derive(Debug)]
pub struct Reply {
    /// The picture, or why there is none.
    pub snapshot: Result<Snapshot, SourceError>,
    /// Everything known of the class that was asked for.
    pub detail: Option<(String, Result<Detail, SourceError>)>,
}

/// The thread and its two ends.
#[derive(Debug)]
pub struct Reader {
    questions: Option<Sender<Question>>,
    replies: Receiver<Reply>,
    /// Becomes readable when a reply is there.
    pub wake: UnixStream,
    /// A question is under way.
    pub is_busy: bool,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    /// Starts the thread.
    ///
    /// # Errors
    /// No descriptors or no thread left.
    pub fn start(mut source: Box<dyn Source>) -> io::Result<Reader> {
        let (questions, asked) = channel::<Question>();
        let (answer, replies) = channel();
        let (wake, mut waker) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        let answer_all = move || {
            while let Ok(question) = asked.recv() {
                let reply = ask(source.as_mut(), question);
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

    /// Asks, unless a question is under way already; returns whether it did.
    pub fn ask(&mut self, question: Question) -> bool {
        let free = !self.is_busy;
        if let Some(questions) = self.questions.as_ref().filter(|_| free) {
            self.is_busy = questions.send(question).is_ok();
        }
        free
    }

    /// The reply, if it is there.
    ///
    /// # Errors
    /// The thread ended, which it does only by a panic in the source.
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

/// The thread is no more.
#[derive(Debug)]
pub struct ThreadEnded;

impl Drop for Reader {
    /// Waits for the thread only where it waits for us: a stuck source must not hold back the end.
    fn drop(&mut self) {
        self.questions = None;
        if let Some(thread) = self.thread.take().filter(|_| !self.is_busy) {
            drop(thread.join());
        }
    }
}

fn ask(source: &mut dyn Source, question: Question) -> Reply {
    let snapshot = source.snapshot(&question.query);
    let detail = question.class.filter(|_| snapshot.is_ok()).map(|class| {
        let detail = source.detail(&class, DETAIL_LIMIT);
        (class, detail)
    });
    Reply { snapshot, detail }
}
