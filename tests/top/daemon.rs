//! A test daemon that answers on a control socket with snapshots of the test.

use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use fairpath_history::Histogram;
use fairpath_history::snapshot::{
    Answer, Detail, FlowLine, Leg, Load, Peer, Point, Query, Request, SNAPSHOT_SCHEMA, Snapshot,
    SnapshotRow,
};

const MS: u64 = 1_000_000;

type Maker = Box<dyn FnMut(&Query) -> Snapshot + Send>;

/// State shared with the daemon's threads.
struct Shared {
    maker: Maker,
    /// All queries in order.
    queries: Vec<Query>,
    open: Vec<UnixStream>,
    is_stopping: bool,
}

/// The daemon, listening until it is dropped.
pub struct Daemon {
    directory: tempfile::TempDir,
    shared: Arc<Mutex<Shared>>,
    listening: Option<JoinHandle<()>>,
}

impl Daemon {
    /// Listens in a temporary directory. `maker` makes its snapshots.
    pub fn start(maker: impl FnMut(&Query) -> Snapshot + Send + 'static) -> Daemon {
        let shared = Shared {
            maker: Box::new(maker),
            queries: Vec::new(),
            open: Vec::new(),
            is_stopping: false,
        };
        let mut daemon = Daemon {
            directory: tempfile::tempdir().expect("a directory for the socket"),
            shared: Arc::new(Mutex::new(shared)),
            listening: None,
        };
        daemon.listen();
        daemon
    }

