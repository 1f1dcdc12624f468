use sk_core::{Batch, Deviation, ParameterError, Real, Standardize, merge_ties};

/// The conversion of a batch for comparison: fluency and composite are brought to one scale and
/// mixed.
///
/// ```text
/// d_i = α z(ℓ_S)_i + (1 − α) z(μ)_i        s_i = (1 − α) σ_i / (std(μ) + ε_σ)        z(x)_i = (x_i − mean(x)) / (std(x) + ε_z)
/// ```
///
/// so that Δ_ij = d_i − d_j is the published match difference. b₀ has no dispersion and adds
/// nothing to s (`prop:cov`). This is the second of the three published standardisations: ε_z =
/// 1e-6 and ε_σ = 1e-8 as published, both 0 in the sound convention. Without a fluency blade, α is
/// taken as 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Entry {
    alpha: f64,
    scores: Option<Standardize>,
    dispersions: Option<Standardize>,
}

impl Entry {
    /// Creates the published convention: z with ε = 1e-6, values only centred if the standard
    /// deviation is below 1e-8; σ divided by the spread of μ plus 1e-8.
    ///
    /// # Errors
    /// If α is not in [0, 1].
    pub fn paper(alpha: f64) -> Result<Self, ParameterError> {
        let dispersions = Standardize::new(Deviation::Sample, 1e-8, 0.0)?;
        Self::new(alpha, Some(Standardize::PAPER), Some(dispersions))
    }

    /// Creates the published equations at ε = 0: scores and dispersions in units of the spread of
    /// μ, both zero if it has none.
    ///
    /// # Errors
    /// If α is not in [0, 1].
    pub fn sound(alpha: f64) -> Result<Self, ParameterError> {
        Self::new(alpha, Some(Standardize::EXACT), Some(Standardize::EXACT))
    }

    /// Creates an entry without standardisation: α applies to fluency and scores in their own
    /// units.
    ///
    /// # Errors
    /// If α is not in [0, 1].
    pub fn plain(alpha: f64) -> Result<Self, ParameterError> {
        Self::new(alpha, None, None)
    }

    /// Creates an entry from the rule that standardises ℓ_S and μ, and the rule whose divisor
    /// applies to σ. `None` leaves values unchanged.
    ///
    /// # Errors
    /// If α is not in [0, 1].
    pub fn new(alpha: f64, scores: Option<Standardize>, dispersions: Option<Standardize>) -> Result<Self, ParameterError> {
        ParameterError::check((0.0..=1.0).contains(&alpha), "alpha", alpha, "in [0, 1]")?;
        Ok(Self { alpha, scores, dispersions })
    }

    /// Returns α.
    pub fn alpha(&self) -> f64 {
        self.alpha
    }

    /// Returns whether scores or dispersions are divided by a spread of the batch.
    pub(crate) fn standardizes(&self) -> bool {
        self.scores.is_some() || self.dispersions.is_some()
    }

    /// Writes d_i and s_i of each candidate. O(N log N); no allocation once the thread has
    /// processed a batch of this size.
    ///
    /// # Panics
    /// If the length of a slice differs from that of the batch.
    pub fn apply<F: Real>(&self, batch: &Batch<'_, F>, d: &mut [F], s: &mut [F]) {
        assert!(d.len() == batch.len() && s.len() == batch.len(), "one entry per candidate");
        let alpha = if batch.fluency().is_some() { F::of(self.alpha) } else { F::zero() };
        let blades = F::one() - alpha;
        let mut rounding = blades * self.scaled(batch.mu(), |i, z| d[i] = blades * z);
        if let Some(fluency) = batch.fluency() {
            rounding = rounding + alpha * self.scaled(fluency, |i, z| d[i] = d[i] + alpha * z);
        }
        if rounding > F::zero() {
            merge_ties(d, |_, _| rounding);
        }
        let unit = match self.dispersions {
            // The reciprocal of a very small spread saturates instead of overflowing.
            Some(rule) => rule.rescale(&rule.moments(batch.mu()), F::one()).min(F::max_value()),
            None => F::one(),
        };
        for (s, &sigma) in s.iter_mut().zip(batch.sigma()) {
            *s = (blades * (sigma * unit)).min(F::max_value());
        }
    }

    /// Calls `write` with z of each value and returns a bound on the rounding error of z.
    fn scaled<F: Real>(&self, values: &[F], mut write: impl FnMut(usize, F)) -> F {
        let Some(rule) = self.scores else {
            values.iter().enumerate().for_each(|(i, &value)| write(i, value));
            return F::zero();
        };
        let moments = rule.moments(values);
        values.iter().enumerate().for_each(|(i, &value)| write(i, rule.apply(&moments, value)));
        rule.rounding(&moments, 2)
    }
}
