//! Vectors of values against single values: links and spreads against the functions of libraries,
//! round robins against a loop over pairs.

mod reference;

use std::f64::consts::{FRAC_1_SQRT_2, LN_2};

use proptest::collection::vec;
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use reference::{ELEMENTARY, links};
use sk_aggregate::{Asinh, Identity, Link, PNorm, Probit, RoundRobin, Spread};
use sk_core::{Aggregator, Batch, Real};

/// The relative tolerance of a rating. On either path, g and s are within `link` of the exact
/// values, and |u·g′(u)| ≤ |g(u)| for every link here, so an error of u is not magnified. A sum of
/// N terms adds N roundings, in any order.
fn rating_tolerance(n: usize, link: f64) -> f64 {
    3.0 * link + 2.0 * n as f64 * f64::EPSILON
}

const EXPONENTS: [f64; 7] = [1.0, 1.5, 2.0, 3.0, 7.0, 1e6, f64::INFINITY];

fn spreads() -> [PNorm; 7] {
    EXPONENTS.map(|p| PNorm::new(p).unwrap())
}

/// Returns g of an elementary link, by its name in the table, from functions of the standard
/// library and libm.
fn by_the_library(name: &str, u: f64) -> Option<f64> {
    let magnitude = match name {
        "probit" => 0.5 * libm::erf(u.abs() * FRAC_1_SQRT_2),
        "logistic" => 0.5 * (0.5 * u.abs()).tanh(),
        "tanh" => u.abs().tanh(),
        "laplace" => -0.5 * (-u.abs()).exp_m1(),
        "asinh" if u.abs() > 1e150 => u.abs().ln() + LN_2,
        "asinh" => u.abs().asinh(),
        "signed_log" => u.abs().ln_1p(),
        _ => return None,
    };
    Some(magnitude.copysign(u))
}

/// A dense comparison where the table is sparse: over sixty decades and where links bend, every
/// link of many values against the link of one, to the bit, and against the functions of the
/// libraries. Some lengths are not multiples of the vector length.
#[test]
fn links_of_many_values_agree_with_one_at_a_time_and_with_the_libraries() {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    for (name, link, tolerance) in links::<f64>() {
        let mut worst = 0.0f64;
        for round in 0..4000 {
            let sign = |rng: &mut ChaCha8Rng| if rng.random_bool(0.5) { 1.0 } else { -1.0 };
            let far = 10f64.powf(rng.random_range(-30.0..30.0));
            let near: f64 = rng.random_range(0.0..10.0);
            let u: Vec<f64> =
                (0..round % 19).map(|k| sign(&mut rng) * if k % 3 == 0 { far } else { near / (k + 1) as f64 }).collect();
            let mut g = u.clone();
            link.apply(&mut g);
            for (g, u) in g.into_iter().zip(u) {
                assert_eq!(g.to_bits(), link.g(u).to_bits(), "{name} at {u:e}");
                if let Some(library) = by_the_library(name, u) {
                    // The function of the library has an error too.
                    let error = (g / library - 1.0).abs();
                    assert!(error <= 2.0 * tolerance, "{name}: g({u:e}) = {g:e}, by the library {library:e}: {error:e}");
                    worst = worst.max(error);
                }
            }
        }
        println!("{name}: largest relative difference {worst:.2e}");
    }
}

#[test]
fn the_ends_of_the_range() {
    const FAR: [f64; 5] = [f64::MAX, f64::MIN, 1e154, 1e155, 1e9];
    for (name, link, tolerance) in links::<f64>() {
        let slope = link.lipschitz().unwrap();
        let near = [0.0, -0.0, f64::MIN_POSITIVE, 5e-324];
        let mut g = near;
        link.apply(&mut g);
        for (g, u) in g.into_iter().zip(near) {
            // A subnormal g holds few digits.
            assert!((g - slope * u).abs() < 1e-307 && g.is_sign_negative() == u.is_sign_negative(), "{name} at {u:e}: {g:e}");
        }
        let mut g = FAR;
        link.apply(&mut g);
        for (g, u) in g.into_iter().zip(FAR) {
            assert!(g.is_finite() && g * u > 0.0, "{name} at {u:e}: {g:e}");
            let library = by_the_library(name, u).unwrap_or(g);
            assert!((g / library - 1.0).abs() <= 2.0 * tolerance, "{name} at {u:e}: {g:e}, by the library {library:e}");
        }
    }
    // Bounded links saturate exactly, so that certain comparisons have equal values.
    for (name, link, _) in links::<f64>().into_iter().take(4) {
        let mut g = [40.0];
        link.apply(&mut g);
        assert_eq!(g[0], if name == "tanh" { 1.0 } else { 0.5 }, "{name}");
    }
}

