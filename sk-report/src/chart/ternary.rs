use serde_json::{Value, json};

use super::palette::{BRIGHT, DARK, GRID, INK, MUTED, NONE, SEQUENTIAL};
use super::plot::{HOVER, hover, literal};
use super::{Plot, Style};

/// The most points whose values are written on them.
const WRITTEN: usize = 10;

/// A ternary plot: points of the probability simplex in three coordinates.
#[derive(Debug, Clone, PartialEq)]
pub struct Ternary {
    corners: [String; 3],
    data: Vec<Value>,
}

impl Ternary {
    /// Creates an empty plot. `corners` name the coordinates that are 1 at the top, at the left and
    /// at the right.
    pub fn new(corners: [&str; 3]) -> Self {
        Self { corners: corners.map(literal), data: Vec::new() }
    }

    /// Adds points of one colour with their tooltip titles.
    #[must_use]
    pub fn series(mut self, name: &str, points: &[[f64; 3]], labels: &[String]) -> Self {
        let style = Style::Hue(self.data.len());
        let marker = json!({"color": style.color(), "symbol": style.symbol(), "size": 10});
        let said: Vec<String> = labels.iter().map(|label| hover([name, label])).collect();
        self.data.push(self.trace(name, points, &said, &marker));
        self
    }

    /// Adds points coloured by value on a scale over `range`. `labels` are the tooltips, whose
    /// first line is bold.
    #[must_use]
    pub fn colored(mut self, name: &str, points: &[[f64; 3]], values: &[f64], range: [f64; 2], labels: &[String]) -> Self {
        let written = points.len() <= WRITTEN;
        let marker = json!({
            "color": values, "cmin": range[0], "cmax": range[1], "colorscale": SEQUENTIAL, "size": if written { 34 } else { 13 },
            "line": {"color": MUTED, "width": 1},
            "colorbar": {"orientation": "h", "thickness": 10, "len": 0.8, "y": -0.24, "yanchor": "top", "nticks": 3, "outlinewidth": 0,
                         "tickfont": {"color": MUTED}, "title": {"text": literal(name), "side": "bottom", "font": {"color": MUTED}}},
        });
        let said: Vec<String> = labels.iter().map(|label| hover([label])).collect();
        let mut trace = self.trace(name, points, &said, &marker);
        if written {
            let middle = f64::midpoint(range[0], range[1]);
            trace["mode"] = json!("markers+text");
            trace["texttemplate"] = json!("%{customdata}");
            trace["customdata"] = json!(values.iter().map(|value| format!("{value:.2}")).collect::<Vec<_>>());
            trace["textposition"] = json!("middle center");
            let ink = values.iter().map(|&value| if value < middle { BRIGHT } else { DARK });
            trace["textfont"] = json!({"color": ink.collect::<Vec<_>>(), "size": 11});
        }
        self.data.push(trace);
        self
    }

    fn trace(&self, name: &str, points: &[[f64; 3]], said: &[String], marker: &Value) -> Value {
        let [a, b, c] = std::array::from_fn(|k| points.iter().map(|point| point[k]).collect::<Vec<_>>());
        json!({
            "type": "scatterternary", "mode": "markers", "name": literal(name), "a": a, "b": b, "c": c,
            "hovertext": said, "hovertemplate": HOVER,
            "marker": marker, "cliponaxis": false,
        })
    }
}

impl From<Ternary> for Plot {
    fn from(chart: Ternary) -> Self {
        // The label of the top corner would overlap a point there, so it is left out. The other
        // labels start with an empty line.
        let [top, left, right] = chart.corners;
        let [a, b, c] = [String::new(), format!(" <br>{left}"), format!(" <br>{right}")].map(|corner| {
            json!({
                "title": {"text": corner, "font": {"color": INK, "size": 12}}, "min": 0, "nticks": 4, "showticklabels": false, "ticks": "",
                "gridcolor": GRID, "linecolor": MUTED, "layer": "below traces",
            })
        });
        let name = json!({
            "text": top, "xref": "paper", "yref": "paper", "x": 0.5, "y": 1, "yanchor": "bottom", "yshift": 16, "showarrow": false,
            "font": {"color": INK, "size": 12},
        });
        let layout = json!({
            "ternary": {"sum": 1, "aaxis": a, "baxis": b, "caxis": c, "bgcolor": NONE},
            "annotations": [name],
            // There is no room above the triangle beside the label of its top corner.
            "legend": {"orientation": "h", "x": 0.5, "xanchor": "center", "y": -0.14, "yanchor": "top", "font": {"color": INK}},
            "margin": {"l": 56, "r": 56, "t": 44, "b": 24},
        });
        Self::new(chart.data, layout, 360)
    }
}
