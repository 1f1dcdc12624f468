//! The microkernel of all products: a few rows times one panel of columns.
//!
//! A panel is [`WIDTH`] columns of a matrix, row after row, so one sweep reads memory once from
//! front to back. Every entry of a tile is one chain of fused multiply-adds in the order of k, so
//! the results of a row do not depend on the batch.

use std::sync::LazyLock;

/// Columns of a panel.
pub(crate) use crate::precision::PANEL as WIDTH;

/// Rows of the largest tile. With two vectors each, they fill the registers of AVX-512.
pub(crate) const ROWS: usize = 12;

/// Whether every processor of the target has fused multiply-adds. Without them, `mul_add` calls a
/// slow function.
pub(crate) const FUSED: bool = cfg!(target_arch = "aarch64");

/// The vector instructions of this processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Portable,
}

fn level() -> Level {
    static LEVEL: LazyLock<Level> = LazyLock::new(|| {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") {
                return Level::Avx512;
            }
            if has_avx2() {
                return Level::Avx2;
            }
        }
        Level::Portable
    });
    *LEVEL
}

/// Returns whether the processor has AVX2 and fused multiply-adds.
#[cfg(target_arch = "x86_64")]
pub(super) fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")
}

/// Returns the name of the instructions that products in f32 use.
pub(super) fn instructions() -> &'static str {
    match level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => "AVX-512",
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => "AVX2",
        Level::Portable if FUSED => "NEON",
        Level::Portable => "portable vectors",
    }
}

/// A row-major matrix in memory: its first element and the distance between rows, in elements.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Strided<P> {
    pub(crate) start: P,
    pub(crate) stride: usize,
}

impl<T> Strided<*const T> {
    /// Returns the matrix from `row` on.
    pub(crate) fn rows_from(self, row: usize) -> Self {
        Self { start: self.start.wrapping_add(row * self.stride), ..self }
    }
}

impl<T> Strided<*mut T> {
    /// Returns the matrix from `row` on.
    pub(crate) fn rows_from(self, row: usize) -> Self {
        Self { start: self.start.wrapping_add(row * self.stride), ..self }
    }
}

/// One product `A·B` with A of `[rows, depth]` and B of `[depth, columns]`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Product {
    pub(crate) depth: usize,
    pub(crate) a: Strided<*const f32>,
    pub(crate) b: Strided<*const f32>,
}

impl Product {
    fn rows_from(self, row: usize) -> Self {
        Self { a: self.a.rows_from(row), ..self }
    }
}

/// Computes `C = A·B` or `C += A·B` with A of `[rows, depth]`, B of `[depth, 16·vectors]` and C of
/// `[rows, 16·vectors]`.
///
/// # Safety
///
/// The three matrices cover these rows and columns, and nothing else uses C meanwhile.
pub(crate) unsafe fn multiply(
    [rows, depth, vectors]: [usize; 3],
    a: Strided<*const f32>,
    b: Strided<*const f32>,
    c: Strided<*mut f32>,
    add: bool,
) {
    // SAFETY: the caller's promise, passed on.
    unsafe { multiply_all([rows, vectors], &[Product { depth, a, b }], c, add) }
}

/// Computes `C = Σ A·B` or `C += Σ A·B` for several products of the same rows and columns. C is
/// read and written once.
///
/// # Safety
///
/// As [`multiply`], for every product.
pub(crate) unsafe fn multiply_all([rows, vectors]: [usize; 2], products: &[Product], c: Strided<*mut f32>, add: bool) {
    // SAFETY: the processor has the instructions of its level; the caller vouches for the matrices,
    // and so for rows `row..row + height` of A and C.
    unsafe {
        match level() {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => {
                for (row, height) in heights(rows, ROWS) {
                    avx512([height, vectors], products, row, c.rows_from(row), add);
                }
            }
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => avx2([rows, vectors], products, c, add),
            Level::Portable => portable([rows, vectors], products, c, add),
        }
    }
}

