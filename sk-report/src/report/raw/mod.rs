//! Raw results on disk: judged cells and candidate steps.

mod ablations;
mod frontier;
mod sheet;
mod steps;

use std::io;
use std::path::{Path, PathBuf};

pub use ablations::Ablation;
pub use steps::CandidateStep;

use super::{Cell, Recorded, ReportError, Sweep, Text};
use crate::objectives::{Objectives, is_column};
use crate::record::{RecordError, plain_or_packed};

/// The methods of the paper's main table.
const PAPER_METHODS: [&str; 6] = ["swiss", "base", "bon", "rs", "args", "mod"];
/// The prefix of the paper's names of weight vectors.
const PAPER_POINTS: &str = "w_help";

/// The contents of a folder of raw results.
#[derive(Debug, Clone, PartialEq)]
pub struct RawResults {
    /// The judged sweep: `judged_frontier.csv`.
    pub sweep: Sweep,
    /// Ablations at fixed weights: `judged_ablations.csv`; empty if the file does not exist.
    pub ablations: Vec<Ablation>,
    /// Candidate batches of `candidate_steps.jsonl` and of the traces.
    pub steps: Vec<CandidateStep>,
    /// Classifier scores of the judged responses, one entry per classifier column of the sweep.
    pub classified: Vec<Classified>,
    /// The records of the judged sweep, if they were added.
    pub recorded: Option<Recorded>,
    ids: frontier::Ids,
}

/// The scores of a classifier on judged responses. Its column is called `RUBRIC_CLASSIFIER`, such
/// as `toxicity_detoxify`.
#[derive(Debug, Clone, PartialEq)]
pub struct Classified {
    /// The name of the column.
    pub column: String,
    /// The index of the rubric that the classifier also measures.
    pub rubric: usize,
    /// The judged responses, each with the score of the classifier in [0, 1].
    pub cells: Vec<(Cell, f64)>,
}

impl Classified {
    /// Finds the rubric with the longest name that is a prefix of the column. Returns `None` if
    /// there is none, or if the column is that of a rubric or belongs to every table.
    fn of_column(column: &str, objectives: &Objectives) -> Option<Self> {
        let measures = |name: &str| column.strip_prefix(name).is_some_and(|rest| rest.len() > 1 && rest.starts_with('_'));
        if is_column(column) || objectives.rubrics.iter().any(|rubric| rubric.name == column) {
            return None;
        }
        let known = objectives.rubrics.iter().enumerate().filter(|(_, rubric)| measures(&rubric.name));
        let (rubric, _) = known.max_by_key(|(_, rubric)| rubric.name.len())?;
        Some(Self { column: column.to_owned(), rubric, cells: Vec::new() })
    }
}

/// File names in a folder of results.
const FRONTIER: &str = "judged_frontier.csv";
const ABLATIONS: &str = "judged_ablations.csv";
const STEPS: &str = "candidate_steps.jsonl";
/// The objectives, if they differ from quality, safety and honesty.
const OBJECTIVES: &str = "objectives.toml";

impl RawResults {
    /// Returns the paths in a folder that [`read`](Self::read) tries.
    pub fn files(folder: &Path) -> impl Iterator<Item = PathBuf> {
        let data = [FRONTIER, ABLATIONS, STEPS].map(|name| folder.join(name)).into_iter();
        let data = data.flat_map(|path| [path.clone(), path.with_added_extension("gz")]);
        data.chain([folder.join(OBJECTIVES)])
    }

    /// Reads a folder. Data files may be gzipped, with `.gz` appended to the name; a plain file
    /// takes precedence.
    ///
    /// The objectives are those of `objectives.toml` if it exists, otherwise [`Objectives::hhh`].
    ///
    /// # Errors
    /// If there is no sweep, or if a file cannot be read or is invalid. The error names file, line
    /// and column.
    pub fn read(folder: &Path) -> Result<Self, ReportError> {
        let own = folder.join(OBJECTIVES);
        let objectives = if own.exists() { Objectives::read(&own)? } else { Objectives::hhh().clone() };
        let objectives = &objectives;
        let find = |name: &str| plain_or_packed(&folder.join(name));
        let missing = io::Error::new(io::ErrorKind::NotFound, "no such file, nor one with .gz");
        let frontier = find(FRONTIER)?.ok_or_else(|| RecordError::reading(&folder.join(FRONTIER))(missing))?;
        let (sweep, ids, classified) = frontier::read(frontier, objectives)?;
        Ok(Self {
            sweep,
            ablations: find(ABLATIONS)?.map_or(Ok(Vec::new()), |path| ablations::read(path, objectives))?,
            steps: find(STEPS)?.map_or(Ok(Vec::new()), |path| steps::read(&path))?,
            classified,
            recorded: None,
            ids,
        })
    }

    /// Adds the records of the judged responses, with their traces. Schemes are in the order of the
    /// methods.
    ///
    /// # Errors
    /// As [`Recorded::read`].
    pub fn with_records(mut self, path: &Path) -> Result<Self, ReportError> {
        let judged = self.ids.values().map(String::as_str).collect();
        let (mut recorded, mut steps) = Recorded::read(path, &judged)?;
        // Records are in the order in which cells finished. The tables must not depend on it.
        let methods = &self.sweep.methods;
        let place = |scheme: &str| methods.iter().position(|method| method.name == scheme).unwrap_or(methods.len());
        recorded.runs.sort_by_key(|runs| place(&runs.scheme));
        recorded.settings.sort_by_cached_key(|(scheme, kept)| (place(scheme), kept.settings.clone()));
        steps.sort_by_key(|step| place(&step.arm));
        self.steps.extend(steps);
        self.recorded = Some(recorded);
        Ok(self)
    }

    /// Returns whether these are the paper's own results: all its methods, its objectives, and its
    /// names of weight vectors.
    pub fn is_of_the_paper(&self) -> bool {
        let there = |name: &str| self.sweep.methods.iter().any(|method| method.name == name);
        self.sweep.objectives == *Objectives::hhh()
            && PAPER_METHODS.iter().all(|name| there(name))
            && self.sweep.points.iter().all(|point| point.name.starts_with(PAPER_POINTS))
    }

    /// Returns the text of a cell's response, if the records were added.
    pub fn text(&self, method: &str, cell: &Cell) -> Option<&Text> {
        let weights = frontier::bits(&self.sweep.points.get(cell.configuration)?.weights);
        let id = self.ids.get(&(method.to_owned(), weights, cell.prompt))?;
        self.recorded.as_ref()?.texts.get(id)
    }
}
