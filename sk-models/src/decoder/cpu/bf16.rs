//! Products with weights in bf16.
//!
//! A bf16 number is the upper half of an f32, so a weight is widened exactly, by a shift. Weights
//! are rounded only when they are packed. Every entry is one chain of multiply-adds in the order of
//! k, as with weights in f32.
//!
//! Where products of pairs are faster ([`PairProducts::get`]), rows are rounded to bf16 as well,
//! and one instruction adds two products to each f32 sum. An entry is again one chain in the order
//! of k, for any number of rows in a pass.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::__cpuid;
#[cfg(target_arch = "x86_64")]
use std::sync::LazyLock;

use half::bf16;

use super::grid::{Grid, Slab};
use super::terms::DEPTH;
use super::tile::{ROWS, Strided, WIDTH, heights, multiply};
#[cfg(target_arch = "x86_64")]
use super::tile::{add_outer_product, has_avx2, load_sums, of_height, store_sums};
use crate::team::{SharedSlice, for_each_mut};

/// Proof that the processor has AVX-512 BF16, whose instruction adds two products of bf16 numbers to
/// an f32 sum.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PairProducts(());

impl PairProducts {
    /// Returns the proof if these products are faster than products of f32. On AMD's processors they
    /// are twice as fast. On Intel's, with AMX or without, they are half as fast.
    pub(crate) fn get() -> Option<Self> {
        Self::supported().filter(|_| is_amd())
    }

    /// Returns the proof if the processor has the instruction.
    pub(crate) fn supported() -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bf16") {
            return Some(Self(()));
        }
        None
    }
}

/// Returns whether AMD made the processor.
#[cfg(target_arch = "x86_64")]
fn is_amd() -> bool {
    // The instruction takes microseconds in a virtual machine.
    static IS_AMD: LazyLock<bool> = LazyLock::new(|| {
        let vendor = __cpuid(0);
        [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).concat() == b"AuthenticAMD"
    });
    *IS_AMD
}

#[cfg(not(target_arch = "x86_64"))]
fn is_amd() -> bool {
    false
}

/// Rows of numbers rounded to bf16.
#[derive(Debug, Default)]
pub(crate) struct Rounded {
    /// Pairs of numbers, the first in the lower half. Zeros fill a row up to whole vectors. Unused
    /// memory may follow the rows.
    pairs: Vec<u32>,
    /// Pairs of a row.
    stride: usize,
}

impl Rounded {
    /// Numbers in a vector.
    const VECTOR: usize = 32;

    /// Rounds the first `width` columns of a grid.
    pub(crate) fn fill(&mut self, proof: PairProducts, grid: &Grid, width: usize) {
        /// Rows of a task.
        const PIECE: usize = 32;
        let stride = self.reshape(grid.rows(), width);
        let mut pieces: Vec<&mut [u32]> = self.pairs[..grid.rows() * stride].chunks_mut((PIECE * stride).max(1)).collect();
        for_each_mut(&mut pieces, |piece, pairs| {
            for (row, pairs) in (piece * PIECE..).zip(pairs.chunks_exact_mut(stride)) {
                proof.round(&grid.row(row)[..width], pairs);
            }
        });
    }

    /// Makes room for `[rows, width]` numbers, whose values are unspecified. Returns the pairs of a
    /// row.
    pub(super) fn reshape(&mut self, rows: usize, width: usize) -> usize {
        self.stride = width.next_multiple_of(Self::VECTOR) / 2;
        if self.pairs.len() < rows * self.stride {
            self.pairs.resize(rows * self.stride, 0);
        }
        self.stride
    }

    pub(super) fn parts(&mut self) -> SharedSlice<u32> {
        SharedSlice::of(&mut self.pairs)
    }

    /// Returns the rows from `row` on.
    fn rows_from(&self, row: usize) -> Strided<*const u32> {
        Strided { start: self.pairs[row * self.stride..].as_ptr(), stride: self.stride }
    }
}

