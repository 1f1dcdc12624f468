//! The result of tuning.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;
use sk_report::grid::Grid;

use crate::terminal;
use crate::tune::{Ledger, Mode, SearchPlan, Trial, TunePlan, balanced, best, consensus, front, write_point};

/// Number of decimals of a score.
const DIGITS: usize = 4;

/// The output of `tune`.
#[derive(Debug, Serialize)]
pub(super) struct TuneSummary {
    /// The rows of the table, in order.
    rows: Vec<TrialRow>,
    /// The method that scored the responses.
    scored_by: &'static str,
    /// The number of trials done, and the total.
    trials: (usize, usize),
    /// Number of responses without a score on an objective that they count for.
    unscored: usize,
    /// The options of `generate` that apply the last row; `None` if there are no rows.
    #[serde(rename = "use")]
    options: Option<String>,
}

/// A row: a point of the space.
#[derive(Debug, Serialize)]
struct TrialRow {
    /// The description of the point, such as an optimum.
    what: String,
    /// The number of the trial; `None` for a mean of several trials.
    trial: Option<usize>,
    #[serde(serialize_with = "write_point")]
    point: BTreeMap<String, f64>,
    scores: BTreeMap<String, f64>,
    #[serde(skip)]
    values: Vec<f64>,
}

impl TrialRow {
    fn of(plan: &TunePlan, search: &SearchPlan, what: String, number: usize, trial: &Trial) -> Self {
        let names = search.objectives.iter().map(|objective| objective.name.clone());
        Self {
            what,
            trial: Some(number),
            point: plan.space.by_name(&trial.point),
            scores: names.zip(trial.scores.iter().copied()).collect(),
            values: trial.point.clone(),
        }
    }
}

impl TuneSummary {
    /// Returns the summary. In both modes, the last row is the one to use: the mean of the optima,
    /// or the balanced point of the front.
    pub(super) fn new(plan: &TunePlan, ledger: &Ledger) -> Self {
        let mut rows = Vec::new();
        let mut optima: Vec<&[f64]> = Vec::new();
        for (place, search) in plan.searches.iter().enumerate() {
            let trials = ledger.trials(place);
            if let Some(first) = trials.first() {
                rows.push(TrialRow::of(plan, search, format!("{}, first", search.name), 0, first));
            }
            match plan.mode {
                Mode::Each => {
                    if let Some(found) = best(trials) {
                        rows.push(TrialRow::of(plan, search, format!("{}, best", search.name), found, &trials[found]));
                        optima.push(&trials[found].point);
                    }
                }
                Mode::Together => {
                    rows.extend(front(trials).into_iter().map(|i| TrialRow::of(plan, search, "front".to_owned(), i, &trials[i])));
                    rows.extend(balanced(trials).map(|i| TrialRow::of(plan, search, "balanced".to_owned(), i, &trials[i])));
                }
            }
        }
        if optima.len() > 1
            && let Some(mean) = consensus(&plan.space, &optima)
        {
            let (point, scores) = (plan.space.by_name(&mean), BTreeMap::new());
            rows.push(TrialRow { what: "mean".to_owned(), trial: None, point, scores, values: mean });
        }
        let done: Vec<usize> = (0..plan.searches.len()).map(|search| ledger.trials(search).len()).collect();
        let scheme = plan.scheme_option();
        let options = rows.last().map(|row| format!("{scheme} {}", plan.space.options(&row.values)).trim().to_owned());
        // The plan may have had more trials before.
        let trials = (done.iter().sum(), done.iter().map(|&done| plan.trials.max(done)).sum());
        Self { rows, scored_by: plan.scoring.name(), trials, unscored: ledger.unscored(), options }
    }
}

impl fmt::Display for TuneSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (done, all) = self.trials;
        let Some(options) = &self.options else { return write!(f, "no trial of {all} is done") };
        let names: Vec<&String> = self.rows[0].point.keys().collect();
        let scores: BTreeSet<&String> = self.rows.iter().flat_map(|row| row.scores.keys()).collect();
        let headings = ["", "trial"].into_iter().chain(names.iter().chain(&scores).map(|name| name.as_str()));
        let mut grid = Grid::new(headings).numbers(1..).repeat(2);
        for row in &self.rows {
            let score = |name: &&String| row.scores.get(*name).map_or_else(String::new, |score| format!("{score:.DIGITS$}"));
            let trial = row.trial.map_or_else(String::new, |trial| trial.to_string());
            let values = names.iter().map(|name| short(row.point[*name]));
            grid.row([row.what.clone(), trial].into_iter().chain(values).chain(scores.iter().map(score)));
        }
        let mut by = format!("{done} of {all} trials, scored by {}", self.scored_by);
        if self.unscored > 0 {
            by += &format!("; responses without a score, left out: {}", self.unscored);
        }
        write!(f, "{}\n\n{by}\nTo use the last row: swiss-knife generate … {options}", grid.render(terminal::columns()))
    }
}

/// Formats a value with at most four significant digits.
fn short(value: f64) -> String {
    let text = format!("{value:.3e}").parse::<f64>().unwrap_or(value);
    text.to_string()
}
