use sk_core::{Observation, Policy, Reading, ReadingsError, Score, Scratch};

use crate::{BladeError, Dispersion};

/// Returns the readings of one policy that predicts tokens, validated to have the candidates'
/// lengths.
pub(crate) fn of<'a>(step: &Observation<'a>, policy: &Policy) -> Result<&'a [Reading], BladeError> {
    let readings = step.readings.of(policy, step.candidates)?;
    for (candidate, reading) in readings.iter().enumerate() {
        same_length(step, policy, "log-probabilities", candidate, reading.log_probs.len())?;
    }
    Ok(readings)
}

/// Returns the value of a head after the last token of each candidate.
pub(crate) fn last_values(step: &Observation<'_>, head: &Policy) -> Result<Scratch<Vec<f64>>, BladeError> {
    let last = |(candidate, reading): (usize, &Reading)| {
        same_length(step, head, "values", candidate, reading.values.len())?;
        Ok(f64::from(reading.values[reading.values.len() - 1]))
    };
    step.readings.of(head, step.candidates)?.iter().enumerate().map(last).collect()
}

/// As [`of`], and also validates the length of min-entropies if the dispersion needs them.
pub(crate) fn with<'a>(step: &Observation<'a>, policy: &Policy, dispersion: Dispersion) -> Result<&'a [Reading], BladeError> {
    let readings = of(step, policy)?;
    if dispersion == Dispersion::MinEntropy {
        for (candidate, reading) in readings.iter().enumerate() {
            same_length(step, policy, "min-entropies", candidate, reading.min_entropy.len())?;
        }
    }
    Ok(readings)
}

fn same_length(
    step: &Observation<'_>,
    policy: &Policy,
    quantity: &'static str,
    candidate: usize,
    got: usize,
) -> Result<(), ReadingsError> {
    let expected = step.candidates[candidate].tokens.len();
    if got == expected {
        Ok(())
    } else {
        Err(ReadingsError::Tokens { policy: policy.clone(), quantity, candidate, expected, got })
    }
}

/// Replaces the score of each of `n` candidates by the (μ, σ) that `score` computes from its index
/// and its score so far. The error has the candidate's index.
pub(crate) fn write(out: &mut [Score], n: usize, score: impl Fn(usize, Score) -> (f64, f64)) -> Result<(), BladeError> {
    assert_eq!(out.len(), n, "one score per candidate");
    for (index, out) in out.iter_mut().enumerate() {
        let (mu, sigma) = score(index, *out);
        *out = Score::of(index, mu, sigma)?;
    }
    Ok(())
}

/// Returns the mean over tokens, computed in `f64`.
pub(crate) fn mean(values: &[f32]) -> f64 {
    values.iter().map(|&v| f64::from(v)).sum::<f64>() / values.len() as f64
}
