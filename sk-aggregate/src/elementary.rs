//! Elementary functions without branches or tables, which compilers can vectorise.
//!
//! Each is accurate to a few units in the last place over the stated arguments; `tests/links.rs`
//! compares the functions built from them with 40-digit values. They use no fused multiply-add, so
//! that every processor computes the same bits.

use std::f64::consts::{LN_2, LOG2_E};

/// ln 2 in two parts, the first with 21 zero bits at the end: k·`LN_2_HIGH` is exact for every
/// exponent k.
const LN_2_HIGH: f64 = f64::from_bits(0x3fe6_2e42_fee0_0000);
const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;

/// Adding it rounds to an integer and stores that integer in the lowest bits.
const SHIFT: f64 = 6_755_399_441_055_744.0; // 1.5 · 2^52

const MANTISSA_BITS: u32 = 52;
const BIAS: u64 = 1023;

/// Evaluates Σ c_k x^k with even and odd powers separately: two short dependency chains instead of
/// a long one.
#[inline(always)]
pub(crate) fn polynomial<const N: usize>(c: &[f64; N], x: f64) -> f64 {
    let square = x * x;
    let (pairs, last) = c.as_chunks();
    let (mut even, mut odd) = (last.first().copied().unwrap_or(0.0), 0.0);
    for &[first, second] in pairs.iter().rev() {
        even = even * square + first;
        odd = odd * square + second;
    }
    even + x * odd
}

/// 1/k! from k = 2 to 13: e^r − 1 − r to 1e-17 for |r| ≤ ln 2 / 2.
const INVERSE_FACTORIALS: [f64; 12] = {
    let mut terms = [0.0; 12];
    let (mut k, mut factorial) = (0, 1.0);
    while k < terms.len() {
        factorial *= (k + 2) as f64;
        terms[k] = 1.0 / factorial;
        k += 1;
    }
    terms
};

/// Returns (2^k, e^r − 1) with y = k·ln 2 + r, for |y| ≤ 700.
#[inline(always)]
fn exponential_parts(y: f64) -> (f64, f64) {
    let shifted = y * LOG2_E + SHIFT;
    let k = shifted - SHIFT;
    let r = (y - k * LN_2_HIGH) - k * LN_2_LOW;
    let scale = f64::from_bits((shifted.to_bits() << MANTISSA_BITS).wrapping_add(BIAS << MANTISSA_BITS));
    (scale, r + r * r * polynomial(&INVERSE_FACTORIALS, r))
}

/// Returns e^y for y ≤ 700. Below −700 it returns e^−700.
#[inline(always)]
pub(crate) fn exp(y: f64) -> f64 {
    let (scale, rest) = exponential_parts(if y > -700.0 { y } else { -700.0 });
    scale + scale * rest
}

/// Returns e^y − 1 for y ≤ 0.
#[inline(always)]
pub(crate) fn exp_m1_of_negative(y: f64) -> f64 {
    // From −40 down it rounds to −1.
    let (scale, rest) = exponential_parts(if y > -40.0 { y } else { -40.0 });
    scale * rest + (scale - 1.0)
}

/// 2/(2k+1) from k = 1 to 9: the series of log((1 + s)/(1 − s)) to 3e-17 for |s| ≤ 3 − √8.
const ATANH: [f64; 9] = {
    let mut terms = [0.0; 9];
    let mut k = 0;
    while k < terms.len() {
        terms[k] = 2.0 / (2 * k + 3) as f64;
        k += 1;
    }
    terms
};

/// Returns log(w + c) for a normal w and a c of at most the rounding error of w.
#[inline(always)]
fn ln_of_sum(w: f64, c: f64) -> f64 {
    /// From the bits of √½, where the mantissa is taken to begin, to those of 1.
    const CENTRE: u64 = (BIAS << MANTISSA_BITS) - 0x3fe6_a09e_667f_3bcd;
    /// Setting the lowest bits of this number to an integer below 2^52 adds that integer.
    const INTEGERS: f64 = 4_503_599_627_370_496.0; // 2^52
    let bits = w.to_bits();
    let exponent = (bits + CENTRE) >> MANTISSA_BITS;
    let k = f64::from_bits(exponent | INTEGERS.to_bits()) - (INTEGERS + BIAS as f64);
    // w = 2^k (1 + f) with 1 + f in [√½, √2).
    let f = f64::from_bits(bits.wrapping_sub(exponent << MANTISSA_BITS).wrapping_add(BIAS << MANTISSA_BITS)) - 1.0;
    let s = f / (2.0 + f);
    let (half_square, z) = (0.5 * f * f, s * s);
    let series = z * polynomial(&ATANH, z);
    // c/w up to rounding. Above 2 it is below the rounding error of the logarithm.
    let c = if w < 2.0 { c } else { 0.0 };
    k * LN_2_HIGH - ((half_square - (s * (half_square + series) + (k * LN_2_LOW + c))) - f)
}

/// Returns log x for a positive normal x.
#[inline(always)]
pub(crate) fn ln(x: f64) -> f64 {
    ln_of_sum(x, 0.0)
}

/// Returns log(1 + x) for x ≥ 0.
#[inline(always)]
pub(crate) fn ln_1p(x: f64) -> f64 {
    let w = 1.0 + x;
    ln_of_sum(w, x - (w - 1.0))
}

/// Returns asinh x for x ≥ 0.
#[inline(always)]
pub(crate) fn asinh(x: f64) -> f64 {
    /// From here on, √(x² + 1) rounds to x.
    const FAR: f64 = 1e9;
    let square = x * x;
    // x + √(x² + 1) with the 1 separated, which keeps the relative error small near zero.
    let t = x + square / (1.0 + (square + 1.0).sqrt());
    let w = 1.0 + t;
    let near = x < FAR;
    let (w, c) = if near { (w, t - (w - 1.0)) } else { (x, 0.0) };
    ln_of_sum(w, c) + if near { 0.0 } else { LN_2 }
}

/// Returns tanh x for x ≥ 0.
#[inline(always)]
pub(crate) fn tanh(x: f64) -> f64 {
    let e = exp_m1_of_negative(-2.0 * x);
    -e / (2.0 + e)
}

/// Returns erf x for x ≥ 0, as 1 − e^(−x·q(x)). q(x) = −log(erfc x)/x is smooth on all of [0, ∞),
/// so one polynomial covers small arguments, where erf is almost linear, and large ones, where it
/// saturates.
#[inline(always)]
pub(crate) fn erf(x: f64) -> f64 {
    /// From here on, erf rounds to 1.
    const END: f64 = 5.9;
    /// q in powers of 2x/`END` − 1: the weighted minimax fit of `tests/reference/erf.py`, to 7e-17
    /// of erf.
    const Q: [f64; 23] = [
        3.5279891213754673,
        2.6800814193451674,
        0.14089096147725844,
        -0.07397913651365287,
        0.03761729043168955,
        -0.01800214906873265,
        0.007805186851312513,
        -0.0028262206575403724,
        0.0005947205899227396,
        0.00011611349430683124,
        -0.00032899250006818023,
        0.0009831212624602974,
        0.0011320313226959083,
        0.0002282733290161677,
        -0.0044309511012590895,
        -0.00835207947524723,
        -0.004985951368231403,
        0.005838877634293515,
        0.014616853971211635,
        0.01397310851661224,
        0.007411871178568171,
        0.0021266501923807696,
        0.0002550029260093852,
    ];
    let x = if x < END { x } else { END };
    let q = polynomial(&Q, x * (2.0 / END) - 1.0);
    -exp_m1_of_negative(-(x * q))
}
