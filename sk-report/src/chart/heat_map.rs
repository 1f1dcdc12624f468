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
    columns: Vec<String>,
    rows: Vec<String>,
    values: Vec<Vec<f64>>,
    scale: String,
    headings: [String; 2],
    p: Vec<Vec<f64>>,
    range: Option<[f64; 2]>,
    signed: bool,
}

impl HeatMap {
    /// Creates a heat map. `values` has one vector per row, from top to bottom, with one value per
    /// column; NaN leaves a gap. `scale` is the title of the colour bar.
    pub fn new(columns: &[String], rows: &[String], values: &[Vec<f64>], scale: impl Into<String>) -> Self {
        let (columns, rows, values) = (columns.to_vec(), rows.to_vec(), values.to_vec());
        Self {
            columns,
            rows,
            values,
            scale: scale.into(),
            headings: Default::default(),
            p: Vec::new(),
            range: None,
            signed: false,
        }
    }

    /// Sets the headings of the columns and of the rows, which tooltips show.
    #[must_use]
    pub fn headed(mut self, columns: &str, rows: &str) -> Self {
        self.headings = [columns, rows].map(|heading| format!("{heading} "));
        self
    }

    /// Marks with a star the cells whose p-value is below 0.05. The p-values must be corrected for
    /// the number of cells; NaN means that the cell was not tested. The caption of the figure names
    /// the test.
    #[must_use]
    pub fn significant(mut self, p: &[Vec<f64>]) -> Self {
        self.p = p.to_vec();
        self
    }

    /// Sets the values at the ends of the colour scale.
    #[must_use]
    pub fn range(mut self, range: [f64; 2]) -> Self {
        self.range = Some(range);
        self
    }

    /// Uses a diverging colour scale centred on zero.
    #[must_use]
    pub fn signed(mut self) -> Self {
        self.signed = true;
        self
    }
}

impl From<HeatMap> for Plot {
    fn from(chart: HeatMap) -> Self {
        let HeatMap { columns, rows, values, scale, headings: [of_columns, of_rows], p, range, signed } = chart;
        let p = |row: usize, column: usize| p.get(row).and_then(|row| row.get(column)).copied().unwrap_or(f64::NAN);
        let write = |value: &f64| match value {
            value if value.is_nan() => String::new(),
            value if signed => format!("{value:+.2}").replace('-', "−"),
            value => format!("{value:.3}"),
        };
        let mut trace = json!({
            "type": "heatmap", "x": literals(&columns), "y": literals(&rows), "z": values, "xgap": 2, "ygap": 2, "hoverongaps": false,
            "colorscale": if signed { json!(DIVERGING) } else { json!(SEQUENTIAL) },
            "hovertemplate": HOVER,
            "colorbar": {"orientation": "h", "thickness": 10, "len": 0.6, "y": -0.06, "yanchor": "top", "outlinewidth": 0, "nticks": 5,
                         "tickfont": {"color": MUTED}, "title": {"text": literal(&scale), "side": "bottom", "font": {"color": MUTED}}},
        });
        let say = |row: usize, column: usize| {
            let (down, across) = (format!("{of_rows}{}", rows[row]), format!("{of_columns}{}", columns[column]));
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
        let [least, most] = extent(values.iter().flatten().copied());
        let furthest = most.max(-least).max(0.0);
        let [low, high] = range.unwrap_or(if signed { [-furthest, furthest] } else { [least, most] });
        if low <= high {
            (trace["zmin"], trace["zmax"]) = (json!(low), json!(high));
        }
        // The text takes the colour with more contrast to its cell.
        let ink = |value: f64| match signed {
            true if value.abs() < DEEP * high.abs().max(low.abs()) => INK,
            true => PAPER,
            false if value < f64::midpoint(low, high) => BRIGHT,
            false => DARK,
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
        let (across, down) = (columns.len() as f64 - 0.5, rows.len() as f64 - 0.5);
        let mut layout = json!({"xaxis": labels([-0.5, across]), "yaxis": labels([down, -0.5])});
        layout["xaxis"]["side"] = json!("top");
        let height = 170 + 34 * rows.len() as u32;
        Self::new(vec![trace, text], layout, height)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read_on_its_cell() {
        let (columns, rows) = (["a", "b", "c"].map(str::to_owned), ["one".to_owned()]);
        let inks = |map: HeatMap| Plot::from(map).data[1]["textfont"]["color"].clone();
        let map = |values: [f64; 3]| HeatMap::new(&columns, &rows, &[values.to_vec()], "score");
        assert_eq!(inks(map([0.1, 0.4, 0.9])), json!([BRIGHT, BRIGHT, DARK]));
        assert_eq!(inks(map([0.1, 0.4, 0.9]).range([0.0, 0.5])), json!([BRIGHT, DARK, DARK]));
        assert_eq!(inks(map([-1.0, 0.1, 0.9]).signed()), json!([PAPER, INK, PAPER]));
        let plot = Plot::from(map([0.1, f64::NAN, 0.9]));
        assert_eq!(plot.data[1]["text"], json!(["0.100", "", "0.900"]));
        assert_eq!((&plot.data[0]["zmin"], &plot.data[0]["zmax"]), (&json!(0.1), &json!(0.9)));
    }

    #[test]
    fn a_star_is_for_a_small_p_value() {
        let (columns, rows) = (["a", "b", "c", "d"].map(str::to_owned), ["one".to_owned()]);
        let map = HeatMap::new(&columns, &rows, &[vec![0.1, 0.2, 0.3, 0.4]], "score").headed("method", "weights");
        let plot = Plot::from(map.significant(&[vec![0.049, 0.05, f64::NAN, 0.000_1]]));
        assert_eq!(plot.data[1]["text"], json!(["0.100*", "0.200", "0.300", "0.400*"]));
        let said = plot.data[0]["hovertext"][0].as_array().unwrap();
        assert_eq!(said[0], "<b>weights one</b><br>method a<br>score: 0.100<br>p = 0.049, Holm's correction");
        assert_eq!(said[2], "<b>weights one</b><br>method c<br>score: 0.300");
        assert_eq!(said[3], "<b>weights one</b><br>method d<br>score: 0.400<br>p &lt; 0.001, Holm's correction");
    }
}
