//! Small charts as SVG: lines in steps, and bars, over time.

use crate::simulate::spans;
use kai_units::Span;
use std::fmt::Write;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 46.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 24.0;

/// A line of a chart. A value holds until the next point.
pub(super) struct Line<'a> {
    pub(super) name: &'a str,
    /// CSS class.
    pub(super) class: &'a str,
    /// Seconds and values, by time.
    pub(super) points: Vec<(f64, f64)>,
}

/// Escapes text for HTML.
pub(super) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '"' => safe += "&quot;",
            '\'' => safe += "&#39;",
            other => safe.push(other),
        }
    }
    safe
}

/// A step chart over `seconds`.
pub(super) fn steps(title: &str, seconds: f64, highest: f64, lines: &[Line<'_>]) -> String {
    let scale = Scale::new(seconds, highest);
    let mut text = scale.frame(title);
    for (at, line) in lines.iter().enumerate() {
        write!(text, "<path class=\"{}\" d=\"{}\"/>", line.class, scale.path(&line.points))
            .expect("writing to a string");
        let x = WIDTH - RIGHT - 90.0 * (lines.len() - at) as f64;
        write!(
            text,
            "<path class=\"{}\" d=\"M{x:.1} 14h18\"/><text x=\"{:.1}\" y=\"18\">{}</text>",
            line.class,
            x + 23.0,
            escape(line.name)
        )
        .expect("writing to a string");
    }
    text + "</svg>\n"
}

/// A bar chart of counts in equal parts of `seconds`.
pub(super) fn bars(title: &str, seconds: f64, counts: &[usize]) -> String {
    let scale = Scale::new(seconds, counts.iter().copied().max().unwrap_or(0) as f64);
    let mut text = scale.frame(title);
    let part = seconds / counts.len().max(1) as f64;
    for (at, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let (from, to) = (scale.x(part * at as f64), scale.x(part * (at + 1) as f64));
        let top = scale.y(*count as f64);
        write!(
            text,
            "<rect class=\"bar\" x=\"{from:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\"><title>{count}</title></rect>",
            (to - from - 1.0).max(1.0),
            scale.y(0.0) - top,
        )
        .expect("writing to a string");
    }
    text + "</svg>\n"
}

/// Maps seconds and values to coordinates.
struct Scale {
    seconds: f64,
    step: f64,
    top: f64,
}

impl Scale {
    fn new(seconds: f64, highest: f64) -> Self {
        let step = nice_step(highest / 4.0);
        let top = ((highest / step).ceil() * step).max(step);
        Self { seconds: seconds.max(1e-6), step, top }
    }

    fn x(&self, seconds: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * (seconds / self.seconds).clamp(0.0, 1.0)
    }

    fn y(&self, value: f64) -> f64 {
        TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - (value / self.top).clamp(0.0, 1.0))
    }

    /// The chart without its data: title, grid lines and labels.
    fn frame(&self, title: &str) -> String {
        let name = escape(title);
        let mut text = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{name}\">\
             <text class=\"head\" x=\"10\" y=\"18\">{name}</text>"
        );
        let rules = (self.top / self.step).round() as usize;
        for rule in 0..=rules {
            let value = self.step * rule as f64;
            let y = self.y(value);
            write!(
                text,
                "<path class=\"rule\" d=\"M{LEFT} {y:.1}H{}\"/>\
                 <text class=\"label\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 6.0,
                y + 4.0,
                (value * 1e6).round() / 1e6,
            )
            .expect("writing to a string");
        }
        for part in 0..=4 {
            let seconds = self.seconds * f64::from(part) / 4.0;
            let anchor = ["start", "middle", "middle", "middle", "end"][part as usize];
            write!(
                text,
                "<text class=\"label\" x=\"{:.1}\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>",
                self.x(seconds),
                HEIGHT - 8.0,
                spans::short(Span((seconds * 1e6) as i64)),
            )
            .expect("writing to a string");
        }
        text
    }

    /// A step path; of several points at one pixel only the last one is drawn.
    fn path(&self, points: &[(f64, f64)]) -> String {
        let mut drawn: Vec<(i64, i64)> = Vec::new();
        for (seconds, value) in points {
            let tenths = |place: f64| (place * 10.0).round() as i64;
            let point = (tenths(self.x(*seconds)), tenths(self.y(*value)));
            match drawn.last_mut() {
                Some(last) if last.0 == point.0 => *last = point,
                Some(last) if last.1 == point.1 => {}
                Some(_) | None => drawn.push(point),
            }
        }
        let mut text = String::new();
        for (at, (x, y)) in drawn.iter().enumerate() {
            let (x, y) = (*x as f64 / 10.0, *y as f64 / 10.0);
            if at == 0 { write!(text, "M{x} {y}") } else { write!(text, "H{x}V{y}") }
                .expect("writing to a string");
        }
        if !drawn.is_empty() {
            write!(text, "H{}", WIDTH - RIGHT).expect("writing to a string");
        }
        text
    }
}

/// The smallest of …, 0.5, 1, 2, 5, 10, 20, … that is at least `least`.
fn nice_step(least: f64) -> f64 {
    if least <= 0.0 || !least.is_finite() {
        return 1.0;
    }
    let power = 10_f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    steps.into_iter().find(|step| *step >= least * 0.999_999).unwrap_or(steps[3])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_names_is_escaped() {
        assert_eq!(escape("<b a=\"1\">&'"), "&lt;b a=&quot;1&quot;&gt;&amp;&#39;");
        let line = Line { name: "<x>", class: "held", points: vec![(0.0, 1.0)] };
        let chart = steps("<script>", 10.0, 1.0, &[line]);
        assert!(!chart.contains("<script>") && !chart.contains("<x>"), "{chart}");
    }

    #[test]
    fn values_hold_until_the_next_point() {
        let scale = Scale::new(100.0, 4.0);
        assert_eq!(scale.path(&[(0.0, 0.0), (50.0, 4.0), (75.0, 4.0)]), "M46 196H376V30H706");
        assert_eq!(scale.path(&[]), "");
    }

    #[test]
    fn points_at_one_pixel_are_drawn_once() {
        let scale = Scale::new(1e6, 4.0);
        let points: Vec<(f64, f64)> = (0..10_000).map(|at| (f64::from(at), f64::from(at % 5))).collect();
        assert!(scale.path(&points).len() < 2_000);
    }

    #[test]
    fn axis_steps_are_1_2_or_5_times_a_power_of_ten() {
        for (least, step) in [(0.0, 1.0), (0.3, 0.5), (1.0, 1.0), (3.0, 5.0), (25.0, 50.0), (7.0, 10.0)] {
            assert!((nice_step(least) - step).abs() < 1e-9, "{least}");
        }
    }
}
