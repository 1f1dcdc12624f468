use sk_core::{Blade, BoxError, Observation, Score};

/// A blade that speaks through the proposal alone: its weight mixes it into the policy that drafts,
/// as in Rewarded Soups.
///
/// ```text
/// μ_i = 0,   σ_i = 0
/// ```
///
/// It reads nothing, so that a step costs no scoring pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ingredient;

impl Blade for Ingredient {
    fn score(&self, _: &Observation<'_>, out: &mut [Score]) -> Result<(), BoxError> {
        out.fill(Score::new(0.0, 0.0)?);
        Ok(())
    }
}
