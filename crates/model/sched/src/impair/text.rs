//! The canonical text of a specification: `KEY=VALUE` words that read as the same specification.

use std::fmt;
use std::str::FromStr;

use super::{BadSpec, Builder, Distribution, Loss, Slot, Spec};
use fairpath_units::quantity::written;

/// A share in percent, with as many digits as it has.
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
        let [least, most] = [self.least_ns, self.most_ns].map(|ns| written(ns, "ns"));
        let mut text = format!("min={least},max={most}");
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
    /// Keys and values that say something, as [`Builder::set`] takes them.
    pub fn words(&self) -> Vec<(&'static str, String)> {
        let mut words = self.loss.words();
        let usual = Spec::default();
        let mut say = |key: &'static str, said: bool, value: String| {
            if said {
                words.push((key, value));
            }
        };
        let ns = |ns: u64| written(ns, "ns");
        say("delay", self.delay_ns > 0, ns(self.delay_ns));
        if let Some(trace) = &self.delay_trace {
            say("delay_trace", true, trace.source.clone());
        }
        say("jitter", self.jitter_ns > 0, ns(self.jitter_ns));
        let varies = self.distribution != Distribution::Uniform;
        say("distribution", varies, self.distribution.to_string());
        let sign = if self.correlation < 0.0 { "-" } else { "" };
        let correlation = format!("{sign}{}", percent(self.correlation.abs()));
        say("correlation", self.correlation != 0.0, correlation);
        say("order", self.order_free, "free".into());
        say("reorder", self.reorder > 0.0, percent(self.reorder));
        say(
            "reorder_gap",
            self.reorder_gap != usual.reorder_gap,
            self.reorder_gap.to_string(),
        );
        say("duplicate", self.duplicate > 0.0, percent(self.duplicate));
        say("corrupt", self.corrupt > 0.0, percent(self.corrupt));
        if let Some(slot) = &self.slot {
            say("slot", true, slot.word());
        }
        say("release", self.release_ns > 0, ns(self.release_ns));
        if let Some(trace) = &self.rate_trace {
            say("rate_trace", true, trace.source.clone());
        }
        say("overhead", self.overhead > 0, self.overhead.to_string());
        say("cell", self.cell > 0, self.cell.to_string());
        let head = self.cell > 0 && self.cell_overhead != usual.cell_overhead;
        say("cell_overhead", head, self.cell_overhead.to_string());
        say("seed", self.seed != usual.seed, self.seed.to_string());
        if let Some(pipe) = self.pipe {
            say("pipe", true, pipe.to_string());
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

/// "nothing", or words; values with blanks in quotation marks.
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

    /// As [`Display`](fmt::Display) writes it.
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