    /// A daemon with one snapshot.
    pub fn showing(snapshot: Snapshot) -> Daemon {
        Daemon::start(move |_| snapshot.clone())
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("control.sock")
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Replaces the snapshot.
    pub fn show(&self, snapshot: Snapshot) {
        self.shared.lock().unwrap().maker = Box::new(move |_| snapshot.clone());
    }

    /// The last query.
    pub fn last_query(&self) -> Option<Query> {
        self.shared.lock().unwrap().queries.last().cloned()
    }

    /// Number of queries.
    pub fn queries(&self) -> usize {
        self.shared.lock().unwrap().queries.len()
    }

    /// Listens, again after [`Daemon::stop`].
    pub fn listen(&mut self) {
        let listener = UnixListener::bind(self.socket()).expect("bind the socket");
        let shared = Arc::clone(&self.shared);
        self.listening = Some(std::thread::spawn(move || accept(&listener, &shared)));
    }

    /// Removes the socket and closes every connection, as a stopped daemon does.
    pub fn stop(&mut self) {
        let Some(listening) = self.listening.take() else {
            return;
        };
        self.shared.lock().unwrap().is_stopping = true;
        // A last connection wakes the accepting thread.
        drop(UnixStream::connect(self.socket()).expect("wake the daemon"));
        listening.join().expect("the daemon's thread");
        std::fs::remove_file(self.socket()).expect("remove the socket");
        let mut shared = self.shared.lock().unwrap();
        shared.is_stopping = false;
        for stream in shared.open.drain(..) {
            // The other side may have closed it.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Starts one thread per connection, until [`Daemon::stop`] connects.
fn accept(listener: &UnixListener, shared: &Arc<Mutex<Shared>>) {
    for stream in listener.incoming() {
        let stream = stream.expect("accept");
        let mut locked = shared.lock().unwrap();
        if locked.is_stopping {
            return;
        }
        let handle = stream.try_clone().expect("a handle to close it");
        locked.open.push(handle);
        drop(locked);
        let shared = Arc::clone(shared);
        std::thread::spawn(move || serve(&stream, &shared));
    }
}

/// Answers until the other side or [`Daemon::stop`] closes the connection.
fn serve(mut stream: &UnixStream, shared: &Mutex<Shared>) {
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else {
            return;
        };
        let request: Request = serde_json::from_str(&line).expect("a request of the protocol");
        let answer = answer(request, &mut shared.lock().unwrap());
        let mut text = serde_json::to_vec(&answer).expect("an answer");
        text.push(b'\n');
        if stream.write_all(&text).is_err() {
            return;
        }
    }
}

fn answer(request: Request, shared: &mut Shared) -> Answer {
    match request {
        Request::Snapshot { query } => {
            let snapshot = Box::new((shared.maker)(&query));
            shared.queries.push(query);
            Answer::Snapshot { snapshot }
        }
        Request::Detail { class, .. } => {
            let snapshot = (shared.maker)(&Query::default());
            match snapshot.rows.into_iter().find(|row| row.name == class) {
                Some(row) => Answer::Detail {
                    detail: Box::new(details(row)),
                },
                None => Answer::Error {
                    text: format!("show class {class}: there is none; see the configuration"),
                },
            }
        }
        Request::Status
        | Request::Rules
        | Request::History { .. }
        | Request::Reload
        | Request::ShapeStart
        | Request::ShapeStop
        | Request::ShapeSet { .. } => Answer::Done {
            text: String::new(),
        },
    }
}

/// A class whose values depend on `n`: 0 has none above a threshold, 9 has several.
pub fn row(name: &str, parent: Option<&str>, children: u32, n: u64) -> SnapshotRow {
    let leg = |p50_ms: u64| Leg {
        samples: 100,
        p50_rtt_ns: Some(p50_ms * MS),
        p95_rtt_ns: Some(p50_ms * 2 * MS),
        loss_to_ratio: Some(0.004 * n as f64),
        loss_from_ratio: Some(0.0),
        ..Leg::default()
    };
    let mut row = SnapshotRow {
        name: name.to_owned(),
        parent: parent.map(str::to_owned),
        depth: u32::from(parent.is_some()),
        children,
        inside: leg(5 + 20 * n),
        outside: leg(15),
        load: Load {
            rtt_growth_ns: Some(n * 15 * MS),
            score: Some((99 - 9 * n) as u8),
            ..Load::default()
        },
        ..SnapshotRow::default()
    };
    row.up.rate_bps = 1e6 * (n + 1) as f64;
    row.down.rate_bps = 17e6 * (n + 1) as f64;
    row.flows.opened = 10 + n;
    let point = |at: u64| Point {
        rate_bps: ((at * (n + 3)) % 17) as f64 * 1e6,
        p95_rtt_ns: Some(at * MS),
    };
    row.history = (0..60).map(point).collect();
    row
}

/// A snapshot of these rows.
pub fn snapshot(rows: Vec<SnapshotRow>) -> Snapshot {
    Snapshot {
        schema: SNAPSHOT_SCHEMA,
        time: "2026-03-01T08:28:17.250000000Z".to_owned(),
        unix_ns: 1_772_353_697_250_000_000,
        host: "gw-7".to_owned(),
        interval_ns: 100 * MS,
        window_ns: 10_000 * MS,
        rows_total: rows.len() as u64,
        rows,
        ..Snapshot::default()
    }
}

/// Two masts with three subscribers.
pub fn town() -> Snapshot {
    snapshot(vec![
        row("North mast", None, 2, 3),
        row("ann", Some("North mast"), 0, 1),
        row("carla", Some("North mast"), 0, 9),
        row("West mast", None, 1, 0),
        row("bob", Some("West mast"), 0, 0),
    ])
}

fn details(mut row: SnapshotRow) -> Detail {
    for (leg, ms) in [(&mut row.inside, 30), (&mut row.outside, 9)] {
        let mut histogram = Histogram::default();
        (1..200u64).for_each(|i| histogram.record(ms * MS + i * i * i * 40));
        leg.total.histogram = histogram;
    }
    let peer = |name: &str, n: u64| Peer {
        name: name.to_owned(),
        bytes_up: n * 70_000,
        bytes_down: n * 3_100_000,
        samples: 5 * n,
        mean_rtt_ns: Some(n * 13 * MS),
        max_rtt_ns: Some(n * 31 * MS),
        lost_packets: n,
    };
    Detail {
        row,
        worst_remotes: vec![peer("198.51.100.0/24", 9)],
        busiest_remotes: vec![peer("2001:db8:1234::/48", 30)],
        busiest_hosts: vec![peer("10.0.7.3", 12)],
        flows: vec![FlowLine {
            proto: "tcp".to_owned(),
            host: "10.0.7.3".parse().unwrap(),
            host_port: 40_000,
            remote: "198.51.100.17".parse().unwrap(),
            remote_port: 443,
            age_ns: 100_000 * MS,
            idle_ns: 40 * MS,
            bytes_up: 12_000,
            bytes_down: 940_000,
            inside_min_rtt_ns: Some(3 * MS),
            inside_p50_rtt_ns: Some(4 * MS),
            outside_min_rtt_ns: None,
            outside_p50_rtt_ns: None,
            retransmitted_packets: 1,
        }],
        day: Vec::new(),
        recent: Vec::new(),
        configured: None,
    }
}
