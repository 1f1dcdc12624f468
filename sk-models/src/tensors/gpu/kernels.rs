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

/// A few rows times the columns of a matrix, `span` of which are the work of a cube: its units share the sum, so that the matrix is read
/// once, in whole lines, by as many units as there can be.
///
/// Sums lie in registers by row and column, and are added up over the units at the end. The last cubes have columns of their neighbours
/// again where `span` does not divide them.
#[cube(launch)]
pub(super) fn rows_kernel<X: Float, W: Float, V: Size>(
    x: &[Vector<X, V>],
    weight: &[Vector<W, V>],
    out: &mut [f32],
    depth: usize,
    x_stride: usize,
    weight_stride: usize,
    columns: usize,
    #[comptime] rows: usize,
    #[comptime] span: usize,
    #[comptime] units: usize,
    #[define(X, W)] _formats: [ElemType; 2],
) {
    let size = V::value();
    let values = comptime![rows * span];
    let parts = comptime![parts_of_sum(rows * span, units)];
    // So that units that add up different sums read from different banks.
    let room = comptime![units + parts_of_sum(rows * span, units)];
    let unit = UNIT_POS as usize;
    let first = min(CUBE_POS * span, columns - span);

    let mut sums = Array::<f32>::new(values);
    #[unroll]
    for v in 0..values {
        sums[v] = 0.0;
    }
    let mut i = unit;
    while i < depth {
        let mut line = Array::<Vector<f32, V>>::new(span);
        #[unroll]
        for c in 0..span {
            line[c] = Vector::cast_from(weight[(first + c) * weight_stride + i]);
        }
        #[unroll]
        for r in 0..rows {
            let own = Vector::<f32, V>::cast_from(x[r * x_stride + i]);
            #[unroll]
            for c in 0..span {
                let other = line[c];
                #[unroll]
                for j in 0..size {
                    sums[r * span + c] += own.extract(j) * other.extract(j);
                }
            }
        }
        i += units;
    }

    let mut shared = Shared::<[f32]>::new_slice(values * room);
    #[unroll]
    for v in 0..values {
        shared[v * room + unit] = sums[v];
    }
    sync_cube();
    let value = unit / parts;
    if value < values {
        let part = unit % parts;
        let mut total = 0.0f32;
        let mut j = part;
        while j < units {
            total += shared[value * room + j];
            j += parts;
        }
        shared[value * room + part] = total;
    }
    sync_cube();
    if unit < values {
        let mut total = 0.0f32;
        #[unroll]
        for part in 0..parts {
            total += shared[unit * room + part];
        }
        out[(unit / span) * columns + first + unit % span] = total;
    }
}

/// The row of this cube. Cubes beyond the last one do its work again.
#[cube]
fn row_of_cube(rows: usize) -> usize {
    min(CUBE_POS, rows - 1)
}

/// How many units add up each of so many sums: a power of two, and no more than the sums they leave.
pub(super) const fn parts_of_sum(values: usize, units: usize) -> usize {
    let mut parts = 1;
    while 2 * parts * values <= units && 4 * parts * parts <= units {
        parts *= 2;
    }
    parts
}

