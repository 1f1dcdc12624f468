//! What dispersions contribute: real, shuffled and zero σ under increasing σ-informativeness
//! (`app:cor:decomp`, `cor:multiset`).
//!
//! The reward of a candidate has a normal error with its own standard deviation. The reported σ is
//! that standard deviation with probability `coupling`, and an independent draw otherwise.
//! Shuffling σ keeps its scale and removes the coupling; zero σ removes both. The bounds of Theorem
//! 2 depend on σ only as a multiset, so shuffling does not change them.

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sk_aggregate::Certify;
use sk_blades::{DispersionArm, informativeness};
use sk_core::{Aggregator, Batch, Selector};
use sk_select::Softmax;

use super::sampling::{Mean, normal};
use super::{Contradiction, SimulationError};

const MULTISET: &str = "Corollary 2 (cor:multiset): the bounds of Theorem 2 depend on σ as a multiset";
const FREE: &str = "the decomposition (app:cor:decomp): shuffling σ changes no expectation where σ is exchangeable";
const DROPPED: &str = "the decomposition (app:cor:decomp): dropping σ changes the outcome even where σ is exchangeable";
const COUPLED: &str = "the decomposition (app:cor:decomp): the coupling of an informative σ is worth something";

const PAIRING: &str = "real less shuffled";
const SCALE: &str = "shuffled less zero";

/// The number of standard errors from which an expectation counts as different. A single comparison
/// exceeds it by chance with probability 6·10⁻⁷.
pub(super) const LIMIT: f64 = 5.0;
/// The number of worlds below which the standard error itself is too uncertain.
pub const FEWEST_WORLDS: usize = 1000;
/// The rounding error of an expectation; a smaller difference counts as zero.
const NOTHING: f64 = 1e-12;
/// The relative rounding error of a bound, a sum of N terms whose order a permutation changes.
const ROUNDING: f64 = 1e-12;
/// The two standard deviations of errors. Reliable and unreliable candidates are equally frequent.
const DEVIATIONS: [f64; 2] = [0.2, 3.0];

/// A batch of candidates with known quality, which their rewards measure with an error.
#[derive(Debug, Clone, PartialEq)]
pub struct World {
    /// q.
    pub quality: Vec<f64>,
    /// μ.
    pub mu: Vec<f64>,
    /// σ, as reported.
    pub sigma: Vec<f64>,
}

impl World {
    /// Draws quality, μ and σ of each candidate.
    fn of(candidates: usize, draw: impl FnMut() -> (f64, f64, f64)) -> Self {
        let (quality, mu, sigma) = std::iter::repeat_with(draw).take(candidates).collect();
        Self { quality, mu, sigma }
    }
}

/// Draws a world of the given number of candidates, in which σ equals the error's standard
/// deviation with the given probability.
pub type Draw = fn(&mut dyn Rng, usize, f64) -> World;

/// Draws a world with normal errors of standard deviation 0.2 or 3. σ is the candidate's own with
/// probability `coupling`: exchangeable at 0, honest at 1.
pub fn honest(rng: &mut dyn Rng, candidates: usize, coupling: f64) -> World {
    let deviation = |rng: &mut dyn Rng| DEVIATIONS[usize::from(rng.random_bool(0.5))];
    World::of(candidates, || {
        let (q, own) = (normal(rng), deviation(rng));
        let (mu, other) = (q + own * normal(rng), deviation(rng));
        (q, mu, if rng.random::<f64>() < coupling { own } else { other })
    })
}

/// Draws a world in which σ is large where the reward is too high and small where it is too low,
/// whatever the `coupling`. σ carries no information on the size of the error, so 𝓘(σ) = 0, and yet
/// σ is not exchangeable.
pub fn signed(rng: &mut dyn Rng, candidates: usize, _: f64) -> World {
    World::of(candidates, || {
        let (q, over) = (normal(rng), rng.random_bool(0.5));
        let error = if over { 1.0 } else { -1.0 } * rng.random_range(0.9..1.1);
        (q, q + error, DEVIATIONS[usize::from(over)])
    })
}

/// The settings of the study.
#[derive(Debug, Clone, PartialEq)]
pub struct DispersionSettings {
    /// N, candidates per world.
    pub candidates: usize,
    /// The number of worlds per coupling, at least [`FEWEST_WORLDS`].
    pub worlds: usize,
    /// The probabilities that σ is the standard deviation of the candidate's own error. The first
    /// must be 0, the last the highest.
    pub couplings: Vec<f64>,
    /// T, the softmax temperature.
    pub temperature: f64,
    /// The seed of the worlds.
    pub seed: u64,
}

