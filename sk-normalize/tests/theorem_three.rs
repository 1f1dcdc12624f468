//! `thm:cbn` (i) to (iii) and `prop:cov`, on random points and on errors with a known joint
//! distribution.

mod correlated;

use correlated::{correlated, names};
use proptest::collection::vec;
use proptest::prelude::*;
use sk_core::{Composite, Deviation, Moments, Normalizer, ScoreTable, Simplex, Standardize};
use sk_normalize::{CandidateBatch, Propagation, Raw};

/// Rounding of a composite of at most four blades, relative to its largest entry.
const TOLERANCE: f64 = 1e-9;

fn composite(normalizer: &dyn Normalizer, blades: &[Vec<f64>], weights: &[f64]) -> Composite {
    let rows = blades.iter().map(|mu| (mu.clone(), vec![1.0; mu.len()]));
    let mut out = Composite::default();
    normalizer.combine(&ScoreTable::new(rows).unwrap(), &Simplex::normalized(weights).unwrap(), &mut out);
    out
}

fn std(values: &[f64]) -> f64 {
    Moments::of(values, Deviation::Sample).std()
}

/// All candidates within rounding of the highest.
fn winners(mu: &[f64]) -> Vec<usize> {
    let best = mu.iter().fold(f64::NEG_INFINITY, |m, &x| m.max(x));
    let scale = mu.iter().fold(0.0f64, |m, x| m.max(x.abs()));
    (0..mu.len()).filter(|&i| mu[i] >= best - TOLERANCE * scale).collect()
}

