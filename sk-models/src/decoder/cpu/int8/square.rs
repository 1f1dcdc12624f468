//! Products of bytes in the tiles of AMX.

use std::arch::x86_64::{
    _MM_HINT_T0, _mm_prefetch, _mm512_add_epi32, _mm512_cvtepi32_ps, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_loadu_si512,
    _mm512_mul_ps, _mm512_set1_epi32, _mm512_set1_ps, _mm512_storeu_ps,
};

use super::super::amx::{Configured, HEIGHT, Line, SIDE, Sums};
use super::super::tile::{Strided, WIDTH};
use super::PANEL;

/// A square of rows and the panel that it is multiplied with.
pub(super) struct Square<'a> {
    pub(super) lines: &'a [Line],
    pub(super) row_scales: &'a [f32],
    pub(super) shifts: &'a [i32],
    pub(super) bytes: &'a [u8],
    pub(super) scales: &'a [f32],
}

/// A group of a [`Square`].
struct Group<'a> {
    rows: &'a [Line; SIDE],
    row_scales: &'a [f32; SIDE],
    shifts: &'a [i32; SIDE],
    panel: &'a [u8; PANEL],
    scales: &'a [f32; WIDTH],
}

impl Square<'_> {
    fn groups(&self) -> impl Iterator<Item = Group<'_>> {
        let rows = self.lines.as_chunks().0.iter().zip(self.row_scales.as_chunks().0).zip(self.shifts.as_chunks().0);
        let columns = self.bytes.as_chunks().0.iter().zip(self.scales.as_chunks().0);
        rows.zip(columns).map(|(((rows, row_scales), shifts), (panel, scales))| Group { rows, row_scales, shifts, panel, scales })
    }

    /// Computes `C = A·B` or `C += A·B` for the first `rows` rows.
    ///
    /// # Safety
    ///
    /// C holds that many rows of [`WIDTH`] columns, and nothing else uses them.
    pub(super) unsafe fn multiply(&self, tiles: &Configured, rows: usize, c: Strided<*mut f32>, add: bool) {
        let mut sums = Sums([[0.0_f32; WIDTH]; SIDE]);
        let row = |row: usize| c.start.wrapping_add(row * c.stride).cast::<[f32; WIDTH]>();
        if add {
            // SAFETY: the caller's promise.
            sums.0.iter_mut().take(rows).enumerate().for_each(|(at, sums)| *sums = unsafe { *row(at) });
        }
        // SAFETY: every processor with AMX has AVX-512 F.
        unsafe { self.add_products(tiles, &mut sums) };
        // SAFETY: the caller's promise.
        sums.0.iter().take(rows).enumerate().for_each(|(at, sums)| unsafe { *row(at) = *sums });
    }

    /// Adds the scaled products of all groups.
    #[target_feature(enable = "avx512f")]
    fn add_products(&self, tiles: &Configured, sums: &mut Sums<f32>) {
        let mut whole = Sums([[0; WIDTH]; SIDE]);
        for group in self.groups() {
            tiles.byte_products(group.rows, group.panel, &mut whole);
            group.scale(&whole, sums);
        }
    }
}

impl Group<'_> {
    /// Adds the products of the group, scaled.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn scale(&self, whole: &Sums<i32>, sums: &mut Sums<f32>) {
        // SAFETY: a row is two vectors.
        unsafe {
            let scales: [_; 2] = std::array::from_fn(|vector| _mm512_loadu_ps(self.scales.as_ptr().add(vector * HEIGHT)));
            for (at, (sums, whole)) in sums.0.iter_mut().zip(&whole.0).enumerate() {
                // The next group.
                _mm_prefetch::<_MM_HINT_T0>(self.panel.as_ptr().wrapping_add((SIDE + at) * size_of::<Line>()).cast());
                _mm_prefetch::<_MM_HINT_T0>(self.rows.as_ptr().wrapping_add(SIDE + at).cast());
                let (shift, row_scale) = (_mm512_set1_epi32(self.shifts[at]), _mm512_set1_ps(self.row_scales[at]));
                for (vector, scale) in scales.into_iter().enumerate() {
                    let products = _mm512_loadu_si512(whole.as_ptr().add(vector * HEIGHT).cast());
                    let products = _mm512_cvtepi32_ps(_mm512_add_epi32(products, shift));
                    let sum = sums.as_mut_ptr().add(vector * HEIGHT);
                    _mm512_storeu_ps(sum, _mm512_fmadd_ps(products, _mm512_mul_ps(scale, row_scale), _mm512_loadu_ps(sum)));
                }
            }
        }
    }
}
