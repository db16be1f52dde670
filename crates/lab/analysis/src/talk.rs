//! The measurements of the talk at RIPE 88, for a comparison.
//!
//! "The surprising impact of 1 % packet loss", RIPE 88: five Linux hosts, a symmetric and an
//! asymmetric path, iperf3. It states no round-trip time, so its rates are not comparable. Comparable is
//! the share of the goodput without loss. For BBR at 10 % the talk gives one figure, without a path.

use super::grid::Setting;
use crate::axis_value::{self, Kind};

/// One figure of the talk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TalkFigure {
    /// "symmetric", "asymmetric"; none: not stated.
    pub path: Option<&'static str>,
    /// Congestion control.
    pub congestion: &'static str,
    /// Packets lost, a share.
    pub loss: f64,
    /// Goodput, Mbit/s.
    pub mbit: f64,
}

const fn figure(
    path: Option<&'static str>,
    congestion: &'static str,
    loss: f64,
    mbit: f64,
) -> TalkFigure {
    TalkFigure {
        path,
        congestion,
        loss,
        mbit,
    }
}

const SYMMETRIC: Option<&str> = Some("symmetric");
const ASYMMETRIC: Option<&str> = Some("asymmetric");

/// All figures of the talk.
pub const FIGURES: &[TalkFigure] = &[
    figure(SYMMETRIC, "cubic", 0.0, 804.67),
    figure(SYMMETRIC, "cubic", 0.01, 235.5),
    figure(SYMMETRIC, "bbr", 0.0, 868.5),
    figure(SYMMETRIC, "bbr", 0.01, 794.06),
    figure(ASYMMETRIC, "cubic", 0.0, 864.13),
    figure(ASYMMETRIC, "cubic", 0.01, 222.49),
    figure(ASYMMETRIC, "bbr", 0.0, 827.2),
    figure(ASYMMETRIC, "bbr", 0.01, 763.4),
    figure(None, "bbr", 0.1, 751.0),
];

impl TalkFigure {
    /// The share of the goodput without loss on the same path: 0.293. If the path is not stated, the
    /// baselines of both paths give the minimum and the maximum share.
    pub fn shares(&self) -> (f64, f64) {
        let baselines = FIGURES.iter().filter(|f| {
            f.loss == 0.0
                && f.congestion == self.congestion
                && (self.path.is_none() || f.path == self.path)
        });
        baselines.fold((f64::INFINITY, 0.0), |(low, high), base| {
            let share = self.mbit / base.mbit;
            (share.min(low), share.max(high))
        })
    }
}

/// True if an experiment is compared with the talk: `ripe88`, and those derived from it.
pub fn is_of(experiment: &str) -> bool {
    experiment.starts_with("ripe88")
}

/// True if a value is of an axis that the talk varies: path, congestion control, loss.
pub fn is_reported(value: &str) -> bool {
    let is_loss = matches!(axis_value::number(value), Some((Kind::Share, _)));
    is_loss || value.contains("symmetric") || FIGURES.iter().any(|f| f.congestion == value)
}

/// The figure of the talk for this setting, if any.
pub fn figure_of(setting: &Setting) -> Option<&'static TalkFigure> {
    let path = path_of(setting);
    let congestion = setting
        .values()
        .find(|v| matches!(v.as_str(), "cubic" | "bbr"))?;
    let loss = loss_of(setting)?;
    FIGURES.iter().find(|f| {
        (f.path.is_none() || f.path == path)
            && f.congestion == congestion
            && (f.loss - loss).abs() < 1e-9
    })
}

/// "symmetric" is in "asymmetric", so the longer word is looked for first.
fn path_of(setting: &Setting) -> Option<&'static str> {
    ["asymmetric", "symmetric"]
        .into_iter()
        .find(|path| setting.values().any(|value| value.contains(path)))
}

fn loss_of(setting: &Setting) -> Option<f64> {
    let shares = |value: &String| match axis_value::number(value) {
        Some((Kind::Share, share)) => Some(share),
        _ => None,
    };
    setting
        .get("loss")
        .and_then(shares)
        .or_else(|| setting.values().find_map(shares))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(topology: &str, cc: &str, loss: &str) -> Setting {
        [("topology", topology), ("cc", cc), ("loss", loss)]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into()
    }

    /// The talk's own percentages.
    #[test]
    fn shares_are_the_talks_percentages() {
        for (topology, cc, percent) in [
            ("ripe88-symmetric", "cubic", -70.7),
            ("ripe88-asymmetric", "cubic", -74.2),
            ("ripe88-symmetric", "bbr", -8.5),
            ("ripe88-asymmetric", "bbr", -7.7),
        ] {
            let found = figure_of(&setting(topology, cc, "1%")).unwrap();
            let (low, high) = found.shares();
            assert_eq!(low, high);
            assert!(
                ((low - 1.0) * 100.0 - percent).abs() < 0.1,
                "{topology} {cc}: {low}"
            );
        }
    }

    #[test]
    fn values_absent_from_the_talk_are_absent() {
        assert_eq!(figure_of(&setting("symmetric", "reno", "1%")), None);
        assert_eq!(figure_of(&setting("symmetric", "cubic", "5%")), None);
        let ten = figure_of(&setting("symmetric", "bbr", "10%")).unwrap();
        assert_eq!(ten.path, None);
        let (low, high) = ten.shares();
        assert!((low - 0.8647).abs() < 1e-3 && (high - 0.9079).abs() < 1e-3);
    }
}
