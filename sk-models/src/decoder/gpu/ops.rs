//! The steps between the products of a layer: single kernels on a GPU, Burn's operations elsewhere.
//! The tests compare the two.

use std::ops::Range;

use burn::tensor::{DType, Device, Int, Tensor, TensorData};

#[cfg(any(feature = "cuda", feature = "wgpu"))]
use super::cube;
use super::operands::{AttentionGroup, Changed, Selection};
use super::shape::Visibility;
use crate::decoder::heads::Heads;
use crate::kernels::{rms_norm, swiglu};
use crate::lora::LaneDelta;
use crate::model::Norm;

/// The largest number of attention scores in memory at once: 1 GiB of f32, half of the largest
/// buffer that some devices bind, and few enough for indices of 32 bits. A single query head may have
/// more.
const SCORES_AT_ONCE: usize = 1 << 28;

/// Returns whether the kernels of `cube` support the device.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub(super) fn is_cube(device: &Device) -> bool {
    matches!(device.as_dispatch(), burn::backend::DispatchDevice::Cube(_))
}

/// Returns the result of a kernel of `cube` if the kernels support the device.
macro_rules! on_cube {
    ($device:expr => $result:expr) => {
        #[cfg(any(feature = "cuda", feature = "wgpu"))]
        if is_cube(&$device) {
            return $result;
        }
    };
}

/// Returns whether a pass over a group of `places` places in each of `lanes` lanes reads its
/// position only from the numbers in device memory.
pub(super) fn reads_place(device: &Device, heads: Heads, lanes: usize, places: usize) -> bool {
    on_cube!(*device => cube::reads_place(device, heads, lanes, places));
    let _ = (device, heads, lanes, places);
    false
}

/// Computes `x·W`, on a GPU in f32 for few rows, else in the format of W. Tensor cores round x to the
/// format of W.
pub(crate) fn multiply(x: &Tensor<2>, weight: &Tensor<2>) -> Tensor<2> {
    on_cube!(x.device() => cube::multiply(x, weight, false));
    x.clone().cast(weight.dtype()).matmul(weight.clone())
}

/// Computes `x·W` in f32 for any number of rows: x is rounded to the format of W, the sums are not.
/// In bf16, a logit of 40 would have steps of a quarter.
pub(super) fn multiply_whole(x: &Tensor<2>, weight: &Tensor<2>) -> Tensor<2> {
    on_cube!(x.device() => cube::multiply(x, weight, true));
    x.clone().cast(weight.dtype()).cast(DType::F32).matmul(weight.clone().cast(DType::F32))
}

/// Computes the products of several matrices in f32.
pub(crate) fn product(a: Tensor<4>, b: Tensor<4>) -> Tensor<4> {
    on_cube!(a.device() => cube::product(a, b));
    a.cast(DType::F32).matmul(b.cast(DType::F32))
}

/// Returns `x + change` and its norm in `format`, `[M, H]` each.
pub(super) fn add_norm(x: Tensor<2>, change: Option<Changed>, norm: &Norm, format: DType) -> (Tensor<2>, Tensor<2>) {
    on_cube!(x.device() => cube::add_norm(x, change, norm, format));
    let x = match change {
        None => x,
        Some(change) => x + change.sum(),
    };
    (x.clone(), rms_norm(x, norm.weight.val(), norm.epsilon()).cast(format))
}

