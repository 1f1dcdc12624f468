use std::collections::HashSet;
use std::path::PathBuf;

use super::sheet::Sheet;
use crate::objectives::Objectives;
use crate::report::{Cell, Method, ReportError, grouped};

/// An ablation: arms that differ in one slot, on the same prompts at the same weights.
#[derive(Debug, Clone, PartialEq)]
pub struct Ablation {
    /// Its name.
    pub name: String,
    /// Its arms, in the order of the file.
    pub arms: Vec<Method>,
}

/// Reads the single-objective ablations. The honesty rubrics may have no column, as in the paper's
/// results.
pub(super) fn read(path: PathBuf, objectives: &Objectives) -> Result<Vec<Ablation>, ReportError> {
    const OPTIONAL: [&str; 3] = ["truthfulness", "non_deception", "epistemic_honesty"];
    let sheet = Sheet::read(path)?;
    let mut cells = Vec::new();
    let mut seen = HashSet::new();
    for row in sheet.rows() {
        let (name, arm, prompt) = (row.text("ablation")?, row.text("arm")?, row.whole("prompt_id")?);
        if !seen.insert((name, arm, prompt)) {
            return Err(row.duplicate(arm, name, prompt));
        }
        let cell = Cell { configuration: 0, prompt, scores: row.scores(objectives, &OPTIONAL)?, fluency: None };
        cells.push((name, (arm, cell)));
    }
    let arm = |(name, cells): (&str, Vec<Cell>)| Method { name: name.to_owned(), cells };
    let arms = |cells| grouped(cells).into_iter().map(arm).collect();
    Ok(grouped(cells).into_iter().map(|(name, cells)| Ablation { name: name.to_owned(), arms: arms(cells) }).collect())
}
