//! The syntax of `--traffic`: sources separated by `;`, each with a kind and keys.
//!
//! ```text
//! bulk flows=4 rtt=20ms; voice class=1; poisson rate=10mbit size=imix name=web
//! ```

use thiserror::Error;

use fairpath_sched::tree::dscp_number;
use fairpath_units::nearest;
use fairpath_units::quantity;

/// Maximum sources of a specification.
pub const MAX_SOURCES: usize = 64;
/// Maximum flows of all sources.
pub const MAX_FLOWS: u64 = 100_000;
/// Minimum and maximum packet length, bytes.
const PACKET_BYTES: [u64; 2] = [64, 65_535];
/// A full Ethernet frame without its checksum.
const FULL_BYTES: u32 = 1514;

/// The syntax in `--help` and the guide.
pub const SYNTAX: &str = "\
Traffic has sources separated by ';'. A source has a kind and KEY=VALUE words:
  cbr       packets at equal intervals          rate
  poisson   packets at random intervals         rate
  onoff     cbr in bursts of random length      rate, on=100ms, off=100ms
  bulk      as fast as a window allows          rtt=20ms, window=1000, cc=reno|none
  transfers flows of random size                load, mean=100KB, max=100MB, shape=1.2, rate=1gbit
  incast    all flows send at the same time     bytes=64KiB, every=10ms, rate=1gbit
  voice     a small packet every 20 ms          (DSCP EF, 214 bytes)
Every kind: flows=1 name= class= dscp= weight=1 size=1514B|64B-1514B|imix hosts=
            proto=udp|tcp|NUMBER port= ecn=no|yes start=0s stop= hint= deadline=
rate applies to each flow, load to all flows together.";

/// The spacing of packets of a source.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Equal intervals.
    Cbr,
    /// Exponential intervals.
    Poisson,
    /// Equal intervals in on periods. On and off periods are exponential.
    OnOff {
        /// Mean on period.
        on_ns: u64,
        /// Mean off period.
        off_ns: u64,
    },
    /// Limited by a window.
    Bulk {
        /// The time from the departure of a packet to the reaction.
        rtt_ns: u64,
        /// Maximum packets in flight.
        window: u32,
        /// True if it halves the window on loss and marks.
        reacts: bool,
    },
    /// Flows of Pareto size that begin at exponential intervals.
    Transfers {
        /// The rate of all flows together, bits per second.
        load_bps: u64,
        /// Mean size of a flow.
        mean_bytes: u64,
        /// Maximum size of a flow.
        max_bytes: u64,
        /// The shape of the Pareto distribution. A smaller shape has a heavier tail.
        shape: f64,
    },
    /// Every flow sends `bytes` at the same times.
    Incast {
        /// Bytes per flow and time.
        bytes: u64,
        /// The interval between the times.
        every_ns: u64,
    },
}

/// Lengths of packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// Uniform between these two lengths, which are equal for a fixed length.
    Between(u32, u32),
    /// 64, 576 and 1514 bytes in the ratio 7 to 4 to 1, a simple mix as in RFC 6985 section 4.
    Imix,
}

/// The value of packets for policies that rank by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// The remaining bytes of finite flows, [`Hint::ENDLESS`] for bulk, or else 0.
    Usual,
    /// This number.
    Fixed(u64),
    /// The arrival time plus this number of ns.
    Deadline(u64),
}

impl Hint {
    /// The remaining bytes of an endless flow.
    pub const ENDLESS: u64 = 1 << 40;
}

/// One source.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// The unique name, which its rows use.
    pub name: String,
    /// The spacing of packets.
    pub kind: Kind,
    /// The number of flows. For [`Kind::Transfers`] it is the number of rows, always 1.
    pub flows: u32,
    /// The rate of one flow while it sends, bits per second.
    pub rate_bps: u64,
    /// Lengths of packets.
    pub sizes: Sizes,
    /// The name or number of its class, "0" for none.
    pub class: String,
    /// 0 to 63.
    pub dscp: u8,
    /// Share of each flow.
    pub weight: u32,
    /// Hosts that its flows come from.
    pub hosts: u32,
    /// IP protocol.
    pub protocol: u8,
    /// Destination port.
    pub port: u16,
    /// Packets are ECN-capable.
    pub ecn: bool,
    /// When it begins.
    pub start_ns: u64,
    /// When it ends; `u64::MAX` never.
    pub stop_ns: u64,
    /// The content of packets.
    pub hint: Hint,
}

