use rand::RngExt;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::permutations::{Position, enumerate};
use super::spearman::{approximate_p, correlation};
use super::{Bootstrap, Ranks, Spearman, extent, mean, population_std, slope, snap};

/// Permutations drawn where there are too many points to enumerate them.
const DRAWN: usize = 99_999;

/// Whether achieved axes follow the requested weights, over the points of a sweep
/// (`tab:steerability-full`).
#[derive(Debug, Clone, PartialEq)]
pub struct Steering {
    /// One entry per axis; `None` for an axis that does not move, or a weight that does not.
    pub axes: Vec<Option<AxisSteering>>,
    /// All axes together; `None` where no axis moves.
    pub pooled: Option<PooledSteering>,
}

/// How one axis follows its own weight.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AxisSteering {
    /// The points that have the axis.
    pub n: usize,
    /// The rank correlation of weight and axis.
    pub spearman: Spearman,
    /// Least-squares slope of the axis on the weight.
    pub slope: f64,
    /// Largest minus smallest achieved value.
    pub range: f64,
}

/// How all axes follow their weights.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PooledSteering {
    /// Pairs: points × axes.
    pub n: usize,
    /// Spearman's coefficient of weight and achieved value, the latter standardised within its axis
    /// (population deviation).
    pub rho: f64,
    /// The p-value of that many *independent* pairs, as published. The pairs are not independent:
    /// the weights of a point sum to one, and the axes of a point come from the same responses.
    pub p: f64,
    /// The p-value of permuting whole points: all of them up to ten points, 99,999 seeded draws
    /// beyond. Twice the smaller tail.
    pub permutation_p: f64,
    /// Least-squares slope of the standardised values on the weights.
    pub slope: f64,
}

impl Steering {
    /// The steering of a sweep: per point the requested weights and the achieved axes, weight k
    /// belonging to axis k.
    ///
    /// An achieved value of NaN was not judged. Each axis takes the points that have it; all axes
    /// together take the points that have every axis. `seed` decides the permutations that are
    /// drawn where there are more than ten points.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn of<P: AsRef<[f64]>>(weights: &[P], achieved: &[P], seed: u64) -> Self {
        assert_eq!(weights.len(), achieved.len(), "one achieved point per weight vector");
        let points = || weights.iter().map(AsRef::as_ref).zip(achieved.iter().map(AsRef::as_ref));
        let count = weights.first().map_or(0, |first| first.as_ref().len());
        let axis = |k: usize| {
            let (x, y): (Vec<f64>, Vec<f64>) = points().map(|(w, a)| (w[k], a[k])).filter(|(_, a)| !a.is_nan()).unzip();
            AxisSteering::of(&x, &y)
        };
        let (x, y) = pool(weights, achieved, count);
        Self { axes: (0..count).map(axis).collect(), pooled: PooledSteering::of(&x, &y, count, seed) }
    }

    /// The coefficients of [`of`](Self::of) with whole prompts resampled: one bootstrap per axis, and
    /// last that of all axes pooled.
    ///
    /// `prompts` holds, per prompt, the scores of its responses, point after point and axis after
    /// axis, NaN where there is none. What a point achieves is the mean over the prompts drawn. A
    /// coefficient that a resample does not have is NaN, and an interval that reaches it has no ends.
    /// Without a weight there is nothing to follow, and no bootstrap. O(resamples·prompts·points·axes).
    ///
    /// # Panics
    /// If a prompt has not one score per point and axis.
    pub fn bootstrap<P: AsRef<[f64]>>(weights: &[P], prompts: &[Vec<f64>], resamples: usize, seed: u64) -> Vec<Bootstrap> {
        let count = weights.first().map_or(0, |first| first.as_ref().len());
        if count == 0 {
            return Vec::new();
        }
        let size = weights.len() * count;
        assert!(prompts.iter().all(|scores| scores.len() == size), "one score per point and axis");
        // A blank adds nothing to the sum and nothing to the count.
        let parts = |score: &f64| if score.is_nan() { (0.0, 0.0) } else { (*score, 1.0) };
        let prompts: Vec<Vec<(f64, f64)>> = prompts.iter().map(|scores| scores.iter().map(parts).collect()).collect();
        let of_weights: Vec<Vec<f64>> = (0..count).map(|k| weights.iter().map(|point| point.as_ref()[k]).collect()).collect();
        Bootstrap::several(prompts.len(), count + 1, resamples, seed, |drawn, values| {
            let mut totals = vec![(0.0, 0.0); size];
            for &prompt in drawn {
                totals.iter_mut().zip(&prompts[prompt]).for_each(|(total, part)| *total = (total.0 + part.0, total.1 + part.1));
            }
            let means: Vec<f64> = totals.iter().map(|(sum, count)| snap(sum / count)).collect();
            for (k, x) in of_weights.iter().enumerate() {
                let axis = means.iter().skip(k).step_by(count);
                let (x, y): (Vec<f64>, Vec<f64>) = x.iter().zip(axis).filter(|(_, y)| !y.is_nan()).unzip();
                values[k] = coefficient(&x, &y);
            }
            let (x, y) = pool(weights, &means.chunks(count).collect::<Vec<_>>(), count);
            values[count] = coefficient(&x, &y);
        })
    }
}

