//! Fewer points than were measured, with the extremes kept: a page is read, not replayed.
//!
//! Points in order of x are put into stretches of equal length; each stretch keeps its first, least,
//! largest and last point, so that peaks stay at their place and height. The CSV keeps all points.

use crate::figure::series::Point;

/// Points of one series in one drawn panel.
pub const MAX_DRAWN_POINTS: usize = 480;
/// Steps of a distribution that are kept at all.
pub(crate) const MAX_DISTRIBUTION_POINTS: usize = 1_000;
/// Points that a stretch keeps.
const KEPT: usize = 4;

/// At most `limit` points of `points` (in order of x), the extremes of y among them.
pub(crate) fn keep_extremes(points: &[Point], limit: usize) -> Vec<Point> {
    if points.len() <= limit {
        return points.to_vec();
    }
    let stretches = (limit / KEPT).max(1);
    let mut kept = Vec::with_capacity(limit);
    for i in 0..stretches {
        let stretch = &points[i * points.len() / stretches..(i + 1) * points.len() / stretches];
        kept.extend(extremes(stretch).into_iter().map(|at| stretch[at].clone()));
    }
    kept
}

/// Places of the first, least, largest and last point, ascending, each once.
fn extremes(stretch: &[Point]) -> Vec<usize> {
    let by_y = |a: &usize, b: &usize| stretch[*a].y.total_cmp(&stretch[*b].y);
    let Some(last) = stretch.len().checked_sub(1) else {
        return Vec::new();
    };
    let min = (0..=last).min_by(by_y).unwrap_or(0);
    let largest = (0..=last).max_by(by_y).unwrap_or(last);
    let mut places = vec![0, min, largest, last];
    places.sort_unstable();
    places.dedup();
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_spike_among_many_points_stays() {
        let height = |i: u32| if i == 77_777 { 9.0 } else { 1.0 };
        let points: Vec<Point> = (0..100_000)
            .map(|i| Point::new(f64::from(i), height(i)))
            .collect();
        let kept = keep_extremes(&points, MAX_DRAWN_POINTS);
        assert!(kept.len() <= MAX_DRAWN_POINTS, "{}", kept.len());
        assert!(kept.iter().any(|p| p.x == 77_777.0 && p.y == 9.0));
        assert!(kept.windows(2).all(|pair| pair[0].x < pair[1].x));
        assert_eq!((kept[0].x, kept[kept.len() - 1].x), (0.0, 99_999.0));
    }

    #[test]
    fn few_points_are_left_alone() {
        let points = vec![Point::new(1.0, 1.0), Point::new(2.0, 5.0)];
        assert_eq!(keep_extremes(&points, 2), points);
    }
}
