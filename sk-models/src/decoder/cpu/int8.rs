//! Products with weights of eight bits.
//!
//! A weight column is `s_c·w` with w in −127…127; the largest entry of the column sets the scale.
//! Activations keep sixteen bits: a number is `s_r·(256·h + l − 32768)` with h and l in 0…255, so a
//! product with a weight is two byte products. Sums are exact integers. The only errors are those
//! of rounding a weight to 1/127 of the largest in its column and an activation to 1/32767 of the
//! largest in its row.

use std::num::NonZero;

use super::amx::{HEIGHT, Line, Sums, Tiles};
use super::grid::{Grid, Slab};
#[cfg(target_arch = "x86_64")]
use super::tile::of_height;
use super::tile::{Place, WIDTH};
use crate::kernels::simd::widened;
use crate::precision::MOST_INPUTS;
use crate::team::for_each_mut;

/// Rows of the largest tile: two sums of two vectors each fill the registers.
const ROWS: usize = 6;

/// Consecutive k whose bytes lie side by side: one instruction multiplies and adds them.
const QUAD: usize = 4;

/// Consecutive k whose bytes a tile holds.
const DEPTH: usize = 64;

/// The largest absolute value of a rounded weight.
const WEIGHT: f32 = 127.0;

/// The largest absolute value of a rounded activation.
const ACTIVATION: f32 = 32_767.0;

/// Returns whether the processor multiplies and adds four bytes at a time (AVX-512 VNNI).
pub(super) fn has_vnni() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// A weight `[input, output]` in panels of [`WIDTH`] columns: per panel and four rows, the four
/// bytes of each column. Zeros fill a panel up to whole tiles.
#[derive(Debug)]
pub(crate) struct Bytes {
    panels: Slab<i8>,
    /// s_c of each column, padded to whole panels.
    scales: Vec<f32>,
    /// Σ w of each column.
    sums: Vec<i32>,
    quads: usize,
    /// Bytes of a panel.
    size: usize,
}

impl Bytes {
    /// Packs and rounds the weight that `get` returns for each row and column.
    ///
    /// # Panics
    ///
    /// If there are more than [`MOST_INPUTS`] rows.
    pub(crate) fn new([input, output]: [usize; 2], get: impl Fn(usize, usize) -> f32 + Sync) -> Self {
        assert!(input <= MOST_INPUTS, "{input} products do not fit into a sum");
        let (count, quads) = (output.div_ceil(WIDTH), input.div_ceil(QUAD));
        let size = input.next_multiple_of(DEPTH) * WIDTH;
        let mut panels = Slab::new(count * size);
        let mut scales = vec![0.0; count * WIDTH];
        let mut sums = vec![0; count * WIDTH];
        let mut parts: Vec<_> =
            panels.chunks_exact_mut(size.max(1)).zip(scales.chunks_exact_mut(WIDTH)).zip(sums.chunks_exact_mut(WIDTH)).collect();
        for_each_mut(&mut parts, |panel, ((bytes, scales), sums)| {
            for (place, column) in (panel * WIDTH..output.min((panel + 1) * WIDTH)).enumerate() {
                let largest = (0..input).map(|k| get(k, column).abs()).fold(0.0, f32::max);
                let scale = largest / WEIGHT;
                scales[place] = scale;
                let rate = if scale > 0.0 { scale.recip() } else { 0.0 };
                for k in 0..input {
                    // In range by the choice of the scale. A NaN becomes zero, and the scale of its
                    // column becomes NaN.
                    let weight = (get(k, column) * rate).round() as i8;
                    bytes[(k / QUAD * WIDTH + place) * QUAD + k % QUAD] = weight;
                    sums[place] += i32::from(weight);
                }
                if !(0..input).all(|k| get(k, column).is_finite()) {
                    scales[place] = f32::NAN;
                }
            }
        });
        Self { panels, scales, sums, quads, size }
    }

