//! Kernels of RoPE, attention and the KV cache.

use cubecl::prelude::*;

use super::{max_of_cube, row_of_cube, sum_of_cube};

/// Returns the position of a group: the number of keys that all its rows attend to, and the number
/// of tokens that each row has added.
#[cube]
fn place_of_group(numbers: &[i32], at: usize) -> (usize, usize) {
    (numbers[at] as usize, numbers[at + 1] as usize)
}

/// Splits an index of `[lanes, places, heads, width]` into component, head, place and lane.
#[cube]
fn place_of_number(number: usize, width: usize, heads: usize, places: usize) -> (usize, usize, usize, usize) {
    (number % width, (number / width) % heads, (number / (width * heads)) % places, number / (width * heads * places))
}

#[cube(launch)]
pub(in crate::decoder::gpu::cube) fn rotate_kernel<P: Float, O: Float>(
    projected: &[P],
    delta: &[f32],
    bias: &[f32],
    angles: &[f32],
    numbers: &[i32],
    queries: &mut [O],
    cache: &mut [O],
    number_of_group: usize,
    group_rows: usize,
    lane_places: usize,
    stride: usize,
    delta_stride: usize,
    start: usize,
    places: usize,
    query_heads: usize,
    key_heads: usize,
    width: usize,
    capacity: usize,
    scale: f32,
    pairs: usize,
    #[comptime] adapted: bool,
    #[define(P, O)] _formats: [ElemType; 2],
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
    let mut first = f32::cast_from(projected[row * stride + column]) + bias[column];
    let mut second = f32::cast_from(projected[row * stride + column + half]) + bias[column + half];
    if comptime![adapted] {
        first += delta[row * delta_stride + column];
        second += delta[row * delta_stride + column + half];
    }
    let (shared_keys, earlier) = place_of_group(numbers, number_of_group);
    let angle = (shared_keys + earlier + place / group_rows) * width + j;
    let cos = angles[angle];
    let sin = angles[angle + half];
    if head < query_heads {
        let at = ((lane * query_heads + head) * places + place) * width + j;
        queries[at] = O::cast_from((first * cos - second * sin) * scale);
        queries[at + half] = O::cast_from((second * cos + first * sin) * scale);
    } else {
        let at =
            ((lane * 2 * key_heads + head - query_heads) * capacity + shared_keys + earlier * group_rows + place) * width + j;
        if head < query_heads + key_heads {
            cache[at] = O::cast_from(first * cos - second * sin);
            cache[at + half] = O::cast_from(second * cos + first * sin);
        } else {
            cache[at] = O::cast_from(first);
            cache[at + half] = O::cast_from(second);
        }
    }
}

/// Returns whether the query at `place` of its group attends to the key at `column`.
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
pub(in crate::decoder::gpu::cube) fn softmax_kernel<O: Float>(
    scores: &[f32],
    out: &mut [O],
    rows: usize,
    stride: usize,
    columns: usize,
    places: usize,
    shared_keys: usize,
    earlier: usize,
    group_rows: usize,
    #[comptime] units: u32,
    #[define(O)] _format: ElemType,
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
        if sees(i, place, shared_keys, earlier, group_rows) {
            total += (scores[row * stride + i] - largest).exp();
        }
        i += CUBE_DIM as usize;
    }
    let scale = 1.0 / sum_of_cube(total, &mut shared);
    // Computing exponentials again is cheaper than storing and reloading them.
    let mut i = UNIT_POS as usize;
    while i < columns {
        let mut weight = 0.0f32;
        if sees(i, place, shared_keys, earlier, group_rows) {
            weight = (scores[row * stride + i] - largest).exp() * scale;
        }
        out[row * columns + i] = O::cast_from(weight);
        i += CUBE_DIM as usize;
    }
}

