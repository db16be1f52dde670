//! Starts iperf3's processes, each at its time, and waits for all of them, with a time limit.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fairpath_analysis::record::CommandRecord;
use fairpath_testbed::{Netns, Process, RunError};

use super::report::{Reports, Transfer};
use super::{FlowPlan, Load, TrafficError};
use crate::measure::clock::Origin;

/// Time for a server to listen; a loaded machine starts processes slowly.
const LISTEN_DEADLINE: Duration = Duration::from_secs(10);
/// Time a flow may take beyond its own: the handshake and the end of iperf3's control connection, with losses.
const SPARE_TIME: Duration = Duration::from_secs(20);
/// The interval of checks for ends and starts.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// With `--json`, iperf3's server prints nothing when it listens. So its socket is waited for: in state LISTEN.
const LISTEN_STATE: &str = "0A";

/// Process ids of iperf3: flow -> [client, server]; a client that has not begun is 0.
#[derive(Clone, Debug, Default)]
pub struct Pids {
    by_flow: Arc<Mutex<BTreeMap<String, [u32; 2]>>>,
}

impl Pids {
    pub(super) fn of(servers: &Servers) -> Pids {
        let pids = Pids::default();
        for (flow, server) in &servers.by_flow {
            pids.change(|all| all.insert(flow.clone(), [0, server.id()]));
        }
        pids
    }

    /// As they are now.
    pub fn now(&self) -> BTreeMap<String, [u32; 2]> {
        self.change(|all| all.clone())
    }

    fn client(&self, flow: &str, pid: u32) {
        self.change(|all| all.entry(flow.to_owned()).or_default()[0] = pid);
    }

