use rand::RngExt;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::permutations::{Position, enumerate};
use super::spearman::{approximate_p, correlation};
use super::{Bootstrap, Ranks, Spearman, extent, mean, population_std, slope, snap};

/// The number of random permutations if there are too many points to enumerate all.
const DRAWN: usize = 99_999;

/// How well achieved axes follow the requested weights, over the points of a sweep
/// (`tab:steerability-full`).
#[derive(Debug, Clone, PartialEq)]
pub struct Steering {
    /// One entry per axis; `None` if the axis or its weight is constant, or if there are fewer than
    /// three points.
    pub axes: Vec<Option<Steered>>,
    /// All axes pooled; `None` if every axis is constant or fewer than three pairs are left. Achieved
    /// values are standardised within their axis with the population standard deviation.
    pub pooled: Option<Steered>,
}

/// How one axis follows its weight, or how all axes follow theirs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Steered {
    /// The number of pairs of weight and achieved value: the points that have the axis, or points ×
    /// axes.
    pub n: usize,
    /// Spearman's coefficient of weight and achieved value.
    pub rho: f64,
    /// The p-value for the same number of *independent* pairs, as published. Pooled pairs are not
    /// independent: the weights of a point sum to one, and the axes of a point come from the same
    /// responses.
    pub p: f64,
    /// The p-value from permuting whole points, twice the smaller tail: over all permutations of up
    /// to ten points, else over 99,999 random ones of pooled axes; `None` for one axis.
    pub permutation_p: Option<f64>,
    /// The least-squares slope of the achieved values on the weights.
    pub slope: f64,
    /// The largest minus the smallest achieved value; `None` for pooled axes.
    pub range: Option<f64>,
}

impl Steering {
    /// Computes the steering of a sweep from the requested weights and achieved axes of each point.
    /// Weight k belongs to axis k. Ranks are those of rounded values ([`snap`]).
    ///
    /// NaN marks an axis that was not judged. Each axis uses the points that have it. The pooled
    /// statistics use the points that have every axis. `seed` determines the random permutations
    /// for more than ten points.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn of<P: AsRef<[f64]>>(weights: &[P], achieved: &[P], seed: u64) -> Self {
        assert_eq!(weights.len(), achieved.len(), "one achieved point per weight vector");
        let points = || weights.iter().map(AsRef::as_ref).zip(achieved.iter().map(AsRef::as_ref));
        let count = weights.first().map_or(0, |first| first.as_ref().len());
        let axis = |k: usize| {
            let (x, y): (Vec<f64>, Vec<f64>) = points().map(|(w, a)| (w[k], a[k])).filter(|(_, a)| !a.is_nan()).unzip();
            Steered::of_axis(&x, &y)
        };
        let (x, y) = pool(weights, achieved, count);
        Self { axes: (0..count).map(axis).collect(), pooled: Steered::of_pooled(&x, &y, count, seed) }
    }

    /// Bootstraps the coefficients of [`of`](Self::of) over whole prompts. Returns one bootstrap
    /// per axis, followed by that of all axes pooled.
    ///
    /// `prompts` holds, for each prompt, the scores of its responses by point and then by axis, NaN
    /// if missing. The achieved value of a point is the mean over the drawn prompts. A coefficient
    /// that is undefined on a resample is NaN, and so is its confidence interval. The result is
    /// empty without weights. O(resamples·prompts·points·axes).
    ///
    /// # Panics
    /// If a prompt does not have one score per point and axis.
    pub fn bootstrap<P: AsRef<[f64]>>(weights: &[P], prompts: &[Vec<f64>], resamples: usize, seed: u64) -> Vec<Bootstrap> {
        let count = weights.first().map_or(0, |first| first.as_ref().len());
        if count == 0 {
            return Vec::new();
        }
        let size = weights.len() * count;
        assert!(prompts.iter().all(|scores| scores.len() == size), "one score per point and axis");
        // A missing score adds nothing to the sum or to the count.
        let parts = |score: &f64| if score.is_nan() { (0.0, 0.0) } else { (*score, 1.0) };
        let prompts: Vec<Vec<(f64, f64)>> = prompts.iter().map(|scores| scores.iter().map(parts).collect()).collect();
        let of_weights: Vec<Vec<f64>> = (0..count).map(|k| weights.iter().map(|point| point.as_ref()[k]).collect()).collect();
        Bootstrap::several(prompts.len(), count + 1, resamples, seed, |drawn, values| {
            let mut totals = vec![(0.0, 0.0); size];
            for &prompt in drawn {
                totals.iter_mut().zip(&prompts[prompt]).for_each(|(total, part)| *total = (total.0 + part.0, total.1 + part.1));
            }
            let means: Vec<f64> = totals.iter().map(|(sum, count)| sum / count).collect();
            for (k, x) in of_weights.iter().enumerate() {
                let axis = means.iter().skip(k).step_by(count);
                let (x, y): (Vec<f64>, Vec<f64>) =
                    x.iter().zip(axis).filter(|(_, y)| !y.is_nan()).map(|(x, y)| (x, snap(*y))).unzip();
                values[k] = coefficient(&x, &y);
            }
            let (x, y) = pool(weights, &means.chunks(count).collect::<Vec<_>>(), count);
            values[count] = coefficient(&x, &y);
        })
    }
}

