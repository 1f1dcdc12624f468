//! Operators that show why Theorem 1 needs conditions beyond those of the paper (`thm:rep`). Each
//! violates exactly one of them.
//!
//! The kernels satisfy the paper's A1 to A6 but are not of the form Σ g(Δ/s) with g odd and s
//! symmetric. The link is odd and strictly increasing. Two certain candidates, which the theorem
//! excludes, draw.
//!
//! ```
//! use sk_aggregate::axioms::counterexamples::DoubleOwn;
//! use sk_aggregate::{Pairwise, axioms};
//!
//! axioms!(double_own => Pairwise(DoubleOwn), fails A7);
//! ```

use crate::{Kernel, Link};

/// asinh(Δ/(2σ_i + σ_j)): s is not symmetric. Breaks A7.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DoubleOwn;

impl Kernel for DoubleOwn {
    fn psi(&self, own: (f64, f64), rival: (f64, f64)) -> f64 {
        over(own.0 - rival.0, 2.0 * own.1 + rival.1).asinh()
    }
}

/// u for u > 0 and 2u for u < 0, u = Δ/s₂: g is not odd. Breaks A7.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DoubleDefeats;

impl Kernel for DoubleDefeats {
    fn psi(&self, own: (f64, f64), rival: (f64, f64)) -> f64 {
        let u = over(own.0 - rival.0, own.1.hypot(rival.1));
        if u > 0.0 { u } else { 2.0 * u }
    }
}

/// Δ/(σ_i² + σ_j²): s is of degree 2, the ratings of degree −1, the ranking of degree 0. Breaks
/// A3′.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DegreeMinusOne;

impl Kernel for DegreeMinusOne {
    fn psi(&self, own: (f64, f64), rival: (f64, f64)) -> f64 {
        over(own.0 - rival.0, own.1 * own.1 + rival.1 * rival.1)
    }
}

/// asinh(Δ/(σ_i + σ_j)) + asinh(Δ/max(σ_i, σ_j)): two members at once. Breaks A8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TwoChannels;

impl Kernel for TwoChannels {
    fn psi(&self, own: (f64, f64), rival: (f64, f64)) -> f64 {
        let delta = own.0 - rival.0;
        over(delta, own.1 + rival.1).asinh() + over(delta, own.1.max(rival.1)).asinh()
    }
}

/// g(u) = u + u³: odd and strictly increasing, but not uniformly continuous. Breaks A5′. It is
/// constant beyond 1e100 to avoid overflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cubic;

impl Link for Cubic {
    fn g(&self, u: f64) -> f64 {
        let u = u.clamp(-1e100, 1e100);
        u + u.powi(3)
    }
}

/// Returns Δ/s, or 0 for s = 0.
fn over(delta: f64, s: f64) -> f64 {
    if s > 0.0 { delta / s } else { 0.0 }
}
