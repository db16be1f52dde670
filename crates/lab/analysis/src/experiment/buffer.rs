//! Capacities of queues: in packets, or in bandwidth-delay products of their link.
//!
//! A product is the rate of the link times the longest base round trip of the flows that cross it, in full
//! frames. It is computed at each setting of the axes, so that a buffer follows the axes of rate and round
//! trip. Scaling keeps it, since rate times round trip stays.

use std::fmt;
use std::str::FromStr;

use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use super::Experiment;
use super::links::FRAME_BITS;
use crate::topology::{Cable, Topology};

/// The unit of products.
const UNIT: &str = "bdp";
/// Maximum products: above are slips of the pen.
const MAX_PRODUCTS: f64 = 10_000.0;

/// The capacity of a queue: `83`, or `"0.5bdp"`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// Packets.
    Packets(u32),
    /// Bandwidth-delay products, above 0.
    Products(f64),
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::Packets(packets) => write!(f, "{packets} packets"),
            Limit::Products(products) => write!(f, "{products}{UNIT}"),
        }
    }
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Limit, String> {
        let number = text.trim().strip_suffix(UNIT).map(str::trim);
        let is_plain = |c: char| c.is_ascii_digit() || c == '.';
        let number = number.filter(|number| number.chars().all(is_plain));
        let products = number.and_then(|number| number.parse().ok());
        let products = products.filter(|n| *n > 0.0 && *n <= MAX_PRODUCTS);
        products.map(Limit::Products).ok_or_else(|| {
            format!(
                "limit \"{text}\" is invalid: write packets as a number (100), or bandwidth-delay products above 0 and at most {MAX_PRODUCTS} (\"0.5bdp\")"
            )
        })
    }
}

impl Serialize for Limit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Limit::Packets(packets) => serializer.serialize_u32(*packets),
            Limit::Products(_) => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Limit, D::Error> {
        struct Written;

        impl Visitor<'_> for Written {
            type Value = Limit;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of packets, such as 100, or \"0.5bdp\"")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Limit, E> {
                let packets = u32::try_from(number);
                packets.map(Limit::Packets).map_err(|_| {
                    E::custom(format!(
                        "limit {number} is not between 0 and {} packets",
                        u32::MAX
                    ))
                })
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Limit, E> {
                self.visit_i64(i64::try_from(number).unwrap_or(i64::MAX))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Limit, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_any(Written)
    }
}

/// The base round trip between two hosts, ns: the delays of the links there and back, without queues.
pub fn round_trip_ns(experiment: &Experiment, topology: &Topology, from: &str, to: &str) -> u64 {
    let there = topology.path(from, to).unwrap_or_default();
    let back = topology.path(to, from).unwrap_or_default();
    let delay = |(link, towards): &(&Cable, &str)| {
        let spec = experiment.links.get(&link.name)?;
        Some(spec.towards(towards).delay.ns())
    };
    there.iter().chain(&back).filter_map(delay).sum()
}

/// Writes every capacity of the links in packets.
///
/// # Errors
/// A product of a link without a rate, or that no flow crosses with a delay; object, cause, remedy.
pub fn in_packets(experiment: &mut Experiment, topology: &Topology) -> Result<(), String> {
    for link in &topology.links {
        let Some(spec) = experiment.links.get(&link.name) else {
            continue;
        };
        let of_end = |end: &String| match spec.towards(end).limit {
            Some(Limit::Products(products)) => Some((end.clone(), products)),
            _ => None,
        };
        let wanted: Vec<(String, f64)> = link.ends.iter().filter_map(of_end).collect();
        if wanted.is_empty() {
            continue;
        }
        let round_trip = longest_round_trip_ns(experiment, topology, link);
        let mut packets = Vec::new();
        for (end, products) in wanted {
            let rate = spec.towards(&end).rate.map_or(0.0, |rate| rate.bps());
            let frames = products * rate * round_trip as f64 / 1e9 / FRAME_BITS;
            packets.push((end, frames.round().clamp(0.0, f64::from(u32::MAX)) as u32));
        }
        // A direction without a rate has no queue.
        packets.retain(|(end, _)| spec.towards(end).rate.is_some());
        if packets.is_empty() || round_trip == 0 {
            let lacks = match round_trip {
                0 => "no flow crosses it with a delay: set rtt or delay of a link",
                _ => "it has no rate: set rate",
            };
            return Err(format!(
                "link {}: its limit is in bandwidth-delay products, but {lacks}, or write packets",
                link.name
            ));
        }
        let spec = experiment
            .links
            .get_mut(&link.name)
            .expect("it was found above");
        if matches!(spec.limit, Some(Limit::Products(_))) {
            spec.limit = None;
        }
        for own in spec.to.values_mut() {
            if matches!(own.limit, Some(Limit::Products(_))) {
                own.limit = None;
            }
        }
        for (end, packets) in packets {
            spec.to.entry(end).or_default().limit = Some(Limit::Packets(packets.max(1)));
        }
    }
    Ok(())
}

