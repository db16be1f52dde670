//! The output of `fairpath rtt`, read back: a reader of its JSON lines, as a user would write one.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::path::Path;

use anyhow::{Context, ensure};
use serde::Deserialize;

use crate::lab::Leg;
use crate::spread::Spread;

/// The schema that is understood here.
const SCHEMA: u32 = 1;
/// Least bytes of a flow that carries data: iperf3's own control connection has some hundred.
pub const BULK_BYTES: u64 = 50_000;

/// All records of one run.
#[derive(Debug, Default)]
pub struct Records {
    samples: Vec<Sample>,
    /// The last record of each flow.
    flows: HashMap<u32, Flow>,
    /// Events that did not get through to user space.
    pub events_lost: u64,
}

/// Which traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Echo requests and replies of one family.
    Echo {
        /// IPv6, not IPv4.
        v6: bool,
    },
    /// TCP to and from a server's ports; flows with less data in both directions are excluded.
    Tcp {
        /// The server's ports.
        ports: [u16; 2],
        /// Least bytes of one side.
        min_bytes: u64,
    },
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum RttRecord {
    Sample(Sample),
    Flow(Flow),
    Summary { events_lost: u64 },
}

#[derive(Deserialize)]
struct Versioned {
    schema: u32,
}

#[derive(Debug, Deserialize)]
struct Sample {
    flow: u32,
    protocol: String,
    src_address: IpAddr,
    rtt_ns: u64,
    towards: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Flow {
    flow: u32,
    protocol: String,
    sides: [Side; 2],
}

/// The data that one side of a flow sent.
#[derive(Clone, Debug, Deserialize)]
pub struct Side {
    port: u16,
    /// The interface of the router towards this side.
    pub towards: Option<String>,
    bytes: u64,
    /// Packets with data that passed.
    pub data_packets: u64,
    /// Of these, sent again.
    pub retransmitted_packets: u64,
    /// Of those, sent again without need.
    pub spurious_packets: u64,
    /// Packets that never came.
    pub upstream_lost_packets: u64,
}

impl Traffic {
    fn has_flow(self, flow: &Flow) -> bool {
        let Traffic::Tcp { ports, min_bytes } = self else {
            return false;
        };
        let sides = &flow.sides;
        flow.protocol == "tcp"
            && sides.iter().any(|side| ports.contains(&side.port))
            && sides.iter().any(|side| side.bytes >= min_bytes)
    }

    fn has(self, sample: &Sample, flows: &HashMap<u32, Flow>) -> bool {
        match self {
            Traffic::Echo { v6 } => sample.protocol != "tcp" && sample.src_address.is_ipv6() == v6,
            Traffic::Tcp { .. } => flows
                .get(&sample.flow)
                .is_some_and(|flow| self.has_flow(flow)),
        }
    }
}

impl Records {
    /// Reads the file; a line that is not understood is an error.
    pub fn read(path: &Path) -> anyhow::Result<Records> {
        let file = File::open(path).with_context(|| format!("open {path:?}"))?;
        let mut records = Records::default();
        for (number, line) in (1..).zip(BufReader::new(file).lines()) {
            let taken = line
                .map_err(Into::into)
                .and_then(|line| records.take(&line));
            taken.with_context(|| format!("read {path:?}, line {number}"))?;
        }
        Ok(records)
    }

    fn take(&mut self, line: &str) -> anyhow::Result<()> {
        let Versioned { schema } = serde_json::from_str(line)?;
        ensure!(schema == SCHEMA, "schema {schema} is not understood");
        match serde_json::from_str(line)? {
            RttRecord::Sample(sample) => self.samples.push(sample),
            RttRecord::Flow(flow) => {
                self.flows.insert(flow.flow, flow);
            }
            RttRecord::Summary { events_lost } => self.events_lost = events_lost,
        }
        Ok(())
    }

    /// All samples of a run.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Round-trip times of one leg.
    pub fn spread(&self, traffic: Traffic, leg: Leg) -> Spread {
        let wanted = |sample: &&Sample| {
            sample.towards.as_deref() == Some(leg.interface()) && traffic.has(sample, &self.flows)
        };
        Spread::new(
            self.samples
                .iter()
                .filter(wanted)
                .map(|sample| sample.rtt_ns as f64 / 1e6),
        )
    }

    /// TCP flows.
    pub fn flows(&self, traffic: Traffic) -> usize {
        let wanted = |flow: &&Flow| traffic.has_flow(flow);
        self.flows.values().filter(wanted).count()
    }

    /// The data that the hosts behind one interface sent, a value a flow.
    pub fn sides(&self, traffic: Traffic, leg: Leg) -> impl Iterator<Item = &Side> {
        self.flows
            .values()
            .filter(move |flow| traffic.has_flow(flow))
            .flat_map(|flow| &flow.sides)
            .filter(move |side| side.towards.as_deref() == Some(leg.interface()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = r#"{"schema":1,"type":"sample","flow":7,"protocol":"tcp","src_address":"10.0.0.1",
        "rtt_ns":20500000,"towards":"wan"}"#;
    const FLOW: &str = r#"{"schema":1,"type":"flow","event":"closed","flow":7,"protocol":"tcp","sides":[
        {"port":4000,"towards":"lan","bytes":90000,"data_packets":60,"retransmitted_packets":3,
         "spurious_packets":1,"upstream_lost_packets":0},
        {"port":5300,"towards":"wan","bytes":0,"data_packets":0,"retransmitted_packets":0,
         "spurious_packets":0,"upstream_lost_packets":0}]}"#;

    fn tcp(port: u16, min_bytes: u64) -> Traffic {
        let ports = [port, port];
        Traffic::Tcp { ports, min_bytes }
    }

    #[test]
    fn samples_belong_to_the_traffic_of_their_flow() {
        let mut records = Records::default();
        for line in [SAMPLE, FLOW] {
            records.take(line).unwrap();
        }
        let median = |traffic, leg| records.spread(traffic, leg).median();
        assert_eq!(median(tcp(5300, BULK_BYTES), Leg::Wan), Some(20.5));
        assert_eq!(median(tcp(5300, BULK_BYTES), Leg::Lan), None);
        assert_eq!(median(tcp(5301, 0), Leg::Wan), None, "another port");
        assert_eq!(median(tcp(5300, 100_000), Leg::Wan), None, "too small");
        assert_eq!(median(Traffic::Echo { v6: false }, Leg::Wan), None);
        assert_eq!(records.sides(tcp(5300, 0), Leg::Lan).count(), 1);
    }

    #[test]
    fn another_schema_is_refused() {
        let line = SAMPLE.replace("\"schema\":1", "\"schema\":2");
        assert!(Records::default().take(&line).is_err());
    }
}