/// All sources of a specification.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spec {
    /// At least one.
    pub sources: Vec<Source>,
}

/// A specification that cannot be read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("traffic \"{part}\": {wrong}")]
pub struct BadSpec {
    /// The source it is in.
    pub part: String,
    /// The cause and the remedy.
    pub wrong: String,
}

const KINDS: [&str; 7] = [
    "cbr",
    "poisson",
    "onoff",
    "bulk",
    "transfers",
    "incast",
    "voice",
];
const KEYS: [&str; 16] = [
    "flows", "name", "class", "dscp", "weight", "size", "hosts", "proto", "port", "ecn", "start",
    "stop", "hint", "deadline", "rate", "load",
];

impl Spec {
    /// Reads a specification; see [`SYNTAX`].
    ///
    /// # Errors
    /// The first source that is wrong, with the remedy.
    pub fn read(text: &str) -> Result<Spec, BadSpec> {
        let mut spec = Spec::default();
        for part in text
            .split(';')
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            let bad = |wrong: String| BadSpec {
                part: part.to_owned(),
                wrong,
            };
            let (mut source, given) = source(part).map_err(bad)?;
            source.name = spec.unique(source.name, given).map_err(bad)?;
            spec.sources.push(source);
            let flows: u64 = spec
                .sources
                .iter()
                .map(|source| u64::from(source.flows))
                .sum();
            if flows > MAX_FLOWS {
                return Err(bad(format!(
                    "the sources have {flows} flows: the maximum is {MAX_FLOWS}"
                )));
            }
            if spec.sources.len() > MAX_SOURCES {
                return Err(bad(format!(
                    "too many sources: the maximum is {MAX_SOURCES}"
                )));
            }
        }
        if spec.sources.is_empty() {
            let wrong = "it is empty: write for example \"bulk flows=2\"".to_owned();
            return Err(BadSpec {
                part: text.to_owned(),
                wrong,
            });
        }
        Ok(spec)
    }

    /// Returns a given name unchanged, and numbers repeated kinds.
    fn unique(&self, name: String, given: bool) -> Result<String, String> {
        let taken = |name: &str| self.sources.iter().any(|source| source.name == name);
        if !taken(&name) {
            return Ok(name);
        }
        if given {
            return Err(format!(
                "another source has the name \"{name}\": choose another"
            ));
        }
        let mut numbered = (2..).map(|number| format!("{name}{number}"));
        numbered.find(|name| !taken(name)).ok_or_else(String::new)
    }
}

/// The words of one source. Each key is used once.
struct Words<'t> {
    kind: &'t str,
    pairs: Vec<(&'t str, &'t str)>,
}

impl<'t> Words<'t> {
    fn split(part: &'t str) -> Result<Words<'t>, String> {
        let mut words = part
            .split(|c: char| c.is_whitespace() || c == ',')
            .filter(|word| !word.is_empty());
        let kind = words.next().unwrap_or_default();
        if !KINDS.contains(&kind) {
            let near = nearest(kind, KINDS);
            let remedy = near.map_or_else(
                || format!("the kinds are {}", KINDS.join(", ")),
                |near| format!("did you mean \"{near}\"?"),
            );
            return Err(format!("kind \"{kind}\" does not exist: {remedy}"));
        }
        let mut pairs: Vec<(&str, &str)> = Vec::new();
        for word in words {
            let (key, value) = word
                .split_once('=')
                .ok_or_else(|| format!("\"{word}\" has no value: write KEY=VALUE"))?;
            if pairs.iter().any(|(known, _)| *known == key) {
                return Err(format!("{key} is set twice: set it once"));
            }
            pairs.push((key, value));
        }
        Ok(Words { kind, pairs })
    }

    fn take(&mut self, key: &str) -> Option<&'t str> {
        let at = self.pairs.iter().position(|(known, _)| *known == key)?;
        Some(self.pairs.swap_remove(at).1)
    }

