//! Linear heads on the backbone's hidden states.

pub use sk_core::HeadKind;

/// A linear function of a hidden state: v = w·h + b, with h the final-norm hidden state `[H]` after
/// a token.
#[derive(Debug, Clone, PartialEq)]
pub struct Head {
    /// The meaning of the value.
    pub kind: HeadKind,
    /// The judged attribute, such as `harmless`.
    pub attribute: String,
    /// w, `[H]`.
    pub weight: Vec<f32>,
    /// b.
    pub bias: f32,
}

impl Head {
    /// Returns H, the width of the hidden states.
    #[must_use]
    pub fn width(&self) -> usize {
        self.weight.len()
    }
}
