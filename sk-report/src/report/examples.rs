//! Responses worth reading: the best and worst of the reference, alone and relative to its rival.

use std::collections::HashMap;

use super::{Cell, Method};

/// The number of best and of worst examples.
const EXTREMES: usize = 3;
/// The number of examples of the largest gain over the rival, and of the largest loss.
const CONTRASTS: usize = 2;

/// A response of the reference, and the rival's response to the same prompt at the same weights.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Example<'a> {
    /// The reason why it is shown.
    pub case: &'static str,
    /// The cell of the reference.
    pub cell: &'a Cell,
    /// The cell of the rival, if there is a rival.
    pub rival: Option<&'a Cell>,
}

/// Returns the F1 of a cell, NaN if an axis was not judged.
fn f1(cell: &Cell) -> f64 {
    cell.f1(0.0).unwrap_or(f64::NAN)
}

impl<'a> Example<'a> {
    /// Returns the F1 of the reference minus that of the rival; 0 without a rival.
    pub fn difference(&self) -> f64 {
        self.rival.map_or(0.0, |rival| f1(self.cell) - f1(rival))
    }

    /// Chooses the examples of a sweep. Best and worst are by F1, ties decided by the difference to
    /// the rival. Gains and losses are by the difference, ties decided by F1. Remaining ties go to
    /// the earlier prompt and weight vector. A prompt appears at most once per case.
    pub fn choose(reference: &'a Method, rival: Option<&'a Method>) -> Vec<Self> {
        let judged = |cell: &&Cell| cell.scores.complete().is_some();
        let others = rival.map(|rival| {
            // Of several cells with one key, the first counts.
            rival.cells.iter().rev().filter(judged).map(|cell| (cell.key(), cell)).collect::<HashMap<_, _>>()
        });
        let pair = |cell: &'a Cell| {
            let Some(others) = &others else { return Some(Self { case: "", cell, rival: None }) };
            Some(Self { case: "", cell, rival: Some(others.get(&cell.key())?) })
        };
        let pairs: Vec<Self> = reference.cells.iter().filter(judged).filter_map(pair).collect();
        let quality = |example: &Self| (f1(example.cell), example.difference());
        let gain = |example: &Self| (example.difference(), f1(example.cell));
        let mut chosen = Vec::new();
        let cases = [
            ("best", EXTREMES, &quality as &dyn Fn(&Self) -> (f64, f64), 1.0),
            ("worst", EXTREMES, &quality, -1.0),
            ("most gained", CONTRASTS, &gain, 1.0),
            ("most lost", CONTRASTS, &gain, -1.0),
        ];
        // Without a rival there are no gains and losses.
        for &(case, count, key, sign) in &cases[..if rival.is_some() { 4 } else { 2 }] {
            let mut ranked = pairs.clone();
            ranked.sort_by(|a, b| {
                let ((a1, a2), (b1, b2)) = (key(a), key(b));
                let place = |example: &Self| (example.cell.prompt, example.cell.configuration);
                (sign * b1).total_cmp(&(sign * a1)).then((sign * b2).total_cmp(&(sign * a2))).then(place(a).cmp(&place(b)))
            });
            let mut prompts = Vec::new();
            for example in ranked {
                if prompts.len() < count && !prompts.contains(&example.cell.prompt) {
                    prompts.push(example.cell.prompt);
                    chosen.push(Self { case, ..example });
                }
            }
        }
        chosen
    }
}