    /// Bytes of weights and scales.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val::<[i8]>(&self.panels) + size_of_val::<[f32]>(&self.scales) + size_of_val::<[i32]>(&self.sums)
    }

    /// Copies column `column`, as rounded when packed, to `out`.
    pub(crate) fn column(&self, column: usize, out: &mut [f32]) {
        let panel = &self.panels[column / WIDTH * self.size..];
        for (k, value) in out.iter_mut().enumerate() {
            *value = self.scales[column] * f32::from(panel[(k / QUAD * WIDTH + column % WIDTH) * QUAD + k % QUAD]);
        }
    }

    /// Writes the product of one panel with rows `first..first + rows` to C, or adds it.
    ///
    /// # Safety
    ///
    /// C holds that many rows of [`WIDTH`] columns, and nothing else uses them.
    pub(crate) unsafe fn multiply(&self, panel: usize, [first, rows]: [usize; 2], x: &Quantized, c: Place<*mut f32>, add: bool) {
        assert!(x.quads == self.quads && first + rows <= x.scales.len());
        if let Some(tiles) = x.tiles {
            // SAFETY: the caller's promise.
            return unsafe { self.multiply_tiles(tiles, panel, [first, rows], x, c, add) };
        }
        let (mut row, end) = (first, first + rows);
        while row < end {
            // A tile is a strip, or the requested part of one.
            let (strip, from) = (row / ROWS, row % ROWS);
            let height = (ROWS - from).min(end - row);
            let tile = Tile {
                quads: self.quads,
                strip: &x.strips[strip * x.quads * STRIP..][..x.quads * STRIP],
                from,
                row_scales: &x.scales[row..row + height],
                bytes: &self.panels[panel * self.size..][..self.quads * QUAD * WIDTH],
                scales: self.scales[panel * WIDTH..].first_chunk().expect("padded to whole panels"),
                sums: self.sums[panel * WIDTH..].first_chunk().expect("padded to whole panels"),
            };
            let c = Place { start: c.start.wrapping_add((row - first) * c.stride), ..c };
            // SAFETY: rows `row..row + height` of C.
            unsafe { tile.multiply(c, add) };
            row += height;
        }
    }

    /// Computes [`multiply`](Self::multiply) in AMX tiles, with the same bits.
    ///
    /// # Safety
    ///
    /// As [`multiply`](Self::multiply).
    unsafe fn multiply_tiles(
        &self,
        tiles: Tiles,
        panel: usize,
        [first, rows]: [usize; 2],
        x: &Quantized,
        c: Place<*mut f32>,
        add: bool,
    ) {
        assert!(first.is_multiple_of(HEIGHT));
        let Some(some) = NonZero::new(self.quads.div_ceil(DEPTH / QUAD)) else { return };
        let blocks = some.get();
        let bytes = &self.panels[panel * self.size..][..self.size];
        let scales: &[f32; WIDTH] = self.scales[panel * WIDTH..].first_chunk().expect("padded to whole panels");
        let shifts: &[i32; WIDTH] = self.sums[panel * WIDTH..].first_chunk().expect("padded to whole panels");
        let tiles = tiles.configure();
        let mut sums = Sums([[[0; WIDTH]; HEIGHT]; 2]);
        for row in (0..rows).step_by(HEIGHT) {
            let a = x.lines[(first + row) / HEIGHT * blocks * 2 * HEIGHT..][..blocks * 2 * HEIGHT].as_ptr().cast();
            // Each of the first eight groups of rows prefetches an eighth of the next panel.
            let eighth = row / HEIGHT;
            let ahead = if eighth < 8 { bytes.as_ptr().wrapping_add((8 + eighth) * self.size / 8).cast() } else { a };
            // SAFETY: the panel and the rows have the same number of blocks.
            unsafe { tiles.bytes([a, bytes.as_ptr().cast(), ahead], some, &mut sums) };
            widened!({
                let pairs = sums.0[0].iter().zip(&sums.0[1]);
                for (place, (high, low)) in pairs.take(rows - row).enumerate() {
                    let scale = x.scales[first + row + place];
                    // SAFETY: the caller's promise.
                    let out = unsafe { &mut *c.start.add((row + place) * c.stride).cast::<[f32; WIDTH]>() };
                    for column in 0..WIDTH {
                        let before = if add { out[column] } else { 0.0 };
                        let upper = (high[column] - 128 * shifts[column]) as f32;
                        out[column] = upper.mul_add(256.0, low[column] as f32) * (scales[column] * scale) + before;
                    }
                }
            });
        }
    }
}

