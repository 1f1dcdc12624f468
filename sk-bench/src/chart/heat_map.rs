use serde_json::{Value, json};

use super::Plot;
use super::palette::{DIVERGING, INK, MUTED, SEQUENTIAL};
use super::plot::{literal, literals};

/// Values of a table as colours, each written in its cell.
#[derive(Debug, Clone, PartialEq)]
pub struct HeatMap {
    columns: Vec<String>,
    rows: Vec<String>,
    values: Vec<Vec<f64>>,
    scale: String,
    range: Option<[f64; 2]>,
    signed: bool,
}

impl HeatMap {
    /// One row of `values` per row, from top to bottom, with one value per column; NaN leaves a gap. `scale` says what they are.
    pub fn new(columns: &[String], rows: &[String], values: &[Vec<f64>], scale: impl Into<String>) -> Self {
        let (columns, rows, values) = (columns.to_vec(), rows.to_vec(), values.to_vec());
        Self { columns, rows, values, scale: scale.into(), range: None, signed: false }
    }

    /// The values at the ends of the scale.
    #[must_use]
    pub fn range(mut self, range: [f64; 2]) -> Self {
        self.range = Some(range);
        self
    }

    /// One colour below zero and another above.
    #[must_use]
    pub fn signed(mut self) -> Self {
        self.signed = true;
        self
    }
}

impl From<HeatMap> for Plot {
    fn from(chart: HeatMap) -> Self {
        let HeatMap { columns, rows, values, scale, range, signed } = chart;
        let write = |value: &f64| match value {
            value if value.is_nan() => String::new(),
            value if signed => format!("{value:+.2}").replace('-', "−"),
            value => format!("{value:.3}"),
        };
        let written: Vec<Vec<String>> = values.iter().map(|row| row.iter().map(write).collect()).collect();
        let mut trace = json!({
            "type": "heatmap", "x": literals(&columns), "y": literals(&rows), "z": values, "xgap": 2, "ygap": 2, "hoverongaps": false,
            "colorscale": if signed { json!(DIVERGING) } else { json!(SEQUENTIAL) },
            "text": written, "texttemplate": "%{text}",
            "hovertemplate": "%{y}, %{x}: %{z:.4f}<extra></extra>",
            "colorbar": {"orientation": "h", "thickness": 10, "len": 0.6, "y": -0.06, "yanchor": "top", "outlinewidth": 0, "nticks": 5,
                         "tickfont": {"color": MUTED}, "title": {"text": literal(&scale), "side": "bottom", "font": {"color": MUTED}}},
        });
        let extent =
            || values.iter().flatten().fold(0.0_f64, |most, value| if value.is_nan() { most } else { most.max(value.abs()) });
        let ends = range.or_else(|| signed.then(|| [-extent(), extent()]));
        if let Some([low, high]) = ends {
            (trace["zmin"], trace["zmax"]) = (json!(low), json!(high));
        }
        let labels = |reversed: bool| -> Value {
            let mut axis =
                json!({"automargin": true, "type": "category", "tickfont": {"color": INK}, "showgrid": false, "ticks": ""});
            if reversed {
                axis["autorange"] = json!("reversed");
            } else {
                axis["side"] = json!("top");
            }
            axis
        };
        let layout = json!({"xaxis": labels(false), "yaxis": labels(true)});
        let height = 170 + 34 * rows.len() as u32;
        Self::new(vec![trace], layout, height)
    }
}