/// Returns the ratings of a member, and those of a loop over its pairs.
fn rate<F: Real, L: Link<F>, S: Spread<F>>(member: &RoundRobin<L, S>, mu: &[F], sigma: &[F]) -> (Vec<F>, Vec<F>) {
    let n = mu.len();
    let mut fast = vec![F::nan(); n];
    member.rate(&Batch::trusted(mu, sigma), &mut fast);
    let limit = F::max_value() / F::of(4.0 * n as f64);
    let (quarter, mut slow) = (F::of(0.25), vec![F::zero(); n]);
    for j in 0..n {
        for i in 0..j {
            let (difference, s) = (mu[i] - mu[j], member.spread.s(sigma[i], sigma[j]));
            let u = if mu[i] == mu[j] {
                F::zero()
            } else if difference.is_finite() && s.is_finite() {
                difference / s
            } else {
                (quarter * mu[i] - quarter * mu[j]) / member.spread.s(quarter * sigma[i], quarter * sigma[j])
            };
            let g = member.link.g(u.max(-limit).min(limit));
            slow[i] = slow[i] + g;
            slow[j] = slow[j] - g;
        }
    }
    (fast, slow)
}

/// Fails unless the error of every rating is within the tolerance times the sum of its terms'
/// magnitudes.
fn compare(name: &str, link: &dyn Link, spread: PNorm, tolerance: f64, mu: &[f64], sigma: &[f64]) -> Result<(), TestCaseError> {
    let n = mu.len();
    let (fast, slow) = rate(&RoundRobin::new(link, spread), mu, sigma);
    let limit = f64::MAX / (4 * n) as f64;
    for i in 0..n {
        let term = |j: usize| {
            let s = spread.s(sigma[i] / 4.0, sigma[j] / 4.0);
            // A quarter of the smallest difference underflows, but it counts if the spread is zero.
            let delta = (mu[i] / 4.0 - mu[j] / 4.0).abs().max(5e-324);
            if mu[i] == mu[j] { 0.0 } else { link.g((delta / s).min(limit)) }
        };
        let scale: f64 = (0..n).filter(|&j| j != i).map(term).sum();
        let error = (fast[i] - slow[i]).abs();
        // A quarter of the smallest numbers is not exact. Such terms are below 1e-300, or their
        // spread is zero.
        let allowed = rating_tolerance(n, tolerance) * scale + 1e-300;
        prop_assert!(error <= allowed, "{name}, {spread:?}: rating {i} is {:e}, pair by pair {:e}", fast[i], slow[i]);
    }
    Ok(())
}

/// Scores and dispersions with ties, zeros, thirty decades, the ends of the range, and differences
/// at which links saturate.
fn hard() -> impl Strategy<Value = (f64, f64)> {
    let mu = prop_oneof![
        4 => -2.0f64..2.0,
        1 => (-3i32..3).prop_map(f64::from),
        1 => (-15.0f64..15.0).prop_map(|d| 10f64.powf(d)),
        1 => prop_oneof![Just(0.0), Just(1e300), Just(-1e300), Just(1e-300), Just(f64::MAX), Just(f64::MIN), Just(5e-324)],
    ];
    let sigma = prop_oneof![
        4 => 0.1f64..2.0,
        1 => Just(0.0),
        1 => (-15.0f64..15.0).prop_map(|d| 10f64.powf(d)),
        1 => prop_oneof![Just(1e300), Just(1e-300), Just(f64::MAX), Just(1e-160), Just(1e160)],
    ];
    (mu, sigma)
}

