use serde::Serialize;

use crate::{
    Aggregator, Batch, Composite, Normalizer, ScoreError, ScoreTable, ScoreTrace, Selector, Simplex, StepError, draw_at,
};

/// How far the sum of a selector's probabilities may be from one: N roundings of f64.
const PROBABILITY_TOLERANCE: f64 = 1e-9;

/// ⟨𝓝, 𝓐, 𝓢⟩: what makes a choice of scores.
#[derive(Clone, Copy)]
pub struct Operators<'s> {
    /// 𝓝.
    pub normalizer: &'s dyn Normalizer,
    /// 𝓐.
    pub aggregator: &'s dyn Aggregator,
    /// 𝓢.
    pub selector: &'s dyn Selector,
}

/// What operators make of the scores of a step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Decision {
    /// Composite scores, one per candidate.
    pub mu: Vec<f64>,
    /// Composite dispersions, one per candidate.
    pub sigma: Vec<f64>,
    /// Ratings, one per candidate.
    pub ratings: Vec<f64>,
    /// Selection probabilities, one per candidate.
    pub probabilities: Vec<f64>,
    /// The candidate that was drawn.
    pub chosen: usize,
}

impl Operators<'_> {
    /// Normalises, rates and selects; the number `uniform` of [0, 1) draws. Blades of weight zero are for the selector to look at.
    ///
    /// Arithmetic in K·N besides the aggregator's own (`prop:cost`). Allocates the decision and the tables of scores; the slots themselves
    /// allocate nothing once a thread has seen a batch of the size.
    ///
    /// # Errors
    /// When weights or scores are none, two blades have one name, no blade has a positive weight, blades and fluency differ in their number of
    /// candidates, the normaliser's composites are no scores, a rating is NaN, or the selector's probabilities are no distribution.
    pub fn decide(&self, blades: &[ScoreTrace], fluency: Option<&[f64]>, uniform: f64) -> Result<Decision, StepError> {
        let counting = || blades.iter().filter(|blade| blade.weight > 0.0);
        let weights =
            Simplex::normalized(counting().map(|blade| blade.weight).collect::<Vec<_>>()).map_err(StepError::Weights)?;
        let mut composite = Composite::default();
        let counted = table(counting())?;
        self.normalizer.combine(&counted, &weights, &mut composite);

        let idle = blades.iter().any(|blade| blade.weight.is_nan() || blade.weight <= 0.0);
        let with_idle = idle.then(|| table(blades)).transpose()?;
        let all = with_idle.as_ref().unwrap_or(&counted);
        let n = all.candidates();
        let mut batch = composites(&composite, n).map_err(StepError::Composite)?.with_blades(all);
        if let Some(fluency) = fluency {
            batch = batch.with_fluency(fluency).map_err(StepError::Scores)?;
        }
        let mut ratings = vec![0.0; n];
        self.aggregator.rate(&batch, &mut ratings);
        if let Some(index) = ratings.iter().position(|rating| rating.is_nan()) {
            return Err(StepError::Rating { index });
        }
        let mut probabilities = vec![0.0; n];
        self.selector.distribution(&ratings, &batch, &mut probabilities);
        check_distribution(&probabilities)?;
        let chosen = draw_at(&probabilities, uniform);
        let Composite { mu, sigma } = composite;
        Ok(Decision { mu, sigma, ratings, probabilities, chosen })
    }
}

/// The scores of `blades` under their names.
fn table<'b>(blades: impl IntoIterator<Item = &'b ScoreTrace> + Clone) -> Result<ScoreTable, StepError> {
    ScoreTable::new(blades.clone().into_iter().map(|b| (&b.mu, &b.sigma)))
        .and_then(|table| table.with_names(blades.into_iter().map(|b| b.name.as_str())))
        .map_err(StepError::Scores)
}

/// What a normaliser made of `n` candidates.
fn composites(composite: &Composite, n: usize) -> Result<Batch<'_>, ScoreError> {
    match composite.mu.len() {
        got if got == n => Batch::new(&composite.mu, &composite.sigma),
        got => Err(ScoreError::Length { quantity: "composite scores", expected: n, got }),
    }
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
