use serde_json::{Value, json};

use super::palette::{INK, MUTED};
use super::plot::{HOVER, error_bars, hover, literal};
use super::{Axis, Plot, Style};
use crate::stats::{Interval, front};

/// One series of [`Lines`]. It starts as [`line`](Self::line), [`points`](Self::points) or
/// [`steps`](Self::steps).
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// The name in the legend.
    pub name: String,
    /// The horizontal coordinates of the points.
    pub x: Vec<f64>,
    /// The vertical coordinates of the points.
    pub y: Vec<f64>,
    /// What is drawn, as plotly.js names it: `lines`, `markers` or `lines+markers`.
    pub mode: &'static str,
    /// Whether lines are constant until the next point.
    pub steps: bool,
    /// The tooltip title of each point; empty if there are none.
    pub labels: Vec<String>,
    /// The lower and the upper edge of a shaded area, with one value per point each.
    pub band: Option<[Vec<f64>; 2]>,
    /// The confidence intervals of the points along x and along y; empty if there are none.
    pub intervals: [Vec<Interval>; 2],
    /// Whether the Pareto front of the series is drawn as a staircase. Larger is better on both
    /// axes.
    pub front: bool,
    /// The style; `None` for the hue of the index of the series.
    pub style: Option<Style>,
}

impl Series {
    /// Creates a line through the points in the given order; NaN interrupts it.
    pub fn line(name: &str, x: Vec<f64>, y: Vec<f64>) -> Self {
        Self {
            name: name.to_owned(),
            mode: if x.len() > 40 { "lines" } else { "lines+markers" },
            x,
            y,
            steps: false,
            labels: Vec::new(),
            band: None,
            intervals: [Vec::new(), Vec::new()],
            front: false,
            style: None,
        }
    }

    /// Creates unconnected points.
    pub fn points(name: &str, x: Vec<f64>, y: Vec<f64>) -> Self {
        Self { mode: "markers", ..Self::line(name, x, y) }
    }

    /// Creates a step function that is constant until the next point, such as a distribution
    /// function.
    pub fn steps(name: &str, x: Vec<f64>, y: Vec<f64>) -> Self {
        Self { mode: "lines", steps: true, ..Self::line(name, x, y) }
    }
}

/// A two-dimensional chart of lines, points and bands.
#[derive(Debug, Clone, PartialEq)]
pub struct Lines {
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The series.
    pub series: Vec<Series>,
    /// A labelled horizontal line, such as a bound.
    pub rule: Option<(f64, String)>,
}

impl Lines {
    /// Creates a chart without a rule.
    pub fn new(x: Axis, y: Axis, series: Vec<Series>) -> Self {
        Self { x, y, series, rule: None }
    }

    fn traces(&self, i: usize, series: &Series) -> Vec<Value> {
        let Series { name, x, y, mode, labels, band, intervals: [across, along], steps, .. } = series;
        let style = series.style.unwrap_or(Style::Hue(i));
        let line = |x: &[f64], y: &[f64]| {
            json!({
                "type": "scatter", "mode": "lines", "x": x, "y": y, "hoverinfo": "skip", "showlegend": false, "legendgroup": literal(name),
            })
        };
        let mut traces = Vec::new();
        if let Some([low, high]) = band {
            // One closed outline: forward along the upper edge, back along the lower edge.
            let round: Vec<f64> = x.iter().chain(x.iter().rev()).copied().collect();
            let edge: Vec<f64> = high.iter().chain(low.iter().rev()).copied().collect();
            let mut outline = line(&round, &edge);
            outline["fill"] = json!("toself");
            outline["fillcolor"] = json!(style.faded(0.18));
            outline["line"] = json!({"width": 0, "color": style.faded(0.18)});
            traces.push(outline);
        }
        if series.front {
            let (x, y) = staircase(x, y);
            let mut stairs = line(&x, &y);
            stairs["line"] = json!({"color": style.color(), "width": 1.5, "dash": style.dash(), "shape": "vh"});
            traces.push(stairs);
        }
        let say = |i: usize| {
            let at = |axis: &Axis, value: f64, intervals: &[Interval]| {
                axis.reading(value, intervals.get(i).copied().unwrap_or(Interval::NONE))
            };
            let label = labels.get(i).map_or("", String::as_str);
            hover([name, label, &at(&self.x, x[i], across), &at(&self.y, y[i], along)])
        };
        let mut trace = json!({
            "type": "scatter", "mode": mode, "name": literal(name), "x": x, "y": y, "legendgroup": literal(name),
            "line": {"color": style.color(), "width": 2, "dash": style.dash(), "shape": if *steps { "hv" } else { "linear" }},
            "marker": {"color": style.color(), "symbol": style.symbol(), "size": 8},
            "hovertext": (0..x.len().min(y.len())).map(say).collect::<Vec<_>>(), "hovertemplate": HOVER,
        });
        for (name, values, intervals) in [("error_x", x, across), ("error_y", y, along)] {
            if !intervals.is_empty() {
                let style = json!({"color": style.faded(0.35), "thickness": 1, "width": 0});
                trace[name] = error_bars(style, values, intervals);
            }
        }
        traces.push(trace);
        traces
    }
}

