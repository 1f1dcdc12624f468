use serde_json::{Value, json};

use super::palette::{INK, MUTED};
use super::plot::{HOVER, error_bars, hover, literal, literals};
use super::{Axis, Plot, Style};
use crate::stats::Interval;

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
    pub fn new<S: Into<String>>(categories: impl IntoIterator<Item = S>, axis: Axis) -> Self {
        Self { categories: categories.into_iter().map(Into::into).collect(), axis, stacked: false, data: Vec::new() }
    }

    /// Stacks the bars of a category instead of drawing them side by side.
    #[must_use]
    pub fn stacked(mut self) -> Self {
        self.stacked = true;
        self
    }

    /// Adds a series with one bar per category, and with their confidence intervals unless
    /// `intervals` is empty; NaN leaves a gap.
    ///
    /// # Panics
    /// If there is not one value, and one interval or none at all, per category.
    #[must_use]
    pub fn series(mut self, name: &str, style: Style, values: &[f64], intervals: &[Interval]) -> Self {
        let count = self.categories.len();
        assert!(values.len() == count && [0, count].contains(&intervals.len()), "{name}: one bar per category");
        let say = |(i, (category, value)): (usize, (&String, &f64))| {
            hover([name, category, &self.axis.reading(*value, intervals.get(i).copied().unwrap_or(Interval::NONE))])
        };
        let mut trace = json!({
            "type": "bar", "orientation": "h", "name": literal(name), "x": values, "y": literals(&self.categories),
            "marker": {"color": style.color(), "pattern": {"shape": style.pattern()}},
            "hovertext": self.categories.iter().zip(values).enumerate().map(say).collect::<Vec<_>>(),
            "hovertemplate": HOVER,
        });
        if !intervals.is_empty() {
            trace["error_x"] = error_bars(json!({"color": INK, "thickness": 1.5, "width": 4}), values, intervals);
        }
        self.data.push(trace);
        self
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
