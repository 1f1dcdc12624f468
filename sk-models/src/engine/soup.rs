use std::sync::Arc;

use sk_core::{BoxError, Merge, SpecHandle};

use super::{
    EngineError,
    rack::{self, AdapterRack},
};
use crate::lora::{LoraAdapter, MergeError, merge};

/// Rewarded Soups: the backbone under the average of the seated adapters, weighted by **w** in
/// weight space.
///
/// After an edit of Ω, the next step merges again and reads the context again. Other steps cost
/// nothing extra.
pub struct Soup {
    rack: AdapterRack,
    spec: SpecHandle,
    merge: Merge,
    last: Option<(Vec<Ingredient>, Arc<LoraAdapter>)>,
}

/// The weight of an adapter, and the adapter.
type Ingredient = (f64, Arc<LoraAdapter>);

impl Soup {
    /// Returns a soup of the adapters of `rack` to which `spec` gives a positive weight, by the
    /// names of the seats.
    #[must_use]
    pub fn new(rack: AdapterRack, spec: SpecHandle, merge: Merge) -> Self {
        Self { rack, spec, merge, last: None }
    }

    /// Returns the merged adapter of the next step: the same allocation until Ω or the rack
    /// changes.
    ///
    /// # Errors
    /// If an adapter is not in the rack, or the adapters cannot be merged.
    pub(super) fn adapter(&mut self) -> Result<Arc<LoraAdapter>, BoxError> {
        let spec = self.spec.snapshot();
        let positive: Vec<_> = spec.seats().iter().zip(spec.weights().as_slice()).filter(|(_, weight)| **weight > 0.0).collect();
        let ingredients: Vec<Ingredient> = positive
            .iter()
            .map(|(seat, weight)| Ok((**weight, rack::find(&self.rack, "adapter", seat.name())?)))
            .collect::<Result<_, EngineError>>()?;
        let unchanged = |(old, _): &(Vec<Ingredient>, _)| {
            old.len() == ingredients.len() && old.iter().zip(&ingredients).all(|((v, a), (w, b))| v == w && Arc::ptr_eq(a, b))
        };
        if let Some(last) = self.last.as_ref().filter(|last| unchanged(last)) {
            return Ok(Arc::clone(&last.1));
        }
        let weighted: Vec<(f64, &LoraAdapter)> = ingredients.iter().map(|(weight, adapter)| (*weight, &**adapter)).collect();
        let merged = Arc::new(merge(self.merge, &weighted).map_err(|error| match error {
            MergeError::NegativeScale { adapter } => {
                BoxError::from(EngineError::NegativeScale { name: positive[adapter].0.name().to_string() })
            }
            error => error.into(),
        })?);
        self.last = Some((ingredients, Arc::clone(&merged)));
        Ok(merged)
    }
}
