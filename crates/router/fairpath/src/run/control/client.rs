//! One connection: reads requests, passes them to the loop, and writes answers, within limits.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use fairpath_history::snapshot::{Answer, Request};

use crate::run::query::Requester;

/// Maximum bytes of a request; a valid one has a few hundred.
const MAX_REQUEST_BYTES: usize = 16 << 10;
/// Maximum time without a request.
const IDLE: Duration = Duration::from_secs(15 * 60);
/// Maximum time between the first and the last byte of a request.
const REQUEST_TIME: Duration = Duration::from_secs(5);
/// Maximum time in which the client must read an answer.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// Refuses a connection, without waiting for it.
pub fn refuse(mut stream: UnixStream, why: &str) {
    let answer = error(&format!("connect to the daemon: {why}"));
    if stream.set_nonblocking(true).is_ok() {
        let _ = stream.write(&line(&answer));
    }
}

/// Serves until the client closes the connection.
///
/// # Errors
/// The connection was closed because the client is too slow, its request too long, or it failed.
pub fn serve(mut stream: UnixStream, uid: u32, requester: &Requester) -> io::Result<()> {
    // The listener does not block, but this thread may.
    stream.set_nonblocking(false)?;
    let mut pending = Vec::new();
    while let Some(request) = next_request(&mut stream, &mut pending)? {
        let answer = match parse(&request) {
            Ok(request) if request.changes() && uid != 0 => error(&format!(
                "{}: only root may do this, and this is user {uid}: run it with sudo",
                match request {
                    Request::Reload => "reload the configuration",
                    _ => "change shaping",
                }
            )),
            Ok(request) => requester
                .query(request)
                .unwrap_or_else(|late| error(&late.to_string())),
            Err(answer) => answer,
        };
        write_within(&mut stream, &line(&answer), ANSWER_TIME)?;
    }
    Ok(())
}

fn error(text: &str) -> Answer {
    Answer::Error { text: text.into() }
}

fn parse(request: &[u8]) -> Result<Request, Answer> {
    serde_json::from_slice(request).map_err(|cause| {
        error(&format!(
            "read the request: {cause}: write one JSON object per line, for example {{\"verb\":\"status\"}}"
        ))
    })
}

fn line(answer: &Answer) -> Vec<u8> {
    let mut text = serde_json::to_vec(answer).unwrap_or_else(|cause| {
        // Plain data with string keys does not fail.
        format!("{{\"answer\":\"error\",\"text\":\"write the answer: {cause}\"}}").into_bytes()
    });
    text.push(b'\n');
    text
}

/// The next line without its end; `None` if the client closed the connection.
fn next_request(stream: &mut UnixStream, pending: &mut Vec<u8>) -> io::Result<Option<Vec<u8>>> {
    let mut deadline = (!pending.is_empty()).then(|| Instant::now() + REQUEST_TIME);
    loop {
        if let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
            let rest = pending.split_off(end + 1);
            let mut request = std::mem::replace(pending, rest);
            request.pop();
            return Ok(Some(request));
        }
        if pending.len() > MAX_REQUEST_BYTES {
            let limit = format!("a request has at most {MAX_REQUEST_BYTES} bytes");
            refuse(stream.try_clone()?, &limit);
            return Err(ErrorKind::InvalidData.into());
        }
        stream.set_read_timeout(Some(deadline.map_or(Ok(IDLE), left)?))?;
        let mut bytes = [0; 4096];
        match stream.read(&mut bytes) {
            Ok(0) => return Ok(None),
            Ok(count) => {
                deadline.get_or_insert_with(|| Instant::now() + REQUEST_TIME);
                pending.extend_from_slice(&bytes[..count]);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // A silent connection ends without an error.
            Err(error) if error.kind() == ErrorKind::WouldBlock && deadline.is_none() => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Writes all of `bytes` within `time`, however slowly the client reads.
fn write_within(stream: &mut UnixStream, mut bytes: &[u8], time: Duration) -> io::Result<()> {
    let deadline = Instant::now() + time;
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        match stream.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(ErrorKind::TimedOut.into()),
        false => Ok(left),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::query;
    use std::io::{BufRead, BufReader};
    use std::thread;

    /// A connection and the thread that serves it. `requests` replaces the loop.
    fn connect(
        uid: u32,
        requester: query::Requester,
    ) -> (UnixStream, thread::JoinHandle<io::Result<()>>) {
        let (here, there) = UnixStream::pair().unwrap();
        let serving = thread::spawn(move || serve(there, uid, &requester));
        (here, serving)
    }

    fn read_answer(stream: &UnixStream) -> Answer {
        let mut text = String::new();
        BufReader::new(stream).read_line(&mut text).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn invalid_requests_do_not_close_the_connection() {
        let (requester, _questions) = query::channel().unwrap();
        let (mut here, serving) = connect(0, requester);
        for nonsense in ["", "{}", "{\"verb\":\"dance\"}", "\u{1}"] {
            writeln!(here, "{nonsense}").unwrap();
            let Answer::Error { text } = read_answer(&here) else {
                panic!("no error for {nonsense:?}");
            };
            assert!(text.contains("one JSON object per line"), "{text}");
        }
        drop(here);
        serving.join().unwrap().unwrap();
    }

    #[test]
    fn only_root_may_reload() {
        let (requester, requests) = query::channel().unwrap();
        let (mut here, serving) = connect(1000, requester);
        here.write_all(b"{\"verb\":\"reload\"}\n").unwrap();
        let Answer::Error { text } = read_answer(&here) else {
            panic!("a reload for user 1000");
        };
        assert!(text.contains("only root"), "{text}");
        assert!(requests.take().is_empty());
        drop(here);
        serving.join().unwrap().unwrap();
    }

    #[test]
    fn a_request_without_end_closes_the_connection() {
        let (requester, _questions) = query::channel().unwrap();
        let (mut here, serving) = connect(0, requester);
        // The connection may be closed before all of it is written.
        let _ = here.write_all(&vec![b'x'; MAX_REQUEST_BYTES + 5000]);
        let error = serving.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
    }

    #[test]
    fn a_client_that_does_not_read_is_disconnected() {
        let (mut here, _there) = UnixStream::pair().unwrap();
        let answer = vec![b'x'; 16 << 20];
        let time = Duration::from_millis(50);
        let error = write_within(&mut here, &answer, time).unwrap_err();
        assert!(matches!(
            error.kind(),
            ErrorKind::WouldBlock | ErrorKind::TimedOut
        ));
    }
}
