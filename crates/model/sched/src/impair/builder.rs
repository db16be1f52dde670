//! One setter per key for options, TOML and text, and the checks between keys.

use std::fmt;

use thiserror::Error;

use super::loss::MAX_PATTERN;
use super::{DelayTrace, Distribution, Loss, RateTrace, Slot, Spec};
use fairpath_units::nearest;
use fairpath_units::quantity;

/// All keys of options and TOML, with a description of the value.
pub const KEYS: [(&str, &str); 25] = [
    ("loss", "share of lost packets: 1%"),
    (
        "loss_correlation",
        "correlation with the loss of the previous packet: 25%",
    ),
    (
        "gilbert_elliott",
        "p=1%,r=25%,h=70%,k=0.1%: good to bad, bad to good, loss in bad, loss in good",
    ),
    (
        "four_state",
        "p13=1%,p31=30%,p32=10%,p23=80%,p14=0.5%: transitions of the four-state model",
    ),
    ("pattern", "bits, where 1 is a lost packet: 0001000"),
    ("delay", "delay of every packet: 20ms"),
    ("jitter", "variation of the delay: 2ms"),
    (
        "distribution",
        "uniform, normal, pareto, paretonormal, or a file with one delay per line",
    ),
    ("correlation", "correlation with the previous delay: 25%"),
    ("order", "kept, or free to let jitter reorder packets"),
    ("reorder", "share of packets that leave early: 1%"),
    ("reorder_gap", "at most one of this number leaves early: 5"),
    ("duplicate", "share of duplicated packets: 0.1%"),
    ("corrupt", "share of packets with one inverted bit: 0.1%"),
    (
        "slot",
        "min=5ms,max=10ms,packets=32,bytes=64KiB: packets leave together",
    ),
    (
        "release",
        "packets leave together at multiples of this time: 10ms",
    ),
    (
        "delay_trace",
        "a file, or times and delays: 0s 20ms, 10s 80ms, 20s",
    ),
    ("rate_trace", "a file in the format of Mahimahi"),
    ("overhead", "bytes of link overhead per packet: 38"),
    ("mpu", "minimum bytes of a packet with overhead: 84"),
    (
        "atm",
        "none, atm (cells of 48 bytes in 53) or ptm (64 bytes in 65)",
    ),
    ("cell", "payload bytes of a cell: 48"),
    ("cell_overhead", "bytes of a cell header: 5"),
    ("seed", "a number that repeats the same outcomes"),
    ("pipe", "maximum packets in the delay queue: 65536"),
];

/// Maximum size of the file of a trace or distribution.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// Maximum values of a measured distribution.
const MAX_DELAYS: usize = 1 << 20;
/// Maximum delay, jitter and time between slots or releases.
const MAX_TIME_NS: u64 = 3_600_000_000_000;
/// Maximum difference of the times between slots: the core draws 32 bits.
const MAX_SPREAD_NS: u64 = u32::MAX as u64;
/// Maximum bytes of overhead, and of a cell.
const MAX_LINE_BYTES: u64 = 2048;
/// Maximum packets in a delay queue: the handles of a scheduler without those of its queues.
const MAX_PIPE: u64 = 1 << 21;

/// An invalid setting, with the key, the cause and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{key}: {wrong}")]
pub struct BadSetting {
    /// As it was written.
    pub key: String,
    /// The cause and the remedy.
    pub wrong: String,
}

/// The problems of an impairment, at least one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct BadSpec(pub Vec<BadSetting>);

impl fmt::Display for BadSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, bad) in self.0.iter().enumerate() {
            let newline = if at > 0 { "\n" } else { "" };
            write!(f, "{newline}impairment: {bad}")?;
        }
        Ok(())
    }
}

/// A specification under construction.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    spec: Spec,
    /// The keys that were set, as written.
    set: Vec<&'static str>,
    loss_correlation: f64,
}

