use serde_json::{Value, json};

use super::palette::{INK, MUTED, dash, faded, series_color, symbol};
use super::plot::{literal, literals};
use super::{Axis, Plot};

/// One series of [`Lines`].
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    name: String,
    x: Vec<f64>,
    y: Vec<f64>,
    mode: &'static str,
    labels: Vec<String>,
    band: Option<(Vec<f64>, Vec<f64>)>,
    steps: bool,
}

impl Series {
    /// A line through points, in their order; NaN interrupts it.
    pub fn line(name: &str, x: &[f64], y: &[f64]) -> Self {
        Self {
            name: name.to_owned(),
            x: x.to_vec(),
            y: y.to_vec(),
            mode: if x.len() > 40 { "lines" } else { "lines+markers" },
            labels: Vec::new(),
            band: None,
            steps: false,
        }
    }

    /// Points by themselves.
    pub fn points(name: &str, x: &[f64], y: &[f64]) -> Self {
        Self { mode: "markers", ..Self::line(name, x, y) }
    }

    /// A line that stays level until the next point: a distribution function.
    pub fn steps(name: &str, x: &[f64], y: &[f64]) -> Self {
        Self { mode: "lines", steps: true, ..Self::line(name, x, y) }
    }

    /// What each point is called when pointed at.
    #[must_use]
    pub fn labelled(mut self, labels: &[String]) -> Self {
        self.labels = labels.to_vec();
        self
    }

    /// Shades from `low` to `high`, one of each per point.
    #[must_use]
    pub fn band(mut self, low: &[f64], high: &[f64]) -> Self {
        self.band = Some((low.to_vec(), high.to_vec()));
        self
    }
}

/// Lines, points and bands over two axes.
#[derive(Debug, Clone, PartialEq)]
pub struct Lines {
    x: Axis,
    y: Axis,
    series: Vec<Series>,
    rules: Vec<(f64, String)>,
}

impl Lines {
    /// Empty axes.
    pub fn new(x: Axis, y: Axis) -> Self {
        Self { x, y, series: Vec::new(), rules: Vec::new() }
    }

    /// Adds a series.
    #[must_use]
    pub fn series(mut self, series: Series) -> Self {
        self.series.push(series);
        self
    }

    /// Draws a level line across, such as a bound, with its name.
    #[must_use]
    pub fn rule(mut self, y: f64, name: &str) -> Self {
        self.rules.push((y, name.to_owned()));
        self
    }

    fn traces(&self, i: usize, series: &Series) -> Vec<Value> {
        let Series { name, x, y, mode, labels, band, steps } = series;
        let (fx, fy) = (self.x.format(), self.y.format());
        let label = if labels.is_empty() { "" } else { ", %{text}" };
        let mut traces = Vec::new();
        if let Some((low, high)) = band {
            // One outline: there along the upper end, back along the lower.
            let round: Vec<f64> = x.iter().chain(x.iter().rev()).copied().collect();
            let edge: Vec<f64> = high.iter().chain(low.iter().rev()).copied().collect();
            traces.push(json!({
                "type": "scatter", "mode": "lines", "x": round, "y": edge, "fill": "toself", "fillcolor": faded(i, 0.18),
                "line": {"width": 0, "color": faded(i, 0.18)}, "hoverinfo": "skip", "showlegend": false, "legendgroup": literal(name),
            }));
        }
        traces.push(json!({
            "type": "scatter", "mode": mode, "name": literal(name), "x": x, "y": y, "text": literals(labels), "legendgroup": literal(name),
            "line": {"color": series_color(i), "width": 2, "dash": dash(i), "shape": if *steps { "hv" } else { "linear" }},
            "marker": {"color": series_color(i), "symbol": symbol(i), "size": 8},
            "hovertemplate": format!("%{{fullData.name}}{label}<br>%{{x:{fx}}}, %{{y:{fy}}}<extra></extra>"),
        }));
        traces
    }
}

impl From<Lines> for Plot {
    fn from(chart: Lines) -> Self {
        let data: Vec<Value> = chart.series.iter().enumerate().flat_map(|(i, series)| chart.traces(i, series)).collect();
        let (shapes, notes): (Vec<Value>, Vec<Value>) = chart
            .rules
            .iter()
            .map(|(y, name)| {
                let line = json!({
                    "type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": y, "y1": y,
                    "line": {"color": MUTED, "width": 1, "dash": "dot"},
                });
                let note = json!({
                    "xref": "paper", "x": 1, "xanchor": "right", "y": y, "yanchor": "bottom", "text": literal(name), "showarrow": false,
                    "font": {"color": INK, "size": 11},
                });
                (line, note)
            })
            .unzip();
        let plain = |axis: &Axis| {
            let mut layout = axis.layout();
            layout["zeroline"] = json!(false);
            layout
        };
        let layout = json!({
            "xaxis": plain(&chart.x), "yaxis": plain(&chart.y), "hovermode": "closest", "shapes": shapes, "annotations": notes,
        });
        Self::new(data, layout, 380)
    }
}
