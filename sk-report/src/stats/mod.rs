//! The statistics of the experiments: summaries of a frontier, and tests and confidence intervals
//! for the difference between two schemes.
//!
//! Every function computes one named definition. Where the paper's number follows from another
//! definition than its caption states, both are available. The statistics page of the book lists
//! these cases.
//!
//! | of | what | where |
//! |---|---|---|
//! | a configuration | harmonic F1, under three definitions | [`F1`], [`harmonic_mean`] |
//! | a frontier | Pareto front, hypervolume, spacing | [`front`], [`hypervolume`], [`spacing`] |
//! | a contrast | win rate, bootstrap intervals, Wilcoxon's test | [`WinRate`], [`Bootstrap`], [`Wilcoxon`] |
//! | a contrast of dependent cells | the same by cluster | [`Clusters`] |
//! | several contrasts | Holm's correction | [`holm`] |
//! | weights against axes | Spearman's coefficient, per axis and pooled | [`Spearman`], [`Steering`] |
//! | judges against themselves | Pearson's correlation | [`pearson`] |
//! | dispersions | σ-informativeness | [`sk_blades::informativeness`] |
//!
//! Results agree with SciPy, pymoo, moocore and statsmodels to 1e-9 on committed fixtures.

mod bootstrap;
mod clusters;
mod f1;
mod holm;
mod hypervolume;
mod interval;
mod moments;
mod pareto;
mod pearson;
mod permutations;
mod ranks;
mod spacing;
mod spearman;
mod steerability;
mod tail;
mod wilcoxon;
mod win_rate;

pub use bootstrap::Bootstrap;
pub use clusters::Clusters;
pub(crate) use f1::mean_axes;
pub use f1::{F1, PUBLISHED_FLOOR, harmonic_mean};
pub use holm::holm;
pub use hypervolume::hypervolume;
pub use interval::Interval;
pub(crate) use moments::extent;
pub use moments::{mean, median, population_std, sample_std, slope};
pub use pareto::{dominates, front};
pub use pearson::pearson;
pub use permutations::MOST_PERMUTED;
pub use ranks::Ranks;
pub use spacing::{Distance, spacing};
pub use spearman::Spearman;
pub use steerability::{Steered, Steering};
pub use wilcoxon::{Wilcoxon, ZeroRule};
pub use win_rate::{WinRate, snap};