/// A weight `[input, output]` in panels of [`WIDTH`] columns. Per panel and two rows, the pairs of
/// all columns lie side by side. Zeros fill a panel up to whole tiles.
#[derive(Debug)]
pub(crate) struct Bf16Weights {
    panels: Slab<bf16>,
    input: usize,
}

impl Bf16Weights {
    /// Packs and rounds the weight that `get` returns for each row and column.
    pub(crate) fn new([input, output]: [usize; 2], get: impl Fn(usize, usize) -> f32 + Sync) -> Self {
        let (count, size) = (output.div_ceil(WIDTH), Self::size(input));
        let mut panels = Slab::new(count * size);
        let mut parts: Vec<&mut [bf16]> = panels.chunks_exact_mut(size.max(1)).take(count).collect();
        for_each_mut(&mut parts, |panel, numbers| {
            for (place, column) in (panel * WIDTH..output.min((panel + 1) * WIDTH)).enumerate() {
                for k in 0..input {
                    numbers[Self::index(k, place)] = bf16::from_f32(get(k, column));
                }
            }
        });
        Self { panels, input }
    }

    /// Numbers of a panel.
    fn size(input: usize) -> usize {
        input.next_multiple_of(DEPTH) * WIDTH
    }

    /// Returns the index of row k of a column in a panel.
    fn index(k: usize, column: usize) -> usize {
        (k / 2 * WIDTH + column) * 2 + k % 2
    }

    pub(crate) fn panel(&self, index: usize) -> &[bf16] {
        &self.panels[index * Self::size(self.input)..][..Self::size(self.input)]
    }

    /// Returns the bytes of the weights.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val::<[bf16]>(&self.panels)
    }

    /// Copies column `column` to `out`.
    pub(crate) fn column(&self, column: usize, out: &mut [f32]) {
        let panel = self.panel(column / WIDTH);
        for (k, value) in out.iter_mut().enumerate() {
            *value = panel[Self::index(k, column % WIDTH)].to_f32();
        }
    }

    /// Computes `C = A·B` or `C += A·B` for rows of A and one panel.
    ///
    /// # Safety
    ///
    /// A holds that many rows of the weight's input, C as many of [`WIDTH`] columns, and nothing
    /// else uses C.
    pub(crate) unsafe fn multiply(&self, panel: usize, rows: usize, a: Strided<*const f32>, c: Strided<*mut f32>, add: bool) {
        let panel = self.panel(panel);
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx512f") {
            for (row, height) in heights(rows, ROWS) {
                // SAFETY: the processor has the instructions; rows `row..row + height` of A and C,
                // which the caller vouches for.
                unsafe { avx512(height, self.input, a.rows_from(row), panel, c.rows_from(row), add) };
            }
            return;
        } else if has_avx2() {
            // SAFETY: the processor has the instructions; the caller vouches for A and C.
            return unsafe { avx2(rows, self.input, a, panel, c, add) };
        }
        // SAFETY: the caller's promise.
        unsafe { portable(rows, self.input, a, panel, c, add) }
    }

    /// Computes `C = A·B` or `C += A·B` for rows `first..first + rows` of A and the first one or
    /// two vectors of 16 columns of a panel.
    ///
    /// # Safety
    ///
    /// C holds that many rows and columns, and nothing else uses them.
    pub(crate) unsafe fn multiply_rounded(
        &self,
        panel: usize,
        [first, rows, vectors]: [usize; 3],
        a: &Rounded,
        c: Strided<*mut f32>,
        add: bool,
    ) {
        assert!(2 * a.stride >= self.input && (first + rows) * a.stride <= a.pairs.len(), "rows of another width or number");
        let panel = self.panel(panel);
        for (row, height) in heights(rows, ROWS) {
            let c = c.rows_from(row);
            // SAFETY: rows were rounded, so the processor has the instruction; A has the rows and
            // columns by the assertion, and C by the caller's promise.
            unsafe { pairs([height, vectors], self.input.div_ceil(2), a.rows_from(first + row), panel, c, add) };
        }
    }
}

