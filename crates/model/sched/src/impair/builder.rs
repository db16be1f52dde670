//! One setter for each key, the same for flags, TOML and text; then what keys say against each other.

use std::fmt;

use thiserror::Error;

use super::loss::MAX_PATTERN;
use super::{DelayTrace, Distribution, Loss, RateTrace, Slot, Spec};
use fairpath_units::nearest;
use fairpath_units::quantity;

/// All keys, as flags and TOML name them, with what they want.
pub const KEYS: [(&str, &str); 23] = [
    ("loss", "share of packets: 1%"),
    (
        "loss_correlation",
        "with the fate of the packet before: 25%",
    ),
    (
        "gilbert_elliott",
        "p=1%,r=25%,h=70%,k=0.1%: good to bad, back, loss in bad, loss in good",
    ),
    ("four_state", "p13=1%,p31=30%,p32=10%,p23=80%,p14=0.5%"),
    ("pattern", "bits, 1 is lost: 0001000"),
    ("delay", "of every packet: 20ms"),
    ("jitter", "how far delays vary: 2ms"),
    (
        "distribution",
        "uniform, normal, pareto, paretonormal, or a file with a delay in each line",
    ),
    ("correlation", "of a delay with the one before: 25%"),
    ("order", "kept, or free: packets may pass each other"),
    ("reorder", "share of packets that go ahead: 1%"),
    ("reorder_gap", "of so many packets one may go ahead: 5"),
    ("duplicate", "share of packets: 0.1%"),
    ("corrupt", "share of packets with a wrong bit: 0.1%"),
    (
        "slot",
        "min=5ms,max=10ms,packets=32,bytes=64KiB: packets leave together",
    ),
    (
        "release",
        "packets leave together at multiples of this: 10ms",
    ),
    ("delay_trace", "a file, or 0s 20ms, 10s 80ms, 20s"),
    ("rate_trace", "a file in Mahimahi's format"),
    (
        "overhead",
        "bytes of each packet on the line besides its own: 38",
    ),
    ("cell", "bytes of a cell for packets: 48"),
    ("cell_overhead", "bytes of a cell's head: 5"),
    ("seed", "a number; the same gives the same fates"),
    ("pipe", "packets that may be delayed at a time: 65536"),
];

/// Of a trace or a distribution, at most.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// Values of a measured distribution, at most.
const MAX_DELAYS: usize = 1 << 20;
/// Longest delay, jitter and time between slots or releases.
const MAX_TIME_NS: u64 = 3_600_000_000_000;
/// Most time that slots may differ by: the core draws 32 bits of it.
const MAX_SPREAD_NS: u64 = u32::MAX as u64;
/// Most bytes that a line adds, and most of a cell.
const MAX_LINE_BYTES: u64 = 2048;
/// Most packets at a gate: as many handles as a scheduler may have, less those that wait behind it.
const MAX_PIPE: u64 = 1 << 21;

/// A setting that cannot be: the key, the cause and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{key}: {wrong}")]
pub struct BadSetting {
    /// As it was written.
    pub key: String,
    /// The cause and the remedy.
    pub wrong: String,
}

/// All that is wrong with an impairment; at least one thing is.
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

/// A specification that is being written.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    spec: Spec,
    /// Keys that were set, as written.
    set: Vec<&'static str>,
    loss_correlation: f64,
}

impl Builder {
    /// Sets what `key` names, `-` and `_` being the same. Reads the file that a trace or a
    /// distribution names.
    ///
    /// # Errors
    /// No such key, one that was set before, or a value that it cannot have.
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
                Some(near) => format!("there is no such key; did you mean \"{near}\"?"),
                None => format!("there is no such key; known are {}", names.join(", ")),
            }));
        };
        if self.set.contains(known) {
            return Err(bad("it is said twice; say it once".into()));
        }
        self.set.push(known);
        self.take(known, value.trim()).map_err(bad)
    }

    /// The specification, if the keys agree with each other.
    ///
    /// # Errors
    /// All that do not.
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
                    _ => return Err(format!("\"{value}\" is no order; write kept or free")),
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
                &format!("packets are lost by {first} already; leave one out"),
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
                    &format!("it says how {other} is, which is not there; add it"),
                );
            }
        }
        let is_measured = matches!(self.spec.distribution, Distribution::Measured { .. });
        if is_measured && self.has("jitter") {
            refuse(
                "jitter",
                "the file of the distribution says how far delays vary; leave it out",
            );
        }
        for key in ["distribution", "correlation"] {
            if self.has(key) && !is_measured && !self.has("jitter") {
                refuse(key, "it says how jitter is, which is not there; add it");
            }
        }
        if self.has("delay") && self.has("delay_trace") {
            refuse("delay", "the trace says how long it is; leave one out");
        }
        if self.has("slot") && self.spec.order_free {
            refuse(
                "slot",
                "slots are filled in order; leave out order = \"free\"",
            );
        }
        if self.has("reorder") && !self.spec.delays() {
            refuse(
                "reorder",
                "nobody can be overtaken where nothing is delayed; add a delay",
            );
        }
        if self.has("pipe") && !self.spec.delays() {
            refuse("pipe", "nothing is delayed; add a delay, or leave it out");
        }
        wrong
    }
}

