//! Where the parts of a decoder come from.

use std::convert::Infallible;
use std::vec;

use burn::{
    module::Param,
    tensor::{DType, Tensor},
};

use super::{Layer, Mlp, Norm, Projection, Qwen2};
use crate::config::Qwen2Config;

/// The parts of a decoder, each asked for once and in the order of the methods: what takes them one by one into another form holds no more
/// than one part twice.
pub(crate) trait Parts {
    /// Why a part cannot be had.
    type Error;

    /// `[V, H]`.
    fn embedding(&mut self) -> Result<Tensor<2>, Self::Error>;

    /// The next layer, whose number is `index`.
    fn layer(&mut self, index: usize) -> Result<Layer, Self::Error>;

    /// The final norm.
    fn norm(&mut self) -> Result<Norm, Self::Error>;

    /// `[H, V]`; none where the head is the embedding.
    fn head(&mut self) -> Result<Option<Tensor<2>>, Self::Error>;
}

/// A decoder taken apart.
pub(crate) struct Apart {
    embedding: Option<Tensor<2>>,
    layers: vec::IntoIter<Layer>,
    norm: Option<Norm>,
    head: Option<Tensor<2>>,
}

impl From<Qwen2> for Apart {
    fn from(Qwen2 { embed_tokens, layers, norm, lm_head, config: _ }: Qwen2) -> Self {
        let head = lm_head.map(Param::into_value);
        Self { embedding: Some(embed_tokens.into_value()), layers: layers.into_iter(), norm: Some(norm), head }
    }
}

/// Each part is there once.
const TAKEN: &str = "a part is asked for once";

impl Parts for Apart {
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

/// How a matrix `[in, out]` lies in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Row by row.
    Rows,
    /// Column by column, as in a file: a sum over `in` reads what lies together. Products with a single row on a GPU are fast in no other.
    Columns,
}

impl Layout {
    /// The matrix, laid out so.
    fn apply(self, matrix: Tensor<2>) -> Tensor<2> {
        match self {
            Self::Rows => matrix,
            Self::Columns => {
                let columns = matrix.transpose();
                // An element-wise product writes a new, contiguous tensor; a transpose alone is a view.
                (columns.ones_like() * columns).transpose()
            }
        }
    }
}

/// Parts whose matrices are brought into another format and layout, one after the other.
pub(crate) struct Shaped<P> {
    pub(crate) parts: P,
    /// That of the parts if none.
    pub(crate) format: Option<DType>,
    pub(crate) layout: Layout,
}

impl<P> Shaped<P> {
    fn shape(&self, matrix: Tensor<2>) -> Tensor<2> {
        self.layout.apply(self.cast(matrix))
    }

    fn cast(&self, matrix: Tensor<2>) -> Tensor<2> {
        match self.format {
            Some(format) => matrix.cast(format),
            None => matrix,
        }
    }
}

impl<P: Parts> Parts for Shaped<P> {
    type Error = P::Error;

    /// A table of rows in either layout, and so the other one for products with it as a head.
    fn embedding(&mut self) -> Result<Tensor<2>, P::Error> {
        let table = self.parts.embedding()?;
        Ok(self.cast(table))
    }

    fn layer(&mut self, index: usize) -> Result<Layer, P::Error> {
        let layer = self.parts.layer(index)?;
        let shaped = |projection: Projection| projection.map(|matrix| self.shape(matrix));
        let Layer { input_layernorm, mut self_attn, post_attention_layernorm, mlp } = layer;
        self_attn.q_proj = shaped(self_attn.q_proj);
        self_attn.k_proj = shaped(self_attn.k_proj);
        self_attn.v_proj = shaped(self_attn.v_proj);
        self_attn.o_proj = shaped(self_attn.o_proj);
        let mlp = Mlp { gate_proj: shaped(mlp.gate_proj), up_proj: shaped(mlp.up_proj), down_proj: shaped(mlp.down_proj) };
        Ok(Layer { input_layernorm, self_attn, post_attention_layernorm, mlp })
    }

    fn norm(&mut self) -> Result<Norm, P::Error> {
        self.parts.norm()
    }

    fn head(&mut self) -> Result<Option<Tensor<2>>, P::Error> {
        Ok(self.parts.head()?.map(|head| self.shape(head)))
    }
}

impl Qwen2 {
    /// Puts a decoder together.
    pub(crate) fn assemble<P: Parts>(config: &Qwen2Config, mut parts: P) -> Result<Self, P::Error> {
        let embedding = parts.embedding()?;
        Self::assemble_after(embedding, config, parts)
    }

    /// The same once the embedding has been taken.
    pub(crate) fn assemble_after<P: Parts>(embedding: Tensor<2>, config: &Qwen2Config, mut parts: P) -> Result<Self, P::Error> {
        Ok(Self {
            embed_tokens: Param::from_tensor(embedding),
            layers: (0..config.num_hidden_layers).map(|index| parts.layer(index)).collect::<Result<_, _>>()?,
            norm: parts.norm()?,
            lm_head: parts.head()?.map(Param::from_tensor),
            config: config.clone(),
        })
    }
}
