//! Evaluation of a trial: a small sweep whose responses are scored.

use std::fs;
use std::path::PathBuf;

use super::{Objective, Scorer, TunePlan, Worth};
use crate::judge::JudgeError;
use crate::progress::Loading;
use crate::prompt_sets::Prompt;
use crate::record_file::RecordFileError;
use crate::sweep::{self, Digests, Grid, Loaded, Store, Worker};
use crate::{Error, interrupt};
use sk_report::record::{SweepRecord, read_records, traces_of};

/// Generates responses to the prompts of a plan at each point, and scores them.
///
/// A trial is a sweep with its own files in a folder beside the ledger. An interrupted trial
/// continues at its next cell. All trials of a search use the same seeds, so that two trials differ
/// only in their points.
pub struct SweepTrials<'p> {
    plan: &'p TunePlan,
    prompts: &'p [Prompt],
    scorer: &'p Scorer,
    digests: &'p Digests,
    loaded: Option<Loaded>,
    quiet: bool,
}

impl<'p> SweepTrials<'p> {
    /// Returns an evaluator for the trials of a plan. Models are loaded at the first trial.
    pub fn new(plan: &'p TunePlan, prompts: &'p [Prompt], scorer: &'p Scorer, digests: &'p Digests, quiet: bool) -> Self {
        Self { plan, prompts, scorer, digests, loaded: None, quiet }
    }

    fn output(&self, search: usize, trial: usize) -> PathBuf {
        let folder = self.plan.output.with_extension("trials");
        folder.join(format!("{}-{trial:03}.jsonl", self.plan.searches[search].name))
    }

    fn answer(&mut self, grid: &Grid) -> Result<(), Error> {
        let mut store = Store::open(grid)?;
        if store.completion().open().next().is_none() {
            return store.tidy();
        }
        let loaded = match self.loaded.take() {
            Some(loaded) => loaded,
            None => Loaded::new(grid, self.digests, &mut Loading::new(self.quiet))?,
        };
        let loaded = self.loaded.insert(loaded);
        sweep::run(&mut store, &Worker::new(grid, loaded)?, sweep::AT_ONCE, |_, _| ())
    }

    /// Evaluates a point of the search at a position. Returns `None` if Ctrl-C was pressed.
    ///
    /// # Errors
    /// If responses cannot be generated or scored.
    pub fn evaluate(&mut self, search: usize, trial: usize, point: &[f64]) -> Result<Option<Worth>, Error> {
        let output = self.output(search, trial);
        let folder = output.parent().unwrap_or(&output).to_owned();
        fs::create_dir_all(&folder).map_err(RecordFileError::writing(&folder))?;
        let grid = self.plan.trial(search, self.plan.scheme(point)?, output.clone(), self.prompts, self.digests)?;
        let failed = |error: Error| error.within(format!("trial {trial} of \"{}\"", self.plan.searches[search].name));
        self.answer(&grid).map_err(failed)?;
        if interrupt::requested() {
            return Ok(None);
        }
        let records = in_order(&grid, read_records(&output)?);
        let objectives = &self.plan.searches[search].objectives;
        let (traces, journal) = (traces_of(&output), output.with_extension("judged.jsonl"));
        let scored = match self.scorer.score(&records, objectives, &traces, &journal) {
            Err(Error::Judge(JudgeError::Interrupted)) => return Ok(None),
            scored => scored.map_err(failed)?,
        };
        let judgements = matches!(self.scorer, Scorer::Judge { .. }).then_some(journal);
        Ok(Some(Worth { judgements, ..worth(&records, objectives, &scored) }))
    }
}

/// Sorts records in the order of the plan. The order in which they finished must not matter,
/// because the last bit of a floating-point sum depends on the order of its terms.
fn in_order(grid: &Grid, records: Vec<SweepRecord>) -> Vec<SweepRecord> {
    let mut placed: Vec<(usize, SweepRecord)> =
        records.into_iter().filter_map(|record| Some((grid.find(&record.id)?, record))).collect();
    placed.sort_by_key(|(place, _)| *place);
    placed.into_iter().map(|(_, record)| record).collect()
}

/// Returns the mean score of each objective over the responses that count for it. Responses without
/// a score are left out.
fn worth(records: &[SweepRecord], objectives: &[Objective], scored: &[Vec<Option<f64>>]) -> Worth {
    let counts = |place: usize, record: &SweepRecord| objectives[place].counts(record.axis.as_deref());
    let mean = |place: usize| {
        let counted = records.iter().zip(scored).filter(|(record, _)| counts(place, record));
        let scores: Vec<f64> = counted.filter_map(|(_, scores)| scores[place]).collect();
        (!scores.is_empty()).then(|| scores.iter().sum::<f64>() / scores.len() as f64)
    };
    let lacks = |(record, scores): &(&SweepRecord, &Vec<Option<f64>>)| {
        (0..objectives.len()).any(|place| scores[place].is_none() && counts(place, record))
    };
    let unscored = records.iter().zip(scored).filter(lacks).count();
    Worth { scores: (0..objectives.len()).map(mean).collect(), responses: records.len(), unscored, judgements: None }
}