/// Divides rows into tiles of at most `most` rows and returns the first row and the height of each.
/// Heights are nearly equal: 13 rows are 7 and 6 rather than 12 and 1.
pub(super) fn heights(rows: usize, most: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut row = 0;
    std::iter::from_fn(move || {
        let (first, left) = (row, rows - row);
        let height = left.div_ceil(left.div_ceil(most).max(1));
        row += height;
        (height > 0).then_some((first, height))
    })
}

/// Returns the distance of prefetches, in rows of a panel.
///
/// The processor's own prefetching ends at each page, and a panel spans many pages. The next panel
/// follows this one, so prefetching beyond the end helps too. Tiles of few rows take less time per
/// row of the panel, so the distance is larger.
#[cfg(target_arch = "x86_64")]
const fn ahead(rows: usize) -> usize {
    if rows < 4 { 96 } else { 32 }
}

/// Evaluates a call with a constant set to the number of rows of a tile: from 1 to [`ROWS`], or one
/// of the given numbers up to the last. Does nothing without rows.
#[cfg(target_arch = "x86_64")]
macro_rules! of_height {
    ($rows:expr, $height:ident => $call:expr) => {
        of_height!($rows, $height => $call, 1 2 3 4 5 6 7 8 9 10 11, $crate::decoder::cpu::tile::ROWS)
    };
    ($rows:expr, $height:ident => $call:expr, $($below:literal)*, $most:expr) => {
        match $rows {
            0 => {}
            $($below => {
                const $height: usize = $below;
                $call
            })*
            _ => {
                const $height: usize = $most;
                $call
            }
        }
    };
}
#[cfg(target_arch = "x86_64")]
pub(super) use of_height;

/// Returns the given rows and vectors of a tile of C if `$add` is true, and zeros otherwise. Vectors
/// have 512 or 256 bits. A macro, since they must stay in registers.
#[cfg(target_arch = "x86_64")]
macro_rules! load_sums {
    (512, $($shape:expr),*) => {
        $crate::decoder::cpu::tile::load_sums!(_mm512_setzero_ps, _mm512_loadu_ps, 16, $($shape),*)
    };
    (256, $($shape:expr),*) => {
        $crate::decoder::cpu::tile::load_sums!(_mm256_setzero_ps, _mm256_loadu_ps, 8, $($shape),*)
    };
    ($zero:ident, $load:ident, $width:literal, $rows:expr, $vectors:expr, $c:expr, $add:expr) => {{
        let mut sums = [[std::arch::x86_64::$zero(); $vectors]; $rows];
        if $add {
            for (r, sums) in sums.iter_mut().enumerate() {
                for (v, sum) in sums.iter_mut().enumerate() {
                    *sum = std::arch::x86_64::$load($c.start.add(r * $c.stride + $width * v));
                }
            }
        }
        sums
    }};
}
#[cfg(target_arch = "x86_64")]
pub(super) use load_sums;

/// Writes the vectors of a tile, of 512 or 256 bits, to C.
#[cfg(target_arch = "x86_64")]
macro_rules! store_sums {
    (512, $sums:expr, $c:expr) => {
        $crate::decoder::cpu::tile::store_sums!(_mm512_storeu_ps, 16, $sums, $c)
    };
    (256, $sums:expr, $c:expr) => {
        $crate::decoder::cpu::tile::store_sums!(_mm256_storeu_ps, 8, $sums, $c)
    };
    ($store:ident, $width:literal, $sums:expr, $c:expr) => {
        for (r, sums) in $sums.iter().enumerate() {
            for (v, sum) in sums.iter().enumerate() {
                std::arch::x86_64::$store($c.start.add(r * $c.stride + $width * v), *sum);
            }
        }
    };
}
#[cfg(target_arch = "x86_64")]
pub(super) use store_sums;

