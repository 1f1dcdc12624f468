use crate::{ParameterError, Real, Scratch};

/// The divisor of a variance over N values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Deviation {
    /// N − 1, as in the published runs.
    #[default]
    Sample,
    /// N.
    Population,
}

/// The mean and standard deviation of a batch, stored in a unit that is a power of two near its
/// largest magnitude.
///
/// Scaling to this unit is exact, and prevents sums and squares from overflowing or underflowing.
/// The arithmetic is that of `f64` for every `F`, so that the rounding error does not grow with the
/// batch in `f32`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moments<F> {
    unit: F,
    mean: f64,
    std: f64,
    rounding: f64,
    count: f64,
}

impl<F: Real> Moments<F> {
    /// Computes the moments of `values`, with one pass for the mean and one for the standard
    /// deviation. A single value has standard deviation 0.
    ///
    /// # Panics
    /// If `values` is empty.
    pub fn of(values: &[F], deviation: Deviation) -> Self {
        let peak = values.iter().fold(F::zero(), |m, v| m.max(v.abs()));
        let unit = unit_of(peak);
        let scaled = |x: F| x.widen() * unit.widen();
        let n = values.len() as f64;
        // Sums are relative to the first value, so that a constant batch has standard deviation
        // exactly zero whatever its offset.
        let first = scaled(values[0]);
        let mean = first + values.iter().map(|&v| scaled(v) - first).sum::<f64>() / n;
        let divisor = match deviation {
            Deviation::Sample => (n - 1.0).max(1.0),
            Deviation::Population => n,
        };
        let square = |x: f64| x * x;
        let std = (values.iter().map(|&v| square(scaled(v) - mean)).sum::<f64>() / divisor).sqrt();
        let rounding = 4.0 * F::epsilon().widen() * peak.widen() * unit.widen();
        Self { unit, mean, std, rounding, count: n }
    }

    /// Returns the unit c, such that |c·x| is at most about 1 for all values.
    pub fn unit(&self) -> F {
        self.unit
    }

    /// Returns the mean.
    pub fn mean(&self) -> F {
        F::of(self.mean / self.unit.widen())
    }

    /// Returns the standard deviation.
    pub fn std(&self) -> F {
        F::of(self.std / self.unit.widen())
    }

    /// Returns whether all values are equal, up to the rounding of the largest.
    pub fn is_degenerate(&self) -> bool {
        self.std <= self.rounding
    }

    /// Returns the rounding error of the standard deviation: a few units in the last place of the
    /// largest value. A standard deviation of at most this may be due to rounding alone.
    pub fn rounding(&self) -> F {
        F::of(self.rounding / self.unit.widen())
    }
}

/// Returns a power of two c with c·peak near 1.
fn unit_of<F: Real>(peak: F) -> F {
    if peak == F::zero() {
        return F::one();
    }
    // Leaves a margin of eight binades for c itself, and for ε·c.
    let limit = F::max_value().log2().floor() - F::of(8.0);
    let exponent = peak.log2().floor().max(-limit).min(limit);
    F::of(power_of_two(-exponent.to_i32().unwrap_or(0)))
}

/// Returns 2ⁿ exactly, for n from −1022 to 1023; `powi` may round.
fn power_of_two(n: i32) -> f64 {
    f64::from_bits(((1023 + i64::from(n)) as u64) << (f64::MANTISSA_DIGITS - 1))
}

/// The standardisation of a batch: z(x_i) = (x_i − x̄) / (std(**x**) + ε).
///
/// Candidate-batch normalisation (`eq:cbn`), the entry to the tournament and the champion logit all
/// use this map; the published conventions differ only in its parameters. With ε = 0, a batch
/// without spread (all values equal up to rounding) maps to zeros, the limit that keeps the map
/// invariant under x ↦ a·x + b. A batch of one maps to zero.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Standardize {
    deviation: Deviation,
    epsilon: f64,
    centre_below: f64,
}

impl Standardize {
    /// ε = 0: exactly invariant under x ↦ a·x + b, a > 0.
    pub const EXACT: Self = Self { deviation: Deviation::Sample, epsilon: 0.0, centre_below: 0.0 };

    /// Candidate-batch normalisation in the published runs: ε = 1e-6.
    pub const PAPER_CBN: Self = Self { deviation: Deviation::Sample, epsilon: 1e-6, centre_below: 0.0 };

