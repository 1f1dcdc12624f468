use serde::{Deserialize, Serialize};

/// The numbers of the reference instantiation: one per parameter of the tournament, the champion
/// rule and the blades.
///
/// | point | N | R | T | w_tour | w_blade | λ |
/// |---|--:|--:|--:|--:|--:|--:|
/// | [`HHH`](Self::HHH) | 7 | 5 | 8 | 1.1 | 1.75 | 0.2 |
/// | [`HARMLESSNESS`](Self::HARMLESSNESS) | 11 | 4 | 11.219 | 0.504 | 1.483 | 0.109 |
/// | [`HELPFULNESS`](Self::HELPFULNESS) | 7 | 3 | 1.69 | 1.170 | 1.707 | 0.158 |
/// | [`HONESTY`](Self::HONESTY) | 3 | 7 | 21.03 | 1.587 | 2.088 | 0.395 |
///
/// All have β = 0.1, α = 0.5 and K from 40 to 10. T divides a dimensionless logit, β scales nats
/// per token, and K is in rating points.
///
/// The fields are plain data, validated by the constructors that use them. The table has the four
/// published points: the optima of the per-objective searches, and [`HHH`](Self::HHH), which every
/// multi-objective result uses. The paper calls it their rounded mean, geometric for T and
/// arithmetic for the rest. However, the geometric mean of the three T is 7.4, while the point has
/// 8. [`RESPONSIVE`](Self::RESPONSIVE) is not published.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperatingPoint {
    /// N, candidates per step.
    pub candidates: usize,
    /// R, rounds of the tournament.
    pub rounds: usize,
    /// T, temperature of the champion's softmax.
    pub temperature: f64,
    /// w_tour, weight of the standardised rating in the champion logit.
    pub w_tour: f64,
    /// w_blade, weight of the standardised composite score in the champion logit.
    pub w_blade: f64,
    /// λ, penalty on the standardised composite dispersion.
    pub lambda: f64,
    /// β, scale of the implicit reward.
    pub beta: f64,
    /// α, coefficient of the fluency blade b₀ in a match.
    pub alpha: f64,
    /// K of the first round.
    pub k_max: f64,
    /// K of the last round.
    pub k_min: f64,
}

impl OperatingPoint {
    /// The published point for helpful, honest and harmless together.
    pub const HHH: Self = Self {
        candidates: 7,
        rounds: 5,
        temperature: 8.0,
        w_tour: 1.1,
        w_blade: 1.75,
        lambda: 0.2,
        beta: 0.1,
        alpha: 0.5,
        k_max: 40.0,
        k_min: 10.0,
    };

    /// [`HHH`](Self::HHH) with T = 1/4; not published. The champion's softmax is then sharp enough
    /// for the selection to follow the weights. At T = 8 it is close to uniform.
    pub const RESPONSIVE: Self = Self { temperature: 0.25, ..Self::HHH };

    /// Harmlessness alone, and the single-objective ablations. The search table rounds T to 11.22.
    pub const HARMLESSNESS: Self =
        Self { candidates: 11, rounds: 4, temperature: 11.219, w_tour: 0.504, w_blade: 1.483, lambda: 0.109, ..Self::HHH };

    /// Helpfulness alone.
    pub const HELPFULNESS: Self =
        Self { candidates: 7, rounds: 3, temperature: 1.69, w_tour: 1.170, w_blade: 1.707, lambda: 0.158, ..Self::HHH };

    /// Honesty alone.
    pub const HONESTY: Self =
        Self { candidates: 3, rounds: 7, temperature: 21.03, w_tour: 1.587, w_blade: 2.088, lambda: 0.395, ..Self::HHH };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hhh_is_the_rounded_mean_of_the_three_optima_but_for_t() {
        let optima = [OperatingPoint::HARMLESSNESS, OperatingPoint::HELPFULNESS, OperatingPoint::HONESTY];
        let mean = |f: fn(&OperatingPoint) -> f64| optima.iter().map(f).sum::<f64>() / 3.0;
        let hhh = OperatingPoint::HHH;
        // Rounded as in the paper: steps of .05 for the weights, integers for N and R. Its T is no
        // rounding of 7.4.
        assert!((mean(|p| p.temperature.ln()).exp() - 7.36).abs() < 0.005);
        assert_eq!(hhh.temperature, 8.0);
        assert!((mean(|p| p.w_tour) - hhh.w_tour).abs() < 0.05);
        assert!((mean(|p| p.w_blade) - hhh.w_blade).abs() < 0.05);
        assert!((mean(|p| p.lambda) - hhh.lambda).abs() < 0.05);
        assert_eq!(mean(|p| p.candidates as f64).round() as usize, hhh.candidates);
        assert_eq!(mean(|p| p.rounds as f64).round() as usize, hhh.rounds);
    }

    #[test]
    fn serde_round_trips_and_refuses_a_misspelt_field() {
        let text = serde_json::to_string(&OperatingPoint::HONESTY).unwrap();
        assert_eq!(serde_json::from_str::<OperatingPoint>(&text).unwrap(), OperatingPoint::HONESTY);
        assert!(serde_json::from_str::<OperatingPoint>(&text.replace("lambda", "lamda")).is_err());
    }
}
