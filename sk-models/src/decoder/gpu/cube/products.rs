use burn::tensor::{DType, Tensor};
use burn_cubecl::kernel::matmul::init_matmul_output;
use burn_cubecl::kernel::{cast, into_contiguous};
use burn_cubecl::tensor::CubeTensor;
use cubecl::features::MmaConfig;
use cubecl::prelude::*;
use cubek::matmul::definition::{MatmulElems, MatmulGlobalElems};
use cubek::matmul::launch::launch_ref;
use cubek::matmul::multi_level::Strategy;
use cubek::matmul::multi_level::components::global::{InputLoadFlow, LoadFlows};
use cubek::matmul::multi_level::components::stage::PartitionBuffering;
use cubek::matmul::multi_level::components::tile::TileMatmulKind;
use cubek::matmul::multi_level::definition::{BatchMatmulBlueprint, TilingScheme};
use cubek::matmul::multi_level::routines::batch::simple::SimpleArgs;
use cubek::matmul::multi_level::stage::{SwizzleMode, SwizzleModes};
use cubek::matmul::routine::BlueprintStrategy;
use cubek::std::cube_count::{GlobalOrder, HypercubeBlueprint};
use cubek::std::{InputBinding, MatrixLayout};

use super::kernels::products::{
    Low, PLANE_COLUMNS, PLANE_LINES, SIDE, Spread, low_kernel, parts_of_sum, rows_kernel, spread_kernel, tensor_rows_kernel,
};
use super::{FEW, LINE, UNITS, begins_at, by_rows, element, empty, floats, launch, tensor};
use crate::lora::LaneDelta;

/// See [`multiply`](crate::decoder::gpu::ops::multiply) and, if `whole`,
/// [`multiply_whole`](crate::decoder::gpu::ops::multiply_whole).
pub(in crate::decoder::gpu) fn multiply(x: &Tensor<2>, weight: &Tensor<2>, whole: bool) -> Tensor<2> {
    let (x, weight) = (floats(x.clone()), floats(weight.clone()));
    let few = few_rows_on_tensor_cores(&x, &weight).or_else(|| few_rows(&x, &weight, whole));
    let out = few.unwrap_or_else(|| {
        let (rows, entry) = (x.meta.shape()[0], weight.dtype);
        let format = if whole || rows <= FEW { DType::F32 } else { entry };
        product_in(if x.dtype == entry { x } else { cast(x, entry) }, weight, format)
    });
    tensor(out)
}

/// See [`product`](crate::decoder::gpu::ops::product).
pub(in crate::decoder::gpu) fn product(a: Tensor<4>, b: Tensor<4>) -> Tensor<4> {
    tensor(product_in(floats(a), floats(b), DType::F32))
}

/// Computes a product in `format`, with sums in f32.
///
/// The formats, the layout and the device select the kernel, so that equal numbers give equal bits
/// and a run compiles few kernels. Burn would compile and time some twenty-five per shape, which
/// takes minutes on an H200.
fn product_in(a: CubeTensor, b: CubeTensor, format: DType) -> CubeTensor {
    let out = init_matmul_output(&a, &b, format);
    let strategies = strategies(&a, &b);
    let client = a.client.clone();
    let [left, right, result] = [&a, &b, &out].map(|tensor| element(tensor.dtype));
    let [a, b] = [(a, left), (b, right)].map(|(factor, element)| InputBinding::new(factor.binding(), element));
    let launched = strategies.into_iter().any(|strategy| {
        let mut elements = MatmulElems::from_globals(&MatmulGlobalElems { lhs: left, rhs: right, out: result });
        launch_ref(&strategy.into(), &client, a.clone(), b.clone(), out.clone().binding(), &mut elements).is_ok()
    });
    assert!(launched, "the factors fit together, and units need no other hardware");
    out
}

