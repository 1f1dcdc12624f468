//! Causal self-attention of whole sequences with rotary embedding, and its gradient.
//!
//! Each sequence is one task. Scores are held only for one block of queries and the keys that it
//! attends to. So they stay in the cache, and the masked half is never computed. The gradient
//! recomputes them.

use rayon::prelude::*;

use super::product::product;
use super::simd::{dot, exp, max, sum, widened};

/// Queries whose scores are in memory at a time.
const BLOCK: usize = 64;

/// The sizes of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AttentionShape {
    /// Tokens per sequence.
    pub(crate) length: usize,
    /// Key and value heads.
    pub(crate) heads: usize,
    /// Query heads per key head.
    pub(crate) groups: usize,
    /// Width of a head.
    pub(crate) width: usize,
    /// Factor of the scores.
    pub(crate) scale: f32,
}

impl AttentionShape {
    fn query_size(&self) -> usize {
        self.heads * self.groups * self.width
    }

    fn key_size(&self) -> usize {
        self.heads * self.width
    }
}

/// Copies one head out of `[S, stride]`, rotated by the tables and scaled.
#[inline(always)]
fn rotate(out: &mut [f32], x: &[f32], stride: usize, tables: (&[f32], &[f32]), width: usize, scale: f32) {
    let half = width / 2;
    let (cos, sin) = tables;
    for (t, out) in out.chunks_exact_mut(width).enumerate() {
        let x = &x[t * stride..t * stride + width];
        let (cos, sin) = (&cos[t * width..][..width], &sin[t * width..][..width]);
        for j in 0..half {
            out[j] = (x[j] * cos[j] - x[j + half] * sin[j]) * scale;
            out[j + half] = (x[j + half] * cos[j + half] + x[j] * sin[j + half]) * scale;
        }
    }
}

/// The transpose of [`rotate`]: rotates a gradient back and writes it to its head of `[S, stride]`.
#[inline(always)]
fn rotate_back(out: &mut [f32], x: &[f32], stride: usize, tables: (&[f32], &[f32]), width: usize, scale: f32) {
    let half = width / 2;
    let (cos, sin) = tables;
    for (t, x) in x.chunks_exact(width).enumerate() {
        let out = &mut out[t * stride..t * stride + width];
        let (cos, sin) = (&cos[t * width..][..width], &sin[t * width..][..width]);
        for j in 0..half {
            out[j] = (x[j] * cos[j] + x[j + half] * sin[j + half]) * scale;
            out[j + half] = (x[j + half] * cos[j + half] - x[j] * sin[j]) * scale;
        }
    }
}

/// Computes the softmax over the visible keys of each row of a block, and zero elsewhere.
#[inline(always)]
fn causal_softmax(scores: &mut [f32], start: usize, seen: usize) {
    for (row, line) in scores.chunks_exact_mut(seen).enumerate() {
        let (visible, hidden) = line.split_at_mut(start + row + 1);
        let peak = max(visible);
        for score in visible.iter_mut() {
            *score = exp(*score - peak);
        }
        let scale = sum(visible).recip();
        for score in visible.iter_mut() {
            *score *= scale;
        }
        hidden.fill(0.0);
    }
}

/// Computes the attention of `[B·S, Hq·D]` queries over `[B·S, Hkv·D]` keys and values.
pub(super) fn forward(q: &[f32], k: &[f32], v: &[f32], tables: (&[f32], &[f32]), shape: AttentionShape) -> Vec<f32> {
    let AttentionShape { length, heads, groups, width, scale } = shape;
    let (query_size, key_size) = (shape.query_size(), shape.key_size());
    let mut out = vec![0.0; q.len()];
    out.par_chunks_mut(length * query_size)
        .zip(q.par_chunks(length * query_size))
        .zip(k.par_chunks(length * key_size).zip(v.par_chunks(length * key_size)))
        .for_each(|((out, q), (k, v))| {
            let mut query = vec![0.0; length * width];
            let mut key = vec![0.0; length * width];
            let mut scores = vec![0.0; BLOCK * length];
            for head in 0..heads {
                let value = (&v[head * width..], key_size, 1);
                widened!(rotate(&mut key, &k[head * width..], key_size, tables, width, 1.0));
                for group in 0..groups {
                    let at = (head * groups + group) * width;
                    widened!(rotate(&mut query, &q[at..], query_size, tables, width, scale));
                    for start in (0..length).step_by(BLOCK) {
                        let seen = (start + BLOCK).min(length);
                        let rows = seen - start;
                        let scores = &mut scores[..rows * seen];
                        product(
                            [rows, seen, width],
                            (&mut *scores, seen),
                            (&query[start * width..], width, 1),
                            (&key, 1, width),
                            false,
                        );
                        widened!(causal_softmax(scores, start, seen));
                        let out = &mut out[start * query_size + at..];
                        product([rows, width, seen], (out, query_size), (scores, seen, 1), value, false);
                    }
                }
            }
        });
    out
}