#[cfg(target_arch = "x86_64")]
impl PairProducts {
    /// Rounds the numbers of a row to the nearest bf16, ties to even. Subnormal numbers become
    /// zero.
    pub(super) fn round(self, row: &[f32], pairs: &mut [u32]) {
        // SAFETY: `self` is the proof that the processor has the instructions.
        unsafe { round(row, pairs) }
    }
}

#[cfg(not(target_arch = "x86_64"))]
impl PairProducts {
    pub(super) fn round(self, _: &[f32], _: &mut [u32]) {}
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bf16")]
fn round(row: &[f32], pairs: &mut [u32]) {
    use std::arch::x86_64::{__m512bh, __m512i, _mm512_cvtne2ps_pbh, _mm512_maskz_loadu_ps, _mm512_storeu_si512};
    assert!(pairs.len() >= row.len().div_ceil(Rounded::VECTOR) * Rounded::VECTOR / 2);
    for (at, pairs) in (0..row.len()).step_by(Rounded::VECTOR).zip(pairs.chunks_exact_mut(Rounded::VECTOR / 2)) {
        let halves = [at, at + Rounded::VECTOR / 2].map(|from| {
            let count = row.len().saturating_sub(from).min(16);
            let mask = ((1_u32 << count) - 1) as u16;
            // SAFETY: the mask excludes numbers beyond the row.
            unsafe { _mm512_maskz_loadu_ps(mask, row.as_ptr().wrapping_add(from)) }
        });
        let rounded = _mm512_cvtne2ps_pbh(halves[1], halves[0]);
        // SAFETY: both types are 512 bits without invalid values.
        let rounded = unsafe { std::mem::transmute::<__m512bh, __m512i>(rounded) };
        // SAFETY: the slice has sixteen numbers.
        unsafe { _mm512_storeu_si512(pairs.as_mut_ptr().cast(), rounded) };
    }
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn pairs(_: [usize; 2], _: usize, _: Strided<*const u32>, _: &[bf16], _: Strided<*mut f32>, _: bool) {}

/// # Safety
///
/// A has at most [`ROWS`](super::tile::ROWS) rows of `depth` pairs, C as many of one or two vectors
/// of 16 columns, nothing else uses C, and the processor has AVX-512 F and BF16.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bf16")]
unsafe fn pairs(
    [rows, vectors]: [usize; 2],
    depth: usize,
    a: Strided<*const u32>,
    panel: &[bf16],
    c: Strided<*mut f32>,
    add: bool,
) {
    // SAFETY: the caller's promise, passed on.
    unsafe {
        match vectors {
            1 => of_height!(rows, R => pairs_tile::<R, 1>(depth, a, panel, c, add)),
            _ => of_height!(rows, R => pairs_tile::<R, 2>(depth, a, panel, c, add)),
        }
    }
}

/// # Safety
///
/// As [`pairs`], with R rows and V vectors.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bf16")]
#[inline]
unsafe fn pairs_tile<const R: usize, const V: usize>(
    depth: usize,
    a: Strided<*const u32>,
    panel: &[bf16],
    c: Strided<*mut f32>,
    add: bool,
) {
    use std::arch::x86_64::{
        __m512bh, __m512i, _MM_HINT_T0, _mm_prefetch, _mm512_dpbf16_ps, _mm512_loadu_si512, _mm512_set1_epi32,
    };
    /// Pairs of rows to fetch ahead; see [`super::tile`].
    const AHEAD: usize = 48;
    assert!(panel.len() >= depth * 2 * WIDTH);
    // SAFETY: both types are 512 bits without invalid values.
    let of_pairs = |numbers: __m512i| unsafe { std::mem::transmute::<__m512i, __m512bh>(numbers) };
    // SAFETY: the panel has the depth by the assertion; the caller vouches for A and C; a prefetch
    // may point anywhere.
    unsafe {
        let mut sums = load_sums!(512, R, V, c, add);
        let mut line = panel.as_ptr();
        for k in 0..depth {
            let ahead = line.wrapping_add(AHEAD * 2 * WIDTH).cast::<i8>();
            let columns: [_; V] = std::array::from_fn(|v| {
                _mm_prefetch::<_MM_HINT_T0>(ahead.wrapping_add(64 * v));
                of_pairs(_mm512_loadu_si512(line.add(32 * v).cast()))
            });
            for (r, sums) in sums.iter_mut().enumerate() {
                let x = of_pairs(_mm512_set1_epi32((*a.start.add(r * a.stride + k)).cast_signed()));
                for (sum, column) in sums.iter_mut().zip(columns) {
                    *sum = _mm512_dpbf16_ps(*sum, x, column);
                }
            }
            line = line.add(2 * WIDTH);
        }
        store_sums!(512, sums, c);
    }
}

/// Computes [`Bf16Weights::multiply`] on any processor. Widens a few rows of the panel to f32 at a time.
///
/// # Safety
///
/// As [`Bf16Weights::multiply`].
unsafe fn portable(rows: usize, input: usize, a: Strided<*const f32>, panel: &[bf16], c: Strided<*mut f32>, add: bool) {
    let mut numbers = [0.0_f32; DEPTH * WIDTH];
    if input == 0 {
        // SAFETY: the caller's promise.
        return unsafe { multiply([rows, 0, 2], a, Strided { start: numbers.as_ptr(), stride: WIDTH }, c, add) };
    }
    for (index, pairs) in panel.chunks_exact(DEPTH * WIDTH).enumerate() {
        for (pair, lines) in pairs.chunks_exact(2 * WIDTH).zip(numbers.chunks_exact_mut(2 * WIDTH)) {
            let (first, second) = lines.split_at_mut(WIDTH);
            for ((pair, first), second) in pair.chunks_exact(2).zip(first).zip(second) {
                (*first, *second) = (pair[0].to_f32(), pair[1].to_f32());
            }
        }
        let from = index * DEPTH;
        let a = Strided { start: a.start.wrapping_add(from), ..a };
        let b = Strided { start: numbers.as_ptr(), stride: WIDTH };
        // SAFETY: columns `from..` of A, at most as many as there are; the caller's promise for C.
        unsafe { multiply([rows, DEPTH.min(input - from), 2], a, b, c, add || index > 0) };
    }
}

/// # Safety
///
/// As [`Bf16Weights::multiply`], with at most [`ROWS`] rows, on a processor with AVX-512 F.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn avx512(rows: usize, input: usize, a: Strided<*const f32>, panel: &[bf16], c: Strided<*mut f32>, add: bool) {
    // SAFETY: the caller's promise, passed on.
    unsafe { of_height!(rows, R => avx512_tile::<R>(input, a, panel, c, add)) }
}

/// A function of its own, since its addresses take all registers.
///
/// # Safety
///
/// As [`avx512`], with R rows.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
#[inline(never)]
unsafe fn avx512_tile<const R: usize>(input: usize, a: Strided<*const f32>, panel: &[bf16], c: Strided<*mut f32>, add: bool) {
    use std::arch::x86_64::{
        _MM_HINT_T0, _mm_prefetch, _mm512_and_si512, _mm512_castsi512_ps, _mm512_fmadd_ps, _mm512_loadu_si512, _mm512_set1_epi32,
        _mm512_set1_ps, _mm512_slli_epi32,
    };
    /// Pairs of rows to fetch ahead; see [`super::tile`].
    const AHEAD: usize = 48;
    /// Rows that are reached from one pointer: the stride and its multiples by 3 and 5 are in
    /// registers, and an address multiplies them by 2 or 4.
    const HALF: usize = ROWS / 2;
    assert!(panel.len() >= input.div_ceil(2) * 2 * WIDTH);
    // SAFETY: the panel has a pair of rows for every two k by the assertion; the caller vouches for
    // A and C; a prefetch may point anywhere.
    unsafe {
        let mut sums = load_sums!(512, R, 2, c, add);
        let upper = _mm512_set1_epi32(0xffff_0000_u32.cast_signed());
        let mut line = panel.as_ptr();
        let mut halves = [a.start, a.start.wrapping_add(HALF * a.stride)];
        macro_rules! add_products {
            ($k:expr, $columns:expr) => {
                let columns = $columns;
                for (r, sums) in sums.iter_mut().enumerate() {
                    let x = _mm512_set1_ps(*halves[r / HALF].add(r % HALF * a.stride + $k));
                    for (sum, column) in sums.iter_mut().zip(columns) {
                        *sum = _mm512_fmadd_ps(x, column, *sum);
                    }
                }
            };
        }
        let mut left = input;
        while left > 0 {
            let ahead = line.wrapping_add(AHEAD * 2 * WIDTH).cast::<i8>();
            let pairs: [_; 2] = std::array::from_fn(|v| {
                _mm_prefetch::<_MM_HINT_T0>(ahead.wrapping_add(64 * v));
                _mm512_loadu_si512(line.add(32 * v).cast())
            });
            add_products!(0, pairs.map(|pairs| _mm512_castsi512_ps(_mm512_slli_epi32::<16>(pairs))));
            // If `input` is odd, the last pair has no second row, and A may hold anything there.
            if left == 1 {
                break;
            }
            add_products!(1, pairs.map(|pairs| _mm512_castsi512_ps(_mm512_and_si512(pairs, upper))));
            line = line.wrapping_add(2 * WIDTH);
            halves = halves.map(|half| half.wrapping_add(2));
            left -= 2;
        }
        store_sums!(512, sums, c);
    }
}

/// # Safety
///
/// As [`Bf16Weights::multiply`], on a processor with AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2(rows: usize, input: usize, a: Strided<*const f32>, panel: &[bf16], c: Strided<*mut f32>, add: bool) {
    /// Rows of the largest tile of two vectors: one fewer than in f32, since the pairs and their mask
    /// take registers too.
    const ROWS: usize = 5;
    /// Rows of the largest tile of four vectors.
    const WIDE: usize = 2;
    for (row, height) in heights(rows, ROWS) {
        let (a, c) = (a.rows_from(row), c.rows_from(row));
        // SAFETY: rows `row..row + height` of A and C, which the caller vouches for.
        unsafe {
            if height <= WIDE {
                of_height!(height, R => avx2_tile::<R, 4>(input, a, panel, (c, 0), add), 1, WIDE);
                continue;
            }
            for column in [0, 16] {
                let c = (Strided { start: c.start.add(column), ..c }, column);
                of_height!(height, R => avx2_tile::<R, 2>(input, a, panel, c, add), 3 4, ROWS);
            }
        }
    }
}