/// Rotates the heads of one group by the angles of their positions. From projections `[G·M, (Hq +
/// 2·Hkv)·D]` without their bias, it returns the queries `[G, Hkv, Hq/Hkv·m, D]`, scaled by 1/√D,
/// and appends keys and values to a cache `[G, 2·Hkv, P, D]`. Both are in the format of the cache.
///
/// Row p of the angles holds the cosines of position p, then its sines. A head with the halves `y =
/// [y₁, y₂]` becomes `[y₁·cos − y₂·sin, y₂·cos + y₁·sin]`. On a GPU the cache is written in place,
/// even if it is shared.
pub(super) fn rotate(
    projected: Changed,
    bias: Tensor<1>,
    angles: Tensor<2>,
    group: &AttentionGroup,
    cache: Tensor<4>,
) -> (Tensor<4>, Tensor<4>) {
    on_cube!(projected.frozen.device() => cube::rotate(projected, bias, angles, group, cache));
    let &AttentionGroup { heads, lanes, start, visibility, .. } = group;
    let (format, at, places) = (cache.dtype(), visibility.first(), visibility.places);
    let Heads { queries, keys, width } = heads;
    let half = width / 2;
    let all = projected.sum() + bias.unsqueeze();
    let [rows, _] = all.dims();
    let own = all.reshape([lanes, rows / lanes, heads.count(), width]).slice([0..lanes, start..start + places]).swap_dims(1, 2);
    let positions: Vec<usize> =
        (0..places).map(|place| visibility.shared + visibility.earlier + place / visibility.rows).collect();
    let positions = Tensor::from_data(&positions[..], &angles.device());
    let angles = angles.select(0, positions).unsqueeze::<4>();
    let part = |tensor: &Tensor<4>, from: usize| tensor.clone().narrow(3, from, half);
    let (cos, sin) = (part(&angles, 0), part(&angles, half));
    let rotated = own.clone().narrow(1, 0, queries + keys);
    let (first, second) = (part(&rotated, 0), part(&rotated, half));
    let rotated = Tensor::cat(vec![first.clone() * cos.clone() - second.clone() * sin.clone(), second * cos + first * sin], 3);
    let query = rotated.clone().narrow(1, 0, queries).mul_scalar(heads.scale());
    let others = Tensor::cat(vec![rotated.narrow(1, queries, keys), own.narrow(1, queries + keys, keys)], 1);
    let cache = cache.slice_assign([0..lanes, 0..2 * keys, at..at + places, 0..width], others.cast(format));
    (query.reshape([lanes, keys, heads.queries_per_key() * places, width]).cast(format), cache)
}

/// Computes the attention of a group's queries to their visible keys in a cache `[G, 2·Hkv, P, D]`:
/// `[G·m, Hq·D]` in `format`, ordered by place.
pub(super) fn attend(queries: Tensor<4>, cache: &Tensor<4>, group: &AttentionGroup, format: DType) -> Tensor<2> {
    let &AttentionGroup { heads, lanes, visibility, .. } = group;
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    if reads_place(&queries.device(), heads, lanes, visibility.places) {
        return cube::attend(queries, cache, group, format);
    }
    let part = |from| cache.clone().slice([0..lanes, from..from + heads.keys, 0..visibility.keys(), 0..heads.width]);
    let mixed = mix(queries, &part(0), &part(heads.keys), visibility, SCORES_AT_ONCE);
    by_place(mixed, heads, lanes, visibility.places, format)
}

/// Computes `softmax(Q·Kᵀ)·V` for queries `[G, Hkv, Hq/Hkv·m, D]`, as many query heads at a time as
/// have at most `most` scores, but at least one.
pub(super) fn mix(queries: Tensor<4>, keys: &Tensor<4>, values: &Tensor<4>, visibility: Visibility, most: usize) -> Tensor<4> {
    let mix = |queries, keys: Tensor<4>, values: Tensor<4>| {
        let weights = softmax(product(queries, keys.swap_dims(2, 3)), visibility, values.dtype());
        product(weights, values)
    };
    let [lanes, heads, number, width] = queries.dims();
    let at_once = (most / (visibility.places * visibility.keys())).max(1) * visibility.places;
    if lanes * heads * number <= at_once {
        return mix(queries, keys.clone(), values.clone());
    }
    let mut parts = Vec::new();
    for (lane, head) in (0..lanes).flat_map(|lane| (0..heads).map(move |head| (lane, head))) {
        let of_head =
            |tensor: &Tensor<4>, rows: Range<usize>| tensor.clone().slice([lane..lane + 1, head..head + 1, rows, 0..width]);
        let [keys, values] = [keys, values].map(|tensor| of_head(tensor, 0..visibility.keys()));
        for first in (0..number).step_by(at_once) {
            parts.push(mix(of_head(&queries, first..number.min(first + at_once)), keys.clone(), values.clone()));
        }
    }
    Tensor::cat(parts, 2).reshape([lanes, heads, number, width])
}