/// Bytes of a strip per quad: for each row, the four upper bytes, then the four lower ones.
const STRIP: usize = ROWS * 2 * QUAD;

/// Activations in sixteen bits, in strips of [`ROWS`] rows whose quads lie side by side, so that a
/// tile reads them as it reads a panel.
#[derive(Debug, Default)]
pub(crate) struct Quantized {
    /// `[strips, quads, ROWS, 2, 4]` at the start; unused if AMX is used.
    strips: Vec<u8>,
    /// `[rows / 16, blocks, 2]` tiles at the start if AMX is used: upper bytes, then lower ones.
    lines: Vec<Line>,
    tiles: Option<Tiles>,
    /// s_r of each row.
    scales: Vec<f32>,
    quads: usize,
}

impl Quantized {
    /// Rounds the first `width` columns of a grid, for tiles or for vectors.
    pub(crate) fn fill(&mut self, grid: &Grid, width: usize, tiles: Option<Tiles>) {
        let (rows, quads) = (grid.rows(), width.div_ceil(QUAD));
        (self.quads, self.tiles) = (quads, tiles);
        if tiles.is_some() {
            return self.fill_tiles(grid, width);
        }
        let bytes = rows.div_ceil(ROWS) * quads * STRIP;
        if self.strips.len() < bytes {
            self.strips.resize(bytes, 0);
        }
        self.scales.resize(rows, 0.0);
        let strips = self.strips.chunks_exact_mut((quads * STRIP).max(1));
        let mut parts: Vec<_> = strips.zip(self.scales.chunks_mut(ROWS)).collect();
        for_each_mut(&mut parts, |strip, (bytes, scales)| {
            for (row, scale) in scales.iter_mut().enumerate() {
                let x = &grid.row(strip * ROWS + row)[..width];
                *scale = widened!(quantize(x, &mut bytes[row * 2 * QUAD..]));
            }
        });
    }

    pub(crate) fn is_tiled(&self) -> bool {
        self.tiles.is_some()
    }

    fn fill_tiles(&mut self, grid: &Grid, width: usize) {
        let (rows, blocks) = (grid.rows(), width.div_ceil(DEPTH));
        let lines = rows.div_ceil(HEIGHT) * blocks * 2 * HEIGHT;
        if self.lines.len() < lines {
            self.lines.resize(lines, Line::default());
        }
        self.scales.resize(rows, 0.0);
        let tiles = self.lines.chunks_exact_mut((blocks * 2 * HEIGHT).max(1));
        let mut parts: Vec<_> = tiles.zip(self.scales.chunks_mut(HEIGHT)).collect();
        for_each_mut(&mut parts, |index, (lines, scales)| {
            widened!({
                for (place, scale) in scales.iter_mut().enumerate() {
                    let x = &grid.row(index * HEIGHT + place)[..width];
                    let (rate, found) = range(x);
                    *scale = found;
                    for (block, x) in x.chunks(DEPTH).enumerate() {
                        let [upper, lower] = halved::<DEPTH>(x, rate);
                        lines[block * 2 * HEIGHT + place] = Line::from(upper);
                        lines[(block * 2 + 1) * HEIGHT + place] = Line::from(lower);
                    }
                }
            });
        });
    }
}

