//! Logistic regression on the rows of a matrix, the fit of a linear head.

use rayon::prelude::*;

use super::lbfgs::{self, Iterate};

/// Rows that a task sums. The number is fixed and the sums are added in order, so that the result
/// does not depend on the number of threads.
const ROWS_AT_ONCE: usize = 1024;

/// Variance, as a share of the mean square, that f32 rounding alone can cause.
const ROUNDING: f64 = 1e-12;

/// min_{w,b} Σ_i c_i·log(1 + e^{−s_i z_i}) + λ/2·‖diag(d)·w‖², with z_i = w·x_i + b and s_i = ±1.
pub(super) struct Logistic<'a> {
    /// x, row by row, `[n·H]`.
    pub(super) rows: &'a [f32],
    /// s_i = 1 where true, else −1, `[n]`.
    pub(super) positive: &'a [bool],
    /// c_i, `[n]`; they sum to one for a mean.
    pub(super) weights: &'a [f64],
    /// H.
    pub(super) width: usize,
    /// λ.
    pub(super) l2: f64,
    /// Whether there is an intercept b. Without one, the problem is that of Bradley–Terry on rows
    /// of differences.
    pub(super) intercept: bool,
}

/// A solution.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Fit {
    /// w, `[H]`.
    pub(super) weight: Vec<f64>,
    /// b.
    pub(super) bias: f64,
    /// The last iteration; its value is the penalised loss.
    pub(super) end: Iterate,
}

impl Logistic<'_> {
    /// Minimises from zero. The columns are first divided by their standard deviations d, or by
    /// their root mean squares without an intercept, and the penalty applies to the scaled columns.
    /// It then does not depend on the units of the columns, and the problem is far better
    /// conditioned.
    pub(super) fn fit(&self, tolerance: f64, iterations: usize, report: impl FnMut(Iterate)) -> Fit {
        let columns = self.columns();
        let mut theta = vec![0.0; self.width + usize::from(self.intercept)];
        let end = lbfgs::minimize(|at, gradient| self.scaled(&columns, at, gradient), &mut theta, tolerance, iterations, report);
        let (weight, bias) = self.unscale(&columns, &theta);
        Fit { weight, bias, end }
    }

    /// Returns the weighted mean and standard deviation of each column. Without an intercept the
    /// mean stays, since nothing can absorb it, and the deviation is the root mean square.
    fn columns(&self) -> Columns {
        let total: f64 = self.weights.iter().sum();
        let sums = self.sum(2 * self.width, |row, _, weight, sums| {
            for (j, &x) in row.iter().enumerate() {
                let x = f64::from(x);
                sums[j] += weight * x;
                sums[self.width + j] += weight * x * x;
            }
        });
        let mean: Vec<f64> = sums[..self.width].iter().map(|sum| if self.intercept { sum / total } else { 0.0 }).collect();
        let deviation = mean.iter().zip(&sums[self.width..]).map(|(mean, square)| {
            let (square, variance) = (square / total, square / total - mean * mean);
            // A column that is constant up to f32 rounding is not scaled.
            if variance > ROUNDING * square { variance.sqrt() } else { 1.0 }
        });
        Columns { deviation: deviation.collect(), mean }
    }

    /// Converts scaled coordinates θ to weights and bias: w = θ/d, b = θ_b − w·mean.
    fn unscale(&self, columns: &Columns, theta: &[f64]) -> (Vec<f64>, f64) {
        let weight: Vec<f64> = theta.iter().zip(&columns.deviation).map(|(theta, deviation)| theta / deviation).collect();
        let shift: f64 = weight.iter().zip(&columns.mean).map(|(w, mean)| w * mean).sum();
        let bias = if self.intercept { theta[self.width] - shift } else { 0.0 };
        (weight, bias)
    }

    /// Returns the function and writes its gradient in scaled coordinates. O(n·H).
    fn scaled(&self, columns: &Columns, theta: &[f64], gradient: &mut [f64]) -> f64 {
        let (weight, bias) = self.unscale(columns, theta);
        // Σ c_i·r_i·x_i, Σ c_i·r_i and the loss, with r_i the derivative with respect to z_i.
        let sums = self.sum(self.width + 2, |row, positive, c, sums| {
            let z = bias + row.iter().zip(&weight).map(|(&x, w)| f64::from(x) * w).sum::<f64>();
            let sign = if positive { 1.0 } else { -1.0 };
            let residual = -sign * c * sigmoid(-sign * z);
            for (sum, &x) in sums.iter_mut().zip(row) {
                *sum += residual * f64::from(x);
            }
            sums[self.width] += residual;
            sums[self.width + 1] += c * softplus(-sign * z);
        });
        let (residual, loss) = (sums[self.width], sums[self.width + 1]);
        let theta_w = &theta[..self.width];
        for (j, (gradient, theta)) in gradient.iter_mut().zip(theta_w).enumerate() {
            *gradient = (sums[j] - residual * columns.mean[j]) / columns.deviation[j] + self.l2 * theta;
        }
        if self.intercept {
            gradient[self.width] = residual;
        }
        loss + 0.5 * self.l2 * theta_w.iter().map(|theta| theta * theta).sum::<f64>()
    }

    /// Sums the contributions of `add` over the rows, in parallel and in a fixed order.
    fn sum(&self, size: usize, add: impl Fn(&[f32], bool, f64, &mut [f64]) + Sync) -> Vec<f64> {
        let parts: Vec<Vec<f64>> = self
            .rows
            .par_chunks(ROWS_AT_ONCE * self.width)
            .zip(self.positive.par_chunks(ROWS_AT_ONCE))
            .zip(self.weights.par_chunks(ROWS_AT_ONCE))
            .map(|((rows, positive), weights)| {
                let mut sums = vec![0.0; size];
                for ((row, &positive), &weight) in rows.chunks_exact(self.width).zip(positive).zip(weights) {
                    add(row, positive, weight, &mut sums);
                }
                sums
            })
            .collect();
        let mut total = vec![0.0; size];
        for part in parts {
            total.iter_mut().zip(part).for_each(|(total, part)| *total += part);
        }
        total
    }
}

