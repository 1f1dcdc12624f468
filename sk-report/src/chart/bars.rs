use serde_json::{Value, json};

use super::palette::{INK, MUTED};
use super::plot::{hover, literal, literals};
use super::{Axis, Plot, Style};

/// A horizontal bar chart by category, with optional confidence intervals.
#[derive(Debug, Clone, PartialEq)]
pub struct Bars {
    categories: Vec<String>,
    axis: Axis,
    stacked: bool,
    data: Vec<Value>,
}

impl Bars {
    /// Creates a chart without series. `categories` run from top to bottom; `axis` is the value
    /// axis.
    pub fn new(categories: &[String], axis: Axis) -> Self {
        Self { categories: categories.to_vec(), axis, stacked: false, data: Vec::new() }
    }

    /// Stacks the bars of a category instead of drawing them side by side.
    #[must_use]
    pub fn stacked(mut self) -> Self {
        self.stacked = true;
        self
    }

    /// Adds a series with one bar per category; NaN leaves a gap.
    #[must_use]
    pub fn series(mut self, name: &str, style: Style, values: &[f64]) -> Self {
        let trace = self.trace(name, style, values, &[]);
        self.data.push(trace);
        self
    }

    /// Adds a series with one bar and one confidence interval per category; NaN ends draw no
    /// interval.
    #[must_use]
    pub fn series_with_intervals(mut self, name: &str, style: Style, values: &[f64], intervals: &[[f64; 2]]) -> Self {
        let mut trace = self.trace(name, style, values, intervals);
        let ends = values.iter().zip(intervals);
        let (below, above): (Vec<f64>, Vec<f64>) = ends.map(|(value, [low, high])| (value - low, high - value)).unzip();
        trace["error_x"] = json!({
            "type": "data", "symmetric": false, "array": above, "arrayminus": below, "color": INK, "thickness": 1.5, "width": 4,
        });
        self.data.push(trace);
        self
    }

    fn trace(&self, name: &str, style: Style, values: &[f64], intervals: &[[f64; 2]]) -> Value {
        let say = |(i, (category, value)): (usize, (&String, &f64))| {
            hover([name, category, &self.axis.reading(*value, intervals.get(i).copied())])
        };
        json!({
            "type": "bar", "orientation": "h", "name": literal(name), "x": values, "y": literals(&self.categories),
            "marker": {"color": style.color()},
            "hovertext": self.categories.iter().zip(values).enumerate().map(say).collect::<Vec<_>>(),
            "hovertemplate": "%{hovertext}<extra></extra>",
        })
    }
}

impl From<Bars> for Plot {
    fn from(chart: Bars) -> Self {
        let bars = chart.categories.len() * if chart.stacked { 1 } else { chart.data.len() };
        let height = 110 + 8 * chart.categories.len() as u32 + 20 * bars as u32;
        let layout = json!({
            "barmode": if chart.stacked { "stack" } else { "group" },
            "bargap": 0.25,
            "xaxis": chart.axis.layout(),
            "yaxis": {"automargin": true, "autorange": "reversed", "type": "category", "tickfont": {"color": INK}, "linecolor": MUTED},
        });
        Self::new(chart.data, layout, height)
    }
}
