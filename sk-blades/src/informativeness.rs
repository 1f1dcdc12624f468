//! 𝓘(σ): how well a dispersion predicts the size of the reward's error.

/// The reason why a rank correlation is undefined.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a message names the fields of its variant")]
pub enum InformativenessError {
    /// Two quantities differ in length.
    #[error("{quantity} has {got} entries where {expected} were expected; give one per candidate")]
    Length { quantity: &'static str, got: usize, expected: usize },
    /// There are fewer than two candidates.
    #[error("{got} candidates cannot be ranked against one another; give at least 2")]
    TooFew { got: usize },
    /// A value is NaN or infinite, or a dispersion is negative.
    #[error("entry {index} of {quantity} is {value}; it must be {expected}")]
    Value { quantity: &'static str, index: usize, value: f64, expected: &'static str },
    /// All values are equal, so that their ranks carry no information.
    #[error("{quantity} is the same for all {candidates} candidates, and a constant has no rank correlation")]
    Constant { quantity: &'static str, candidates: usize },
}

/// Returns 𝓘(σ) = |Spearman(σ_i, |μ_i − q_i|)|, the rank correlation of a dispersion and the
/// realised error of its reward (`def:info`).
///
/// Each slice has one entry per candidate. μ and the latent quality q have the same unit; σ may
/// have any, since only its ranks count. Errors that differ only by rounding tie. The result is in
/// [0, 1]. Since it is an absolute value, a σ that is *small* where the reward errs counts as
/// informative too; [`spearman`] gives the sign. It does not depend on the direction of the error,
/// and 𝓘 = 0 does not make the pairing of σ with its candidates irrelevant (E15 of the book). O(N
/// log N).
///
/// ```
/// // The errors are 0.1, 0.5, 0.2 and 1; the dispersions order all but one pair of them correctly.
/// let (mu, quality, sigma) = ([1.1, 0.5, 0.8, 3.0], [1.0, 0.0, 1.0, 2.0], [0.2, 0.3, 0.4, 0.9]);
/// assert!((sk_blades::informativeness(&mu, &quality, &sigma)? - 0.8).abs() < 1e-12);
/// # Ok::<(), sk_blades::InformativenessError>(())
/// ```
///
/// # Errors
/// If the slices differ in length or have fewer than two entries, a value is not finite, a
/// dispersion is negative, or all dispersions or all errors are equal.
pub fn informativeness(mu: &[f64], quality: &[f64], sigma: &[f64]) -> Result<f64, InformativenessError> {
    same_length("quality", quality, mu)?;
    same_length("sigma", sigma, mu)?;
    finite("mu", mu)?;
    finite("quality", quality)?;
    finite("sigma", sigma)?;
    if let Some((index, &value)) = sigma.iter().enumerate().find(|(_, s)| **s < 0.0) {
        return Err(InformativenessError::Value { quantity: "sigma", index, value, expected: "not negative" });
    }
    let mut error: Vec<f64> = mu.iter().zip(quality).map(|(m, q)| (m - q).abs()).collect();
    // Half an ε each for μ, for q and for their difference, which is at most twice the largest of
    // them.
    let largest = mu.iter().chain(quality).fold(0.0_f64, |most, value| most.max(value.abs()));
    sk_core::merge_ties(&mut error, |_, _| 2.0 * f64::EPSILON * largest);
    correlate(("sigma", sigma), ("the error |mu − quality|", &error)).map(f64::abs)
}

/// Returns Spearman's rank correlation r_s of two samples: Pearson's correlation of their ranks,
/// where ties share their mean rank.
///
/// In [−1, 1]. O(N log N).
///
/// ```
/// assert_eq!(sk_blades::spearman(&[1.0, 2.0, 3.0], &[9.0, 4.0, 1.0])?, -1.0);
/// # Ok::<(), sk_blades::InformativenessError>(())
/// ```
///
/// # Errors
/// If the samples differ in length or have fewer than two entries, a value is not finite, or a
/// sample is constant.
pub fn spearman(x: &[f64], y: &[f64]) -> Result<f64, InformativenessError> {
    same_length("the second sample", y, x)?;
    finite("the first sample", x)?;
    finite("the second sample", y)?;
    correlate(("the first sample", x), ("the second sample", y))
}

fn same_length(quantity: &'static str, values: &[f64], first: &[f64]) -> Result<(), InformativenessError> {
    let (got, expected) = (values.len(), first.len());
    if got == expected { Ok(()) } else { Err(InformativenessError::Length { quantity, got, expected }) }
}

fn finite(quantity: &'static str, values: &[f64]) -> Result<(), InformativenessError> {
    match values.iter().enumerate().find(|(_, value)| !value.is_finite()) {
        Some((index, &value)) => Err(InformativenessError::Value { quantity, index, value, expected: "finite" }),
        None => Ok(()),
    }
}

/// Returns Pearson's correlation of the mid-ranks of two samples without NaN.
fn correlate(x: (&'static str, &[f64]), y: (&'static str, &[f64])) -> Result<f64, InformativenessError> {
    let candidates = x.1.len();
    if candidates < 2 {
        return Err(InformativenessError::TooFew { got: candidates });
    }
    let (a, b) = (centred_ranks(x.1), centred_ranks(y.1));
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let (aa, bb) = (dot(&a, &a), dot(&b, &b));
    for (quantity, square) in [(x.0, aa), (y.0, bb)] {
        if square == 0.0 {
            return Err(InformativenessError::Constant { quantity, candidates });
        }
    }
    // A single square root makes perfect agreement exactly 1. Otherwise rounding could exceed 1,
    // hence the clamp.
    Ok((dot(&a, &b) / (aa * bb).sqrt()).clamp(-1.0, 1.0))
}

/// Returns ranks minus their mean. Ties share their mean rank; all results are multiples of one
/// half.
fn centred_ranks(values: &[f64]) -> Vec<f64> {
    let mut ranks = vec![0.0; values.len()];
    let mean = 0.5 * (values.len() as f64 - 1.0);
    sk_core::mid_ranks(values, |i, rank| ranks[i] = rank - mean);
    ranks
}
