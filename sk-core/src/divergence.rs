use crate::ParameterError;

/// The generator f of the divergence D_f(π ‖ π_B) under which multi-objective decoding mixes
/// policies; the inverse of f′ has a closed form.
///
/// Policies π_k, each optimal for its own reward under the penalty D_f(π ‖ π_B), are mixed into
///
/// ```text
/// π(y) ∝ π_B(y) · (f′)⁻¹( Σ_k w_k f′(π_k(y) / π_B(y)) )
/// ```
///
/// (Shi et al. 2024, MOD, eq. 6). All computations use log-ratios u = log π_k − log π_B in nats to
/// avoid overflow and underflow. Where f′ is flat, its value cannot distinguish ratios: for the
/// Jensen–Shannon divergence, the round trip is off by 0.04 at u = 36, and f′ is constant from 37.5
/// on.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Divergence {
    /// f(x) = x ln x: the weighted geometric mean Π π_k^w_k.
    #[default]
    ReverseKl,
    /// f(x) = −ln x: the weighted harmonic mean (Σ w_k / π_k)⁻¹.
    ForwardKl,
    /// f(x) = x ln x − (x + 1) ln((x + 1)/2).
    JensenShannon,
    /// f′(x) = (1 − x^−α)/α: the weighted power mean (Σ w_k π_k^−α)^(−1/α). α → 0 gives the reverse
    /// KL divergence, α = 1 the forward KL divergence. Use [`alpha`](Self::alpha), which validates
    /// α.
    #[non_exhaustive]
    Alpha(f64),
}

impl Divergence {
    /// Creates the α-divergence.
    ///
    /// # Errors
    /// If `alpha` is not positive and finite.
    pub fn alpha(alpha: f64) -> Result<Self, ParameterError> {
        ParameterError::positive("divergence_alpha", alpha).map(Self::Alpha)
    }

    /// Returns f′(eᵘ), up to an additive constant that cancels in the mixture.
    #[must_use]
    pub fn gradient(self, log_ratio: f64) -> f64 {
        let u = log_ratio;
        match self {
            Self::ReverseKl => u,
            Self::ForwardKl => -(-u).exp(),
            // ln(2x/(1 + x)), in the form that does not overflow for this sign of u.
            Self::JensenShannon if u > 0.0 => std::f64::consts::LN_2 - (-u).exp().ln_1p(),
            Self::JensenShannon => std::f64::consts::LN_2 + u - u.exp().ln_1p(),
            Self::Alpha(alpha) => -(-alpha * u).exp_m1() / alpha,
        }
    }

    /// Returns ln (f′)⁻¹(z), the log-ratio whose [`gradient`](Self::gradient) is `z`. The result is
    /// infinite at and beyond the end of the range of f′.
    #[must_use]
    pub fn log_ratio(self, gradient: f64) -> f64 {
        let z = gradient;
        match self {
            Self::ReverseKl => z,
            Self::ForwardKl => -(-z).max(0.0).ln(),
            // x = eᶻ/(2 − eᶻ); 2 − eᶻ = 2(1 − e^(z − ln 2)).
            Self::JensenShannon => {
                let below = (z - std::f64::consts::LN_2).min(0.0);
                below - (-below.exp_m1()).ln()
            }
            Self::Alpha(alpha) => -(-alpha * z).max(-1.0).ln_1p() / alpha,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Divergence; 5] =
        [Divergence::ReverseKl, Divergence::ForwardKl, Divergence::JensenShannon, Divergence::Alpha(0.5), Divergence::Alpha(2.0)];

    /// The inverse loses precision where f′ is flat, by a factor of up to e^(2u) for α = 2.
    #[test]
    fn the_inverse_undoes_the_gradient() {
        for divergence in ALL {
            for step in -40..=40 {
                let u = f64::from(step) / 4.0;
                let back = divergence.log_ratio(divergence.gradient(u));
                let flat = if divergence == Divergence::ReverseKl { 1.0 } else { (2.0 * u).exp().max(1.0) };
                assert!((back - u).abs() <= 1e-14 * flat * (1.0 + u.abs()), "{divergence:?} at {u}: {back}");
            }
        }
    }

    #[test]
    fn the_means_have_their_names() {
        let (p, q, w) = (0.3_f64, 0.02_f64, 0.25);
        let mean = |divergence: Divergence| {
            let z = w * divergence.gradient(p.ln()) + (1.0 - w) * divergence.gradient(q.ln());
            divergence.log_ratio(z).exp()
        };
        let close = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-12, "{a} {b}");
        close(mean(Divergence::ReverseKl), p.powf(w) * q.powf(1.0 - w));
        close(mean(Divergence::ForwardKl), 1.0 / (w / p + (1.0 - w) / q));
        close(mean(Divergence::Alpha(2.0)), (w / (p * p) + (1.0 - w) / (q * q)).powf(-0.5));
        close(mean(Divergence::Alpha(1.0)), mean(Divergence::ForwardKl));
        // Off by O(α).
        assert!((mean(Divergence::Alpha(1e-9)).ln() / mean(Divergence::ReverseKl).ln() - 1.0).abs() < 1e-7);
        // f′ = ln(2x/(1+x)).
        let z = w * (2.0 * p / (1.0 + p)).ln() + (1.0 - w) * (2.0 * q / (1.0 + q)).ln();
        close(mean(Divergence::JensenShannon), z.exp() / (2.0 - z.exp()));
    }

    /// e^±800 is not representable, but the results are.
    #[test]
    fn ratios_far_from_one_neither_overflow_nor_vanish() {
        let ln_2 = std::f64::consts::LN_2;
        assert_eq!(Divergence::JensenShannon.gradient(800.0), ln_2);
        assert_eq!(Divergence::JensenShannon.gradient(-800.0), ln_2 - 800.0);
        // At and beyond the end of the range, the ratio is infinite.
        for (divergence, end) in [(Divergence::JensenShannon, ln_2), (Divergence::ForwardKl, 0.0), (Divergence::Alpha(0.5), 2.0)]
        {
            for z in [end, end + 1.0] {
                assert_eq!(divergence.log_ratio(z), f64::INFINITY, "{divergence:?}");
            }
            assert!(divergence.log_ratio(end - 1e-3).is_finite());
        }
    }

    #[test]
    fn alpha_is_positive() {
        assert_eq!(Divergence::alpha(0.5), Ok(Divergence::Alpha(0.5)));
        for alpha in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Divergence::alpha(alpha).unwrap_err().to_string().contains("alpha"));
        }
    }
}