/// `1%`, `0.01` or `1 %`: 0 to 1.
fn share(value: &str) -> Result<f64, String> {
    match quantity::parse(value, quantity::Unit::Share) {
        Ok(share) if share <= 1.0 => Ok(share),
        _ => Err(format!(
            "\"{value}\" is no share; write 1% or 0.01, at most 100%"
        )),
    }
}

/// A share, perhaps negative; all of it would be one number for ever.
fn correlation(value: &str) -> Result<f64, String> {
    let sign = if value.starts_with('-') { -1.0 } else { 1.0 };
    match share(value.trim_start_matches('-'))? {
        1.0 => Err(format!(
            "\"{value}\" leaves nothing to chance; less than 100%"
        )),
        share => Ok(sign * share),
    }
}

fn within(value: &str, unit: &str, range: [u64; 2]) -> Result<u64, String> {
    let number = quantity::read(value, unit).map_err(|bad| bad.to_string())?;
    if (range[0]..=range[1]).contains(&number) {
        return Ok(number);
    }
    let [least, most] = range.map(|bound| quantity::written(bound, unit));
    Err(format!("{value} is out of range; {least} to {most}"))
}

fn time(value: &str) -> Result<u64, String> {
    within(value, "ns", [0, MAX_TIME_NS])
}

/// `a=1%,b=2%`: each of the keys at most once.
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
                return Err(format!("{key} is said twice; say it once"));
            }
            Some((key, value)) if keys.contains(&key) => found.push((key, value)),
            _ => {
                return Err(format!(
                    "\"{part}\" is not known; write KEY=VALUE of {}",
                    keys.join(", ")
                ));
            }
        }
    }
    Ok(found)
}

/// The shares of keys, in their order; `None` for those that are not there.
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

/// As the paper has it, r is 1 - p and the bad state loses all, unless they are given.
fn gilbert_elliott(value: &str) -> Result<Loss, String> {
    let [p, r, bad, good] = shares(value, ["p", "r", "h", "k"])?;
    let p = p.ok_or("p is missing: the chance of going from good to bad; write p=1%,r=25%")?;
    Ok(Loss::GilbertElliott {
        p,
        r: r.unwrap_or(1.0 - p),
        bad: bad.unwrap_or(1.0),
        good: good.unwrap_or(0.0),
    })
}

fn four_state(value: &str) -> Result<Loss, String> {
    let [p13, p31, p32, p23, p14] = shares(value, ["p13", "p31", "p32", "p23", "p14"])?;
    let p13 = p13.ok_or("p13 is missing: the chance of a burst; write p13=1%,p31=30%")?;
    let p31 = p31.unwrap_or(1.0 - p13);
    let (p32, p23, p14) = (p32.unwrap_or(0.0), p23.unwrap_or(1.0), p14.unwrap_or(0.0));
    let most = 1.0 + 1e-12;
    for (names, sum) in [("p13 and p14", p13 + p14), ("p31 and p32", p31 + p32)] {
        if sum > most {
            return Err(format!("{names} are more than 100% together; lower one"));
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
            "'{other}' is no bit; write 0 and 1, such as 0001000"
        )),
    });
    let bits: Vec<bool> = bits.collect::<Result<_, _>>()?;
    match bits.len() {
        0 => Err("it has no bits; write 0 and 1, such as 0001000".into()),
        1..=MAX_PATTERN => Ok(bits),
        many => Err(format!("it has {many} bits; {MAX_PATTERN} at most")),
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
            "\"{value}\" is unknown; one of {}, or a file's name with its path",
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
                "{value} has more than {MAX_DELAYS} delays; leave some out"
            ));
        }
    }
    if delays_ns.is_empty() {
        return Err(format!(
            "{value} has no delays; write one in each line, such as 5ms"
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
            "min" => slot.least_ns = time(text).map_err(bad)?,
            "max" => most = Some(time(text).map_err(bad)?),
            "packets" => slot.packets = within(text, "packets", [1, 1 << 20]).map_err(bad)? as u32,
            _ => slot.bytes = within(text, "bytes", [1, 1 << 30]).map_err(bad)? as u32,
        }
    }
    slot.most_ns = most.unwrap_or(slot.least_ns);
    if slot.most_ns == 0 {
        return Err("nothing is between slots; write min=5ms".into());
    }
    if slot.most_ns < slot.least_ns {
        return Err("max is less than min; raise it".into());
    }
    if slot.most_ns - slot.least_ns > MAX_SPREAD_NS {
        return Err("max is more than 4.29 s above min; lower it".into());
    }
    Ok(slot)
}

fn delay_trace(value: &str) -> Result<DelayTrace, String> {
    let trace = match DelayTrace::is_in_place(value) {
        true => DelayTrace::read(value, value, true)?,
        false => DelayTrace::read(value, &file(value)?, false)?,
    };
    if trace.points.iter().any(|(_, delay)| *delay > MAX_TIME_NS) {
        return Err("a delay is above an hour; lower it".into());
    }
    Ok(trace)
}

fn file(path: &str) -> Result<String, String> {
    let cannot = |error: std::io::Error| format!("read {path}: {error}; name a file that is there");
    let bytes = std::fs::metadata(path).map_err(cannot)?.len();
    if bytes > MAX_FILE_BYTES {
        return Err(format!(
            "read {path}: it has {bytes} bytes; {MAX_FILE_BYTES} at most"
        ));
    }
    std::fs::read_to_string(path).map_err(cannot)
}
