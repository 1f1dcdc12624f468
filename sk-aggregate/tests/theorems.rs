//! The statements about the family that are not axioms: where attenuation ends, the canonical
//! members, the boundary, what dispersions are for, and what aggregation costs.

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

/// ∂R_0/∂μ_0 of two candidates Δ apart under s = σ_0 (the other is certain), by a central
/// difference that keeps nine digits.
fn sensitivity(link: &dyn Link, delta: f64, s: f64) -> f64 {
    let h = 1e-4 * s;
    let member = RoundRobin::new(link, PNorm::EUCLIDEAN);
    let at = |mu: f64| rate(&member, &[mu, 0.0], &[s, 0.0])[0];
    (at(delta + h) - at(delta - h)) / (2.0 * h)
}

/// E2: A5 holds where u·g′(u) rises, and its end u* is where that peaks: u²= 1 for the probit and
/// every Student t, u = 1 for Laplace, u·tanh(u/2) = 1 for the logistic and 2u·tanh(u) = 1 for
/// tanh, which is the logistic at twice the argument.
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
            // Δ = 1 and s = 1/u, one part in a hundred wider.
            let (at, wider) = (sensitivity(link, 1.0, 1.0 / u), sensitivity(link, 1.0, 1.01 / u));
            assert_eq!(wider < at, part < 1.0, "{name} at {part} u*: {at} {wider}");
        }
    }
    for (name, link) in [("asinh", &Asinh as &dyn Link), ("signed log", &SignedLog), ("identity", &Identity)] {
        for u in [1e-3, 0.1, 1.0, 1.6, 10.0, 1e3] {
            let (at, wider) = (sensitivity(link, 1.0, 1.0 / u), sensitivity(link, 1.0, 1.01 / u));
            // Differences of ratings of order 10 known to 1e-15, over 2e-4 s.
            assert!(wider < at * (1.0 + 1e-9), "{name} at {u}: {at} {wider}");
        }
    }
}

proptest! {
    /// The canonical family: up to ½ per rival, Thurstone's ratings are expected wins under normal
    /// errors, Bradley–Terry's under logistic.
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
        // p → ∞ is the weakest link.
        let near = rate(&RoundRobin::new(Probit, PNorm::new(1e9).unwrap()), &mu, &sigma);
        prop_assert!(near.iter().zip(rate(&RoundRobin::weakest_link(), &mu, &sigma)).all(|(a, b)| (a - b).abs() < 1e-8));
    }

    /// The boundary corollary: σ → 0 and T → 0 select the highest score, jointly and in either
    /// order, for bounded and slow links.
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
                // T → 0 after σ → 0, which at σ = 0 may be before it.
                prop_assert_eq!(choice(member, &Argmax, &mu, &vanishing)[best], 1.0);
                let at = |temperature: f64| choice(member, &Softmax::new(temperature).unwrap(), &mu, &vanishing)[best];
                // With it, as fast, faster and slower; and after it.
                for temperature in [t, t * t, t.sqrt(), t.powf(0.25)].into_iter().filter(|&t| t > 0.0).chain([1e-3, 1e-15]) {
                    prop_assert!(at(temperature) > 1.0 - 1e-9, "σ = {t} σ₀, T = {temperature}: {}", at(temperature));
                }
            }
        }
    }
}

/// Candidates of a world.
const N: usize = 7;

/// E[quality of the choice] of a Thurstone softmax.
fn outcome(quality: &[f64], mu: &[f64], sigma: &[f64]) -> f64 {
    let p = choice(&RoundRobin::thurstone(), &Softmax::new(0.3).unwrap(), mu, sigma);
    p.iter().zip(quality).map(|(p, q)| p * q).sum()
}

/// A world: qualities, their rewards and the dispersions a blade reports.
type World = fn(&mut ChaCha8Rng) -> ([f64; N], [f64; N], [f64; N]);

fn normal(rng: &mut dyn Rng) -> f64 {
    let (u, v): (f64, f64) = (1.0 - rng.random::<f64>(), rng.random());
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

fn one_of(rng: &mut ChaCha8Rng) -> f64 {
    if rng.random_bool(0.5) { 0.2 } else { 3.0 }
}

/// σ_i is drawn apart from all else: 𝓘(σ) = 0.
fn uninformative(rng: &mut ChaCha8Rng) -> ([f64; N], [f64; N], [f64; N]) {
    let quality = std::array::from_fn(|_| normal(rng));
    let mu = quality.map(|q| q + one_of(rng) * normal(rng));
    (quality, mu, std::array::from_fn(|_| one_of(rng)))
}

/// σ_i is the deviation of the error of candidate i.
fn informative(rng: &mut ChaCha8Rng) -> ([f64; N], [f64; N], [f64; N]) {
    let (quality, sigma): ([f64; N], [f64; N]) = (std::array::from_fn(|_| normal(rng)), std::array::from_fn(|_| one_of(rng)));
    (quality, std::array::from_fn(|i| quality[i] + sigma[i] * normal(rng)), sigma)
}

/// σ_i is large where the reward is too high and small where it is too low, while |μ_i − q_i| is
/// independent of it: 𝓘(σ) = 0 again.
fn signed(rng: &mut ChaCha8Rng) -> ([f64; N], [f64; N], [f64; N]) {
    let quality = std::array::from_fn(|_| normal(rng));
    let over: [bool; N] = std::array::from_fn(|_| rng.random_bool(0.5));
    let mu = std::array::from_fn(|i| quality[i] + if over[i] { 1.0 } else { -1.0 } * rng.random_range(0.9..1.1));
    (quality, mu, over.map(|over| if over { 3.0 } else { 0.2 }))
}

/// Mean and standard error of the outcome of real less shuffled and of shuffled less zero
/// dispersions, at `scale` times the world's.
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

/// Real, shuffled and zero σ (`app:cor:decomp`): independent dispersions may be shuffled for free
/// but not dropped, and informative ones earn their keep.
#[test]
fn shuffling_costs_what_is_coupled_and_dropping_costs_the_scale() {
    let [coupling, scale] = decomposition(uninformative, 1.0);
    println!("uninformative: real − shuffled {coupling:?}, shuffled − zero {scale:?}");
    // Exchangeability makes the first difference exactly zero in expectation.
    assert!(coupling.0.abs() < 4.0 * coupling.1);
    assert!(scale.0.abs() > 5.0 * scale.1);
    let [coupling, _] = decomposition(informative, 1.0);
    println!("informative: real − shuffled {coupling:?}");
    assert!(coupling.0 > 10.0 * coupling.1);
    // The second difference goes to nothing with the scale; it need not do so steadily, since its
    // sign may change on the way.
    let [none, all] = [1e-6, 1.0].map(|scale| decomposition(uninformative, scale)[1].0.abs());
    println!("|shuffled − zero| at scale 1e-6 and 1: {none:.1e} {all:.1e}");
    assert!(none < 1e-5 && all > 1e-2);
}

/// 𝓘(σ) = 0 does not make the coupling free: it is blind to dispersions that go with the sign of
/// the error.
#[test]
fn informativeness_does_not_bound_what_shuffling_costs() {
    // |μ − q| does not tell the two dispersions apart …
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
    // Uniform on 0.2, some 14 000 each: a standard error of 7e-4.
    assert!((small - large).abs() < 3e-3, "{small} {large}");
    // … and yet the pairing matters.
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
