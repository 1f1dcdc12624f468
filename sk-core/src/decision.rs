use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    Aggregator, Batch, Composite, Normalizer, ScoreError, ScoreTable, Selector, Simplex, SimplexError, StepError, Weighting,
    draw_at,
};

/// The tolerance for the sum of a selector's probabilities: N rounding errors of f64.
const PROBABILITY_TOLERANCE: f64 = 1e-9;

/// The tolerance for the sum of weights that a rule scaled to sum to one: K rounding errors of f64.
const WEIGHT_TOLERANCE: f64 = 1e-9;

/// The rule for **w** and ⟨𝓝, 𝓐, 𝓢⟩: the operators that select a candidate from scores.
#[derive(Clone)]
pub struct Operators {
    /// The rule that derives the weights of a step from those of Ω.
    pub weighting: Arc<dyn Weighting>,
    /// 𝓝.
    pub normalizer: Arc<dyn Normalizer>,
    /// 𝓐.
    pub aggregator: Arc<dyn Aggregator>,
    /// 𝓢.
    pub selector: Arc<dyn Selector>,
}

impl fmt::Debug for Operators {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operators").finish_non_exhaustive()
    }
}

/// The results of the operators in a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// The weights that the rule for **w** returned, one per blade; empty if they equal the
    /// requested ones. Their sum scales the composites.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weights: Vec<f64>,
    /// Composite scores, one per candidate.
    pub mu: Vec<f64>,
    /// Composite dispersions, one per candidate.
    pub sigma: Vec<f64>,
    /// Ratings, one per candidate.
    pub ratings: Vec<f64>,
    /// Selection probabilities, one per candidate.
    pub probabilities: Vec<f64>,
    /// The index of the selected candidate.
    pub chosen: usize,
}

impl Decision {
    /// Returns the indices of the `most` most likely candidates in ascending order; ties are broken
    /// by rating, then by index. The chosen one and those in `always` are always among them, in place
    /// of more likely ones, and beyond `most` if there are more of them.
    pub fn most_likely(&self, most: usize, always: &[usize]) -> Vec<usize> {
        let all = 0..self.probabilities.len();
        if all.len() <= most {
            return all.collect();
        }
        let (kept, mut rest): (Vec<usize>, Vec<usize>) = all.partition(|i| *i == self.chosen || always.contains(i));
        let by = |values: &[f64], a: usize, b: usize| values[b].total_cmp(&values[a]);
        rest.sort_by(|&a, &b| by(&self.probabilities, a, b).then(by(&self.ratings, a, b)));
        rest.truncate(most.saturating_sub(kept.len()));
        rest.extend(kept);
        rest.sort_unstable();
        rest
    }
}

impl Operators {
    /// Weights, normalises and rates the scores of N candidates, and selects one with the number
    /// `uniform` in [0, 1), among all of them or the given ones in ascending order.
    ///
    /// `requested` has one entry per blade of `scores`. The normaliser combines the blades of
    /// positive weight, with weights that are scaled to sum to one. If the rule for **w** changed
    /// the weights, the composites are multiplied by the sum of the new weights. The selector sees
    /// all blades.
    ///
    /// All candidates are normalised and rated. Given `among`, the probabilities are those of the
    /// selector conditioned on selecting one of these. If that event has probability zero, they are
    /// those of the selector for a batch of only `among`.
    ///
    /// Costs O(K·N) arithmetic (`prop:cost`) and sorts of N values, in addition to the rule for
    /// **w** and the aggregator. Allocates the decision and its intermediate values, O(K·N)
    /// numbers. The operators of this workspace allocate nothing more once the thread has processed
    /// a batch of this size, except the rules `MaxMin` and `Dual` of `sk-normalize`, which allocate
    /// throughout their search.
    ///
    /// # Errors
    /// If `requested` and `scores` differ in length, a weight is negative or not finite, none is
    /// positive, the weights of the rule have an infinite sum, `fluency` does not have N finite
    /// values, the normaliser returns no scores of N candidates, a rating is not finite, or the
    /// selector's probabilities are not a distribution.
    ///
    /// # Panics
    /// If `among` is empty, is not strictly ascending, or has an index that is out of bounds.
    pub fn decide(
        &self,
        scores: &ScoreTable,
        requested: &[f64],
        fluency: Option<&[f64]>,
        uniform: f64,
        among: Option<&[usize]>,
    ) -> Result<Decision, StepError> {
        let n = scores.candidates();
        let ascending = |among: &[usize]| among.is_sorted_by(|a, b| a < b) && among.last().is_some_and(|&last| last < n);
        assert!(among.is_none_or(ascending), "some of the candidates, in ascending order");
        if requested.len() != scores.blades() {
            let (expected, got) = (scores.blades(), requested.len());
            return Err(StepError::Scores(ScoreError::Length { quantity: "weights", expected, got }));
        }
        Simplex::normalized(requested).map_err(StepError::Weights)?;
        let mut weights = vec![f64::NAN; requested.len()];
        self.weighting.weigh(scores, requested, &mut weights);
        // Checked as a whole first, so that an error counts all blades.
        Simplex::normalized(&weights[..]).map_err(StepError::Weights)?;
        let counting: Vec<usize> = (0..weights.len()).filter(|&k| weights[k] != 0.0).collect();
        let simplex =
            Simplex::normalized(counting.iter().map(|&k| weights[k]).collect::<Vec<_>>()).map_err(StepError::Weights)?;
        let counted = (counting.len() < weights.len()).then(|| scores.select(&counting));
        let mut composite = Composite::default();
        self.normalizer.combine(counted.as_ref().unwrap_or(scores), &simplex, &mut composite);
        let total: f64 = weights.iter().sum();
        if weights != requested && (total - 1.0).abs() > WEIGHT_TOLERANCE {
            if !total.is_finite() {
                return Err(StepError::Weights(SimplexError::Sum { sum: total, expected: "a finite number" }));
            }
            composite.mu.iter_mut().chain(&mut composite.sigma).for_each(|value| *value *= total);
        }

        let batch = batch(&composite, scores, fluency)?;
        let mut ratings = vec![0.0; n];
        self.aggregator.rate(&batch, &mut ratings);
        if let Some(index) = ratings.iter().position(|rating| !rating.is_finite()) {
            return Err(StepError::Rating { index, value: ratings[index] });
        }
        let mut probabilities = vec![0.0; n];
        self.selector.distribution(&ratings, &batch, &mut probabilities);
        check_distribution(&probabilities)?;
        if let Some(among) = among.filter(|among| among.len() < n) {
            probabilities = self.given(among, &batch, &ratings, &probabilities)?;
        }
        let chosen = draw_at(&probabilities, uniform);
        if weights == requested {
            weights.clear();
        }
        let Composite { mu, sigma } = composite;
        Ok(Decision { weights, mu, sigma, ratings, probabilities, chosen })
    }

