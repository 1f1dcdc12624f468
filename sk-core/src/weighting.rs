use crate::ScoreTable;

/// The rule that turns the weights of Ω into those of a step, before 𝓝 combines the blades.
///
/// [`Fixed`] is the paper's: the weights are those that were asked for. Other rules look at the
/// scores of the step first, such as one that serves the worst-served objective.
pub trait Weighting: Send + Sync {
    /// Writes the weight of blade k in this step to `weights[k]`, whatever it held. Weights are
    /// finite and not negative, and at least one is positive; a step fails where they are not, and
    /// scales them to sum to one.
    ///
    /// `requested` holds the weights of Ω, one per blade of `scores`. A blade whose requested weight
    /// is zero is there only because the selector looks at it; give it the weight zero.
    ///
    /// # Panics
    /// May panic if the slices do not have one entry per blade.
    fn weigh(&self, scores: &ScoreTable, requested: &[f64], weights: &mut [f64]);
}

const _: Option<&dyn Weighting> = None;

/// The weights are those of Ω.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fixed;

impl Weighting for Fixed {
    fn weigh(&self, _: &ScoreTable, requested: &[f64], weights: &mut [f64]) {
        weights.copy_from_slice(requested);
    }
}
