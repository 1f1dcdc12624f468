//! Summaries that are printed at the end.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::json;
use sk_report::grid::{Grid, wrap};

use crate::judge::candidates::{Estimate, Informativeness};
use crate::judge::retest::Agreement;
use crate::judge::run::Outcome;
use crate::judge::{FLUENCY, Objectives, Response, Rubric};
use crate::output::{self, pretty_json};
use crate::{Error, terminal};
use sk_report::objectives::Scores;

/// Mean scores of a scheme, over responses with a score.
#[derive(Debug, Serialize)]
struct SchemeScores {
    scheme: String,
    responses: usize,
    abstained: usize,
    /// The mean of each objective, and then of each rubric without an objective, by name.
    #[serde(flatten, serialize_with = "output::in_order")]
    means: Vec<(String, Option<f64>)>,
    /// exp of the mean of −log fluency: the geometric mean of the responses' perplexities.
    perplexity: Option<f64>,
}

/// The output of `judge`.
#[derive(Debug, Serialize)]
pub(super) struct JudgeSummary {
    judged: usize,
    resumed: usize,
    cached: usize,
    abstained: usize,
    unanswered: usize,
    schemes: Vec<SchemeScores>,
}

#[derive(Default)]
struct ResponseScores<'a> {
    scores: BTreeMap<&'a str, f64>,
    abstained: usize,
}

impl JudgeSummary {
    pub(super) fn new(objectives: &Objectives, outcome: &Outcome<'_>, responses: &[Response], cached: usize) -> Self {
        let mut cells: BTreeMap<&str, ResponseScores<'_>> = BTreeMap::new();
        for answer in &outcome.answers {
            let cell = cells.entry(&answer.response.id).or_default();
            match answer.score {
                Some(score) => drop(cell.scores.insert(&answer.rubric.name, score)),
                None => cell.abstained += 1,
            }
        }
        let mut schemes: BTreeMap<&str, Vec<&ResponseScores<'_>>> = BTreeMap::new();
        for response in responses {
            if let Some(cell) = cells.get(response.id.as_str()) {
                schemes.entry(response.scheme.as_deref().unwrap_or("-")).or_default().push(cell);
            }
        }
        let row = |(scheme, cells): (&str, Vec<&ResponseScores<'_>>)| {
            let scores = |cell: &&ResponseScores<'_>| {
                let score = |rubric: &Rubric| cell.scores.get(rubric.name.as_str()).copied();
                objectives.scores(objectives.rubrics.iter().map(score).collect())
            };
            let scores: Vec<Scores> = cells.iter().map(scores).collect();
            let objective = |k: usize| mean(scores.iter().map(|scores| scores.objectives[k]).filter(|score| !score.is_nan()));
            let rubric = |k: usize| mean(scores.iter().filter_map(|scores| scores.rubrics[k]));
            let by_itself = objectives.rubrics.iter().enumerate();
            let by_itself = by_itself.filter(|(_, rubric)| objectives.objective_of(&rubric.name).is_none());
            let names = objectives.names().into_iter().map(str::to_owned).enumerate();
            let means = names.map(|(k, name)| (name, objective(k)));
            SchemeScores {
                scheme: scheme.to_owned(),
                responses: cells.len(),
                abstained: cells.iter().map(|cell| cell.abstained).sum(),
                means: means.chain(by_itself.map(|(k, own)| (own.name.clone(), rubric(k)))).collect(),
                perplexity: mean(cells.iter().filter_map(|cell| cell.scores.get(FLUENCY).map(|score| -score.ln()))).map(f64::exp),
            }
        };
        let schemes: Vec<SchemeScores> = schemes.into_iter().map(row).collect();
        Self {
            judged: outcome.answers.len(),
            resumed: outcome.resumed,
            cached,
            abstained: schemes.iter().map(|row| row.abstained).sum(),
            unanswered: outcome.unanswered,
            schemes,
        }
    }
}

impl fmt::Display for JudgeSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let means = self.schemes.first().map(|row| row.means.iter().map(|(name, _)| name.as_str())).into_iter().flatten();
        let headings = ["scheme", "responses"].into_iter().chain(means).chain(["perplexity", "abstained"]);
        let mut grid = Grid::new(headings).numbers(1..);
        for row in &self.schemes {
            let mut cells = vec![row.scheme.clone(), row.responses.to_string()];
            cells.extend(row.means.iter().map(|(_, mean)| *mean).chain([row.perplexity]).map(number));
            cells.push(row.abstained.to_string());
            grid.row(cells);
        }
        let Self { judged, resumed, cached, abstained, unanswered, .. } = self;
        write!(
            f,
            "{}\n{judged} judgements, {resumed} found in the file, {cached} in the cache; {abstained} abstained, {unanswered} unanswered",
            grid.render(terminal::columns())
        )
    }
}

