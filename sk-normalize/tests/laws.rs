//! `thm:cbn` and `prop:cov` on random tables.

mod correlated;

use correlated::{correlated, names};
use proptest::collection::vec;
use proptest::prelude::*;
use sk_core::{Composite, Normalizer, ScoreTable, Simplex};
use sk_normalize::{CandidateBatch, DispersionUnit, Propagation, Rank, Raw, Robust, influence_shares};

/// Rounding of a standardised score whose blade was moved by up to a thousand times its spread.
const TOLERANCE: f64 = 1e-9;

/// Scores and dispersions of one blade.
type Row<F = f64> = (Vec<F>, Vec<F>);
type Rows = Vec<Row>;

fn combine<F: sk_core::Real>(normalizer: &dyn Normalizer<F>, rows: &[Row<F>], weights: &[F]) -> Composite<F> {
    let scores = ScoreTable::new(rows.iter().map(|(mu, sigma)| (mu, sigma))).unwrap().with_names(names(rows.len())).unwrap();
    let mut out = Composite::default();
    normalizer.combine(&scores, &Simplex::normalized(weights).unwrap(), &mut out);
    out
}

fn close(a: &[f64], b: &[f64]) -> bool {
    let scale = a.iter().chain(b).fold(1.0f64, |m, x| m.max(x.abs()));
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= TOLERANCE * scale)
}

/// Scores of K blades as multiples of 0.001, so that ties and blades without spread occur and no
/// spread is tiny; and weights.
fn tables() -> impl Strategy<Value = (Rows, Vec<f64>)> {
    (1usize..5, 1usize..9).prop_flat_map(|(k, n)| {
        let score = prop_oneof![4 => -2000i32..2000, 1 => Just(0i32)].prop_map(|x| f64::from(x) / 1000.0);
        let sigma = prop_oneof![4 => 0.0f64..3.0, 1 => Just(0.0)];
        (vec((vec(score, n), vec(sigma, n)), k), vec(0.01f64..1.0, k))
    })
}

/// One element of G per blade: a scale over six decades, an offset up to a thousand.
fn moved() -> impl Strategy<Value = ((Rows, Vec<f64>), Rows)> {
    tables().prop_flat_map(|(rows, weights)| {
        let k = rows.len();
        (Just((rows, weights)), vec((-3.0f64..3.0, -1000.0f64..1000.0), k)).prop_map(|((rows, weights), group)| {
            let act = |(row, (decade, b)): (&Row, &(f64, f64))| {
                let a = 10f64.powf(*decade);
                (row.0.iter().map(|m| a * (m + b)).collect(), row.1.iter().map(|s| a * s).collect())
            };
            let moved = rows.iter().zip(&group).map(act).collect();
            ((rows, weights), moved)
        })
    })
}

fn propagations(k: usize) -> Vec<Propagation> {
    vec![Propagation::Linear, Propagation::Independent, correlated(k, |_, _| 0.3)]
}

#[test]
fn a_large_batch_in_single_precision_keeps_distinct_scores_apart() {
    // The scores 3u² − 1 are dense at u = 0, where the rounding of f32 ties about one in a hundred.
    let n = 20_000;
    let mu: Vec<f32> = (0..n).map(|i| 3.0 * (i as f32 / n as f32).powi(2) - 1.0).collect();
    let rows = [(mu, vec![1.0; n])];
    for (which, normalizer) in [&CandidateBatch::sound() as &dyn Normalizer<f32>, &Rank::default()].into_iter().enumerate() {
        let mut composite = combine(normalizer, &rows, &[1.0]).mu;
        composite.dedup();
        assert!(composite.len() > n / 100 * 98, "{which}: {}", composite.len());
    }
}

