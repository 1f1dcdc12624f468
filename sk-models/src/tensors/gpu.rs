//! Kernels in CubeCL for what lies between the products of a layer.
//!
//! Composed of Burn's operations, each of these steps is three to nine kernels, and every one of them takes longer to ask for than to run
//! while few rows are read. Every kernel here is one launch. Sums are in f32, whatever comes in or goes out.

// Kernels are called with all they are given, most of it sizes, and know no iterators.
#![allow(clippy::too_many_arguments, clippy::needless_range_loop)]

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, Cube, backend_extension};
use burn::tensor::DType;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::ops::{Heads, Sight};

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

/// Sums a number of each unit of a cube; all get the sum.
#[cube]
fn sum_of_cube(own: f32, shared: &mut Shared<[f32]>) -> f32 {
    let unit = UNIT_POS as usize;
    sync_cube();
    shared[unit] = own;
    sync_cube();
    let mut half = (CUBE_DIM / 2) as usize;
    while half > 0 {
        if unit < half {
            shared[unit] += shared[unit + half];
        }
        half /= 2;
        sync_cube();
    }
    shared[0]
}

/// The largest of a number of each unit of a cube; all get it.
#[cube]
fn max_of_cube(own: f32, shared: &mut Shared<[f32]>) -> f32 {
    let unit = UNIT_POS as usize;
    sync_cube();
    shared[unit] = own;
    sync_cube();
    let mut half = (CUBE_DIM / 2) as usize;
    while half > 0 {
        if unit < half {
            shared[unit] = max(shared[unit], shared[unit + half]);
        }
        half /= 2;
        sync_cube();
    }
    shared[0]
}

/// The row of this cube. Cubes beyond the last one do its work again.
#[cube]
fn row_of_cube(rows: usize) -> usize {
    min(CUBE_POS, rows - 1)
}

#[cube(launch)]
fn norm_kernel<C: Float, O: Float>(
    x: &[f32],
    change: &[C],
    weight: &[f32],
    sum: &mut [f32],
    out: &mut [O],
    rows: usize,
    width: usize,
    change_stride: usize,
    epsilon: f32,
    #[comptime] adds: bool,
    #[comptime] units: u32,
    #[define(C, O)] _formats: [ElemType; 2],
) {
    let mut shared = Shared::<[f32]>::new_slice(units as usize);
    let row = row_of_cube(rows);
    let start = row * width;
    let mut squares = 0.0f32;
    let mut i = UNIT_POS as usize;
    while i < width {
        let mut value = x[start + i];
        if comptime![adds] {
            value += f32::cast_from(change[row * change_stride + i]);
            sum[start + i] = value;
        }
        squares += value * value;
        i += CUBE_DIM as usize;
    }
    let total = sum_of_cube(squares, &mut shared);
    let scale = 1.0 / (total / f32::cast_from(width) + epsilon).sqrt();
    let mut i = UNIT_POS as usize;
    while i < width {
        let value = if comptime![adds] { sum[start + i] } else { x[start + i] };
        out[start + i] = O::cast_from(value * scale * weight[i]);
        i += CUBE_DIM as usize;
    }
}

