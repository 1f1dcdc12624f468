use std::fmt;
use std::str::FromStr;

use burn::tensor::{DType, Device};
use half::bf16;

use crate::config::Qwen2Config;
use crate::kernels::is_fused;

/// The largest number of inputs of a layer in int8, whose sums of products of a weight in −127…127
/// and a byte fit into 32 bits.
pub(crate) const MOST_INPUTS: usize = i32::MAX as usize / (127 * 255);

/// The number format of a decoder's weights.
///
/// Adapters, keys, values and the states between layers are in f32 in any case.
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
    /// Eight bits per weight and a scale per output: a quarter of the memory. Activations are
    /// rounded to sixteen bits.
    ///
    /// The error of a weight is at most 1/254 of the largest weight of the same output. Sums are
    /// exact. For CPUs; fast with AVX-512 VNNI.
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
    /// A layer with more inputs than a sum of products in this precision holds.
    #[error("its layers have {inputs} inputs and products in int8 sum at most {most} exactly; use --precision bf16 or f32")]
    Inputs { inputs: usize, most: usize },
}

impl Precision {
    /// Returns the bytes of the weights of a model of this shape on a CPU.
    #[must_use]
    pub fn bytes(self, config: &Qwen2Config) -> u64 {
        let numbers = config.parameters() as u64;
        match self {
            Self::F32 => numbers * size_of::<f32>() as u64,
            Self::Bf16 => numbers * size_of::<bf16>() as u64,
            // An embedding that is not the head stays in f32.
            Self::Int8 if config.tie_word_embeddings => numbers,
            Self::Int8 => {
                let table = (config.vocab_size * config.hidden_size) as u64;
                numbers + table * (size_of::<f32>() as u64 - 1)
            }
        }
    }

    /// Checks that the device supports weights of this precision, and that the layers of a model
    /// are not too wide for the precision.
    pub(crate) fn check(self, config: &Qwen2Config, device: &Device) -> Result<(), PrecisionError> {
        self.check_device(device)?;
        let inputs = config.hidden_size.max(config.query_size()).max(config.intermediate_size);
        if self == Self::Int8 && inputs > MOST_INPUTS {
            return Err(PrecisionError::Inputs { inputs, most: MOST_INPUTS });
        }
        Ok(())
    }

    /// Checks that the device supports weights of this precision.
    pub(crate) fn check_device(self, device: &Device) -> Result<(), PrecisionError> {
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
