//! The operands of the steps of a pass.

use burn::tensor::{DType, Int, Tensor};

use super::shape::Visibility;
use crate::decoder::heads::Heads;

/// A product with a frozen matrix, and the low-rank update that the adapters add to it, in f32.
#[derive(Debug, Clone)]
pub(super) struct Changed {
    pub(super) frozen: Tensor<2>,
    pub(super) delta: Option<Tensor<2>>,
}

impl Changed {
    /// Returns the sum in f32.
    pub(super) fn sum(self) -> Tensor<2> {
        let frozen = self.frozen.cast(DType::F32);
        match self.delta {
            None => frozen,
            Some(delta) => frozen + delta,
        }
    }
}

/// A group of a pass, whose queries attend to the keys of its cache.
#[derive(Debug, Clone)]
#[cfg_attr(
    not(any(feature = "cuda", feature = "wgpu")),
    expect(dead_code, reason = "only the kernels of `cube` read some fields")
)]
pub(super) struct AttentionGroup {
    pub(super) heads: Heads,
    pub(super) lanes: usize,
    /// The group's first place in each lane of the pass.
    pub(super) start: usize,
    pub(super) visibility: Visibility,
    /// [`Visibility::lengths`] in device memory, so that the same launches serve other passes: two of
    /// these numbers, from `at` on.
    pub(super) numbers: Tensor<1, Int>,
    pub(super) at: usize,
    /// The largest number of keys over all values of the two numbers.
    pub(super) room: usize,
}

/// A selection of the most probable tokens of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Selection {
    /// This many tokens.
    Count,
    /// The fewest tokens that hold at least a given share of the sum of weights at this rate.
    Mass { rate: f32 },
    /// The fewest tokens that hold more than a given share of the sum of weights at this rate.
    Draw { rate: f32 },
}

impl Selection {
    /// Returns r, of the weights e^{z·r}.
    pub(super) fn rate(self) -> f32 {
        match self {
            Self::Count => 0.0,
            Self::Mass { rate } | Self::Draw { rate } => rate,
        }
    }

    pub(super) fn counts(self) -> bool {
        matches!(self, Self::Count)
    }

    pub(super) fn is_strict(self) -> bool {
        matches!(self, Self::Draw { .. })
    }
}