impl Builder {
    /// Sets a key, in which `-` and `_` are equivalent. Reads the file of a trace or distribution.
    ///
    /// # Errors
    /// The key does not exist or was already set, or the value is invalid.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), BadSetting> {
        let plain = key.replace('-', "_");
        let bad = |wrong: String| BadSetting {
            key: key.to_owned(),
            wrong,
        };
        let known = KEYS.iter().find(|(name, _)| *name == plain);
        let Some((known, _)) = known else {
            let near = nearest(&plain, KEYS.iter().map(|(name, _)| *name));
            let names: Vec<&str> = KEYS.iter().map(|(name, _)| *name).collect();
            return Err(bad(match near {
                Some(near) => format!("unknown key: did you mean \"{near}\"?"),
                None => format!("unknown key: the keys are {}", names.join(", ")),
            }));
        };
        if self.set.contains(known) {
            return Err(bad("the key is set twice: set it once".into()));
        }
        self.set.push(known);
        self.take(known, value.trim()).map_err(bad)
    }

    /// The specification.
    ///
    /// # Errors
    /// All conflicts between keys.
    pub fn finish(mut self) -> Result<Spec, BadSpec> {
        let wrong = self.disagreements();
        if !wrong.is_empty() {
            return Err(BadSpec(wrong));
        }
        if let Loss::Each { correlation, .. } = &mut self.spec.loss {
            *correlation = self.loss_correlation;
        }
        Ok(self.spec)
    }

    fn take(&mut self, key: &str, value: &str) -> Result<(), String> {
        let spec = &mut self.spec;
        match key {
            "loss" => {
                let share = share(value)?;
                spec.loss = Loss::Each {
                    share,
                    correlation: 0.0,
                };
            }
            "loss_correlation" => self.loss_correlation = share(value)?,
            "gilbert_elliott" => spec.loss = gilbert_elliott(value)?,
            "four_state" => spec.loss = four_state(value)?,
            "pattern" => spec.loss = Loss::Pattern(pattern(value)?),
            "delay" => spec.delay_ns = time(value)?,
            "jitter" => spec.jitter_ns = time(value)?,
            "distribution" => spec.distribution = distribution(value)?,
            "correlation" => spec.correlation = correlation(value)?,
            "order" => {
                spec.order_free = match value {
                    "kept" => false,
                    "free" => true,
                    _ => return Err(format!("\"{value}\" is unknown: write kept or free")),
                }
            }
            "reorder" => spec.reorder = share(value)?,
            "reorder_gap" => spec.reorder_gap = within(value, "", [1, 1 << 20])? as u32,
            "duplicate" => spec.duplicate = share(value)?,
            "corrupt" => spec.corrupt = share(value)?,
            "slot" => spec.slot = Some(slot(value)?),
            "release" => spec.release_ns = time(value)?,
            "delay_trace" => spec.delay_trace = Some(delay_trace(value)?),
            "rate_trace" => {
                spec.rate_trace = Some(RateTrace::read(value, &file(value)?)?);
            }
            "mpu" => spec.mpu = within(value, "bytes", [0, MAX_LINE_BYTES])? as u32,
            "atm" => {
                (spec.cell, spec.cell_overhead, spec.cell_partial) = match value {
                    "none" => (0, spec.cell_overhead, false),
                    "atm" => (48, 5, false),
                    "ptm" => (64, 1, true),
                    _ => {
                        return Err(format!("\"{value}\" is unknown: write none, atm or ptm"));
                    }
                }
            }
            "overhead" => spec.overhead = within(value, "bytes", [0, MAX_LINE_BYTES])? as u32,
            "cell" => spec.cell = within(value, "bytes", [1, MAX_LINE_BYTES])? as u32,
            "cell_overhead" => {
                spec.cell_overhead = within(value, "bytes", [0, MAX_LINE_BYTES])? as u32;
            }
            "seed" => spec.seed = within(value, "", [0, u64::MAX])?,
            _ => spec.pipe = Some(within(value, "packets", [1, MAX_PIPE])? as u32),
        }
        Ok(())
    }

    fn has(&self, key: &str) -> bool {
        self.set.contains(&key)
    }

    fn disagreements(&self) -> Vec<BadSetting> {
        let mut wrong = Vec::new();
        let mut refuse = |key: &str, text: &str| {
            wrong.push(BadSetting {
                key: key.to_owned(),
                wrong: text.to_owned(),
            });
        };
        let models = ["loss", "gilbert_elliott", "four_state", "pattern"];
        let mut models = models.into_iter().filter(|key| self.has(key));
        if let (Some(first), Some(second)) = (models.next(), models.next()) {
            refuse(
                second,
                &format!("{first} already sets the loss: omit one of them"),
            );
        }
        let needs = [
            ("loss_correlation", "loss"),
            ("reorder_gap", "reorder"),
            ("cell_overhead", "cell"),
        ];
        for (key, other) in needs.into_iter().filter(|(key, _)| self.has(key)) {
            if !self.has(other) {
                refuse(
                    key,
                    &format!("it has no effect without {other}: add {other}"),
                );
            }
        }
        if self.has("atm") && self.has("cell") {
            refuse("cell", "atm already sets the cells: omit one of them");
        }
        let is_measured = matches!(self.spec.distribution, Distribution::Measured { .. });
        if is_measured && self.has("jitter") {
            refuse(
                "jitter",
                "the file of the distribution already defines the variation: omit jitter",
            );
        }
        for key in ["distribution", "correlation"] {
            if self.has(key) && !is_measured && !self.has("jitter") {
                refuse(key, "it has no effect without jitter: add jitter");
            }
        }
        if self.has("delay") && self.has("delay_trace") {
            refuse(
                "delay",
                "delay_trace already sets the delay: omit one of them",
            );
        }
        if self.has("slot") && self.spec.order_free {
            refuse(
                "slot",
                "slots keep the order of packets: omit order = \"free\"",
            );
        }
        if self.has("reorder") && !self.spec.delays() {
            refuse("reorder", "it has no effect without a delay: add delay");
        }
        if self.has("pipe") && !self.spec.delays() {
            refuse(
                "pipe",
                "it has no effect without a delay: add delay, or omit pipe",
            );
        }
        wrong
    }
}

