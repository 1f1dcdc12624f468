use std::fmt;
use std::str::FromStr;

use burn::tensor::{DType, Device};
use half::bf16;

use crate::config::Qwen2Config;
use crate::kernels::is_fused;
use crate::lora::Target;

/// Consecutive inputs that share a scale in [`Precision::Int8`].
pub(crate) const INT8_GROUP: usize = 64;

/// Columns of a panel of a packed matrix: two vectors of 16.
pub(crate) const PANEL: usize = 32;

/// The number format of a decoder's weights.
///
/// On a CPU, keys, values and the states between layers are in f32 in any case. Adapters
/// are in f32 too, with two exceptions: processors with AVX-512 VNNI round them beside weights in
/// int8, and AMD's processors with AVX-512 BF16 round them beside weights in bf16 or int8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Precision {
    /// f32, or the format of the device.
    #[default]
    F32,
    /// bf16: half the memory, and exact for a checkpoint in bf16, such as Qwen's own.
    ///
    /// A weight is off by up to 1/256 of itself. On a CPU, activations stay in f32, or in sixteen
    /// bits if many tokens are read and the processor has AMX. On AMD's processors with AVX-512
    /// BF16, they are rounded to bf16. On a GPU, activations and products are rounded to bf16.
    Bf16,
    /// Eight bits per weight, and an f32 scale for every 64 consecutive inputs of an output: little
    /// more than a quarter of the memory. Activations are rounded in the same way.
    ///
    /// A number is off by at most 1/254 of the largest of its 64. Sums over 64 products are exact.
    /// For CPUs; fastest with AVX-512 VNNI.
    Int8,
}

/// A precision that is not available.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a message names the fields of its variant")]
pub enum PrecisionError {
    /// An unknown name.
    #[error("unknown precision `{name}`; it can be f32, bf16 or int8")]
    Unknown { name: String },
    /// The device has no products of this precision.
    #[error("this device has no products of weights in {precision}; use --precision f32 or --device cpu")]
    Device { precision: Precision },
}

impl Precision {
    /// Returns the bytes of the weights of a model of this shape on a CPU. Their matrices are padded
    /// to whole panels.
    #[must_use]
    pub fn bytes(self, config: &Qwen2Config) -> u64 {
        let layer: u64 = Target::ALL.map(|target| self.matrix_bytes(target.dims(config))).iter().sum();
        let vectors = config.body_parameters() - config.matrix_entries();
        let head = (config.hidden_size, config.vocab_size);
        // An embedding that is not the head is in f32 beside weights in eight bits.
        let number = if self == Self::Bf16 { size_of::<bf16>() } else { size_of::<f32>() };
        let table = if config.tie_word_embeddings { 0 } else { head.0 * head.1 * number };
        config.num_hidden_layers as u64 * layer + self.matrix_bytes(head) + (vectors * size_of::<f32>() + table) as u64
    }

    /// Returns the bytes of the weights as a module: bf16 numbers, or else f32.
    pub(crate) fn module_bytes(self, config: &Qwen2Config) -> u64 {
        let number = if self == Self::Bf16 { size_of::<bf16>() } else { size_of::<f32>() };
        (number * config.parameters()) as u64
    }

    /// Returns the most bytes that a CPU takes while it packs such a model, whose parts are read in
    /// f32. A tied table is packed before the layers are read, another head after them.
    pub(crate) fn loading_bytes(self, config: &Qwen2Config) -> u64 {
        let read = |numbers: usize| (numbers * size_of::<f32>()) as u64;
        let layer = read(config.matrix_entries() / config.num_hidden_layers.max(1));
        let head = (config.hidden_size, config.vocab_size);
        let table = read(head.0 * head.1);
        if config.tie_word_embeddings {
            (self.bytes(config) + layer).max(self.matrix_bytes(head) + table)
        } else {
            self.bytes(config) + layer.max(table)
        }
    }

    /// Returns the bytes of a packed matrix, given its input and output width.
    fn matrix_bytes(self, (input, output): (usize, usize)) -> u64 {
        let numbers = |group: usize| (input.next_multiple_of(group) * output.next_multiple_of(PANEL)) as u64;
        match self {
            Self::F32 => numbers(1) * size_of::<f32>() as u64,
            Self::Bf16 => numbers(PANEL) * size_of::<bf16>() as u64,
            Self::Int8 => numbers(INT8_GROUP) + numbers(INT8_GROUP) / INT8_GROUP as u64 * size_of::<f32>() as u64,
        }
    }

    /// Checks that the device supports weights of this precision.
    pub(crate) fn check(self, device: &Device) -> Result<(), PrecisionError> {
        let has = match self {
            Self::F32 => true,
            Self::Bf16 => is_fused(device, DType::F32) || device.supports_dtype(DType::BF16),
            Self::Int8 => is_fused(device, DType::F32),
        };
        if has { Ok(()) } else { Err(PrecisionError::Device { precision: self }) }
    }
}

impl FromStr for Precision {
    type Err = PrecisionError;

    fn from_str(text: &str) -> Result<Self, PrecisionError> {
        match text {
            "f32" => Ok(Self::F32),
            "bf16" => Ok(Self::Bf16),
            "int8" => Ok(Self::Int8),
            _ => Err(PrecisionError::Unknown { name: text.to_owned() }),
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::Int8 => "int8",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decoder::Decoder;

    /// Widths that panels and groups do not divide.
    const SHAPE: [usize; 6] = [70, 10, 33, 2, 5, 1];

    #[test]
    fn bytes_are_those_of_a_decoder() {
        let config = Qwen2Config::small(SHAPE);
        let vectors = 4 * (config.body_parameters() - config.matrix_entries()) as u64;
        for precision in [Precision::F32, Precision::Bf16, Precision::Int8] {
            let decoder = Decoder::random(&config, 1, &Device::flex(), precision).unwrap();
            assert_eq!(precision.bytes(&config) - vectors, decoder.bytes() as u64, "{precision}");
            // One key of two numbers, and one value in a panel.
            assert_eq!(decoder.bytes_per_token(), 2 * (2 + 32) * 4);
        }
    }

    #[test]
    fn a_tied_table_is_packed_before_the_layers() {
        let mut config = Qwen2Config::small(SHAPE);
        let layer = 10 * 10 * 2 + 10 * 2 * 2 + 3 * 10 * 33;
        let loading = |config: &Qwen2Config| Precision::F32.loading_bytes(config) - Precision::F32.bytes(config);
        assert_eq!(loading(&config), 4 * layer);
        config.tie_word_embeddings = true;
        assert_eq!(loading(&config), 4 * layer);
        // A large table takes more, packed and read, than all that is packed later.
        config.vocab_size = 7000;
        assert_eq!(Precision::F32.loading_bytes(&config), 4 * 10 * 7008 + 4 * 70_000);
        config.tie_word_embeddings = false;
        assert_eq!(loading(&config), 4 * 70_000);
    }
}
