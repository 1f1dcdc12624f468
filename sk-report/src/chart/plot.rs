use serde::Serialize;
use serde_json::{Value, json};

use super::palette::{INK, MUTED, NONE, PAPER};
use crate::stats::Interval;

/// A chart as plotly.js reads it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Plot {
    pub(super) data: Vec<Value>,
    pub(super) layout: Value,
    /// The height in pixels.
    pub(super) height: u32,
    /// Whether the chart is drawn on a canvas, which printers may leave blank.
    pub(super) scene: bool,
}

impl Plot {
    /// Creates a plot of this height. `own` overrides entries of the common layout.
    pub(super) fn new(data: Vec<Value>, own: Value, height: u32) -> Self {
        let mut layout = json!({
            "autosize": true,
            "height": height,
            // The right margin is half a tick label wide, because text beyond the edge is clipped.
            "margin": {"l": 8, "r": 28, "t": 12, "b": 8, "pad": 2},
            "paper_bgcolor": NONE,
            "plot_bgcolor": NONE,
            "font": {"family": "system-ui, sans-serif", "size": 12, "color": INK},
            "hoverlabel": {"bgcolor": PAPER, "bordercolor": MUTED, "font": {"color": INK}, "align": "left", "namelength": -1},
            "modebar": {"bgcolor": PAPER, "color": MUTED, "activecolor": INK},
            "legend": {"orientation": "h", "traceorder": "normal", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom", "font": {"color": INK}},
            "showlegend": data.iter().filter(|trace| trace["showlegend"] != json!(false)).count() > 1,
        });
        if let (Value::Object(layout), Value::Object(own)) = (&mut layout, own) {
            layout.extend(own);
        }
        Self { data, layout, height, scene: false }
    }
}

/// Escapes text so that plotly.js does not parse it as markup.
pub(super) fn literal(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The template of every tooltip: its text and nothing else.
pub(super) const HOVER: &str = "%{hovertext}<extra></extra>";

/// Adds the confidence intervals of a series to the style of its error bars.
pub(super) fn error_bars(mut style: Value, values: &[f64], intervals: &[Interval]) -> Value {
    let lengths = |of: fn((&f64, &Interval)) -> f64| json!(values.iter().zip(intervals).map(of).collect::<Vec<_>>());
    (style["type"], style["symmetric"]) = (json!("data"), json!(false));
    style["array"] = lengths(|(value, interval)| interval.high - value);
    style["arrayminus"] = lengths(|(value, interval)| value - interval.low);
    style
}

/// Builds a tooltip with one line per line of the texts. The first line is bold; empty lines are
/// left out.
pub(super) fn hover<const N: usize>(texts: [&str; N]) -> String {
    let mut lines = texts.into_iter().flat_map(str::lines).filter(|line| !line.is_empty()).map(literal);
    let first = lines.next().map(|first| format!("<b>{first}</b>"));
    first.into_iter().chain(lines).collect::<Vec<_>>().join("<br>")
}

/// Escapes several texts as [`literal`] does.
pub(super) fn literals(texts: &[String]) -> Vec<String> {
    texts.iter().map(|text| literal(text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_is_text() {
        assert_eq!(literal("a <b>&</b>"), "a &lt;b&gt;&amp;&lt;/b&gt;");
    }

    #[test]
    fn what_hovers_is_text_in_lines() {
        assert_eq!(hover(["a<b", "", "c\nd"]), "<b>a&lt;b</b><br>c<br>d");
    }

    #[test]
    fn a_legend_is_for_more_than_one_series() {
        let of = |data: Vec<Value>| Plot::new(data, json!({"height": 3}), 1);
        assert_eq!(of(vec![json!({"name": "a"})]).layout["showlegend"], json!(false));
        assert_eq!(of(vec![json!({"name": "a"}), json!({"showlegend": false})]).layout["showlegend"], json!(false));
        assert_eq!(of(vec![json!({}), json!({})]).layout["showlegend"], json!(true));
        assert_eq!(of(Vec::new()).layout["height"], json!(3), "what a chart asks for goes before");
    }
}
