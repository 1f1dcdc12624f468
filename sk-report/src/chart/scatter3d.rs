use serde_json::{Value, json};

use super::palette::{series_color, symbol};
use super::plot::{literal, literals};
use super::{Axis, Plot};

/// Points in three dimensions, which the reader can turn.
#[derive(Debug, Clone, PartialEq)]
pub struct Scatter3d {
    axes: [Axis; 3],
    data: Vec<Value>,
}

impl Scatter3d {
    /// No points yet.
    pub fn new(axes: [Axis; 3]) -> Self {
        Self { axes, data: Vec::new() }
    }

    /// Adds a series: points, and what each is called when pointed at. Series are alike in length;
    /// the shorter decides.
    #[must_use]
    pub fn series(mut self, name: &str, points: &[[f64; 3]], labels: &[String]) -> Self {
        let i = self.data.len();
        let [x, y, z] = std::array::from_fn(|axis| points.iter().map(|point| point[axis]).collect::<Vec<_>>());
        let [fx, fy, fz] = self.axes.each_ref().map(Axis::format);
        self.data.push(json!({
            "type": "scatter3d", "mode": "markers", "name": literal(name), "x": x, "y": y, "z": z, "text": literals(labels),
            "marker": {"color": series_color(i), "symbol": symbol(i), "size": 5, "opacity": 0.9},
            "hovertemplate": format!("%{{fullData.name}}, %{{text}}<br>%{{x:{fx}}} / %{{y:{fy}}} / %{{z:{fz}}}<extra></extra>"),
        }));
        self
    }
}

impl From<Scatter3d> for Plot {
    fn from(chart: Scatter3d) -> Self {
        let [x, y, z] = chart.axes.each_ref().map(Axis::scene);
        let layout = json!({
            "scene": {
                "xaxis": x, "yaxis": y, "zaxis": z, "aspectmode": "cube", "dragmode": "turntable",
                "camera": {"eye": {"x": 1.5, "y": 1.5, "z": 0.9}, "center": {"x": 0, "y": 0, "z": -0.12}},
            },
            "margin": {"l": 0, "r": 0, "t": 8, "b": 0},
        });
        Self { scene: true, ..Self::new(chart.data, layout, 540) }
    }
}