/// Returns the strategies for a product, the fastest first. Each may need hardware or a layout that
/// is not there, except the last.
///
/// Only matrices take the first, because the test of attention failed with it for a batch that is a
/// view. For products of f32 the last is the only one that keeps all bits: tensor cores keep
/// eleven.
fn strategies(a: &CubeTensor, b: &CubeTensor) -> Vec<Strategy> {
    let units = Strategy::SimpleUnit(Default::default());
    if a.dtype == DType::F32 || b.dtype == DType::F32 {
        return vec![units];
    }
    let rows = SimpleArgs { multi_rows: true, ..Default::default() };
    let tensor_cores = Strategy::SimpleCyclicCmma(BlueprintStrategy::Inferred(rows));
    let copied_by_tiles = [a, b].into_iter().all(|tensor| {
        let whole = |&stride: &usize| stride == 1 || (stride * tensor.dtype.size()).is_multiple_of(LINE);
        tensor.meta.shape().num_dims() == 2 && begins_at(tensor, LINE) && tensor.meta.strides().iter().all(whole)
    });
    if !copied_by_tiles {
        return vec![tensor_cores, units];
    }
    let own = blueprint(a, b).map(BlueprintStrategy::Forced);
    let tiles = own.into_iter().chain([BlueprintStrategy::default()]).map(Strategy::SpecializedTmaMma);
    tiles.chain([tensor_cores, units]).collect()
}

/// Returns the division of a product with tiles that the tensor memory accelerator copies, or
/// `None` for CubeK's own, which has smaller tiles.
///
/// A cube computes 96 × 256 results with eight planes of 48 × 64 each, 64 terms at a time: 128 bytes
/// of a row, the most that CubeK swizzles. For 672 rows of bf16 and the matrices of Qwen2.5-7B, this
/// reaches 204 to 355 TFLOP/s on an H200, and CubeK's own division, with half as many terms at a
/// time, 115 to 203.
fn blueprint(a: &CubeTensor, b: &CubeTensor) -> Option<BatchMatmulBlueprint> {
    /// Up to this many rows, CubeK's own division is used.
    const ROWS: usize = 64;
    let [rows, depth] = a.meta.shape().dims();
    let [_, columns] = b.meta.shape().dims();
    if rows <= ROWS || a.meta.strides()[1] != 1 || b.meta.strides()[0] != 1 {
        return None;
    }
    let tiling_scheme = TilingScheme::builder()
        .with_tile_size((16, 8, 16).into())
        .with_partition_size((3, 8, 4).into())
        .with_stage_size((2, 4, 1).into())
        .build()
        .ok()?;
    let swizzle = SwizzleMode::B128;
    let divides = |number: usize, part: u32| (number as u32).is_multiple_of(part);
    Some(BatchMatmulBlueprint {
        plane_dim: a.client.properties().hardware.plane_size_max,
        tile_matmul: TileMatmulKind::Mma,
        tiling_scheme,
        swizzle_modes: SwizzleModes { lhs: swizzle, rhs: swizzle, ..Default::default() },
        partition_buffering: PartitionBuffering::Single,
        loading_precompute_strategy: Default::default(),
        reader_mode: Default::default(),
        load_flows: LoadFlows { lhs: InputLoadFlow::LoadOnly, rhs: InputLoadFlow::LoadOnly },
        // Cubes that run together read the same columns of the matrix.
        hypercube_blueprint: HypercubeBlueprint::builder().global_order(GlobalOrder::ColMajor).build(),
        lhs_layout: MatrixLayout::RowMajor,
        rhs_layout: MatrixLayout::ColMajor,
        check_m_bounds: !divides(rows, tiling_scheme.elements_per_stage_along_m()),
        check_n_bounds: !divides(columns, tiling_scheme.elements_per_stage_along_n()),
        // Two stages are copied at a time.
        check_k_bounds: !divides(depth, 2 * tiling_scheme.elements_per_stage_along_k()),
    })
}

/// Returns the columns of one cube of [`rows_kernel`]: as many as the sums of all rows leave
/// registers for.
fn span(rows: usize, columns: usize) -> usize {
    if rows <= FEW / 2 && columns >= 8 { 8 } else { 4 }
}

