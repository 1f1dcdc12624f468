use super::{CandidateStep, grouped};
use crate::stats::{influence_shares, mean, median};

/// What candidate batches say about how blades and tournament combine, in one arm.
#[derive(Debug, Clone, PartialEq)]
pub struct Mechanism {
    /// The arm.
    pub arm: String,
    /// Its steps.
    pub steps: usize,
    /// Per blade, by falling spread.
    pub blades: Vec<BladeSpread>,
    /// The median over steps of std(tournament term)/std(blade term) in the champion's logit; NaN
    /// where it was not recorded.
    pub scale_ratio: f64,
    /// How one of several candidates was drawn.
    pub choice: Choice,
}

/// How steps with a choice were decided.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// Steps of at least two candidates.
    pub steps: usize,
    /// The median of N.
    pub candidates: f64,
    /// The share of steps in which no candidate had a higher composite than the one drawn.
    pub best: f64,
    /// The same share, had every draw been uniform.
    pub best_by_chance: f64,
    /// The mean entropy of a draw, in nats; NaN where probabilities were not recorded.
    pub entropy: f64,
    /// The mean of the entropy over ln N.
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

/// What a blade's raw scores spread over within a batch.
#[derive(Debug, Clone, PartialEq)]
pub struct BladeSpread {
    /// The blade.
    pub blade: String,
    /// The median of std(μ⁽ᵏ⁾) over the steps it was seated at.
    pub median_std: f64,
    /// That over the smallest blade's.
    pub ratio: f64,
    /// Its mean influence share at equal weights, over the steps where every blade was seated
    /// (Theorem 3(i), `thm:cbn`).
    pub share: Option<f64>,
}

impl Mechanism {
    /// One entry per arm, in the order in which arms occur.
    pub fn by_arm(steps: &[CandidateStep]) -> Vec<Self> {
        let arms = grouped(steps.iter().map(|step| (step.arm.as_str(), step)));
        arms.into_iter().map(|(arm, steps)| Self::of(arm, &steps)).collect()
    }

    fn of(arm: &str, steps: &[&CandidateStep]) -> Self {
        let mut names: Vec<&String> = steps.iter().flat_map(|step| step.raw_blade_mu_stds.keys()).collect();
        names.sort_unstable();
        names.dedup();
        let spreads =
            |blade: &String| steps.iter().filter_map(|step| step.raw_blade_mu_stds.get(blade).copied()).collect::<Vec<_>>();
        let medians: Vec<f64> = names.iter().map(|blade| median(&spreads(blade))).collect();
        let least = medians.iter().copied().fold(f64::INFINITY, f64::min);
        // Blades are in order of name in every step.
        let whole = steps.iter().filter(|step| step.raw_blade_mu_stds.len() == names.len());
        let even = vec![1.0 / names.len() as f64; names.len()];
        let shares: Vec<Vec<f64>> = whole
            .filter_map(|step| influence_shares(&even, &step.raw_blade_mu_stds.values().copied().collect::<Vec<_>>()))
            .collect();
        let share = |k: usize| (!shares.is_empty()).then(|| mean(&shares.iter().map(|shares| shares[k]).collect::<Vec<_>>()));
        let spread = |(k, blade): (usize, &&String)| BladeSpread {
            blade: (*blade).clone(),
            median_std: medians[k],
            ratio: medians[k] / least,
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
