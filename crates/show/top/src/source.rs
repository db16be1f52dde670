//! Where pictures come from: the daemon's socket, or a monitor in this process.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use fairpath_history::snapshot::{Detail, Query, Snapshot};

/// Gives pictures of all classes when asked.
///
/// Called from a thread of its own; a call may block, but not for ever.
pub trait Source: Send {
    /// The picture now, of the rows that `query` wants.
    ///
    /// # Errors
    /// The source cannot answer now. Asking again later is allowed, and is how one recovers.
    fn snapshot(&mut self, query: &Query) -> Result<Snapshot, SourceError>;

    /// Everything known of one class, with at most `limit` entries in each list.
    ///
    /// # Errors
    /// As [`Source::snapshot`]; also where no class has this name.
    fn detail(&mut self, class: &str, limit: usize) -> Result<Detail, SourceError>;
}

/// Why a source gives no picture.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// Nobody listens on the socket.
    #[error(
        "connect to {}: no daemon listens there ({source}); start it by `systemctl start fairpath` \
         or `fairpath run`, or name its socket by --socket", path.display()
    )]
    NoDaemon {
        /// The socket.
        path: PathBuf,
        /// What connecting said.
        source: io::Error,
    },
    /// The socket is not for this user.
    #[error(
        "connect to {}: {source}; run this as root or as a member of the group fairpath \
         (`usermod -aG fairpath USER`, then log in again)", path.display()
    )]
    Denied {
        /// The socket.
        path: PathBuf,
        /// What connecting said.
        source: io::Error,
    },
    /// No whole answer in time.
    #[error(
        "ask the daemon at {}: no answer within {after:?}; see `systemctl status fairpath`",
        path.display()
    )]
    Timeout {
        /// The socket.
        path: PathBuf,
        /// How long was waited.
        after: Duration,
    },
    /// The connection broke or could not be made.
    #[error("{operation} the daemon at {}: {source}; see `systemctl status fairpath`", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// What was tried.
        operation: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// The answer has no end.
    #[error(
        "read the answer of the daemon at {}: longer than {limit} bytes; ask for fewer rows by \
         --limit, --under or --filter", path.display()
    )]
    TooLong {
        /// The socket.
        path: PathBuf,
        /// Most bytes that are read.
        limit: usize,
    },
    /// The answer is none of this protocol.
    #[error(
        "understand the daemon at {}: {reason}; restart the daemon, so that it and this program \
         are of the same version", path.display()
    )]
    Protocol {
        /// The socket.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The source understood and said no.
    #[error("{0}")]
    Refused(String),
    /// A source of another kind failed.
    #[error("{0}")]
    Other(#[source] Box<dyn std::error::Error + Send + Sync>),
}
