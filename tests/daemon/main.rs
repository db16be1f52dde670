//! `fairpath run` in networks made of namespaces: what it counts, and what it survives.
//!
//! ```text
//! client (10.10.1.2, .3) ── lan [router: fairpath run] wan ── server
//! ```
//!
//! As root: `cargo test -p fairpath-tests --test daemon`. Each test has separate namespaces and a separate
//! directory, so all may run at once.

mod classes;
#[path = "../netns/configured_loss.rs"]
mod configured_loss;
mod history;
mod life;
mod loss;
mod manager;
mod new_flows;
mod outputs;
mod own;
mod reloads;
mod trouble;
mod volume;

use std::net::Ipv4Addr;

use fairpath_testbed::{
    EchoServer, Host, Impairment, Netns, Router, RouterBuilder, ShortConnections, Testbed,
};
use serde_json::Value;
use std::time::Duration;

/// The second subscriber's address, after [`Router::CLIENT`].
pub const BERT: Ipv4Addr = Ipv4Addr::new(10, 10, 1, 3);

/// Two subscribers of one site, by address.
pub const CLASSES: &str = r#"
[[class]]
name = "site"
[[class]]
name = "anna"
parent = "site"
prefix = "10.10.1.2"
up = "20mbit"
down = "100mbit"
[[class]]
name = "bert"
parent = "site"
prefix = "10.10.1.3"
"#;

/// A router whose client has both subscribers' addresses, with servers that answer on them.
pub struct Site {
    /// Client, router and server.
    pub net: Router,
    echo: EchoServer,
}

impl Site {
    /// Without delay.
    pub fn new(testbed: &Testbed) -> Site {
        Site::build(testbed, Router::builder())
    }

    /// With a round trip of `inside` to the subscribers and of `outside` to the server.
    pub fn delayed(testbed: &Testbed, inside: Duration, outside: Duration) -> Site {
        let half = |time: Duration| Impairment::delay(time / 2);
        let builder = Router::builder()
            .lan_wire(half(inside), half(inside))
            .wan_wire(half(outside), half(outside));
        Site::build(testbed, builder)
    }

    fn build(testbed: &Testbed, builder: RouterBuilder) -> Site {
        let net = builder.build(testbed).unwrap();
        let add = format!("{BERT}/24");
        net.client
            .run(&["ip", "address", "add", &add, "dev", "eth0"])
            .unwrap();
        let echo = EchoServer::start(&net.client, 7007).unwrap();
        Site { net, echo }
    }

    /// The router's namespace, where the daemon runs.
    pub fn router(&self) -> &Netns {
        &self.net.router
    }

    /// The server downloads from a subscriber: as many connections, each of 20 kB.
    pub fn exchange(&self, subscriber: Ipv4Addr, connections: u64) {
        let traffic = ShortConnections {
            connections,
            at_once: 4,
            request_bytes: 1_000,
            response_bytes: 20_000,
        };
        let report = traffic
            .run(&self.net.server, subscriber, self.echo.port())
            .unwrap();
        assert_eq!(report.completed, connections);
    }
}

/// The first subscriber's address.
pub const ANNA: Ipv4Addr = {
    let Host { v4, .. } = Router::CLIENT;
    v4
};

/// A counter of a status.
pub fn counter(status: &Value, name: &str) -> u64 {
    let number = status["counters"][name].as_u64();
    number.unwrap_or_else(|| panic!("no counter {name}: {status:#}"))
}