/// Computes the attention of `most` queries of a few tokens to the `chunk` keys of a cube: per
/// query, the largest score, the sum of the exponentials relative to it, and the values weighted by
/// the exponentials.
///
/// Queries `[G, Hkv, Q, D]`, keys and values as in a
/// [`DevicePrefix`](crate::decoder::gpu::cache::DevicePrefix), sums `[G·Hkv, chunks, Q, D + 2]`.
/// Queries, keys and values are read in vectors.
#[cube(launch)]
pub(in crate::decoder::gpu::cube) fn chunk_kernel<S: Float, V: Size>(
    queries: &[Vector<S, V>],
    cache: &[Vector<S, V>],
    numbers: &[i32],
    sums: &mut [f32],
    number_of_group: usize,
    blocks: usize,
    chunks: usize,
    number: usize,
    key_heads: usize,
    capacity: usize,
    places: usize,
    group_rows: usize,
    #[comptime] width: usize,
    #[comptime] most: usize,
    #[comptime] chunk: usize,
    #[comptime] units: usize,
    #[define(S)] _format: ElemType,
) {
    let size = V::value();
    let lines = comptime![width / size];
    // Padded by one, so that neighbours read from different banks.
    let line = comptime![width + 1];
    let score_line = comptime![chunk + 1];
    let mut others = Shared::<[f32]>::new_slice(comptime![chunk * (width + 1)]);
    let mut scores = Shared::<[f32]>::new_slice(comptime![most * (chunk + 1)]);
    let mut weights = Shared::<[f32]>::new_slice(comptime![most * (chunk + 1)]);
    let unit = UNIT_POS as usize;
    let parts = number.div_ceil(most);
    let cube = row_of_cube(blocks * chunks * parts);
    let block = cube / (chunks * parts);
    let first = (cube / parts % chunks) * chunk;
    let first_query = (cube % parts) * most;
    let (shared_keys, earlier) = place_of_group(numbers, number_of_group);
    let columns = shared_keys + earlier * group_rows + places;
    // Zero for chunks beyond the present keys.
    let count = min(first + chunk, columns) - min(first, columns);
    // The sums of those chunks are never read.
    let mut own = 0;
    if count > 0 {
        own = min(number - first_query, most);
    }
    let keys = (block / key_heads) * 2 * key_heads + block % key_heads;
    let key_start = (keys * capacity + first) * lines;
    let value_start = ((keys + key_heads) * capacity + first) * lines;
    let query_start = (block * number + first_query) * lines;
    let sum_start = (block * chunks + first / chunk) * number + first_query;

    let mut i = unit;
    while i < count * lines {
        let read = Vector::<f32, V>::cast_from(cache[key_start + i]);
        #[unroll]
        for j in 0..size {
            others[(i / lines) * line + (i % lines) * size + j] = read.extract(j);
        }
        i += units;
    }
    sync_cube();
    let mut i = unit;
    while i < own * chunk {
        let query = i / chunk;
        let key = i % chunk;
        let mut score = f32::min_value();
        if key < count && sees(first + key, (first_query + query) % places, shared_keys, earlier, group_rows) {
            score = 0.0;
            #[unroll]
            for l in 0..lines {
                let read = Vector::<f32, V>::cast_from(queries[query_start + query * lines + l]);
                #[unroll]
                for j in 0..size {
                    score += read.extract(j) * others[key * line + l * size + j];
                }
            }
        }
        scores[query * score_line + key] = score;
        i += units;
    }
    sync_cube();
    // A team of units divides the weights of a query.
    let team = comptime![units / most];
    let query = unit / team;
    let part = unit % team;
    let mut largest = f32::min_value();
    #[unroll]
    for key in 0..chunk {
        largest = max(largest, scores[query * score_line + key]);
    }
    let mut key = part;
    while key < chunk {
        let score = scores[query * score_line + key];
        let mut weight = 0.0f32;
        if score > f32::min_value() {
            weight = (score - largest).exp();
        }
        weights[query * score_line + key] = weight;
        key += team;
    }
    if part == 0 && query < own {
        sums[(sum_start + query) * (width + 2) + width] = largest;
    }
    let mut i = unit;
    while i < chunk * lines {
        // Values beyond the present ones count as zeros.
        let mut read = Vector::<f32, V>::zeroed();
        if i < count * lines {
            read = Vector::cast_from(cache[value_start + i]);
        }
        #[unroll]
        for j in 0..size {
            others[(i / lines) * line + (i % lines) * size + j] = read.extract(j);
        }
        i += units;
    }
    sync_cube();
    let mut i = unit;
    while i < own * width {
        let query = i / width;
        let d = i % width;
        let mut mixed = 0.0f32;
        let mut total = 0.0f32;
        #[unroll]
        for key in 0..chunk {
            let weight = weights[query * score_line + key];
            mixed += weight * others[key * line + d];
            total += weight;
        }
        sums[(sum_start + query) * (width + 2) + d] = mixed;
        if d == 0 {
            sums[(sum_start + query) * (width + 2) + width + 1] = total;
        }
        i += units;
    }
}