    fn number(
        &mut self,
        key: &str,
        unit: &str,
        default: u64,
        range: [u64; 2],
    ) -> Result<u64, String> {
        let Some(text) = self.take(key) else {
            return Ok(default);
        };
        let number = quantity::read(text, unit).map_err(|bad| format!("{key}: {bad}"))?;
        if (range[0]..=range[1]).contains(&number) {
            return Ok(number);
        }
        let [min, max] = range.map(|bound| quantity::written(bound, unit));
        Err(format!("{key} is out of range: write {min} to {max}"))
    }

    fn rate(&mut self, key: &str, usual: Option<u64>) -> Result<u64, String> {
        match (self.take(key), usual) {
            (Some(text), _) => quantity::read_rate(text).map_err(|bad| format!("{key}: {bad}")),
            (None, Some(usual)) => Ok(usual),
            (None, None) => Err(format!(
                "{} needs {key}: write for example {key}=10mbit",
                self.kind
            )),
        }
    }

    fn one_of<T: Copy>(&mut self, key: &str, known: &[(&str, T)]) -> Result<T, String> {
        let text = self.take(key).unwrap_or(known[0].0);
        let found = known.iter().find(|(name, _)| *name == text);
        let names = || {
            known
                .iter()
                .map(|(name, _)| *name)
                .collect::<Vec<_>>()
                .join(", ")
        };
        found
            .map(|(_, value)| *value)
            .ok_or_else(|| format!("{key}: \"{text}\" is unknown: write one of {}", names()))
    }

