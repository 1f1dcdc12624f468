//! 𝓘(σ) against values by hand and from SciPy, its invariances, and the three arms: real, shuffled
//! and zero.

use proptest::collection::vec;
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sk_blades::{Ablated, DispersionArm, InformativenessError, informativeness, spearman};
use sk_core::{Blade, BoxError, Candidate, Candidates, Observation, Policy, Readings, Score, SpanEnd};

/// Rounding of one quotient; its sums of half-integers are exact.
const ROUNDING: f64 = 1e-14;

#[test]
fn by_hand_and_as_scipy_has_it() {
    let r = |x: &[f64], y: &[f64]| spearman(x, y).unwrap();
    assert_eq!(r(&[1.0, 2.0], &[5.0, 9.0]), 1.0);
    assert_eq!(r(&[1.0, 2.0], &[9.0, 5.0]), -1.0);
    // Ranks 1 2 3 4 against 1 3 2 4: 1 − 6·2/(4·15).
    assert!((r(&[0.1, 0.2, 0.3, 0.4], &[0.1, 0.5, 0.2, 1.0]) - 0.8).abs() < ROUNDING);
    // Ranks 1½ 1½ 3 against 1 2 3, centred: −½ −½ 1 and −1 0 1, so 1.5/√(1.5 · 2).
    assert!((r(&[4.0, 4.0, 5.0], &[1.0, 2.0, 3.0]) - 0.75f64.sqrt()).abs() < ROUNDING);
    // 0 and −0 are equal.
    assert_eq!(r(&[0.0, -0.0, 1.0], &[3.0, 3.0, 4.0]), 1.0);
    // From scipy.stats.spearmanr 1.17.1, with ties in one sample and in both.
    let x = [0.7, 0.1, 0.4, 0.4, 2.5, 0.1, 1.3, 0.9];
    assert!((r(&x, &[3.0, 1.0, 1.0, 2.5, 2.5, 2.0, 0.5, 9.0]) - 0.237_804_878_048_780_48).abs() < ROUNDING);
    let x = [1.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 3.0, 3.0, 4.0];
    assert!((r(&x, &[2.0, 7.0, 1.0, 8.0, 2.0, 8.0, 1.0, 8.0, 2.0, 8.0]) - 0.406_666_666_666_666_73).abs() < ROUNDING);
    // |μ − q| = .19 .2 .75 1.3 .05 1.4 .5; the expected value is from SciPy.
    let mu = [0.31, -1.2, 0.05, 2.4, -0.6, 1.0, 1.75];
    let quality = [0.5, -1.0, 0.8, 1.1, -0.55, -0.4, 1.25];
    let sigma = [0.3, 0.45, 1.2, 0.6, 0.1, 0.2, 0.9];
    assert!((informativeness(&mu, &quality, &sigma).unwrap() - SCIPY).abs() < ROUNDING);
    // A dispersion of zero is valid.
    assert_eq!(informativeness(&[1.0, 3.0], &[1.0, 1.0], &[0.0, 2.0]), Ok(1.0));
}

/// `spearmanr(sigma, abs(mu - quality)).statistic` of the last case above.
const SCIPY: f64 = 0.357_142_857_142_857_2;

#[test]
fn what_has_no_rank_correlation_is_refused_by_name() {
    use InformativenessError::{Constant, Length, TooFew, Value};
    let refused = |mu: &[f64], q: &[f64], sigma: &[f64]| informativeness(mu, q, sigma).unwrap_err();
    assert_eq!(refused(&[1.0, 2.0], &[1.0], &[0.0, 0.0]), Length { quantity: "quality", got: 1, expected: 2 });
    assert_eq!(refused(&[1.0, 2.0], &[1.0, 2.0], &[0.0; 3]), Length { quantity: "sigma", got: 3, expected: 2 });
    assert_eq!(refused(&[], &[], &[]), TooFew { got: 0 });
    assert_eq!(refused(&[1.0], &[0.0], &[0.5]), TooFew { got: 1 });
    let constant = refused(&[1.0, 2.0], &[0.0, 0.0], &[0.5, 0.5]);
    assert_eq!(constant, Constant { quantity: "sigma", candidates: 2 });
    assert!(constant.to_string().contains("sigma is the same for all 2 candidates"), "{constant}");
    let equal_errors = refused(&[1.0, 2.0], &[2.0, 1.0], &[0.1, 0.5]);
    assert_eq!(equal_errors, Constant { quantity: "the error |mu − quality|", candidates: 2 });
    // 0.3 − 0.2 and 0.2 − 0.1 differ by rounding alone.
    let equal_up_to_rounding = refused(&[0.3, 0.2], &[0.2, 0.1], &[0.1, 0.5]);
    assert_eq!(equal_up_to_rounding, Constant { quantity: "the error |mu − quality|", candidates: 2 });
    for wrong in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        for (position, quantity) in ["mu", "quality", "sigma"].into_iter().enumerate() {
            let mut values = [[1.0, 2.0, 4.0]; 3];
            values[position][1] = wrong;
            let error = refused(&values[0], &values[1], &values[2]);
            assert!(matches!(error, Value { quantity: q, index: 1, .. } if q == quantity), "{error}");
        }
        assert!(matches!(spearman(&[0.0, 1.0], &[wrong, 0.0]), Err(Value { quantity: "the second sample", index: 0, .. })));
        assert!(matches!(spearman(&[0.0, wrong], &[1.0, 0.0]), Err(Value { quantity: "the first sample", index: 1, .. })));
    }
    let negative = refused(&[1.0, 2.0], &[0.0, 0.0], &[0.5, -0.25]);
    assert_eq!(negative.to_string(), "entry 1 of sigma is -0.25; it must be not negative");
    assert!(spearman(&[0.0, -1.0], &[-0.25, 0.5]).is_ok(), "samples may be negative");
    assert_eq!(spearman(&[1.0], &[1.0, 2.0]), Err(Length { quantity: "the second sample", got: 2, expected: 1 }));
}

