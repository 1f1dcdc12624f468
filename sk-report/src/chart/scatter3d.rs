use serde_json::{Value, json};

use super::plot::{HOVER, hover, literal};
use super::{Axis, Plot, Style};
use crate::stats::{Interval, front};

/// Marker sizes in pixels: of a point on the Pareto front, and of a dominated point.
const SIZES: [u32; 2] = [8, 4];

/// A three-dimensional scatter plot that the reader can rotate.
#[derive(Debug, Clone, PartialEq)]
pub struct Scatter3d {
    axes: [Axis; 3],
    data: Vec<Value>,
}

impl Scatter3d {
    /// Creates an empty plot.
    pub fn new(axes: [Axis; 3]) -> Self {
        Self { axes, data: Vec::new() }
    }

    /// Adds a series of points with their tooltip titles. Points on the Pareto front of the series
    /// are drawn larger; larger is better on every axis.
    #[must_use]
    pub fn series(mut self, name: &str, style: Style, points: &[[f64; 3]], labels: &[String]) -> Self {
        let [x, y, z] = std::array::from_fn(|axis| points.iter().map(|point| point[axis]).collect::<Vec<_>>());
        let front = front(points);
        let sizes: Vec<u32> = (0..points.len()).map(|i| SIZES[usize::from(!front.contains(&i))]).collect();
        let say = |(i, (point, label)): (usize, (&[f64; 3], &String))| {
            let [x, y, z] = std::array::from_fn(|k| self.axes[k].reading(point[k], Interval::NONE));
            hover([name, label, &x, &y, &z, if front.contains(&i) { "on the Pareto front of its method" } else { "dominated" }])
        };
        self.data.push(json!({
            "type": "scatter3d", "mode": "markers", "name": literal(name), "x": x, "y": y, "z": z,
            "hovertext": points.iter().zip(labels).enumerate().map(say).collect::<Vec<_>>(),
            "marker": {"color": style.color(), "symbol": style.symbol(), "size": sizes, "opacity": 0.9},
            "hovertemplate": HOVER,
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
