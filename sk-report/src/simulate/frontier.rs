//! Which candidates of the frontier weights can select (`thm:cbn` iii).
//!
//! Weights select the candidate with the highest composite. A selected candidate is always on the
//! Pareto front. A candidate that is on the front but inside the convex hull is selected by no
//! weights, with or without CBN. CBN changes which weights select a candidate, not which candidates
//! can be selected: weights w̃ after CBN select the same candidate as weights proportional to
//! w̃_k/std(μ^(k)) without it.

use std::collections::BTreeSet;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use sk_core::{Normalizer, ScoreTable, Simplex};

use super::Contradiction;
use super::sampling::{composite, largest, normal, spread};
use crate::points::lattice;
use crate::stats::{dominates, front};

const FRONT: &str = "Theorem 3(iii) (thm:cbn): weights select on the Pareto front, with or without CBN";
const PREIMAGE: &str = "Theorem 3(iii) (thm:cbn): w̃ after CBN selects what w̃/std(μ) selects before it";
const HULL: &str =
    "Theorem 3(iii) (thm:cbn): what two objectives can select is the Pareto part of the convex hull, and all of it";

/// The relative difference below which two composites count as tied, since rounding decides between
/// them. Relative to the largest composite.
const TIE: f64 = 1e-9;

/// The settings of the study.
#[derive(Debug, Clone, PartialEq)]
pub struct FrontierSettings {
    /// N, candidates in the batch.
    pub candidates: usize,
    /// The standard deviation of each blade's scores.
    pub spreads: Vec<f64>,
    /// m: weights are the points whose coordinates are multiples of 1/m.
    pub density: usize,
    /// The seed of the batch.
    pub seed: u64,
}

/// The candidates that a weight vector selects.
#[derive(Debug, Clone, PartialEq)]
pub struct Reach {
    /// The weights.
    pub weights: Vec<f64>,
    /// The candidate selected from raw scores.
    pub raw: usize,
    /// The candidate selected after CBN.
    pub normalized: usize,
}

/// A batch, and the candidates that weights select from it.
#[derive(Debug, Clone, PartialEq)]
pub struct Frontier {
    /// The scores, by candidate and blade.
    pub scores: Vec<Vec<f64>>,
    /// The candidates on the Pareto front.
    pub front: Vec<usize>,
    /// The selection at each point of the lattice.
    pub reached: Vec<Reach>,
}

impl Frontier {
    /// Returns the candidates that the lattice selects, raw or normalised as `of` chooses.
    pub fn selected(&self, of: fn(&Reach) -> usize) -> BTreeSet<usize> {
        self.reached.iter().map(of).collect()
    }
}

/// Draws a batch of normal scores with the spread of each blade, and selects at every point of the
/// lattice, before and after normalisation.
///
/// # Errors
/// If a selected candidate is dominated, if the preimage of weights selects another candidate, or
/// if, with two objectives, the selectable candidates are not the Pareto part of the convex hull.
///
/// # Panics
/// If there is no objective or no candidate.
pub fn study(raw: &dyn Normalizer, normalized: &dyn Normalizer, settings: &FrontierSettings) -> Result<Frontier, Contradiction> {
    let mut rng = ChaCha8Rng::seed_from_u64(settings.seed);
    // Drawn candidate by candidate, so that a larger batch starts with the smaller one.
    let scores: Vec<Vec<f64>> =
        (0..settings.candidates).map(|_| settings.spreads.iter().map(|spread| spread * normal(&mut rng)).collect()).collect();
    let row = |k: usize| (scores.iter().map(|s| s[k]).collect::<Vec<_>>(), vec![0.0; scores.len()]);
    let blades = settings.spreads.len();
    let table = ScoreTable::new((0..blades).map(row)).expect("finite scores");
    let reached = lattice(blades, settings.density).into_iter().map(|weights| {
        let (before, after) = (composites(raw, &table, &weights), composites(normalized, &table, &weights));
        let reach = Reach { raw: largest(&before), normalized: largest(&after), weights };
        for (selected, how) in [(reach.raw, "raw"), (reach.normalized, "normalised")] {
            undominated(&scores, selected, &reach.weights, how)?;
        }
        same_preimage(raw, &table, &reach, &after)?;
        Ok(reach)
    });
    let reached: Vec<Reach> = reached.collect::<Result<_, _>>()?;
    if blades == 2 {
        all_of_the_hull(normalized, &table, &scores, &reached)?;
    }
    Ok(Frontier { front: front(&scores), scores, reached })
}

