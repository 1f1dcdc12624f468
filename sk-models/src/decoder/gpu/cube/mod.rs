//! Kernels in CubeCL for the steps between the products of a layer and, for few rows, for products
//! and attention.
//!
//! With Burn's operations, each of these steps is three to nine kernels, and for few rows launching
//! a kernel takes longer than running it. Here a step is one kernel, and attention is two. Sums are
//! in f32 for every input and output format.

// Kernels take many sizes, and CubeCL has no iterators.
#![allow(clippy::too_many_arguments, clippy::needless_range_loop)]

mod attention;
mod kernels;
mod products;
#[cfg(test)]
mod tests;

use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, Cube, DispatchDevice, backend_extension};
use burn::tensor::{DType, Device, Slice};
use burn_cubecl::kernel::{cast, into_contiguous};
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::shape::{Heads, Own, Sight};
use attention::{decode_attention, decodes};
use kernels::attention::{adopt_kernel, by_place_kernel, refresh_kernel, rotate_kernel, softmax_kernel};
use kernels::layer::{gate_kernel, norm_kernel};
use kernels::logits::{argmax_kernel, outline_kernel, read_kernel};
use products::{few_rows, product, spread};

/// Units that share a row.
const UNITS: u32 = 256;

/// Bytes that a unit reads at once.
const LINE: usize = 16;

/// The steps of a layer.
#[backend_extension(Cube)]
pub(crate) trait CubeOps: Backend {
    /// See [`multiply`](super::ops::multiply) and [`multiply_whole`](super::ops::multiply_whole).
    fn cube_multiply(x: FloatTensor<Self>, weight: FloatTensor<Self>, whole: bool) -> FloatTensor<Self>;

    /// See [`product`](super::ops::product).
    fn cube_product(a: FloatTensor<Self>, b: FloatTensor<Self>) -> FloatTensor<Self>;

    /// See [`add_norm`](super::ops::add_norm). If `adapted` is false, here and below, `delta` is
    /// ignored.
    fn cube_add_norm(
        x: FloatTensor<Self>,
        change: FloatTensor<Self>,
        delta: FloatTensor<Self>,
        adapted: bool,
        weight: FloatTensor<Self>,
        epsilon: f32,
        format: DType,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);

    /// See [`add_norm`](super::ops::add_norm), without a change.
    fn cube_norm(x: FloatTensor<Self>, weight: FloatTensor<Self>, epsilon: f32, format: DType) -> FloatTensor<Self>;

    /// See [`rotate`](super::ops::rotate).
    fn cube_rotate(
        projected: FloatTensor<Self>,
        delta: FloatTensor<Self>,
        adapted: bool,
        bias: FloatTensor<Self>,
        angles: FloatTensor<Self>,
        numbers: IntTensor<Self>,
        at: usize,
        heads: Heads,
        own: Own,
        rows: usize,
        cache: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);

    /// See [`attend`](super::ops::attend).
    fn cube_attend(
        queries: FloatTensor<Self>,
        cache: FloatTensor<Self>,
        numbers: IntTensor<Self>,
        at: usize,
        room: usize,
        heads: Heads,
        lanes: usize,
        sight: Sight,
        format: DType,
    ) -> FloatTensor<Self>;

    /// See [`softmax`](super::ops::softmax).
    fn cube_softmax(scores: FloatTensor<Self>, sight: Sight, format: DType) -> FloatTensor<Self>;

    /// See [`by_place`](super::ops::by_place).
    fn cube_by_place(mixed: FloatTensor<Self>, heads: Heads, lanes: usize, places: usize, format: DType) -> FloatTensor<Self>;

    /// See [`adopt`](super::ops::adopt).
    fn cube_adopt(cache: FloatTensor<Self>, start: usize, tokens: usize, rows: usize, row: usize) -> FloatTensor<Self>;

    /// See [`refresh`](super::ops::refresh).
    fn cube_refresh(old: IntTensor<Self>, new: IntTensor<Self>) -> IntTensor<Self>;

    /// See [`gate`](super::ops::gate).
    fn cube_gate(both: FloatTensor<Self>, delta: FloatTensor<Self>, adapted: bool, format: DType) -> FloatTensor<Self>;

    /// See [`spread`](super::ops::spread); `widths` are the outputs of each target.
    fn cube_spread(low: FloatTensor<Self>, second: FloatTensor<Self>, widths: Vec<usize>) -> FloatTensor<Self>;

    /// See [`read`](super::ops::read).
    fn cube_read(logits: FloatTensor<Self>, targets: IntTensor<Self>) -> FloatTensor<Self>;

    /// See [`argmax`](super::ops::argmax).
    fn cube_argmax(logits: FloatTensor<Self>) -> FloatTensor<Self>;

    /// See [`outline`](super::ops::outline).
    fn cube_outline(logits: FloatTensor<Self>, rate: f32) -> FloatTensor<Self>;
}

