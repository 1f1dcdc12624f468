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
}

impl Contrast {
    /// Pairs the cells of two methods and takes the difference of `measure`.
    pub fn of(first: &[Cell], second: &[Cell], measure: impl Fn(&Cell) -> Option<f64>) -> Self {
        let key = |cell: &Cell| (cell.configuration, cell.prompt);
        let other: HashMap<_, _> = second.iter().map(|cell| (key(cell), cell)).collect();
        let mut contrast = Self { differences: Vec::new(), prompts: Vec::new() };
        for cell in first {
            let partner = other.get(&key(cell)).and_then(|partner| measure(partner));
            if let (Some(ours), Some(theirs)) = (measure(cell), partner) {
                contrast.differences.push(ours - theirs);
                contrast.prompts.push(cell.prompt);
            }
        }
        contrast
    }

    /// Returns the contrast with differences rounded by [`snap`], so that mathematically equal
    /// differences tie.
    pub fn snapped(&self) -> Self {
        Self { differences: self.differences.iter().copied().map(snap).collect(), prompts: self.prompts.clone() }
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

    /// Groups the differences by prompt.
    pub fn clusters(&self) -> Clusters {
        Clusters::of(&self.differences, &self.prompts)
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