fn composites(normalizer: &dyn Normalizer, table: &ScoreTable, weights: &[f64]) -> Vec<f64> {
    let weights = Simplex::normalized(weights.to_vec()).expect("weights are on the simplex");
    composite(normalizer, table, &weights).mu
}

/// Checks that the selected candidate is not dominated. Only blades of positive weight count, since
/// a blade without weight breaks no tie.
fn undominated(scores: &[Vec<f64>], selected: usize, weights: &[f64], how: &str) -> Result<(), Contradiction> {
    let counted = |s: &[f64]| -> Vec<f64> { s.iter().zip(weights).filter(|(_, w)| **w > 0.0).map(|(s, _)| *s).collect() };
    let own = counted(&scores[selected]);
    let better = (0..scores.len()).find(|&i| dominates(&counted(&scores[i]), &own));
    Contradiction::unless(better.is_none(), FRONT, || {
        format!(
            "{how} composites at {weights:?} select candidate {selected}, which candidate {} dominates",
            better.unwrap_or_default()
        )
    })
}

fn same_preimage(raw: &dyn Normalizer, table: &ScoreTable, reach: &Reach, after: &[f64]) -> Result<(), Contradiction> {
    let preimage: Vec<f64> = reach.weights.iter().enumerate().map(|(k, weight)| weight / spread(table, k)).collect();
    let found = largest(&composites(raw, table, &preimage));
    let scale = after.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
    let tied = (after[found] - after[reach.normalized]).abs() <= TIE * scale;
    Contradiction::unless(found == reach.normalized || tied, PREIMAGE, || {
        let Reach { weights, normalized, .. } = reach;
        format!("w̃ = {weights:?} selects candidate {normalized}, and w̃/std(μ) selects candidate {found} before CBN")
    })
}

/// With two objectives the hull is computed exactly. Every candidate selected on the lattice must
/// be one of its corners, and weights between the normals of adjacent edges must select the corner
/// between them.
fn all_of_the_hull(
    normalizer: &dyn Normalizer,
    table: &ScoreTable,
    scores: &[Vec<f64>],
    reached: &[Reach],
) -> Result<(), Contradiction> {
    let corners = pareto_hull(scores);
    for Reach { weights, raw, normalized } in reached {
        for selected in [raw, normalized] {
            Contradiction::unless(corners.contains(selected), HULL, || {
                format!("{weights:?} select candidate {selected}, which is no corner of the Pareto part of the hull {corners:?}")
            })?;
        }
    }
    let spreads = [0, 1].map(|k| spread(table, k));
    for (place, &corner) in corners.iter().enumerate() {
        // The angle of the raw-score weights at which two neighbours tie; 0 and π/2 at the ends.
        let tie = |a: usize, b: usize| (scores[a][0] - scores[b][0]).atan2(scores[b][1] - scores[a][1]);
        let from = if place == 0 { 0.0 } else { tie(corners[place - 1], corner) };
        let to = corners.get(place + 1).map_or(std::f64::consts::FRAC_PI_2, |&next| tie(corner, next));
        let between = 0.5 * (from + to);
        let weights = [between.cos() * spreads[0], between.sin() * spreads[1]];
        let found = largest(&composites(normalizer, table, &weights));
        Contradiction::unless(found == corner, HULL, || {
            format!("weights in proportion to {weights:?} select candidate {found}, not corner {corner} of the hull")
        })?;
    }
    Ok(())
}

