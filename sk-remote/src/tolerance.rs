/// The most that two scorings of the same tokens under the same weights may differ.
///
/// Batching changes the rounding of rows: by 1e-5 nats in f32, and by hundredths of a nat in bf16.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// The tolerance of the mean over a span, in nats per token. An adapter must differ from the
    /// base model by more.
    pub mean: f32,
    /// The tolerance of a single token, in nats.
    pub token: f32,
}

impl Tolerance {
    /// The tolerance for servers that compute in f32.
    pub const F32: Self = Self { mean: 1e-4, token: 1e-3 };
    /// The tolerance for servers that compute in bf16 or f16.
    pub const HALF: Self = Self { mean: 0.02, token: 0.25 };

    /// Returns the position of the largest difference if this difference or the mean exceeds the
    /// tolerance; `None` otherwise.
    pub(crate) fn violation(self, expected: &[f32], got: &[f32]) -> Option<usize> {
        let differences: Vec<f32> = expected.iter().zip(got).map(|(a, b)| (a - b).abs()).collect();
        let farthest = (0..differences.len()).max_by(|&a, &b| differences[a].total_cmp(&differences[b]))?;
        (mean(&differences) > self.mean || differences[farthest] > self.token).then_some(farthest)
    }
}

impl Default for Tolerance {
    fn default() -> Self {
        Self::HALF
    }
}

/// Returns Σ_t |a_t − b_t| / L.
pub(crate) fn mean_difference(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).sum::<f32>() / a.len().max(1) as f32
}

/// Returns Σ_t a_t / L.
pub(crate) fn mean(a: &[f32]) -> f32 {
    a.iter().sum::<f32>() / a.len().max(1) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_farthest_token_is_named() {
        let tolerance = Tolerance { mean: 0.1, token: 0.5 };
        assert_eq!(tolerance.violation(&[-1.0, -2.0], &[-1.05, -2.1]), None);
        assert_eq!(tolerance.violation(&[-1.0, -2.0], &[-1.1, -2.2]), Some(1));
        let mut far = [0.0; 20];
        far[3] = -0.6;
        assert_eq!(tolerance.violation(&[0.0; 20], &far), Some(3));
        assert_eq!(tolerance.violation(&[], &[]), None);
    }
}
