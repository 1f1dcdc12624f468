use serde_json::{Value, json};

use super::palette::{GRID, INK, MUTED};
use super::plot::{hover, literal, literals};
use super::{Axis, Plot, Style};

/// The share of a row's height over which its series are spread.
const SPREAD: f64 = 0.5;

/// An estimate and its confidence interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The estimate; NaN if there is none.
    pub value: f64,
    /// The confidence interval, low end first; NaN if there is none.
    pub interval: [f64; 2],
}

/// A forest plot: one row of estimates with confidence intervals each, and a line at zero.
#[derive(Debug, Clone, PartialEq)]
pub struct Intervals {
    rows: Vec<String>,
    axis: Axis,
    series: Vec<(String, Style, Vec<Estimate>)>,
}

impl Intervals {
    /// Creates an empty plot. `rows` run from top to bottom; `axis` is the axis of the estimates.
    pub fn new(rows: &[String], axis: Axis) -> Self {
        Self { rows: rows.to_vec(), axis, series: Vec::new() }
    }

    /// Adds a series with one estimate per row. Several series are drawn below each other within a
    /// row.
    #[must_use]
    pub fn series(mut self, name: &str, style: Style, estimates: &[Estimate]) -> Self {
        self.series.push((name.to_owned(), style, estimates.to_vec()));
        self
    }
}

impl From<Intervals> for Plot {
    fn from(chart: Intervals) -> Self {
        let Intervals { rows, axis, series } = chart;
        let count = series.len().max(1) as f64;
        let trace = |(i, (name, style, estimates)): (usize, &(String, Style, Vec<Estimate>))| -> Value {
            let offset = ((i as f64 + 0.5) / count - 0.5) * SPREAD;
            let pairs = || estimates.iter();
            let y: Vec<f64> = (0..estimates.len()).map(|row| row as f64 + offset).collect();
            let say = |(row, e): (&String, &Estimate)| hover([row, name, &axis.reading(e.value, Some(e.interval))]);
            json!({
                "type": "scatter", "mode": "markers", "name": literal(name), "y": y,
                "x": pairs().map(|e| e.value).collect::<Vec<_>>(),
                "hovertext": rows.iter().zip(estimates).map(say).collect::<Vec<_>>(),
                "error_x": {
                    "type": "data", "symmetric": false, "thickness": 1.5, "width": 4, "color": style.color(),
                    "array": pairs().map(|e| e.interval[1] - e.value).collect::<Vec<_>>(),
                    "arrayminus": pairs().map(|e| e.value - e.interval[0]).collect::<Vec<_>>(),
                },
                "marker": {"color": style.color(), "symbol": style.symbol(), "size": 8},
                "hovertemplate": "%{hovertext}<extra></extra>",
            })
        };
        let data: Vec<Value> = series.iter().enumerate().map(trace).collect();
        let zero = json!({
            "type": "line", "xref": "x", "yref": "paper", "x0": 0, "x1": 0, "y0": 0, "y1": 1, "layer": "below",
            "line": {"color": MUTED, "width": 1, "dash": "dot"},
        });
        let layout = json!({
            "xaxis": axis.layout(),
            "yaxis": {
                "tickmode": "array", "tickvals": (0..rows.len()).collect::<Vec<_>>(), "ticktext": literals(&rows), "automargin": true,
                "range": [rows.len() as f64 - 0.5, -0.5], "gridcolor": GRID, "zeroline": false, "tickfont": {"color": INK},
            },
            "shapes": [zero],
        });
        let height = 110 + rows.len() as u32 * (18 + 14 * series.len() as u32);
        Self::new(data, layout, height)
    }
}
