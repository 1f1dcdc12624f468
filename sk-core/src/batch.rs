use crate::{Real, ScoreError, ScoreTable, Scratch, score};

/// The result of normalising a score table: one composite (μ, σ) per candidate.
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

/// A candidate batch as 𝓐 and 𝓢 see it: composite scores and dispersions, and optionally the
/// fluency scores and the scores of the single blades.
///
/// All slices have length N ≥ 1, one entry per candidate.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a, F = f64> {
    mu: &'a [F],
    sigma: &'a [F],
    fluency: Option<&'a [F]>,
    blades: Option<&'a ScoreTable<F>>,
}

impl<'a, F: Real> Batch<'a, F> {
    /// Creates a batch without fluency scores.
    ///
    /// ```
    /// use sk_core::Batch;
    /// let refused = Batch::new(&[0.5, f64::NAN], &[0.1, 0.1]).unwrap_err();
    /// assert_eq!(refused.to_string(), "score of candidate 1 is NaN; scores must be finite");
    /// ```
    ///
    /// # Errors
    /// If there is no candidate, the slices differ in length, or a number is not a valid score. The
    /// error has the index of the candidate.
    pub fn new(mu: &'a [F], sigma: &'a [F]) -> Result<Self, ScoreError> {
        if mu.is_empty() {
            return Err(ScoreError::Empty);
        }
        if sigma.len() != mu.len() {
            return Err(ScoreError::Length { quantity: "dispersions", expected: mu.len(), got: sigma.len() });
        }
        for (candidate, (&m, &s)) in mu.iter().zip(sigma).enumerate() {
            score::check(candidate, m, s)?;
        }
        Ok(Self { mu, sigma, fluency: None, blades: None })
    }

    /// Creates a batch of numbers known to be valid scores, because they come from a [`ScoreTable`]
    /// and a normaliser or from another batch. They are checked by debug assertions only.
    ///
    /// # Panics
    /// If there is no candidate or the slices differ in length.
    pub fn trusted(mu: &'a [F], sigma: &'a [F]) -> Self {
        assert!(!mu.is_empty(), "a batch holds at least one candidate");
        assert_eq!(mu.len(), sigma.len(), "scores and dispersions must be as many as the candidates");
        debug_assert!(Self::new(mu, sigma).is_ok(), "not scores: {mu:?}, {sigma:?}");
        Self { mu, sigma, fluency: None, blades: None }
    }

    /// Adds the scores ℓ_S of the fluency blade b₀.
    ///
    /// # Errors
    /// If the slice has another length or a number is not finite. The error has the index of the
    /// candidate.
    pub fn with_fluency(self, fluency: &'a [F]) -> Result<Self, ScoreError> {
        if fluency.len() != self.mu.len() {
            return Err(ScoreError::Length { quantity: "fluency scores", expected: self.mu.len(), got: fluency.len() });
        }
        match fluency.iter().position(|score| !score.is_finite()) {
            Some(candidate) => {
                let (value, expected) = (fluency[candidate].widen(), "scores must be finite");
                Err(ScoreError::Value { quantity: "fluency", candidate, value, expected })
            }
            None => Ok(Self { fluency: Some(fluency), ..self }),
        }
    }

    /// As [`with_fluency`](Self::with_fluency), for numbers known to be valid, as for
    /// [`trusted`](Self::trusted).
    ///
    /// # Panics
    /// If the slice has another length.
    #[must_use]
    pub fn with_trusted_fluency(self, fluency: &'a [F]) -> Self {
        assert_eq!(self.mu.len(), fluency.len(), "fluency scores must be as many as the candidates");
        debug_assert!(self.with_fluency(fluency).is_ok(), "not scores: {fluency:?}");
        Self { fluency: Some(fluency), ..self }
    }

    /// Adds the scores of the single blades before normalisation.
    ///
    /// # Panics
    /// If the table has another number of candidates.
    #[must_use]
    pub fn with_blades(self, blades: &'a ScoreTable<F>) -> Self {
        assert_eq!(self.mu.len(), blades.candidates(), "each blade must have scored all candidates");
        Self { blades: Some(blades), ..self }
    }

    /// Removes the scores of the single blades.
    #[must_use]
    pub fn without_blades(self) -> Self {
        Self { blades: None, ..self }
    }

    /// Returns the given candidates, in the given order. Allocates nothing once the thread has
    /// picked as many.
    ///
    /// # Panics
    /// If `candidates` is empty, or an index is not below [`len`](Self::len).
    pub fn pick(&self, candidates: &[usize]) -> Picked<F> {
        assert!(!candidates.is_empty(), "a batch holds at least one candidate");
        let pick = |values: &[F]| candidates.iter().map(|&i| values[i]).collect();
        Picked {
            mu: pick(self.mu),
            sigma: pick(self.sigma),
            fluency: self.fluency.map(pick),
            blades: self.blades.map(|table| table.pick(candidates)),
        }
    }

    /// Returns the number of candidates N.
    #[allow(clippy::len_without_is_empty)] // a batch holds at least one candidate
    pub fn len(&self) -> usize {
        self.mu.len()
    }

    /// Returns the composite scores μ.
    pub fn mu(&self) -> &'a [F] {
        self.mu
    }

    /// Returns the composite dispersions σ.
    pub fn sigma(&self) -> &'a [F] {
        self.sigma
    }

    /// Returns the length-normalised log-probability of each candidate under the proposal, in nats
    /// per token; `None` if no fluency blade is seated.
    pub fn fluency(&self) -> Option<&'a [F]> {
        self.fluency
    }

    /// Returns the scores of the single blades before normalisation, if the batch has them.
    pub fn blades(&self) -> Option<&'a ScoreTable<F>> {
        self.blades
    }
}

/// Some candidates of a [`Batch`], with copies of their scores.
#[derive(Debug)]
pub struct Picked<F: 'static = f64> {
    // The buffers are returned in the reverse of the order in which they were borrowed.
    blades: Option<Scratch<ScoreTable<F>>>,
    fluency: Option<Scratch<Vec<F>>>,
    sigma: Scratch<Vec<F>>,
    mu: Scratch<Vec<F>>,
}

impl<F: Real> Picked<F> {
    /// Returns the candidates as a batch.
    pub fn batch(&self) -> Batch<'_, F> {
        let (fluency, blades) = (self.fluency.as_ref().map(|fluency| &fluency[..]), self.blades.as_deref());
        Batch { mu: &self.mu, sigma: &self.sigma, fluency, blades }
    }
}