/// Adds the outer product of a column of A and a row of B to the vectors of a tile, of 256 bits. `$x`
/// returns the number of a row of A in all lanes, and `$column` returns a vector of the row of B.
/// The factor with fewer vectors stays in registers.
#[cfg(target_arch = "x86_64")]
macro_rules! add_outer_product {
    ($rows:expr, $vectors:expr, $sums:expr, $x:expr, $column:expr) => {{
        use std::arch::x86_64::_mm256_fmadd_ps;
        if $rows < $vectors {
            let x: [_; $rows] = std::array::from_fn($x);
            for (v, column) in (0..$vectors).map($column).enumerate() {
                for (sums, x) in $sums.iter_mut().zip(x) {
                    sums[v] = _mm256_fmadd_ps(x, column, sums[v]);
                }
            }
        } else {
            let columns: [_; $vectors] = std::array::from_fn($column);
            for (sums, x) in $sums.iter_mut().zip((0..$rows).map($x)) {
                for (sum, column) in sums.iter_mut().zip(columns) {
                    *sum = _mm256_fmadd_ps(x, column, *sum);
                }
            }
        }
    }};
}
#[cfg(target_arch = "x86_64")]
pub(super) use add_outer_product;

/// # Safety
///
/// As [`multiply_all`], with at most [`ROWS`] rows of A from `first` on and one or two vectors, on a
/// processor with AVX-512 F.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn avx512([rows, vectors]: [usize; 2], products: &[Product], first: usize, c: Strided<*mut f32>, add: bool) {
    // SAFETY: the caller's promise, passed on.
    unsafe {
        match vectors {
            1 => of_height!(rows, R => avx512_tile::<R, 1>(products, first, c, add)),
            _ => of_height!(rows, R => avx512_tile::<R, 2>(products, first, c, add)),
        }
    }
}

/// # Safety
///
/// As [`avx512`], for `R` rows and `V` vectors. [`multiply_all`] has checked the processor, and its
/// callers vouch for the three matrices.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn avx512_tile<const R: usize, const V: usize>(products: &[Product], first: usize, c: Strided<*mut f32>, add: bool) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_set1_ps, _mm512_setzero_ps};
    // SAFETY: the caller vouches for every element that is read or written here; a prefetch may
    // point anywhere.
    unsafe {
        let mut sums = load_sums!(512, R, V, c, add);
        for product in products {
            let Product { depth, a, b } = product.rows_from(first);
            let mut line = b.start;
            for k in 0..depth {
                let mut columns = [_mm512_setzero_ps(); V];
                let ahead = line.wrapping_add(const { ahead(R) } * b.stride).cast::<i8>();
                for (v, column) in columns.iter_mut().enumerate() {
                    *column = _mm512_loadu_ps(line.add(16 * v));
                    _mm_prefetch::<_MM_HINT_T0>(ahead.wrapping_add(64 * v));
                }
                for (r, sums) in sums.iter_mut().enumerate() {
                    let x = _mm512_set1_ps(*a.start.add(r * a.stride + k));
                    for (sum, column) in sums.iter_mut().zip(columns) {
                        *sum = _mm512_fmadd_ps(x, column, *sum);
                    }
                }
                line = line.wrapping_add(b.stride);
            }
        }
        store_sums!(512, sums, c);
    }
}

/// # Safety
///
/// As [`multiply_all`], on a processor with AVX2 and FMA, which [`multiply_all`] has checked.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2([rows, vectors]: [usize; 2], products: &[Product], c: Strided<*mut f32>, add: bool) {
    /// Rows of the largest tile of two vectors.
    const ROWS: usize = 6;
    /// Rows of the largest tile of four vectors. It needs fewer loads per product than one of two.
    const WIDE: usize = 3;
    // SAFETY: the rows of each height belong to A and C, which the caller vouches for.
    unsafe {
        if vectors == 1 {
            for (row, height) in heights(rows, ROWS) {
                of_height!(height, R => avx2_tile::<R, 2, false>(products, row, c.rows_from(row), add), 1 2 3 4 5, ROWS);
            }
        } else {
            for (row, height) in heights(rows, WIDE) {
                let c = c.rows_from(row);
                // The first tile brings the panel into the cache.
                if row == 0 {
                    of_height!(height, R => avx2_tile::<R, 4, true>(products, row, c, add), 1 2, WIDE);
                } else {
                    of_height!(height, R => avx2_tile::<R, 4, false>(products, row, c, add), 1 2, WIDE);
                }
            }
        }
    }
}

