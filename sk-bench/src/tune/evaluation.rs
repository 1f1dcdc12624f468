//! A trial as a small sweep, and its scores.

use std::fs;
use std::path::PathBuf;

use super::{Evaluate, Objective, Scorer, TuneError, TunePlan};
use crate::progress::Loading;
use crate::prompt_sets::Prompt;
use crate::sweep::{self, Grid, Loaded, Store, SweepRecord, Worker, read_records};
use crate::{Error, interrupt};

/// Answers the prompts of a plan at each point, and has the responses scored.
///
/// A trial is a sweep with files of its own, in a folder beside the ledger: one that was interrupted goes on at its next cell. All trials of a
/// search draw with the same seeds, so that what differs between two of them is the point.
pub struct SweepTrials<'p> {
    plan: &'p TunePlan,
    prompts: &'p [Prompt],
    scorer: &'p Scorer,
    loaded: Option<Loaded>,
    quiet: bool,
}

impl<'p> SweepTrials<'p> {
    /// Trials of a plan on prompts. Models are loaded when the first is asked for.
    pub fn new(plan: &'p TunePlan, prompts: &'p [Prompt], scorer: &'p Scorer, quiet: bool) -> Self {
        Self { plan, prompts, scorer, loaded: None, quiet }
    }

    fn output(&self, search: usize, trial: usize) -> PathBuf {
        let folder = self.plan.output.with_extension("trials");
        folder.join(format!("{}-{trial:03}.jsonl", self.plan.searches[search].name))
    }

    fn answer(&mut self, grid: &Grid) -> Result<(), Error> {
        let mut store = Store::open(grid)?;
        if store.ledger().open().next().is_none() {
            return Ok(store.tidy()?);
        }
        let loaded = match self.loaded.take() {
            Some(loaded) => loaded,
            None => Loaded::new(grid, &mut Loading::new(self.quiet))?,
        };
        let loaded = self.loaded.insert(loaded);
        Ok(sweep::run(&mut store, &Worker::new(grid, loaded)?, |_| ())?)
    }
}

impl Evaluate for SweepTrials<'_> {
    fn evaluate(&mut self, search: usize, trial: usize, point: &[f64]) -> Result<Option<(Vec<f64>, usize)>, TuneError> {
        let output = self.output(search, trial);
        let folder = output.parent().unwrap_or(&output).to_owned();
        fs::create_dir_all(&folder).map_err(|source| TuneError::Write { path: folder, source })?;
        let grid = self.plan.trial(search, self.plan.scheme(point)?, output.clone(), self.prompts)?;
        let name = &self.plan.searches[search].name;
        self.answer(&grid).map_err(|source| TuneError::Trial { search: name.clone(), trial, source: Box::new(source) })?;
        if interrupt::requested() {
            return Ok(None);
        }
        let records = in_order(&grid, read_records(&output)?);
        let objectives = &self.plan.searches[search].objectives;
        let (traces, journal) = (output.with_extension("traces.jsonl"), output.with_extension("judged.jsonl"));
        let scored = self.scorer.score(&records, objectives, &traces, &journal)?;
        let scores = objectives.iter().enumerate().map(|(place, objective)| {
            mean(&grid, &records, &scored, place, objective).ok_or_else(|| TuneError::NoScore {
                search: name.clone(),
                trial,
                objective: objective.name.clone(),
                reason: "no response to its prompts was scored".to_owned(),
            })
        });
        Ok(Some((scores.collect::<Result<_, _>>()?, records.len())))
    }
}

/// The records in the order of the plan, whatever order they were finished in: a sum depends on it in its last bit.
fn in_order(grid: &Grid, records: Vec<SweepRecord>) -> Vec<SweepRecord> {
    let mut placed: Vec<(usize, SweepRecord)> =
        records.into_iter().filter_map(|record| Some((grid.find(&record.id)?, record))).collect();
    placed.sort_by_key(|(place, _)| *place);
    placed.into_iter().map(|(_, record)| record).collect()
}

/// The mean score of the responses that count for an objective; a response without a score is left out.
fn mean(grid: &Grid, records: &[SweepRecord], scored: &[Vec<Option<f64>>], place: usize, objective: &Objective) -> Option<f64> {
    let asked = |record: &SweepRecord| {
        let prompt = grid.find(&record.id).map(|cell| &grid.prompts[grid.cells[cell].prompt]);
        prompt.is_some_and(|prompt| objective.asks(prompt))
    };
    let counted = records.iter().zip(scored).filter(|(record, _)| asked(record));
    let scores: Vec<f64> = counted.filter_map(|(_, scores)| scores[place]).collect();
    (!scores.is_empty()).then(|| scores.iter().sum::<f64>() / scores.len() as f64)
}