/// Weights and standardised values of the points that have every axis, point after point.
fn pool<P: AsRef<[f64]>, Q: AsRef<[f64]>>(weights: &[P], achieved: &[Q], axes: usize) -> (Vec<f64>, Vec<f64>) {
    let points = weights.iter().map(AsRef::as_ref).zip(achieved.iter().map(AsRef::as_ref));
    let (x, y): (Vec<&[f64]>, Vec<&[f64]>) = points.filter(|(_, a)| a.iter().all(|value| !value.is_nan())).unzip();
    let columns: Vec<Vec<f64>> = (0..axes).map(|k| standardise(&y.iter().map(|point| point[k]).collect::<Vec<_>>())).collect();
    (x.concat(), (0..y.len()).flat_map(|i| columns.iter().map(move |column| column[i])).collect())
}

/// Spearman's coefficient, NaN where there is none.
fn coefficient(x: &[f64], y: &[f64]) -> f64 {
    correlation(Ranks::of(x).doubled(), Ranks::of(y).doubled()).unwrap_or(f64::NAN)
}

impl AxisSteering {
    fn of(weights: &[f64], achieved: &[f64]) -> Option<Self> {
        let spearman = Spearman::of(weights, achieved)?;
        let [low, high] = extent(achieved.iter().copied());
        Some(Self { n: weights.len(), spearman, slope: slope(weights, achieved), range: high - low })
    }
}

impl PooledSteering {
    /// Of the weights and standardised values of points, `axes` of each per point.
    fn of(x: &[f64], y: &[f64], axes: usize, seed: u64) -> Option<Self> {
        let (ranks_x, ranks_y) = (Ranks::of(x), Ranks::of(y));
        let rho = correlation(ranks_x.doubled(), ranks_y.doubled())?;
        // Permuting points moves whole rows of weights, so the pooled ranks stay and only their
        // pairing changes.
        let rows = |ranks: &Ranks| -> Vec<Vec<u64>> { ranks.doubled().chunks(axes).map(<[u64]>::to_vec).collect() };
        let (rows_x, rows_y) = (rows(&ranks_x), rows(&ranks_y));
        let dot = |a: &[u64], b: &[u64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<u64>();
        let cost: Vec<Vec<u64>> = rows_x.iter().map(|x| rows_y.iter().map(|y| dot(x, y)).collect()).collect();
        let position = enumerate(&cost).unwrap_or_else(|| draw(&cost, seed));
        Some(Self { n: x.len(), rho, p: approximate_p(rho, x.len()), permutation_p: position.two_sided(), slope: slope(x, y) })
    }
}

/// (x − mean)/std, zeros where there is no spread; equal in floating point where they are equal on
/// paper, since the ranks of all axes together are taken of them.
fn standardise(values: &[f64]) -> Vec<f64> {
    let (centre, scale) = (mean(values), population_std(values));
    // Equal values can have a mean that differs from them by rounding.
    let flat = values.iter().all(|value| *value == values[0]);
    values.iter().map(|value| if flat { 0.0 } else { snap((value - centre) / scale) }).collect()
}

/// The observed order and [`DRAWN`] shuffles.
fn draw(cost: &[Vec<u64>], seed: u64) -> Position {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut order: Vec<usize> = (0..cost.len()).collect();
    let sum = |order: &[usize]| order.iter().enumerate().map(|(i, &j)| cost[j][i]).sum::<u64>();
    let observed = sum(&order);
    let mut position = Position::default();
    position.count(observed, observed);
    for _ in 0..DRAWN {
        for i in (1..order.len()).rev() {
            order.swap(i, rng.random_range(0..=i));
        }
        position.count(sum(&order), observed);
    }
    position
}
