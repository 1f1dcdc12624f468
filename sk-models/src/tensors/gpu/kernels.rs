//! The kernels themselves.

use cubecl::prelude::*;

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
pub(super) fn norm_kernel<C: Float, O: Float>(
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
pub(super) fn turn_kernel<P: Float>(
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
pub(super) fn weigh_kernel(
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
pub(super) fn by_place_kernel<O: Float>(
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
pub(super) fn gate_kernel<I: Float, O: Float>(
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
pub(super) fn read_kernel<L: Float>(
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
pub(super) fn likeliest_kernel<L: Float>(
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
pub(super) fn outline_kernel<L: Float>(
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