    /// The second and third standardisation in the published runs: ε = 1e-6, and values are only
    /// centred if std < 1e-8.
    pub const PAPER: Self = Self { deviation: Deviation::Sample, epsilon: 1e-6, centre_below: 1e-8 };

    /// Creates a rule from the divisor of the variance, the ε added to the standard deviation, and
    /// the standard deviation below which values are centred but not scaled.
    ///
    /// # Errors
    /// If a number is negative or not finite.
    pub fn new(deviation: Deviation, epsilon: f64, centre_below: f64) -> Result<Self, ParameterError> {
        let epsilon = ParameterError::not_negative("epsilon", epsilon)?;
        let centre_below = ParameterError::not_negative("centre_below", centre_below)?;
        Ok(Self { deviation, epsilon, centre_below })
    }

    /// Computes the moments of a batch with this rule's divisor.
    ///
    /// # Panics
    /// If `values` is empty.
    pub fn moments<F: Real>(&self, values: &[F]) -> Moments<F> {
        Moments::of(values, self.deviation)
    }

    /// Returns z of a value in the batch with these moments.
    pub fn apply<F: Real>(&self, moments: &Moments<F>, value: F) -> F {
        if self.is_indivisible(moments) {
            F::zero()
        } else if self.only_centres(moments) {
            value - moments.mean()
        } else {
            F::of((value.widen() * moments.unit.widen() - moments.mean) / self.divisor(moments))
        }
    }

    /// Divides a dispersion as [`apply`](Self::apply) divides values that are scaled: σ / (std + ε),
    /// where std is that of the batch with these moments. Zero if the batch has no spread and ε = 0.
    pub fn rescale<F: Real>(&self, moments: &Moments<F>, sigma: F) -> F {
        if self.is_indivisible(moments) { F::zero() } else { F::of(sigma.widen() * moments.unit.widen() / self.divisor(moments)) }
    }

    /// Returns a bound on the rounding error of a z in a weighted sum of `terms` such values, with
    /// weights that sum to at most one.
    ///
    /// ```text
    /// 4 ε max|x| / std  +  ε₆₄ ((N + 11)/4 + (terms + 1)/2) √N  +  (ε − ε₆₄) (terms + 2)/2 min(√N, 2 max|x| / std)
    /// ```
    ///
    /// with ε (not that of the rule, which is part of std here) the gap above 1 in `F`, and ε₆₄ that
    /// in `f64`.
    ///
    /// The first term is [`Moments::rounding`], that of the values themselves. The others assume
    /// half an ε per operation. The sum of N squares contributes (N + 5)/4 to the error of the
    /// standard deviation, and the quotient 3/2. A product and `terms` additions contribute the
    /// rest, and |z| < √N. The conversion of z to `F`, the product and the additions have the ε of
    /// `F`, which the last term adds for `f32`. The error of the mean is left out, since it shifts
    /// all z equally. Values that are only centred keep their unit, and |z| < std √N. The result is
    /// zero for a batch without spread.
    pub fn rounding<F: Real>(&self, moments: &Moments<F>, terms: usize) -> F {
        if moments.is_degenerate() {
            return F::zero();
        }
        let epsilon = F::epsilon().widen();
        let unit = moments.unit.widen();
        let (divisor, std) = if self.only_centres(moments) { (unit, moments.std / unit) } else { (self.divisor(moments), 1.0) };
        let of_values = moments.rounding / divisor;
        let largest = moments.count.sqrt() * std;
        let operations = (moments.count + 11.0) / 4.0 + (terms + 1) as f64 / 2.0;
        let narrow = (epsilon - f64::EPSILON) * (terms + 2) as f64 / 2.0 * largest.min(of_values / (2.0 * epsilon));
        F::of(of_values + f64::EPSILON * operations * largest + narrow)
    }

    /// Returns whether nothing but rounding could divide the values.
    fn is_indivisible<F: Real>(&self, moments: &Moments<F>) -> bool {
        // ε may underflow in the unit of the moments.
        self.epsilon == 0.0 && moments.is_degenerate() || self.divisor(moments) == 0.0
    }

    /// Returns whether values are centred but not scaled.
    fn only_centres<F: Real>(&self, moments: &Moments<F>) -> bool {
        moments.std() < F::of(self.centre_below)
    }

    /// Returns std + ε in the unit of the moments.
    fn divisor<F: Real>(&self, moments: &Moments<F>) -> f64 {
        moments.std + self.epsilon * moments.unit.widen()
    }
}

