//! Products with weights in bf16.
//!
//! A bf16 number is the upper half of an f32, so a weight is widened by a shift and multiplied
//! exactly. Only packing rounds. Every entry is one chain of multiply-adds in the order of k, as
//! with weights in f32.

use half::bf16;

use super::grid::Slab;
use super::terms::DEPTH;
use super::tile::{Place, ROWS, WIDTH, multiply};
use crate::team::for_each_mut;

/// A weight `[input, output]` in panels of [`WIDTH`] columns. Per panel and two rows, the pairs of
/// all columns lie side by side. Zeros fill a panel up to whole tiles.
#[derive(Debug)]
pub(crate) struct Halves {
    panels: Slab<bf16>,
    input: usize,
}

impl Halves {
    /// Packs and rounds the weight that `get` returns for each row and column.
    pub(crate) fn new([input, output]: [usize; 2], get: impl Fn(usize, usize) -> f32 + Sync) -> Self {
        let (count, size) = (output.div_ceil(WIDTH), Self::size(input));
        let mut panels = Slab::new(count * size);
        let mut parts: Vec<&mut [bf16]> = panels.chunks_exact_mut(size.max(1)).take(count).collect();
        for_each_mut(&mut parts, |panel, numbers| {
            for (place, column) in (panel * WIDTH..output.min((panel + 1) * WIDTH)).enumerate() {
                for k in 0..input {
                    numbers[Self::place(k, place)] = bf16::from_f32(get(k, column));
                }
            }
        });
        Self { panels, input }
    }

    /// Numbers of a panel.
    fn size(input: usize) -> usize {
        input.next_multiple_of(DEPTH) * WIDTH
    }

    /// Returns the place of row k of a column in a panel.
    fn place(k: usize, column: usize) -> usize {
        (k / 2 * WIDTH + column) * 2 + k % 2
    }

    pub(crate) fn panel(&self, index: usize) -> &[bf16] {
        &self.panels[index * Self::size(self.input)..][..Self::size(self.input)]
    }

    /// Bytes of weights.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val::<[bf16]>(&self.panels)
    }

    /// Copies column `column` to `out`.
    pub(crate) fn column(&self, column: usize, out: &mut [f32]) {
        let panel = self.panel(column / WIDTH);
        for (k, value) in out.iter_mut().enumerate() {
            *value = panel[Self::place(k, column % WIDTH)].to_f32();
        }
    }

    /// Computes `C = A·B` or `C += A·B` for rows of A and one panel.
    ///
    /// # Safety
    ///
    /// A holds that many rows of the weight's input, C as many of [`WIDTH`] columns, and nothing
    /// else uses C.
    pub(crate) unsafe fn multiply(&self, panel: usize, rows: usize, a: Place<*const f32>, c: Place<*mut f32>, add: bool) {
        let panel = self.panel(panel);
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx512f") {
            let mut row = 0;
            while row < rows {
                let left = rows - row;
                let height = left.div_ceil(left.div_ceil(ROWS));
                let a = Place { start: a.start.wrapping_add(row * a.stride), ..a };
                let c = Place { start: c.start.wrapping_add(row * c.stride), ..c };
                // SAFETY: the processor has the instructions; rows `row..row + height` of A and C,
                // which the caller vouches for.
                unsafe { avx512(height, self.input, a, panel, c, add) };
                row += height;
            }
            return;
        }
        // SAFETY: the caller's promise.
        unsafe { widened(rows, self.input, a, panel, c, add) }
    }
}

/// Through f32, a few rows of the panel at a time: for any processor.
///
/// # Safety
///
/// As [`Halves::multiply`].
unsafe fn widened(rows: usize, input: usize, a: Place<*const f32>, panel: &[bf16], c: Place<*mut f32>, add: bool) {
    let mut numbers = [0.0_f32; DEPTH * WIDTH];
    if input == 0 {
        // SAFETY: the caller's promise.
        return unsafe { multiply([rows, 0, 2], a, Place { start: numbers.as_ptr(), stride: WIDTH }, c, add) };
    }
    for (index, pairs) in panel.chunks_exact(DEPTH * WIDTH).enumerate() {
        for (pair, lines) in pairs.chunks_exact(2 * WIDTH).zip(numbers.chunks_exact_mut(2 * WIDTH)) {
            let (first, second) = lines.split_at_mut(WIDTH);
            for ((pair, first), second) in pair.chunks_exact(2).zip(first).zip(second) {
                (*first, *second) = (pair[0].to_f32(), pair[1].to_f32());
            }
        }
        let from = index * DEPTH;
        let a = Place { start: a.start.wrapping_add(from), ..a };
        let b = Place { start: numbers.as_ptr(), stride: WIDTH };
        // SAFETY: columns `from..` of A, at most as many as there are; the caller's promise for C.
        unsafe { multiply([rows, DEPTH.min(input - from), 2], a, b, c, add || index > 0) };
    }
}

/// # Safety
///
/// As [`Halves::multiply`], with at most [`ROWS`] rows, on a processor with AVX-512 F.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn avx512(rows: usize, input: usize, a: Place<*const f32>, panel: &[bf16], c: Place<*mut f32>, add: bool) {
    macro_rules! heights {
        ($($height:literal)*) => {
            // SAFETY: the caller's promise, passed on.
            unsafe {
                match rows {
                    $($height => avx512_tile::<$height>(input, a, panel, c, add),)*
                    0 => {}
                    _ => avx512_tile::<ROWS>(input, a, panel, c, add),
                }
            }
        };
    }
    heights!(1 2 3 4 5 6 7 8 9 10 11);
}