/// Of all flows that cross a link in either direction.
fn longest_round_trip_ns(experiment: &Experiment, topology: &Topology, link: &Cable) -> u64 {
    let crosses = |from: &str, to: &str| {
        let path = topology.path(from, to).unwrap_or_default();
        path.iter().any(|(step, _)| *step == link)
    };
    let flows = experiment.flows.values().filter(|flow| {
        flow.number > 0 && (crosses(&flow.from, &flow.to) || crosses(&flow.to, &flow.from))
    });
    let round_trips = flows.map(|flow| round_trip_ns(experiment, topology, &flow.from, &flow.to));
    round_trips.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use crate::experiment::{Document, FormName};

    fn document(link: &str) -> String {
        format!(
            "name = 'x'\ntitle = 'x'\nquestion = 'x'\ntopology = 'router'\n[links.wan]\n{link}\n[flows.bulk]\ncongestion = 'cubic'\n"
        )
    }

    /// Packets towards server and router.
    fn packets(link: &str) -> Result<[Option<u32>; 2], String> {
        let document =
            Document::parse("x.toml", &document(link)).map_err(|error| error.to_string())?;
        let setting = &document.settings(FormName::Full)[0];
        let run = document.at(FormName::Full, setting).unwrap();
        Ok(["server", "router"].map(|end| run.links["wan"].towards(end).limit_packets()))
    }

    #[test]
    fn buffers_are_products_of_rate_and_round_trip() {
        // 50 Mbit/s times 20 ms are 82.6 frames of 1,514 bytes.
        let of = |limit: &str| packets(&format!("rate = '50mbit'\nrtt = '20ms'\nlimit = {limit}"));
        assert_eq!(of("'1bdp'"), Ok([Some(83); 2]));
        assert_eq!(of("'0.5 bdp'"), Ok([Some(41); 2]));
        assert_eq!(of("77"), Ok([Some(77); 2]));
        assert_eq!(of("'0.001bdp'"), Ok([Some(1); 2]), "one packet at least");
        let one = "rate = '50mbit'\nrtt = '20ms'\nlimit = 9\n[links.wan.to.server]\nlimit = '2bdp'\nrate = '100mbit'";
        assert_eq!(packets(one), Ok([Some(330), Some(9)]));
        let half = "delay = '10ms'\nlimit = '1bdp'\n[links.wan.to.server]\nrate = '50mbit'";
        assert_eq!(
            packets(half),
            Ok([Some(83), None]),
            "no queue without a rate"
        );
    }

    #[test]
    fn invalid_buffers_are_refused_with_a_remedy() {
        for (link, part) in [
            (
                "rate = '50mbit'\nlimit = '1bdp'",
                "no flow crosses it with a delay",
            ),
            ("rtt = '20ms'\nlimit = '1bdp'", "it has no rate: set rate"),
            (
                "rate = '50mbit'\nrtt = '20ms'\nlimit = '0bdp'",
                "write packets as a number",
            ),
            (
                "rate = '50mbit'\nrtt = '20ms'\nlimit = '-1bdp'",
                "write packets as a number",
            ),
            (
                "rate = '50mbit'\nrtt = '20ms'\nlimit = '2 products'",
                "\"0.5bdp\"",
            ),
            (
                "rate = '50mbit'\nrtt = '20ms'\nlimit = -1",
                "limit -1 is not between",
            ),
            (
                "rate = '50mbit'\nrtt = '20ms'\nlimit = 0.5",
                "a number of packets",
            ),
        ] {
            let error = packets(link).unwrap_err();
            assert!(error.contains(part), "{link}: {error}");
        }
    }

    #[test]
    fn buffers_follow_an_axis_of_round_trips() {
        let axis = "[[axis]]\nname = 'rtt'\nset = ['links.wan.rtt']\nvalues = ['20ms', '80ms']\n";
        let text = document("rate = '50mbit'\nlimit = '1bdp'") + axis;
        let document = Document::parse("x.toml", &text).unwrap();
        let all: Vec<Option<u32>> = (document.settings(FormName::Full).iter())
            .map(|setting| {
                let run = document.at(FormName::Full, setting).unwrap();
                let scaled = run.clone().scaled(0.1).links["wan"].towards("server");
                assert_eq!(
                    scaled.limit_packets(),
                    run.links["wan"].towards("server").limit_packets()
                );
                scaled.limit_packets()
            })
            .collect();
        assert_eq!(all, [Some(83), Some(330)]);
    }
}
