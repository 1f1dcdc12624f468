use sk_core::{Composite, Deviation, Moments, Normalizer, Real, ScoreTable, Scratch, Simplex};

use crate::Propagation;
use crate::propagation::Scale;

/// Makes the median absolute deviation of a normal sample estimate its standard deviation:
/// 1/Φ⁻¹(3/4).
const MAD_TO_STD: f64 = 1.482_602_218_505_602;

/// Makes the mean absolute deviation of a normal sample estimate its standard deviation: √(π/2).
const MEAN_AD_TO_STD: f64 = 1.253_314_137_315_500_1;

/// Median and median absolute deviation in place of mean and standard deviation.
///
/// ```text
/// μ̂_i = (μ_i − median(μ)) / (1.4826 · MAD(μ))      σ̂_i = σ_i / (1.4826 · MAD(μ))      per blade, over the N candidates
/// ```
///
/// Fewer than half of the candidates cannot move the scale without bound. Where more than half are
/// tied up to rounding, so that MAD is zero, the mean absolute deviation about the median stands in
/// (times 1.2533); a blade without any spread, and a batch of one, contribute 0. Invariant as CBN
/// at ε = 0. O(K·N); no allocation once a thread has combined a batch of the size.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Robust {
    /// How dispersions combine.
    pub propagation: Propagation,
}

impl<F: Real> Normalizer<F> for Robust {
    fn combine(&self, scores: &ScoreTable<F>, weights: &Simplex<F>, out: &mut Composite<F>) {
        let mut deviations = Scratch::empty();
        self.propagation.combine(scores, weights, out, |k, add| {
            let mu = scores.mu(k);
            // A power of two, in whose multiples scores of any size have differences and sums.
            let unit = Moments::of(mu, Deviation::Population).unit();
            deviations.clear();
            deviations.extend(mu.iter().map(|&value| unit * value));
            let moments = Moments::of(&deviations, Deviation::Population);
            if moments.is_degenerate() {
                return Scale::zero();
            }
            let centre = median(&mut deviations);
            for value in &mut *deviations {
                *value = (*value - centre).abs();
            }
            let mean_deviation = deviations.iter().copied().sum::<F>() / F::of(mu.len() as f64);
            let mad = F::of(MAD_TO_STD) * median(&mut deviations);
            // What rounding leaves of a tie is none.
            let scale = if mad > moments.rounding() { mad } else { F::of(MEAN_AD_TO_STD) * mean_deviation };
            for (i, &value) in mu.iter().enumerate() {
                add(i, (unit * value - centre) / scale);
            }
            // Of the scores, and of the scale, which moves an outlier by many times as much.
            let rounding = moments.rounding() / scale * (F::one() + moments.std() / scale);
            Scale { factor: unit / scale, rounding }
        });
    }
}

/// The median, the mean of the middle two for an even number. Reorders `values`.
fn median<F: Real>(values: &mut [F]) -> F {
    let middle = values.len() / 2;
    let even = values.len().is_multiple_of(2);
    // Scores are finite, so the order is total.
    let (below, &mut upper, _) = values.select_nth_unstable_by(middle, |a, b| a.widen().total_cmp(&b.widen()));
    match below.iter().copied().reduce(F::max) {
        // Halves first, so that the sum of two large scores cannot overflow.
        Some(lower) if even => F::of(0.5) * lower + F::of(0.5) * upper,
        _ => upper,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&mut [5.0]), 5.0);
        assert_eq!(median(&mut [5.0, 1.0]), 3.0);
        assert_eq!(median(&mut [9.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [9.0, 1.0, 2.0, 4.0]), 3.0);
        assert_eq!(median(&mut [f64::MAX, f64::MAX]), f64::MAX);
    }
}
