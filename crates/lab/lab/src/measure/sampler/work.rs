//! The sampler's thread: finds data sockets, then queries each of them on time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fairpath_bpf::Recoveries;
use fairpath_netlink::{NetlinkError, SocketDiag, SocketId, TcpSocket};

use super::series::{Moment, Series};
use super::{Sampled, SamplerError, Watched, canonical};
use crate::measure::clock::Origin;
use crate::measure::precise::{sleep_until, thread_cpu};

/// Time between looks for sockets that are to come.
const FIND_EVERY: Duration = Duration::from_millis(20);
/// Bytes that iperf3's control connection does not send, and a data socket sends at once.
const DATA_BYTES: u64 = 8192;
/// A flow that has not begun so long after its time is looked for at each sample only.
const FIND_SECONDS: f64 = 3.0;
/// Connections that are followed at most: iperf3 makes two a flow.
const SERIES_LIMIT: usize = 1024;

/// A namespace with senders in it.
struct Place {
    name: String,
    inode: u64,
    diag: SocketDiag,
}

pub(super) struct Work {
    flows: Vec<Watched>,
    found: Vec<bool>,
    places: Vec<Place>,
    origin: Origin,
    every: Duration,
    recoveries: Option<Arc<Recoveries>>,
    series: Vec<Series>,
    /// Of each series: the connection is gone.
    removed: Vec<bool>,
}

impl Work {
    pub(super) fn new(
        flows: Vec<Watched>,
        origin: Origin,
        every: Duration,
        recoveries: Option<Arc<Recoveries>>,
    ) -> Result<Work, SamplerError> {
        let mut places: Vec<Place> = Vec::new();
        for flow in &flows {
            let inode = flow.sender.inode();
            if places.iter().any(|place| place.inode == inode) {
                continue;
            }
            let opened = flow.sender.enter(SocketDiag::open);
            let opened = opened.map_err(|source| SamplerError::Netns {
                flow: flow.flow.clone(),
                source,
            })?;
            let name = flow.sender.name().to_owned();
            match opened {
                Ok(diag) => places.push(Place { name, inode, diag }),
                Err(source) => return Err(SamplerError::Diag { ns: name, source }),
            }
        }
        Ok(Work {
            found: vec![false; flows.len()],
            flows,
            places,
            origin,
            every,
            recoveries,
            series: Vec::new(),
            removed: Vec::new(),
        })
    }

    pub(super) fn run(mut self, stop: &AtomicBool) -> Result<Sampled, SamplerError> {
        let began = Instant::now();
        let mut next_sample = began;
        while !stop.load(Ordering::Relaxed) {
            let now = Instant::now();
            let sample = now >= next_sample;
            let look_again = self.find(now, sample)?;
            if sample {
                self.sample()?;
                // A machine that was busy for long leaves samples out; it does not take them in a row.
                next_sample = (next_sample + self.every).max(now);
            }
            sleep_until(match look_again {
                true => next_sample.min(now + FIND_EVERY),
                false => next_sample,
            });
        }
        // The last figures, as long as the connections are there.
        self.sample()?;
        Ok(Sampled {
            series: self.series,
            cpu: thread_cpu(),
            elapsed: began.elapsed(),
        })
    }

    /// Looks for data sockets that are due; whether it is to look again before the next sample.
    fn find(&mut self, now: Instant, sample: bool) -> Result<bool, SamplerError> {
        let at = self.origin.seconds(now);
        let due = |flow: &Watched| at >= flow.start_seconds;
        let soon = |flow: &Watched| due(flow) && at < flow.start_seconds + FIND_SECONDS;
        let missing: Vec<usize> = (0..self.flows.len())
            .filter(|n| !self.found[*n] && due(&self.flows[*n]))
            .filter(|n| sample || soon(&self.flows[*n]))
            .collect();
        for place in 0..self.places.len() {
            let inode = self.places[place].inode;
            let here = |n: &&usize| self.flows[**n].sender.inode() == inode;
            let here: Vec<usize> = missing.iter().filter(here).copied().collect();
            if !here.is_empty() {
                let sockets = self.places[place].diag.dump();
                let sockets = sockets.map_err(|source| self.failed(place, source))?;
                self.note(inode, &here, &sockets, at);
            }
        }
        let awaited = |(flow, found): (&Watched, &bool)| !found && soon(flow);
        Ok(self.flows.iter().zip(&self.found).any(awaited))
    }