/// Computes the softmax of scores `[G, Hkv, Hq/Hkv·m, keys]` over the visible keys of each query,
/// in `format`.
pub(super) fn softmax(scores: Tensor<4>, visibility: Visibility, format: DType) -> Tensor<4> {
    on_cube!(scores.device() => cube::softmax(scores, visibility, format));
    let [lanes, heads, queries, keys] = scores.dims();
    let scores = if visibility.is_whole() {
        scores
    } else {
        let mask = TensorData::new(visibility.mask(), [1, 1, visibility.places, keys]);
        let mask = Tensor::<4>::from_data(mask, &scores.device());
        let seen = scores.reshape([lanes * heads, queries / visibility.places, visibility.places, keys]) + mask;
        seen.reshape([lanes, heads, queries, keys])
    };
    let max = scores.clone().max_dim(3);
    let weights = (scores - max).exp();
    let total = weights.clone().sum_dim(3);
    (weights / total).cast(format)
}

/// Reorders the output of attention from `[G, Hkv, Hq/Hkv·m, D]` by head to `[G·m, Hq·D]` by place,
/// in `format`.
pub(super) fn by_place(mixed: Tensor<4>, heads: Heads, lanes: usize, places: usize, format: DType) -> Tensor<2> {
    on_cube!(mixed.device() => cube::by_place(mixed, heads, lanes, places, format));
    let by_head = mixed.reshape([lanes, heads.queries, places, heads.width]);
    by_head.swap_dims(1, 2).reshape([lanes * places, heads.queries * heads.width]).cast(format)
}

/// Computes `silu(gate) ⊙ up` in `format` from both side by side: `[M, 2·F]` to `[M, F]`.
pub(super) fn gate(both: Changed, format: DType) -> Tensor<2> {
    on_cube!(both.frozen.device() => cube::gate(both, format));
    let both = both.sum();
    let width = both.dims()[1] / 2;
    swiglu(both.clone().narrow(1, 0, width), both.narrow(1, width, width)).cast(format)
}

/// Returns each lane's low-rank update for rows `[G·M, in]`: `[G·M, Σ out]`, in f32.
pub(super) fn low_rank(x: &Tensor<2>, delta: &LaneDelta) -> Tensor<2> {
    on_cube!(x.device() => cube::low_rank(x, delta));
    delta.update(x.clone().cast(DType::F32))
}

/// Moves the first `tokens` tokens of row `row` of `rows`, which lie side by side from `start` on
/// in a cache `[G, 2·Hkv, P, D]`, to `start`. On a GPU the cache is written in place, even if it is
/// shared.
pub(super) fn adopt(cache: Tensor<4>, start: usize, tokens: usize, rows: usize, row: usize) -> Tensor<4> {
    on_cube!(cache.device() => cube::adopt(cache, start, tokens, rows, row));
    let [lanes, heads, _, width] = cache.dims();
    let places: Vec<usize> = (0..tokens).map(|step| start + step * rows + row).collect();
    let kept = cache.clone().select(2, Tensor::from_data(&places[..], &cache.device()));
    cache.slice_assign([0..lanes, 0..heads, start..start + tokens, 0..width], kept)
}

/// Overwrites `old` with `new` in place, even if `old` is shared.
pub(super) fn refresh(old: Tensor<1, Int>, new: Tensor<1, Int>) -> Tensor<1, Int> {
    on_cube!(old.device() => cube::refresh(old, new));
    let count = new.dims()[0];
    old.slice_assign(0..count, new)
}

/// Returns `[log p(target), H_∞]` in nats per row of logits `[M, V]`, with `H_∞ = logsumexp − max`:
/// `[M, 2]`.
pub(crate) fn read(logits: Tensor<2>, targets: Tensor<1, Int>) -> Tensor<2> {
    on_cube!(logits.device() => cube::read(logits, targets));
    let logits = logits.cast(DType::F32);
    let max = logits.clone().max_dim(1);
    let picked = logits.clone().gather(1, targets.unsqueeze_dim(1)) - max.clone();
    // logsumexp − max is the min-entropy, and it normalises the target's logit.
    let entropy = (logits - max).exp().sum_dim(1).log();
    Tensor::cat(vec![picked - entropy.clone(), entropy], 1)
}

