//! What is asked of the logits of one token.

use sk_core::TokenId;

use super::simd::{max, widened};

/// Returns the argmax, the first of equals.
pub(crate) fn argmax(logits: &[f32]) -> TokenId {
    let max = widened(
        #[inline(always)]
        || max(logits),
    );
    logits.iter().position(|&z| z == max).unwrap_or(0) as TokenId
}

/// Whether no logit is NaN or +∞. A token may be impossible.
pub(crate) fn are_numbers(logits: &[f32]) -> bool {
    // Without a way out of the loop it is a vector loop.
    !widened(
        #[inline(always)]
        || logits.iter().fold(false, |broken, z| broken | z.is_nan() | (*z == f32::INFINITY)),
    )
}