#[cube(launch)]
pub(super) fn norm_kernel<C: Float, O: Float>(
    x: &[f32],
    change: &[C],
    delta: &[f32],
    weight: &[f32],
    sum: &mut [f32],
    out: &mut [O],
    rows: usize,
    width: usize,
    change_stride: usize,
    delta_stride: usize,
    epsilon: f32,
    #[comptime] adds: bool,
    #[comptime] adapted: bool,
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
            if comptime![adapted] {
                value += delta[row * delta_stride + i];
            }
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
pub(super) fn turn_kernel<P: Float, O: Float>(
    projected: &[P],
    delta: &[f32],
    bias: &[f32],
    angles: &[f32],
    queries: &mut [O],
    cache: &mut [O],
    lane_places: usize,
    stride: usize,
    delta_stride: usize,
    start: usize,
    places: usize,
    query_heads: usize,
    key_heads: usize,
    width: usize,
    capacity: usize,
    place_of_first: usize,
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
    let cos = angles[(start + place) * width + j];
    let sin = angles[(start + place) * width + half + j];
    if head < query_heads {
        let at = ((lane * query_heads + head) * places + place) * width + j;
        queries[at] = O::cast_from((first * cos - second * sin) * scale);
        queries[at + half] = O::cast_from((second * cos + first * sin) * scale);
    } else {
        let at = ((lane * 2 * key_heads + head - query_heads) * capacity + place_of_first + place) * width + j;
        if head < query_heads + key_heads {
            cache[at] = O::cast_from(first * cos - second * sin);
            cache[at + half] = O::cast_from(second * cos + first * sin);
        } else {
            cache[at] = O::cast_from(first);
            cache[at + half] = O::cast_from(second);
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
pub(super) fn weigh_kernel<O: Float>(
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
    // Exponentials are taken again, which is cheaper than to write them, read them and write them once more.
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

/// Attention of the queries of a few tokens to `chunk` keys, the work of a cube: of each query the largest score, the sum of the
/// exponentials below it, and what they mix of the values.
///
/// Queries `[G, Hkv, Q, D]`, keys and values as in a [`Prefix`](super::super::Prefix), sums `[G·Hkv, chunks, Q, D + 2]`.
#[cube(launch)]
pub(super) fn glance_kernel<S: Float>(
    queries: &[S],
    cache: &[S],
    sums: &mut [f32],
    blocks: usize,
    chunks: usize,
    number: usize,
    key_heads: usize,
    capacity: usize,
    columns: usize,
    places: usize,
    shared_keys: usize,
    earlier: usize,
    group_rows: usize,
    #[comptime] width: usize,
    #[comptime] most: usize,
    #[comptime] chunk: usize,
    #[comptime] units: usize,
    #[define(S)] _format: ElemType,
) {
    // One more than a line, so that neighbours read from different banks.
    let line = comptime![width + 1];
    let score_line = comptime![chunk + 1];
    let mut others = Shared::<[f32]>::new_slice(comptime![chunk * (width + 1)]);
    let mut scores = Shared::<[f32]>::new_slice(comptime![most * (chunk + 1)]);
    let unit = UNIT_POS as usize;
    let cube = row_of_cube(blocks * chunks);
    let block = cube / chunks;
    let first = (cube % chunks) * chunk;
    let count = min(chunk, columns - first);
    let keys = (block / key_heads) * 2 * key_heads + block % key_heads;
    let key_start = (keys * capacity + first) * width;
    let value_start = ((keys + key_heads) * capacity + first) * width;

    let mut i = unit;
    while i < count * width {
        others[(i / width) * line + i % width] = f32::cast_from(cache[key_start + i]);
        i += units;
    }
    sync_cube();
    let mut i = unit;
    while i < number * chunk {
        let query = i / chunk;
        let key = i % chunk;
        let mut score = f32::min_value();
        if key < count && sees(first + key, query % places, shared_keys, earlier, group_rows) {
            score = 0.0;
            let start = (block * number + query) * width;
            for d in 0..width {
                score += f32::cast_from(queries[start + d]) * others[key * line + d];
            }
        }
        scores[query * score_line + key] = score;
        i += units;
    }
    sync_cube();
    let mut i = unit;
    while i < number {
        let mut largest = f32::min_value();
        for key in 0..chunk {
            largest = max(largest, scores[i * score_line + key]);
        }
        let mut total = 0.0f32;
        for key in 0..chunk {
            let score = scores[i * score_line + key];
            let mut weight = 0.0f32;
            if score > f32::min_value() {
                weight = (score - largest).exp();
            }
            scores[i * score_line + key] = weight;
            total += weight;
        }
        let at = (cube * number + i) * (width + 2) + width;
        sums[at] = largest;
        sums[at + 1] = total;
        i += units;
    }
    let mut i = unit;
    while i < count * width {
        others[(i / width) * line + i % width] = f32::cast_from(cache[value_start + i]);
        i += units;
    }
    sync_cube();
    let mut i = unit;
    while i < number * width {
        let query = i / width;
        let d = i % width;
        let mut mixed = 0.0f32;
        for key in 0..count {
            mixed += scores[query * score_line + key] * others[key * line + d];
        }
        sums[(cube * number + query) * (width + 2) + d] = mixed;
        i += units;
    }
}

/// What all chunks of [`glance_kernel`] make together, place by place: `[G·m, Hq·D]`.
#[cube(launch)]
pub(super) fn gather_kernel<O: Float>(
    sums: &[f32],
    out: &mut [O],
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
    let d = ABSOLUTE_POS % width;
    let head = (ABSOLUTE_POS / width) % heads;
    let place = (ABSOLUTE_POS / (width * heads)) % places;
    let lane = ABSOLUTE_POS / (width * heads * places);
    let group = heads / key_heads;
    let block = lane * key_heads + head / group;
    let query = (head % group) * places + place;
    let line = width + 2;
    let step = number * line;
    let start = (block * chunks * number + query) * line;
    let mut largest = f32::min_value();
    for c in 0..chunks {
        largest = max(largest, sums[start + c * step + width]);
    }
    let mut mixed = 0.0f32;
    let mut total = 0.0f32;
    for c in 0..chunks {
        let at = start + c * step;
        let share = (sums[at + width] - largest).exp();
        mixed += sums[at + d] * share;
        total += sums[at + width + 1] * share;
    }
    out[ABSOLUTE_POS] = O::cast_from(mixed / total);
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
    gate_delta: &[f32],
    up_delta: &[f32],
    out: &mut [O],
    stride: usize,
    gate_stride: usize,
    up_stride: usize,
    width: usize,
    count: usize,
    #[comptime] gate_adapted: bool,
    #[comptime] up_adapted: bool,
    #[define(I, O)] _formats: [ElemType; 2],
) {
    if ABSOLUTE_POS >= count {
        terminate!();
    }
    let row = ABSOLUTE_POS / width;
    let column = ABSOLUTE_POS % width;
    let mut gate = f32::cast_from(both[row * stride + column]);
    let mut up = f32::cast_from(both[row * stride + width + column]);
    if comptime![gate_adapted] {
        gate += gate_delta[row * gate_stride + column];
    }
    if comptime![up_adapted] {
        up += up_delta[row * up_stride + column];
    }
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
