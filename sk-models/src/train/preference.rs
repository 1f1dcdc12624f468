//! The loss of direct preference optimisation (Rafailov et al. 2023) and its measurements.

use burn::tensor::{Tensor, activation};

/// The settings of the preference loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PreferenceLoss {
    /// Strength of the pull towards the reference.
    pub beta: f64,
    /// Assumed share of wrong labels (conservative DPO); below one half.
    pub label_smoothing: f64,
    /// Whether log-ratios are per token instead of per completion.
    pub length_normalised: bool,
}

/// Summed log-probabilities of the completions, one entry per pair.
#[derive(Debug, Clone)]
pub struct LogProbs {
    /// Those of the better completions, `[P]`.
    pub chosen: Tensor<1>,
    /// Those of the worse completions, `[P]`.
    pub rejected: Tensor<1>,
}

impl PreferenceLoss {
    /// Returns the implicit reward margins `β·((log π_c − log π_r) − (log ρ_c − log ρ_r))`, `[P]`.
    ///
    /// `lengths` are the numbers of tokens of the completions. If the loss is length-normalised,
    /// each log-ratio is divided by its own.
    #[must_use]
    pub fn margins(&self, policy: LogProbs, reference: LogProbs, lengths: LogProbs) -> Tensor<1> {
        let chosen = policy.chosen - reference.chosen;
        let rejected = policy.rejected - reference.rejected;
        let difference =
            if self.length_normalised { chosen / lengths.chosen - rejected / lengths.rejected } else { chosen - rejected };
        difference.mul_scalar(self.beta)
    }

    /// Returns `−(1 − ε)·log σ(z) − ε·log σ(−z)`, averaged over the margins z.
    #[must_use]
    pub fn loss(&self, margins: Tensor<1>) -> Tensor<1> {
        let right = activation::log_sigmoid(margins.clone()).mul_scalar(1.0 - self.label_smoothing);
        if self.label_smoothing == 0.0 {
            return right.mean().neg();
        }
        let wrong = activation::log_sigmoid(margins.neg()).mul_scalar(self.label_smoothing);
        (right + wrong).mean().neg()
    }
}

/// Measurements of an adapter on held-out pairs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PreferenceReport {
    /// Pairs measured.
    pub pairs: usize,
    /// Mean loss.
    pub loss: f64,
    /// Share of pairs whose better side has the higher implicit reward; a tie counts as wrong.
    pub accuracy: f64,
    /// 95% interval of the accuracy, by Wilson's score.
    pub interval: (f64, f64),
    /// Mean margin of implicit reward.
    pub margin: f64,
    /// Mean tokens of the better side.
    pub chosen_length: f64,
    /// Mean tokens of the worse side.
    pub rejected_length: f64,
    /// Pairs whose sides have unequal lengths.
    pub unequal: usize,
    /// Share of pairs, of those with unequal lengths, whose better side is the longer.
    pub longer_chosen: f64,
    /// Share of the same pairs whose longer side the adapter prefers. Its excess over
    /// [`longer_chosen`](Self::longer_chosen) is the length bias.
    pub longer_preferred: f64,
}

impl PreferenceReport {
    /// Summarises margins and token counts of pairs.
    #[must_use]
    pub fn new(loss: f64, margins: &[f64], lengths: &[(usize, usize)]) -> Self {
        let pairs = margins.len();
        let count = pairs.max(1) as f64;
        let right = margins.iter().filter(|&&margin| margin > 0.0).count();
        let unequal: Vec<_> = margins.iter().zip(lengths).filter(|(_, (chosen, rejected))| chosen != rejected).collect();
        let share = |hits: usize| hits as f64 / unequal.len().max(1) as f64;
        Self {
            pairs,
            loss,
            accuracy: right as f64 / count,
            interval: wilson(right, pairs),
            margin: margins.iter().sum::<f64>() / count,
            chosen_length: lengths.iter().map(|pair| pair.0 as f64).sum::<f64>() / count,
            rejected_length: lengths.iter().map(|pair| pair.1 as f64).sum::<f64>() / count,
            unequal: unequal.len(),
            longer_chosen: share(unequal.iter().filter(|(_, (chosen, rejected))| chosen > rejected).count()),
            longer_preferred: share(
                unequal.iter().filter(|(margin, (chosen, rejected))| (**margin > 0.0) == (chosen > rejected)).count(),
            ),
        }
    }
}

/// Returns Wilson's 95% score interval of a proportion.
pub(super) fn wilson(hits: usize, trials: usize) -> (f64, f64) {
    /// The normal quantile of 97.5%.
    const Z: f64 = 1.959_963_984_540_054;
    if trials == 0 {
        return (0.0, 1.0);
    }
    let n = trials as f64;
    let p = hits as f64 / n;
    let centre = p + Z * Z / (2.0 * n);
    let spread = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    let scale = 1.0 + Z * Z / n;
    (((centre - spread) / scale).max(0.0), ((centre + spread) / scale).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wilson_agrees_with_published_values() {
        // 81 of 263: Newcombe (1998), table I.
        let (low, high) = wilson(81, 263);
        assert!((low - 0.2553).abs() < 5e-5 && (high - 0.3662).abs() < 5e-5, "{low} {high}");
        let (low, high) = wilson(0, 20);
        assert!(low == 0.0 && (high - 0.1611).abs() < 5e-5, "{high}");
    }

    #[test]
    fn length_bias_counts_unequal_pairs_only() {
        let report = PreferenceReport::new(0.5, &[1.0, -1.0, 1.0, 1.0], &[(5, 3), (5, 3), (3, 5), (4, 4)]);
        assert_eq!(report.accuracy, 0.75);
        assert!((report.longer_chosen - 2.0 / 3.0).abs() < 1e-12);
        assert!((report.longer_preferred - 1.0 / 3.0).abs() < 1e-12);
    }
}