/// Reads a share such as `1%`, `0.01` or `1 %`, from 0 to 1.
fn share(value: &str) -> Result<f64, String> {
    match quantity::parse(value, quantity::Unit::Share) {
        Ok(share) if share <= 1.0 => Ok(share),
        _ => Err(format!(
            "\"{value}\" is not a share: write 1% or 0.01, at most 100%"
        )),
    }
}

/// Reads a correlation. At 100 % all values would be equal, so it is refused.
fn correlation(value: &str) -> Result<f64, String> {
    let sign = if value.starts_with('-') { -1.0 } else { 1.0 };
    match share(value.trim_start_matches('-'))? {
        1.0 => Err(format!("\"{value}\" is out of range: write less than 100%")),
        share => Ok(sign * share),
    }
}

fn within(value: &str, unit: &str, range: [u64; 2]) -> Result<u64, String> {
    let number = quantity::read(value, unit).map_err(|bad| bad.to_string())?;
    if (range[0]..=range[1]).contains(&number) {
        return Ok(number);
    }
    let [min, max] = range.map(|bound| quantity::written(bound, unit));
    Err(format!("{value} is out of range: write {min} to {max}"))
}

fn time(value: &str) -> Result<u64, String> {
    within(value, "ns", [0, MAX_TIME_NS])
}

/// Reads pairs such as `a=1%,b=2%`, with each key at most once.
fn pairs<'v>(value: &'v str, keys: &[&str]) -> Result<Vec<(&'v str, &'v str)>, String> {
    let mut found: Vec<(&str, &str)> = Vec::new();
    for part in value
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        let pair = part
            .split_once('=')
            .map(|(key, value)| (key.trim(), value.trim()));
        match pair {
            Some((key, _)) if found.iter().any(|(other, _)| *other == key) => {
                return Err(format!("{key} is set twice: set it once"));
            }
            Some((key, value)) if keys.contains(&key) => found.push((key, value)),
            _ => {
                return Err(format!(
                    "\"{part}\" is unknown: write KEY=VALUE with the keys {}",
                    keys.join(", ")
                ));
            }
        }
    }
    Ok(found)
}

/// Reads the shares of keys in the given order, with `None` for missing keys.
fn shares<const N: usize>(value: &str, keys: [&str; N]) -> Result<[Option<f64>; N], String> {
    let mut found = [None; N];
    for (key, text) in pairs(value, &keys)? {
        let share = share(text).map_err(|wrong| format!("{key}: {wrong}"))?;
        if let Some(at) = keys.iter().position(|known| *known == key) {
            found[at] = Some(share);
        }
    }
    Ok(found)
}

/// Reads the parameters. As in the paper, r defaults to 1 - p, and the bad state loses all packets.
fn gilbert_elliott(value: &str) -> Result<Loss, String> {
    let [p, r, bad, good] = shares(value, ["p", "r", "h", "k"])?;
    let p = p.ok_or("p, the probability of good to bad, is missing: write p=1%,r=25%")?;
    Ok(Loss::GilbertElliott {
        p,
        r: r.unwrap_or(1.0 - p),
        bad: bad.unwrap_or(1.0),
        good: good.unwrap_or(0.0),
    })
}

