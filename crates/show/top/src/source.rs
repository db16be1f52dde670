//! The source of snapshots: the daemon's socket, or a monitor in this process.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use fairpath_history::snapshot::{Detail, Query, Snapshot};

/// Returns snapshots of all classes.
///
/// Its own thread calls it. A call may block for a limited time.
pub trait Source: Send {
    /// The current snapshot, with the rows that `query` selects.
    ///
    /// # Errors
    /// The source cannot answer now. A later call may succeed.
    fn snapshot(&mut self, query: &Query) -> Result<Snapshot, SourceError>;

    /// The details of one class, with at most `limit` entries in each list.
    ///
    /// # Errors
    /// As [`Source::snapshot`], and if no class has this name.
    fn detail(&mut self, class: &str, limit: usize) -> Result<Detail, SourceError>;
}

/// Why a source returns no snapshot.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// No process listens on the socket.
    #[error(
        "connect to {}: no daemon listens there ({source}); start it with `systemctl start fairpath` \
         or `fairpath run`, or name its socket with --socket", path.display()
    )]
    NoDaemon {
        /// The socket.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// This user has no access to the socket.
    #[error(
        "connect to {}: {source}; run this as root or as a member of the group fairpath \
         (`usermod -aG fairpath USER`, then log in again)", path.display()
    )]
    Denied {
        /// The socket.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// No complete answer in time.
    #[error(
        "query the daemon at {}: no answer within {after:?}; see `systemctl status fairpath`",
        path.display()
    )]
    Timeout {
        /// The socket.
        path: PathBuf,
        /// The time limit.
        after: Duration,
    },
    /// The connection broke or could not be made.
    #[error("{operation} the daemon at {}: {source}; see `systemctl status fairpath`", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// The operation.
        operation: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// The answer is too long.
    #[error(
        "read the answer of the daemon at {}: longer than {limit} bytes; request fewer rows with \
         --limit, --under or --filter", path.display()
    )]
    TooLong {
        /// The socket.
        path: PathBuf,
        /// The limit.
        limit: usize,
    },
    /// The answer does not follow the protocol.
    #[error(
        "read the answer of the daemon at {}: {reason}; restart the daemon, so that it and this \
         program have the same version", path.display()
    )]
    Protocol {
        /// The socket.
        path: PathBuf,
        /// The difference.
        reason: String,
    },
    /// The source refused the request.
    #[error("{0}")]
    Refused(String),
    /// Another kind of source failed.
    #[error("{0}")]
    Other(#[source] Box<dyn std::error::Error + Send + Sync>),
}
