use serde_json::json;

use super::palette::{GRID, INK, MUTED};
use super::plot::{HOVER, error_bars, hover, literal, literals};
use super::{Axis, Plot, Style};
use crate::stats::Interval;

/// The share of a row's height over which its series are spread.
const SPREAD: f64 = 0.5;

/// The estimates of a series, one per row.
type Estimates = Vec<(f64, Interval)>;

/// A forest plot: one row of estimates with confidence intervals each, and a line at zero.
#[derive(Debug, Clone, PartialEq)]
pub struct Intervals {
    rows: Vec<String>,
    axis: Axis,
    series: Vec<(String, Style, Estimates)>,
}

impl Intervals {
    /// Creates an empty plot. `rows` run from top to bottom; `axis` is the axis of the estimates.
    pub fn new<S: Into<String>>(rows: impl IntoIterator<Item = S>, axis: Axis) -> Self {
        Self { rows: rows.into_iter().map(Into::into).collect(), axis, series: Vec::new() }
    }

    /// Adds a series with one estimate and its confidence interval per row, NaN if there is none.
    /// Several series are drawn below each other within a row.
    ///
    /// # Panics
    /// If there is not one estimate per row.
    #[must_use]
    pub fn series(mut self, name: &str, style: Style, estimates: &[(f64, Interval)]) -> Self {
        assert_eq!(estimates.len(), self.rows.len(), "{name}: one estimate per row");
        self.series.push((name.to_owned(), style, estimates.to_vec()));
        self
    }
}

impl From<Intervals> for Plot {
    fn from(chart: Intervals) -> Self {
        let Intervals { rows, axis, series } = chart;
        let count = series.len().max(1) as f64;
        let mut data = Vec::new();
        for (i, (name, style, estimates)) in series.iter().enumerate() {
            let offset = ((i as f64 + 0.5) / count - 0.5) * SPREAD;
            let y: Vec<f64> = (0..estimates.len()).map(|row| row as f64 + offset).collect();
            let (values, intervals): (Vec<f64>, Vec<Interval>) = estimates.iter().copied().unzip();
            let said =
                rows.iter().zip(estimates).map(|(row, &(value, interval))| hover([row, name, &axis.reading(value, interval)]));
            data.push(json!({
                "type": "scatter", "mode": "markers", "name": literal(name), "y": y, "x": values,
                "hovertext": said.collect::<Vec<_>>(),
                "error_x": error_bars(json!({"thickness": 1.5, "width": 4, "color": style.color()}), &values, &intervals),
                "marker": {"color": style.color(), "symbol": style.symbol(), "size": 8},
                "hovertemplate": HOVER,
            }));
        }
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
