//! Standardisation at the limits of floating point and at its own thresholds.

use sk_core::{Deviation, Moments, Real, Standardize, mid_ranks};

fn z<F: Real>(rule: Standardize, values: &[F]) -> Vec<f64> {
    values.iter().map(|&x| rule.apply(&rule.moments(values), x).widen()).collect()
}

fn rule(deviation: Deviation, epsilon: f64, centre_below: f64) -> Standardize {
    Standardize::new(deviation, epsilon, centre_below).unwrap()
}

#[track_caller]
fn assert_close(got: &[f64], expected: &[f64], tolerance: f64) {
    let close = got.len() == expected.len() && got.iter().zip(expected).all(|(a, b)| (a - b).abs() < tolerance);
    assert!(close, "{got:?} is not {expected:?}");
}

#[test]
fn no_magnitude_is_too_large_or_too_small() {
    let pair = [-0.5f64.sqrt(), 0.5f64.sqrt()];
    for size in [f64::MAX, 1e300, 1.0, 1e-300, f64::MIN_POSITIVE, 5e-324] {
        // Subnormal numbers have few digits, but these two values are exact.
        assert_close(&z(Standardize::EXACT, &[0.0, size]), &pair, 1e-12);
    }
    for size in [f32::MAX, 1e30, 1.0, 1e-30, f32::MIN_POSITIVE, 1e-45] {
        assert_close(&z(Standardize::EXACT, &[0.0, size]), &pair, 1e-6);
    }
    assert_close(&z(Standardize::EXACT, &[f64::MIN, f64::MAX]), &pair, 1e-12);
}

#[test]
fn moments_are_in_the_units_of_the_values() {
    for size in [1e-200, 3e-7, 1.0, 4e9, 1e200] {
        let moments = Moments::of(&[10.0 * size, 20.0 * size, 30.0 * size], Deviation::Sample);
        assert_close(&[moments.mean() / size, moments.std() / size], &[20.0, 10.0], 1e-12);
        // In units of `size`: a σ of 5 over a standard deviation of 10 and an ε of 30.
        assert_close(&[rule(Deviation::Sample, 30.0 * size, 0.0).rescale(&moments, 5.0 * size)], &[0.125], 1e-12);
        assert_close(&[rule(Deviation::Sample, 30.0 * size, 0.0).apply(&moments, 40.0 * size)], &[0.5], 1e-12);
    }
}

#[test]
fn a_batch_of_one_has_no_deviation() {
    for deviation in [Deviation::Sample, Deviation::Population] {
        let moments = Moments::of(&[3.0], deviation);
        assert_eq!((moments.mean(), moments.std()), (3.0, 0.0));
        assert!(moments.is_degenerate());
    }
}

#[test]
fn the_two_divisors_by_hand() {
    // Squared deviations: 4, 1, 0, 1, 4.
    let values = [1.0, 2.0, 3.0, 4.0, 5.0];
    assert_close(&[Moments::of(&values, Deviation::Sample).std()], &[2.5f64.sqrt()], 1e-12);
    assert_close(&[Moments::of(&values, Deviation::Population).std()], &[2f64.sqrt()], 1e-12);
}

#[test]
fn spread_is_told_from_rounding_at_any_size() {
    assert_eq!(z(Standardize::EXACT, &[0.0; 3]), [0.0; 3]);
    // The values are 1, 16 or 1024 units in the last place apart. The threshold is 4 units in the
    // last place of the largest value.
    for size in [2f64.powi(-600), 2f64.powi(-40), 1.0, 2f64.powi(40), 2f64.powi(600)] {
        for (apart, spread) in [(1.0, false), (16.0, true), (1024.0, true)] {
            let values = [size, size * (1.0 + apart * f64::EPSILON)];
            let standardised = z(Standardize::EXACT, &values);
            assert_eq!(standardised != [0.0, 0.0], spread, "{size} {apart}: {standardised:?}");
            assert_eq!(Moments::of(&values, Deviation::Sample).is_degenerate(), !spread);
        }
    }
}

#[test]
fn without_spread_there_is_nothing_to_rescale_by_but_epsilon() {
    let moments = Moments::of(&[7.0; 3], Deviation::Sample);
    assert_eq!(Standardize::EXACT.rescale(&moments, 1.0), 0.0);
    assert_close(&[rule(Deviation::Sample, 0.5, 0.0).rescale(&moments, 1.0)], &[2.0], 1e-12);
    assert_eq!(Standardize::EXACT.apply(&moments, 8.0), 0.0);
    assert_close(&[rule(Deviation::Sample, 0.5, 0.0).apply(&moments, 8.0)], &[2.0], 1e-12);
    // An ε that is zero in the unit of the values.
    let moments = Moments::of(&[1000.0; 3], Deviation::Sample);
    let least = rule(Deviation::Sample, 5e-324, 0.0);
    assert_eq!([least.apply(&moments, 1000.0), least.rescale(&moments, 1.0)], [0.0; 2]);
}

#[test]
fn a_spread_at_the_threshold_is_scaled_and_one_below_is_centred() {
    // Standard deviation 1, ε 1.
    let values = [1.0, 2.0, 3.0];
    assert_close(&z(rule(Deviation::Sample, 1.0, 1.0), &values), &[-0.5, 0.0, 0.5], 1e-12);
    assert_close(&z(rule(Deviation::Sample, 1.0, 1.0 + 1e-9), &values), &[-1.0, 0.0, 1.0], 1e-12);
}

#[test]
fn the_default_is_exact() {
    assert_eq!(Standardize::default(), Standardize::EXACT);
    assert_eq!(Standardize::EXACT, rule(Deviation::Sample, 0.0, 0.0));
    assert_eq!(Standardize::PAPER_CBN, rule(Deviation::Sample, 1e-6, 0.0));
    assert_eq!(Standardize::PAPER, rule(Deviation::Sample, 1e-6, 1e-8));
}

#[test]
fn thresholds_are_finite_and_not_negative() {
    for value in [-1e-300, f64::NAN, f64::INFINITY] {
        assert_eq!(Standardize::new(Deviation::Sample, value, 0.0).unwrap_err().name, "epsilon");
        assert_eq!(Standardize::new(Deviation::Sample, 0.0, value).unwrap_err().name, "centre_below");
    }
}

#[test]
fn ties_share_their_mean_rank() {
    let mut ranks = [f64::NAN; 5];
    mid_ranks(&[3.0, -0.0, 3.0, 0.0, 9.0], |i, rank| ranks[i] = rank);
    assert_eq!(ranks, [2.5, 0.5, 2.5, 0.5, 4.0]);
}
