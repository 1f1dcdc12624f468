//! Matrix products of strided slices.

/// A strided matrix: values, row stride, column stride.
pub(super) type Strided<'a> = (&'a [f32], usize, usize);

/// Computes `C = A·B`, or `C += A·B`, with C of shape `[m, n]` and unit column stride, on this
/// thread.
pub(super) fn product(shape: [usize; 3], c: (&mut [f32], usize), a: Strided<'_>, b: Strided<'_>, add: bool) {
    multiply(shape, c, a, b, add, gemm::Parallelism::None);
}

/// Computes [`product`] on all threads.
pub(super) fn wide_product(shape: [usize; 3], c: (&mut [f32], usize), a: Strided<'_>, b: Strided<'_>, add: bool) {
    multiply(shape, c, a, b, add, gemm::Parallelism::Rayon(0));
}

fn multiply(
    [m, n, k]: [usize; 3],
    (c, c_row): (&mut [f32], usize),
    (a, a_row, a_col): Strided<'_>,
    (b, b_row, b_col): Strided<'_>,
    add: bool,
    parallelism: gemm::Parallelism,
) {
    let last = |rows: usize, row: usize, columns: usize, column: usize| {
        rows.saturating_sub(1) * row + columns.saturating_sub(1) * column
    };
    assert!(m > 0 && n > 0 && k > 0);
    assert!(last(m, c_row, n, 1) < c.len());
    assert!(last(m, a_row, k, a_col) < a.len());
    assert!(last(k, b_row, n, b_col) < b.len());
    // SAFETY: the assertions bound every element that the three strided matrices reach, and `c` is
    // borrowed mutably, so it overlaps neither `a` nor `b`. Slices are no longer than isize::MAX
    // bytes, so the strides fit.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            c.as_mut_ptr(),
            1,
            c_row as isize,
            add,
            a.as_ptr(),
            a_col as isize,
            a_row as isize,
            b.as_ptr(),
            b_col as isize,
            b_row as isize,
            1.0_f32,
            1.0_f32,
            false,
            false,
            false,
            parallelism,
        );
    }
}
