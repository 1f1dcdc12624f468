//! A preference model, which scores a response on one axis.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::features::{Features, MANNERS, Splitter};
use super::short_digest;
use crate::hf::{CheckpointError, TensorBytes, TensorFiles, io_error, read_json, write_json, write_tensors};

/// The description of a model.
const CONFIG_FILE: &str = "judge_config.json";
/// The weights of a model.
pub(crate) const WEIGHTS_FILE: &str = "judge.safetensors";
/// The hint for weights that do not fit.
const HINT: &str = "do these weights belong to this judge_config.json?";
/// The version of the features. Files of another version are refused.
const FEATURES: u32 = 1;
/// The largest number of bits of a bucket.
pub(crate) const MOST_BITS: u32 = 24;

/// A Bradley–Terry model of preference that is linear in the words of a response.
///
/// ```text
/// P(y ≻ y′) = sigmoid(s(x, y) − s(x, y′)),   s = w·words + u·manner
/// ```
///
/// It is fitted with log-length as a covariate, w·words + u·manner + c·log(1 + n). Scores omit the
/// covariate, so they measure preference at equal length.
#[derive(Debug, Clone)]
pub struct PreferenceModel {
    attribute: String,
    weights: Weights,
    splitter: Splitter,
}

/// The weights of a preference model.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Weights {
    /// w, `[2^bits]`.
    pub(crate) words: Vec<f32>,
    /// u.
    pub(crate) manner: [f32; MANNERS],
    /// c, which scores ignore.
    pub(crate) length: f32,
    /// Mean of s over the completions of the fit.
    pub(crate) mean: f32,
}

/// The text of `judge_config.json`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    attribute: String,
    features: u32,
    bits: u32,
}

impl Weights {
    /// Returns s(x, y).
    pub(crate) fn logit(&self, features: &Features) -> f64 {
        let words = features.words.iter().map(|(bucket, value)| f64::from(self.words[*bucket as usize]) * f64::from(*value));
        let manner = self.manner.iter().zip(features.manner).map(|(w, x)| f64::from(*w) * f64::from(x));
        words.sum::<f64>() + manner.sum::<f64>()
    }
}

impl PreferenceModel {
    pub(crate) fn new(attribute: String, weights: Weights) -> Self {
        Self { attribute, weights, splitter: Splitter::new() }
    }

    /// Returns the judged attribute.
    #[must_use]
    pub fn attribute(&self) -> &str {
        &self.attribute
    }

    /// Returns sigmoid(s(x, y) − s̄): the probability that a response is preferred to an average
    /// response of the fit, at equal length.
    ///
    /// In (0, 1). `None` for a response without words. O(length).
    #[must_use]
    pub fn win_probability(&self, prompt: &str, response: &str) -> Option<f64> {
        let features = Features::of(&self.splitter, prompt, response, self.bits())?;
        let logit = self.weights.logit(&features) - f64::from(self.weights.mean);
        Some(1.0 / (1.0 + (-logit).exp()))
    }

    fn bits(&self) -> u32 {
        self.weights.words.len().trailing_zeros()
    }

    /// Returns the first digits of SHA-256 over the numbers that scores depend on.
    #[must_use]
    pub fn digest(&self) -> String {
        let Weights { words, manner, mean, .. } = &self.weights;
        let numbers = words.iter().chain(manner).chain([mean]).flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        short_digest(&numbers)
    }

    /// Reads a model from its directory.
    ///
    /// # Errors
    ///
    /// If a file is missing, malformed, or made for other features.
    pub fn load(directory: &Path) -> Result<Self, CheckpointError> {
        let path = directory.join(CONFIG_FILE);
        let config: Config = read_json(&path)?;
        if config.features != FEATURES || !(1..=MOST_BITS).contains(&config.bits) {
            let Config { features, bits, .. } = config;
            let reason = format!(
                "features {features} over 2^{bits} buckets; this program reads features {FEATURES} over 2^1 to 2^{MOST_BITS}"
            );
            return Err(io_error("use", &path, io::Error::new(io::ErrorKind::InvalidData, reason)));
        }
        let tensors = TensorFiles::open_file(&directory.join(WEIGHTS_FILE), HINT)?;
        let one = |name| tensors.read(name, &[1]).map(|values| values[0]);
        let mut manner = [0.0; MANNERS];
        manner.copy_from_slice(&tensors.read("manner", &[MANNERS])?);
        let words = tensors.read("words", &[1 << config.bits])?;
        Ok(Self::new(config.attribute, Weights { words, manner, length: one("length")?, mean: one("mean")? }))
    }

