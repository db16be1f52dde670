//! The protocol of the control socket, and the errors if the other side does not follow it.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

use fairpath_history::snapshot::{Answer, Detail, Query, Request, SNAPSHOT_SCHEMA, Snapshot};
use fairpath_top::{SocketSource, Source, SourceError};

/// A time limit that no test reaches.
const PATIENCE: Duration = Duration::from_secs(60);

struct Peer {
    directory: tempfile::TempDir,
}

impl Peer {
    fn new() -> Peer {
        Peer {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("control.sock")
    }

    /// Accepts one connection for each answer, reads one request, answers it and closes.
    fn answers(&self, answers: Vec<String>) -> JoinHandle<Vec<Request>> {
        let listener = UnixListener::bind(self.socket()).unwrap();
        std::thread::spawn(move || {
            let answer_one = |text: String| {
                let (stream, _) = listener.accept().unwrap();
                answer(stream, &text)
            };
            answers.into_iter().map(answer_one).collect()
        })
    }
}

fn answer(mut stream: UnixStream, text: &str) -> Request {
    let mut line = String::new();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    reader.read_line(&mut line).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    serde_json::from_str(&line).unwrap()
}

fn line(answer: &Answer) -> String {
    serde_json::to_string(answer).unwrap() + "\n"
}

fn snapshot(host: &str) -> String {
    let snapshot = Snapshot {
        schema: SNAPSHOT_SCHEMA,
        host: host.to_owned(),
        ..Snapshot::default()
    };
    line(&Answer::Snapshot {
        snapshot: Box::new(snapshot),
    })
}

fn query_once(answer: String) -> Result<Snapshot, SourceError> {
    let peer = Peer::new();
    let served = peer.answers(vec![answer]);
    let mut source = SocketSource::connect_within(peer.socket(), PATIENCE).unwrap();
    let answer = source.snapshot(&Query::default());
    served.join().unwrap();
    answer
}

#[test]
fn a_query_is_repeated_to_a_restarted_daemon() {
    let peer = Peer::new();
    // One request per connection: the second request finds the first connection closed.
    let served = peer.answers(vec![snapshot("one"), snapshot("two")]);
    let mut source = SocketSource::connect_within(peer.socket(), PATIENCE).unwrap();
    let query = Query {
        filter: Some("ann".to_owned()),
        limit: 7,
        ..Query::default()
    };
    assert_eq!(source.snapshot(&query).unwrap().host, "one");
    assert_eq!(source.snapshot(&query).unwrap().host, "two");
    let request = Request::Snapshot { query };
    assert_eq!(served.join().unwrap(), [request.clone(), request]);
}

#[test]
fn a_detail_request_names_its_class() {
    let peer = Peer::new();
    let detail = Box::new(Detail::default());
    let served = peer.answers(vec![line(&Answer::Detail { detail })]);
    let mut source = SocketSource::connect_within(peer.socket(), PATIENCE).unwrap();
    assert_eq!(source.detail("ann", 5).unwrap(), Detail::default());
    let class = "ann".to_owned();
    assert_eq!(
        served.join().unwrap(),
        [Request::Detail { class, limit: 5 }]
    );
}

#[test]
fn a_refusal_keeps_the_daemons_text() {
    let text = "show class x: there is none".to_owned();
    let error = query_once(line(&Answer::Error { text: text.clone() })).unwrap_err();
    assert!(matches!(error, SourceError::Refused(_)), "{error:?}");
    assert_eq!(error.to_string(), text);
}

#[test]
fn another_schema_or_protocol_is_refused() {
    for answer in [
        "HTTP/1.1 400 Bad Request\n".to_owned(),
        snapshot("x").replace("\"schema\":1", "\"schema\":99"),
        line(&Answer::Done {
            text: String::new(),
        }),
    ] {
        let error = query_once(answer).unwrap_err();
        assert!(matches!(error, SourceError::Protocol { .. }), "{error:?}");
        assert!(error.to_string().contains("same version"), "{error}");
    }
}

#[test]
fn a_partial_answer_is_an_error() {
    let half = snapshot("x").trim_end().to_owned();
    let peer = Peer::new();
    let served = peer.answers(vec![String::new(), half]);
    let mut source = SocketSource::connect_within(peer.socket(), PATIENCE).unwrap();
    let error = source.snapshot(&Query::default()).unwrap_err();
    served.join().unwrap();
    assert!(matches!(error, SourceError::Io { .. }), "{error:?}");
}

#[test]
fn a_stuck_daemon_ends_with_a_timeout() {
    let peer = Peer::new();
    let _listener = UnixListener::bind(peer.socket()).unwrap();
    let limit = Duration::from_millis(50);
    let mut source = SocketSource::connect_within(peer.socket(), limit).unwrap();
    let error = source.snapshot(&Query::default()).unwrap_err();
    assert!(matches!(error, SourceError::Timeout { .. }), "{error:?}");
    assert!(error.to_string().contains("50ms"), "{error}");
}

#[test]
fn a_missing_socket_names_the_remedy() {
    let peer = Peer::new();
    let error = SocketSource::connect(peer.socket()).unwrap_err();
    assert!(matches!(error, SourceError::NoDaemon { .. }), "{error:?}");
    // The socket of a killed daemon, on which no process listens.
    drop(UnixListener::bind(peer.socket()).unwrap());
    let error = SocketSource::connect(peer.socket()).unwrap_err();
    assert!(error.to_string().contains("fairpath run"), "{error}");
}