/// K blades with very different scales and offsets on N candidates, without ties.
fn clouds(blades: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Vec<f64>>> {
    (blades, 3usize..10).prop_flat_map(|(k, n)| {
        let scale = (-2.0f64..2.0, -5.0f64..5.0).prop_map(|(decade, offset)| (10f64.powf(decade), offset));
        (vec(vec(-1.0f64..1.0, n), k), vec(scale, k))
            .prop_map(|(unit, scales)| {
                let blade = |(row, (a, b)): (&Vec<f64>, &(f64, f64))| row.iter().map(|x| a * (x + b)).collect();
                unit.iter().zip(&scales).map(blade).collect::<Vec<Vec<f64>>>()
            })
            .prop_filter("blades with a spread", |blades| blades.iter().all(|row| std(row) > 1e-4))
    })
}

/// The vertices of a convex hull in the plane that are best for some direction of the open positive
/// quadrant, each with the weights of such a direction. Computed as an upper hull from right to
/// left by orientation, without any weighted sum.
fn pareto_hull(x: &[f64], y: &[f64]) -> Vec<(usize, [f64; 2])> {
    let mut order: Vec<usize> = (0..x.len()).collect();
    order.sort_by(|&a, &b| x[b].total_cmp(&x[a]).then(y[b].total_cmp(&y[a])));
    let mut hull: Vec<usize> = Vec::new();
    for &i in &order {
        while hull.len() >= 2 {
            let (p, q) = (hull[hull.len() - 2], hull[hull.len() - 1]);
            let turn = (x[q] - x[p]) * (y[i] - y[p]) - (y[q] - y[p]) * (x[i] - x[p]);
            if turn > 0.0 {
                break;
            }
            hull.pop();
        }
        hull.push(i);
    }
    // From the right end up to the highest point. Beyond it, both coordinates fall.
    let top = (0..hull.len()).max_by(|&a, &b| y[hull[a]].total_cmp(&y[hull[b]])).unwrap();
    let front = &hull[..=top];
    // The normals of the edges, and the axes at both ends.
    let mut normals = vec![[1.0, 0.0]];
    normals.extend(front.windows(2).map(|e| {
        let normal = [y[e[1]] - y[e[0]], x[e[0]] - x[e[1]]];
        let sum = normal[0] + normal[1];
        [normal[0] / sum, normal[1] / sum]
    }));
    normals.push([0.0, 1.0]);
    let between = |k: usize| [0.5 * (normals[k][0] + normals[k + 1][0]), 0.5 * (normals[k][1] + normals[k + 1][1])];
    front.iter().enumerate().map(|(k, &i)| (i, between(k))).collect()
}

/// The weights on the simplex of three blades for which candidate `i` is among the best, as the
/// vertices of that polygon; empty if there are none. At a vertex, two of the constraints w·(p_i −
/// p_j) ≥ 0 and w_k ≥ 0 are equalities.
fn polygon(blades: &[Vec<f64>], i: usize) -> Vec<[f64; 3]> {
    let mut constraints: Vec<[f64; 3]> = vec![[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
    for j in (0..blades[0].len()).filter(|&j| j != i) {
        let gap: [f64; 3] = std::array::from_fn(|k| blades[k][i] - blades[k][j]);
        let length = gap.iter().fold(0.0f64, |m, x| m.max(x.abs()));
        constraints.push(gap.map(|x| x / length));
    }
    let mut vertices = Vec::new();
    for (m, a) in constraints.iter().enumerate() {
        for b in &constraints[..m] {
            // Both equalities hold in the direction orthogonal to the two, normalised to the sum 1.
            let cross = [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
            let sum: f64 = cross.iter().sum();
            let w = cross.map(|x| x / sum);
            let holds = |c: &[f64; 3]| c.iter().zip(&w).map(|(c, w)| c * w).sum::<f64>() >= -1e-12;
            if w.iter().all(|x| x.is_finite()) && constraints.iter().all(holds) {
                vertices.push(w);
            }
        }
    }
    vertices
}

proptest! {
    /// (i) Raw gaps are gaps of the canonical blades with the coefficients w_k·std(μ^(k)).
    #[test]
    fn raw_coefficients_are_weights_times_spreads(blades in clouds(1..5), raw in vec(0.01f64..1.0, 4)) {
        let weights = Simplex::normalized(&raw[..blades.len()]).unwrap();
        let out = composite(&Raw::default(), &blades, weights.as_slice()).mu;
        let canonical: Vec<Vec<f64>> = blades.iter().map(|row| {
            let rule = Standardize::EXACT;
            let moments = rule.moments(row);
            row.iter().map(|&x| rule.apply(&moments, x)).collect()
        }).collect();
        let effective: Vec<f64> = weights.as_slice().iter().zip(&blades).map(|(w, row)| w * std(row)).collect();
        let scale = effective.iter().sum::<f64>() + out.iter().fold(0.0f64, |m, x| m.max(x.abs()));
        for i in 1..out.len() {
            let gap: f64 = effective.iter().zip(&canonical).map(|(c, row)| c * (row[i] - row[0])).sum();
            prop_assert!((out[i] - out[0] - gap).abs() <= TOLERANCE * scale, "{} {gap}", out[i] - out[0]);
        }
    }

    /// (ii) as ε → 0: invariance is violated by a term of order ε, and a blade without spread
    /// counts nothing under every element of G.
    #[test]
    fn invariance_is_reached_as_epsilon_vanishes(
        blades in clouds(2..4), group in vec((-1.5f64..1.5, -3.0f64..3.0), 4), raw in vec(0.01f64..1.0, 4), constant in -5.0f64..5.0,
    ) {
        let act = |row: &Vec<f64>, (decade, b): (f64, f64)| row.iter().map(|x| 10f64.powf(decade) * x + b).collect::<Vec<f64>>();
        let moved: Vec<Vec<f64>> = blades.iter().zip(&group).map(|(row, &g)| act(row, g)).collect();
        let weights = &raw[..blades.len()];
        let spread = blades.iter().chain(&moved).map(|row| std(row)).fold(f64::INFINITY, f64::min);
        for epsilon in [1e-2, 1e-4, 1e-6, 0.0] {
            let rule = CandidateBatch { standardize: Standardize::new(Deviation::Sample, epsilon, 0.0).unwrap(), ..CandidateBatch::sound() };
            let (before, after) = (composite(&rule, &blades, weights).mu, composite(&rule, &moved, weights).mu);
            // The error is |x̂|·(1 − std/(std + ε)), and no standardised score of N is above √N.
            let allowed = 2.0 * (before.len() as f64).sqrt() * epsilon / spread + 1e-7;
            for (a, b) in before.iter().zip(&after) {
                prop_assert!((a - b).abs() <= allowed, "ε = {epsilon}: {a} {b}");
            }
        }
        // A blade without spread has zero scores, but it keeps its share of the weights.
        let n = blades[0].len();
        for b in [constant, 0.0, 1e6 * constant] {
            let mut with = blades.clone();
            with.push(vec![b; n]);
            let out = composite(&CandidateBatch::sound(), &with, &raw[..with.len()]).mu;
            let without = composite(&CandidateBatch::sound(), &blades, weights).mu;
            let share = weights.iter().sum::<f64>() / raw[..with.len()].iter().sum::<f64>();
            for (a, b) in out.iter().zip(&without) {
                prop_assert!((a - share * b).abs() <= TOLERANCE * (1.0 + b.abs()), "{a} {b}");
            }
        }
    }

    /// (iii) for three blades. The polygons are found without a normaliser. A candidate with a
    /// polygon is selected after CBN by weights inside it, and raw by their preimage. A candidate
    /// without one is selected by no weights, raw or normalised.
    #[test]
    fn three_blades_select_the_same_candidates_raw_and_normalised(blades in clouds(3..4), drawn in vec(vec(0.001f64..1.0, 3), 40)) {
        let spreads: Vec<f64> = blades.iter().map(|row| std(row)).collect();
        // Blades in units of their spreads, so that no polygon is thin only because of a scale. The
        // selected candidates are the same.
        let canonical: Vec<Vec<f64>> = blades.iter().zip(&spreads).map(|(row, s)| row.iter().map(|x| x / s).collect()).collect();
        let polygons: Vec<Vec<[f64; 3]>> = (0..blades[0].len()).map(|i| polygon(&canonical, i)).collect();
        prop_assert!(polygons.iter().any(|vertices| !vertices.is_empty()));
        for (i, vertices) in polygons.iter().enumerate().filter(|(_, vertices)| !vertices.is_empty()) {
            let centre: [f64; 3] = std::array::from_fn(|k| vertices.iter().map(|w| w[k]).sum::<f64>().max(0.0));
            let raw: Vec<f64> = centre.iter().zip(&spreads).map(|(w, s)| w / s).collect();
            prop_assert!(winners(&composite(&CandidateBatch::sound(), &blades, &centre).mu).contains(&i));
            prop_assert!(winners(&composite(&Raw::default(), &blades, &raw).mu).contains(&i));
        }
        for w in &drawn {
            for normalizer in [&CandidateBatch::sound() as &dyn Normalizer, &Raw::default()] {
                for i in winners(&composite(normalizer, &blades, w).mu) {
                    prop_assert!(!polygons[i].is_empty(), "candidate {i} is selected by {w:?}");
                }
            }
        }
    }

    /// (iii) in the plane: some weights select each vertex of the Pareto hull, raw and normalised,
    /// and no weights select only points off it.
    #[test]
    fn the_pareto_hull_is_what_can_be_selected(blades in clouds(2..3)) {
        let front = pareto_hull(&blades[0], &blades[1]);
        let spreads = [std(&blades[0]), std(&blades[1])];
        for &(vertex, w) in &front {
            prop_assert!(winners(&composite(&Raw::default(), &blades, &w).mu).contains(&vertex), "{vertex} {w:?}");
            // The normalised weights for the same vertex: w̃_k ∝ w_k·std(μ^(k)).
            let tilde = [w[0] * spreads[0], w[1] * spreads[1]];
            prop_assert!(winners(&composite(&CandidateBatch::sound(), &blades, &tilde).mu).contains(&vertex), "{vertex} {tilde:?}");
        }
        let reachable: Vec<usize> = front.iter().map(|&(vertex, _)| vertex).collect();
        for step in 0..=200 {
            let w = [f64::from(step) / 200.0, 1.0 - f64::from(step) / 200.0];
            let won = winners(&composite(&CandidateBatch::sound(), &blades, &w).mu);
            prop_assert!(won.iter().any(|i| reachable.contains(i)), "{w:?} selects {won:?} of {reachable:?}");
        }
    }

    /// (iii) in any dimension: weights w̃ after CBN and w̃_k/std(μ^(k)) before it give the same
    /// order of all candidates.
    #[test]
    fn preimages_order_candidates_alike(blades in clouds(2..5), tilde in vec(0.01f64..1.0, 4)) {
        let tilde = &tilde[..blades.len()];
        let raw: Vec<f64> = tilde.iter().zip(&blades).map(|(w, row)| w / std(row)).collect();
        let (normalised, unnormalised) = (composite(&CandidateBatch::sound(), &blades, tilde).mu, composite(&Raw::default(), &blades, &raw).mu);
        // Composites are equal up to a positive factor and an offset, so every pair keeps its order
        // unless it ties up to rounding.
        let scale = unnormalised.iter().fold(0.0f64, |m, x| m.max(x.abs()));
        for i in 0..normalised.len() {
            for j in 0..i {
                let (a, b) = (normalised[i] - normalised[j], unnormalised[i] - unnormalised[j]);
                prop_assert!(a * b > 0.0 || a.abs() < 1e-6 || b.abs() < TOLERANCE * scale, "{a} {b}");
            }
        }
    }

    /// Proposition 2 against an enumeration of all errors: X_k = σ_k Σ_m a_km r_m, with r uniform
    /// on {−1, 1}^M and Σ_m a_km² = 1.
    #[test]
    fn dispersions_are_those_of_an_enumerated_joint_distribution(
        loadings in vec(vec(-1.0f64..1.0, 4), 1..4), sigma in vec(0.01f64..5.0, 3), raw in vec(0.01f64..1.0, 3),
    ) {
        let unit: Vec<Vec<f64>> = loadings.iter().map(|row| {
            let norm = row.iter().map(|a| a * a).sum::<f64>().sqrt().max(1e-3);
            row.iter().map(|a| a / norm).collect()
        }).collect();
        prop_assume!(unit.iter().all(|row| (row.iter().map(|a| a * a).sum::<f64>() - 1.0).abs() < 1e-9));
        let k = unit.len();
        let weights = Simplex::normalized(&raw[..k]).unwrap();
        let outcomes = 1u32 << 4;
        let square: f64 = (0..outcomes).map(|signs| {
            let r = |m: usize| if signs >> m & 1 == 1 { 1.0 } else { -1.0 };
            let error = |k: usize| sigma[k] * unit[k].iter().enumerate().map(|(m, a)| a * r(m)).sum::<f64>();
            weights.as_slice().iter().enumerate().map(|(k, w)| w * error(k)).sum::<f64>().powi(2)
        }).sum();
        let truth = (square / f64::from(outcomes)).sqrt();
        // A product of unit vectors can round beyond 1.
        let rho = |i: usize, j: usize| unit[i].iter().zip(&unit[j]).map(|(a, b)| a * b).sum::<f64>().clamp(-1.0, 1.0);
        let propagated = |propagation| {
            let rows = (0..k).map(|k| ([0.0], [sigma[k]]));
            let mut out = Composite::default();
            Raw { propagation }.combine(&ScoreTable::new(rows).unwrap().with_names(names(k)).unwrap(), &weights, &mut out);
            out.sigma[0]
        };
        let full = propagated(correlated(k, rho));
        prop_assert!((full - truth).abs() <= 1e-7 * sigma[0].max(1.0), "{full} {truth}");
        // The linear rule is an upper bound, which is attained only if all errors are equal.
        let linear = propagated(Propagation::Linear);
        prop_assert!(truth <= linear * (1.0 + TOLERANCE));
        let entries = || (0..k).flat_map(|i| (0..i).map(move |j| rho(i, j)));
        let comonotone = entries().all(|r| r > 1.0 - 1e-6);
        let apart = entries().any(|r| r < 0.99);
        prop_assert!(!comonotone || (truth - linear).abs() < 1e-5 * linear);
        prop_assert!(!apart || truth < linear * (1.0 - 1e-9));
    }
}

/// (iii), the bias: with uniformly drawn weights on raw blades, the blade with the larger spread
/// decides most choices.
#[test]
fn even_raw_weights_favour_the_blade_of_larger_spread() {
    // Two opposed blades, one a hundred times as wide as the other: the larger of w̃₀ and w̃₁
    // decides.
    let blades = vec![vec![100.0, 0.0, -100.0], vec![-1.0, 0.0, 1.0]];
    let share = |normalizer: &dyn Normalizer| {
        let prefers = |step: &u32| {
            let w = f64::from(*step) / 1000.0;
            winners(&composite(normalizer, &blades, &[w, 1.0 - w]).mu) == [0]
        };
        (1..1000).filter(prefers).count() as f64 / 999.0
    };
    // By hand: raw, 100 w > 1 − w for w > 1/101; normalised, w > ½.
    assert!((share(&Raw::default()) - 100.0 / 101.0).abs() < 2e-3, "{}", share(&Raw::default()));
    assert!((share(&CandidateBatch::sound()) - 0.5).abs() < 2e-3);
}
