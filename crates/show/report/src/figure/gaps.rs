//! Gaps: a cross for each series without a value at an x, above each other, with one label.

use crate::figure::frame::Frame;
use crate::figure::label::{self, FONT, LINE};
use crate::figure::svg::{Anchor, Svg, at};

/// Half the size of a cross.
const CROSS: f64 = 4.0;
/// From the bottom of the plot to the middle of the first cross.
const FIRST: f64 = 9.0;
/// From a cross to the next one above it.
const NEXT: f64 = 12.0;
/// Crosses closer to each other than this are one stack.
const ONE_STACK: f64 = 3.0;

/// A gap with its place along x.
pub(crate) struct PlacedGap<'a> {
    pub x: f64,
    pub label: &'a str,
    pub colour: usize,
    /// The hover text.
    pub report: String,
}

/// Crosses at one x.
struct Stack<'a> {
    x: f64,
    crosses: usize,
    label: &'a str,
}

/// Draws crosses, hover texts and labels.
pub(crate) fn draw(svg: &mut Svg, frame: &Frame, gaps: &[PlacedGap]) {
    let mut stacks: Vec<Stack> = Vec::new();
    for gap in gaps {
        let stack = stacks
            .iter_mut()
            .find(|stack| (stack.x - gap.x).abs() < ONE_STACK);
        let below = match stack {
            Some(stack) => {
                stack.crosses += 1;
                stack.crosses - 1
            }
            None => {
                stacks.push(Stack {
                    x: gap.x,
                    crosses: 1,
                    label: gap.label,
                });
                0
            }
        };
        let y = frame.plot.bottom - FIRST - below as f64 * NEXT;
        svg.path(&format!("cross c{}", gap.colour), &cross(gap.x, y));
        svg.hit((gap.x, y), &gap.report);
    }
    stacks.sort_by(|a, b| a.x.total_cmp(&b.x));
    let mut labelled = f64::NEG_INFINITY;
    for stack in stacks {
        if stack.x - labelled >= LINE {
            labelled = stack.x;
            turned(svg, frame, &stack);
        }
    }
}

fn cross(x: f64, y: f64) -> String {
    let (left, width) = (at(x - CROSS), at(2.0 * CROSS));
    let (top, bottom) = (at(y - CROSS), at(y + CROSS));
    format!("M{left} {top}l{width} {width}M{left} {bottom}l{width} -{width}")
}

/// The label, upwards from the crosses.
fn turned(svg: &mut Svg, frame: &Frame, stack: &Stack) {
    let y = frame.plot.bottom - FIRST - stack.crosses as f64 * NEXT + CROSS;
    let text = label::cut(stack.label, y - frame.plot.top);
    let x = at(stack.x + 0.35 * FONT);
    svg.raw(&format!(
        "<g transform=\"translate({x} {}) rotate(-90)\">",
        at(y)
    ));
    svg.label("ref-name", (0.0, 0.0), Anchor::Start, &text);
    svg.raw("</g>");
}

#[cfg(test)]
mod tests {
    use crate::figure::{Axis, Figure, Gap, Palette, Panel, Point, Series, Size, panel_svg};
    use crate::unit::Unit;

    fn gap(x: f64) -> Gap {
        Gap {
            x,
            label: "no valid run".to_owned(),
        }
    }

    fn drawn(panel: Panel) -> String {
        let figure = Figure::new("f", "", vec![panel]);
        let palette = Palette::of(std::iter::once(&figure));
        panel_svg(&figure.panels[0], &palette, Size::NARROW)
    }

    fn with(gaps: &[f64]) -> Panel {
        let x = Axis::linear("loss", Unit::share());
        let y = Axis::zero_based("Goodput", Unit::bits_per_second());
        let points = [0.0, 0.01, 0.1].map(|x| Point::new(x, 1e6));
        let gaps = gaps.iter().map(|x| gap(*x)).collect();
        Panel::new("", x, y).with(Series::line("cubic", points.into()).gaps(gaps))
    }

    /// The number of separate parts of the line.
    fn parts(svg: &str) -> usize {
        let line = svg.split("<path class=\"line c0\" d=\"").nth(1).unwrap();
        line.split('"').next().unwrap().matches('M').count()
    }

    #[test]
    fn a_gap_breaks_its_line_and_is_labelled() {
        let whole = drawn(with(&[]));
        assert_eq!((parts(&whole), whole.contains("cross")), (1, false));
        let broken = drawn(with(&[0.05]));
        assert_eq!(parts(&broken), 2);
        assert!(broken.contains("class=\"cross c0\""), "{broken}");
        assert!(broken.contains(">no valid run</text>"), "{broken}");
        assert!(
            broken.contains("<title>cubic\nloss 5\u{a0}%: no valid run"),
            "{broken}"
        );
    }

    #[test]
    fn a_gap_beyond_all_points_widens_the_axis() {
        let beyond = drawn(with(&[0.2]));
        assert_eq!(parts(&beyond), 1);
        assert!(beyond.contains(">20</text>"), "{beyond}");
    }

    #[test]
    fn gaps_at_one_place_share_a_label() {
        let second = Series::line("bbr", vec![Point::new(0.0, 1e6)]).gaps(vec![gap(0.05)]);
        let both = drawn(with(&[0.05]).with(second));
        assert_eq!(both.matches("class=\"cross").count(), 2);
        assert_eq!(both.matches(">no valid run</text>").count(), 1);
    }

    #[test]
    fn a_panel_of_gaps_alone_has_their_label() {
        let mut panel = with(&[0.01]);
        panel.series[0].points.clear();
        assert!(drawn(panel).contains(">no valid run</text>"));
    }
}