/// Lines of a matrix that each unit of [`rows_kernel`] reads, if there are enough. Adding up the
/// sums of more units takes longer than reading more lines with each.
const LINES: usize = 8;

/// Returns how many units share a sum of `depth` lines within a cube's memory, or `None` if there
/// are too many sums.
fn units_of_sum(values: usize, depth: usize, client: &Client) -> Option<usize> {
    let hardware = &client.properties().hardware;
    let most = (UNITS as usize).min(hardware.max_units_per_cube as usize);
    let least = values.next_power_of_two().max(32);
    let mut units = depth.div_ceil(LINES).next_power_of_two().max(least).min(most.next_power_of_two());
    let bytes = |units: usize| values * (units + parts_of_sum(values, units)) * size_of::<f32>();
    while units > most || bytes(units) > hardware.max_shared_memory_size {
        units /= 2;
    }
    (units >= values.max(32)).then_some(units)
}

/// Computes `x·W` with [`tensor_rows_kernel`], x rounded to the format of W; `None` if the device or
/// the kernel does not support the shapes. A single row is faster without tensor cores.
fn few_rows_on_tensor_cores(x: &CubeTensor, weight: &CubeTensor) -> Option<CubeTensor> {
    let [rows, depth] = x.meta.shape().dims();
    let [_, columns] = weight.meta.shape().dims();
    let (format, strides) = (element(weight.dtype), weight.meta.strides());
    let instruction = MmaConfig { a_type: format, b_type: format, cd_type: element(DType::F32), m: 16, n: 8, k: 16 };
    let size = LINE / weight.dtype.size();
    let served = (2..=FEW).contains(&rows)
        && columns >= PLANE_COLUMNS
        && depth.is_multiple_of(PLANE_LINES * size)
        && strides[0] == 1
        && strides[1].is_multiple_of(size)
        && begins_at(weight, LINE)
        && x.client.properties().features.matmul.mma.contains(&instruction);
    if !served {
        return None;
    }
    let x = into_contiguous(if x.dtype == weight.dtype { x.clone() } else { cast(x.clone(), weight.dtype) });
    if !begins_at(&x, LINE) {
        return None;
    }
    let out = empty(&x, [rows, columns], DType::F32);
    let cubes = columns.div_ceil(PLANE_COLUMNS);
    // More planes share each sum if every cube has a processor for itself.
    let processors = x.client.properties().hardware.num_streaming_multiprocessors;
    let planes = if processors.is_some_and(|processors| cubes <= processors as usize) { 16 } else { 8 };
    let dim = CubeDim::new_1d(32 * planes);
    let count = cubecl::calculate_cube_count_elemwise(&x.client, cubes * 32 * planes as usize, dim);
    launch!(
        tensor_rows_kernel,
        x,
        (count, dim),
        vectors: size,
        [x, weight, out],
        depth / size,
        depth / size,
        strides[1] / size,
        columns,
        rows,
        planes as usize,
        format,
    );
    Some(out)
}

/// Computes `x·W` with [`rows_kernel`], x rounded to the format of W if `rounded`; `None` if the
/// kernel does not support the shapes.
fn few_rows(x: &CubeTensor, weight: &CubeTensor, rounded: bool) -> Option<CubeTensor> {
    let [rows, depth] = x.meta.shape().dims();
    let [_, columns] = weight.meta.shape().dims();
    let span = span(rows, columns);
    let (x_strides, strides) = (x.meta.strides(), weight.meta.strides());
    let size = LINE / weight.dtype.size();
    let whole = |number: usize| number.is_multiple_of(size);
    let aligned = |tensor: &CubeTensor| begins_at(tensor, size * tensor.dtype.size());
    let served = rows <= FEW
        && strides[0] == 1
        && x_strides[1] == 1
        && [depth, strides[1], x_strides[0]].into_iter().all(whole)
        && columns >= span
        && aligned(x)
        && aligned(weight);
    let units = units_of_sum(rows * span, depth / size, &x.client).filter(|_| served)?;
    let out = empty(x, [rows, columns], DType::F32);
    let dim = CubeDim::new_1d(units as u32);
    let count = cubecl::calculate_cube_count_elemwise(&x.client, columns.div_ceil(span) * units, dim);
    launch!(
        rows_kernel,
        x,
        (count, dim),
        vectors: size,
        [x, weight, out],
        depth / size,
        x_strides[0] / size,
        strides[1] / size,
        columns,
        rows,
        span,
        units,
        rounded,
        [element(x.dtype), element(weight.dtype)],
    );
    Some(out)
}