/// Returns the points that no other point dominates, in ascending order of x.
fn staircase(x: &[f64], y: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let points: Vec<[f64; 2]> =
        x.iter().zip(y).map(|(&x, &y)| [x, y]).filter(|point| !point[0].is_nan() && !point[1].is_nan()).collect();
    let mut corners: Vec<[f64; 2]> = front(&points).into_iter().map(|i| points[i]).collect();
    corners.sort_by(|a, b| a[0].total_cmp(&b[0]));
    corners.into_iter().map(|[x, y]| (x, y)).unzip()
}

impl From<Lines> for Plot {
    fn from(chart: Lines) -> Self {
        let data: Vec<Value> = chart.series.iter().enumerate().flat_map(|(i, series)| chart.traces(i, series)).collect();
        let rules = chart.rule.as_slice();
        let shape = |(y, _): &(f64, String)| {
            json!({
                "type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": y, "y1": y,
                "line": {"color": MUTED, "width": 1, "dash": "dot"},
            })
        };
        let note = |(y, name): &(f64, String)| {
            json!({
                "xref": "paper", "x": 1, "xanchor": "right", "y": y, "yanchor": "bottom", "text": literal(name), "showarrow": false,
                "font": {"color": INK, "size": 11},
            })
        };
        let plain = |axis: &Axis| {
            let mut layout = axis.layout();
            layout["zeroline"] = json!(false);
            layout
        };
        let layout = json!({
            "xaxis": plain(&chart.x), "yaxis": plain(&chart.y), "hovermode": "closest",
            "shapes": rules.iter().map(shape).collect::<Vec<_>>(), "annotations": rules.iter().map(note).collect::<Vec<_>>(),
        });
        Self::new(data, layout, 380)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_front_goes_through_what_is_not_dominated() {
        let (x, y) = ([0.9, 0.1, 0.5, 0.4, f64::NAN], [0.1, 0.9, 0.5, 0.4, 1.0]);
        assert_eq!(staircase(&x, &y), (vec![0.1, 0.5, 0.9], vec![0.9, 0.5, 0.1]));
        let series = Series { front: true, style: Some(Style::Hue(3)), ..Series::points("a", x.to_vec(), y.to_vec()) };
        let plot = Plot::from(Lines::new(Axis::new("x"), Axis::new("y"), vec![series]));
        let [stairs, points] = &plot.data[..] else { panic!("{:?}", plot.data) };
        assert_eq!((&stairs["x"], &stairs["line"]["shape"]), (&json!([0.1, 0.5, 0.9]), &json!("vh")));
        assert_eq!((&stairs["line"]["color"], &points["marker"]["color"]), (&json!("@3"), &json!("@3")));
        assert_eq!(plot.layout["showlegend"], json!(false), "the front has no entry of its own");
    }

    #[test]
    fn an_interval_is_drawn_and_read() {
        let intervals = [vec![Interval { low: 0.375, high: 0.75 }], vec![Interval { low: 0.0, high: 0.5 }]];
        let labels = vec!["all on calm".to_owned()];
        let series = Series { labels, intervals, ..Series::points("ours", vec![0.5], vec![0.25]) };
        let (x, y) = (Axis::new("calm (0 to 1)"), Axis::new("terse (0 to 1)"));
        let plot = Plot::from(Lines::new(x, y, vec![series]));
        let trace = &plot.data[0];
        assert_eq!((&trace["error_x"]["array"], &trace["error_x"]["arrayminus"]), (&json!([0.25]), &json!([0.125])));
        assert_eq!((&trace["error_y"]["array"], &trace["error_y"]["arrayminus"]), (&json!([0.25]), &json!([0.25])));
        let said = "<b>ours</b><br>all on calm<br>calm (0 to 1): 0.500, 95% interval [0.375, 0.750]<br>\
                    terse (0 to 1): 0.250, 95% interval [0, 0.500]";
        assert_eq!(trace["hovertext"], json!([said]));
    }
}