/// Every link with every spread.
fn compare_all(players: Vec<(f64, f64)>) -> Result<(), TestCaseError> {
    let (mu, sigma): (Vec<f64>, Vec<f64>) = players.into_iter().unzip();
    for spread in spreads() {
        for (name, link, tolerance) in links() {
            compare(name, &*link, spread, tolerance, &mu, &sigma)?;
        }
        compare("identity", &Identity, spread, ELEMENTARY, &mu, &sigma)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn ratings_agree_with_pair_by_pair(players in vec((-2.0f64..2.0, 0.1f64..3.0), 1..40)) {
        compare_all(players)?;
    }

    #[test]
    fn ratings_agree_with_pair_by_pair_at_the_edges(players in vec(hard(), 1..40)) {
        compare_all(players)?;
    }

    #[test]
    fn single_precision_ratings_agree(players in vec((-2.0f32..2.0, 0.0f32..3.0), 1..40)) {
        let (mu, sigma): (Vec<f32>, Vec<f32>) = players.into_iter().unzip();
        for spread in spreads() {
            for (name, link, _) in links::<f32>() {
                let (fast, slow) = rate(&RoundRobin::new(&*link, spread), &mu, &sigma);
                for (a, b) in fast.iter().zip(&slow) {
                    // Forty terms of order 1 to 10, each accurate to a few units in the last place.
                    prop_assert!((a - b).abs() <= 2e-4, "{name}: {a} {b}");
                }
            }
        }
    }

    #[test]
    fn spreads_of_many_pairs_agree_with_one_at_a_time(pairs in vec((hard(), hard()), 0..20)) {
        let (a, b): (Vec<f64>, Vec<f64>) = pairs.into_iter().map(|(a, b)| (a.1, b.1)).unzip();
        for p in EXPONENTS {
            let spread = PNorm::new(p).unwrap();
            let mut s = a.clone();
            spread.apply(&mut s, &b);
            for (k, s) in s.into_iter().enumerate() {
                prop_assert_eq!(s, spread.s(a[k], b[k]), "p {}: {} {}", p, a[k], b[k]);
                let (small, large) = (a[k].min(b[k]), a[k].max(b[k]));
                let library = if small == 0.0 || p.is_infinite() { large } else { large * ((small / large).powf(p).ln_1p() / p).exp() };
                prop_assert!(s == library || (s / library - 1.0).abs() <= 2.0 * ELEMENTARY, "p {p}: {} {} {s:e} {library:e}", a[k], b[k]);
            }
        }
    }
}

/// With a spread of zero, even the smallest scores and differences decide: the higher score gets ½,
/// on either path and in either precision.
#[test]
fn the_smallest_scores_win() {
    for p in [1.0, 2.0, 3.0, f64::INFINITY] {
        let spread = PNorm::new(p).unwrap();
        let (fast, slow) = rate::<f64, _, _>(&RoundRobin::new(&Probit, spread), &[5e-324, 0.0, -5e-324], &[0.0; 3]);
        assert_eq!((fast, slow), (vec![1.0, 0.0, -1.0], vec![1.0, 0.0, -1.0]), "{p}");
        let (fast, slow) = rate::<f32, _, _>(&RoundRobin::new(&Probit, spread), &[1e-45, 0.0, -1e-45], &[0.0; 3]);
        assert_eq!((fast, slow), (vec![1.0, 0.0, -1.0], vec![1.0, 0.0, -1.0]), "{p}");
    }
}

/// Differences equal to the smallest number, with a positive and with a zero spread, in one batch.
#[test]
fn the_smallest_scores_agree_with_pair_by_pair() {
    let sigma =
        [0.1, 1.0, 0.1, 0.1, 0.0, 1.0, 0.1, 1.0, 0.0, 0.1, 1.0, 0.1, 0.0, 0.1, 0.1, 0.1, 0.1, 0.8606284977795187, 0.1, 1.0, 0.1];
    let mut players = sigma.map(|sigma| (0.0, sigma)).to_vec();
    (players[4].0, players[17].0) = (5e-324, 1e300);
    compare_all(players).unwrap();
}

/// Batches of one block and of many blocks, of an even and an odd number of them, and longer than
/// the length from which threads share the rounds.
#[test]
fn large_batches_agree_with_pair_by_pair() {
    for n in [127, 128, 129, 256, 300, 511, 1100] {
        let mut rng = ChaCha8Rng::seed_from_u64(n as u64);
        let mu: Vec<f64> = (0..n).map(|_| rng.random_range(-2.0..2.0)).collect();
        let sigma: Vec<f64> = (0..n).map(|k| if k % 97 == 0 { 0.0 } else { rng.random_range(0.1..2.0) }).collect();
        for (link, spread) in [(&Probit as &dyn Link, PNorm::EUCLIDEAN), (&Asinh, PNorm::SUM)] {
            compare("large", link, spread, ELEMENTARY, &mu, &sigma).unwrap();
        }
    }
}

/// A third-party link and spread with one method each take the same path.
#[test]
fn one_method_is_enough() {
    struct Softsign;
    impl Link for Softsign {
        fn g(&self, u: f64) -> f64 {
            u / (1.0 + u.abs())
        }
    }
    struct Mean;
    impl Spread for Mean {
        fn s(&self, a: f64, b: f64) -> f64 {
            0.5 * (a + b)
        }
    }
    let mu: Vec<f64> = (0..150).map(|k| f64::from(k * 37 % 101)).collect();
    let sigma: Vec<f64> = (0..150).map(|k| f64::from(k % 5)).collect();
    let member = RoundRobin::new(Box::new(Softsign) as Box<dyn Link>, Mean);
    let (fast, slow) = rate(&member, &mu, &sigma);
    for (a, b) in fast.iter().zip(slow) {
        // 149 terms of at most 1.
        assert!((a - b).abs() < 149.0 * rating_tolerance(149, f64::EPSILON), "{a} {b}");
    }
}

/// The same bits with one thread, with three, and without a thread pool.
#[cfg(feature = "parallel")]
#[test]
fn ratings_do_not_depend_on_the_number_of_threads() {
    for n in [512, 1100, 2000] {
        let mut rng = ChaCha8Rng::seed_from_u64(n as u64);
        let mu: Vec<f64> = (0..n).map(|_| rng.random_range(-2.0..2.0)).collect();
        let sigma: Vec<f64> = (0..n).map(|_| rng.random_range(0.1..2.0)).collect();
        let rated = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let mut ratings = vec![f64::NAN; n];
            pool.install(|| RoundRobin::thurstone().rate(&Batch::trusted(&mu, &sigma), &mut ratings));
            ratings
        };
        let alone = rated(1);
        for threads in [2, 3, 8] {
            assert!(rated(threads).iter().zip(&alone).all(|(a, b)| a.to_bits() == b.to_bits()), "{threads} threads");
        }
    }
}
