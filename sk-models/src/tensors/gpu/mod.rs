//! Kernels in CubeCL for what lies between the products of a layer.
//!
//! Composed of Burn's operations, each of these steps is three to nine kernels, and every one of them takes longer to ask for than to run
//! while few rows are read. Every kernel here is one launch. Sums are in f32, whatever comes in or goes out.

// Kernels are called with all they are given, most of it sizes, and know no iterators.
#![allow(clippy::too_many_arguments, clippy::needless_range_loop)]

mod kernels;

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, Cube, backend_extension};
use burn::tensor::DType;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::ops::{Heads, Sight};
use kernels::{
    by_place_kernel, gate_kernel, likeliest_kernel, norm_kernel, outline_kernel, read_kernel, turn_kernel, weigh_kernel,
};

/// Units that share a row.
const UNITS: u32 = 256;

/// What lies between the products of a layer, as single kernels.
#[backend_extension(Cube)]
pub(crate) trait CubeOps: Backend {
    /// See [`add_norm`](super::ops::add_norm).
    fn cube_add_norm(
        x: FloatTensor<Self>,
        change: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        epsilon: f32,
        format: DType,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);

    /// The same where nothing is added.
    fn cube_norm(x: FloatTensor<Self>, weight: FloatTensor<Self>, epsilon: f32, format: DType) -> FloatTensor<Self>;

    /// See [`turn`](super::ops::turn).
    fn cube_turn(
        projected: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        angles: FloatTensor<Self>,
        heads: Heads,
        lanes: usize,
        start: usize,
        places: usize,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);

    /// See [`weigh`](super::ops::weigh).
    fn cube_weigh(scores: FloatTensor<Self>, sight: Sight) -> FloatTensor<Self>;

    /// See [`by_place`](super::ops::by_place).
    fn cube_by_place(mixed: FloatTensor<Self>, heads: Heads, lanes: usize, places: usize, format: DType) -> FloatTensor<Self>;

    /// See [`gate`](super::ops::gate).
    fn cube_gate(both: FloatTensor<Self>, format: DType) -> FloatTensor<Self>;

    /// See [`read`](super::ops::read).
    fn cube_read(logits: FloatTensor<Self>, targets: IntTensor<Self>) -> FloatTensor<Self>;

    /// See [`likeliest`](super::ops::likeliest).
    fn cube_likeliest(logits: FloatTensor<Self>) -> FloatTensor<Self>;

    /// See [`outline`](super::ops::outline).
    fn cube_outline(logits: FloatTensor<Self>, rate: f32) -> FloatTensor<Self>;
}

/// A tensor whose rows lie one after the other, with a stride of their own, and that stride.
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

/// A cube for each row.
fn cubes(tensor: &CubeTensor, rows: usize) -> (CubeCount, CubeDim, u32) {
    let limit = tensor.client.properties().hardware.max_units_per_cube;
    let units = UNITS.min(1 << limit.max(1).ilog2());
    let dim = CubeDim::new_1d(units);
    (cubecl::calculate_cube_count_elemwise(&tensor.client, rows * units as usize, dim), dim, units)
}

/// A unit for each of `count` results.
fn units(tensor: &CubeTensor, count: usize) -> (CubeCount, CubeDim) {
    let dim = CubeDim::new(&tensor.client, count);
    (cubecl::calculate_cube_count_elemwise(&tensor.client, count, dim), dim)
}

fn norm(x: CubeTensor, change: Option<CubeTensor>, weight: CubeTensor, epsilon: f32, format: DType) -> (CubeTensor, CubeTensor) {
    let x = into_contiguous(x);
    let [rows, width] = x.meta.shape().dims();
    let (out, adds) = (empty(&x, [rows, width], format), change.is_some());
    // Where nothing is added, x stands for what is not looked at.
    let sum = if adds { empty(&x, [rows, width], DType::F32) } else { x.clone() };
    let (change, stride) = by_rows(change.unwrap_or_else(|| x.clone()));
    let (count, dim, units) = cubes(&x, rows);
    let client = x.client.clone();
    norm_kernel::launch(
        &client,
        count,
        dim,
        x.into_buffer_arg(),
        change.clone().into_buffer_arg(),
        into_contiguous(weight).into_buffer_arg(),
        sum.clone().into_buffer_arg(),
        out.clone().into_buffer_arg(),
        rows,
        width,
        stride,
        epsilon,
        adds,
        units,
        [element(change.dtype), element(format)],
    );
    (sum, out)
}

impl CubeOps for Cube {
    fn cube_add_norm(
        x: CubeTensor,
        change: CubeTensor,
        weight: CubeTensor,
        epsilon: f32,
        format: DType,
    ) -> (CubeTensor, CubeTensor) {
        norm(x, Some(change), weight, epsilon, format)
    }

    fn cube_norm(x: CubeTensor, weight: CubeTensor, epsilon: f32, format: DType) -> CubeTensor {
        norm(x, None, weight, epsilon, format).1
    }