    /// Returns the selection probabilities, conditioned on selecting one of `among`.
    fn given(&self, among: &[usize], batch: &Batch<'_>, ratings: &[f64], probabilities: &[f64]) -> Result<Vec<f64>, StepError> {
        let pick = |values: &[f64]| among.iter().map(|&i| values[i]).collect::<Vec<f64>>();
        let mut picked = pick(probabilities);
        let mass: f64 = picked.iter().sum();
        if mass > 0.0 {
            picked.iter_mut().for_each(|p| *p /= mass);
        } else {
            self.selector.distribution(&pick(ratings), &batch.pick(among).batch(), &mut picked);
            check_distribution(&picked)?;
        }
        let mut all = vec![0.0; probabilities.len()];
        among.iter().zip(picked).for_each(|(&i, p)| all[i] = p);
        Ok(all)
    }
}

/// Validates composites and fluency scores of the candidates in `scores`.
fn batch<'a>(composite: &'a Composite, scores: &'a ScoreTable, fluency: Option<&'a [f64]>) -> Result<Batch<'a>, StepError> {
    let (expected, got) = (scores.candidates(), composite.mu.len());
    if got != expected {
        return Err(StepError::Composite(ScoreError::Length { quantity: "composite scores", expected, got }));
    }
    let batch = Batch::new(&composite.mu, &composite.sigma).map_err(StepError::Composite)?.with_blades(scores);
    fluency.map_or(Ok(batch), |fluency| batch.with_fluency(fluency).map_err(StepError::Scores))
}

fn check_distribution(probabilities: &[f64]) -> Result<(), StepError> {
    if let Some(index) = probabilities.iter().position(|p| !(0.0..=1.0 + PROBABILITY_TOLERANCE).contains(p)) {
        return Err(StepError::Distribution { index, value: probabilities[index] });
    }
    let sum: f64 = probabilities.iter().sum();
    if (sum - 1.0).abs() > PROBABILITY_TOLERANCE * probabilities.len() as f64 {
        return Err(StepError::Mass { sum });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn most_likely(probabilities: &[f64], ratings: &[f64], chosen: usize, most: usize, always: &[usize]) -> Vec<usize> {
        let (probabilities, ratings) = (probabilities.to_vec(), ratings.to_vec());
        let decision = Decision { weights: Vec::new(), mu: Vec::new(), sigma: Vec::new(), ratings, probabilities, chosen };
        decision.most_likely(most, always)
    }

    #[test]
    fn the_most_likely_candidates_the_chosen_one_and_those_asked_for_are_kept() {
        let (probabilities, ratings) = ([0.0, 0.6, 0.0, 0.4, 0.0], [1.0, 9.0, 3.0, 8.0, 2.0]);
        for (chosen, most, expected) in
            [(1, 5, &[0, 1, 2, 3, 4][..]), (1, 3, &[1, 2, 3]), (0, 3, &[0, 1, 3]), (2, 1, &[2]), (4, 0, &[4])]
        {
            assert_eq!(most_likely(&probabilities, &ratings, chosen, most, &[]), expected, "{chosen}, {most}");
        }
        let falling: Vec<f64> = (0..100).map(|i| 1.0 / f64::from(i + 1)).collect();
        for (always, expected) in [
            (&[3][..], &[0, 1, 2, 3][..]),
            (&[90, 1, 80, 90], &[0, 1, 80, 90]),
            // The last of the most likely ones does not make room for another.
            (&[3, 90], &[0, 1, 3, 90]),
            (&[95, 94, 93, 92, 91], &[0, 91, 92, 93, 94, 95]),
        ] {
            assert_eq!(most_likely(&falling, &[0.0; 100], 0, 4, always), expected, "{always:?}");
        }
        // Of the candidates with probability zero under an argmax, those with the best ratings.
        let (mut certain, rising) = ([0.0; 100], std::array::from_fn::<f64, 100, _>(|i| i as f64));
        certain[50] = 1.0;
        assert_eq!(most_likely(&certain, &rising, 50, 4, &[]), [50, 97, 98, 99]);
    }
}