/// # Safety
///
/// As [`avx512`], with R rows.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn avx512_tile<const R: usize>(input: usize, a: Place<*const f32>, panel: &[bf16], c: Place<*mut f32>, add: bool) {
    use std::arch::x86_64::{
        __m512, _MM_HINT_T0, _mm_prefetch, _mm512_and_si512, _mm512_castsi512_ps, _mm512_fmadd_ps, _mm512_loadu_ps,
        _mm512_loadu_si512, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps, _mm512_slli_epi32, _mm512_storeu_ps,
    };
    /// Pairs of rows to fetch ahead; see [`super::tile`].
    const AHEAD: usize = 48;
    assert!(panel.len() >= input.div_ceil(2) * 2 * WIDTH);
    // SAFETY: the panel has a pair of rows for every two k by the assertion; the caller vouches for
    // A and C; a prefetch may point anywhere.
    unsafe {
        let mut sums: [[__m512; 2]; R] = [[_mm512_setzero_ps(); 2]; R];
        if add {
            for (r, sums) in sums.iter_mut().enumerate() {
                for (v, sum) in sums.iter_mut().enumerate() {
                    *sum = _mm512_loadu_ps(c.start.add(r * c.stride + 16 * v));
                }
            }
        }
        let upper = _mm512_set1_epi32(0xffff_0000_u32.cast_signed());
        let mut line = panel.as_ptr();
        for k in (0..input).step_by(2) {
            let (mut firsts, mut seconds) = ([_mm512_setzero_ps(); 2], [_mm512_setzero_ps(); 2]);
            let ahead = line.wrapping_add(AHEAD * 2 * WIDTH).cast::<i8>();
            for v in 0..2 {
                let pairs = _mm512_loadu_si512(line.add(32 * v).cast());
                _mm_prefetch::<_MM_HINT_T0>(ahead.wrapping_add(64 * v));
                firsts[v] = _mm512_castsi512_ps(_mm512_slli_epi32::<16>(pairs));
                seconds[v] = _mm512_castsi512_ps(_mm512_and_si512(pairs, upper));
            }
            // The last of an odd number has no second: what A has there may be anything.
            for (place, columns) in [(k, firsts), (k + 1, seconds)] {
                if place < input {
                    for (r, sums) in sums.iter_mut().enumerate() {
                        let x = _mm512_set1_ps(*a.start.add(r * a.stride + place));
                        for (sum, column) in sums.iter_mut().zip(columns) {
                            *sum = _mm512_fmadd_ps(x, column, *sum);
                        }
                    }
                }
            }
            line = line.add(2 * WIDTH);
        }
        for (r, sums) in sums.iter().enumerate() {
            for (v, sum) in sums.iter().enumerate() {
                _mm512_storeu_ps(c.start.add(r * c.stride + 16 * v), *sum);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::noise::noise;
    use super::*;

    /// What f32 gives from the same weights, widened.
    fn reference(weight: &Halves, panel: usize, rows: usize, a: Place<*const f32>, before: &[f32], add: bool) -> Vec<f32> {
        let mut numbers = vec![0.0; weight.input * WIDTH];
        for (column, place) in (panel * WIDTH..(panel + 1) * WIDTH).zip(0..) {
            let mut values = vec![0.0; weight.input];
            weight.column(column, &mut values);
            values.iter().enumerate().for_each(|(k, value)| numbers[k * WIDTH + place] = *value);
        }
        let mut c = before.to_vec();
        let b = Place { start: numbers.as_ptr(), stride: WIDTH };
        // SAFETY: the vectors have the rows and columns.
        unsafe { multiply([rows, weight.input, 2], a, b, Place { start: c.as_mut_ptr(), stride: WIDTH }, add) };
        c
    }

    #[test]
    fn every_height_has_the_bits_that_f32_has() {
        for (input, rows) in (1..=27).map(|rows| (37 + rows % 2, rows)).chain([(1, 3), (64, 5), (300, 13), (0, 2)]) {
            let weight = Halves::new([input, 45], noise);
            // Two numbers beyond each row, which must not matter.
            let stride = input + 2;
            let a: Vec<f32> = (0..rows * stride).map(|at| if at % stride < input { noise(at, 3) } else { f32::NAN }).collect();
            let place = Place { start: a.as_ptr(), stride };
            let before: Vec<f32> = (0..rows * WIDTH).map(|at| noise(at, 9)).collect();
            for (panel, add) in [(0, false), (1, true)] {
                let expected = reference(&weight, panel, rows, place, &before, add);
                let (mut found, mut plain) = (before.clone(), before.clone());
                // SAFETY: the vectors have the rows and columns.
                unsafe {
                    weight.multiply(panel, rows, place, Place { start: found.as_mut_ptr(), stride: WIDTH }, add);
                    let c = Place { start: plain.as_mut_ptr(), stride: WIDTH };
                    widened(rows, input, place, weight.panel(panel), c, add);
                }
                assert_eq!(found, expected, "{rows} rows of {input}");
                assert_eq!(plain, expected, "{rows} rows of {input}");
            }
        }
    }

    #[test]
    fn columns_come_back_rounded() {
        let weight = Halves::new([11, 40], noise);
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
