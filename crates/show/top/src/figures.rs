//! Formats numbers with three significant digits and a limited width.
//!
//! A value that was not measured is `None`, and [`maybe`] formats it.

/// The text of a value that was not measured.
pub const UNMEASURED: &str = "-";

/// The figure, or [`UNMEASURED`].
pub fn maybe<T>(value: Option<T>, figure: impl Fn(T) -> String) -> String {
    value.map_or_else(|| UNMEASURED.to_owned(), figure)
}

/// A number with SI prefix: `0`, `987`, `1.23k`, `12.3M`, `999G`. At most 5 columns below 1000 E.
pub fn scaled(value: f64) -> String {
    const LETTERS: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];
    let mut value = value.max(0.0);
    let mut letter = 0;
    while value >= 999.5 && letter + 1 < LETTERS.len() {
        value /= 1000.0;
        letter += 1;
    }
    if letter == 0 {
        return format!("{value:.0}");
    }
    format!("{}{}", three_digits(value), LETTERS[letter])
}

/// A count, exact up to five digits, above that as [`scaled`].
pub fn count(value: u64) -> String {
    if value < 100_000 {
        value.to_string()
    } else {
        scaled(value as f64)
    }
}

/// A count with separated thousands: `12,345,678`.
pub fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A round-trip time in milliseconds: `0.042`, `4.20`, `42.0`, `4200`; from ten seconds `42.0s`.
pub fn millis(ns: u64) -> String {
    let ms = ns as f64 / 1e6;
    if ns == 0 {
        "0".to_owned()
    } else if ms < 0.9995 {
        format!("{ms:.3}")
    } else if ms < 99.95 {
        three_digits(ms)
    } else if ms < 9_999.5 {
        format!("{ms:.0}")
    } else if ms < 999_500.0 {
        format!("{}s", three_digits(ms / 1e3))
    } else {
        ">999s".to_owned()
    }
}

/// A ratio as percent without the sign: `0`, `<0.01`, `0.25`, `12.3`, `100`.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent <= 0.0 {
        "0".to_owned()
    } else if percent < 0.01 {
        "<0.01".to_owned()
    } else {
        three_digits(percent)
    }
}

/// A span of time in its two largest units: `850ms`, `1.3s`, `12s`, `3m12s`, `4h05m`, `2d03h`.
pub fn span(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    match seconds {
        0 => format!("{}ms", ns / 1_000_000),
        1..10 if !ns.is_multiple_of(1_000_000_000) => format!("{:.1}s", ns as f64 / 1e9),
        1..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// `1.23`, `12.3`, `123`.
fn three_digits(value: f64) -> String {
    if value < 9.995 {
        format!("{value:.2}")
    } else if value < 99.95 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_at_most_five_columns() {
        for (value, text) in [
            (0.0, "0"),
            (0.4, "0"),
            (999.4, "999"),
            (999.6, "1.00k"),
            (9_996.0, "10.0k"),
            (99_960.0, "100k"),
            (999_499.0, "999k"),
            (999_600.0, "1.00M"),
            (1.2345e9, "1.23G"),
        ] {
            assert_eq!(scaled(value), text);
        }
        for (ns, text) in [
            (0, "0"),
            (12_345, "0.012"),
            (999_600, "1.00"),
            (9_996_000, "10.0"),
            (99_960_000, "100"),
            (9_999_400_000, "9999"),
            (9_999_600_000, "10.0s"),
            (68_000_000_000, "68.0s"),
        ] {
            assert_eq!(millis(ns), text);
        }
        for exponent in 0..60 {
            let value = 1.17_f64.powi(exponent * 4);
            assert!(scaled(value.min(9e20)).len() <= 5, "{value}");
            assert!(millis(value.min(1e14) as u64).len() <= 5, "{value}");
            assert!(count(value.min(1e18) as u64).len() <= 5, "{value}");
        }
    }

    #[test]
    fn a_small_loss_is_not_shown_as_zero() {
        assert_eq!(percent(0.0), "0");
        assert_eq!(percent(0.000_05), "<0.01");
        assert_eq!(percent(0.002_5), "0.25");
        assert_eq!(percent(0.123_4), "12.3");
        assert_eq!(percent(1.0), "100");
        assert_eq!(maybe(None, percent), "-");
    }

    #[test]
    fn spans_and_groups_have_their_formats() {
        let second = 1_000_000_000;
        assert_eq!(span(850_000_000), "850ms");
        assert_eq!(span(1_340_000_000), "1.3s");
        assert_eq!(span(second), "1s");
        assert_eq!(span(192 * second), "3m12s");
        assert_eq!(span(14_700 * second), "4h05m");
        assert_eq!(span(183_600 * second), "2d03h");
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(12_345_678), "12,345,678");
    }
}
