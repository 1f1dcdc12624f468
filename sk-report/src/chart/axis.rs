use serde_json::{Value, json};

use super::palette::{GRID, MUTED};
use super::plot::literal;

/// An axis: what it measures, with its unit, and how it is divided.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    title: String,
    range: Option<[f64; 2]>,
    log: bool,
    percent: bool,
}

impl Axis {
    /// A linear axis over whatever there is. The title names quantity and unit.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), range: None, log: false, percent: false }
    }

    /// From here to there.
    #[must_use]
    pub fn range(mut self, range: [f64; 2]) -> Self {
        self.range = Some(range);
        self
    }

    /// Divided by powers of ten.
    #[must_use]
    pub fn log(mut self) -> Self {
        self.log = true;
        self
    }

    /// Shares, printed as per cent.
    #[must_use]
    pub fn percent(mut self) -> Self {
        self.percent = true;
        self
    }

    /// As plotly.js reads an axis of two dimensions.
    pub(super) fn layout(&self) -> Value {
        let mut axis = json!({
            "title": {"text": literal(&self.title), "standoff": 8, "font": {"color": MUTED}},
            "automargin": true,
            "nticks": 6,
            "tickangle": 0,
            "gridcolor": GRID,
            "zerolinecolor": MUTED,
            "linecolor": MUTED,
            "tickfont": {"color": MUTED},
        });
        self.divide(&mut axis);
        axis
    }

    /// As plotly.js reads an axis of a scene.
    pub(super) fn scene(&self) -> Value {
        let mut axis = json!({
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
        });
        self.divide(&mut axis);
        axis
    }

    /// How hovering prints a value.
    pub(super) fn format(&self) -> &'static str {
        if self.percent { ".1%" } else { ".4~g" }
    }

    fn divide(&self, axis: &mut Value) {
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
    }
}