/// The contribution of dispersions at one coupling.
#[derive(Debug, Clone, PartialEq)]
pub struct Worth {
    /// The probability that σ is the standard deviation of the candidate's own error.
    pub coupling: f64,
    /// 𝓘(σ), over the candidates of all worlds.
    pub informativeness: f64,
    /// E[q of the selected candidate] under real, shuffled and zero σ, in standard deviations of
    /// quality.
    pub outcomes: [Mean; 3],
    /// The paired difference of real minus shuffled σ over the same worlds: the value of the
    /// coupling.
    pub coupling_worth: Mean,
    /// The paired difference of shuffled minus zero σ over the same worlds: the value of the scale.
    pub scale_worth: Mean,
}

/// Compares the three arms at each coupling.
///
/// A difference counts as present from five standard errors on. The claim that it is present is
/// contradicted if it is zero in every world, or if it has the wrong sign by five standard errors.
/// Anything else is unresolved.
///
/// # Errors
/// If a permutation changes a bound, if shuffling an exchangeable σ changes the outcome, if
/// dropping it does not, if the coupling of the most informative σ has no value, or if the worlds
/// are too few to decide.
pub fn study(operator: &dyn Certify, draw: Draw, settings: &DispersionSettings) -> Result<Vec<Worth>, SimulationError> {
    let worths = settings.couplings.iter().map(|&coupling| at(operator, draw, coupling, settings));
    let worths: Vec<Worth> = worths.collect::<Result<_, _>>()?;
    let check = |claim: &'static str, coupling: f64, what: &'static str, difference: Mean, expected: &[Found]| {
        let found = Found::of(difference);
        let possible = found == Found::Unresolved || expected.contains(&found);
        Contradiction::unless(possible, claim, || format!("at a coupling of {coupling}, {what} is {}", told(difference)))?;
        match found {
            Found::Unresolved => Err(SimulationError::Unresolved { claim, coupling, what, difference, worlds: settings.worlds }),
            _ => Ok(()),
        }
    };
    if let Some(&Worth { coupling, coupling_worth, scale_worth, .. }) = worths.first() {
        Contradiction::unless(coupling_worth.distance(0.0) <= LIMIT, FREE, || {
            format!("at a coupling of {coupling}, {PAIRING} is {}", told(coupling_worth))
        })?;
        check(DROPPED, coupling, SCALE, scale_worth, &[Found::Gain, Found::Loss])?;
    }
    if let Some(&Worth { coupling, coupling_worth, .. }) = worths.last().filter(|last| last.coupling > 0.0) {
        check(COUPLED, coupling, PAIRING, coupling_worth, &[Found::Gain])?;
    }
    Ok(worths)
}

/// The outcome of testing a difference against zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Gain,
    Loss,
    /// Zero in every world.
    Nothing,
    /// Too few worlds to decide.
    Unresolved,
}

impl Found {
    fn of(difference: Mean) -> Self {
        let Mean { mean, error } = difference;
        match LIMIT * error {
            reach if mean.abs() + reach <= NOTHING => Self::Nothing,
            reach if mean > reach => Self::Gain,
            reach if -mean > reach => Self::Loss,
            _ => Self::Unresolved,
        }
    }
}

/// Computes the three arms in worlds of one coupling.
///
/// # Errors
/// If a permutation changes a bound, if the operator has no bound, if there are fewer than
/// [`FEWEST_WORLDS`] worlds, if dispersions or errors are constant, or if the temperature is invalid.
pub fn at(operator: &dyn Certify, draw: Draw, coupling: f64, settings: &DispersionSettings) -> Result<Worth, SimulationError> {
    let selector = Softmax::new(settings.temperature)?;
    if settings.worlds < FEWEST_WORLDS {
        return Err(SimulationError::TooFewWorlds { worlds: settings.worlds });
    }
    // Every coupling uses the same random stream, so that neighbours differ by the coupling and not
    // by chance.
    let mut rng = ChaCha8Rng::seed_from_u64(settings.seed);
    let mut outcomes: [Vec<f64>; 3] = Default::default();
    let (mut mu, mut quality, mut sigma) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..settings.worlds {
        let world = draw(&mut rng, settings.candidates, coupling);
        let arms = DispersionArm::ALL.map(|arm| {
            let mut sigma = world.sigma.clone();
            arm.apply(&mut sigma, &mut rng);
            sigma
        });
        same_bounds(operator, &world, &arms[1], &format!("coupling {coupling}, world {number}"))?;
        for (outcomes, sigma) in outcomes.iter_mut().zip(&arms) {
            outcomes.push(outcome(operator, &selector, &world, sigma));
        }
        mu.extend(world.mu);
        quality.extend(world.quality);
        sigma.extend(world.sigma);
    }
    let less = |a: usize, b: usize| Mean::of(&outcomes[a].iter().zip(&outcomes[b]).map(|(a, b)| a - b).collect::<Vec<_>>());
    Ok(Worth {
        coupling,
        informativeness: informativeness(&mu, &quality, &sigma)?,
        coupling_worth: less(0, 1),
        scale_worth: less(1, 2),
        outcomes: [0, 1, 2].map(|arm| Mean::of(&outcomes[arm])),
    })
}