    /// Follows the sockets of these flows, and notes which flows have begun to send.
    fn note(&mut self, ns: u64, flows: &[usize], sockets: &[TcpSocket], at: f64) {
        for socket in sockets {
            let flow = flows.iter().find(|n| belongs(&socket.id, &self.flows[**n]));
            let Some(flow) = flow else {
                continue;
            };
            let known = self.series.iter().position(|series| series.id == socket.id);
            let known = match known {
                Some(known) => known,
                None if self.series.len() == SERIES_LIMIT => continue,
                None => {
                    self.removed.push(false);
                    self.series.push(Series {
                        ns,
                        id: socket.id,
                        began: None,
                        moments: Vec::new(),
                    });
                    self.series.len() - 1
                }
            };
            // It is there, whatever a question for it alone was answered.
            self.removed[known] = false;
            let sent = socket.info.as_ref().map_or(0, |info| info.bytes_sent);
            if sent >= DATA_BYTES {
                self.series[known].began.get_or_insert(at);
                self.found[*flow] = true;
            }
        }
    }

    /// Queries each connection that still exists.
    fn sample(&mut self) -> Result<(), SamplerError> {
        for n in 0..self.series.len() {
            let (ns, id) = (self.series[n].ns, self.series[n].id);
            let Some(place) = self.places.iter().position(|place| place.inode == ns) else {
                continue;
            };
            if self.removed[n] {
                continue;
            }
            let socket = self.places[place].diag.get(&id);
            let socket = socket.map_err(|source| self.failed(place, source))?;
            let Some(TcpSocket {
                info: Some(info),
                congestion,
                bbr,
                ..
            }) = socket
            else {
                self.lose(n);
                continue;
            };
            // Counts that cannot be read are not counted; the record then says "sampled".
            let reported = (self.recoveries.as_ref()).and_then(|r| r.of(id.cookie).ok());
            self.series[n].moments.push(Moment {
                at: self.origin.now(),
                info,
                congestion: congestion.unwrap_or_default(),
                bbr,
                reported,
            });
        }
        Ok(())
    }

    /// A connection does not answer: it has ended. One that never answered is looked for again among all.
    fn lose(&mut self, n: usize) {
        self.removed[n] = true;
        let Series {
            ns, id, moments, ..
        } = &self.series[n];
        if !moments.is_empty() {
            return;
        }
        for (flow, found) in self.flows.iter().zip(&mut self.found) {
            *found &= flow.sender.inode() != *ns || !belongs(id, flow);
        }
    }

    fn failed(&self, place: usize, source: NetlinkError) -> SamplerError {
        SamplerError::Diag {
            ns: self.places[place].name.clone(),
            source,
        }
    }
}

/// True if a socket is one of a flow's sender.
fn belongs(id: &SocketId, flow: &Watched) -> bool {
    match flow.reverse {
        true => id.local.port() == flow.server.port(),
        false => canonical(id.peer) == canonical(flow.server),
    }
}

#[cfg(test)]
mod tests {
    use fairpath_netlink::TcpInfo;
    use fairpath_testbed::Testbed;

    use super::*;

    #[test]
    fn a_connection_without_answers_is_found_and_followed() {
        let here = Testbed::new().current_netns().unwrap();
        let ns = here.inode();
        let flow = Watched {
            flow: "bulk".to_owned(),
            sender: here,
            server: "10.0.0.2:5201".parse().unwrap(),
            reverse: false,
            start_seconds: 0.0,
        };
        let mut work = Work {
            flows: vec![flow],
            found: vec![false],
            places: Vec::new(),
            origin: Origin::ahead(Duration::ZERO),
            every: FIND_EVERY,
            recoveries: None,
            series: Vec::new(),
            removed: Vec::new(),
        };
        let data = TcpSocket {
            id: SocketId {
                local: "10.0.0.1:40000".parse().unwrap(),
                peer: "10.0.0.2:5201".parse().unwrap(),
                cookie: 7,
            },
            state: 1,
            inode: 9,
            info: Some(TcpInfo {
                bytes_sent: DATA_BYTES,
                ..TcpInfo::default()
            }),
            congestion: None,
            bbr: None,
        };
        let state = |work: &Work| (work.found.clone(), work.removed.clone());
        let sockets = [data];
        work.note(ns, &[0], &sockets, 0.1);
        assert_eq!(state(&work), (vec![true], vec![false]));
        work.lose(0);
        assert_eq!(state(&work), (vec![false], vec![true]));
        work.note(ns, &[0], &sockets, 0.2);
        assert_eq!(state(&work), (vec![true], vec![false]));
        assert_eq!((work.series.len(), work.series[0].began), (1, Some(0.1)));

        // One that was sampled has ended, and nothing is looked for.
        work.series[0].moments.push(Moment {
            at: 0.2,
            info: TcpInfo::default(),
            congestion: "cubic".to_owned(),
            bbr: None,
            reported: None,
        });
        work.lose(0);
        assert_eq!(state(&work), (vec![true], vec![true]));
    }
}
