use sk_core::ScoreTable;

/// The number of bisection steps of a line search: an `f64` has 53 bits.
const HALVINGS: usize = 60;

/// The exponentially tilted distribution over a batch: p_i ∝ exp(1/T Σ_k w_k μ_i^(k)).
pub(crate) struct Tilt {
    /// Σ_k w_k μ_i^(k).
    composites: Vec<f64>,
    /// p_i.
    shares: Vec<f64>,
    temperature: f64,
}

impl Tilt {
    /// Creates the tilted distribution for `scores` under `weights`.
    pub(crate) fn new(scores: &ScoreTable, weights: &[f64], temperature: f64) -> Self {
        Self::of(shift(scores, weights), temperature)
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

    /// Returns the x between 0 and `room` that minimises T log Σ_i exp(1/T (c_i + x·shift_i)) −
    /// x·`toll`, where c are the composites.
    pub(crate) fn least_along(&self, shift: &[f64], toll: f64, room: f64) -> f64 {
        // The objective is convex, so its slope is increasing.
        let slope = |x: f64| self.with(x, shift).mean(shift) - toll;
        if slope(0.0) >= 0.0 {
            return 0.0;
        }
        let (mut least, mut most) = (0.0, room);
        if slope(room) > 0.0 {
            for _ in 0..HALVINGS {
                let middle = f64::midpoint(least, most);
                *if slope(middle) < 0.0 { &mut least } else { &mut most } = middle;
            }
        }
        most
    }

    /// Returns the distribution after adding `scores` with weight `added`.
    fn with(&self, added: f64, scores: &[f64]) -> Self {
        let added = self.composites.iter().zip(scores).map(|(c, score)| c + added * score);
        Self::of(added.collect(), self.temperature)
    }
}

/// Returns Σ_k `direction`_k μ_i^(k): the change of the composites per unit step along `direction`.
pub(crate) fn shift(scores: &ScoreTable, direction: &[f64]) -> Vec<f64> {
    let of = |i: usize| direction.iter().enumerate().map(|(k, d)| d * scores.mu(k)[i]).sum();
    (0..scores.candidates()).map(of).collect()
}