/// Returns the corners of the convex hull of points in the plane that some weights on the simplex
/// select, in descending order of the first coordinate.
fn pareto_hull(points: &[Vec<f64>]) -> Vec<usize> {
    let mut order = front(points);
    order.sort_by(|&a, &b| points[b][0].total_cmp(&points[a][0]));
    order.dedup_by(|a, b| points[*a] == points[*b]);
    let mut hull: Vec<usize> = Vec::new();
    for next in order {
        while let [.., a, b] = hull[..] {
            let (p, q, r) = (&points[a], &points[b], &points[next]);
            // The hull turns left at b on the way from a to next. A corner that does not turn left
            // lies under the chord.
            if (q[0] - p[0]) * (r[1] - p[1]) - (q[1] - p[1]) * (r[0] - p[0]) > 0.0 {
                break;
            }
            hull.pop();
        }
        hull.push(next);
    }
    hull
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sk_core::Composite;
    use sk_normalize::{CandidateBatch, Rank, Raw};

    use super::*;

    fn settings(spreads: &[f64], seed: u64) -> FrontierSettings {
        FrontierSettings { candidates: 30, spreads: spreads.to_vec(), density: 12, seed }
    }

    #[test]
    fn a_hull_by_hand() {
        // (2, 2) is on the front and under the chord from (4, 1) to (1, 4); (0, 0) is dominated.
        let points = [[4.0, 1.0], [2.0, 2.0], [1.0, 4.0], [0.0, 0.0], [4.5, 0.0]].map(|p| p.to_vec());
        assert_eq!(pareto_hull(&points), [4, 0, 2]);
        assert_eq!(pareto_hull(&[vec![1.0, 1.0], vec![1.0, 1.0]]).len(), 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn the_theorem_holds_from_any_seed(seed in any::<u64>()) {
            for spreads in [&[1.0, 0.01][..], &[0.005, 0.0035, 0.0008]] {
                let found = study(&Raw::default(), &CandidateBatch::sound(), &settings(spreads, seed)).unwrap();
                prop_assert!(found.selected(|reach| reach.normalized).len() <= found.front.len());
                prop_assert!(found.reached.iter().all(|reach| found.front.contains(&reach.normalized)
                    || reach.weights.contains(&0.0)));
            }
        }
    }

    #[test]
    fn raw_weights_reach_fewer_when_one_blade_is_loud() {
        let counts = |seed| {
            let found = study(&Raw::default(), &CandidateBatch::sound(), &settings(&[1.0, 0.01], seed)).unwrap();
            [found.selected(|reach| reach.raw).len(), found.selected(|reach| reach.normalized).len()]
        };
        let totals = (0..40).map(counts).fold([0, 0], |sum, found| [sum[0] + found[0], sum[1] + found[1]]);
        assert!(totals[0] + 20 < totals[1], "{totals:?}");
    }

    /// Composites of cube roots of scores. Selected candidates stay on the front, and w̃/std(μ)
    /// without `unit` selects what w̃ selects with it.
    struct Rooted {
        unit: bool,
    }

    impl Normalizer for Rooted {
        fn combine(&self, scores: &ScoreTable, weights: &Simplex, out: &mut Composite) {
            Raw::default().combine(scores, weights, out);
            out.mu.fill(0.0);
            for (k, weight) in weights.as_slice().iter().enumerate() {
                let spread = spread(scores, k);
                let weight = if self.unit { *weight } else { weight * spread };
                out.mu.iter_mut().zip(scores.mu(k)).for_each(|(out, mu)| *out += weight * (mu / spread).cbrt());
            }
        }
    }

    #[test]
    fn what_leaves_the_hull_is_caught_though_front_and_preimage_hold() {
        let study = |seed| study(&Rooted { unit: false }, &Rooted { unit: true }, &settings(&[1.0, 1.0], seed));
        let found: Vec<Contradiction> = (0..20).filter_map(|seed| study(seed).err()).collect();
        assert!(found.len() > 10, "a root favours the middle of a front: {}", found.len());
        assert!(found.iter().all(|found| found.theorem == HULL), "{found:?}");
    }

    #[test]
    fn a_normaliser_that_is_not_affine_is_caught_with_the_datum() {
        // Ranks preserve the front but not the hull.
        let found = (0..20).find_map(|seed| study(&Raw::default(), &Rank::default(), &settings(&[1.0, 1.0], seed)).err());
        let found = found.expect("ranks select from under the hull");
        assert_eq!(found.theorem, PREIMAGE);
        assert!(found.datum.contains("selects candidate"), "{found}");
        // A normaliser that negates scores selects dominated candidates.
        struct Upside;
        impl Normalizer for Upside {
            fn combine(&self, scores: &ScoreTable, weights: &Simplex, out: &mut Composite) {
                Raw::default().combine(scores, weights, out);
                out.mu.iter_mut().for_each(|mu| *mu = -*mu);
            }
        }
        assert_eq!(study(&Raw::default(), &Upside, &settings(&[1.0, 1.0], 1)).unwrap_err().theorem, FRONT);
    }
}
