//! `silu(gate) ⊙ up` and its gradient, one pass each.

use rayon::prelude::*;

use super::simd::{exp, widened};

/// Elements per task.
const BLOCK: usize = 16 * 1024;

#[inline(always)]
fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// Returns `y = g·σ(g)·u`.
pub(super) fn forward(gate: &[f32], up: &[f32]) -> Vec<f32> {
    let mut y = vec![0.0; gate.len()];
    y.par_chunks_mut(BLOCK).zip(gate.par_chunks(BLOCK)).zip(up.par_chunks(BLOCK)).for_each(|((y, gate), up)| {
        widened!({
            for ((y, &g), &u) in y.iter_mut().zip(gate).zip(up) {
                *y = g * sigmoid(g) * u;
            }
        });
    });
    y
}

/// Returns the gradients with respect to gate and up: `dg = d·u·σ·(1 + g·(1 − σ))`, `du = d·g·σ`.
pub(super) fn backward(gate: &[f32], up: &[f32], grad: &[f32]) -> (Vec<f32>, Vec<f32>) {
    let mut dgate = vec![0.0; gate.len()];
    let mut dup = vec![0.0; gate.len()];
    dgate
        .par_chunks_mut(BLOCK)
        .zip(dup.par_chunks_mut(BLOCK))
        .zip(gate.par_chunks(BLOCK).zip(up.par_chunks(BLOCK)).zip(grad.par_chunks(BLOCK)))
        .for_each(|((dgate, dup), ((gate, up), grad))| {
            widened!({
                for ((((dg, du), &g), &u), &d) in dgate.iter_mut().zip(dup).zip(gate).zip(up).zip(grad) {
                    let s = sigmoid(g);
                    *dg = d * u * s * (1.0 + g * (1.0 - s));
                    *du = d * g * s;
                }
            });
        });
    (dgate, dup)
}