    fn cube_turn(
        projected: CubeTensor,
        bias: CubeTensor,
        angles: CubeTensor,
        heads: Heads,
        lanes: usize,
        start: usize,
        places: usize,
    ) -> (CubeTensor, CubeTensor) {
        let Heads { queries, keys, width } = heads;
        let (projected, stride) = by_rows(projected);
        let rows = projected.meta.shape()[0];
        let query = empty(&projected, [lanes, keys, queries / keys * places, width], DType::F32);
        let others = empty(&projected, [lanes, 2 * keys, places, width], DType::F32);
        let pairs = lanes * places * (queries + 2 * keys) * width / 2;
        let (count, dim) = units(&projected, pairs);
        let client = projected.client.clone();
        turn_kernel::launch(
            &client,
            count,
            dim,
            projected.clone().into_buffer_arg(),
            into_contiguous(bias).into_buffer_arg(),
            into_contiguous(angles).into_buffer_arg(),
            query.clone().into_buffer_arg(),
            others.clone().into_buffer_arg(),
            rows / lanes,
            stride,
            start,
            places,
            queries,
            keys,
            width,
            heads.scale(),
            pairs,
            element(projected.dtype),
        );
        (query, others)
    }

    fn cube_weigh(scores: CubeTensor, sight: Sight) -> CubeTensor {
        let (scores, stride) = by_rows(scores);
        let [lanes, heads, queries, columns] = scores.meta.shape().dims();
        let out = empty(&scores, [lanes, heads, queries, columns], DType::F32);
        let rows = lanes * heads * queries;
        let (count, dim, units) = cubes(&scores, rows);
        let client = scores.client.clone();
        weigh_kernel::launch(
            &client,
            count,
            dim,
            scores.into_buffer_arg(),
            out.clone().into_buffer_arg(),
            rows,
            stride,
            columns,
            sight.places,
            sight.shared,
            sight.earlier,
            sight.rows,
            units,
        );
        out
    }

    fn cube_by_place(mixed: CubeTensor, heads: Heads, lanes: usize, places: usize, format: DType) -> CubeTensor {
        let (mixed, stride) = by_rows(mixed);
        let out = empty(&mixed, [lanes * places, heads.queries * heads.width], format);
        let number = lanes * places * heads.queries * heads.width;
        let (count, dim) = units(&mixed, number);
        let client = mixed.client.clone();
        by_place_kernel::launch(
            &client,
            count,
            dim,
            mixed.into_buffer_arg(),
            out.clone().into_buffer_arg(),
            stride,
            heads.queries,
            places,
            heads.width,
            number,
            element(format),
        );
        out
    }

    fn cube_gate(both: CubeTensor, format: DType) -> CubeTensor {
        let (both, stride) = by_rows(both);
        let [rows, width] = both.meta.shape().dims();
        let out = empty(&both, [rows, width / 2], format);
        let (count, dim) = units(&both, rows * width / 2);
        let client = both.client.clone();
        gate_kernel::launch(
            &client,
            count,
            dim,
            both.clone().into_buffer_arg(),
            out.clone().into_buffer_arg(),
            stride,
            width / 2,
            rows * width / 2,
            [element(both.dtype), element(format)],
        );
        out
    }

    fn cube_read(logits: CubeTensor, targets: CubeTensor) -> CubeTensor {
        let (logits, stride) = by_rows(logits);
        let [rows, vocabulary] = logits.meta.shape().dims();
        let out = empty(&logits, [rows, 2], DType::F32);
        let (count, dim, units) = cubes(&logits, rows);
        let client = logits.client.clone();
        read_kernel::launch(
            &client,
            count,
            dim,
            logits.clone().into_buffer_arg(),
            into_contiguous(targets).into_buffer_arg(),
            out.clone().into_buffer_arg(),
            rows,
            stride,
            vocabulary,
            units,
            element(logits.dtype),
        );
        out
    }

    fn cube_likeliest(logits: CubeTensor) -> CubeTensor {
        let (logits, stride) = by_rows(logits);
        let [rows, vocabulary] = logits.meta.shape().dims();
        let out = empty(&logits, [rows, 2], DType::F32);
        let (count, dim, units) = cubes(&logits, rows);
        let client = logits.client.clone();
        likeliest_kernel::launch(
            &client,
            count,
            dim,
            logits.clone().into_buffer_arg(),
            out.clone().into_buffer_arg(),
            rows,
            stride,
            vocabulary,
            units,
            element(logits.dtype),
        );
        out
    }

    fn cube_outline(logits: CubeTensor, rate: f32) -> CubeTensor {
        let logits = into_contiguous(logits);
        let [rows, blocks, block] = logits.meta.shape().dims();
        let parts = if rate == 1.0 { 2 } else { 3 };
        let out = empty(&logits, [rows, parts * blocks], DType::F32);
        let (count, dim) = units(&logits, rows * blocks);
        let client = logits.client.clone();
        outline_kernel::launch(
            &client,
            count,
            dim,
            logits.clone().into_buffer_arg(),
            out.clone().into_buffer_arg(),
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
