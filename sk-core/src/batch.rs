use crate::Real;

/// What the normaliser makes of a score table: one composite (μ, σ) per candidate.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Composite<F = f64> {
    /// Composite scores, one per candidate.
    pub mu: Vec<F>,
    /// Composite dispersions, one per candidate, not negative.
    pub sigma: Vec<F>,
}

impl<F: Real> Composite<F> {
    /// Sets the number of candidates and fills both vectors with zeros, keeping their allocations.
    pub fn reset(&mut self, candidates: usize) {
        for values in [&mut self.mu, &mut self.sigma] {
            values.clear();
            values.resize(candidates, F::zero());
        }
    }
}

/// A candidate batch as 𝓐 and 𝓢 see it: composite scores and dispersions, and the fluency blade's scores where one is seated.
///
/// All slices have length N ≥ 1, one entry per candidate.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a, F = f64> {
    mu: &'a [F],
    sigma: &'a [F],
    fluency: Option<&'a [F]>,
}

impl<'a, F: Real> Batch<'a, F> {
    /// A batch without a fluency blade.
    ///
    /// # Panics
    /// When the slices differ in length.
    pub fn new(mu: &'a [F], sigma: &'a [F]) -> Self {
        assert_eq!(mu.len(), sigma.len(), "scores and dispersions must be as many as the candidates");
        Self { mu, sigma, fluency: None }
    }

    /// The same batch with the scores ℓ_S of the fluency blade b₀.
    ///
    /// # Panics
    /// When the slice differs in length.
    #[must_use]
    pub fn with_fluency(self, fluency: &'a [F]) -> Self {
        assert_eq!(self.mu.len(), fluency.len(), "fluency scores must be as many as the candidates");
        Self { fluency: Some(fluency), ..self }
    }

    /// N.
    #[allow(clippy::len_without_is_empty)] // a batch holds at least one candidate
    pub fn len(&self) -> usize {
        self.mu.len()
    }

    /// Composite scores μ.
    pub fn mu(&self) -> &'a [F] {
        self.mu
    }

    /// Composite dispersions σ.
    pub fn sigma(&self) -> &'a [F] {
        self.sigma
    }

    /// Length-normalised log-probability of each candidate under the proposal, in nats per token, where b₀ is seated.
    pub fn fluency(&self) -> Option<&'a [F]> {
        self.fluency
    }
}
