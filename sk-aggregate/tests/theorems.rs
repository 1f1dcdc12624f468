//! Statements about the family other than the axioms: where attenuation ends, the canonical
//! members, the boundary, the value of dispersions, and the cost of aggregation.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use proptest::collection::vec;
use proptest::prelude::*;
use rand::seq::SliceRandom;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sk_aggregate::{
    Asinh, Identity, Laplace, Link, Logistic, PNorm, Probit, RoundRobin, SignedLog, Spread, StudentT, SwissElo, Tanh,
};
use sk_core::{Aggregator, Batch, Selector};
use sk_select::{Argmax, Softmax};

fn rate(aggregator: &dyn Aggregator, mu: &[f64], sigma: &[f64]) -> Vec<f64> {
    let mut ratings = vec![f64::NAN; mu.len()];
    aggregator.rate(&Batch::trusted(mu, sigma), &mut ratings);
    ratings
}

fn choice(aggregator: &dyn Aggregator, selector: &dyn Selector, mu: &[f64], sigma: &[f64]) -> Vec<f64> {
    let mut probabilities = vec![f64::NAN; mu.len()];
    selector.distribution(&rate(aggregator, mu, sigma), &Batch::trusted(mu, sigma), &mut probabilities);
    probabilities
}

/// ∂R_0/∂μ_0 for two candidates at a distance Δ under s = σ_0 (the other has σ = 0). The central
/// difference has nine correct digits.
fn sensitivity(link: &dyn Link, delta: f64, s: f64) -> f64 {
    let h = 1e-4 * s;
    let member = RoundRobin::new(link, PNorm::EUCLIDEAN);
    let at = |mu: f64| rate(&member, &[mu, 0.0], &[s, 0.0])[0];
    (at(delta + h) - at(delta - h)) / (2.0 * h)
}

/// E2: A5 holds where u·g′(u) increases, up to the peak u*: u² = 1 for the probit and every Student
/// t, u = 1 for Laplace, u·tanh(u/2) = 1 for the logistic, and 2u·tanh(u) = 1 for tanh, which is
/// the logistic at twice the argument.
#[test]
fn attenuation_ends_at_the_peak_of_u_times_the_slope() {
    let student = |nu| StudentT::new(nu).unwrap();
    const LOGISTIC: f64 = 1.543_404_638_418_212;
    assert!((LOGISTIC * (LOGISTIC / 2.0).tanh() - 1.0).abs() < 1e-12);
    let thresholds: [(&str, &dyn Link, f64); 7] = [
        ("probit", &Probit, 1.0),
        ("logistic", &Logistic, LOGISTIC),
        ("tanh", &Tanh, LOGISTIC / 2.0),
        ("laplace", &Laplace, 1.0),
        ("cauchy", &student(1.0), 1.0),
        ("student, 3", &student(3.0), 1.0),
        ("student, 30", &student(30.0), 1.0),
    ];
    for (name, link, threshold) in thresholds {
        for part in [0.05, 0.3, 0.6, 0.9, 0.97, 1.03, 1.1, 1.5, 3.0] {
            let u = part * threshold;
            // Δ = 1 and s = 1/u, then s wider by 1%.
            let (at, wider) = (sensitivity(link, 1.0, 1.0 / u), sensitivity(link, 1.0, 1.01 / u));
            assert_eq!(wider < at, part < 1.0, "{name} at {part} u*: {at} {wider}");
        }
    }
    for (name, link) in [("asinh", &Asinh as &dyn Link), ("signed log", &SignedLog), ("identity", &Identity)] {
        for u in [1e-3, 0.1, 1.0, 1.6, 10.0, 1e3] {
            let (at, wider) = (sensitivity(link, 1.0, 1.0 / u), sensitivity(link, 1.0, 1.01 / u));
            // Differences of ratings of order 10, accurate to 1e-15, divided by 2e-4 s.
            assert!(wider < at * (1.0 + 1e-9), "{name} at {u}: {at} {wider}");
        }
    }
}

