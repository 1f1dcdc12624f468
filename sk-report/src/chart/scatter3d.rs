use serde_json::{Value, json};

use super::plot::{hover, literal};
use super::{Axis, Plot, Style};
use crate::stats::front;

/// Pixels across the mark of a point on the front, and of one that is dominated.
const SIZES: [u32; 2] = [8, 4];

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

    /// Adds a series: points, and what each is called when pointed at. Points that no other of the
    /// series dominates, larger being better on every axis, are drawn larger.
    #[must_use]
    pub fn series(mut self, name: &str, style: Style, points: &[[f64; 3]], labels: &[String]) -> Self {
        let [x, y, z] = std::array::from_fn(|axis| points.iter().map(|point| point[axis]).collect::<Vec<_>>());
        let front = front(points);
        let sizes: Vec<u32> = (0..points.len()).map(|i| SIZES[usize::from(!front.contains(&i))]).collect();
        let say = |(i, (point, label)): (usize, (&[f64; 3], &String))| {
            let [x, y, z] = std::array::from_fn(|k| self.axes[k].reading(point[k], None));
            hover([name, label, &x, &y, &z, if front.contains(&i) { "on the Pareto front of its method" } else { "dominated" }])
        };
        self.data.push(json!({
            "type": "scatter3d", "mode": "markers", "name": literal(name), "x": x, "y": y, "z": z,
            "hovertext": points.iter().zip(labels).enumerate().map(say).collect::<Vec<_>>(),
            "marker": {"color": style.color(), "symbol": style.symbol(), "size": sizes, "opacity": 0.9},
            "hovertemplate": "%{hovertext}<extra></extra>",
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