fn four_state(value: &str) -> Result<Loss, String> {
    let [p13, p31, p32, p23, p14] = shares(value, ["p13", "p31", "p32", "p23", "p14"])?;
    let p13 = p13.ok_or("p13, the probability of a burst, is missing: write p13=1%,p31=30%")?;
    let p31 = p31.unwrap_or(1.0 - p13);
    let (p32, p23, p14) = (p32.unwrap_or(0.0), p23.unwrap_or(1.0), p14.unwrap_or(0.0));
    let max = 1.0 + 1e-12;
    for (names, sum) in [("p13 and p14", p13 + p14), ("p31 and p32", p31 + p32)] {
        if sum > max {
            return Err(format!("{names} sum to more than 100%: lower one"));
        }
    }
    Ok(Loss::FourState {
        p13,
        p31,
        p32,
        p23,
        p14,
    })
}

fn pattern(value: &str) -> Result<Vec<bool>, String> {
    let bits = value.chars().map(|c| match c {
        '0' => Ok(false),
        '1' => Ok(true),
        other => Err(format!(
            "'{other}' is not a bit: write 0 and 1, for example 0001000"
        )),
    });
    let bits: Vec<bool> = bits.collect::<Result<_, _>>()?;
    match bits.len() {
        0 => Err("it has no bits: write 0 and 1, for example 0001000".into()),
        1..=MAX_PATTERN => Ok(bits),
        many => Err(format!("it has {many} bits: the maximum is {MAX_PATTERN}")),
    }
}

fn distribution(value: &str) -> Result<Distribution, String> {
    let known = Distribution::NAMES.into_iter();
    if let Some((_, found)) = known.clone().find(|(name, _)| *name == value) {
        return Ok(found);
    }
    if !value.contains(['/', '.']) {
        let names: Vec<&str> = known.map(|(name, _)| name).collect();
        return Err(format!(
            "\"{value}\" is unknown: write one of {}, or the path of a file",
            names.join(", ")
        ));
    }
    let text = file(value)?;
    let mut delays_ns = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or("").trim();
        if !line.is_empty() {
            let delay = quantity::read_time(line).map_err(|bad| format!("line {number}: {bad}"))?;
            delays_ns.push(delay.min(MAX_TIME_NS));
        }
        if delays_ns.len() > MAX_DELAYS {
            return Err(format!(
                "{value} has too many delays: the maximum is {MAX_DELAYS}"
            ));
        }
    }
    if delays_ns.is_empty() {
        return Err(format!(
            "{value} has no delays: write one per line, for example 5ms"
        ));
    }
    delays_ns.sort_unstable();
    Ok(Distribution::Measured {
        file: value.to_owned(),
        delays_ns,
    })
}

fn slot(value: &str) -> Result<Slot, String> {
    let mut slot = Slot::default();
    let mut most = None;
    for (key, text) in pairs(value, &["min", "max", "packets", "bytes"])? {
        let bad = |wrong: String| format!("{key}: {wrong}");
        match key {
            "min" => slot.min_ns = time(text).map_err(bad)?,
            "max" => most = Some(time(text).map_err(bad)?),
            "packets" => slot.packets = within(text, "packets", [1, 1 << 20]).map_err(bad)? as u32,
            _ => slot.bytes = within(text, "bytes", [1, 1 << 30]).map_err(bad)? as u32,
        }
    }
    slot.most_ns = most.unwrap_or(slot.min_ns);
    if slot.most_ns == 0 {
        return Err("the time between slots is missing: write min=5ms".into());
    }
    if slot.most_ns < slot.min_ns {
        return Err("max is less than min: raise max".into());
    }
    if slot.most_ns - slot.min_ns > MAX_SPREAD_NS {
        return Err("max is more than 4.29 s above min: lower max".into());
    }
    Ok(slot)
}

fn delay_trace(value: &str) -> Result<DelayTrace, String> {
    let trace = match DelayTrace::is_in_place(value) {
        true => DelayTrace::read(value, value, true)?,
        false => DelayTrace::read(value, &file(value)?, false)?,
    };
    if trace.points.iter().any(|(_, delay)| *delay > MAX_TIME_NS) {
        return Err("a delay exceeds one hour: lower it".into());
    }
    Ok(trace)
}

fn file(path: &str) -> Result<String, String> {
    let cannot = |error: std::io::Error| format!("read {path}: {error}");
    let bytes = std::fs::metadata(path).map_err(cannot)?.len();
    if bytes > MAX_FILE_BYTES {
        return Err(format!(
            "read {path}: it has {bytes} bytes: the maximum is {MAX_FILE_BYTES}"
        ));
    }
    std::fs::read_to_string(path).map_err(cannot)
}
