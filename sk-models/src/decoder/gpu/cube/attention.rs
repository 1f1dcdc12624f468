use burn::backend::DispatchDevice;
use burn::tensor::{DType, Device, Tensor};
use burn_cubecl::kernel::into_contiguous;
use cubecl::prelude::*;

use super::kernels::attention::{chunk_kernel, combine_kernel};
use super::{FEW, LINE, cubes, element, empty, floats, integers, launch, tensor, units, vector_of};
use crate::decoder::gpu::operands::AttentionGroup;
use crate::decoder::gpu::shape::Visibility;
use crate::decoder::heads::Heads;

/// Keys of one cube of [`chunk_kernel`].
const CHUNK: usize = 32;

/// Queries of one cube of [`chunk_kernel`]. A context has few chunks, so the queries of a head are
/// divided too, among more of the device's processors.
const QUERIES: usize = 16;

/// Returns whether a cube has enough shared memory for a chunk of keys and its queries.
fn fits_cube(client: &Client, width: usize) -> bool {
    let numbers = CHUNK * (width + 1) + 2 * QUERIES * (CHUNK + 1);
    numbers * size_of::<f32>() <= client.properties().hardware.max_shared_memory_size
}

/// Returns whether [`attend`] supports the device and `places` places in each of `lanes` lanes.
pub(in crate::decoder::gpu) fn reads_place(device: &Device, heads: Heads, lanes: usize, places: usize) -> bool {
    match device.as_dispatch() {
        DispatchDevice::Cube(device) => lanes * places <= FEW && fits_cube(&device.client(), heads.width),
        _ => false,
    }
}

/// Computes the attention of the queries of a few tokens: one cube per chunk of keys, then a second
/// kernel that combines the chunks.
///
/// The position of the group is read from its numbers, so the same launches serve other positions
/// with at most `group.room` keys.
pub(in crate::decoder::gpu) fn attend(queries: Tensor<4>, cache: &Tensor<4>, group: &AttentionGroup, format: DType) -> Tensor<2> {
    let &AttentionGroup { heads, lanes, visibility: Visibility { places, rows, .. }, at, room, .. } = group;
    let [queries, cache, numbers] =
        [floats(queries), floats(cache.clone()), integers(group.numbers.clone())].map(into_contiguous);
    let number = queries.meta.shape()[2];
    let (blocks, chunks) = (lanes * heads.keys, room.div_ceil(CHUNK));
    let sums = empty(&queries, [blocks, chunks, number, heads.width + 2], DType::F32);
    let (count, dim, cube_units) = cubes(&queries, blocks * chunks * number.div_ceil(QUERIES));
    let size = vector_of(LINE / queries.dtype.size(), [&queries, &cache], heads.width);
    launch!(
        chunk_kernel,
        queries,
        (count, dim),
        vectors: size,
        [queries, cache, numbers, sums],
        at,
        blocks,
        chunks,
        number,
        heads.keys,
        cache.meta.shape()[2],
        places,
        rows,
        heads.width,
        QUERIES,
        CHUNK,
        cube_units as usize,
        element(queries.dtype),
    );
    let out = empty(&queries, [lanes * places, heads.queries * heads.width], format);
    let number_out = lanes * places * heads.queries * heads.width;
    launch!(
        combine_kernel,
        queries,
        units(&queries, number_out),
        [sums, numbers, out],
        at,
        rows,
        CHUNK,
        chunks,
        number,
        heads.queries,
        heads.keys,
        places,
        heads.width,
        number_out,
        element(format),
    );
    tensor(out)
}
