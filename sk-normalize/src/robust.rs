use sk_core::{Composite, Deviation, Moments, Normalizer, Real, ScoreTable, Scratch, Simplex};

use crate::Propagation;
use crate::propagation::Scale;

/// The factor from the median absolute deviation of a normal sample to its standard deviation:
/// 1/Φ⁻¹(3/4).
const MAD_TO_STD: f64 = 1.482_602_218_505_602;

/// The factor from the mean absolute deviation of a normal sample to its standard deviation:
/// √(π/2).
const MEAN_AD_TO_STD: f64 = 1.253_314_137_315_500_1;

/// Normalisation by median and median absolute deviation (MAD) instead of mean and standard
/// deviation.
///
/// ```text
/// μ̂_i = (μ_i − median(μ)) / (1.4826 · MAD(μ))      σ̂_i = σ_i / (1.4826 · MAD(μ))      per blade, over the N candidates
/// ```
///
/// The scale stays bounded if fewer than half of the candidates are outliers. If more than half are
/// equal up to rounding, so that MAD is zero, the mean absolute deviation about the median is used
/// instead (times 1.2533). A blade without spread, and a batch of one, contribute 0. Invariant like
/// CBN at ε = 0, but an outlier whose terms cancel may tie with any candidate within its rounding
/// error. O(N (K + log N)); no allocation once the thread has processed a batch of this size.
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
            // A power of two, in whose unit differences and sums of scores cannot overflow.
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
            let mean_deviation = F::of(deviations.iter().map(|value| value.widen()).sum::<f64>() / mu.len() as f64);
            let mad = F::of(MAD_TO_STD) * median(&mut deviations);
            // A MAD that is due to rounding counts as zero.
            let scale = if mad > moments.rounding() { mad } else { F::of(MEAN_AD_TO_STD) * mean_deviation };
            for (i, &value) in mu.iter().enumerate() {
                add(i, (unit * value - centre) / scale);
            }
            // The rounding error of the scores, and that of the scale, which is relative.
            let rounding = moments.rounding() / scale;
            Scale { factor: unit / scale, rounding, relative: rounding }
        });
    }
}

/// Returns the median, the mean of the middle two for an even number. Reorders `values`.
fn median<F: Real>(values: &mut [F]) -> F {
    let middle = values.len() / 2;
    let even = values.len().is_multiple_of(2);
    // Scores are finite, so the order is total.
    let (below, &mut upper, _) = values.select_nth_unstable_by(middle, |a, b| a.widen().total_cmp(&b.widen()));
    match below.iter().copied().reduce(F::max) {
        // Halved before the sum, so that two large scores cannot overflow.
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