/// See [`low_rank`](crate::decoder::gpu::ops::low_rank).
pub(in crate::decoder::gpu) fn low_rank(x: &Tensor<2>, delta: &LaneDelta) -> Tensor<2> {
    spread(low(x, delta), delta)
}

/// Runs [`low_kernel`]: rows `[G·M, in]` times the first matrices `[G, in, P·r]`, in S pieces of the
/// sums: `[G, S, M, P·r]`.
fn low(x: &Tensor<2>, delta: &LaneDelta) -> Tensor<4> {
    /// Enough cubes for a few rows, and few pieces for [`spread_kernel`] to add up.
    const PIECE: usize = 512;
    let ((x, x_stride), (first, stride)) = (by_rows(floats(x.clone())), by_rows(floats(delta.a.clone())));
    let [lanes, depth, columns] = first.meta.shape().dims();
    let (rows, pieces) = (x.meta.shape()[0] / lanes, depth.div_ceil(PIECE));
    let out = empty(&x, [lanes, pieces, rows, columns], DType::F32);
    let shape = Low { rows: 32, columns: 16, terms: 64, piece: PIECE, groups: 4 };
    let units = shape.rows / SIDE * (shape.columns / SIDE) * shape.groups;
    let cubes = lanes * pieces * rows.div_ceil(shape.rows) * columns.div_ceil(shape.columns);
    let dim = CubeDim::new_1d(units as u32);
    let count = cubecl::calculate_cube_count_elemwise(&x.client, cubes * units, dim);
    launch!(
        low_kernel,
        x,
        (count, dim),
        [x, first, out],
        x_stride,
        stride,
        lanes,
        pieces,
        rows,
        depth,
        columns,
        shape,
        element(x.dtype),
    );
    tensor(out)
}

/// Runs [`spread_kernel`]: rows `[G, S, M, P·r]`, the products with the first matrices, times the
/// second matrices `[G, r, Σ out]`: `[G·M, Σ out]`.
fn spread(low: Tensor<4>, delta: &LaneDelta) -> Tensor<2> {
    /// Units of a cube.
    const UNITS: usize = 128;
    let ((low, low_stride), (second, stride)) = (by_rows(floats(low)), by_rows(floats(delta.b.clone())));
    let [lanes, pieces, rows, _] = low.meta.shape().dims();
    let [_, rank, columns] = second.meta.shape().dims();
    let [one, two, three] = std::array::from_fn(|part| delta.widths.get(part).copied().unwrap_or(0));
    let out = empty(&low, [lanes * rows, columns], DType::F32);
    let units = UNITS.min(1 << low.client.properties().hardware.max_units_per_cube.max(1).ilog2());
    let shape = Spread { rows: 16, columns: 4, terms: 32, units };
    let tiles: usize = [one, two, three].map(|width: usize| width.div_ceil(shape.columns * units)).iter().sum();
    let cubes = lanes * rows.div_ceil(shape.rows) * tiles;
    let dim = CubeDim::new_1d(units as u32);
    let count = cubecl::calculate_cube_count_elemwise(&low.client, cubes * units, dim);
    launch!(
        spread_kernel,
        low,
        (count, dim),
        [low, second, out],
        low_stride,
        stride,
        lanes,
        pieces,
        rows,
        rank,
        one,
        one + two,
        columns,
        shape,
    );
    tensor(out)
}
