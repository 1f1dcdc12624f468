//! Errors of training.

use std::fmt::Display;
use std::path::Path;

use thiserror::Error;

use crate::{
    config::{ConfigError, Qwen2Config},
    hf::CheckpointError,
    lora::AdapterError,
    memory::Shortage,
};

/// A training command that cannot start or continue.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a message names the fields of its variant")]
pub enum TrainError {
    /// A file cannot be read or written.
    #[error("cannot access {path}: {source}")]
    Io { path: String, source: std::io::Error },
    /// A file changed after the run had first read it.
    #[error("{path} changed during the run; run again")]
    Changed { path: String },
    /// A line of a data file is not a row of a known form.
    #[error("{path}:{line}: {reason}")]
    Row { path: String, line: usize, reason: String },
    /// A grammar that cannot be drawn from.
    #[error("{path}: {reason}")]
    Grammar { path: String, reason: String },
    /// The data leave nothing to train or measure with.
    #[error("{reason}")]
    NoData { reason: String },
    /// A setting has an impossible value.
    #[error("`{name}` is {value}: {reason}")]
    Setting { name: &'static str, value: String, reason: &'static str },
    /// The tokenizer library refuses.
    #[error("tokenizer {path}: {reason}")]
    Tokenizer { path: String, reason: String },
    /// A folder that another run writes to.
    #[error("another process trains into {path}; wait for it, or give another --output")]
    Busy { path: String },
    /// A checkpoint that does not belong to this run.
    #[error("checkpoint {path}: {reason}")]
    Checkpoint { path: String, reason: String },
    /// The output directory holds a finished result and no checkpoint.
    #[error("{path} already exists; give another --output, or move the file")]
    Finished { path: String },
    /// A weight file is damaged or does not fit.
    #[error("{path}: {reason}")]
    Weights { path: String, reason: String },
    /// A run that does not fit into memory.
    #[error("training takes about {shortage}; {remedy}")]
    Memory { shortage: Shortage, remedy: &'static str },
    /// The hidden states that a head is fitted to do not fit into memory.
    #[error("the hidden states take {shortage}; lower --memory or --pairs")]
    States { shortage: Shortage },
    /// The loss is NaN or infinite.
    #[error("the loss became {loss} at step {step}: {}", cause(*step))]
    Diverged { step: u64, loss: f64 },
    /// The model configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The backbone cannot be read, or the adapter not written.
    #[error(transparent)]
    Model(#[from] CheckpointError),
    /// An adapter does not fit the model.
    #[error(transparent)]
    Adapter(#[from] AdapterError),
}

/// Says what to do about a loss that is not finite.
fn cause(step: u64) -> &'static str {
    match step {
        0 => "the model gives it before it is trained, so its weights are damaged or overflow",
        _ => "lower the learning rate",
    }
}

impl TrainError {
    /// Checks a condition on a setting; `reason` is the expected value.
    pub(super) fn check(name: &'static str, value: impl Display, valid: bool, reason: &'static str) -> Result<(), Self> {
        if valid { Ok(()) } else { Err(Self::Setting { name, value: value.to_string(), reason }) }
    }

    /// Checks that counts are at least one.
    pub(super) fn check_counts(counts: &[(&'static str, u64)]) -> Result<(), Self> {
        counts.iter().try_for_each(|&(name, value)| Self::check(name, value, value > 0, "must be at least one"))
    }

    /// Checks that the sizes of a step, of which the first two are its batch and its passes, can be
    /// multiplied and counted.
    pub(super) fn check_step(sizes: &[usize]) -> Result<(), Self> {
        const MOST: u128 = 1 << 40;
        let count = sizes.iter().fold(1_u128, |count, &size| count.saturating_mul(size as u128));
        let value = format!("{} with a batch of {}", sizes[1], sizes[0]);
        Self::check("accumulate", value, count <= MOST, "a step cannot be as large; lower one of them")
    }

    /// Checks that texts of `length` tokens fit the context of a model.
    pub(super) fn check_context(length: usize, config: &Qwen2Config, remedy: &'static str) -> Result<(), Self> {
        let longest = config.max_position_embeddings;
        Self::check("length", format!("{length} and the model's longest context is {longest}"), length <= longest, remedy)
    }

    /// Checks that a loss is finite.
    pub(super) fn check_loss(step: u64, loss: f64) -> Result<(), Self> {
        if loss.is_finite() { Ok(()) } else { Err(Self::Diverged { step, loss }) }
    }

    /// Checks that a setting is finite and positive.
    pub(super) fn check_positive(name: &'static str, value: f64) -> Result<(), Self> {
        Self::check(name, value, value.is_finite() && value > 0.0, "must be positive and finite")
    }

    /// Checks that a setting is a share that leaves something on both sides.
    pub(super) fn check_split(name: &'static str, value: f64) -> Result<(), Self> {
        Self::check(name, value, value > 0.0 && value < 1.0, "must lie between 0 and 1")
    }

    /// Checks that a setting is finite and at least zero, and at most one if it is a share.
    pub(super) fn check_number(name: &'static str, value: f64, at_most_one: bool) -> Result<(), Self> {
        Self::check(name, value, value.is_finite() && value >= 0.0, "must be finite and not negative")?;
        Self::check(name, value, !at_most_one || value <= 1.0, "must lie between 0 and 1")
    }

    pub(crate) fn io(path: &Path, source: std::io::Error) -> Self {
        Self::Io { path: path.display().to_string(), source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_blamed_only_after_a_step() {
        let said = [0, 1].map(|step| TrainError::check_loss(step, f64::NAN).unwrap_err().to_string());
        assert!(said[0].contains("weights are damaged or overflow") && said[1].ends_with("lower the learning rate"), "{said:?}");
    }
}