/// A function of its own, for the reason that [`avx512_tile`] is one.
///
/// # Safety
///
/// As [`avx2`], with R rows and V vectors of eight columns from the given column on.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
#[inline(never)]
unsafe fn avx2_tile<const R: usize, const V: usize>(
    input: usize,
    a: Strided<*const f32>,
    panel: &[bf16],
    (c, column): (Strided<*mut f32>, usize),
    add: bool,
) {
    use std::arch::x86_64::{
        _MM_HINT_T0, _mm_prefetch, _mm256_and_si256, _mm256_castsi256_ps, _mm256_loadu_si256, _mm256_set1_epi32, _mm256_set1_ps,
        _mm256_slli_epi32,
    };
    /// Pairs of rows to fetch ahead; see [`super::tile`].
    const AHEAD: usize = 48;
    assert!(panel.len() >= input.div_ceil(2) * 2 * WIDTH);
    // SAFETY: the panel has a pair of rows for every two k by the assertion; the caller vouches for
    // A and C; a prefetch may point anywhere.
    unsafe {
        let mut sums = load_sums!(256, R, V, c, add);
        let upper = _mm256_set1_epi32(0xffff_0000_u32.cast_signed());
        for k in (0..input).step_by(2) {
            let line = panel.as_ptr().add(k * WIDTH + 2 * column);
            for v in (0..V).step_by(2) {
                _mm_prefetch::<_MM_HINT_T0>(line.wrapping_add(AHEAD * 2 * WIDTH + 16 * v).cast());
            }
            let pairs = |v: usize| _mm256_loadu_si256(line.add(16 * v).cast());
            let x = |r: usize| a.start.add(r * a.stride + k);
            add_outer_product!(R, V, sums, |r| _mm256_set1_ps(*x(r)), |v| _mm256_castsi256_ps(_mm256_slli_epi32::<16>(pairs(v))));
            // If `input` is odd, the last pair has no second row, and A may hold anything there.
            if k + 1 < input {
                add_outer_product!(R, V, sums, |r| _mm256_set1_ps(*x(r).add(1)), |v| _mm256_castsi256_ps(_mm256_and_si256(
                    pairs(v),
                    upper
                )));
            }
        }
        store_sums!(256, sums, c);
    }
}

