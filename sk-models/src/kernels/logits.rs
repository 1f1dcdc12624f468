//! Reductions over the logits of one token.

use sk_core::TokenId;

use super::simd::{max, widened};

/// Returns the argmax. Among equals, the first wins.
pub(crate) fn argmax(logits: &[f32]) -> TokenId {
    let max = widened!(max(logits));
    logits.iter().position(|&z| z == max).unwrap_or(0) as TokenId
}

/// Returns whether no logit is NaN or +∞. A logit of −∞ is valid: it marks an impossible token.
pub(crate) fn are_numbers(logits: &[f32]) -> bool {
    // Without an early exit, the loop is vectorised.
    !widened!(logits.iter().fold(false, |broken, z| broken | z.is_nan() | (*z == f32::INFINITY)))
}
