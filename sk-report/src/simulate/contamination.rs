//! How far contaminated scores move the selection (`thm:robust`).
//!
//! Batches have standard normal μ and normal log σ. An audit searches for the contamination ‖δ‖_∞ ≤
//! D that changes the selection probabilities most. Under argmax, the selection flips if D exceeds
//! half the gap between the two highest scores, and not if D is below it (i). Under a member of the
//! family with softmax, the total variation is at most the sharpened bound, which is at most the
//! uniform bound, which is at most the published bound (ii).

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use sk_aggregate::{Audit, Certify, Scores, StabilityCertificate};
use sk_core::{Batch, Composite, ParameterError};
use sk_select::{Argmax, Softmax};

use super::sampling::normal;
use super::{Contradiction, SimulationError};

const ARGMAX: &str = "Theorem 2(i) (thm:robust): argmax flips wholly past half the gap of the two best, and not before";
const PUBLISHED: &str = "Theorem 2(ii) (thm:robust): TV ≤ 2(N−1)·L_g·D/(T·s_min)";
const SHARPENED: &str = "Theorem 2(ii), sharpened: TV ≤ tanh(L_g·D·C(σ)/2T) ≤ tanh(N·L_g·D/(2T·s_min)) ≤ the published bound";

/// The rounding error of ratings of order N and of a softmax over them, with a factor of 100.
const ROUNDING: f64 = 1e-12;

/// The settings of the study.
#[derive(Debug, Clone, PartialEq)]
pub struct ContaminationSettings {
    /// N, candidates per batch.
    pub candidates: usize,
    /// The number of batches.
    pub batches: usize,
    /// D, in the unit of the scores, whose standard deviation is 1.
    pub radii: Vec<f64>,
    /// T, the softmax temperature.
    pub temperature: f64,
    /// The number of selection distributions computed per search.
    pub evaluations: usize,
    /// The seed of the batches and the searches.
    pub seed: u64,
}

/// The results for one operator at one D: means over the batches.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// D.
    pub radius: f64,
    /// The largest total variation found.
    pub found: f64,
    /// The largest ratio of the total variation found to its sharpened bound, over the batches; NaN
    /// if the bounds are zero.
    pub closest: f64,
    /// The sharpened bound.
    pub sharpened: f64,
    /// The bound that uses only N and s_min.
    pub uniform: f64,
    /// The published bound, which is vacuous above 1.
    pub published: f64,
}

/// The results for argmax at one D.
#[derive(Debug, Clone, PartialEq)]
pub struct Flip {
    /// D.
    pub radius: f64,
    /// The share of batches whose selection flipped.
    pub flipped: f64,
    /// The share of batches whose half gap is below D.
    pub predicted: f64,
}

fn batch(drawn: &Composite) -> Batch<'_> {
    Batch::trusted(&drawn.mu, &drawn.sigma)
}

/// Returns ½(μ_(1) − μ_(2)).
fn half_gap(drawn: &Composite) -> f64 {
    let mut sorted = drawn.mu.clone();
    sorted.sort_by(|a, b| b.total_cmp(a));
    0.5 * (sorted[0] - sorted[1])
}

/// Draws the batches of a study: μ standard normal, log σ normal with mean 0 and standard deviation
/// ½.
pub fn batches(settings: &ContaminationSettings) -> Vec<Composite> {
    let mut rng = ChaCha8Rng::seed_from_u64(settings.seed);
    let mut drawn = || {
        let mut draw = |of: fn(f64) -> f64| (0..settings.candidates).map(|_| of(normal(&mut rng))).collect();
        Composite { mu: draw(|x| x), sigma: draw(|x| (0.5 * x).exp()) }
    };
    (0..settings.batches).map(|_| drawn()).collect()
}

/// Contaminates selection by argmax.
///
/// # Errors
/// If a batch flips although D is at most half its gap, if it does not flip although D exceeds it,
/// or if a radius is invalid.
pub fn argmax(batches: &[Composite], settings: &ContaminationSettings) -> Result<Vec<Flip>, SimulationError> {
    let flip = |&radius: &f64| {
        let audit = audit(radius, settings)?;
        let (mut flipped, mut predicted) = (0, 0);
        for (number, drawn) in batches.iter().enumerate() {
            let found = audit.around(&Scores, &Argmax, &batch(drawn)).total_variation;
            let past = radius > half_gap(drawn);
            Contradiction::unless(found == f64::from(u8::from(past)), ARGMAX, || {
                let half = half_gap(drawn);
                format!("batch {number}, half a gap of {half:.6}: a contamination of {radius:.6} moves the choice by {found}")
            })?;
            flipped += usize::from(found == 1.0);
            predicted += usize::from(past);
        }
        let share = |count: usize| count as f64 / batches.len() as f64;
        Ok(Flip { radius, flipped: share(flipped), predicted: share(predicted) })
    };
    settings.radii.iter().map(flip).collect()
}

