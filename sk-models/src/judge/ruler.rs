//! Fluency, measured by a language model that neither drafts nor steers.

use std::path::Path;

use burn::tensor::{Device, Int, Tensor};

use sha2::{Digest, Sha256};

use super::DIGITS;
use crate::{
    hf::Checkpoint,
    lora::Lanes,
    model::Qwen2,
    train::{TrainError, encoder::Encoder, loss::target_log_probs},
};

/// A small language model with a tokenizer of its own.
#[derive(Debug)]
pub struct Ruler {
    model: Qwen2,
    encoder: Encoder,
    digest: String,
}

impl Ruler {
    /// Loads the model in a directory.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or its tokenizer lacks the tokens that end a turn and a text.
    pub fn load(directory: &Path, device: &Device) -> Result<Self, TrainError> {
        let encoder = Encoder::load(directory)?;
        let checkpoint = Checkpoint::from_directory(directory)?;
        let mut digest = Sha256::new();
        checkpoint.tensors().visit(&mut |bytes| digest.update(bytes))?;
        let model = checkpoint.model(device)?;
        Ok(Self { model, encoder, digest: format!("{:.DIGITS$x}", digest.finalize()) })
    }

    /// Returns the first digits of SHA-256 over the weights.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Returns the perplexity of a response after its prompt, `exp(−1/n Σ log p)` over its n tokens
    /// in the ruler's own tokenizer, in one pass; `None` if it has no token. The end of the
    /// response is not counted, since an answer may have been cut off. If the text exceeds the
    /// context, the prompt is cut at its beginning, to no less than half a context; then the
    /// response is cut at its end.
    ///
    /// # Errors
    ///
    /// If the tokenizer refuses the text.
    pub fn perplexity(&self, prompt: &str, response: &str) -> Result<Option<f64>, TrainError> {
        let limit = self.model.config.max_position_embeddings;
        let mut ids = self.encoder.prompt(prompt)?;
        let mut answer = self.encoder.text(response)?;
        answer.truncate(limit - ids.len().min(limit / 2));
        if answer.is_empty() {
            return Ok(None);
        }
        ids.drain(..(ids.len() + answer.len()).saturating_sub(limit));
        // Without a prompt, the text follows the end of a document.
        if ids.is_empty() {
            ids.push(self.encoder.end_of_text);
        }
        let first = ids.len() - 1;
        ids.extend(&answer);
        let device = self.model.device();
        let places: Vec<usize> = (first..first + answer.len()).collect();
        let inputs = Tensor::<1, Int>::from_data(&ids[..ids.len() - 1], &device).unsqueeze();
        let hidden = self.model.forward(inputs, Lanes::backbone()).select(0, Tensor::from_data(&places[..], &device));
        let targets = Tensor::from_data(&answer[..], &device);
        let log_probs = target_log_probs(self.model.logits(hidden, Lanes::backbone()), targets);
        let nats = -log_probs.into_data().iter::<f32>().map(f64::from).sum::<f64>();
        Ok(Some((nats / answer.len() as f64).exp()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_that_fits_is_read_to_its_end() {
        let ruler = Ruler::load(&crate::assets::embedded().unwrap().backbone(), &Device::flex()).unwrap();
        let limit = ruler.model.config.max_position_embeddings;
        let sentence = "Clean the bicycle with a brush and soapy water. ";
        let length = |count: usize| ruler.encoder.text(&sentence.repeat(count)).unwrap().len();
        let each = length(2) - length(1);
        let long = sentence.repeat(limit * 3 / 4 / each);
        let more = long.clone() + "Xq zv jjk.";
        let fluency = |response: &str| ruler.perplexity("How do I clean it?", response).unwrap().unwrap();
        assert!(fluency(&more) > fluency(&long), "{} {}", fluency(&more), fluency(&long));
        // What does not fit is cut.
        let full = sentence.repeat(limit / each + 1);
        assert_eq!(fluency(&full), fluency(&(full.clone() + "Xq zv jjk.")));
    }
}
