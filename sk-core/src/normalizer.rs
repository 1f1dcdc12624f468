use crate::{Composite, Real, ScoreTable, Simplex};

/// 𝓝: puts the blades of a batch on one scale and combines them with weights **w**.
pub trait Normalizer<F: Real = f64>: Send + Sync {
    /// Combines K×N scores under K weights into N composites, such as
    ///
    /// ```text
    /// μ_i = Σ_k w_k μ̂_i^(k)        σ_i = Σ_k w_k σ̂_i^(k)
    /// ```
    ///
    /// with μ̂ and σ̂ what the normaliser makes of the scores of a blade: without units, or in
    /// those of the blades where it leaves them as they are. Infallible: the table and the weights
    /// are valid by construction. What is written must be scores: μ finite, σ finite and not
    /// negative, one of each per candidate; a step fails where it is not.
    ///
    /// `out` is overwritten whatever it held.
    ///
    /// # Panics
    /// May panic when there are not as many weights as blades.
    fn combine(&self, scores: &ScoreTable<F>, weights: &Simplex<F>, out: &mut Composite<F>);
}

const _: Option<&dyn Normalizer<f64>> = None;
