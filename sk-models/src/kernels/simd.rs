//! Vector loops that the compiler can widen, and the dispatch to the processor's widest vectors.

/// Evaluates an expression compiled for the widest vectors of this processor.
///
/// The functions that it calls must be `#[inline(always)]`: it is compiled once per instruction
/// set.
macro_rules! widened {
    ($work:expr) => {
        $crate::kernels::simd::with_widest_vectors(
            #[inline(always)]
            || $work,
        )
    };
}
pub(crate) use widened;

/// Runs the closure of [`widened`].
#[inline]
pub(crate) fn with_widest_vectors<R>(work: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl") {
            // SAFETY: the processor has the features that the function is compiled for.
            return unsafe { with_avx512(work) };
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: as above.
            return unsafe { with_avx2(work) };
        }
    }
    work()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx2,fma")]
fn with_avx512<R>(work: impl FnOnce() -> R) -> R {
    work()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn with_avx2<R>(work: impl FnOnce() -> R) -> R {
    work()
}

/// Independent partial sums, so that a reduction is a vector loop with a fixed order of additions.
pub(crate) const LANES: usize = 16;

/// Returns `Σ aᵢ·bᵢ`.
#[inline(always)]
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0_f32; LANES];
    let (a_body, a_tail) = a.as_chunks::<LANES>();
    let (b_body, b_tail) = b.as_chunks::<LANES>();
    for (a, b) in a_body.iter().zip(b_body) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    let tail: f32 = a_tail.iter().zip(b_tail).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + tail
}

/// Returns the largest value.
#[inline(always)]
pub(crate) fn max(values: &[f32]) -> f32 {
    let mut best = [f32::NEG_INFINITY; LANES];
    let (body, tail) = values.as_chunks::<LANES>();
    for chunk in body {
        for lane in 0..LANES {
            best[lane] = if chunk[lane] > best[lane] { chunk[lane] } else { best[lane] };
        }
    }
    best.iter().chain(tail).fold(f32::NEG_INFINITY, |a, &b| if b > a { b } else { a })
}

/// Returns `Σ xᵢ`.
#[inline(always)]
pub(crate) fn sum(values: &[f32]) -> f32 {
    let mut sums = [0.0_f32; LANES];
    let (body, tail) = values.as_chunks::<LANES>();
    for chunk in body {
        for lane in 0..LANES {
            sums[lane] += chunk[lane];
        }
    }
    sums.iter().sum::<f32>() + tail.iter().sum::<f32>()
}

/// Returns `e^x` to about one unit in the last place, without a branch or a table, with the same
/// bits on every processor. The result is at least e⁻⁸⁷.
///
/// Cody–Waite reduction to |r| ≤ ln 2 / 2, then the minimax polynomial of Cephes; arguments are
/// clamped to the range whose results are normal numbers.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    exp_with(x, |a, b, c| a * b + c)
}

/// Returns [`exp`] with fused multiply-adds, in two thirds of the time and with other bits. Only for
/// processors that have them.
#[inline(always)]
pub(crate) fn exp_fused(x: f32) -> f32 {
    exp_with(x, f32::mul_add)
}

#[inline(always)]
fn exp_with(x: f32, multiply_add: impl Fn(f32, f32, f32) -> f32) -> f32 {
    const LOW: f32 = -87.0;
    const HIGH: f32 = 88.0;
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    /// Adding and subtracting 1.5·2²³ rounds to the nearest integer.
    const ROUND: f32 = 12_582_912.0;
    let x = if x < LOW { LOW } else { x };
    let x = if x > HIGH { HIGH } else { x };
    let shifted = multiply_add(x, std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = multiply_add(-n, LN2_LOW, multiply_add(-n, LN2_HIGH, x));
    let mut p = 1.987_569_1e-4_f32;
    for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = multiply_add(p, r, coefficient);
    }
    let value = multiply_add(p * r, r, r) + 1.0;
    // The integer n is in the low bits of the shifted value; 2ⁿ is built from it directly.
    let power = f32::from_bits(shifted.to_bits().wrapping_add(127) << 23);
    value * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_accurate_over_its_range() {
        /// Two units in the last place of f32.
        const TOLERANCE: f64 = 2.4e-7;
        for exp in [exp, exp_fused] {
            let mut x = -86.9_f32;
            while x < 87.9 {
                let exact = f64::from(x).exp();
                assert!(((f64::from(exp(x)) - exact) / exact).abs() < TOLERANCE, "e^{x}");
                x += 0.0137;
            }
            assert_eq!(exp(0.0), 1.0);
            assert!(exp(-1e30) < 1e-37);
        }
    }

    #[test]
    fn reductions_cover_the_tail() {
        let values: Vec<f32> = (0..37).map(|i| i as f32 - 20.0).collect();
        assert_eq!(max(&values), 16.0);
        assert_eq!(sum(&values), values.iter().sum::<f32>());
        assert_eq!(dot(&values, &values), values.iter().map(|v| v * v).sum::<f32>());
    }
}
