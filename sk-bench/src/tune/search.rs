//! Where to look next, from what was seen.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sha2::{Digest, Sha256};
use tpe::{TpeOptimizerBuilder, parzen_estimator};

use super::scalar::{losses, simplex};
use super::{Dimension, Point, Space, TuneError};

/// Share of trials whose density counts as that of good points: the value of Optuna and of the
/// crate.
const GOOD: f64 = 0.1;
/// Draws from the good density, of which the one with the greatest ratio of densities is proposed.
const DRAWS: usize = 24;

/// A trial that was finished.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// What was tried.
    pub point: Point,
    /// A score per objective, greater is better; empty where an objective has none.
    pub scores: Vec<f64>,
}

impl Trial {
    /// Whether there is a score of every objective.
    pub fn is_scored(&self) -> bool {
        !self.scores.is_empty()
    }
}

/// A search of a space.
///
/// The first point is the scheme as it is, where that lies in the space; the next are drawn evenly
/// until `startup` are there; then each parameter is proposed by the tree-structured Parzen
/// estimator (Bergstra et al., 2011), which takes the trials of the lowest tenth of losses as draws
/// from one density, the others as draws from another, and proposes where their ratio is greatest:
/// the place of greatest expected improvement under that model. Several objectives are made one by
/// random weights, drawn for each proposal (ParEGO).
#[derive(Debug, Clone)]
pub struct Search {
    /// What distinguishes it from other searches of the same seed.
    pub name: String,
    /// The space.
    pub space: Space,
    /// Seeds every draw, together with the name and the number of the trial.
    pub seed: u64,
    /// Trials before the estimator is asked.
    pub startup: usize,
    /// What is tried first.
    pub origin: Option<Point>,
}

impl Search {
    /// The point to try after `history`. It depends on nothing but this search and those trials, so
    /// that a search that was interrupted goes on as if it had not been. Trials without a score
    /// count, and say nothing to the estimator.
    ///
    /// Takes O(parameters · trials · log trials).
    ///
    /// # Errors
    /// When a score is not a number or a point lies outside the space.
    pub fn propose(&self, history: &[Trial]) -> Result<Point, TuneError> {
        let mut rng = self.generator(history.len());
        if let (true, Some(origin)) = (history.is_empty(), &self.origin) {
            return Ok(origin.clone());
        }
        let scored: Vec<&Trial> = history.iter().filter(|trial| trial.is_scored()).collect();
        let Some(first) = scored.first().filter(|_| history.len() >= self.startup) else {
            return Ok(self.space.dimensions().iter().map(|parameter| parameter.value(rng.random())).collect());
        };
        let weights = simplex(first.scores.len(), &mut rng);
        let scores: Vec<&[f64]> = scored.iter().map(|trial| trial.scores.as_slice()).collect();
        let losses = losses(&scores, &weights);
        let places = self.space.dimensions().iter().enumerate();
        places
            .map(|(place, parameter)| {
                let seen = scored.iter().zip(&losses).map(|(trial, &loss)| (trial.point[place], loss));
                estimate(parameter, seen, &mut rng).map_err(|reason| TuneError::Estimator { search: self.name.clone(), reason })
            })
            .collect()
    }

    fn generator(&self, trial: usize) -> ChaCha8Rng {
        let digest = Sha256::digest(format!("{}/{}/{trial}", self.seed, self.name));
        ChaCha8Rng::from_seed(digest.into())
    }
}

fn estimate(
    parameter: &Dimension,
    seen: impl Iterator<Item = (f64, f64)>,
    rng: &mut ChaCha8Rng,
) -> Result<f64, Box<dyn std::error::Error + Send + Sync>> {
    let unit = tpe::range(0.0, 1.0)?;
    let mut estimator = TpeOptimizerBuilder::new().gamma(GOOD).candidates(DRAWS).build(parzen_estimator(), unit)?;
    for (value, loss) in seen {
        estimator.tell(parameter.unit(value), loss)?;
    }
    Ok(parameter.value(estimator.ask(rng)?))
}