/// Returns the first place of the largest logit and the number of logits that are NaN or +∞, per
/// row of `[M, V]`: `[M, 2]`.
pub(crate) fn argmax(logits: Tensor<2>) -> Tensor<2> {
    on_cube!(logits.device() => cube::argmax(logits));
    let [_, vocabulary] = logits.dims();
    let logits = logits.cast(DType::F32);
    let largest = logits.clone().max_dim(1);
    // Among equal logits, the first wins on every device. An index of the vocabulary is exact in
    // f32.
    let places = Tensor::<1, Int>::arange(0..vocabulary as i64, &logits.device()).float().unsqueeze::<2>();
    let beyond = logits.clone().lower(largest).float() * vocabulary as f32;
    let first = (places + beyond).min_dim(1);
    let broken = (logits.clone().is_nan().float() + logits.equal_elem(f32::INFINITY).float()).sum_dim(1);
    Tensor::cat(vec![first, broken], 1)
}

/// Applies a repetition penalty to the logits `[M, V]` of `tokens`, `[M, n]`. The tokens of a row
/// differ; −1 fills short rows.
pub(super) fn penalise(logits: Tensor<2>, tokens: Tensor<2, Int>, penalty: f32) -> Tensor<2> {
    on_cube!(logits.device() => cube::penalise(logits, tokens, penalty));
    let ([rows, vocabulary], device) = (logits.dims(), logits.device());
    let mut rated = logits.into_data().try_into_vec::<f32>().expect("logits in f32");
    let tokens: Vec<i64> = tokens.into_data().iter::<i64>().collect();
    for (row, tokens) in rated.chunks_exact_mut(vocabulary).zip(tokens.chunks_exact(tokens.len() / rows)) {
        for &token in tokens.iter().filter(|token| **token >= 0) {
            let logit = &mut row[token as usize];
            *logit = if *logit < 0.0 { *logit * penalty } else { *logit / penalty };
        }
    }
    Tensor::from_data(TensorData::new(rated, [rows, vocabulary]), &device)
}

/// Selects the most probable tokens of every row of `rated`, once for each of `selections` and each
/// time among the tokens of the selection before. `shares` is `[selections, M]`. Of equal logits,
/// those of the first tokens count as more probable.
///
/// Returns, per row, the least probable token that is left, its log-probability in `logits`, in
/// nats, and the number of logits that are NaN or +∞, or one if no token can be selected: `[M, 3]`.
pub(super) fn select(logits: Tensor<2>, rated: Tensor<2>, selections: &[Selection], shares: Tensor<2>) -> Tensor<2> {
    on_cube!(logits.device() => cube::select(logits, rated, selections, shares));
    let ([rows, vocabulary], device) = (logits.dims(), logits.device());
    let [logits, rated, shares] =
        [logits, rated, shares].map(|tensor| tensor.into_data().try_into_vec::<f32>().expect("logits in f32"));
    let mut found = Vec::with_capacity(3 * rows);
    for (row, (logits, rated)) in logits.chunks_exact(vocabulary).zip(rated.chunks_exact(vocabulary)).enumerate() {
        let mut kept: Vec<usize> = (0..vocabulary).filter(|&token| rated[token] > f32::NEG_INFINITY).collect();
        // Adding zero makes −0 equal to 0.
        kept.sort_by(|&a, &b| (rated[b] + 0.0).total_cmp(&(rated[a] + 0.0)).then(a.cmp(&b)));
        for (selection, shares) in selections.iter().zip(shares.chunks_exact(rows)) {
            let weight = |token: usize| f64::from((rated[token] - rated[kept[0]]) * selection.rate()).exp();
            let whole: f64 = kept.iter().map(|&token| weight(token)).sum();
            let target = f64::from(shares[row]) * if selection.counts() { 1.0 } else { whole };
            let mut mass = 0.0;
            let last = kept.iter().position(|&token| {
                mass += weight(token);
                mass > target || (mass == target && !selection.is_strict())
            });
            kept.truncate(last.map_or(kept.len(), |last| last + 1));
        }
        let token = kept.last().copied().unwrap_or(0);
        let odd = logits.iter().filter(|logit| logit.is_nan() || **logit == f32::INFINITY).count();
        let odd = odd.max(usize::from(kept.is_empty()));
        let largest = logits.iter().copied().fold(f32::MIN, f32::max);
        let total: f64 = logits.iter().map(|&logit| f64::from(logit - largest).exp()).sum();
        found.extend([token as f32, (f64::from(logits[token] - largest) - total.ln()) as f32, odd as f32]);
    }
    Tensor::from_data(TensorData::new(found, [rows, 3]), &device)
}
