//! The daemon's control socket: one JSON object a line, each request answered by one line.
//!
//! The connection stays open between requests. After a failure the next request opens a new one. A
//! request on an open connection that fails is sent once more, because the daemon may have restarted.

use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fairpath_history::snapshot::{Answer, Detail, Query, Request, SNAPSHOT_SCHEMA, Snapshot};
use nix::errno::Errno;
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, UnixAddr, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};

use crate::source::{Source, SourceError};

/// Time limit of a request from connecting to the complete answer.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of one answer: about 100,000 rows without history.
pub const MAX_ANSWER_BYTES: usize = 256 << 20;

/// A daemon, queried through its control socket.
#[derive(Debug)]
pub struct SocketSource {
    path: PathBuf,
    timeout: Duration,
    connection: Option<BufReader<UnixStream>>,
}

impl SocketSource {
    /// Connects to the daemon that listens on `path`.
    ///
    /// # Errors
    /// No process listens, this user has no access, or it is not such a socket.
    pub fn connect(path: impl AsRef<Path>) -> Result<SocketSource, SourceError> {
        SocketSource::connect_within(path, ANSWER_TIMEOUT)
    }

    /// The same with another time limit than [`ANSWER_TIMEOUT`].
    ///
    /// # Errors
    /// As [`SocketSource::connect`].
    pub fn connect_within(
        path: impl AsRef<Path>,
        timeout: Duration,
    ) -> Result<SocketSource, SourceError> {
        let mut source = SocketSource {
            path: path.as_ref().to_owned(),
            timeout,
            connection: None,
        };
        source.connection = Some(source.open()?);
        Ok(source)
    }

    /// Sends one request and reads its answer, which is never [`Answer::Error`].
    ///
    /// # Errors
    /// The daemon cannot be reached, does not answer in time, or refuses.
    pub fn query(&mut self, request: &Request) -> Result<Answer, SourceError> {
        let line = encode(request);
        let deadline = Instant::now() + self.timeout;
        let kept = self.connection.take();
        let was_kept = kept.is_some();
        let answer = match self.exchange(kept, &line, deadline) {
            // The daemon of this connection ended. Another one may listen now.
            Err(SourceError::Io { .. }) if was_kept => self.exchange(None, &line, deadline)?,
            other => other?,
        };
        match answer {
            Answer::Error { text } => Err(SourceError::Refused(text)),
            answer => Ok(answer),
        }
    }

    /// Keeps the connection only after success. A late answer would match the next request.
    fn exchange(
        &mut self,
        kept: Option<BufReader<UnixStream>>,
        line: &[u8],
        deadline: Instant,
    ) -> Result<Answer, SourceError> {
        let mut connection = match kept {
            Some(connection) => connection,
            None => self.open()?,
        };
        self.send(&mut connection, line, deadline)?;
        let answer = self.receive(&mut connection, deadline)?;
        self.connection = Some(connection);
        Ok(answer)
    }

    fn open(&self) -> Result<BufReader<UnixStream>, SourceError> {
        let path = self.path.clone();
        match dial(&path, self.timeout) {
            Ok(stream) => Ok(BufReader::with_capacity(1 << 16, stream)),
            Err(errno @ (Errno::ENOENT | Errno::ECONNREFUSED)) => Err(SourceError::NoDaemon {
                path,
                source: errno.into(),
            }),
            Err(errno @ (Errno::EACCES | Errno::EPERM)) => Err(SourceError::Denied {
                path,
                source: errno.into(),
            }),
            Err(Errno::EAGAIN | Errno::EINPROGRESS) => Err(self.late()),
            Err(errno) => Err(self.io("connect to", errno.into())),
        }
    }

    fn send(
        &self,
        connection: &mut BufReader<UnixStream>,
        line: &[u8],
        deadline: Instant,
    ) -> Result<(), SourceError> {
        let left = self.left(deadline)?;
        let stream = connection.get_mut();
        stream
            .set_write_timeout(Some(left))
            .and_then(|()| stream.write_all(line))
            .map_err(|error| self.io("send to", error))
    }

