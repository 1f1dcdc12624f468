//! A decoder from the tensors of a checkpoint.

use std::collections::HashSet;

use burn::tensor::{DType, Device, Tensor, TensorData};

use super::{
    error::{CheckpointError, TensorFault},
    layout::{EMBEDDING, FINAL_NORM, HEAD, layer, tensor_shapes},
    safetensors::TensorFiles,
};
use crate::{
    config::Qwen2Config,
    lora::Target,
    model::{Layer, Norm, Projection, Qwen2, parts::ModelParts},
};

/// Builds a decoder from the tensors of a checkpoint, in the device's float type.
///
/// Linear layers are transposed to `[in, out]`. A tied head is not copied. Names and shapes are
/// checked before the first tensor is read.
///
/// # Errors
///
/// If a tensor is missing, of another shape or type, or not finite, or if there is an unknown one,
/// since weights that would be ignored belong to another architecture. If a file cannot be read.
pub fn load_model(config: &Qwen2Config, files: &TensorFiles, device: &Device) -> Result<Qwen2, CheckpointError> {
    Qwen2::assemble(config, CheckpointParts::new(config, files, device)?)
}

/// Tensors and the device they are loaded to.
pub(super) struct CheckpointParts<'a> {
    config: &'a Qwen2Config,
    files: &'a TensorFiles,
    device: &'a Device,
    /// The format of matrices, if it is not that of the device.
    format: Option<DType>,
}

impl ModelParts for CheckpointParts<'_> {
    type Error = CheckpointError;

    fn embedding(&mut self) -> Result<Tensor<2>, CheckpointError> {
        Ok(self.cast(self.tensor(EMBEDDING, [self.config.vocab_size, self.config.hidden_size])?))
    }

    fn layer(&mut self, index: usize) -> Result<Layer, CheckpointError> {
        let path = layer(index);
        let norms = [
            self.norm_of(&format!("{path}.input_layernorm.weight"))?,
            self.norm_of(&format!("{path}.post_attention_layernorm.weight"))?,
        ];
        Layer::assemble(self.config, norms, |target| self.projection(&format!("{path}.{}", target.path()), target))
    }

    fn norm(&mut self) -> Result<Norm, CheckpointError> {
        self.norm_of(FINAL_NORM)
    }

    fn head(&mut self) -> Result<Option<Tensor<2>>, CheckpointError> {
        let head = || self.matrix(HEAD, (self.config.hidden_size, self.config.vocab_size));
        (!self.config.tie_word_embeddings).then(head).transpose()
    }
}

impl<'a> CheckpointParts<'a> {
    /// Checks the names and shapes of all tensors.
    pub(super) fn new(config: &'a Qwen2Config, files: &'a TensorFiles, device: &'a Device) -> Result<Self, CheckpointError> {
        let shapes = tensor_shapes(config);
        for (name, shape) in &shapes {
            files.check(name, shape)?;
        }
        let known: HashSet<&str> = shapes.iter().map(|(name, _)| name.as_str()).collect();
        // A file may hold a copy of a tied head, and rotary frequencies, which follow from the
        // configuration.
        let implied = |name: &str| (config.tie_word_embeddings && name == HEAD) || name.ends_with(".rotary_emb.inv_freq");
        files.refuse_unknown(|name| known.contains(name) || implied(name))?;
        let shape = [config.vocab_size, config.hidden_size];
        if config.tie_word_embeddings && files.contains(HEAD) && !files.equals(HEAD, &shape, files, EMBEDDING)? {
            return Err(files.fault(HEAD, TensorFault::Untied));
        }
        Ok(Self { config, files, device, format: None })
    }

    /// Rounds matrices to bf16 as they are read. Norms and biases are unchanged.
    pub(super) fn rounded(self) -> Self {
        Self { format: Some(DType::BF16), ..self }
    }

    fn cast(&self, matrix: Tensor<2>) -> Tensor<2> {
        match self.format {
            Some(format) => matrix.cast(format),
            None => matrix,
        }
    }

    fn projection(&self, path: &str, target: Target) -> Result<Projection, CheckpointError> {
        let (input, output) = target.dims(self.config);
        let weight = self.matrix(&format!("{path}.weight"), (input, output))?;
        let bias = target.has_bias().then(|| self.tensor(&format!("{path}.bias"), [output])).transpose()?;
        Ok(Projection::new(weight, bias))
    }

    fn norm_of(&self, name: &str) -> Result<Norm, CheckpointError> {
        let weight = self.tensor(name, [self.config.hidden_size])?;
        Ok(Norm::new(weight, self.config.rms_norm_eps))
    }

    /// Reads a matrix that is `[out, in]` on disk and `[in, out]` here.
    fn matrix(&self, name: &str, (input, output): (usize, usize)) -> Result<Tensor<2>, CheckpointError> {
        Ok(self.cast(transposed(self.files, name, [output, input], self.device)?))
    }

    fn tensor<const D: usize>(&self, name: &str, shape: [usize; D]) -> Result<Tensor<D>, CheckpointError> {
        let values = self.files.read(name, &shape)?;
        Ok(Tensor::from_data(TensorData::new(values, shape), self.device))
    }
}

/// Reads a matrix of shape `[rows, columns]` as a tensor `[columns, rows]`.
pub(super) fn transposed(
    files: &TensorFiles,
    name: &str,
    [rows, columns]: [usize; 2],
    device: &Device,
) -> Result<Tensor<2>, CheckpointError> {
    let values = files.read_transposed(name, [rows, columns])?;
    Ok(Tensor::from_data(TensorData::new(values, [columns, rows]), device))
}
