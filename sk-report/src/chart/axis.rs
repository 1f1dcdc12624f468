use serde_json::{Value, json};

use super::palette::{GRID, MUTED};
use super::plot::literal;
use crate::stats::Interval;

/// A chart axis: its title with the unit, its range and its scale.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// The name of the quantity and its unit.
    pub title: String,
    /// The lowest and the highest value; `None` for a range that fits the data.
    pub range: Option<[f64; 2]>,
    /// Whether the axis is logarithmic, with a tick at every power of ten.
    pub log: bool,
    /// Whether values are printed as per cent.
    pub percent: bool,
}

impl Axis {
    /// Creates a linear axis whose range fits the data.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), range: None, log: false, percent: false }
    }

    /// Returns the plotly.js object of an axis of a two-dimensional chart.
    pub(super) fn layout(&self) -> Value {
        self.divided(json!({
            "title": {"text": literal(&self.title), "standoff": 8, "font": {"color": MUTED}},
            "automargin": true,
            "nticks": 6,
            "tickangle": 0,
            "gridcolor": GRID,
            "zerolinecolor": MUTED,
            "linecolor": MUTED,
            "tickfont": {"color": MUTED},
        }))
    }

    /// Returns the plotly.js object of an axis of a three-dimensional scene.
    pub(super) fn scene(&self) -> Value {
        self.divided(json!({
            "title": {"text": literal(&self.title), "font": {"color": MUTED, "size": 12}},
            "gridcolor": GRID,
            "zerolinecolor": GRID,
            "linecolor": MUTED,
            "tickfont": {"color": MUTED, "size": 10},
            "nticks": 5,
            "showbackground": false,
            "showspikes": true,
            "spikecolor": MUTED,
            "spikesides": false,
        }))
    }

    pub(super) fn print(&self, value: f64) -> String {
        let text = if !value.is_finite() {
            return "none".to_owned();
        } else if self.percent {
            format!("{:.1}%", 100.0 * value)
        } else if value.abs() >= 1000.0 || value.fract() == 0.0 {
            format!("{value:.0}")
        } else if value.abs() < 0.001 {
            format!("{value:.1e}")
        } else {
            format!("{value:.3}")
        };
        text.replace('-', "−")
    }

    /// Formats a value for a tooltip: the title, the value and its 95% confidence interval, if
    /// there is one.
    pub(super) fn reading(&self, value: f64, interval: Interval) -> String {
        let text = format!("{}: {}", self.title, self.print(value));
        if interval.is_none() {
            return text;
        }
        format!("{text}, 95% interval [{}, {}]", self.print(interval.low), self.print(interval.high))
    }

    /// Adds scale, range and ticks to the object of an axis.
    fn divided(&self, mut axis: Value) -> Value {
        if self.log {
            axis["type"] = json!("log");
            axis["exponentformat"] = json!("power");
            axis["dtick"] = json!(1);
        }
        if self.percent {
            axis["tickformat"] = json!(".0%");
        }
        if let Some(range) = self.range {
            axis["range"] = json!(if self.log { range.map(f64::log10) } else { range });
        }
        axis
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_names_what_is_read_and_its_interval() {
        let axis = Axis::new("quality (0 to 1)");
        assert_eq!(axis.reading(0.5, Interval::around(0.5, 0.25)), "quality (0 to 1): 0.500, 95% interval [0.250, 0.750]");
        assert_eq!(axis.reading(-0.5, Interval::NONE), "quality (0 to 1): −0.500");
        assert_eq!(Axis { percent: true, ..Axis::new("share") }.reading(0.125, Interval::NONE), "share: 12.5%");
        assert_eq!([0.0, 12.0, 12_345.6, 0.000_25, f64::NAN].map(|x| axis.print(x)), ["0", "12", "12346", "2.5e−4", "none"]);
    }
}