/// # Safety
///
/// As [`avx2`], for `R` rows of A from `first` on, and `V` vectors of eight columns. `FETCH` is
/// whether rows of B are prefetched.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
#[inline]
unsafe fn avx2_tile<const R: usize, const V: usize, const FETCH: bool>(
    products: &[Product],
    first: usize,
    c: Strided<*mut f32>,
    add: bool,
) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch, _mm256_loadu_ps, _mm256_set1_ps};
    // SAFETY: the caller vouches for every element that is read or written here; a prefetch may
    // point anywhere.
    unsafe {
        let mut sums = load_sums!(256, R, V, c, add);
        for product in products {
            let Product { depth, a, b } = product.rows_from(first);
            let mut line = b.start;
            for k in 0..depth {
                if FETCH {
                    for v in (0..V).step_by(2) {
                        _mm_prefetch::<_MM_HINT_T0>(line.wrapping_add(ahead(R) * b.stride + 8 * v).cast());
                    }
                }
                add_outer_product!(R, V, sums, |r| _mm256_set1_ps(*a.start.add(r * a.stride + k)), |v| _mm256_loadu_ps(
                    line.add(8 * v)
                ));
                line = line.wrapping_add(b.stride);
            }
        }
        store_sums!(256, sums, c);
    }
}

/// Computes tiles of a few rows and sixteen columns, in a form that the compiler vectorises.
///
/// # Safety
///
/// As [`multiply_all`].
unsafe fn portable([rows, vectors]: [usize; 2], products: &[Product], c: Strided<*mut f32>, add: bool) {
    const HEIGHT: usize = 4;
    for (first, height) in heights(rows, HEIGHT) {
        for column in (0..16 * vectors).step_by(16) {
            let place = (first, column);
            // SAFETY: these rows and columns `column..column + 16` belong to the caller's matrices.
            unsafe {
                let c = Strided { start: c.start.add(first * c.stride + column), ..c };
                match height {
                    1 => portable_tile::<1>(products, place, c, add),
                    2 => portable_tile::<2>(products, place, c, add),
                    3 => portable_tile::<3>(products, place, c, add),
                    _ => portable_tile::<HEIGHT>(products, place, c, add),
                }
            }
        }
    }
}

/// # Safety
///
/// As [`portable`], for `R` rows of A from `first` on, and columns `column..column + 16` of B.
#[inline(always)]
unsafe fn portable_tile<const R: usize>(products: &[Product], (first, column): (usize, usize), c: Strided<*mut f32>, add: bool) {
    // SAFETY: the caller vouches for every element that is read or written here.
    unsafe {
        let mut sums = [[0.0_f32; 16]; R];
        if add {
            for (r, sums) in sums.iter_mut().enumerate() {
                *sums = c.start.add(r * c.stride).cast::<[f32; 16]>().read();
            }
        }
        for product in products {
            let Product { depth, a, b } = product.rows_from(first);
            for k in 0..depth {
                let columns = b.start.add(k * b.stride + column).cast::<[f32; 16]>().read();
                for (r, sums) in sums.iter_mut().enumerate() {
                    let x = *a.start.add(r * a.stride + k);
                    for (sum, column) in sums.iter_mut().zip(columns) {
                        *sum = if FUSED { x.mul_add(column, *sum) } else { x * column + *sum };
                    }
                }
            }
        }
        for (r, sums) in sums.iter().enumerate() {
            c.start.add(r * c.stride).cast::<[f32; 16]>().write(*sums);
        }
    }
}

/// Returns a panel of f32, for [`multiply`].
pub(super) fn panel(panels: &[f32], input: usize, index: usize) -> Strided<*const f32> {
    Strided { start: panels[index * input * WIDTH..].as_ptr(), stride: WIDTH }
}

