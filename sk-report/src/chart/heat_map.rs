use serde_json::{Value, json};

use super::Plot;
use super::palette::{BRIGHT, DARK, DIVERGING, INK, MUTED, PAPER, SEQUENTIAL};
use super::plot::{HOVER, hover, literal, literals};
use crate::stats::extent;

/// The share of the largest absolute value above which a cell of the diverging scale is dark enough
/// that its text needs the paper colour. The same in the light and the dark theme.
const DEEP: f64 = 0.72;

/// The significance level: cells with a smaller p-value get a star.
const SIGNIFICANT: f64 = 0.05;

/// A table of values drawn as coloured cells, with the value written in each cell.
#[derive(Debug, Clone, PartialEq)]
pub struct HeatMap {
    /// The columns: their noun for tooltips, and their labels.
    pub columns: (String, Vec<String>),
    /// The rows, from top to bottom, as the columns.
    pub rows: (String, Vec<String>),
    /// One vector per row, with one value per column; NaN leaves a gap.
    pub values: Vec<Vec<f64>>,
    /// The title of the colour bar.
    pub scale: String,
    /// The p-value of each cell, corrected for the number of cells; NaN means that the cell was not
    /// tested. A star marks those below 0.05. The caption of the figure names the test.
    pub p: Vec<Vec<f64>>,
    /// The absolute value at both ends of a diverging colour scale around zero; `None` for a
    /// sequential scale over the range of the values.
    pub limit: Option<f64>,
}

impl From<HeatMap> for Plot {
    fn from(chart: HeatMap) -> Self {
        let HeatMap { columns: (across, columns), rows: (down, rows), values, scale, p, limit } = chart;
        let p = |row: usize, column: usize| p.get(row).and_then(|row| row.get(column)).copied().unwrap_or(f64::NAN);
        let write = |value: &f64| match value {
            value if value.is_nan() => String::new(),
            value if limit.is_some() => format!("{value:+.2}").replace('-', "−"),
            value => format!("{value:.3}"),
        };
        let mut trace = json!({
            "type": "heatmap", "x": literals(&columns), "y": literals(&rows), "z": values, "xgap": 2, "ygap": 2, "hoverongaps": false,
            "colorscale": if limit.is_some() { json!(DIVERGING) } else { json!(SEQUENTIAL) },
            "hovertemplate": HOVER,
            "colorbar": {"orientation": "h", "thickness": 10, "len": 0.6, "y": -0.06, "yanchor": "top", "outlinewidth": 0, "nticks": 5,
                         "tickfont": {"color": MUTED}, "title": {"text": literal(&scale), "side": "bottom", "font": {"color": MUTED}}},
        });
        let say = |row: usize, column: usize| {
            let (down, across) = (format!("{down} {}", rows[row]), format!("{across} {}", columns[column]));
            let value = format!("{scale}: {}", write(&values[row][column]));
            let test = match p(row, column) {
                p if p.is_nan() => String::new(),
                p if p < 0.001 => "p < 0.001, Holm's correction".to_owned(),
                p => format!("p = {p:.3}, Holm's correction"),
            };
            hover([&down, &across, &value, &test])
        };
        let said: Vec<Vec<String>> =
            (0..rows.len()).map(|row| (0..columns.len()).map(|column| say(row, column)).collect()).collect();
        trace["hovertext"] = json!(said);
        let mark = |row, column| if p(row, column) < SIGNIFICANT { "*" } else { "" };
        let [low, high] = limit.map_or_else(|| extent(values.iter().flatten().copied()), |limit| [-limit, limit]);
        if low <= high {
            (trace["zmin"], trace["zmax"]) = (json!(low), json!(high));
        }
        // The text takes the colour with more contrast to its cell.
        let ink = |value: f64| match limit {
            Some(limit) if value.abs() < DEEP * limit => INK,
            Some(_) => PAPER,
            None if value < f64::midpoint(low, high) => BRIGHT,
            None => DARK,
        };
        let places = || (0..rows.len()).flat_map(|row| (0..columns.len()).map(move |column| (row, column)));
        let text = json!({
            "type": "scatter", "mode": "text", "hoverinfo": "skip", "showlegend": false,
            "x": places().map(|(_, column)| literal(&columns[column])).collect::<Vec<_>>(),
            "y": places().map(|(row, _)| literal(&rows[row])).collect::<Vec<_>>(),
            "text": places().map(|(row, column)| write(&values[row][column]) + mark(row, column)).collect::<Vec<_>>(),
            "textfont": {"size": 12, "color": places().map(|(row, column)| ink(values[row][column])).collect::<Vec<_>>()},
        });
        let labels = |range: [f64; 2]| -> Value {
            json!({
                "automargin": true, "type": "category", "tickfont": {"color": INK}, "showgrid": false, "ticks": "", "range": range,
            })
        };
        let mut layout = json!({
            "xaxis": labels([-0.5, columns.len() as f64 - 0.5]), "yaxis": labels([rows.len() as f64 - 0.5, -0.5]),
        });
        layout["xaxis"]["side"] = json!("top");
        let height = 170 + 34 * rows.len() as u32;
        Self::new(vec![trace, text], layout, height)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(values: &[f64], limit: Option<f64>, p: &[f64]) -> Plot {
        let columns = ["a", "b", "c", "d"][..values.len()].iter().map(|&name| name.to_owned()).collect();
        let (columns, rows) = (("method".to_owned(), columns), ("weights".to_owned(), vec!["one".to_owned()]));
        Plot::from(HeatMap {
            columns,
            rows,
            values: vec![values.to_vec()],
            scale: "score".to_owned(),
            p: vec![p.to_vec()],
            limit,
        })
    }

    #[test]
    fn what_is_written_can_be_read_on_its_cell() {
        let inks = |values: [f64; 3], limit| map(&values, limit, &[]).data[1]["textfont"]["color"].clone();
        assert_eq!(inks([0.1, 0.4, 0.9], None), json!([BRIGHT, BRIGHT, DARK]));
        assert_eq!(inks([-1.0, 0.1, 0.9], Some(1.0)), json!([PAPER, INK, PAPER]));
        let plot = map(&[0.1, f64::NAN, 0.9], None, &[]);
        assert_eq!(plot.data[1]["text"], json!(["0.100", "", "0.900"]));
        assert_eq!((&plot.data[0]["zmin"], &plot.data[0]["zmax"]), (&json!(0.1), &json!(0.9)));
    }

    #[test]
    fn a_star_is_for_a_small_p_value() {
        let plot = map(&[0.1, 0.2, 0.3, 0.4], None, &[0.049, 0.05, f64::NAN, 0.000_1]);
        assert_eq!(plot.data[1]["text"], json!(["0.100*", "0.200", "0.300", "0.400*"]));
        let said = plot.data[0]["hovertext"][0].as_array().unwrap();
        assert_eq!(said[0], "<b>weights one</b><br>method a<br>score: 0.100<br>p = 0.049, Holm's correction");
        assert_eq!(said[2], "<b>weights one</b><br>method c<br>score: 0.300");
        assert_eq!(said[3], "<b>weights one</b><br>method d<br>score: 0.400<br>p &lt; 0.001, Holm's correction");
    }
}