/// Returns the upper and the lower bytes of at most N numbers in sixteen bits, in which zero is
/// 32768.
#[inline(always)]
fn halved<const N: usize>(x: &[f32], rate: f32) -> [[u8; N]; 2] {
    /// Zero, shifted to the middle of sixteen bits.
    const ZERO: f32 = 32_768.0;
    /// Adding 1.5·2²³ rounds to the nearest integer and leaves it in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let (mut upper, mut lower) = ([0_u8; N], [0_u8; N]);
    for ((upper, lower), x) in upper.iter_mut().zip(&mut lower).zip(x) {
        let shifted = (x * rate + (ZERO + ROUND)).to_bits();
        (*upper, *lower) = ((shifted >> 8) as u8, shifted as u8);
    }
    [upper, lower]
}

/// Numbers of a row that are rounded at a time.
const SIDE: usize = 16;

/// Returns the factor by which the numbers of a row are multiplied, and the scale that undoes it.
#[inline(always)]
fn range(x: &[f32]) -> (f32, f32) {
    let mut largest = [0.0_f32; SIDE];
    let mut spoilt = [0.0_f32; SIDE];
    for piece in pieces(x) {
        for ((largest, spoilt), x) in largest.iter_mut().zip(&mut spoilt).zip(piece) {
            *largest = if x.abs() > *largest { x.abs() } else { *largest };
            // Stays zero unless x is NaN or infinite.
            *spoilt += x * 0.0;
        }
    }
    let largest = largest.into_iter().fold(0.0, f32::max);
    let rate = if largest > 0.0 { ACTIVATION / largest } else { 0.0 };
    (rate, largest / ACTIVATION + spoilt.into_iter().sum::<f32>())
}

/// Divides a row into pieces, the last of which is filled up with zeros.
#[inline(always)]
fn pieces(x: &[f32]) -> impl Iterator<Item = [f32; SIDE]> {
    let (whole, rest) = x.as_chunks();
    let mut last = [0.0; SIDE];
    last[..rest.len()].copy_from_slice(rest);
    whole.iter().copied().chain([last])
}

/// Writes the bytes of a row to its place in a strip and returns its scale.
#[inline(always)]
fn quantize(x: &[f32], strip: &mut [u8]) -> f32 {
    let (rate, scale) = range(x);
    for (quads, piece) in strip.chunks_mut(SIDE / QUAD * STRIP).zip(pieces(x)) {
        let [upper, lower] = halved::<SIDE>(&piece, rate);
        let bytes = upper.as_chunks::<QUAD>().0.iter().zip(lower.as_chunks::<QUAD>().0);
        for (quad, (upper, lower)) in quads.chunks_mut(STRIP).zip(bytes) {
            quad[..QUAD].copy_from_slice(upper);
            quad[QUAD..2 * QUAD].copy_from_slice(lower);
        }
    }
    scale
}

/// A few rows times one panel.
struct Tile<'a> {
    quads: usize,
    strip: &'a [u8],
    /// The first requested row of the strip. There is one row per scale.
    from: usize,
    row_scales: &'a [f32],
    bytes: &'a [i8],
    scales: &'a [f32; WIDTH],
    sums: &'a [i32; WIDTH],
}

