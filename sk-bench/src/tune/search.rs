//! Search: proposes the next point from the trials so far.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sha2::{Digest, Sha256};
use tpe::{TpeOptimizerBuilder, parzen_estimator};

use super::scalar::{losses, simplex};
use super::{Dimension, Point, Space};
use crate::Error;

/// Share of the trials that count as good. The value is the default of Optuna and of the
/// estimator's crate.
const GOOD: f64 = 0.1;
/// Number of draws from the density of good points. The draw with the greatest ratio of densities
/// is proposed.
const DRAWS: usize = 24;

/// A finished trial.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// The point.
    pub point: Point,
    /// A score per objective; greater is better. Empty if an objective has no score.
    pub scores: Vec<f64>,
}

impl Trial {
    /// Returns whether every objective has a score.
    pub fn is_scored(&self) -> bool {
        !self.scores.is_empty()
    }
}

/// A search of a space.
///
/// The first point is the unchanged scheme, if it lies in the space. The next points are drawn
/// uniformly until there are `startup` trials. After that, each parameter is proposed by the
/// tree-structured Parzen estimator (Bergstra et al., 2011). It models the trials with the lowest
/// tenth of losses and the other trials by two densities, and proposes the value with the greatest
/// ratio of the two, which has the greatest expected improvement under this model. Several
/// objectives are combined with random weights, drawn for each proposal (ParEGO).
#[derive(Debug, Clone)]
pub struct Search {
    /// The name, which distinguishes it from other searches with the same seed.
    pub name: String,
    /// The space.
    pub space: Space,
    /// The seed. It determines every draw, together with the name and the number of the trial.
    pub seed: u64,
    /// Number of trials before the estimator is used.
    pub startup: usize,
    /// The first point.
    pub origin: Option<Point>,
}

impl Search {
    /// Returns the point to try after `history`. It depends only on this search and those trials,
    /// so that a resumed search continues exactly as if it had not been interrupted. Trials without
    /// a score are counted but not passed to the estimator.
    ///
    /// Takes O(parameters · trials · log trials).
    ///
    /// # Errors
    /// If a score is NaN or a point lies outside the space.
    pub fn propose(&self, history: &[Trial]) -> Result<Point, Error> {
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
                estimate(parameter, seen, &mut rng).map_err(|reason| Error::Input(format!("search \"{}\": {reason}", self.name)))
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