/// Combines the chunks of [`chunk_kernel`]: `[G·m, Hq·D]`, ordered by place.
#[cube(launch)]
pub(in crate::decoder::gpu::cube) fn combine_kernel<O: Float>(
    sums: &[f32],
    numbers: &[i32],
    out: &mut [O],
    number_of_group: usize,
    group_rows: usize,
    chunk: usize,
    chunks: usize,
    number: usize,
    heads: usize,
    key_heads: usize,
    places: usize,
    width: usize,
    count: usize,
    #[define(O)] _format: ElemType,
) {
    if ABSOLUTE_POS >= count {
        terminate!();
    }
    let (d, head, place, lane) = place_of_number(ABSOLUTE_POS, width, heads, places);
    let group = heads / key_heads;
    let block = lane * key_heads + head / group;
    let query = (head % group) * places + place;
    let line = width + 2;
    let step = number * line;
    let start = (block * chunks * number + query) * line;
    let (shared_keys, earlier) = place_of_group(numbers, number_of_group);
    let present = (shared_keys + earlier * group_rows + places).div_ceil(chunk);
    let mut largest = f32::min_value();
    for c in 0..present {
        largest = max(largest, sums[start + c * step + width]);
    }
    let mut mixed = 0.0f32;
    let mut total = 0.0f32;
    for c in 0..present {
        let at = start + c * step;
        let share = (sums[at + width] - largest).exp();
        mixed += sums[at + d] * share;
        total += sums[at + width + 1] * share;
    }
    out[ABSOLUTE_POS] = O::cast_from(mixed / total);
}

/// Moves one of several interleaved rows to the front. One unit per component moves it token by
/// token.
#[cube(launch)]
pub(in crate::decoder::gpu::cube) fn adopt_kernel<S: Float>(
    cache: &mut [S],
    capacity: usize,
    width: usize,
    first: usize,
    tokens: usize,
    rows: usize,
    row: usize,
    count: usize,
    #[define(S)] _format: ElemType,
) {
    if ABSOLUTE_POS >= count {
        terminate!();
    }
    let start = ((ABSOLUTE_POS / width) * capacity + first) * width + ABSOLUTE_POS % width;
    // A token only moves towards the front, so no token is overwritten before it has moved.
    for step in 0..tokens {
        cache[start + step * width] = cache[start + (step * rows + row) * width];
    }
}

#[cube(launch)]
pub(in crate::decoder::gpu::cube) fn refresh_kernel(new: &[i32], old: &mut [i32], count: usize) {
    if ABSOLUTE_POS >= count {
        terminate!();
    }
    old[ABSOLUTE_POS] = new[ABSOLUTE_POS];
}

#[cube(launch)]
pub(in crate::decoder::gpu::cube) fn by_place_kernel<O: Float>(
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
    let (d, head, place, lane) = place_of_number(ABSOLUTE_POS, width, heads, places);
    out[ABSOLUTE_POS] = O::cast_from(mixed[((lane * heads + head) * places + place) * stride + d]);
}
