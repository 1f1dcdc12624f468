//! Ledgers: the trials of a plan, on disk.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::json;
use sk_report::record::RecordError;

use super::{Search, Trial, Worth};
use crate::Error;
use crate::record_file::{Record, RecordFile, RecordFileError, look, records};
use crate::scheme::Parameter;

/// A finished trial: one line of the ledger.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrialRecord {
    /// The name of the search.
    pub search: String,
    /// Number of the trial in its search, from 0.
    pub trial: usize,
    /// The point.
    #[serde(serialize_with = "write_point")]
    pub point: BTreeMap<String, f64>,
    /// The score of each objective; greater is better. An objective without a scored response is
    /// missing.
    pub scores: BTreeMap<String, f64>,
    /// Number of responses.
    pub responses: usize,
    /// Number of responses without a score on an objective that they count for.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unscored: usize,
    /// Digest of everything that a score depends on except the point.
    pub settings: String,
    /// Wall time in seconds of the run that finished the trial.
    pub elapsed: f64,
}

impl Record for TrialRecord {
    const FIRST: &str = "search";
    const IS_NOT: &str = "it is not a trial";
}

/// Writes the values of a point by parameter name, those of whole-number parameters as integers.
pub(crate) fn write_point<S: Serializer>(point: &BTreeMap<String, f64>, serializer: S) -> Result<S::Ok, S::Error> {
    /// All whole numbers below it have their own `f64`.
    const EXACT: f64 = (1_u64 << f64::MANTISSA_DIGITS) as f64;
    serializer.collect_map(point.iter().map(|(name, &value)| {
        let whole = Parameter::named(name).is_some_and(|parameter| parameter.range.whole);
        let is_integer = whole && value.fract() == 0.0 && value.abs() < EXACT;
        (name, if is_integer { json!(value as i64) } else { json!(value) })
    }))
}

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// A file of trials.
#[derive(Debug)]
pub struct Ledger {
    /// `None` if the file was only read.
    file: Option<RecordFile>,
    searches: Vec<(Search, Vec<String>, Vec<Trial>)>,
    settings: String,
    unscored: usize,
}

impl Ledger {
    /// Opens or creates a ledger, and reads the trials of these searches and objectives. An
    /// incomplete last line, left by a killed process, is removed.
    ///
    /// A trial is accepted only if the search proposes its point after the trials before it. A
    /// resumed search therefore continues exactly as if it had not been interrupted.
    ///
    /// # Errors
    /// If the file cannot be opened, another process uses it, or a trial is missing, was made with
    /// other settings, or differs from the proposal.
    pub fn open(path: &Path, searches: Vec<(Search, Vec<String>)>, settings: &str) -> Result<Self, Error> {
        let (file, records) = RecordFile::open(path)?;
        Self::with(Some(file), &records, path, searches, settings)
    }

    /// Reads a ledger. Does not create, change or lock the file, and no trial can be added.
    ///
    /// # Errors
    /// If the file cannot be read, or a trial is missing, was made with other settings, or differs
    /// from the proposal.
    pub fn look(path: &Path, searches: Vec<(Search, Vec<String>)>, settings: &str) -> Result<Self, Error> {
        let records = records(path, &look(path)?, 0).collect::<Result<Vec<_>, _>>()?;
        Self::with(None, &records, path, searches, settings)
    }

    fn with(
        file: Option<RecordFile>,
        records: &[(u64, TrialRecord)],
        path: &Path,
        searches: Vec<(Search, Vec<String>)>,
        settings: &str,
    ) -> Result<Self, Error> {
        let searches = searches.into_iter().map(|(search, objectives)| (search, objectives, Vec::new())).collect();
        let mut ledger = Self { file, searches, settings: settings.to_owned(), unscored: 0 };
        for (line, record) in records {
            ledger.take(record).map_err(|reason| RecordError::line(path, *line, reason))?;
        }
        Ok(ledger)
    }