#[cube(launch)]
fn turn_kernel<P: Float>(
    projected: &[P],
    bias: &[f32],
    angles: &[f32],
    queries: &mut [f32],
    others: &mut [f32],
    lane_places: usize,
    stride: usize,
    start: usize,
    places: usize,
    query_heads: usize,
    key_heads: usize,
    width: usize,
    scale: f32,
    pairs: usize,
    #[define(P)] _format: ElemType,
) {
    if ABSOLUTE_POS >= pairs {
        terminate!();
    }
    let half = width / 2;
    let heads = query_heads + 2 * key_heads;
    let j = ABSOLUTE_POS % half;
    let place = (ABSOLUTE_POS / half) % places;
    let head = (ABSOLUTE_POS / (half * places)) % heads;
    let lane = ABSOLUTE_POS / (half * places * heads);
    let row = lane * lane_places + start + place;
    let column = head * width + j;
    let first = f32::cast_from(projected[row * stride + column]) + bias[column];
    let second = f32::cast_from(projected[row * stride + column + half]) + bias[column + half];
    let cos = angles[(start + place) * width + j];
    let sin = angles[(start + place) * width + half + j];
    if head < query_heads {
        let at = ((lane * query_heads + head) * places + place) * width + j;
        queries[at] = (first * cos - second * sin) * scale;
        queries[at + half] = (second * cos + first * sin) * scale;
    } else {
        let at = ((lane * 2 * key_heads + head - query_heads) * places + place) * width + j;
        if head < query_heads + key_heads {
            others[at] = first * cos - second * sin;
            others[at + half] = second * cos + first * sin;
        } else {
            others[at] = first;
            others[at + half] = second;
        }
    }
}

/// Whether the query at `place` of its group sees the key at `column`.
#[cube]
fn sees(column: usize, place: usize, shared: usize, earlier: usize, rows: usize) -> bool {
    let mut seen = true;
    if column >= shared {
        let own = column - shared;
        seen = own % rows == place % rows && own / rows <= earlier + place / rows;
    }
    seen
}

#[cube(launch)]
fn weigh_kernel(
    scores: &[f32],
    out: &mut [f32],
    rows: usize,
    stride: usize,
    columns: usize,
    places: usize,
    shared_keys: usize,
    earlier: usize,
    group_rows: usize,
    #[comptime] units: u32,
) {
    let mut shared = Shared::<[f32]>::new_slice(units as usize);
    let row = row_of_cube(rows);
    let place = row % places;
    let mut own = f32::min_value();
    let mut i = UNIT_POS as usize;
    while i < columns {
        if sees(i, place, shared_keys, earlier, group_rows) {
            own = max(own, scores[row * stride + i]);
        }
        i += CUBE_DIM as usize;
    }
    let largest = max_of_cube(own, &mut shared);
    let mut total = 0.0f32;
    let mut i = UNIT_POS as usize;
    while i < columns {
        let mut weight = 0.0f32;
        if sees(i, place, shared_keys, earlier, group_rows) {
            weight = (scores[row * stride + i] - largest).exp();
        }
        out[row * columns + i] = weight;
        total += weight;
        i += CUBE_DIM as usize;
    }
    let scale = 1.0 / sum_of_cube(total, &mut shared);
    let mut i = UNIT_POS as usize;
    while i < columns {
        out[row * columns + i] *= scale;
        i += CUBE_DIM as usize;
    }
}

#[cube(launch)]
fn by_place_kernel<O: Float>(
    mixed: &[f32],
    out: &mut [O],
    stride: usize,
    heads: usize,
    places: usize,
    width: usize,
    count: usize,
    #[define(O)] _format: ElemType,
) {
    if ABSOLUTE_POS >= count {
        terminate!();
    }
    let d = ABSOLUTE_POS % width;
    let head = (ABSOLUTE_POS / width) % heads;
    let place = (ABSOLUTE_POS / (width * heads)) % places;
    let lane = ABSOLUTE_POS / (width * heads * places);
    out[ABSOLUTE_POS] = O::cast_from(mixed[((lane * heads + head) * places + place) * stride + d]);
}

#[cube(launch)]
fn gate_kernel<I: Float, O: Float>(
    both: &[I],
    out: &mut [O],
    stride: usize,
    width: usize,
    count: usize,
    #[define(I, O)] _formats: [ElemType; 2],
) {
    if ABSOLUTE_POS >= count {
        terminate!();
    }
    let at = (ABSOLUTE_POS / width) * stride + ABSOLUTE_POS % width;
    let gate = f32::cast_from(both[at]);
    let up = f32::cast_from(both[at + width]);
    out[ABSOLUTE_POS] = O::cast_from(gate / (1.0 + (-gate).exp()) * up);
}

