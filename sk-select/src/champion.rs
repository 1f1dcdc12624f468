use sk_core::{Batch, OperatingPoint, ParameterError, Real, Selector, Standardize};

use crate::argmax::{highest, point_mass};
use crate::softmax::softmax;

/// The champion rule of the reference instantiation: a softmax over rating, score and dispersion.
///
/// ```text
/// ℓ_i = 1/T [ w_tour z(R)_i + w_blade (z(μ)_i − λ z(σ)_i) ]        P = softmax(ℓ)
/// ```
///
/// with z the third of the published standardisations. −λ z(σ) is a lower-confidence-bound penalty.
/// Ratings need not be centred, since z and the softmax are invariant to shifts. Below T = 1e-5 the
/// highest logit is selected, on ties the lowest index. O(N); no allocation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Champion {
    temperature: f64,
    w_tour: f64,
    w_blade: f64,
    lambda: f64,
    standardize: Option<Standardize>,
}

impl Champion {
    /// The temperature below which the highest logit is selected.
    pub const COLD: f64 = 1e-5;

    /// Creates the rule in the published convention at an operating point: z with ε = 1e-6, values
    /// only centred if the standard deviation is below 1e-8.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn paper(point: &OperatingPoint) -> Result<Self, ParameterError> {
        Self::new(point, Some(Standardize::PAPER))
    }

    /// Creates the rule of the published equation at ε = 0: a quantity without spread contributes
    /// 0.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn sound(point: &OperatingPoint) -> Result<Self, ParameterError> {
        Self::new(point, Some(Standardize::EXACT))
    }

    /// Creates the rule with temperature, weights and penalty of `point`, over quantities
    /// standardised by `standardize`, or unchanged for `None`.
    ///
    /// # Errors
    /// If the temperature, a weight or λ is negative or not finite, or if w_blade·λ is not finite.
    pub fn new(point: &OperatingPoint, standardize: Option<Standardize>) -> Result<Self, ParameterError> {
        let OperatingPoint { temperature, w_tour, w_blade, lambda, .. } = *point;
        ParameterError::not_negative("temperature", temperature)?;
        ParameterError::not_negative("w_tour", w_tour)?;
        ParameterError::not_negative("w_blade", w_blade)?;
        ParameterError::not_negative("lambda", lambda)?;
        ParameterError::not_negative("w_blade times lambda", w_blade * lambda)?;
        Ok(Self { temperature, w_tour, w_blade, lambda, standardize })
    }

    /// Writes `unit`·T·ℓ.
    fn logits<F: Real>(&self, unit: f64, ratings: &[F], batch: &Batch<'_, F>, logits: &mut [F]) {
        logits.fill(F::zero());
        self.add(logits, unit * self.w_tour, ratings);
        self.add(logits, unit * self.w_blade, batch.mu());
        self.add(logits, -unit * (self.w_blade * self.lambda), batch.sigma());
    }

    /// Adds `weight` times the standardised `values` to `logits`.
    fn add<F: Real>(&self, logits: &mut [F], weight: f64, values: &[F]) {
        let weight = F::of(weight);
        let moments = self.standardize.map(|rule| (rule, rule.moments(values)));
        for (logit, &value) in logits.iter_mut().zip(values) {
            *logit = *logit + weight * moments.as_ref().map_or(value, |(rule, moments)| rule.apply(moments, value));
        }
    }
}

impl<F: Real> Selector<F> for Champion {
    fn distribution(&self, ratings: &[F], batch: &Batch<'_, F>, probabilities: &mut [F]) {
        let n = batch.len();
        assert!(ratings.len() == n && probabilities.len() == n, "one rating and one probability per candidate");
        self.logits(1.0, ratings, batch, probabilities);
        let mut unit = 1.0;
        if !probabilities.iter().all(|logit| logit.is_finite()) {
            // The sum of very large scores overflows. All terms are then scaled by a power of two,
            // which is exact.
            let weight = self.w_tour.max(self.w_blade).max(self.w_blade * self.lambda).max(1.0);
            unit = (-2.0 - weight.log2().ceil()).exp2();
            self.logits(unit, ratings, batch, probabilities);
        }
        if self.temperature < Self::COLD {
            point_mass(highest(probabilities), probabilities);
        } else {
            softmax(probabilities, unit * self.temperature);
        }
    }
}
