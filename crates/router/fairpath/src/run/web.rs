//! Metrics and the page: servers of their own threads, which ask the loop for their pictures.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;

use anyhow::{Context, anyhow};
use fairpath_config::Config;
use fairpath_export::{Pictures, Server, ServerOptions, serve};
use fairpath_history::snapshot::{Answer, Detail, Query, Request, Snapshot};

use super::ask::Asker;
use super::privileges;

struct Asked {
    asker: Asker,
}

impl Pictures for Asked {
    fn snapshot(&self, query: &Query) -> Snapshot {
        let query = query.clone();
        match self.asker.ask(Request::Snapshot { query }) {
            Ok(Answer::Snapshot { snapshot }) => *snapshot,
            Ok(_) => Snapshot::default(),
            Err(error) => {
                tracing::warn!("a picture for the web: {error}");
                Snapshot::default()
            }
        }
    }

    fn detail(&self, class: &str, limit: usize) -> Option<Detail> {
        let class = class.to_owned();
        match self.asker.ask(Request::Detail { class, limit }) {
            Ok(Answer::Detail { detail }) => Some(*detail),
            _ => None,
        }
    }
}

/// What one address serves.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Site {
    address: SocketAddr,
    options: ServerOptions,
}

/// The running servers.
#[derive(Debug, Default)]
pub struct Web {
    sites: Vec<(Site, Server)>,
}

/// Servers of another configuration: their addresses are taken, nobody is answered yet.
pub struct Prepared {
    sites: Vec<Site>,
    listeners: Vec<(Site, TcpListener)>,
}

impl Web {
    /// Takes the addresses that a configuration names and that are not served already.
    ///
    /// # Errors
    /// For the first address that cannot be had; what runs goes on.
    pub fn prepare(&self, config: &Config) -> anyhow::Result<Prepared> {
        let sites = sites(config);
        let mut listeners = Vec::new();
        for site in &sites {
            let served = self.sites.iter().map(|(running, _)| running);
            let mut same_address = served.filter(|running| running.address == site.address);
            if same_address.next().is_some() {
                continue; // kept, or bound anew when the old one is gone
            }
            let listener = TcpListener::bind(site.address).with_context(|| {
                format!(
                    "listen on {} for {}; is another program there?",
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

    /// Serves what was prepared, and ends what is wanted no more.
    ///
    /// # Errors
    /// Where a server cannot be started.
    pub fn start(&mut self, prepared: Prepared, asker: &Asker) -> anyhow::Result<()> {
        self.sites.retain(|(site, _)| prepared.sites.contains(site));
        let mut listeners = prepared.listeners;
        for site in prepared.sites {
            let there = self.sites.iter().any(|(running, _)| *running == site);
            let bound = listeners.iter().any(|(bound, _)| *bound == site);
            if !there && !bound {
                // The same address with other options: the old server has just let it go.
                let listener = TcpListener::bind(site.address)
                    .with_context(|| format!("listen on {} again", site.address))?;
                listeners.push((site, listener));
            }
        }
        for (site, listener) in listeners {
            let server = start(listener, site.options.clone(), asker.clone())?;
            self.sites.push((site, server));
        }
        Ok(())
    }

    /// What the servers did, by name.
    pub fn counters(&self) -> BTreeMap<String, u64> {
        let mut sums = BTreeMap::new();
        for (name, count) in self.sites.iter().flat_map(|(_, server)| server.counters()) {
            *sums.entry(name).or_default() += count;
        }
        sums
    }

    /// Where something is served.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.sites.iter().map(|(site, _)| site.address)
    }
}

/// The page's server has metrics too; where both have one address, it serves both.
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

/// Threads inherit capabilities from the one that starts them: a thread without any starts these.
fn start(listener: TcpListener, options: ServerOptions, asker: Asker) -> anyhow::Result<Server> {
    let starter = thread::spawn(move || {
        privileges::keep_nothing();
        serve(listener, Arc::new(Asked { asker }), options)
    });
    let server = starter
        .join()
        .map_err(|_| anyhow!("start a web server: it panicked"))?;
    Ok(server?)
}
