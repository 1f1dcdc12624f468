//! Products of bytes in vectors.

use super::super::tile::{Strided, WIDTH};
#[cfg(target_arch = "x86_64")]
use super::super::tile::{has_avx2, load_sums, of_height, store_sums};
#[cfg(target_arch = "x86_64")]
use super::GROUP;
use super::{PANEL, QUAD, ROWS, STRIP, Vnni};

/// The rounded numbers of a strip; see [`Strips`](super::Strips).
#[derive(Clone, Copy)]
pub(super) enum Numbers<'a> {
    Bytes(&'a [i8], Vnni),
    Words(&'a [i16]),
}

/// Rows of a strip and the panel that they are multiplied with.
pub(super) struct Strip<'a> {
    /// The first of the rows, and their number.
    pub(super) rows: [usize; 2],
    pub(super) numbers: Numbers<'a>,
    pub(super) row_scales: &'a [f32],
    pub(super) shifts: &'a [i32],
    pub(super) bytes: &'a [u8],
    pub(super) scales: &'a [f32],
}

impl Strip<'_> {
    /// Computes `C = A·B` or `C += A·B` for the rows and the first one or two vectors of 16 columns.
    ///
    /// # Safety
    ///
    /// C holds that many rows and columns, and nothing else uses them.
    pub(super) unsafe fn multiply(&self, vectors: usize, c: Strided<*mut f32>, add: bool) {
        let ([from, rows], groups) = (self.rows, self.groups());
        assert!(from + rows <= ROWS && self.row_scales.len() == groups * ROWS && self.shifts.len() == groups * ROWS);
        assert!(self.bytes.len() == groups * PANEL && self.scales.len() == groups * WIDTH);
        let words = match self.numbers {
            Numbers::Bytes(numbers, _) => {
                assert!(numbers.len() == groups * STRIP);
                // SAFETY: the proof says that the processor has the instructions; the slices are
                // long enough by the assertions, and C by the caller's promise.
                return unsafe { self.vnni(numbers, vectors, c, add) };
            }
            Numbers::Words(words) => words,
        };
        assert!(words.len() == groups * STRIP);
        #[cfg(target_arch = "x86_64")]
        if has_avx2() {
            // SAFETY: the processor has the instructions; the slices and C as above.
            return unsafe { self.avx2(words, vectors, c, add) };
        }
        for row in 0..rows {
            // SAFETY: the caller's promise.
            let out = unsafe { std::slice::from_raw_parts_mut(c.start.add(row * c.stride), 16 * vectors) };
            self.plain(words, row, out, add);
        }
    }

    fn groups(&self) -> usize {
        self.scales.len() / WIDTH
    }

    /// Computes one row on any processor.
    pub(super) fn plain(&self, words: &[i16], row: usize, out: &mut [f32], add: bool) {
        let place = self.rows[0] + row;
        if !add {
            out.fill(0.0);
        }
        let groups = words.chunks_exact(STRIP).zip(self.bytes.chunks_exact(PANEL)).zip(self.scales.chunks_exact(WIDTH));
        for (group, ((strip, panel), scales)) in groups.enumerate() {
            let mut sums = [self.shifts[group * ROWS + place]; WIDTH];
            for (x, quad) in strip.chunks_exact(ROWS * QUAD).zip(panel.chunks_exact(QUAD * WIDTH)) {
                let x = &x[place * QUAD..][..QUAD];
                for (sum, weights) in sums.iter_mut().zip(quad.as_chunks::<QUAD>().0) {
                    let weights = [weights[0], weights[2], weights[1], weights[3]];
                    *sum += weights.iter().zip(x).map(|(weight, x)| i32::from(*weight) * i32::from(*x)).sum::<i32>();
                }
            }
            let scale = self.row_scales[group * ROWS + place];
            for ((out, sum), column) in out.iter_mut().zip(sums).zip(scales) {
                *out += sum as f32 * (column * scale);
            }
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    unsafe fn vnni(&self, _: &[i8], _: usize, _: Strided<*mut f32>, _: bool) {}

    /// # Safety
    ///
    /// The processor has AVX-512 F and VNNI, the slices have the lengths that
    /// [`multiply`](Self::multiply) checks, and C is as in [`multiply`](Self::multiply).
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512vnni")]
    unsafe fn vnni(&self, bytes: &[i8], vectors: usize, c: Strided<*mut f32>, add: bool) {
        // SAFETY: passed on.
        unsafe {
            match vectors {
                1 => of_height!(self.rows[1], R => self.vnni_tile::<R, 1>(bytes, c, add), 1 2 3 4 5, ROWS),
                _ => of_height!(self.rows[1], R => self.vnni_tile::<R, 2>(bytes, c, add), 1 2 3 4 5, ROWS),
            }
        }
    }

    /// # Safety
    ///
    /// As [`vnni`](Self::vnni), with R rows and V vectors.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512vnni")]
    #[inline]
    unsafe fn vnni_tile<const R: usize, const V: usize>(&self, bytes: &[i8], c: Strided<*mut f32>, add: bool) {
        use std::arch::x86_64::{
            _MM_HINT_T0, _mm_prefetch, _mm512_cvtepi32_ps, _mm512_dpbusd_epi32, _mm512_fmadd_ps, _mm512_loadu_ps,
            _mm512_loadu_si512, _mm512_mul_ps, _mm512_set1_epi32, _mm512_set1_ps,
        };
        /// Quads to prefetch ahead; see [`tile`](super::super::tile).
        const AHEAD: usize = 32;
        let from = self.rows[0];
        // SAFETY: the slices hold R rows of whole groups, C is valid by the caller's promise, and a
        // prefetch may point anywhere.
        unsafe {
            let mut sums = load_sums!(512, R, V, c, add);
            for group in 0..self.groups() {
                let x = bytes.as_ptr().add(group * STRIP + from * QUAD);
                let w = self.bytes.as_ptr().add(group * PANEL);
                let rows = group * ROWS + from;
                let mut whole: [_; R] = std::array::from_fn(|r| [_mm512_set1_epi32(*self.shifts.as_ptr().add(rows + r)); V]);
                for quad in 0..GROUP / QUAD {
                    let at = w.add(quad * QUAD * WIDTH);
                    let columns: [_; V] = std::array::from_fn(|v| {
                        _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(AHEAD * QUAD * WIDTH + 64 * v).cast());
                        _mm512_loadu_si512(at.add(64 * v).cast())
                    });
                    for (r, whole) in whole.iter_mut().enumerate() {
                        let x = _mm512_set1_epi32(x.add((quad * ROWS + r) * QUAD).cast::<i32>().read_unaligned());
                        for (whole, column) in whole.iter_mut().zip(columns) {
                            *whole = _mm512_dpbusd_epi32(*whole, column, x);
                        }
                    }
                }
                for v in 0..V {
                    let scale = _mm512_loadu_ps(self.scales.as_ptr().add(group * WIDTH + 16 * v));
                    for (r, (sums, whole)) in sums.iter_mut().zip(&whole).enumerate() {
                        let scale = _mm512_mul_ps(scale, _mm512_set1_ps(*self.row_scales.as_ptr().add(rows + r)));
                        sums[v] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(whole[v]), scale, sums[v]);
                    }
                }
            }
            store_sums!(512, sums, c);
        }
    }

    /// # Safety
    ///
    /// The processor has AVX2 and FMA; otherwise as [`vnni`](Self::vnni).
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn avx2(&self, words: &[i16], vectors: usize, c: Strided<*mut f32>, add: bool) {
        /// Rows of the largest tile that is as wide as a panel: four vectors.
        const WIDE: usize = 2;
        // SAFETY: passed on.
        unsafe {
            if vectors == 2 && self.rows[1] <= WIDE {
                return of_height!(self.rows[1], R => self.avx2_tile::<R, 4>(words, (c, 0), add), 1, WIDE);
            }
            for column in (0..16 * vectors).step_by(16) {
                let c = (Strided { start: c.start.add(column), ..c }, column);
                of_height!(self.rows[1], R => self.avx2_tile::<R, 2>(words, c, add), 1 2 3 4 5, ROWS);
            }
        }
    }

    /// # Safety
    ///
    /// As [`avx2`](Self::avx2), with R rows and V vectors of eight columns from the given column on.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn avx2_tile<const R: usize, const V: usize>(
        &self,
        words: &[i16],
        (c, column): (Strided<*mut f32>, usize),
        add: bool,
    ) {
        use std::arch::x86_64::{
            _MM_HINT_T0, _mm_prefetch, _mm256_add_epi32, _mm256_and_si256, _mm256_cvtepi32_ps, _mm256_fmadd_ps, _mm256_loadu_ps,
            _mm256_loadu_si256, _mm256_madd_epi16, _mm256_mul_ps, _mm256_set1_epi16, _mm256_set1_epi32, _mm256_set1_ps,
            _mm256_srli_epi16,
        };
        /// Quads to prefetch ahead; see [`tile`](super::super::tile).
        const AHEAD: usize = 32;
        let from = self.rows[0];
        // SAFETY: the slices hold R rows of whole groups, C is valid by the caller's promise, and a
        // prefetch may point anywhere.
        unsafe {
            let mut sums = load_sums!(256, R, V, c, add);
            let low = _mm256_set1_epi16(0xff);
            for group in 0..self.groups() {
                let x = words.as_ptr().add(group * STRIP + from * QUAD);
                let w = self.bytes.as_ptr().add(group * PANEL + column * QUAD);
                let rows = group * ROWS + from;
                let mut whole: [_; R] = std::array::from_fn(|r| [_mm256_set1_epi32(*self.shifts.as_ptr().add(rows + r)); V]);
                for quad in 0..GROUP / QUAD {
                    let at = w.add(quad * QUAD * WIDTH);
                    for v in (0..V).step_by(2) {
                        _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(AHEAD * QUAD * WIDTH + 32 * v).cast());
                    }
                    let quads = |v: usize| _mm256_loadu_si256(at.add(32 * v).cast());
                    let even: [_; V] = std::array::from_fn(|v| _mm256_and_si256(quads(v), low));
                    let odd: [_; V] = std::array::from_fn(|v| _mm256_srli_epi16::<8>(quads(v)));
                    for (half, columns) in [even, odd].into_iter().enumerate() {
                        for (r, whole) in whole.iter_mut().enumerate() {
                            let x = x.add((quad * ROWS + r) * QUAD + 2 * half).cast::<i32>().read_unaligned();
                            let x = _mm256_set1_epi32(x);
                            for (whole, column) in whole.iter_mut().zip(columns) {
                                *whole = _mm256_add_epi32(*whole, _mm256_madd_epi16(column, x));
                            }
                        }
                    }
                }
                for v in 0..V {
                    let scale = _mm256_loadu_ps(self.scales.as_ptr().add(group * WIDTH + column + 8 * v));
                    for (r, (sums, whole)) in sums.iter_mut().zip(&whole).enumerate() {
                        let scale = _mm256_mul_ps(scale, _mm256_set1_ps(*self.row_scales.as_ptr().add(rows + r)));
                        sums[v] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(whole[v]), scale, sums[v]);
                    }
                }
            }
            store_sums!(256, sums, c);
        }
    }
}