    /// Refuses the remaining keys, which are unknown.
    fn finish(self, more: &[&'static str]) -> Result<(), String> {
        let Some((key, _)) = self.pairs.first() else {
            return Ok(());
        };
        let known = || KEYS.iter().chain(more).copied();
        let remedy = match nearest(key, known()) {
            Some(near) if near == *key => "it belongs to another kind".to_owned(),
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!("the keys are {}", known().collect::<Vec<_>>().join(", ")),
        };
        Err(format!("{} has no key \"{key}\": {remedy}", self.kind))
    }
}

const DAY_NS: u64 = 86_400_000_000_000;
const GBIT: u64 = 1_000_000_000;
/// The rate of one byte per nanosecond, bits per second.
const MOST_PACKETS_BITS: u64 = 8 * GBIT;
/// A 20 ms packet of G.711 with RTP, UDP, IPv4 and Ethernet headers.
const VOICE_BYTES: u32 = 214;

fn source(part: &str) -> Result<(Source, bool), String> {
    let mut words = Words::split(part)?;
    let is_voice = words.kind == "voice";
    let (kind, more) = kind(&mut words)?;
    let rate_bps = match &kind {
        Kind::Bulk { .. } => 0,
        Kind::Transfers { .. } | Kind::Incast { .. } => words.rate("rate", Some(GBIT))?,
        _ if is_voice => u64::from(VOICE_BYTES) * 8 * 50,
        _ => words.rate("rate", None)?,
    };
    let flows = match kind {
        Kind::Transfers { .. } => 1,
        _ => words.number("flows", "", 1, [1, MAX_FLOWS])? as u32,
    };
    let given = words.take("name");
    let stop_ns = words.number("stop", "ns", u64::MAX, [1, DAY_NS])?;
    let source = Source {
        name: given.unwrap_or(words.kind).to_owned(),
        flows,
        rate_bps,
        sizes: sizes(words.take("size"), is_voice)?,
        class: words.take("class").unwrap_or("0").to_owned(),
        dscp: dscp(words.take("dscp"), is_voice)?,
        weight: match kind {
            // Every transfer is a new flow.
            Kind::Transfers { .. } => 1,
            _ => words.number("weight", "", 1, [1, 65_536])? as u32,
        },
        hosts: words.number("hosts", "", u64::from(flows), [1, MAX_FLOWS])? as u32,
        protocol: protocol(words.take("proto"), &kind)?,
        port: words.number("port", "", 5001, [0, 65_535])? as u16,
        ecn: words.one_of("ecn", &[("no", false), ("yes", true)])?,
        start_ns: words.number("start", "ns", 0, [0, DAY_NS])?,
        stop_ns,
        hint: hint(&mut words)?,
        kind,
    };
    words.finish(more)?;
    if source.rate_bps > source.sizes.mean() * MOST_PACKETS_BITS {
        return Err("rate: it exceeds one packet per nanosecond: lower it".to_owned());
    }
    Ok((source, given.is_some()))
}

fn kind(words: &mut Words<'_>) -> Result<(Kind, &'static [&'static str]), String> {
    let ms = |number: u64| number * 1_000_000;
    let time = [1_000, DAY_NS];
    Ok(match words.kind {
        "poisson" => (Kind::Poisson, &[]),
        "onoff" => {
            let on_ns = words.number("on", "ns", ms(100), time)?;
            let off_ns = words.number("off", "ns", ms(100), time)?;
            (Kind::OnOff { on_ns, off_ns }, &["on", "off"])
        }
        "bulk" => {
            let rtt_ns = words.number("rtt", "ns", ms(20), time)?;
            let window = words.number("window", "packets", 1000, [1, 1 << 20])? as u32;
            let reacts = words.one_of("cc", &[("reno", true), ("none", false)])?;
            (
                Kind::Bulk {
                    rtt_ns,
                    window,
                    reacts,
                },
                &["rtt", "window", "cc"],
            )
        }
        "transfers" => transfers(words)?,
        "incast" => {
            let bytes = words.number("bytes", "bytes", 64 << 10, [PACKET_BYTES[0], 1 << 40])?;
            let every_ns = words.number("every", "ns", ms(10), time)?;
            (Kind::Incast { bytes, every_ns }, &["bytes", "every"])
        }
        _ => (Kind::Cbr, &[]),
    })
}

fn transfers(words: &mut Words<'_>) -> Result<(Kind, &'static [&'static str]), String> {
    let sizes = [PACKET_BYTES[0], 1 << 40];
    let load_bps = words.rate("load", None)?;
    let mean_bytes = words.number("mean", "bytes", 100_000, sizes)?;
    if words.take("most").is_some() {
        return Err("most is replaced by max: write max=100MB".to_owned());
    }
    let max_bytes = words.number("max", "bytes", 100_000_000, sizes)?;
    let text = words.take("shape").unwrap_or("1.2");
    let shape: f64 = text.parse().unwrap_or(f64::NAN);
    if !(1.01..=10.0).contains(&shape) {
        return Err(format!(
            "shape: \"{text}\" is out of range: write 1.01 to 10"
        ));
    }
    if max_bytes < mean_bytes.saturating_mul(2) {
        return Err("max is less than twice the mean: raise it".to_owned());
    }
    let kind = Kind::Transfers {
        load_bps,
        mean_bytes,
        max_bytes,
        shape,
    };
    Ok((kind, &["mean", "max", "shape"]))
}

fn sizes(text: Option<&str>, is_voice: bool) -> Result<Sizes, String> {
    let usual = if is_voice { VOICE_BYTES } else { FULL_BYTES };
    let size = |text: &str| {
        let size = quantity::read(text, "bytes").map_err(|bad| format!("size: {bad}"))?;
        let fits = (PACKET_BYTES[0]..=PACKET_BYTES[1]).contains(&size);
        fits.then_some(size as u32)
            .ok_or_else(|| "size is out of range: write 64B to 65535B".to_owned())
    };
    match text {
        None => Ok(Sizes::Between(usual, usual)),
        Some("imix") => Ok(Sizes::Imix),
        Some(text) => {
            let (min, max) = text.split_once('-').unwrap_or((text, text));
            let (min, max) = (size(min)?, size(max)?);
            (min <= max)
                .then_some(Sizes::Between(min, max))
                .ok_or_else(|| "size: write the smaller length first".to_owned())
        }
    }
}

fn dscp(text: Option<&str>, is_voice: bool) -> Result<u8, String> {
    let text = text.unwrap_or(if is_voice { "EF" } else { "0" });
    dscp_number(text).ok_or_else(|| {
        format!(
            "\"{text}\" is not a DSCP: write 0 to 63, CS0 to CS7, AF11 to AF43, EF, VA, LE or DF"
        )
    })
}

fn protocol(text: Option<&str>, kind: &Kind) -> Result<u8, String> {
    const TCP: u8 = 6;
    const UDP: u8 = 17;
    match text {
        None => Ok(
            if matches!(
                kind,
                Kind::Bulk { .. } | Kind::Transfers { .. } | Kind::Incast { .. }
            ) {
                TCP
            } else {
                UDP
            },
        ),
        Some("tcp") => Ok(TCP),
        Some("udp") => Ok(UDP),
        Some(text) => text
            .parse()
            .map_err(|_| format!("proto: \"{text}\" is unknown: write udp, tcp or a number")),
    }
}

fn hint(words: &mut Words<'_>) -> Result<Hint, String> {
    match (words.take("hint"), words.take("deadline")) {
        (None, None) => Ok(Hint::Usual),
        (Some(text), None) => Ok(Hint::Fixed(
            quantity::read(text, "").map_err(|bad| format!("hint: {bad}"))?,
        )),
        (None, Some(text)) => Ok(Hint::Deadline(
            quantity::read_time(text).map_err(|bad| format!("deadline: {bad}"))?,
        )),
        (Some(_), Some(_)) => {
            Err("hint and deadline set the same field: write one of them".to_owned())
        }
    }
}

impl Sizes {
    /// Mean length, bytes.
    pub fn mean(&self) -> u64 {
        match self {
            Sizes::Between(min, max) => (u64::from(*min) + u64::from(*max)) / 2,
            Sizes::Imix => (7 * 64 + 4 * 576 + 1514) / 12,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> String {
        Spec::read(text).unwrap_err().to_string()
    }

    #[test]
    fn sources_have_default_values_and_unique_names() {
        let spec = Spec::read("bulk flows=2 rtt=10ms; voice class=sip, flows=3; cbr rate=1mbit; cbr rate=2mbit name=x").unwrap();
        let names: Vec<&str> = spec
            .sources
            .iter()
            .map(|source| source.name.as_str())
            .collect();
        assert_eq!(names, ["bulk", "voice", "cbr", "x"]);
        let bulk = &spec.sources[0];
        assert_eq!(
            bulk.kind,
            Kind::Bulk {
                rtt_ns: 10_000_000,
                window: 1000,
                reacts: true
            }
        );
        let voice = &spec.sources[1];
        assert_eq!((voice.dscp, voice.rate_bps, voice.flows), (46, 85_600, 3));
        assert_eq!(voice.sizes, Sizes::Between(214, 214));
        let twice = Spec::read("voice; voice").unwrap();
        assert_eq!(twice.sources[1].name, "voice2");
    }

    #[test]
    fn invalid_traffic_is_refused_with_a_remedy() {
        assert!(wrong("blk").contains("did you mean \"bulk\"?"));
        assert!(wrong("cbr").contains("cbr needs rate"));
        assert!(wrong("cbr rate=1mbit rtt=1ms").contains("cbr has no key \"rtt\""));
        assert!(wrong("cbr rate=1mbit clas=1").contains("did you mean \"class\"?"));
        assert!(wrong("cbr rate=1mbit rate=2mbit").contains("twice"));
        assert!(wrong("cbr rate=1mbit size=9-10").contains("64B to 65535B"));
        assert!(wrong("bulk flows=100001").contains("flows is out of range: write 1 to 100000"));
        assert!(wrong("bulk flows=60000; bulk flows=60000").contains("the maximum is 100000"));
        assert!(wrong("voice dscp=EE").contains("is not a DSCP"));
        assert!(wrong(" ; ").contains("it is empty"));
        assert!(wrong("voice name=a; voice name=a").contains("another source has the name"));
        assert!(wrong("transfers load=1mbit most=1MB").contains("write max=100MB"));
        assert!(wrong("transfers load=1mbit shape=1").contains("1.01 to 10"));
        assert!(wrong("cbr rate=1mbit hint=1 deadline=1ms").contains("same field"));
    }
}