/// Contaminates selection by a member of the family with softmax. `name` identifies the operator in
/// errors.
///
/// # Errors
/// If a total variation exceeds a bound, the bounds are not in ascending order, the operator has no
/// bound, or a parameter is invalid.
pub fn member(
    name: &str,
    operator: &dyn Certify,
    batches: &[Composite],
    settings: &ContaminationSettings,
) -> Result<Vec<Reading>, SimulationError> {
    let selector = Softmax::new(settings.temperature)?;
    let certified = |drawn: &Composite| StabilityCertificate::new(operator, &batch(drawn), settings.temperature);
    let certificates: Vec<StabilityCertificate> = batches.iter().map(certified).collect::<Result<_, _>>()?;
    let reading = |&radius: &f64| {
        let audit = audit(radius, settings)?;
        let mut sums = [0.0; 4];
        let mut closest = f64::NAN;
        for (number, (drawn, certificate)) in batches.iter().zip(&certificates).enumerate() {
            // The bound does not depend on the scores, so the search starts from any scores at
            // these dispersions.
            let found = audit.anywhere(operator, &selector, &batch(drawn)).total_variation;
            let bounds = [certificate.bound(radius), certificate.uniform(radius), certificate.published(radius)];
            let where_ = || format!("{name}, batch {number}, D = {radius:.6}");
            for (bound, theorem) in [(bounds[2], PUBLISHED), (bounds[0], SHARPENED)] {
                Contradiction::unless(found <= bound + ROUNDING, theorem, || {
                    format!("{}: a total variation of {found:.9} where at most {bound:.9} is possible", where_())
                })?;
            }
            let ordered = bounds.windows(2).all(|pair| pair[0] <= pair[1] + ROUNDING);
            Contradiction::unless(ordered, SHARPENED, || format!("{}: bounds of {bounds:?}, out of order", where_()))?;
            closest = (found / bounds[0]).max(closest);
            sums.iter_mut().zip([found, bounds[0], bounds[1], bounds[2]]).for_each(|(sum, value)| *sum += value);
        }
        let [found, sharpened, uniform, published] = sums.map(|sum| sum / batches.len() as f64);
        Ok(Reading { radius, found, closest, sharpened, uniform, published })
    };
    settings.radii.iter().map(reading).collect()
}

fn audit(radius: f64, settings: &ContaminationSettings) -> Result<Audit, ParameterError> {
    Ok(Audit::new(radius)?.with_evaluations(settings.evaluations).with_seed(settings.seed))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sk_aggregate::{RoundRobin, SwissElo};

    use super::super::simulation::Claiming;
    use super::*;

    fn small(seed: u64) -> ContaminationSettings {
        let radii = vec![0.0, 0.05, 0.3, 2.0];
        ContaminationSettings { candidates: 5, batches: 4, radii, temperature: 0.5, evaluations: 400, seed }
    }

    fn with(operator: &dyn Certify, seed: u64) -> Result<Vec<Reading>, SimulationError> {
        let settings = small(seed);
        member("it", operator, &batches(&settings), &settings)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// The total variation found lies below the bounds for any seed, and grows with D.
        #[test]
        fn members_keep_to_their_bounds(seed in any::<u64>()) {
            let members: [&dyn Certify; 3] = [&RoundRobin::thurstone(), &RoundRobin::weakest_link(), &RoundRobin::asinh()];
            for operator in members {
                let readings = with(operator, seed).unwrap();
                prop_assert_eq!(readings[0].found, 0.0, "nothing moves nothing");
                prop_assert!(readings.last().unwrap().found > 0.1, "the search finds something");
                prop_assert!(readings.windows(2).all(|pair| pair[0].sharpened < pair[1].sharpened));
            }
            let settings = small(seed);
            for flip in argmax(&batches(&settings), &settings).unwrap() {
                prop_assert_eq!(flip.flipped, flip.predicted);
            }
        }
    }

    #[test]
    fn a_bound_that_is_too_small_is_caught_with_the_datum() {
        // The search attains the sharpened bound up to a few per cent, so that a bound smaller by a
        // tenth is violated.
        let error = with(&Claiming(&RoundRobin::thurstone(), 0.5), 1).unwrap_err();
        let SimulationError::Contradiction(found) = error else { panic!("{error}") };
        assert_eq!(found.theorem, SHARPENED);
        assert!(found.datum.starts_with("it, batch 0, D = 0.05"), "{found}");
        let error = with(&Claiming(&RoundRobin::thurstone(), 5.0), 1).unwrap_err();
        assert!(error.to_string().contains("out of order"), "{error}");
    }

    #[test]
    fn what_has_no_bound_is_refused() {
        let error = with(&SwissElo::sound(3, 0.0).unwrap(), 1).unwrap_err();
        assert!(matches!(error, SimulationError::NoBound(_)), "{error}");
    }
}
