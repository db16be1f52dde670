//! Metrics and the web page: servers in separate threads, which request snapshots from the loop.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;

use anyhow::{Context, anyhow};
use fairpath_config::Config;
use fairpath_export::{Server, ServerOptions, SnapshotSource, serve};
use fairpath_history::series::{Series, SeriesQuery};
use fairpath_history::snapshot::{Answer, Detail, Query, Request, Snapshot};

use super::query::Requester;
use crate::privileges;

struct Snapshots {
    requester: Requester,
}

impl SnapshotSource for Snapshots {
    fn snapshot(&self, query: &Query) -> Option<Snapshot> {
        let query = query.clone();
        match self.requester.query(Request::Snapshot { query }) {
            Ok(Answer::Snapshot { snapshot }) => Some(*snapshot),
            Ok(_) => None,
            Err(error) => {
                tracing::warn!("snapshot for the web server: {error}");
                None
            }
        }
    }

    fn detail(&self, class: &str, limit: usize) -> Option<Detail> {
        let class = class.to_owned();
        match self.requester.query(Request::Detail { class, limit }) {
            Ok(Answer::Detail { detail }) => Some(*detail),
            _ => None,
        }
    }

    fn series(&self, query: &SeriesQuery) -> Option<Result<Series, String>> {
        let query = query.clone();
        match self.requester.query(Request::History { query }) {
            Ok(Answer::History { series }) => Some(Ok(*series)),
            Ok(Answer::Error { text }) => Some(Err(text)),
            _ => None,
        }
    }
}

/// One address and its options.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Site {
    address: SocketAddr,
    options: ServerOptions,
}

/// The running servers.
#[derive(Debug, Default)]
pub struct Web {
    sites: Vec<(Site, Server)>,
    /// Counters of servers that ended, so that sums never decrease.
    ended: BTreeMap<String, u64>,
}

/// Servers of another configuration: their addresses are bound, but not served yet.
pub struct Prepared {
    sites: Vec<Site>,
    listeners: Vec<(Site, TcpListener)>,
}

impl Web {
    /// Binds the addresses of a configuration that are not served yet.
    ///
    /// # Errors
    /// An address cannot be bound; the running servers continue.
    pub fn prepare(&self, config: &Config) -> anyhow::Result<Prepared> {
        let sites = sites(config);
        let mut listeners = Vec::new();
        for site in &sites {
            let served = self.sites.iter().map(|(running, _)| running);
            let mut same_address = served.filter(|running| running.address == site.address);
            if same_address.next().is_some() {
                continue; // unchanged, or bound again after the old server ended
            }
            let listener = TcpListener::bind(site.address).with_context(|| {
                format!(
                    "listen on {} for {}: check whether another program uses it",
                    site.address,
                    if site.options.page {
                        "[web]"
                    } else {
                        "[metrics]"
                    }
                )
            })?;
            listeners.push((site.clone(), listener));
        }
        Ok(Prepared { sites, listeners })
    }

    /// Starts the prepared servers, and ends those that are not configured any more.
    ///
    /// # Errors
    /// A server cannot start.
    pub fn start(&mut self, prepared: Prepared, requester: &Requester) -> anyhow::Result<()> {
        let ended = self
            .sites
            .extract_if(.., |(site, _)| !prepared.sites.contains(site));
        for (_, server) in ended {
            add(&mut self.ended, server.counters());
        }
        let mut listeners = prepared.listeners;
        for site in prepared.sites {
            let there = self.sites.iter().any(|(running, _)| *running == site);
            let bound = listeners.iter().any(|(bound, _)| *bound == site);
            if !there && !bound {
                // The same address with other options: the old server has just ended.
                let listener = TcpListener::bind(site.address)
                    .with_context(|| format!("listen on {} again", site.address))?;
                listeners.push((site, listener));
            }
        }
        for (site, listener) in listeners {
            let server = start(listener, site.options.clone(), requester.clone())?;
            self.sites.push((site, server));
        }
        Ok(())
    }

    /// Counters of the servers, by name.
    pub fn counters(&self) -> BTreeMap<String, u64> {
        let mut sums = self.ended.clone();
        for (_, server) in &self.sites {
            add(&mut sums, server.counters());
        }
        sums
    }

    /// The served addresses.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.sites.iter().map(|(site, _)| site.address)
    }
}

fn add(sums: &mut BTreeMap<String, u64>, counters: BTreeMap<String, u64>) {
    for (name, count) in counters {
        *sums.entry(name).or_default() += count;
    }
}

/// The server of the page serves metrics as well, so one address is enough for both.
fn sites(config: &Config) -> Vec<Site> {
    let site = |address, page| Site {
        address,
        options: ServerOptions {
            hosts: config.web.hosts.clone(),
            max_series: config.metrics.max_series,
            page,
        },
    };
    let (metrics, web) = (config.metrics.listen, config.web.listen);
    let page = web.map(|address| site(address, true));
    let metrics = metrics.filter(|address| web != Some(*address));
    page.into_iter()
        .chain(metrics.map(|address| site(address, false)))
        .collect()
}

/// Threads inherit capabilities, so a thread without capabilities starts the servers.
fn start(
    listener: TcpListener,
    options: ServerOptions,
    requester: Requester,
) -> anyhow::Result<Server> {
    let starter = thread::spawn(move || {
        privileges::drop_all();
        serve(listener, Arc::new(Snapshots { requester }), options)
    });
    let server = starter
        .join()
        .map_err(|_| anyhow!("start a web server: it panicked"))?;
    Ok(server?)
}
