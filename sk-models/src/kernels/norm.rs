//! RMSNorm and its gradient, one pass each.

use rayon::prelude::*;

use super::simd::{dot, widened};

/// Rows per task; fixed, so that the order of summation does not depend on the number of threads.
const ROWS: usize = 64;

#[inline(always)]
fn inverse_root(x: &[f32], epsilon: f32) -> f32 {
    (dot(x, x) / x.len() as f32 + epsilon).sqrt().recip()
}

/// Computes `y = x / sqrt(mean(x²) + ε) · w` for one row.
#[inline(always)]
pub(crate) fn normalize(y: &mut [f32], x: &[f32], w: &[f32], epsilon: f32) {
    let scale = inverse_root(x, epsilon);
    for ((y, x), w) in y.iter_mut().zip(x).zip(w) {
        *y = x * scale * w;
    }
}

/// Applies [`normalize`] to each row.
pub(super) fn forward(x: &[f32], w: &[f32], epsilon: f32) -> Vec<f32> {
    let width = w.len();
    let mut y = vec![0.0; x.len()];
    y.par_chunks_mut(ROWS * width).zip(x.par_chunks(ROWS * width)).for_each(|(y, x)| {
        widened!({
            for (y, x) in y.chunks_exact_mut(width).zip(x.chunks_exact(width)) {
                normalize(y, x, w, epsilon);
            }
        });
    });
    y
}

/// Returns the gradients with respect to x and w.
///
/// With `x̂ = x·s`: `dx = s·(g·w − x̂·mean(g·w·x̂))`, `dw = Σ g·x̂`.
pub(super) fn backward(x: &[f32], w: &[f32], grad: &[f32], epsilon: f32) -> (Vec<f32>, Vec<f32>) {
    let width = w.len();
    let mut dx = vec![0.0; x.len()];
    let parts: Vec<Vec<f32>> = dx
        .par_chunks_mut(ROWS * width)
        .zip(x.par_chunks(ROWS * width))
        .zip(grad.par_chunks(ROWS * width))
        .map(|((dx, x), grad)| {
            let mut dw = vec![0.0_f32; width];
            widened!({
                for ((dx, x), g) in dx.chunks_exact_mut(width).zip(x.chunks_exact(width)).zip(grad.chunks_exact(width)) {
                    let scale = inverse_root(x, epsilon);
                    for ((d, g), w) in dx.iter_mut().zip(g).zip(w) {
                        *d = g * w;
                    }
                    let mean = dot(dx, x) * scale / width as f32;
                    for (((d, x), g), dw) in dx.iter_mut().zip(x).zip(g).zip(dw.iter_mut()) {
                        let normal = x * scale;
                        *d = scale * (*d - normal * mean);
                        *dw += g * normal;
                    }
                }
            });
            dw
        })
        .collect();
    let mut dw = vec![0.0; width];
    for part in parts {
        for (total, part) in dw.iter_mut().zip(part) {
            *total += part;
        }
    }
    (dx, dw)
}