/// Returns E[q of the selected candidate] for the scores of a world and these dispersions.
fn outcome(operator: &(impl Aggregator + ?Sized), selector: &dyn Selector, world: &World, sigma: &[f64]) -> f64 {
    let batch = Batch::trusted(&world.mu, sigma);
    let (mut ratings, mut probabilities) = (vec![0.0; sigma.len()], vec![0.0; sigma.len()]);
    operator.rate(&batch, &mut ratings);
    selector.distribution(&ratings, &batch, &mut probabilities);
    probabilities.iter().zip(&world.quality).map(|(p, q)| p * q).sum()
}

fn same_bounds(operator: &dyn Certify, world: &World, shuffled: &[f64], label: &str) -> Result<(), SimulationError> {
    let real = operator.modulus(&Batch::trusted(&world.mu, &world.sigma))?;
    let other = operator.modulus(&Batch::trusted(&world.mu, shuffled))?;
    for (a, b) in [(real.published, other.published), (real.uniform, other.uniform), (real.sharpened, other.sharpened)] {
        Contradiction::unless((a - b).abs() <= ROUNDING * a.abs(), MULTISET, || {
            format!("{label}: a modulus of {a} becomes {b} when σ is permuted")
        })?;
    }
    Ok(())
}

pub(super) fn told(mean: Mean) -> String {
    format!("{:.5} with a standard error of {:.5}", mean.mean, mean.error)
}

#[cfg(test)]
mod tests {
    use sk_aggregate::{Modulus, NoCertificate, RoundRobin};

    use super::*;

    /// For exchangeable worlds under Thurstone at this temperature, shuffled minus zero is −0.0229
    /// with a standard deviation of 0.38 between worlds. At 40,000 worlds that is twelve standard
    /// errors, so the limit of five is exceeded in all but one of 10¹² seeds.
    fn settings(seed: u64) -> DispersionSettings {
        DispersionSettings { candidates: 7, worlds: 40_000, couplings: vec![0.0, 0.5, 1.0], temperature: 0.3, seed }
    }

    fn few(seed: u64) -> DispersionSettings {
        DispersionSettings { worlds: FEWEST_WORLDS, ..settings(seed) }
    }

    /// Seeds are fixed, since five standard errors are exceeded by chance once in two million
    /// comparisons.
    #[test]
    fn the_coupling_is_worth_more_the_more_it_tells() {
        for seed in [1, 2] {
            let worths = study(&RoundRobin::thurstone(), honest, &settings(seed)).unwrap();
            assert!(worths[0].informativeness < 0.05 && worths[2].informativeness > 0.5, "{worths:?}");
            assert!(worths.windows(2).all(|pair| pair[0].informativeness < pair[1].informativeness), "{worths:?}");
            assert!(worths.windows(2).all(|pair| pair[0].coupling_worth.mean < pair[1].coupling_worth.mean), "{worths:?}");
        }
    }

