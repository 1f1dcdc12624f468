use std::collections::BTreeSet;

use super::{CandidateStep, grouped};
use crate::stats::{mean, median};

/// How blades and tournament combine, measured on the candidate batches of one arm.
#[derive(Debug, Clone, PartialEq)]
pub struct Mechanism {
    /// The arm.
    pub arm: String,
    /// The number of its steps.
    pub steps: usize,
    /// The blades, in descending order of spread.
    pub blades: Vec<BladeSpread>,
    /// The median over steps of std(tournament term)/std(blade term) in the champion's logit; NaN
    /// if it was not recorded.
    pub scale_ratio: f64,
    /// Statistics of the selection.
    pub choice: Choice,
}

/// Statistics of the selection over the steps with a choice.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// The number of steps with at least two candidates.
    pub steps: usize,
    /// The median number of candidates N.
    pub candidates: f64,
    /// The share of steps that selected a candidate with the highest composite.
    pub best: f64,
    /// The expected share under uniform selection.
    pub best_by_chance: f64,
    /// The mean entropy of the selection probabilities, in nats; NaN if they were not recorded.
    pub entropy: f64,
    /// The mean of entropy/ln N.
    pub relative_entropy: f64,
}

impl Choice {
    fn of(steps: &[&CandidateStep]) -> Self {
        let choices: Vec<&&CandidateStep> = steps.iter().filter(|step| step.candidate_mus.len() > 1).collect();
        let mean_of = |measure: &dyn Fn(&CandidateStep) -> Option<f64>| {
            mean(&choices.iter().filter_map(|step| measure(step)).collect::<Vec<_>>())
        };
        Self {
            steps: choices.len(),
            candidates: median(&choices.iter().map(|step| step.candidate_mus.len() as f64).collect::<Vec<_>>()),
            best: mean_of(&|step| step.drew_the_best().map(|best| f64::from(u8::from(best)))),
            best_by_chance: mean_of(&CandidateStep::best_by_chance),
            entropy: mean_of(&CandidateStep::entropy),
            relative_entropy: mean_of(&CandidateStep::relative_entropy),
        }
    }
}

/// The spread of a blade's raw scores within a batch.
#[derive(Debug, Clone, PartialEq)]
pub struct BladeSpread {
    /// The blade.
    pub blade: String,
    /// The median of std(μ⁽ᵏ⁾) over the steps at which the blade was seated.
    pub median_std: f64,
    /// `median_std` divided by that of the blade with the smallest; NaN if that is zero.
    pub ratio: f64,
    /// The mean influence share at equal weights, over the steps at which every blade was seated
    /// (Theorem 3(i), `thm:cbn`).
    pub share: Option<f64>,
}

impl Mechanism {
    /// Computes one entry per arm, in order of first occurrence.
    pub fn by_arm(steps: &[CandidateStep]) -> Vec<Self> {
        let arms = grouped(steps.iter().map(|step| (step.arm.as_str(), step)));
        arms.into_iter().map(|(arm, steps)| Self::of(arm, &steps)).collect()
    }

    fn of(arm: &str, steps: &[&CandidateStep]) -> Self {
        let names: BTreeSet<&String> = steps.iter().flat_map(|step| step.raw_blade_mu_stds.keys()).collect();
        let spreads =
            |blade: &String| steps.iter().filter_map(|step| step.raw_blade_mu_stds.get(blade).copied()).collect::<Vec<_>>();
        let medians: Vec<f64> = names.iter().map(|blade| median(&spreads(blade))).collect();
        let least = medians.iter().copied().fold(f64::INFINITY, f64::min);
        // Every step lists its blades in the order of their names.
        let whole = steps.iter().filter(|step| step.raw_blade_mu_stds.len() == names.len());
        let even = 1.0 / names.len() as f64;
        let shares_of = |step: &&CandidateStep| {
            let pulls: Vec<f64> = step.raw_blade_mu_stds.values().map(|std| even * std).collect();
            let total: f64 = pulls.iter().sum();
            (total > 0.0).then(|| pulls.iter().map(|pull| pull / total).collect())
        };
        let shares: Vec<Vec<f64>> = whole.filter_map(shares_of).collect();
        let share = |k: usize| (!shares.is_empty()).then(|| mean(&shares.iter().map(|shares| shares[k]).collect::<Vec<_>>()));
        let spread = |(k, blade): (usize, &&String)| BladeSpread {
            blade: (*blade).clone(),
            median_std: medians[k],
            ratio: if least > 0.0 { medians[k] / least } else { f64::NAN },
            share: share(k),
        };
        let mut blades: Vec<BladeSpread> = names.iter().enumerate().map(spread).collect();
        blades.sort_by(|a, b| b.median_std.total_cmp(&a.median_std));
        Self {
            arm: arm.to_owned(),
            steps: steps.len(),
            blades,
            scale_ratio: median(&steps.iter().filter_map(|step| step.logit_scale_ratio).collect::<Vec<_>>()),
            choice: Choice::of(steps),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_those_of_the_spreads_where_every_blade_was_seated() {
        let step = |spreads: &[(&str, f64)]| CandidateStep {
            arm: "raw".to_owned(),
            candidate_mus: Vec::new(),
            raw_blade_mu_stds: spreads.iter().map(|(blade, std)| ((*blade).to_owned(), *std)).collect(),
            logit_scale_ratio: None,
            selected_idx: 0,
            probabilities: None,
            drafted: 0,
        };
        let shares = |steps: &[CandidateStep]| -> Vec<Option<f64>> {
            Mechanism::by_arm(steps).iter().flat_map(|arm| arm.blades.iter().map(|blade| blade.share)).collect()
        };
        for scale in [0.01, 1.0, 100.0] {
            let steps = [step(&[("kind", 3.0 * scale), ("safe", scale)]), step(&[("safe", scale)])];
            let [Some(kind), Some(safe)] = shares(&steps)[..] else { panic!("two blades") };
            assert!((kind - 0.75).abs() < 1e-12 && (safe - 0.25).abs() < 1e-12, "{kind} {safe}");
        }
        assert_eq!(shares(&[step(&[("kind", 0.0), ("safe", 0.0)])]), [None::<f64>; 2]);
    }
}