proptest! {
    #[test]
    fn composites_are_invariant_under_g(((rows, weights), moved) in moved()) {
        for propagation in propagations(rows.len()) {
            let normalizers: [&dyn Normalizer; 4] = [
                &CandidateBatch { propagation: propagation.clone(), ..CandidateBatch::sound() },
                &CandidateBatch { dispersion: DispersionUnit::Own, propagation: propagation.clone(), ..Default::default() },
                &Rank { propagation: propagation.clone() },
                &Robust { propagation: propagation.clone() },
            ];
            for (which, normalizer) in normalizers.into_iter().enumerate() {
                let (before, after) = (combine(normalizer, &rows, &weights), combine(normalizer, &moved, &weights));
                prop_assert!(close(&before.mu, &after.mu), "{which}: {before:?} {after:?}");
                prop_assert!(close(&before.sigma, &after.sigma), "{which}: {before:?} {after:?}");
            }
        }
    }

    #[test]
    fn blades_that_cancel_tell_nobody_apart(
        (mu, decade, b) in (vec(-2000i32..2000, 2..40), -3.0f64..3.0, -1000.0f64..1000.0), single in any::<bool>(),
    ) {
        let mu: Vec<f64> = mu.into_iter().map(|x| f64::from(x) / 1000.0).collect();
        // The same blade with the opposite sign, another scale and another offset.
        let against: Vec<f64> = mu.iter().map(|x| 10f64.powf(decade) * (b - x)).collect();
        let sigma = vec![1.0; mu.len()];
        let rows = [(mu, sigma.clone()), (against, sigma)];
        if single {
            let narrow = |x: &Vec<f64>| x.iter().map(|&x| x as f32).collect::<Vec<f32>>();
            let rows: Vec<Row<f32>> = rows.iter().map(|(mu, sigma)| (narrow(mu), narrow(sigma))).collect();
            let composite = combine(&CandidateBatch::sound(), &rows, &[0.5, 0.5]).mu;
            prop_assert!(composite.windows(2).all(|pair| pair[0] == pair[1]), "{composite:?}");
        } else {
            let normalizers: [&dyn Normalizer; 3] = [&CandidateBatch::sound(), &Rank::default(), &Robust::default()];
            for (which, normalizer) in normalizers.into_iter().enumerate() {
                let composite = combine(normalizer, &rows, &[0.5, 0.5]).mu;
                prop_assert!(composite.windows(2).all(|pair| pair[0] == pair[1]), "{which}: {composite:?}");
            }
        }
    }

    #[test]
    fn the_published_epsilon_breaks_invariance_by_no_more_than_its_share(((rows, weights), moved) in moved()) {
        // (std + ε)⁻¹ is std⁻¹ times std/(std + ε), and this factor is at least 1 − ε/std.
        let spread = |rows: &Rows| {
            let spreads = rows.iter().map(|(mu, _)| sk_core::Moments::of(mu, sk_core::Deviation::Sample).std());
            spreads.filter(|s| *s > 0.0).fold(f64::INFINITY, f64::min)
        };
        let (before, after) =
            (combine(&CandidateBatch::paper(), &rows, &weights), combine(&CandidateBatch::paper(), &moved, &weights));
        let largest = before.mu.iter().fold(1.0f64, |m, x| m.max(x.abs()));
        let allowance = 3.0 * largest * 1e-6 * (1.0 / spread(&rows) + 1.0 / spread(&moved)) + TOLERANCE;
        for (a, b) in before.mu.iter().zip(&after.mu) {
            prop_assert!((a - b).abs() <= allowance, "{a} {b} {allowance}");
        }
    }

    #[test]
    fn one_blade_alone_keeps_its_order((rows, _) in tables()) {
        let row = vec![rows[0].clone()];
        for normalizer in [&CandidateBatch::sound() as &dyn Normalizer, &CandidateBatch::paper(), &Rank::default(), &Robust::default(), &Raw::default()] {
            let out = combine(normalizer, &row, &[1.0]);
            for i in 0..out.mu.len() {
                for j in 0..out.mu.len() {
                    prop_assert_eq!(row[0].0[i] < row[0].0[j], out.mu[i] < out.mu[j]);
                }
            }
        }
    }

    #[test]
    fn without_normalisation_a_blade_counts_for_its_spread(((rows, weights), moved) in moved()) {
        // Raw weights w̃_k / a_k on the moved table give the order that w̃_k gives on the first
        // (`thm:cbn` iii).
        let first = combine(&Raw::default(), &rows, &weights);
        let ratio = |k: usize| {
            let spread = |rows: &Rows| sk_core::Moments::of(&rows[k].0, sk_core::Deviation::Sample).std();
            spread(&moved) / spread(&rows)
        };
        let scales: Vec<f64> = (0..rows.len()).map(ratio).collect();
        prop_assume!(scales.iter().all(|a| a.is_finite() && *a > 0.0));
        let adjusted: Vec<f64> = weights.iter().zip(&scales).map(|(w, a)| w / a).collect();
        let second = combine(&Raw::default(), &moved, &adjusted);
        let gap = |mu: &[f64], i: usize, j: usize| mu[i] - mu[j];
        // Composites are equal up to one positive factor. Offsets of up to a thousand spreads lose
        // the other digits.
        let total: f64 = weights.iter().sum::<f64>() / adjusted.iter().sum::<f64>();
        for i in 1..first.mu.len() {
            let (a, b) = (gap(&first.mu, i, 0), gap(&second.mu, i, 0) / total);
            prop_assert!((a - b).abs() < 1e-6, "{a} {b}");
        }
    }

    #[test]
    fn weights_act_linearly((rows, weights) in tables()) {
        let total: f64 = weights.iter().sum();
        let whole = combine(&CandidateBatch::sound(), &rows, &weights);
        let mut sum = vec![0.0; whole.mu.len()];
        for (row, w) in rows.iter().zip(&weights) {
            let part = combine(&CandidateBatch::sound(), std::slice::from_ref(row), &[1.0]);
            for (s, m) in sum.iter_mut().zip(&part.mu) {
                *s += w / total * m;
            }
        }
        prop_assert!(close(&whole.mu, &sum));
    }

    #[test]
    fn linear_propagation_is_the_upper_bound((rows, weights) in tables(), loadings in vec(-1.0f64..1.0, 4)) {
        // One common factor: with ρ_kl = c_k c_l off the diagonal, the matrix is positive
        // semidefinite for any loadings.
        let k = rows.len();
        let sigma = |propagation| combine(&Raw { propagation }, &rows, &weights).sigma;
        let linear = sigma(Propagation::Linear);
        let full = sigma(correlated(k, |i, j| loadings[i] * loadings[j]));
        let one = sigma(correlated(k, |_, _| 1.0));
        let zero = sigma(correlated(k, |_, _| 0.0));
        prop_assert!(full.iter().zip(&linear).all(|(f, l)| *f <= l * (1.0 + TOLERANCE) + TOLERANCE));
        prop_assert!(close(&one, &linear));
        prop_assert!(close(&zero, &sigma(Propagation::Independent)));
    }

    #[test]
    fn single_precision_follows_double((rows, weights) in tables()) {
        let narrow = |v: &[f64]| v.iter().map(|&x| x as f32).collect::<Vec<_>>();
        let rows32: Vec<_> = rows.iter().map(|(m, s)| (narrow(m), narrow(s))).collect();
        let double = combine(&CandidateBatch::sound(), &rows, &weights);
        let single = combine(&CandidateBatch::sound(), &rows32, &narrow(&weights));
        let scale = double.mu.iter().chain(&double.sigma).fold(1.0f64, |m, x| m.max(x.abs()));
        for (a, b) in double.mu.iter().chain(&double.sigma).zip(single.mu.iter().chain(&single.sigma)) {
            // Scores of order 1 are accurate to 1e-7 and spreads are at least 3e-4: a relative
            // error of 1e-3.
            prop_assert!((a - f64::from(*b)).abs() < 2e-3 * scale, "{a} {b}");
        }
    }

    #[test]
    fn scores_of_any_size_stay_finite(rows in (1usize..4, 1usize..6).prop_flat_map(|(k, n)| {
        let any = prop_oneof![-1e308f64..1e308, -1e-300f64..1e-300, Just(f64::MAX), Just(f64::MIN), Just(5e-324)];
        vec((vec(any.clone(), n), vec(any.prop_map(f64::abs), n)), k)
    })) {
        let weights = vec![1.0; rows.len()];
        for propagation in propagations(rows.len()) {
            let normalizers: [&dyn Normalizer; 5] = [
                &CandidateBatch { propagation: propagation.clone(), ..CandidateBatch::sound() },
                &CandidateBatch { propagation: propagation.clone(), ..CandidateBatch::paper() },
                &Raw { propagation: propagation.clone() },
                &Rank { propagation: propagation.clone() },
                &Robust { propagation },
            ];
            for (which, normalizer) in normalizers.into_iter().enumerate() {
                let out = combine(normalizer, &rows, &weights);
                prop_assert!(out.mu.iter().chain(&out.sigma).all(|x| x.is_finite()), "{which}: {out:?}");
                prop_assert!(out.sigma.iter().all(|s| *s >= 0.0), "{which}: {out:?}");
                let (table, simplex) = (ScoreTable::new(rows.clone()).unwrap(), Simplex::normalized(weights.clone()).unwrap());
                let shares = influence_shares(normalizer, &table, &simplex);
                let sum: f64 = shares.iter().sum();
                prop_assert!(sum == 0.0 || (sum - 1.0).abs() < 1e-12, "{which}: {shares:?}");
            }
        }
    }
}
