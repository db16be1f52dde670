//! Writes SVG elements. Numbers have at most one digit after the point, texts are escaped.

use crate::markup::escape;

/// Elements written so far.
#[derive(Default)]
pub(crate) struct Svg {
    pub text: String,
}

/// The anchor of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        }
    }
}

/// A coordinate: "12", "12.3".
pub(crate) fn at(value: f64) -> String {
    let rounded = (value * 10.0).round() / 10.0;
    // Minus zero is zero.
    (rounded + 0.0).to_string()
}

impl Svg {
    /// Raw elements that were written by this crate.
    pub fn raw(&mut self, elements: &str) {
        self.text.push_str(elements);
    }

    pub fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let [x1, y1, x2, y2] = [from.0, from.1, to.0, to.1].map(at);
        self.raw(&format!(
            "<line class=\"{class}\" x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\"/>"
        ));
    }

    pub fn path(&mut self, class: &str, d: &str) {
        if !d.is_empty() {
            self.raw(&format!("<path class=\"{class}\" d=\"{d}\"/>"));
        }
    }

    pub fn label(&mut self, class: &str, place: (f64, f64), anchor: Anchor, text: &str) {
        let (x, y) = (at(place.0), at(place.1));
        let class = match class {
            "" => String::new(),
            class => format!(" class=\"{class}\""),
        };
        self.raw(&format!(
            "<text{class} x=\"{x}\" y=\"{y}\" text-anchor=\"{}\">{}</text>",
            anchor.name(),
            escape(text)
        ));
    }

    /// A rectangle with a text that is shown where the pointer rests on it.
    pub fn bar(&mut self, class: &str, corner: (f64, f64), size: (f64, f64), title: &str) {
        let [x, y, width, height] = [corner.0, corner.1, size.0, size.1].map(at);
        self.raw(&format!(
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"><title>{}</title></rect>",
            escape(title)
        ));
    }

    /// An invisible disc around a point, with its hover text.
    pub fn hit(&mut self, place: (f64, f64), title: &str) {
        let (x, y) = (at(place.0), at(place.1));
        self.raw(&format!(
            "<circle class=\"h\" cx=\"{x}\" cy=\"{y}\" r=\"9\"><title>{}</title></circle>",
            escape(title)
        ));
    }
}

/// Path data of straight lines through places.
pub(crate) fn polyline(places: &[(f64, f64)]) -> String {
    let mut d = String::new();
    for (i, (x, y)) in places.iter().enumerate() {
        let letter = if i == 0 { 'M' } else { 'L' };
        d.push_str(&format!("{letter}{} {}", at(*x), at(*y)));
    }
    d
}