/// The output of `judge retest`.
#[derive(Debug, Serialize)]
pub(super) struct Retest {
    pub(super) total: usize,
    pub(super) unanswered: usize,
    pub(super) rubrics: Vec<Agreement>,
}

impl fmt::Display for Retest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headings = ["rubric", "pairs", "Pearson r", "mean |change|", "mean change", "unchanged", "excluded"];
        let mut grid = Grid::new(headings).numbers(1..);
        for row in &self.rubrics {
            grid.row([
                row.rubric.clone(),
                row.pairs.to_string(),
                number(row.pearson),
                number(row.mean_absolute_change),
                number(row.mean_change),
                row.unchanged.map_or_else(dash, |share| format!("{:.1} %", 100.0 * share)),
                row.excluded.to_string(),
            ]);
        }
        f.write_str(&grid.render(terminal::columns()))
    }
}

/// The output of `judge candidates`.
#[derive(Debug, Serialize)]
pub(super) struct Candidates {
    pub(super) steps: usize,
    pub(super) candidates: usize,
    pub(super) unanswered: usize,
    pub(super) blades: Vec<Informativeness>,
}

impl fmt::Display for Candidates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headings = ["scheme", "blade", "rubric", "steps", "prompts", "r_s(μ, q)", "95 %", "r_s(σ, |μ−q|)", "95 %", "𝓘(σ)"];
        let mut grid = Grid::new(headings).numbers(3..).repeat(3);
        for row in &self.blades {
            let interval =
                |estimate: &Estimate| estimate.interval.map_or_else(dash, |[low, high]| format!("[{low:.2}, {high:.2}]"));
            grid.row([
                row.scheme.clone(),
                row.blade.clone(),
                row.rubric.clone(),
                row.steps.to_string(),
                row.prompts.to_string(),
                format!("{:+.2}", row.score.mean),
                interval(&row.score),
                format!("{:+.2}", row.dispersion.mean),
                interval(&row.dispersion),
                format!("{:.2}", row.dispersion.mean.abs()),
            ]);
        }
        let Self { steps, candidates, unanswered, .. } = self;
        write!(
            f,
            "{}\n{candidates} candidates of {steps} steps, {unanswered} judgements unanswered",
            grid.render(terminal::columns())
        )
    }
}

/// Returns the rubrics as text, wrapped at the width of the terminal.
pub(super) fn rubrics_text(objectives: &Objectives) -> String {
    let text = |rubric: &Rubric| {
        let Rubric { name, version, criterion, low, middle, high, .. } = rubric;
        let axis = objectives.objective_of(name).map_or("reported by itself", |objective| &objective.name);
        let parts = [("  ", criterion), ("  lowest:  ", low), ("  middle:  ", middle), ("  highest: ", high)];
        let lines = parts.map(|(label, text)| {
            let indent = format!("\n{}", " ".repeat(label.len()));
            let text = wrap(text, terminal::columns().saturating_sub(label.len()), 0).replace('\n', &indent);
            format!("\n{label}{text}")
        });
        format!("{name}, version {version} ({axis}){}", lines.concat())
    };
    objectives.rubrics.iter().map(text).collect::<Vec<_>>().join("\n\n")
}

/// Returns the rubrics as JSON.
pub(super) fn rubrics_json(objectives: &Objectives) -> Result<String, Error> {
    let rubric = |rubric: &Rubric| {
        let Rubric { name, version, better, column, scale, model, criterion, low, middle, high } = rubric;
        let axis = objectives.objective_of(name).map(|objective| &objective.name);
        json!({
            "name": name, "version": version, "axis": axis, "better": better, "column": column, "scale": scale, "model": model,
            "criterion": criterion, "low": low, "middle": middle, "high": high,
        })
    };
    pretty_json(&objectives.rubrics.iter().map(rubric).collect::<Vec<_>>())
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum) = values.fold((0_usize, 0.0), |(count, sum), value| (count + 1, sum + value));
    (count > 0).then(|| sum / count as f64)
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(dash, |value| format!("{value:.3}"))
}

/// The placeholder for a missing number.
fn dash() -> String {
    "–".to_owned()
}