    fn take(&mut self, record: &TrialRecord) -> Result<(), String> {
        let TrialRecord { search: name, trial: number, .. } = record;
        let known = self.searches.iter_mut().find(|(search, ..)| search.name == *name);
        let (search, objectives, trials) =
            known.ok_or_else(|| format!("the plan has no search \"{name}\"; give it another output"))?;
        if *number != trials.len() {
            return Err(format!(
                "expected trial {} of \"{name}\", found trial {number}: lines are missing or duplicated; give another output",
                trials.len()
            ));
        }
        if record.settings != self.settings {
            return Err(format!(
                "trial {number} of \"{name}\" was made with other settings than the plan's; give another output"
            ));
        }
        let proposed = search.propose(trials).map_err(|error| error.to_string())?;
        let point = search.space.point(&record.point).filter(|point| *point == proposed);
        let point =
            point.ok_or_else(|| format!("trial {number} of \"{name}\" is not what the search proposes; give another output"))?;
        let scores: Option<Vec<f64>> = objectives.iter().map(|name| record.scores.get(name).copied()).collect();
        if scores.is_none() && record.unscored == 0 {
            return Err(format!("trial {number} of \"{name}\" lacks the score of an objective"));
        }
        trials.push(Trial { point, scores: scores.unwrap_or_default() });
        self.unscored += record.unscored;
        Ok(())
    }

    /// Returns the searches in order of position.
    pub fn searches(&self) -> impl Iterator<Item = &Search> {
        self.searches.iter().map(|(search, ..)| search)
    }

    /// Returns the trials of the search at a position, in order.
    pub fn trials(&self, search: usize) -> &[Trial] {
        &self.searches[search].2
    }

    /// Returns the number of responses, over all trials, without a score on an objective that they
    /// count for.
    pub fn unscored(&self) -> usize {
        self.unscored
    }

    /// Returns the error for the next trial of a search if none of its responses has a score on an
    /// objective.
    pub(super) fn no_score(&self, search: usize, objective: usize, judgements: Option<&Path>) -> Error {
        let (of, objectives, trials) = &self.searches[search];
        let (trial, search, objective) = (trials.len(), &of.name, &objectives[objective]);
        let reason = match judgements {
            Some(file) => {
                let file = file.display();
                format!("the judge scored no response that counts for it; {file} has its replies; remove this file to ask again")
            }
            None => "its responses are empty".to_owned(),
        };
        Error::Input(format!("trial {trial} of \"{search}\" has no score for \"{objective}\": {reason}"))
    }

    /// Returns the next point of the search at a position.
    ///
    /// # Errors
    /// As [`Search::propose`].
    pub fn propose(&self, search: usize) -> Result<Vec<f64>, Error> {
        let (search, _, trials) = &self.searches[search];
        search.propose(trials)
    }

    /// Adds the result of a [proposed](Self::propose) point. It is written to disk before it is
    /// used.
    ///
    /// # Errors
    /// If the file cannot be written to.
    pub fn append(&mut self, search: usize, point: &[f64], worth: &Worth, elapsed: f64) -> Result<(), Error> {
        let (of, objectives, trials) = &self.searches[search];
        let record = TrialRecord {
            search: of.name.clone(),
            trial: trials.len(),
            point: of.space.by_name(point),
            scores: objectives.iter().zip(&worth.scores).filter_map(|(name, score)| Some((name.clone(), (*score)?))).collect(),
            responses: worth.responses,
            unscored: worth.unscored,
            settings: self.settings.clone(),
            elapsed,
        };
        let file = self.file.as_ref().ok_or_else(|| Error::Input("the ledger is open for reading only".to_owned()))?;
        file.append(&record)?;
        // Continue with the values that a later run would read, so that both are bit-identical.
        let path = file.path().to_owned();
        let kept = serde_json::to_string(&record).and_then(|text| serde_json::from_str(&text));
        let kept = kept.map_err(|error| RecordFileError::writing(&path)(error.into()))?;
        let line = self.searches.iter().map(|(.., trials)| trials.len() as u64).sum::<u64>() + 1;
        self.take(&kept).map_err(|reason| RecordError::line(&path, line, reason).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ledgers of earlier versions have 7.0 for the integer 7.
    #[test]
    fn counts_are_written_as_integers_and_read_either_way() {
        let line = r#"{"search":"s","trial":0,"point":{"candidates":7.0,"rounds":5,"temperature":8.0},"scores":{},"responses":1,"settings":"","elapsed":0.5}"#;
        let record: TrialRecord = serde_json::from_str(line).unwrap();
        let written = serde_json::to_string(&record).unwrap();
        assert!(written.contains(r#""point":{"candidates":7,"rounds":5,"temperature":8.0}"#), "{written}");
        assert_eq!(serde_json::from_str::<TrialRecord>(&written).unwrap(), record);
        let point = BTreeMap::from([("candidates".to_owned(), 1e300)]);
        let written = serde_json::to_string(&TrialRecord { point, ..record }).unwrap();
        assert!(written.contains(r#"{"candidates":1e300}"#) || written.contains(r#"{"candidates":1e+300}"#), "{written}");
    }
}
