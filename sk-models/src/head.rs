//! Linear heads on the backbone's hidden states.

pub use sk_core::HeadKind;

/// A value read off a hidden state: v = w·h + b, with h the final-norm hidden state `[H]` after a token.
#[derive(Debug, Clone, PartialEq)]
pub struct Head {
    /// What the value means.
    pub kind: HeadKind,
    /// What it judges, such as `harmless`.
    pub attribute: String,
    /// w, `[H]`.
    pub weight: Vec<f32>,
    /// b.
    pub bias: f32,
}

impl Head {
    /// H, the width of the hidden states it reads.
    #[must_use]
    pub fn width(&self) -> usize {
        self.weight.len()
    }
}