proptest! {
    /// The canonical family: plus ½ per rival, Thurstone's ratings are the expected wins under
    /// normal errors, and Bradley–Terry's those under logistic errors.
    #[test]
    fn named_members_are_expected_wins(players in vec((-2.0f64..2.0, 0.1f64..3.0), 2..9)) {
        let (mu, sigma): (Vec<f64>, Vec<f64>) = players.into_iter().unzip();
        let half = 0.5 * (mu.len() as f64 - 1.0);
        let wins = |p: &dyn Fn(f64, f64, f64) -> f64| -> Vec<f64> {
            (0..mu.len()).map(|i| (0..mu.len()).filter(|&j| j != i).map(|j| p(mu[i] - mu[j], sigma[i], sigma[j])).sum()).collect()
        };
        let normal = |u: f64| 0.5 * libm::erfc(-u / std::f64::consts::SQRT_2);
        let cases: [(&dyn Aggregator, Vec<f64>); 3] = [
            (&RoundRobin::thurstone(), wins(&|d, a, b| normal(d / (a * a + b * b).sqrt()))),
            (&RoundRobin::bradley_terry(), wins(&|d, a, b| 1.0 / (1.0 + (-d / (a + b)).exp()))),
            (&RoundRobin::weakest_link(), wins(&|d, a, b| normal(d / a.max(b)))),
        ];
        for (member, expected) in cases {
            for (rating, wins) in rate(member, &mu, &sigma).iter().zip(&expected) {
                prop_assert!((rating + half - wins).abs() < 1e-12, "{rating} {wins}");
            }
        }
        // The weakest link is the limit p → ∞.
        let near = rate(&RoundRobin::new(Probit, PNorm::new(1e9).unwrap()), &mu, &sigma);
        prop_assert!(near.iter().zip(rate(&RoundRobin::weakest_link(), &mu, &sigma)).all(|(a, b)| (a - b).abs() < 1e-8));
    }

    /// The boundary corollary: as σ → 0 and T → 0, jointly or in either order, bounded and slow
    /// links select the highest score.
    #[test]
    fn pointwise_selection_is_the_boundary(steps in vec(0.05f64..1.0, 1..8), sigma in vec(0.1f64..10.0, 8), turn in 0usize..8) {
        let mut mu: Vec<f64> = steps.iter().scan(0.0, |sum, step| { *sum += step; Some(*sum) }).collect();
        mu.rotate_left(turn % steps.len());
        let sigma = &sigma[..mu.len()];
        let best = (0..mu.len()).max_by(|&a, &b| mu[a].total_cmp(&mu[b])).unwrap();
        let student = |nu| StudentT::new(nu).unwrap();
        let members: [&dyn Aggregator; 10] = [
            &RoundRobin::thurstone(), &RoundRobin::bradley_terry(), &RoundRobin::weakest_link(), &RoundRobin::asinh(),
            &RoundRobin::new(SignedLog, PNorm::SUM), &RoundRobin::new(Tanh, PNorm::EUCLIDEAN),
            &RoundRobin::new(Laplace, PNorm::MAXIMUM), &RoundRobin::new(student(1.0), PNorm::SUM),
            &RoundRobin::new(student(3.0), PNorm::EUCLIDEAN), &RoundRobin::new(student(100.0), PNorm::EUCLIDEAN),
        ];
        for member in members {
            for t in [1e-9, 1e-12, 0.0] {
                let vanishing: Vec<f64> = sigma.iter().map(|s| t * s).collect();
                // T → 0 after σ → 0. With σ = 0 the order does not matter.
                prop_assert_eq!(choice(member, &Argmax, &mu, &vanishing)[best], 1.0);
                let at = |temperature: f64| choice(member, &Softmax::new(temperature).unwrap(), &mu, &vanishing)[best];
                // T → 0 jointly with σ, at the same rate, faster and slower; and σ → 0 at a fixed
                // T.
                for temperature in [t, t * t, t.sqrt(), t.powf(0.25)].into_iter().filter(|&t| t > 0.0).chain([1e-3, 1e-15]) {
                    prop_assert!(at(temperature) > 1.0 - 1e-9, "σ = {t} σ₀, T = {temperature}: {}", at(temperature));
                }
            }
        }
    }
}

/// Candidates in a world.
const N: usize = 7;

/// The expected quality of the choice of a Thurstone softmax.
fn outcome(quality: &[f64], mu: &[f64], sigma: &[f64]) -> f64 {
    let p = choice(&RoundRobin::thurstone(), &Softmax::new(0.3).unwrap(), mu, sigma);
    p.iter().zip(quality).map(|(p, q)| p * q).sum()
}

/// A world draws qualities, their rewards, and the dispersions that a blade reports.
type World = fn(&mut ChaCha8Rng) -> ([f64; N], [f64; N], [f64; N]);

