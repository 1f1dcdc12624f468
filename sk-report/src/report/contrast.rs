use std::collections::HashMap;

use super::Cell;
use crate::stats::{Bootstrap, Clusters, Wilcoxon, WinRate, ZeroRule, mean, snap};

/// How intervals are resampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resampling {
    /// Resamples per interval.
    pub resamples: usize,
    /// Seed of all of them.
    pub seed: u64,
}

impl Default for Resampling {
    /// 10,000 resamples, as in the paper.
    fn default() -> Self {
        Self { resamples: 10_000, seed: 42 }
    }
}

/// The confidence of every interval of a report.
pub(crate) const LEVEL: f64 = 0.95;

/// First minus second, paired on weight vector and prompt. A pair with a blank is left out.
#[derive(Debug, Clone, PartialEq)]
pub struct Contrast {
    /// One difference per pair.
    pub differences: Vec<f64>,
    /// The prompt of each.
    pub prompts: Vec<u32>,
}

impl Contrast {
    /// Pairs the cells and compares what `measure` says of them.
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

    /// Differences equal on paper made equal in floating point, so that ties are ties: [`snap`].
    pub fn snapped(&self) -> Self {
        Self { differences: self.differences.iter().copied().map(snap).collect(), prompts: self.prompts.clone() }
    }

    /// Pairs.
    pub fn n(&self) -> usize {
        self.differences.len()
    }

    /// The mean difference.
    pub fn mean(&self) -> f64 {
        mean(&self.differences)
    }

    /// Signs.
    pub fn win_rate(&self) -> WinRate {
        WinRate::of(&self.differences)
    }

    /// The signed-rank test over pairs.
    pub fn wilcoxon(&self, zeros: ZeroRule) -> Wilcoxon {
        Wilcoxon::of(&self.differences, zeros)
    }

    /// The mean difference, resampled by pair.
    pub fn bootstrap(&self, resampling: Resampling) -> Bootstrap {
        Bootstrap::of_mean(&self.differences, resampling.resamples, resampling.seed)
    }

    /// The differences by prompt.
    pub fn clusters(&self) -> Clusters {
        Clusters::of(&self.differences, &self.prompts)
    }

    /// The mean difference, resampled by prompt.
    pub fn bootstrap_by_prompt(&self, resampling: Resampling) -> Bootstrap {
        Bootstrap::of_clustered_mean(&self.clusters(), resampling.resamples, resampling.seed)
    }

    /// The signed-rank test over the mean differences of prompts.
    pub fn wilcoxon_by_prompt(&self, zeros: ZeroRule) -> Wilcoxon {
        Wilcoxon::of(&self.clusters().means().into_iter().map(snap).collect::<Vec<_>>(), zeros)
    }
}