/// Samples with few levels, so that ties are common.
fn samples() -> impl Strategy<Value = (Vec<f64>, Vec<f64>)> {
    (2usize..12).prop_flat_map(|n| {
        let level = || (0u8..6).prop_map(|level| f64::from(level) / 4.0);
        (vec(level(), n), vec(level(), n))
    })
}

proptest! {
    /// Only ranks count: an increasing map of either sample changes nothing, a decreasing one
    /// changes the sign.
    #[test]
    fn monotone_maps_leave_it_and_reversals_turn_it((x, y) in samples()) {
        let Ok(r) = spearman(&x, &y) else { return Ok(()) };
        prop_assert!((-1.0..=1.0).contains(&r));
        let map = |values: &[f64], f: fn(f64) -> f64| values.iter().map(|&v| f(v)).collect::<Vec<_>>();
        for rising in [|v: f64| v.exp() - 3.0, |v: f64| v.powi(3), |v: f64| 1e200 * v] {
            prop_assert_eq!(spearman(&map(&x, rising), &y), Ok(r));
            prop_assert_eq!(spearman(&x, &map(&y, rising)), Ok(r));
        }
        for falling in [|v: f64| -v, |v: f64| (-v).exp()] {
            prop_assert_eq!(spearman(&map(&x, falling), &y), Ok(-r));
        }
        prop_assert_eq!(spearman(&y, &x), Ok(r));
        prop_assert_eq!(spearman(&x, &x), Ok(1.0));
    }

    /// The order of the candidates, the unit of σ and the signs of the errors do not matter.
    #[test]
    fn informativeness_is_of_pairs_of_magnitudes((sigma, error) in samples(), turn in 0usize..12, flips in vec(any::<bool>(), 12)) {
        let quality: Vec<f64> = error.iter().map(|e| e * 8.0 - 3.0).collect();
        let mu: Vec<f64> = quality.iter().zip(&error).zip(&flips).map(|((q, e), &up)| if up { q + e } else { q - e }).collect();
        let Ok(value) = informativeness(&mu, &quality, &sigma) else { return Ok(()) };
        prop_assert_eq!(Ok(value), spearman(&sigma, &error).map(f64::abs));
        let turned = |values: &[f64]| {
            let mut values = values.to_vec();
            values.rotate_left(turn % error.len());
            values
        };
        let again = informativeness(&turned(&mu), &turned(&quality), &turned(&sigma)).unwrap();
        prop_assert!((again - value).abs() < ROUNDING);
        let in_another_unit: Vec<f64> = sigma.iter().map(|s| 1e-3 * s).collect();
        prop_assert_eq!(informativeness(&mu, &quality, &in_another_unit), Ok(value));
    }

    /// The arm `real` keeps dispersions, and `zero` sets them to zero. `shuffled` keeps their
    /// multiset, and permutes all blades in the same way.
    #[test]
    fn arms_touch_dispersions_alone(n in 1usize..9, blades in 1usize..4, seed in any::<u64>()) {
        let row = |k: usize| (0..n).map(|i| (10 * k + i) as f64).collect::<Vec<_>>();
        let under = |arm: DispersionArm, k: usize| {
            let mut sigma = row(k);
            arm.apply(&mut sigma, &mut ChaCha8Rng::seed_from_u64(seed));
            sigma
        };
        for k in 0..blades {
            prop_assert_eq!(under(DispersionArm::Real, k), row(k));
            prop_assert!(under(DispersionArm::Zero, k).iter().all(|&s| s == 0.0));
            let shuffled = under(DispersionArm::Shuffled, k);
            for (a, b) in shuffled.iter().zip(under(DispersionArm::Shuffled, 0)) {
                prop_assert_eq!(a - b, 10.0 * k as f64);
            }
            let mut sorted = shuffled;
            sorted.sort_by(f64::total_cmp);
            prop_assert_eq!(sorted, row(k));
        }
    }
}