#[cfg(test)]
mod tests {
    use super::super::noise::numbers;
    use super::*;

    type Multiply = unsafe fn([usize; 2], &[Product], Strided<*mut f32>, bool);

    /// One rounding per term, in sums of 40 products below one.
    const TOLERANCE: f32 = 40.0 * f32::EPSILON;

    fn check(multiply: Multiply, rows: usize) {
        let cases = [
            (1, 2, false, false),
            (40, 2, true, true),
            (37, 1, false, true),
            (16, 1, true, false),
            (0, 2, false, false),
            (35, 2, false, true),
        ];
        for (depth, vectors, add, in_parts) in cases {
            let (width, a_stride, c_stride) = (16 * vectors, depth + 3, 16 * vectors + 5);
            let a = numbers(rows * a_stride, 1);
            let b = numbers(depth * width, 2);
            let start = numbers(rows * c_stride, 3);
            let mut c = start.clone();
            // SAFETY: the vectors have the sizes that the shapes ask for.
            unsafe {
                let a = Strided { start: a.as_ptr(), stride: a_stride };
                let b = Strided { start: b.as_ptr(), stride: width };
                // The same product in one piece, or as the sum of two.
                let (head, tail) = (depth / 3, depth - depth / 3);
                let whole = [Product { depth, a, b }];
                let parts = [
                    Product { depth: head, a, b },
                    Product {
                        depth: tail,
                        a: Strided { start: a.start.add(head), ..a },
                        b: Strided { start: b.start.add(head * width), ..b },
                    },
                ];
                let products = if in_parts { &parts[..] } else { &whole[..] };
                multiply([rows, vectors], products, Strided { start: c.as_mut_ptr(), stride: c_stride }, add);
            }
            for row in 0..rows {
                for column in 0..c_stride {
                    let (found, before) = (c[row * c_stride + column], start[row * c_stride + column]);
                    if column >= width {
                        assert_eq!(found, before, "beyond the tile");
                        continue;
                    }
                    let product: f64 =
                        (0..depth).map(|k| f64::from(a[row * a_stride + k]) * f64::from(b[k * width + column])).sum();
                    let expected = product + if add { f64::from(before) } else { 0.0 };
                    assert!((f64::from(found) - expected).abs() <= f64::from(TOLERANCE), "{found} for {expected}");
                }
            }
        }
    }

    #[test]
    fn every_height_is_the_product() {
        for rows in 1..=27 {
            check(multiply_all, rows);
            check(portable, rows);
            #[cfg(target_arch = "x86_64")]
            if has_avx2() {
                check(avx2, rows);
            }
        }
    }

    #[test]
    fn a_row_has_the_same_bits_in_any_batch() {
        let (depth, rows) = (33, 25);
        let (a, b) = (numbers(rows * depth, 4), numbers(depth * WIDTH, 5));
        let product = |multiply: Multiply, first: usize, rows: usize| {
            let mut c = vec![0.0; rows * WIDTH];
            let a = Strided { start: a[first * depth..].as_ptr(), stride: depth };
            let b = Strided { start: b.as_ptr(), stride: WIDTH };
            // SAFETY: the vectors have the rows and columns.
            unsafe { multiply([rows, 2], &[Product { depth, a, b }], Strided { start: c.as_mut_ptr(), stride: WIDTH }, false) };
            c
        };
        let check = |multiply: Multiply| {
            let all = product(multiply, 0, rows);
            for (count, first) in
                [1, 2, 3, 5, 8].into_iter().flat_map(|count| (0..=rows - count).map(move |first| (count, first)))
            {
                assert_eq!(product(multiply, first, count), all[first * WIDTH..(first + count) * WIDTH]);
            }
            all
        };
        check(multiply_all);
        check(portable);
        #[cfg(target_arch = "x86_64")]
        if has_avx2() {
            // Both are chains of fused multiply-adds in the order of k.
            assert_eq!(check(avx2), check(multiply_all));
        }
    }
}
