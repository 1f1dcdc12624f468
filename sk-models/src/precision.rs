use std::fmt;
use std::str::FromStr;

use burn::tensor::{DType, Device};
use half::bf16;

use crate::config::Qwen2Config;
use crate::kernels::is_fused;

/// Consecutive inputs that share a scale in [`Precision::Int8`].
pub(crate) const INT8_GROUP: usize = 64;

/// The number format of a decoder's weights.
///
/// On a CPU, keys, values and the states between layers are in f32 in any case. Adapters are in
/// f32 beside weights in f32; beside weights in bf16 or int8 they are rounded if the processor
/// multiplies rounded numbers faster than f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Precision {
    /// f32, or the format of the device.
    #[default]
    F32,
    /// bf16: half the memory, and exact for a checkpoint in bf16, such as Qwen's own.
    ///
    /// A weight is off by up to 1/256 of itself. On a CPU, activations stay in f32, or in sixteen
    /// bits if many tokens are read and the processor has AMX. With AVX-512 BF16 and no AMX, they
    /// are rounded to bf16. On a GPU, activations and products are rounded to bf16.
    Bf16,
    /// Eight bits per weight, and an f32 scale for every 64 consecutive inputs of an output: little
    /// more than a quarter of the memory. Activations are rounded in the same way.
    ///
    /// A number is off by at most 1/254 of the largest of its 64. Sums over 64 products are exact.
    /// For CPUs; fast with AVX-512 VNNI.
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
    /// Returns the bytes of the weights of a model of this shape on a CPU.
    #[must_use]
    pub fn bytes(self, config: &Qwen2Config) -> u64 {
        let numbers = config.parameters() as u64;
        match self {
            Self::F32 => numbers * size_of::<f32>() as u64,
            Self::Bf16 => numbers * size_of::<bf16>() as u64,
            Self::Int8 => {
                // An embedding that is not the head stays in f32.
                let table = if config.tie_word_embeddings { 0 } else { config.vocab_size * config.hidden_size } as u64;
                let scales = (numbers - table) / INT8_GROUP as u64;
                numbers - table + (scales + table) * size_of::<f32>() as u64
            }
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
