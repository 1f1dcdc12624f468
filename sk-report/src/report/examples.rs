//! Responses worth reading: where the reference did best and worst, by itself and against its
//! rival.

use super::{Cell, Method};
use crate::stats::harmonic_mean;

/// Examples of the best and of the worst.
const EXTREMES: usize = 3;
/// Examples of what was gained on the rival, and of what was lost.
const CONTRASTS: usize = 2;

/// A response of the reference, and the rival's to the same prompt at the same weights.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Example<'a> {
    /// Why it is shown.
    pub case: &'static str,
    /// The reference's.
    pub cell: &'a Cell,
    /// The rival's, if there is a rival.
    pub rival: Option<&'a Cell>,
}

impl Example<'_> {
    /// The harmonic mean of a cell's axes, 0 where one is.
    pub fn f1(cell: &Cell) -> f64 {
        cell.scores.complete().map_or(f64::NAN, |scores| harmonic_mean(scores, 0.0))
    }

    /// Reference minus rival in [`f1`](Self::f1); 0 without a rival.
    pub fn difference(&self) -> f64 {
        self.rival.map_or(0.0, |rival| Self::f1(self.cell) - Self::f1(rival))
    }
}

impl<'a> Example<'a> {
    /// The examples of a sweep. Ties go to the larger difference, then to the earlier prompt and
    /// weight vector; no prompt is shown twice for the same case.
    pub fn choose(reference: &'a Method, rival: Option<&'a Method>) -> Vec<Self> {
        let judged = |cell: &&Cell| cell.scores.complete().is_some();
        let pair = |cell: &'a Cell| {
            let other = |rival: &'a Method| {
                rival
                    .cells
                    .iter()
                    .filter(judged)
                    .find(|other| (other.configuration, other.prompt) == (cell.configuration, cell.prompt))
            };
            match rival {
                None => Some(Self { case: "", cell, rival: None }),
                Some(rival) => other(rival).map(|other| Self { case: "", cell, rival: Some(other) }),
            }
        };
        let pairs: Vec<Self> = reference.cells.iter().filter(judged).filter_map(pair).collect();
        let quality = |example: &Self| (Self::f1(example.cell), example.difference());
        let gain = |example: &Self| (example.difference(), Self::f1(example.cell));
        let mut chosen = Vec::new();
        let cases = [
            ("best", EXTREMES, &quality as &dyn Fn(&Self) -> (f64, f64), 1.0),
            ("worst", EXTREMES, &quality, -1.0),
            ("most gained", CONTRASTS, &gain, 1.0),
            ("most lost", CONTRASTS, &gain, -1.0),
        ];
        // Without a rival nothing is gained or lost.
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
