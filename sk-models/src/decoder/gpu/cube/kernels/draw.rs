//! Kernels that draw tokens from logits.
//!
//! A draw selects tokens several times: the k most probable, the nucleus, and the tokens up to the
//! drawn one. Each selection keeps the most probable tokens up to a share of the mass. It finds the
//! least probable of them, digit by digit of its [key](key_of), from the mass that the tokens with
//! each digit have.

use cubecl::prelude::*;

use super::{max_of_cube, row_of_cube, sum_of_cube};

/// Values of a digit of a key.
pub(in crate::decoder::gpu::cube) const DIGITS: usize = 16;

/// Bits of a digit.
pub(in crate::decoder::gpu::cube) const BITS: u32 = 4;

/// Numbers of [`peaks_kernel`] for each chunk.
pub(in crate::decoder::gpu::cube) const PEAKS: usize = 4;

/// Numbers of a row's state. Of the current selection: the key's digits so far, the target, and the
/// mass of larger keys. Of the selection before: the smallest key, and the selected share of the
/// tokens with this key.
pub(in crate::decoder::gpu::cube) const STATE: usize = 5;

/// Logits that a unit reads before it uses the first.
const AT_ONCE: usize = 8;

/// Returns a number that is ordered as the logits are; −0 counts as 0.
#[cube]
fn key_of(logit: f32) -> u32 {
    let bits = u32::reinterpret(logit);
    select(bits > 0x8000_0000, !bits, bits | 0x8000_0000)
}

/// Returns the logit with a key.
#[cube]
fn logit_of(key: u32) -> f32 {
    f32::reinterpret(select(key >> 31 == 1, key & 0x7fff_ffff, !key))
}

/// Returns e^{(logit − largest)·rate}, and zero for −∞.
#[cube]
fn weight_of(logit: f32, largest: f32, rate: f32) -> f32 {
    let mut weight = 0.0f32;
    if logit >= f32::min_value() {
        weight = ((logit - largest) * rate).exp();
    }
    weight
}

/// Returns the largest rated logit of a row.
#[cube]
fn largest_of_row(peaks: &[f32], row: usize, #[comptime] chunks: usize) -> f32 {
    let mut largest = f32::min_value();
    #[unroll]
    for chunk in 0..chunks {
        largest = max(largest, peaks[(row * chunks + chunk) * PEAKS]);
    }
    largest
}

/// Penalises tokens of each row, `most` each; those that are −1 are none.
#[cube(launch)]
pub(in crate::decoder::gpu::cube) fn penalise_kernel(
    tokens: &[i32],
    rated: &mut [f32],
    most: usize,
    vocabulary: usize,
    penalty: f32,
    count: usize,
) {
    if ABSOLUTE_POS >= count {
        terminate!();
    }
    let token = tokens[ABSOLUTE_POS];
    if token >= 0 {
        let at = ABSOLUTE_POS / most * vocabulary + token as usize;
        let logit = rated[at];
        rated[at] = select(logit < 0.0, logit * penalty, logit / penalty);
    }
}

