//! Models of any shape with seeded random weights.

use std::path::Path;

use super::{ModelError, Models};
use crate::decoder::{Decoder, Precision};
use crate::device::DeviceName;
use crate::hf::Progress;
use crate::lora::LoraAdapter;
use crate::memory::{check_room, free_memory};
use crate::text::Tokenizer;
use crate::{ConfigError, Qwen2Config};

/// Streams of the seed for the drafter and the adapters.
const DRAFTER: u64 = 1;
const ADAPTERS: u64 = 2;

impl Models {
    /// Returns a backbone and a drafter with the shapes of two `config.json` files, and an adapter
    /// for each of `names`. The weights depend only on `seed`. Without a shape of the drafter, the
    /// backbone drafts. No token ends a response.
    ///
    /// Adapters take `ranks` in turn.
    ///
    /// # Errors
    /// If a shape cannot be read or is impossible, the drafter's vocabulary is larger than the
    /// backbone's, the weights do not fit into the CPU's memory, or the device or the precision is
    /// not available.
    ///
    /// # Panics
    /// If there is no rank, or one of zero.
    pub fn random(
        (backbone, drafter): (&Path, Option<&Path>),
        (device, precision): (DeviceName, Precision),
        seed: u64,
        ranks: &[usize],
        names: impl IntoIterator<Item = String>,
        progress: &mut dyn Progress,
    ) -> Result<(Self, Vec<(String, LoraAdapter)>), ModelError> {
        let (device_name, device) = device.resolve()?;
        let large = Qwen2Config::from_file(backbone)?;
        let small = drafter.map(|path| Qwen2Config::from_file(path).map(|config| (path, config))).transpose()?;
        if let Some((path, small)) = &small
            && small.vocab_size > large.vocab_size
        {
            return Err(ModelError::Shape(ConfigError::Field {
                path: path.display().to_string(),
                field: "vocab_size",
                value: small.vocab_size.to_string(),
                reason: "must not exceed the backbone's, which reads what it drafts",
            }));
        }
        // The drafter is packed after the backbone.
        let both = small.as_ref().map_or(0, |(_, small)| precision.bytes(&large) + precision.loading_bytes(small));
        check_room(&device, precision.loading_bytes(&large).max(both), free_memory())
            .map_err(|shortage| ModelError::ShapeMemory { path: backbone.to_owned(), shortage })?;
        let mut fill = |config: &Qwen2Config, seed, role| {
            progress.stage(&format!("filling the {role}"));
            Decoder::random(config, seed, &device, precision)
        };
        let backbone = fill(&large, seed, "backbone")?;
        let drafter = small.map(|(_, small)| fill(&small, seed.wrapping_add(DRAFTER), "drafter")).transpose()?;
        let models = Self::joined((backbone, drafter), Tokenizer::bytes(), precision, (device_name, device));
        let adapters = (0..).zip(names).map(|(index, name)| (name, models.random_adapter(index, seed, ranks))).collect();
        Ok((models, adapters))
    }

    /// Returns random adapter number `index` of a seed for the backbone.
    ///
    /// # Panics
    /// If `ranks` is empty or holds zero.
    pub fn random_adapter(&self, index: usize, seed: u64, ranks: &[usize]) -> LoraAdapter {
        let seed = seed.wrapping_add(ADAPTERS).wrapping_add(index as u64);
        LoraAdapter::random(self.backbone.config(), ranks[index % ranks.len()], seed, &self.device)
    }
}