/// Mean and standard deviation of each column; zero and root mean square without an intercept.
struct Columns {
    mean: Vec<f64>,
    deviation: Vec<f64>,
}

/// Returns log(1 + e^x) without overflow.
pub(super) fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// Returns 1/(1 + e^{−x}).
pub(super) fn sigmoid(x: f64) -> f64 {
    let small = (-x.abs()).exp();
    if x >= 0.0 { 1.0 / (1.0 + small) } else { small / (1.0 + small) }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    const WIDTH: usize = 5;

    struct Data {
        rows: Vec<f32>,
        positive: Vec<bool>,
        weights: Vec<f64>,
    }

    impl Data {
        /// Columns of very different scale, labels by `label` of a row.
        fn draw(n: usize, label: impl Fn(&[f32], f64) -> bool) -> Self {
            let mut rng = ChaCha8Rng::seed_from_u64(5);
            let rows: Vec<f32> =
                (0..n * WIDTH).map(|i| 10f32.powi((i % WIDTH) as i32 - 2) * (rng.random::<f32>() - 0.3)).collect();
            let positive = rows.chunks_exact(WIDTH).map(|row| label(row, rng.random())).collect();
            let weights = (0..n).map(|i| (1 + i % 3) as f64 / n as f64).collect();
            Self { rows, positive, weights }
        }

        fn problem(&self, l2: f64, intercept: bool) -> Logistic<'_> {
            Logistic { rows: &self.rows, positive: &self.positive, weights: &self.weights, width: WIDTH, l2, intercept }
        }
    }

    #[test]
    fn the_gradient_is_that_of_the_loss() {
        // More rows than one task sums.
        let data = Data::draw(ROWS_AT_ONCE + 100, |_, u| u < 0.4);
        for intercept in [true, false] {
            let problem = data.problem(0.3, intercept);
            let columns = problem.columns();
            let size = WIDTH + usize::from(intercept);
            let theta: Vec<f64> = (0..size).map(|j| 0.4 * j as f64 - 0.7).collect();
            lbfgs::check_gradient(|theta, gradient| problem.scaled(&columns, theta, gradient), &theta);
        }
    }

    #[test]
    fn separable_rows_are_separated() {
        /// A penalised fit stops short of the plane itself, and may have rows this close to it on
        /// the wrong side.
        const CLOSE: f32 = 0.02;
        let distance = |row: &[f32]| row[2] + 0.1 * row[3] - 0.4;
        let data = Data::draw(400, |row, _| distance(row) > 0.0);
        let fit = data.problem(1e-6, true).fit(1e-8, 500, |_| {});
        let clear = data.rows.chunks_exact(WIDTH).zip(&data.positive).filter(|(row, _)| distance(row).abs() > CLOSE);
        let mut count = 0;
        for (row, &positive) in clear {
            let z: f64 = fit.bias + row.iter().zip(&fit.weight).map(|(&x, w)| f64::from(x) * w).sum::<f64>();
            assert_eq!(z > 0.0, positive, "{row:?}");
            count += 1;
        }
        assert!(count > 350, "{count} rows are clear of the plane");
    }

    #[test]
    fn without_information_the_bias_is_the_log_odds_of_the_labels() {
        let data = Data { rows: vec![1.0; 8 * WIDTH], positive: (0..8).map(|i| i < 6).collect(), weights: vec![0.125; 8] };
        let fit = data.problem(0.1, true).fit(1e-12, 100, |_| {});
        let z = fit.bias + fit.weight.iter().sum::<f64>();
        assert!((z - 3f64.ln()).abs() < 1e-9, "{z}");
        assert!(fit.end.norm <= 1e-12);
    }

    #[test]
    fn the_minimum_does_not_depend_on_the_units_of_the_columns() {
        let data = Data::draw(300, |row, u| f64::from(row[2]) > u - 0.3);
        let fit = data.problem(0.01, true).fit(1e-10, 300, |_| {});
        // Powers of two are exact.
        let rows = data.rows.iter().enumerate().map(|(i, x)| if i % WIDTH == 2 { 8.0 * x } else { *x }).collect();
        let other = Data { rows, ..data };
        let scaled = other.problem(0.01, true).fit(1e-10, 300, |_| {});
        assert!((fit.end.value - scaled.end.value).abs() < 1e-12);
        assert!((fit.weight[2] - 8.0 * scaled.weight[2]).abs() < 1e-6);
    }
}
