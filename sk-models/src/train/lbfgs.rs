//! Minimisation of a smooth convex function by limited-memory BFGS (Nocedal & Wright 2006,
//! algorithm 7.5).

use std::collections::VecDeque;

/// The number of remembered pairs of steps and gradient changes.
const MEMORY: usize = 10;
/// Sufficient decrease, as a share of the slope's prediction (Armijo).
const DECREASE: f64 = 1e-4;
/// Halvings of a step after which the minimum is reached up to rounding.
const HALVINGS: u32 = 40;

/// The state of an iteration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Iterate {
    /// Iterations done.
    pub(super) iteration: usize,
    /// The value of the function.
    pub(super) value: f64,
    /// The Euclidean norm of its gradient.
    pub(super) norm: f64,
}

/// Moves `x` to a minimum, until the gradient's norm is at most `tolerance`, `iterations` are done,
/// or no step descends.
///
/// `function` returns its value at a point and writes its gradient. Deterministic.
pub(super) fn minimize(
    mut function: impl FnMut(&[f64], &mut [f64]) -> f64,
    x: &mut [f64],
    tolerance: f64,
    iterations: usize,
    mut report: impl FnMut(Iterate),
) -> Iterate {
    let n = x.len();
    let mut gradient = vec![0.0; n];
    let mut value = function(x, &mut gradient);
    let mut history: VecDeque<Change> = VecDeque::new();
    let mut iteration = 0;
    let (mut next, mut next_gradient) = (vec![0.0; n], vec![0.0; n]);
    loop {
        let at = Iterate { iteration, value, norm: dot(&gradient, &gradient).sqrt() };
        report(at);
        if at.norm <= tolerance || iteration == iterations || !value.is_finite() {
            return at;
        }
        let direction = direction(&gradient, &history);
        let slope = dot(&gradient, &direction);
        // Without curvature the scale of a step is unknown; the first guess is a unit step.
        let mut length = if history.is_empty() { 1.0 / at.norm.max(1.0) } else { 1.0 };
        let mut descended = false;
        for _ in 0..HALVINGS {
            for ((next, &x), &d) in next.iter_mut().zip(&*x).zip(&direction) {
                *next = x + length * d;
            }
            let found = function(&next, &mut next_gradient);
            if found <= value + DECREASE * length * slope {
                value = found;
                descended = true;
                break;
            }
            length *= 0.5;
        }
        if !descended {
            return at;
        }
        let step: Vec<f64> = next.iter().zip(&*x).map(|(next, x)| next - x).collect();
        let change: Vec<f64> = next_gradient.iter().zip(&gradient).map(|(next, g)| next - g).collect();
        let curvature = dot(&step, &change);
        // A convex function has positive curvature, except for rounding near the minimum.
        if curvature > f64::EPSILON * dot(&change, &change) {
            if history.len() == MEMORY {
                history.pop_front();
            }
            history.push_back(Change { step, change, curvature });
        }
        x.copy_from_slice(&next);
        std::mem::swap(&mut gradient, &mut next_gradient);
        iteration += 1;
    }
}

/// s, y and s·y of one iteration.
struct Change {
    step: Vec<f64>,
    change: Vec<f64>,
    curvature: f64,
}

/// Returns −H·g by the two-loop recursion, with H the inverse Hessian that the history implies.
fn direction(gradient: &[f64], history: &VecDeque<Change>) -> Vec<f64> {
    let mut q: Vec<f64> = gradient.iter().map(|g| -g).collect();
    let mut alphas = Vec::with_capacity(history.len());
    for Change { step, change, curvature } in history.iter().rev() {
        let alpha = dot(step, &q) / curvature;
        axpy(-alpha, change, &mut q);
        alphas.push(alpha);
    }
    if let Some(Change { change, curvature, .. }) = history.back() {
        let scale = curvature / dot(change, change);
        q.iter_mut().for_each(|q| *q *= scale);
    }
    for (Change { step, change, curvature }, alpha) in history.iter().zip(alphas.into_iter().rev()) {
        let beta = dot(change, &q) / curvature;
        axpy(alpha - beta, step, &mut q);
    }
    q
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Computes y ← y + a·x.
fn axpy(a: f64, x: &[f64], y: &mut [f64]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += a * x;
    }
}

/// Checks the gradient of a function at `theta`.
#[cfg(test)]
pub(super) fn check_gradient(function: impl Fn(&[f64], &mut [f64]) -> f64, theta: &[f64]) {
    // Central differences of step 1e-5 err by about 1e-10.
    const STEP: f64 = 1e-5;
    let (mut gradient, mut unused) = (vec![0.0; theta.len()], vec![0.0; theta.len()]);
    function(theta, &mut gradient);
    for (j, slope) in gradient.into_iter().enumerate() {
        let mut at = |by: f64| {
            let mut moved = theta.to_vec();
            moved[j] += by;
            function(&moved, &mut unused)
        };
        let difference = (at(STEP) - at(-STEP)) / (2.0 * STEP);
        assert!((difference - slope).abs() < 1e-8, "{j}: {difference} against {slope}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ill_conditioned_quadratic_is_minimised() {
        // Σ c_i (x_i − i)², with curvatures over three decades.
        let curvature = |i: usize| 10f64.powi(i as i32 % 4);
        let function = |x: &[f64], gradient: &mut [f64]| {
            let mut value = 0.0;
            for (i, (x, g)) in x.iter().zip(gradient).enumerate() {
                let off = x - i as f64;
                value += curvature(i) * off * off;
                *g = 2.0 * curvature(i) * off;
            }
            value
        };
        let mut x = vec![0.0; 12];
        let mut values = Vec::new();
        let end = minimize(function, &mut x, 1e-9, 200, |at| values.push(at.value));
        assert!(end.norm <= 1e-9 && end.iteration < 200, "{end:?}");
        // A gradient of 1e-9 under curvatures of at least 2 leaves half of it in x.
        assert!(x.iter().enumerate().all(|(i, x)| (x - i as f64).abs() <= 1e-9), "{x:?}");
        assert!(values.is_sorted_by(|a, b| a >= b), "each step descends");
    }
}
