use crate::{Composite, Real, ScoreTable, Simplex};

/// 𝓝: puts the blades of a batch on one scale and combines them with weights **w**.
pub trait Normalizer<F: Real = f64>: Send + Sync {
    /// Combines K×N scores into N composites. Infallible: the table and the weights are valid by construction.
    ///
    /// `out` is overwritten whatever it held.
    ///
    /// # Panics
    /// May panic when there are not as many weights as blades.
    fn combine(&self, scores: &ScoreTable<F>, weights: &Simplex<F>, out: &mut Composite<F>);
}

const _: Option<&dyn Normalizer<f64>> = None;