    fn change<T>(&self, f: impl FnOnce(&mut BTreeMap<String, [u32; 2]>) -> T) -> T {
        f(&mut self.by_flow.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Servers that listen.
#[derive(Debug)]
pub(super) struct Servers {
    by_flow: BTreeMap<String, Process>,
}

impl Servers {
    pub(super) fn start(plans: &[FlowPlan]) -> Result<Servers, TrafficError> {
        let mut by_flow = BTreeMap::new();
        for plan in plans {
            check(plan)?;
            let process = spawn(plan, &plan.server, &plan.server_command(), "server")?;
            by_flow.insert(plan.name.clone(), process);
        }
        // All of them start at once; then each is waited for.
        for plan in plans {
            await_listening(plan, by_flow.get_mut(&plan.name))?;
        }
        Ok(Servers { by_flow })
    }
}

fn check(plan: &FlowPlan) -> Result<(), TrafficError> {
    let flow = || plan.name.clone();
    if !in_path("iperf3", std::env::var_os("PATH")) {
        return Err(TrafficError::NoIperf3 { flow: flow() });
    }
    let Load::Tcp { congestion, .. } = &plan.load else {
        return Ok(());
    };
    let has = available(plan.sender()).map_err(|source| TrafficError::Netns {
        flow: flow(),
        source,
    })?;
    // A list that cannot be read refuses nothing: iperf3 will.
    if has.is_empty() || has.split_whitespace().any(|name| name == congestion) {
        return Ok(());
    }
    Err(TrafficError::NoCongestion {
        flow: flow(),
        wanted: congestion.clone(),
        has,
    })
}

/// The congestion controls of a namespace, as the kernel lists them.
fn available(ns: &Netns) -> Result<String, fairpath_testbed::NetnsError> {
    let path = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    ns.enter(|| {
        fs::read_to_string(path)
            .unwrap_or_default()
            .trim()
            .to_owned()
    })
}

fn in_path(program: &str, path: Option<OsString>) -> bool {
    let path = path.unwrap_or_default();
    std::env::split_paths(&path).any(|dir: PathBuf| dir.join(program).is_file())
}

fn spawn(
    plan: &FlowPlan,
    ns: &Netns,
    command: &CommandRecord,
    side: &'static str,
) -> Result<Process, TrafficError> {
    let mut process = ns.command_without_sysfs(&command.argv[0]);
    process.args(&command.argv[1..]);
    ns.spawn(process)
        .map_err(|source| failed(plan, side, source))
}

fn failed(plan: &FlowPlan, side: &'static str, source: RunError) -> TrafficError {
    TrafficError::Run {
        flow: plan.name.clone(),
        side,
        source,
    }
}

/// Waits until a socket listens on the flow's port in the server's namespace.
fn await_listening(plan: &FlowPlan, server: Option<&mut Process>) -> Result<(), TrafficError> {
    let Some(server) = server else { return Ok(()) };
    let end = Instant::now() + LISTEN_DEADLINE;
    loop {
        if listens(server.id(), plan.port) {
            return Ok(());
        }
        if let Some(ended) = ended(server) {
            return Err(reported(plan, "server", server, &ended));
        }
        if Instant::now() > end {
            let late = LISTEN_DEADLINE;
            return Err(late_error(plan, "server", late));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// True if process `pid` itself has a listening TCP socket on `port`; another one's would be a port that is taken.
fn listens(pid: u32, port: u16) -> bool {
    let tables = ["tcp", "tcp6"].map(|table| {
        let table = fs::read_to_string(format!("/proc/{pid}/net/{table}"));
        listening_inode(&table.unwrap_or_default(), port)
    });
    tables.into_iter().flatten().any(|inode| holds(pid, &inode))
}

/// The inode of the socket that listens on `port`, as /proc/net/tcp has it: `sl local remote state ... inode` (the
/// tenth word).
fn listening_inode(table: &str, port: u16) -> Option<String> {
    let port = format!(":{port:04X}");
    table.lines().skip(1).find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (local, state) = (words.get(1)?, words.get(3)?);
        let ours = local.ends_with(&port) && *state == LISTEN_STATE;
        ours.then(|| words.get(9).map(|inode| (*inode).to_owned()))?
    })
}

fn holds(pid: u32, inode: &str) -> bool {
    let socket = PathBuf::from(format!("socket:[{inode}]"));
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    let mut links = entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    links.any(|link| link == socket)
}

/// The status of a process, if it has ended.
fn ended(process: &mut Process) -> Option<String> {
    match process.wait(Duration::ZERO) {
        Ok(status) => Some(status.to_string()),
        Err(_) => None,
    }
}

/// The report of a process that has ended, or why there is none.
fn stated(
    plan: &FlowPlan,
    side: &'static str,
    process: &Process,
    status: &str,
) -> Result<String, TrafficError> {
    process.close_tails();
    let text = process.stdout();
    match super::report::measured(&text) {
        true => Ok(text),
        false => Err(reported(plan, side, process, status)),
    }
}

/// Why a process ended without a report: in its own words where it has some.
fn reported(plan: &FlowPlan, side: &'static str, process: &Process, status: &str) -> TrafficError {
    process.close_tails();
    match super::report::complaint(&process.stdout()) {
        Some(message) => TrafficError::Refused {
            flow: plan.name.clone(),
            side,
            message,
        },
        None => TrafficError::Died {
            flow: plan.name.clone(),
            side,
            status: status.to_owned(),
            stderr: process.stderr(),
        },
    }
}

fn late_error(plan: &FlowPlan, side: &'static str, late: Duration) -> TrafficError {
    TrafficError::Late {
        flow: plan.name.clone(),
        side,
        late,
    }
}

/// One flow on its way.
struct Flow<'a> {
    plan: &'a FlowPlan,
    server: Process,
    client: Option<(Process, f64)>,
    /// The output of the client, once it has ended.
    client_output: Option<String>,
    done: Option<Transfer>,
}

/// Starts every flow at its time and waits for all; ends with the first that fails.
pub(super) fn drive(
    plans: &[FlowPlan],
    mut servers: Servers,
    origin: Origin,
    stop: &AtomicBool,
    pids: &Pids,
) -> Result<Vec<Transfer>, TrafficError> {
    let mut flows: Vec<Flow<'_>> = plans
        .iter()
        .filter_map(|plan| {
            Some(Flow {
                plan,
                server: servers.by_flow.remove(&plan.name)?,
                client: None,
                client_output: None,
                done: None,
            })
        })
        .collect();
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(TrafficError::Stopped);
        }
        for flow in flows.iter_mut().filter(|flow| flow.done.is_none()) {
            flow.look(origin, pids)?;
        }
        if flows.iter().all(|flow| flow.done.is_some()) {
            return Ok(flows.into_iter().filter_map(|flow| flow.done).collect());
        }
        std::thread::sleep(next_look(&flows, origin));
    }
}

/// Until the next start, if that is sooner than the next look.
fn next_look(flows: &[Flow<'_>], origin: Origin) -> Duration {
    let starts = flows.iter().filter(|flow| flow.client.is_none());
    starts
        .map(|flow| {
            (origin.moment(flow.plan.start_seconds)).saturating_duration_since(Instant::now())
        })
        .fold(LOOK_EVERY, Duration::min)
}

impl Flow<'_> {
    /// Does what is due.
    fn look(&mut self, origin: Origin, pids: &Pids) -> Result<(), TrafficError> {
        let now = origin.now();
        let Some((client, spawned)) = &mut self.client else {
            if now >= self.plan.start_seconds {
                self.client = Some((self.start()?, now));
                let client = self.client.as_ref().map_or(0, |(client, _)| client.id());
                pids.client(&self.plan.name, client);
            }
            return Ok(());
        };
        if self.client_output.is_none()
            && let Some(status) = ended(client)
        {
            self.client_output = Some(stated(self.plan, "client", client, &status)?);
        }
        let spawned = *spawned;
        if let Some(client_output) = &self.client_output
            && let Some(status) = ended(&mut self.server)
        {
            let server_output = stated(self.plan, "server", &self.server, &status)?;
            let reports = Reports::read(self.plan, client_output, &server_output)?;
            self.done = Some(Transfer::from_reports(self.plan, spawned, reports));
            return Ok(());
        }
        self.check_time(now)
    }

    fn start(&self) -> Result<Process, TrafficError> {
        spawn(
            self.plan,
            &self.plan.client,
            &self.plan.client_command(),
            "client",
        )
    }

    fn check_time(&self, now: f64) -> Result<(), TrafficError> {
        let end = self.plan.start_seconds + f64::from(self.plan.seconds);
        if now < end + SPARE_TIME.as_secs_f64() {
            return Ok(());
        }
        let side = if self.client_output.is_none() {
            "client"
        } else {
            "server"
        };
        Err(late_error(self.plan, side, SPARE_TIME))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn only_a_process_that_holds_the_socket_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(listens(std::process::id(), port));
        assert!(!listens(std::os::unix::process::parent_id(), port));
        drop(listener);
        assert!(!listens(std::process::id(), port));
    }

    #[test]
    fn a_program_is_found_anywhere_in_the_path() {
        assert!(in_path("sh", Some("/nowhere:/bin:/usr/bin".into())));
        assert!(!in_path("sh", Some("/nowhere".into())));
        assert!(!in_path("sh", None));
    }
}