#[cube(launch)]
fn read_kernel<L: Float>(
    logits: &[L],
    targets: &[i32],
    out: &mut [f32],
    rows: usize,
    stride: usize,
    vocabulary: usize,
    #[comptime] units: u32,
    #[define(L)] _format: ElemType,
) {
    let mut shared = Shared::<[f32]>::new_slice(units as usize);
    let row = row_of_cube(rows);
    let start = row * stride;
    let mut own = f32::min_value();
    let mut i = UNIT_POS as usize;
    while i < vocabulary {
        own = max(own, f32::cast_from(logits[start + i]));
        i += CUBE_DIM as usize;
    }
    let largest = max_of_cube(own, &mut shared);
    let mut total = 0.0f32;
    let mut i = UNIT_POS as usize;
    while i < vocabulary {
        total += (f32::cast_from(logits[start + i]) - largest).exp();
        i += CUBE_DIM as usize;
    }
    let entropy = sum_of_cube(total, &mut shared).ln();
    if UNIT_POS == 0 {
        let target = f32::cast_from(logits[start + targets[row] as usize]);
        out[2 * row] = target - largest - entropy;
        out[2 * row + 1] = entropy;
    }
}

#[cube(launch)]
fn likeliest_kernel<L: Float>(
    logits: &[L],
    out: &mut [f32],
    rows: usize,
    stride: usize,
    vocabulary: usize,
    #[comptime] units: u32,
    #[define(L)] _format: ElemType,
) {
    let mut largest = Shared::<[f32]>::new_slice(units as usize);
    let mut places = Shared::<[u32]>::new_slice(units as usize);
    let mut broken = Shared::<[f32]>::new_slice(units as usize);
    let row = row_of_cube(rows);
    let start = row * stride;
    let unit = UNIT_POS as usize;
    let mut best = f32::min_value();
    let mut place = unit;
    let mut odd = 0.0f32;
    let mut i = unit;
    while i < vocabulary {
        let value = f32::cast_from(logits[start + i]);
        // By its bits, since a shader may take for granted that there is no such number.
        let bits = u32::reinterpret(value);
        if bits & 0x7f80_0000 == 0x7f80_0000 && bits != 0xff80_0000 {
            odd += 1.0;
        }
        if value > best {
            best = value;
            place = i;
        }
        i += CUBE_DIM as usize;
    }
    places[unit] = place as u32;
    largest[unit] = best;
    let odds = sum_of_cube(odd, &mut broken);
    let mut half = (CUBE_DIM / 2) as usize;
    while half > 0 {
        if unit < half {
            let other = largest[unit + half];
            let own = largest[unit];
            if other > own || (other == own && places[unit + half] < places[unit]) {
                largest[unit] = other;
                places[unit] = places[unit + half];
            }
        }
        half /= 2;
        sync_cube();
    }
    if UNIT_POS == 0 {
        out[2 * row] = f32::cast_from(places[0]);
        out[2 * row + 1] = odds;
    }
}

#[cube(launch)]
fn outline_kernel<L: Float>(
    logits: &[L],
    out: &mut [f32],
    blocks: usize,
    block: usize,
    rate: f32,
    count: usize,
    #[comptime] parts: usize,
    #[define(L)] _format: ElemType,
) {
    if ABSOLUTE_POS >= count {
        terminate!();
    }
    let start = ABSOLUTE_POS * block;
    let mut largest = f32::min_value();
    for i in start..start + block {
        largest = max(largest, f32::cast_from(logits[i]));
    }
    let mut mass = 0.0f32;
    let mut plain = 0.0f32;
    for i in start..start + block {
        let below = f32::cast_from(logits[i]) - largest;
        mass += (below * rate).exp();
        if comptime![parts == 3] {
            plain += below.exp();
        }
    }
    let row = ABSOLUTE_POS / blocks;
    let at = row * parts * blocks + ABSOLUTE_POS % blocks;
    out[at] = largest;
    out[at + blocks] = mass;
    if comptime![parts == 3] {
        out[at + 2 * blocks] = plain;
    }
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
