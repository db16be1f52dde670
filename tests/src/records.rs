//! The output of `fairpath rtt --format json`, read back.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

/// A sample record; `docs/guide/rtt.md` describes every key.
#[derive(Clone, Debug, Deserialize)]
#[allow(missing_docs)]
pub struct Sample {
    pub time: String,
    pub flow: u32,
    #[serde(rename = "protocol")]
    pub proto: String,
    #[serde(rename = "src_address")]
    pub src: IpAddr,
    #[serde(rename = "dst_address")]
    pub dst: IpAddr,
    #[serde(rename = "src_port")]
    pub sport: u16,
    #[serde(rename = "dst_port")]
    pub dport: u16,
    pub rtt_ns: u64,
    pub min_rtt_ns: u64,
    pub method: String,
    pub interface: Option<String>,
    pub towards: Option<String>,
    pub seq: u32,
    pub ack: u32,
    pub acked_bytes: u32,
}

/// The identity of a sample, for any observer.
pub type Key = (String, IpAddr, IpAddr, u16, u16, String, u32, u32, u32);

impl Sample {
    /// Protocol, addresses, ports, method, sequence and acknowledgement numbers, acknowledged bytes.
    pub fn key(&self) -> Key {
        (
            self.proto.clone(),
            self.src,
            self.dst,
            self.sport,
            self.dport,
            self.method.clone(),
            self.seq,
            self.ack,
            self.acked_bytes,
        )
    }

    /// The round-trip time.
    pub fn rtt(&self) -> Duration {
        Duration::from_nanos(self.rtt_ns)
    }
}

/// Everything that one run printed.
#[derive(Clone, Debug, Default)]
pub struct Records {
    /// Samples in their order.
    pub samples: Vec<Sample>,
    /// Flow records: `opened`, `closed`, `alive`.
    pub flows: Vec<Value>,
    /// The closing summary; null if there is none.
    pub summary: Value,
}

impl Records {
    /// Reads JSON lines.
    ///
    /// # Panics
    /// On a line that is no record: the output is part of what is tested.
    pub fn parse(text: &str) -> Records {
        let mut records = Records::default();
        for line in text.lines() {
            let value: Value = serde_json::from_str(line)
                .unwrap_or_else(|error| panic!("no JSON: {error}: {line:?}"));
            assert_eq!(value["schema"], 1, "{line}");
            match value["type"].as_str() {
                Some("sample") => records.samples.push(
                    serde_json::from_value(value)
                        .unwrap_or_else(|error| panic!("no sample: {error}: {line:?}")),
                ),
                Some("flow") => records.flows.push(value),
                Some("summary") => records.summary = value,
                other => panic!("records of type {other:?} are not known: {line}"),
            }
        }
        records
    }

    /// The number of occurrences of each sample.
    pub fn counts(&self) -> BTreeMap<Key, usize> {
        let mut counts = BTreeMap::new();
        for sample in &self.samples {
            *counts.entry(sample.key()).or_default() += 1;
        }
        counts
    }

    /// Samples by one method.
    pub fn by<'a>(&'a self, method: &'a str) -> impl Iterator<Item = &'a Sample> {
        self.samples.iter().filter(move |s| s.method == method)
    }

    /// A number of the summary, by the path of its keys.
    ///
    /// # Panics
    /// If it is not there.
    pub fn number(&self, pointer: &str) -> u64 {
        let value = self.summary.pointer(pointer).and_then(Value::as_u64);
        value.unwrap_or_else(|| panic!("no number {pointer} in {}", self.summary))
    }

    /// The summary's line for the hosts behind an interface.
    ///
    /// # Panics
    /// If there is none.
    pub fn towards(&self, interface: &str) -> &Value {
        let lines = self.summary["towards"].as_array();
        let line = lines.and_then(|l| l.iter().find(|l| l["towards"] == interface));
        line.unwrap_or_else(|| panic!("nothing towards {interface:?} in {}", self.summary))
    }
}

/// Samples that only one of two runs has, with how often more.
pub fn differences(ours: &Records, theirs: &Records) -> Vec<(Key, usize, usize)> {
    let (ours, theirs) = (ours.counts(), theirs.counts());
    let mut keys: Vec<&Key> = ours.keys().chain(theirs.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    let count = |of: &BTreeMap<Key, usize>, key| of.get(key).copied().unwrap_or(0);
    keys.into_iter()
        .map(|key| (key.clone(), count(&ours, key), count(&theirs, key)))
        .filter(|(_, ours, theirs)| ours != theirs)
        .collect()
}