/// Calls `write` with the index and the rank of each value, from 0 for the smallest. Ties share
/// their mean rank. No value is NaN.
///
/// O(N log N); allocates nothing once the thread has processed a batch of this size.
pub fn mid_ranks<F: Real>(values: &[F], mut write: impl FnMut(usize, f64)) {
    let mut below = 0;
    for tied in ascending(values).chunk_by(|&a, &b| values[a] == values[b]) {
        let rank = below as f64 + (tied.len() - 1) as f64 / 2.0;
        tied.iter().for_each(|&i| write(i, rank));
        below += tied.len();
    }
}

fn ascending<F: Real>(values: &[F]) -> Scratch<Vec<usize>> {
    let mut order: Scratch<Vec<usize>> = (0..values.len()).collect();
    order.sort_unstable_by(|&a, &b| values[a].widen().total_cmp(&values[b].widen()));
    order
}

/// Makes values equal that differ only by rounding.
///
/// `rounding` bounds the error of a value, given its index and the value. In ascending order, a value
/// joins a run of ties if it differs from the last of the run's accurate values, those whose bounds
/// are at most twice the smallest, by at most the sum of their errors. So an inaccurate value does not
/// tie its neighbours. All values of a run become the first with the smallest bound. Other values are
/// unchanged. O(N log N); allocates nothing once the thread has processed a batch of this size.
pub fn merge_ties<F: Real>(values: &mut [F], rounding: impl Fn(usize, F) -> F) {
    let bounds: Scratch<Vec<F>> = values.iter().enumerate().map(|(i, &value)| rounding(i, value)).collect();
    let mut order = ascending(values);
    // Of equal values, the accurate ones come first, wherever they stand.
    let ascending_bounds = |&a: &usize, &b: &usize| bounds[a].widen().total_cmp(&bounds[b].widen());
    order
        .chunk_by_mut(|&a, &b| values[a].widen().total_cmp(&values[b].widen()).is_eq())
        .for_each(|equal| equal.sort_unstable_by(ascending_bounds));
    let mut rest = &order[..];
    while let Some(&first) = rest.first() {
        let (mut best, mut last, mut length) = (first, first, 1);
        for &i in &rest[1..] {
            if values[i] - values[last] > bounds[last] + bounds[i] {
                break;
            }
            length += 1;
            if bounds[i] < bounds[best] {
                best = i;
            }
            if bounds[i] <= F::of(2.0) * bounds[best] {
                last = i;
            }
        }
        let (run, others) = rest.split_at(length);
        let shared = values[best];
        run.iter().for_each(|&i| values[i] = shared);
        rest = others;
    }
}