#[test]
fn shuffling_reaches_every_permutation_alike() {
    const DRAWS: usize = 6000;
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    let mut counts = std::collections::BTreeMap::new();
    for _ in 0..DRAWS {
        let mut sigma = [1.0, 2.0, 3.0];
        DispersionArm::Shuffled.apply(&mut sigma, &mut rng);
        *counts.entry(sigma.map(|s| s as u8)).or_insert(0usize) += 1;
    }
    assert_eq!(counts.len(), 6);
    // Six standard errors of a binomial count at p = 1/6.
    let expected = DRAWS as f64 / 6.0;
    let tolerance = 6.0 * (expected * 5.0 / 6.0).sqrt();
    assert!(counts.values().all(|&count| (count as f64 - expected).abs() < tolerance), "{counts:?}");
}

/// μ_i = i, σ_i = 10 + i.
struct Numbered;

impl Blade for Numbered {
    fn score(&self, _: &Observation<'_>, out: &mut [Score]) -> Result<(), BoxError> {
        for (i, score) in out.iter_mut().enumerate() {
            *score = Score::new(i as f64, 10.0 + i as f64)?;
        }
        Ok(())
    }

    fn policies(&self) -> Vec<Policy> {
        vec![Policy::Backbone]
    }
}

fn sigma_at(blade: &dyn Blade, context: usize) -> Vec<f64> {
    let candidate = || Candidate { tokens: vec![3], log_probs: vec![-1.0], end: SpanEnd::Complete };
    let candidates = Candidates::new((0..7).map(|_| candidate()).collect()).unwrap();
    let context = vec![1; context];
    let mut out = [Score::new(-7.0, 7.0).unwrap(); 7];
    blade.score(&Observation { context: &context, candidates: &candidates, readings: &Readings::new() }, &mut out).unwrap();
    assert!(out.iter().enumerate().all(|(i, score)| score.mu() == i as f64));
    out.iter().map(|score| score.sigma()).collect()
}

#[test]
fn a_blade_under_an_arm_is_shuffled_anew_at_each_step_and_again_alike() {
    let blade = |arm, seed| Ablated { blade: Numbered, arm, seed };
    let plain = sigma_at(&Numbered, 5);
    assert_eq!(sigma_at(&blade(DispersionArm::Real, 1), 5), plain);
    assert_eq!(sigma_at(&blade(DispersionArm::Zero, 1), 5), [0.0; 7]);
    let shuffled = |seed, context| sigma_at(&blade(DispersionArm::Shuffled, seed), context);
    assert_eq!(shuffled(1, 5), shuffled(1, 5));
    // With 5040 permutations, a chance agreement between these is not expected.
    assert!(shuffled(1, 5) != plain && shuffled(1, 5) != shuffled(1, 6) && shuffled(1, 5) != shuffled(2, 5));
    let mut sorted = shuffled(1, 5);
    sorted.sort_by(f64::total_cmp);
    assert_eq!(sorted, plain);
    assert_eq!(blade(DispersionArm::Shuffled, 1).policies(), [Policy::Backbone]);
}

/// The worlds of the decomposition. A dispersion equal to the scale of the error is informative. An
/// independent one is not. One that follows the sign of the error is not either, although it moves
/// the choice.
#[test]
fn informativeness_in_worlds_where_it_is_known() {
    const CANDIDATES: usize = 20_000;
    // Four standard errors of r_s under independence, 1/√(N − 1).
    const NOISE: f64 = 0.029;
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    let mut world = |sigma_of: fn(f64, f64, bool) -> f64| {
        let (mut mu, quality, mut sigma) = (Vec::new(), vec![0.0; CANDIDATES], Vec::new());
        for _ in 0..CANDIDATES {
            let (scale, other) = (rng.random_range(0.2..3.0), rng.random_range(0.2..3.0));
            let error = scale * rng.random_range(-1.0f64..1.0);
            mu.push(error);
            sigma.push(sigma_of(scale, other, error > 0.0));
        }
        informativeness(&mu, &quality, &sigma).unwrap()
    };
    assert!(world(|scale, _, _| scale) > 0.4);
    assert!(world(|_, other, _| other) < NOISE);
    assert!(world(|_, _, over| if over { 3.0 } else { 0.2 }) < NOISE);
}