impl Tile<'_> {
    /// # Safety
    ///
    /// C holds a row of [`WIDTH`] columns for each row scale, and nothing else uses it.
    unsafe fn multiply(&self, c: Place<*mut f32>, add: bool) {
        let rows = self.row_scales.len();
        assert!(self.strip.len() == self.quads * STRIP && self.from + rows <= ROWS);
        assert!(self.bytes.len() == self.quads * QUAD * WIDTH);
        #[cfg(target_arch = "x86_64")]
        if has_vnni() {
            // SAFETY: the processor has the instructions, the slices are long enough by the
            // assertions, and C by the caller's promise.
            return unsafe { self.vnni(c, add) };
        }
        widened!({
            for row in 0..rows {
                // SAFETY: the caller's promise.
                unsafe { self.plain(row, c.start.add(row * c.stride).cast(), add) };
            }
        });
    }

    /// Computes one row on any processor.
    ///
    /// # Safety
    ///
    /// `c` is valid for writes.
    #[inline(always)]
    unsafe fn plain(&self, row: usize, c: *mut [f32; WIDTH], add: bool) {
        let (mut high, mut low) = ([0_i32; WIDTH], [0_i32; WIDTH]);
        for (x, quad) in self.strip.chunks_exact(STRIP).zip(self.bytes.chunks_exact(QUAD * WIDTH)) {
            let (h, l) = x[(self.from + row) * 2 * QUAD..][..2 * QUAD].split_at(QUAD);
            for (column, weights) in quad.chunks_exact(QUAD).enumerate() {
                for ((weight, h), l) in weights.iter().zip(h).zip(l) {
                    high[column] += i32::from(*weight) * i32::from(*h);
                    low[column] += i32::from(*weight) * i32::from(*l);
                }
            }
        }
        // SAFETY: the caller's promise.
        let out = unsafe { &mut *c };
        for column in 0..WIDTH {
            let before = if add { out[column] } else { 0.0 };
            let sum = (high[column] - 128 * self.sums[column]) as f32 * 256.0 + low[column] as f32;
            out[column] = sum * (self.row_scales[row] * self.scales[column]) + before;
        }
    }

    /// # Safety
    ///
    /// The processor has AVX-512 F and VNNI, the slices have the lengths that
    /// [`multiply`](Self::multiply) checks, and C is as in [`multiply`](Self::multiply).
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512vnni")]
    unsafe fn vnni(&self, c: Place<*mut f32>, add: bool) {
        // SAFETY: passed on.
        unsafe { of_height!(self.row_scales.len(), R => self.vnni_tile::<R>(c, add), 1 2 3 4 5, ROWS) }
    }

    /// # Safety
    ///
    /// As [`vnni`](Self::vnni), with R rows.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512vnni")]
    #[inline]
    unsafe fn vnni_tile<const R: usize>(&self, c: Place<*mut f32>, add: bool) {
        use std::arch::x86_64::{
            _MM_HINT_T0, _mm_prefetch, _mm512_add_ps, _mm512_cvtepi32_ps, _mm512_dpbusd_epi32, _mm512_fmadd_ps, _mm512_loadu_ps,
            _mm512_loadu_si512, _mm512_mul_ps, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps, _mm512_setzero_si512,
            _mm512_slli_epi32, _mm512_storeu_ps, _mm512_sub_epi32,
        };
        /// Quads to prefetch ahead; see [`super::tile`].
        const AHEAD: usize = 32;
        // SAFETY: the slices hold `R` rows and whole quads, C is valid by the caller's promise, and
        // a prefetch may point anywhere.
        unsafe {
            let zero = _mm512_setzero_si512();
            let (mut high, mut low) = ([[zero; 2]; R], [[zero; 2]; R]);
            let (x, w) = (self.strip.as_ptr().add(self.from * 2 * QUAD), self.bytes.as_ptr());
            for quad in 0..self.quads {
                let at = w.add(quad * QUAD * WIDTH);
                let columns = [_mm512_loadu_si512(at.cast()), _mm512_loadu_si512(at.add(64).cast())];
                _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(AHEAD * QUAD * WIDTH));
                _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(AHEAD * QUAD * WIDTH + 64));
                for r in 0..R {
                    let bytes = x.add(quad * STRIP + r * 2 * QUAD);
                    let upper = _mm512_set1_epi32(bytes.cast::<i32>().read_unaligned());
                    let lower = _mm512_set1_epi32(bytes.add(QUAD).cast::<i32>().read_unaligned());
                    for v in 0..2 {
                        high[r][v] = _mm512_dpbusd_epi32(high[r][v], upper, columns[v]);
                        low[r][v] = _mm512_dpbusd_epi32(low[r][v], lower, columns[v]);
                    }
                }
            }
            for v in 0..2 {
                let scale = _mm512_loadu_ps(self.scales.as_ptr().add(16 * v));
                // 128·Σw, which the shift of the upper bytes adds.
                let shift = _mm512_slli_epi32::<7>(_mm512_loadu_si512(self.sums.as_ptr().add(16 * v).cast()));
                for r in 0..R {
                    let upper = _mm512_cvtepi32_ps(_mm512_sub_epi32(high[r][v], shift));
                    let sum = _mm512_fmadd_ps(upper, _mm512_set1_ps(256.0), _mm512_cvtepi32_ps(low[r][v]));
                    let scale = _mm512_mul_ps(scale, _mm512_set1_ps(self.row_scales[r]));
                    let out = c.start.add(r * c.stride + 16 * v);
                    let before = if add { _mm512_loadu_ps(out) } else { _mm512_setzero_ps() };
                    _mm512_storeu_ps(out, _mm512_add_ps(_mm512_mul_ps(sum, scale), before));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::noise::{grid, noise};
    use super::*;

    /// Returns the product of the rounded numbers, summed in exact integers.
    fn exactly(input: usize, x: &[f32], column: usize) -> f64 {
        let largest = x.iter().fold(0.0_f32, |a, b| a.max(b.abs()));
        let weights: Vec<f32> = (0..input).map(|k| noise(k, column)).collect();
        let most = weights.iter().fold(0.0_f32, |a, b| a.max(b.abs()));
        let rate = (most / WEIGHT).recip();
        let sum: i64 = x
            .iter()
            .zip(&weights)
            .map(|(x, w)| (x * (ACTIVATION / largest)).round_ties_even() as i64 * (w * rate).round() as i64)
            .sum();
        sum as f64 * f64::from(largest / ACTIVATION) * f64::from(most / WEIGHT)
    }

    #[test]
    fn only_the_documented_roundings_occur() {
        for (input, rows) in [(5, 1), (64, 6), (71, 13), (300, 4)] {
            let output = 45;
            let weight = Bytes::new([input, output], noise);
            let grid = grid(rows, input, |row, k| 3.0 * noise(k + 7, row + 100));
            let mut quantized = Quantized::default();
            quantized.fill(&grid, input, None);
            for (panel, add) in [(0, false), (1, true)] {
                let mut fast = vec![0.5_f32; rows * WIDTH];
                let c = Place { start: fast.as_mut_ptr(), stride: WIDTH };
                // SAFETY: the vector has the rows and columns.
                unsafe { weight.multiply(panel, [0, rows], &quantized, c, add) };
                for row in 0..rows {
                    let x = &grid.row(row)[..input];
                    for place in 0..WIDTH.min(output - panel * WIDTH) {
                        let start = if add { 0.5 } else { 0.0 };
                        let expected = exactly(input, x, panel * WIDTH + place) + start;
                        let found = f64::from(fast[row * WIDTH + place]);
                        // Two conversions of integers to f32 and two products.
                        let tolerance = 4.0 * f64::from(f32::EPSILON) * (input as f64);
                        assert!((found - expected).abs() <= tolerance, "{found} for {expected}");
                        // The result is also near the unrounded product: half a step of a weight
                        // and of an activation for each k.
                        let plain: f64 = (0..input).map(|k| f64::from(x[k]) * f64::from(noise(k, panel * WIDTH + place))).sum();
                        let bound: f64 = x.iter().map(|x| f64::from(x.abs()) * 0.5 / 127.0 + 3.0 * 0.5 / 32_767.0).sum();
                        assert!((found - start - plain).abs() <= bound * 1.001 + tolerance, "{found} for {plain}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_plain_and_the_fast_path_agree() {
        let (input, rows) = (70, 5);
        let weight = Bytes::new([input, WIDTH], noise);
        let grid = grid(rows, input, |row, k| noise(k, row + 50));
        let mut x = Quantized::default();
        x.fill(&grid, input, None);
        let (mut fast, mut plain) = (vec![1.0_f32; rows * WIDTH], vec![1.0_f32; rows * WIDTH]);
        // SAFETY: the vectors have the rows and columns.
        unsafe {
            weight.multiply(0, [0, rows], &x, Place { start: fast.as_mut_ptr(), stride: WIDTH }, true);
            let tile = Tile {
                quads: weight.quads,
                strip: &x.strips,
                from: 0,
                row_scales: &x.scales,
                bytes: &weight.panels[..weight.quads * QUAD * WIDTH],
                scales: weight.scales.first_chunk().unwrap(),
                sums: weight.sums.first_chunk().unwrap(),
            };
            (0..rows).for_each(|row| tile.plain(row, plain[row * WIDTH..].as_mut_ptr().cast(), true));
        }
        // One of the two uses a fused multiply-add.
        assert!(fast.iter().zip(&plain).all(|(a, b)| (a - b).abs() <= 4.0 * f32::EPSILON * a.abs().max(1.0)));
    }

    #[test]
    fn tiles_have_the_bits_that_vectors_have() {
        let Some(tiles) = Tiles::get() else { return };
        for (input, rows, first) in [(5, 1, 0), (64, 16, 0), (71, 40, 16), (300, 33, 32), (128, 70, 0)] {
            let weight = Bytes::new([input, 45], noise);
            let grid = grid(rows, input, |row, k| 5.0 * noise(k + 3, row + 20));
            let (mut strips, mut lines) = (Quantized::default(), Quantized::default());
            strips.fill(&grid, input, None);
            lines.fill(&grid, input, Some(tiles));
            for (panel, add) in [(0, false), (1, true)] {
                let product = |x: &Quantized| {
                    let mut c = vec![0.25_f32; (rows - first) * WIDTH];
                    let place = Place { start: c.as_mut_ptr(), stride: WIDTH };
                    // SAFETY: the vector has the rows and columns.
                    unsafe { weight.multiply(panel, [first, rows - first], x, place, add) };
                    c
                };
                assert_eq!(product(&lines), product(&strips), "{rows} rows of {input}");
            }
        }
    }

    #[test]
    fn the_widest_sums_do_not_wrap() {
        for sign in [1.0_f32, -1.0] {
            let weight = Bytes::new([MOST_INPUTS, 1], |_, _| sign);
            for tiles in [None, Tiles::get()] {
                let mut grid = Grid::new(1, MOST_INPUTS);
                grid.rows_mut().for_each(|line| line.fill(1.0));
                let mut x = Quantized::default();
                x.fill(&grid, MOST_INPUTS, tiles);
                let mut c = vec![0.0_f32; WIDTH];
                // SAFETY: the vector has the row and columns.
                unsafe { weight.multiply(0, [0, 1], &x, Place { start: c.as_mut_ptr(), stride: WIDTH }, false) };
                let expected = sign * MOST_INPUTS as f32;
                assert!((c[0] - expected).abs() < 1.0, "{} for {expected}", c[0]);
            }
        }
    }

    #[test]
    fn nan_and_infinity_give_results_that_are_not_finite() {
        let mut grid = Grid::new(3, 8);
        grid.rows_mut().zip([0.0, f32::NAN, f32::INFINITY]).for_each(|(line, x)| line[3] = x);
        let mut x = Quantized::default();
        x.fill(&grid, 8, None);
        let product = |weight: &Bytes| {
            let mut c = vec![0.0_f32; 3 * WIDTH];
            // SAFETY: as above.
            unsafe { weight.multiply(0, [0, 3], &x, Place { start: c.as_mut_ptr(), stride: WIDTH }, false) };
            c
        };
        let c = product(&Bytes::new([8, 2], |_, _| 1.0));
        assert_eq!(c[0], 0.0);
        assert!(!c[WIDTH].is_finite() && !c[2 * WIDTH].is_finite());
        let c = product(&Bytes::new([8, 2], |k, column| if (k, column) == (2, 1) { f32::NAN } else { 1.0 }));
        assert!(c[0] == 0.0 && c[1].is_nan());
    }
}
