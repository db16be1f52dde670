//! Numbers as people read them: significant digits, groups of three, a real minus sign.

/// Between groups of three digits: narrow, and no line ends there.
const GROUP: char = '\u{202f}';
/// Shown where a number is missing.
pub const MISSING: &str = "–";

/// `value` with `digits` significant digits; digits before the point are never removed.
///
/// 804.67 with three is "805", 0.01234 is "0.0123", 12345.6 is "12 346" (narrow spaces).
/// What is not a finite number is a dash.
pub fn significant(value: f64, digits: usize) -> String {
    if !value.is_finite() {
        return MISSING.to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    decimals(value, decimals_for(value, digits))
}

/// The number of digits after the point that show `digits` significant ones.
fn decimals_for(value: f64, digits: usize) -> usize {
    // Rounding may carry into another digit (9.996 -> 10.0), so the rounded number is checked.
    let text = format!("{:.*e}", digits.saturating_sub(1), value.abs());
    let exponent: i32 = text
        .rsplit('e')
        .next()
        .and_then(|e| e.parse().ok())
        .unwrap_or(0);
    (digits as i32 - 1 - exponent).clamp(0, 12) as usize
}

/// `value` with exactly `decimals` digits after the point.
pub(crate) fn decimals(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) if rest.bytes().any(|b| (b'1'..=b'9').contains(&b)) => ("\u{2212}", rest),
        Some(rest) => ("", rest),
        None => ("", text.as_str()),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let mut shown = String::from(sign);
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) && whole.len() > 4 {
            shown.push(GROUP);
        }
        shown.push(digit);
    }
    if !fraction.is_empty() {
        shown.push('.');
        shown.push_str(fraction);
    }
    shown
}

/// The shortest form: significant digits without zeros at the end of a fraction ("2.50" -> "2.5").
pub(crate) fn short(value: f64, digits: usize) -> String {
    let shown = significant(value, digits);
    if !shown.contains('.') {
        return shown;
    }
    shown.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn significant_digits_stay_and_integers_are_not_cut() {
        for (value, shown) in [
            (804.67, "805"),
            (0.012_34, "0.0123"),
            (9.996, "10.0"),
            (1234.0, "1234"),
            (12_345.6, "12\u{202f}346"),
            (-70.7, "\u{2212}70.7"),
            (0.0, "0"),
            (-0.0, "0"),
            (f64::NAN, "–"),
            (1e9, "1\u{202f}000\u{202f}000\u{202f}000"),
        ] {
            assert_eq!(significant(value, 3), shown);
        }
    }

    #[test]
    fn zero_after_rounding_has_no_sign() {
        assert_eq!(decimals(-0.000_1, 2), "0.00");
        assert_eq!(decimals(-0.006, 2), "\u{2212}0.01");
    }

    #[test]
    fn the_short_form_drops_zeros_of_fractions_only() {
        assert_eq!(short(2.5, 3), "2.5");
        assert_eq!(short(100.0, 3), "100");
        assert_eq!(short(2.0, 3), "2");
    }
}
