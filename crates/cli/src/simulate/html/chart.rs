//! The data of the charts, which a script on the page draws.

use serde::Serialize;

/// Points of a chart at most; more than a screen has pixels are not visible.
const POINTS_MAX: usize = 2_000;

/// What the numbers of a chart count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Unit {
    Percent,
    Gpus,
    /// Whole numbers.
    Count,
}

/// How a line is drawn: styles are visible through each other where values coincide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Style {
    Area,
    Line,
    Dashed,
    Dotted,
    Bars,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Series<'a> {
    pub(super) name: &'a str,
    /// Name of a colour of the page.
    pub(super) colour: &'static str,
    pub(super) style: Style,
    pub(super) values: Vec<f64>,
}

/// Values over time; each holds until the next one.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Chart<'a> {
    pub(super) unit: Unit,
    /// Seconds that the time axis covers.
    pub(super) end: f64,
    /// The least upper end of the other axis.
    pub(super) top: f64,
    /// Seconds since the start, ascending.
    pub(super) seconds: Vec<f64>,
    pub(super) series: Vec<Series<'a>>,
}

impl Chart<'_> {
    /// Leaves out points where nothing changes, and of several at one pixel all but the last.
    pub(super) fn thinned(mut self) -> Self {
        let count = self.seconds.len();
        let same =
            |at: usize| self.series.iter().all(|series| series.values.get(at) == series.values.get(at - 1));
        let changes: Vec<usize> = (0..count).filter(|at| *at == 0 || !same(*at)).collect();
        let pixel = |at: usize| (self.seconds[at] / self.end.max(1e-6) * POINTS_MAX as f64) as u64;
        let is_last = |at: &usize| changes.get(at + 1).is_none_or(|next| pixel(*next) != pixel(changes[*at]));
        let kept: Vec<usize> = (0..changes.len()).filter(is_last).map(|at| changes[at]).collect();
        for series in &mut self.series {
            series.values = kept.iter().map(|at| series.values[*at]).collect();
            // The last value holds until the end.
            series.values.extend(series.values.last().copied());
        }
        self.seconds = kept.iter().map(|at| self.seconds[*at]).collect();
        if !self.seconds.is_empty() {
            self.seconds.push(self.end);
        }
        self
    }
}

/// Charts as JSON that cannot end the element it is in.
pub(super) fn json(charts: &[Chart<'_>]) -> String {
    let text = serde_json::to_string(charts).expect("numbers and names serialise");
    text.replace('<', "\\u003c")
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

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(seconds: Vec<f64>, values: Vec<f64>) -> Chart<'static> {
        let end = seconds.last().copied().unwrap_or(0.0) + 1.0;
        let series = vec![Series { name: "<x>", colour: "held", style: Style::Area, values }];
        Chart { unit: Unit::Gpus, end, top: 1.0, seconds, series }
    }

    #[test]
    fn markup_in_names_is_escaped() {
        assert_eq!(escape("<b a=\"1\">&'"), "&lt;b a=&quot;1&quot;&gt;&amp;&#39;");
        let text = json(&[chart(vec![0.0], vec![1.0])]);
        assert!(text.contains("\\u003cx>") && !text.contains('<'), "{text}");
    }

    #[test]
    fn only_changes_are_kept_and_the_last_value_holds_until_the_end() {
        let chart = chart(vec![0.0, 1.0, 2.0, 3.0], vec![4.0, 4.0, 5.0, 5.0]).thinned();
        assert_eq!(format!("{:?}", chart.seconds), "[0.0, 2.0, 4.0]");
        assert_eq!(format!("{:?}", chart.series[0].values), "[4.0, 5.0, 5.0]");
    }

    #[test]
    fn points_at_one_pixel_are_drawn_once() {
        let seconds: Vec<f64> = (0..100_000).map(f64::from).collect();
        let values = (0..100_000).map(|at| f64::from(at % 5)).collect();
        assert!(chart(seconds, values).thinned().seconds.len() <= POINTS_MAX + 1);
        assert!(chart(Vec::new(), Vec::new()).thinned().seconds.is_empty());
    }
}