impl Default for Standardize {
    fn default() -> Self {
        Self::EXACT
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Rounding error of a mean, a square root and a division, on values of order 1.
    const TOLERANCE: f64 = 1e-12;

    fn z(rule: Standardize, values: &[f64]) -> Vec<f64> {
        values.iter().map(|&x| rule.apply(&rule.moments(values), x)).collect()
    }

    #[test]
    fn an_inaccurate_value_ties_no_other_two_wherever_it_stands() {
        let merged = |values: [(f64, f64); 3]| {
            let mut merged = values.map(|(value, _)| value);
            merge_ties(&mut merged, |i, _| values[i].1);
            merged
        };
        // 3 ± 5 may be equal to either of the others, and joins the first.
        assert_eq!(merged([(0.0, 1.0), (3.5, 1.0), (3.0, 5.0)]), [0.0, 3.5, 0.0]);
        assert_eq!(merged([(3.0, 5.0), (0.0, 1.0), (3.5, 1.0)]), [0.0, 0.0, 3.5]);
        // Of equal values, the inaccurate one comes last.
        assert_eq!(merged([(0.0, 1.0), (3.0, 5.0), (3.0, 1.0)]), [0.0, 3.0, 3.0]);
        assert_eq!(merged([(0.0, 1.0), (3.0, 1.0), (3.0, 5.0)]), [0.0, 3.0, 3.0]);
        // Values of about the same accuracy tie along a run.
        assert_eq!(merged([(1.0, 0.1), (1.15, 0.115), (1.3, 0.13)]), [1.0; 3]);
        assert_eq!(merged([(-1.0, 0.1), (-1.15, 0.115), (-1.3, 0.13)]), [-1.0; 3]);
    }

    #[test]
    fn worked_by_hand() {
        // mean 2, deviations −1 0 1: sample variance 1, population variance 2/3.
        assert_eq!(z(Standardize::EXACT, &[1.0, 2.0, 3.0]), [-1.0, 0.0, 1.0]);
        let population = Standardize { deviation: Deviation::Population, ..Standardize::EXACT };
        assert!((z(population, &[1.0, 2.0, 3.0])[2] - 1.5f64.sqrt()).abs() < TOLERANCE);
        let with_epsilon = Standardize { epsilon: 1.0, ..Standardize::EXACT };
        assert_eq!(z(with_epsilon, &[1.0, 2.0, 3.0]), [-0.5, 0.0, 0.5]);
        let moments = Moments::of(&[10.0, 20.0, 30.0], Deviation::Sample);
        assert_eq!((moments.mean(), moments.std()), (20.0, 10.0));
        assert_eq!(Standardize::EXACT.rescale(&moments, 5.0), 0.5);
    }

    #[test]
    fn powers_of_two_are_exact() {
        assert_eq!([-1, 0, 1, 10].map(power_of_two), [0.5, 1.0, 2.0, 1024.0]);
        assert_eq!([-1022, 1023].map(power_of_two), [f64::MIN_POSITIVE, f64::MAX / (2.0 - f64::EPSILON)]);
    }

    #[test]
    fn impossible_numbers_are_refused() {
        let error = Standardize::new(Deviation::Sample, -1e-6, 0.0).unwrap_err();
        assert_eq!(error.to_string(), "epsilon is -0.000001; it must be finite and not negative");
        assert!(Standardize::new(Deviation::Sample, 0.0, f64::NAN).is_err());
        assert_eq!(Standardize::new(Deviation::Sample, 1e-6, 1e-8), Ok(Standardize::PAPER));
        let population = Standardize::new(Deviation::Population, 0.5, 0.0).unwrap();
        assert_eq!((population.deviation, population.epsilon), (Deviation::Population, 0.5));
    }

    #[test]
    fn nothing_to_measure_by_gives_zeros() {
        for rule in [Standardize::EXACT, Standardize::PAPER, Standardize::PAPER_CBN] {
            assert_eq!(z(rule, &[0.1]), [0.0]);
            assert_eq!(z(rule, &[0.1; 7]), [0.0; 7]);
            assert_eq!(z(rule, &[1e300; 3]), [0.0; 3]);
        }
        // A difference of one unit in the last place is rounding, not spread.
        assert_eq!(z(Standardize::EXACT, &[1.0, 1.0 + f64::EPSILON]), [0.0, 0.0]);
        assert!(z(Standardize::EXACT, &[1.0, 1.0 + 16.0 * f64::EPSILON])[1] > 0.5);
    }

    #[test]
    fn a_small_spread_is_centred_only() {
        let centred = z(Standardize::PAPER, &[0.0, 4e-9]);
        assert!((centred[1] - 2e-9).abs() < 1e-20, "{centred:?}");
        // std = 2e-8/√2 ≥ 1e-8, against ε = 1e-6.
        let scaled = z(Standardize::PAPER, &[0.0, 2e-8]);
        assert!((scaled[1] - 1e-8 / (2e-8 / 2f64.sqrt() + 1e-6)).abs() < TOLERANCE, "{scaled:?}");
    }

    proptest! {
        #[test]
        fn exact_standardisation_is_affine_invariant_at_any_size(
            values in proptest::collection::vec(-1.0f64..1.0, 2..12), decade in -290i32..290, shift in -1.0f64..1.0,
        ) {
            let spread = Moments::of(&values, Deviation::Sample).std();
            prop_assume!(spread > 1e-3);
            let scale = 10f64.powi(decade);
            let moved: Vec<f64> = values.iter().map(|v| scale * (v + shift)).collect();
            for (a, b) in z(Standardize::EXACT, &values).iter().zip(z(Standardize::EXACT, &moved)) {
                // The rounding error of the inputs, multiplied by the ratio of magnitude to spread.
                prop_assert!((a - b).abs() < 1e-11, "{a} {b}");
            }
        }

        #[test]
        fn z_has_mean_zero_and_unit_variance(values in proptest::collection::vec(-1e3f64..1e3, 2..12)) {
            prop_assume!(Moments::of(&values, Deviation::Sample).std() > 1e-3);
            let moments = Moments::of(&z(Standardize::EXACT, &values), Deviation::Sample);
            prop_assert!(moments.mean().abs() < 1e-9 && (moments.std() - 1.0).abs() < 1e-9);
        }
    }
}
