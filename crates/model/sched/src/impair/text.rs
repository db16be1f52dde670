//! The canonical text of a specification: `KEY=VALUE` words that parse to the same specification.

use std::fmt;
use std::str::FromStr;

use super::{BadSpec, Builder, Distribution, Loss, Slot, Spec};
use fairpath_units::quantity::written;

/// A share in percent with all of its digits.
fn percent(share: f64) -> String {
    let text = format!("{:.10}", share * 100.0);
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text}%")
}

fn bits(pattern: &[bool]) -> String {
    let digit = |lost: &bool| if *lost { '1' } else { '0' };
    pattern.iter().map(digit).collect()
}

impl Loss {
    fn words(&self) -> Vec<(&'static str, String)> {
        match self {
            Loss::None => vec![],
            Loss::Each { share, correlation } => {
                let mut words = vec![("loss", percent(*share))];
                if *correlation != 0.0 {
                    words.push(("loss_correlation", percent(*correlation)));
                }
                words
            }
            Loss::GilbertElliott { p, r, bad, good } => {
                let [p, r, bad, good] = [p, r, bad, good].map(|share| percent(*share));
                vec![("gilbert_elliott", format!("p={p},r={r},h={bad},k={good}"))]
            }
            Loss::FourState {
                p13,
                p31,
                p32,
                p23,
                p14,
            } => {
                let all = [
                    ("p13", p13),
                    ("p31", p31),
                    ("p32", p32),
                    ("p23", p23),
                    ("p14", p14),
                ];
                let all = all.map(|(name, share)| format!("{name}={}", percent(*share)));
                vec![("four_state", all.join(","))]
            }
            Loss::Pattern(pattern) => vec![("pattern", bits(pattern))],
        }
    }
}

impl Slot {
    fn word(&self) -> String {
        let [min, max] = [self.min_ns, self.most_ns].map(|ns| written(ns, "ns"));
        let mut text = format!("min={min},max={max}");
        if self.packets > 0 {
            text += &format!(",packets={}", self.packets);
        }
        if self.bytes > 0 {
            text += &format!(",bytes={}", written(self.bytes.into(), "bytes"));
        }
        text
    }
}

impl Spec {
    /// Keys and values without defaults, in the form of [`Builder::set`].
    pub fn words(&self) -> Vec<(&'static str, String)> {
        let mut words = self.loss.words();
        let usual = Spec::default();
        let mut push = |key: &'static str, is_set: bool, value: String| {
            if is_set {
                words.push((key, value));
            }
        };
        let ns = |ns: u64| written(ns, "ns");
        push("delay", self.delay_ns > 0, ns(self.delay_ns));
        if let Some(trace) = &self.delay_trace {
            push("delay_trace", true, trace.source.clone());
        }
        push("jitter", self.jitter_ns > 0, ns(self.jitter_ns));
        let varies = self.distribution != Distribution::Uniform;
        push("distribution", varies, self.distribution.to_string());
        let sign = if self.correlation < 0.0 { "-" } else { "" };
        let correlation = format!("{sign}{}", percent(self.correlation.abs()));
        push("correlation", self.correlation != 0.0, correlation);
        push("order", self.order_free, "free".into());
        push("reorder", self.reorder > 0.0, percent(self.reorder));
        push(
            "reorder_gap",
            self.reorder_gap != usual.reorder_gap,
            self.reorder_gap.to_string(),
        );
        push("duplicate", self.duplicate > 0.0, percent(self.duplicate));
        push("corrupt", self.corrupt > 0.0, percent(self.corrupt));
        if let Some(slot) = &self.slot {
            push("slot", true, slot.word());
        }
        push("release", self.release_ns > 0, ns(self.release_ns));
        if let Some(trace) = &self.rate_trace {
            push("rate_trace", true, trace.source.clone());
        }
        push("overhead", self.overhead > 0, self.overhead.to_string());
        push("mpu", self.mpu > 0, self.mpu.to_string());
        push("atm", self.cell_partial, "ptm".into());
        let whole = self.cell > 0 && !self.cell_partial;
        push("cell", whole, self.cell.to_string());
        let head = whole && self.cell_overhead != usual.cell_overhead;
        push("cell_overhead", head, self.cell_overhead.to_string());
        push("seed", self.seed != usual.seed, self.seed.to_string());
        if let Some(pipe) = self.pipe {
            push("pipe", true, pipe.to_string());
        }
        words
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Distribution::Uniform => "uniform",
            Distribution::Normal => "normal",
            Distribution::Pareto => "pareto",
            Distribution::ParetoNormal => "paretonormal",
            Distribution::Measured { file, .. } => file,
        })
    }
}

/// "nothing", or words. Values with spaces are in quotation marks.
impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.words();
        if words.is_empty() {
            return f.write_str("nothing");
        }
        for (at, (key, value)) in words.iter().enumerate() {
            let blank = if at > 0 { " " } else { "" };
            match value.contains(char::is_whitespace) {
                true => write!(f, "{blank}{key}=\"{value}\"")?,
                false => write!(f, "{blank}{key}={value}")?,
            }
        }
        Ok(())
    }
}

impl FromStr for Spec {
    type Err = BadSpec;

    /// Parses the text of [`Display`](fmt::Display).
    fn from_str(text: &str) -> Result<Spec, BadSpec> {
        let mut builder = Builder::default();
        let mut wrong = Vec::new();
        let mut rest = text.trim();
        if rest == "nothing" {
            rest = "";
        }
        while !rest.is_empty() {
            let (key, behind) = rest.split_once('=').unwrap_or((rest, ""));
            let (value, behind) = match behind.strip_prefix('"') {
                Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
                None => behind
                    .split_once(char::is_whitespace)
                    .unwrap_or((behind, "")),
            };
            wrong.extend(builder.set(key.trim(), value).err());
            rest = behind.trim_start();
        }
        match builder.finish() {
            Ok(spec) if wrong.is_empty() => Ok(spec),
            Ok(_) => Err(BadSpec(wrong)),
            Err(BadSpec(more)) => {
                wrong.extend(more);
                Err(BadSpec(wrong))
            }
        }
    }
}
