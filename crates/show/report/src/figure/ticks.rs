//! Positions and labels of ticks.

use crate::number;
use crate::unit::{Prefixes, Scaled, Unit};

/// A tick.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tick {
    pub value: f64,
    pub label: String,
}

/// The largest of 1, 2 and 5 times a power of ten that is not above `step` by more than rounding.
pub(crate) fn nice_step(step: f64) -> f64 {
    if !step.is_finite() || step <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(step.log10().floor());
    let times = [5.0, 2.0, 1.0].into_iter();
    let fitting = times.filter(|n| n * power <= step * (1.0 + 1e-9));
    power * fitting.fold(1.0, f64::max)
}

/// Ticks at multiples of a nice step within low..high, at most `most`.
pub(crate) fn linear(low: f64, high: f64, most: usize, scaled: &Scaled) -> Vec<Tick> {
    let most = most.max(2) as i64;
    let first = |step: f64| (low / step - 1e-9).ceil() as i64;
    let last = |step: f64| (high / step + 1e-9).floor() as i64;
    let mut step = nice_step((high - low) / most as f64);
    // The next nice steps, until few enough are left.
    while last(step) - first(step) >= most {
        step = nice_step(step * 2.5);
    }
    let digits = digits_of(step / scaled.divide);
    let tick = |i: i64| {
        let value = i as f64 * step;
        Tick {
            label: number::decimals(value / scaled.divide, digits),
            value,
        }
    };
    (first(step)..=last(step)).map(tick).collect()
}

/// Digits after the point that distinguish multiples of a nice step.
fn digits_of(step: f64) -> usize {
    let exponent = (step.abs().log10() + 1e-9).floor();
    (-exponent).clamp(0.0, 9.0) as usize
}

/// Ticks at these very values.
pub(crate) fn at_values(values: &[f64], label: impl Fn(f64) -> String) -> Vec<Tick> {
    let tick = |value: &f64| Tick {
        value: *value,
        label: label(*value),
    };
    values.iter().map(tick).collect()
}

/// The label of a value on a log axis: with its own prefix where the unit has prefixes.
pub(crate) fn log_label(unit: &Unit, value: f64) -> String {
    match unit.prefixes {
        _ if value == 0.0 => "0".to_owned(),
        Prefixes::None => plain(value * unit.factor),
        _ => unit.show(value),
    }
}

/// Numbers far from one are written with a power of ten.
fn plain(value: f64) -> String {
    let exponent = (value.abs().log10() + 1e-9).floor();
    if (-4.0..6.0).contains(&exponent) {
        return number::short(value, 4);
    }
    let power = format!(
        "10{}",
        exponent.to_string().chars().map(raised).collect::<String>()
    );
    match number::short(value / 10_f64.powf(exponent), 3).as_str() {
        "1" => power,
        times => format!("{times}·{power}"),
    }
}

fn raised(letter: char) -> char {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    letter
        .to_digit(10)
        .map_or('⁻', |digit| DIGITS[digit as usize])
}

/// Ticks of a log axis: each decade, or 1, 2 and 5 of each, or every n-th decade; at most `most`.
pub(crate) fn log(low: f64, high: f64, most: usize, unit: &Unit) -> Vec<Tick> {
    // Decades of what is shown, which differ from those of what is kept.
    let (first, last) = ((low * unit.factor).log10(), (high * unit.factor).log10());
    let decades = |times: &[f64], every: i32| {
        let mut values = Vec::new();
        for exponent in (first.floor() as i32)..=(last.ceil() as i32) {
            if exponent.rem_euclid(every) == 0 {
                values.extend(
                    times
                        .iter()
                        .map(|n| n * 10_f64.powi(exponent) / unit.factor),
                );
            }
        }
        values.retain(|v| (low * (1.0 - 1e-9)..=high * (1.0 + 1e-9)).contains(v));
        values
    };
    let fine = decades(&[1.0, 2.0, 5.0], 1);
    let mut values = if fine.len() <= most {
        fine
    } else {
        decades(&[1.0], 1)
    };
    let mut every = 2;
    while values.len() > most.max(2) {
        values = decades(&[1.0], every);
        every += 1;
    }
    at_values(&values, |value| log_label(unit, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(ticks: &[Tick]) -> Vec<&str> {
        ticks.iter().map(|tick| tick.label.as_str()).collect()
    }

    #[test]
    fn steps_are_one_two_or_five() {
        for (step, nice) in [
            (0.7, 0.5),
            (1.0, 1.0),
            (3.9, 2.0),
            (80.0, 50.0),
            (0.002, 0.002),
        ] {
            assert!((nice_step(step) - nice).abs() < 1e-12, "{step}");
        }
        assert_eq!(nice_step(0.0), 1.0);
    }

    #[test]
    fn linear_ticks_share_digits_and_prefix() {
        let scaled = Unit::bits_per_second().scaled(1e9 * 0.9);
        let ticks = linear(0.0, 900e6, 6, &scaled);
        assert_eq!(labels(&ticks), ["0", "200", "400", "600", "800"]);
        let ticks = linear(-0.1, 0.25, 8, &Unit::none().scaled(1.0));
        assert_eq!(
            labels(&ticks)[..3],
            ["\u{2212}0.10", "\u{2212}0.05", "0.00"]
        );
    }

    #[test]
    fn ticks_never_exceed_the_requested_number() {
        for most in 2..12 {
            for high in [0.013, 0.7, 1.0, 3.0, 47.0, 999.0, 1e9] {
                let ticks = linear(0.0, high, most, &Unit::none().scaled(high));
                assert!(!ticks.is_empty() && ticks.len() <= most, "{high} {most}");
                let ticks = log(high / 1e5, high, most, &Unit::seconds());
                assert!(
                    !ticks.is_empty() && ticks.len() <= most,
                    "log {high} {most}"
                );
            }
        }
    }

    #[test]
    fn log_ticks_are_decades_of_what_is_shown() {
        let ticks = log(0.000_01, 0.2, 6, &Unit::share());
        assert_eq!(labels(&ticks), ["0.001", "0.01", "0.1", "1", "10"]);
        let ticks = log(200_000.0, 100_000_000.0, 4, &Unit::nanoseconds());
        assert_eq!(labels(&ticks), ["1\u{a0}ms", "10\u{a0}ms", "100\u{a0}ms"]);
        let ticks = log(1e-8, 2e-4, 5, &Unit::none());
        assert_eq!(labels(&ticks), ["10⁻⁸", "10⁻⁷", "10⁻⁶", "10⁻⁵", "0.0001"]);
        assert_eq!(plain(2e6), "2·10⁶");
        let ticks = log(1.0, 20.0, 6, &Unit::none());
        assert_eq!(labels(&ticks), ["1", "2", "5", "10", "20"]);
    }
}
