use sk_core::{Blade, BoxError, Observation, Score};

/// A blade that affects only the proposal: its weight mixes its adapter into the policy that
/// drafts, as in Rewarded Soups.
///
/// ```text
/// μ_i = 0,   σ_i = 0
/// ```
///
/// It reads nothing and so adds no scoring pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ingredient;

impl Blade for Ingredient {
    fn score(&self, _: &Observation<'_>, out: &mut [Score]) -> Result<(), BoxError> {
        out.fill(Score::new(0.0, 0.0)?);
        Ok(())
    }
}