#[cfg(test)]
mod tests {
    use super::super::noise::{grid, noise};
    use super::*;

    /// Returns the product with the same weights, widened to f32.
    fn reference(weight: &Bf16Weights, panel: usize, rows: usize, a: Strided<*const f32>, before: &[f32], add: bool) -> Vec<f32> {
        let mut numbers = vec![0.0; weight.input * WIDTH];
        for (column, place) in (panel * WIDTH..(panel + 1) * WIDTH).zip(0..) {
            let mut values = vec![0.0; weight.input];
            weight.column(column, &mut values);
            values.iter().enumerate().for_each(|(k, value)| numbers[k * WIDTH + place] = *value);
        }
        let mut c = before.to_vec();
        let b = Strided { start: numbers.as_ptr(), stride: WIDTH };
        // SAFETY: the vectors have the rows and columns.
        unsafe { multiply([rows, weight.input, 2], a, b, Strided { start: c.as_mut_ptr(), stride: WIDTH }, add) };
        c
    }

    #[test]
    fn every_height_gives_the_bits_of_f32() {
        for (input, rows) in (1..=27).map(|rows| (37 + rows % 2, rows)).chain([(1, 3), (64, 5), (300, 13), (0, 2)]) {
            let weight = Bf16Weights::new([input, 45], noise);
            // Two numbers beyond each row, which must be ignored.
            let stride = input + 2;
            let a: Vec<f32> = (0..rows * stride).map(|at| if at % stride < input { noise(at, 3) } else { f32::NAN }).collect();
            let place = Strided { start: a.as_ptr(), stride };
            let before: Vec<f32> = (0..rows * WIDTH).map(|at| noise(at, 9)).collect();
            for (panel, add) in [(0, false), (1, true)] {
                let expected = reference(&weight, panel, rows, place, &before, add);
                let (mut found, mut plain) = (before.clone(), before.clone());
                // SAFETY: the vectors have the rows and columns.
                unsafe {
                    weight.multiply(panel, rows, place, Strided { start: found.as_mut_ptr(), stride: WIDTH }, add);
                    let c = Strided { start: plain.as_mut_ptr(), stride: WIDTH };
                    portable(rows, input, place, weight.panel(panel), c, add);
                }
                assert_eq!(found, expected, "{rows} rows of {input}");
                assert_eq!(plain, expected, "{rows} rows of {input}");
                #[cfg(target_arch = "x86_64")]
                if has_avx2() {
                    let mut found = before.clone();
                    let c = Strided { start: found.as_mut_ptr(), stride: WIDTH };
                    // SAFETY: as above, on a processor with the instructions.
                    unsafe { avx2(rows, input, place, weight.panel(panel), c, add) };
                    assert_eq!(found, expected, "{rows} rows of {input}");
                }
            }
        }
    }

