//! The parts of a decoder, one by one.

use std::convert::Infallible;
use std::vec;

use burn::{module::Param, tensor::Tensor};

use super::{Layer, Norm, Qwen2};
use crate::config::Qwen2Config;

/// The parts of a decoder. The methods are called once per part, in order, so a conversion holds at
/// most one part twice.
pub(crate) trait ModelParts {
    /// The error of a missing part.
    type Error;

    /// Returns the embedding, `[V, H]`.
    fn embedding(&mut self) -> Result<Tensor<2>, Self::Error>;

    /// Returns the next layer, number `index`.
    fn layer(&mut self, index: usize) -> Result<Layer, Self::Error>;

    /// Returns the final norm.
    fn norm(&mut self) -> Result<Norm, Self::Error>;

    /// Returns the head, `[H, V]`, or `None` if the head is the embedding.
    fn head(&mut self) -> Result<Option<Tensor<2>>, Self::Error>;
}

/// The parts of a model in memory.
pub(crate) struct OwnedParts {
    embedding: Option<Tensor<2>>,
    layers: vec::IntoIter<Layer>,
    norm: Option<Norm>,
    head: Option<Tensor<2>>,
}

impl From<Qwen2> for OwnedParts {
    fn from(Qwen2 { embed_tokens, layers, norm, lm_head, config: _ }: Qwen2) -> Self {
        let head = lm_head.map(Param::into_value);
        Self { embedding: Some(embed_tokens.into_value()), layers: layers.into_iter(), norm: Some(norm), head }
    }
}

/// The panic message for a part that is taken twice.
const TAKEN: &str = "a part is asked for once";

impl ModelParts for OwnedParts {
    type Error = Infallible;

    fn embedding(&mut self) -> Result<Tensor<2>, Infallible> {
        Ok(self.embedding.take().expect(TAKEN))
    }

    fn layer(&mut self, _: usize) -> Result<Layer, Infallible> {
        Ok(self.layers.next().expect(TAKEN))
    }

    fn norm(&mut self) -> Result<Norm, Infallible> {
        Ok(self.norm.take().expect(TAKEN))
    }

    fn head(&mut self) -> Result<Option<Tensor<2>>, Infallible> {
        Ok(self.head.take())
    }
}

impl Qwen2 {
    /// Assembles a model from parts.
    pub(crate) fn assemble<P: ModelParts>(config: &Qwen2Config, mut parts: P) -> Result<Self, P::Error> {
        Ok(Self {
            embed_tokens: Param::from_tensor(parts.embedding()?),
            layers: (0..config.num_hidden_layers).map(|index| parts.layer(index)).collect::<Result<_, _>>()?,
            norm: parts.norm()?,
            lm_head: parts.head()?.map(Param::from_tensor),
            config: config.clone(),
        })
    }
}