/// Returns a tensor whose rows have an even stride, and the stride.
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
    let limit = tensor.client.properties().hardware.max_units_per_cube;
    let units = UNITS.min(1 << limit.max(1).ilog2());
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

fn norm(
    x: CubeTensor,
    change: Option<(CubeTensor, CubeTensor, bool)>,
    weight: CubeTensor,
    epsilon: f32,
    format: DType,
) -> (CubeTensor, CubeTensor) {
    let x = into_contiguous(x);
    let [rows, width] = x.meta.shape().dims();
    let (out, adds) = (empty(&x, [rows, width], format), change.is_some());
    // Without a change, pass x for the buffers that the kernel ignores.
    let sum = if adds { empty(&x, [rows, width], DType::F32) } else { x.clone() };
    let (change, delta, adapted) = change.unwrap_or_else(|| (x.clone(), x.clone(), false));
    let ((change, stride), (delta, delta_stride)) = (by_rows(change), by_rows(delta));
    let (count, dim, units) = cubes(&x, rows);
    launch!(
        norm_kernel,
        x,
        (count, dim),
        [x, change, delta, into_contiguous(weight), sum, out],
        rows,
        width,
        stride,
        delta_stride,
        epsilon,
        adds,
        adapted,
        units,
        [element(change.dtype), element(format)],
    );
    (sum, out)
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

/// Returns whether attention on this device reads the position of a group of `places` places in
/// each of `lanes` lanes from a tensor.
pub(super) fn reads_place(device: &Device, heads: Heads, lanes: usize, places: usize) -> bool {
    match device.as_dispatch() {
        DispatchDevice::Cube(device) => decodes(&device.client(), heads, lanes, places),
        _ => false,
    }
}

impl CubeOps for Cube {
    fn cube_multiply(x: CubeTensor, weight: CubeTensor, whole: bool) -> CubeTensor {
        few_rows(&x, &weight, whole).unwrap_or_else(|| {
            let (rows, entry) = (x.meta.shape()[0], weight.dtype);
            let format = if whole || rows <= FEW { DType::F32 } else { entry };
            product(if x.dtype == entry { x } else { cast(x, entry) }, weight, format)
        })
    }

    fn cube_product(a: CubeTensor, b: CubeTensor) -> CubeTensor {
        product(a, b, DType::F32)
    }

    fn cube_add_norm(
        x: CubeTensor,
        change: CubeTensor,
        delta: CubeTensor,
        adapted: bool,
        weight: CubeTensor,
        epsilon: f32,
        format: DType,
    ) -> (CubeTensor, CubeTensor) {
        norm(x, Some((change, delta, adapted)), weight, epsilon, format)
    }

    fn cube_norm(x: CubeTensor, weight: CubeTensor, epsilon: f32, format: DType) -> CubeTensor {
        norm(x, None, weight, epsilon, format).1
    }

    fn cube_rotate(
        projected: CubeTensor,
        delta: CubeTensor,
        adapted: bool,
        bias: CubeTensor,
        angles: CubeTensor,
        numbers: CubeTensor,
        at: usize,
        heads: Heads,
        own: Own,
        group_rows: usize,
        cache: CubeTensor,
    ) -> (CubeTensor, CubeTensor) {
        let (Heads { queries, keys, width }, Own { lanes, start, places }) = (heads, own);
        let (projected, stride) = by_rows(projected);
        let rows = projected.meta.shape()[0];
        let bias = into_contiguous(bias);
        let (delta, delta_stride) = if adapted { by_rows(delta) } else { (delta, 0) };
        // A new cache may have gaps. After its first pass it has none and is written in place.
        let cache = into_contiguous(cache);
        let capacity = cache.meta.shape()[2];
        let query = empty(&projected, [lanes, keys, queries / keys * places, width], cache.dtype);
        let pairs = lanes * places * (queries + 2 * keys) * width / 2;
        let (count, dim) = units(&projected, pairs);
        launch!(
            rotate_kernel,
            projected,
            (count, dim),
            [projected, delta, bias, into_contiguous(angles), into_contiguous(numbers), query, cache],
            at,
            group_rows,
            rows / lanes,
            stride,
            delta_stride,
            start,
            places,
            queries,
            keys,
            width,
            capacity,
            heads.scale(),
            pairs,
            adapted,
            [element(projected.dtype), element(cache.dtype)],
        );
        (query, cache)
    }

    fn cube_attend(
        queries: CubeTensor,
        cache: CubeTensor,
        numbers: CubeTensor,
        at: usize,
        room: usize,
        heads: Heads,
        lanes: usize,
        sight: Sight,
        format: DType,
    ) -> CubeTensor {
        if decodes(&queries.client, heads, lanes, sight.places) {
            return decode_attention(queries, cache, (numbers, at), room, heads, lanes, sight, format);
        }
        let part = |from: usize| {
            let part = [0..lanes, from..from + heads.keys, 0..sight.keys(), 0..heads.width];
            Self::float_slice(cache.clone(), &part.map(Slice::from))
        };
        let keys = Self::float_swap_dims(part(0), 2, 3);
        let weights = Self::cube_softmax(product(queries, keys, DType::F32), sight, cache.dtype);
        let mixed = product(weights, part(heads.keys), DType::F32);
        Self::cube_by_place(mixed, heads, lanes, sight.places, format)
    }

    fn cube_softmax(scores: CubeTensor, sight: Sight, format: DType) -> CubeTensor {
        let (scores, stride) = by_rows(scores);
        let [lanes, heads, queries, columns] = scores.meta.shape().dims();
        let out = empty(&scores, [lanes, heads, queries, columns], format);
        let rows = lanes * heads * queries;
        let (count, dim, units) = cubes(&scores, rows);
        launch!(
            softmax_kernel,
            scores,
            (count, dim),
            [scores, out],
            rows,
            stride,
            columns,
            sight.places,
            sight.shared,
            sight.earlier,
            sight.rows,
            units,
            element(format),
        );
        out
    }

    fn cube_by_place(mixed: CubeTensor, heads: Heads, lanes: usize, places: usize, format: DType) -> CubeTensor {
        let (mixed, stride) = by_rows(mixed);
        let out = empty(&mixed, [lanes * places, heads.queries * heads.width], format);
        let number = lanes * places * heads.queries * heads.width;
        let (count, dim) = units(&mixed, number);
        launch!(
            by_place_kernel,
            mixed,
            (count, dim),
            [mixed, out],
            stride,
            heads.queries,
            places,
            heads.width,
            number,
            element(format),
        );
        out
    }

    fn cube_adopt(cache: CubeTensor, start: usize, tokens: usize, rows: usize, row: usize) -> CubeTensor {
        let cache = into_contiguous(cache);
        let [lanes, heads, capacity, width] = cache.meta.shape().dims();
        let number = lanes * heads * width;
        let (count, dim) = units(&cache, number);
        launch!(
            adopt_kernel,
            cache,
            (count, dim),
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
        cache
    }

    fn cube_refresh(old: CubeTensor, new: CubeTensor) -> CubeTensor {
        let number = new.meta.shape().num_elements();
        let (count, dim) = units(&old, number);
        launch!(refresh_kernel, old, (count, dim), [new, old], number);
        old
    }

    fn cube_gate(both: CubeTensor, delta: CubeTensor, adapted: bool, format: DType) -> CubeTensor {
        let (both, stride) = by_rows(both);
        let [rows, width] = both.meta.shape().dims();
        let out = empty(&both, [rows, width / 2], format);
        let (delta, delta_stride) = by_rows(delta);
        let (count, dim) = units(&both, rows * width / 2);
        launch!(
            gate_kernel,
            both,
            (count, dim),
            [both, delta, out],
            stride,
            delta_stride,
            width / 2,
            rows * width / 2,
            adapted,
            [element(both.dtype), element(format)],
        );
        out
    }

    fn cube_spread(low: CubeTensor, second: CubeTensor, widths: Vec<usize>) -> CubeTensor {
        spread(low, second, &widths)
    }

    fn cube_read(logits: CubeTensor, targets: CubeTensor) -> CubeTensor {
        let (logits, stride) = by_rows(logits);
        let [rows, vocabulary] = logits.meta.shape().dims();
        let out = empty(&logits, [rows, 2], DType::F32);
        let (count, dim, units) = cubes(&logits, rows);
        launch!(
            read_kernel,
            logits,
            (count, dim),
            [logits, into_contiguous(targets), out],
            rows,
            stride,
            vocabulary,
            units,
            element(logits.dtype),
        );
        out
    }

    fn cube_argmax(logits: CubeTensor) -> CubeTensor {
        let (logits, stride) = by_rows(logits);
        let [rows, vocabulary] = logits.meta.shape().dims();
        let out = empty(&logits, [rows, 2], DType::F32);
        let (count, dim, units) = cubes(&logits, rows);
        launch!(argmax_kernel, logits, (count, dim), [logits, out], rows, stride, vocabulary, units, element(logits.dtype),);
        out
    }

    fn cube_outline(logits: CubeTensor, rate: f32) -> CubeTensor {
        let logits = into_contiguous(logits);
        let [rows, blocks, block] = logits.meta.shape().dims();
        let parts = if rate == 1.0 { 2 } else { 3 };
        let out = empty(&logits, [rows, parts * blocks], DType::F32);
        let (count, dim) = units(&logits, rows * blocks);
        launch!(
            outline_kernel,
            logits,
            (count, dim),
            [logits, out],
            blocks,
            block,
            rate,
            rows * blocks,
            parts,
            element(logits.dtype),
        );
        out
    }
}
