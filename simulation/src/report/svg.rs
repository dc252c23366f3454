//! Drawings: shapes in plain SVG, each with a title for readers who cannot see it.
//!
//! The shapes take their colours from the page's classes. It must not name anything outside of the
//! page, nor let a text through unescaped.

use std::fmt::Write;

/// Escapes a text for a place between tags or in an attribute.
pub fn escaped(text: &str) -> String {
    let mut all = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => all.push_str("&amp;"),
            '<' => all.push_str("&lt;"),
            '>' => all.push_str("&gt;"),
            '"' => all.push_str("&quot;"),
            '\'' => all.push_str("&#39;"),
            '\n' | '\t' => all.push(' '),
            control if control.is_control() => all.push('\u{fffd}'),
            other => all.push(other),
        }
    }
    all
}

/// The place of a text relative to its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// The text begins at the point.
    Start,
    /// The text's middle is at the point.
    Middle,
    /// The text ends at the point.
    End,
}

impl Anchor {
    fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
        }
    }
}

/// A drawing. Lengths are in its own units; pages scale it.
#[derive(Clone, Debug)]
pub struct Svg {
    id: &'static str,
    title: String,
    width: f64,
    height: f64,
    body: String,
}

impl Svg {
    /// An empty drawing; `id` is unique on the page.
    pub fn new(id: &'static str, title: &str, width: f64, height: f64) -> Self {
        Self { id, title: escaped(title), width, height, body: String::new() }
    }

    /// Draws a line between two points.
    pub fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        let _ = writeln!(
            self.body,
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        );
    }

    /// Draws a line through these points.
    pub fn path(&mut self, class: &str, points: &[(f64, f64)]) {
        let all: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(self.body, "<polyline class=\"{class}\" points=\"{}\"/>", all.join(" "));
    }

    /// Draws a dot with a text that shows when a reader points at it.
    pub fn dot(&mut self, class: &str, (x, y): (f64, f64), title: &str) {
        let title = escaped(title);
        let _ = writeln!(
            self.body,
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\"><title>{title}</title></circle>"
        );
    }

    /// Writes a text at a point.
    pub fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        let (anchor, text) = (anchor.name(), escaped(text));
        let _ = writeln!(self.body, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>");
    }

    /// The drawing, as a page includes it.
    pub fn finish(self) -> String {
        let Self { id, title, width, height, body } = self;
        format!(
            "<svg role=\"img\" aria-labelledby=\"{id}\" viewBox=\"0 0 {width:.0} {height:.0}\">\n<title id=\"{id}\">{title}</title>\n{body}</svg>\n"
        )
    }
}

/// Round steps from 0 that cover `most` with at most six: each is 1, 2 or 5 times a power of ten.
pub fn steps(most: f64) -> Vec<f64> {
    let least = (most / 6.0).max(f64::MIN_POSITIVE);
    let power = 10_f64.powf(least.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power >= least).unwrap_or(10.0);
    let step = factor * power;
    let count = (most / step).ceil().max(1.0) as usize;
    (0..=count).map(|number| number as f64 * step).collect()
}