    #[test]
    fn rounded_rows_have_the_products_of_their_roundings_at_every_height() {
        /// An addition of the chain rounds by at most half a unit of 2⁻²³.
        const UNIT: f64 = 6e-8;
        let Some(proof) = PairProducts::supported() else { return };
        for (input, rows) in (1..=27).map(|rows| (37 + rows % 2, rows)).chain([(1, 3), (64, 5), (300, 13), (1408, 25)]) {
            let weight = Bf16Weights::new([input, 45], noise);
            let grid = grid(rows, input, |row, k| noise(k, row));
            let mut rounded = Rounded::default();
            rounded.fill(proof, &grid, input);
            let before: Vec<f32> = (0..rows * WIDTH).map(|at| noise(at, 9)).collect();
            for (panel, add) in [(0, false), (1, true)] {
                let product = |first: usize, rows: usize| {
                    let mut c = before[first * WIDTH..][..rows * WIDTH].to_vec();
                    let place = Strided { start: c.as_mut_ptr(), stride: WIDTH };
                    // SAFETY: the vector has the rows and columns.
                    unsafe { weight.multiply_rounded(panel, [first, rows, 2], &rounded, place, add) };
                    c
                };
                let found = product(0, rows);
                for column in 0..WIDTH.min(45 - panel * WIDTH) {
                    let mut values = vec![0.0; input];
                    weight.column(panel * WIDTH + column, &mut values);
                    for row in 0..rows {
                        let start = if add { f64::from(before[row * WIDTH + column]) } else { 0.0 };
                        let rounded = grid.row(row)[..input].iter().map(|x| f64::from(bf16::from_f32(*x).to_f32()));
                        let products: Vec<f64> = rounded.zip(&values).map(|(x, w)| x * f64::from(*w)).collect();
                        let exact = start + products.iter().sum::<f64>();
                        let size = start.abs() + products.iter().map(|product| product.abs()).sum::<f64>();
                        let error = (f64::from(found[row * WIDTH + column]) - exact).abs();
                        assert!(
                            error <= UNIT * size * input as f64,
                            "{error} of {size} at {row}, {column}: {rows} rows of {input}"
                        );
                    }
                }
                // The first vector has the same bits without the second, which stays as it was.
                let mut first = before.clone();
                let place = Strided { start: first.as_mut_ptr(), stride: WIDTH };
                // SAFETY: the vector has the rows and columns.
                unsafe { weight.multiply_rounded(panel, [0, rows, 1], &rounded, place, add) };
                for (row, line) in first.chunks_exact(WIDTH).enumerate() {
                    assert_eq!(line[..16], found[row * WIDTH..][..16]);
                    assert_eq!(line[16..], before[row * WIDTH + 16..][..16]);
                }
                // A row has the same bits alone and among others.
                let singly: Vec<f32> = (0..rows).flat_map(|row| product(row, 1)).collect();
                assert_eq!(found, singly, "{rows} rows of {input}");
            }
        }
    }

