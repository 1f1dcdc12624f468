use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use super::Classified;
use super::sheet::Sheet;
use crate::objectives::Objectives;
use crate::report::{Cell, ReportError, Sweep, WeightVector};
use crate::stats::snap;

/// The prefix of the weight columns.
const WEIGHT: &str = "w_";
/// How far the sum of three weights with one decimal may be from 1.
const SUM_TOLERANCE: f64 = 0.15;

/// The ids of responses by method, weights as by [`bits`], and prompt.
pub(super) type Ids = HashMap<(String, Vec<u64>, u32), String>;

/// Returns a key of weights that is the same for weights that a sweep merges.
pub(super) fn bits(weights: &[f64]) -> Vec<u64> {
    // The sum turns −0 into 0.
    weights.iter().map(|weight| (snap(*weight) + 0.0).to_bits()).collect()
}

/// Reads the judged sweep: one row per method, weight vector and prompt. Also returns the ids of
/// the responses, if there is an id column, and the scores of classifiers.
pub(super) fn read(path: PathBuf, objectives: &Objectives) -> Result<(Sweep, Ids, Vec<Classified>), ReportError> {
    let sheet = Sheet::read(path)?;
    let mut classified: Vec<Classified> =
        sheet.header.iter().filter_map(|column| Classified::of_column(column, objectives)).collect();
    let columns: Vec<&str> = sheet.header.iter().filter(|column| column.starts_with(WEIGHT)).collect();
    if columns.is_empty() {
        let column = format!("{WEIGHT}{}", objectives.blades[0].name);
        return Err(ReportError::Column { path: sheet.path.clone(), column });
    }
    let (mut rows, mut ids) = (Vec::new(), Ids::new());
    let mut seen = HashSet::new();
    for row in sheet.rows() {
        let method = row.text("method")?;
        let configuration = row.text("config")?;
        let prompt = row.whole("frontier_id")?;
        let weights: Vec<f64> = columns.iter().map(|column| row.share(column)).collect::<Result<_, _>>()?;
        let sum: f64 = weights.iter().sum();
        if (sum - 1.0).abs() > SUM_TOLERANCE {
            return Err(row.wrong(&columns.join(" + "), &sum.to_string(), "1; scale the weights of a row so that they sum to 1"));
        }
        if !seen.insert((method, bits(&weights), prompt)) {
            return Err(row.duplicate(method, configuration, prompt));
        }
        if let Some(id) = row.optional("id") {
            ids.insert((method.to_owned(), bits(&weights), prompt), id.to_owned());
        }
        let point = WeightVector { name: configuration.to_owned(), weights };
        let cell = Cell { configuration: 0, prompt, scores: row.scores(objectives, &[])?, fluency: row.fluency()? };
        for classifier in &mut classified {
            if let Some(score) = row.blank_or_share(&classifier.column)? {
                classifier.cells.push((cell.clone(), score));
            }
        }
        rows.push((method.to_owned(), point, cell));
    }
    // The blade of a column is renamed from its alias to its name in the objectives.
    let blade = |column: &&str| {
        let name = &column[WEIGHT.len()..];
        objectives.blades.iter().find(|blade| blade.is_called(name)).map_or(name, |blade| &blade.name).to_owned()
    };
    let blades = columns.iter().map(blade).collect();
    Ok((Sweep::of(objectives, blades, rows), ids, classified))
}