    #[test]
    fn worlds_that_are_too_few_contradict_nothing() {
        // A difference of two standard errors.
        for seed in 0..20 {
            let error = study(&RoundRobin::thurstone(), honest, &few(seed)).unwrap_err();
            assert!(
                matches!(error, SimulationError::Unresolved { claim: DROPPED, worlds: FEWEST_WORLDS, .. }),
                "{seed}: {error}"
            );
        }
        let error = study(&RoundRobin::thurstone(), honest, &few(0)).unwrap_err().to_string();
        assert!(error.starts_with("1000 worlds do not resolve the decomposition"), "{error}");
        assert!(error.contains("at a coupling of 0, shuffled less zero is ") && error.contains(" shows from 0.0"), "{error}");
        let fewer = DispersionSettings { worlds: FEWEST_WORLDS - 1, ..few(0) };
        for found in [
            study(&RoundRobin::thurstone(), honest, &fewer).map(drop),
            at(&Partial(RoundRobin::thurstone()), signed, 0.0, &fewer).map(drop),
        ] {
            assert!(matches!(found, Err(SimulationError::TooFewWorlds { worlds: 999 })), "{found:?}");
        }
    }

    #[test]
    fn estimates_by_hand() {
        let found = |mean, error| Found::of(Mean { mean, error });
        assert_eq!([found(0.51, 0.1), found(-0.51, 0.1), found(0.5, 0.1)], [Found::Gain, Found::Loss, Found::Unresolved]);
        assert_eq!([found(0.0, 0.0), found(1e-17, 1e-19), found(0.0, 1e-6)], [Found::Nothing, Found::Nothing, Found::Unresolved]);
    }

    /// Draws the world of `honest` with the two dispersions swapped.
    fn inverted(rng: &mut dyn Rng, candidates: usize, coupling: f64) -> World {
        let mut world = honest(rng, candidates, coupling);
        world.sigma.iter_mut().for_each(|sigma| *sigma = DEVIATIONS[0] + DEVIATIONS[1] - *sigma);
        world
    }

    /// Reports an uninformative σ at any coupling.
    fn unmoved(rng: &mut dyn Rng, candidates: usize, _: f64) -> World {
        honest(rng, candidates, 0.0)
    }

    #[test]
    fn a_coupling_that_harms_contradicts_and_one_that_is_not_seen_does_not() {
        let error = study(&RoundRobin::thurstone(), inverted, &settings(1)).unwrap_err();
        let SimulationError::Contradiction(found) = error else { panic!("{error}") };
        assert_eq!(found.theorem, COUPLED);
        assert!(found.datum.starts_with("at a coupling of 1, real less shuffled is -"), "{found}");
        let error = study(&RoundRobin::thurstone(), unmoved, &settings(1)).unwrap_err();
        assert!(matches!(error, SimulationError::Unresolved { claim: COUPLED, coupling: 1.0, .. }), "{error}");
    }

    #[test]
    fn informativeness_is_blind_to_the_sign_of_an_error() {
        let worth = at(&RoundRobin::thurstone(), signed, 0.0, &settings(5)).unwrap();
        assert!(worth.informativeness < 0.05, "{worth:?}");
        assert!(worth.coupling_worth.distance(0.0) > 2.0 * LIMIT, "{worth:?}");
        let error = study(&RoundRobin::thurstone(), signed, &settings(5)).unwrap_err();
        let SimulationError::Contradiction(found) = error else { panic!("{error}") };
        assert_eq!(found.theorem, FREE);
        assert!(found.datum.starts_with("at a coupling of 0, real less shuffled is "), "{found}");
    }

    /// An operator whose bound depends on which candidate has the first dispersion.
    struct Partial(RoundRobin<sk_aggregate::Probit, sk_aggregate::PNorm>);

    impl Aggregator for Partial {
        fn rate(&self, batch: &Batch<'_>, ratings: &mut [f64]) {
            self.0.rate(batch, ratings);
        }
    }

    impl Certify for Partial {
        fn modulus(&self, batch: &Batch<'_>) -> Result<Modulus, NoCertificate> {
            Ok(self.0.modulus(batch)?.with_scores(batch.sigma()[0], 0.0))
        }
    }

    #[test]
    fn a_bound_that_is_no_function_of_the_multiset_is_caught() {
        let error = study(&Partial(RoundRobin::thurstone()), honest, &settings(1)).unwrap_err();
        let SimulationError::Contradiction(found) = error else { panic!("{error}") };
        assert_eq!(found.theorem, MULTISET);
        assert!(found.datum.contains("coupling 0, world "), "{found}");
    }

    #[test]
    fn an_operator_that_ignores_dispersions_contradicts_that_dropping_them_costs() {
        let error = study(&sk_aggregate::Scores, honest, &settings(1)).unwrap_err();
        let SimulationError::Contradiction(found) = error else { panic!("{error}") };
        assert_eq!(found.theorem, DROPPED);
    }
}
