//! Tail probabilities of the null distributions.

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// Returns P(Z > z) for a standard normal Z, with full relative precision far into the tail.
pub(super) fn normal(z: f64) -> f64 {
    0.5 * libm::erfc(z / std::f64::consts::SQRT_2)
}

/// Returns the quantile z with P(Z ≤ z) = `p` for a standard normal Z.
pub(super) fn normal_quantile(p: f64) -> f64 {
    Normal::standard().inverse_cdf(p)
}

/// Returns P(|T| ≥ |t|) for Student's t with `freedom` > 0 degrees of freedom.
pub(super) fn student_two_sided(t: f64, freedom: f64) -> f64 {
    match StudentsT::new(0.0, 1.0, freedom) {
        Ok(law) if t.is_finite() => (2.0 * law.sf(t.abs())).min(1.0),
        Ok(_) if t.is_infinite() => 0.0,
        _ => f64::NAN,
    }
}