/// Returns the gradients with respect to q, k and v.
///
/// With `P` the weights: `dV = Pᵀ·dO`, `dP = dO·Vᵀ`, `dS = P ⊙ (dP − rowsum(P ⊙ dP))`, `dQ = dS·K`,
/// `dK = dSᵀ·Q`.
pub(super) fn backward(
    q: &[f32],
    k: &[f32],
    v: &[f32],
    grad: &[f32],
    tables: (&[f32], &[f32]),
    shape: AttentionShape,
) -> (Vec<f32>, Vec<f32>, Vec<f32>) {
    let AttentionShape { length, heads, groups, width, scale } = shape;
    let (query_size, key_size) = (shape.query_size(), shape.key_size());
    let (query_chunk, key_chunk) = (length * query_size, length * key_size);
    let mut dq = vec![0.0; q.len()];
    let mut dk = vec![0.0; k.len()];
    let mut dv = vec![0.0; v.len()];
    let gradients = dq.par_chunks_mut(query_chunk).zip(dk.par_chunks_mut(key_chunk).zip(dv.par_chunks_mut(key_chunk)));
    let inputs =
        q.par_chunks(query_chunk).zip(grad.par_chunks(query_chunk)).zip(k.par_chunks(key_chunk).zip(v.par_chunks(key_chunk)));
    gradients.zip(inputs).for_each(|((dq, (dk, dv)), ((q, grad), (k, v)))| {
        let mut query = vec![0.0; length * width];
        let mut key = vec![0.0; length * width];
        let mut query_grad = vec![0.0; length * width];
        let mut key_grad = vec![0.0; length * width];
        let mut weights = vec![0.0; BLOCK * length];
        let mut changes = vec![0.0; BLOCK * length];
        for head in 0..heads {
            widened!(rotate(&mut key, &k[head * width..], key_size, tables, width, 1.0));
            key_grad.fill(0.0);
            for group in 0..groups {
                let at = (head * groups + group) * width;
                widened!(rotate(&mut query, &q[at..], query_size, tables, width, scale));
                for start in (0..length).step_by(BLOCK) {
                    let seen = (start + BLOCK).min(length);
                    let rows = seen - start;
                    let weights = &mut weights[..rows * seen];
                    let changes = &mut changes[..rows * seen];
                    let out_grad = &grad[start * query_size + at..];
                    let queries = &query[start * width..];
                    product([rows, seen, width], (&mut *weights, seen), (queries, width, 1), (&key, 1, width), false);
                    product(
                        [rows, seen, width],
                        (&mut *changes, seen),
                        (out_grad, query_size, 1),
                        (&v[head * width..], 1, key_size),
                        false,
                    );
                    widened!({
                        causal_softmax(weights, start, seen);
                        for (p, d) in weights.chunks_exact(seen).zip(changes.chunks_exact_mut(seen)) {
                            let mean = dot(p, d);
                            for (p, d) in p.iter().zip(d) {
                                *d = p * (*d - mean);
                            }
                        }
                    });
                    product(
                        [seen, width, rows],
                        (&mut dv[head * width..], key_size),
                        (&*weights, 1, seen),
                        (out_grad, query_size, 1),
                        true,
                    );
                    product(
                        [rows, width, seen],
                        (&mut query_grad[start * width..], width),
                        (&*changes, seen, 1),
                        (&key, width, 1),
                        false,
                    );
                    product([seen, width, rows], (&mut key_grad, width), (&*changes, 1, seen), (queries, width, 1), true);
                }
                widened!(rotate_back(&mut dq[at..], &query_grad, query_size, tables, width, scale));
            }
            widened!(rotate_back(&mut dk[head * width..], &key_grad, key_size, tables, width, 1.0));
        }
    });
    (dq, dk, dv)
}
