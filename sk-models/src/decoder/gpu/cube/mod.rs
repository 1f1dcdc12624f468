//! Kernels in CubeCL for the steps between the products of a layer and, for few rows, for products
//! and attention.
//!
//! With Burn's operations, each of these steps is three to nine kernels, and for few rows launching
//! a kernel takes longer than running it. Here a step is one kernel, and attention is two. Sums are
//! in f32 for every input and output format.

// Kernels take many sizes, and CubeCL has no iterators.
#![allow(clippy::too_many_arguments, clippy::needless_range_loop)]

mod attention;
mod draw;
mod kernels;
mod products;
#[cfg(test)]
mod tests;

use burn::backend::Cube;
use burn::tensor::{DType, Int, IntDType, Tensor};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::operands::{AttentionGroup, Changed};
use super::shape::Visibility;
use crate::decoder::heads::Heads;
use crate::model::Norm;
use kernels::attention::{adopt_kernel, by_place_kernel, refresh_kernel, rotate_kernel, softmax_kernel};
use kernels::layer::{gate_kernel, norm_kernel};
use kernels::logits::{argmax_kernel, read_kernel};

pub(super) use attention::{attend, reads_place};
pub(super) use draw::{penalise, select};
pub(super) use products::{low_rank, multiply, product};

/// Units that share a row.
const UNITS: u32 = 256;

/// Bytes that a unit reads at once.
const LINE: usize = 16;

/// The message of the panic if a tensor is on a device without CubeCL. Callers check the device.
const ELSEWHERE: &str = "kernels get tensors of their own device";

/// Returns the buffer of a tensor.
fn floats<const D: usize>(tensor: Tensor<D>) -> CubeTensor {
    tensor.try_into_primitive::<Cube>().expect(ELSEWHERE)
}

/// Returns the buffer of a tensor of integers.
fn integers(tensor: Tensor<1, Int>) -> CubeTensor {
    tensor.try_into_primitive::<Cube>().expect(ELSEWHERE)
}

/// Returns the tensor in a buffer of floats.
fn tensor<const D: usize>(buffer: CubeTensor) -> Tensor<D> {
    Tensor::from_primitive::<Cube>(buffer)
}

/// Returns a tensor whose rows are evenly spaced, and their stride.
fn by_rows(tensor: CubeTensor) -> (CubeTensor, usize) {
    let (shape, strides) = (tensor.meta.shape(), tensor.meta.strides());
    let rank = shape.len();
    let stride = strides[rank - 2];
    let mut expected = stride;
    let even = strides[rank - 1] == 1
        && (0..rank - 1).rev().all(|dim| {
            let fits = shape[dim] == 1 || strides[dim] == expected;
            expected *= shape[dim];
            fits
        });
    if even && stride > 0 {
        return (tensor, stride);
    }
    let tensor = into_contiguous(tensor);
    let width = tensor.meta.shape()[rank - 1];
    (tensor, width)
}

fn empty<const D: usize>(like: &CubeTensor, shape: [usize; D], format: DType) -> CubeTensor {
    empty_device_contiguous_dtype(like.client.clone(), like.device.clone(), shape.into(), format)
}

fn element(format: DType) -> ElemType {
    burn::backend::cubecl::dtype_to_storage_type(format)
}

/// Returns a launch of one cube per row.
fn cubes(tensor: &CubeTensor, rows: usize) -> (CubeCount, CubeDim, u32) {
    cubes_of(tensor, rows, UNITS)
}

/// Returns a launch of one cube per row, with at most `units` units, a power of two.
fn cubes_of(tensor: &CubeTensor, rows: usize, units: u32) -> (CubeCount, CubeDim, u32) {
    let limit = tensor.client.properties().hardware.max_units_per_cube;
    let units = units.min(1 << limit.max(1).ilog2());
    let dim = CubeDim::new_1d(units);
    (cubecl::calculate_cube_count_elemwise(&tensor.client, rows * units as usize, dim), dim, units)
}

/// Returns a launch of one unit for each of `count` results.
fn units(tensor: &CubeTensor, count: usize) -> (CubeCount, CubeDim) {
    let dim = CubeDim::new(&tensor.client, count);
    (cubecl::calculate_cube_count_elemwise(&tensor.client, count, dim), dim)
}

