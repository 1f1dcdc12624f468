use burn::tensor::DType;
use burn_cubecl::kernel::matmul::{MatmulStrategy, init_matmul_output, matmul};
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use cubek::matmul::definition::{MatmulElems, MatmulGlobalElems};
use cubek::matmul::launch::launch_ref;
use cubek::matmul::multi_level::Strategy;
use cubek::std::InputBinding;

use super::kernels::products::{Spread, parts_of_sum, rows_kernel, spread_kernel};
use super::{FEW, UNITS, by_rows, element, empty, launch};

/// Computes a product in `format`.
///
/// On devices with TF32, Burn multiplies f32 with eleven significant bits; this product keeps f32.
pub(super) fn product(a: CubeTensor, b: CubeTensor, format: DType) -> CubeTensor {
    let rounded = a.client.properties().supports_type(cubecl::tf32::elem_type_native());
    if !(rounded && a.dtype == DType::F32 && b.dtype == DType::F32) {
        return matmul(a, b, None, MatmulStrategy::default(), format).expect("the factors fit together");
    }
    let out = init_matmul_output(&a, &b, format);
    let [left, right, result] = [&a, &b, &out].map(|tensor| element(tensor.dtype));
    let mut elements = MatmulElems::from_globals(&MatmulGlobalElems { lhs: left, rhs: right, out: result });
    let client = a.client.clone();
    let factors = [(a, left), (b, right)].map(|(factor, element)| InputBinding::new(factor.binding(), element));
    let [a, b] = factors;
    let units = Strategy::SimpleUnit(Default::default());
    launch_ref(&units.into(), &client, a, b, out.clone().binding(), &mut elements).expect("units need no other hardware");
    out
}

/// Columns of one cube of [`rows_kernel`].
const SPAN: usize = 4;

/// Bytes that a unit reads at once.
const LINE: usize = 16;

/// Returns how many units share a sum of `depth` lines within a cube's memory, or `None` if there
/// are too many sums.
fn units_of_sum(values: usize, depth: usize, client: &Client) -> Option<usize> {
    let hardware = &client.properties().hardware;
    let most = (UNITS as usize).min(hardware.max_units_per_cube as usize);
    let mut units = depth.next_power_of_two().clamp(32, most.next_power_of_two());
    let bytes = |units: usize| values * (units + parts_of_sum(values, units)) * size_of::<f32>();
    while units > most || bytes(units) > hardware.max_shared_memory_size {
        units /= 2;
    }
    (units >= values.max(32)).then_some(units)
}

/// Computes `x·W` with [`rows_kernel`], x rounded to the format of W if `rounded`; `None` if the
/// kernel does not support the shapes.
pub(super) fn few_rows(x: &CubeTensor, weight: &CubeTensor, rounded: bool) -> Option<CubeTensor> {
    let [rows, depth] = x.meta.shape().dims();
    let [_, columns] = weight.meta.shape().dims();
    let (x_strides, strides) = (x.meta.strides(), weight.meta.strides());
    let size = LINE / weight.dtype.size();
    let whole = |number: usize| number.is_multiple_of(size);
    // Lines must be aligned to vectors.
    let aligned =
        |tensor: &CubeTensor| tensor.handle.offset_start.unwrap_or(0).is_multiple_of((size * tensor.dtype.size()) as u64);
    let served = rows <= FEW
        && strides[0] == 1
        && x_strides[1] == 1
        && [depth, strides[1], x_strides[0]].into_iter().all(whole)
        && columns >= SPAN
        && aligned(x)
        && aligned(weight);
    let units = units_of_sum(rows * SPAN, depth / size, &x.client).filter(|_| served)?;
    let out = empty(x, [rows, columns], DType::F32);
    let client = x.client.clone();
    let dim = CubeDim::new_1d(units as u32);
    let count = cubecl::calculate_cube_count_elemwise(&client, columns.div_ceil(SPAN) * units, dim);
    rows_kernel::launch(
        &client,
        count,
        dim,
        size,
        x.clone().into_buffer_arg(),
        weight.clone().into_buffer_arg(),
        out.clone().into_buffer_arg(),
        depth / size,
        x_strides[0] / size,
        strides[1] / size,
        columns,
        rows,
        SPAN,
        units,
        rounded,
        [element(x.dtype), element(weight.dtype)],
    );
    Some(out)
}

/// Runs [`spread_kernel`]: rows `[G, S, M, P·r]`, the products with the first matrices, times the
/// second matrices `[G, r, Σ out]`: `[G·M, Σ out]`.
pub(super) fn spread(low: CubeTensor, second: CubeTensor, widths: &[usize]) -> CubeTensor {
    /// Units of a cube.
    const UNITS: usize = 128;
    let ((low, low_stride), (second, stride)) = (by_rows(low), by_rows(second));
    let [lanes, pieces, rows, _] = low.meta.shape().dims();
    let [_, rank, columns] = second.meta.shape().dims();
    let [one, two, three] = std::array::from_fn(|part| widths.get(part).copied().unwrap_or(0));
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
    out
}
