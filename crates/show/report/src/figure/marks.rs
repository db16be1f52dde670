//! Marks of points: seven shapes of about the same weight.

use crate::figure::svg::{at, polyline};

/// Half the width of a mark.
const RADIUS: f64 = 4.4;

/// Path data of the mark with this number around a place.
pub(crate) fn path(mark: usize, (x, y): (f64, f64)) -> String {
    let r = RADIUS;
    let corners: &[(f64, f64)] = match mark {
        0 => {
            let [left, y, r2, r] = [x - r, y, 2.0 * r, r].map(at);
            return format!("M{left} {y}a{r} {r} 0 1 0 {r2} 0a{r} {r} 0 1 0 -{r2} 0Z");
        }
        1 => &[(-0.88, -0.88), (0.88, -0.88), (0.88, 0.88), (-0.88, 0.88)],
        2 => &[(0.0, -1.15), (1.1, 0.85), (-1.1, 0.85)],
        3 => &[(0.0, -1.25), (1.25, 0.0), (0.0, 1.25), (-1.25, 0.0)],
        4 => &[(0.0, 1.15), (1.1, -0.85), (-1.1, -0.85)],
        5 => &PLUS,
        _ => return polyline(&turned(&PLUS, (x, y))) + "Z",
    };
    let place = |(dx, dy): &(f64, f64)| (x + dx * r, y + dy * r);
    polyline(&corners.iter().map(place).collect::<Vec<_>>()) + "Z"
}

/// A plus sign with wide arms.
const PLUS: [(f64, f64); 12] = [
    (-0.4, -1.2),
    (0.4, -1.2),
    (0.4, -0.4),
    (1.2, -0.4),
    (1.2, 0.4),
    (0.4, 0.4),
    (0.4, 1.2),
    (-0.4, 1.2),
    (-0.4, 0.4),
    (-1.2, 0.4),
    (-1.2, -0.4),
    (-0.4, -0.4),
];

/// By an eighth of a turn.
fn turned(corners: &[(f64, f64)], (x, y): (f64, f64)) -> Vec<(f64, f64)> {
    let r = RADIUS * std::f64::consts::FRAC_1_SQRT_2;
    let place = |(dx, dy): &(f64, f64)| (x + (dx - dy) * r, y + (dx + dy) * r);
    corners.iter().map(place).collect()
}