/// Launches a kernel on the device of a tensor, given the number and size of its cubes, the length
/// of its vectors if it has any, its buffers and its other arguments.
macro_rules! launch {
    ($kernel:ident, $on:expr, $grid:expr, $(vectors: $size:expr,)? [$($buffer:expr),*], $($argument:expr),* $(,)?) => {{
        let (client, (count, dim)) = ($on.client.clone(), $grid);
        $kernel::launch(&client, count, dim, $($size,)? $($buffer.clone().into_buffer_arg(),)* $($argument),*);
    }};
}
use launch;

/// The largest number of rows for which reading matrices and keys takes longer than multiplying by
/// them.
const FEW: usize = 16;

/// The summands of a [`Changed`], and the distance between the rows of each.
struct Summands {
    frozen: CubeTensor,
    stride: usize,
    /// Without an update, the other summand, which kernels ignore then.
    delta: CubeTensor,
    delta_stride: usize,
    adapted: bool,
}

impl From<Changed> for Summands {
    fn from(Changed { frozen, delta }: Changed) -> Self {
        let adapted = delta.is_some();
        let (frozen, stride) = by_rows(floats(frozen));
        let (delta, delta_stride) = delta.map_or_else(|| (frozen.clone(), stride), |delta| by_rows(floats(delta)));
        Self { frozen, stride, delta, delta_stride, adapted }
    }
}

/// See [`add_norm`](super::ops::add_norm).
pub(super) fn add_norm(x: Tensor<2>, change: Option<Changed>, norm: &Norm, format: DType) -> (Tensor<2>, Tensor<2>) {
    let adds = change.is_some();
    // Without a change, pass x for the buffers that the kernel ignores.
    let change = change.unwrap_or_else(|| Changed { frozen: x.clone(), delta: None });
    let Summands { frozen, stride, delta, delta_stride, adapted } = change.into();
    let x = into_contiguous(floats(x));
    let [rows, width] = x.meta.shape().dims();
    let out = empty(&x, [rows, width], format);
    let sum = if adds { empty(&x, [rows, width], DType::F32) } else { x.clone() };
    let (count, dim, units) = cubes(&x, rows);
    launch!(
        norm_kernel,
        x,
        (count, dim),
        [x, frozen, delta, into_contiguous(floats(norm.weight.val())), sum, out],
        rows,
        width,
        stride,
        delta_stride,
        norm.epsilon() as f32,
        adds,
        adapted,
        units as usize,
        width.div_ceil(units as usize),
        [element(frozen.dtype), element(format)],
    );
    (tensor(sum), tensor(out))
}

/// Returns the largest vector of at most `most` numbers that divides `width` and on whose multiples
/// all tensors begin.
fn vector_of(most: usize, tensors: [&CubeTensor; 2], width: usize) -> usize {
    let fits = |size: usize| {
        width.is_multiple_of(size) && tensors.into_iter().all(|tensor| begins_at(tensor, size * tensor.dtype.size()))
    };
    (0..=most.ilog2()).rev().map(|power| 1 << power).find(|&size| fits(size)).unwrap_or(1)
}

/// Returns whether a tensor begins at a multiple of `bytes` in its buffer.
fn begins_at(tensor: &CubeTensor, bytes: usize) -> bool {
    tensor.handle.offset_start.unwrap_or(0).is_multiple_of(bytes as u64)
}

/// See [`rotate`](super::ops::rotate).
pub(super) fn rotate(
    projected: Changed,
    bias: Tensor<1>,
    angles: Tensor<2>,
    group: &AttentionGroup,
    cache: Tensor<4>,
) -> (Tensor<4>, Tensor<4>) {
    let &AttentionGroup { heads, lanes, start, visibility: Visibility { places, rows, .. }, at, .. } = group;
    let Heads { queries, keys, width } = heads;
    let Summands { frozen, stride, delta, delta_stride, adapted } = projected.into();
    let [bias, angles] = [floats(bias), floats(angles)].map(into_contiguous);
    // A new cache may have gaps. After its first pass it has none and is written in place.
    let cache = into_contiguous(floats(cache));
    let query = empty(&frozen, [lanes, keys, heads.queries_per_key() * places, width], cache.dtype);
    let pairs = lanes * places * (queries + 2 * keys) * width / 2;
    launch!(
        rotate_kernel,
        frozen,
        units(&frozen, pairs),
        [frozen, delta, bias, angles, into_contiguous(integers(group.numbers.clone())), query, cache],
        at,
        rows,
        frozen.meta.shape()[0] / lanes,
        stride,
        delta_stride,
        start,
        places,
        queries,
        keys,
        width,
        cache.meta.shape()[2],
        heads.scale(),
        pairs,
        adapted,
        [element(frozen.dtype), element(cache.dtype)],
    );
    (tensor(query), tensor(cache))
}

