use serde_json::{Value, json};

use super::Plot;
use super::palette::{GRID, INK, MUTED, SEQUENTIAL, series_color, symbol};
use super::plot::{literal, literals};

/// Up to this many points carry their values in writing.
const WRITTEN: usize = 10;

/// Points of the probability simplex in three coordinates.
#[derive(Debug, Clone, PartialEq)]
pub struct Ternary {
    corners: [String; 3],
    data: Vec<Value>,
}

impl Ternary {
    /// An empty triangle: the coordinate that is 1 at the top, at the left, and at the right.
    pub fn new(corners: [&str; 3]) -> Self {
        Self { corners: corners.map(literal), data: Vec::new() }
    }

    /// Adds points of one colour, and what each is called when pointed at.
    #[must_use]
    pub fn series(mut self, name: &str, points: &[[f64; 3]], labels: &[String]) -> Self {
        let i = self.data.len();
        let marker = json!({"color": series_color(i), "symbol": symbol(i), "size": 10});
        self.data.push(self.trace(name, points, labels, &marker));
        self
    }

    /// Adds points whose colour is a value on a scale.
    #[must_use]
    pub fn colored(mut self, name: &str, points: &[[f64; 3]], values: &[f64], range: [f64; 2], labels: &[String]) -> Self {
        let marker = json!({
            "color": values, "cmin": range[0], "cmax": range[1], "colorscale": SEQUENTIAL, "size": if points.len() > WRITTEN { 13 } else { 18 },
            "line": {"color": MUTED, "width": 1},
            "colorbar": {"orientation": "h", "thickness": 10, "len": 0.8, "y": -0.22, "yanchor": "top", "nticks": 4, "outlinewidth": 0,
                         "tickfont": {"color": MUTED}, "title": {"text": literal(name), "side": "bottom", "font": {"color": MUTED}}},
        });
        let mut trace = self.trace(name, points, labels, &marker);
        if points.len() <= WRITTEN {
            trace["mode"] = json!("markers+text");
            trace["texttemplate"] = json!("%{customdata}");
            trace["customdata"] = json!(values.iter().map(|value| format!("{value:.2}")).collect::<Vec<_>>());
            trace["textposition"] = json!("top center");
            trace["textfont"] = json!({"color": INK, "size": 11});
            trace["cliponaxis"] = json!(false);
        }
        self.data.push(trace);
        self
    }

    fn trace(&self, name: &str, points: &[[f64; 3]], labels: &[String], marker: &Value) -> Value {
        let [a, b, c] = std::array::from_fn(|k| points.iter().map(|point| point[k]).collect::<Vec<_>>());
        // In a template `%{` would refer to something.
        let [top, left, right] = self.corners.each_ref().map(|corner| corner.replace("%{", "&#37;{"));
        json!({
            "type": "scatterternary", "mode": "markers", "name": literal(name), "a": a, "b": b, "c": c, "text": literals(labels),
            "marker": marker, "cliponaxis": false,
            "hovertemplate":
                format!("%{{text}}<br>{top} %{{a:.2f}}, {left} %{{b:.2f}}, {right} %{{c:.2f}}<extra></extra>"),
        })
    }
}

impl From<Ternary> for Plot {
    fn from(chart: Ternary) -> Self {
        let [a, b, c] = chart.corners.map(|corner| {
            json!({
                "title": {"text": corner, "font": {"color": INK, "size": 12}}, "min": 0, "nticks": 4, "ticksuffix": "",
                "gridcolor": GRID, "linecolor": MUTED, "tickfont": {"color": MUTED, "size": 10}, "tickformat": ".1f",
            })
        });
        let layout = json!({
            "ternary": {"sum": 1, "aaxis": a, "baxis": b, "caxis": c, "bgcolor": super::palette::NONE},
            "margin": {"l": 44, "r": 44, "t": 40, "b": 24},
        });
        Self::new(chart.data, layout, 360)
    }
}