fn normal(rng: &mut dyn Rng) -> f64 {
    let (u, v): (f64, f64) = (1.0 - rng.random::<f64>(), rng.random());
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

fn one_of(rng: &mut ChaCha8Rng) -> f64 {
    if rng.random_bool(0.5) { 0.2 } else { 3.0 }
}

/// σ_i is independent of everything else: 𝓘(σ) = 0.
fn uninformative(rng: &mut ChaCha8Rng) -> ([f64; N], [f64; N], [f64; N]) {
    let quality = std::array::from_fn(|_| normal(rng));
    let mu = quality.map(|q| q + one_of(rng) * normal(rng));
    (quality, mu, std::array::from_fn(|_| one_of(rng)))
}

/// σ_i is the standard deviation of the error of candidate i.
fn informative(rng: &mut ChaCha8Rng) -> ([f64; N], [f64; N], [f64; N]) {
    let (quality, sigma): ([f64; N], [f64; N]) = (std::array::from_fn(|_| normal(rng)), std::array::from_fn(|_| one_of(rng)));
    (quality, std::array::from_fn(|i| quality[i] + sigma[i] * normal(rng)), sigma)
}

/// σ_i is large if the reward is too high and small if it is too low, but independent of |μ_i −
/// q_i|: 𝓘(σ) = 0 again.
fn signed(rng: &mut ChaCha8Rng) -> ([f64; N], [f64; N], [f64; N]) {
    let quality = std::array::from_fn(|_| normal(rng));
    let over: [bool; N] = std::array::from_fn(|_| rng.random_bool(0.5));
    let mu = std::array::from_fn(|i| quality[i] + if over[i] { 1.0 } else { -1.0 } * rng.random_range(0.9..1.1));
    (quality, mu, over.map(|over| if over { 3.0 } else { 0.2 }))
}

/// Means and standard errors of two differences in outcome: real minus shuffled dispersions, and
/// shuffled minus zero dispersions. The dispersions are `scale` times those of the world.
fn decomposition(world: World, scale: f64) -> [(f64, f64); 2] {
    const WORLDS: usize = 20_000;
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let mut differences = [Vec::with_capacity(WORLDS), Vec::with_capacity(WORLDS)];
    for _ in 0..WORLDS {
        let (quality, mu, sigma) = world(&mut rng);
        let real = sigma.map(|s| scale * s);
        let mut shuffled = real;
        shuffled.shuffle(&mut rng);
        let [real, shuffled, zero] = [real, shuffled, [0.0; N]].map(|sigma| outcome(&quality, &mu, &sigma));
        differences[0].push(real - shuffled);
        differences[1].push(shuffled - zero);
    }
    differences.map(|values| {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
        (mean, (variance / n).sqrt())
    })
}

/// Real, shuffled and zero σ (`app:cor:decomp`): shuffling independent dispersions costs nothing,
/// but dropping them does; informative dispersions improve the outcome.
#[test]
fn shuffling_costs_what_is_coupled_and_dropping_costs_the_scale() {
    let [coupling, scale] = decomposition(uninformative, 1.0);
    println!("uninformative: real − shuffled {coupling:?}, shuffled − zero {scale:?}");
    // By exchangeability, the expectation of the first difference is exactly zero.
    assert!(coupling.0.abs() < 4.0 * coupling.1);
    assert!(scale.0.abs() > 5.0 * scale.1);
    let [coupling, _] = decomposition(informative, 1.0);
    println!("informative: real − shuffled {coupling:?}");
    assert!(coupling.0 > 10.0 * coupling.1);
    // The second difference vanishes with the scale. It need not decrease monotonically, since its
    // sign may change.
    let [none, all] = [1e-6, 1.0].map(|scale| decomposition(uninformative, scale)[1].0.abs());
    println!("|shuffled − zero| at scale 1e-6 and 1: {none:.1e} {all:.1e}");
    assert!(none < 1e-5 && all > 1e-2);
}

/// 𝓘(σ) = 0 does not make shuffling free: 𝓘 cannot detect dispersions that follow the sign of the
/// error.
#[test]
fn informativeness_does_not_bound_what_shuffling_costs() {
    // |μ − q| has the same mean for both dispersions …
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let mut errors = [(0.0, 0.0); 2];
    for _ in 0..4000 {
        let (quality, mu, sigma) = signed(&mut rng);
        for i in 0..N {
            let group = &mut errors[usize::from(sigma[i] > 1.0)];
            *group = (group.0 + (mu[i] - quality[i]).abs(), group.1 + 1.0);
        }
    }
    let [small, large] = errors.map(|(sum, count)| sum / count);
    // Uniform with width 0.2, some 14 000 draws each: a standard error of 7e-4.
    assert!((small - large).abs() < 3e-3, "{small} {large}");
    // … but shuffling them changes the outcome.
    let [coupling, _] = decomposition(signed, 1.0);
    println!("signed: real − shuffled {coupling:?}");
    assert!(coupling.0.abs() > 10.0 * coupling.1, "{coupling:?}");
}

/// `prop:cost`: a tournament plays R·⌊N/2⌋ matches; a round robin evaluates g and s once per pair.
#[test]
fn aggregation_costs_what_it_says() {
    struct Counted<T>(T, AtomicUsize);
    impl<T: Link> Link for Counted<T> {
        fn g(&self, u: f64) -> f64 {
            self.1.fetch_add(1, Relaxed);
            self.0.g(u)
        }
    }
    impl<T: Spread> Spread for Counted<T> {
        fn s(&self, a: f64, b: f64) -> f64 {
            self.1.fetch_add(1, Relaxed);
            self.0.s(a, b)
        }
    }
    for n in [1usize, 2, 7, 8, 33] {
        let (mu, sigma): (Vec<f64>, Vec<f64>) = ((0..n).map(|i| (i * 7 % n) as f64).collect(), vec![1.0; n]);
        let member = RoundRobin::new(Counted(Probit, AtomicUsize::new(0)), Counted(PNorm::EUCLIDEAN, AtomicUsize::new(0)));
        rate(&member, &mu, &sigma);
        assert_eq!(member.link.1.load(Relaxed), n * (n - 1) / 2);
        assert_eq!(member.spread.1.load(Relaxed), n * (n - 1) / 2);
        for rounds in [1, 5, 9] {
            let bracket = SwissElo::sound(rounds, 0.5).unwrap().bracket(&Batch::trusted(&mu, &sigma));
            assert_eq!(bracket.rounds.iter().map(|round| round.matches.len()).sum::<usize>(), rounds * (n / 2));
        }
    }
}