/// See [`softmax`](super::ops::softmax).
pub(super) fn softmax(scores: Tensor<4>, visibility: Visibility, format: DType) -> Tensor<4> {
    let (scores, stride) = by_rows(floats(scores));
    let [lanes, heads, queries, columns] = scores.meta.shape().dims();
    let out = empty(&scores, [lanes, heads, queries, columns], format);
    let rows = lanes * heads * queries;
    // A few columns for each unit: adding up the sums of many units takes longer.
    let (count, dim, units) = cubes_of(&scores, rows, (columns / 8).next_power_of_two().clamp(32, UNITS as usize) as u32);
    launch!(
        softmax_kernel,
        scores,
        (count, dim),
        [scores, out],
        rows,
        stride,
        columns,
        visibility.places,
        visibility.shared,
        visibility.earlier,
        visibility.rows,
        units,
        element(format),
    );
    tensor(out)
}

/// See [`by_place`](super::ops::by_place).
pub(super) fn by_place(mixed: Tensor<4>, heads: Heads, lanes: usize, places: usize, format: DType) -> Tensor<2> {
    let (mixed, stride) = by_rows(floats(mixed));
    let out = empty(&mixed, [lanes * places, heads.queries * heads.width], format);
    let number = lanes * places * heads.queries * heads.width;
    launch!(
        by_place_kernel,
        mixed,
        units(&mixed, number),
        [mixed, out],
        stride,
        heads.queries,
        places,
        heads.width,
        number,
        element(format),
    );
    tensor(out)
}

/// See [`adopt`](super::ops::adopt).
pub(super) fn adopt(cache: Tensor<4>, start: usize, tokens: usize, rows: usize, row: usize) -> Tensor<4> {
    let cache = into_contiguous(floats(cache));
    let [lanes, heads, capacity, width] = cache.meta.shape().dims();
    let number = lanes * heads * width;
    launch!(
        adopt_kernel,
        cache,
        units(&cache, number),
        [cache],
        capacity,
        width,
        start,
        tokens,
        rows,
        row,
        number,
        element(cache.dtype),
    );
    tensor(cache)
}

/// See [`refresh`](super::ops::refresh).
pub(super) fn refresh(old: Tensor<1, Int>, new: Tensor<1, Int>) -> Tensor<1, Int> {
    let (old, new) = (integers(old), integers(new));
    let number = new.meta.shape().num_elements();
    launch!(refresh_kernel, old, units(&old, number), [new, old], number);
    Tensor::from_primitive::<Cube>(old)
}

/// See [`gate`](super::ops::gate).
pub(super) fn gate(both: Changed, format: DType) -> Tensor<2> {
    let Summands { frozen, stride, delta, delta_stride, adapted } = both.into();
    let [rows, width] = frozen.meta.shape().dims();
    let out = empty(&frozen, [rows, width / 2], format);
    launch!(
        gate_kernel,
        frozen,
        units(&frozen, rows * width / 2),
        [frozen, delta, out],
        stride,
        delta_stride,
        width / 2,
        rows * width / 2,
        adapted,
        [element(frozen.dtype), element(format)],
    );
    tensor(out)
}

/// See [`read`](super::ops::read).
pub(super) fn read(logits: Tensor<2>, targets: Tensor<1, Int>) -> Tensor<2> {
    let targets = into_contiguous(integers(targets.cast(IntDType::I32)));
    let (logits, stride) = by_rows(floats(logits));
    let [rows, vocabulary] = logits.meta.shape().dims();
    let out = empty(&logits, [rows, 2], DType::F32);
    let (count, dim, units) = cubes(&logits, rows);
    launch!(read_kernel, logits, (count, dim), [logits, targets, out], rows, stride, vocabulary, units, element(logits.dtype));
    tensor(out)
}

/// See [`argmax`](super::ops::argmax).
pub(super) fn argmax(logits: Tensor<2>) -> Tensor<2> {
    let (logits, stride) = by_rows(floats(logits));
    let [rows, vocabulary] = logits.meta.shape().dims();
    let out = empty(&logits, [rows, 2], DType::F32);
    let (count, dim, units) = cubes(&logits, rows);
    launch!(argmax_kernel, logits, (count, dim), [logits, out], rows, stride, vocabulary, units, element(logits.dtype));
    tensor(out)
}