    /// Writes the model: words in f16, the rest in f32.
    ///
    /// # Errors
    ///
    /// If the directory or a file cannot be written. Each file is complete or unchanged.
    pub fn save(&self, directory: &Path) -> Result<(), CheckpointError> {
        fs::create_dir_all(directory).map_err(|source| io_error("create", directory, source))?;
        let Weights { words, manner, length, mean } = &self.weights;
        let tensors = BTreeMap::from([
            ("words".to_owned(), TensorBytes::f16(vec![words.len()], words)),
            ("manner".to_owned(), TensorBytes::f32(vec![MANNERS], manner)),
            ("length".to_owned(), TensorBytes::f32(vec![1], &[*length])),
            ("mean".to_owned(), TensorBytes::f32(vec![1], &[*mean])),
        ]);
        let config = Config { attribute: self.attribute.clone(), features: FEATURES, bits: self.bits() };
        write_json(&directory.join(CONFIG_FILE), &config)?;
        // Last, since a folder with weights counts as finished.
        write_tensors(&directory.join(WEIGHTS_FILE), &tensors, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> PreferenceModel {
        // Halves are exact in f16.
        let words = (0..16).map(|i| 0.5 * i as f32 - 2.0).collect();
        PreferenceModel::new("kind".to_owned(), Weights { words, manner: [0.25, -1.0, 3.0, 0.1], length: 0.7, mean: -0.3 })
    }

    #[test]
    fn a_saved_model_is_loaded_unchanged() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/judge");
        model().save(&path).unwrap();
        let loaded = PreferenceModel::load(&path).unwrap();
        assert_eq!((loaded.attribute(), &loaded.weights), ("kind", &model().weights));
        assert_eq!(fs::read_dir(&path).unwrap().count(), 2, "no temporary file is left");
    }

    #[test]
    fn the_weights_are_written_last() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join(CONFIG_FILE)).unwrap();
        assert!(model().save(directory.path()).is_err());
        assert!(!directory.path().join(WEIGHTS_FILE).exists());
    }

    #[test]
    fn probabilities_ignore_length() {
        let model = model();
        let p = model.win_probability("", "one two").unwrap();
        assert!(p > 0.0 && p < 1.0);
        let mut longer = model.clone();
        longer.weights.length = 99.0;
        assert_eq!(longer.win_probability("", "one two"), Some(p));
        let mut average = model;
        let features = Features::of(&average.splitter, "", "one two", 4).unwrap();
        average.weights.mean = average.weights.logit(&features) as f32;
        // The mean is kept in f32.
        assert!((average.win_probability("", "one two").unwrap() - 0.5).abs() < 1e-6);
        assert_eq!(average.win_probability("", "…"), None);
    }

    #[test]
    fn errors_name_the_fault() {
        let directory = tempfile::tempdir().unwrap();
        let says = || PreferenceModel::load(directory.path()).unwrap_err().to_string();
        assert!(says().contains(CONFIG_FILE), "{}", says());
        model().save(directory.path()).unwrap();
        let config = directory.path().join(CONFIG_FILE);
        fs::write(&config, r#"{"attribute": "kind", "features": 9, "bits": 4}"#).unwrap();
        assert!(says().contains("features 9") && says().contains(CONFIG_FILE), "{}", says());
        fs::write(&config, r#"{"attribute": "kind", "features": 1, "bits": 5}"#).unwrap();
        assert!(says().contains("[16]") && says().contains("[32]"), "{}", says());
    }
}