    fn receive(
        &self,
        connection: &mut BufReader<UnixStream>,
        deadline: Instant,
    ) -> Result<Answer, SourceError> {
        let mut line = Vec::new();
        loop {
            let left = self.left(deadline)?;
            let timeout = connection.get_ref().set_read_timeout(Some(left));
            timeout.map_err(|error| self.io("wait for", error))?;
            let piece = match connection.fill_buf() {
                Ok([]) => return Err(self.io("read from", ErrorKind::UnexpectedEof.into())),
                Ok(piece) => piece,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.io("read from", error)),
            };
            let end = piece.iter().position(|byte| *byte == b'\n');
            let taken = end.unwrap_or(piece.len());
            line.extend_from_slice(&piece[..taken]);
            connection.consume(taken + usize::from(end.is_some()));
            if end.is_some() {
                return self.decode(&line);
            }
            if line.len() > MAX_ANSWER_BYTES {
                let path = self.path.clone();
                let limit = MAX_ANSWER_BYTES;
                return Err(SourceError::TooLong { path, limit });
            }
        }
    }

    fn decode(&self, line: &[u8]) -> Result<Answer, SourceError> {
        let answer = serde_json::from_slice(line)
            .map_err(|error| self.protocol(format!("invalid answer, {error}")))?;
        if let Answer::Snapshot { snapshot } = &answer
            && snapshot.schema != SNAPSHOT_SCHEMA
        {
            let theirs = snapshot.schema;
            return Err(self.protocol(format!(
                "the daemon uses schema {theirs}, this program {SNAPSHOT_SCHEMA}"
            )));
        }
        Ok(answer)
    }

    fn left(&self, deadline: Instant) -> Result<Duration, SourceError> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(self.late());
        }
        Ok(left)
    }

    fn late(&self) -> SourceError {
        SourceError::Timeout {
            path: self.path.clone(),
            after: self.timeout,
        }
    }

    fn io(&self, operation: &'static str, source: io::Error) -> SourceError {
        if matches!(source.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) {
            return self.late();
        }
        SourceError::Io {
            path: self.path.clone(),
            operation,
            source,
        }
    }

    fn protocol(&self, reason: String) -> SourceError {
        SourceError::Protocol {
            path: self.path.clone(),
            reason,
        }
    }
}

impl Source for SocketSource {
    fn snapshot(&mut self, query: &Query) -> Result<Snapshot, SourceError> {
        let query = query.clone();
        match self.query(&Request::Snapshot { query })? {
            Answer::Snapshot { snapshot } => Ok(*snapshot),
            _ => Err(self.protocol("unexpected answer".to_owned())),
        }
    }

    fn detail(&mut self, class: &str, limit: usize) -> Result<Detail, SourceError> {
        let class = class.to_owned();
        match self.query(&Request::Detail { class, limit })? {
            Answer::Detail { detail } => Ok(*detail),
            _ => Err(self.protocol("unexpected answer".to_owned())),
        }
    }
}

fn encode(request: &Request) -> Vec<u8> {
    let mut line = serde_json::to_vec(request).expect("all keys of a request are strings");
    line.push(b'\n');
    line
}

/// A connected stream. The send timeout also limits `connect`, which blocks if the queue is full.
fn dial(path: &Path, timeout: Duration) -> nix::Result<UnixStream> {
    let address = UnixAddr::new(path)?;
    let flags = SockFlag::SOCK_CLOEXEC;
    let fd = socket::socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    let millis = i64::try_from(timeout.as_millis())
        .unwrap_or(i64::MAX)
        .max(1);
    socket::setsockopt(&fd, sockopt::SendTimeout, &TimeVal::milliseconds(millis))?;
    socket::connect(std::os::fd::AsRawFd::as_raw_fd(&fd), &address)?;
    Ok(UnixStream::from(fd))
}
