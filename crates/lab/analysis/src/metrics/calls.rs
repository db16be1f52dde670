//! Quantities of voice calls. Several calls have their mean: each is a caller.

use super::{Better, Measure, Metric, Series, Who, is_requested};
use crate::playout::{Buffer, FIXED, Playout, play};
use crate::record::{CallRecord, RunRecord};
use crate::voice::{Codec, mos, rating};

pub(super) const METRICS: &[Metric] = &[
    Metric {
        name: "mos",
        title: "Voice quality (MOS)",
        measure: Measure::Number,
        better: Better::Higher,
        about: "Mean opinion score by ITU-T G.107 for G.711 with concealment (Bpl 25.1) behind an adaptive playout buffer; packets late for playout count as lost, the burst ratio is measured.",
        value: |run, who| score(run, who, Buffer::Adaptive, Codec::G711_CONCEALED),
        samples: None,
        series: None,
    },
    Metric {
        name: "mos-plain",
        title: "Voice quality without concealment (MOS)",
        measure: Measure::Number,
        better: Better::Higher,
        about: "The same for G.711 that plays silence for what is missing (Bpl 4.3).",
        value: |run, who| score(run, who, Buffer::Adaptive, Codec::G711),
        samples: None,
        series: None,
    },
    Metric {
        name: "mos-fixed",
        title: "Voice quality, fixed buffer (MOS)",
        measure: Measure::Number,
        better: Better::Higher,
        about: "The same as mos behind a fixed playout buffer of 60 ms.",
        value: |run, who| score(run, who, FIXED, Codec::G711_CONCEALED),
        samples: None,
        series: None,
    },
    Metric {
        name: "voice-loss",
        title: "Voice packets missing at playout",
        measure: Measure::Share,
        better: Better::Lower,
        about: "Voice packets that were lost or came after their deadline (adaptive buffer).",
        value: |run, who| mean(run, who, |p| p.missing()),
        samples: None,
        series: None,
    },
    Metric {
        name: "voice-delay",
        title: "Mouth to ear",
        measure: Measure::Time,
        better: Better::Lower,
        about: "Mean delay from mouth to ear: a packet of speech, the path and the adaptive playout buffer.",
        value: |run, who| mean(run, who, |p| p.delay_ms / 1e3),
        samples: Some(delay_samples),
        series: Some(delay_series),
    },
    Metric {
        name: "burst-ratio",
        title: "Burst ratio of missing voice packets",
        measure: Measure::Number,
        better: Better::Lower,
        about: "Mean length of bursts of missing voice packets against that of independent loss of the same rate (G.107).",
        value: |run, who| mean(run, who, Playout::burst_ratio),
        samples: None,
        series: None,
    },
    Metric {
        name: "choppiness",
        title: "Gaps over 60 ms",
        measure: Measure::PerMinute,
        better: Better::Lower,
        about: "Silences longer than 60 ms in what is played, a minute of the call (adaptive buffer).",
        value: |run, who| mean(run, who, |p| p.gaps_per_minute),
        samples: None,
        series: None,
    },
];

fn calls<'a>(run: &'a RunRecord, who: Who<'a>) -> impl Iterator<Item = &'a CallRecord> {
    run.calls.iter().filter(move |c| is_requested(who, &c.name))
}

fn score(run: &RunRecord, who: Who, buffer: Buffer, codec: Codec) -> Option<f64> {
    mean_through(run, who, buffer, |p| mos(rating(&p.received(), codec)))
}

fn mean(run: &RunRecord, who: Who, of: impl Fn(&Playout) -> f64) -> Option<f64> {
    mean_through(run, who, Buffer::Adaptive, of)
}

/// A call of which nothing came has no value, and then neither has the run.
fn mean_through(
    run: &RunRecord,
    who: Who,
    buffer: Buffer,
    of: impl Fn(&Playout) -> f64,
) -> Option<f64> {
    let values: Option<Vec<f64>> = calls(run, who)
        .map(|call| play(call, buffer).map(|playout| of(&playout)))
        .collect();
    let values = values.filter(|values| !values.is_empty())?;
    Some(values.iter().sum::<f64>() / values.len() as f64)
}

/// One-way delays of packets that came, above the fastest one: what jitter is made of.
fn delay_samples(run: &RunRecord, who: Who) -> Vec<f64> {
    calls(run, who)
        .flat_map(above_min)
        .map(|(_, s)| s)
        .collect()
}

fn delay_series(run: &RunRecord, who: Who) -> Vec<Series> {
    calls(run, who)
        .map(|call| Series {
            name: call.name.clone(),
            points: above_min(call).collect(),
        })
        .collect()
}

fn above_min(call: &CallRecord) -> impl Iterator<Item = (f64, f64)> + '_ {
    let min = call.delays_ns.iter().flatten().min().copied().unwrap_or(0);
    call.delays_ns
        .iter()
        .enumerate()
        .filter_map(move |(i, delay)| {
            let at = i as f64 * call.interval_ns as f64 * 1e-9;
            delay.map(|ns| (at, (ns - min) as f64 * 1e-9))
        })
}

#[cfg(test)]
mod tests {
    use crate::metrics::find;
    use crate::record::{CallRecord, RunRecord};

    fn call(name: &str, lost: usize) -> CallRecord {
        let mut delays_ns = vec![Some(10_000_000); 3000];
        delays_ns[..lost].fill(None);
        CallRecord {
            name: name.into(),
            interval_ns: 20_000_000,
            delays_ns,
            ..CallRecord::default()
        }
    }

    fn value(run: &RunRecord, name: &str) -> Option<f64> {
        find(name).unwrap().value(run)
    }

    #[test]
    fn a_clean_call_scores_like_the_recommendations_best() {
        let run = RunRecord {
            calls: vec![call("call", 0)],
            ..RunRecord::default()
        };
        // 20 ms of packet, 10 of path, 60 of buffer.
        assert!((value(&run, "mos-fixed").unwrap() - 4.36).abs() < 0.02);
        assert_eq!(value(&run, "voice-loss"), Some(0.0));
        assert_eq!(value(&run, "choppiness"), Some(0.0));
    }

    #[test]
    fn loss_without_concealment_lowers_the_score() {
        let run = RunRecord {
            calls: vec![call("good", 0), call("bad", 300)],
            ..RunRecord::default()
        };
        assert!(value(&run, "mos-plain@bad").unwrap() < value(&run, "mos@bad").unwrap());
        assert!((value(&run, "voice-loss").unwrap() - 0.05).abs() < 1e-12);
        assert_eq!(value(&run, "choppiness@bad"), Some(1.0));
        assert!(value(&run, "mos").unwrap() < value(&run, "mos@good").unwrap());
    }

    #[test]
    fn a_dead_call_makes_no_good_mean() {
        let run = RunRecord {
            calls: vec![call("good", 0), call("dead", 3000)],
            ..RunRecord::default()
        };
        assert_eq!(value(&run, "mos"), None);
    }
}
