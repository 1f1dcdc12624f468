//! Raw results on disk: judged cells and candidate steps.

mod ablations;
mod frontier;
mod sheet;
mod steps;

use std::io;
use std::path::{Path, PathBuf};

pub use ablations::{Ablation, Arm};
pub use steps::CandidateStep;

use super::{Cell, Recorded, ReportError, Sweep, Text};
use crate::objectives::Objectives;

/// The methods of the paper's main table.
const PAPER_METHODS: [&str; 6] = ["swiss", "base", "bon", "rs", "args", "mod"];
/// What the paper's names of weight vectors begin with.
const PAPER_POINTS: &str = "w_help";

/// What a folder of raw results holds.
#[derive(Debug, Clone, PartialEq)]
pub struct RawResults {
    /// The judged sweep: `judged_frontier.csv`.
    pub sweep: Sweep,
    /// Ablations at fixed weights: `judged_ablations.csv`; empty where the file is absent.
    pub ablations: Vec<Ablation>,
    /// Candidate batches: `candidate_steps.jsonl`, and those of the traces; empty where there are
    /// none.
    pub steps: Vec<CandidateStep>,
    /// What classifiers say of the judged responses, where columns of the sweep hold it.
    pub classified: Vec<Classified>,
    /// The records of the sweep that was judged, if they are at hand.
    pub recorded: Option<Recorded>,
    ids: frontier::Ids,
}

/// What a classifier says of responses that were judged: a column `RUBRIC_CLASSIFIER`, such as
/// `toxicity_detoxify`.
#[derive(Debug, Clone, PartialEq)]
pub struct Classified {
    /// The name of the column.
    pub column: String,
    /// The place of the rubric that the classifier measures too.
    pub rubric: usize,
    /// The judged responses, each with the score of the classifier, from 0 to 1.
    pub cells: Vec<(Cell, f64)>,
}

impl Classified {
    /// `None` for the column of a rubric, and for one that begins with the name of none.
    fn of_column(column: &str, objectives: &Objectives) -> Option<Self> {
        let measures = |name: &str| column.strip_prefix(name).is_some_and(|rest| rest.len() > 1 && rest.starts_with('_'));
        if objectives.rubrics.iter().any(|rubric| rubric.name == column) {
            return None;
        }
        let rubric = objectives.rubrics.iter().position(|rubric| measures(&rubric.name))?;
        Some(Self { column: column.to_owned(), rubric, cells: Vec::new() })
    }
}

/// What the files of a folder are called.
const FRONTIER: &str = "judged_frontier.csv";
const ABLATIONS: &str = "judged_ablations.csv";
const STEPS: &str = "candidate_steps.jsonl";
/// What responses were judged by, where it is not helpfulness, harmlessness and honesty.
const OBJECTIVES: &str = "objectives.toml";

/// A file may be gzipped.
fn names(name: &str) -> [String; 2] {
    [name.to_owned(), format!("{name}.gz")]
}

impl RawResults {
    /// The files of a folder that [`read`](Self::read) looks for.
    pub fn files(folder: &Path) -> impl Iterator<Item = PathBuf> {
        let data = [FRONTIER, ABLATIONS, STEPS].into_iter().flat_map(names);
        data.chain([OBJECTIVES.to_owned()]).map(|name| folder.join(name))
    }

    /// Reads a folder. Each file may be gzipped, with `.gz` after its name; a plain one is
    /// preferred.
    ///
    /// Responses were judged by the objectives of `objectives.toml`, if the folder has one, and
    /// otherwise by [`Objectives::hhh`].
    ///
    /// # Errors
    /// If the sweep is absent, or a file cannot be read or holds what it must not; the error names
    /// file, line and column.
    pub fn read(folder: &Path) -> Result<Self, ReportError> {
        let own = folder.join(OBJECTIVES);
        let objectives = if own.exists() { Objectives::read(&own)? } else { Objectives::hhh().clone() };
        let objectives = &objectives;
        let open = |name: &str| -> Result<Option<Source>, ReportError> {
            for name in names(name) {
                if let Some(source) = Source::open(&folder.join(name))? {
                    return Ok(Some(source));
                }
            }
            Ok(None)
        };
        let Some(frontier) = open(FRONTIER)? else {
            let path = folder.join(FRONTIER);
            return Err(ReportError::Read {
                path,
                source: io::Error::new(io::ErrorKind::NotFound, "no such file, nor one with .gz"),
            });
        };
        let frontier::JudgedFrontier { sweep, ids, classified } = frontier::read(frontier, objectives)?;
        Ok(Self {
            sweep,
            ablations: open(ABLATIONS)?.map_or(Ok(Vec::new()), |source| ablations::read(source, objectives))?,
            steps: open(STEPS)?.map_or(Ok(Vec::new()), |source| steps::read(&source))?,
            classified,
            recorded: None,
            ids,
        })
    }

    /// Adds the records of the responses that were judged, with their traces.
    ///
    /// # Errors
    /// As [`Recorded::read`].
    pub fn with_records(mut self, path: &Path) -> Result<Self, ReportError> {
        let judged = self.ids.values().map(String::as_str).collect();
        let (recorded, steps) = Recorded::read(path, &judged)?;
        self.steps.extend(steps);
        self.recorded = Some(recorded);
        Ok(self)
    }

    /// Whether these are the paper's own results: all its methods, judged by its objectives at
    /// weight vectors that are called as it calls them.
    pub fn is_of_the_paper(&self) -> bool {
        let there = |name: &str| self.sweep.methods.iter().any(|method| method.name == name);
        self.sweep.objectives == *Objectives::hhh()
            && PAPER_METHODS.iter().all(|name| there(name))
            && self.sweep.points.iter().all(|point| point.name.starts_with(PAPER_POINTS))
    }

    /// The text of a cell's response, if it is at hand.
    pub fn text(&self, method: &str, cell: &Cell) -> Option<&Text> {
        let configuration = self.sweep.points.get(cell.configuration)?.name.clone();
        let id = self.ids.get(&(method.to_owned(), configuration, cell.prompt))?;
        self.recorded.as_ref()?.text(id)
    }
}

/// A file's whole text and its name.
struct Source {
    path: PathBuf,
    text: String,
}

impl Source {
    /// `None` where there is no such file.
    fn open(path: &Path) -> Result<Option<Self>, ReportError> {
        let fail = |source| ReportError::Read { path: path.to_owned(), source };
        let bytes = match crate::lines::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes.map_err(fail)?,
        };
        let text = String::from_utf8(bytes).map_err(|_| fail(io::ErrorKind::InvalidData.into()))?;
        Ok(Some(Self { path: path.to_owned(), text }))
    }
}
