use std::collections::HashMap;

use super::Cell;
use crate::stats::{Bootstrap, Clusters, Wilcoxon, WinRate, ZeroRule, mean, snap};

/// The bootstrap settings of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resampling {
    /// The number of resamples per confidence interval.
    pub resamples: usize,
    /// The seed of all resamples.
    pub seed: u64,
}

impl Default for Resampling {
    /// 10,000 resamples, as in the paper.
    fn default() -> Self {
        Self { resamples: 10_000, seed: 42 }
    }
}

/// The confidence level of every interval of a report.
pub(crate) const LEVEL: f64 = 0.95;

/// First minus second, paired by weight vector and prompt. A pair with a missing value is left out.
#[derive(Debug, Clone, PartialEq)]
pub struct Contrast {
    /// The difference of each pair.
    pub differences: Vec<f64>,
    /// The prompt of each pair.
    pub prompts: Vec<u32>,
    /// The differences before they were rounded, if they were.
    unrounded: Option<Vec<f64>>,
}

impl Contrast {
    /// Pairs the cells of two methods and takes the difference of `measure`.
    pub fn of(first: &[Cell], second: &[Cell], measure: impl Fn(&Cell) -> Option<f64>) -> Self {
        let (differences, prompts) =
            pairs(first, second, measure).map(|(cell, ours, theirs)| (ours - theirs, cell.prompt)).unzip();
        Self { differences, prompts, unrounded: None }
    }

    /// Returns the contrast with differences rounded by [`snap`], so that mathematically equal
    /// differences tie. Means by prompt are still of the unrounded ones: those of rounded thirds
    /// would not tie.
    pub fn snapped(self) -> Self {
        let rounded = self.differences.iter().copied().map(snap).collect();
        Self { differences: rounded, unrounded: Some(self.differences), ..self }
    }

    /// Returns the number of pairs.
    pub fn n(&self) -> usize {
        self.differences.len()
    }

    /// Returns the mean difference.
    pub fn mean(&self) -> f64 {
        mean(&self.differences)
    }

    /// Counts wins, ties and losses.
    pub fn win_rate(&self) -> WinRate {
        WinRate::of(&self.differences)
    }

    /// Runs the signed-rank test over pairs.
    pub fn wilcoxon(&self, zeros: ZeroRule) -> Wilcoxon {
        Wilcoxon::of(&self.differences, zeros)
    }

    /// Bootstraps the mean difference over pairs.
    pub fn bootstrap(&self, resampling: Resampling) -> Bootstrap {
        Bootstrap::of_mean(&self.differences, resampling.resamples, resampling.seed)
    }

    /// Groups the unrounded differences by prompt.
    pub fn clusters(&self) -> Clusters {
        Clusters::of(self.unrounded.as_ref().unwrap_or(&self.differences), &self.prompts)
    }

    /// Bootstraps the mean difference over prompts.
    pub fn bootstrap_by_prompt(&self, resampling: Resampling) -> Bootstrap {
        Bootstrap::of_clustered_mean(&self.clusters(), resampling.resamples, resampling.seed)
    }

    /// Runs the signed-rank test over the mean differences of the prompts.
    pub fn wilcoxon_by_prompt(&self, zeros: ZeroRule) -> Wilcoxon {
        Wilcoxon::of(&self.clusters().means().into_iter().map(snap).collect::<Vec<_>>(), zeros)
    }
}

/// Returns the cells of `first` that have a partner in `second`, with the value of `measure` for
/// both.
pub(super) fn pairs<'a>(
    first: &'a [Cell],
    second: &[Cell],
    measure: impl Fn(&Cell) -> Option<f64>,
) -> impl Iterator<Item = (&'a Cell, f64, f64)> {
    let other: HashMap<_, _> = second.iter().filter_map(|cell| Some((cell.key(), measure(cell)?))).collect();
    first.iter().filter_map(move |cell| Some((cell, measure(cell)?, *other.get(&cell.key())?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Eight prompts with six cells each, whose scores are means of three rubrics. Some means by
    /// prompt tie, and 14 of the 256 assignments of signs are as extreme.
    #[test]
    fn means_by_prompt_tie_where_their_exact_values_do() {
        let thirtieths = [
            [0, -1, 3, -2, 0, -1],
            [0, 0, -1, 2, -2, 2],
            [-1, 1, 2, 1, 3, 1],
            [2, 4, 0, -2, 0, 2],
            [3, 1, -2, 0, 3, 4],
            [-1, 1, 0, 4, 3, -1],
            [-2, 0, -1, -2, 0, 4],
            [0, 2, 2, 3, 4, 2],
        ];
        let differences: Vec<f64> = thirtieths.iter().flatten().map(|&difference| f64::from(difference) / 30.0).collect();
        let prompts: Vec<u32> = (0..8).flat_map(|prompt| [prompt; 6]).collect();
        let contrast = Contrast { differences, prompts, unrounded: None }.snapped();
        assert_eq!(contrast.wilcoxon_by_prompt(ZeroRule::Wilcox).p, 14.0 / 256.0);
    }
}
