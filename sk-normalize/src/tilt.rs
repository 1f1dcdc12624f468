use sk_core::ScoreTable;

/// A batch tilted by its weighed scores: p_i ∝ exp(1/T Σ_k w_k μ_i^(k)).
pub(crate) struct Tilt {
    /// Σ_k w_k μ_i^(k).
    composites: Vec<f64>,
    /// p_i.
    shares: Vec<f64>,
    temperature: f64,
}

impl Tilt {
    /// Returns the batch of `scores`, tilted under `weights`.
    pub(crate) fn new(scores: &ScoreTable, weights: &[f64], temperature: f64) -> Self {
        let composite = |i: usize| weights.iter().enumerate().map(|(k, weight)| weight * scores.mu(k)[i]).sum();
        Self::of((0..scores.candidates()).map(composite).collect(), temperature)
    }

    fn of(composites: Vec<f64>, temperature: f64) -> Self {
        let largest = composites.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mut shares: Vec<f64> = composites.iter().map(|value| ((value - largest) / temperature).exp()).collect();
        let sum: f64 = shares.iter().sum();
        shares.iter_mut().for_each(|share| *share /= sum);
        Self { composites, shares, temperature }
    }

    /// Returns Σ_i p_i x_i.
    pub(crate) fn mean(&self, values: &[f64]) -> f64 {
        self.shares.iter().zip(values).map(|(share, value)| share * value).sum()
    }

    /// Returns the batch with `moved` of the weight of scores `from` given to scores `to`.
    pub(crate) fn along(&self, moved: f64, to: &[f64], from: &[f64]) -> Self {
        let moved = self.composites.iter().zip(to.iter().zip(from)).map(|(c, (to, from))| c + moved * (to - from));
        Self::of(moved.collect(), self.temperature)
    }

    /// Returns the batch with `added` of weight for `scores` besides.
    pub(crate) fn with(&self, added: f64, scores: &[f64]) -> Self {
        let added = self.composites.iter().zip(scores).map(|(c, score)| c + added * score);
        Self::of(added.collect(), self.temperature)
    }
}
