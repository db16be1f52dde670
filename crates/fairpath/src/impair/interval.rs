//! The exact interval of a share (Clopper and Pearson, Biometrika 26, 1934).
//!
//! Of `lost` in `came` packets, the interval holds every probability under which so few or so many
//! are no surprise. Bursty losses are worth fewer packets: a mean of correlated draws scatters as one
//! of `came / inflation` independent ones, and the interval is made for these; it need not be of whole
//! packets, for the beta distribution is continuous. Pure; nothing here knows of packets.

/// What is left outside of the interval, both sides together: one run in a thousand.
pub const OUTSIDE: f64 = 0.001;
/// Halvings of the search: more than a float has bits.
const HALVINGS: u32 = 80;
/// Terms of the continued fraction; it converges in some sqrt(a + b).
const TERMS: u32 = 100_000;
const TINY: f64 = 1e-300;

/// The interval in which the probability of a loss lies, but for [`OUTSIDE`] of all runs.
///
/// `inflation` is the variance of the share over that of independent losses, 1 or more. Without
/// packets nothing is known: (0, 1).
pub fn of_share(lost: u64, came: u64, inflation: f64) -> (f64, f64) {
    of_share_but(OUTSIDE, lost, came, inflation)
}

/// Likewise, but for `outside` of all runs.
pub fn of_share_but(outside: f64, lost: u64, came: u64, inflation: f64) -> (f64, f64) {
    let (lost, came) = (lost as f64 / inflation, came as f64 / inflation);
    if came <= 0.0 {
        return (0.0, 1.0);
    }
    let tail = outside / 2.0;
    let low = match lost <= 0.0 {
        true => 0.0,
        false => quantile(tail, lost, came - lost + 1.0),
    };
    let high = match lost >= came {
        true => 1.0,
        false => quantile(1.0 - tail, lost + 1.0, came - lost),
    };
    (low, high)
}

/// Where the beta distribution with `a` and `b` has `share` below.
fn quantile(share: f64, a: f64, b: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..HALVINGS {
        let middle = 0.5 * (low + high);
        match beta_below(middle, a, b) < share {
            true => low = middle,
            false => high = middle,
        }
    }
    0.5 * (low + high)
}

/// The regularised incomplete beta function (NIST DLMF 8.17.22, by the faster side).
fn beta_below(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    let log = ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (-x).ln_1p();
    match x < (a + 1.0) / (a + b + 2.0) {
        true => log.exp() * fraction(x, a, b) / a,
        false => 1.0 - log.exp() * fraction(1.0 - x, b, a) / b,
    }
}

/// The continued fraction, by Lentz's method.
fn fraction(x: f64, a: f64, b: f64) -> f64 {
    let away = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut d = 1.0 / away(1.0 - (a + b) * x / (a + 1.0));
    let (mut c, mut value) = (1.0, d);
    for m in 1..TERMS {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut change = 1.0;
        for term in [even, odd] {
            d = 1.0 / away(1.0 + term * d);
            c = away(1.0 + term / c);
            change = d * c;
            value *= change;
        }
        if (change - 1.0_f64).abs() < 1e-15 {
            break;
        }
    }
    value
}

/// The logarithm of the gamma function, of 0.5 and more: Stirling's series (DLMF 5.11.1) beyond 12.
fn ln_gamma(x: f64) -> f64 {
    let (mut x, mut below) = (x, 0.0);
    while x < 12.0 {
        below += x.ln();
        x += 1.0;
    }
    let series = [1.0 / 12.0, -1.0 / 360.0, 1.0 / 1260.0, -1.0 / 1680.0];
    let mut power = 1.0 / x;
    let mut sum = 0.0;
    for term in series {
        sum += term * power;
        power /= x * x;
    }
    (x - 0.5) * x.ln() - x + 0.5 * (2.0 * std::f64::consts::PI).ln() + sum - below
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(value: f64, wanted: f64, by: f64) {
        assert!((value - wanted).abs() <= by, "{value} is not {wanted}");
    }

    #[test]
    fn gamma_has_its_known_values() {
        close(ln_gamma(1.0), 0.0, 1e-10);
        close(ln_gamma(5.0), 24.0_f64.ln(), 1e-10);
        close(ln_gamma(0.5), std::f64::consts::PI.sqrt().ln(), 1e-10);
        close(ln_gamma(171.0), 706.573_062_245_787_4, 1e-8);
    }

    #[test]
    fn beta_has_its_known_values() {
        // Uniform, and two that are polynomials.
        close(beta_below(0.3, 1.0, 1.0), 0.3, 1e-12);
        close(beta_below(0.3, 2.0, 1.0), 0.09, 1e-12);
        close(beta_below(0.4, 2.0, 3.0), 0.5248, 1e-12);
    }

    #[test]
    fn the_interval_without_losses_is_known_in_closed_form() {
        // 1 - (tail)^(1/n).
        let (low, high) = of_share(0, 1000, 1.0);
        close(high, 1.0 - (OUTSIDE / 2.0).powf(1.0 / 1000.0), 1e-9);
        assert_eq!((low, of_share(1000, 1000, 1.0).1), (0.0, 1.0));
        assert_eq!(of_share(0, 0, 1.0), (0.0, 1.0));
    }

    #[test]
    fn the_ends_leave_their_tails_outside() {
        // By summing the binomial itself: 7 of 50.
        let (low, high) = of_share(7, 50, 1.0);
        let below = |p: f64, from: u64, to: u64| -> f64 {
            let term = |k: u64| {
                let (n, k) = (50.0, k as f64);
                let ways = ln_gamma(n + 1.0) - ln_gamma(k + 1.0) - ln_gamma(n - k + 1.0);
                (ways + k * p.ln() + (n - k) * (1.0 - p).ln()).exp()
            };
            (from..=to).map(term).sum()
        };
        close(below(low, 7, 50), OUTSIDE / 2.0, 1e-7);
        close(below(high, 0, 7), OUTSIDE / 2.0, 1e-7);
    }

    #[test]
    fn many_packets_make_it_what_the_normal_distribution_says() {
        let (low, high) = of_share(10_000, 1_000_000, 1.0);
        let sigma = (0.01 * 0.99 / 1e6_f64).sqrt();
        // 99.9 % of a normal distribution are within 3.2905 sigma.
        close(low, 0.01 - 3.2905 * sigma, 0.02 * sigma * 3.3);
        close(high, 0.01 + 3.2905 * sigma, 0.02 * sigma * 3.3);
    }

    #[test]
    fn bursts_widen_it_by_the_root_of_their_inflation() {
        let width = |inflation| {
            let (low, high) = of_share(50_000, 1_000_000, inflation);
            high - low
        };
        close(width(9.0) / width(1.0), 3.0, 0.05);
    }
}
