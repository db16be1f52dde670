//! Times for people.

/// A time in its two largest units: `12 s`, `3 min 20 s`, `1 h 15 min`, `2 d 4 h`.
pub fn span(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_its_two_largest_units() {
        let seconds = [0, 59, 60, 3_599, 3_600, 86_399, 86_400, 180_000];
        let expected = [
            "0 s",
            "59 s",
            "1 min 0 s",
            "59 min 59 s",
            "1 h 0 min",
            "23 h 59 min",
            "1 d 0 h",
            "2 d 2 h",
        ];
        assert_eq!(seconds.map(span), expected);
    }
}
