//! What is printed at the end.

use std::collections::BTreeMap;

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use serde_json::json;

use crate::Error;
use crate::judge::retest::Agreement;
use crate::judge::run::Outcome;
use crate::judge::{Axis, FLUENCY, RUBRICS, Response, Rubric};

/// The rubric that is reported beside the axes.
const REFUSAL: &str = "refusal";

/// Means of a scheme over the responses that have a score.
#[derive(Debug, Serialize)]
struct Row {
    scheme: String,
    responses: usize,
    abstained: usize,
    quality: Option<f64>,
    safety: Option<f64>,
    honesty: Option<f64>,
    refusal: Option<f64>,
    /// exp of the mean of −log fluency: the geometric mean of the responses' perplexities.
    perplexity: Option<f64>,
}

/// What `judge` prints.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    judged: usize,
    resumed: usize,
    cached: usize,
    abstained: usize,
    unanswered: usize,
    schemes: Vec<Row>,
}

#[derive(Default)]
struct Cell {
    scores: BTreeMap<String, f64>,
    abstained: usize,
}

impl Summary {
    pub(super) fn new(outcome: &Outcome, responses: &[Response], cached: usize) -> Self {
        let mut cells: BTreeMap<&str, Cell> = BTreeMap::new();
        for record in &outcome.records {
            let cell = cells.entry(&record.id).or_default();
            match record.score {
                Some(score) => drop(cell.scores.insert(record.rubric.clone(), score)),
                None => cell.abstained += 1,
            }
        }
        let mut schemes: BTreeMap<&str, Vec<&Cell>> = BTreeMap::new();
        for response in responses {
            if let Some(cell) = cells.get(response.id.as_str()) {
                schemes.entry(response.scheme.as_deref().unwrap_or("-")).or_default().push(cell);
            }
        }
        let row = |(scheme, cells): (&str, Vec<&Cell>)| {
            let axis = |axis: Axis| mean(cells.iter().filter_map(|cell| axis.score(&cell.scores)));
            Row {
                scheme: scheme.to_owned(),
                responses: cells.len(),
                abstained: cells.iter().map(|cell| cell.abstained).sum(),
                quality: axis(Axis::Quality),
                safety: axis(Axis::Safety),
                honesty: axis(Axis::Honesty),
                refusal: mean(cells.iter().filter_map(|cell| cell.scores.get(REFUSAL).copied())),
                perplexity: mean(cells.iter().filter_map(|cell| cell.scores.get(FLUENCY).map(|score| -score.ln()))).map(f64::exp),
            }
        };
        let schemes: Vec<Row> = schemes.into_iter().map(row).collect();
        Self {
            judged: outcome.records.len(),
            resumed: outcome.resumed,
            cached,
            abstained: schemes.iter().map(|row| row.abstained).sum(),
            unanswered: outcome.unanswered,
            schemes,
        }
    }

    pub(super) fn render(&self, json: bool) -> Result<String, Error> {
        if json {
            return pretty(self);
        }
        let mut table = table(["scheme", "responses", "quality", "safety", "honesty", "refusal", "perplexity", "abstained"]);
        for row in &self.schemes {
            let numbers = [row.quality, row.safety, row.honesty, row.refusal, row.perplexity].map(number);
            let [quality, safety, honesty, refusal, perplexity] = numbers;
            let cells = [
                row.scheme.clone(),
                row.responses.to_string(),
                quality,
                safety,
                honesty,
                refusal,
                perplexity,
                row.abstained.to_string(),
            ];
            table.add_row(cells);
        }
        let Self { judged, resumed, cached, abstained, unanswered, .. } = self;
        Ok(format!(
            "{}\n{judged} judgements, {resumed} found in the file, {cached} in the cache; {abstained} abstained, {unanswered} unanswered",
            table.trim_fmt()
        ))
    }
}

/// What `judge retest` prints.
#[derive(Debug, Serialize)]
pub(super) struct Retest {
    pub(super) total: usize,
    pub(super) unanswered: usize,
    pub(super) rubrics: Vec<Agreement>,
}

impl Retest {
    pub(super) fn render(&self, json: bool) -> Result<String, Error> {
        if json {
            return pretty(self);
        }
        let mut table = table(["rubric", "pairs", "Pearson r", "mean |change|", "mean change", "unchanged", "excluded"]);
        for row in &self.rubrics {
            table.add_row([
                row.rubric.clone(),
                row.pairs.to_string(),
                number(row.pearson),
                number(row.mean_absolute_change),
                number(row.mean_change),
                row.unchanged.map_or_else(dash, |share| format!("{:.1} %", 100.0 * share)),
                row.excluded.to_string(),
            ]);
        }
        Ok(table.trim_fmt())
    }
}

/// The rubrics as text.
pub(super) fn rubrics_text(rubrics: &[Rubric]) -> String {
    let text = |rubric: &Rubric| {
        let Rubric { name, version, axis, criterion, low, middle, high } = rubric;
        let axis = axis.map_or_else(|| "reported by itself".to_owned(), |axis| axis.to_string());
        format!("{name}, version {version} ({axis})\n  {criterion}\n  lowest:  {low}\n  middle:  {middle}\n  highest: {high}")
    };
    rubrics.iter().map(text).collect::<Vec<_>>().join("\n\n")
}

/// The rubrics as JSON.
pub(super) fn rubrics_json() -> Result<String, Error> {
    let rubrics = RUBRICS.map(|rubric| {
        let Rubric { name, version, axis, criterion, low, middle, high } = rubric;
        json!({"name": name, "version": version, "axis": axis, "criterion": criterion, "low": low, "middle": middle, "high": high})
    });
    pretty(&rubrics)
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum) = values.fold((0_usize, 0.0), |(count, sum), value| (count + 1, sum + value));
    (count > 0).then(|| sum / count as f64)
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(dash, |value| format!("{value:.3}"))
}

/// Stands where there is no number.
fn dash() -> String {
    "–".to_owned()
}

fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).force_no_tty();
    table.set_header(header);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn pretty(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string_pretty(value).map_err(|error| Error::Output(error.into()))
}
