use crate::{Real, SimplexError};

/// The tolerance for the sum of weights. Decimal input such as 0.333 is rejected; 1/3 written with
/// seven digits is accepted.
const SUM_TOLERANCE: f64 = 1e-6;

/// Weights **w** on the probability simplex: finite, not negative, summing to one.
#[derive(Debug, Clone, PartialEq)]
pub struct Simplex<F = f64>(Vec<F>);

impl<F: Real> Simplex<F> {
    /// Creates weights that sum to one within 1e-6; the residual is divided out.
    ///
    /// # Errors
    /// If there is no weight, one is negative or not finite, or the sum is not 1.
    pub fn new(weights: impl Into<Vec<F>>) -> Result<Self, SimplexError> {
        let weights = weights.into();
        let sum = checked_sum(&weights)?;
        if (sum - 1.0).abs() > SUM_TOLERANCE {
            return Err(SimplexError::Sum { sum, expected: "1" });
        }
        Ok(Self::scaled(weights, 1.0, sum))
    }

    /// Divides weights by their positive sum.
    ///
    /// # Errors
    /// If there is no weight, a weight is negative or not finite, or all are zero.
    pub fn normalized(weights: impl Into<Vec<F>>) -> Result<Self, SimplexError> {
        let weights = weights.into();
        let sum = checked_sum(&weights)?;
        if sum <= 0.0 {
            return Err(SimplexError::Sum { sum, expected: "a positive number" });
        }
        if sum.is_finite() {
            return Ok(Self::scaled(weights, 1.0, sum));
        }
        // The sum can overflow although each weight is finite, so they are first scaled by a power
        // of two.
        let unit = (weights.len() as f64).log2().ceil().exp2().recip();
        let sum = weights.iter().map(|weight| weight.widen() * unit).sum();
        Ok(Self::scaled(weights, unit, sum))
    }

    /// Returns the centroid, with weights 1/K.
    ///
    /// # Errors
    /// If `k` is zero.
    pub fn uniform(k: usize) -> Result<Self, SimplexError> {
        Self::normalized(vec![F::one(); k])
    }

    /// Returns the weights times `unit`/`sum`, where `sum` is the sum of the weights times `unit`.
    fn scaled(weights: Vec<F>, unit: f64, sum: f64) -> Self {
        Self(weights.into_iter().map(|weight| F::of(weight.widen() * unit / sum)).collect())
    }

    /// Returns the weights, in the order of the blades.
    pub fn as_slice(&self) -> &[F] {
        &self.0
    }

    /// Returns K.
    #[allow(clippy::len_without_is_empty)] // never empty by construction
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

fn checked_sum<F: Real>(weights: &[F]) -> Result<f64, SimplexError> {
    if weights.is_empty() {
        return Err(SimplexError::Empty);
    }
    let mut sum = 0.0;
    for (index, w) in weights.iter().enumerate() {
        let value = w.widen();
        if !value.is_finite() {
            return Err(SimplexError::Value { index, value, expected: "be finite" });
        }
        if value < 0.0 {
            return Err(SimplexError::Value { index, value, expected: "not be negative" });
        }
        sum += value;
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn refuses_what_is_not_a_weight() {
        assert_eq!(Simplex::<f64>::new(vec![]), Err(SimplexError::Empty));
        let negative = SimplexError::Value { index: 1, value: -0.5, expected: "not be negative" };
        assert_eq!(Simplex::new(vec![0.5, -0.5, 1.0]), Err(negative));
        assert!(matches!(Simplex::new(vec![f64::NAN, 1.0]), Err(SimplexError::Value { index: 0, expected: "be finite", .. })));
        assert!(matches!(Simplex::new(vec![0.5, 0.4]), Err(SimplexError::Sum { .. })));
        assert!(matches!(Simplex::normalized(vec![0.0, 0.0]), Err(SimplexError::Sum { .. })));
    }

    #[test]
    fn weights_of_any_size_are_scaled() {
        assert_eq!(Simplex::normalized([3e38_f32, 3e38]).unwrap().as_slice(), [0.5, 0.5]);
        assert_eq!(Simplex::normalized([1e308, 1e308, 0.0]).unwrap().as_slice(), [0.5, 0.5, 0.0]);
        assert_eq!(Simplex::normalized([f64::MAX; 4]).unwrap().as_slice(), [0.25; 4]);
        assert_eq!(Simplex::normalized([f32::MIN_POSITIVE, f32::MIN_POSITIVE]).unwrap().as_slice(), [0.5, 0.5]);
    }

    proptest! {
        #[test]
        fn normalized_weights_keep_their_ratios(raw in proptest::collection::vec(1e-3f64..1e3, 1..9)) {
            let w = Simplex::normalized(raw.clone()).unwrap();
            // Rounding error of K divisions and one sum.
            prop_assert!((w.as_slice().iter().sum::<f64>() - 1.0).abs() < 1e-12);
            for (a, b) in w.as_slice().iter().zip(&raw) {
                prop_assert!((a / w.as_slice()[0] - b / raw[0]).abs() <= 1e-9 * (b / raw[0]));
            }
            prop_assert_eq!(&Simplex::new(w.as_slice().to_vec()).unwrap().len(), &raw.len());
        }
    }
}