/// Collects weights and standardised values of the points that have every axis, by point.
fn pool<P: AsRef<[f64]>, Q: AsRef<[f64]>>(weights: &[P], achieved: &[Q], axes: usize) -> (Vec<f64>, Vec<f64>) {
    let points = weights.iter().map(AsRef::as_ref).zip(achieved.iter().map(AsRef::as_ref));
    let (x, y): (Vec<&[f64]>, Vec<&[f64]>) = points.filter(|(_, a)| a.iter().all(|value| !value.is_nan())).unzip();
    let columns: Vec<Vec<f64>> = (0..axes).map(|k| standardise(&y.iter().map(|point| point[k]).collect::<Vec<_>>())).collect();
    (x.concat(), (0..y.len()).flat_map(|i| columns.iter().map(move |column| column[i])).collect())
}

/// Returns Spearman's coefficient, NaN if it is undefined.
fn coefficient(x: &[f64], y: &[f64]) -> f64 {
    correlation(&Ranks::of(x).doubled, &Ranks::of(y).doubled).unwrap_or(f64::NAN)
}

impl Steered {
    fn of_axis(weights: &[f64], achieved: &[f64]) -> Option<Self> {
        let rounded: Vec<f64> = achieved.iter().copied().map(snap).collect();
        let Spearman { rho, p, exact_p: permutation_p } = Spearman::of(weights, &rounded)?;
        let [low, high] = extent(achieved.iter().copied());
        Some(Self { n: weights.len(), rho, p, permutation_p, slope: slope(weights, achieved), range: Some(high - low) })
    }

    /// Computes the statistics from weights and standardised values, `axes` of each per point.
    fn of_pooled(x: &[f64], y: &[f64], axes: usize, seed: u64) -> Option<Self> {
        let (ranks_x, ranks_y) = (Ranks::of(x), Ranks::of(y));
        let rho = correlation(&ranks_x.doubled, &ranks_y.doubled)?;
        // Permuting points moves whole rows of weights. The pooled ranks stay the same, and only
        // their pairing changes.
        let dot = |a: &[u64], b: &[u64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<u64>();
        let rows = || ranks_y.doubled.chunks(axes);
        let cost: Vec<Vec<u64>> = ranks_x.doubled.chunks(axes).map(|x| rows().map(|y| dot(x, y)).collect()).collect();
        let position = enumerate(&cost).unwrap_or_else(|| draw(&cost, seed));
        let (n, p, permutation_p) = (x.len(), approximate_p(rho, x.len()), Some(position.two_sided()));
        Some(Self { n, rho, p, permutation_p, slope: slope(x, y), range: None })
    }
}

/// Returns (x − mean)/std, or zeros for constant values. Results are rounded by [`snap`], so that
/// mathematically equal values tie when the axes are ranked together. The values must not be
/// rounded: division by a small deviation would magnify the error.
fn standardise(values: &[f64]) -> Vec<f64> {
    let (centre, scale) = (mean(values), population_std(values));
    let flat = values.iter().all(|value| snap(*value) == snap(values[0]));
    values.iter().map(|value| if flat { 0.0 } else { snap((value - centre) / scale) }).collect()
}

/// Counts the observed order and [`DRAWN`] random permutations.
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