    #[test]
    fn nan_and_infinity_survive_rounding() {
        let Some(proof) = PairProducts::supported() else { return };
        let row = [f32::NAN, f32::from_bits(0x7fff_ffff), f32::INFINITY, f32::MAX, 1.0 + f32::EPSILON, -3.0];
        let mut pairs = [u32::MAX; 16];
        proof.round(&row, &mut pairs);
        let numbers: Vec<bf16> = pairs.iter().flat_map(|pair| [*pair as u16, (pair >> 16) as u16].map(bf16::from_bits)).collect();
        assert!(numbers[0].is_nan() && numbers[1].is_nan());
        assert_eq!(numbers[2..6], [bf16::INFINITY, bf16::INFINITY, bf16::ONE, bf16::from_f32(-3.0)]);
        assert!(numbers[6..].iter().all(|number| number.to_bits() == 0));
    }

    #[test]
    fn columns_come_back_rounded() {
        let weight = Bf16Weights::new([11, 40], noise);
        for column in [0, 31, 32, 39] {
            let mut values = [0.0; 11];
            weight.column(column, &mut values);
            for (k, value) in values.into_iter().enumerate() {
                assert_eq!(value, bf16::from_f32(noise(k, column)).to_f32());
            }
        }
        assert_eq!(weight.bytes(), 2 * 2 * DEPTH * WIDTH);
    }
}
