//! The modules that an adapter can change, by PEFT's paths.

use crate::{config::Qwen2Config, lora::Target};

/// A module that an adapter can change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Module {
    /// A linear layer of a decoder layer.
    Linear { layer: usize, target: Target },
    /// The embedding.
    Embedding,
    /// The head.
    Head,
}

impl Module {
    /// Returns all modules in the order of the forward pass.
    pub(super) fn all(config: &Qwen2Config) -> impl Iterator<Item = Self> {
        let linear = (0..config.num_hidden_layers)
            .flat_map(|layer| Target::ALL.into_iter().map(move |target| Self::Linear { layer, target }));
        std::iter::once(Self::Embedding).chain(linear).chain(std::iter::once(Self::Head))
    }

    /// Returns the path in a `Qwen2ForCausalLM`.
    pub(super) fn path(self) -> String {
        match self {
            Self::Linear { layer, target } => format!("model.layers.{layer}.{}", target.path()),
            Self::Embedding => "model.embed_tokens".to_owned(),
            Self::Head => "lm_head".to_owned(),
        }
    }

    /// Returns the input and output width; those of the embedding are the vocabulary and the hidden
    /// size.
    pub(super) fn dims(self, config: &Qwen2Config) -> (usize, usize) {
        match self {
            Self::Linear { target, .. } => target.dims(config),
            Self::Embedding => (config.vocab_size, config.hidden_size),
            Self::Head => (config.hidden_size, config.vocab_size),
        }
    }

    /// Returns PEFT's names of the two matrices.
    pub(super) fn suffixes(self) -> [&'static str; 2] {
        match self {
            Self::Embedding => ["lora_embedding_A", "lora_embedding_B"],
            Self::Linear { .. } | Self::Head => ["lora_A.weight", "lora_B.weight"],
        }
    }
}