/// Computes, for each chunk of a row, the largest rated logit, the largest logit, Σ e^{z − largest}
/// of the logits, and the number of logits that are NaN or +∞.
#[cube(launch)]
pub(in crate::decoder::gpu::cube) fn peaks_kernel(
    logits: &[f32],
    rated: &[f32],
    out: &mut [f32],
    rows: usize,
    width: usize,
    vocabulary: usize,
    #[comptime] chunks: usize,
    #[comptime] units: usize,
) {
    let mut shared = Shared::<[f32]>::new_slice(units);
    let cube = row_of_cube(rows * chunks);
    let start = cube / chunks * vocabulary;
    let first = cube % chunks * width;
    let end = min(first + width, vocabulary);
    let mut rated_peak = f32::min_value();
    let mut peak = f32::min_value();
    let mut odd = 0.0f32;
    let mut i = first + UNIT_POS as usize;
    while i < end {
        #[unroll]
        for j in 0..AT_ONCE {
            // Logits beyond the chunk are clamped to its last one.
            let at = start + min(i + j * units, end - 1);
            let logit = logits[at];
            // Tested by bits: a shader compiler may assume that there is no NaN.
            let bits = u32::reinterpret(logit);
            let is_odd = bits & 0x7f80_0000 == 0x7f80_0000 && bits != 0xff80_0000;
            if is_odd && i + j * units < end {
                odd += 1.0;
            }
            peak = max(peak, logit);
            rated_peak = max(rated_peak, rated[at]);
        }
        i += comptime![AT_ONCE * units];
    }
    let rated_peak = max_of_cube(rated_peak, &mut shared);
    let peak = max_of_cube(peak, &mut shared);
    let odd = sum_of_cube(odd, &mut shared);
    let mut total = 0.0f32;
    let mut i = first + UNIT_POS as usize;
    while i < end {
        #[unroll]
        for j in 0..AT_ONCE {
            let at = i + j * units;
            let weight = weight_of(logits[start + min(at, end - 1)], peak, 1.0);
            total += select(at < end, weight, 0.0);
        }
        i += comptime![AT_ONCE * units];
    }
    let total = sum_of_cube(total, &mut shared);
    if UNIT_POS == 0 {
        out[cube * PEAKS] = rated_peak;
        out[cube * PEAKS + 1] = peak;
        out[cube * PEAKS + 2] = total;
        out[cube * PEAKS + 3] = odd;
    }
}

/// Decides a digit from the mass of the tokens with each: the largest digit at which the mass, from
/// the largest keys on, is enough. Returns the digit, the target, the mass of larger keys, and the
/// mass of the tokens with the digit. Without enough mass, because of rounding, it is the last digit
/// with any.
#[cube]
fn decide(
    sums: &[f32],
    totals: &mut Shared<[f32]>,
    state: &[u32],
    share: f32,
    row: usize,
    is_first: u32,
    counts: u32,
    strict: u32,
    #[comptime] chunks: usize,
) -> (u32, f32, f32, f32) {
    let unit = UNIT_POS as usize;
    if unit < DIGITS {
        let mut total = 0.0f32;
        #[unroll]
        for chunk in 0..chunks {
            total += sums[(row * chunks + chunk) * DIGITS + unit];
        }
        totals[unit] = total;
    }
    sync_cube();
    let mut whole = 0.0f32;
    #[unroll]
    for i in 0..DIGITS {
        whole += totals[DIGITS - 1 - i];
    }
    let mut target = f32::reinterpret(state[row * STATE + 1]);
    let above = f32::reinterpret(state[row * STATE + 2]);
    if is_first == 1 {
        target = share;
        if counts == 0 {
            target = share * whole;
        }
    }
    let mut mass = above;
    let mut before = above;
    let mut own = 0.0f32;
    let mut digit = 0u32;
    let mut open = true;
    #[unroll]
    for i in 0..DIGITS {
        let total = totals[DIGITS - 1 - i];
        if open && total > 0.0 {
            digit = (DIGITS - 1 - i) as u32;
            before = mass;
            own = total;
            mass += total;
            open = mass < target || (strict == 1 && mass == target);
        }
    }
    (digit, target, before, own)
}

/// Concludes a selection: of the tokens with the smallest selected key, returns how many there are,
/// and how many are selected.
#[cube]
fn conclude(target: f32, above: f32, own: f32, weight: f32, strict: u32) -> (f32, f32) {
    let count = max((own / weight + 0.5).floor(), 1.0);
    let missing = (target - above) / weight;
    let mut kept = missing.ceil();
    if strict == 1 {
        kept = missing.floor() + 1.0;
    }
    (count, min(max(kept, 1.0), count))
}

/// Adds up the weights of a chunk's tokens by the digit at `shift`, of those whose keys begin with
/// the digits so far. It first decides the digit of the pass before, if there is one.
///
/// `begins`: this is the first pass. `opens`: a selection starts with this pass, so the one before
/// is complete. Arguments whose names end in `before` describe the pass before and its selection.
#[cube(launch)]
pub(in crate::decoder::gpu::cube) fn digits_kernel(
    rated: &[f32],
    peaks: &[f32],
    shares: &[f32],
    sums_before: &[f32],
    state_before: &[u32],
    sums: &mut [f32],
    state: &mut [u32],
    rows: usize,
    width: usize,
    vocabulary: usize,
    rate: f32,
    shift: u32,
    rate_before: f32,
    selection_before: usize,
    first_before: u32,
    counts_before: u32,
    strict_before: u32,
    #[comptime] begins: bool,
    #[comptime] opens: bool,
    #[comptime] chunks: usize,
    #[comptime] units: usize,
) {
    let mut totals = Shared::<[f32]>::new_slice(DIGITS);
    let unit = UNIT_POS as usize;
    let cube = row_of_cube(rows * chunks);
    let row = cube / chunks;
    let chunk = cube % chunks;
    let largest = largest_of_row(peaks, row, chunks);
    let mut prefix = 0u32;
    let mut target = 0.0f32;
    let mut above = 0.0f32;
    let mut floor = 0u32;
    let mut factor = 1.0f32;
    if comptime![!begins] {
        let at = row * STATE;
        floor = state_before[at + 3];
        factor = f32::reinterpret(state_before[at + 4]);
        let (digit, goal, before, own) = decide(
            sums_before,
            &mut totals,
            state_before,
            shares[selection_before * rows + row],
            row,
            first_before,
            counts_before,
            strict_before,
            chunks,
        );
        if comptime![opens] {
            let key = state_before[at] | digit;
            let weight = weight_of(logit_of(key), largest, rate_before);
            let (count, kept) = conclude(goal, before, own, weight, strict_before);
            if key != floor {
                factor = 1.0;
            }
            factor *= kept / count;
            floor = key;
        } else {
            prefix = state_before[at] | (digit << (shift + BITS));
            target = goal;
            above = before;
        }
    }
    if chunk == 0 && unit == 0 {
        let at = row * STATE;
        state[at] = prefix;
        state[at + 1] = u32::reinterpret(target);
        state[at + 2] = u32::reinterpret(above);
        state[at + 3] = floor;
        state[at + 4] = u32::reinterpret(factor);
    }

    let first = chunk * width;
    let end = min(first + width, vocabulary);
    let mut own = Array::<f32>::new(DIGITS);
    #[unroll]
    for digit in 0..DIGITS {
        own[digit] = 0.0;
    }
    let mut i = first + unit;
    while i < end {
        let mut read = Array::<f32>::new(AT_ONCE);
        #[unroll]
        for j in 0..AT_ONCE {
            read[j] = rated[row * vocabulary + min(i + j * units, end - 1)];
        }
        #[unroll]
        for j in 0..AT_ONCE {
            let key = key_of(read[j]);
            let place = (key ^ prefix) >> shift;
            if i + j * units < end && place < DIGITS as u32 && key >= floor {
                let mut weight = weight_of(read[j], largest, rate);
                if key == floor {
                    weight *= factor;
                }
                #[unroll]
                for digit in 0..DIGITS {
                    own[digit] += select(place == digit as u32, weight, 0.0);
                }
            }
        }
        i += comptime![AT_ONCE * units];
    }
    let mut shared = Shared::<[f32]>::new_slice(comptime![DIGITS * (units + 1)]);
    #[unroll]
    for digit in 0..DIGITS {
        shared[digit * comptime![units + 1] + unit] = own[digit];
    }
    sync_cube();
    // Each sum is added up in as many parts as there are digits, then the parts.
    let mut i = unit;
    while i < comptime![DIGITS * DIGITS] {
        let (digit, part) = (i / DIGITS, i % DIGITS);
        let mut total = 0.0f32;
        let mut j = part;
        while j < units {
            total += shared[digit * comptime![units + 1] + j];
            j += DIGITS;
        }
        shared[digit * comptime![units + 1] + part] = total;
        i += units;
    }
    sync_cube();
    if unit < DIGITS {
        let mut total = 0.0f32;
        #[unroll]
        for part in 0..DIGITS {
            total += shared[unit * comptime![units + 1] + part];
        }
        sums[cube * DIGITS + unit] = total;
    }
}

/// Concludes the last selection. Returns, per row, the least probable selected token, its
/// log-probability in nats, and the number of logits that are NaN or +∞, or one if no token has any
/// mass. Of equal logits, the first tokens are selected.
#[cube(launch)]
pub(in crate::decoder::gpu::cube) fn find_kernel(
    logits: &[f32],
    rated: &[f32],
    peaks: &[f32],
    shares: &[f32],
    sums_before: &[f32],
    state_before: &[u32],
    out: &mut [f32],
    rows: usize,
    width: usize,
    vocabulary: usize,
    rate_before: f32,
    selection_before: usize,
    counts_before: u32,
    strict_before: u32,
    #[comptime] chunks: usize,
    #[comptime] units: usize,
) {
    let mut totals = Shared::<[f32]>::new_slice(DIGITS);
    let mut counts = Shared::<[u32]>::new_slice(units);
    let unit = UNIT_POS as usize;
    let cube = row_of_cube(rows * chunks);
    let row = cube / chunks;
    let chunk = cube % chunks;
    let largest = largest_of_row(peaks, row, chunks);
    let at = row * STATE;
    let (digit, goal, before, own) = decide(
        sums_before,
        &mut totals,
        state_before,
        shares[selection_before * rows + row],
        row,
        0,
        counts_before,
        strict_before,
        chunks,
    );
    let key = state_before[at] | digit;
    let single = weight_of(logit_of(key), largest, rate_before);
    let mut weight = single;
    if key == state_before[at + 3] {
        weight *= f32::reinterpret(state_before[at + 4]);
    }
    let (_, kept) = conclude(goal, before, own, single, strict_before);
    // The token's place among those of the chunk with its key, from one on: the mass of a chunk's
    // tokens with the key says how many there are.
    let mut place = u32::cast_from(kept);
    #[unroll]
    for other in 0..chunks {
        let count = sums_before[(row * chunks + other) * DIGITS + digit as usize] / weight + 0.5;
        if other < chunk {
            place -= min(place, u32::cast_from(count));
        }
    }

    // Each unit looks at a piece of the chunk.
    let piece = width.div_ceil(units);
    let first = min(chunk * width + unit * piece, vocabulary);
    let end = min(min(first + piece, (chunk + 1) * width), vocabulary);
    let mut count = 0u32;
    for i in first..end {
        if key_of(rated[row * vocabulary + i]) == key {
            count += 1;
        }
    }
    counts[unit] = count;
    sync_cube();
    let mut earlier = 0u32;
    #[unroll]
    for other in 0..units {
        earlier += select(other < unit, counts[other], 0);
    }
    let mut peak = f32::min_value();
    let mut total = 0.0f32;
    let mut odd = 0.0f32;
    #[unroll]
    for other in 0..chunks {
        peak = max(peak, peaks[(row * chunks + other) * PEAKS + 1]);
    }
    #[unroll]
    for other in 0..chunks {
        let own = (row * chunks + other) * PEAKS;
        total += peaks[own + 2] * (peaks[own + 1] - peak).exp();
        odd += peaks[own + 3];
    }
    if earlier < place && place <= earlier + count {
        let mut seen = earlier;
        for i in first..end {
            if key_of(rated[row * vocabulary + i]) == key {
                seen += 1;
                if seen == place {
                    out[3 * row] = f32::cast_from(i);
                    out[3 * row + 1] = logits[row * vocabulary + i] - peak - total.ln();
                }
            }
        }
    }
    if chunk == 0 && unit == 0 {
        out[3 * row + 2] = max(odd, select(own > 0.0, 0.0f32, 1.0f32));
    }
}
